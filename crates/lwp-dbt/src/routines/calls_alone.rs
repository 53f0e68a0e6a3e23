//! System calls that concern code only where they touch it: munmap, mprotect and madvise. Programs make them by the thousand, and
//! nearly always about data.

use iced_x86::IcedError;
use iced_x86::code_asm::{CodeLabel, edx, qword_ptr, r8, r9, r9d, r10, r11, rax, rcx, rdi, rsi};

use super::{ALL, Builder, begin_request, restore_flags, save_flags, state};
use crate::context::{RANGES_AT, Slot, ranges};
use crate::recipe::{Commit, PcSource, Spills};

const FLAGS: Spills = Spills { flags: true, ..ALL };
const SYS_MPROTECT: u32 = 10;
const PROT_EXEC: u32 = 4;

/// Ask for the system call at the pc in r11, whose application value is in its slot, unless it concerns no code: then
/// it is made, and goes on as `Go` says.
///
/// ```text
/// all registers and flags saved, as before a request
/// it makes something executable --> ring
/// rax := end of what it concerns; for each range of code: they overlap --> ring
/// the list of ranges has changed --> ring
/// --> run_and_go
/// ```
pub(super) fn emit(
    b: &mut Builder,
    ring: CodeLabel,
    run_and_go: CodeLabel,
) -> Result<CodeLabel, IcedError> {
    let start = begin_request(b)?;
    b.asm.lea(r10, qword_ptr(r11 + 2))?;
    b.asm.mov(Builder::slot(Slot::Next), r10)?;
    // The number, before it makes room for the flags.
    b.asm.mov(r9, rax)?;
    save_flags(b)?;
    b.mark(state(PcSource::ContextPc, FLAGS, Commit::Mailbox))?;
    let mut ask = b.asm.create_label();
    let mut nobody = b.asm.create_label();
    emit_search(b, ask, nobody)?;
    b.asm.set_label(&mut ask)?;
    restore_flags(b)?;
    b.mark(state(PcSource::ContextPc, ALL, Commit::Mailbox))?;
    b.asm.jmp(ring)?;
    b.mark(state(PcSource::ContextPc, FLAGS, Commit::Mailbox))?;
    b.asm.set_label(&mut nobody)?;
    restore_flags(b)?;
    b.mark(state(PcSource::ContextPc, ALL, Commit::Mailbox))?;
    b.asm.jmp(run_and_go)?;
    Ok(start)
}

/// Goes to `ask` where the call may concern code, else to `nobody`.
fn emit_search(b: &mut Builder, ask: CodeLabel, nobody: CodeLabel) -> super::Emit {
    let word = |offset: u32| qword_ptr((RANGES_AT + offset) as i32).gs();
    let asm = &mut b.asm;
    let mut others = asm.create_label();
    let mut next = asm.create_label();
    let mut apart = asm.create_label();
    let mut end = asm.create_label();
    asm.cmp(r9d, SYS_MPROTECT)?;
    asm.jne(others)?;
    asm.test(edx, PROT_EXEC)?;
    asm.jne(ask)?;
    asm.set_label(&mut others)?;
    asm.mov(r11, word(ranges::STATE))?;
    asm.mov(rcx, word(ranges::COUNT))?;
    asm.jrcxz(ask)?;
    asm.lea(rax, qword_ptr(rsi + 4095))?;
    asm.and(rax, -4096)?;
    asm.add(rax, rdi)?;
    asm.jc(ask)?;
    asm.mov(r8, Builder::slot(Slot::This))?;
    asm.lea(r8, qword_ptr(r8 + (RANGES_AT + ranges::FIRST) as i32))?;
    asm.set_label(&mut next)?;
    asm.lea(rcx, qword_ptr(rcx - 1))?;
    asm.jrcxz(end)?;
    asm.cmp(rdi, qword_ptr(r8 + 8))?;
    asm.jae(apart)?;
    asm.cmp(qword_ptr(r8), rax)?;
    asm.jb(ask)?;
    asm.set_label(&mut apart)?;
    asm.lea(r8, qword_ptr(r8 + 16))?;
    asm.jmp(next)?;
    asm.set_label(&mut end)?;
    asm.cmp(r11, word(ranges::STATE))?;
    asm.jne(ask)?;
    asm.jmp(nobody)
}
