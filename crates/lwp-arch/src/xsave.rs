//! LWP as an XSAVE component, and the size arithmetic of CPUID leaf 0Dh.

use zerocopy::little_endian::{U32, U64};

use crate::record::Record;

pub mod image;

/// Number of the XSAVE component, and its bit in XCR0 and XSTATE_BV.
///
/// Spec: LWP §1.4.
pub const COMPONENT: u32 = 62;

/// The bit of LWP in XCR0 and XSTATE_BV.
///
/// Spec: LWP §1.4.
pub const XCR0_LWP: u64 = 1 << COMPONENT;

/// Byte of the XSAVE image that holds bit 62 of XSTATE_BV, which is bit 6 of that byte.
///
/// Spec: LWP §6.1.
pub const XSTATE_BV_BYTE: usize = LEGACY_BYTES as usize + 7;

/// Number of counters for which the area has room.
///
/// Spec: LWP §6.1.
pub const COUNTERS: usize = 16;

/// Length of the legacy region (FXSAVE image), in bytes.
const LEGACY_BYTES: u32 = 512;
/// Length of the legacy region and the XSAVE header, in bytes: no image is shorter.
const FIXED_BYTES: u32 = LEGACY_BYTES + 64;

layout! {
    /// The LWP area of an XSAVE image.
    ///
    /// ```text
    ///        63                        32 31                         0
    ///       +----------------------------+----------------------------+
    ///  00h  |                      LWPCBAddress                       |
    ///  08h  |      BufferHeadOffset      |           Flags            |
    ///  10h  |                       BufferBase                        |
    ///  18h  |          Filters           |    BufferSize, Random      |
    ///  20h  |               SavedEventRecord (32 bytes)               |
    ///  40h  |       EventCounter2        |       EventCounter1        |
    ///       |                           ...                           |
    ///  78h  |       EventCounter16       |       EventCounter15       |
    ///       +---------------------------------------------------------+
    /// ```
    ///
    /// Threshold, IP range, intervals, tail and MissedEvents are not here: after XRSTOR the unit
    /// reads them from the LWPCB when it next needs them.
    ///
    /// Spec: LWP §6.1.
    pub struct LwpXsave: 0x80 {
        /// Linear address of the active LWPCB.
        0x00 => pub lwpcb_address: U64,
        /// Granted flags.
        0x08 => pub flags: U32,
        /// Byte offset of the record to be written next.
        0x0C => pub buffer_head_offset: U32,
        /// Linear address of the ring.
        0x10 => pub buffer_base: U64,
        /// BufferSize, and Random in bits 31:28 as in the LWPCB: DEV-12.
        0x18 => pub buffer_size_random: U32,
        /// Filters of the LWPCB.
        0x1C => pub filters: U32,
        /// A record that could not be stored yet; EventId 0 if there is none.
        0x20 => pub saved_event_record: Record,
        /// EventCounter of EventId *n* at index *n* − 1, bits 25:0.
        0x40 => pub event_counters: [U32; COUNTERS],
    }
}

/// One component of the XSAVE area as leaf 0Dh describes it.
///
/// Spec: LWP §1.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Component {
    /// Bit in XCR0, 2 to 62.
    pub number: u32,
    /// EBX of the sub-leaf: offset in the standard format, in bytes.
    pub offset: u32,
    /// EAX of the sub-leaf: length in bytes.
    pub size: u32,
    /// ECX bit 1 of the sub-leaf: starts at a multiple of 64 in the compacted format.
    pub aligned: bool,
}

impl Component {
    /// The LWP component at a standard-format offset, which differs between processors and must be
    /// read from EBX of sub-leaf 62.
    ///
    /// Spec: LWP §1.4.
    pub const fn lwp(offset: u32) -> Self {
        Self { number: COMPONENT, offset, size: LwpXsave::SIZE as u32, aligned: false }
    }

    const fn is_in(&self, mask: u64) -> bool {
        self.number < 64 && mask >> self.number & 1 == 1
    }
}

/// Length of a standard-format image that holds the components of `mask`, in bytes: the highest
/// end.
///
/// This isn't the sum of the lengths. A component's offset doesn't depend on which others are
/// enabled, so LWP alone already needs everything up to its end. With `mask` = XCR0 this is EBX of
/// leaf 0Dh sub-leaf 0; with all supported components it is ECX.
///
/// Spec: LWP §1.4.
pub fn standard_size(components: &[Component], mask: u64) -> u32 {
    components
        .iter()
        .filter(|component| component.is_in(mask))
        .map(|component| component.offset + component.size)
        .fold(FIXED_BYTES, u32::max)
}

/// Offset of component `number` in a compacted-format image whose XCOMP_BV is `mask`, in bytes.
/// `None` if it is not among them. `components` must be in ascending order of number.
///
/// Spec: LWP §6.1.
pub fn compacted_offset(components: &[Component], mask: u64, number: u32) -> Option<u32> {
    let mut end = FIXED_BYTES;
    for component in components.iter().filter(|component| component.is_in(mask)) {
        let start = if component.aligned { end.next_multiple_of(64) } else { end };
        if component.number == number {
            return Some(start);
        }
        end = start + component.size;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const AVX: Component = Component { number: 2, offset: 576, size: 256, aligned: false };
    const PKRU: Component = Component { number: 9, offset: 0x340, size: 8, aligned: false };
    const FAMILY_15H: [Component; 2] = [AVX, Component::lwp(0x340)];
    const PART_4700S: [Component; 3] = [AVX, PKRU, Component::lwp(0x380)];

    /// Spec: LWP §1.4
    #[test]
    fn lwp_spec_1_4_standard_sizes_of_real_parts() {
        assert_eq!(standard_size(&FAMILY_15H, 0x7 | XCR0_LWP), 0x3C0);
        assert_eq!(standard_size(&FAMILY_15H, 0x7), 0x340);
        assert_eq!(standard_size(&PART_4700S, 0x207 | XCR0_LWP), 0x400);
    }

    /// Spec: LWP §1.4
    #[test]
    fn lwp_spec_1_4_size_is_the_highest_end_and_not_a_sum() {
        assert_eq!(standard_size(&FAMILY_15H, 0x3 | XCR0_LWP), 0x3C0, "AVX is off, LWP stays put");
        assert_eq!(standard_size(&FAMILY_15H, 0x3), 576);
    }

    /// Spec: LWP §6.1
    #[test]
    fn lwp_spec_6_1_compacted_format_packs_128_bytes() {
        let at = |mask| compacted_offset(&PART_4700S, mask, COMPONENT);
        assert_eq!(at(0x3 | XCR0_LWP), Some(576));
        assert_eq!(at(0x207 | XCR0_LWP), Some(576 + 256 + 8), "not aligned");
        assert_eq!(at(0x207), None);
        let aligned = [AVX, PKRU, Component { aligned: true, ..Component::lwp(0) }];
        assert_eq!(compacted_offset(&aligned, u64::MAX, COMPONENT), Some(896));
    }

    /// Spec: LWP §6.1
    #[test]
    fn lwp_spec_6_1_xstate_bit_is_bit_6_of_byte_519() {
        assert_eq!(XSTATE_BV_BYTE, 519);
        assert_eq!(XCR0_LWP >> 56, 1 << 6);
    }

    /// Spec: LWP §6.1
    #[test]
    fn lwp_spec_6_1_area_has_no_holes() {
        let mut end = 0;
        for &(name, offset, length) in LwpXsave::FIELDS {
            assert_eq!(offset, end, "{name}");
            end += length;
        }
        assert_eq!(end, 128);
    }
}
