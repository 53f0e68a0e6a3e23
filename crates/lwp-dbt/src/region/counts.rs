//! The counts of one execution of a block.

use crate::block::{Block, Terminator};
use crate::emit::Countdown;
use crate::plan::{EventDeltas, Selection};

/// Returns the amounts that `block` takes from the high and the low part of the LWP countdown.
pub fn countdown_of(block: &Block, selection: &Selection) -> (u8, u8) {
    let countdown = Countdown::of(block, selection);
    (countdown.high, countdown.low)
}

/// Returns the counts of one execution of `block`, a conditional branch at its end as taken.
pub fn deltas_of(block: &Block) -> EventDeltas {
    deltas(block)
}

/// Returns the counts of one execution of a block. Instructions that the host carries out are
/// counted by it.
pub(super) fn deltas(block: &Block) -> EventDeltas {
    let mut deltas =
        EventDeltas { instructions: block.instructions() as i32, ..EventDeltas::default() };
    match block.terminator {
        Terminator::Jump { .. } => deltas.branches = 1,
        Terminator::Conditional { .. } | Terminator::CountedLoop { .. } => {
            deltas.branches = 1;
            deltas.conditional = 1;
            deltas.conditional_taken = 1;
        }
        Terminator::Call { .. } => {
            deltas.branches = 1;
            deltas.calls = 1;
        }
        Terminator::IndirectJump => {
            deltas.branches = 1;
            deltas.indirect = 1;
        }
        Terminator::IndirectCall => {
            deltas.branches = 1;
            deltas.calls = 1;
            deltas.indirect = 1;
        }
        Terminator::Return { .. } => {
            deltas.branches = 1;
            deltas.returns = 1;
        }
        Terminator::Step | Terminator::Repeat { walked: false } => deltas.instructions -= 1,
        _ => {}
    }
    deltas
}
