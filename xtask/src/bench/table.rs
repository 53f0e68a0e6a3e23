//! The table of results.

use std::fmt::Write;
use std::time::Duration;

use super::ways::Way;
use super::workloads::Workload;

/// The runs of one program in one way.
#[derive(Debug)]
pub enum Cell {
    /// Their times.
    Times(Vec<Duration>),
    /// One of them failed.
    Failed(String),
    /// This way cannot measure this program.
    NotApplicable,
}

impl Cell {
    /// The median time in seconds.
    fn median(&self) -> Option<f64> {
        let Cell::Times(times) = self else {
            return None;
        };
        median(times)
    }
}

/// The median in seconds.
pub fn median(times: &[Duration]) -> Option<f64> {
    let mut seconds: Vec<f64> = times.iter().map(Duration::as_secs_f64).collect();
    seconds.sort_by(f64::total_cmp);
    let middle = seconds.len() / 2;
    match seconds.len() {
        0 => None,
        length if length % 2 == 1 => Some(seconds[middle]),
        _ => Some(f64::midpoint(seconds[middle - 1], seconds[middle])),
    }
}

/// The results in Markdown: native times, and for the other ways the ratio to them; then the
/// geometric means of long and of short programs, and what there is to say.
pub fn markdown(
    workloads: &[Workload],
    ways: &[Way],
    cells: &[Vec<Cell>],
    notes: &[String],
) -> String {
    let mut text = String::from("| program |");
    for way in ways {
        let _ = write!(text, " {} |", way.name);
    }
    text.push_str("\n| --- |");
    text.push_str(&" ---: |".repeat(ways.len()));
    text.push('\n');
    let mut notes = notes.to_vec();
    for (workload, row) in workloads.iter().zip(cells) {
        let _ = write!(text, "| {} |", workload.name);
        for (way, cell) in ways.iter().zip(row) {
            let _ = write!(text, " {} |", shown(cell, &row[0], way.name == "native"));
            if let Cell::Failed(cause) = cell {
                notes.push(format!("{}, {}: {cause}", workload.name, way.name));
            }
        }
        text.push('\n');
    }
    for (name, short) in [("geometric mean, long", false), ("geometric mean, short", true)] {
        let chosen = workloads.iter().zip(cells).filter(|(workload, _)| workload.short == short);
        let rows: Vec<&[Cell]> = chosen.map(|(_, row)| row.as_slice()).collect();
        if !rows.is_empty() {
            let _ = writeln!(text, "{}", means(name, &rows, ways.len()));
        }
    }
    for note in notes {
        let _ = write!(text, "\n* {note}");
    }
    text.push('\n');
    text
}

/// One result as a table shows it: a time, or a ratio to `native`.
pub fn shown(cell: &Cell, native: &Cell, is_native: bool) -> String {
    match (cell, cell.median(), native.median()) {
        (Cell::NotApplicable, ..) => "–".into(),
        (Cell::Failed(_), ..) => "failed".into(),
        (_, Some(time), _) if is_native => milliseconds(time),
        (_, Some(time), Some(native)) => format!("{:.2}×", time / native),
        _ => "?".into(),
    }
}

/// A time as the table shows it.
pub fn milliseconds(seconds: f64) -> String {
    let decimals = if seconds < 0.1 { 1 } else { 0 };
    format!("{:.decimals$} ms", seconds * 1e3)
}

/// A line of geometric means. A column that lacks a program has none: over fewer programs it could
/// not be compared with the others.
fn means(name: &str, rows: &[&[Cell]], ways: usize) -> String {
    let mut text = format!("| {name} | |");
    for way in 1..ways {
        let ratios: Option<Vec<f64>> =
            rows.iter().map(|row| Some(row[way].median()? / row[0].median()?)).collect();
        match ratios {
            Some(ratios) => {
                let logs: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
                let _ = write!(text, " {:.2}× |", (logs / ratios.len() as f64).exp());
            }
            None => text.push_str(" – |"),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::ways;

    fn times(milliseconds: &[u64]) -> Cell {
        Cell::Times(milliseconds.iter().copied().map(Duration::from_millis).collect())
    }

    #[test]
    fn medians() {
        assert_eq!(times(&[30, 10, 20]).median(), Some(0.02));
        assert_eq!(times(&[10, 20]).median(), Some(0.015));
        assert_eq!(times(&[]).median(), None);
        assert_eq!(Cell::NotApplicable.median(), None);
    }

    #[test]
    fn tables_have_ratios_means_and_notes() {
        let workload = |name, short| Workload {
            name,
            short,
            many_processes: false,
            command: vec!["x".into()],
        };
        let workloads = [workload("gzip", false), workload("xz", false), workload("true", true)];
        let (mut ways, _) = ways::all("lwp".as_ref(), false, false);
        ways.truncate(3);
        let cells = vec![
            vec![times(&[100]), times(&[100]), times(&[200])],
            vec![times(&[1_000]), times(&[1_000]), times(&[8_000])],
            vec![times(&[2]), times(&[3]), Cell::Failed("exit status: 1".into())],
        ];
        let expected = "\
| program | native | lwp run | lwp stat |
| --- | ---: | ---: | ---: |
| gzip | 100 ms | 1.00× | 2.00× |
| xz | 1000 ms | 1.00× | 8.00× |
| true | 2.0 ms | 1.50× | failed |
| geometric mean, long | | 1.00× | 4.00× |
| geometric mean, short | | 1.50× | – |

* qemu-user: skipped
* true, lwp stat: exit status: 1
";
        let notes = ["qemu-user: skipped".to_owned()];
        assert_eq!(markdown(&workloads, &ways, &cells, &notes), expected);
    }
}
