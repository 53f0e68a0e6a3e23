//! The table of indirect calls by their targets.

use super::TargetFeatures;

/// Displacement of the indirect calls that led elsewhere than where their site led first, counted
/// by site and target: [`CALL_SLOTS`] of [`CALL_BYTES`], and room for [`CALL_PROBES`] more. The
/// words of each: the complement of the target, 0 where the slot is free; the complement of what
/// [`call_site`] says, 32 bits; how often.
pub const CALLS_AT: u32 = 0xf8_a000;
/// Bytes of a slot.
pub const CALL_BYTES: u32 = 32;
/// The number of slots that a call's hash chooses among.
pub const CALL_SLOTS: u32 = 0x1_0000;
/// The number of slots that a call may be in, from the one that its hash chooses on.
pub const CALL_PROBES: u32 = 8;
/// A count that is not gone beyond: the host is asked, and starts the slot at 0 again.
pub const CALL_OFTEN: u32 = 0xf_ffff;
/// Bytes of all slots.
pub const CALLS_BYTES: u32 = (CALL_SLOTS + CALL_PROBES) * CALL_BYTES;
/// The bits of target plus site that choose a slot where PEXT is fast; elsewhere the low 16 do.
pub(crate) const CALL_MASK: u32 = 0x3fff << 4;
/// The factor that a site's counter is multiplied with: odd, so that it can be undone.
const CALL_FACTOR: u32 = 0x9e37_79b1;

/// The first slot of a call from `site` to `target`.
pub fn call_slot(features: TargetFeatures, site: u32, target: u64) -> u32 {
    let key = site.wrapping_add(target as u32);
    match features.wide_index {
        true => (key & CALL_MASK) >> CALL_MASK.trailing_zeros(),
        false => key & (CALL_SLOTS - 1),
    }
}

/// Returns the name of a call site in [`crate::Slot::CallSite`] and in the slots: the counter that
/// holds its first target, spread over 32 bits.
pub fn call_site(counter: u32) -> u32 {
    counter.wrapping_mul(CALL_FACTOR)
}

/// The counter of a site's first target, from the site's name.
pub fn call_site_counter(site: u32) -> u32 {
    const INVERSE: u32 = inverse(CALL_FACTOR);
    site.wrapping_mul(INVERSE)
}

/// Returns the factor that undoes a multiplication with `odd`: each step doubles the number of low
/// bits that are right.
const fn inverse(odd: u32) -> u32 {
    let mut inverse = odd;
    let mut step = 0;
    while step < 5 {
        inverse = inverse.wrapping_mul(2u32.wrapping_sub(odd.wrapping_mul(inverse)));
        step += 1;
    }
    inverse
}
