//! Transfers between functions, which a thread writes down for the host: what its calling contexts
//! and their counts are made of.
//!
//! They share their room with the misses and samples of Lightweight Profiling, which is off where
//! they are written down; so the words of its countdown are free too.

use super::{CONTEXT_BYTES, NOTES_AT, lwp_slot_displacement};

/// Displacement of the first byte behind the room. [`Slot::Transfers`](super::Slot::Transfers) has
/// the place of the next one, relative to here: a negative number, or 0 where there is no room.
pub const END: u32 = CONTEXT_BYTES as u32;
/// Bytes of a transfer.
pub const BYTES: u32 = 40;
/// The number of transfers that there is room for.
pub const MOST: u32 = (END - NOTES_AT) / BYTES;
/// Its value where nothing has been written down.
pub const EMPTY: u64 = ((MOST * BYTES) as u64).wrapping_neg();
/// Offset of the stack pointer when the transfer begins.
pub const STACK: u32 = 0;
/// Offset of where it is made, four bytes: the displacement of the counter that names it.
pub const SITE: u32 = 8;
/// Offsets of the two words whose sum is the number of instructions executed so far.
pub const RUNS: [u32; 2] = [16, 24];
/// Offset of where it leads, if the code does not say that.
pub const TARGET: u32 = 32;

/// The number of words that instructions are added up in, so that no chain of dependent stores runs
/// from block to block.
pub const WORDS: u32 = 2;

/// gs-relative displacement of the word that the fragment with this counter adds to.
pub fn word(counter: u32) -> u32 {
    lwp_slot_displacement(counter % WORDS)
}
