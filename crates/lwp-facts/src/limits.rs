//! Limits on facts, which come from anywhere.

use std::time::{SystemTime, UNIX_EPOCH};

/// The most that a reader takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of a text, unpacked.
    pub bytes: u64,
    /// Most bytes of one line.
    pub line_bytes: u64,
    /// Most rows of all kinds together.
    pub rows: usize,
    /// Most bytes of one name.
    pub name_bytes: usize,
    /// Most frames of one stack.
    pub frames: usize,
    /// Most events, and so values of a row.
    pub events: usize,
    /// Most labels of a run.
    pub labels: usize,
    /// The second since 1970 before which no run can have started: 2000-01-01.
    pub earliest: i64,
    /// Seconds that a run may have started after now: clocks differ.
    pub ahead_seconds: i64,
}

impl Limits {
    /// Returns these limits without one on the time of the run, for callers that know it better
    /// than the facts.
    pub fn at_any_time(self) -> Self {
        Self { earliest: i64::MIN, ahead_seconds: i64::MAX, ..self }
    }

    /// Returns true if a run can have started at a second since 1970.
    pub fn is_time(&self, started: i64) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        (self.earliest..=now.saturating_add(self.ahead_seconds)).contains(&started)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes: 1 << 30,
            line_bytes: 4 << 20,
            rows: 5_000_000,
            name_bytes: 4096,
            frames: 4096,
            events: 64,
            labels: 256,
            earliest: 946_684_800,
            ahead_seconds: 48 * 3600,
        }
    }
}
