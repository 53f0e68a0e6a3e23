//! Events of instructions and branches without the host.
//!
//! When an event is due for the first time at an instruction, the host directs the thread to a cut
//! fragment, and stores it in the thread's context as a [known cut](crate::context::KnownCut). The
//! next time, the thread finds the cut itself; when the fragment has ended, it stores the record
//! and reloads the counter. In special cases, the thread still asks the host.

use iced_x86::IcedError;
use iced_x86::code_asm::{
    CodeAssembler, CodeLabel, dword_ptr, eax, ecx, esi, qword_ptr, r8, r10, r11, rax, rbx, rcx,
    rdi, rdx, rsi,
};

use super::pace::pace;
use super::predicted;
use super::unit::{count_missed, draw, write_record};
use super::{PAGE, RECORD_BYTES, empty_words, resume_at_go, save_rest};
use crate::assembly::{ALL, BOTH, Builder, Emit, emit_table_jump, restore_all, state};
use crate::assembly::{ALL_AND_FLAGS, restore_flags};
use crate::context::{CUT_BYTES, CUTS_AT, KnownCut, LWP_LOW_MAX, LWP_SLOTS, RequestKind, Slot};
use crate::routines::{RECORDED, SAMPLES};
use crate::state_map::{Commit, PcSource, Spills};

/// An event is due in the block at `Pc`: leads the thread to the known cut that ends with it, by
/// way of `resume`, or goes to `host`.
///
/// ```text
/// rsi: high part left, rdi: low part left, r8: the block's high part, rcx: its low part
/// ```
pub(super) fn lead(b: &mut Builder, host: CodeLabel, resume: CodeLabel) -> Emit {
    find(b, host)?;
    try_memory(b, host)?;
    take_back(b)?;
    let asm = &mut b.asm;
    asm.mov(rax, qword_ptr(r10 + KnownCut::HEAD))?;
    asm.mov(Builder::slot(Slot::Go), rax)?;
    asm.mov(Builder::slot(Slot::LwpCut), r10)?;
    asm.jmp(resume)
}

/// r10 := address of the known cut
fn find(b: &mut Builder, host: CodeLabel) -> Emit {
    let asm = &mut b.asm;
    let mut by_count = asm.create_label();
    let mut whole = asm.create_label();
    let mut look = asm.create_label();
    let mut found = asm.create_label();
    let mut records = asm.create_label();
    let mut written_down = asm.create_label();
    asm.mov(rax, Builder::slot(Slot::LwpEvents))?;
    asm.test(rax, rax)?;
    asm.jz(host)?;
    asm.cmp(eax, SAMPLES as i32)?;
    asm.ja(written_down)?;
    asm.cmp(eax, SAMPLES as i32)?;
    asm.jne(records)?;
    // What is led to ends before the instruction; nothing does before the first one. Of branches,
    // the host knows which it is.
    asm.cmp(rdi, rcx)?;
    asm.jl(host)?;
    asm.mov(r10, rsi)?;
    asm.test(r10, r10)?;
    asm.jz(host)?;
    asm.jmp(by_count)?;
    asm.set_label(&mut records)?;
    asm.cmp(rsi, r8)?;
    asm.jge(whole)?;
    asm.cmp(eax, 1)?;
    asm.jne(whole)?;
    asm.lea(r10, qword_ptr(rsi + 1))?;
    asm.cmp(r10, r8)?;
    asm.jne(by_count)?;
    // Both may be due on the last instruction.
    asm.cmp(rdi, rcx)?;
    asm.jl(host)?;
    asm.jmp(by_count)?;
    asm.set_label(&mut written_down)?;
    predicted::is_branch(asm, host)?;
    asm.set_label(&mut whole)?;
    asm.mov(r10, 0u64)?;
    asm.jmp(look)?;
    asm.set_label(&mut by_count)?;
    asm.shl(r10, KnownCut::COUNT_SHIFT)?;
    asm.set_label(&mut look)?;
    asm.or(r10, Builder::slot(Slot::Pc))?;
    asm.mov(rax, KnownCut::HASH)?;
    asm.imul_2(rax, r10)?;
    asm.shr(rax, KnownCut::HASH_SHIFT)?;
    asm.shl(eax, CUT_BYTES.trailing_zeros())?;
    asm.mov(rdx, Builder::slot(Slot::This))?;
    asm.lea(rdx, qword_ptr(rdx + rax + CUTS_AT as i32))?;
    asm.cmp(qword_ptr(rdx + KnownCut::KEY), r10)?;
    asm.je(found)?;
    asm.xor(rdx, CUT_BYTES as i32)?;
    asm.cmp(qword_ptr(rdx + KnownCut::KEY), r10)?;
    asm.jne(host)?;
    asm.set_label(&mut found)?;
    asm.mov(r10, rdx)
}

/// Sees whether record and control block can be written, as long as nothing of the block has been
/// executed.
pub(super) fn try_memory(b: &mut Builder, host: CodeLabel) -> Emit {
    let mut tried = b.asm.create_label();
    let asm = &mut b.asm;
    // Neither for a sample nor for a branch that is written down.
    asm.cmp(Builder::slot32(Slot::LwpEvents), SAMPLES as i32)?;
    asm.jae(tried)?;
    asm.mov(rcx, Builder::slot(Slot::LwpRing))?;
    asm.test(rcx, rcx)?;
    asm.jz(host)?;
    asm.mov(eax, Builder::slot32(Slot::LwpRingHead))?;
    asm.add(rax, rcx)?;
    asm.mov(ecx, eax)?;
    asm.and(ecx, PAGE - 1)?;
    asm.cmp(ecx, PAGE - RECORD_BYTES)?;
    asm.ja(host)?;
    b.mark(state(PcSource::ContextPc, ALL_AND_FLAGS, Commit::LwpTrying))?;
    let asm = &mut b.asm;
    asm.mov(ecx, dword_ptr(rax))?;
    asm.mov(dword_ptr(rax), ecx)?;
    asm.mov(rax, Builder::slot(Slot::LwpHeadAt))?;
    asm.mov(ecx, dword_ptr(rax))?;
    asm.mov(dword_ptr(rax), ecx)?;
    asm.mov(rax, Builder::slot(Slot::LwpTailAt))?;
    asm.mov(ecx, dword_ptr(rax))?;
    asm.set_label(&mut tried)?;
    asm.zero_bytes()?;
    b.mark(state(PcSource::ContextPc, ALL_AND_FLAGS, Commit::None))?;
    Ok(())
}

/// Deals the rest of the countdown out to nobody.
fn take_back(b: &mut Builder) -> Emit {
    b.asm.mov(Builder::slot(Slot::LwpNewHigh), rsi)?;
    b.asm.mov(Builder::slot(Slot::LwpNewLow), rdi)?;
    b.mark(state(PcSource::ContextPc, ALL_AND_FLAGS, Commit::Dealing))?;
    take_back_to(b)?;
    b.mark(state(PcSource::ContextPc, ALL_AND_FLAGS, Commit::None))?;
    Ok(())
}

/// Lets rsi and rdi be left of the countdown's parts, dealt out to nobody; rax is lost.
pub(super) fn take_back_to(b: &mut Builder) -> Emit {
    let asm = &mut b.asm;
    asm.mov(Builder::slot(Slot::LwpHigh), rsi)?;
    asm.mov(Builder::slot(Slot::LwpLow), rdi)?;
    asm.mov(eax, LWP_LOW_MAX as u32)?;
    empty_words(b, rax)?;
    let asm = &mut b.asm;
    asm.shl(rax, LWP_SLOTS.trailing_zeros())?;
    asm.mov(Builder::slot(Slot::LwpGiven), rax)
}

/// A cut fragment has ended and control is at the pc in r11: asked for as by `ask_r11`. Its second
/// label is where the pc is in the context already.
pub(super) fn emit_stepped(
    b: &mut Builder,
    ring: CodeLabel,
) -> Result<(CodeLabel, CodeLabel), IcedError> {
    let asked = Commit::Mailbox;
    let mut slow = b.asm.create_label();
    let start = b.mark(state(PcSource::R11, Spills { r11: true, ..Spills::default() }, asked))?;
    b.asm.mov(Builder::slot(Slot::Rcx), rcx)?;
    b.mark(state(PcSource::R11, BOTH, asked))?;
    b.asm.mov(Builder::slot(Slot::Pc), r11)?;
    let known = b.mark(state(PcSource::ContextPc, BOTH, asked))?;
    save_rest(b, asked)?;
    let mut records = b.asm.create_label();
    let mut written_down = b.asm.create_label();
    b.asm.cmp(Builder::slot32(Slot::LwpEvents), SAMPLES as i32)?;
    b.asm.jb(records)?;
    b.asm.ja(written_down)?;
    arrive(b, slow)?;
    come_to_pass(b)?;
    resume_at_go(b)?;
    b.asm.set_label(&mut written_down)?;
    b.asm.zero_bytes()?;
    b.mark(state(PcSource::ContextPc, ALL_AND_FLAGS, asked))?;
    predicted::write_down(b, slow)?;
    come_to_pass(b)?;
    go_on(b)?;
    b.asm.set_label(&mut records)?;
    b.asm.zero_bytes()?;
    b.mark(state(PcSource::ContextPc, ALL_AND_FLAGS, asked))?;
    stage(b, slow)?;
    let mut full = b.asm.create_label();
    write_record(b, slow, full)?;
    reload(b, slow)?;
    record(b)?;
    go_on(b)?;
    b.asm.set_label(&mut full)?;
    b.asm.zero_bytes()?;
    b.mark(state(PcSource::ContextPc, ALL_AND_FLAGS, asked))?;
    b.asm.mov(rsi, rdi)?;
    reload(b, slow)?;
    count_missed(b)?;
    come_to_pass(b)?;
    go_on(b)?;
    b.asm.set_label(&mut slow)?;
    b.asm.zero_bytes()?;
    b.mark(state(PcSource::ContextPc, ALL_AND_FLAGS, asked))?;
    restore_flags(b)?;
    b.mark(state(PcSource::ContextPc, ALL, asked))?;
    b.asm.jmp(ring)?;
    Ok((start, known))
}

/// The thread has led itself to the place of a sample that it may keep: makes ready what the
/// countdown is to be, so that the next block finds the sample due in its first instruction, and
/// where that is; or goes to `slow`.
fn arrive(b: &mut Builder, slow: CodeLabel) -> Emit {
    let asm = &mut b.asm;
    asm.cmp(Builder::slot(Slot::Gather), 0)?;
    asm.je(slow)?;
    asm.mov(r10, Builder::slot(Slot::LwpCut))?;
    asm.test(r10, r10)?;
    asm.jz(slow)?;
    asm.mov(rax, qword_ptr(r10 + KnownCut::NEXT))?;
    asm.test(rax, rax)?;
    asm.jz(slow)?;
    asm.mov(Builder::slot(Slot::Go), rax)?;
    stage_unchanged(asm)?;
    for (to, count) in [(Slot::LwpNewHigh, KnownCut::HIGH), (Slot::LwpNewLow, KnownCut::LOW)] {
        asm.mov(ecx, dword_ptr(r10 + count))?;
        asm.mov(rax, Builder::slot(to))?;
        asm.sub(rax, rcx)?;
        asm.js(slow)?;
        asm.mov(Builder::slot(to), rax)?;
    }
    Ok(())
}

/// r10 := the known cut that has ended; what its record says is staged as that of an LWPINS, its ip
/// in r11.
fn stage(b: &mut Builder, slow: CodeLabel) -> Emit {
    let asm = &mut b.asm;
    let mut chosen = asm.create_label();
    asm.mov(r10, Builder::slot(Slot::LwpCut))?;
    asm.test(r10, r10)?;
    asm.jz(slow)?;
    asm.mov(eax, Builder::slot32(Slot::LwpFirst))?;
    asm.cmp(qword_ptr(r10 + KnownCut::NEXT_MASK), 0)?;
    asm.je(chosen)?;
    asm.mov(rax, Builder::slot(Slot::LwpFirstOfBranch))?;
    asm.cmp(Builder::slot32(Slot::Kind), RequestKind::LwpTaken as u32)?;
    asm.jne(chosen)?;
    asm.shr(rax, 32u32)?;
    asm.set_label(&mut chosen)?;
    asm.mov(Builder::slot32(Slot::LwpRecord), eax)?;
    asm.mov(rax, Builder::slot(Slot::Pc))?;
    asm.and(rax, qword_ptr(r10 + KnownCut::NEXT_MASK))?;
    asm.mov(Builder::slot(Slot::LwpOperand), rax)?;
    asm.mov(eax, 0)?;
    asm.mov(Builder::slot(Slot::LwpData), rax)?;
    asm.mov(r11, qword_ptr(r10 + KnownCut::IP))
}

/// Makes ready what the countdown and the random number generator are to be.
///
/// ```text
/// high -= what the cut counts;  low likewise;  the part without the event is negative --> slow
/// the part with the event, and its base := interval, its random bits
/// ```
fn reload(b: &mut Builder, slow: CodeLabel) -> Emit {
    let asm = &mut b.asm;
    let mut low = asm.create_label();
    let mut done = asm.create_label();
    asm.mov(rdx, Builder::slot(Slot::LwpHighInterval))?;
    asm.cmp(qword_ptr(r10 + KnownCut::PART), 0)?;
    asm.cmovne(rdx, Builder::slot(Slot::LwpLowInterval))?;
    draw(b, rdx)?;
    let asm = &mut b.asm;
    asm.sub(rdx, Builder::slot(Slot::LwpCounterExcess))?;
    asm.cmp(qword_ptr(r10 + KnownCut::PART), 0)?;
    pace(asm, slow)?;
    asm.mov(r8, Builder::slot(Slot::LwpHigh))?;
    asm.mov(rbx, Builder::slot(Slot::LwpLow))?;
    asm.mov(eax, dword_ptr(r10 + KnownCut::HIGH))?;
    asm.sub(r8, rax)?;
    asm.mov(eax, dword_ptr(r10 + KnownCut::LOW))?;
    asm.mov(rcx, rbx)?;
    asm.sub(rcx, rax)?;
    asm.mov(rdi, Builder::slot(Slot::LwpHighBase))?;
    asm.mov(rax, Builder::slot(Slot::LwpLowBase))?;
    asm.cmp(qword_ptr(r10 + KnownCut::PART), 0)?;
    asm.jne(low)?;
    asm.mov(r8, rdx)?;
    asm.mov(rdi, r11)?;
    asm.test(rcx, rcx)?;
    asm.js(slow)?;
    asm.jmp(done)?;
    asm.set_label(&mut low)?;
    asm.mov(rcx, rdx)?;
    asm.mov(rax, rdx)?;
    asm.test(r8, r8)?;
    asm.js(slow)?;
    asm.set_label(&mut done)?;
    asm.mov(Builder::slot(Slot::LwpNewHigh), r8)?;
    asm.mov(Builder::slot(Slot::LwpNewLow), rcx)?;
    asm.mov(Builder::slot(Slot::LwpNewHighBase), rdi)?;
    asm.mov(Builder::slot(Slot::LwpNewLowBase), rax)
}

/// Moves the head, in memory first: from then on the record is a reader's, and the instruction has
/// retired. Then what has been made ready comes to pass; esi is the new head.
pub(super) fn record(b: &mut Builder) -> Emit {
    b.asm.mov(rdx, Builder::slot(Slot::LwpHeadAt))?;
    b.asm.mov(Builder::slot(Slot::LwpNewHead), rsi)?;
    b.asm.mov(dword_ptr(rdx), esi)?;
    come_to_pass(b)
}

/// Lets everything that has been made ready come to pass: the instruction has retired.
fn come_to_pass(b: &mut Builder) -> Emit {
    b.mark(state(PcSource::ContextPc, ALL_AND_FLAGS, Commit::LwpRecorded))?;
    let asm = &mut b.asm;
    for (from, to) in RECORDED {
        asm.mov(rax, Builder::slot(from))?;
        asm.mov(Builder::slot(to), rax)?;
    }
    asm.mov(eax, 0)?;
    asm.mov(Builder::slot(Slot::LwpCut), rax)?;
    asm.mov(Builder::slot(Slot::LwpNote), rax)?;
    asm.mov(Builder::slot32(Slot::Kind), RequestKind::Dispatch as u32)?;
    b.mark(state(PcSource::ContextPc, ALL_AND_FLAGS, Commit::None))?;
    Ok(())
}

/// Makes everything ready to become what it is already; rax is lost.
pub(super) fn stage_unchanged(asm: &mut CodeAssembler) -> Emit {
    for (to, from) in RECORDED {
        asm.mov(rax, Builder::slot(from))?;
        asm.mov(Builder::slot(to), rax)?;
    }
    Ok(())
}

/// Goes on at `Pc`, as an indirect branch would.
fn go_on(b: &mut Builder) -> Emit {
    restore_flags(b)?;
    b.mark(state(PcSource::ContextPc, ALL, Commit::None))?;
    restore_all(b)?;
    b.mark(state(PcSource::ContextPc, BOTH, Commit::None))?;
    b.asm.mov(rcx, Builder::slot(Slot::Pc))?;
    b.mark(state(PcSource::Rcx, BOTH, Commit::None))?;
    emit_table_jump(b, b.layout)
}
