//! Rule 26: transfers between functions, written down for the host.

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
///          again: rcx := place; rcx = 0 --> stub
///          [place] := rsp, site, the words;  place := place + its length
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
/// rcx is lost.
pub(super) fn indirect(emitter: &mut Emitter<'_>, site: Site, state: u8) {
    write(emitter, site, state, true);
}

fn write(emitter: &mut Emitter<'_>, site: Site, state: u8, targeted: bool) {
    emitter.point(state | SPILLED);
    let again = emitter.here();
    emitter.out.load_rcx(Slot::Transfers as u32);
    // jrcxz +2; jmp +5; jmp stub
    emitter.out.bytes(&[0xe3, 0x02, 0xeb, 0x05, 0xe9]);
    let (app, index) = (emitter.place.app, emitter.place.index);
    let Site { counter, fragment, block } = site;
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
    // mov gs:[rcx + STACK], rsp
    emitter.out.bytes(&[0x65, 0x48, 0x89, 0xa1]);
    emitter.out.imm32(trace::END + trace::STACK);
    // mov dword gs:[rcx + SITE], counter
    emitter.out.bytes(&[0x65, 0xc7, 0x81]);
    emitter.out.imm32(trace::END + trace::SITE);
    emitter.out.imm32(counter_displacement(counter));
    emitter.out.relocated(Relocation::Counter);
    if targeted {
        emitter.out.bytes(&[0x65, 0x4c, 0x89, 0x99]);
        emitter.out.imm32(trace::END + trace::TARGET);
    }
    for (index, at) in (0u32..).zip(trace::RUNS) {
        // mov r11, gs:[word]; mov gs:[rcx + at], r11
        emitter.out.bytes(&[0x65, 0x4c, 0x8b, 0x1c, 0x25]);
        emitter.out.imm32(trace::word(index));
        emitter.out.bytes(&[0x65, 0x4c, 0x89, 0x99]);
        emitter.out.imm32(trace::END + at);
    }
    // lea rcx, [rcx + BYTES]
    emitter.out.bytes(&[0x48, 0x8d, 0x49, trace::BYTES as u8]);
    emitter.out.store_rcx(Slot::Transfers as u32);
    if targeted {
        // mov r11, gs:[rcx + TARGET - BYTES]
        emitter.out.bytes(&[0x65, 0x4c, 0x8b, 0x99]);
        emitter.out.imm32(trace::END + trace::TARGET - trace::BYTES);
    }
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
