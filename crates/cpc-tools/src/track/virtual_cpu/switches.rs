//! Threads whose counters stand still, because the program says so.

use std::collections::BTreeMap;

use super::printer::Key;

/// Counts of a thread: for each specification a row of numbers.
pub(super) type Rows = Vec<Vec<u64>>;

/// Counts of a thread to leave out.
#[derive(Default)]
struct Switched {
    /// The counts at the time when its counters were stopped, if they are stopped.
    stopped_at: Option<Rows>,
    /// Counts of earlier times in which its counters were stopped.
    left_out: Rows,
}

/// The threads that have ever switched their counters.
#[derive(Default)]
pub(super) struct Switches(BTreeMap<Key, Switched>);

impl Switches {
    /// Lets the counters of a thread, which has counted `now`, run or stand still. False: they do
    /// so already.
    pub(super) fn switch(&mut self, thread: Key, now: Rows, running: bool) -> bool {
        let switched = self.0.entry(thread).or_default();
        match (switched.stopped_at.take(), running) {
            (None, false) => switched.stopped_at = Some(now),
            (Some(before), true) => {
                let fresh = combined(&now, &before, u64::saturating_sub);
                switched.left_out = match switched.left_out.is_empty() {
                    true => fresh,
                    false => combined(&switched.left_out, &fresh, u64::wrapping_add),
                };
            }
            (stopped_at, _) => {
                switched.stopped_at = stopped_at;
                return false;
            }
        }
        true
    }

    /// Returns the counts of a thread, given those since its start.
    pub(super) fn counted(&self, thread: Key, now: Rows) -> Rows {
        let Some(switched) = self.0.get(&thread) else { return now };
        let until = switched.stopped_at.clone().unwrap_or(now);
        match switched.left_out.is_empty() {
            true => until,
            false => combined(&until, &switched.left_out, u64::saturating_sub),
        }
    }
}

/// Two tables of one shape, number by number.
pub(super) fn combined(a: &Rows, b: &Rows, op: impl Fn(u64, u64) -> u64) -> Rows {
    let row = |(a, b): (&Vec<u64>, &Vec<u64>)| a.iter().zip(b).map(|(a, b)| op(*a, *b)).collect();
    a.iter().zip(b).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn what_is_done_while_counters_stand_still_is_left_out() {
        let (mut switches, thread) = (Switches::default(), (7, Instant::now()));
        let rows = |n: u64| vec![vec![n, 10 * n]];
        assert_eq!(switches.counted(thread, rows(3)), rows(3));
        assert!(!switches.switch(thread, rows(4), true), "they run");
        assert!(switches.switch(thread, rows(5), false));
        assert!(!switches.switch(thread, rows(6), false), "they stand still");
        assert_eq!(switches.counted(thread, rows(8)), rows(5));
        assert!(switches.switch(thread, rows(9), true));
        assert_eq!(switches.counted(thread, rows(10)), rows(6));
        assert!(
            switches.switch(thread, rows(10), false) && switches.switch(thread, rows(20), true)
        );
        assert_eq!(switches.counted(thread, rows(21)), rows(7));
        assert_eq!(switches.counted((8, thread.1), rows(2)), rows(2));
    }
}
