//! Tables in compressed blocks, each of which is unpacked when it is first read.
//!
//! ```text
//! for each block: offset of its end behind the index, first word of its first record    8 bytes
//! blocks, each compressed with LZ4
//! ```
//!
//! Redundancy that LZ4 doesn't see is removed first: bytes at the same position in their records
//! are stored together, and in a [`Shape::Rising`] table, each word is the difference from the
//! previous record.

use std::sync::OnceLock;

use super::u32_at;

/// The arrangement of a table's records in its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// As they are.
    Plain,
    /// First bytes of all records, second bytes of all records, and so on.
    Columns,
    /// The columns of the differences between neighbouring records' 4-byte words.
    Rising,
}

/// Bytes of the index for each block.
const INDEX: usize = 8;

/// A table in blocks, unpacked as far as it has been looked at.
#[derive(Debug)]
pub(crate) struct Blocks {
    shape: Shape,
    width: usize,
    /// Bytes of the table.
    len: usize,
    /// Bytes of a block, but for the last one.
    block: usize,
    unpacked: Box<[OnceLock<Box<[u8]>>]>,
}

/// Compresses `table`, whose records have `width` bytes, in blocks of `block` bytes.
pub(crate) fn pack(table: &[u8], width: usize, block: usize, shape: Shape) -> Vec<u8> {
    debug_assert!(shape == Shape::Plain || width.is_multiple_of(4), "words are arranged");
    let count = table.len().div_ceil(block);
    let mut out = vec![0; count * INDEX];
    for (index, raw) in table.chunks(block).enumerate() {
        let first: [u8; 4] = std::array::from_fn(|at| raw.get(at).copied().unwrap_or(0));
        out.extend(lz4_flex::block::compress(&arranged(raw, width, shape)));
        let end = (out.len() - count * INDEX) as u32;
        out[index * INDEX..][..4].copy_from_slice(&end.to_le_bytes());
        out[index * INDEX + 4..][..4].copy_from_slice(&first);
    }
    out
}

impl Blocks {
    /// A table of `len` bytes. Whether its blocks are sound is seen when they are unpacked.
    pub fn new(len: usize, width: usize, block: usize, shape: Shape) -> Self {
        let unpacked = (0..len.div_ceil(block)).map(|_| OnceLock::new()).collect();
        Self { shape, width, len, block, unpacked }
    }

    /// Returns the number of blocks.
    pub fn count(&self) -> usize {
        self.unpacked.len()
    }

    /// Bytes of a block, but for the last one.
    pub fn block_bytes(&self) -> usize {
        self.block
    }

    /// The first word of block `index`.
    pub fn first_word(&self, stored: &[u8], index: usize) -> Option<u32> {
        word(stored, index * INDEX + 4)
    }

    /// Block `index`, which stays in memory from now on; `None` where it is damaged.
    pub fn get(&self, stored: &[u8], index: usize) -> Option<&[u8]> {
        let block = self.unpacked.get(index)?.get_or_init(|| {
            let mut out = Vec::new();
            match self.unpack(stored, index, &mut out) {
                Some(()) => out.into_boxed_slice(),
                None => Box::default(),
            }
        });
        (!block.is_empty()).then_some(block)
    }

    /// Appends block `index` to `out`.
    pub fn unpack(&self, stored: &[u8], index: usize, out: &mut Vec<u8>) -> Option<()> {
        let data = stored.get(self.count() * INDEX..)?;
        let begin = match index.checked_sub(1) {
            Some(before) => word(stored, before * INDEX)? as usize,
            None => 0,
        };
        let packed = data.get(begin..word(stored, index * INDEX)? as usize)?;
        let len = self.len.checked_sub(index * self.block)?.min(self.block);
        let from = out.len();
        out.resize(from + len, 0);
        let done = match self.shape {
            Shape::Plain => lz4_flex::block::decompress_into(packed, &mut out[from..]).ok(),
            Shape::Columns | Shape::Rising => {
                let mut columns = vec![0; len];
                let done = lz4_flex::block::decompress_into(packed, &mut columns).ok();
                rearrange(&columns, &mut out[from..], self.width, self.shape);
                done
            }
        };
        (done? == len).then_some(())
    }
}

/// A block as it is compressed.
fn arranged(raw: &[u8], width: usize, shape: Shape) -> Vec<u8> {
    if shape == Shape::Plain {
        return raw.to_vec();
    }
    let mut words = raw.to_vec();
    if shape == Shape::Rising {
        for at in (0..raw.len() / 4 * 4).step_by(4).skip(width / 4) {
            let difference = u32_at(raw, at).wrapping_sub(u32_at(raw, at - width));
            words[at..at + 4].copy_from_slice(&difference.to_le_bytes());
        }
    }
    let records = words.len() / width;
    (0..width)
        .flat_map(|column| (0..records).map(move |row| (column, row)))
        .map(|(column, row)| words[row * width + column])
        .collect()
}

/// The other way round: `width` is a multiple of 4.
fn rearrange(columns: &[u8], out: &mut [u8], width: usize, shape: Shape) {
    let records = out.len() / width;
    let rising = shape == Shape::Rising;
    for field in 0..width / 4 {
        let column = |byte: usize| columns[(field * 4 + byte) * records..][..records].iter();
        let words = column(0).zip(column(1)).zip(column(2)).zip(column(3));
        let mut sum = 0u32;
        for (row, (((a, b), c), d)) in out.chunks_exact_mut(width).zip(words) {
            let word = u32::from_le_bytes([*a, *b, *c, *d]);
            sum = if rising { sum.wrapping_add(word) } else { word };
            row[field * 4..field * 4 + 4].copy_from_slice(&sum.to_le_bytes());
        }
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let raw = bytes.get(at..at.checked_add(4)?)?;
    Some(u32_at(raw, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records whose first word rises, as those of the tables do.
    fn table(records: u32, width: usize) -> Vec<u8> {
        let words = width / 4;
        (0..records * words as u32)
            .flat_map(|at| (at.wrapping_mul(0x9e37_79b9) >> 20 | at << 8).to_le_bytes())
            .collect()
    }

    #[test]
    fn what_is_packed_is_unpacked() {
        for (width, block) in [(4, 64), (24, 24 * 8), (8, 8 * 1024)] {
            for records in [0, 1, 7, 8, 9, 100] {
                for shape in [Shape::Plain, Shape::Columns, Shape::Rising] {
                    let raw = table(records, width);
                    let stored = pack(&raw, width, block, shape);
                    let blocks = Blocks::new(raw.len(), width, block, shape);
                    let mut all = Vec::new();
                    for index in 0..blocks.count() {
                        assert_eq!(blocks.first_word(&stored, index), word(&raw, index * block));
                        blocks.unpack(&stored, index, &mut all).unwrap();
                        assert_eq!(blocks.get(&stored, index), Some(&all[index * block..]));
                    }
                    assert_eq!(all, raw, "{width} {records} {shape:?}");
                    assert_eq!(blocks.get(&stored, blocks.count()), None);
                }
            }
        }
    }

    #[test]
    fn damaged_blocks_are_none_or_as_long_as_they_should_be() {
        let raw = table(500, 24);
        let stored = pack(&raw, 24, 240, Shape::Rising);
        for at in 0..stored.len() {
            let mut damaged = stored.clone();
            damaged[at] ^= 0x55;
            let blocks = Blocks::new(raw.len(), 24, 240, Shape::Rising);
            for index in 0..blocks.count() {
                assert!(blocks.get(&damaged, index).is_none_or(|block| block.len() == 240));
            }
        }
        let blocks = Blocks::new(raw.len(), 24, 240, Shape::Rising);
        assert_eq!(blocks.get(&[], 0), None);
    }
}
