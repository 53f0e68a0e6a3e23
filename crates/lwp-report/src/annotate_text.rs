//! Listings as text.

use std::fmt::Write;

use crate::annotate::{Line, Listing};
use crate::escape::printable;
use crate::number::{grouped, percent};

/// A listing for a terminal or a file.
pub fn listing(listing: &Listing) -> String {
    let mut out = String::new();
    let share = percent(listing.total as f64, listing.whole);
    let _ = writeln!(
        out,
        "{} [{}]: {} {}, {share} of the whole",
        printable(&listing.name),
        printable(&listing.module),
        grouped(listing.total),
        listing.event
    );
    let arrows = listing.lines.iter().map(arrow_width).max().unwrap_or(0);
    let count = listing.lines.iter().map(count_width).max().unwrap_or(0).max(listing.event.len());
    let _ = writeln!(
        out,
        "{:>7}  {:>count$}  {:>15}  {:>8} {:arrows$} code",
        "", listing.event, "taken", "address", ""
    );
    for line in &listing.lines {
        match line {
            Line::Source { .. } => source(&mut out, line, count),
            Line::Gap { bytes } => {
                let _ = writeln!(out, "{:>7}  {:>count$}  ... {bytes} bytes not executed", "", "");
            }
            Line::Instruction { .. } => instruction(&mut out, listing, line, count, arrows),
        }
    }
    out
}

fn arrow_width(line: &Line) -> usize {
    match line {
        Line::Instruction { arrows, .. } => arrows.chars().count(),
        _ => 0,
    }
}

fn count_width(line: &Line) -> usize {
    match line {
        Line::Instruction { count, .. } => grouped(*count).len(),
        _ => 0,
    }
}

fn source(out: &mut String, line: &Line, count: usize) {
    let Line::Source { file, line, text, inlined } = line else { return };
    let name = file.rsplit('/').next().unwrap_or(file);
    let within = match inlined.is_empty() {
        true => String::new(),
        false => format!(" (inlined {})", printable(&inlined.join(" > "))),
    };
    let text = text.as_deref().unwrap_or("");
    // Tabs stand for indentation in source code only.
    let text = printable(&text.replace('\t', "    "));
    let _ = writeln!(out, "{:>7}  {:>count$}  {}:{line}{within}  {text}", "", "", printable(name));
}

fn instruction(out: &mut String, listing: &Listing, line: &Line, width: usize, arrow: usize) {
    let Line::Instruction { address, text, count, executed, taken, arrows, calls } = line else {
        return;
    };
    let share = match count {
        0 => String::new(),
        count => percent(*count as f64, listing.total),
    };
    let shown = if *count == 0 { String::new() } else { grouped(*count) };
    let taken = match taken {
        Some(taken) if *executed > 0 => {
            let part = 100.0 * *taken as f64 / *executed as f64;
            format!("{} {part:>5.1}%", grouped(*taken))
        }
        _ => String::new(),
    };
    let mut note = String::new();
    for (name, times) in calls {
        let _ = write!(note, "  # {} x{}", printable(name), grouped(*times));
    }
    let line = format!(
        "{share:>7}  {shown:>width$}  {taken:>15}  {address:>8x} {arrows:<arrow$} {text}{note}"
    );
    let _ = writeln!(out, "{}", line.trim_end());
}
