//! Function names of Go programs without a symbol table, as `go run` and `-ldflags=-s` make them:
//! the runtime's own table, which it prints stack traces from, stays.

use std::ops::Range;

use object::read::elf::ElfFile64;
use object::{LittleEndian, Object, ObjectSection, RelocationFlags, elf};

/// More functions than any program has.
const MOST: u64 = 4 << 20;

/// The longest name that is taken.
const LONGEST: usize = 64 << 10;

/// A function: its address, bytes and name.
pub(super) struct Function<'a> {
    address: u64,
    size: u64,
    name: &'a str,
}

impl<'a> Function<'a> {
    /// Its addresses.
    pub(super) fn range(&self) -> Range<u64> {
        self.address..self.address.saturating_add(self.size)
    }

    /// Its name, as Go writes it.
    pub(super) fn name(&self) -> &'a str {
        self.name
    }
}

/// The functions in the table of a Go program, `None` if it has none that can be read.
pub(super) fn functions<'a>(file: &ElfFile64<'a, LittleEndian>) -> Option<Vec<Function<'a>>> {
    let names = [".gopclntab", ".data.rel.ro.gopclntab"];
    let section = names.iter().find_map(|name| file.section_by_name(name))?;
    let table = Table::of(section.data().ok()?)?;
    // In position-independent programs, the loader writes the start of the code.
    let relocated = table.text_at.and_then(|at| {
        let place = section.address().checked_add(at as u64)?;
        let mut all = file.dynamic_relocations()?;
        let relative = RelocationFlags::Elf { r_type: elf::R_X86_64_RELATIVE };
        let (_, found) = all.find(|(at, it)| *at == place && it.flags() == relative)?;
        u64::try_from(found.addend()).ok()
    });
    let code = || file.section_by_name(".text").map(|section| section.address());
    let given = table.text.filter(|text| *text != 0);
    let text = if table.text_at.is_some() { relocated.or(given).or_else(code)? } else { 0 };
    Some(table.functions(text))
}

/// The table, with the parts that are read of it.
struct Table<'a> {
    bytes: &'a [u8],
    count: u64,
    /// Where pairs of addresses and places of functions begin; places are from here too.
    pairs: usize,
    /// Where places of functions are from.
    places: usize,
    names: usize,
    /// Bytes of each address and place.
    width: usize,
    /// The start of the code, and where that stands; addresses are from there.
    text: Option<u64>,
    text_at: Option<usize>,
}

impl<'a> Table<'a> {
    fn of(bytes: &'a [u8]) -> Option<Self> {
        let magic = u32::try_from(number(bytes, 0, 4)?).ok()?;
        // Two bytes of nothing, the size of an instruction, that of a pointer.
        if bytes.get(4..8)? != [0, 0, 1, 8] {
            return None;
        }
        let word = |index: usize| number(bytes, 8 + 8 * index, 8);
        let place = |index: usize| usize::try_from(word(index)?).ok();
        let count = word(0).filter(|count| *count <= MOST)?;
        let table = Self {
            bytes,
            count,
            pairs: 16,
            places: 0,
            names: 0,
            width: 8,
            text: None,
            text_at: None,
        };
        match magic {
            // Go 1.2, 1.16, 1.18, 1.20.
            0xffff_fffb => Some(table),
            0xffff_fffa => {
                let pairs = place(6)?;
                Some(Self { names: place(2)?, pairs, places: pairs, ..table })
            }
            0xffff_fff0 | 0xffff_fff1 => {
                let (names, pairs) = (place(3)?, place(7)?);
                let (text, text_at) = (word(2), Some(24));
                Some(Self { names, pairs, places: pairs, width: 4, text, text_at, ..table })
            }
            _ => None,
        }
    }

    fn functions(&self, text: u64) -> Vec<Function<'a>> {
        let pair = |index: usize| {
            let at = self.pairs.checked_add(index.checked_mul(2 * self.width)?)?;
            number(self.bytes, at, self.width)?.checked_add(text)
        };
        let mut out = Vec::new();
        for index in 0..self.count as usize {
            let (Some(address), Some(end)) = (pair(index), pair(index + 1)) else { break };
            // The table is in order.
            let Some(size) = end.checked_sub(address) else { break };
            if let Some(name) = self.name(index).filter(|name| !name.is_empty()) {
                out.push(Function { address, size, name });
            }
        }
        out
    }

    /// The name of a function: its place is behind its address, and there behind the address too.
    fn name(&self, index: usize) -> Option<&'a str> {
        let at = self.pairs.checked_add(index.checked_mul(2 * self.width)? + self.width)?;
        let place = usize::try_from(number(self.bytes, at, self.width)?).ok()?;
        let function = self.places.checked_add(place)?;
        let offset = number(self.bytes, function.checked_add(self.width)?, 4)?;
        let start = self.names.checked_add(usize::try_from(offset).ok()?)?;
        let rest = self.bytes.get(start..)?;
        let end = rest.iter().take(LONGEST).position(|byte| *byte == 0)?;
        std::str::from_utf8(&rest[..end]).ok()
    }
}

/// The number of `width` bytes at `at`.
fn number(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(width)?)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table of `main.main` at 0x10 and `main.f` at 0x30, up to 0x38.
    fn table(magic: u32) -> Vec<u8> {
        let modern = magic < 0xffff_fffa;
        let mut out = magic.to_le_bytes().to_vec();
        out.extend([0, 0, 1, 8]);
        let word = |out: &mut Vec<u8>, value: u64, width: usize| {
            out.extend(&value.to_le_bytes()[..width]);
        };
        let names = b"\0main.main\0main.f\0";
        let (head, width) = match magic {
            0xffff_fffb => (1, 8),
            0xffff_fffa => (7, 8),
            _ => (8, 4),
        };
        let base = 8 + 8 * head;
        let old = magic == 0xffff_fffb;
        // Names come first, save in the oldest form.
        let pairs = if old { base } else { base + names.len() };
        let from = if old { 0 } else { pairs };
        let functions = pairs - from + 5 * width;
        let texts = functions + 2 * (width + 4);
        for index in 0..head {
            let value = match (index, modern) {
                (0, _) => 2,
                (2, true) => 0x40_0000,
                (2, false) | (3, true) => base as u64,
                (6, false) | (7, true) => pairs as u64,
                _ => 0,
            };
            word(&mut out, value, 8);
        }
        if !old {
            out.extend(names);
        }
        for (at, address) in [0x10, 0x30].into_iter().enumerate() {
            word(&mut out, address, width);
            word(&mut out, (functions + at * (width + 4)) as u64, width);
        }
        word(&mut out, 0x38, width);
        for (address, name) in [(0x10, 1), (0x30, 11)] {
            word(&mut out, address, width);
            word(&mut out, if old { texts as u64 + name } else { name }, 4);
        }
        if old {
            out.extend(names);
        }
        out
    }

    fn found(bytes: &[u8], text: u64) -> Vec<(u64, u64, &str)> {
        let functions = Table::of(bytes).map(|table| table.functions(text)).unwrap_or_default();
        functions.iter().map(|it| (it.address, it.size, it.name)).collect()
    }

    #[test]
    fn tables_of_all_versions_are_read() {
        for magic in [0xffff_fffb, 0xffff_fffa, 0xffff_fff0, 0xffff_fff1] {
            let bytes = table(magic);
            let functions = [(0x110, 0x20, "main.main"), (0x130, 8, "main.f")];
            assert_eq!(found(&bytes, 0x100), functions, "{magic:#x}");
        }
        assert_eq!(found(&table(0xffff_fff2), 0), []);
    }

    #[test]
    fn damage_is_no_crash() {
        for magic in [0xffff_fffb, 0xffff_fffa, 0xffff_fff1] {
            let whole = table(magic);
            for length in 0..whole.len() {
                found(&whole[..length], 0);
            }
            for bit in 0..8 * whole.len() {
                let mut bytes = whole.clone();
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(found(&bytes, u64::MAX - 0x20).len() <= 2 || bit < 128, "bit {bit}");
            }
        }
    }
}
