//! The words of Lightweight Profiling in a context: the countdown, notes and lines of the data
//! cache, branches, and cut fragments that the thread leads itself to.

use lwp_dbt::Slot;
use lwp_dbt::context::kept::{self, KEPT_AT, KEPT_BYTES};
use lwp_dbt::context::{
    BRANCH_BYTES, BRANCHES_AT, CUT_BYTES, CUTS_AT, LWP_DEALT_AT, LWP_LOW_MAX, LWP_SLOTS,
    MOST_BRANCHES, MOST_NOTES, NOTE_BYTES, NOTES_AT, SETS_AT, UNDO_AT, UNDO_BYTES, UNDOS,
    lwp_slot_displacement,
};

use super::Context;

/// The words of one thread.
#[derive(Clone, Copy, Debug)]
pub struct LwpWords<'a>(pub(super) Context<'a>);

impl<'a> LwpWords<'a> {
    /// The amount of a part of the countdown that has passed since it was `published`, of which
    /// `left` is left. Translated code can go beyond what was published by no more than a block
    /// counts; what the program has written there itself is cut to that.
    pub fn passed(published: i64, left: i64) -> u64 {
        let passed = published.saturating_sub(left);
        let most = published.saturating_add(BLOCK_COUNTS_MOST);
        u64::try_from(passed.min(most)).unwrap_or(0)
    }

    /// Reads a word of the LWP countdown.
    pub fn word(&self, index: u32) -> u64 {
        let at = u64::from(lwp_dbt::context::lwp_slot_displacement(index));
        self.0.memory().load(self.0.base() + at)
    }

    /// Returns whether a block has taken from a word of the LWP countdown while nothing was dealt
    /// out: it is about to give that back, and to have what it counts taken by hand.
    pub fn has_taken_in_vain(&self) -> bool {
        let nothing = i64::from(lwp_dbt::routines::NOTHING_GIVEN).cast_unsigned();
        self.0.get(Slot::LwpGiven) == nothing && self.words() != nothing
    }

    /// The sum of all words of the LWP countdown.
    pub fn words(&self) -> u64 {
        let words = (0..LWP_SLOTS).map(|index| self.word(index));
        words.fold(0, u64::wrapping_add)
    }

    /// Lets no word of the LWP countdown have anything of the high part: the next block that counts
    /// has it dealt out. Whatever event was noted is settled.
    pub fn deal_nothing(&self) {
        for index in 0..LWP_SLOTS {
            let word = u64::from(lwp_slot_displacement(index));
            let dealt = u64::from(LWP_DEALT_AT + index * 8);
            self.0.memory().store(self.0.base() + word, LWP_LOW_MAX);
            self.0.memory().store(self.0.base() + dealt, LWP_LOW_MAX);
        }
        self.0.set(Slot::LwpGiven, LWP_LOW_MAX * u64::from(LWP_SLOTS));
        self.0.set(Slot::LwpNote, 0);
    }

    /// Reads the notes of data cache misses.
    pub fn notes(self) -> impl Iterator<Item = [u64; 2]> + use<'a> {
        let first = self.0.base() + u64::from(NOTES_AT);
        let notes = (self.0.get(Slot::LwpNotes) & u64::from(u32::MAX)).min(u64::from(MOST_NOTES));
        (0..notes).map(move |note| {
            let at = first + note * u64::from(NOTE_BYTES);
            [self.0.memory().load(at), self.0.memory().load(at + 8)]
        })
    }

    /// The branches written down for the predictor, in order: see [`BRANCHES_AT`].
    pub fn branches(self) -> impl Iterator<Item = [u64; 2]> + use<'a> {
        let first = self.0.base() + u64::from(BRANCHES_AT);
        let branches = self.0.get(Slot::LwpBranches).min(u64::from(MOST_BRANCHES));
        (0..branches).map(move |branch| {
            let at = first + branch * u64::from(BRANCH_BYTES);
            [self.0.memory().load(at), self.0.memory().load(at + 8)]
        })
    }

    /// The bytes that kept samples take, and the number of all that have been kept.
    pub fn kept(&self) -> (u32, u32) {
        let kept = self.0.get(Slot::Kept);
        (kept as u32, (kept >> kept::COUNT_SHIFT) as u32)
    }

    /// Reads the kept sample that begins at byte `at` of `bytes`.
    pub fn kept_sample(&self, at: u32, bytes: u32) -> Option<KeptSample> {
        let bytes = bytes.min(KEPT_BYTES);
        let room = bytes.checked_sub(at)?.checked_sub(kept::HEADER)?;
        let first = self.0.base() + u64::from(KEPT_AT + at);
        let word = |offset: u32| self.0.memory().load(first + u64::from(offset & !7));
        let within = |length: u64, room: u32| {
            u32::try_from(length).ok().filter(|it| *it <= room && it % 8 == 0)
        };
        let length = within(word(kept::LENGTH), room)?;
        let gathered = within(word(kept::GATHERED), room - length)?;
        let bytes_from = |first: u32, length: u32| {
            let words = (0..length).step_by(8).map(|offset| word(first + offset));
            words.flat_map(u64::to_le_bytes).collect()
        };
        Some(KeptSample {
            ip: word(kept::IP),
            block: word(kept::BLOCK),
            registers: std::array::from_fn(|index| word(kept::REGISTERS + index as u32 * 8)),
            stack: word(kept::STACK),
            bytes: bytes_from(kept::HEADER, length),
            gathered: bytes_from(kept::HEADER + length, gathered),
        })
    }

    /// Reads a line of the data cache, `place` bytes behind its first: the address, negated.
    pub fn line(&self, place: u64) -> u64 {
        self.0.memory().load(self.0.base() + u64::from(SETS_AT) + within_sets(place))
    }

    /// Writes it.
    pub fn set_line(&self, place: u64, line: u64) {
        self.0.memory().store(self.0.base() + u64::from(SETS_AT) + within_sets(place), line);
    }

    /// Reads change `index` of the data cache: pc, line, place, line that had to go.
    pub fn undo(&self, index: u64) -> [u64; 4] {
        let entry = (index % u64::from(UNDOS)) * u64::from(UNDO_BYTES);
        let at = self.0.base() + u64::from(UNDO_AT) + entry;
        std::array::from_fn(|word| self.0.memory().load(at + word as u64 * 8))
    }

    /// The key of known cut `index`.
    pub fn known_cut_key(&self, index: u32) -> u64 {
        self.0.memory().load(self.0.base() + u64::from(CUTS_AT) + u64::from(index * CUT_BYTES))
    }

    /// Writes the first words of known cut `index`, the key last.
    pub fn set_known_cut(&self, index: u32, words: &[u64]) {
        let at = self.0.base() + u64::from(CUTS_AT) + u64::from(index * CUT_BYTES);
        for (word, value) in words.iter().enumerate().rev() {
            self.0.memory().store(at + word as u64 * 8, *value);
        }
    }
}

/// A sample that a thread has kept.
#[derive(Clone, Debug)]
pub struct KeptSample {
    /// The sampled instruction's address.
    pub ip: u64,
    /// The address of its block.
    pub block: u64,
    /// The registers at the beginning of that, by DWARF's numbers.
    pub registers: [u64; 16],
    /// The address of a part of the stack.
    pub stack: u64,
    /// The bytes of that part.
    pub bytes: Vec<u8>,
    /// Pieces of other memory, each behind its address and its length.
    pub gathered: Vec<u8>,
}

impl KeptSample {
    /// The bytes that it takes.
    pub fn size(&self) -> u32 {
        kept::HEADER + (self.bytes.len() + self.gathered.len()) as u32
    }
}

/// More than a block counts.
const BLOCK_COUNTS_MOST: i64 = 1 << 20;

/// A place among the sets of the data cache, whatever the program has written down as one.
fn within_sets(place: u64) -> u64 {
    const SETS_BYTES: u64 = (UNDO_AT - SETS_AT) as u64;
    (place % SETS_BYTES) & !7
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contexts::Contexts;

    #[test]
    fn a_kept_sample_lies_within_the_bytes_that_are_kept() {
        let mut contexts = Contexts::new(0);
        let file = contexts.files.add().expect("a file in memory");
        let slot = contexts.allocate(file, 0).expect("a context");
        let words = contexts.context(slot).lwp();
        let set = |at: u32, value: u64| {
            words.0.memory().store(words.0.base() + u64::from(KEPT_AT + at), value);
        };
        (0..1024).for_each(|index| set(index * 8, u64::from(index)));
        set(kept::LENGTH, 64);
        set(kept::GATHERED, 0);
        let sample = words.kept_sample(0, kept::HEADER + 64).expect("a sample");
        assert_eq!((sample.ip, sample.block, sample.stack), (0, 19, 17));
        assert_eq!(sample.registers, std::array::from_fn(|index| index as u64 + 1));
        assert_eq!((sample.bytes.len(), sample.bytes[0], sample.size()), (64, 21, 232));
        set(kept::GATHERED, 16);
        let sample = words.kept_sample(0, kept::HEADER + 80).expect("a sample");
        assert_eq!((sample.gathered.len(), sample.gathered[0], sample.size()), (16, 29, 248));
        assert!(words.kept_sample(0, kept::HEADER + 79).is_none());
        set(kept::GATHERED, 0);
        assert!(words.kept_sample(0, kept::HEADER + 63).is_none());
        assert!(words.kept_sample(0, 0).is_none() && words.kept_sample(64, 32).is_none());
        // What the program has written there itself.
        for length in [u64::MAX, 1 << 32, 63, u64::from(KEPT_BYTES)] {
            set(kept::LENGTH, length);
            assert!(words.kept_sample(0, u32::MAX).is_none(), "{length:#x}");
        }
    }
}
