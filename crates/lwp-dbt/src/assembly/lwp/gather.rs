//! Copying memory for a kept sample, step by step: see [`crate::context::gather`].
//!
//! ```text
//! rsi: the step, rdi: where the next piece goes, r8: the end of the room, r9: steps left,
//! r10: the values, r11: kept, rbx: the number of value a, rcx: value b, rdx: the offset
//! ```

use iced_x86::code_asm::{
    CodeLabel, byte_ptr, dword_ptr, eax, ebx, ecx, qword_ptr, r8, r9, r9d, r10, rax, rbx, rcx, rdi,
    rdx, rsi,
};

use crate::assembly::{Builder, Emit};
use crate::context::gather::{
    FACT_BYTES, FACT_SHIFT, FACT_VALUE, FACT_WORDS, FACTS_AT, MOST_DONE, MOST_TEXT, Op, PIECE_HEAD,
    STEP_BYTES, STEPS_AT, VALUES_AT,
};
use crate::context::kept::{KEPT_AT, KEPT_BYTES};
use crate::context::{KnownCut, Slot};

/// Does the steps, from rdi on, and goes to `done`; or goes to `host`. A fault is the host's.
pub(super) fn gather(b: &mut Builder, host: CodeLabel, done: CodeLabel) -> Emit {
    let mut each = b.asm.create_label();
    let mut next = b.asm.create_label();
    let mut store = b.asm.create_label();
    begin(b)?;
    b.asm.set_label(&mut each)?;
    fetch(b, host)?;
    values(b, store)?;
    copies(b, host, next)?;
    know(b, host, next)?;
    jumps(b, next)?;
    // Only the end is left.
    b.asm.cmp(eax, Op::End as i32)?;
    b.asm.je(done)?;
    b.asm.jmp(host)?;
    b.asm.set_label(&mut store)?;
    b.asm.mov(qword_ptr(r10 + rbx * 8), rax)?;
    b.asm.set_label(&mut next)?;
    b.asm.add(rsi, STEP_BYTES as i32)?;
    b.asm.jmp(each)
}

fn begin(b: &mut Builder) -> Emit {
    let asm = &mut b.asm;
    asm.mov(r10, Builder::slot(Slot::This))?;
    asm.lea(r8, qword_ptr(r10 + (KEPT_AT + KEPT_BYTES) as i32))?;
    asm.lea(rsi, qword_ptr(r10 + STEPS_AT as i32))?;
    asm.add(r10, VALUES_AT as i32)?;
    asm.mov(r9d, MOST_DONE)
}

/// Takes the next step apart; eax := its kind.
fn fetch(b: &mut Builder, host: CodeLabel) -> Emit {
    let asm = &mut b.asm;
    asm.sub(r9, 1)?;
    asm.jz(host)?;
    asm.movzx(eax, byte_ptr(rsi))?;
    asm.movzx(ebx, byte_ptr(rsi + 1))?;
    asm.movzx(ecx, byte_ptr(rsi + 2))?;
    asm.mov(rcx, qword_ptr(r10 + rcx * 8))?;
    asm.movsxd(rdx, dword_ptr(rsi + 4))
}

/// Steps that set a value: they go to `store` with it in rax.
fn values(b: &mut Builder, store: CodeLabel) -> Emit {
    type Work = fn(&mut Builder) -> Emit;
    let all: [(Op, Work); 7] = [
        (Op::Word, |b| b.asm.mov(rax, qword_ptr(rcx + rdx))),
        (Op::Half, |b| b.asm.movsxd(rax, dword_ptr(rcx + rdx))),
        (Op::Byte, |b| b.asm.movzx(eax, byte_ptr(rcx + rdx))),
        (Op::Set, |b| b.asm.mov(rax, qword_ptr(rsi + 8))),
        (Op::Add, |b| b.asm.lea(rax, qword_ptr(rcx + rdx))),
        (Op::And, |b| {
            b.asm.mov(rax, rcx)?;
            b.asm.and(rax, qword_ptr(rsi + 8))
        }),
        (Op::Index, |b| {
            b.asm.movzx(eax, byte_ptr(rsi + 3))?;
            b.asm.mov(rax, qword_ptr(r10 + rax * 8))?;
            b.asm.imul_2(rax, qword_ptr(rsi + 8))?;
            b.asm.add(rax, rcx)
        }),
    ];
    for (op, work) in all {
        let mut other = b.asm.create_label();
        b.asm.cmp(eax, op as i32)?;
        b.asm.jne(other)?;
        work(b)?;
        b.asm.jmp(store)?;
        b.asm.set_label(&mut other)?;
        b.asm.zero_bytes()?;
    }
    Ok(())
}

/// Steps that copy.
fn copies(b: &mut Builder, host: CodeLabel, next: CodeLabel) -> Emit {
    let asm = &mut b.asm;
    let mut text = asm.create_label();
    let mut other = asm.create_label();
    let mut more = asm.create_label();
    asm.cmp(eax, Op::Copy as i32)?;
    asm.jne(text)?;
    asm.add(rcx, rdx)?;
    asm.mov(rdx, qword_ptr(rsi + 8))?;
    asm.lea(rax, qword_ptr(rdi + rdx + PIECE_HEAD as i32))?;
    asm.cmp(rax, r8)?;
    asm.ja(host)?;
    asm.mov(qword_ptr(rdi), rcx)?;
    asm.mov(qword_ptr(rdi + 8), rdx)?;
    asm.add(rdi, PIECE_HEAD as i32)?;
    asm.set_label(&mut more)?;
    asm.sub(rdx, 8)?;
    asm.jl(next)?;
    asm.mov(rax, qword_ptr(rcx))?;
    asm.mov(qword_ptr(rdi), rax)?;
    asm.add(rcx, 8)?;
    asm.add(rdi, 8)?;
    asm.jmp(more)?;
    asm.set_label(&mut text)?;
    asm.cmp(eax, Op::Text as i32)?;
    asm.jne(other)?;
    copy_text(b, host, next)?;
    b.asm.set_label(&mut other)?;
    b.asm.zero_bytes()
}

/// Copies the words with the text at rcx, which ends in the first of them with a zero behind its
/// beginning.
fn copy_text(b: &mut Builder, host: CodeLabel, next: CodeLabel) -> Emit {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const TOPS: u64 = ONES << 7;
    let asm = &mut b.asm;
    let mut more = asm.create_label();
    let mut ended = asm.create_label();
    // rbx: 1 in each bit of the bytes before the text.
    asm.lea(rax, qword_ptr(rdi + (MOST_TEXT + PIECE_HEAD) as i32))?;
    asm.cmp(rax, r8)?;
    asm.ja(host)?;
    asm.mov(rdx, rcx)?;
    asm.and(ecx, 7)?;
    asm.sub(rdx, rcx)?;
    asm.shl(ecx, 3u32)?;
    asm.mov(rbx, -1i64)?;
    asm.shl(rbx, iced_x86::code_asm::cl)?;
    asm.not(rbx)?;
    asm.mov(qword_ptr(rdi), rdx)?;
    asm.mov(qword_ptr(rdi + 8), 0)?;
    asm.set_label(&mut more)?;
    asm.mov(rcx, qword_ptr(rdi + 8))?;
    asm.cmp(ecx, MOST_TEXT as i32)?;
    asm.jae(host)?;
    asm.mov(rax, qword_ptr(rdx + rcx))?;
    asm.mov(qword_ptr(rdi + rcx + PIECE_HEAD as i32), rax)?;
    asm.add(qword_ptr(rdi + 8), 8)?;
    // A byte is 0 if it borrows and had its top bit clear.
    asm.or(rax, rbx)?;
    asm.mov(rbx, rax)?;
    asm.not(rbx)?;
    asm.mov(rcx, ONES)?;
    asm.sub(rax, rcx)?;
    asm.and(rbx, rax)?;
    asm.mov(rax, TOPS)?;
    asm.test(rbx, rax)?;
    asm.mov(ebx, 0)?;
    asm.jnz(ended)?;
    asm.jmp(more)?;
    asm.set_label(&mut ended)?;
    asm.mov(rcx, qword_ptr(rdi + 8))?;
    asm.lea(rdi, qword_ptr(rdi + rcx + PIECE_HEAD as i32))?;
    asm.jmp(next)
}

/// The step that compares with facts.
fn know(b: &mut Builder, host: CodeLabel, next: CodeLabel) -> Emit {
    let asm = &mut b.asm;
    let mut other = asm.create_label();
    let mut second = asm.create_label();
    let value = |index: usize| qword_ptr(r10 + (FACT_VALUE as i32 + index as i32) * 8);
    asm.cmp(eax, Op::Know as i32)?;
    asm.jne(other)?;
    asm.mov(rcx, value(0))?;
    asm.mov(rax, KnownCut::HASH)?;
    asm.imul_2(rax, rcx)?;
    asm.shr(rax, FACT_SHIFT)?;
    asm.shl(eax, FACT_BYTES.trailing_zeros())?;
    asm.mov(rdx, Builder::slot(Slot::This))?;
    asm.lea(rdx, qword_ptr(rdx + rax + FACTS_AT as i32))?;
    for (place, miss) in [(0, second), (1, host)] {
        if place == 1 {
            asm.set_label(&mut second)?;
            asm.xor(rdx, FACT_BYTES as i32)?;
        }
        for index in 0..FACT_WORDS {
            asm.mov(rcx, value(index))?;
            asm.cmp(rcx, qword_ptr(rdx + index as i32 * 8))?;
            asm.jne(miss)?;
        }
        asm.jmp(next)?;
    }
    asm.set_label(&mut other)?;
    asm.zero_bytes()
}

/// Steps that go on elsewhere.
fn jumps(b: &mut Builder, next: CodeLabel) -> Emit {
    let asm = &mut b.asm;
    let mut less = asm.create_label();
    let mut always = asm.create_label();
    let mut jump = asm.create_label();
    let mut other = asm.create_label();
    asm.cmp(eax, Op::IfEqual as i32)?;
    asm.jne(less)?;
    asm.cmp(rcx, qword_ptr(rsi + 8))?;
    asm.je(jump)?;
    asm.jmp(next)?;
    asm.set_label(&mut less)?;
    asm.cmp(eax, Op::IfLess as i32)?;
    asm.jne(always)?;
    asm.cmp(rcx, qword_ptr(rsi + 8))?;
    asm.jl(jump)?;
    asm.jmp(next)?;
    asm.set_label(&mut always)?;
    asm.cmp(eax, Op::Jump as i32)?;
    asm.jne(other)?;
    asm.set_label(&mut jump)?;
    // Counted from the step behind, as `next` goes there.
    asm.sub(rdx, 1)?;
    asm.shl(rdx, STEP_BYTES.trailing_zeros())?;
    asm.add(rsi, rdx)?;
    asm.jmp(next)?;
    asm.set_label(&mut other)?;
    asm.zero_bytes()
}
