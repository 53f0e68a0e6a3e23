//! Lightweight Profiling: dealing out the countdown, and touching what the host could not reach.

use iced_x86::IcedError;
use iced_x86::code_asm::{
    CodeLabel, al, byte_ptr, eax, ecx, edx, qword_ptr, r8, r8d, r9, r10, r10d, r11, rax, rcx, rdi,
    rdx, rsi,
};

use super::{ALL, BOTH, Builder, Emit, restore_all, saved_registers, state};
use crate::context::{LWP_LOW_MAX, LWP_SHIFT, LWP_SLOTS, RequestKind, Slot, lwp_slot_displacement};
use crate::recipe::{Commit, PcSource, Spills};

mod event;
mod touch;
mod unit;

pub use event::RECORDED;
pub(crate) use touch::site;

const RECORD_BYTES: i32 = 32;
const PAGE: i32 = 0x1000;

/// Where the routines start.
pub(super) struct Labels {
    pub touches: touch::Labels,
    pub insert: CodeLabel,
    pub sample: CodeLabel,
    pub flush: CodeLabel,
    pub deal: CodeLabel,
    pub due: CodeLabel,
    pub stepped: CodeLabel,
    pub branched: CodeLabel,
    pub touch_read: CodeLabel,
    pub touch_write: CodeLabel,
}

const ALL_AND_FLAGS: Spills = Spills { flags: true, ..ALL };

pub(super) fn emit(b: &mut Builder, ring: CodeLabel) -> Result<Labels, IcedError> {
    let unit::Labels { insert, sample, flush } = unit::emit(b, ring)?;
    let (stepped, known) = event::emit_stepped(b, ring)?;
    let (deal, due) = emit_deal(b, ring)?;
    Ok(Labels {
        touches: touch::emit(b, ring)?,
        insert,
        sample,
        flush,
        deal,
        due,
        stepped,
        branched: emit_branched(b, known)?,
        touch_read: emit_touch(b, ring, false)?,
        touch_write: emit_touch(b, ring, true)?,
    })
}

/// A word of the countdown has run out.
///
/// What has been counted since the last deal is taken from the high and the low part, and what is left
/// is dealt out again: most of it to the word that ran out. Where the block at hand counts more than
/// what is left of either, an event is due in it: the thread leads itself to the cut fragment that ends
/// with it, if that is known, or asks the host. The second label is where the host is asked.
///
/// ```text
/// counted := given - sum of the words;  high -= counted >> 24;  low -= counted & max
/// deal    := min(high, low, max), at least what the block counts
/// share   := deal / 16 to each word;  the rest to the one that ran out
/// ```
fn emit_deal(b: &mut Builder, ring: CodeLabel) -> Result<(CodeLabel, CodeLabel), IcedError> {
    let mut enough = b.asm.create_label();
    let mut due = b.asm.create_label();
    let mut host = b.asm.create_label();
    let mut resume = b.asm.create_label();
    let start = save_and_enter(b, Commit::None)?;
    count_up(b)?;
    // rsi: high, rdi: low, r9: the deal, r8: the block's high part, rcx: its low part.
    let asm = &mut b.asm;
    asm.mov(r9, rsi)?;
    asm.cmp(rdi, rsi)?;
    asm.cmovl(r9, rdi)?;
    asm.mov(r10d, LWP_LOW_MAX as u32)?;
    asm.cmp(r9, r10)?;
    asm.cmovg(r9, r10)?;
    asm.mov(r8d, Builder::slot32(Slot::LwpWeight))?;
    asm.mov(ecx, r8d)?;
    asm.shr(r8d, LWP_SHIFT)?;
    asm.and(ecx, LWP_LOW_MAX as u32)?;
    asm.cmp(r9, r8)?;
    asm.jge(enough)?;
    asm.cmp(rsi, r8)?;
    asm.jl(due)?;
    asm.cmp(rdi, rcx)?;
    asm.jl(due)?;
    asm.mov(r9, r8)?;
    asm.set_label(&mut enough)?;
    asm.mov(Builder::slot(Slot::LwpNewHigh), rsi)?;
    asm.mov(Builder::slot(Slot::LwpNewLow), rdi)?;
    deal_out(b)?;
    b.asm.set_label(&mut resume)?;
    restore_flags(b)?;
    restore_all(b)?;
    b.asm.mov(r11, Builder::slot(Slot::R11))?;
    b.asm.mov(rcx, Builder::slot(Slot::Rcx))?;
    b.asm.jmp(Builder::slot(Slot::Go))?;

    b.asm.set_label(&mut due)?;
    b.asm.zero_bytes()?;
    b.mark(state(PcSource::ContextPc, ALL_AND_FLAGS, Commit::None))?;
    event::lead(b, host, resume)?;

    b.asm.set_label(&mut host)?;
    b.asm.zero_bytes()?;
    let ask = b.mark(state(PcSource::ContextPc, ALL_AND_FLAGS, Commit::None))?;
    restore_flags(b)?;
    b.asm.mov(Builder::slot32(Slot::Kind), RequestKind::LwpDue as u32)?;
    b.mark(state(PcSource::ContextPc, ALL, Commit::Mailbox))?;
    b.asm.jmp(ring)?;
    Ok((start, ask))
}

/// Saves registers and flags; the pc is in r11, the place to go on at in rcx.
fn save_and_enter(b: &mut Builder, commit: Commit) -> Result<CodeLabel, IcedError> {
    let start = b.mark(state(PcSource::R11, BOTH, commit))?;
    b.asm.mov(Builder::slot(Slot::Pc), r11)?;
    b.asm.mov(Builder::slot(Slot::Go), rcx)?;
    b.mark(state(PcSource::ContextPc, BOTH, commit))?;
    save_rest(b, commit)?;
    Ok(start)
}

/// Saves the flags, and the registers that are not saved yet. The pc is in the context.
fn save_rest(b: &mut Builder, commit: Commit) -> Emit {
    for (slot, register) in saved_registers() {
        b.asm.mov(Builder::slot(slot), register)?;
    }
    b.mark(state(PcSource::ContextPc, ALL, commit))?;
    save_flags(b)?;
    b.mark(state(PcSource::ContextPc, ALL_AND_FLAGS, commit))?;
    Ok(())
}

fn save_flags(b: &mut Builder) -> Emit {
    b.asm.lahf()?;
    b.asm.seto(al)?;
    b.asm.mov(Builder::slot(Slot::LwpFlags), rax)
}

/// LAHF and SETO the other way round: adding 127 to 1 overflows.
fn restore_flags(b: &mut Builder) -> Emit {
    b.asm.mov(rax, Builder::slot(Slot::LwpFlags))?;
    b.asm.add(al, 0x7f)?;
    b.asm.sahf()
}

/// rsi := high part left, rdi := low part left.
fn count_up(b: &mut Builder) -> Emit {
    let asm = &mut b.asm;
    asm.mov(rdx, qword_ptr(lwp_slot_displacement(0) as i32).gs())?;
    for index in 1..LWP_SLOTS {
        asm.add(rdx, qword_ptr(lwp_slot_displacement(index) as i32).gs())?;
    }
    asm.mov(rcx, Builder::slot(Slot::LwpGiven))?;
    asm.sub(rcx, rdx)?;
    asm.mov(r8, rcx)?;
    asm.shr(r8, LWP_SHIFT)?;
    asm.and(rcx, LWP_LOW_MAX as i32)?;
    asm.mov(rsi, Builder::slot(Slot::LwpHigh))?;
    asm.sub(rsi, r8)?;
    asm.mov(rdi, Builder::slot(Slot::LwpLow))?;
    asm.sub(rdi, rcx)
}

/// Deals r9 out; the block at hand counts r8, r10 is what the low part of each word starts with.
fn deal_out(b: &mut Builder) -> Emit {
    let mut fits = b.asm.create_label();
    b.mark(state(PcSource::ContextPc, ALL_AND_FLAGS, Commit::Dealing))?;
    let asm = &mut b.asm;
    asm.mov(Builder::slot(Slot::LwpHigh), rsi)?;
    asm.mov(Builder::slot(Slot::LwpLow), rdi)?;
    asm.mov(rdx, r9)?;
    asm.shr(rdx, 4u32)?;
    asm.imul_3(rcx, rdx, LWP_SLOTS as i32 - 1)?;
    asm.mov(r11, r9)?;
    asm.sub(r9, rcx)?;
    asm.cmp(r9, r8)?;
    asm.jge(fits)?;
    asm.mov(r9, r11)?;
    asm.mov(edx, 0u32)?;
    asm.set_label(&mut fits)?;
    asm.shl(rdx, LWP_SHIFT)?;
    asm.or(rdx, r10)?;
    asm.shl(r9, LWP_SHIFT)?;
    asm.or(r9, r10)?;
    for index in 0..LWP_SLOTS {
        asm.mov(qword_ptr(lwp_slot_displacement(index) as i32).gs(), rdx)?;
    }
    asm.mov(eax, Builder::slot32(Slot::LwpWord))?;
    asm.mov(qword_ptr(rax).gs(), r9)?;
    asm.imul_3(rcx, rdx, LWP_SLOTS as i32 - 1)?;
    asm.add(rcx, r9)?;
    asm.mov(Builder::slot(Slot::LwpGiven), rcx)?;
    b.mark(state(PcSource::ContextPc, ALL_AND_FLAGS, Commit::None))?;
    Ok(())
}

/// A cut fragment has ended in an indirect branch.
fn emit_branched(b: &mut Builder, known: CodeLabel) -> Result<CodeLabel, IcedError> {
    let start = b.mark(state(PcSource::Rcx, BOTH, Commit::LwpBranched))?;
    b.asm.mov(Builder::slot(Slot::Pc), rcx)?;
    b.asm.mov(Builder::slot32(Slot::Kind), RequestKind::LwpTaken as u32)?;
    b.mark(state(PcSource::ContextPc, BOTH, Commit::Mailbox))?;
    b.asm.jmp(known)?;
    Ok(start)
}

/// Touches a byte, so that the program gets the fault that the host met, or the page it needs; then
/// asks the same again.
fn emit_touch(b: &mut Builder, ring: CodeLabel, write: bool) -> Result<CodeLabel, IcedError> {
    let start = b.mark(state(PcSource::ContextPc, ALL, Commit::Mailbox))?;
    save_flags(b)?;
    b.mark(state(PcSource::ContextPc, ALL_AND_FLAGS, Commit::Mailbox))?;
    b.asm.mov(rcx, Builder::slot(Slot::LwpTouch))?;
    match write {
        true => b.asm.lock().or(byte_ptr(rcx), 0)?,
        false => b.asm.mov(al, byte_ptr(rcx))?,
    }
    restore_flags(b)?;
    b.mark(state(PcSource::ContextPc, ALL, Commit::Mailbox))?;
    b.asm.jmp(ring)?;
    Ok(start)
}
