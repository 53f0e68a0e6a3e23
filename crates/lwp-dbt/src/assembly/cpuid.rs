//! CPUID with a known answer. Every program executes the same CPUID instructions when its C library
//! starts, and a request to the host costs a hundred times as much as this routine.

use iced_x86::IcedError;
use iced_x86::code_asm::{
    CodeLabel, dword_ptr, eax, ebx, ecx, edx, qword_ptr, r8, r8d, r9, r9d, r10, r11, r11d, rcx,
    rdi, rdx, rsi,
};

use super::{ALL, BOTH, Builder, begin_request, emit_table_jump, restore_all, state};
use crate::context::{KnownCpuid, Layout, RequestKind, Slot};
use crate::state_map::{Commit, PcSource, Spills};

const R11: Spills = Spills { rcx: false, ..BOTH };

/// Ask for CPUID at the pc in r11, whose application value is in its slot; rcx is the
/// application's.
///
/// ```text
/// all registers saved, as before a request
/// r8d := leaf;  r9d := subleaf;  rdx := number of known answers;  r11 := the first
/// next:  rdx = 0 --> ring;  rdx := rdx - 1
///        leaf is this one's, and subleaf too where it matters --> found
///        r11 := the next;  --> next
/// found: all registers restored;  eax, ebx, edx, ecx := answer
/// done:  on to the pc behind the instruction, through the table
/// real:  all registers restored;  cpuid;  --> done
/// ```
///
/// Until the last register of the answer is there, the saved ones hold, and nothing has been
/// executed.
pub(super) fn emit(
    b: &mut Builder,
    layout: Layout,
    ring: CodeLabel,
) -> Result<CodeLabel, IcedError> {
    let start = begin_request(b)?;
    let asm = &mut b.asm;
    let mut next = asm.create_label();
    let mut miss = asm.create_label();
    let mut leaf = asm.create_label();
    let mut other = asm.create_label();
    let mut found = asm.create_label();
    let mut real = asm.create_label();
    let mut done = asm.create_label();
    asm.lea(r10, qword_ptr(r11 + 2))?;
    asm.mov(Builder::slot(Slot::Next), r10)?;
    asm.mov(r8d, eax)?;
    asm.mov(r9d, ecx)?;
    asm.mov(edx, dword_ptr(layout.known_cpuids() as i32))?;
    asm.mov(r11d, layout.known_cpuids() as u32 + KnownCpuid::FIRST as u32)?;
    asm.set_label(&mut next)?;
    asm.mov(rcx, rdx)?;
    asm.jrcxz(miss)?;
    asm.lea(rdx, qword_ptr(rdx - 1))?;
    asm.mov(rcx, qword_ptr(r11 + KnownCpuid::MINUS_LEAF))?;
    asm.lea(rcx, qword_ptr(rcx + r8))?;
    asm.jrcxz(leaf)?;
    asm.set_label(&mut other)?;
    asm.lea(r11, qword_ptr(r11 + KnownCpuid::BYTES as i32))?;
    asm.jmp(next)?;
    asm.set_label(&mut miss)?;
    asm.jmp(ring)?;
    asm.set_label(&mut leaf)?;
    asm.mov(rcx, qword_ptr(r11 + KnownCpuid::BY_SUBLEAF))?;
    asm.jrcxz(found)?;
    asm.lea(rcx, qword_ptr(rcx - 2))?;
    asm.jrcxz(real)?;
    asm.mov(rcx, qword_ptr(r11 + KnownCpuid::MINUS_SUBLEAF))?;
    asm.lea(rcx, qword_ptr(rcx + r9))?;
    asm.jrcxz(found)?;
    asm.jmp(other)?;
    asm.set_label(&mut found)?;
    for (slot, register) in
        [(Slot::Rdi, rdi), (Slot::Rsi, rsi), (Slot::R10, r10), (Slot::R8, r8), (Slot::R9, r9)]
    {
        asm.mov(register, Builder::slot(slot))?;
    }
    asm.mov(eax, dword_ptr(r11 + KnownCpuid::ANSWER))?;
    asm.mov(ebx, dword_ptr(r11 + KnownCpuid::ANSWER + 4))?;
    asm.mov(edx, dword_ptr(r11 + KnownCpuid::ANSWER + 12))?;
    asm.mov(ecx, dword_ptr(r11 + KnownCpuid::ANSWER + 8))?;
    b.mark(state(PcSource::ContextNext, R11, Commit::None))?;
    b.asm.set_label(&mut done)?;
    b.asm.mov(Builder::slot32(Slot::Kind), RequestKind::Dispatch as u32)?;
    b.asm.mov(Builder::slot(Slot::Rcx), rcx)?;
    b.mark(state(PcSource::ContextNext, BOTH, Commit::None))?;
    b.asm.mov(rcx, Builder::slot(Slot::Next))?;
    b.mark(state(PcSource::Rcx, BOTH, Commit::None))?;
    emit_table_jump(b, layout)?;

    b.mark(state(PcSource::ContextPc, ALL, Commit::Mailbox))?;
    b.asm.set_label(&mut real)?;
    restore_all(b)?;
    b.asm.mov(rcx, Builder::slot(Slot::Rcx))?;
    b.asm.cpuid()?;
    b.mark(state(PcSource::ContextNext, R11, Commit::None))?;
    b.asm.jmp(done)?;
    Ok(start)
}
