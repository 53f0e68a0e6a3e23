//! Event counters: 26 bits that count down, differently in the two revisions.

use lwp_arch::lwpcb::{COUNTER_MAX, COUNTER_MAX_2007, pack_26, sign_extend_26};
use lwp_arch::{EventKind, Revision};

/// Smallest value of the 26-bit signed counter.
const COUNTER_MIN: i32 = -COUNTER_MAX - 1;

/// An event slot of the active control block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    /// The event counted here, or `None` if the slot counts nothing.
    pub(crate) kind: Option<EventKind>,
    /// Current value. Shipped: occurrences still to pass before the one that records, negative when
    /// that one has been. Proposal: occurrences up to the one that records, 0 when it has been.
    pub(crate) counter: i32,
    /// How often another event has been recorded in its place since it was recorded itself.
    pub(crate) passed_over: u8,
}

/// A counter as it comes from a control block or an XSAVE image.
///
/// Shipped: a negative value becomes 0, so the next occurrence records. Proposal: unsigned.
///
/// Spec: P07 §5.4; LWP §3.2.
pub(crate) const fn load_counter(revision: Revision, dword: u32) -> i32 {
    match revision {
        Revision::Shipped => {
            let signed = sign_extend_26(dword);
            if signed < 0 { 0 } else { signed }
        }
        Revision::Proposal2007 => (dword & COUNTER_MAX_2007) as i32,
    }
}

/// An interval as it comes from a control block, raised to the minimum of the processor.
///
/// Spec: P07 §5.4; LWP §3.2.
pub(crate) fn load_interval(revision: Revision, dword: u32, minimum: i32) -> i32 {
    match revision {
        Revision::Shipped => sign_extend_26(dword).max(minimum.clamp(0, COUNTER_MAX)),
        Revision::Proposal2007 => (dword & COUNTER_MAX_2007) as i32,
    }
}

impl Slot {
    /// A slot that counts nothing but keeps its value.
    pub(crate) const fn idle(counter: i32) -> Self {
        Self { kind: None, counter, passed_over: 0 }
    }

    /// The dword that goes into EventCounter. Reserved bits are zero.
    ///
    /// Spec: LWP §5.4.
    pub(crate) const fn packed(&self) -> u32 {
        pack_26(self.counter)
    }

    /// Counts `occurrences` of the event. Returns which of them, from 0, is to be recorded, if one
    /// is.
    ///
    /// Shipped: the counter goes down by one per occurrence and the event expires when it becomes
    /// negative; while it is negative every occurrence is a candidate. It stops at the smallest
    /// 26-bit value: DEV-17. Proposal: the event expires when the counter reaches zero, where it
    /// stays.
    ///
    /// Spec: P07 §3; LWP §3.1, §5.7.
    pub(crate) fn count(&mut self, revision: Revision, occurrences: u32) -> Option<u32> {
        if occurrences == 0 {
            return None;
        }
        let before = i64::from(self.counter);
        let after = before - i64::from(occurrences);
        let (floor, expired, due) = match revision {
            Revision::Shipped => (COUNTER_MIN, after < 0, before.max(0)),
            Revision::Proposal2007 => (0, after <= 0, before.max(1) - 1),
        };
        self.counter = after.max(i64::from(floor)) as i32;
        expired.then_some(due as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Revision::{Proposal2007, Shipped};
    use proptest::prelude::*;

    fn slot(counter: i32) -> Slot {
        Slot { kind: Some(EventKind::InstructionsRetired), counter, passed_over: 0 }
    }

    /// Occurrences up to and including the one recorded, counting one at a time.
    fn distance(revision: Revision, counter: i32) -> u32 {
        let mut slot = slot(counter);
        (1..).find(|_| slot.count(revision, 1).is_some()).unwrap_or(0)
    }

    /// Spec: LWP §3.1
    #[test]
    fn lwp_spec_3_1_interval_n_records_every_n_plus_first() {
        assert_eq!([0, 1, 9].map(|n| distance(Shipped, n)), [1, 2, 10]);
    }

    /// Spec: P07 §3, §5.4
    #[test]
    fn p07_3_interval_n_records_every_nth() {
        assert_eq!([0, 1, 9].map(|n| distance(Proposal2007, n)), [1, 1, 9]);
    }

    /// Spec: P07 §3
    #[test]
    fn p07_3_counter_freezes_at_zero() {
        let mut slot = slot(2);
        assert_eq!(slot.count(Proposal2007, 5), Some(1));
        assert_eq!(slot.counter, 0);
        assert_eq!(slot.count(Proposal2007, 3), Some(0), "every further occurrence is a candidate");
        assert_eq!(slot.counter, 0);
    }

    /// Spec: LWP §5.7. DEV-17
    #[test]
    fn lwp_spec_5_7_dev_17_counter_goes_negative_and_stops_at_26_bits() {
        let mut slot = slot(1);
        assert_eq!(slot.count(Shipped, 4), Some(1));
        assert_eq!(slot.counter, -3);
        assert_eq!(slot.count(Shipped, u32::MAX), Some(0));
        assert_eq!(slot.counter, -33_554_432);
        assert_eq!(
            load_counter(Shipped, slot.packed()),
            0,
            "reloaded, the next occurrence records"
        );
    }

    /// Spec: LWP §3.2
    #[test]
    fn lwp_spec_3_2_counters_and_intervals_are_clamped() {
        assert_eq!(load_counter(Shipped, 0x0200_0000), 0);
        assert_eq!(load_counter(Shipped, 0xFDFF_FFFF), COUNTER_MAX);
        assert_eq!(load_interval(Shipped, 0x03FF_FFFF, 0), 0, "−1 becomes the minimum");
        assert_eq!(load_interval(Shipped, 5, 16), 16);
        assert_eq!(load_interval(Shipped, 17, 16), 17);
        assert_eq!(load_interval(Shipped, 0, i32::MIN), 0, "a minimum is never negative");
        assert_eq!(load_counter(Proposal2007, u32::MAX), 0x03FF_FFFF);
        assert_eq!(load_interval(Proposal2007, 5, 16), 5, "the proposal has no minimum");
    }

    proptest! {
        /// Counting in one go is counting one by one.
        ///
        /// Spec: LWP §3.1, §5.7
        #[test]
        fn lwp_spec_5_7_counting_at_once_equals_counting_singly(
            counter in -40..40i32, occurrences in 0..100u32, proposal: bool,
        ) {
            let revision = if proposal { Proposal2007 } else { Shipped };
            let counter = if proposal { counter.max(0) } else { counter };
            let (mut at_once, mut singly) = (slot(counter), slot(counter));
            let together = at_once.count(revision, occurrences);
            let first = (0..occurrences).filter(|_| singly.count(revision, 1).is_some()).min();
            prop_assert_eq!(together, first);
            prop_assert_eq!(at_once, singly);
        }

        /// Whatever lies in memory becomes a counter in range, and is written back as 26 bits.
        ///
        /// Spec: LWP §3.2
        #[test]
        fn lwp_spec_3_2_any_dword_loads_in_range(dword: u32, minimum: i32) {
            let counter = load_counter(Shipped, dword);
            prop_assert!((0..=COUNTER_MAX).contains(&counter));
            prop_assert!((0..=COUNTER_MAX).contains(&load_interval(Shipped, dword, minimum)));
            prop_assert_eq!(load_counter(Shipped, slot(counter).packed()), counter);
        }
    }
}
