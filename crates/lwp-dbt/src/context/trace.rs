//! Transfers between functions, which a thread writes down for the host: what its calling contexts
//! and their counts are made of.
//!
//! They share their room with the misses and samples of Lightweight Profiling, which is off where
//! they are written down; so the words of its countdown are free too.

use super::{CONTEXT_BYTES, NOTES_AT, lwp_slot_displacement};

/// Displacement of the first byte behind the room. The room has two halves: while the host reads
/// one, the thread writes to the other. [`Slot::Transfers`](super::Slot::Transfers) has the place of the
/// next transfer relative to here, in units of [`UNIT`] bytes. If its low 16 bits are 0, a half is
/// full.
pub const END: u32 = CONTEXT_BYTES as u32;
/// Bytes of a transfer.
pub const BYTES: u32 = 32;
/// Bytes that a place counts in. It is the scale of an index register.
pub const UNIT: u32 = 2;
/// Bytes of a half; the first transfer of a half would be at the place that says it is full.
const HALF: u32 = UNIT << 16;
/// The number of transfers that there is room for in a half.
pub const MOST: u32 = HALF / BYTES - 1;

const _: () = assert!(END - NOTES_AT >= 2 * HALF);

/// A half of the room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// The one that a thread begins with.
    First,
    /// The other.
    Second,
}

impl Half {
    /// The other half.
    pub fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }

    /// The value of the slot where nothing has been written to this half.
    pub fn start(self) -> u64 {
        (self.end() - i64::from(MOST * BYTES / UNIT)).cast_unsigned()
    }

    /// The value of the slot where it is full.
    fn end(self) -> i64 {
        match self {
            Self::First => -i64::from(HALF / UNIT),
            Self::Second => 0,
        }
    }

    /// Where the `index`th transfer is.
    pub fn place(self, index: u32) -> u64 {
        let from_end = self.end() * i64::from(UNIT) - i64::from((MOST - index) * BYTES);
        u64::from(END).wrapping_add_signed(from_end)
    }

    /// The half that is in use by this value of the slot, and how many transfers it has; `None` if
    /// no thread can have written that.
    pub fn in_use(slot: u64) -> Option<(Self, u32)> {
        let half = if slot.cast_signed() <= Self::First.end() { Self::First } else { Self::Second };
        let units = slot.wrapping_sub(half.start());
        let count = u32::try_from(units / u64::from(BYTES / UNIT)).ok()?;
        let is_one = units.is_multiple_of(u64::from(BYTES / UNIT)) && count <= MOST;
        is_one.then_some((half, count))
    }
}

/// Offset of the stack pointer when the transfer begins.
pub const STACK: u32 = 0;
/// Offset of where it leads, if the code does not say that.
pub const TARGET: u32 = 8;
/// Offset of the number of instructions executed so far.
pub const PASSED: u32 = 16;
/// Offset of where it is made, four bytes: the displacement of the counter that names it.
pub const SITE: u32 = 24;

/// The number of words that instructions are added up in, so that no chain of dependent stores runs
/// from block to block.
pub const WORDS: u32 = 8;

/// gs-relative displacement of the word that the fragment with this counter adds to.
pub fn word(counter: u32) -> u32 {
    lwp_slot_displacement(counter % WORDS)
}

/// A transfer as a thread has written it down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The displacement of the counter that names where it is made.
    pub site: u32,
    /// The stack pointer.
    pub stack: u64,
    /// Where it leads, if the code does not say that.
    pub target: u64,
    /// The instructions executed so far.
    pub passed: u64,
}

/// Words of a transfer.
pub const LENGTH: usize = BYTES as usize / 8;

impl Written {
    /// From the words of a transfer.
    pub fn of([stack, target, passed, site]: [u64; LENGTH]) -> Self {
        Self { site: site as u32, stack, target, passed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_half_is_filled_from_its_start_to_its_end() {
        for half in [Half::First, Half::Second] {
            let step = u64::from(BYTES / UNIT);
            for count in 0..=MOST {
                let slot = half.start().wrapping_add(step * u64::from(count));
                assert_eq!(Half::in_use(slot), Some((half, count)));
                assert_eq!(slot & 0xffff == 0, count == MOST);
                let place = u64::from(END).wrapping_add(slot.wrapping_mul(u64::from(UNIT)));
                if count < MOST {
                    assert_eq!(half.place(count), place);
                    assert!(place >= u64::from(NOTES_AT));
                }
            }
        }
        let far = [1, u64::MAX / 2, 1 << 63, Half::First.start() - 1];
        assert!(far.iter().all(|slot| Half::in_use(*slot).is_none()));
    }
}
