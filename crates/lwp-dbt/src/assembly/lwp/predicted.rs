//! Branches with a modelled predictor, without asking the host for each one.
//!
//! A prediction depends on every branch before it, so each branch is executed at the end of a
//! [known cut](crate::context::KnownCut). The thread appends the branch's outcome to a list in its
//! context and continues. When anything else needs the unit, the host passes the list to the
//! predictor, in order. The list never has more branches than can pass without an event, however
//! they are predicted.

use iced_x86::IcedError;
use iced_x86::code_asm::{CodeAssembler, CodeLabel, al, dword_ptr, eax, ecx, qword_ptr, r8, r10};
use iced_x86::code_asm::{rax, rcx, rdx, rsi};

use super::event::stage_unchanged;
use crate::assembly::{Builder, Emit};
use crate::context::{BRANCH_BYTES, BRANCHES_AT, KnownCut, RequestKind, Slot};
use crate::routines::PREDICTED;

/// Goes to `host` unless what is due, of which `event::find` has the counts, is a branch that may
/// be written down.
pub(super) fn is_branch(asm: &mut CodeAssembler, host: CodeLabel) -> Result<(), IcedError> {
    let mut branch = asm.create_label();
    asm.mov(rdx, Builder::slot(Slot::LwpBranches))?;
    asm.cmp(rdx, Builder::slot(Slot::LwpMostBranches))?;
    asm.jae(host)?;
    asm.cmp(eax, PREDICTED[1] as i32)?;
    asm.je(branch)?;
    // An event of instructions, or of their time.
    asm.cmp(rsi, r8)?;
    asm.jl(host)?;
    asm.set_label(&mut branch)?;
    asm.zero_bytes()
}

/// Writes down the branch that has ended the cut fragment, and makes ready what the countdown is to
/// be. From then on the branch has retired. Goes to `slow` where it is the host that has led the
/// thread there.
///
/// ```text
/// entry := address of the cut + taken, the pc;  high -= what the cut counts, if that is instructions
/// ```
pub(super) fn write_down(b: &mut Builder, slow: CodeLabel) -> Emit {
    let asm = &mut b.asm;
    let mut ready = asm.create_label();
    asm.mov(r10, Builder::slot(Slot::LwpCut))?;
    asm.test(r10, r10)?;
    asm.jz(slow)?;
    asm.mov(rsi, Builder::slot(Slot::LwpBranches))?;
    asm.mov(rdx, rsi)?;
    asm.shl(rdx, BRANCH_BYTES.trailing_zeros())?;
    asm.add(rdx, Builder::slot(Slot::This))?;
    asm.mov(eax, 0)?;
    asm.cmp(Builder::slot32(Slot::Kind), RequestKind::LwpTaken as u32)?;
    asm.sete(al)?;
    asm.or(rax, r10)?;
    asm.mov(qword_ptr(rdx + BRANCHES_AT as i32), rax)?;
    asm.mov(rax, Builder::slot(Slot::Pc))?;
    asm.mov(qword_ptr(rdx + BRANCHES_AT as i32 + 8), rax)?;
    stage_unchanged(asm)?;
    asm.cmp(Builder::slot32(Slot::LwpEvents), PREDICTED[1] as i32)?;
    asm.je(ready)?;
    asm.mov(ecx, dword_ptr(r10 + KnownCut::HIGH))?;
    asm.mov(rax, Builder::slot(Slot::LwpHigh))?;
    asm.sub(rax, rcx)?;
    asm.mov(Builder::slot(Slot::LwpNewHigh), rax)?;
    asm.set_label(&mut ready)?;
    asm.inc(rsi)?;
    asm.mov(Builder::slot(Slot::LwpBranches), rsi)
}
