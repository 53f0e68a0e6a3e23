//! Arithmetic of the ring buffer. Nothing here accesses memory.
//!
//! ```text
//!   BufferBase                 tail            head               + BufferSize
//!   |---- free ----------------|#### records ##|.... free .........|
//!                               oldest unread   written next
//! ```
//!
//! The ring is empty if head and tail are equal, so one slot can never be used: a ring of *n* slots
//! has room for *n* − 1 records.

use crate::record::Record;
use crate::{LinearAddr, Revision, RingOffset};

/// The geometry of a ring: size and record length in bytes, size a multiple of the length.
///
/// Spec: P07 §5.4; LWP §3.1, §5.7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    size: u32,
    record: u32,
}

/// What happens to the head after a record is written.
///
/// Spec: P07 §5.4; LWP §5.7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// The head moved to the next slot; the record can be read.
    Advanced(RingOffset),
    /// The ring is full: the head stays, the next record overwrites this one, MissedEvents grows.
    Missed,
}

impl Ring {
    /// A ring of `size` bytes, rounded down to whole records of `record` bytes. `None` if there is
    /// no room for a record.
    ///
    /// Spec: LWP §3.2.
    pub const fn new(size: u32, record: u32) -> Option<Self> {
        if record == 0 || size < record {
            return None;
        }
        Some(Self { size: size - size % record, record })
    }

    /// BufferSize after rounding, in bytes.
    pub const fn size(self) -> u32 {
        self.size
    }

    /// Number of slots, one more than can be read.
    pub const fn slots(self) -> u32 {
        self.size / self.record
    }

    /// Number of records that can be unread at the same time.
    ///
    /// Spec: LWP §5.7.
    pub const fn capacity(self) -> u32 {
        self.slots() - 1
    }

    /// Returns the valid offset for a head or tail read from memory: 0 if it is beyond the ring,
    /// otherwise rounded down to a record.
    ///
    /// Spec: LWP §3.2.
    pub const fn reduce(self, offset: u32) -> RingOffset {
        if offset >= self.size { RingOffset(0) } else { RingOffset(offset - offset % self.record) }
    }

    /// A threshold from memory, rounded down to a record. It may exceed the size.
    ///
    /// Spec: LWP §3.2.
    pub const fn round_threshold(self, threshold: u32) -> u32 {
        threshold - threshold % self.record
    }

    /// The slot after `offset`.
    pub const fn next(self, offset: RingOffset) -> RingOffset {
        let next = offset.0 + self.record;
        if next >= self.size { RingOffset(0) } else { RingOffset(next) }
    }

    /// Bytes between tail and head: `(head − tail) mod size`.
    ///
    /// Spec: P07 §5.4.
    pub const fn used(self, head: RingOffset, tail: RingOffset) -> u32 {
        if head.0 >= tail.0 { head.0 - tail.0 } else { head.0 + self.size - tail.0 }
    }

    /// Returns what happens to the head after a record is written at it.
    ///
    /// In continuous mode, the head passes the tail: the oldest record is lost, and doesn't count
    /// as missed: DEV-6.
    ///
    /// Spec: P07 §5.4; LWP §5.7.
    pub fn store(self, head: RingOffset, tail: RingOffset, continuous: bool) -> Stored {
        let next = self.next(head);
        if next == tail && !continuous { Stored::Missed } else { Stored::Advanced(next) }
    }

    /// Linear address of the slot at `offset` in a ring at `base`.
    pub const fn slot_address(self, base: LinearAddr, offset: RingOffset) -> LinearAddr {
        base.plus(offset.0 as u64)
    }
}

/// Returns whether a ring that holds `used` bytes after the head advanced raises the threshold
/// interrupt.
///
/// In the shipped revision, the ring must be at or above the threshold, so 0 means every record:
/// DEV-7. In the proposal, it must be exactly at the threshold, so that each crossing raises one
/// interrupt, and 0 means never.
///
/// Spec: P07 §5.4; LWP §5.7.
pub const fn threshold_reached(revision: Revision, used: u32, threshold: u32) -> bool {
    match revision {
        Revision::Shipped => used >= threshold,
        Revision::Proposal2007 => threshold != 0 && used == threshold,
    }
}

/// The records between `tail` and `head` of a ring image, oldest first.
///
/// `ring` is the whole ring, a multiple of [`Record::SIZE`]; bytes beyond the last whole record are
/// ignored. Offsets are reduced as the unit reduces them, so no value leads outside of the ring.
///
/// Spec: P07 §3; LWP §7.
pub fn records(
    ring: &[u8],
    tail: RingOffset,
    head: RingOffset,
) -> impl Iterator<Item = (RingOffset, Record)> + '_ {
    let size = u32::try_from(ring.len()).unwrap_or(u32::MAX);
    let geometry = Ring::new(size, Record::SIZE as u32);
    let mut at = geometry.map_or(RingOffset(0), |g| g.reduce(tail.0));
    let end = geometry.map_or(RingOffset(0), |g| g.reduce(head.0));
    core::iter::from_fn(move || {
        if at == end {
            return None;
        }
        let here = at;
        at = geometry?.next(at);
        let bytes = ring.get(here.0 as usize..)?.first_chunk::<{ Record::SIZE }>()?;
        Some((here, Record::from_bytes(bytes)))
    })
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    const RING: Ring = Ring::new(128, 32).unwrap();

    /// Spec: LWP §3.2
    #[test]
    fn lwp_spec_3_2_sizes_offsets_and_thresholds_are_rounded_down() {
        assert_eq!(Ring::new(127, 32).map(Ring::size), Some(96));
        assert_eq!(Ring::new(31, 32), None);
        assert_eq!(Ring::new(0, 32), None);
        assert_eq!(Ring::new(32, 0), None);
        assert_eq!(RING.reduce(63), RingOffset(32));
        assert_eq!(RING.reduce(127), RingOffset(96));
        assert_eq!(RING.reduce(128), RingOffset(0));
        assert_eq!(RING.round_threshold(1_000), 992, "a threshold above the size is kept");
    }

    /// Spec: LWP §5.7
    #[test]
    fn lwp_spec_5_7_capacity_is_one_less_than_the_slots() {
        let mut head = RingOffset(64);
        let tail = RingOffset(64);
        let mut readable = 0;
        while let Stored::Advanced(next) = RING.store(head, tail, false) {
            head = next;
            readable += 1;
        }
        assert_eq!((readable, RING.slots(), RING.capacity()), (3, 4, 3));
        assert_eq!(RING.used(head, tail), 96);
        assert_eq!(RING.used(tail, tail), 0, "empty, not full");
    }

    /// Spec: LWP §5.7. DEV-6
    #[test]
    fn lwp_spec_5_7_dev_6_continuous_mode_passes_the_tail() {
        let full = RingOffset(32);
        assert_eq!(RING.store(full, RingOffset(64), false), Stored::Missed);
        assert_eq!(RING.store(full, RingOffset(64), true), Stored::Advanced(RingOffset(64)));
    }

    /// Spec: LWP §5.7. DEV-7
    #[test]
    fn lwp_spec_5_7_dev_7_threshold_is_reached_at_or_above() {
        let reached = |used, threshold| threshold_reached(Revision::Shipped, used, threshold);
        assert!(!reached(32, 64) && reached(64, 64) && reached(96, 64));
        assert!(reached(32, 0), "zero means every record");
        assert!(!reached(96, 256), "above the size means never");
    }

    /// Spec: P07 §5.4
    #[test]
    fn p07_5_4_threshold_is_reached_at_equality_only() {
        let reached = |used, threshold| threshold_reached(Revision::Proposal2007, used, threshold);
        assert!(!reached(32, 64) && reached(64, 64) && !reached(96, 64));
        assert!(!reached(0, 0) && !reached(32, 0), "zero means never");
    }

    /// Starts in the last slot, so that the wrap is what is tested.
    ///
    /// Spec: LWP §7
    #[test]
    fn lwp_spec_7_reader_follows_the_wrap() {
        let mut ring = [0u8; 128];
        for (slot, id) in [(3usize, 1u8), (0, 255), (1, 3)] {
            ring[slot * 32] = id;
        }
        let seen: Vec<_> = records(&ring, RingOffset(96), RingOffset(64))
            .map(|(at, record)| (at.0, record.event_id))
            .collect();
        assert_eq!(seen, [(96, 1), (0, 255), (32, 3)]);
        assert_eq!(records(&ring, RingOffset(32), RingOffset(32)).count(), 0);
    }

    /// Spec: LWP §7
    #[test]
    fn lwp_spec_7_reader_survives_wild_offsets() {
        let ring = [1u8; 100];
        assert_eq!(records(&ring, RingOffset(u32::MAX), RingOffset(64)).count(), 2);
        assert_eq!(
            records(&ring, RingOffset(0), RingOffset(96)).count(),
            0,
            "96 is outside 3 slots"
        );
        assert_eq!(records(&[], RingOffset(0), RingOffset(32)).count(), 0);
    }
}
