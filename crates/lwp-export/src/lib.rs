//! Profiles in the formats of other tools, one file a format.
//!
//! Own counts are what was counted in every format. Where a format wants call stacks and the
//! profile has none, because every execution was counted and contexts were not measured, the stacks
//! are inferred from numbers of calls (see [`lwp_profile::Inferred`]), and the output says so wherever
//! it has a place for words.
#![forbid(unsafe_code)]

pub mod callgrind;
pub mod chrome;
pub mod facts;
pub mod feedback;
pub mod firefox;
pub mod folded;
pub mod json_lines;
pub mod otlp;
pub mod perf_data;
pub mod perf_names;
pub mod pprof;
pub mod speedscope;
mod strings;
mod threads;

use lwp_profile::{Profile, Recording};
use lwp_terminal::escape::is_hostile;

/// A format of another tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Folded stacks: `main;f;g 42`.
    Folded,
    /// Callgrind's output.
    Callgrind,
    /// pprof's protocol buffer, compressed.
    Pprof,
    /// pprof's protocol buffer as Go's compiler reads it.
    Pgo,
    /// perf's recording.
    PerfData,
    /// Firefox Profiler's processed format.
    Firefox,
    /// Speedscope's JSON.
    Speedscope,
    /// Chrome's trace events.
    Chrome,
    /// One JSON object a line.
    JsonLines,
    /// The rows that `lwp fleet` keeps.
    Facts,
    /// OpenTelemetry's profiles signal, which is still in development.
    Otlp,
}

impl Format {
    /// Every format: name, usual end of file names, what reads it.
    #[rustfmt::skip] // A table: one format a line.
    pub const ALL: &[(Self, &'static str, &'static str, &'static str)] = &[
        (Self::Folded,     "folded",     ".folded",         "flame graph scripts"),
        (Self::Callgrind,  "callgrind",  "callgrind.out",   "callgrind_annotate, KCachegrind"),
        (Self::Pprof,      "pprof",      ".pb.gz",          "go tool pprof, Pyroscope, Parca"),
        (Self::Pgo,        "pgo",        ".pgo",            "go build -pgo=FILE"),
        (Self::PerfData,   "perf",       "perf.data",       "perf report, hotspot"),
        (Self::Firefox,    "firefox",    ".profile.json",   "profiler.firefox.com, which loads local files"),
        (Self::Speedscope, "speedscope", ".speedscope.json","speedscope"),
        (Self::Chrome,     "chrome",     ".trace.json",     "chrome://tracing, Perfetto"),
        (Self::JsonLines,  "jsonl",      ".jsonl",          "jq, DuckDB, scripts"),
        (Self::Facts,      "facts",      ".facts",         "lwp fleet add, jq, DuckDB"),
        (Self::Otlp,       "otlp",       ".otlp.pb",        "OpenTelemetry's profiles (experimental: v1development)"),
    ];

    /// Returns true if the format has one event only, the one that is chosen.
    pub fn has_one_event(self) -> bool {
        matches!(self, Self::Folded | Self::Pgo | Self::Firefox | Self::Chrome)
    }

    /// The format called `name`.
    pub fn named(name: &str) -> Option<Self> {
        let row = Self::ALL.iter().find(|row| row.1 == name);
        row.map(|row| row.0)
    }

    /// The format that a file's name suggests.
    pub fn of_file(name: &str) -> Option<Self> {
        let row = Self::ALL.iter().find(|row| name.ends_with(row.2) || name.starts_with(row.2));
        row.map(|row| row.0)
    }

    /// Writes the format. `event` is the index of the event for formats that have only one.
    pub fn write(self, recording: &Recording, profile: &Profile, event: usize) -> Vec<u8> {
        match self {
            Self::Folded => folded::render(profile, event).into_bytes(),
            Self::Callgrind => callgrind::render(profile).into_bytes(),
            Self::Pprof => pprof::encode(recording, profile),
            Self::Pgo => pprof::encode_for_go(recording, profile, event),
            Self::PerfData => perf_data::encode(recording, profile, None),
            Self::Firefox => firefox::render(recording, profile, event),
            Self::Speedscope => speedscope::render(profile).into_bytes(),
            Self::Chrome => chrome::render(profile, event).into_bytes(),
            Self::JsonLines => json_lines::render(profile).into_bytes(),
            Self::Facts => facts::of(recording, profile).write().into_bytes(),
            Self::Otlp => otlp::encode(recording, profile),
        }
    }
}

/// Said where stacks are inferred.
pub const INFERRED: &str = "own counts are exact; stacks are inferred from numbers of calls";

/// Said where contexts were measured, of other events than instructions.
pub const SHARED: &str = "own counts are exact; stacks are measured in instructions, by which other events are shared out";

/// The remark on stacks of a profile's instructions that were not recorded.
pub(crate) fn located_stacks(profile: &Profile) -> &'static str {
    match profile.has_contexts() {
        true => {
            "own counts are exact; stacks are measured in instructions by function, and its \
             instructions and other events are shared out by these"
        }
        false => INFERRED,
    }
}

/// The remark on stacks of a profile that were not recorded with the counts shown.
pub(crate) fn estimate(profile: &Profile) -> &'static str {
    if profile.has_contexts() { SHARED } else { INFERRED }
}

/// `text` without control characters.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().map(|c| if is_hostile(c) { ' ' } else { c }).collect()
}
