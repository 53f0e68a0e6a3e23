//! Time beside counts: what a call and an instruction take.
//!
//! Where a recording has both, of a native run and of a counted one, the table of the one event has
//! the other's count beside each row. Their quotients are estimates: both runs are taken for the
//! same, and the time is sampled.
//!
//! Promise: R139

use lwp_profile::{Event, Profile};

use crate::chance;
use crate::table::{Row, Table};

/// The event that is told beside the one that a table is of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Beside {
    /// Its name.
    pub event: String,
    /// Its sum over all rows.
    pub total: u64,
    /// Nanoseconds of each sample of time.
    pub(crate) interval: u64,
}

/// A number that is made of sampled time and counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Nanoseconds.
    pub ns: f64,
    /// Half the width of the interval that holds the true number in 95 of 100 recordings, in per
    /// cent of it.
    pub margin: f64,
}

impl Beside {
    /// The index of the event to be told beside the one with index `event`, and what it is.
    pub(crate) fn of(profile: &Profile, event: usize) -> Option<(usize, Self)> {
        let time = profile.event(Event::TIME).filter(|time| profile.is_sampled_beside(*time))?;
        let counted = profile.event(Event::EXACT[0])?;
        let other = match event {
            _ if event == time => counted,
            _ if event == counted => time,
            _ => return None,
        };
        let name = profile.events[other].name.clone();
        let interval = profile.events[time].interval.unwrap_or(1).max(1);
        Some((other, Self { event: name, total: 0, interval }))
    }
}

impl Table {
    /// Time and instructions of a row, and all of the time.
    fn both(&self, row: &Row) -> Option<(u64, u64, u64)> {
        let (beside, other) = (self.beside.as_ref()?, row.beside?);
        Some(match self.time {
            true => (row.own, other, self.total),
            false => (other, row.own, beside.total),
        })
    }

    /// Nanoseconds of a row, and its instructions, where both are known.
    pub fn time_and_instructions(&self, row: &Row) -> Option<(u64, u64)> {
        self.both(row).map(|(time, instructions, _)| (time, instructions))
    }

    /// Time of a row by `count`, if it has time at all.
    fn per(&self, row: &Row, count: u64) -> Option<Estimate> {
        let (time, _, whole) = self.both(row).filter(|it| it.0 > 0 && count > 0)?;
        let interval = self.beside.as_ref()?.interval;
        let margin = chance::margin(&[chance::standard_error(time, whole, interval)]);
        let ns = time as f64 / count as f64;
        Some(Estimate { ns, margin: 100.0 * margin / time as f64 })
    }

    /// A row's own time for each call of it.
    pub fn per_call(&self, row: &Row) -> Option<Estimate> {
        self.per(row, row.calls?)
    }

    /// A row's time for each of its instructions.
    pub fn per_instruction(&self, row: &Row) -> Option<Estimate> {
        self.per(row, self.both(row)?.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_have_the_error_of_the_time() {
        let beside = Beside { event: "instructions".into(), total: 5000, interval: 10 };
        let table = Table { time: true, total: 40_000, beside: Some(beside), ..Table::default() };
        let row = |own, instructions, calls| Row {
            own,
            beside: Some(instructions),
            calls: Some(calls),
            ..Row::default()
        };
        // A quarter of 4,000 samples: 27.4 of them are one standard error.
        let call = table.per_call(&row(10_000, 2_000, 50)).expect("an estimate");
        assert!((call.ns, (call.margin - 5.37).abs() < 0.02) == (200.0, true), "{call:?}");
        let instruction = table.per_instruction(&row(10_000, 2_000, 50)).expect("an estimate");
        assert!(instruction.ns == 5.0 && instruction.margin == call.margin, "{instruction:?}");
        // Without samples, calls or instructions there is nothing to divide.
        assert_eq!(table.per_call(&row(0, 2_000, 50)), None);
        assert_eq!(table.per_call(&row(10, 0, 0)), None);
        assert_eq!(table.per_instruction(&row(10, 0, 0)), None);
        // The table of instructions says the same.
        let beside = Beside { event: "cpu-time".into(), total: 40_000, interval: 10 };
        let counted = Table { total: 5000, beside: Some(beside), ..Table::default() };
        assert_eq!(counted.per_call(&row(2_000, 10_000, 50)), Some(call));
    }
}
