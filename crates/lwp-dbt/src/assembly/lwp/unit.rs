//! LWPINS, LWPVAL and SLWPCB without the host, except in special cases.
//!
//! The host writes the addresses of ring and control block, and the reload value of each counter,
//! to the context. The thread asks the host, which can execute these instructions in every case, if
//! a record would reach the threshold, if the profile has features that the context doesn't
//! describe, and in cut fragments.

use iced_x86::IcedError;
use iced_x86::code_asm::{
    AsmRegister64, CodeAssembler, CodeLabel, dword_ptr, eax, ecx, edi, edx, esi, qword_ptr, r8,
    r8d, r9, r9d, r10, r11, rax, rcx, rdi, rdx, rsi,
};

use super::{PAGE, RECORD_BYTES, count_up, save_rest};
use crate::assembly::{ALL, BOTH, Builder, Emit, restore_all, state};
use crate::assembly::{ALL_AND_FLAGS, restore_flags};
use crate::context::{CORE_BY_RDPID, RequestKind, Slot, lwp_slot_displacement};
use crate::state_map::{Commit, PcSource, Spills};

const R11: Spills = Spills { rcx: false, ..BOTH };
/// A record's CoreId, in its first dword: the low bits of the core's number.
const CORE: i32 = 0xff00;
/// A record's InstructionAddress, Data2 and time stamp.
const INSTRUCTION_ADDRESS: i32 = 8;
const DATA2: i32 = 16;
const TIMESTAMP: i32 = 24;
/// A control block's MissedEvents, from its BufferHeadOffset.
const MISSED_EVENTS: i32 = 8;

/// The starts of the routines.
pub(super) struct Labels {
    pub insert: CodeLabel,
    pub sample: CodeLabel,
    pub flush: CodeLabel,
}

pub(super) fn emit(b: &mut Builder, ring: CodeLabel) -> Result<Labels, IcedError> {
    Ok(Labels {
        insert: emit_insert(b, ring)?,
        sample: emit_sample(b, ring)?,
        flush: emit_flush(b, ring)?,
    })
}

pub(super) fn begun(pc: PcSource, spills: Spills) -> crate::state_map::AppState {
    state(pc, spills, Commit::LwpBegun)
}

/// Saves all registers and the flags. The pc is in r11, whose own value is in its slot.
pub(super) fn begin(b: &mut Builder) -> Result<CodeLabel, IcedError> {
    let start = b.mark(begun(PcSource::R11, R11))?;
    b.asm.mov(Builder::slot(Slot::Rcx), rcx)?;
    b.mark(begun(PcSource::R11, BOTH))?;
    b.asm.mov(Builder::slot(Slot::Pc), r11)?;
    b.mark(begun(PcSource::ContextPc, BOTH))?;
    save_rest(b, Commit::LwpBegun)?;
    Ok(start)
}

/// Begins an LWPINS or LWPVAL, or goes to `slow` where the thread executes neither.
fn begin_record(b: &mut Builder, slow: CodeLabel) -> Result<CodeLabel, IcedError> {
    let start = begin(b)?;
    b.asm.cmp(Builder::slot(Slot::LwpInserts), 0)?;
    b.asm.je(slow)?;
    Ok(start)
}

/// Asks the host after all.
pub(super) fn ask(b: &mut Builder, slow: &mut CodeLabel, ring: CodeLabel) -> Emit {
    b.asm.set_label(slow)?;
    b.asm.zero_bytes()?;
    b.mark(begun(PcSource::ContextPc, ALL_AND_FLAGS))?;
    restore_flags(b)?;
    b.mark(begun(PcSource::ContextPc, ALL))?;
    b.asm.mov(eax, 0)?;
    b.asm.mov(Builder::slot(Slot::LwpPending), rax)?;
    b.mark(state(PcSource::ContextPc, ALL, Commit::Mailbox))?;
    b.asm.jmp(ring)
}

/// The instruction has been executed and translated code goes on behind it.
pub(super) fn end(b: &mut Builder) -> Emit {
    b.mark(state(PcSource::LwpAfter, ALL_AND_FLAGS, Commit::LwpResult))?;
    b.asm.mov(Builder::slot32(Slot::Kind), RequestKind::Dispatch as u32)?;
    restore_flags(b)?;
    b.mark(state(PcSource::LwpAfter, ALL, Commit::LwpResult))?;
    restore_all(b)?;
    b.asm.mov(r11, Builder::slot(Slot::R11))?;
    b.asm.mov(rcx, Builder::slot(Slot::Rcx))?;
    b.asm.jmp(Builder::slot(Slot::LwpAfter))
}

/// Writes a record at the head of the ring, which is published nowhere yet. What it says is staged
/// as for LWPINS and LWPVAL; its ip is in r11.
///
/// ```text
/// edi := head;  esi := the next one;  rdx := where the record goes
/// the ring is the host's, or the record lies in two pages                --> slow
/// record := first dword | core << 8, data 1, pc, data 2, time stamp
/// tail, reduced, is the next one, and not in continuous mode             --> full
/// (next - tail) mod size >= threshold                                    --> slow
/// ```
///
/// The record lies where no reader looks, and is written anew if the instruction is restarted.
pub(super) fn write_record(b: &mut Builder, slow: CodeLabel, full: CodeLabel) -> Emit {
    let asm = &mut b.asm;
    asm.mov(rcx, Builder::slot(Slot::LwpRing))?;
    asm.test(rcx, rcx)?;
    asm.jz(slow)?;
    next_head(b)?;
    let asm = &mut b.asm;
    asm.lea(rdx, qword_ptr(rcx + rdi))?;
    asm.mov(eax, edx)?;
    asm.and(eax, PAGE - 1)?;
    asm.cmp(eax, PAGE - RECORD_BYTES)?;
    asm.ja(slow)?;
    read_core(b)?;
    let asm = &mut b.asm;
    asm.shl(eax, 8u32)?;
    asm.and(eax, CORE)?;
    asm.or(eax, Builder::slot32(Slot::LwpRecord))?;
    asm.mov(dword_ptr(rdx), eax)?;
    asm.mov(eax, Builder::slot32(Slot::LwpData))?;
    asm.mov(dword_ptr(rdx + 4), eax)?;
    asm.mov(qword_ptr(rdx + INSTRUCTION_ADDRESS), r11)?;
    asm.mov(rax, Builder::slot(Slot::LwpOperand))?;
    asm.mov(qword_ptr(rdx + DATA2), rax)?;
    write_time_stamp(b)?;
    see_room(b, slow, full)
}

/// Writes the time stamp of the record that lies at rdi in the ring; rax, rcx and rdx are lost.
///
/// ```text
/// no rate             --> 0
/// ((TSC - base) rate) >> 32
/// ```
fn write_time_stamp(b: &mut Builder) -> Emit {
    let asm = &mut b.asm;
    let mut known = asm.create_label();
    asm.mov(rcx, Builder::slot(Slot::LwpStampRate))?;
    asm.mov(eax, 0)?;
    asm.jrcxz(known)?;
    asm.rdtsc()?;
    asm.shl(rdx, 32u32)?;
    asm.or(rax, rdx)?;
    asm.sub(rax, Builder::slot(Slot::LwpStampBase))?;
    asm.mul(rcx)?;
    asm.shrd(rax, rdx, 32u32)?;
    asm.set_label(&mut known)?;
    asm.mov(rcx, Builder::slot(Slot::LwpRing))?;
    asm.mov(qword_ptr(rcx + rdi + TIMESTAMP), rax)
}

/// eax := the number of this core, as far as records are to say it; ecx is lost.
fn read_core(b: &mut Builder) -> Emit {
    let asm = &mut b.asm;
    let mut segment = asm.create_label();
    let mut known = asm.create_label();
    asm.mov(ecx, Builder::slot32(Slot::LwpCore))?;
    asm.mov(eax, 0)?;
    asm.cmp(ecx, CORE_BY_RDPID as i32)?;
    asm.jne(segment)?;
    asm.rdpid(rax)?;
    asm.jmp(known)?;
    asm.set_label(&mut segment)?;
    // Does nothing where there is no such segment.
    asm.lsl(eax, ecx)?;
    asm.set_label(&mut known)?;
    asm.zero_bytes()
}

/// edi := where the next record goes in the ring, esi := where the one after it does, r9d := the
/// ring's size; eax is lost.
pub(super) fn next_head(b: &mut Builder) -> Emit {
    let asm = &mut b.asm;
    asm.mov(edi, Builder::slot32(Slot::LwpRingHead))?;
    asm.mov(r9d, Builder::slot32(Slot::LwpRingSize))?;
    asm.lea(esi, qword_ptr(rdi + RECORD_BYTES))?;
    asm.mov(eax, 0)?;
    asm.cmp(esi, r9d)?;
    asm.cmovae(esi, eax)
}

/// Goes to `full` where one more record, after which the head is esi of r9d, fills the ring, and to
/// `slow` where it reaches the threshold; rax and rcx are lost.
pub(super) fn see_room(b: &mut Builder, slow: CodeLabel, full: CodeLabel) -> Emit {
    let asm = &mut b.asm;
    let mut wrapped = asm.create_label();
    let mut forward = asm.create_label();
    let mut meets = asm.create_label();
    asm.mov(rcx, Builder::slot(Slot::LwpTailAt))?;
    asm.mov(ecx, dword_ptr(rcx))?;
    asm.and(ecx, -RECORD_BYTES)?;
    asm.cmp(ecx, r9d)?;
    asm.jb(wrapped)?;
    asm.mov(ecx, 0)?;
    asm.set_label(&mut wrapped)?;
    asm.mov(eax, esi)?;
    asm.sub(eax, ecx)?;
    asm.jz(meets)?;
    asm.jnc(forward)?;
    asm.add(eax, r9d)?;
    asm.jmp(forward)?;
    asm.set_label(&mut meets)?;
    asm.cmp(Builder::slot32(Slot::LwpContinuous), 0)?;
    asm.jz(full)?;
    asm.set_label(&mut forward)?;
    asm.cmp(rax, Builder::slot(Slot::LwpThreshold))?;
    asm.jae(slow)
}

/// Moves the head, in memory first: from then on the record is a reader's, and must not be made
/// again.
fn publish(b: &mut Builder) -> Emit {
    b.asm.mov(rdx, Builder::slot(Slot::LwpHeadAt))?;
    b.asm.mov(Builder::slot(Slot::LwpNewHead), rsi)?;
    b.asm.mov(dword_ptr(rdx), esi)?;
    b.mark(state(PcSource::LwpAfter, ALL_AND_FLAGS, Commit::LwpStored))?;
    b.asm.mov(Builder::slot(Slot::LwpRingHead), rsi)
}

/// Counts a record that the ring has no room for: from then on it must not be counted again. The
/// head, in edi, stays.
fn miss(b: &mut Builder) -> Emit {
    b.asm.mov(rsi, rdi)?;
    count_missed(b)?;
    b.mark(state(PcSource::LwpAfter, ALL_AND_FLAGS, Commit::LwpStored))?;
    Ok(())
}

/// Counts a record that the ring has no room for. The head, in esi, stays; rdx is lost.
pub(super) fn count_missed(b: &mut Builder) -> Emit {
    b.asm.mov(rdx, Builder::slot(Slot::LwpHeadAt))?;
    b.asm.mov(Builder::slot(Slot::LwpNewHead), rsi)?;
    b.asm.mov(dword_ptr(rdx), esi)?;
    b.asm.inc(qword_ptr(rdx + MISSED_EVENTS))
}

/// LWPINS at the pc in r11, its operands staged.
fn emit_insert(b: &mut Builder, ring: CodeLabel) -> Result<CodeLabel, IcedError> {
    let mut slow = b.asm.create_label();
    let mut full = b.asm.create_label();
    let start = begin_record(b, slow)?;
    write_record(b, slow, full)?;
    set_carry(b, false)?;
    publish(b)?;
    end(b)?;
    b.asm.set_label(&mut full)?;
    b.asm.zero_bytes()?;
    b.mark(begun(PcSource::ContextPc, ALL_AND_FLAGS))?;
    set_carry(b, true)?;
    miss(b)?;
    end(b)?;
    ask(b, &mut slow, ring)?;
    Ok(start)
}

/// The carry flag is to be set, or cleared.
fn set_carry(b: &mut Builder, to: bool) -> Emit {
    b.asm.mov(eax, i32::from(to))?;
    b.asm.mov(Builder::slot(Slot::LwpData), rax)?;
    b.asm.mov(eax, 1)?;
    b.asm.mov(Builder::slot(Slot::LwpPending), rax)
}

/// LWPVAL at the pc in r11, whose counter has expired, its operands staged.
fn emit_sample(b: &mut Builder, ring: CodeLabel) -> Result<CodeLabel, IcedError> {
    let mut slow = b.asm.create_label();
    let mut full = b.asm.create_label();
    let start = begin_record(b, slow)?;
    write_record(b, slow, full)?;
    sampled(b, publish)?;
    b.asm.set_label(&mut full)?;
    b.asm.zero_bytes()?;
    b.mark(begun(PcSource::ContextPc, ALL_AND_FLAGS))?;
    sampled(b, miss)?;
    ask(b, &mut slow, ring)?;
    Ok(start)
}

/// The value is sampled: the counter begins anew.
fn sampled(b: &mut Builder, stored: fn(&mut Builder) -> Emit) -> Emit {
    reload(b)?;
    stored(b)?;
    b.asm.mov(Builder::slot(Slot::LwpValue), r8)?;
    b.asm.mov(Builder::slot(Slot::LwpValueBase), r8)?;
    b.asm.mov(Builder::slot(Slot::LwpRandom), r9)?;
    end(b)
}

/// r8 := what the counter is set to;  r9 := the next state of the random number generator, which is
/// asked only where bits of the counter are random.
fn reload(b: &mut Builder) -> Emit {
    b.asm.mov(r8, Builder::slot(Slot::LwpValueInterval))?;
    draw(b, r8)?;
    b.asm.mov(Builder::slot(Slot::LwpNewValue), r8)
}

/// Sets those bits of the interval in `to` that are random. The next state of the generator, which
/// is asked only where there are any, is made ready and left in r9; rax and rcx are lost.
pub(super) fn draw(b: &mut Builder, to: AsmRegister64) -> Emit {
    let asm = &mut b.asm;
    let mut plain = asm.create_label();
    asm.mov(r9, Builder::slot(Slot::LwpRandom))?;
    asm.mov(rcx, Builder::slot(Slot::LwpRandomMask))?;
    asm.test(rcx, rcx)?;
    asm.jz(plain)?;
    next_random(asm)?;
    asm.mov(eax, r9d)?;
    asm.and(eax, ecx)?;
    asm.or(to, rax)?;
    asm.set_label(&mut plain)?;
    asm.mov(Builder::slot(Slot::LwpNewRandom), r9)
}

/// r9d := the state of the random number generator after r9d. Takes rax.
fn next_random(asm: &mut CodeAssembler) -> Emit {
    for (left, by) in [(true, 13u32), (false, 17), (true, 5)] {
        asm.mov(eax, r9d)?;
        match left {
            true => asm.shl(eax, by)?,
            false => asm.shr(eax, by)?,
        }
        asm.xor(r9d, eax)?;
    }
    Ok(())
}

/// SLWPCB at the pc in r11.
///
/// ```text
/// the counters := what is left of the countdown, and the clocks that follow from it
/// BufferHeadOffset := head
/// word 0 := word 0 - what the instruction itself counts;  negative --> slow
/// ```
///
/// Taking that is what executes it: before, only memory has been written that may be written again.
fn emit_flush(b: &mut Builder, ring: CodeLabel) -> Result<CodeLabel, IcedError> {
    let mut slow = b.asm.create_label();
    let start = begin(b)?;
    b.asm.mov(r10, Builder::slot(Slot::LwpBlock))?;
    b.asm.test(r10, r10)?;
    b.asm.jz(slow)?;
    count_up(b)?;
    write_clocks(&mut b.asm)?;
    write_counters(b)?;
    let asm = &mut b.asm;
    asm.mov(Builder::slot(Slot::LwpData), r10)?;
    asm.mov(eax, 2)?;
    asm.mov(Builder::slot(Slot::LwpPending), rax)?;
    asm.mov(rcx, qword_ptr(lwp_slot_displacement(0) as i32).gs())?;
    asm.mov(eax, Builder::slot32(Slot::LwpWeight))?;
    asm.sub(rcx, rax)?;
    asm.js(slow)?;
    asm.mov(qword_ptr(lwp_slot_displacement(0) as i32).gs(), rcx)?;
    end(b)?;
    ask(b, &mut slow, ring)?;
    Ok(start)
}

/// Writes the head to the control block, and the counters, of which rsi and rdi are the
/// countdown's. rax, rcx and r8 are lost.
pub(super) fn write_counters(b: &mut Builder) -> Emit {
    let asm = &mut b.asm;
    asm.mov(r8, Builder::slot(Slot::LwpValue))?;
    let counters = [(Slot::LwpHighAt, esi), (Slot::LwpLowAt, edi), (Slot::LwpValueAt, r8d)];
    for (at, counter) in counters {
        let mut none = asm.create_label();
        asm.mov(rcx, Builder::slot(at))?;
        asm.jrcxz(none)?;
        asm.mov(dword_ptr(rcx), counter)?;
        asm.set_label(&mut none)?;
    }
    asm.mov(eax, Builder::slot32(Slot::LwpRingHead))?;
    asm.mov(rcx, Builder::slot(Slot::LwpHeadAt))?;
    asm.mov(dword_ptr(rcx), eax)
}

/// The counters of clocks, from the high part in rsi, which becomes the counter of instructions.
/// Keeps rdi and r10.
///
/// ```text
/// no divisor                                          --> done
/// r9  := core clocks      = (65536 (base - rsi) + offset) / divisor
/// rax := reference clocks = (rate r9 + remainder) / per
/// ```
fn write_clocks(asm: &mut CodeAssembler) -> Emit {
    let mut done = asm.create_label();
    asm.mov(rcx, Builder::slot(Slot::LwpCoreDivisor))?;
    asm.jrcxz(done)?;
    asm.mov(rax, Builder::slot(Slot::LwpHighBase))?;
    asm.sub(rax, rsi)?;
    asm.shl(rax, 16u32)?;
    asm.add(rax, Builder::slot(Slot::LwpCoreOffset))?;
    asm.mov(edx, 0)?;
    asm.div(rcx)?;
    asm.mov(r9, rax)?;
    asm.mov(rcx, Builder::slot(Slot::LwpReferenceRate))?;
    asm.mov(eax, ecx)?;
    asm.shr(rcx, 32u32)?;
    asm.mul(r9)?;
    asm.mov(r8, Builder::slot(Slot::LwpClockRest))?;
    asm.shr(r8, 32u32)?;
    asm.add(rax, r8)?;
    asm.adc(rdx, 0)?;
    asm.div(rcx)?;
    asm.mov(r8, Builder::slot(Slot::LwpClockBase))?;
    for (at, clocks) in [(Slot::LwpCoreClocksAt, r9d), (Slot::LwpReferenceClocksAt, eax)] {
        let mut none = asm.create_label();
        asm.mov(rcx, Builder::slot(at))?;
        asm.jrcxz(none)?;
        asm.mov(edx, r8d)?;
        asm.sub(edx, clocks)?;
        asm.mov(dword_ptr(rcx), edx)?;
        asm.set_label(&mut none)?;
        asm.shr(r8, 32u32)?;
    }
    asm.add(esi, Builder::slot32(Slot::LwpClockRest))?;
    asm.set_label(&mut done)?;
    asm.zero_bytes()
}
