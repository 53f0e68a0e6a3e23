//! Noting an access to a line that is not the most recent of its set.

use iced_x86::IcedError;
use iced_x86::code_asm::{CodeLabel, ecx, qword_ptr, r8, r9, r10, r11, rax, rcx, rdi, rdx, rsi};

use super::{ALL_AND_FLAGS, restore_flags, save_and_enter};
use crate::context::{MRU_AT, NOTE_BYTES, NOTES_AT, RequestKind, Slot};
use crate::recipe::{Commit, PcSource};
use crate::routines::{ALL, Builder, restore_all, state};

/// Position of the pc in a note.
const PC_SHIFT: u32 = 16;
/// The length in [`Slot::LwpMeta`].
const LENGTH: i32 = 0xfff;

/// Notes the access that the context describes, of the instruction at the pc in r11, and makes its lines
/// the most recent of their sets.
///
/// ```text
/// no room among the notes --> ask the host
/// note: address; pc << 16 | meta
/// each line from the first to the last: table[its set] := -line
/// ```
///
/// The instruction has not been executed. Should it never be, the host takes the note back.
pub(super) fn emit(b: &mut Builder, ring: CodeLabel) -> Result<CodeLabel, IcedError> {
    let mut full = b.asm.create_label();
    let mut next = b.asm.create_label();
    let mut last = b.asm.create_label();
    let start = save_and_enter(b, Commit::LwpTouching)?;
    let low = b.layout;
    let asm = &mut b.asm;
    asm.mov(rax, Builder::slot(Slot::LwpNotes))?;
    asm.cmp(rax, Builder::slot(Slot::LwpMostNotes))?;
    asm.jae(full)?;
    asm.mov(rdx, Builder::slot(Slot::LwpAddress))?;
    asm.mov(ecx, Builder::slot32(Slot::LwpMeta))?;
    asm.shl(r11, PC_SHIFT)?;
    asm.or(r11, rcx)?;
    asm.imul_3(rsi, rax, NOTE_BYTES as i32)?;
    asm.mov(qword_ptr(rsi + NOTES_AT as i32).gs(), rdx)?;
    asm.mov(qword_ptr(rsi + NOTES_AT as i32 + 8).gs(), r11)?;
    asm.add(rax, 1)?;
    asm.mov(Builder::slot(Slot::LwpNotes), rax)?;
    asm.and(ecx, LENGTH)?;
    asm.lea(rdi, qword_ptr(rdx + rcx - 1))?;
    asm.mov(r9, qword_ptr(low.line_mask() as i32))?;
    asm.mov(r10, qword_ptr(low.set_mask() as i32))?;
    asm.pext(rdi, rdi, r9)?;
    asm.set_label(&mut next)?;
    asm.pext(rcx, rdx, r9)?;
    asm.pext(rsi, rdx, r10)?;
    asm.mov(rax, rcx)?;
    asm.neg(rax)?;
    asm.mov(qword_ptr(rsi * 8 + MRU_AT as i32).gs(), rax)?;
    asm.cmp(rcx, rdi)?;
    asm.jae(last)?;
    asm.lea(r8, qword_ptr(rcx + 1))?;
    asm.pdep(rdx, r8, r9)?;
    asm.jmp(next)?;
    asm.set_label(&mut last)?;
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
