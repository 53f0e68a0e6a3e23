//! The steps of a path: its blocks, as long as the code confirms that each leads to the next.

use std::sync::Arc;

use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory, OpAccess};

use super::dormant::holds;
use super::{NOT_TAKEN, Translator, Work, decode, deltas, fragment_room, lay};
use crate::addr::AppPc;
use crate::block::{Block, Terminator};
use crate::emit::{Countdown, Target};
use crate::fragment::Neighbour;
use crate::plan::{Checks, EventDeltas};

/// Most blocks of a superblock.
const MOST_BLOCKS: usize = 64;

/// One block of a superblock.
pub(super) struct Step {
    pub(super) block: Arc<Block>,
    /// Its successor in the superblock; none at the end.
    pub(super) to: Option<AppPc>,
}

impl Step {
    /// The code of the block.
    pub(super) fn code(&self) -> Neighbour {
        Neighbour { pc: self.block.pc, bytes: self.block.bytes.clone().into_boxed_slice() }
    }

    /// The code of the block from `pc` on, if that lies in it.
    pub(super) fn code_at(&self, pc: AppPc) -> Option<&[u8]> {
        let offset = pc.0.checked_sub(self.block.pc.0)?;
        self.block.bytes.get(offset as usize..).filter(|code| !code.is_empty())
    }

    /// Returns whether the branch at the end of the block is not taken on the path.
    pub(super) fn is_not_taken(&self) -> bool {
        match (&self.block.terminator, self.to) {
            (Terminator::Conditional { target, .. }, Some(to)) => to != *target,
            _ => false,
        }
    }

    /// The counts of the block on the path.
    pub(super) fn counts(&self) -> EventDeltas {
        let own = deltas(&self.block);
        if self.is_not_taken() { own.plus(NOT_TAKEN) } else { own }
    }

    /// Returns whether the block may write to memory, its branch included.
    pub(super) fn stores(&self) -> bool {
        let mut factory = InstructionInfoFactory::new();
        let code = &self.block.bytes;
        let all = Decoder::with_ip(64, code, self.block.pc.0, DecoderOptions::NONE);
        all.into_iter().any(|instruction| {
            let memory = factory.info(&instruction).used_memory();
            memory.iter().any(|it| {
                !matches!(it.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess)
            })
        })
    }

    /// Returns whether a superblock of code that may change is left in front of the branch at the
    /// block's end, where the block behind is cut off: behind a comparison the flags would be lost.
    /// A call is left behind it, because it writes to the stack.
    pub(super) fn is_left_before_branch(&self) -> bool {
        matches!(self.block.terminator, Terminator::Return { .. } | Terminator::IndirectJump)
    }
}

/// The blocks of `path`, as far as each leads to the next.
pub(super) fn follow(by: &Translator, work: &mut Work<'_>, path: &[AppPc]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut countdown = Countdown::default();
    for (at, &pc) in path.iter().enumerate().take(MOST_BLOCKS) {
        let fits = (at + 2) * fragment_room(by) <= work.room && work.unit.marks.has_none_at(pc);
        let Some(block) = decode(by, work, pc).filter(|_| fits) else { break };
        let checks = work.unit.checks;
        if checks != Checks::None && !holds(checks, work.source, pc, &block.bytes) {
            break;
        }
        let Some(sum) = countdown.plus(lay::countdown_of(by, work.unit, &block)) else { break };
        countdown = sum;
        let to = path.get(at + 1).copied().filter(|to| leads(&block, *to));
        let to = to.filter(|_| at > 0 || !ends_exits(by, &block));
        steps.push(Step { block, to });
        if to.is_none() {
            break;
        }
    }
    if let Some(last) = steps.last_mut() {
        last.to = None;
    }
    steps
}

/// Returns whether `block` is nothing but a call that side exits leave to it: it is not guarded
/// itself.
fn ends_exits(by: &Translator, block: &Block) -> bool {
    leaves_call(by, block) && block.pc == block.terminator_pc()
}

/// Returns whether `block` ends in a call that is made elsewhere unless it leads where it is
/// expected to: there it is counted by where it leads.
pub(super) fn leaves_call(by: &Translator, block: &Block) -> bool {
    by.plan.counts_calls() && matches!(block.terminator, Terminator::IndirectCall)
}

/// Returns whether control can go from the end of `block` to `to`, in a way that a superblock
/// follows.
fn leads(block: &Block, to: AppPc) -> bool {
    match block.terminator {
        Terminator::Fall => to == block.next(),
        Terminator::Jump { target } | Terminator::Call { target } => to == target,
        // Where both ways lead to one place, the place does not say which it was.
        Terminator::Conditional { target, .. } => {
            target != block.next() && (to == target || to == block.next())
        }
        Terminator::Return { .. } | Terminator::IndirectJump | Terminator::IndirectCall => {
            Target::of(block).is_some()
        }
        _ => false,
    }
}
