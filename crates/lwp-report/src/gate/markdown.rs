//! The verdict as a comment on a change.

use std::fmt::Write;

use super::{Benchmark, Verdict};
use crate::escape::{markdown as cell, printable};
use crate::libc;
use crate::number::{amount, signed_amount};

/// The first line of every comment, by which the one of an earlier run is found again.
const MARK: &str = "<!-- lwp gate -->";
/// Functions listed for each benchmark.
const LISTED: usize = 20;
const HEADS: &str =
    "| | counted | baseline | now | change | limit | |\n|---|---|--:|--:|--:|--:|---|\n";

/// The verdict in Markdown.
pub fn render(verdict: &Verdict) -> String {
    let word = if verdict.passes() { "within limits" } else { "limits exceeded" };
    let title = match verdict.benchmarks.as_slice() {
        [one] => cell(one.title()),
        several => format!("{} benchmarks", several.len()),
    };
    let mut out = format!("{MARK}\n### {title}: {word}\n\n");
    let moved = |it: &&Benchmark| !it.passes() || it.checks.iter().any(super::Check::has_changed);
    let (first, rest): (Vec<&Benchmark>, Vec<&Benchmark>) =
        verdict.benchmarks.iter().partition(|it| moved(it) || verdict.benchmarks.len() == 1);
    if !first.is_empty() {
        table(&mut out, &first);
    }
    if !rest.is_empty() {
        let _ = writeln!(out, "<details><summary>{} as before</summary>\n", rest.len());
        table(&mut out, &rest);
        out.push_str("\n</details>\n");
    }
    for benchmark in &verdict.benchmarks {
        changes(&mut out, benchmark, verdict);
    }
    for note in &verdict.notes {
        let _ = writeln!(out, "\n{}", cell(note));
    }
    if let Some(url) = verdict.pictures.as_deref().filter(|url| !url.contains("{name}")) {
        let _ = writeln!(out, "\n[Differential flame graphs]({})", link(url));
    }
    out
}

fn table(out: &mut String, benchmarks: &[&Benchmark]) {
    out.push_str(HEADS);
    for benchmark in benchmarks {
        for check in benchmark.shown() {
            let _ = writeln!(
                out,
                "| {} | {} | {} | {} | {} | {} | {} |",
                cell(&benchmark.name),
                cell(&check.title()),
                check.before.map_or("-".to_owned(), |before| amount(&check.event, before)),
                check.value(),
                check.change(),
                check.limit,
                check.word()
            );
        }
        if benchmark.silent() > 0 {
            let (name, silent) = (cell(&benchmark.name), benchmark.silent());
            let _ = writeln!(out, "| {name} | {silent} functions and modules | | | | | ok |");
        }
    }
}

/// The functions that changed, and what else is to be said of a benchmark.
fn changes(out: &mut String, benchmark: &Benchmark, verdict: &Verdict) {
    let name = match benchmark.name.as_str() {
        "" => String::new(),
        name => format!(" of {}", cell(name)),
    };
    if !benchmark.changed.is_empty() {
        let event = cell(&benchmark.event);
        let open = if benchmark.passes() { "" } else { " open" };
        let _ = writeln!(
            out,
            "\n<details{open}><summary>Functions{name} by change of {event}</summary>\n\n\
             | change | | baseline | now | function |\n|--:|--:|--:|--:|---|"
        );
        for change in benchmark.changed.iter().take(LISTED) {
            let count = |count: Option<u64>| {
                count.map_or("-".to_owned(), |count| amount(&benchmark.event, count))
            };
            let place = change
                .place
                .as_ref()
                .map_or(String::new(), |place| format!(" ({}:{})", cell(&place.file), place.line));
            let _ = writeln!(
                out,
                "| {} | {} | {} | {} | {}{place} |",
                signed_amount(&benchmark.event, change.delta()),
                change.part(),
                count(change.before),
                count(change.after),
                cell(&change.function)
            );
        }
        if let Some(more) = benchmark.changed.len().checked_sub(LISTED).filter(|more| *more > 0) {
            let _ = writeln!(out, "\n{more} more changed.");
        }
        out.push_str("\n</details>\n");
    }
    if let (Some(picture), Some(url)) = (&benchmark.picture, &verdict.pictures)
        && url.contains("{name}")
    {
        let url = link(&url.replace("{name}", picture));
        let _ = writeln!(out, "\n[![differential flame graph{name}]({url})]({url})");
    }
    let all = libc::notice(&benchmark.rebuilt).map(str::to_owned);
    for note in all.iter().chain(&benchmark.notes) {
        let _ = writeln!(out, "\n{}", cell(note));
    }
}

/// `url` between the parentheses of a link.
fn link(url: &str) -> String {
    let url = printable(url);
    url.replace(' ', "%20").replace('(', "%28").replace(')', "%29").replace('<', "%3C")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::samples;

    #[test]
    fn a_comment_has_what_changed_and_nothing_of_it_is_markup() {
        let text = render(&samples::exceeded());
        assert!(
            text.starts_with("<!-- lwp gate -->\n### 2 benchmarks: limits exceeded\n"),
            "{text}"
        );
        let row = "|  | instructions in f\\<int\\>(\u{fffd}) | 100 | 150 | +50 (+50.00%) | +1% | EXCEEDED |\n";
        assert!(text.contains(row), "{text}");
        assert!(text.contains("<summary>1 as before</summary>"), "{text}");
        let function =
            "| +50 | +250.00% | 20 | 70 | f\\<int\\>(\u{fffd}) \\[a\\] (src/a,b.rs:7) |\n";
        assert!(text.contains(function), "{text}");
        assert!(text.contains("| -1 | gone | 1 | - | g \\[a\\] |\n"), "{text}");
        assert!(!text.contains("!["), "{text}");
    }

    #[test]
    fn pictures_are_shown_where_they_have_an_address() {
        let mut verdict = samples::exceeded();
        verdict.pictures = Some("https://example.org/(x)/{name}".into());
        let text = render(&verdict);
        let image = "[![differential flame graph](https://example.org/%28x%29/a.svg)]";
        assert!(text.contains(image), "{text}");
        verdict.pictures = Some("https://example.org/run".into());
        let text = render(&verdict);
        assert!(text.ends_with("[Differential flame graphs](https://example.org/run)\n"), "{text}");
    }

    #[test]
    fn the_command_is_the_title_of_one() {
        let mut verdict = samples::exceeded();
        verdict.benchmarks.truncate(1);
        assert!(render(&verdict).contains("### a \\<b\\> \\| c: limits exceeded\n"));
    }
}
