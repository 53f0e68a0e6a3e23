//! An access to a cache line that isn't the one used last in its set.
//!
//! The routine's state map finds the program's instruction by the access's [`site`], the address at
//! which translated code continues.

use iced_x86::IcedError;
use iced_x86::code_asm::{
    AsmMemoryOperand, AsmRegister64, CodeLabel, byte_ptr, dword_ptr, ecx, edi, esi, qword_ptr, r11,
    r11d, rax, rcx, rdi, rdx, rsi,
};

use crate::assembly::{ALL, BOTH, Builder, Emit, saved_registers, state};
use crate::assembly::{restore_flags, save_flags};
use crate::context::{
    META_COUNTS_SHIFT, META_NO_LOAD, MOST_WAYS, NOTE_BYTES, NOTE_GOES_ON, NOTES_AT, RequestKind,
    SETS_AT, Slot, UNDO_AT, UNDO_BYTES, UNDOS,
};
use crate::routines::site;
use crate::state_map::{AppState, Commit, PcSource, Spills};

mod quick;
mod repeat;

/// Position of the pc in a note.
const PC_SHIFT: u32 = 16;
/// The length in [`Slot::LwpMeta`].
const LENGTH: i32 = 0xfff;
/// The registers that are saved.
const FEW: Spills = Spills { rax: true, lookup: true, ..BOTH };
const RAX_AND_FLAGS: Spills = Spills { rax: true, flags: true, ..BOTH };
const WAYS: usize = MOST_WAYS as usize;

fn few() -> [(Slot, AsmRegister64); 4] {
    [(Slot::Rax, rax), (Slot::Rdx, rdx), (Slot::Rsi, rsi), (Slot::Rdi, rdi)]
}

/// Registers but rcx and r11, and flags, are in their slots.
fn looking(commit: Commit) -> AppState {
    state(PcSource::ContextPc, Spills { flags: true, ..FEW }, commit)
}

/// The starts of the routines for accesses.
pub(in crate::assembly) struct Labels {
    /// Of one line, most of the time.
    pub touch: quick::Starts,
    /// Of one line, most of the time, where flags are dead.
    pub touch_dead: quick::Starts,
    /// The start for sets that do not lie as [`quick`] wants them.
    pub touch_any: CodeLabel,
    /// Before a repeated string instruction.
    pub repeat_ready: CodeLabel,
    /// Behind it.
    pub repeat_walk: CodeLabel,
}

pub(super) fn emit(b: &mut Builder, ring: CodeLabel) -> Result<Labels, IcedError> {
    let mut any = b.asm.create_label();
    let touch = quick::emit(b, any, true)?;
    let touch_dead = quick::emit(b, any, false)?;
    let touch_any = enter(b)?;
    b.asm.set_label(&mut any)?;
    emit_any(b, ring)?;
    let repeat_ready = repeat::emit_ready(b, ring)?;
    let repeat_walk = repeat::emit_walk(b)?;
    Ok(Labels { touch, touch_dead, touch_any, repeat_ready, repeat_walk })
}

/// Makes the lines of the access whose site and address are in the context the most recent of their
/// sets, and notes those that were not in the cache. rax and flags are in their slots.
///
/// ```text
/// there may not be room for the notes, and a line is not in the cache --> ask the host
/// each line:  say what is about to change
///             it was nowhere --> note it
///             put it first in its set, the others moving on up to where it was
/// ```
///
/// The instruction has not been executed. Should it never be, the host undoes it all.
fn emit_any(b: &mut Builder, ring: CodeLabel) -> Emit {
    let mut tight = b.asm.create_label();
    let mut next = b.asm.create_label();
    let mut another = b.asm.create_label();
    let mut recent = b.asm.create_label();
    describe(b)?;
    lines(b, tight)?;
    b.asm.set_label(&mut next)?;
    b.asm.mov(Builder::slot(Slot::LwpLine), r11)?;
    find_set(b)?;
    b.asm.mov(rdx, entry(0))?;
    b.asm.cmp(rdx, rax)?;
    b.asm.je(recent)?;
    begin_change(b)?;
    move_to_front(b)?;
    b.asm.set_label(&mut recent)?;
    b.asm.mov(rcx, Builder::slot(Slot::LwpLine))?;
    b.asm.and(rcx, line_mask(b))?;
    b.asm.cmp(rcx, Builder::slot(Slot::LwpLastLine))?;
    b.asm.jne(another)?;
    restore(b)?;
    b.asm.mov(rcx, Builder::slot(Slot::Rcx))?;
    b.asm.jmp(Builder::slot(Slot::Go))?;

    b.asm.set_label(&mut another)?;
    b.asm.zero_bytes()?;
    b.mark(looking(Commit::LwpTouching))?;
    b.asm.mov(r11, rcx)?;
    b.asm.sub(r11, line_mask(b))?;
    b.asm.jmp(next)?;
    b.asm.set_label(&mut tight)?;
    b.asm.zero_bytes()?;
    look(b, next, ring)
}

/// Notes the site in r11 and the address in rcx; rax and flags go to their slots.
fn enter(b: &mut Builder) -> Result<CodeLabel, IcedError> {
    let start = begin(b)?;
    save_flags(b)?;
    b.mark(state(PcSource::ContextPc, RAX_AND_FLAGS, Commit::LwpTouching))?;
    b.asm.mov(Builder::slot(Slot::LwpAddress), rcx)?;
    Ok(start)
}

/// The site is in r11. From the first instruction on it says what is being executed.
fn begin(b: &mut Builder) -> Result<CodeLabel, IcedError> {
    let start = b.mark(state(PcSource::R11, BOTH, Commit::LwpTouching))?;
    b.asm.mov(Builder::slot(Slot::Go), r11)?;
    b.mark(state(PcSource::ContextPc, BOTH, Commit::LwpTouching))?;
    b.asm.mov(Builder::slot(Slot::Rax), rax)?;
    b.mark(state(PcSource::ContextPc, Spills { rax: true, ..BOTH }, Commit::LwpTouching))?;
    Ok(start)
}

/// Copies the site's description of the access to the context.
fn describe(b: &mut Builder) -> Emit {
    b.asm.zero_bytes()?;
    b.mark(state(PcSource::ContextPc, RAX_AND_FLAGS, Commit::LwpTouching))?;
    for (slot, register) in [(Slot::Rdx, rdx), (Slot::Rsi, rsi), (Slot::Rdi, rdi)] {
        b.asm.mov(Builder::slot(slot), register)?;
    }
    b.mark(looking(Commit::LwpTouching))?;
    let asm = &mut b.asm;
    asm.mov(r11, Builder::slot(Slot::Go))?;
    asm.mov(rcx, qword_ptr(r11 + site::PC))?;
    asm.mov(Builder::slot(Slot::Pc), rcx)?;
    for (slot, at) in [(Slot::LwpFragment, site::FRAGMENT), (Slot::LwpMeta, site::META)] {
        asm.mov(ecx, dword_ptr(r11 + at))?;
        asm.mov(Builder::slot(slot), rcx)?;
    }
    asm.movzx(ecx, byte_ptr(r11 + site::INDEX))?;
    asm.mov(Builder::slot(Slot::LwpIndex), rcx)?;
    asm.mov(rcx, Builder::slot(Slot::LwpAddress))
}

fn restore(b: &mut Builder) -> Emit {
    restore_flags(b)?;
    for (slot, register) in few() {
        b.asm.mov(register, Builder::slot(slot))?;
    }
    Ok(())
}

fn line_mask(b: &Builder) -> AsmMemoryOperand {
    qword_ptr(b.layout.line_mask() as i32)
}

fn set_length(b: &Builder) -> AsmMemoryOperand {
    qword_ptr(b.layout.set_length() as i32)
}

/// Entry `way` of the set at rcx.
fn entry(way: usize) -> AsmMemoryOperand {
    qword_ptr(rcx + SETS_AT as i32 + way as i32 * 8).gs()
}

/// Word `word` of the change at rsi.
fn change(word: usize) -> AsmMemoryOperand {
    qword_ptr(rsi + UNDO_AT as i32 + word as i32 * 8).gs()
}

/// r11 := the address in rcx; finds out which line is the access's last. Goes to `tight` where
/// there may not be room for a note of each.
fn lines(b: &mut Builder, tight: CodeLabel) -> Emit {
    let (line_mask, asm) = (line_mask(b), &mut b.asm);
    asm.mov(r11, rcx)?;
    asm.mov(edi, Builder::slot32(Slot::LwpMeta))?;
    asm.and(edi, LENGTH)?;
    asm.lea(rdi, qword_ptr(rcx + rdi - 1))?;
    asm.mov(rsi, line_mask)?;
    asm.and(rdi, rsi)?;
    asm.and(rcx, rsi)?;
    asm.mov(Builder::slot(Slot::LwpLastLine), rdi)?;
    asm.sub(rdi, rcx)?;
    asm.pext(rdi, rdi, rsi)?;
    asm.add(edi, Builder::slot32(Slot::LwpNotes))?;
    asm.cmp(edi, Builder::slot32(Slot::LwpMostNotes))?;
    asm.jae(tight)
}

/// rax := what stands for the line of the address in r11;  rcx := where its set begins
fn find_set(b: &mut Builder) -> Emit {
    let (line_mask, set_mask) = (line_mask(b), qword_ptr(b.layout.set_mask() as i32));
    let places = qword_ptr(b.layout.set_places() as i32);
    b.asm.mov(rax, r11)?;
    b.asm.and(rax, line_mask)?;
    b.asm.neg(rax)?;
    b.asm.pext(rcx, r11, set_mask)?;
    b.asm.pdep(rcx, rcx, places)
}

/// rsi := the change that comes next, of the line in rax by the instruction at hand
fn begin_change(b: &mut Builder) -> Emit {
    let asm = &mut b.asm;
    asm.mov(rsi, Builder::slot(Slot::LwpUndos))?;
    asm.and(esi, UNDOS as i32 - 1)?;
    asm.shl(esi, UNDO_BYTES.trailing_zeros())?;
    asm.mov(rdi, Builder::slot(Slot::Go))?;
    asm.mov(change(0), rdi)?;
    asm.mov(change(1), rax)
}

/// Puts the line in rax first in its set at rcx, before that in rdx, and notes it if it was
/// nowhere.
fn move_to_front(b: &mut Builder) -> Emit {
    let mut found: [CodeLabel; WAYS] = std::array::from_fn(|_| b.asm.create_label());
    let mut moves: [CodeLabel; WAYS] = std::array::from_fn(|_| b.asm.create_label());
    let mut missing = b.asm.create_label();
    let set_length = set_length(b);
    for (way, &place) in found.iter().enumerate().skip(1) {
        b.asm.cmp(rax, entry(way))?;
        b.asm.je(place)?;
        // The places that a set of other size does not use hold no line.
        if (way + 1).is_power_of_two() && way + 1 < WAYS {
            b.asm.cmp(set_length, (way as i32 + 1) * 8)?;
            b.asm.jbe(missing)?;
        }
    }
    b.asm.set_label(&mut missing)?;
    note(b)?;
    make_room(b, &moves)?;
    for way in (1..WAYS).rev() {
        b.asm.set_label(&mut found[way])?;
        b.asm.zero_bytes()?;
        b.mark(looking(Commit::LwpTouching))?;
        b.asm.mov(change(2), way as i32 * 8)?;
        b.mark(looking(Commit::LwpMoving))?;
        b.asm.mov(edi, 0)?;
        b.asm.jmp(moves[way])?;
    }
    for way in (2..WAYS).rev() {
        b.asm.set_label(&mut moves[way])?;
        b.asm.mov(r11, entry(way - 1))?;
        b.asm.mov(entry(way), r11)?;
    }
    b.asm.set_label(&mut moves[1])?;
    b.asm.mov(entry(1), rdx)?;
    b.asm.set_label(&mut moves[0])?;
    b.asm.mov(entry(0), rax)?;
    b.asm.add(rdi, Builder::slot(Slot::LwpNotes))?;
    b.asm.mov(Builder::slot(Slot::LwpNotes), rdi)?;
    b.mark(looking(Commit::LwpMoved))?;
    b.asm.inc(Builder::slot(Slot::LwpUndos))?;
    b.mark(looking(Commit::LwpTouching))?;
    Ok(())
}

/// Writes the note of a miss of the line in rax, which counts from when `LwpNotes` does.
fn note(b: &mut Builder) -> Emit {
    let mut no_load = b.asm.create_label();
    let mut noted = b.asm.create_label();
    let asm = &mut b.asm;
    // Only the access's first miss counts.
    asm.mov(edi, Builder::slot32(Slot::LwpMeta))?;
    asm.and(edi, (META_NO_LOAD | 1 << META_COUNTS_SHIFT | NOTE_GOES_ON as u32) as i32)?;
    asm.cmp(edi, 1 << META_COUNTS_SHIFT)?;
    asm.mov(edi, 0)?;
    asm.jne(no_load)?;
    asm.mov(edi, 1)?;
    asm.shl(rdi, 32)?;
    asm.set_label(&mut no_load)?;
    asm.add(rdi, 1)?;
    asm.mov(Builder::slot(Slot::LwpNoted), rdi)?;
    asm.cmp(Builder::slot(Slot::LwpKeeps), 0)?;
    asm.je(noted)?;
    asm.mov(r11d, Builder::slot32(Slot::LwpNotes))?;
    asm.shl(r11, NOTE_BYTES.trailing_zeros())?;
    asm.mov(rdi, Builder::slot(Slot::LwpLine))?;
    asm.mov(qword_ptr(r11 + NOTES_AT as i32).gs(), rdi)?;
    asm.mov(rdi, Builder::slot(Slot::Pc))?;
    asm.shl(rdi, PC_SHIFT)?;
    asm.or(rdi, Builder::slot(Slot::LwpMeta))?;
    asm.mov(qword_ptr(r11 + NOTES_AT as i32 + 8).gs(), rdi)?;
    asm.set_label(&mut noted)?;
    asm.or(Builder::slot32(Slot::LwpMeta), NOTE_GOES_ON as i32)
}

/// The line in rax was nowhere in its set: the last one has to go. Moves those before it, goes on
/// at the `moves` that are left, with 1 in rdi.
fn make_room(b: &mut Builder, moves: &[CodeLabel; WAYS]) -> Emit {
    let mut again = b.asm.create_label();
    let mut only = b.asm.create_label();
    let length = set_length(b);
    let asm = &mut b.asm;
    asm.mov(rdi, length)?;
    asm.mov(r11, qword_ptr(rcx + rdi + SETS_AT as i32 - 8).gs())?;
    asm.cmp(edi, 8)?;
    asm.mov(change(3), r11)?;
    asm.mov(r11, Builder::slot(Slot::LwpNoted))?;
    asm.lea(r11, qword_ptr(r11 + rdi - 1))?;
    asm.mov(change(2), r11)?;
    b.mark(looking(Commit::LwpMoving))?;
    let asm = &mut b.asm;
    asm.je(only)?;
    asm.mov(rdi, Builder::slot(Slot::LwpNoted))?;
    asm.cmp(length, 64)?;
    asm.je(moves[7])?;
    asm.mov(rdi, length)?;
    asm.set_label(&mut again)?;
    asm.sub(edi, 8)?;
    asm.cmp(edi, 8)?;
    asm.jbe(only)?;
    asm.mov(r11, qword_ptr(rcx + rdi + SETS_AT as i32 - 8).gs())?;
    asm.mov(qword_ptr(rcx + rdi + SETS_AT as i32).gs(), r11)?;
    asm.jmp(again)?;
    asm.set_label(&mut only)?;
    asm.mov(rdi, Builder::slot(Slot::LwpNoted))?;
    asm.cmp(length, 8)?;
    asm.je(moves[0])?;
    asm.jmp(moves[1])
}

/// There may not be room for the notes of the access whose address is in r11. Goes to `next` if all
/// its lines are in the cache, and else asks the host.
fn look(b: &mut Builder, next: CodeLabel, ring: CodeLabel) -> Emit {
    let mut line = b.asm.create_label();
    let mut ways = b.asm.create_label();
    let mut held = b.asm.create_label();
    let mut full = b.asm.create_label();
    let mut all_held = b.asm.create_label();
    let (length, line_mask) = (set_length(b), line_mask(b));
    b.asm.set_label(&mut line)?;
    find_set(b)?;
    let asm = &mut b.asm;
    asm.mov(esi, 0)?;
    asm.set_label(&mut ways)?;
    asm.cmp(rsi, length)?;
    asm.jae(full)?;
    asm.lea(rdi, qword_ptr(rcx + rsi))?;
    asm.add(esi, 8)?;
    asm.cmp(rax, qword_ptr(rdi + SETS_AT as i32).gs())?;
    asm.jne(ways)?;
    asm.set_label(&mut held)?;
    asm.and(r11, line_mask)?;
    asm.cmp(r11, Builder::slot(Slot::LwpLastLine))?;
    asm.je(all_held)?;
    asm.sub(r11, line_mask)?;
    asm.jmp(line)?;
    asm.set_label(&mut all_held)?;
    asm.mov(r11, Builder::slot(Slot::LwpAddress))?;
    asm.jmp(next)?;

    b.asm.set_label(&mut full)?;
    ask(b, ring)
}

/// Asks the host, all else being as the site says.
fn ask(b: &mut Builder, ring: CodeLabel) -> Emit {
    b.asm.zero_bytes()?;
    b.mark(looking(Commit::LwpTouching))?;
    restore(b)?;
    b.mark(state(PcSource::ContextPc, BOTH, Commit::LwpTouching))?;
    for (slot, register) in saved_registers() {
        b.asm.mov(Builder::slot(slot), register)?;
    }
    b.mark(state(PcSource::ContextPc, ALL, Commit::LwpTouching))?;
    b.asm.mov(Builder::slot32(Slot::Kind), RequestKind::LwpNotes as u32)?;
    b.mark(state(PcSource::ContextPc, ALL, Commit::Mailbox))?;
    b.asm.jmp(ring)
}
