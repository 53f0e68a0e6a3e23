//! Cut fragments that a thread finds without the host.

use super::KNOWN_CUTS;

/// A cut fragment that ends with the instruction on which an event expires, as emitted code finds
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownCut {
    /// [`KnownCut::key`] of it.
    pub key: u64,
    /// Address of the fragment.
    pub head: u64,
    /// Address of the application's instruction that it ends with.
    pub ip: u64,
    /// The bits of the following pc that are the record's second data: all of them where the event
    /// is a branch, else none.
    pub next_mask: u64,
    /// The fragment's count of the high part of the countdown.
    pub high: u32,
    /// Its count of the low part.
    pub low: u32,
    /// The part that has the event: 0 the high one, 1 the low one.
    pub part: u64,
    /// Address of the translation of what follows, where a thread may go on there by itself: it
    /// keeps the sample that is due there. Else 0.
    pub next: u64,
}

impl KnownCut {
    /// Offset of the key.
    pub const KEY: i32 = 0;
    /// Offset of the fragment's address.
    pub const HEAD: i32 = 8;
    /// Offset of the instruction's address.
    pub const IP: i32 = 16;
    /// Offset of the mask of the pc that follows.
    pub const NEXT_MASK: i32 = 24;
    /// Offset of what counts of the high part.
    pub const HIGH: i32 = 32;
    /// Offset of what counts of the low part.
    pub const LOW: i32 = 36;
    /// Offset of the part that has the event.
    pub const PART: i32 = 40;
    /// Offset of the place to go on at.
    pub const NEXT: i32 = 48;
    /// Position in a key of the number of instructions.
    pub const COUNT_SHIFT: u32 = 48;

    /// The key of a cut of the block at `pc`: its first `instructions`, or all of them (0) for the
    /// branch that ends it.
    pub fn key(pc: u64, instructions: u32) -> u64 {
        pc | u64::from(instructions) << Self::COUNT_SHIFT
    }

    /// The factor that a key is multiplied with to choose its place.
    pub const HASH: u64 = 0x9e37_79b9_7f4a_7c15;
    /// The number of bits that the product is shifted to the right.
    pub const HASH_SHIFT: u32 = 64 - KNOWN_CUTS.trailing_zeros();

    /// Returns the places to look for a cut with this key, first and second.
    pub fn places(key: u64) -> [u32; 2] {
        let first = (key.wrapping_mul(Self::HASH) >> Self::HASH_SHIFT) as u32;
        [first, first ^ 1]
    }

    /// As it stands in memory.
    pub fn words(self) -> [u64; 7] {
        let counts = u64::from(self.high) | u64::from(self.low) << 32;
        [self.key, self.head, self.ip, self.next_mask, counts, self.part, self.next]
    }
}
