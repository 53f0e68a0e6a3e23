//! Calling contexts in a thread's memory: frames that have not returned, and *records*, each of
//! which has the counts of one context.
//!
//! ```text
//! PRESENT ──▶ record of the present context      TABLE: by caller's name, site and target
//! FRAMES  ──▶ behind the innermost frame                   │
//!                                                          ▼
//! frames: where the return address lies,         records: -key, -target, name, next in the table,
//!         the caller's name                               calls, instructions
//! ```
//!
//! A record's *name* is its distance from [`RECORDS`], in the upper half of a word, so that adding
//! a name and a site combines them. A record adds the thread's sum of instructions when its context
//! is left, and subtracts the sum when it is entered, so its instructions include those of all
//! functions that it called.
//!
//! Contexts can also be measured in a program that profiles itself with Lightweight Profiling,
//! because nothing here shares memory with LWP.

/// Displacement of the words that follow.
pub(super) const WORDS_AT: u32 = 0x5d00;
/// Displacement of the name of the present record; 0 where the host has not made one.
pub const PRESENT: u32 = WORDS_AT;
/// Displacement of the displacement of the frame that comes next. If its low 16 bits are 0, there
/// is no room for one.
pub const FRAMES: u32 = WORDS_AT + 8;
/// Displacement of the name that was present before a jump or return that may not have been made.
pub const BEFORE: u32 = WORDS_AT + 0x10;
/// Displacement of the record that a jump has led to, which may not have been made.
pub const LED_TO: u32 = WORDS_AT + 0x18;
/// Displacement of where the next record will be, from [`RECORDS`] on.
pub const NEXT_RECORD: u32 = WORDS_AT + 0x20;
/// Displacement of the number of records that there is room for.
pub const LEFT: u32 = WORDS_AT + 0x28;
/// Displacement of the site of a transfer that a routine looks for: the displacement of the counter
/// that names it.
pub const SITE: u32 = WORDS_AT + 0x30;
/// Displacement of what that site adds to a place in the table, four bytes: see [`spread`].
pub const SITE_SPREAD: u32 = WORDS_AT + 0x50;
/// Displacement of a place in the table that a routine looks at.
pub const PLACE: u32 = WORDS_AT + 0x38;
/// Displacement of the key that a routine looks for.
pub const KEY: u32 = WORDS_AT + 0x40;
/// Displacement of the record before the one that a routine looks at; 0 at the first.
pub const LAST: u32 = WORDS_AT + 0x48;

/// Displacement of the frames.
pub const FRAMES_AT: u32 = 0x14_6000;
/// Displacement of their end.
pub const FRAMES_END: u32 = 0x15_0000;
/// Bytes of a frame.
pub const FRAME_BYTES: u32 = 16;
/// Offset in a frame of the address at which its return address lies; of the frame of a signal's
/// handler, the stack pointer when it ends and 1.
pub const FRAME_STACK: u32 = 0;
/// Offset of the name of its caller.
pub const FRAME_CALLER: u32 = 8;

/// Displacement of the records: behind everything else of a thread, so that there may be more of
/// them in one thread than in another. The first stands for none.
pub const RECORDS: u32 = 0x11a_b000;
/// Bytes of a record.
pub const RECORD_BYTES: u32 = 48;
/// Offset in a record of its key, negated: its caller's name and its site.
pub const RECORD_KEY: u32 = 0;
/// Offset of its target, negated, if the site does not say that.
pub const RECORD_TARGET: u32 = 8;
/// Offset of the name that it stands for: as a rule its own.
pub const RECORD_NAME: u32 = 16;
/// Offset of the next record of the same place in the table, four bytes.
pub const RECORD_NEXT: u32 = 24;
/// Offset of how many jumps may lead on from it before the host is asked, four bytes. Functions that
/// jump to each other in turn would have a record for each jump otherwise.
pub const RECORD_JUMPS: u32 = 28;
/// That of a record that a call leads to. Chains of tail calls and stubs of linkage tables are
/// rarely longer; each request to the host takes as long as a thousand jumps.
pub const MOST_JUMPS: u32 = 8;
/// Offset of how often it was entered.
pub const RECORD_CALLS: u32 = 32;
/// Offset of its instructions.
pub const RECORD_PASSED: u32 = 40;

/// Displacement of the table: four bytes a place.
pub const TABLE: u32 = FRAMES_END;
/// The number of its places.
pub const PLACES: u32 = 0xe_0000;
/// The place of what leads from a record begins where the record's name, shifted by so many bits,
/// says. Records that are made one after the other have their places next to each other, so that
/// few lines of the cache and few pages hold those that are in use.
pub const NAME_SHIFT: u8 = 38;
/// Bits of the number that is added to it: of the site or, if that does not say where it leads, of
/// a hash.
const SPREAD_BITS: u8 = 10;
/// The number of places that what leads from one record is spread over.
pub const SPREAD: u32 = 1 << SPREAD_BITS;
/// Bits of a hash that say nothing about the place: the lowest.
pub const HASH_SHIFT: u8 = 32 - SPREAD_BITS;

/// Stacks are told apart if the stack pointer is further below the innermost frame than a number of
/// so many bits says.
pub const REACH_BITS: u8 = 26;

/// The number of words that instructions are added up in, so that no chain of dependent stores runs
/// from block to block.
pub const WORDS: u32 = 4;
/// Displacement of these words.
pub(super) const SUMS_AT: u32 = WORDS_AT + 0x80;

/// gs-relative displacement of the word that the fragment with this counter adds to.
pub fn word(counter: u32) -> u32 {
    SUMS_AT + counter % WORDS * 8
}

/// The way in which a function is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// By a call that says where it leads.
    Call,
    /// By a call through a register or memory.
    IndirectCall,
    /// By a jump, or by no instruction at all.
    Jump,
    /// By a jump through a register or memory.
    IndirectJump,
    /// By a return.
    Return,
    /// By the system call that ends a signal's handler.
    Resume,
}

impl Leave {
    /// Returns whether the code says where it leads.
    pub fn is_direct(self) -> bool {
        matches!(self, Self::Call | Self::Jump)
    }

    /// Returns whether a frame is entered.
    pub fn is_call(self) -> bool {
        matches!(self, Self::Call | Self::IndirectCall)
    }
}

/// The number that a site adds to a place, by the address of its last byte.
pub fn spread(last: u64) -> u32 {
    last as u32 % SPREAD
}

/// The place in the table of what leads from the record of this name at a site with this
/// [`spread`], and to `target` if the site does not say that.
pub fn place(name: u64, spread: u32, target: Option<u64>) -> u32 {
    let added = target.map_or(spread, |target| crc32(spread, target) >> HASH_SHIFT);
    (name >> NAME_SHIFT) as u32 + added
}

/// What the instruction CRC32 makes of eight bytes.
fn crc32(hash: u32, value: u64) -> u32 {
    /// The polynomial, the bits in reverse.
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let step = |hash: u32| hash >> 1 ^ if hash & 1 == 1 { POLYNOMIAL } else { 0 };
    let byte = |hash: u32, byte: u8| (0..8).fold(hash ^ u32::from(byte), |hash, _| step(hash));
    value.to_le_bytes().into_iter().fold(hash, byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_the_instruction() {
        // "12345678" has this checksum, which complements what it begins with and its result.
        let digits = u64::from_le_bytes(*b"12345678");
        assert_eq!(!crc32(!0, digits), 0x6087_809a);
    }
}
