//! Formats, and how they are told apart.

use prost::Message;
use serde_json::Value;

/// A format of another tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// pprof's protocol buffer.
    Pprof,
    /// OpenTelemetry's profiles, `v1development`.
    Otlp,
    /// The text that `perf script` prints.
    PerfScript,
    /// Folded stacks.
    Folded,
    /// Callgrind's output.
    Callgrind,
    /// `estimates.json` of criterion, or the messages of `cargo criterion`.
    Criterion,
    /// Bencher's metric format.
    Bencher,
    /// CodSpeed's results of wall time.
    Codspeed,
}

impl Format {
    /// Every format and its word.
    pub const ALL: [(Self, &'static str); 8] = [
        (Self::Pprof, "pprof"),
        (Self::Otlp, "otlp"),
        (Self::PerfScript, "perf-script"),
        (Self::Folded, "folded"),
        (Self::Callgrind, "callgrind"),
        (Self::Criterion, "criterion"),
        (Self::Bencher, "bencher"),
        (Self::Codspeed, "codspeed"),
    ];

    /// The format that a word stands for.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == word).map(|(format, _)| *format)
    }

    /// All words.
    pub fn words() -> String {
        Self::ALL.map(|(_, word)| word).join(", ")
    }

    /// The format of unpacked bytes.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let start = String::from_utf8_lossy(&bytes[..bytes.len().min(4096)]);
        if start.starts_with("# callgrind format") || start.starts_with("version: 1\n") {
            return Some(Self::Callgrind);
        }
        if start.trim_start().starts_with('{') {
            return of_json(bytes);
        }
        if bytes.contains(&0) || bytes.first().is_some_and(|byte| matches!(byte, 0x0a | 0x12)) {
            return of_message(bytes);
        }
        let mut lines = start.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let first = lines.next()?;
        if crate::folded::line(first).is_some() && !first.starts_with(char::is_whitespace) {
            return Some(Self::Folded);
        }
        crate::perf_script::head(first).map(|_| Self::PerfScript)
    }
}

/// Returns true for the first bytes of facts, whose first line has the key.
pub fn is_facts(bytes: &[u8]) -> bool {
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let first = &bytes[..end];
    let key = b"\"facts\":";
    first.starts_with(b"{") && first.windows(key.len()).any(|part| part == key)
}

fn of_json(bytes: &[u8]) -> Option<Format> {
    let value = serde_json::from_slice::<Value>(bytes);
    let Ok(Value::Object(all)) = value else {
        // Messages, one a line.
        let first = bytes.split(|byte| *byte == b'\n').next()?;
        let first = serde_json::from_slice::<Value>(first).ok()?;
        return first.get("reason").map(|_| Format::Criterion);
    };
    if all.contains_key("reason")
        || all.get("mean").is_some_and(|mean| mean.get("point_estimate").is_some())
    {
        return Some(Format::Criterion);
    }
    if all.get("benchmarks").is_some_and(Value::is_array) && all.contains_key("instrument") {
        return Some(Format::Codspeed);
    }
    let is_metric = |value: &Value| {
        let measures = value.as_object();
        measures.is_some_and(|all| all.values().all(|measure| measure.get("value").is_some()))
    };
    (!all.is_empty() && all.values().all(is_metric)).then_some(Format::Bencher)
}

/// The two messages have fields of the same numbers; pprof's strings begin with an empty one, and
/// OTLP's are elsewhere.
fn of_message(bytes: &[u8]) -> Option<Format> {
    use lwp_export::{otlp, pprof};
    let pprof = pprof::proto::Profile::decode(bytes);
    if pprof.is_ok_and(|profile| profile.string_table.first().is_some_and(String::is_empty)) {
        return Some(Format::Pprof);
    }
    let otlp = otlp::proto::ProfilesData::decode(bytes);
    otlp.is_ok_and(|data| data.dictionary.is_some()).then_some(Format::Otlp)
}
