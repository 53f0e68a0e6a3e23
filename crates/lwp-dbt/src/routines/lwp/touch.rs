//! An access to a line that is not the one used last in its set.

use iced_x86::IcedError;
use iced_x86::code_asm::{
    CodeLabel, ecx, qword_ptr, r8, r9, r10, r11, rax, rbx, rcx, rdi, rdx, rsi,
};

use super::{ALL_AND_FLAGS, restore_flags, save_and_enter};
use crate::context::{
    NOTE_BYTES, NOTE_GOES_ON, NOTES_AT, RECENT_AT, RequestKind, SET_BYTES, SETS_AT, Slot, UNDO_AT,
    UNDO_BYTES, UNDOS,
};
use crate::recipe::{Commit, PcSource};
use crate::routines::{ALL, Builder, Emit, restore_all, state};

/// Position of the pc in a note.
const PC_SHIFT: u32 = 16;
/// The length in [`Slot::LwpMeta`].
const LENGTH: i32 = 0xfff;

/// Makes the lines of the access that the context describes, of the instruction at the pc in r11, the
/// most recent of their sets, and notes those that were not in the cache.
///
/// ```text
/// r11 := pc << 16 | meta;  rdi := last line
/// there may not be room for the notes, and a line is not in the cache --> ask the host
/// each line:  put it first in its set, the others moving on up to where it was
///             it was nowhere --> note it
/// ```
///
/// The instruction has not been executed. Should it never be, the host undoes it all.
pub(super) fn emit(b: &mut Builder, ring: CodeLabel) -> Result<CodeLabel, IcedError> {
    let mut full = b.asm.create_label();
    let mut next = b.asm.create_label();
    let mut held = b.asm.create_label();
    let mut last = b.asm.create_label();
    let mut room = b.asm.create_label();
    let start = save_and_enter(b, Commit::LwpTouching)?;
    let low = b.layout;
    let asm = &mut b.asm;
    asm.mov(rdx, Builder::slot(Slot::LwpAddress))?;
    asm.mov(ecx, Builder::slot32(Slot::LwpMeta))?;
    asm.shl(r11, PC_SHIFT)?;
    asm.or(r11, rcx)?;
    asm.and(ecx, LENGTH)?;
    asm.lea(rdi, qword_ptr(rdx + rcx - 1))?;
    asm.mov(r9, qword_ptr(low.line_mask() as i32))?;
    asm.mov(r10, qword_ptr(low.set_mask() as i32))?;
    asm.pext(rdi, rdi, r9)?;
    asm.pext(rcx, rdx, r9)?;
    asm.mov(rax, rdi)?;
    asm.sub(rax, rcx)?;
    asm.add(rax, Builder::slot(Slot::LwpNotes))?;
    asm.cmp(rax, Builder::slot(Slot::LwpMostNotes))?;
    asm.jb(room)?;
    look(b, full)?;
    b.asm.set_label(&mut room)?;
    b.asm.mov(rdx, Builder::slot(Slot::LwpAddress))?;
    b.asm.set_label(&mut next)?;
    put_first(b, held)?;
    note(b)?;
    b.asm.set_label(&mut held)?;
    keep_undo(b)?;
    b.asm.pext(rcx, rdx, r9)?;
    next_line(b, next, &mut last)?;
    restore_flags(b)?;
    restore_all(b)?;
    b.asm.jmp(Builder::slot(Slot::Go))?;

    b.asm.set_label(&mut full)?;
    b.asm.zero_bytes()?;
    b.mark(state(PcSource::ContextPc, ALL_AND_FLAGS, Commit::LwpTouching))?;
    restore_flags(b)?;
    b.mark(state(PcSource::ContextPc, ALL, Commit::LwpTouching))?;
    b.asm.mov(Builder::slot32(Slot::Kind), RequestKind::LwpNotes as u32)?;
    b.mark(state(PcSource::ContextPc, ALL, Commit::Mailbox))?;
    b.asm.jmp(ring)?;
    Ok(start)
}

/// rsi := where the set of the address in rdx begins;  r8 := where it ends;  rbx := its number
fn find_set(b: &mut Builder) -> Emit {
    let asm = &mut b.asm;
    asm.pext(rbx, rdx, r10)?;
    asm.imul_3(rsi, rbx, SET_BYTES as i32)?;
    asm.add(rsi, SETS_AT as i32)?;
    asm.mov(r8, rsi)?;
    asm.add(r8, qword_ptr(b.layout.set_length() as i32))
}

/// Goes to `missing` if one of the lines from the address in rdx to the line in rdi is not in the cache.
fn look(b: &mut Builder, missing: CodeLabel) -> Emit {
    let mut next = b.asm.create_label();
    let mut ways = b.asm.create_label();
    let mut held = b.asm.create_label();
    let mut last = b.asm.create_label();
    b.asm.set_label(&mut next)?;
    find_set(b)?;
    let asm = &mut b.asm;
    asm.pext(rcx, rdx, r9)?;
    asm.mov(rax, rcx)?;
    asm.neg(rax)?;
    asm.set_label(&mut ways)?;
    asm.cmp(rsi, r8)?;
    asm.jae(missing)?;
    asm.cmp(rax, qword_ptr(rsi).gs())?;
    asm.je(held)?;
    asm.add(rsi, 8)?;
    asm.jmp(ways)?;
    asm.set_label(&mut held)?;
    next_line(b, next, &mut last)?;
    // Another label follows.
    b.asm.zero_bytes()
}

/// Goes to `next` with the address of the line after the one in rcx in rdx, unless that in rcx is the last.
fn next_line(b: &mut Builder, next: CodeLabel, last: &mut CodeLabel) -> Emit {
    let asm = &mut b.asm;
    asm.cmp(rcx, rdi)?;
    asm.jae(*last)?;
    asm.add(rcx, 1)?;
    asm.pdep(rdx, rcx, r9)?;
    asm.jmp(next)?;
    asm.set_label(last)
}

/// Puts the line of the address in rdx first in its set, and goes to `held` if it was there already.
///
/// rcx := the line, negated;  rsi := where it was found, or the end of the set;  rax := the line that
/// stood there before
fn put_first(b: &mut Builder, held: CodeLabel) -> Emit {
    let mut ways = b.asm.create_label();
    find_set(b)?;
    let asm = &mut b.asm;
    asm.pext(rcx, rdx, r9)?;
    asm.neg(rcx)?;
    asm.mov(qword_ptr(rbx * 8 + RECENT_AT as i32).gs(), rcx)?;
    asm.mov(rax, rcx)?;
    asm.set_label(&mut ways)?;
    // What stood before moves on to here.
    asm.mov(rbx, rax)?;
    asm.mov(rax, qword_ptr(rsi).gs())?;
    asm.mov(qword_ptr(rsi).gs(), rbx)?;
    asm.cmp(rax, rcx)?;
    asm.je(held)?;
    asm.add(rsi, 8)?;
    asm.cmp(rsi, r8)?;
    asm.jb(ways)
}

/// Notes a miss of the access in r11, at the address in rdx.
fn note(b: &mut Builder) -> Emit {
    let asm = &mut b.asm;
    asm.mov(rbx, Builder::slot(Slot::LwpNotes))?;
    asm.imul_3(r8, rbx, NOTE_BYTES as i32)?;
    asm.mov(qword_ptr(r8 + NOTES_AT as i32).gs(), rdx)?;
    asm.mov(qword_ptr(r8 + NOTES_AT as i32 + 8).gs(), r11)?;
    asm.add(rbx, 1)?;
    asm.mov(Builder::slot(Slot::LwpNotes), rbx)?;
    asm.or(r11, NOTE_GOES_ON as i32)
}

/// Keeps what [`put_first`] has changed.
fn keep_undo(b: &mut Builder) -> Emit {
    let asm = &mut b.asm;
    asm.mov(rbx, Builder::slot(Slot::LwpUndos))?;
    asm.mov(r8, rbx)?;
    asm.and(r8, UNDOS as i32 - 1)?;
    asm.imul_3(r8, r8, UNDO_BYTES as i32)?;
    asm.add(rbx, 1)?;
    asm.mov(Builder::slot(Slot::LwpUndos), rbx)?;
    asm.mov(qword_ptr(r8 + UNDO_AT as i32 + 8).gs(), rcx)?;
    asm.mov(qword_ptr(r8 + UNDO_AT as i32 + 24).gs(), rax)?;
    asm.mov(rbx, r11)?;
    asm.shr(rbx, PC_SHIFT)?;
    asm.mov(qword_ptr(r8 + UNDO_AT as i32).gs(), rbx)?;
    asm.pext(rbx, rdx, r10)?;
    asm.imul_3(rbx, rbx, SET_BYTES as i32)?;
    asm.sub(rsi, rbx)?;
    asm.sub(rsi, SETS_AT as i32)?;
    asm.mov(qword_ptr(r8 + UNDO_AT as i32 + 16).gs(), rsi)
}
