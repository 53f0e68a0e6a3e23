//! The places at which fragments are entered, and the counting there.

use super::Emitter;
use crate::addr::{AppPc, CachePc};
use crate::context::{RequestKind, counter_displacement};
use crate::fragment::FragmentId;
use crate::relocation::Relocation;
use crate::state_map::bits;

/// Bytes of the code that adds one to a counter.
pub fn count_bytes(flags_dead: bool) -> u64 {
    if flags_dead { 9 } else { 9 + 9 + 4 + 9 + 9 }
}

/// The entry stub of `pc`, reached from the indirect table or along a chain.
///
/// ```text
/// Target:  rcx = wanted pc; rcx and r11 in their slots
/// Patch:   r11 := -pc; rcx := rcx + r11; rcx = 0 --> ok
///          r11 := ~r11; rcx := rcx + r11 + 1; jmp [chain slot]
///          ok: rcx := slot; r11 := slot
/// ```
///
/// Returns the entry's address. The check stands at the target, so that the table needs one
/// word a slot and the site one load. It may not touch the flags even where they are dead at
/// `pc`: along a chain it is passed on the way to other targets, which may read them.
pub fn entry_stub(emitter: &mut Emitter<'_>, pc: AppPc, chain_slot: u64) -> CachePc {
    let spilled = bits::SPILL_RCX | bits::SPILL_R11;
    let at_rcx = spilled | bits::PC_RCX | bits::UNCOUNTED;
    emitter.point(at_rcx);
    let entry = emitter.here();
    // mov r11, -pc
    emitter.out.bytes(&[0x49, 0xbb]);
    emitter.out.imm64(pc.0.wrapping_neg());
    emitter.out.relocated(Relocation::Negated);
    emitter.out.lea_rcx_rcx_r11();
    emitter.point(spilled | bits::PC_RCX_PLUS | bits::UNCOUNTED);
    emitter.out.bytes(&[0xe3, 0]);
    let from = emitter.out.code.len();
    // not r11; lea rcx, [rcx + r11 + 1]
    emitter.out.bytes(&[0x49, 0xf7, 0xd3, 0x4a, 0x8d, 0x4c, 0x19, 0x01]);
    emitter.point(at_rcx);
    emitter.out.jump_chain(chain_slot);
    emitter.out.code[from - 1] = (emitter.out.code.len() - from) as u8;
    emitter.point(spilled | bits::UNCOUNTED);
    emitter.out.reload_rcx();
    emitter.point(bits::SPILL_R11 | bits::UNCOUNTED);
    emitter.out.reload_r11();
    emitter.point(bits::UNCOUNTED);
    entry
}

/// Adds one to a counter. `before` is the state until it has been counted, without its two
/// uncounted bits it is the state from then on.
pub fn count(emitter: &mut Emitter<'_>, counter: u32, flags_dead: bool, before: u8) {
    count_between(emitter, counter, flags_dead, before, before & !(bits::UNCOUNTED | bits::EDGE));
}

/// Adds one to a counter, which takes the state from `before` to `after`.
pub fn count_between(
    emitter: &mut Emitter<'_>,
    counter: u32,
    flags_dead: bool,
    before: u8,
    after: u8,
) {
    emitter.point(before);
    let start = emitter.here();
    if flags_dead {
        emitter.out.bytes(&[0x65, 0x48, 0xff, 0x04, 0x25]);
        emitter.out.imm32(counter_displacement(counter));
        emitter.out.relocated(Relocation::Counter);
    } else {
        emitter.out.spill_rcx();
        emitter.point(before | bits::SPILL_RCX);
        count_in_rcx(emitter, counter);
        emitter.point(after | bits::SPILL_RCX);
        emitter.out.reload_rcx();
    }
    debug_assert_eq!(emitter.here(), start.offset(count_bytes(flags_dead)));
    emitter.point(after);
}

/// Adds one to a counter in rcx, which has been spilled. No flag changes.
pub(super) fn count_in_rcx(emitter: &mut Emitter<'_>, counter: u32) {
    let displacement = counter_displacement(counter);
    emitter.out.load_rcx(displacement);
    emitter.out.relocated(Relocation::Counter);
    emitter.out.bytes(&[0x48, 0x8d, 0x49, 0x01]);
    emitter.out.store_rcx(displacement);
    emitter.out.relocated(Relocation::Counter);
}

/// Five bytes that one aligned store can turn into a jump, in front of a fragment; `state`
/// holds there.
pub fn patchable_head(emitter: &mut Emitter<'_>, state: u8) -> CachePc {
    emitter.point(state);
    let at = (emitter.base as usize + emitter.out.code.len()) % 8;
    if at > 3 {
        emitter.out.bytes(NOPS[8 - at - 1]);
    }
    let head = emitter.here();
    emitter.out.bytes(&HEAD);
    head
}

/// The stub of a not-taken edge whose fragment has been cut off: counts the edge in `counter`,
/// and goes on at `exit`. Returns the stub, and the place of the displacement that leads on.
///
/// ```text
/// Patch:   slot := rcx; rcx := counter; rcx := rcx + 1; counter := rcx; rcx := slot; jmp exit
/// ```
pub fn edge_stub(
    emitter: &mut Emitter<'_>,
    fragment: FragmentId,
    counter: u32,
    exit: CachePc,
) -> [CachePc; 2] {
    emitter.start_piece();
    emitter.fragment = Some(fragment);
    let stub = emitter.here();
    let uncounted = bits::EDGE | bits::UNCOUNTED;
    count_between(emitter, counter, false, uncounted, bits::UNCOUNTED);
    emitter.pad_for_link(1);
    emitter.jump_to(exit);
    [stub, CachePc(emitter.here().0 - 4)]
}

/// Compares the fragment's own bytes with what was translated; a difference asks the host.
///
/// The flags stay as they are: the bytes that made them dead may be the ones that have changed.
pub fn self_check(emitter: &mut Emitter<'_>, pc: AppPc, bytes: &[u8]) {
    emitter.point(bits::UNCOUNTED);
    emitter.out.spill_rcx();
    emitter.point(bits::UNCOUNTED | bits::SPILL_RCX);
    emitter.out.spill_r11();
    emitter.point(bits::UNCOUNTED | bits::SPILL_RCX | bits::SPILL_R11);
    for (offset, width) in pieces(pc.0, bytes.len(), 8) {
        let operand = pc.0 + offset as u64;
        let mut value = [0u8; 8];
        value[..width].copy_from_slice(&bytes[offset..offset + width]);
        load_word(emitter, width, operand);
        emitter.out.mov_r11(u64::from_le_bytes(value).wrapping_neg());
        emitter.out.lea_rcx_rcx_r11();
        emitter.out.bytes(&[0xe3, 0x05, 0xe9]);
        emitter.ask_from(RequestKind::Stale, pc, true, true);
    }
    emitter.out.reload_rcx();
    emitter.point(bits::UNCOUNTED | bits::SPILL_R11);
    emitter.out.reload_r11();
    emitter.point(bits::UNCOUNTED);
}

/// Loads up to eight bytes of the application's code into rcx.
fn load_word(emitter: &mut Emitter<'_>, width: usize, address: u64) {
    let opcode: &[u8] = match width {
        8 => &[0x48, 0x8b],
        4 => &[0x8b],
        2 => &[0x0f, 0xb7],
        _ => &[0x0f, 0xb6],
    };
    let next = emitter.here().0 + opcode.len() as u64 + 5;
    if let Ok(displacement) = i32::try_from(address.wrapping_sub(next) as i64) {
        emitter.out.bytes(opcode);
        emitter.out.bytes(&[0x0d]);
        emitter.out.imm32(displacement as u32);
    } else {
        emitter.out.mov_rcx(address);
        emitter.out.bytes(opcode);
        emitter.out.bytes(&[0x09]);
    }
}

/// A patchable head as it is made: it leads into its fragment.
pub const HEAD: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];

/// No operation, in one to four bytes.
const NOPS: [&[u8]; 4] = [&[0x90], &[0x66, 0x90], &[0x0f, 0x1f, 0x00], &[0x0f, 0x1f, 0x40, 0x00]];

/// Covers `len` bytes at `address` with naturally aligned pieces of at most `widest` bytes: reading
/// code as data must work also where the application has alignment checking on.
fn pieces(address: u64, len: usize, widest: usize) -> Vec<(usize, usize)> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < len {
        let mut width = widest;
        while width > len - at || !(address + at as u64).is_multiple_of(width as u64) {
            width /= 2;
        }
        out.push((at, width));
        at += width;
    }
    out
}
