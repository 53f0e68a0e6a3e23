//! The events that LWP counts: identifiers, and the bits that select them.

use crate::Revision;

/// An EventId, as found in byte 0 of a record.
///
/// The two revisions give a number to different events; [`EventKind`] is the event itself.
///
/// Spec: P07 §4 table 1; LWP §4.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(pub u8);

impl EventId {
    /// Never in a valid record; marks a slot that was not written.
    pub const INVALID: Self = Self(0);
    /// Programmed value sample, made by LWPVAL.
    pub const VALUE_SAMPLE: Self = Self(1);
    /// An instruction has retired.
    pub const INSTRUCTIONS_RETIRED: Self = Self(2);
    /// A branch has retired, taken or not.
    pub const BRANCHES_RETIRED: Self = Self(3);
    /// An access has missed the first data cache.
    pub const DCACHE_MISSES: Self = Self(4);
    /// CPU clocks not halted.
    pub const CORE_CLOCKS: Self = Self(5);
    /// CPU reference clocks not halted.
    pub const REFERENCE_CLOCKS: Self = Self(6);
    /// Programmed event, made by LWPINS. It has no counter and no slot in the LWPCB.
    pub const PROGRAMMED: Self = Self(255);
}

/// An event, whatever number a revision gives it.
///
/// Spec: P07 §4; LWP §4.2, §8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventKind {
    /// LWPVAL executed.
    ValueSample,
    /// An instruction retired at CPL 3.
    InstructionsRetired,
    /// A transfer of control retired at CPL 3, taken or not.
    BranchesRetired,
    /// A demand load missed the data cache.
    DcacheMisses,
    /// A core clock passed at CPL 3, not halted.
    CoreClocks,
    /// A reference clock passed at CPL 3, not halted.
    ReferenceClocks,
    /// LWPINS executed.
    Programmed,
}

#[rustfmt::skip] // One event per line.
const IDS: [(EventKind, EventId, Option<EventId>); 7] = [
    // event                         shipped                          2007
    (EventKind::ValueSample,         EventId::VALUE_SAMPLE,           None),
    (EventKind::InstructionsRetired, EventId::INSTRUCTIONS_RETIRED,   Some(EventId(1))),
    (EventKind::BranchesRetired,     EventId::BRANCHES_RETIRED,       Some(EventId(2))),
    (EventKind::DcacheMisses,        EventId::DCACHE_MISSES,          Some(EventId(3))),
    (EventKind::CoreClocks,          EventId::CORE_CLOCKS,            None),
    (EventKind::ReferenceClocks,     EventId::REFERENCE_CLOCKS,       None),
    (EventKind::Programmed,          EventId::PROGRAMMED,             None),
];

impl EventKind {
    /// The EventId of this event, or `None` if the revision does not have it.
    ///
    /// Spec: LWP §8.
    pub fn event_id(self, revision: Revision) -> Option<EventId> {
        let &(_, shipped, proposal) = IDS.iter().find(|row| row.0 == self)?;
        match revision {
            Revision::Shipped => Some(shipped),
            Revision::Proposal2007 => proposal,
        }
    }

    /// The event that `id` stands for, or `None` if the revision does not assign the number.
    ///
    /// Spec: LWP §8.
    pub fn from_event_id(revision: Revision, id: EventId) -> Option<Self> {
        IDS.iter().map(|row| row.0).find(|kind| kind.event_id(revision) == Some(id))
    }
}

bitflags::bitflags! {
    /// The Flags dword of the shipped LWPCB.
    ///
    /// ```text
    ///   31  30   29   28        7   6   5   4   3   2   1  0
    ///  +---+----+----+------------+---+---+---+---+---+---+-+
    ///  |INT|PTSC|CONT|  reserved  |RNH|CNH|DME|BRE|IRE|VAL|0|
    ///  +---+----+----+------------+---+---+---+---+---+---+-+
    /// ```
    ///
    /// Bit *n* requests EventId *n*. `LWP_CFG` and leaf `8000_001C` use the same positions. LLWPCB
    /// replaces the requested flags with the granted ones.
    ///
    /// Spec: LWP §3.1.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct EventFlags: u32 {
        /// EventId 1, value samples.
        const VAL = 1 << 1;
        /// EventId 2, instructions retired.
        const IRE = 1 << 2;
        /// EventId 3, branches retired.
        const BRE = 1 << 3;
        /// EventId 4, data-cache misses.
        const DME = 1 << 4;
        /// EventId 5, core clocks not halted.
        const CNH = 1 << 5;
        /// EventId 6, reference clocks not halted.
        const RNH = 1 << 6;
        /// Continuous mode: a full ring loses its oldest record, not its newest.
        const CONT = 1 << 29;
        /// Records carry the performance time-stamp counter in bytes 31:24.
        const PTSC = 1 << 30;
        /// Threshold interrupt.
        const INT = 1 << 31;
    }
}

impl EventFlags {
    /// The events with counters, by the names that users give them.
    pub const EVENTS: [(&'static str, Self); 6] = [
        ("values", Self::VAL),
        ("instructions", Self::IRE),
        ("branches", Self::BRE),
        ("dcache-misses", Self::DME),
        ("core-clocks", Self::CNH),
        ("reference-clocks", Self::RNH),
    ];

    /// Returns the event with this name; for `none`, an empty set.
    pub fn event_named(name: &str) -> Option<Self> {
        let row = Self::EVENTS.into_iter().find(|(known, _)| *known == name);
        row.map(|(_, flag)| flag).or((name == "none").then_some(Self::empty()))
    }

    /// Returns whether EventId `id` is selected. The bit position is the identifier itself;
    /// identifiers without a bit are never selected.
    pub const fn selects(self, id: EventId) -> bool {
        id.0 >= 1 && id.0 <= 28 && self.bits() >> id.0 & 1 == 1
    }
}

bitflags::bitflags! {
    /// The Flags dword of the 2007 LWPCB. Only the unit writes it, while LLWPCB runs.
    ///
    /// ```text
    ///   31  30                 4   3   2   1   0
    ///  +---+--------------------+---+---+---+---+
    ///  |INT|      reserved      |DME|BRE|IRE|EN |
    ///  +---+--------------------+---+---+---+---+
    /// ```
    ///
    /// Spec: P07 §5.4 figure 6.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct EventFlags2007: u32 {
        /// LWP is enabled.
        const EN = 1 << 0;
        /// EventId 1, instructions retired.
        const IRE = 1 << 1;
        /// EventId 2, branches retired.
        const BRE = 1 << 2;
        /// EventId 3, data-cache misses.
        const DME = 1 << 3;
        /// Threshold interrupt.
        const INT = 1 << 31;
    }
}

impl EventFlags2007 {
    /// The flag of EventId `id`; empty for an identifier without a bit.
    ///
    /// Spec: P07 §5.3.
    pub const fn of(id: EventId) -> Self {
        if id.0 >= 1 && id.0 <= 30 { Self::from_bits_retain(1 << id.0) } else { Self::empty() }
    }

    /// Returns whether EventId `id` is selected. Bits 30:1 belong to identifiers of the same
    /// number.
    pub const fn selects(self, id: EventId) -> bool {
        id.0 >= 1 && id.0 <= 30 && self.bits() >> id.0 & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: LWP §8
    #[test]
    fn lwp_spec_8_event_numbers_differ_by_revision() {
        let kind = EventKind::BranchesRetired;
        assert_eq!(kind.event_id(Revision::Shipped), Some(EventId(3)));
        assert_eq!(kind.event_id(Revision::Proposal2007), Some(EventId(2)));
        assert_eq!(EventKind::Programmed.event_id(Revision::Proposal2007), None);
    }

    /// Spec: LWP §4.2; P07 §4
    #[test]
    fn lwp_spec_4_2_every_assigned_number_maps_back() {
        for revision in [Revision::Shipped, Revision::Proposal2007] {
            let assigned = (0..=255u8).filter_map(|id| {
                Some((EventId(id), EventKind::from_event_id(revision, EventId(id))?))
            });
            let mut seen = 0;
            for (id, kind) in assigned {
                assert_eq!(kind.event_id(revision), Some(id));
                seen += 1;
            }
            assert_eq!(seen, if revision == Revision::Shipped { 7 } else { 3 });
        }
    }

    /// Spec: LWP §3.1
    #[test]
    fn lwp_spec_3_1_flag_position_is_the_event_id() {
        for (flag, id) in [
            (EventFlags::VAL, EventId::VALUE_SAMPLE),
            (EventFlags::IRE, EventId::INSTRUCTIONS_RETIRED),
            (EventFlags::BRE, EventId::BRANCHES_RETIRED),
            (EventFlags::DME, EventId::DCACHE_MISSES),
            (EventFlags::CNH, EventId::CORE_CLOCKS),
            (EventFlags::RNH, EventId::REFERENCE_CLOCKS),
        ] {
            assert!(flag.selects(id));
            assert!(!flag.complement().selects(id));
        }
        // The mode bits 31:29 select no event, nor does an identifier without a bit.
        for id in [0, 29, 30, 31, 32, 255] {
            assert!(!EventFlags::from_bits_retain(u32::MAX).selects(EventId(id)), "id {id}");
        }
    }

    /// Spec: P07 §5.4
    #[test]
    fn p07_5_4_flag_position_is_the_event_id() {
        assert!(EventFlags2007::IRE.selects(EventId(1)));
        assert_eq!(EventFlags2007::of(EventId(2)), EventFlags2007::BRE);
        assert_eq!(EventFlags2007::of(EventId(30)).bits(), 1 << 30);
        assert_eq!(EventFlags2007::of(EventId(31)), EventFlags2007::empty());
        assert!(EventFlags2007::DME.selects(EventId(3)));
        assert!(!EventFlags2007::from_bits_retain(u32::MAX).selects(EventId(0)));
        assert!(!EventFlags2007::from_bits_retain(u32::MAX).selects(EventId(31)));
    }
}
