//! XSAVE images with the LWP component, for emulating it on a processor that lacks it: the
//! component's offset, its bits in the header, and the effect of a restore on the other components.

use super::{COMPONENT, Component, LwpXsave, XCR0_LWP, compacted_offset};

/// Offset of the header in an image.
pub const HEADER_AT: usize = 512;
/// Bit 63 of XCOMP_BV: the image is compacted.
const COMPACTED: u64 = 1 << 63;
/// The bits of XCR0 for x87, SSE and AVX state.
const X87: u64 = 1;
const SSE: u64 = 1 << 1;
const AVX: u64 = 1 << 2;
/// The places of x87 state, MXCSR and the XMM registers in the legacy region.
const X87_AT: [(usize, usize); 2] = [(0, 24), (32, 160)];
const MXCSR_AT: (usize, usize) = (24, 28);
const XMM_AT: (usize, usize) = (160, 416);
/// MXCSR after reset.
const MXCSR_INITIAL: [u8; 4] = 0x1F80_u32.to_le_bytes();

/// The instruction that saves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Save {
    /// XSAVE: every requested component is written.
    All,
    /// XSAVEOPT: components in their initial state are not.
    Modified,
    /// XSAVEC: as XSAVEOPT, with the components packed.
    Compacted,
}

/// The first two words of an image's header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The components that the image holds.
    pub xstate_bv: u64,
    /// The components it has room for, with bit 63, if it is compacted; else 0.
    pub xcomp_bv: u64,
}

impl Header {
    /// Bytes of the two words.
    pub const BYTES: usize = 16;

    /// Reads the two words.
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let both = u128::from_le_bytes(bytes);
        Self { xstate_bv: both as u64, xcomp_bv: (both >> 64) as u64 }
    }

    /// The two words as they lie in memory.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        (u128::from(self.xstate_bv) | u128::from(self.xcomp_bv) << 64).to_le_bytes()
    }

    /// Returns whether the header mentions LWP, in which case a processor without LWP refuses to
    /// restore the image.
    pub const fn names_lwp(self) -> bool {
        (self.xstate_bv | self.xcomp_bv) & XCR0_LWP != 0
    }

    /// Returns whether the image holds LWP state.
    pub const fn holds_lwp(self) -> bool {
        self.xstate_bv & XCR0_LWP != 0
    }

    /// Returns the header that a processor with LWP would have written, if this one comes from a
    /// processor without it, LWP was requested, and LWP is `on` or off.
    ///
    /// Spec: LWP §6.1.
    pub const fn with_lwp(self, how: Save, on: bool) -> Self {
        let bit = if on { XCR0_LWP } else { 0 };
        let room = if matches!(how, Save::Compacted) { XCR0_LWP } else { 0 };
        Self { xstate_bv: self.xstate_bv & !XCR0_LWP | bit, xcomp_bv: self.xcomp_bv | room }
    }

    /// Returns the offset of component `number` in the image. `components` are those of the
    /// processor in ascending order, LWP the last.
    pub fn offset_of(self, components: &[Component], number: u32) -> Option<u32> {
        if self.xcomp_bv & COMPACTED != 0 {
            return compacted_offset(components, self.xcomp_bv & !COMPACTED, number);
        }
        components.iter().find(|component| component.number == number).map(|c| c.offset)
    }

    /// Returns the offset of LWP state in the image.
    pub fn lwp_offset(self, components: &[Component]) -> Option<u32> {
        self.offset_of(components, COMPONENT)
    }
}

/// Returns the offset of the LWP component in the standard format beside `others`: the offset that
/// the emulated processor has or, if another component is there, the end of all components.
///
/// Spec: LWP §1.4.
pub fn placed(preferred: u32, others: &[Component]) -> u32 {
    let end = preferred + LwpXsave::SIZE as u32;
    let overlaps = |other: &Component| other.offset < end && preferred < other.offset + other.size;
    match others.iter().any(overlaps) {
        false => preferred,
        true => super::standard_size(others, u64::MAX).next_multiple_of(64),
    }
}

/// Changes `state`, an image in the standard format with the processor's whole state, as XRSTOR of
/// `image` with `requested` would change it, except for LWP. `components` are those from number 2
/// on, with LWP last. Returns false, and leaves nothing useful in `state`, if XRSTOR would raise
/// `#GP(0)`. Doesn't check MXCSR; whoever loads `state` has to.
///
/// Spec: LWP §6.1.
pub fn restored(state: &mut [u8], image: &[u8], requested: u64, components: &[Component]) -> bool {
    let Some(mut after) = header(state) else { return false };
    let Some(header) = header(image).filter(|header| is_valid(*header, image, components)) else {
        return false;
    };
    let compacted = header.xcomp_bv & COMPACTED != 0;
    let held = |bit: u64| header.xstate_bv & bit != 0;
    if requested & X87 != 0 {
        after.xstate_bv = after.xstate_bv & !X87 | header.xstate_bv & X87;
        if held(X87) && !X87_AT.iter().all(|range| copy(state, image, *range)) {
            return false;
        }
    }
    let (from, to) = MXCSR_AT;
    if requested & SSE != 0 || requested & AVX != 0 && !compacted {
        match compacted && !held(SSE) {
            true => state[from..to].copy_from_slice(&MXCSR_INITIAL),
            false => state[from..to].copy_from_slice(&image[from..to]),
        }
        // Loaded in any case, with the registers as they are or as they begin.
        if after.xstate_bv & SSE == 0 {
            state[XMM_AT.0..XMM_AT.1].fill(0);
        }
        after.xstate_bv |= SSE;
    }
    if requested & SSE != 0 {
        match held(SSE) {
            true => _ = copy(state, image, XMM_AT),
            false => state[XMM_AT.0..XMM_AT.1].fill(0),
        }
    }
    for component in components.iter().filter(|component| component.number != COMPONENT) {
        let bit = 1 << component.number;
        if requested & bit == 0 {
            continue;
        }
        after.xstate_bv = after.xstate_bv & !bit | header.xstate_bv & bit;
        if held(bit) && !lay(state, image, header, components, component) {
            return false;
        }
    }
    after.xcomp_bv = 0;
    state[HEADER_AT..HEADER_AT + Header::BYTES].copy_from_slice(&after.to_bytes());
    true
}

fn header(image: &[u8]) -> Option<Header> {
    let bytes = image.get(HEADER_AT..HEADER_AT + Header::BYTES)?;
    bytes.try_into().ok().map(Header::from_bytes)
}

/// Returns whether XRSTOR accepts the header, the image being aligned.
fn is_valid(header: Header, image: &[u8], components: &[Component]) -> bool {
    let known = components.iter().fold(X87 | SSE, |known, one| known | 1 << one.number);
    let zero = |from: usize, to: usize| {
        image.get(from..to).is_some_and(|bytes| bytes.iter().all(|byte| *byte == 0))
    };
    match header.xcomp_bv & COMPACTED != 0 {
        true => {
            let room = header.xcomp_bv & !COMPACTED;
            room & !known == 0 && header.xstate_bv & !room == 0 && zero(528, 576)
        }
        false => header.xcomp_bv == 0 && header.xstate_bv & !known == 0 && zero(528, 536),
    }
}

fn copy(state: &mut [u8], image: &[u8], (from, to): (usize, usize)) -> bool {
    match (state.get_mut(from..to), image.get(from..to)) {
        (Some(state), Some(image)) => {
            state.copy_from_slice(image);
            true
        }
        _ => false,
    }
}

fn lay(
    state: &mut [u8],
    image: &[u8],
    header: Header,
    components: &[Component],
    component: &Component,
) -> bool {
    let Some(from) = header.offset_of(components, component.number) else { return false };
    let (from, to, size) = (from as usize, component.offset as usize, component.size as usize);
    match (state.get_mut(to..to + size), image.get(from..from + size)) {
        (Some(state), Some(image)) => {
            state.copy_from_slice(image);
            true
        }
        _ => false,
    }
}

/// Returns the number of bytes of an image that XRSTOR may read.
pub fn extent(header: Header, components: &[Component]) -> u32 {
    let mask = match header.xcomp_bv & COMPACTED != 0 {
        true => header.xcomp_bv & !COMPACTED,
        false => header.xstate_bv,
    };
    let held = components.iter().filter(|component| mask >> component.number & 1 == 1);
    let end = |component: &Component| {
        header.offset_of(components, component.number).map_or(0, |at| at + component.size)
    };
    held.map(end).fold(super::FIXED_BYTES, u32::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AVX_STATE: Component = Component { number: 2, offset: 576, size: 256, aligned: false };
    const OPMASK: Component = Component { number: 5, offset: 0x340, size: 64, aligned: false };
    const ALL: [Component; 3] = [AVX_STATE, OPMASK, Component::lwp(0x380)];

    fn image(header: Header) -> [u8; 0x400] {
        let mut image = [0; 0x400];
        image[..512].fill(0xA1);
        image[24..28].copy_from_slice(&0x1FA0_u32.to_le_bytes());
        image[512..528].copy_from_slice(&header.to_bytes());
        image[576..].fill(0xA2);
        image
    }

    /// Spec: LWP §1.4
    #[test]
    fn lwp_spec_1_4_the_component_lies_where_nothing_else_does() {
        assert_eq!(placed(0x340, &[AVX_STATE]), 0x340);
        assert_eq!(placed(0x340, &[AVX_STATE, OPMASK]), 0x380);
        let far = Component { number: 9, offset: 0xA80, size: 8, aligned: false };
        assert_eq!(placed(0x340, &[AVX_STATE, OPMASK, far]), 0xAC0, "at a multiple of 64");
    }

    /// Spec: LWP §6.1
    #[test]
    fn lwp_spec_6_1_the_header_says_whether_lwp_is_on() {
        let native = Header { xstate_bv: 7, xcomp_bv: 0 };
        assert_eq!(native.with_lwp(Save::All, true).xstate_bv, 7 | 1 << 62);
        let stale = Header { xstate_bv: 7 | 1 << 62, xcomp_bv: 0 };
        assert_eq!(stale.with_lwp(Save::Modified, false), native);
        let packed = Header { xstate_bv: 2, xcomp_bv: 1 << 63 | 0b111 };
        let with = packed.with_lwp(Save::Compacted, false);
        assert_eq!(with.xcomp_bv, 1 << 63 | 1 << 62 | 0b111);
        assert!(with.names_lwp() && !with.holds_lwp());
        assert_eq!(with.lwp_offset(&ALL), Some(576 + 256));
        assert_eq!(stale.lwp_offset(&ALL), Some(0x380));
        assert_eq!(Header::from_bytes(with.to_bytes()), with);
    }

    /// Spec: LWP §6.1
    #[test]
    fn lwp_spec_6_1_a_restore_changes_what_is_requested() {
        let mut state = [0x55; 0x400];
        state[512..576].fill(0);
        state[512..528].copy_from_slice(&Header { xstate_bv: 0b111, xcomp_bv: 0 }.to_bytes());
        let image = image(Header { xstate_bv: 1 << 62 | 0b101, xcomp_bv: 0 });
        assert!(restored(&mut state, &image, 0b110, &ALL));
        let after = header(&state).unwrap();
        assert_eq!(after, Header { xstate_bv: 0b111, xcomp_bv: 0 });
        assert!(state[..24].iter().all(|byte| *byte == 0x55), "x87 was not requested");
        assert!(state[160..416].iter().all(|byte| *byte == 0), "SSE is not in the image");
        assert_eq!(state[24..28], 0x1FA0_u32.to_le_bytes(), "MXCSR is loaded all the same");
        assert!(state[576..832].iter().all(|byte| *byte == 0xA2));
    }

    /// Spec: LWP §6.1
    #[test]
    fn lwp_spec_6_1_a_compacted_image_is_taken_apart() {
        let mut state = [0x55; 0x400];
        state[512..576].fill(0);
        let header = Header { xstate_bv: 1 << 5, xcomp_bv: 1 << 63 | 1 << 62 | 1 << 5 | 0b11 };
        let mut image = image(header);
        image[576..640].fill(0xB0);
        assert!(restored(&mut state, &image, u64::MAX, &ALL));
        assert!(state[0x340..0x380].iter().all(|byte| *byte == 0xB0));
        assert_eq!(state[24..28], MXCSR_INITIAL);
        assert_eq!(extent(header, &ALL), 576 + 64 + 128);
    }

    /// Spec: LWP §6.1
    #[test]
    fn lwp_spec_6_1_odd_headers_are_refused() {
        let restores = |header: Header| {
            let mut state = [0; 0x400];
            restored(&mut state, &image(header), u64::MAX, &ALL)
        };
        assert!(restores(Header { xstate_bv: 1 << 62 | 0b111, xcomp_bv: 0 }));
        assert!(!restores(Header { xstate_bv: 1 << 61, xcomp_bv: 0 }), "an unknown component");
        assert!(!restores(Header { xstate_bv: 1, xcomp_bv: 1 << 62 }), "not compacted");
        let lacking = Header { xstate_bv: 1 << 62, xcomp_bv: 1 << 63 | 0b11 };
        assert!(!restores(lacking), "it has no room for what it holds");
    }
}
