//! Tables as text.

use std::fmt::Write;

use crate::beside::Estimate;
use crate::escape::printable;
use crate::number::{amount, grouped, percent, seconds};
use crate::paint::{Paint, part};
use crate::table::{Row, SortKey, Table};

/// The table for a terminal or a file; at most `limit` rows.
pub fn table(table: &Table, limit: Option<usize>) -> String {
    painted(table, limit, Paint::Plain)
}

/// Renders a table in lines of at most `width` characters where possible: drops the columns that
/// say least, and shortens names around the function's own.
pub fn fitting(table: &Table, limit: Option<usize>, width: usize) -> String {
    let rows = first(table, limit);
    printed(table, rows, &narrowed(columns(table, rows), width), Paint::Plain)
}

/// Renders a table in colours: rows by their part of the whole.
pub fn painted(table: &Table, limit: Option<usize>, paint: Paint) -> String {
    let rows = first(table, limit);
    printed(table, rows, &columns(table, rows), paint)
}

fn first(table: &Table, limit: Option<usize>) -> &[Row] {
    &table.rows[..limit.unwrap_or(usize::MAX).min(table.rows.len())]
}

fn printed(table: &Table, rows: &[Row], columns: &[Column], paint: Paint) -> String {
    let mut out = String::new();
    heading(&mut out, table, paint);
    for line in 0..=rows.len() {
        let mut text = String::new();
        for (index, column) in columns.iter().enumerate() {
            let (cell, width) = (&column.cells[line], column.width());
            let cell = match (column.is_name(), index + 1 == columns.len()) {
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

/// The contents of a column; the first one to be left out where there is no room comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Cycles,
    Calls,
    Count,
    Margin,
    Total,
    /// The count of the other event, where time and instructions are both known.
    Beside,
    PerCall,
    PerInstruction,
    Dso,
    /// The function, or another key that rows are told apart by.
    Name(SortKey),
    Own,
}

/// A column of cells, the heading included.
#[derive(Clone, Debug)]
struct Column {
    kind: Kind,
    cells: Vec<String>,
}

impl Column {
    fn width(&self) -> usize {
        self.cells.iter().map(|cell| cell.chars().count()).max().unwrap_or(0)
    }

    fn is_name(&self) -> bool {
        matches!(self.kind, Kind::Dso | Kind::Name(_))
    }
}

/// Names of functions are left so many characters before other columns are.
const ROOM: usize = 28;

/// The most characters of a module's name in a narrow place.
const ROOM_OF_MODULE: usize = 14;

/// The columns that a line of `width` characters has room for.
fn narrowed(mut columns: Vec<Column>, width: usize) -> Vec<Column> {
    // A sign at the start, and two blanks before each column.
    let whole = |columns: &[Column]| 1 + columns.iter().map(|it| it.width() + 2).sum::<usize>();
    if whole(&columns) <= width {
        return columns;
    }
    let function = |it: &Column| it.kind == Kind::Name(SortKey::Sym);
    let Some(longest) = columns.iter().find(|it| function(it)).map(Column::width) else {
        return columns;
    };
    for column in columns.iter_mut().filter(|it| it.kind == Kind::Dso) {
        column.cells.iter_mut().for_each(|cell| *cell = lwp_symbols::clipped(cell, ROOM_OF_MODULE));
    }
    let room = |columns: &[Column]| (width + longest).saturating_sub(whole(columns));
    while room(&columns) < ROOM.min(longest) {
        let least = columns.iter().map(|it| it.kind).min();
        match least.filter(|kind| *kind < Kind::Name(SortKey::Comm)) {
            Some(least) => columns.retain(|it| it.kind != least),
            None => break,
        }
    }
    let room = room(&columns).max(1);
    for column in columns.iter_mut().filter(|it| function(it)) {
        column.cells.iter_mut().for_each(|cell| *cell = lwp_symbols::fitted(cell, room));
    }
    columns
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
        None if table.partial => "the part that can be read".to_owned(),
        None => "every event counted".to_owned(),
        Some(interval) => format!("sampled, one in {}", grouped(interval)),
    };
    if let (true, Some(interval)) = (table.time, table.interval) {
        heading_of_time(out, table, interval);
        return;
    }
    heading_of_both(out, table);
    if table.off_cpu {
        let all = seconds(table.total);
        let _ =
            writeln!(out, "# {}: {all}, by the kernel's records of each switch\n#", table.event);
        return;
    }
    let modelled = if table.modelled { ", from a model" } else { "" };
    let _ = writeln!(out, "# {}: {} ({how}{modelled})", table.event, grouped(table.total));
    if has_inclusive(table, &table.rows) && !table.inclusive_exact {
        let by = match table.has_contexts {
            true => "as the instructions of each caller",
            false => "by numbers of calls",
        };
        let _ =
            writeln!(out, "# Self and Calls are counts; Total~ is an estimate: shared out {by}");
    }
    let _ = writeln!(out, "#");
}

fn heading_of_time(out: &mut String, table: &Table, interval: u64) {
    let all = seconds(table.clock.unwrap_or(table.total));
    let by = if table.clock.is_some() { ", by the kernel's clocks" } else { "" };
    let every = interval as f64 / 1e6;
    let _ = writeln!(out, "# {}: {all}{by}", table.event);
    let _ = writeln!(
        out,
        "# Rows are sampled, one in {every:.3} ms; ± holds the true part in 95 of 100 recordings"
    );
    heading_of_both(out, table);
    let _ = writeln!(out, "#");
}

/// Says where time and counts are from, if both are there.
fn heading_of_both(out: &mut String, table: &Table) {
    let Some(beside) = &table.beside else { return };
    let counted = grouped(if table.time { beside.total } else { table.total });
    let _ = writeln!(
        out,
        "# Instructions and calls are exact, of a second run: {counted} instructions\n\
         # ~ns/call and ~ns/instruction: own time of the native run by counts of the other; \
         ± in 95 of 100, if both run alike"
    );
    if !table.differences.is_empty() {
        let _ = writeln!(out, "# The two runs differ: {}", printable(&table.differences));
    }
}

/// Returns whether inclusive counts are known, or estimated where calls were counted.
fn has_inclusive(table: &Table, rows: &[Row]) -> bool {
    rows.iter().any(|row| row.inclusive.is_some() && (table.inclusive_exact || row.calls.is_some()))
}

fn columns(table: &Table, rows: &[Row]) -> Vec<Column> {
    let mut columns = Vec::new();
    let mut column = |kind: Kind, heading: &str, cell: &dyn Fn(&Row) -> String| {
        let cells = std::iter::once(heading.to_owned()).chain(rows.iter().map(cell)).collect();
        columns.push(Column { kind, cells });
    };
    column(Kind::Own, "Self", &|row| percent(row.own as f64, table.total));
    if rows.iter().any(|row| table.margin(row).is_some()) {
        let margin = |row: &Row| table.margin(row).map_or(String::new(), |it| format!("{it:.2}"));
        column(Kind::Margin, "±", &margin);
    }
    if has_inclusive(table, rows) {
        let heading = if table.inclusive_exact { "Total" } else { "Total~" };
        let total = |row: &Row| percent(row.inclusive.unwrap_or(0.0), table.total);
        column(Kind::Total, heading, &total);
    }
    column(Kind::Count, &table.event, &|row| amount(&table.event, row.own));
    if let Some(beside) = &table.beside {
        let cell = |count: u64| amount(&beside.event, count);
        column(Kind::Beside, &beside.event, &|row| row.beside.map_or(String::new(), cell));
    }
    if rows.iter().any(|row| row.cycles.is_some()) {
        let cycles = |row: &Row| row.cycles.map_or(String::new(), grouped);
        column(Kind::Cycles, "Cycles (modelled)", &cycles);
    }
    if rows.iter().any(|row| row.calls.is_some()) {
        column(Kind::Calls, "Calls", &|row| row.calls.map_or(String::new(), grouped));
    }
    if table.beside.is_some() {
        if rows.iter().any(|row| row.calls.is_some()) {
            column(Kind::PerCall, "~ns/call", &|row| estimate(table.per_call(row)));
        }
        let cell = |row: &Row| estimate(table.per_instruction(row));
        column(Kind::PerInstruction, "~ns/instruction", &cell);
    }
    for (index, key) in table.sort.iter().enumerate() {
        let kind = if *key == SortKey::Dso { Kind::Dso } else { Kind::Name(*key) };
        column(kind, key.heading(), &|row| printable(&row.keys[index]));
    }
    columns
}

/// An estimate with its margin in per cent.
fn estimate(estimate: Option<Estimate>) -> String {
    estimate.map_or(String::new(), |Estimate { ns, margin }| match ns {
        100.0.. => format!("{} ±{margin:>3.0} %", grouped(ns.round() as u64)),
        1.0.. => format!("{ns:.1} ±{margin:>3.0} %"),
        _ => format!("{ns:.3} ±{margin:>3.0} %"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(table: &Table) -> String {
        super::table(table, None)
    }

    #[test]
    fn the_function_is_visible_in_every_width() {
        let row = Row {
            keys: vec![
                "libstdc++.so.6.0.30".into(),
                "std::vector<int, std::allocator<int> >::push_back(int const&)".into(),
            ],
            own: 123_456_789,
            inclusive: Some(123_456_789.0),
            calls: Some(1_000_000),
            ..Row::default()
        };
        let (event, total, sort) =
            ("instructions".to_owned(), 123_456_789, vec![SortKey::Dso, SortKey::Sym]);
        let table = Table { event, total, sort, rows: vec![row], ..Table::default() };
        for width in [40, 60, 80, 100, 120, 200] {
            let text = fitting(&table, None, width);
            let line = text.lines().last().unwrap();
            assert!(line.chars().count() <= width, "{width}: {line}");
            assert!(line.contains("push_back") && line.contains("100.00"), "{width}: {line}");
        }
        assert_eq!(fitting(&table, None, 300), text_of(&table));
        assert!(fitting(&table, None, 80).contains("std::vector<int>::push_back"));
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
        let text = text_of(&exact);
        assert!(text.contains("# Self and Calls are counts; Total~ is an estimate"), "{text}");
        assert!(text.contains("Total~  instructions  Calls  Function"), "{text}");
        // Samples without stacks know of no callers.
        let sampled = Table { interval: Some(3), rows: vec![row(None)], ..exact.clone() };
        let text = text_of(&sampled);
        assert!(text.contains("(sampled, one in 3)\n#\n"), "{text}");
        assert!(text.contains("Self  instructions  Function"), "{text}");
        let measured = Table { inclusive_exact: true, has_contexts: true, ..exact.clone() };
        let text = text_of(&measured);
        assert!(text.contains("Total  instructions  Calls  Function"), "{text}");
        assert!(!text.contains('~') && !text.contains("estimate"), "{text}");
        // Contexts were measured, but not in this event.
        let other = Table { has_contexts: true, ..exact };
        assert!(text_of(&other).contains("Total~ is an estimate: shared out as the instructions"));
        let stacks = Table { inclusive_exact: true, ..sampled };
        assert!(text_of(&stacks).contains("Total  instructions  Function"));
    }

    #[test]
    fn a_part_is_not_every_event() {
        let table = Table { event: "calls".into(), partial: true, total: 3, ..Table::default() };
        assert!(text_of(&table).starts_with("# calls: 3 (the part that can be read)\n#\n"));
    }

    #[test]
    fn nothing_counted_is_no_zero() {
        let table = Table { event: "instructions".into(), uncounted: true, ..Table::default() };
        let text = text_of(&table);
        assert!(text.starts_with("# instructions: not counted\n#\n"), "{text}");
    }
}
