//! The steps by which a thread copies memory for a kept sample: the memory that shows which
//! functions an interpreter executes.
//!
//! The host writes the steps into the thread's context. There are few of them, and every loop is
//! bounded: after [`MOST_DONE`] steps, the thread asks the host instead.

use super::{KnownCut, MOST_WAYS, NOTES_AT, SETS_AT, set_bytes};

/// Displacement of the values, [`VALUES`] of 8 bytes each, where no misses are noted.
pub const VALUES_AT: u32 = NOTES_AT;
/// The number of values.
pub const VALUES: u32 = 16;
/// Displacement of the steps.
pub const STEPS_AT: u32 = VALUES_AT + VALUES * 8;
/// Most steps.
pub const MOST_STEPS: usize = 120;
/// Bytes of a step: its [`Op`], three numbers of values, a signed offset of four bytes, and a
/// number of eight.
pub const STEP_BYTES: u32 = 16;
/// Bytes of values and steps.
pub const BYTES: u32 = 0x800;
/// Steps that a thread does for a sample, at most.
pub const MOST_DONE: u32 = 8192;

/// Displacement of the known facts, where no data cache is watched: [`FACTS`] of [`FACT_BYTES`],
/// which begin with [`FACT_WORDS`] words. Found by [`places_of_fact`].
pub const FACTS_AT: u32 = SETS_AT;
/// The number of them that there is room for.
pub const FACTS: u32 = 256;
/// Bytes of each.
pub const FACT_BYTES: u32 = 64;
/// Words of a fact. The first one is not 0.
pub const FACT_WORDS: usize = 6;
/// The first of the values that [`Op::Know`] compares with facts.
pub const FACT_VALUE: u8 = 10;
/// The number of bits that the product of its first word and [`KnownCut::HASH`] is shifted to the
/// right by to choose a fact's place.
pub(crate) const FACT_SHIFT: u32 = 64 - FACTS.trailing_zeros();

/// Most bytes of a text.
pub const MOST_TEXT: u32 = 0x400;
/// Bytes before the bytes of a copied piece: its address, and its length.
pub const PIECE_HEAD: u32 = 16;

const _: () = {
    assert!(STEPS_AT + MOST_STEPS as u32 * STEP_BYTES <= VALUES_AT + BYTES);
    assert!(FACTS * FACT_BYTES <= 128 * set_bytes(MOST_WAYS));
    assert!(FACT_VALUE as usize + FACT_WORDS <= VALUES as usize);
};

/// The kinds of steps: `a`, `b` and `c` are the values with their numbers, `offset` and `number`
/// the rest of the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Op {
    /// The sample is the host's.
    Ask = 0,
    /// Everything is copied.
    End = 1,
    /// `a` := the eight bytes at `b` + `offset`.
    Word = 2,
    /// `a` := the four bytes there, signed.
    Half = 3,
    /// `a` := the byte there.
    Byte = 4,
    /// Copies the `number` bytes there, a multiple of 8.
    Copy = 5,
    /// Copies the text at `b` up to a zero.
    Text = 6,
    /// `a` := `number`.
    Set = 7,
    /// `a` := `b` + `offset`.
    Add = 8,
    /// `a` := `b` + `c` * `number`.
    Index = 9,
    /// `a` := `b`, of which the bits of `number` only.
    And = 10,
    /// Goes on `offset` steps further on if `b` is `number`.
    IfEqual = 11,
    /// Skips `offset` steps if `b` is less than `number`, both signed.
    IfLess = 12,
    /// Goes on `offset` steps further on.
    Jump = 13,
    /// The sample is the host's unless the values from [`FACT_VALUE`] on are a known fact.
    Know = 14,
}

/// Returns the places at which a fact that begins with `first` is looked for.
pub fn places_of_fact(first: u64) -> [u32; 2] {
    let place = (first.wrapping_mul(KnownCut::HASH) >> FACT_SHIFT) as u32;
    [place, place ^ 1]
}
