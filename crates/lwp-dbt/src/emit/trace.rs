//! Rule 26: transfers between functions, written down for the host.

use std::ops::Range;

use super::Emitter;
use crate::addr::{AppPc, CachePc};
use crate::context::{RequestKind, Slot, counter_displacement, trace};
use crate::fragment::FragmentId;
use crate::relocation::Relocation;
use crate::state_map::bits;

const SPILLED: u8 = bits::SPILL_RCX | bits::SPILL_R11;

/// A transfer for which there may be no room, to be dealt with behind the region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    /// Offset of the 4-byte displacement that jumps to the stub.
    pub at: usize,
    /// The fragment that makes it, and where it begins.
    pub fragment: FragmentId,
    pub block: AppPc,
    /// How far the fragment is.
    app: u8,
    index: u8,
    /// The state bits.
    state: u8,
    /// The place where it is tried again.
    again: CachePc,
    /// True if the target is in r11.
    targeted: bool,
}

/// The place of a transfer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site {
    /// The counter that names it.
    pub counter: u32,
    /// The fragment that it ends.
    pub fragment: FragmentId,
    /// Where that begins.
    pub block: AppPc,
    /// Where the function lies that an indirect jump may stay in.
    pub within: Option<Within>,
}

/// A function, as two ranges that may overlap, each with a number of bytes that is a power of two.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Within {
    start: AppPc,
    /// The binary logarithm of the bytes of a range.
    bits: u8,
    /// The distance between the starts of the two ranges.
    rest: u32,
}

impl Within {
    /// `None` for a function without bytes, or with very many.
    pub fn of(function: &Range<u64>) -> Option<Self> {
        let bytes = u32::try_from(function.end.checked_sub(function.start)?).ok()?;
        let bits = bytes.checked_ilog2()?;
        let rest = bytes - (1 << bits);
        let rest = i32::try_from(rest).ok()?.cast_unsigned();
        Some(Self { start: AppPc(function.start), bits: bits as u8, rest })
    }
}

/// Adds the instructions of a fragment to the thread's sum. No flag changes; where the flags are
/// live, rcx is borrowed.
pub(super) fn add_run(emitter: &mut Emitter<'_>, counter: u32, instructions: u8, dead: bool) {
    let word = trace::word(counter);
    if dead {
        // add qword gs:[word], instructions
        emitter.out.bytes(&[0x65, 0x48, 0x83, 0x04, 0x25]);
        emitter.out.imm32(word);
        emitter.out.bytes(&[instructions]);
    } else {
        emitter.out.spill_rcx();
        emitter.point(bits::SPILL_RCX);
        add_run_in_rcx(emitter, counter, instructions);
        emitter.out.reload_rcx();
        emitter.point(0);
    }
}

/// Adds the instructions of a fragment to the sum in rcx, which has been spilled.
pub(super) fn add_run_in_rcx(emitter: &mut Emitter<'_>, counter: u32, instructions: u8) {
    let word = trace::word(counter);
    emitter.out.load_rcx(word);
    // lea rcx, [rcx + instructions]
    emitter.out.bytes(&[0x48, 0x8d, 0x49, instructions]);
    emitter.out.store_rcx(word);
}

/// Writes a transfer down whose target the code says. Everything is in place; `state` is where the
/// application stands.
///
/// ```text
/// Patch:   slot := rcx; slot := r11
///          again: rcx := low half of place; rcx = 0 --> stub
///          [place] := rsp, site, sum of the words;  place := place + its length
///          r11 := slot; rcx := slot
/// ```
///
/// Where the thread is interrupted before the transfer is made, and made to begin with it anew, it
/// is written down once more: the host leaves the first one out.
pub(super) fn direct(emitter: &mut Emitter<'_>, site: Site, state: u8) {
    emitter.point(state);
    emitter.out.spill_rcx();
    emitter.point(state | bits::SPILL_RCX);
    emitter.out.spill_r11();
    write(emitter, site, state, false);
    emitter.out.reload_r11();
    emitter.point(state | bits::SPILL_RCX);
    emitter.out.reload_rcx();
    emitter.point(state);
}

/// Writes a transfer down whose target is in r11. rcx and r11 are in their slots, and stay there;
/// rcx is lost, and r11 has the target again.
pub(super) fn indirect(emitter: &mut Emitter<'_>, site: Site, state: u8) {
    write(emitter, site, state, true);
    // mov r11, gs:[rcx * 2 + TARGET - BYTES]
    emitter.out.bytes(&[0x65, 0x4c, 0x8b, 0x1c, 0x4d]);
    emitter.out.imm32(trace::END + trace::TARGET - trace::BYTES);
}

/// Writes a return down whose target is in r11. rcx and r11 are in their slots, and stay there;
/// both are lost.
pub(super) fn returning(emitter: &mut Emitter<'_>, site: Site) {
    write(emitter, site, 0, true);
}

/// Writes a jump down whose target is in rcx, which has been spilled, unless it leads into the
/// function that it leaves. r11 is spilled too.
///
/// ```text
/// Patch:   slot := r11; target := rcx; r11 := rcx - start
///          rcx := r11 >> bits; rcx = 0 --> within
///          r11 := r11 - rest; rcx := r11 >> bits; rcx = 0 --> within
///          …
/// within:  rcx := target
/// ```
pub(super) fn jump(emitter: &mut Emitter<'_>, site: Site) {
    let Some(within) = site.within.filter(|_| emitter.layout.features.bit_extract) else {
        target_to_r11(emitter);
        indirect(emitter, site, 0);
        return target_to_rcx(emitter);
    };
    emitter.out.spill_r11();
    emitter.point(SPILLED);
    // mov gs:[target], rcx
    emitter.out.bytes(&[0x65, 0x48, 0x89, 0x0c, 0x25]);
    emitter.out.imm32(Slot::CallTarget as u32);
    // mov r11, -start; lea r11, [r11 + rcx]
    emitter.out.bytes(&[0x49, 0xbb]);
    emitter.out.imm64(within.start.0.wrapping_neg());
    emitter.out.relocated(Relocation::Negated);
    emitter.out.bytes(&[0x4d, 0x8d, 0x1c, 0x0b]);
    let mut jumps = vec![if_below(emitter, within.bits)];
    if within.rest > 0 {
        // lea r11, [r11 - rest]
        emitter.out.bytes(&[0x4d, 0x8d, 0x9b]);
        emitter.out.imm32(within.rest.wrapping_neg());
        jumps.push(if_below(emitter, within.bits));
    }
    // jmp +5; jmp within
    emitter.out.bytes(&[0xeb, 5]);
    for jump in jumps {
        emitter.out.code[jump - 1] = (emitter.out.code.len() - jump) as u8;
    }
    emitter.out.bytes(&[0xe9]);
    emitter.out.imm32(0);
    let from = emitter.out.code.len();
    // mov r11, gs:[target]
    emitter.out.bytes(&[0x65, 0x4c, 0x8b, 0x1c, 0x25]);
    emitter.out.imm32(Slot::CallTarget as u32);
    write(emitter, site, 0, true);
    let over = (emitter.out.code.len() - from) as u32;
    emitter.out.code[from - 4..from].copy_from_slice(&over.to_le_bytes());
    // mov rcx, gs:[target]
    emitter.out.load_rcx(Slot::CallTarget as u32);
}

/// Jumps, if r11 has no bit above the lowest `bits`, to a place that is to be put in: returns the
/// offset behind its displacement. rcx is lost.
fn if_below(emitter: &mut Emitter<'_>, bits: u8) -> usize {
    // mov ecx, bits; shrx rcx, r11, rcx; jrcxz ?
    emitter.out.bytes(&[0xb9, bits, 0, 0, 0]);
    emitter.out.bytes(&[0xc4, 0xc2, 0xf3, 0xf7, 0xcb, 0xe3, 0]);
    emitter.out.code.len()
}

fn write(emitter: &mut Emitter<'_>, site: Site, state: u8, targeted: bool) {
    emitter.point(state | SPILLED);
    let again = emitter.here();
    // movzx ecx, word gs:[place]
    emitter.out.bytes(&[0x65, 0x0f, 0xb7, 0x0c, 0x25]);
    emitter.out.imm32(Slot::Transfers as u32);
    // jrcxz +2; jmp +5; jmp stub
    emitter.out.bytes(&[0xe3, 0x02, 0xeb, 0x05, 0xe9]);
    let (app, index) = (emitter.place.app, emitter.place.index);
    let Site { counter, fragment, block, .. } = site;
    let at = emitter.out.code.len();
    emitter.out.transfers.push(Transfer {
        at,
        fragment,
        block,
        app,
        index,
        state,
        again,
        targeted,
    });
    emitter.out.imm32(0);
    emitter.out.load_rcx(Slot::Transfers as u32);
    // mov gs:[rcx * 2 + STACK], rsp
    emitter.out.bytes(&[0x65, 0x48, 0x89, 0x24, 0x4d]);
    emitter.out.imm32(trace::END + trace::STACK);
    if targeted {
        store_r11(emitter, trace::TARGET);
    }
    // mov dword gs:[rcx * 2 + SITE], counter
    emitter.out.bytes(&[0x65, 0xc7, 0x04, 0x4d]);
    emitter.out.imm32(trace::END + trace::SITE);
    emitter.out.imm32(counter_displacement(counter));
    emitter.out.relocated(Relocation::Counter);
    // mov r11, gs:[word]
    emitter.out.bytes(&[0x65, 0x4c, 0x8b, 0x1c, 0x25]);
    emitter.out.imm32(trace::word(0));
    for word in 1..trace::WORDS {
        emitter.out.load_rcx(trace::word(word));
        // lea r11, [r11 + rcx]
        emitter.out.bytes(&[0x4d, 0x8d, 0x1c, 0x0b]);
    }
    emitter.out.load_rcx(Slot::Transfers as u32);
    store_r11(emitter, trace::PASSED);
    // lea rcx, [rcx + BYTES / UNIT]
    emitter.out.bytes(&[0x48, 0x8d, 0x49, (trace::BYTES / trace::UNIT) as u8]);
    emitter.out.store_rcx(Slot::Transfers as u32);
}

/// Stores r11 in a field of the transfer at rcx.
fn store_r11(emitter: &mut Emitter<'_>, field: u32) {
    // mov gs:[rcx * 2 + field], r11
    emitter.out.bytes(&[0x65, 0x4c, 0x89, 0x1c, 0x4d]);
    emitter.out.imm32(trace::END + field);
}

/// The stub of a transfer for which there is no room: the host makes some.
pub fn transfer_stub(emitter: &mut Emitter<'_>, transfer: &Transfer) -> CachePc {
    emitter.start_piece();
    (emitter.place.app, emitter.place.index) = (transfer.app, transfer.index);
    let stub = emitter.here();
    emitter.point(transfer.state | SPILLED);
    let again = go_on(emitter, transfer);
    // lea rcx, [rip + again]
    emitter.out.bytes(&[0x48, 0x8d, 0x0d]);
    emitter.displacement_to(again);
    emitter.out.store_rcx(Slot::CallAfter as u32);
    emitter.jump_to_routine(emitter.routines.traced);
    stub
}

/// The place where a thread goes on that has been here, which control jumps over: requests are of the
/// usual kind again, and r11 has its target.
fn go_on(emitter: &mut Emitter<'_>, transfer: &Transfer) -> u64 {
    if transfer.targeted {
        // mov gs:[target], r11
        emitter.out.bytes(&[0x65, 0x4c, 0x89, 0x1c, 0x25]);
        emitter.out.imm32(Slot::CallTarget as u32);
    }
    // jmp over
    emitter.out.bytes(&[0xeb, 0]);
    let from = emitter.out.code.len();
    let again = emitter.here().0;
    emitter.out.store_imm32(Slot::Kind, RequestKind::Dispatch as u32);
    if transfer.targeted {
        // mov r11, gs:[target]
        emitter.out.bytes(&[0x65, 0x4c, 0x8b, 0x1c, 0x25]);
        emitter.out.imm32(Slot::CallTarget as u32);
    }
    emitter.jump_to(transfer.again);
    emitter.out.code[from - 1] = (emitter.out.code.len() - from) as u8;
    again
}

/// Moves the target of an indirect branch from rcx to r11, spilling that.
pub(super) fn target_to_r11(emitter: &mut Emitter<'_>) {
    emitter.out.spill_r11();
    emitter.point(SPILLED);
    // mov r11, rcx
    emitter.out.bytes(&[0x49, 0x89, 0xcb]);
}

/// Moves it back; r11 stays in its slot.
pub(super) fn target_to_rcx(emitter: &mut Emitter<'_>) {
    // mov rcx, r11
    emitter.out.bytes(&[0x4c, 0x89, 0xd9]);
}
