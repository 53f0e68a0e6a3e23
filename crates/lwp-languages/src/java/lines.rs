//! Lines of bytecodes, from the table behind a method's code.
//!
//! A byte has the distance to the bytecode before in its upper five bits and that to the line
//! before in its lower three; where those are too small, two numbers follow. Zero ends the table.
//!
//! Promise: R111

use super::layout::Layout;
use crate::Memory;

/// Most bytes of a table.
const LONGEST: u64 = 1 << 18;
/// The byte that two numbers follow.
const NUMBERS: u8 = 0xff;
/// The first release whose numbers have no byte of zero.
const WITHOUT_ZERO: u32 = 19;

/// The bytes of a table.
struct Stream<'m> {
    at: u64,
    end: u64,
    memory: &'m mut dyn Memory,
}

/// Indexes of bytecodes and the lines that begin there, in order, of the table at `at`, if the
/// method has one.
pub fn read(layout: &Layout, constant: u64, at: u64, memory: &mut dyn Memory) -> Vec<(u32, u32)> {
    let flags = constant.checked_add(layout.flags).and_then(|at| memory.short(at));
    if flags.is_none_or(|flags| u32::from(flags) & layout.has_lines == 0) {
        return Vec::new();
    }
    let mut stream = Stream { at, end: at.saturating_add(LONGEST), memory };
    let mut lines = Vec::new();
    let (mut index, mut line) = (0u32, 0u32);
    while let Some((far, down)) = stream.pair(layout.release) {
        (index, line) = (index.wrapping_add(far), line.wrapping_add(down));
        lines.push((index, line));
    }
    // Compilers write them in order; others need not.
    lines.sort_by_key(|(index, _)| *index);
    lines
}

impl Stream<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = if self.at < self.end { self.memory.byte(self.at) } else { None };
        self.at += 1;
        byte
    }

    /// The next distances; `None` at the end.
    fn pair(&mut self, release: u32) -> Option<(u32, u32)> {
        match self.byte()? {
            0 => None,
            NUMBERS => Some((self.number(release)?, self.number(release)?)),
            byte => Some((u32::from(byte >> 3), u32::from(byte & 7))),
        }
    }

    /// A number with a sign in its lowest bit: up to five bytes, of which each has six bits more.
    /// Those above the last 64 values say that another follows.
    fn number(&mut self, release: u32) -> Option<u32> {
        let without = u32::from(release >= WITHOUT_ZERO);
        let mut sum = 0u32;
        for shift in (0..=24).step_by(6) {
            let byte = u32::from(self.byte()?);
            sum = sum.wrapping_add(byte.checked_sub(without)?.wrapping_shl(shift));
            if byte < 192 {
                break;
            }
        }
        Some(sum >> 1 ^ (sum & 1).wrapping_neg())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Flags, then a table.
    struct Bytes(Vec<u8>);

    impl Memory for Bytes {
        fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
            let from = usize::try_from(address).ok();
            let part = from.and_then(|at| self.0.get(at..at.checked_add(bytes.len())?));
            part.map(|part| bytes.copy_from_slice(part)).is_some()
        }
    }

    fn lines(release: u32, table: &[u8]) -> Vec<(u32, u32)> {
        let layout = Layout { has_lines: 1, release, ..Layout::default() };
        read(&layout, 0, 2, &mut Bytes([&[1, 0], table].concat()))
    }

    #[test]
    fn short_and_long_distances_are_read() {
        // Line 5 at 0, line 6 at 2, line 4 (a long distance back) at 10.
        assert_eq!(lines(17, &[5, 2 << 3 | 1, 0xff, 16, 3, 0]), [(0, 5), (2, 6), (10, 4)]);
        assert_eq!(lines(25, &[5, 2 << 3 | 1, 0xff, 17, 4, 0]), [(0, 5), (2, 6), (10, 4)]);
        // Line 1000: 2000 is 192 + 16 + 28 × 64.
        assert_eq!(lines(17, &[0xff, 0, 208, 28, 0]), [(0, 1000)]);
        assert_eq!(lines(25, &[0xff, 1, 209, 29, 0]), [(0, 1000)]);
    }

    #[test]
    fn a_table_without_an_end_ends() {
        assert_eq!(lines(17, &[9, 9]), [(1, 1), (2, 2)]);
        assert_eq!(lines(17, &[0xff, 0xff, 0xff]), []);
        assert_eq!(lines(25, &[0xff, 0, 0]), []);
    }
}
