//! Events that the thread notes before the block in which they are due, and records when the next
//! block begins.
//!
//! Before the block's first instruction, it is known where an event is due in it. The block then
//! runs as usual, but with every word of the countdown negative, so that the next block, whatever
//! it counts, comes here first. By then, the instruction has retired, and the target of its branch
//! is known. If the thread is stopped in between, the host settles the note: if the instruction has
//! retired, it reports the event to the unit; if not, it discards the note.

use iced_x86::code_asm::{
    CodeLabel, byte_ptr, eax, ebx, ecx, edx, qword_ptr, r8, r9, r9d, r10, r11, rax, rbx, rcx, rdi,
    rdx, rsi,
};

use super::event;
use super::give_nothing;
use super::pace::pace;
use super::unit::{self, draw, write_record};
use crate::assembly::{ALL_AND_FLAGS, restore_flags};
use crate::assembly::{Builder, Emit, restore_all, state};
use crate::context::Slot;
use crate::routines::{CHARGE_BYTES, NOTES};
use crate::state_map::{Commit, PcSource};

/// Third byte of the code that charges a block where the flags are dead.
const SUBTRACTS: i32 = 0x81;

/// An event is due in the block at `Pc`: notes it and lets the block run, or goes to `cut`, or
/// where the record's memory is not what it should be to `host`.
///
/// ```text
/// rsi: high part left, rdi: low part left, r8: the block's high part, rcx: its low part
/// ```
pub(super) fn note(b: &mut Builder, cut: CodeLabel, host: CodeLabel) -> Emit {
    b.asm.cmp(Builder::slot32(Slot::LwpEvents), 1)?;
    b.asm.jne(cut)?;
    b.asm.mov(Builder::slot(Slot::LwpNewHigh), rsi)?;
    b.asm.mov(Builder::slot(Slot::LwpNewLow), rdi)?;
    event::try_memory(b, host)?;
    see_room(b, cut)?;
    find(b, cut)?;
    // Until the block goes on, everything is as if nothing had been noted.
    b.mark(state(PcSource::ContextPc, ALL_AND_FLAGS, Commit::Dealing))?;
    let asm = &mut b.asm;
    asm.sub(rsi, r8)?;
    asm.sub(rdi, r10)?;
    asm.mov(Builder::slot(Slot::LwpHigh), rsi)?;
    asm.mov(Builder::slot(Slot::LwpLow), rdi)?;
    asm.mov(Builder::slot(Slot::LwpNoteIndex), rdx)?;
    asm.mov(Builder::slot(Slot::LwpNoteIp), r11)?;
    asm.mov(Builder::slot(Slot::LwpNoteFall), r9)?;
    asm.mov(eax, Builder::slot32(Slot::LwpWeight))?;
    asm.mov(Builder::slot(Slot::LwpNoteWeight), rax)?;
    asm.mov(rax, Builder::slot(Slot::Pc))?;
    asm.mov(Builder::slot(Slot::LwpNoteBlock), rax)?;
    give_nothing(b)?;
    b.asm.mov(Builder::slot(Slot::LwpNote), rbx)?;
    go_on_charged(b)
}

/// Sees that the record is an ordinary one: what a full ring or a reached threshold lead to happens
/// right behind the instruction, and not when the block is over.
fn see_room(b: &mut Builder, cut: CodeLabel) -> Emit {
    let mut ordinary = b.asm.create_label();
    let mut special = b.asm.create_label();
    b.mark(state(PcSource::ContextPc, ALL_AND_FLAGS, Commit::LwpTrying))?;
    unit::next_head(b)?;
    unit::see_room(b, special, special)?;
    b.asm.jmp(ordinary)?;
    b.asm.set_label(&mut special)?;
    weigh(b)?;
    b.asm.jmp(cut)?;
    b.asm.set_label(&mut ordinary)?;
    b.asm.zero_bytes()?;
    b.mark(state(PcSource::ContextPc, ALL_AND_FLAGS, Commit::None))?;
    weigh(b)
}

/// rsi: high part left, rdi: low part left, r8: the block's high part, rcx: its low part; as
/// before.
fn weigh(b: &mut Builder) -> Emit {
    b.asm.mov(rsi, Builder::slot(Slot::LwpNewHigh))?;
    b.asm.mov(rdi, Builder::slot(Slot::LwpNewLow))?;
    super::weigh(b)
}

/// rbx := which event, rdx := the instruction's number, r11 := its address, r9 := the address
/// behind the block, or 0, r10 := the block's low part; or goes to `cut`.
fn find(b: &mut Builder, cut: CodeLabel) -> Emit {
    let asm = &mut b.asm;
    let mut branch = asm.create_label();
    let mut found = asm.create_label();
    let mut jumps = asm.create_label();
    asm.mov(r10, Builder::slot(Slot::LwpTable))?;
    asm.test(r10, r10)?;
    asm.jz(cut)?;
    // A shorter interval may end twice in the block.
    asm.cmp(Builder::slot(Slot::LwpHighSpan), r8)?;
    asm.jbe(cut)?;
    asm.cmp(rsi, r8)?;
    asm.jge(branch)?;
    // Both are the host's.
    asm.cmp(rdi, rcx)?;
    asm.jl(cut)?;
    asm.mov(ebx, NOTES[0] as u32)?;
    asm.lea(rdx, qword_ptr(rsi + 1))?;
    asm.jmp(found)?;
    asm.set_label(&mut branch)?;
    asm.mov(ebx, NOTES[1] as u32)?;
    asm.mov(rdx, r8)?;
    asm.set_label(&mut found)?;
    asm.movzx(eax, byte_ptr(r10 + rdx))?;
    asm.mov(r11, Builder::slot(Slot::Pc))?;
    asm.movzx(r9d, byte_ptr(r10))?;
    asm.test(r9, r9)?;
    asm.jz(jumps)?;
    asm.add(r9, r11)?;
    asm.set_label(&mut jumps)?;
    asm.add(r11, rax)?;
    asm.mov(r10, rcx)
}

/// Goes on behind the charge of the block at `Go`, which has been made.
pub(super) fn go_on_charged(b: &mut Builder) -> Emit {
    let asm = &mut b.asm;
    let mut live = asm.create_label();
    asm.mov(rax, Builder::slot(Slot::Go))?;
    asm.movzx(ecx, byte_ptr(rax + 2))?;
    asm.lea(rdx, qword_ptr(rax + CHARGE_BYTES[1] as i32))?;
    asm.cmp(ecx, SUBTRACTS)?;
    asm.jne(live)?;
    asm.lea(rdx, qword_ptr(rax + CHARGE_BYTES[0] as i32))?;
    asm.set_label(&mut live)?;
    asm.mov(Builder::slot(Slot::Go), rdx)?;
    restore_flags(b)?;
    restore_all(b)?;
    b.asm.mov(r11, Builder::slot(Slot::R11))?;
    b.asm.mov(rcx, Builder::slot(Slot::Rcx))?;
    b.asm.jmp(Builder::slot(Slot::Go))
}

/// The block in which the noted event fell is over, and control is at `Pc`: stores its record, or
/// goes to `host`.
pub(super) fn record(b: &mut Builder, host: CodeLabel) -> Emit {
    b.asm.zero_bytes()?;
    b.mark(state(PcSource::ContextPc, ALL_AND_FLAGS, Commit::None))?;
    stage(b)?;
    write_record(b, host, host)?;
    reload(b, host)?;
    event::record(b)
}

/// Stages the contents of the record, as those of an LWPINS; its ip in r11.
fn stage(b: &mut Builder) -> Emit {
    let asm = &mut b.asm;
    let mut staged = asm.create_label();
    let upper = Slot::LwpFirstOfBranch as u32 as i32 + 4;
    asm.mov(rax, 0u64)?;
    asm.mov(Builder::slot(Slot::LwpData), rax)?;
    asm.mov(edx, Builder::slot32(Slot::LwpFirst))?;
    asm.cmp(Builder::slot32(Slot::LwpNote), NOTES[1] as i32)?;
    asm.jne(staged)?;
    asm.mov(rax, Builder::slot(Slot::Pc))?;
    asm.mov(edx, Builder::slot32(Slot::LwpFirstOfBranch))?;
    asm.cmp(rax, Builder::slot(Slot::LwpNoteFall))?;
    asm.cmovne(edx, iced_x86::code_asm::dword_ptr(upper).gs())?;
    asm.set_label(&mut staged)?;
    asm.mov(Builder::slot(Slot::LwpOperand), rax)?;
    asm.mov(Builder::slot32(Slot::LwpRecord), edx)?;
    asm.mov(r11, Builder::slot(Slot::LwpNoteIp))
}

/// Makes ready what the countdown and the random number generator are to be. The block has been
/// charged in full: what it executed behind the event has been taken from the new interval.
fn reload(b: &mut Builder, host: CodeLabel) -> Emit {
    let asm = &mut b.asm;
    let mut low = asm.create_label();
    let mut done = asm.create_label();
    asm.mov(rdx, Builder::slot(Slot::LwpHighInterval))?;
    asm.cmp(Builder::slot32(Slot::LwpNote), NOTES[1] as i32)?;
    asm.cmove(rdx, Builder::slot(Slot::LwpLowInterval))?;
    draw(b, rdx)?;
    let asm = &mut b.asm;
    asm.sub(rdx, Builder::slot(Slot::LwpCounterExcess))?;
    asm.cmp(Builder::slot32(Slot::LwpNote), NOTES[0] as i32)?;
    pace(asm, host)?;
    asm.mov(r8, Builder::slot(Slot::LwpHigh))?;
    asm.mov(rcx, Builder::slot(Slot::LwpLow))?;
    asm.mov(rdi, Builder::slot(Slot::LwpHighBase))?;
    asm.mov(rax, Builder::slot(Slot::LwpLowBase))?;
    asm.cmp(Builder::slot32(Slot::LwpNote), NOTES[1] as i32)?;
    asm.je(low)?;
    asm.lea(r8, qword_ptr(r8 + rdx + 1))?;
    asm.mov(rdi, r11)?;
    asm.jmp(done)?;
    asm.set_label(&mut low)?;
    asm.lea(rcx, qword_ptr(rcx + rdx + 1))?;
    asm.mov(rax, rdx)?;
    asm.set_label(&mut done)?;
    asm.mov(Builder::slot(Slot::LwpNewHigh), r8)?;
    asm.mov(Builder::slot(Slot::LwpNewLow), rcx)?;
    asm.mov(Builder::slot(Slot::LwpNewHighBase), rdi)?;
    asm.mov(Builder::slot(Slot::LwpNewLowBase), rax)
}
