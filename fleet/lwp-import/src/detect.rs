//! Formats, and how they are told apart.

use prost::Message;
use serde_json::Value;

use crate::harness;

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
    /// The results of hyperfine.
    Hyperfine,
    /// The results of pytest-benchmark.
    Pytest,
    /// The results of Google Benchmark.
    Google,
    /// The text that `go test -bench` prints.
    Go,
    /// The results of JMH.
    Jmh,
    /// The results that github-action-benchmark takes.
    Action,
    /// The history that it keeps, `data.js`.
    ActionHistory,
}

/// Bytes of a text by which its format is told: heads and first lines may be long.
const START: usize = 1 << 20;

impl Format {
    /// Every format and its word.
    pub const ALL: [(Self, &'static str); 15] = [
        (Self::Pprof, "pprof"),
        (Self::Otlp, "otlp"),
        (Self::PerfScript, "perf-script"),
        (Self::Folded, "folded"),
        (Self::Callgrind, "callgrind"),
        (Self::Criterion, "criterion"),
        (Self::Bencher, "bencher"),
        (Self::Codspeed, "codspeed"),
        (Self::Hyperfine, "hyperfine"),
        (Self::Pytest, "pytest-benchmark"),
        (Self::Google, "google-benchmark"),
        (Self::Go, "go"),
        (Self::Jmh, "jmh"),
        (Self::Action, "action-benchmark"),
        (Self::ActionHistory, "action-benchmark-history"),
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
        let start = String::from_utf8_lossy(&bytes[..bytes.len().min(START)]);
        if start.starts_with("# callgrind format") || start.starts_with("version: 1\n") {
            return Some(Self::Callgrind);
        }
        if start.trim_start().starts_with(['{', '[']) {
            return of_json(bytes);
        }
        if start.trim_start().starts_with(harness::HISTORY) {
            return Some(Self::ActionHistory);
        }
        if bytes.contains(&0) || bytes.first().is_some_and(|byte| matches!(byte, 0x0a | 0x12)) {
            return of_message(bytes);
        }
        if start.lines().any(|line| harness::go_line(line).is_some()) {
            return Some(Self::Go);
        }
        let is_beside = crate::perf_script::is_beside;
        let mut lines = start.lines().filter(|line| !line.is_empty() && !is_beside(line));
        let first = lines.next()?;
        // A head without a time looks like a stack and its count, but for the line below.
        let is_script = crate::perf_script::head(first).is_some();
        if is_script && lines.next().is_some_and(crate::perf_script::is_of_stack) {
            return Some(Self::PerfScript);
        }
        if crate::folded::line(first).is_some() && !first.starts_with(char::is_whitespace) {
            return Some(Self::Folded);
        }
        (is_script && !crate::perf_script::is_bare(first)).then_some(Self::PerfScript)
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
    if let Ok(Value::Array(all)) = &value {
        let first = all.first()?;
        let has = |key: &str| first.get(key).is_some();
        return match (has("benchmark") && has("primaryMetric"), has("value") && has("unit")) {
            (true, _) => Some(Format::Jmh),
            (_, true) => Some(Format::Action),
            _ => None,
        };
    }
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
    let array = |key: &str| all.get(key).and_then(Value::as_array);
    let first = |key: &str| array(key).and_then(|all| all.first());
    if first("results").is_some_and(|one| one.get("command").is_some()) {
        return Some(Format::Hyperfine);
    }
    if let Some(one) = first("benchmarks") {
        if one.get("stats").is_some() && all.contains_key("machine_info") {
            return Some(Format::Pytest);
        }
        if all.contains_key("context") && one.get("real_time").is_some() {
            return Some(Format::Google);
        }
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
    use lwp_export::otlp;
    let pprof = crate::pprof::decode(bytes);
    if pprof.is_ok_and(|profile| profile.string_table.first().is_some_and(String::is_empty)) {
        return Some(Format::Pprof);
    }
    let otlp = otlp::proto::ProfilesData::decode(bytes);
    otlp.is_ok_and(|data| data.dictionary.is_some()).then_some(Format::Otlp)
}
