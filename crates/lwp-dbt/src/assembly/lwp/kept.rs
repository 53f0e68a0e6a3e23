//! Samples that a thread takes without the host and keeps for it.
//!
//! The thread saves the instruction's address, its registers and its stack, up to the end that the
//! host found at the previous sample, and continues. Meanwhile, the host unwinds saved stacks; it
//! unwinds the remaining ones when the thread makes a request, or when there is no room for
//! another. This never changes which instructions are sampled.
//!
//! In an interpreter, the thread also copies the interpreter's frames (`gather.rs`). Interpreters
//! update their current line in the middle of a block, so the sampled instruction must be the first
//! of its block: a cut fragment ends just before it.

use iced_x86::code_asm::{
    CodeLabel, byte_ptr, eax, ecx, qword_ptr, r8, r8d, r9, r10, r11, rax, rcx, rdi, rdx, rsi, rsp,
};

use super::event::take_back_to;
use super::{PAGE, gather};
use crate::assembly::{ALL_AND_FLAGS, Builder, Emit, shown_registers, state};
use crate::context::Slot;
use crate::context::kept::{
    BLOCK, COUNT_SHIFT, GATHERED, HEADER, IP, KEPT_AT, KEPT_BYTES, LENGTH, MOST_STACK, NO_STACK,
    RED_ZONE, REGISTER_SLOTS, REGISTERS, STACK, STACK_UNIT,
};
use crate::state_map::{Commit, PcSource};

/// A sample is due in the block at `Pc`: keeps it and goes to `deal`, or goes to `host`; falls
/// through where samples are not kept, or are not of this place.
///
/// ```text
/// rsi: high part left, rdi: low part left, r8: the block's high part, rcx: its low part
/// ```
pub(super) fn keep(b: &mut Builder, host: CodeLabel, deal: CodeLabel) -> Emit {
    let mut done = b.asm.create_label();
    b.asm.cmp(Builder::slot(Slot::StackEnd), 0)?;
    b.asm.je(done)?;
    find(b, host, done)?;
    b.asm.mov(Builder::slot(Slot::LwpNewHigh), rsi)?;
    b.asm.mov(Builder::slot(Slot::LwpNewLow), rdi)?;
    // The stack may have been taken away.
    b.mark(state(PcSource::ContextPc, ALL_AND_FLAGS, Commit::LwpTrying))?;
    make_room(b, host)?;
    write_registers(b)?;
    copy_stack(b)?;
    copy_memory(b, host)?;
    count(b)?;
    b.asm.jmp(deal)?;
    b.asm.set_label(&mut done)?;
    b.asm.zero_bytes()?;
    b.mark(state(PcSource::ContextPc, ALL_AND_FLAGS, Commit::None))?;
    Ok(())
}

/// r11 := the sampled instruction's address; or goes to `host`: the sample is of a branch, or the
/// block has another one, or nothing tells where its instructions are; or to `done`: other memory
/// is to be copied, and it is not the block's first instruction.
fn find(b: &mut Builder, host: CodeLabel, done: CodeLabel) -> Emit {
    let asm = &mut b.asm;
    let mut anywhere = asm.create_label();
    let mut found = asm.create_label();
    asm.cmp(rdi, rcx)?;
    asm.jl(host)?;
    asm.cmp(Builder::slot(Slot::Gather), 0)?;
    asm.je(anywhere)?;
    asm.test(rsi, rsi)?;
    asm.jnz(done)?;
    asm.mov(r11, Builder::slot(Slot::Pc))?;
    asm.jmp(found)?;
    asm.set_label(&mut anywhere)?;
    asm.cmp(Builder::slot(Slot::LwpHighInterval), r8)?;
    asm.jb(host)?;
    asm.mov(r10, Builder::slot(Slot::LwpTable))?;
    asm.test(r10, r10)?;
    asm.jz(host)?;
    asm.movzx(eax, byte_ptr(r10 + rsi + 1))?;
    asm.mov(r11, Builder::slot(Slot::Pc))?;
    asm.add(r11, rax)?;
    asm.set_label(&mut found)?;
    asm.zero_bytes()
}

/// rdi := where the sample goes, r9 := where its part of the stack begins, rcx := the bytes of
/// that; or goes to `host`.
fn make_room(b: &mut Builder, host: CodeLabel) -> Emit {
    let asm = &mut b.asm;
    let mut with_stack = asm.create_label();
    let mut known = asm.create_label();
    asm.lea(r9, qword_ptr(rsp - RED_ZONE as i32))?;
    asm.mov(rcx, Builder::slot(Slot::StackEnd))?;
    asm.cmp(rcx, NO_STACK as i32)?;
    asm.jne(with_stack)?;
    asm.mov(ecx, 0)?;
    asm.jmp(known)?;
    asm.set_label(&mut with_stack)?;
    // The page below may be the stack's guard.
    asm.mov(r8, r9)?;
    asm.xor(r8, rsp)?;
    asm.cmp(r8, PAGE)?;
    asm.jae(host)?;
    asm.and(r9, -(STACK_UNIT as i32))?;
    asm.sub(rcx, r9)?;
    asm.cmp(rcx, MOST_STACK as i32)?;
    asm.ja(host)?;
    asm.set_label(&mut known)?;
    asm.mov(r8d, Builder::slot32(Slot::Kept))?;
    asm.lea(rdx, qword_ptr(r8 + rcx + HEADER as i32))?;
    asm.cmp(rdx, KEPT_BYTES as i32)?;
    asm.ja(host)?;
    asm.mov(rdi, Builder::slot(Slot::This))?;
    asm.lea(rdi, qword_ptr(rdi + r8 + KEPT_AT as i32))
}

fn write_registers(b: &mut Builder) -> Emit {
    b.asm.mov(qword_ptr(rdi + IP), r11)?;
    for (index, slot) in REGISTER_SLOTS.into_iter().enumerate() {
        let at = qword_ptr(rdi + REGISTERS + index as u32 * 8);
        match shown_registers().into_iter().find(|(shown, _)| *shown == slot) {
            Some((_, register)) => b.asm.mov(at, register)?,
            None => {
                b.asm.mov(rax, Builder::slot(slot))?;
                b.asm.mov(at, rax)?;
            }
        }
    }
    b.asm.mov(rax, Builder::slot(Slot::Pc))?;
    b.asm.mov(qword_ptr(rdi + BLOCK), rax)?;
    b.asm.mov(qword_ptr(rdi + STACK), r9)?;
    b.asm.mov(qword_ptr(rdi + LENGTH), rcx)
}

/// Copies rcx bytes from r9; rdi := the place behind them, less the header. String instructions
/// would go where the program's direction flag says.
fn copy_stack(b: &mut Builder) -> Emit {
    let asm = &mut b.asm;
    let mut next = asm.create_label();
    let mut done = asm.create_label();
    asm.test(rcx, rcx)?;
    asm.jz(done)?;
    asm.set_label(&mut next)?;
    for offset in (0..STACK_UNIT as i32).step_by(8) {
        asm.mov(rax, qword_ptr(r9 + offset))?;
        asm.mov(qword_ptr(rdi + HEADER as i32 + offset), rax)?;
    }
    asm.add(r9, STACK_UNIT as i32)?;
    asm.add(rdi, STACK_UNIT as i32)?;
    asm.sub(rcx, STACK_UNIT as i32)?;
    asm.jnz(next)?;
    asm.set_label(&mut done)?;
    asm.zero_bytes()
}

/// Copies what the steps say, if there are any, and notes how much that is; r10 := what
/// [`Slot::Kept`] is to be.
fn copy_memory(b: &mut Builder, host: CodeLabel) -> Emit {
    let mut copied = b.asm.create_label();
    b.asm.add(rdi, HEADER as i32)?;
    b.asm.mov(r11, rdi)?;
    b.asm.cmp(Builder::slot(Slot::Gather), 0)?;
    b.asm.je(copied)?;
    gather::gather(b, host, copied)?;
    let asm = &mut b.asm;
    asm.set_label(&mut copied)?;
    asm.mov(rdx, Builder::slot(Slot::This))?;
    asm.add(rdx, KEPT_AT as i32)?;
    asm.mov(r10, Builder::slot(Slot::Kept))?;
    asm.mov(r8d, iced_x86::code_asm::r10d)?;
    asm.lea(rax, qword_ptr(rdx + r8))?;
    asm.mov(rcx, rdi)?;
    asm.sub(rcx, r11)?;
    asm.mov(qword_ptr(rax + GATHERED), rcx)?;
    asm.sub(rdi, rdx)?;
    asm.sub(r10, r8)?;
    asm.add(r10, rdi)?;
    asm.mov(rax, 1u64 << COUNT_SHIFT)?;
    asm.add(r10, rax)
}

/// Starts the next interval behind the sample, deals the rest of the countdown out to nobody, and
/// counts the sample as kept, last: until then it is as if it were still to be taken.
fn count(b: &mut Builder) -> Emit {
    b.asm.mov(rsi, Builder::slot(Slot::LwpNewHigh))?;
    b.asm.mov(rdi, Builder::slot(Slot::LwpNewLow))?;
    b.mark(state(PcSource::ContextPc, ALL_AND_FLAGS, Commit::Dealing))?;
    b.asm.add(rsi, Builder::slot(Slot::LwpHighInterval))?;
    take_back_to(b)?;
    b.asm.mov(Builder::slot(Slot::Kept), r10)?;
    b.mark(state(PcSource::ContextPc, ALL_AND_FLAGS, Commit::None))?;
    Ok(())
}
