//! Images of the Lightweight Profiling Control Block (LWPCB), shipped and proposed.

use zerocopy::little_endian::{U32, U64};

use crate::EventId;

/// Mask of the 26 bits that hold an interval or a counter.
const COUNTER_MASK: u32 = 0x03FF_FFFF;
/// Mask of BufferSize in its dword.
const BUFFER_SIZE_MASK: u32 = 0x0FFF_FFFF;

/// Largest interval and counter of the shipped revision: 2^25 − 1 occurrences.
///
/// Spec: LWP §3.1.
pub const COUNTER_MAX: i32 = 0x01FF_FFFF;

/// Largest interval and counter of the proposal, whose 26 bits carry no sign: 2^26 − 1 occurrences.
///
/// Spec: P07 §5.5.2.
pub const COUNTER_MAX_2007: u32 = COUNTER_MASK;

/// Reads bits 25:0 as a signed number. Bits 31:26 are reserved and ignored.
///
/// Spec: LWP §3.1, §3.2.
pub const fn sign_extend_26(bits: u32) -> i32 {
    ((bits << 6) as i32) >> 6
}

/// Keeps bits 25:0 of a signed number; the reserved bits are written as zero.
///
/// Spec: LWP §3.1, §5.4.
pub const fn pack_26(value: i32) -> u32 {
    value as u32 & COUNTER_MASK
}

layout! {
    /// Fixed part of the shipped LWPCB.
    ///
    /// ```text
    ///        63    60 59             32 31               0
    ///       +--------+-----------------+------------------+
    ///  00h  | Random |   BufferSize    |      Flags       |
    ///  08h  |                 BufferBase                  |
    ///  10h  |        reserved          | BufferHeadOffset |
    ///  18h  |                MissedEvents                 |
    ///  20h  |         Filters          |    Threshold     |
    ///  28h  |                   BaseIP                    |
    ///  30h  |                   LimitIP                   |
    ///  38h  |                  reserved                   |
    ///       +- - - - - - - - - - - - - - - - - - - - - - -+
    ///  40h  |        reserved          | BufferTailOffset |
    ///  48h  |          for software (16 bytes)            |
    ///       +---------------------------------------------+
    /// ```
    ///
    /// While the unit is active, software only writes the part from 40h on. The [`EventSlot`]s
    /// follow at `LwpEventOffset`, which CPUID reports; see [`slot_offset`].
    ///
    /// Spec: LWP §3.1.
    pub struct Lwpcb: 0x58 {
        /// Events and modes wanted; after LLWPCB, the ones granted. See [`crate::EventFlags`].
        0x00 => pub flags: U32,
        /// BufferSize in bytes, bits 27:0; Random, bits 31:28.
        0x04 => pub buffer_size_random: U32,
        /// Address of the ring: an effective address relative to DS, converted when the block is
        /// loaded.
        0x08 => pub buffer_base: U64,
        /// Byte offset of the record the unit writes next.
        0x10 => pub buffer_head_offset: U32,
        0x14 => _reserved_14: U32,
        /// Number of records lost because the ring was full.
        0x18 => pub missed_events: U64,
        /// Bytes in the ring at which the threshold interrupt is raised.
        0x20 => pub threshold: U32,
        /// See [`crate::filters::Filters`].
        0x24 => pub filters: U32,
        /// Lowest address inside the IP filter.
        0x28 => pub base_ip: U64,
        /// Highest address inside the IP filter.
        0x30 => pub limit_ip: U64,
        0x38 => _reserved_38: U64,
        /// Byte offset of the oldest record that software hasn't consumed.
        0x40 => pub buffer_tail_offset: U32,
        0x44 => _reserved_44: U32,
        /// Two quadwords that the unit never reads.
        0x48 => pub software: [u8; 16],
    }
}

/// Offsets that code which works on memory, not on images, needs.
///
/// Spec: LWP §3.1.
impl Lwpcb {
    /// Offset of Flags.
    pub const FLAGS: u64 = core::mem::offset_of!(Self, flags) as u64;
    /// Offset of BufferHeadOffset.
    pub const BUFFER_HEAD_OFFSET: u64 = core::mem::offset_of!(Self, buffer_head_offset) as u64;
    /// Offset of MissedEvents.
    pub const MISSED_EVENTS: u64 = core::mem::offset_of!(Self, missed_events) as u64;
    /// Offset of BufferTailOffset.
    pub const BUFFER_TAIL_OFFSET: u64 = core::mem::offset_of!(Self, buffer_tail_offset) as u64;

    /// BufferSize in bytes, bits 27:0 of the dword at 04h.
    pub const fn buffer_size(&self) -> u32 {
        buffer_size(self.buffer_size_random.get())
    }

    /// Random: how many low bits of a reloaded counter are random, bits 31:28 of the dword at 04h.
    pub const fn random(&self) -> u32 {
        random(self.buffer_size_random.get())
    }

    /// Sets BufferSize (bytes, below 2^28) and Random (below 16); higher bits are dropped.
    pub fn set_buffer_size_random(&mut self, buffer_size: u32, random: u32) {
        self.buffer_size_random = pack_buffer_size_random(buffer_size, random).into();
    }
}

/// BufferSize in bytes from the dword it shares with Random.
///
/// Spec: P07 §5.4; LWP §3.1.
pub const fn buffer_size(dword: u32) -> u32 {
    dword & BUFFER_SIZE_MASK
}

/// Random from the dword it shares with BufferSize.
///
/// Spec: P07 §5.4; LWP §3.1.
pub const fn random(dword: u32) -> u32 {
    dword >> 28
}

/// The dword that BufferSize and Random share.
///
/// Spec: P07 §5.4; LWP §3.1.
pub const fn pack_buffer_size_random(buffer_size: u32, random: u32) -> u32 {
    buffer_size & BUFFER_SIZE_MASK | random << 28
}

layout! {
    /// Interval and counter of one event in the shipped LWPCB.
    ///
    /// ```text
    ///   63      58 57           32 31      26 25            0
    ///  +----------+---------------+----------+---------------+
    ///  | reserved | EventCounter  | reserved | EventInterval |
    ///  +----------+---------------+----------+---------------+
    /// ```
    ///
    /// Spec: LWP §3.1.
    pub struct EventSlot: 0x08 {
        /// Bits 25:0, signed. The unit makes a record every `interval + 1` occurrences.
        0x00 => pub interval: U32,
        /// Bits 25:0, signed: the number of occurrences before the one that makes a record.
        0x04 => pub counter: U32,
    }
}

impl EventSlot {
    /// Offset of EventCounter in the slot.
    ///
    /// Spec: LWP §3.1.
    pub const COUNTER: u64 = core::mem::offset_of!(Self, counter) as u64;

    /// A slot with these values, cut to 26 bits.
    pub fn new(interval: i32, counter: i32) -> Self {
        Self { interval: pack_26(interval).into(), counter: pack_26(counter).into() }
    }
}

/// Byte offset of the slot of `id` in a shipped LWPCB: `event_offset + 8 × (id − 1)`.
///
/// `event_offset` is `LwpEventOffset`. Identifiers outside `1..=max_events` have no slot.
///
/// Spec: LWP §3.1.
pub const fn slot_offset(event_offset: u64, max_events: u8, id: EventId) -> Option<u64> {
    if id.0 == 0 || id.0 > max_events {
        return None;
    }
    Some(event_offset + (id.0 as u64 - 1) * EventSlot::SIZE as u64)
}

layout! {
    /// Fixed part of the LWPCB of the 2007 proposal.
    ///
    /// ```text
    ///        63    60 59             32 31               0
    ///       +--------+-----------------+------------------+
    ///  00h  | Random |   BufferSize    |      Flags       |
    ///  08h  |                 BufferBase                  |
    ///  10h  |    BufferTailOffset      | BufferHeadOffset |
    ///  18h  |                MissedEvents                 |
    ///  20h  |  MinLatency, CLF … NDB   |    Threshold     |
    ///       +--------------------------+------------------+
    /// ```
    ///
    /// The surviving copies of the proposal lack this figure. The order of the fields and the total
    /// of 40 bytes come from its text; these offsets are the only packing that fits both: DEV-1.
    ///
    /// Spec: P07 §5.4 table 4.
    pub struct Lwpcb2007: 0x28 {
        /// Written by LLWPCB only. See [`crate::event::EventFlags2007`].
        0x00 => pub flags: U32,
        /// BufferSize in bytes, bits 27:0; Random, bits 31:28.
        0x04 => pub buffer_size_random: U32,
        /// Linear address of the ring; the low five bits are ignored.
        0x08 => pub buffer_base: U64,
        /// Byte offset of the record the unit writes next.
        0x10 => pub buffer_head_offset: U32,
        /// Byte offset of the oldest record software has not consumed.
        0x14 => pub buffer_tail_offset: U32,
        /// Number of records lost because the ring was full.
        0x18 => pub missed_events: U64,
        /// Bytes in the ring at which the interrupt is raised; 0 for never.
        0x20 => pub threshold: U32,
        /// See [`crate::filters::Filters2007`].
        0x24 => pub filters: U32,
    }
}

/// Offsets that code which works on memory, not on images, needs.
///
/// Spec: P07 §5.4.
impl Lwpcb2007 {
    /// Offset of Flags.
    pub const FLAGS: u64 = core::mem::offset_of!(Self, flags) as u64;
    /// Offset of BufferHeadOffset.
    pub const BUFFER_HEAD_OFFSET: u64 = core::mem::offset_of!(Self, buffer_head_offset) as u64;
    /// Offset of MissedEvents.
    pub const MISSED_EVENTS: u64 = core::mem::offset_of!(Self, missed_events) as u64;
    /// Offset of BufferTailOffset.
    pub const BUFFER_TAIL_OFFSET: u64 = core::mem::offset_of!(Self, buffer_tail_offset) as u64;

    /// Alignment of the block in bytes.
    ///
    /// Spec: P07 §5.3.
    pub const ALIGNMENT: u64 = 16;

    /// Low bits of BufferBase that are ignored.
    pub const BUFFER_BASE_IGNORED: u64 = 0x1F;

    /// BufferSize in bytes, bits 27:0 of the dword at 04h.
    pub const fn buffer_size(&self) -> u32 {
        buffer_size(self.buffer_size_random.get())
    }

    /// Random: how many low bits of a reloaded counter are random, bits 31:28 of the dword at 04h.
    pub const fn random(&self) -> u32 {
        random(self.buffer_size_random.get())
    }

    /// Byte offset of slot `index`, counted from 0.
    pub const fn slot_offset(index: u8) -> u64 {
        Self::SIZE as u64 + index as u64 * EventSlot2007::SIZE as u64
    }
}

layout! {
    /// One event counter of the 2007 LWPCB. Slots are generic; EventId picks the event.
    ///
    /// ```text
    ///   63      58 57           32 31      26 25            0
    ///  +----------+---------------+----------+---------------+
    ///  | reserved | EventCounter  | EventId  | EventInterval |
    ///  +----------+---------------+----------+---------------+
    /// ```
    ///
    /// Only the widths of interval and counter are documented. The positions are this project's
    /// choice, with EventId in the six bits that are reserved in the shipped layout: DEV-1.
    ///
    /// Spec: P07 §5.4 table 4.
    pub struct EventSlot2007: 0x08 {
        /// EventInterval, bits 25:0; EventId, bits 31:26.
        0x00 => pub interval_event_id: U32,
        /// Bits 25:0, unsigned.
        0x04 => pub counter: U32,
    }
}

impl EventSlot2007 {
    /// Offset of EventCounter in the slot.
    ///
    /// Spec: P07 §5.4.
    pub const COUNTER: u64 = core::mem::offset_of!(Self, counter) as u64;

    /// A slot with these values. Interval and counter are cut to 26 bits, the identifier to six.
    pub fn new(id: EventId, interval: u32, counter: u32) -> Self {
        let low = interval & COUNTER_MASK | u32::from(id.0) << 26;
        Self { interval_event_id: low.into(), counter: (counter & COUNTER_MASK).into() }
    }

    /// EventInterval: the number of occurrences between records.
    pub const fn interval(&self) -> u32 {
        self.interval_event_id.get() & COUNTER_MASK
    }

    /// EventId, 0 for a slot that is not used.
    pub const fn event_id(&self) -> EventId {
        EventId((self.interval_event_id.get() >> 26) as u8)
    }

    /// EventCounter, without its reserved bits.
    pub const fn event_counter(&self) -> u32 {
        self.counter.get() & COUNTER_MASK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of a shipped block, one field per line.
    #[rustfmt::skip]
    const SHIPPED: [u8; Lwpcb::SIZE] = [
        0x02, 0x00, 0x00, 0x80, // Flags: VAL, INT
        0x00, 0x00, 0x02, 0x60, // BufferSize 131072, Random 6
        0x00, 0x10, 0x40, 0, 0, 0, 0, 0, // BufferBase 0x401000
        0xA0, 0xFF, 0x01, 0x00, // BufferHeadOffset 130976
        0, 0, 0, 0, // reserved
        7, 0, 0, 0, 0, 0, 0, 1, // MissedEvents
        0x00, 0x00, 0x04, 0x00, // Threshold 262144
        0x00, 0x00, 0x00, 0x28, // Filters: NAB, NRB
        1, 0, 0, 0, 0, 0, 0, 0x80, // BaseIP
        2, 0, 0, 0, 0, 0, 0, 0x90, // LimitIP
        0, 0, 0, 0, 0, 0, 0, 0, // reserved
        0x20, 0x00, 0x00, 0x00, // BufferTailOffset
        0, 0, 0, 0, // reserved
        1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, // software's own
    ];

    /// Spec: LWP §3.1
    #[test]
    fn lwp_spec_3_1_shipped_fields_read_from_bytes() {
        let block = Lwpcb::from_bytes(&SHIPPED);
        assert_eq!(block.flags.get(), 0x8000_0002);
        assert_eq!((block.buffer_size(), block.random()), (131_072, 6));
        assert_eq!(block.buffer_base.get(), 0x40_1000);
        assert_eq!(block.buffer_head_offset.get(), 130_976);
        assert_eq!(block.missed_events.get(), 0x0100_0000_0000_0007);
        assert_eq!(block.threshold.get(), 262_144);
        assert_eq!(block.filters.get(), 0x2800_0000);
        assert_eq!(block.base_ip.get(), 0x8000_0000_0000_0001);
        assert_eq!(block.limit_ip.get(), 0x9000_0000_0000_0002);
        assert_eq!(block.buffer_tail_offset.get(), 32);
        assert_eq!(block.software[15], 16);
        assert_eq!(block.to_bytes(), SHIPPED);
        assert_eq!(Lwpcb::from_prefix(&SHIPPED[..87]), None, "a byte short");
    }

    /// Spec: LWP §3.1
    #[test]
    fn lwp_spec_3_1_head_and_tail_lie_on_different_lines_of_64_bytes() {
        assert_ne!(Lwpcb::BUFFER_HEAD_OFFSET / 64, Lwpcb::BUFFER_TAIL_OFFSET / 64);
    }

    /// Spec: LWP §3.1
    #[test]
    fn lwp_spec_3_1_slots_are_found_by_event_id() {
        assert_eq!(slot_offset(128, 6, EventId::VALUE_SAMPLE), Some(128));
        assert_eq!(slot_offset(128, 6, EventId::REFERENCE_CLOCKS), Some(168));
        assert_eq!(slot_offset(128, 3, EventId::DCACHE_MISSES), None);
        assert_eq!(slot_offset(128, 6, EventId::INVALID), None);
        assert_eq!(slot_offset(128, 6, EventId::PROGRAMMED), None);
    }

    /// Spec: LWP §3.2
    #[test]
    fn lwp_spec_3_2_twenty_six_bits_are_signed() {
        assert_eq!(sign_extend_26(0x01FF_FFFF), COUNTER_MAX);
        assert_eq!(sign_extend_26(0x0200_0000), -33_554_432);
        assert_eq!(sign_extend_26(0xFC00_0009), 9, "reserved bits are ignored");
        for value in [-33_554_432, -1, 0, 1, COUNTER_MAX] {
            assert_eq!(sign_extend_26(pack_26(value)), value);
            assert_eq!(pack_26(value) & 0xFC00_0000, 0, "reserved bits are written as zero");
        }
    }

    /// Spec: P07 §5.4
    #[test]
    fn p07_5_4_fields_read_from_bytes() {
        #[rustfmt::skip]
        let bytes: [u8; Lwpcb2007::SIZE] = [
            0x05, 0, 0, 0x80, // Flags: EN, BRE, INT
            0x40, 0, 0, 0x30, // BufferSize 64, Random 3
            0x1F, 0x10, 0, 0, 0, 0, 0, 0, // BufferBase
            0x20, 0, 0, 0, // BufferHeadOffset
            0x40, 0, 0, 0, // BufferTailOffset
            9, 0, 0, 0, 0, 0, 0, 0, // MissedEvents
            0x60, 0, 0, 0, // Threshold
            0x02, 0x20, 0, 0, // MinLatency 2, NDB
        ];
        let block = Lwpcb2007::from_bytes(&bytes);
        assert_eq!((block.buffer_size(), block.random()), (64, 3));
        assert_eq!((block.buffer_head_offset.get(), block.buffer_tail_offset.get()), (32, 64));
        assert_eq!((block.missed_events.get(), block.threshold.get()), (9, 96));
        assert_eq!(block.filters.get(), 0x2002);
        // 40 + 8 × LWPMaxEvents bytes in all.
        assert_eq!(Lwpcb2007::slot_offset(3), 64);
    }

    /// Spec: P07 §5.4
    #[test]
    fn p07_5_4_slot_packs_interval_identifier_and_counter() {
        let slot = EventSlot2007::new(EventId(3), COUNTER_MAX_2007, 0x0123_4567);
        assert_eq!(slot.to_bytes(), [0xFF, 0xFF, 0xFF, 0x0F, 0x67, 0x45, 0x23, 0x01]);
        assert_eq!((slot.event_id(), slot.interval()), (EventId(3), COUNTER_MAX_2007));
        assert_eq!(slot.event_counter(), 0x0123_4567);
    }

    /// Spec: LWP §3.1; P07 §5.4
    #[test]
    fn lwp_spec_3_1_images_have_no_holes() {
        for fields in [Lwpcb::FIELDS, EventSlot::FIELDS, Lwpcb2007::FIELDS, EventSlot2007::FIELDS] {
            let mut end = 0;
            for &(name, offset, length) in fields {
                assert_eq!(offset, end, "{name}");
                end = offset + length;
            }
        }
    }
}
