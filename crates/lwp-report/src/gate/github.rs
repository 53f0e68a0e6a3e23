//! The verdict as commands of a GitHub workflow: one a line, shown beside the line of source code
//! that it names.

use std::fmt::Write;

use super::{Benchmark, Place, SUSPECTS, Verdict};
use crate::escape::printable;
use crate::libc;
use crate::number::signed_amount;

/// The verdict as commands.
pub fn render(verdict: &Verdict) -> String {
    let mut out = String::new();
    for benchmark in &verdict.benchmarks {
        one(&mut out, benchmark);
    }
    for note in &verdict.notes {
        command(&mut out, "notice", None, note);
    }
    out
}

fn one(out: &mut String, benchmark: &Benchmark) {
    let title = benchmark.title();
    for check in benchmark.shown() {
        let kind = if check.passes() { "notice" } else { "error" };
        let mut message = format!("{title}: {}: {}", check.title(), check.words());
        if !check.passes() {
            for change in benchmark.changed.iter().take(SUSPECTS) {
                let delta = signed_amount(&benchmark.event, change.delta());
                let _ = write!(message, "\n{delta}  {}", change.function);
            }
        }
        command(out, kind, check.place.as_ref(), &message);
    }
    if !benchmark.passes() {
        let more = benchmark.changed.iter().filter(|it| it.delta() > 0 && it.place.is_some());
        for change in more.take(SUSPECTS) {
            let (function, event) = (&change.function, &benchmark.event);
            let message = format!("{title}: {function}: {event} {}", change.words(event));
            command(out, "warning", change.place.as_ref(), &message);
        }
    }
    let notice = libc::notice(&benchmark.rebuilt).map(str::to_owned);
    for note in notice.iter().chain(&benchmark.notes) {
        command(out, "notice", None, note);
    }
}

/// Writes one command; the characters that would end it are encoded.
fn command(out: &mut String, kind: &str, place: Option<&Place>, message: &str) {
    let encoded = |text: &str| {
        let text = text.replace('%', "%25");
        printable(&text.replace('\r', "%0D").replace('\n', "%0A"))
    };
    let place = place.map_or(String::new(), |place| {
        let file = encoded(&place.file).replace(':', "%3A").replace(',', "%2C");
        format!("file={file},line={},", place.line)
    });
    let _ = writeln!(out, "::{kind} {place}title=lwp gate::{}", encoded(message));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::samples;

    #[test]
    fn annotations_have_file_and_line_and_cannot_be_forged() {
        let text = render(&samples::exceeded());
        let lines: Vec<&str> = text.lines().collect();
        let whole = "::error title=lwp gate::a <b> | c: instructions: 150 of at most 101 (+1%25), \
                     +50 (+50.00%25)%0A+50  f<int>(\u{fffd}) [a]%0A-1  g [a]";
        assert_eq!(lines[0], whole);
        let function =
            "::error file=src/a%2Cb.rs,line=7,title=lwp gate::a <b> | c: instructions in f";
        assert!(lines[1].starts_with(function), "{text}");
        let cause = "::warning file=src/a%2Cb.rs,line=7,title=lwp gate::a <b> | c: f<int>(\u{fffd}) [a]: \
                     instructions +50 (+250.00%25)";
        assert_eq!(lines[2], cause);
        assert_eq!(lines[3], "::notice title=lwp gate::one\u{fffd}note");
        assert!(lines[4].starts_with("::notice title=lwp gate::group/fine: instructions: 100 of"));
        assert_eq!(lines.len(), 5, "{text}");
    }
}
