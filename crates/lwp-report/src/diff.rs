//! Two profiles compared, as text, JSON and CSV.

use std::fmt::Write;

use lwp_profile::Profile;
use lwp_profile::diff::{By, Diff, Row};
use serde_json::{Value, json};

use crate::chance::{margin, standard_error};
use crate::escape::{self, csv as field, printable};
use crate::libc;
use crate::number::{amount, signed_amount};
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
    /// The intervals between samples before and after, if they are samples of time: a row's change
    /// is a matter of chance then.
    pub intervals: Option<[u64; 2]>,
    /// At most so many rows.
    pub limit: Option<usize>,
    /// Order by relative instead of absolute change.
    pub relative: bool,
    /// Colours of the text.
    pub paint: Paint,
}

impl View<'_> {
    /// Half the width of the interval that holds a row's change in 95 of 100 pairs of recordings;
    /// `None` if the change is no matter of chance.
    pub fn margin(&self, row: &Row) -> Option<f64> {
        let (diff, [before, after]) = (self.diff?, self.intervals?);
        let value = |side: &Option<lwp_profile::Values>| {
            side.as_ref().map_or(0, |values| values.get(self.event))
        };
        let (whole_before, whole_after) = (diff.before.get(self.event), diff.after.get(self.event));
        let before = standard_error(value(&row.before), whole_before, before);
        let after = standard_error(value(&row.after), whole_after, after);
        Some(margin(&[before, after]))
    }

    /// Returns whether a row's change is more than chance.
    pub fn is_distinguishable(&self, row: &Row) -> bool {
        let delta = row.delta(self.event).unsigned_abs() as f64;
        self.margin(row).is_none_or(|margin| delta > margin)
    }

    /// Rows that differ, greatest change first; those whose change may be chance are last.
    pub fn rows(&self) -> Vec<&Row> {
        let Some(diff) = self.diff else { return Vec::new() };
        let mut rows: Vec<&Row> =
            diff.rows.iter().filter(|row| row.delta(self.event) != 0).collect();
        rows.sort_by(|a, b| {
            let weight = |row: &Row| match self.relative {
                true => ratio(row, self.event).map_or(f64::INFINITY, f64::abs),
                false => row.delta(self.event).unsigned_abs() as f64,
            };
            let order = self.is_distinguishable(b).cmp(&self.is_distinguishable(a));
            order.then_with(|| weight(b).total_cmp(&weight(a))).then_with(|| a.key.cmp(&b.key))
        });
        rows
    }
}

/// The intervals between the samples of an event in two profiles, if they are samples of time.
pub fn intervals(before: &Profile, after: &Profile, event: &str) -> Option<[u64; 2]> {
    let of = |profile: &Profile| {
        let event = profile.events.get(profile.event(event)?)?;
        event.interval.filter(|_| event.is_time())
    };
    Some([of(before)?, of(after)?])
}

/// The change as a part of what was before; `None` where nothing was.
fn ratio(row: &Row, event: usize) -> Option<f64> {
    let before = row.before.as_ref().map_or(0, |values| values.get(event));
    (before > 0).then(|| row.delta(event) as f64 / before as f64)
}

fn percent(ratio: Option<f64>) -> String {
    ratio.map_or("new".to_owned(), |ratio| format!("{:+.2}%", 100.0 * ratio))
}

/// The meaning of ±.
const CHANCE: &str = "± holds the change of a row in 95 of 100 such pairs; the sums are the \
                      kernel's, and may differ from run to run";

/// The sums, and what is to be known of the comparison.
fn heading(view: &View<'_>, diff: &Diff) -> String {
    let mut out = String::new();
    let (before, after) = (diff.before.get(view.event), diff.after.get(view.event));
    let delta = i128::from(after) - i128::from(before);
    let whole = (before > 0).then(|| delta as f64 / before as f64);
    let _ = writeln!(
        out,
        "# {}: {} -> {}, {} ({})",
        view.name,
        amount(&view.name, before),
        amount(&view.name, after),
        signed_amount(&view.name, delta),
        percent(whole)
    );
    if view.intervals.is_some() {
        let _ = writeln!(out, "# {CHANCE}");
    }
    for name in &diff.rebuilt {
        let _ = writeln!(out, "# {} is another build", printable(name));
    }
    for pair in &diff.paired {
        let _ = writeln!(out, "# {}", printable(&pair.to_string()));
    }
    if let Some(notice) = libc::notice(&diff.rebuilt) {
        let _ = writeln!(out, "# {notice}");
    }
    out
}

/// For a terminal or a file.
pub fn text(view: &View<'_>) -> String {
    let Some(diff) = view.diff else { return String::new() };
    let mut out = heading(view, diff);
    let rows = view.rows();
    if rows.is_empty() {
        let _ = writeln!(out, "# nothing differs");
        return out;
    }
    let shown = &rows[..view.limit.unwrap_or(usize::MAX).min(rows.len())];
    let cells: Vec<[String; 4]> = shown.iter().map(|row| cells(view, row)).collect();
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
            Some(line) if diff.by == By::Line => {
                let number = line.rsplit(':').next().unwrap_or(line);
                format!("{} (line {number} before)", row.key)
            }
            Some(name) => format!("{} (renamed from {name})", row.key),
            None => row.key.clone(),
        };
        let delta = if view.is_distinguishable(row) { row.delta(view.event) } else { 0 };
        line(' ', cells, delta, &key);
    }
    if rows.len() > shown.len() {
        let _ = writeln!(out, "# {} more not shown: -n 0 shows all", rows.len() - shown.len());
    }
    out
}

fn cells(view: &View<'_>, row: &Row) -> [String; 4] {
    let side = |values: &Option<lwp_profile::Values>| {
        let value = values.as_ref().map(|values| values.get(view.event));
        value.map_or("-".to_owned(), |value| amount(&view.name, value))
    };
    let ratio = ratio(row, view.event);
    let mut change = if row.after.is_none() { "gone".to_owned() } else { percent(ratio) };
    if let Some(margin) = view.margin(row) {
        let before = row.before.as_ref().map_or(0, |values| values.get(view.event));
        change = match before {
            0 => format!("{change} ± {:.3} s", margin / 1e9),
            before => format!("{change} ± {:.2}", 100.0 * margin / before as f64),
        };
        if !view.is_distinguishable(row) {
            change.push_str(": not distinguishable");
        }
    }
    let delta = signed_amount(&view.name, row.delta(view.event));
    [side(&row.before), side(&row.after), delta, change]
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
            if let Some(margin) = view.margin(row) {
                value["margin"] = json!(margin.round());
                value["distinguishable"] = json!(view.is_distinguishable(row));
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
    let heads = if view.intervals.is_some() { ",margin" } else { "" };
    let mut out = format!("before,after,change{heads},what\n");
    for row in view.rows().into_iter().take(view.limit.unwrap_or(usize::MAX)) {
        let (before, after, delta) = (side(&row.before), side(&row.after), row.delta(view.event));
        let margin = view.margin(row).map_or(String::new(), |margin| format!(",{margin:.0}"));
        let _ = writeln!(out, "{before},{after},{delta}{margin},{}", field(&row.key));
    }
    out
}

#[cfg(test)]
mod tests {
    use lwp_profile::Values;

    use super::*;

    fn row(key: &str, before: u64, after: u64) -> Row {
        let side = |value: u64| (value > 0).then(|| Values(vec![value * 1_000_000]));
        Row { key: key.into(), before: side(before), after: side(after), renamed_from: None }
    }

    #[test]
    fn changes_of_time_have_margins_and_those_by_chance_are_last() {
        // Milliseconds; one sample each.
        let rows = vec![row("chance", 500, 520), row("real", 100, 250), row("new", 0, 4)];
        let sum = |value: u64| Values(vec![value * 1_000_000]);
        let diff = Diff { rows, before: sum(2_000), after: sum(2_100), ..Diff::default() };
        let intervals = Some([1_000_000, 1_000_000]);
        let name = "cpu-time".to_owned();
        let view = View { diff: Some(&diff), name, intervals, ..View::default() };
        let keys: Vec<&str> = view.rows().into_iter().map(|row| row.key.as_str()).collect();
        assert_eq!(keys, ["real", "chance", "new"]);
        let text = text(&view);
        assert!(text.contains("# cpu-time: 2.000 s -> 2.100 s, +0.100 s (+5.00%)\n# ±"), "{text}");
        let [real, chance, new] =
            [4, 5, 6].map(|line| text.lines().nth(line).expect("a line").trim_start());
        let words: Vec<&str> = real.split_whitespace().collect();
        let expected = ["0.100", "s", "0.250", "s", "+0.150", "s", "+150.00%", "±"];
        assert_eq!((&words[..8], words[9]), (&expected[..], "real"), "{text}");
        assert!(chance.contains("+4.00% ± 10.86") && chance.contains(": not disting"), "{text}");
        assert!(new.contains("new ± 0.005 s: not distinguishable"), "{text}");
        assert!(csv(&view).starts_with("before,after,change,margin,what\n100000000,"));
        let json: Value = serde_json::from_str(&json(&view)).expect("JSON");
        assert_eq!(json["rows"][0]["distinguishable"], true);
        assert_eq!(json["rows"][2]["distinguishable"], false);
    }
}
