//! Line tables of compiled code.
//!
//! A list of entries, each with the line of the instructions from one position to the next, and a
//! table that tells how many entries begin up to a position: small numbers for the first positions,
//! then blocks of bits.

use crate::Memory;

/// The table of one method, block or file.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    /// The line of each entry.
    entries: Vec<u32>,
    /// The index table's words.
    index: Vec<u64>,
}

/// Positions that the index table has numbers for; nine to a word, seven bits each.
const IMMEDIATE: u64 = 54;
const WORDS: usize = 6;
/// Words of a block: how many entries begin before it, the same for its parts, and a bit for each
/// of 512 positions.
const BLOCK: usize = 10;
/// Most entries, and most words of code.
const MOST: u32 = 1 << 16;

impl Lines {
    /// Reads `iseq_insn_info` at `at`, whose entries have `entry` bytes, of code with so many
    /// `words`.
    pub fn read(at: u64, entry: u64, words: u32, memory: &mut dyn Memory) -> Option<Self> {
        let list = memory.pointer(at)?;
        let count = memory.half(at.checked_add(16)?)?;
        let index = memory.pointer(at.checked_add(24)?)?;
        if count > MOST || words > MOST {
            return None;
        }
        let mut bytes = vec![0; (u64::from(count) * entry) as usize];
        if !memory.read(list, &mut bytes) {
            return None;
        }
        let line = |entry: &[u8]| u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
        let entries = bytes.chunks_exact(entry as usize).map(line).collect();
        let blocks = u64::from(words).saturating_sub(IMMEDIATE).div_ceil(512) as usize;
        let mut bytes = vec![0; 8 * (WORDS + blocks * BLOCK)];
        if !memory.read(index, &mut bytes) {
            return None;
        }
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default());
        Some(Self { entries, index: bytes.chunks_exact(8).map(word).collect() })
    }

    /// The line of the word of code with this index.
    pub fn at(&self, position: u64) -> Option<u32> {
        let rank = self.rank(position)?;
        self.entries.get(usize::try_from(rank.checked_sub(1)?).ok()?).copied()
    }

    /// Returns the number of entries that begin up to `position`.
    fn rank(&self, position: u64) -> Option<u64> {
        let Some(behind) = position.checked_sub(IMMEDIATE) else {
            let word = self.index.get((position / 9) as usize)?;
            return Some(word >> (7 * (position % 9)) & 0x7f);
        };
        let start = WORDS + usize::try_from(behind / 512).ok()? * BLOCK;
        let block = self.index.get(start..start + BLOCK)?;
        let (part, bit) = (behind % 512 / 64, behind % 64);
        let before = match part {
            0 => 0,
            _ => block[1] >> (9 * (part - 1)) & 0x1ff,
        };
        let bits = block[2 + part as usize] << (63 - bit);
        Some((block[0] & 0xffff_ffff) + before + u64::from(bits.count_ones()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table that has a new entry at each of `starts`, built by counting.
    fn lines(starts: &[u64], words: u64) -> Lines {
        let rank = |position: u64| starts.iter().filter(|it| **it <= position).count() as u64;
        let mut index = vec![0; WORDS];
        for position in 0..IMMEDIATE {
            index[(position / 9) as usize] |= rank(position) << (7 * (position % 9));
        }
        for block in 0..words.saturating_sub(IMMEDIATE).div_ceil(512) {
            let first = IMMEDIATE + 512 * block;
            let begins = |at: u64| u64::from(starts.contains(&at));
            index.push(rank(first - 1));
            let part = |part: u64| rank(first + 64 * part - 1) - rank(first - 1);
            index.push((1..8).map(|it| part(it) << (9 * (it - 1))).sum());
            index.extend((0..8).map(|part| {
                (0..64).map(|bit| begins(first + 64 * part + bit) << bit).sum::<u64>()
            }));
        }
        Lines { entries: (1..).take(starts.len()).collect(), index }
    }

    #[test]
    fn lines_are_those_of_the_entry_that_began_last() {
        let starts = [0, 3, 8, 9, 53, 54, 55, 117, 118, 119, 400, 565, 566, 567, 1000];
        let table = lines(&starts, 1100);
        for position in 0..1100 {
            let entry = starts.iter().filter(|it| **it <= position).count() as u32;
            assert_eq!(table.at(position), Some(entry), "{position}");
        }
        assert_eq!(table.at(5000), None);
        assert_eq!(Lines::default().at(0), None);
    }
}
