//! `lwp list`: the events.

use std::fmt::Write;

use super::print;
use crate::ending::Ending;
use crate::failure::Failure;
use crate::stat::events::{EVENTS, Row};

/// Prints one line for each event.
pub fn execute() -> Result<Ending, Failure> {
    print(&text())?;
    Ok(Ending::SUCCESS)
}

fn text() -> String {
    let mut text = String::new();
    let counted = |row: &Row| !row.event.is_time() && !row.event.is_modelled();
    section(&mut text, "Counted by the virtual CPU, exactly, in user mode:", counted);
    text.push('\n');
    section(&mut text, "Modelled, with --model (docs/benchmarks.md):", |row| {
        row.event.is_modelled()
    });
    text.push('\n');
    section(&mut text, "Measured by the clock:", |row| row.event.is_time());
    text
}

/// Writes the events that `wanted` chooses.
fn section(text: &mut String, heading: &str, wanted: impl Fn(&Row) -> bool) {
    let _ = writeln!(text, "{heading}");
    for row in EVENTS.iter().filter(|row| wanted(row)) {
        let _ = writeln!(text, "  {:<42} {}", names(row), row.summary);
    }
}

/// The event's name and, after OR as in `perf list`, its other names.
fn names(row: &Row) -> String {
    let mut names = vec![row.name];
    names.extend(row.aliases);
    names.join(" OR ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_has_a_line() {
        let text = text();
        for row in EVENTS {
            let found = text.lines().filter(|line| line.trim_start().starts_with(row.name));
            assert!(found.count() >= 1, "{}", row.name);
        }
        assert!(text.contains("  branches OR branch-instructions "), "{text}");
        assert!(text.lines().all(|line| line.len() <= 110), "{text}");
    }
}
