//! The 32-byte event record and its meaning.

use zerocopy::little_endian::{U16, U32, U64};

use crate::filters::Filters;
use crate::{AppPc, EventId, EventKind, LinearAddr, Revision, RingOffset};

layout! {
    /// An event record in the ring. Both revisions use this layout.
    ///
    /// ```text
    ///        63                32 31       16 15      8 7       0
    ///       +--------------------+-----------+---------+---------+
    ///  00h  |       Data1        |   Flags   | CoreId  | EventId |
    ///  08h  |                InstructionAddress                  |
    ///  10h  |                      Data2                         |
    ///  18h  |        time stamp if asked for, else zero          |
    ///       +----------------------------------------------------+
    /// ```
    ///
    /// Fields an event does not use are written as zero. A record never crosses the end of the
    /// ring, because BufferSize is rounded down to whole records.
    ///
    /// Spec: P07 §4 figure 1; LWP §4.1.
    pub struct Record: 0x20 {
        /// EventId, 1 to 255; 0 marks an unused slot. See [`Record::kind`].
        0x00 => pub event_id: u8,
        /// The core that wrote the record: `LWP_CFG.COREID`.
        0x01 => pub core_id: u8,
        /// Flags of the event, bits 31:16 of the first dword.
        0x02 => pub flags: U16,
        /// Data1 of the event.
        0x04 => pub data1: U32,
        /// Linear address of the instruction the record is about.
        0x08 => pub instruction_address: U64,
        /// Data2 of the event.
        0x10 => pub data2: U64,
        /// Performance time-stamp counter if Flags.PTSC was granted, else 0. Always 0 in the
        /// proposal.
        0x18 => pub timestamp: U64,
    }
}

bitflags::bitflags! {
    /// Flags of a branch record, as they lie in the 16-bit field (bits 31:16 of the first dword).
    ///
    /// ```text
    ///    15  14  13  12  11           0
    ///  +---+---+---+---+---------------+
    ///  |TKN|PRD|PRV|FUS|   reserved    |
    ///  +---+---+---+---+---------------+
    /// ```
    ///
    /// Spec: P07 §4.2; LWP §4.2.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct BranchFlags: u16 {
        /// Fused compare and branch. Shipped only; the unit of this project leaves it clear: DEV-8.
        const FUS = 1 << 12;
        /// PRD is valid.
        const PRV = 1 << 13;
        /// The branch was predicted correctly.
        const PRD = 1 << 14;
        /// The branch was taken.
        const TKN = 1 << 15;
    }
}

impl BranchFlags {
    /// The flags of a branch, given whether it was taken and whether a predictor was right about
    /// it. Without a predictor PRV and PRD are both clear.
    ///
    /// Spec: P07 §4.2; LWP §4.2.
    pub fn new(taken: bool, predicted: Option<bool>) -> Self {
        let mut flags = Self::empty();
        flags.set(Self::TKN, taken);
        flags.set(Self::PRV, predicted.is_some());
        flags.set(Self::PRD, predicted == Some(true));
        flags
    }
}

/// The source of the data of a load that missed: bits 31:29 of the first dword.
///
/// Spec: P07 §4.3 figure 4; LWP §4.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum DataSource {
    /// No valid status. A hit in a cache that isn't on the northbridge (the L2) has no separate
    /// code, so it is reported with this one: DEV-9.
    NoStatus = 0,
    /// The local L3 cache.
    LocalL3 = 1,
    /// A cache of another processor, or a remote L3.
    Remote = 2,
    /// DRAM.
    Dram = 3,
    /// Reserved, meant for remote caches.
    Reserved4 = 4,
    /// Reserved.
    Reserved5 = 5,
    /// Reserved.
    Reserved6 = 6,
    /// MMIO, configuration space, PCI, APIC.
    Other = 7,
}

impl DataSource {
    /// Every code in order of its value.
    pub const ALL: [Self; 8] = [
        Self::NoStatus,
        Self::LocalL3,
        Self::Remote,
        Self::Dram,
        Self::Reserved4,
        Self::Reserved5,
        Self::Reserved6,
        Self::Other,
    ];

    /// Returns whether the cache-level filter lets a miss from here count.
    ///
    /// If CLF is clear, everything counts. If it is set, a source counts if its bit is set; a
    /// source without a bit doesn't count.
    ///
    /// Spec: P07 §5.4; LWP §3.3.
    pub const fn admitted_by(self, filters: Filters) -> bool {
        if !filters.contains(Filters::CLF) {
            return true;
        }
        match self {
            Self::LocalL3 => filters.contains(Filters::NBC),
            Self::Remote | Self::Reserved4 => filters.contains(Filters::RDC),
            Self::Dram => filters.contains(Filters::RAM),
            Self::Other => filters.contains(Filters::OTH),
            Self::NoStatus | Self::Reserved5 | Self::Reserved6 => false,
        }
    }
}

/// DAV in the 16-bit Flags field of a DCache record: Data2 is the address of the datum.
const DAV: u16 = 1 << 12;
/// Position of the data source in the 16-bit Flags field of a DCache record.
const SOURCE_SHIFT: u32 = 13;

/// Largest latency that a counter with `bits` bits reports, in cycles: 2^bits − 16.
///
/// The proposal derives this from steps of 16 cycles; this project uses it for finer steps too:
/// DEV-10. The result is 0 if `bits` is below 5; processors without the event report a width of 0.
///
/// Spec: P07 §4.3.1; LWP §4.2.
pub const fn latency_max(bits: u32) -> u32 {
    let bits = if bits > 31 { 31 } else { bits };
    (1u32 << bits).saturating_sub(16)
}

/// The latency a record shows for a miss of `cycles`: capped, then rounded down to 2^`rounding`
/// cycles.
///
/// Spec: P07 §4.3.1; LWP §4.2.
pub const fn reported_latency(cycles: u32, bits: u32, rounding: u32) -> u32 {
    let max = latency_max(bits);
    let capped = if cycles > max { max } else { cycles };
    let rounding = if rounding > 31 { 31 } else { rounding };
    capped >> rounding << rounding
}

/// The content of a record, apart from address and time.
///
/// Spec: P07 §4; LWP §4.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A value sample of LWPVAL.
    ValueSample {
        /// Low 16 bits of the immediate.
        flags: u16,
        /// The r/m32 operand.
        data1: u32,
        /// The register operand, zero-extended.
        data2: u64,
    },
    /// Instructions retired.
    InstructionsRetired,
    /// A branch retired.
    BranchesRetired {
        /// Taken, predicted, prediction valid.
        flags: BranchFlags,
        /// The instruction executed next: target if taken, fall-through if not.
        target: AppPc,
    },
    /// A load missed the data cache.
    DcacheMisses {
        /// The source of the data.
        source: DataSource,
        /// Reported latency in core cycles.
        latency_cycles: u32,
        /// Lowest address that missed, if the processor reports addresses.
        data_address: Option<LinearAddr>,
    },
    /// Core clocks passed.
    CoreClocks,
    /// Reference clocks passed.
    ReferenceClocks,
    /// A programmed event of LWPINS.
    Programmed {
        /// Low 16 bits of the immediate.
        flags: u16,
        /// The r/m32 operand.
        data1: u32,
        /// The register operand, zero-extended.
        data2: u64,
    },
}

impl Event {
    /// Returns the kind of this event.
    pub const fn kind(self) -> EventKind {
        match self {
            Self::ValueSample { .. } => EventKind::ValueSample,
            Self::InstructionsRetired => EventKind::InstructionsRetired,
            Self::BranchesRetired { .. } => EventKind::BranchesRetired,
            Self::DcacheMisses { .. } => EventKind::DcacheMisses,
            Self::CoreClocks => EventKind::CoreClocks,
            Self::ReferenceClocks => EventKind::ReferenceClocks,
            Self::Programmed { .. } => EventKind::Programmed,
        }
    }

    /// Flags, Data1 and Data2 of the record.
    const fn payload(self) -> (u16, u32, u64) {
        match self {
            Self::ValueSample { flags, data1, data2 }
            | Self::Programmed { flags, data1, data2 } => (flags, data1, data2),
            Self::BranchesRetired { flags, target } => (flags.bits(), 0, target.0),
            Self::DcacheMisses { source, latency_cycles, data_address } => {
                let source = (source as u16) << SOURCE_SHIFT;
                match data_address {
                    Some(address) => (source | DAV, latency_cycles, address.0),
                    None => (source, latency_cycles, 0),
                }
            }
            Self::InstructionsRetired | Self::CoreClocks | Self::ReferenceClocks => (0, 0, 0),
        }
    }
}

/// The reason why a record could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// EventId 0 marks a slot that was never written.
    #[error("invalid record at ring offset {at:#x}: EventId 0")]
    EventIdZero {
        /// The place of the record.
        at: RingOffset,
    },
    /// The revision does not assign this EventId. Readers skip such a record by its length.
    #[error("unknown EventId {id} at ring offset {at:#x}")]
    UnknownEventId {
        /// The place of the record.
        at: RingOffset,
        /// The number found.
        id: u8,
    },
}

impl Record {
    /// Builds the record of `event`, or `None` if the revision has no such event.
    ///
    /// `timestamp` must be 0 unless time stamps were granted.
    ///
    /// Spec: P07 §4; LWP §4.1, §4.2.
    pub fn new(
        revision: Revision,
        event: Event,
        ip: AppPc,
        core_id: u8,
        timestamp: u64,
    ) -> Option<Self> {
        let (flags, data1, data2) = event.payload();
        Some(Self {
            event_id: event.kind().event_id(revision)?.0,
            core_id,
            flags: flags.into(),
            data1: data1.into(),
            instruction_address: ip.0.into(),
            data2: data2.into(),
            timestamp: timestamp.into(),
        })
    }

    /// Returns the kind of event, or `None` if the revision doesn't assign the EventId.
    pub fn kind(&self, revision: Revision) -> Option<EventKind> {
        EventKind::from_event_id(revision, EventId(self.event_id))
    }

    /// The decoded record of the shipped revision, or `None` for an EventId that it does not
    /// assign.
    ///
    /// Spec: LWP §4.1, §4.2.
    pub fn event(&self) -> Option<Event> {
        self.decode(Revision::Shipped, RingOffset(0)).ok()
    }

    /// Linear address of the instruction.
    pub const fn ip(&self) -> AppPc {
        AppPc(self.instruction_address.get())
    }

    /// Interprets the record, found at ring offset `at`, by its EventId.
    ///
    /// Spec: P07 §4; LWP §4.2.
    ///
    /// # Errors
    ///
    /// [`RecordError`] if the EventId is 0, or if the revision doesn't assign it.
    pub fn decode(&self, revision: Revision, at: RingOffset) -> Result<Event, RecordError> {
        let (flags, data1, data2) = (self.flags.get(), self.data1.get(), self.data2.get());
        match self.kind(revision) {
            Some(EventKind::ValueSample) => Ok(Event::ValueSample { flags, data1, data2 }),
            Some(EventKind::Programmed) => Ok(Event::Programmed { flags, data1, data2 }),
            Some(EventKind::InstructionsRetired) => Ok(Event::InstructionsRetired),
            Some(EventKind::CoreClocks) => Ok(Event::CoreClocks),
            Some(EventKind::ReferenceClocks) => Ok(Event::ReferenceClocks),
            Some(EventKind::BranchesRetired) => Ok(Event::BranchesRetired {
                flags: BranchFlags::from_bits_truncate(flags),
                target: AppPc(data2),
            }),
            Some(EventKind::DcacheMisses) => Ok(Event::DcacheMisses {
                source: DataSource::ALL[usize::from(flags >> SOURCE_SHIFT)],
                latency_cycles: data1,
                data_address: (flags & DAV != 0).then_some(LinearAddr(data2)),
            }),
            None if self.event_id == 0 => Err(RecordError::EventIdZero { at }),
            None => Err(RecordError::UnknownEventId { at, id: self.event_id }),
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;

    const AT: RingOffset = RingOffset(0x40);

    fn shipped(event: Event) -> Record {
        Record::new(Revision::Shipped, event, AppPc(0x40_1234), 5, 0).unwrap()
    }

    /// Spec: LWP §4.1, §4.2
    #[test]
    fn lwp_spec_4_2_branch_record_bytes() {
        let record = shipped(Event::BranchesRetired {
            flags: BranchFlags::new(true, Some(true)),
            target: AppPc(0x40_5678),
        });
        #[rustfmt::skip]
        let bytes = [
            3, // EventId
            5, // CoreId
            0x00, 0xE0, // TKN, PRD, PRV
            0, 0, 0, 0, // Data1
            0x34, 0x12, 0x40, 0, 0, 0, 0, 0, // InstructionAddress
            0x78, 0x56, 0x40, 0, 0, 0, 0, 0, // target
            0, 0, 0, 0, 0, 0, 0, 0, // no time stamp
        ];
        assert_eq!(record.to_bytes(), bytes);
        assert_eq!(Record::from_bytes(&bytes), record);
    }

    /// Spec: LWP §4.2
    #[test]
    fn lwp_spec_4_2_branch_flags_follow_outcome_and_prediction() {
        let bits = |taken, predicted| BranchFlags::new(taken, predicted).bits();
        assert_eq!(bits(true, None), 0x8000);
        assert_eq!(bits(false, None), 0x0000);
        assert_eq!(bits(true, Some(false)), 0xA000);
        assert_eq!(bits(false, Some(true)), 0x6000);
    }

    /// Spec: LWP §4.2. DEV-8
    #[test]
    fn lwp_spec_4_2_dev_8_fused_bit_is_never_set() {
        for taken in [false, true] {
            for predicted in [None, Some(false), Some(true)] {
                assert!(!BranchFlags::new(taken, predicted).contains(BranchFlags::FUS));
            }
        }
    }

    /// Spec: LWP §4.2
    #[test]
    fn lwp_spec_4_2_dcache_record_bytes() {
        let record = shipped(Event::DcacheMisses {
            source: DataSource::Dram,
            latency_cycles: 0x1F0,
            data_address: Some(LinearAddr(0x7FFF_0000_1000)),
        });
        let bytes = record.to_bytes();
        assert_eq!(bytes[..8], [4, 5, 0x00, 0x70, 0xF0, 0x01, 0, 0], "source 3, DAV, latency");
        assert_eq!(bytes[16..24], [0, 0x10, 0, 0, 0xFF, 0x7F, 0, 0]);

        let hidden = shipped(Event::DcacheMisses {
            source: DataSource::LocalL3,
            latency_cycles: 16,
            data_address: None,
        });
        assert_eq!(hidden.to_bytes()[..4], [4, 5, 0x00, 0x20]);
        assert_eq!(hidden.data2.get(), 0, "no address, no Data2");
    }

    /// Spec: P07 §4; LWP §4.2
    #[test]
    fn lwp_spec_4_2_every_event_survives_a_round_trip() {
        let (flags, data1, data2) = (0xCAFE, 0xDEAD_BEEF, 0x0123_4567_89AB_CDEF);
        let events = [
            Event::ValueSample { flags, data1, data2 },
            Event::InstructionsRetired,
            Event::BranchesRetired { flags: BranchFlags::TKN, target: AppPc(7) },
            Event::DcacheMisses {
                source: DataSource::Other,
                latency_cycles: 992,
                data_address: Some(LinearAddr(64)),
            },
            Event::CoreClocks,
            Event::ReferenceClocks,
            Event::Programmed { flags, data1, data2 },
        ];
        for revision in [Revision::Shipped, Revision::Proposal2007] {
            for event in events {
                let record = Record::new(revision, event, AppPc(9), 1, 2);
                assert_eq!(record.is_some(), event.kind().event_id(revision).is_some());
                if let Some(record) = record {
                    let again = Record::from_bytes(&record.to_bytes());
                    assert_eq!(again.decode(revision, AT), Ok(event));
                    assert_eq!(
                        (again.ip(), again.core_id, again.timestamp.get()),
                        (AppPc(9), 1, 2)
                    );
                }
            }
        }
    }

    /// Spec: P07 §4.1, §4.2, §4.3
    #[test]
    fn p07_4_records_use_the_numbers_of_the_proposal() {
        let id = |event| {
            Record::new(Revision::Proposal2007, event, AppPc(0), 0, 0).map(|record| record.event_id)
        };
        assert_eq!(id(Event::InstructionsRetired), Some(1));
        assert_eq!(
            id(Event::BranchesRetired { flags: BranchFlags::TKN, target: AppPc(0) }),
            Some(2)
        );
        assert_eq!(id(Event::CoreClocks), None);
    }

    /// Spec: LWP §4.1
    #[test]
    fn lwp_spec_4_1_undecodable_records_say_where() {
        let zero = Record::default();
        assert_eq!(zero.decode(Revision::Shipped, AT), Err(RecordError::EventIdZero { at: AT }));
        let strange = Record { event_id: 9, ..zero };
        let error = strange.decode(Revision::Shipped, AT).unwrap_err();
        assert_eq!(error.to_string(), "unknown EventId 9 at ring offset 0x40");
        // 4 is a DCache miss when shipped and nothing in the proposal.
        let four = Record { event_id: 4, ..zero };
        assert!(four.decode(Revision::Proposal2007, AT).is_err());
    }

    /// Spec: P07 §4.3.1
    #[test]
    fn p07_4_3_1_latency_is_capped_and_rounded() {
        assert_eq!(latency_max(10), 1008);
        assert_eq!(reported_latency(5_000, 10, 4), 1008);
        assert_eq!(reported_latency(47, 10, 4), 32);
        assert_eq!(reported_latency(15, 10, 4), 0);
        assert_eq!(reported_latency(u32::MAX, 31, 0), 0x7FFF_FFF0);
    }

    /// Spec: LWP §4.2. DEV-10
    #[test]
    fn lwp_spec_4_2_dev_10_the_cap_stays_below_the_last_step_of_16() {
        assert_eq!(reported_latency(47, 16, 0), 47, "no rounding");
        assert_eq!(reported_latency(65_535, 16, 0), 65_520);
        assert_eq!(latency_max(0), 0, "no counter");
    }

    /// Spec: P07 §5.4; LWP §3.3
    #[test]
    fn lwp_spec_3_3_cache_levels_select_by_source() {
        let bits = [
            (Filters::NBC, DataSource::LocalL3),
            (Filters::RDC, DataSource::Remote),
            (Filters::RAM, DataSource::Dram),
            (Filters::OTH, DataSource::Other),
        ];
        for (bit, _) in bits {
            for (other, source) in bits {
                assert_eq!(source.admitted_by(Filters::CLF | bit), bit == other);
                assert!(source.admitted_by(bit), "without CLF the four bits are ignored");
            }
        }
    }

    /// Spec: LWP §3.3. DEV-9
    #[test]
    fn lwp_spec_3_3_dev_9_a_hit_in_the_l2_is_of_no_level() {
        let all = Filters::CLF | Filters::NBC | Filters::RDC | Filters::RAM | Filters::OTH;
        assert!(!DataSource::NoStatus.admitted_by(all));
        assert!(DataSource::NoStatus.admitted_by(Filters::empty()));
    }
}
