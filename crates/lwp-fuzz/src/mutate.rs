//! Bytes that differ from good ones in a few places: most parsers see through anything else at
//! once.

/// Longest result.
const LONGEST: usize = 1 << 16;

/// Numbers at which arithmetic goes wrong.
const EDGES: [u64; 12] = [
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    0xffff_ffff_ffff_f000,
    u64::MAX,
];

/// A stream of mutations of some seeds, the same for the same number.
#[derive(Debug)]
pub struct Mutations<'a> {
    seeds: &'a [Vec<u8>],
    state: u64,
}

impl<'a> Mutations<'a> {
    /// The stream of `number`.
    pub fn new(seeds: &'a [Vec<u8>], number: u64) -> Self {
        Self { seeds, state: number }
    }

    /// A number below `end`, which is not 0 (splitmix64).
    fn below(&mut self, end: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % end.max(1) as u64) as usize
    }

    fn seed(&mut self) -> &'a [u8] {
        let index = self.below(self.seeds.len());
        self.seeds.get(index).map_or(&[], Vec::as_slice)
    }

    /// The next one.
    pub fn next_bytes(&mut self) -> Vec<u8> {
        let mut bytes = self.seed().to_vec();
        for _ in 0..=self.below(6) {
            self.change(&mut bytes);
        }
        bytes.truncate(LONGEST);
        bytes
    }

    /// A place in `bytes`, more often near the beginning, where headers are.
    fn place(&mut self, bytes: &[u8]) -> usize {
        let len = if self.below(3) == 0 { bytes.len().min(256) } else { bytes.len() };
        self.below(len)
    }

    fn change(&mut self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            let length = self.below(64);
            bytes.extend((0..length).map(|_| self.below(256) as u8));
            return;
        }
        let at = self.place(bytes);
        let span = 1 + self.below(64);
        let end = (at + span).min(bytes.len());
        match self.below(8) {
            0 => bytes[at] ^= 1 << self.below(8),
            1 => bytes[at] = self.below(256) as u8,
            2..=4 => {
                let edge = EDGES[self.below(EDGES.len())];
                let value = edge.wrapping_add(self.below(5) as u64).wrapping_sub(2);
                let width = [1, 2, 4, 8][self.below(4)].min(bytes.len() - at);
                bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
            }
            5 => drop(bytes.drain(at..end)),
            6 => {
                let copy = bytes[at..end].to_vec();
                let to = self.below(bytes.len());
                bytes.splice(to..to, copy);
            }
            _ => {
                let other = self.seed();
                let from = self.below(other.len());
                let copy = &other[from.min(other.len())..(from + span).min(other.len())];
                bytes.splice(at..end, copy.iter().copied());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_number_gives_the_same_bytes() {
        let seeds = [vec![7; 100], Vec::new()];
        let stream = |number| {
            let mut mutations = Mutations::new(&seeds, number);
            (0..50).map(|_| mutations.next_bytes()).collect::<Vec<_>>()
        };
        assert_eq!(stream(1), stream(1));
        assert_ne!(stream(1), stream(2));
        assert!(stream(1).iter().any(|bytes| *bytes != seeds[0]));
    }
}
