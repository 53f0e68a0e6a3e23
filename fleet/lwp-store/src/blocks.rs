//! Checksums of a file's blocks.

use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;

/// Bytes of a block.
const BLOCK: u64 = 256 * 1024;

/// The CRC-32C of every block of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blocks {
    size: u64,
    sums: Vec<u32>,
}

impl Blocks {
    /// Those of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        let sums = bytes.chunks(BLOCK as usize).map(crc32c::crc32c).collect();
        Self { size: bytes.len() as u64, sums }
    }

    /// The text for the log.
    pub fn text(&self) -> String {
        let bytes: Vec<u8> = self.sums.iter().flat_map(|sum| sum.to_le_bytes()).collect();
        BASE64.encode(bytes)
    }

    /// Those of a file of `size` bytes from the log; `None` if they are none.
    pub fn parse(text: &str, size: u64) -> Option<Self> {
        let bytes = BASE64.decode(text).ok()?;
        let (sums, rest) = bytes.as_chunks::<4>();
        let right = rest.is_empty() && sums.len() as u64 == size.div_ceil(BLOCK);
        let sums = sums.iter().map(|sum| u32::from_le_bytes(*sum)).collect();
        right.then_some(Self { size, sums })
    }

    /// Bytes of the file.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The blocks around a range, as a range of bytes.
    pub fn around(&self, range: &Range<u64>) -> Range<u64> {
        let end = range.end.min(self.size);
        range.start.min(end) / BLOCK * BLOCK..end.next_multiple_of(BLOCK).min(self.size)
    }

    /// The first block of `bytes` that is not as it was written. `bytes` start at `start`, the
    /// first byte of a block.
    pub fn wrong(&self, start: u64, bytes: &[u8]) -> Option<Range<u64>> {
        let first = start / BLOCK;
        for (index, block) in (first..).zip(bytes.chunks(BLOCK as usize)) {
            let from = index * BLOCK;
            let whole = (self.size.saturating_sub(from)).min(BLOCK);
            let sum = self.sums.get(index as usize);
            if block.len() as u64 != whole || sum != Some(&crc32c::crc32c(block)) {
                return Some(from..from + whole);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_is_found_in_its_block() {
        let bytes: Vec<u8> = (0..600_000_u32).map(|n| (n * 7 % 251) as u8).collect();
        let blocks = Blocks::of(&bytes);
        assert_eq!(Blocks::parse(&blocks.text(), 600_000), Some(blocks.clone()));
        assert_eq!(Blocks::parse(&blocks.text(), 100), None);
        assert_eq!(blocks.wrong(0, &bytes), None);
        assert_eq!(blocks.around(&(300_000..300_001)), BLOCK..2 * BLOCK);
        assert_eq!(blocks.around(&(599_999..600_000)), 2 * BLOCK..600_000);
        for at in [0, 262_143, 262_144, 599_999] {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            let block = blocks.wrong(0, &changed).expect("wrong");
            assert!(block.contains(&(at as u64)));
        }
        assert_eq!(blocks.wrong(2 * BLOCK, &bytes[2 * BLOCK as usize..]), None);
        assert!(blocks.wrong(2 * BLOCK, &bytes[2 * BLOCK as usize..599_999]).is_some());
        assert!(blocks.wrong(0, &[bytes.as_slice(), &[0; 9]].concat()).is_some());
    }
}
