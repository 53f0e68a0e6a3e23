//! The comparison of a program with its optimised form, as text.

use std::fmt::Write;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use lwp_report::number::grouped;
use lwp_terminal::escape::printable;

use super::runs::{Compared, Measured};

/// The table, a line for each property.
pub fn render(files: [&Path; 2], compared: &Compared) -> String {
    let names = files.map(|file| {
        let name = file.file_name().unwrap_or(file.as_os_str());
        printable(&name.to_string_lossy())
    });
    let [before, after] = &compared.measured;
    let mut out = row(["", &names[0], &names[1], "change"]);
    let end = [before, after].map(|it| it.status.map(words).unwrap_or_default());
    out += &row(["end", &end[0], &end[1], if end[0] == end[1] { "same" } else { "DIFFERENT" }]);
    let output = match (compared.same_output, compared.repeats) {
        (true, _) => "same",
        (false, true) => "DIFFERENT",
        (false, false) => "the original's differs from run to run",
    };
    out += &row(["output", "", "", output]);
    out += &counts("instructions", [before.instructions, after.instructions]);
    out += &counts("branches taken", [before.branches_taken, after.branches_taken]);
    out += &times([before, after]);
    let sizes = files.map(|file| std::fs::metadata(file).map_or(0, |it| it.len()));
    out + &counts("size in bytes", sizes)
}

fn row(cells: [&str; 4]) -> String {
    let mut out = String::new();
    let [name, before, after, change] = cells;
    let _ = write!(out, "{name:<18} {before:>18} {after:>18}  {change}");
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

fn counts(name: &str, [before, after]: [u64; 2]) -> String {
    row([name, &grouped(before), &grouped(after), &change(before as f64, after as f64)])
}

/// The median of user time, and its least and greatest.
fn times(measured: [&Measured; 2]) -> String {
    let of = |it: &Measured| it.user_times.get(it.user_times.len() / 2).copied();
    let [Some(before), Some(after)] = measured.map(of) else { return String::new() };
    let seconds = |time: Duration| format!("{:.3} s", time.as_secs_f64());
    let changed = change(before.as_secs_f64(), after.as_secs_f64());
    let median = row(["user time, median", &seconds(before), &seconds(after), &changed]);
    let spread = measured.map(|it| {
        let ends = it.user_times.first().zip(it.user_times.last());
        let ends = ends.map(|(least, most)| (least.as_secs_f64(), most.as_secs_f64()));
        ends.map_or(String::new(), |(least, most)| format!("{least:.3}–{most:.3} s"))
    });
    let runs = format!("of {} runs in turns", measured[0].user_times.len());
    median + &row(["  least–greatest", &spread[0], &spread[1], &runs])
}

fn change(before: f64, after: f64) -> String {
    match before > 0.0 {
        true => format!("{:+.1} %", (after / before - 1.0) * 100.0),
        false => String::new(),
    }
}

fn words(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => crate::ending::Ending::Signal(signal).words(),
        (None, None) => status.to_string(),
    }
}
