//! LLWPCB without the host, where a thread switches its profile off and on again.
//!
//! A thread that executes LLWPCB with 0 writes its counters to the control block, as SLWPCB does,
//! and stays on the same side of its address space, with nothing to come due for a while. If it
//! loads the same block again, and the block says what it said when the host loaded it, the thread
//! takes counters and head from it and counts on. In all other cases, the host executes LLWPCB.
//! Whatever else a thread asks for while its profile is off, the host first learns that it is.

use iced_x86::IcedError;
use iced_x86::code_asm::{
    CodeLabel, dword_ptr, eax, edx, esi, qword_ptr, r8, r9d, r10, rax, rcx, rdi, rdx, rsi,
};

use super::event::take_back_to;
use super::unit::{ask, begin, begun, end, write_counters};
use super::{RECORD_BYTES, count_up, weigh};
use crate::assembly::{ALL_AND_FLAGS, Builder, Emit, state};
use crate::context::{OFF_FOR_NOW, PAUSE, Slot, TOGGLES};
use crate::state_map::{Commit, PcSource};

/// A control block's Flags and BufferSize, BufferBase, Filters, BaseIP and LimitIP.
const FLAGS_AND_SIZE: i32 = 0;
const BUFFER_BASE: i32 = 8;
const FILTERS: i32 = 0x24;
const BASE_IP: i32 = 0x28;
const LIMIT_IP: i32 = 0x30;
/// An EventInterval, from its EventCounter.
const INTERVAL: i32 = -4;
/// The bits of a counter that are not negative.
const COUNTER: i32 = (1 << 25) - 1;
/// Its sign.
const NEGATIVE: i32 = 1 << 25;
/// Binary logarithm of the room of a part of the countdown that nothing comes due in.
const UNLIMITED: u32 = 40;

/// LLWPCB at the pc in r11, its operand staged.
pub(super) fn emit_load(b: &mut Builder, ring: CodeLabel) -> Result<CodeLabel, IcedError> {
    let mut slow = b.asm.create_label();
    let mut loads = b.asm.create_label();
    let start = begin(b)?;
    b.asm.cmp(Builder::slot(Slot::LwpOperand), 0)?;
    b.asm.jne(loads)?;
    switch_off(b, slow)?;
    end(b)?;
    b.asm.set_label(&mut loads)?;
    b.asm.zero_bytes()?;
    b.mark(begun(PcSource::ContextPc, ALL_AND_FLAGS))?;
    switch_on(b, slow)?;
    end(b)?;
    ask(b, &mut slow, ring)?;
    Ok(start)
}

/// Writes counters and head to the control block; from then on the profile is off. Only memory has
/// been written before that may be written again.
fn switch_off(b: &mut Builder, slow: CodeLabel) -> Emit {
    b.asm.cmp(Builder::slot32(Slot::LwpToggle), TOGGLES as i32)?;
    b.asm.jne(slow)?;
    // An event that has not been recorded yet belongs to the profile.
    b.asm.cmp(Builder::slot(Slot::LwpNote), 0)?;
    b.asm.jne(slow)?;
    count_up(b)?;
    write_counters(b)?;
    b.asm.mov(eax, 0)?;
    // Where a signal comes in between, its handler asks the host for what these slots allow.
    for slot in [Slot::LwpBlock, Slot::LwpEvents, Slot::LwpInserts, Slot::LwpPending] {
        b.asm.mov(Builder::slot(slot), rax)?;
    }
    b.asm.mov(Builder::slot32(Slot::LwpToggle), OFF_FOR_NOW as i32)?;
    b.mark(state(PcSource::LwpAfter, ALL_AND_FLAGS, Commit::LwpResult))?;
    let asm = &mut b.asm;
    asm.mov(esi, PAUSE as u32)?;
    asm.mov(rdi, rsi)?;
    asm.mov(Builder::slot(Slot::LwpValue), rsi)?;
    take_back_to(b)
}

/// Takes counters and head from the control block, if that is what the host has loaded; from then
/// on the profile is on, and has counted the instruction itself.
///
/// ```text
/// r10 := the block
/// ```
fn switch_on(b: &mut Builder, slow: CodeLabel) -> Emit {
    let asm = &mut b.asm;
    asm.cmp(Builder::slot32(Slot::LwpToggle), OFF_FOR_NOW as i32)?;
    asm.jne(slow)?;
    asm.mov(r10, Builder::slot(Slot::LwpOperand))?;
    asm.cmp(r10, Builder::slot(Slot::LwpLoadedBlock))?;
    asm.jne(slow)?;
    compare(b, slow)?;
    take_head(b, slow)?;
    weigh(b)?;
    let parts = [
        (Slot::LwpHighAt, Slot::LwpHighBase),
        (Slot::LwpLowAt, Slot::LwpLowBase),
        (Slot::LwpValueAt, Slot::LwpValueBase),
    ];
    for (at, base) in parts {
        take_counter(b, at, base, slow)?;
    }
    let asm = &mut b.asm;
    asm.mov(rdi, Builder::slot(Slot::LwpLowBase))?;
    asm.mov(rax, Builder::slot(Slot::LwpValueBase))?;
    asm.mov(Builder::slot(Slot::LwpValue), rax)?;
    asm.mov(rsi, Builder::slot(Slot::LwpHighBase))?;
    // An event that is due on this very instruction.
    asm.sub(rsi, r8)?;
    asm.js(slow)?;
    take_back_to(b)?;
    let asm = &mut b.asm;
    asm.mov(eax, 0)?;
    asm.mov(Builder::slot(Slot::LwpPending), rax)?;
    // LLWPCB writes Flags, even as they are.
    asm.mov(eax, dword_ptr(r10))?;
    asm.mov(dword_ptr(r10), eax)?;
    asm.mov(Builder::slot32(Slot::LwpToggle), TOGGLES as i32)?;
    b.mark(state(PcSource::LwpAfter, ALL_AND_FLAGS, Commit::LwpResult))?;
    // Not before: the handler of a signal that comes before the profile is on must not meet it.
    let asm = &mut b.asm;
    asm.mov(Builder::slot(Slot::LwpBlock), r10)?;
    asm.mov(rax, Builder::slot(Slot::LwpLoadedEvents))?;
    asm.mov(Builder::slot(Slot::LwpEvents), rax)?;
    asm.mov(eax, 1)?;
    asm.mov(Builder::slot(Slot::LwpInserts), rax)
}

/// Goes to `slow` unless the block at r10 says what it said when the host loaded it, but for head,
/// tail, counters and what the unit never reads. rax, rcx and rdx are lost.
fn compare(b: &mut Builder, slow: CodeLabel) -> Emit {
    let asm = &mut b.asm;
    let words = [
        (FLAGS_AND_SIZE, Slot::LwpLoadedFlags),
        (BUFFER_BASE, Slot::LwpRing),
        (BASE_IP, Slot::LwpLoadedBaseIp),
        (LIMIT_IP, Slot::LwpLoadedLimitIp),
    ];
    for (offset, loaded) in words {
        asm.mov(rax, qword_ptr(r10 + offset))?;
        asm.cmp(rax, Builder::slot(loaded))?;
        asm.jne(slow)?;
    }
    asm.mov(eax, dword_ptr(r10 + FILTERS))?;
    asm.cmp(eax, Builder::slot32(Slot::LwpLoadedFilters))?;
    asm.jne(slow)?;
    asm.mov(rdx, Builder::slot(Slot::LwpLoadedIntervals))?;
    for at in [Slot::LwpHighAt, Slot::LwpLowAt] {
        compare_interval(b, at, slow)?;
        b.asm.shr(rdx, 32u32)?;
    }
    b.asm.mov(rdx, Builder::slot(Slot::LwpLoadedValueInterval))?;
    compare_interval(b, Slot::LwpValueAt, slow)
}

/// Goes to `slow` unless the interval of the counter at `at` is edx, where there is one.
fn compare_interval(b: &mut Builder, at: Slot, slow: CodeLabel) -> Emit {
    let asm = &mut b.asm;
    let mut none = asm.create_label();
    asm.mov(rcx, Builder::slot(at))?;
    asm.test(rcx, rcx)?;
    asm.jz(none)?;
    asm.cmp(dword_ptr(rcx + INTERVAL), edx)?;
    asm.jne(slow)?;
    asm.set_label(&mut none)?;
    asm.zero_bytes()
}

/// Takes the head from the control block, if it is where a record can begin. rax is lost.
fn take_head(b: &mut Builder, slow: CodeLabel) -> Emit {
    let asm = &mut b.asm;
    asm.mov(rcx, Builder::slot(Slot::LwpHeadAt))?;
    asm.mov(r9d, dword_ptr(rcx))?;
    asm.mov(eax, r9d)?;
    asm.test(eax, RECORD_BYTES - 1)?;
    asm.jnz(slow)?;
    asm.cmp(eax, Builder::slot32(Slot::LwpRingSize))?;
    asm.jae(slow)?;
    asm.mov(Builder::slot(Slot::LwpRingHead), rax)
}

/// Lets `base` be the counter at `at`, or unlimited where there is none. rax and rcx are lost.
fn take_counter(b: &mut Builder, at: Slot, base: Slot, slow: CodeLabel) -> Emit {
    let asm = &mut b.asm;
    let mut taken = asm.create_label();
    asm.mov(eax, 1)?;
    asm.shl(rax, UNLIMITED)?;
    asm.mov(rcx, Builder::slot(at))?;
    asm.test(rcx, rcx)?;
    asm.jz(taken)?;
    asm.mov(eax, dword_ptr(rcx))?;
    asm.test(eax, NEGATIVE)?;
    asm.jnz(slow)?;
    asm.and(eax, COUNTER)?;
    asm.set_label(&mut taken)?;
    asm.mov(Builder::slot(base), rax)
}
