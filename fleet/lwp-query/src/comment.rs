//! Comparisons as a comment on a change, in Markdown: the same from the command and the server.

use lwp_terminal::escape::markdown;

use crate::compare::{Comparison, Pair};
use crate::number::{grouped, percent, signed};

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
    let verdict = match (over, changed.len()) {
        (0, 0) => "No count changed".to_owned(),
        (0, changed) => format!("{changed} of {} benchmarks changed", compared.pairs.len()),
        (over, _) => {
            format!("{over} of {} benchmarks grew by more than they may", compared.pairs.len())
        }
    };
    let mut out = format!(
        "### lwp: {verdict}\n\n`{}` compared with `{}`, {}\n",
        markdown(names.1),
        markdown(names.0),
        markdown(&compared.event)
    );
    out += &totals(&changed);
    for pair in changed.iter().filter(|pair| !pair.functions.is_empty()) {
        out += &details(pair, functions);
    }
    out += &format!("\n{identical} of {} benchmarks are identical.\n", compared.pairs.len());
    out
}

/// The table of benchmarks that changed.
fn totals(changed: &[&Pair]) -> String {
    if changed.is_empty() {
        return String::new();
    }
    let mut out = "\n| benchmark | before | after | change |\n|---|---:|---:|---:|\n".to_owned();
    for pair in changed {
        let noted = match pair.note.is_empty() {
            true => String::new(),
            false => format!(": {}", markdown(&pair.note)),
        };
        out += &format!(
            "| {} | {} | {} | {}{noted} |\n",
            markdown(&pair.benchmark),
            grouped(pair.before.value.into()),
            grouped(pair.after.value.into()),
            percent(pair.before.value as f64, pair.after.value as f64),
        );
    }
    out
}

/// The functions of a benchmark that changed, folded up.
fn details(pair: &Pair, functions: usize) -> String {
    let mut out = format!("\n<details><summary>{}</summary>\n\n", markdown(&pair.benchmark));
    for caveat in pair.caveats() {
        out += &format!("* {}\n", markdown(&caveat));
    }
    out += "\n| function | before | after | difference |\n|---|---:|---:|---:|\n";
    for change in pair.functions.iter().take(functions) {
        out += &format!(
            "| {} ({}) | {} | {} | {} |\n",
            markdown(&change.function),
            markdown(&change.module),
            grouped(change.before.into()),
            grouped(change.after.into()),
            signed(change.difference())
        );
    }
    out += "\n</details>\n";
    out
}
