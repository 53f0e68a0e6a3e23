//! Limits on facts, which come from anywhere.

/// The most that a reader takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes, unpacked.
    pub bytes: u64,
    /// Bytes of a line.
    pub line_bytes: u64,
    /// Rows.
    pub rows: usize,
    /// Bytes of a name.
    pub name_bytes: usize,
    /// Frames of a stack.
    pub frames: usize,
    /// Events.
    pub events: usize,
    /// Labels.
    pub labels: usize,
    /// Seconds that a run may have started after now: clocks differ.
    pub ahead_seconds: i64,
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
            ahead_seconds: 48 * 3600,
        }
    }
}

/// The first day that a run can have started: 2000-01-01.
pub(crate) const EARLIEST: i64 = 946_684_800;
