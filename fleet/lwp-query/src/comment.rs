//! Comparisons as a comment on a change, in Markdown: the same from the command and the server.

use lwp_terminal::escape::markdown;

use crate::compare::{Comparison, Pair, Single};
use crate::number::{grouped, percent, signed};

/// The most benchmarks that a comment lists as vanished or new.
const MOST_SINGLES: usize = 50;

/// A comment on a comparison of two sides, which are named as they were asked for. `over`
/// benchmarks grew by more than they may; of each benchmark, so many functions are shown.
pub fn comment(
    compared: &Comparison,
    names: (&str, &str),
    over: usize,
    functions: usize,
) -> String {
    let changed: Vec<&Pair> = compared.pairs.iter().filter(|pair| !pair.is_identical()).collect();
    let identical = compared.pairs.len() - changed.len();
    let mut out = format!(
        "### lwp: {}\n\n`{}` compared with `{}`, {}\n",
        verdict(compared, over, changed.len()),
        markdown(names.1),
        markdown(names.0),
        markdown(&compared.counted())
    );
    out += &singles("Vanished", names.0, compared, &compared.only_before);
    out += &totals(compared, &changed);
    out += &singles("New", names.1, compared, &compared.only_after);
    for pair in changed {
        out += &details(compared, pair, functions);
    }
    out += &format!("\n{identical} of {} benchmarks are identical.\n", compared.pairs.len());
    out
}

/// The result in one line: what is worst comes first.
fn verdict(compared: &Comparison, over: usize, changed: usize) -> String {
    let all = compared.pairs.len();
    let counted = |number: usize, one: &str, many: &str| {
        let verb = if number == 1 { one } else { many };
        (number > 0).then(|| format!("{number} {verb}"))
    };
    let grown = match (over, changed) {
        (0, 0) => None,
        (0, changed) => Some(format!("{changed} of {all} benchmarks changed")),
        (over, _) => Some(format!("{over} of {all} benchmarks grew by more than they may")),
    };
    let parts = [
        grown,
        counted(compared.only_before.len(), "benchmark vanished", "benchmarks vanished"),
        counted(compared.only_after.len(), "is new", "are new"),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "No count changed".to_owned() } else { parts.join(", ") }
}

/// The benchmarks that only one side has.
fn singles(title: &str, side: &str, compared: &Comparison, of: &[Single]) -> String {
    if of.is_empty() {
        return String::new();
    }
    let mut out = format!("\n{title}, only in `{}`:\n\n", markdown(side));
    for one in of.iter().take(MOST_SINGLES) {
        let name = compared.name(&one.project, &one.benchmark);
        out += &format!("* {}{}\n", markdown(&name), noted(&one.note));
    }
    match of.len().checked_sub(MOST_SINGLES) {
        None | Some(0) => {}
        Some(more) => out += &format!("* {more} more\n"),
    }
    out
}

fn noted(note: &str) -> String {
    if note.is_empty() { String::new() } else { format!(": {}", markdown(note)) }
}

/// The table of benchmarks that changed.
fn totals(compared: &Comparison, changed: &[&Pair]) -> String {
    if changed.is_empty() {
        return String::new();
    }
    let mut out = "\n| benchmark | before | after | change |\n|---|---:|---:|---:|\n".to_owned();
    for pair in changed {
        out += &format!(
            "| {} | {} | {} | {}{} |\n",
            markdown(&compared.name(&pair.project, &pair.benchmark)),
            grouped(pair.before.value.into()),
            grouped(pair.after.value.into()),
            percent(pair.before.value as f64, pair.after.value as f64),
            noted(&pair.note),
        );
    }
    out
}

/// The functions of a benchmark that changed, folded up.
fn details(compared: &Comparison, pair: &Pair, functions: usize) -> String {
    let (caveats, changes) = (pair.caveats(), &pair.changes);
    if caveats.is_empty() && changes.is_empty() {
        return String::new();
    }
    let name = compared.name(&pair.project, &pair.benchmark);
    let mut out = format!("\n<details><summary>{}</summary>\n\n", markdown(&name));
    for caveat in caveats {
        out += &format!("* {}\n", markdown(&caveat));
    }
    if !changes.changed.is_empty() {
        out += "\n| function | before | after | difference |\n|---|---:|---:|---:|\n";
    }
    for change in changes.changed.iter().take(functions) {
        let former = change.former().map_or(String::new(), |former| format!(", {former}"));
        out += &format!(
            "| {}{} ({}) | {} | {} | {}{} |\n",
            markdown(&change.function),
            markdown(&former),
            markdown(&change.module),
            grouped(change.before.into()),
            grouped(change.after.into()),
            signed(change.difference()),
            change.plus_minus()
        );
    }
    for line in [changes.indistinguishable(), changes.renames()].into_iter().flatten() {
        out += &format!("\n{}\n", markdown(&line));
    }
    out += "\n</details>\n";
    out
}
