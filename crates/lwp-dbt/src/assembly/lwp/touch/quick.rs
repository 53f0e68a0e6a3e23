//! An access to one line, in a cache whose sets are selected directly by bits of the address, with
//! at most eight lines per set.

use iced_x86::IcedError;
use iced_x86::code_asm::{
    AsmMemoryOperand, CodeLabel, dword_ptr, eax, edi, edx, esi, qword_ptr, r11, rax, rcx, rdi, rdx,
    rsi,
};

use super::{FEW, PC_SHIFT, RAX_AND_FLAGS, line_mask, set_length};
use crate::assembly::{BOTH, Builder, Emit, state};
use crate::assembly::{restore_flags, save_flags};
use crate::context::{
    META_COUNTS_SHIFT, META_NO_LOAD, NOTE_BYTES, NOTES_AT, SETS_AT, Slot, UNDO_AT, UNDO_BYTES,
    UNDOS,
};
use crate::routines::site;
use crate::state_map::{AppState, Commit, PcSource, Spills};

/// Lines in a set.
pub(super) const WAYS: usize = 8;

/// ```text
/// Go := site;  more than one line --> any
/// r11 := place of the set;  rcx := what stands for the line
/// each way but the first:  the line is there --> move it to the front
/// more than eight ways or less, or no room for a note --> any
/// note it;  put it first, the others moving on
/// ```
///
/// The change is written down first. Without `flags` they are dead, and are not kept.
pub(super) fn emit(b: &mut Builder, any: CodeLabel, flags: bool) -> Result<Starts, IcedError> {
    let mut other = b.asm.create_label();
    let mut found: [CodeLabel; WAYS] = std::array::from_fn(|_| b.asm.create_label());
    let starts = starts(b)?;
    b.asm.mov(Builder::slot(Slot::Rax), rax)?;
    b.mark(searching(false, Commit::LwpTouching))?;
    if flags {
        save_flags(b)?;
    }
    b.mark(searching(flags, Commit::LwpTouching))?;
    find(b, other)?;
    for (way, &place) in found.iter().enumerate().skip(1) {
        b.asm.cmp(rcx, entry(way))?;
        b.asm.je(place)?;
    }
    missing(b, flags, &mut found[0], other)?;
    for (way, place) in found.iter_mut().enumerate().skip(1) {
        b.asm.set_label(place)?;
        b.asm.zero_bytes()?;
        b.mark(searching(flags, Commit::LwpTouching))?;
        b.asm.mov(change(2), way as i32 * 8)?;
        b.mark(searching(flags, Commit::LwpMoving))?;
        move_on(b, way)?;
        b.mark(searching(flags, Commit::LwpMoved))?;
        b.asm.inc(Builder::slot(Slot::LwpUndos))?;
        b.mark(searching(flags, Commit::LwpTouching))?;
        leave(b, flags)?;
    }
    b.asm.set_label(&mut other)?;
    b.asm.zero_bytes()?;
    b.mark(searching(flags, Commit::LwpTouching))?;
    if !flags {
        save_flags(b)?;
    }
    b.asm.jmp(any)?;
    Ok(starts)
}

/// The places to start at, by the binary logarithm of the access's length.
pub(in crate::assembly) type Starts = [CodeLabel; LENGTHS];

/// Lengths that have a place to start at: the powers of two up to half a line.
const LENGTHS: usize = 6;

/// Notes the site in r11, which says from the first instruction on what is being executed; r11 :=
/// the address of the access's last byte.
fn starts(b: &mut Builder) -> Result<Starts, IcedError> {
    let mut common = b.asm.create_label();
    let mut labels = Vec::new();
    for length in 0..LENGTHS {
        labels.push(b.mark(state(PcSource::R11, BOTH, Commit::LwpTouching))?);
        b.asm.mov(Builder::slot(Slot::Go), r11)?;
        b.mark(state(PcSource::ContextPc, BOTH, Commit::LwpTouching))?;
        b.asm.lea(r11, qword_ptr(rcx + ((1 << length) - 1)))?;
        if length + 1 < LENGTHS {
            b.asm.jmp(common)?;
        }
    }
    b.asm.set_label(&mut common)?;
    b.asm.zero_bytes()?;
    Ok(std::array::from_fn(|length| labels[length]))
}

/// rax, and flags where they are kept, are in their slots.
fn searching(flags: bool, commit: Commit) -> AppState {
    let spills = match flags {
        true => RAX_AND_FLAGS,
        false => Spills { rax: true, ..BOTH },
    };
    state(PcSource::ContextPc, spills, commit)
}

/// Entry `way` of the set at r11.
pub(super) fn entry(way: usize) -> AsmMemoryOperand {
    qword_ptr(r11 + SETS_AT as i32 + way as i32 * 8).gs()
}

/// Word `word` of the change at rax.
pub(super) fn change(word: usize) -> AsmMemoryOperand {
    qword_ptr(rax + UNDO_AT as i32 + word as i32 * 8).gs()
}

/// r11 := the place of the set of the access at rcx; rcx := what stands for its line; rax := the
/// change that comes next, of that line by the instruction at hand. Goes to `other` where it is
/// more than one line.
fn find(b: &mut Builder, other: CodeLabel) -> Emit {
    let line_mask = line_mask(b);
    let set_mask = qword_ptr(b.layout.set_mask() as i32);
    let asm = &mut b.asm;
    asm.mov(Builder::slot(Slot::LwpAddress), rcx)?;
    asm.xor(r11, rcx)?;
    asm.test(line_mask, r11)?;
    asm.jne(other)?;
    asm.mov(r11, Builder::slot(Slot::Go))?;
    asm.mov(eax, Builder::slot32(Slot::LwpUndos))?;
    asm.and(eax, UNDOS as i32 - 1)?;
    asm.shl(eax, UNDO_BYTES.trailing_zeros())?;
    asm.mov(change(0), r11)?;
    asm.mov(r11, rcx)?;
    asm.and(r11, set_mask)?;
    asm.and(rcx, line_mask)?;
    asm.neg(rcx)?;
    asm.mov(change(1), rcx)
}

/// Puts the line in rcx first in its set; those before it, up to `way`, move on. Changes rax.
pub(super) fn move_on(b: &mut Builder, way: usize) -> Emit {
    for way in (1..=way).rev() {
        b.asm.mov(rax, entry(way - 1))?;
        b.asm.mov(entry(way), rax)?;
    }
    b.asm.mov(entry(0), rcx)
}

/// The line is not in the set, unless it is the first, which the check would have found.
fn missing(b: &mut Builder, flags: bool, first: &mut CodeLabel, other: CodeLabel) -> Emit {
    let mut tight = b.asm.create_label();
    let kept = Spills { flags, ..FEW };
    let length = set_length(b);
    let asm = &mut b.asm;
    asm.cmp(rcx, entry(0))?;
    asm.je(*first)?;
    asm.cmp(length, WAYS as i32 * 8)?;
    asm.jne(other)?;
    for (slot, register) in [(Slot::Rdx, rdx), (Slot::Rsi, rsi), (Slot::Rdi, rdi)] {
        asm.mov(Builder::slot(slot), register)?;
    }
    asm.mov(rdx, Builder::slot(Slot::LwpNotes))?;
    b.mark(state(PcSource::ContextPc, kept, Commit::LwpTouching))?;
    b.asm.cmp(edx, Builder::slot32(Slot::LwpMostNotes))?;
    b.asm.jae(tight)?;
    note(b)?;
    b.mark(state(PcSource::ContextPc, kept, Commit::LwpMoving))?;
    move_on(b, WAYS - 1)?;
    b.asm.mov(Builder::slot(Slot::LwpNotes), rdx)?;
    b.mark(state(PcSource::ContextPc, kept, Commit::LwpMoved))?;
    b.asm.inc(Builder::slot(Slot::LwpUndos))?;
    b.mark(state(PcSource::ContextPc, kept, Commit::LwpTouching))?;
    back(b)?;
    b.asm.set_label(first)?;
    leave(b, flags)?;
    b.asm.set_label(&mut tight)?;
    b.asm.zero_bytes()?;
    b.mark(state(PcSource::ContextPc, kept, Commit::LwpTouching))?;
    back(b)?;
    b.asm.jmp(other)
}

/// Brings rdx, rsi and rdi back.
fn back(b: &mut Builder) -> Emit {
    for (slot, register) in [(Slot::Rdx, rdx), (Slot::Rsi, rsi), (Slot::Rdi, rdi)] {
        b.asm.mov(register, Builder::slot(slot))?;
    }
    b.asm.zero_bytes()
}

/// Writes down that the last line of the set at r11 has to go, and the note of the miss, which
/// counts from when `LwpNotes` does: from rdx, which becomes what that will be. Changes rax, rsi
/// and rdi.
fn note(b: &mut Builder) -> Emit {
    let mut no_load = b.asm.create_label();
    let mut uncounted = b.asm.create_label();
    let mut noted = b.asm.create_label();
    let asm = &mut b.asm;
    asm.mov(rsi, entry(WAYS - 1))?;
    asm.mov(change(3), rsi)?;
    asm.mov(rsi, Builder::slot(Slot::Go))?;
    asm.mov(esi, dword_ptr(rsi + site::META))?;
    asm.mov(edi, 0)?;
    asm.test(esi, META_NO_LOAD as i32)?;
    asm.jne(no_load)?;
    asm.test(esi, 1 << META_COUNTS_SHIFT)?;
    asm.je(uncounted)?;
    asm.mov(edi, 1)?;
    asm.shl(rdi, 32)?;
    asm.set_label(&mut no_load)?;
    asm.zero_bytes()?;
    asm.set_label(&mut uncounted)?;
    asm.add(rdi, WAYS as i32 * 8)?;
    asm.mov(change(2), rdi)?;
    asm.mov(eax, edx)?;
    asm.shl(rax, NOTE_BYTES.trailing_zeros())?;
    asm.lea(rdx, qword_ptr(rdx + rdi - (WAYS as i32 * 8 - 1)))?;
    asm.cmp(Builder::slot(Slot::LwpKeeps), 0)?;
    asm.je(noted)?;
    asm.mov(rdi, Builder::slot(Slot::LwpAddress))?;
    asm.mov(qword_ptr(rax + NOTES_AT as i32).gs(), rdi)?;
    asm.mov(rdi, Builder::slot(Slot::Go))?;
    asm.mov(rdi, qword_ptr(rdi + site::PC))?;
    asm.shl(rdi, PC_SHIFT)?;
    asm.or(rdi, rsi)?;
    asm.mov(qword_ptr(rax + NOTES_AT as i32 + 8).gs(), rdi)?;
    asm.set_label(&mut noted)?;
    asm.zero_bytes()
}

/// Goes on where the site says.
fn leave(b: &mut Builder, flags: bool) -> Emit {
    b.asm.zero_bytes()?;
    b.mark(searching(flags, Commit::LwpTouching))?;
    if flags {
        restore_flags(b)?;
    }
    b.asm.mov(rax, Builder::slot(Slot::Rax))?;
    b.asm.mov(rcx, Builder::slot(Slot::Rcx))?;
    b.asm.jmp(Builder::slot(Slot::Go))
}
