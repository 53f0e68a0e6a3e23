//! Rule 26: transfers between functions, which lead a thread from one calling context to another.

mod steps;

use std::ops::Range;

use super::Emitter;
use crate::addr::{AppPc, CachePc};
use crate::context::trace::Leave;
use crate::context::{RequestKind, Slot, counter_displacement, trace};
use crate::fragment::FragmentId;
use crate::relocation::Relocation;
use crate::state_map::bits;

pub use steps::stores;

const SPILLED: u8 = bits::SPILL_RCX | bits::SPILL_R11;
/// Three registers are in their slots only while a transfer is being made.
const ALL: u8 = SPILLED | bits::SPILL_RAX;

/// A transfer that the thread does not know yet, to be dealt with behind the region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    /// Offset of the 4-byte displacement that jumps to the stub.
    pub at: usize,
    /// The fragment that makes it, and where it begins.
    pub fragment: FragmentId,
    pub block: AppPc,
    leave: Leave,
    /// The counter that names it.
    counter: u32,
    /// What it adds to its place in the table.
    spread: u32,
    /// How far the fragment is.
    app: u8,
    index: u8,
    /// The state bits.
    state: u8,
    /// The place where it is tried again.
    again: CachePc,
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
    /// What it adds to its place in the table.
    pub spread: u32,
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

/// Adds the instructions of a fragment that has been charged to the thread's sum. No flag changes;
/// where the flags are live, rcx is borrowed.
pub(super) fn add_run(emitter: &mut Emitter<'_>, counter: u32, instructions: u8, dead: bool) {
    let word = trace::word(counter);
    if dead {
        // add qword gs:[word], instructions
        emitter.out.bytes(&[0x65, 0x48, 0x83, 0x04, 0x25]);
        emitter.out.imm32(word);
        emitter.out.bytes(&[instructions]);
    } else {
        emitter.out.spill_rcx();
        emitter.point(bits::UNSUMMED | bits::SPILL_RCX);
        add_run_in_rcx(emitter, counter, instructions);
        emitter.point(bits::SPILL_RCX);
        emitter.out.reload_rcx();
    }
    emitter.point(0);
}

/// Adds the instructions of a fragment to the sum in rcx, which has been spilled.
pub(super) fn add_run_in_rcx(emitter: &mut Emitter<'_>, counter: u32, instructions: u8) {
    let word = trace::word(counter);
    emitter.out.load_rcx(word);
    // lea rcx, [rcx + instructions]
    emitter.out.bytes(&[0x48, 0x8d, 0x49, instructions]);
    emitter.out.store_rcx(word);
}

/// Makes a transfer whose target the code says, where the application stands at the instruction
/// that it is. All three registers are in their slots afterwards, until it has been made.
///
/// ```text
/// Patch:   slot := rcx; slot := r11; slot := rax
///          again: look for the record; not found --> stub
///          instructions, calls, frames and present record as [`steps`] has it
/// ```
pub(super) fn direct(emitter: &mut Emitter<'_>, site: Site, leave: Leave) {
    emitter.point(0);
    emitter.out.spill_rcx();
    emitter.point(bits::SPILL_RCX);
    emitter.out.spill_r11();
    emitter.point(SPILLED);
    make(emitter, site, 0, leave);
}

/// The transfer that [`direct`] has begun has been made, and the pc is as `state` says: the
/// registers are put back.
pub(super) fn made(emitter: &mut Emitter<'_>, state: u8) {
    emitter.point(state | ALL);
    reload_rax(emitter);
    emitter.point(state | SPILLED);
    emitter.out.reload_r11();
    emitter.point(state | bits::SPILL_RCX);
    emitter.out.reload_rcx();
    emitter.point(state);
}

/// Makes a transfer whose target is in r11. rcx and r11 are in their slots, and so is rax
/// afterwards, until it has been made; rcx has the target.
pub(super) fn indirect(emitter: &mut Emitter<'_>, site: Site, state: u8) {
    make(emitter, site, state, Leave::IndirectCall);
    emitter.out.load_rcx(Slot::CallTarget as u32);
}

/// Makes a return. rcx and r11 are in their slots, and so is rax afterwards, until it has been made.
pub(super) fn returning(emitter: &mut Emitter<'_>, site: Site) {
    make(emitter, site, 0, Leave::Return);
}

/// `mov rax, gs:[slot]`
pub(super) fn reload_rax(emitter: &mut Emitter<'_>) {
    emitter.out.bytes(&[0x65, 0x48, 0x8b, 0x04, 0x25]);
    emitter.out.imm32(Slot::Rax as u32);
}

/// Makes a jump whose target is in rcx, which has been spilled, unless it leads into the function
/// that it leaves. r11 is spilled too; `jump` jumps, to what is in rcx.
///
/// ```text
/// Patch:   slot := r11; target := rcx; r11 := rcx - start
///          rcx := r11 >> bits; rcx = 0 --> within
///          r11 := r11 - rest; rcx := r11 >> bits; rcx = 0 --> within
///          as for other transfers; rcx := target; jump
/// within:  rcx := target; jump
/// ```
pub(super) fn jump(emitter: &mut Emitter<'_>, site: Site, jump: impl Fn(&mut Emitter<'_>)) {
    let before = emitter.place;
    emitter.out.spill_r11();
    emitter.point(SPILLED);
    // mov gs:[target], rcx
    emitter.out.store_rcx(Slot::CallTarget as u32);
    let over = site.within.map(|within| unless_within(emitter, within));
    // mov r11, gs:[target]
    emitter.out.bytes(&[0x65, 0x4c, 0x8b, 0x1c, 0x25]);
    emitter.out.imm32(Slot::CallTarget as u32);
    make(emitter, site, 0, Leave::IndirectJump);
    emitter.out.load_rcx(Slot::CallTarget as u32);
    emitter.complete(ALL | bits::PC_RCX);
    reload_rax(emitter);
    emitter.point(SPILLED | bits::PC_RCX);
    jump(emitter);
    let Some(from) = over else { return };
    let length = (emitter.out.code.len() - from) as u32;
    emitter.out.code[from - 4..from].copy_from_slice(&length.to_le_bytes());
    emitter.place = before;
    emitter.point(SPILLED);
    emitter.out.load_rcx(Slot::CallTarget as u32);
    emitter.complete(SPILLED | bits::PC_RCX);
    jump(emitter);
}

/// Jumps, if rcx is within a function, to a place that is to be put in: returns the offset behind
/// its displacement. rcx and r11 are lost.
fn unless_within(emitter: &mut Emitter<'_>, within: Within) -> usize {
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
    emitter.out.code.len()
}

/// Jumps, if r11 has no bit above the lowest `bits`, to a place that is to be put in: returns the
/// offset behind its displacement. rcx is lost.
fn if_below(emitter: &mut Emitter<'_>, bits: u8) -> usize {
    // mov ecx, bits; shrx rcx, r11, rcx; jrcxz ?
    emitter.out.bytes(&[0xb9, bits, 0, 0, 0]);
    emitter.out.bytes(&[0xc4, 0xc2, 0xf3, 0xf7, 0xcb, 0xe3, 0]);
    emitter.out.code.len()
}

/// Makes a transfer. rcx and r11 are in their slots; all three registers are lost. A target that the
/// code does not say is in r11, or [`Slot::CallTarget`] has it.
fn make(emitter: &mut Emitter<'_>, site: Site, state: u8, leave: Leave) {
    if leave == Leave::IndirectCall {
        // mov gs:[target], r11
        emitter.out.bytes(&[0x65, 0x4c, 0x89, 0x1c, 0x25]);
        emitter.out.imm32(Slot::CallTarget as u32);
    }
    // mov gs:[slot], rax
    emitter.out.bytes(&[0x65, 0x48, 0x89, 0x04, 0x25]);
    emitter.out.imm32(Slot::Rax as u32);
    emitter.point(state | ALL);
    let again = emitter.here();
    let (app, index) = (emitter.place.app, emitter.place.index);
    let Site { counter, fragment, block, spread, .. } = site;
    let displacement = counter_displacement(counter);
    let at = steps::transfer(&mut emitter.out, leave, displacement, spread);
    emitter.out.transfers.push(Transfer {
        at,
        fragment,
        block,
        leave,
        counter,
        spread,
        app,
        index,
        state,
        again,
    });
}

/// The stub of a transfer that the thread does not know: a routine looks for it, or the host makes
/// it.
pub fn transfer_stub(emitter: &mut Emitter<'_>, transfer: &Transfer) -> CachePc {
    emitter.start_piece();
    (emitter.place.app, emitter.place.index) = (transfer.app, transfer.index);
    let stub = emitter.here();
    emitter.point(transfer.state | ALL);
    // jmp over
    emitter.out.bytes(&[0xeb, 0]);
    let from = emitter.out.code.len();
    // Requests are of the usual kind again.
    let again = emitter.here().0;
    emitter.out.store_imm32(Slot::Kind, RequestKind::Dispatch as u32);
    emitter.jump_to(transfer.again);
    emitter.out.code[from - 1] = (emitter.out.code.len() - from) as u8;
    // mov dword gs:[site], counter
    emitter.out.bytes(&[0x65, 0xc7, 0x04, 0x25]);
    emitter.out.imm32(trace::SITE);
    emitter.out.imm32(counter_displacement(transfer.counter));
    emitter.out.relocated(Relocation::Counter);
    // mov dword gs:[spread], spread
    emitter.out.bytes(&[0x65, 0xc7, 0x04, 0x25]);
    emitter.out.imm32(trace::SITE_SPREAD);
    emitter.out.imm32(transfer.spread);
    if transfer.leave == Leave::Return {
        // mov rcx, [rsp]
        emitter.out.bytes(&[0x48, 0x8b, 0x0c, 0x24]);
        emitter.out.store_rcx(Slot::CallTarget as u32);
    }
    // lea rcx, [rip + again]
    emitter.out.bytes(&[0x48, 0x8d, 0x0d]);
    emitter.displacement_to(again);
    emitter.out.store_rcx(Slot::CallAfter as u32);
    emitter.jump_to_routine(emitter.routines.transfers[transfer.leave as usize]);
    stub
}

/// Moves the target of an indirect branch from rcx to r11, spilling that.
pub(super) fn target_to_r11(emitter: &mut Emitter<'_>) {
    emitter.out.spill_r11();
    emitter.point(SPILLED);
    // mov r11, rcx
    emitter.out.bytes(&[0x49, 0x89, 0xcb]);
}
