//! Indirect calls whose target isn't the first one of their site: counted in a table in the
//! thread's context.

use iced_x86::IcedError;
use iced_x86::code_asm::{CodeLabel, eax, ecx, qword_ptr, r11, r11d, rax, rcx, word_ptr};

use super::{ALL, BOTH, Builder, Emit, saved_registers, state};
use crate::context::calls::{CALL_BYTES, CALL_MASK, CALL_OFTEN, CALL_PROBES, CALLS_AT};
use crate::context::{RequestKind, Slot};
use crate::state_map::{Commit, PcSource, Spills};

const THREE: Spills = Spills { rax: true, ..BOTH };

/// Offsets in a slot of the table.
const TARGET: i32 = 0;
const SITE: i32 = 8;
const COUNT: i32 = 16;

/// Counts the call that the context describes; rcx and r11 are in their slots. The call has not
/// been made.
///
/// ```text
/// r11 := target; rax := place of the first slot
/// each slot:  it is free --> take it, count
///             it has this target and this site --> count
/// full:       ask the host
/// count:      count = CALL_OFTEN --> full
///             count := count + 1; go on, with the target in r11
/// ```
///
/// The host makes room; or it sees that a call has led here so often that this had better be its
/// first target.
///
/// A slot's site is written before its target, which makes it taken: a signal's handler may take
/// the slot meanwhile.
pub(super) fn emit(b: &mut Builder, ring: CodeLabel) -> Result<CodeLabel, IcedError> {
    let start = b.mark(state(PcSource::CallAfter, BOTH, Commit::Calling))?;
    b.asm.mov(Builder::slot(Slot::Rax), rax)?;
    b.mark(state(PcSource::CallAfter, THREE, Commit::Calling))?;
    let asm = &mut b.asm;
    asm.mov(r11, Builder::slot(Slot::CallTarget))?;
    asm.mov(ecx, Builder::slot32(Slot::CallSite))?;
    asm.lea(ecx, qword_ptr(rcx + r11))?;
    match b.layout.features.wide_index {
        true => {
            asm.mov(eax, CALL_MASK)?;
            asm.pext(eax, ecx, eax)?;
        }
        false => asm.movzx(eax, iced_x86::code_asm::cx)?,
    }
    // In units of eight bytes.
    asm.lea(rax, qword_ptr(rax * (CALL_BYTES / 8)))?;
    let mut count = asm.create_label();
    let mut take = asm.create_label();
    let mut full = asm.create_label();
    for probe in 0..CALL_PROBES {
        emit_probe(b, (probe * CALL_BYTES) as i32, take, count)?;
    }
    b.asm.set_label(&mut full)?;
    emit_full(b, ring)?;
    b.mark(state(PcSource::CallAfter, THREE, Commit::Calling))?;
    b.asm.set_label(&mut take)?;
    b.asm.mov(ecx, Builder::slot32(Slot::CallSite))?;
    b.asm.not(ecx)?;
    b.asm.mov(slot(SITE), rcx)?;
    b.asm.mov(rcx, r11)?;
    b.asm.not(rcx)?;
    b.asm.mov(slot(TARGET), rcx)?;
    b.asm.set_label(&mut count)?;
    // Its lowest 16 bits first: that is enough for nearly all.
    b.asm.movzx(ecx, word_ptr(rax * 8 + (CALLS_AT as i32 + COUNT)).gs())?;
    b.asm.lea(ecx, qword_ptr(rcx - (CALL_OFTEN & 0xffff) as i32))?;
    let mut often = b.asm.create_label();
    let mut seldom = b.asm.create_label();
    b.asm.jrcxz(often)?;
    b.asm.set_label(&mut seldom)?;
    b.asm.mov(rcx, slot(COUNT))?;
    b.asm.lea(rcx, qword_ptr(rcx + 1))?;
    b.asm.mov(slot(COUNT), rcx)?;
    b.mark(state(PcSource::CallAfter, THREE, Commit::Called))?;
    b.asm.mov(rax, Builder::slot(Slot::Rax))?;
    b.mark(state(PcSource::CallAfter, BOTH, Commit::Called))?;
    b.asm.jmp(Builder::slot(Slot::CallAfter))?;

    b.asm.set_label(&mut often)?;
    b.asm.zero_bytes()?;
    b.mark(state(PcSource::CallAfter, THREE, Commit::Calling))?;
    b.asm.mov(ecx, slot32(COUNT))?;
    b.asm.lea(ecx, qword_ptr(rcx - CALL_OFTEN as i32))?;
    b.asm.jrcxz(full)?;
    b.asm.jmp(seldom)?;
    Ok(start)
}

/// A word of the slot that rax says.
fn slot(offset: i32) -> iced_x86::code_asm::AsmMemoryOperand {
    qword_ptr(rax * 8 + (CALLS_AT as i32 + offset)).gs()
}

/// Looks at the slot `offset` bytes behind the first; leaves rax at the one that is taken or
/// counts.
fn emit_probe(b: &mut Builder, offset: i32, take: CodeLabel, count: CodeLabel) -> Emit {
    let asm = &mut b.asm;
    let mut free = asm.create_label();
    let mut target = asm.create_label();
    let mut found = asm.create_label();
    let mut next = asm.create_label();
    asm.mov(rcx, slot(offset + TARGET))?;
    asm.jrcxz(free)?;
    asm.lea(rcx, qword_ptr(rcx + r11 + 1))?;
    asm.jrcxz(target)?;
    asm.jmp(next)?;
    asm.set_label(&mut target)?;
    asm.mov(ecx, slot32(offset + SITE))?;
    asm.mov(r11d, Builder::slot32(Slot::CallSite))?;
    asm.lea(ecx, qword_ptr(rcx + r11 + 1))?;
    asm.mov(r11, Builder::slot(Slot::CallTarget))?;
    asm.jrcxz(found)?;
    asm.jmp(next)?;
    asm.set_label(&mut free)?;
    asm.lea(rax, qword_ptr(rax + offset / 8))?;
    asm.jmp(take)?;
    asm.set_label(&mut found)?;
    asm.lea(rax, qword_ptr(rax + offset / 8))?;
    asm.jmp(count)?;
    asm.set_label(&mut next)?;
    asm.zero_bytes()
}

fn slot32(offset: i32) -> iced_x86::code_asm::AsmMemoryOperand {
    iced_x86::code_asm::dword_ptr(rax * 8 + (CALLS_AT as i32 + offset)).gs()
}

/// Asks the host, who begins with the call anew.
fn emit_full(b: &mut Builder, ring: CodeLabel) -> Emit {
    b.asm.mov(rax, Builder::slot(Slot::Rax))?;
    b.mark(state(PcSource::CallAfter, BOTH, Commit::Calling))?;
    ask(b, ring)
}

/// Asks the host about the call at [`Slot::CallAfter`].
fn ask(b: &mut Builder, ring: CodeLabel) -> Emit {
    for (slot, register) in saved_registers() {
        b.asm.mov(Builder::slot(slot), register)?;
    }
    b.mark(state(PcSource::CallAfter, ALL, Commit::Calling))?;
    b.asm.mov(Builder::slot32(Slot::Kind), RequestKind::Calls as u32)?;
    b.mark(state(PcSource::CallAfter, ALL, Commit::Mailbox))?;
    b.asm.jmp(ring)
}
