//! Lightweight Profiling: distributes the countdown over its words, and touches memory that the
//! host could not reach.

use iced_x86::IcedError;
use iced_x86::code_asm::{
    AsmMemoryOperand, AsmRegister64, CodeAssembler, CodeLabel, al, byte_ptr, cl, eax, ebx, ecx,
    edx, qword_ptr, r8, r8d, r9, r10, r10d, r11, rax, rbx, rcx, rdi, rdx, rsi,
};

use super::{
    ALL, ALL_AND_FLAGS, BOTH, Builder, Emit, restore_all, restore_flags, save_flags,
    saved_registers, state,
};
use crate::context::{
    LWP_DEALT_AT, LWP_LOW_MAX, LWP_SHIFT, LWP_SLOTS, LWP_TAKEN_AT, LWP_WORDS_AT, RequestKind, Slot,
    lwp_slot_displacement,
};
use crate::routines::NOTHING_GIVEN;
use crate::state_map::{Commit, PcSource};

mod event;
mod gather;
mod kept;
mod noted;
mod pace;
mod predicted;
mod toggle;
mod touch;
mod unit;

const RECORD_BYTES: i32 = 32;
const PAGE: i32 = 0x1000;

/// The starts of the routines.
pub(super) struct Labels {
    pub touches: touch::Labels,
    pub insert: CodeLabel,
    pub sample: CodeLabel,
    pub flush: CodeLabel,
    pub load: CodeLabel,
    pub deal: CodeLabel,
    pub due: CodeLabel,
    pub stepped: CodeLabel,
    pub branched: CodeLabel,
    pub touch_read: CodeLabel,
    pub touch_write: CodeLabel,
}

pub(super) fn emit(b: &mut Builder, ring: CodeLabel) -> Result<Labels, IcedError> {
    let unit::Labels { insert, sample, flush } = unit::emit(b, ring)?;
    let (stepped, known) = event::emit_stepped(b, ring)?;
    let (deal, due) = emit_deal(b, ring)?;
    Ok(Labels {
        touches: touch::emit(b, ring)?,
        insert,
        sample,
        flush,
        load: toggle::emit_load(b, ring)?,
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
/// Everything counted since the last deal is taken from the high and the low part, and the rest is
/// dealt out again, to each word as much as has been taken from it lately in proportion, and a
/// little: if that goes on, all run out at once, and few deals lead to an event. Where the block at
/// hand counts more than what is left of either part, an event is due in it: the thread notes it
/// and records it when it comes to the next block (`noted.rs`), or leads itself to the cut fragment
/// that ends with it, if that is known, or asks the host. The second label is where the host is
/// asked.
///
/// The last of the countdown is not dealt out where the deal before was good for a few blocks only.
/// Every word is negative then, and each block comes here to have what it counts taken by hand, up
/// to the event. That nothing has been dealt, [`Slot::LwpGiven`] tells.
///
/// A superblock of which an event is due, or whose countdown would be taken by hand, is not
/// entered: its first block goes on alone. So each way out of one finds the word that its countdown
/// was taken from.
///
/// ```text
/// counted := given - sum of the words;  low -= counted & max
/// high    -= (counted >> LWP_SHIFT) - share * (counted & max)
/// taken   := taken * 7/8 + what has been counted, for each word
/// deal    := min(high, low, max), or with a share for each of the low part
///            min(high, share * min(low, max), max); where the block takes more, it is by hand
/// word    := deal * (taken + all taken / 128) / (all taken * 9/8), for each;
///            what rounding leaves to the one that ran out, or all where that is too little
/// ```
fn emit_deal(b: &mut Builder, ring: CodeLabel) -> Result<(CodeLabel, CodeLabel), IcedError> {
    let mut due = b.asm.create_label();
    let mut host = b.asm.create_label();
    let mut resume = b.asm.create_label();
    let mut deal = b.asm.create_label();
    let mut noted = b.asm.create_label();
    let mut cut = b.asm.create_label();
    let mut by_hand = b.asm.create_label();
    let mut last = b.asm.create_label();
    let mut alone = b.asm.create_label();
    let mut deals = b.asm.create_label();
    let start = save_and_enter(b, Commit::None)?;
    b.asm.cmp(Builder::slot32(Slot::LwpNote), 0)?;
    b.asm.jne(noted)?;
    b.asm.cmp(Builder::slot(Slot::LwpGiven), NOTHING_GIVEN)?;
    b.asm.je(by_hand)?;
    b.asm.set_label(&mut deal)?;
    count_up(b)?;
    forget_other_code(b)?;
    // rsi: high, rdi: low, r9: the deal, r8: the block's high part, rcx: its low part, r11: what
    // has been taken from words since the last deal, less 1.
    size_deal(b)?;
    weigh(b)?;
    let asm = &mut b.asm;
    asm.mov(rax, Builder::slot(Slot::LwpLast))?;
    asm.cmp(r9, rax)?;
    asm.jge(deals)?;
    // By hand where the deal before has counted no more than a quarter of that: code that stays on
    // a few words has them all.
    asm.shr(rax, 2u32)?;
    asm.cmp(r11, rax)?;
    asm.jb(last)?;
    asm.set_label(&mut deals)?;
    asm.mov(eax, Builder::slot32(Slot::LwpWeight))?;
    asm.shr(eax, LWP_SHIFT)?;
    asm.cmp(r9, rax)?;
    asm.jl(last)?;
    asm.mov(Builder::slot(Slot::LwpNewHigh), rsi)?;
    asm.mov(Builder::slot(Slot::LwpNewLow), rdi)?;
    deal_out(b)?;
    b.asm.set_label(&mut resume)?;
    resume_at_go(b)?;

    b.asm.set_label(&mut last)?;
    b.asm.zero_bytes()?;
    b.mark(state(PcSource::ContextPc, ALL_AND_FLAGS, Commit::None))?;
    see_whether_alone(b, alone)?;
    take_by_hand(b, due, true)?;
    b.asm.set_label(&mut by_hand)?;
    b.asm.zero_bytes()?;
    b.mark(state(PcSource::ContextPc, ALL_AND_FLAGS, Commit::None))?;
    see_whether_alone(b, alone)?;
    b.asm.mov(rsi, Builder::slot(Slot::LwpHigh))?;
    b.asm.mov(rdi, Builder::slot(Slot::LwpLow))?;
    weigh(b)?;
    take_by_hand(b, due, false)?;

    b.asm.set_label(&mut due)?;
    b.asm.zero_bytes()?;
    b.mark(state(PcSource::ContextPc, ALL_AND_FLAGS, Commit::None))?;
    see_whether_alone(b, alone)?;
    kept::keep(b, host, deal)?;
    noted::note(b, cut, host)?;
    b.asm.set_label(&mut cut)?;
    b.asm.zero_bytes()?;
    b.mark(state(PcSource::ContextPc, ALL_AND_FLAGS, Commit::None))?;
    event::lead(b, host, resume)?;

    b.asm.set_label(&mut alone)?;
    b.asm.not(rax)?;
    b.asm.mov(Builder::slot(Slot::Go), rax)?;
    b.asm.jmp(resume)?;

    b.asm.set_label(&mut noted)?;
    noted::record(b, host)?;
    b.asm.jmp(deal)?;

    b.asm.set_label(&mut host)?;
    b.asm.zero_bytes()?;
    let ask = b.mark(state(PcSource::ContextPc, ALL_AND_FLAGS, Commit::None))?;
    restore_flags(b)?;
    b.asm.mov(Builder::slot32(Slot::Kind), RequestKind::LwpDue as u32)?;
    b.mark(state(PcSource::ContextPc, ALL, Commit::Mailbox))?;
    b.asm.jmp(ring)?;
    Ok((start, ask))
}

/// r9 := what may be dealt out, so that neither part runs out unseen, and no more than fits; r10 :=
/// the low part that each word starts with; rax is lost.
fn size_deal(b: &mut Builder) -> Emit {
    let asm = &mut b.asm;
    let mut plain = asm.create_label();
    asm.mov(r10d, LWP_LOW_MAX as u32)?;
    asm.mov(r9, rdi)?;
    asm.cmp(r9, r10)?;
    asm.cmovg(r9, r10)?;
    asm.mov(rax, Builder::slot(Slot::LwpShare))?;
    asm.test(rax, rax)?;
    asm.jz(plain)?;
    asm.imul_2(r9, rax)?;
    asm.cmp(r9, r10)?;
    asm.cmovg(r9, r10)?;
    asm.set_label(&mut plain)?;
    asm.cmp(rsi, r9)?;
    asm.cmovl(r9, rsi)
}

/// Goes on at `Pc`, whose translation is at `Go`.
fn resume_at_go(b: &mut Builder) -> Emit {
    restore_flags(b)?;
    restore_all(b)?;
    b.asm.mov(r11, Builder::slot(Slot::R11))?;
    b.asm.mov(rcx, Builder::slot(Slot::Rcx))?;
    b.asm.jmp(Builder::slot(Slot::Go))
}

/// Goes to `alone` where the block at hand is a superblock: [`Slot::LwpTable`] holds the address of
/// its first block alone, inverted, which comes to rax.
fn see_whether_alone(b: &mut Builder, alone: CodeLabel) -> Emit {
    b.asm.mov(rax, Builder::slot(Slot::LwpTable))?;
    b.asm.test(rax, rax)?;
    b.asm.js(alone)
}

/// r8 := the high part of what the block at hand counts, rcx := its low part; rax is lost.
fn weigh(b: &mut Builder) -> Emit {
    let asm = &mut b.asm;
    asm.mov(r8d, Builder::slot32(Slot::LwpWeight))?;
    asm.mov(ecx, r8d)?;
    asm.shr(r8d, LWP_SHIFT)?;
    asm.and(ecx, LWP_LOW_MAX as u32)?;
    asm.mov(eax, Builder::slot32(Slot::LwpShare))?;
    asm.imul_2(eax, ecx)?;
    asm.sub(r8d, eax)
}

/// Goes to `due` where the block counts more than what is left of either part.
fn see_whether_due(b: &mut Builder, due: CodeLabel) -> Emit {
    b.asm.cmp(rsi, r8)?;
    b.asm.jl(due)?;
    b.asm.cmp(rdi, rcx)?;
    b.asm.jl(due)
}

/// Takes what the block counts from what is left, and lets it go on behind its charge; where an
/// event is due, goes to `due`. The `first` one leaves nothing dealt out.
///
/// ```text
/// rsi: high part left, rdi: low part left, r8: the block's high part, rcx: its low part
/// ```
fn take_by_hand(b: &mut Builder, due: CodeLabel, first: bool) -> Emit {
    see_whether_due(b, due)?;
    let asm = &mut b.asm;
    // Until the block goes on, everything is as if nothing had been taken.
    asm.mov(Builder::slot(Slot::LwpNewHigh), rsi)?;
    asm.mov(Builder::slot(Slot::LwpNewLow), rdi)?;
    b.mark(state(PcSource::ContextPc, ALL_AND_FLAGS, Commit::Dealing))?;
    let asm = &mut b.asm;
    asm.sub(rsi, r8)?;
    asm.sub(rdi, rcx)?;
    asm.mov(Builder::slot(Slot::LwpHigh), rsi)?;
    asm.mov(Builder::slot(Slot::LwpLow), rdi)?;
    if first {
        give_nothing(b)?;
    }
    noted::go_on_charged(b)
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

/// rsi := high part left, rdi := low part left, r11 := what has been taken from words, less 1; rax,
/// rcx, rdx and r8 are lost.
fn count_up(b: &mut Builder) -> Emit {
    let asm = &mut b.asm;
    asm.mov(rdx, word(0))?;
    for index in 1..LWP_SLOTS {
        asm.add(rdx, word(index))?;
    }
    asm.mov(rcx, Builder::slot(Slot::LwpGiven))?;
    asm.sub(rcx, rdx)?;
    asm.mov(r8, rcx)?;
    asm.shr(r8, LWP_SHIFT)?;
    asm.and(rcx, LWP_LOW_MAX as i32)?;
    asm.lea(r11, qword_ptr(r8 - 1))?;
    asm.mov(rax, Builder::slot(Slot::LwpShare))?;
    asm.imul_2(rax, rcx)?;
    asm.sub(r8, rax)?;
    asm.mov(rsi, Builder::slot(Slot::LwpHigh))?;
    asm.sub(rsi, r8)?;
    asm.mov(rdi, Builder::slot(Slot::LwpLow))?;
    asm.sub(rdi, rcx)
}

/// Where less than a quarter of the last deal has been counted, control has moved to code that
/// takes from other words: what was taken before then counts no more than what has been counted
/// since. r11 is that, less 1; rax, rcx and rdx are lost.
fn forget_other_code(b: &mut Builder) -> Emit {
    let asm = &mut b.asm;
    let mut known = asm.create_label();
    asm.mov(rax, Builder::slot(Slot::LwpGiven))?;
    asm.shr(rax, LWP_SHIFT + 2)?;
    asm.cmp(r11, rax)?;
    asm.jae(known)?;
    asm.mov(rax, Builder::slot(Slot::LwpTakenLately))?;
    asm.or(rax, 1)?;
    asm.bsr(rcx, rax)?;
    asm.lea(rdx, qword_ptr(r11 + r11 + 3))?;
    asm.bsr(rdx, rdx)?;
    asm.sub(ecx, edx)?;
    asm.jbe(known)?;
    asm.shr(rax, cl)?;
    asm.mov(Builder::slot(Slot::LwpTakenLately), rax)?;
    for index in 0..LWP_SLOTS {
        asm.shr(beside(LWP_TAKEN_AT, index), cl)?;
    }
    asm.set_label(&mut known)
}

/// Word `index` of the countdown.
fn word(index: u32) -> AsmMemoryOperand {
    qword_ptr(lwp_slot_displacement(index) as i32).gs()
}

/// The value kept beside that word, from `displacement` on.
fn beside(displacement: u32, index: u32) -> AsmMemoryOperand {
    qword_ptr((displacement + index * 8) as i32).gs()
}

/// Deals r9 out; r10 is what the low part of each word starts with, r11 what has been taken from
/// words since the last deal, less 1.
fn deal_out(b: &mut Builder) -> Emit {
    b.mark(state(PcSource::ContextPc, ALL_AND_FLAGS, Commit::Dealing))?;
    let asm = &mut b.asm;
    asm.mov(Builder::slot(Slot::LwpHigh), rsi)?;
    asm.mov(Builder::slot(Slot::LwpLow), rdi)?;
    price(asm)?;
    share_out(asm)?;
    see_whether_fits(b)?;
    let asm = &mut b.asm;
    asm.shl(r9, LWP_SHIFT)?;
    asm.shl(r10, LWP_SLOTS.trailing_zeros())?;
    asm.add(r9, r10)?;
    asm.mov(Builder::slot(Slot::LwpGiven), r9)?;
    b.mark(state(PcSource::ContextPc, ALL_AND_FLAGS, Commit::None))?;
    Ok(())
}

/// rdi := what one taken is worth of the deal in r9, by 2 to the [`PRECISION`]th; r11 := what each
/// word has besides.
fn price(asm: &mut CodeAssembler) -> Emit {
    // rcx: no less than all taken will be: of each word an eighth is forgotten, rounded down.
    asm.mov(rcx, Builder::slot(Slot::LwpTakenLately))?;
    asm.mov(rax, rcx)?;
    asm.shr(rax, 3u32)?;
    asm.sub(rcx, rax)?;
    asm.lea(rcx, qword_ptr(rcx + r11 + LWP_SLOTS as i32))?;
    asm.mov(r11, rcx)?;
    asm.shr(r11, 3 + LWP_SLOTS.trailing_zeros())?;
    asm.add(r11, 1)?;
    asm.mov(rax, rcx)?;
    asm.shr(rax, 3u32)?;
    asm.lea(rcx, qword_ptr(rcx + rax + LWP_SLOTS as i32))?;
    asm.mov(rax, r9)?;
    asm.shl(rax, PRECISION)?;
    asm.mov(edx, 0)?;
    asm.div(rcx)?;
    asm.mov(rdi, rax)
}

/// Notes what has been taken from each word, and deals it its share; rdx := what is left of the
/// deal.
fn share_out(asm: &mut CodeAssembler) -> Emit {
    asm.mov(ebx, 0)?;
    asm.mov(rdx, r9)?;
    for index in 0..LWP_SLOTS {
        asm.mov(rax, beside(LWP_DEALT_AT, index))?;
        asm.sub(rax, word(index))?;
        asm.shr(rax, LWP_SHIFT)?;
        asm.mov(rcx, beside(LWP_TAKEN_AT, index))?;
        asm.add(rax, rcx)?;
        asm.shr(rcx, 3u32)?;
        asm.sub(rax, rcx)?;
        asm.mov(beside(LWP_TAKEN_AT, index), rax)?;
        asm.add(rbx, rax)?;
        asm.add(rax, r11)?;
        asm.imul_2(rax, rdi)?;
        asm.shr(rax, PRECISION)?;
        asm.sub(rdx, rax)?;
        asm.shl(rax, LWP_SHIFT)?;
        asm.or(rax, r10)?;
        asm.mov(word(index), rax)?;
        asm.mov(beside(LWP_DEALT_AT, index), rax)?;
    }
    asm.mov(Builder::slot(Slot::LwpTakenLately), rbx)
}

/// The word that ran out gets rdx besides, what rounding has left, or the whole deal in r9 where
/// that is too little for the block at hand.
fn see_whether_fits(b: &mut Builder) -> Emit {
    let mut fits = b.asm.create_label();
    let asm = &mut b.asm;
    asm.mov(r8d, Builder::slot32(Slot::LwpWeight))?;
    asm.shr(r8d, LWP_SHIFT)?;
    asm.mov(eax, Builder::slot32(Slot::LwpWord))?;
    asm.mov(rcx, qword_ptr(rax).gs())?;
    asm.shl(rdx, LWP_SHIFT)?;
    asm.add(rcx, rdx)?;
    asm.mov(rdx, rcx)?;
    asm.shr(rdx, LWP_SHIFT)?;
    asm.cmp(rdx, r8)?;
    asm.jge(fits)?;
    empty_words(b, r10)?;
    let asm = &mut b.asm;
    asm.mov(rcx, r9)?;
    asm.shl(rcx, LWP_SHIFT)?;
    asm.or(rcx, r10)?;
    asm.set_label(&mut fits)?;
    asm.mov(qword_ptr(rax).gs(), rcx)?;
    asm.mov(qword_ptr(rax + (LWP_DEALT_AT - LWP_WORDS_AT) as i32).gs(), rcx)
}

/// Bits behind the point in what one taken is worth.
const PRECISION: u32 = 20;

/// Leaves nothing dealt out, and every word negative: whatever block is next, it comes to the
/// routine.
fn give_nothing(b: &mut Builder) -> Emit {
    b.asm.mov(rax, -1i64)?;
    empty_words(b, rax)?;
    b.asm.mov(rax, i64::from(NOTHING_GIVEN))?;
    b.asm.mov(Builder::slot(Slot::LwpGiven), rax)
}

/// Deals nothing: every word is `low`, the low part that it starts with.
fn empty_words(b: &mut Builder, low: AsmRegister64) -> Emit {
    for index in 0..LWP_SLOTS {
        b.asm.mov(word(index), low)?;
        b.asm.mov(beside(LWP_DEALT_AT, index), low)?;
    }
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
