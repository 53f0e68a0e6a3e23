//! The verdict for a terminal.

use std::fmt::Write;

use super::{Benchmark, SUSPECTS, Verdict};
use crate::escape::printable;
use crate::libc;
use crate::number::signed_amount;

/// The verdict as lines of text.
pub fn render(verdict: &Verdict) -> String {
    let mut out = String::new();
    let many = verdict.benchmarks.len() > 1;
    for benchmark in &verdict.benchmarks {
        if many {
            let _ = writeln!(out, "{}", printable(benchmark.title()));
        }
        one(&mut out, benchmark, if many { "  " } else { "" });
    }
    for note in &verdict.notes {
        let _ = writeln!(out, "note: {}", printable(note));
    }
    if many {
        let failed = verdict.benchmarks.iter().filter(|benchmark| !benchmark.passes()).count();
        let all = verdict.benchmarks.len();
        let _ = match failed {
            0 => writeln!(out, "ok: {all} benchmarks within their limits"),
            failed => writeln!(out, "EXCEEDED: {failed} of {all} benchmarks"),
        };
    }
    out
}

fn one(out: &mut String, benchmark: &Benchmark, indent: &str) {
    for check in benchmark.shown() {
        let title = printable(&check.title());
        let _ = writeln!(out, "{indent}{:<8} {title}: {}", check.word(), check.words());
    }
    match benchmark.silent() {
        0 => {}
        silent => {
            let _ = writeln!(out, "{indent}ok       {silent} limits of functions and modules");
        }
    }
    if !benchmark.passes() && !benchmark.changed.is_empty() {
        let _ = writeln!(out, "{indent}changed most:");
        for change in benchmark.changed.iter().take(SUSPECTS) {
            let function = printable(&change.function);
            let place = change.place.as_ref();
            let place = place.map_or(String::new(), |at| format!(" ({}:{})", at.file, at.line));
            let delta = signed_amount(&benchmark.event, change.delta());
            let place = printable(&place);
            let _ = writeln!(out, "{indent}  {delta:>16}  {function}{place}");
        }
    }
    for name in &benchmark.rebuilt {
        let _ = writeln!(out, "{indent}another build: {}", printable(name));
    }
    if let Some(notice) = libc::notice(&benchmark.rebuilt) {
        let _ = writeln!(out, "{indent}{notice}");
    }
    for note in &benchmark.notes {
        let _ = writeln!(out, "{indent}note: {}", printable(note));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::samples;

    #[test]
    fn what_fails_is_said_with_its_cause() {
        let text = render(&samples::exceeded());
        assert!(text.contains("EXCEEDED instructions: 150 of at most 101 (+1%), +50"), "{text}");
        assert!(text.contains("EXCEEDED instructions in f<int>(\u{fffd}): 150"), "{text}");
        assert!(text.contains("+50  f<int>(\u{fffd}) [a] (src/a,b.rs:7)\n"), "{text}");
        assert!(text.contains("note: one\u{fffd}note\n"), "{text}");
        assert!(text.contains("group/fine\n  ok       instructions: 100 of at most 101"), "{text}");
        assert!(text.ends_with("EXCEEDED: 1 of 2 benchmarks\n"), "{text}");
    }
}
