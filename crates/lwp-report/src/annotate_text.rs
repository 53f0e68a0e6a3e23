//! Listings as text.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::annotate::{Line, Listing};
use crate::escape::printable;
use crate::number::{grouped, percent};
use crate::paint::{Paint, part};

/// A listing for a terminal or a file.
pub fn listing(listing: &Listing) -> String {
    painted(listing, Paint::Plain)
}

/// A listing in colours: instructions by their part of the function, and source code.
pub fn painted(listing: &Listing, paint: Paint) -> String {
    if listing.interpreted {
        return source_lines(listing, paint);
    }
    let mut out = String::new();
    title(&mut out, listing, paint);
    let arrows = listing.lines.iter().map(arrow_width).max().unwrap_or(0);
    let count = listing.lines.iter().map(count_width).max().unwrap_or(0).max(listing.event.len());
    let beside = listing.beside.as_ref().map(|event| beside_width(listing, event));
    // Of samples it is not known which branches were taken.
    let taken = if listing.exact { format!("{:>15}  ", "taken") } else { String::new() };
    let event = printable(&listing.event);
    let other = beside_cell(listing.beside.as_deref().unwrap_or(""), beside);
    let _ = writeln!(
        out,
        "{:>7}  {event:>count$}  {other}{taken}{:>8} {:arrows$} code",
        "", "address", ""
    );
    for line in &listing.lines {
        match line {
            Line::Source { .. } => source(&mut out, line, count, paint),
            Line::Within { function } => {
                let name = printable(function);
                let _ = writeln!(out, "{:>7}  {:>count$}  inlined into {name}:", "", "");
            }
            Line::Gap { bytes } => {
                let _ = writeln!(out, "{:>7}  {:>count$}  ... {bytes} bytes not executed", "", "");
            }
            Line::Instruction { .. } => {
                let widths = Widths { count, beside, arrows };
                instruction(&mut out, listing, line, (widths, paint));
            }
        }
    }
    out
}

fn title(out: &mut String, listing: &Listing, paint: Paint) {
    let share = percent(listing.total as f64, listing.whole);
    // Code without a file has a name in brackets already.
    let module = printable(&listing.module);
    let module = if module.starts_with('[') { module } else { format!("[{module}]") };
    let title = format!(
        "{} {module}: {} {}, {share} of the whole",
        printable(&listing.name),
        grouped(listing.total),
        printable(&listing.event)
    );
    let _ = writeln!(out, "{}", paint.heading(&title));
}

/// The listing's source lines in their order, with what their instructions counted, and no
/// instructions.
pub fn source_lines(listing: &Listing, paint: Paint) -> String {
    let mut sums: BTreeMap<(&str, u32), (u64, &str, u64)> = BTreeMap::new();
    let mut at = ("", 0);
    for line in &listing.lines {
        match line {
            Line::Source { file, line, text, .. } => {
                at = (file, *line);
                sums.entry(at).or_default().1 = text.as_deref().unwrap_or("");
            }
            Line::Within { .. } => at = ("", 0),
            Line::Instruction { count, beside, .. } => {
                let sum = sums.entry(at).or_default();
                sum.0 = sum.0.saturating_add(*count);
                sum.2 = sum.2.saturating_add(beside.unwrap_or(0));
            }
            Line::Gap { .. } => {}
        }
    }
    let mut out = String::new();
    title(&mut out, listing, paint);
    let width = sums.values().map(|sum| grouped(sum.0).len()).max().unwrap_or(0);
    let width = width.max(listing.event.len());
    let others = sums.values().map(|sum| grouped(sum.2).len()).max().unwrap_or(0);
    let others = listing.beside.as_ref().map(|event| others.max(event.len()));
    let other = beside_cell(listing.beside.as_deref().unwrap_or(""), others);
    let _ = writeln!(out, "{:>7}  {:>width$}  {other}line", "", printable(&listing.event));
    for ((file, line), (count, text, beside)) in sums {
        let share = percent(count as f64, listing.total);
        let place = match line {
            0 => "??".to_owned(),
            line => format!("{}:{line}", printable(file.rsplit('/').next().unwrap_or(file))),
        };
        let text = printable(&text.replace('\t', "    "));
        let share = paint.heat(part(count, listing.total), &format!("{share:>7}"));
        let other = beside_cell(&grouped(beside), others);
        let row = format!("{share}  {:>width$}  {other}{place}  {text}", grouped(count));
        let _ = writeln!(out, "{}", row.trim_end());
    }
    out
}

fn arrow_width(line: &Line) -> usize {
    match line {
        Line::Instruction { arrows, .. } => arrows.chars().count(),
        _ => 0,
    }
}

/// Widths of columns.
#[derive(Clone, Copy)]
struct Widths {
    count: usize,
    /// Of the event that is told beside the listing's, if there is one.
    beside: Option<usize>,
    arrows: usize,
}

fn beside_width(listing: &Listing, event: &str) -> usize {
    let width = |line: &Line| match line {
        Line::Instruction { beside: Some(count), .. } => grouped(*count).len(),
        _ => 0,
    };
    listing.lines.iter().map(width).max().unwrap_or(0).max(event.len())
}

/// The cell of the other event; nothing if there is no such column.
fn beside_cell(text: &str, width: Option<usize>) -> String {
    width.map_or(String::new(), |width| format!("{text:>width$}  "))
}

fn count_width(line: &Line) -> usize {
    match line {
        Line::Instruction { count, .. } => grouped(*count).len(),
        _ => 0,
    }
}

fn source(out: &mut String, line: &Line, count: usize, paint: Paint) {
    let Line::Source { file, line, text, inlined } = line else { return };
    let name = file.rsplit('/').next().unwrap_or(file);
    let within = match inlined.is_empty() {
        true => String::new(),
        false => format!(" (inlined {})", printable(&inlined.join(" > "))),
    };
    let text = text.as_deref().unwrap_or("");
    // Tabs stand for indentation in source code only.
    let text = printable(&text.replace('\t', "    "));
    let code = format!("{}:{line}{within}  {text}", printable(name));
    let _ = writeln!(out, "{:>7}  {:>count$}  {}", "", "", paint.source(&code));
}

fn instruction(out: &mut String, listing: &Listing, line: &Line, (widths, paint): (Widths, Paint)) {
    let Line::Instruction { address, text, count, executed, taken, arrows, calls, beside, .. } =
        line
    else {
        return;
    };
    let Widths { count: width, arrows: arrow, .. } = widths;
    let other = beside.filter(|count| *count > 0).map_or(String::new(), grouped);
    let other = beside_cell(&other, widths.beside);
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
    for called in calls.iter().filter(|called| !called.stub) {
        let _ = write!(note, "  # {} x{}", printable(&called.name), grouped(called.calls));
        if let Some(cost) = called.cost {
            let part = percent(cost as f64, listing.whole);
            let _ = write!(note, ": {} ({})", grouped(cost), part);
        }
    }
    let share = paint.heat(part(*count, listing.total), &format!("{share:>7}"));
    let taken = if listing.exact { format!("{taken:>15}  ") } else { String::new() };
    let line = format!(
        "{share}  {shown:>width$}  {other}{taken}{address:>8x} {arrows:<arrow$} {text}{note}"
    );
    let _ = writeln!(out, "{}", line.trim_end());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpreted_functions_are_listed_by_line() {
        let source = |line, text: &str| Line::Source {
            file: "/srv/app.py".into(),
            line,
            text: Some(text.into()),
            inlined: Vec::new(),
        };
        let counted = |count| Line::Instruction {
            address: 1 << 63,
            bytes: Vec::new(),
            text: "(bytes not recorded)".into(),
            count,
            beside: None,
            executed: 0,
            taken: None,
            arrows: String::new(),
            calls: Vec::new(),
        };
        let mut of = Listing {
            name: "f".into(),
            module: "app.py".into(),
            event: "instructions".into(),
            total: 40,
            whole: 80,
            interpreted: true,
            lines: vec![source(1, "def f():"), counted(10), source(2, "\tg()"), counted(30)],
            ..Listing::default()
        };
        let expected = "\
f [app.py]: 40 instructions, 50.00% of the whole
         instructions  line
 25.00%            10  app.py:1  def f():
 75.00%            30  app.py:2      g()
";
        assert_eq!(listing(&of), expected);
        // Of samples nothing is known of branches, and of code without a file no name.
        (of.interpreted, of.module) = (false, "[generated]".into());
        let text = listing(&of);
        assert!(text.starts_with("f [generated]: 40") && !text.contains("taken"), "{text}");
        of.exact = true;
        assert!(listing(&of).contains("taken   address"));
    }
}
