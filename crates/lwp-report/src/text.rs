//! Tables as text.

use std::fmt::Write;

use crate::escape::printable;
use crate::number::{grouped, percent};
use crate::paint::{Paint, part};
use crate::table::{Row, Table};

/// The table for a terminal or a file; at most `limit` rows.
pub fn table(table: &Table, limit: Option<usize>) -> String {
    painted(table, limit, Paint::Plain)
}

/// The same with colours: rows by their part of the whole.
pub fn painted(table: &Table, limit: Option<usize>, paint: Paint) -> String {
    let mut out = String::new();
    heading(&mut out, table, paint);
    let rows = &table.rows[..limit.unwrap_or(usize::MAX).min(table.rows.len())];
    let columns = columns(table, rows);
    let widths: Vec<usize> = columns
        .iter()
        .map(|column| column.iter().map(|cell| cell.chars().count()).max().unwrap_or(0))
        .collect();
    let last = columns.len() - 1;
    for line in 0..=rows.len() {
        let mut text = String::new();
        for (index, column) in columns.iter().enumerate() {
            let (cell, width) = (&column[line], widths[index]);
            let name = index + table.sort.len() > last;
            let cell = match (name, index == last) {
                (true, true) => cell.clone(),
                (true, false) => format!("{cell:<width$}"),
                (false, _) => format!("{cell:>width$}"),
            };
            let row = line.checked_sub(1).filter(|_| index == 0).map(|row| &rows[row]);
            let cell =
                row.map_or(cell.clone(), |row| paint.heat(part(row.own, table.total), &cell));
            let _ = write!(text, "  {cell}");
        }
        let _ = match line {
            0 => writeln!(out, "{}", paint.heading(&format!("#{}", text.trim_end()))),
            _ => writeln!(out, " {}", text.trim_end()),
        };
    }
    let left = table.rows.len() - rows.len() + table.hidden;
    if left > 0 {
        let _ = writeln!(out, "# {left} more not shown");
    }
    out
}

fn heading(out: &mut String, table: &Table, paint: Paint) {
    if !table.command.is_empty() {
        let _ = writeln!(out, "{}", paint.heading(&format!("# {}", printable(&table.command))));
    }
    if table.uncounted {
        let _ = writeln!(out, "# {}: not counted\n#", table.event);
        return;
    }
    let how = match table.interval {
        None => "every event counted".to_owned(),
        Some(interval) => format!("sampled, one in {}", grouped(interval)),
    };
    let modelled = if table.modelled { ", from a model" } else { "" };
    let _ = writeln!(out, "# {}: {} ({how}{modelled})", table.event, grouped(table.total));
    if has_inclusive(table, &table.rows) && !table.inclusive_exact {
        let _ = writeln!(
            out,
            "# Self and Calls are counts; Total~ is an estimate: shared out by numbers of calls"
        );
    }
    let _ = writeln!(out, "#");
}

/// Returns whether inclusive counts are known, or estimated by numbers of calls.
fn has_inclusive(table: &Table, rows: &[Row]) -> bool {
    rows.iter().any(|row| row.inclusive.is_some() && (table.inclusive_exact || row.calls.is_some()))
}

/// Columns of cells, headings included.
fn columns(table: &Table, rows: &[Row]) -> Vec<Vec<String>> {
    let mut columns = Vec::new();
    let mut column = |heading: &str, cell: &dyn Fn(&Row) -> String| {
        let cells = std::iter::once(heading.to_owned()).chain(rows.iter().map(cell));
        columns.push(cells.collect());
    };
    column("Self", &|row| percent(row.own as f64, table.total));
    if has_inclusive(table, rows) {
        let heading = if table.inclusive_exact { "Total" } else { "Total~" };
        column(heading, &|row| percent(row.inclusive.unwrap_or(0.0), table.total));
    }
    column(&table.event, &|row| grouped(row.own));
    if rows.iter().any(|row| row.cycles.is_some()) {
        column("Cycles (modelled)", &|row| row.cycles.map_or(String::new(), grouped));
    }
    if rows.iter().any(|row| row.calls.is_some()) {
        column("Calls", &|row| row.calls.map_or(String::new(), grouped));
    }
    for (index, key) in table.sort.iter().enumerate() {
        column(key.heading(), &|row| printable(&row.keys[index]));
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SortKey;

    fn printed(table: &Table) -> String {
        super::table(table, None)
    }

    #[test]
    fn headings_speak_of_the_columns_that_there_are() {
        let row = |calls| Row {
            keys: vec!["main".into()],
            own: 300,
            inclusive: Some(300.0),
            calls,
            ..Row::default()
        };
        let sort = vec![SortKey::Sym];
        let (event, total) = ("instructions".to_owned(), 300);
        let exact = Table { event, total, sort, rows: vec![row(Some(1))], ..Table::default() };
        let text = printed(&exact);
        assert!(text.contains("# Self and Calls are counts; Total~ is an estimate"), "{text}");
        assert!(text.contains("Total~  instructions  Calls  Function"), "{text}");
        // Samples without stacks know of no callers.
        let sampled = Table { interval: Some(3), rows: vec![row(None)], ..exact.clone() };
        let text = printed(&sampled);
        assert!(text.contains("(sampled, one in 3)\n#\n"), "{text}");
        assert!(text.contains("Self  instructions  Function"), "{text}");
        let stacks = Table { inclusive_exact: true, ..sampled };
        assert!(printed(&stacks).contains("Total  instructions  Function"));
    }

    #[test]
    fn nothing_counted_is_no_zero() {
        let table = Table { event: "instructions".into(), uncounted: true, ..Table::default() };
        let text = printed(&table);
        assert!(text.starts_with("# instructions: not counted\n#\n"), "{text}");
    }
}
