//! The liveness of the flags that translated code would change.

use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory, InstructionInfoOptions, OpAccess};

use super::dormant::holds;
use super::{Translator, Work, decode};
use crate::addr::AppPc;
use crate::block::{Block, Terminator};
use crate::flags::ARITHMETIC;
use crate::fragment::Neighbour;
use crate::plan::Checks;

/// Returns whether the arithmetic flags at `pc` are overwritten before they are read, looking a
/// few blocks ahead.
pub(super) fn flags_dead(by: &Translator, work: &mut Work<'_>, pc: AppPc, depth: u32) -> bool {
    dead(by, work, pc, ARITHMETIC, depth)
}

/// Returns the code behind the end of `block` if it overwrites all arithmetic flags before it
/// reads any, and changes only with notice. `block` may then change the flags between the last
/// instruction that it executes itself and its branch: a thread that has to serialise before it
/// executes another thread's changes cannot do so there. A block that writes to memory trusts
/// nothing, because what it changes itself is executed behind its branch at once.
pub(super) fn trusted_behind(
    by: &Translator,
    work: &mut Work<'_>,
    block: &Block,
) -> Option<Neighbour> {
    let pc = match block.terminator {
        Terminator::Fall => block.next(),
        Terminator::Jump { target } | Terminator::Call { target } => target,
        _ => return None,
    };
    let own = &block.bytes[..usize::from(block.terminator_offset)];
    if writes(block.pc, own) { None } else { trusted_at(by, work, pc) }
}

/// Returns whether code may write to memory.
fn writes(pc: AppPc, code: &[u8]) -> bool {
    let mut factory = InstructionInfoFactory::new();
    Decoder::with_ip(64, code, pc.0, DecoderOptions::NONE).iter().any(|instruction| {
        let info = factory.info_options(&instruction, InstructionInfoOptions::NO_REGISTER_USAGE);
        info.used_memory().iter().any(|memory| {
            !matches!(memory.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess)
        })
    })
}

/// Has the block laid last trust that the code at `pc`, behind its not-taken edge, overwrites
/// the flags. Returns false where it cannot.
pub(super) fn trusts_edge(by: &Translator, work: &mut Work<'_>, pc: AppPc) -> bool {
    let Some(&last) = work.created.last() else { return false };
    let from = work.cache.fragment(last).pc;
    let known = work.unit.changing.fragments.get(&last);
    if known.is_none_or(|known| writes(from, &known.bytes)) {
        return false;
    }
    let trusted = trusted_at(by, work, pc);
    match work.unit.changing.fragments.get_mut(&last).filter(|known| !known.compares) {
        Some(known) => {
            known.trusted = trusted;
            known.trusted.is_some()
        }
        None => false,
    }
}

/// The block at `pc`, if it overwrites all arithmetic flags before it reads any and changes
/// only with notice.
fn trusted_at(by: &Translator, work: &mut Work<'_>, pc: AppPc) -> Option<Neighbour> {
    let block = decode(by, work, pc)?;
    let overwrites =
        block.flags.read & ARITHMETIC == 0 && block.flags.written & ARITHMETIC == ARITHMETIC;
    let trusted = overwrites && holds(work.unit.checks, work.source, pc, &block.bytes);
    trusted.then(|| Neighbour { pc, bytes: block.bytes.clone().into_boxed_slice() })
}

/// All arithmetic flags, if they are dead wherever control goes from the end of `block`.
pub(super) fn dead_behind(by: &Translator, work: &mut Work<'_>, block: &Block) -> u8 {
    const DEPTH: u32 = 1;
    if work.unit.checks != Checks::None {
        return 0;
    }
    let next = block.next();
    let dead = match block.terminator {
        Terminator::Fall => flags_dead(by, work, next, DEPTH),
        Terminator::Jump { target } | Terminator::Call { target } => {
            flags_dead(by, work, target, DEPTH)
        }
        Terminator::Conditional { target, .. } => {
            flags_dead(by, work, next, DEPTH) && flags_dead(by, work, target, DEPTH)
        }
        _ => false,
    };
    if dead { ARITHMETIC } else { 0 }
}

/// Returns whether the flags in `mask` are dead at `pc`.
pub(super) fn dead(by: &Translator, work: &mut Work<'_>, pc: AppPc, mask: u8, depth: u32) -> bool {
    let Some(block) = decode(by, work, pc) else { return false };
    if block.flags.read & mask != 0 {
        return false;
    }
    let left = mask & !block.flags.written;
    if left == 0 {
        return true;
    }
    // Where code may change, a neighbour's bytes say nothing.
    if depth == 0 || work.unit.checks != Checks::None {
        return false;
    }
    match block.terminator {
        Terminator::Fall => dead(by, work, block.next(), left, depth - 1),
        Terminator::Jump { target } | Terminator::Call { target } => {
            dead(by, work, target, left, depth - 1)
        }
        Terminator::Conditional { target, .. } => {
            dead(by, work, block.next(), left, depth - 1) && dead(by, work, target, left, depth - 1)
        }
        _ => false,
    }
}
