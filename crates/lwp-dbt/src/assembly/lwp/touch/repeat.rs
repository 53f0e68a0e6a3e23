//! The accesses of repeated string instructions, calculated afterwards, one line at a time.
//!
//! Within a line, nothing changes after the first access, not even if source and destination are in
//! the same set, whose two most recent lines then alternate.

use iced_x86::IcedError;
use iced_x86::code_asm::{
    AsmMemoryOperand, CodeLabel, eax, ecx, edx, esi, qword_ptr, r11, r11d, rax, rcx, rdi, rdx, rsi,
};

use super::quick::{WAYS, change, entry, move_on};
use super::{LENGTH, PC_SHIFT, ask, begin, describe, line_mask, looking, restore, set_length};
use crate::assembly::save_flags;
use crate::assembly::{Builder, Emit};
use crate::context::{
    META_COUNTS_SHIFT, META_NO_LOAD, META_SOURCE, NOTE_BYTES, NOTES_AT, Slot, UNDO_BYTES, UNDOS,
};
use crate::state_map::Commit;

/// Bytes of a line, where sets lie as an address's own bits say.
const LINE: i32 = 64;
/// Of [`Slot::LwpMeta`], what a note has beside the use.
const NOTED: i32 = 0x4fff;

/// ```text
/// what has been accessed before is still to be gone through, sets do not have eight lines, elements may span
/// lines, or there is no room for a note of each line --> ask the host
/// say what it starts with and that it has begun
/// ```
pub(super) fn emit_ready(b: &mut Builder, ring: CodeLabel) -> Result<CodeLabel, IcedError> {
    let mut no = b.asm.create_label();
    let mut one = b.asm.create_label();
    let length = set_length(b);
    let start = begin(b)?;
    save_flags(b)?;
    describe(b)?;
    let asm = &mut b.asm;
    asm.mov(rcx, Builder::slot(Slot::Rcx))?;
    asm.mov(Builder::slot(Slot::LwpRepeatCount), rcx)?;
    asm.mov(Builder::slot(Slot::LwpRepeatFrom), rsi)?;
    asm.mov(Builder::slot(Slot::LwpRepeatTo), rdi)?;
    asm.mov(Builder::slot(Slot::LwpAddress), rdi)?;
    asm.mov(Builder::slot(Slot::LwpRepeatDone), 0)?;
    asm.cmp(Builder::slot(Slot::LwpRepeatBegun), 0)?;
    asm.jne(no)?;
    asm.cmp(length, WAYS as i32 * 8)?;
    asm.jne(no)?;
    asm.mov(rax, rcx)?;
    asm.shr(rax, 32)?;
    asm.jne(no)?;
    asm.mov(r11d, Builder::slot32(Slot::LwpMeta))?;
    asm.and(r11d, LENGTH)?;
    asm.imul_2(rcx, r11)?;
    asm.shr(rcx, 5)?;
    asm.add(rcx, 4)?;
    asm.mov(eax, Builder::slot32(Slot::LwpNotes))?;
    asm.add(rcx, rax)?;
    asm.mov(eax, Builder::slot32(Slot::LwpMostNotes))?;
    asm.cmp(rcx, rax)?;
    asm.jae(no)?;
    asm.test(Builder::slot32(Slot::LwpMeta), META_SOURCE as i32)?;
    asm.je(one)?;
    asm.or(rdi, rsi)?;
    asm.set_label(&mut one)?;
    asm.sub(r11, 1)?;
    asm.test(rdi, r11)?;
    asm.jne(no)?;
    asm.mov(rax, Builder::slot(Slot::Pc))?;
    asm.mov(Builder::slot(Slot::LwpRepeats), rax)?;
    leave(b)?;
    b.asm.set_label(&mut no)?;
    ask(b, ring)?;
    Ok(start)
}

/// ```text
/// until all has been gone through:
///     the line read, if there is one, and the line written become the most recent of their sets
///     go on to where one of them ends
/// ```
pub(super) fn emit_walk(b: &mut Builder) -> Result<CodeLabel, IcedError> {
    let mut next = b.asm.create_label();
    let mut written = b.asm.create_label();
    let mut done = b.asm.create_label();
    let start = begin(b)?;
    save_flags(b)?;
    describe(b)?;
    b.asm.set_label(&mut next)?;
    b.asm.zero_bytes()?;
    b.mark(looking(Commit::LwpTouching))?;
    let asm = &mut b.asm;
    asm.mov(rdi, Builder::slot(Slot::LwpRepeatTo))?;
    asm.add(rdi, Builder::slot(Slot::LwpRepeatDone))?;
    asm.cmp(rdi, Builder::slot(Slot::Rdi))?;
    asm.je(done)?;
    asm.test(Builder::slot32(Slot::LwpMeta), META_SOURCE as i32)?;
    asm.je(written)?;
    asm.mov(rdi, Builder::slot(Slot::LwpRepeatFrom))?;
    asm.add(rdi, Builder::slot(Slot::LwpRepeatDone))?;
    line(b, false)?;
    b.asm.set_label(&mut written)?;
    let asm = &mut b.asm;
    asm.mov(rdi, Builder::slot(Slot::LwpRepeatTo))?;
    asm.add(rdi, Builder::slot(Slot::LwpRepeatDone))?;
    line(b, true)?;
    advance(b, next, done)?;
    b.asm.set_label(&mut done)?;
    b.asm.zero_bytes()?;
    b.mark(looking(Commit::LwpTouching))?;
    b.asm.mov(Builder::slot(Slot::LwpRepeats), 0)?;
    leave(b)?;
    Ok(start)
}

fn from() -> AsmMemoryOperand {
    Builder::slot(Slot::LwpRepeatFrom)
}

/// Adds to what is done of the walk, the line of the destination at rdi being: goes to `next`, or
/// to `done` if that was all.
fn advance(b: &mut Builder, next: CodeLabel, done: CodeLabel) -> Emit {
    let mut down = b.asm.create_label();
    let mut add = b.asm.create_label();
    let mut take = b.asm.create_label();
    let asm = &mut b.asm;
    asm.mov(rsi, from())?;
    asm.add(rsi, Builder::slot(Slot::LwpRepeatDone))?;
    asm.and(esi, LINE - 1)?;
    asm.mov(rdx, Builder::slot(Slot::Rdi))?;
    asm.mov(eax, LINE - 1)?;
    asm.and(rax, rdi)?;
    asm.cmp(rdx, rdi)?;
    asm.jb(down)?;
    // Up to the end of the line.
    asm.neg(rax)?;
    asm.add(rax, LINE)?;
    asm.neg(rsi)?;
    asm.add(rsi, LINE)?;
    asm.test(Builder::slot32(Slot::LwpMeta), META_SOURCE as i32)?;
    asm.je(add)?;
    asm.cmp(rsi, rax)?;
    asm.cmovb(rax, rsi)?;
    asm.set_label(&mut add)?;
    asm.sub(rdx, rdi)?;
    asm.cmp(rax, rdx)?;
    asm.jae(done)?;
    asm.add(Builder::slot(Slot::LwpRepeatDone), rax)?;
    asm.jmp(next)?;
    // Down over its beginning.
    asm.set_label(&mut down)?;
    asm.mov(ecx, Builder::slot32(Slot::LwpMeta))?;
    asm.and(ecx, LENGTH)?;
    asm.test(Builder::slot32(Slot::LwpMeta), META_SOURCE as i32)?;
    asm.je(take)?;
    asm.cmp(rsi, rax)?;
    asm.cmovb(rax, rsi)?;
    asm.set_label(&mut take)?;
    asm.add(rax, rcx)?;
    asm.sub(rdi, rdx)?;
    asm.cmp(rax, rdi)?;
    asm.jae(done)?;
    asm.sub(Builder::slot(Slot::LwpRepeatDone), rax)?;
    asm.jmp(next)
}

/// Makes the line of rdi the most recent of its set, and notes it if it was nowhere.
fn line(b: &mut Builder, store: bool) -> Emit {
    let mut found: [CodeLabel; WAYS] = std::array::from_fn(|_| b.asm.create_label());
    let mut counted = b.asm.create_label();
    let mut recent = b.asm.create_label();
    let (set_mask, line_mask) = (qword_ptr(b.layout.set_mask() as i32), line_mask(b));
    let asm = &mut b.asm;
    asm.mov(r11, rdi)?;
    asm.and(r11, set_mask)?;
    asm.mov(rcx, rdi)?;
    asm.and(rcx, line_mask)?;
    asm.neg(rcx)?;
    asm.cmp(rcx, entry(0))?;
    asm.je(recent)?;
    asm.mov(eax, Builder::slot32(Slot::LwpUndos))?;
    asm.and(eax, UNDOS as i32 - 1)?;
    asm.shl(eax, UNDO_BYTES.trailing_zeros())?;
    // Of no instruction: what has been executed is not taken back.
    asm.mov(change(0), 0)?;
    asm.mov(change(1), rcx)?;
    for (way, &place) in found.iter().enumerate().skip(1) {
        asm.cmp(rcx, entry(way))?;
        asm.je(place)?;
    }
    note(b, store)?;
    b.mark(looking(Commit::LwpMoving))?;
    move_on(b, WAYS - 1)?;
    b.asm.mov(Builder::slot(Slot::LwpNotes), rdx)?;
    b.mark(looking(Commit::LwpMoved))?;
    b.asm.jmp(counted)?;
    for (way, place) in found.iter_mut().enumerate().skip(1) {
        b.asm.set_label(place)?;
        b.asm.zero_bytes()?;
        b.mark(looking(Commit::LwpTouching))?;
        b.asm.mov(change(2), way as i32 * 8)?;
        b.mark(looking(Commit::LwpMoving))?;
        move_on(b, way)?;
        b.asm.jmp(counted)?;
    }
    b.asm.set_label(&mut counted)?;
    b.asm.zero_bytes()?;
    b.mark(looking(Commit::LwpMoved))?;
    b.asm.inc(Builder::slot(Slot::LwpUndos))?;
    b.asm.set_label(&mut recent)?;
    b.asm.zero_bytes()?;
    b.mark(looking(Commit::LwpTouching))?;
    b.asm.zero_bytes()
}

/// Writes down that the last line of the set at r11 has to go, and the note of the miss, which
/// counts from when `LwpNotes` does. rdx := what that will be. Changes rax and rsi.
fn note(b: &mut Builder, store: bool) -> Emit {
    let mut uncounted = b.asm.create_label();
    let mut noted = b.asm.create_label();
    let asm = &mut b.asm;
    asm.mov(rsi, entry(WAYS - 1))?;
    asm.mov(change(3), rsi)?;
    asm.mov(esi, 0)?;
    if !store {
        asm.test(Builder::slot32(Slot::LwpMeta), 1 << META_COUNTS_SHIFT)?;
        asm.je(uncounted)?;
        asm.mov(esi, 1)?;
        asm.shl(rsi, 32)?;
    }
    asm.set_label(&mut uncounted)?;
    asm.add(rsi, WAYS as i32 * 8)?;
    asm.mov(change(2), rsi)?;
    asm.mov(rdx, Builder::slot(Slot::LwpNotes))?;
    asm.mov(eax, edx)?;
    asm.shl(rax, NOTE_BYTES.trailing_zeros())?;
    asm.lea(rdx, qword_ptr(rdx + rsi - (WAYS as i32 * 8 - 1)))?;
    asm.cmp(Builder::slot(Slot::LwpKeeps), 0)?;
    asm.je(noted)?;
    asm.mov(qword_ptr(rax + NOTES_AT as i32).gs(), rdi)?;
    asm.mov(rsi, Builder::slot(Slot::LwpRepeats))?;
    asm.shl(rsi, PC_SHIFT)?;
    asm.mov(qword_ptr(rax + NOTES_AT as i32 + 8).gs(), rsi)?;
    asm.mov(esi, Builder::slot32(Slot::LwpMeta))?;
    asm.and(esi, NOTED)?;
    if store {
        asm.or(esi, META_NO_LOAD as i32)?;
    }
    asm.or(qword_ptr(rax + NOTES_AT as i32 + 8).gs(), rsi)?;
    asm.set_label(&mut noted)?;
    asm.zero_bytes()
}

/// Goes on where the site says.
fn leave(b: &mut Builder) -> Emit {
    restore(b)?;
    b.asm.mov(rcx, Builder::slot(Slot::Rcx))?;
    b.asm.jmp(Builder::slot(Slot::Go))
}
