//! From reports to frames.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use lwp_report::escape::printable;
use lwp_report::number::{grouped, percent};
use lwp_symbols::{Live, fitted};
use serde_json::{Value, json};

use super::Piece;
use crate::code_lists::CodeLists;

/// The order of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// By executions since the last frame.
    Now,
    /// By executions since the start.
    Total,
}

/// A function in a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its file.
    pub module: String,
    /// Its name.
    pub name: String,
    /// Instructions since the frame before.
    pub now: u64,
    /// Instructions since the start.
    pub total: u64,
}

/// Gathers reports, and makes frames of them.
#[derive(Debug)]
pub struct Frames {
    title: String,
    live: Live,
    /// Processes whose code has no file: their lists of names are read before each frame.
    generating: BTreeSet<i32>,
    interval: Duration,
    started: Instant,
    due: Instant,
    /// True if anything has arrived since the last frame.
    fresh: bool,
    last: BTreeMap<(String, String), u64>,
    /// Rows of the current frame.
    rows: Vec<Row>,
    /// Time between the last two frames.
    span: Duration,
    advanced: Instant,
}

/// From this width on there is room for all columns.
const WIDE: usize = 100;
/// Characters of the two shares at the start of a row.
const SHARES: usize = 15;

impl Frames {
    /// Frames of a program, this far apart.
    pub fn new(title: String, debug_roots: Vec<PathBuf>, interval: Duration) -> Self {
        let now = Instant::now();
        Self {
            title,
            live: Live::new(debug_roots),
            generating: BTreeSet::new(),
            interval,
            started: now,
            due: now + interval,
            fresh: false,
            last: BTreeMap::new(),
            rows: Vec::new(),
            span: interval,
            advanced: now,
        }
    }

    /// Takes in a report.
    pub fn take(&mut self, piece: Piece) {
        match piece {
            Piece::Module(module, file) => self.live.module(module, file),
            Piece::Generating(pid) => {
                self.generating.insert(pid);
                self.read_generated();
            }
            Piece::Blocks(blocks) => self.live.blocks(&blocks),
            Piece::Thread(thread) => {
                self.live.thread(&thread);
                self.fresh = true;
            }
        }
    }

    fn read_generated(&mut self) {
        let symbols: Vec<_> = self
            .generating
            .iter()
            .flat_map(|pid| CodeLists::default().read(*pid).symbols)
            .collect();
        self.live.generated(&symbols);
    }

    /// Returns the time until the next frame.
    pub fn until_due(&self) -> Duration {
        self.due.saturating_duration_since(Instant::now())
    }

    /// Makes the next frame, if anything has been reported since the last or this is the end.
    pub fn advance(&mut self, last: bool) -> bool {
        let now = Instant::now();
        self.due = now + self.interval;
        if !self.fresh && !last {
            return false;
        }
        self.fresh = false;
        self.span = now - self.advanced;
        self.advanced = now;
        let mut sums: BTreeMap<(String, String), u64> = BTreeMap::new();
        for function in self.live.functions().iter().filter(|f| f.instructions > 0) {
            let key = (function.module.clone(), function.name.clone());
            *sums.entry(key).or_default() += function.instructions;
        }
        let row = |(key, &total): (&(String, String), &u64)| {
            let before = self.last.get(key).copied().unwrap_or(0);
            let (module, name) = key.clone();
            Row { module, name, now: total.saturating_sub(before), total }
        };
        self.rows = sums.iter().map(row).collect();
        self.last = sums;
        if !self.generating.is_empty() {
            self.read_generated();
        }
        true
    }

    /// Rows of the current frame, greatest first.
    pub fn rows(&self, order: Order) -> Vec<&Row> {
        let mut rows: Vec<&Row> = self.rows.iter().collect();
        let key = |row: &Row| match order {
            Order::Now => (row.now, row.total),
            Order::Total => (row.total, row.now),
        };
        rows.sort_by_key(|row| std::cmp::Reverse(key(row)));
        rows
    }

    /// Returns the heading above the rows.
    pub fn heading(&self) -> String {
        let now: u64 = self.rows.iter().map(|row| row.now).sum();
        let total: u64 = self.rows.iter().map(|row| row.total).sum();
        let rate = now as f64 / self.span.as_secs_f64().max(1e-3);
        format!(
            "lwp top: {}, {:.1} s: {} instructions, {} a second",
            printable(&self.title),
            self.started.elapsed().as_secs_f64(),
            grouped(total),
            grouped(rate as u64),
        )
    }

    /// Headings of the columns.
    pub const COLUMNS: &'static str =
        "    now   total         instructions  module                function";

    /// A row as text.
    pub fn line(&self, row: &Row) -> String {
        let sum = |what: fn(&Row) -> u64| self.rows.iter().map(what).sum::<u64>();
        let now = percent(row.now as f64, sum(|row| row.now));
        let total = percent(row.total as f64, sum(|row| row.total));
        let (module, name) = (printable(&row.module), printable(&row.name));
        format!("{now:>7} {total:>7} {:>20}  {module:<20}  {name}", grouped(row.total))
    }

    /// Headings of the columns for a screen with lines of `width` characters.
    pub fn columns_in(width: usize) -> &'static str {
        match width < WIDE {
            true => "    now   total  function",
            false => Self::COLUMNS,
        }
    }

    /// A row for a screen with lines of `width` characters: whatever has to go, the function's own
    /// name stays.
    pub fn line_in(&self, row: &Row, width: usize) -> String {
        let line = self.line(row);
        let before = line.chars().count() - printable(&row.name).chars().count();
        match width < WIDE {
            false => {
                let start: String = line.chars().take(before).collect();
                let name = fitted(&printable(&row.name), width.saturating_sub(before));
                format!("{start}{name}")
            }
            true => {
                let start: String = line.chars().take(SHARES).collect();
                let name = fitted(&printable(&row.name), width.saturating_sub(SHARES + 2));
                format!("{start}  {name}")
            }
        }
    }

    /// The frame as one line of JSON.
    pub fn json(&self, limit: usize, order: Order) -> String {
        let sum = |what: fn(&Row) -> u64| self.rows.iter().map(what).sum::<u64>();
        let rows = self.rows(order);
        let functions: Vec<Value> = rows
            .iter()
            .take(limit)
            .map(|row| {
                json!({ "dso": row.module, "sym": row.name, "now": row.now, "total": row.total })
            })
            .collect();
        let document = json!({
            "command": self.title,
            "seconds": self.started.elapsed().as_secs_f64(),
            "event": "instructions",
            "now": sum(|row| row.now),
            "total": sum(|row| row.total),
            "functions": functions,
            "hidden": rows.len().saturating_sub(limit),
        });
        lwp_report::escape::json(&format!("{document}\n"))
    }

    /// The frame as text.
    pub fn text(&self, limit: usize, order: Order) -> String {
        let mut text = format!("# {}\n#{}\n", self.heading(), &Self::COLUMNS[1..]);
        let rows = self.rows(order);
        for row in rows.iter().take(limit) {
            let _ = writeln!(text, "{}", self.line(row));
        }
        if rows.len() > limit {
            let _ = writeln!(text, "# {} more not shown", rows.len() - limit);
        }
        text.push('\n');
        text
    }
}

#[cfg(test)]
mod tests {
    use lwp_profile::{RecordedModule, ThreadExecutions};

    use super::*;

    fn executed(at: u64, times: i64) -> Piece {
        Piece::Thread(ThreadExecutions {
            steps: vec![(Some(0), at, times), (Some(1), 0x9000, 10)],
            ..ThreadExecutions::default()
        })
    }

    #[test]
    fn a_frame_shows_what_has_happened_since_the_last() {
        let mut frames = Frames::new("a\x1bb".into(), Vec::new(), Duration::from_secs(9));
        frames.take(Piece::Module(RecordedModule::default(), None));
        let other = RecordedModule { id: 1, path: "/b".into(), ..RecordedModule::default() };
        frames.take(Piece::Module(other, None));
        assert!(!frames.advance(false));
        frames.take(executed(0x1000, 5));
        assert!(frames.advance(false));
        frames.take(executed(0x1000, 8));
        assert!(frames.advance(false));
        let now: Vec<(u64, u64)> =
            frames.rows(Order::Now).iter().map(|row| (row.now, row.total)).collect();
        assert_eq!(now, [(3, 8), (0, 10)]);
        assert_eq!(frames.rows(Order::Total)[0].total, 10);
        let text = frames.text(1, Order::Now);
        assert!(text.contains("100.00%  44.44%") && text.contains("1 more"), "{text}");
        assert!(!text.contains('\x1b'));
        let json: Value = serde_json::from_str(&frames.json(1, Order::Total)).expect("JSON");
        assert_eq!((&json["functions"][0]["total"], &json["hidden"]), (&json!(10), &json!(1)));
        // The end is a frame of its own.
        assert!(!frames.advance(false) && frames.advance(true));
    }
}
