//! Two profiles compared, as text, JSON and CSV.

use std::fmt::Write;

use lwp_profile::diff::{Diff, Row};
use serde_json::{Value, json};

use crate::escape::{self, csv as field, printable};
use crate::libc;
use crate::number::{grouped, signed};
use crate::paint::Paint;

/// The part of a comparison to show.
#[derive(Clone, Debug, Default)]
pub struct View<'a> {
    /// The comparison.
    pub diff: Option<&'a Diff>,
    /// Index of the event.
    pub event: usize,
    /// The event's name.
    pub name: String,
    /// At most so many rows.
    pub limit: Option<usize>,
    /// Order by relative instead of absolute change.
    pub relative: bool,
    /// Colours of the text.
    pub paint: Paint,
}

impl View<'_> {
    /// Rows that differ, greatest change first.
    pub fn rows(&self) -> Vec<&Row> {
        let Some(diff) = self.diff else { return Vec::new() };
        let mut rows: Vec<&Row> =
            diff.rows.iter().filter(|row| row.delta(self.event) != 0).collect();
        rows.sort_by(|a, b| {
            let weight = |row: &Row| match self.relative {
                true => ratio(row, self.event).map_or(f64::INFINITY, f64::abs),
                false => row.delta(self.event).unsigned_abs() as f64,
            };
            weight(b).total_cmp(&weight(a)).then(a.key.cmp(&b.key))
        });
        rows
    }
}

/// The change as a part of what was before; `None` where nothing was.
fn ratio(row: &Row, event: usize) -> Option<f64> {
    let before = row.before.as_ref().map_or(0, |values| values.get(event));
    (before > 0).then(|| row.delta(event) as f64 / before as f64)
}

fn percent(ratio: Option<f64>) -> String {
    ratio.map_or("new".to_owned(), |ratio| format!("{:+.2}%", 100.0 * ratio))
}

/// For a terminal or a file.
pub fn text(view: &View<'_>) -> String {
    let Some(diff) = view.diff else { return String::new() };
    let mut out = String::new();
    let (before, after) = (diff.before.get(view.event), diff.after.get(view.event));
    let delta = i128::from(after) - i128::from(before);
    let whole = (before > 0).then(|| delta as f64 / before as f64);
    let _ = writeln!(
        out,
        "# {}: {} -> {}, {} ({})",
        view.name,
        grouped(before),
        grouped(after),
        signed(delta),
        percent(whole)
    );
    for name in &diff.rebuilt {
        let _ = writeln!(out, "# {} is another build", printable(name));
    }
    for pair in &diff.paired {
        let _ = writeln!(out, "# {}", printable(&pair.to_string()));
    }
    if let Some(notice) = libc::notice(&diff.rebuilt) {
        let _ = writeln!(out, "# {notice}");
    }
    let rows = view.rows();
    if rows.is_empty() {
        let _ = writeln!(out, "# nothing differs");
        return out;
    }
    let shown = &rows[..view.limit.unwrap_or(usize::MAX).min(rows.len())];
    let cells: Vec<[String; 4]> = shown.iter().map(|row| cells(row, view.event)).collect();
    let heads = ["Before", "After", "Change", ""].map(str::to_owned);
    let width = |column: usize| {
        let all = cells.iter().chain([&heads]).map(|row| row[column].chars().count());
        all.max().unwrap_or(0)
    };
    let widths = [width(0), width(1), width(2), width(3)];
    let _ = writeln!(out, "#");
    let mut line = |mark: char, cells: &[String; 4], delta: i128, key: &str| {
        let [a, b, c, d] = cells;
        let [wa, wb, wc, wd] = widths;
        let change = view.paint.change(delta, &format!("{c:>wc$}  {d:>wd$}"));
        let _ = writeln!(out, "{mark} {a:>wa$}  {b:>wb$}  {change}  {}", printable(key));
    };
    line('#', &heads, 0, "What");
    for (row, cells) in shown.iter().zip(&cells) {
        let key = match &row.renamed_from {
            Some(name) => format!("{} (renamed from {name})", row.key),
            None => row.key.clone(),
        };
        line(' ', cells, row.delta(view.event), &key);
    }
    if rows.len() > shown.len() {
        let _ = writeln!(out, "# {} more not shown: -n 0 shows all", rows.len() - shown.len());
    }
    out
}

fn cells(row: &Row, event: usize) -> [String; 4] {
    let side = |values: &Option<lwp_profile::Values>| {
        values.as_ref().map_or("-".to_owned(), |values| grouped(values.get(event)))
    };
    let gone = row.after.is_none();
    let change = if gone { "gone".to_owned() } else { percent(ratio(row, event)) };
    [side(&row.before), side(&row.after), signed(row.delta(event)), change]
}

/// As one JSON document.
pub fn json(view: &View<'_>) -> String {
    let Some(diff) = view.diff else { return String::new() };
    let side =
        |values: &Option<lwp_profile::Values>| values.as_ref().map(|values| values.get(view.event));
    let rows: Vec<Value> = view
        .rows()
        .into_iter()
        .take(view.limit.unwrap_or(usize::MAX))
        .map(|row| {
            let (before, after) = (side(&row.before), side(&row.after));
            let mut value = json!({ "what": row.key, "before": before, "after": after });
            if let Some(name) = &row.renamed_from {
                value["renamed_from"] = json!(name);
            }
            value
        })
        .collect();
    let document = json!({
        "event": view.name,
        "before": diff.before.get(view.event),
        "after": diff.after.get(view.event),
        "rebuilt": diff.rebuilt,
        "paired": diff.paired.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "rows": rows,
    });
    escape::json(&format!("{document:#}\n"))
}

/// As CSV with a line of headings.
pub fn csv(view: &View<'_>) -> String {
    let side = |values: &Option<lwp_profile::Values>| {
        values.as_ref().map_or(String::new(), |values| values.get(view.event).to_string())
    };
    let mut out = String::from("before,after,change,what\n");
    for row in view.rows().into_iter().take(view.limit.unwrap_or(usize::MAX)) {
        let (before, after) = (side(&row.before), side(&row.after));
        let _ = writeln!(out, "{before},{after},{},{}", row.delta(view.event), field(&row.key));
    }
    out
}
