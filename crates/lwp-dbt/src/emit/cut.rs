//! Rule 18: the ends of blocks in which an LWP event is due.

use iced_x86::Register;

use super::{Emitter, dcache, lwp, terminators};
use crate::addr::AppPc;
use crate::block::{Block, Terminator};
use crate::context::{RequestKind, Slot};
use crate::plan::Lwp;
use crate::state_map::bits;

/// Rule 18. Ends a cut fragment: the block's last instruction is executed and the host is told,
/// with the pc where control is then. `Err` where an operand is out of reach or the instruction
/// cannot be executed here.
pub fn terminator(emitter: &mut Emitter<'_>, block: &Block, lwp: Lwp) -> Result<(), ()> {
    let reached = |ok: bool| if ok { Ok(()) } else { Err(()) };
    let next = block.next();
    emitter.point(bits::UNCOUNTED);
    if block.touches_before_its_end() && !dcache::touch_terminator(emitter, block, false) {
        return Err(());
    }
    match block.terminator {
        Terminator::Repeat { .. } => {
            repeat(emitter, block);
            emitter.jump_ask(RequestKind::LwpStepped, next, false);
        }
        Terminator::Fall => {
            emitter.executed(block, bits::UNCOUNTED);
            emitter.jump_ask(RequestKind::LwpStepped, next, false);
        }
        Terminator::Jump { target } => report_taken(emitter, block, target),
        Terminator::Conditional { target, condition } => {
            emitter.out.bytes(&[0x0f, 0x80 | condition]);
            emitter.place.index = block.instructions() as u8;
            emitter.ask_from(RequestKind::LwpTaken, target, false, false);
            emitter.executed(block, bits::UNCOUNTED);
            emitter.jump_ask(RequestKind::LwpStepped, next, false);
        }
        Terminator::CountedLoop { target } => {
            let bytes = &block.bytes[usize::from(block.terminator_offset)..];
            emitter.out.bytes(&bytes[..bytes.len() - 1]);
            // Taken: over the jump of the other side.
            emitter.out.bytes(&[5]);
            emitter.executed(block, bits::UNCOUNTED);
            emitter.jump_ask(RequestKind::LwpStepped, next, false);
            report_taken(emitter, block, target);
        }
        Terminator::Call { target } => {
            terminators::push_return(emitter, next);
            report_taken(emitter, block, target);
        }
        Terminator::TransactionAbort { target } => {
            emitter.out.bytes(&[0xb8, 0, 0, 0, 0]);
            emitter.place.index = block.instructions() as u8;
            emitter.point(bits::UNCOUNTED | bits::PC_TARGET);
            emitter.jump_ask(RequestKind::LwpStepped, target, false);
        }
        Terminator::IndirectJump => return reached(cut_indirect(emitter, block, None)),
        Terminator::IndirectCall => return reached(cut_indirect(emitter, block, Some(next))),
        Terminator::Return { release } => {
            emitter.out.spill_rcx();
            emitter.point(bits::UNCOUNTED | bits::SPILL_RCX);
            terminators::pop_target(emitter, release);
            report_branched(emitter);
        }
        Terminator::Lwp { kind } => {
            if !lwp::lwp_instruction(emitter, block, kind, lwp) {
                return Err(());
            }
            if kind != RequestKind::Llwpcb {
                emitter.jump_link(next);
            }
        }
        Terminator::PopFlags => {
            emitter.out.bytes(&block.bytes[usize::from(block.terminator_offset)..]);
            emitter.executed(block, bits::UNCOUNTED);
            emitter.jump_ask(RequestKind::LwpStepped, next, false);
        }
        Terminator::Syscall { .. }
        | Terminator::Emulate { .. }
        | Terminator::StateSave
        | Terminator::StorePointer
        | Terminator::Step => return Err(()),
    }
    Ok(())
}

/// A repeated string instruction: what it starts with is left for the host, who works out what
/// it has accessed.
fn repeat(emitter: &mut Emitter<'_>, block: &Block) {
    let starts = [
        (Register::RCX, Slot::LwpRepeatCount),
        (Register::RSI, Slot::LwpRepeatFrom),
        (Register::RDI, Slot::LwpRepeatTo),
    ];
    for (register, slot) in starts {
        lwp::store_register(emitter, register, slot);
    }
    emitter.out.store_imm32(Slot::LwpRepeats, 1);
    emitter.out.bytes(&block.bytes[usize::from(block.terminator_offset)..]);
    emitter.executed(block, bits::UNCOUNTED);
}

fn report_taken(emitter: &mut Emitter<'_>, block: &Block, target: AppPc) {
    emitter.place.index = block.instructions() as u8;
    emitter.point(bits::UNCOUNTED | bits::PC_TARGET);
    emitter.jump_ask(RequestKind::LwpTaken, target, false);
}

fn cut_indirect(emitter: &mut Emitter<'_>, block: &Block, push: Option<AppPc>) -> bool {
    emitter.out.spill_rcx();
    emitter.point(bits::UNCOUNTED | bits::SPILL_RCX);
    if !terminators::load_target(emitter, block) {
        return false;
    }
    if let Some(next) = push {
        terminators::push_return(emitter, next);
    }
    report_branched(emitter);
    true
}

/// Tells the host that a branch went to the pc in rcx.
fn report_branched(emitter: &mut Emitter<'_>) {
    emitter.complete(bits::UNCOUNTED | bits::SPILL_RCX | bits::PC_RCX);
    emitter.out.spill_r11();
    emitter.point(bits::UNCOUNTED | bits::SPILL_RCX | bits::SPILL_R11 | bits::PC_RCX);
    emitter.jump_to_routine(emitter.routines.lwp.branched);
}
