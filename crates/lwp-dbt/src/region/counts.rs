//! What one execution of a block counts.

use crate::block::{Block, Terminator};
use crate::emit::Countdown;
use crate::plan::{Selection, Weights};

/// What `block` takes from the high and the low part of the LWP countdown.
pub fn countdown_of(block: &Block, selection: &Selection) -> (u8, u8) {
    let countdown = Countdown::of(block, selection);
    (countdown.high, countdown.low)
}

/// What one execution of `block` counts, a conditional branch at its end as taken.
pub fn weights_of(block: &Block) -> Weights {
    weights(block)
}

/// What one execution of a block counts. Instructions that the host carries out are counted by it.
pub(super) fn weights(block: &Block) -> Weights {
    let mut weights = Weights { instructions: block.instructions() as i32, ..Weights::default() };
    match block.terminator {
        Terminator::Jump { .. } => weights.branches = 1,
        Terminator::Conditional { .. } | Terminator::CountedLoop { .. } => {
            weights.branches = 1;
            weights.conditional = 1;
            weights.conditional_taken = 1;
        }
        Terminator::Call { .. } => {
            weights.branches = 1;
            weights.calls = 1;
        }
        Terminator::IndirectJump => {
            weights.branches = 1;
            weights.indirect = 1;
        }
        Terminator::IndirectCall => {
            weights.branches = 1;
            weights.calls = 1;
            weights.indirect = 1;
        }
        Terminator::Return { .. } => {
            weights.branches = 1;
            weights.returns = 1;
        }
        Terminator::Step | Terminator::Repeat { walked: false } => weights.instructions -= 1,
        _ => {}
    }
    weights
}
