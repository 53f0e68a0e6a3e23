//! The memory that translated code touches besides the application's own.
//!
//! Every thread has a *context*: one page at its gs base, shared with the host, followed by the
//! thread's counters. Every address space has the *low window* at a fixed address below 2 GiB, so
//! that its tables can be reached with a 32-bit displacement and no base register.
//!
//! ```text
//! gs base  +0x0000  context: spill slots, mailbox          low + 0x000000  indirect table, 256 Ki x 8
//!          +0x1000  data cache, where one is watched           + 0x200000  system call classes, 64 Ki x 1
//!          +0x5000  its latest changes                         + 0x210000  argument classes, 256 x 1
//!          +0x6000  known cuts
//!         +0x106000 misses of the data cache, or samples       + 0x210100  masks: table, cache sets, lines
//!         +0x146000 calling contexts                           + 0x211000  a copy of the routines
//!         +0xa86000 counters, 8 bytes each                     + 0x21f000  known answers to CPUID
//!        +0x1540000 indirect calls by where they led
//!                                                              + 0x220000  chain slots, 8 bytes each
//! ```

pub mod calls;
mod fields;
pub mod gather;
pub mod kept;
mod known_cut;
mod low_window;
mod request;
pub mod trace;

pub use fields::{
    CORE_BY_RDPID, NO_PROCESSOR, OFF_FOR_NOW, PAUSE, PROCESSOR_SEGMENT, RESULT_NARROW, Slot,
    TOGGLES,
};
pub use known_cut::KnownCut;
pub use low_window::{INDEX_MASK, KnownCpuid, Layout, TABLE_SLOTS, TargetFeatures};
pub use request::{RequestKind, SyscallClass};

/// The number of words that the LWP countdown is dealt out to.
pub const LWP_SLOTS: u32 = 16;
/// Displacement of the countdown of LWP events, dealt out to [`LWP_SLOTS`] words so that no chain
/// of dependent stores runs from block to block: the high part from bit 20 up, together with the
/// [share](crate::plan::Selection::branch_share) of each branch, and what is left of
/// [`LWP_LOW_MAX`] of the low part below.
pub const LWP_WORDS_AT: u32 = 0x5800;
/// Position of the high part in them.
pub const LWP_SHIFT: u32 = 20;
/// The low part that a word starts with, and the most that one deal may hand out of the high part.
pub const LWP_LOW_MAX: u64 = (1 << LWP_SHIFT) - 1;

/// The high and the low part of `amount`, which is taken from words where each of the low part
/// takes `share` of the high one too.
pub fn lwp_parts(amount: u64, share: u64) -> [u64; 2] {
    let low = amount & LWP_LOW_MAX;
    [(amount >> LWP_SHIFT).wrapping_sub(low.wrapping_mul(share)), low]
}

/// Displacement of what each of them was dealt last, less what has been seen to be taken from it.
pub const LWP_DEALT_AT: u32 = 0x5a00;
/// Displacement of how much of the high part has been taken from each of them lately.
pub const LWP_TAKEN_AT: u32 = 0x5c00;

/// gs-relative displacement of word `index` of the LWP countdown.
pub fn lwp_slot_displacement(index: u32) -> u32 {
    LWP_WORDS_AT + index % LWP_SLOTS * 8
}

/// Most triples in an insertion list in the context.
pub const APPLY_SHORT: usize = 64;
/// Most triples in one elsewhere.
pub const APPLY_MAX: usize = 4096;

/// Displacement of [`ranges`].
pub const RANGES_AT: u32 = 0xac0;

/// The ranges of code in a thread's address space, as far as the host knows, for calls that concern
/// it. Where the host has changed this meanwhile, it is asked.
pub mod ranges {
    /// Offset of how many there are, and one; 0 where the host is always to be asked.
    pub const COUNT: u32 = 0;
    /// Offset of a number that is another whenever the rest is.
    pub const STATE: u32 = 8;
    /// Offset of the first: its start, and its end.
    pub const FIRST: u32 = 16;
    /// Most of them.
    pub const MOST: usize = 40;
    /// Bytes of everything.
    pub const BYTES: u32 = FIRST + MOST as u32 * 16;
}

/// Displacement of the data cache: the lines of each set, by their addresses, negated, 8 bytes
/// each, the one used last first; [`set_bytes`] for each set.
pub const SETS_AT: u32 = 0x1000;
/// Bytes of a set of so many lines: those of a line of the usual length, so that an address's own
/// bits say where its set is; or twice as many.
pub const fn set_bytes(ways: u32) -> u32 {
    if ways <= 8 { 64 } else { 8 * MOST_WAYS }
}
/// Most lines in a set.
pub const MOST_WAYS: u32 = 16;
/// Most sets.
pub const MOST_SETS: u32 = 128;
/// The address that stands for a line where there is none: no line begins there, and no access can
/// be made near it, the address not being canonical.
pub const NO_LINE: u64 = 1 << 63 | 1;
/// Displacement of the misses noted, [`NOTE_BYTES`] each: the address; the pc from bit 16 up, with
/// what [`Slot::LwpMeta`] says below, and [`NOTE_GOES_ON`].
pub const NOTES_AT: u32 = 0x10_6000;
/// Bytes of a note.
pub const NOTE_BYTES: u32 = 16;
/// Most notes.
pub const MOST_NOTES: u32 = 4096;
/// Displacement of the branches written down for the predictor, [`BRANCH_BYTES`] each, where no
/// misses are noted: the address of the [known cut](CUTS_AT) that ends with it, plus 1 if it was
/// taken; the pc after it.
pub const BRANCHES_AT: u32 = NOTES_AT;
/// Bytes of each.
pub const BRANCH_BYTES: u32 = NOTE_BYTES;
/// Most of them.
pub const MOST_BRANCHES: u32 = MOST_NOTES;
/// In [`Slot::LwpMeta`]: it is about a repeated string instruction.
pub const META_REPEATS: u32 = 1 << 17;
/// In [`Slot::LwpMeta`] of one: it reads where rsi points.
pub(crate) const META_SOURCE: u32 = 1 << 16;
/// In [`Slot::LwpMeta`], the bit of the use that loads do not have.
pub const META_NO_LOAD: u32 = 1 << 12;
/// Position in [`Slot::LwpMeta`] of whether a miss counts.
pub const META_COUNTS_SHIFT: u32 = 14;
/// In a note: it is of the same access as the note before.
pub const NOTE_GOES_ON: u64 = 1 << 15;
/// Displacement of what was changed in the data cache last, [`UNDO_BYTES`] each, [`UNDOS`] in a
/// ring: the site of the access that the routines know; the address of the line, negated; the place
/// where it was, in bytes from the start of its set, with what its miss added to [`Slot::LwpNotes`]
/// above; the line that had to go, if it was nowhere.
pub const UNDO_AT: u32 = 0x5000;
/// Bytes of each.
pub const UNDO_BYTES: u32 = 32;
/// The number of changes kept: more than the lines that an instruction touches.
pub const UNDOS: u32 = 64;

/// Displacement of the known cuts, [`KNOWN_CUTS`] of [`CUT_BYTES`]: cut fragments that the thread
/// may lead itself to when an event is due. Found by [`KnownCut::places`].
pub const CUTS_AT: u32 = 0x6000;
/// Bytes of a known cut.
pub const CUT_BYTES: u32 = 64;
/// The number of them that there is room for.
pub const KNOWN_CUTS: u32 = 16384;

/// Bytes of a context; the thread's counters follow. Most of them are there for [`trace`].
pub const CONTEXT_BYTES: u64 = 0x4d_0000;

/// gs-relative displacement of counter `index`.
pub fn counter_displacement(index: u32) -> u32 {
    CONTEXT_BYTES as u32 + index * 8
}

/// The index of the counter with this displacement.
pub fn counter_index(displacement: u32) -> Option<usize> {
    Some((displacement.checked_sub(CONTEXT_BYTES as u32)? / 8) as usize)
}

/// The parts of a context, by where they begin and end.
const PARTS: [(u32, u32); 13] = [
    (0, RANGES_AT),
    (RANGES_AT, RANGES_AT + ranges::BYTES),
    (SETS_AT, SETS_AT + MOST_SETS * set_bytes(MOST_WAYS)),
    (UNDO_AT, UNDO_AT + UNDOS * UNDO_BYTES),
    (LWP_WORDS_AT, LWP_WORDS_AT + LWP_SLOTS * 8),
    (LWP_DEALT_AT, LWP_DEALT_AT + LWP_SLOTS * 8),
    (LWP_TAKEN_AT, LWP_TAKEN_AT + LWP_SLOTS * 8),
    (trace::WORDS_AT, trace::SUMS_AT + trace::WORDS * 8),
    (CUTS_AT, CUTS_AT + KNOWN_CUTS * CUT_BYTES),
    (NOTES_AT, kept::KEPT_AT + kept::KEPT_BYTES),
    (trace::FRAMES_AT, trace::TABLE + trace::PLACES * 4),
    (calls::CALLS_AT, calls::CALLS_AT + calls::CALLS_BYTES),
    (trace::RECORDS, trace::RECORDS + trace::RECORD_BYTES),
];
const _: () = {
    let mut index = 1;
    while index < PARTS.len() {
        assert!(PARTS[index - 1].1 <= PARTS[index].0, "parts of a context overlap");
        index += 1;
    }
    assert!(NOTES_AT + MOST_NOTES * NOTE_BYTES <= CONTEXT_BYTES as u32);
    assert!(kept::KEPT_AT + kept::KEPT_BYTES <= CONTEXT_BYTES as u32);
    assert!(trace::TABLE + trace::PLACES * 4 <= CONTEXT_BYTES as u32);
};
