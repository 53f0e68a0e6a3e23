//! Several profiles side by side, each compared with the first.

use std::collections::BTreeMap;
use std::fmt::Write;

use lwp_profile::diff::Diff;
use serde_json::json;

use crate::escape::{self, csv as field, printable};
use crate::libc;
use crate::number::{grouped, signed};

/// One event in several profiles.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// The event's name.
    pub event: String,
    /// The name of each profile.
    pub names: Vec<String>,
    /// The sum of each.
    pub totals: Vec<u64>,
    /// Counts of each function or line, greatest difference first; `None` where it did not occur.
    /// Rows with the same count everywhere are left out.
    pub rows: Vec<(String, Vec<Option<u64>>)>,
    /// Modules that are another build in one of them.
    pub rebuilt: Vec<String>,
    /// Remarks on programs of different names that are compared.
    pub paired: Vec<String>,
}

impl Series {
    /// From the comparisons of the first profile with each other one, of which `event` is the
    /// index.
    pub fn new(event: (usize, &str), names: &[String], compared: &[Diff], relative: bool) -> Self {
        let (index, name) = event;
        let mut out = Self { event: name.to_owned(), names: names.to_vec(), ..Self::default() };
        out.totals.extend(compared.first().map(|diff| diff.before.get(index)));
        let mut rows: BTreeMap<String, Vec<Option<u64>>> = BTreeMap::new();
        for (number, diff) in compared.iter().enumerate() {
            out.totals.push(diff.after.get(index));
            out.rebuilt.extend(diff.rebuilt.iter().cloned());
            out.paired.extend(diff.paired.iter().map(ToString::to_string));
            for row in &diff.rows {
                let values = rows.entry(row.key.clone()).or_insert_with(|| vec![None; names.len()]);
                values[0] = row.before.as_ref().map(|values| values.get(index));
                values[number + 1] = row.after.as_ref().map(|values| values.get(index));
            }
        }
        out.rebuilt.sort_unstable();
        out.rebuilt.dedup();
        out.rows = rows.into_iter().filter(|(_, values)| spread(values) > 0).collect();
        let weight = |values: &[Option<u64>]| match (relative, values[0].unwrap_or(0)) {
            (true, 0) => f64::INFINITY,
            (true, first) => spread(values) as f64 / first as f64,
            (false, _) => spread(values) as f64,
        };
        out.rows.sort_by(|a, b| weight(&b.1).total_cmp(&weight(&a.1)).then(a.0.cmp(&b.0)));
        out
    }

    /// For a terminal or a file; at most `limit` rows.
    pub fn text(&self, limit: Option<usize>) -> String {
        let mut out = format!("# {}\n", self.event);
        for (number, name) in self.names.iter().enumerate() {
            let change = i128::from(self.totals[number]) - i128::from(self.totals[0]);
            let change = if number == 0 { String::new() } else { format!(", {}", signed(change)) };
            let (name, total) = (printable(name), grouped(self.totals[number]));
            let _ = writeln!(out, "# [{}] {name}: {total}{change}", number + 1);
        }
        for name in &self.rebuilt {
            let _ = writeln!(out, "# {} is another build in one of them", printable(name));
        }
        for pair in &self.paired {
            let _ = writeln!(out, "# {}", printable(pair));
        }
        if let Some(notice) = libc::notice(&self.rebuilt) {
            let _ = writeln!(out, "# {notice}");
        }
        if self.rows.is_empty() {
            out.push_str("# nothing differs\n");
            return out;
        }
        let shown = &self.rows[..limit.unwrap_or(usize::MAX).min(self.rows.len())];
        let mut lines: Vec<Vec<String>> =
            vec![(1..=self.names.len()).map(|number| format!("[{number}]")).collect()];
        let cell = |value: &Option<u64>| value.map_or("-".to_owned(), grouped);
        lines.extend(shown.iter().map(|(_, values)| values.iter().map(cell).collect()));
        let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.names.len()).map(width).collect();
        let keys = std::iter::once("What").chain(shown.iter().map(|(key, _)| key.as_str()));
        out.push_str("#\n");
        for (number, (line, key)) in lines.iter().zip(keys).enumerate() {
            out.push(if number == 0 { '#' } else { ' ' });
            for (cell, width) in line.iter().zip(&widths) {
                let _ = write!(out, " {cell:>width$} ");
            }
            let _ = writeln!(out, " {}", printable(key));
        }
        if self.rows.len() > shown.len() {
            let more = self.rows.len() - shown.len();
            let _ = writeln!(out, "# {more} more not shown: -n 0 shows all");
        }
        out
    }

    /// As one JSON document.
    pub fn json(&self, limit: Option<usize>) -> String {
        let rows = self.rows.iter().take(limit.unwrap_or(usize::MAX));
        let rows: Vec<_> =
            rows.map(|(key, values)| json!({ "what": key, "counts": values })).collect();
        let document = json!({
            "event": self.event,
            "profiles": self.names,
            "totals": self.totals,
            "rebuilt": self.rebuilt,
            "paired": self.paired,
            "rows": rows,
        });
        escape::json(&format!("{document:#}\n"))
    }

    /// As CSV with a line of headings.
    pub fn csv(&self, limit: Option<usize>) -> String {
        let names: Vec<String> = self.names.iter().map(|name| field(name)).collect();
        let mut out = format!("{},what\n", names.join(","));
        for (key, values) in self.rows.iter().take(limit.unwrap_or(usize::MAX)) {
            for value in values {
                let _ = write!(out, "{},", value.map_or(String::new(), |value| value.to_string()));
            }
            let _ = writeln!(out, "{}", field(key));
        }
        out
    }
}

/// The greatest difference from the first.
fn spread(values: &[Option<u64>]) -> u64 {
    let first = values[0].unwrap_or(0);
    values.iter().map(|value| value.unwrap_or(0).abs_diff(first)).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use lwp_profile::Values;
    use lwp_profile::diff::Row;

    use super::*;

    /// Key, before, after.
    type Counts = (&'static str, Option<u64>, Option<u64>);

    fn diff(rows: &[Counts]) -> Diff {
        let values = |value: Option<u64>| value.map(|value| Values([value].into()));
        let sum =
            |pick: fn(&Counts) -> Option<u64>| Values([rows.iter().filter_map(pick).sum()].into());
        Diff {
            rows: rows
                .iter()
                .map(|(key, before, after)| Row {
                    key: (*key).into(),
                    before: values(*before),
                    after: values(*after),
                    renamed_from: None,
                })
                .collect(),
            before: sum(|row| row.1),
            after: sum(|row| row.2),
            rebuilt: vec!["prog".into()],
            ..Diff::default()
        }
    }

    #[test]
    fn profiles_stand_side_by_side() {
        let names = ["a", "b", "c,\u{1b}"].map(str::to_owned);
        let second = diff(&[("f", Some(10), Some(12)), ("g", Some(5), Some(5))]);
        let third =
            diff(&[("f", Some(10), None), ("g", Some(5), Some(5)), ("h", None, Some(1000))]);
        let series = Series::new((0, "instructions"), &names, &[second, third], false);
        assert_eq!(series.totals, [15, 17, 1005]);
        let rows = [
            ("h".to_owned(), vec![None, None, Some(1000)]),
            ("f".to_owned(), vec![Some(10), Some(12), None]),
        ];
        assert_eq!(series.rows, rows);
        assert_eq!(series.rebuilt, ["prog"]);
        let text = series.text(Some(1));
        assert!(text.contains("# [3] c,\u{fffd}: 1,005, +990\n"), "{text}");
        assert!(text.contains("   -    -  1,000  h\n# 1 more not shown: -n 0"), "{text}");
        assert_eq!(series.csv(None).lines().nth(1), Some(",,1000,h"));
        let json: serde_json::Value = serde_json::from_str(&series.json(None)).unwrap();
        assert_eq!(json["rows"][1]["counts"], json!([10, 12, null]));
    }
}
