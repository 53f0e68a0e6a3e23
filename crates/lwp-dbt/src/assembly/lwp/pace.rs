//! Events of a clock: how many instructions pass until the next one.
//!
//! Where one clock is counted and instructions are not, the high part of the countdown is the
//! number of instructions in which the clock's event comes due. Core clocks follow from
//! instructions, and reference clocks from core clocks, by divisions whose terms the host has
//! published; their inverses say at which instruction the clock will have passed its next
//! interval.

use iced_x86::code_asm::{
    CodeAssembler, CodeLabel, ecx, edx, qword_ptr, r8, r9, r9d, r11, rax, rbx, rcx, rdx,
};

use crate::assembly::{Builder, Emit};
use crate::context::Slot;

/// The values of [`Slot::LwpClockBase`], and of the high part's base, from which on the host is to
/// publish both anew: bits.
const MOST_CLOCKS: u32 = 31;
const MOST_INSTRUCTIONS: u32 = 40;

/// Works out what the high part is to count until its next event, or goes to `slow`. The zero flag
/// says whether it is the event of the high part that is being recorded.
///
/// rdx is the interval of that event, and becomes what the high part counts down from. r11 becomes
/// its new base. rax, rbx, rcx, r8 and r9 are lost.
///
/// ```text
/// no clock, or another event          --> r11 := rdx
/// passed   := clocks in base + 1 instructions: the last of them is the one that is recorded
/// NewClockBase := passed + rdx        too much --> slow
/// next     := the first instruction with which more than NewClockBase clocks have passed
/// r11      := next - 1;  rdx := r11 - (base + 1)
/// ```
///
/// The base is never begun anew: the host finds in it all instructions since it has published it.
pub(super) fn pace(asm: &mut CodeAssembler, slow: CodeLabel) -> Emit {
    let mut done = asm.create_label();
    let mut reference = asm.create_label();
    let mut cycles = asm.create_label();
    asm.mov(r11, rdx)?;
    asm.mov(rax, Builder::slot(Slot::LwpClockBase))?;
    asm.mov(Builder::slot(Slot::LwpNewClockBase), rax)?;
    asm.jne(done)?;
    asm.mov(rcx, Builder::slot(Slot::LwpCoreDivisor))?;
    asm.test(rcx, rcx)?;
    asm.jz(done)?;
    asm.mov(r8, rdx)?;
    asm.mov(r11, Builder::slot(Slot::LwpHighBase))?;
    asm.lea(rax, qword_ptr(r11 + 1))?;
    asm.shl(rax, 16u32)?;
    asm.add(rax, Builder::slot(Slot::LwpCoreOffset))?;
    asm.mov(edx, 0)?;
    asm.div(rcx)?;
    asm.mov(rcx, Builder::slot(Slot::LwpReferenceClocksAt))?;
    asm.test(rcx, rcx)?;
    asm.jnz(reference)?;
    asm.add(rax, r8)?;
    asm.mov(r9, rax)?;
    asm.shr(rax, MOST_CLOCKS)?;
    asm.jnz(slow)?;
    asm.lea(rax, qword_ptr(r9 + 1))?;
    asm.jmp(cycles)?;
    asm.set_label(&mut reference)?;
    next_reference_clock(asm, slow)?;
    asm.set_label(&mut cycles)?;
    asm.mul(Builder::slot(Slot::LwpCoreDivisor))?;
    // Rounded up: of less than a whole instruction there is none.
    asm.sub(rax, Builder::slot(Slot::LwpCoreOffset))?;
    asm.sbb(rdx, 0)?;
    asm.add(rax, 0xffff)?;
    asm.adc(rdx, 0)?;
    asm.jnz(slow)?;
    asm.shr(rax, 16u32)?;
    asm.lea(rdx, qword_ptr(rax - 2))?;
    asm.sub(rdx, r11)?;
    asm.lea(r11, qword_ptr(rax - 1))?;
    asm.shr(rax, MOST_INSTRUCTIONS)?;
    asm.jnz(slow)?;
    asm.mov(Builder::slot(Slot::LwpNewClockBase), r9)?;
    asm.set_label(&mut done)?;
    asm.zero_bytes()
}

/// rax := the core clocks with which the reference clock will have passed its next interval, of
/// which r8 are to pass from the core clocks in rax on; r9 := the new value of
/// [`Slot::LwpClockBase`]. Keeps r11.
///
/// ```text
/// passed := (rate rax + remainder) / per;  base := passed + r8;  too much --> slow
/// rax    := ((base + 1) per - remainder) / rate, rounded up
/// ```
fn next_reference_clock(asm: &mut CodeAssembler, slow: CodeLabel) -> Emit {
    asm.mov(rcx, Builder::slot(Slot::LwpReferenceRate))?;
    asm.mov(r9d, ecx)?;
    asm.test(r9, r9)?;
    asm.jz(slow)?;
    asm.shr(rcx, 32u32)?;
    asm.mov(rbx, Builder::slot(Slot::LwpClockRest))?;
    asm.shr(rbx, 32u32)?;
    asm.mul(r9)?;
    asm.add(rax, rbx)?;
    asm.adc(rdx, 0)?;
    asm.div(rcx)?;
    asm.add(r8, rax)?;
    asm.mov(rax, r8)?;
    asm.shr(rax, MOST_CLOCKS)?;
    asm.jnz(slow)?;
    asm.lea(rax, qword_ptr(r8 + 1))?;
    asm.mul(rcx)?;
    asm.sub(rax, rbx)?;
    asm.sbb(rdx, 0)?;
    asm.lea(rbx, qword_ptr(r9 - 1))?;
    asm.add(rax, rbx)?;
    asm.adc(rdx, 0)?;
    asm.cmp(rdx, r9)?;
    asm.jae(slow)?;
    asm.div(r9)?;
    asm.mov(r9, r8)?;
    asm.shl(r9, 32u32)
}
