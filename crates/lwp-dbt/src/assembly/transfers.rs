//! Transfers between functions whose record isn't the first in its slot of the table. The routine
//! searches the other records of the slot, and makes a new record if that needs no decision by the
//! host.

use iced_x86::IcedError;
use iced_x86::code_asm::{
    AsmMemoryOperand, AsmRegister64, CodeLabel, dword_ptr, eax, ecx, qword_ptr, r11, r11d, rax,
    rcx, rsp, word_ptr,
};

use super::{ALL, BOTH, Builder, Emit, saved_registers, state};
use crate::context::trace::{
    FRAME_BYTES, FRAME_STACK, FRAMES, HASH_SHIFT, KEY, LAST, LEFT, Leave, MOST_JUMPS, NAME_SHIFT,
    NEXT_RECORD, PLACE, PRESENT, REACH_BITS, RECORD_BYTES, RECORD_JUMPS, RECORD_KEY, RECORD_NAME,
    RECORD_NEXT, RECORD_TARGET, RECORDS, SITE, SITE_SPREAD, TABLE,
};
use crate::context::{RequestKind, Slot};
use crate::state_map::{Commit, PcSource, Spills};

const THREE: Spills = Spills { rax: true, ..BOTH };
const WAYS: [Leave; 6] = [
    Leave::Call,
    Leave::IndirectCall,
    Leave::Jump,
    Leave::IndirectJump,
    Leave::Return,
    Leave::Resume,
];

/// By the way to leave a function; rcx, r11 and rax are in their slots. Goes on at
/// [`Slot::CallAfter`], where the transfer is tried again.
///
/// ```text
/// calls:  there is no room for a frame --> ask the host
/// jumps:  the stack pointer is not near the innermost frame --> ask
/// there is no present record --> ask;  r11 := key; rax := place
/// each record of the place:  it has this key and this target --> found
/// no room for a record --> ask;  jumps: the present record's come from too many jumps --> ask
/// rax := a new record with this key and this target; it becomes the first of its place; go on
/// found:  it becomes the first of its place; go on
/// returns: ask
/// ```
///
/// A signal may come anywhere: a record that is no longer found is nothing worse than forgotten.
pub(super) fn emit(b: &mut Builder, ring: CodeLabel) -> Result<[CodeLabel; 6], IcedError> {
    let ask = emit_ask(b, ring)?;
    let mut all = [ask; 6];
    for (label, leave) in all.iter_mut().zip(WAYS) {
        if !matches!(leave, Leave::Return | Leave::Resume) {
            *label = emit_search(b, leave, ask)?;
        }
    }
    Ok(all)
}

fn emit_ask(b: &mut Builder, ring: CodeLabel) -> Result<CodeLabel, IcedError> {
    let start = b.mark(state(PcSource::CallAfter, THREE, Commit::Transferring))?;
    b.asm.mov(rax, Builder::slot(Slot::Rax))?;
    for (slot, register) in saved_registers() {
        b.asm.mov(Builder::slot(slot), register)?;
    }
    b.mark(state(PcSource::CallAfter, ALL, Commit::Transferring))?;
    b.asm.mov(Builder::slot32(Slot::Kind), RequestKind::Transfers as u32)?;
    b.mark(state(PcSource::CallAfter, ALL, Commit::Mailbox))?;
    b.asm.jmp(ring)?;
    Ok(start)
}

fn emit_search(b: &mut Builder, leave: Leave, ask: CodeLabel) -> Result<CodeLabel, IcedError> {
    let start = b.mark(state(PcSource::CallAfter, THREE, Commit::Transferring))?;
    let asm = &mut b.asm;
    let (mut absent, mut next) = (asm.create_label(), asm.create_label());
    let (mut same, mut found) = (asm.create_label(), asm.create_label());
    let (mut walk, mut first) = (asm.create_label(), asm.create_label());
    if leave.is_call() {
        asm.movzx(ecx, word_ptr(FRAMES as i32).gs())?;
        emit_if_zero(b, ask)?;
    } else {
        emit_near(b, ask)?;
    }
    b.asm.mov(rcx, word(PRESENT))?;
    emit_if_zero(b, ask)?;
    let asm = &mut b.asm;
    asm.mov(eax, dword_ptr(SITE_SPREAD as i32).gs())?;
    if !leave.is_direct() {
        asm.crc32(rax, Builder::slot(Slot::CallTarget))?;
        asm.mov(r11d, u32::from(HASH_SHIFT))?;
        asm.shrx(eax, eax, r11d)?;
    }
    asm.rorx(r11, rcx, u32::from(NAME_SHIFT))?;
    asm.mov(r11d, r11d)?;
    asm.lea(rax, qword_ptr(rax + r11))?;
    asm.mov(word(PLACE), rax)?;
    asm.mov(r11d, dword_ptr(SITE as i32).gs())?;
    asm.lea(r11, qword_ptr(rcx + r11))?;
    asm.mov(word(KEY), r11)?;
    asm.mov(ecx, 0u32)?;
    asm.mov(word(LAST), rcx)?;
    asm.mov(eax, place(rax))?;
    asm.set_label(&mut walk)?;
    asm.mov(rcx, rax)?;
    asm.jrcxz(absent)?;
    asm.mov(rcx, record(RECORD_KEY))?;
    asm.lea(rcx, qword_ptr(rcx + r11))?;
    asm.jrcxz(same)?;
    asm.set_label(&mut next)?;
    asm.mov(word(LAST), rax)?;
    asm.mov(eax, dword_ptr(rax + (RECORDS + RECORD_NEXT) as i32).gs())?;
    asm.jmp(walk)?;
    asm.set_label(&mut same)?;
    if leave.is_direct() {
        asm.jmp(found)?;
    } else {
        asm.mov(rcx, record(RECORD_TARGET))?;
        asm.mov(r11, Builder::slot(Slot::CallTarget))?;
        asm.lea(rcx, qword_ptr(rcx + r11))?;
        asm.mov(r11, word(KEY))?;
        asm.jrcxz(found)?;
        asm.jmp(next)?;
    }
    asm.set_label(&mut absent)?;
    emit_new(b, leave, ask)?;
    b.asm.jmp(first)?;
    b.asm.set_label(&mut found)?;
    emit_found(b, &mut first)?;
    Ok(start)
}

/// The record in rax becomes the first of its place, from `first` on if it has none yet.
fn emit_found(b: &mut Builder, first: &mut CodeLabel) -> Emit {
    let asm = &mut b.asm;
    let mut done = asm.create_label();
    asm.mov(rcx, word(LAST))?;
    asm.jrcxz(done)?;
    asm.mov(r11d, dword_ptr(rax + (RECORDS + RECORD_NEXT) as i32).gs())?;
    asm.mov(dword_ptr(rcx + (RECORDS + RECORD_NEXT) as i32).gs(), r11d)?;
    asm.set_label(first)?;
    asm.mov(rcx, word(PLACE))?;
    asm.mov(r11d, place(rcx))?;
    asm.mov(dword_ptr(rax + (RECORDS + RECORD_NEXT) as i32).gs(), r11d)?;
    asm.mov(place(rcx), eax)?;
    asm.set_label(&mut done)?;
    asm.jmp(Builder::slot(Slot::CallAfter))
}

/// Goes to `ask` unless the stack pointer is near the innermost frame.
fn emit_near(b: &mut Builder, ask: CodeLabel) -> Emit {
    let mut near = b.asm.create_label();
    b.asm.mov(rcx, word(FRAMES))?;
    b.asm.mov(rcx, qword_ptr(rcx + (FRAME_STACK as i32 - FRAME_BYTES as i32)).gs())?;
    b.asm.mov(rax, rsp)?;
    b.asm.not(rax)?;
    b.asm.lea(rcx, qword_ptr(rcx + rax + 1))?;
    b.asm.mov(eax, u32::from(REACH_BITS))?;
    b.asm.shrx(rcx, rcx, rax)?;
    b.asm.jrcxz(near)?;
    b.asm.jmp(ask)?;
    b.asm.set_label(&mut near)?;
    b.asm.zero_bytes()
}

/// Makes a record, in rax.
fn emit_new(b: &mut Builder, leave: Leave, ask: CodeLabel) -> Emit {
    if leave.is_call() {
        b.asm.mov(ecx, MOST_JUMPS)?;
    } else {
        b.asm.mov(rcx, word(PRESENT))?;
        b.asm.rorx(rcx, rcx, 32)?;
        b.asm.mov(ecx, dword_ptr(rcx + (RECORDS + RECORD_JUMPS) as i32).gs())?;
        emit_if_zero(b, ask)?;
        b.asm.lea(ecx, qword_ptr(rcx - 1))?;
    }
    b.asm.mov(rax, word(NEXT_RECORD))?;
    b.asm.mov(dword_ptr(rax + (RECORDS + RECORD_JUMPS) as i32).gs(), ecx)?;
    b.asm.mov(rcx, word(LEFT))?;
    emit_if_zero(b, ask)?;
    let asm = &mut b.asm;
    asm.lea(rcx, qword_ptr(rcx - 1))?;
    asm.mov(word(LEFT), rcx)?;
    asm.lea(rcx, qword_ptr(rax + RECORD_BYTES as i32))?;
    asm.mov(word(NEXT_RECORD), rcx)?;
    asm.not(r11)?;
    asm.lea(r11, qword_ptr(r11 + 1))?;
    asm.mov(record(RECORD_KEY), r11)?;
    if !leave.is_direct() {
        asm.mov(rcx, Builder::slot(Slot::CallTarget))?;
        asm.not(rcx)?;
        asm.lea(rcx, qword_ptr(rcx + 1))?;
        asm.mov(record(RECORD_TARGET), rcx)?;
    }
    asm.rorx(rcx, rax, 32)?;
    asm.mov(record(RECORD_NAME), rcx)
}

/// Goes to `label`, which may be far, if rcx is 0.
fn emit_if_zero(b: &mut Builder, label: CodeLabel) -> Emit {
    let (mut zero, mut other) = (b.asm.create_label(), b.asm.create_label());
    b.asm.jrcxz(zero)?;
    b.asm.jmp(other)?;
    b.asm.set_label(&mut zero)?;
    b.asm.jmp(label)?;
    b.asm.set_label(&mut other)?;
    b.asm.zero_bytes()
}

fn word(displacement: u32) -> AsmMemoryOperand {
    qword_ptr(displacement as i32).gs()
}

/// A word of the record in rax.
fn record(offset: u32) -> AsmMemoryOperand {
    qword_ptr(rax + (RECORDS + offset) as i32).gs()
}

/// A place in the table.
fn place(index: AsmRegister64) -> AsmMemoryOperand {
    dword_ptr(index * 4 + TABLE as i32).gs()
}
