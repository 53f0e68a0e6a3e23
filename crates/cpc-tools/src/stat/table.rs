//! The output of `cpustat`: a title, the rows of each sample, and totals.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::groups::{Row, Shape};
use super::layout::Layout;
use super::options::Stamp;
use super::worker::Sampled;
use crate::rows::{Columns, Note, StatRow};

/// The table of a run.
pub struct Table<'a> {
    layout: &'a Layout,
    shape: &'a Shape,
    columns: Columns,
    stamp: Option<Stamp>,
    /// One a specification: what all processors have counted.
    totals: Vec<Row>,
}

impl<'a> Table<'a> {
    /// An empty one.
    pub fn new(layout: &'a Layout, shape: &'a Shape, tsc: bool, stamp: Option<Stamp>) -> Self {
        let processors = layout.cpus.len();
        let total = |pics: usize| Row {
            seconds: 0.0,
            id: u32::try_from(processors).unwrap_or(u32::MAX),
            size: processors as u64,
            tsc: 0,
            counts: vec![0; pics],
        };
        let totals = layout.specs.iter().map(|spec| total(spec.pics.len())).collect();
        let group = shape.grouping.map(super::groups::Grouping::title);
        let columns = Columns { pid: false, tsc, group };
        Self { layout, shape, columns, stamp, totals }
    }

    /// The title.
    pub fn title(&self) -> String {
        self.columns.stat_title(self.layout.widest())
    }

    /// Adds a sample of one processor to the totals.
    pub fn add(&mut self, sampled: &Sampled) {
        let total = &mut self.totals[sampled.set];
        total.tsc = total.tsc.wrapping_add(sampled.tsc);
        for (sum, count) in total.counts.iter_mut().zip(&sampled.counts) {
            *sum = sum.wrapping_add(*count);
        }
        for total in &mut self.totals {
            total.seconds = total.seconds.max(sampled.seconds);
        }
    }

    /// The rows of one sample of all processors, taken `at` seconds since 1970.
    pub fn sample(&self, at: i64, mut sample: Vec<Sampled>) -> String {
        sample.sort_by_key(|sampled| sampled.cpu);
        let Some(set) = sample.first().map(|sampled| sampled.set) else {
            return String::new();
        };
        let row = |sampled: Sampled| Row {
            seconds: sampled.seconds,
            id: sampled.cpu,
            size: 1,
            tsc: sampled.tsc,
            counts: sampled.counts,
        };
        let rows = sample.into_iter().map(row).collect();
        let mut text = self.stamp(at);
        for row in self.shape.rows(rows, self.layout, &self.layout.specs[set].pics) {
            text += &self.row("tick", set, &row);
        }
        text
    }

    fn stamp(&self, at: i64) -> String {
        let time = Timestamp::from_second(at).unwrap_or_default().to_zoned(TimeZone::system());
        match self.stamp {
            None => String::new(),
            Some(Stamp::Unix) => format!("{at}\n"),
            Some(Stamp::Date) => format!("{}\n", time.strftime("%a %b %e %H:%M:%S %Z %Y")),
        }
    }

    /// The last rows: totals, or what a processor has counted on average.
    pub fn totals(&self) -> String {
        let mut text = String::new();
        for (set, total) in self.totals.iter().enumerate() {
            text += &match self.shape.mean {
                true => self.row("mean", set, &total.clone().mean()),
                false => self.row("total", set, total),
            };
        }
        text
    }

    fn row(&self, tag: &str, set: usize, row: &Row) -> String {
        let note = match &*self.layout.specs {
            [_] => Note::None,
            several => Note::Text(&several[set].text),
        };
        let (seconds, cpu, size) = (row.seconds, row.id, row.size);
        self.columns.stat(StatRow {
            seconds,
            cpu,
            size,
            tag,
            tsc: row.tsc,
            counts: &row.counts,
            note,
        })
    }
}
