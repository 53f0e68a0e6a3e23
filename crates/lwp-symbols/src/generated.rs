//! Names of generated code, by process and address.

use std::ops::Range;

use lwp_profile::RecordedSymbol;

/// A lookup of names of generated code. Where ranges overlap, the later name counts.
#[derive(Clone, Debug, Default)]
pub struct Generated {
    /// In order of their starts, one of each.
    symbols: Vec<Entry>,
    /// All names, one behind the other: there may be millions.
    text: String,
}

#[derive(Clone, Debug)]
struct Entry {
    start: u64,
    size: u64,
    name: Range<usize>,
}

/// A name of generated code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeneratedName<'a> {
    /// First address.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// Name as the program gave it.
    pub name: &'a str,
}

impl Generated {
    /// Names of one recording. Addresses of different processes are told apart only by what was
    /// mapped where; the last one to name an address wins.
    pub fn new(symbols: &[RecordedSymbol]) -> Self {
        let mut order: Vec<&RecordedSymbol> = symbols.iter().collect();
        // Later ones come first among those of one start.
        order.reverse();
        order.sort_by_key(|symbol| symbol.address);
        order.dedup_by_key(|symbol| symbol.address);
        let mut text = String::new();
        let entry = |symbol: &&RecordedSymbol| {
            let from = text.len();
            text.push_str(&symbol.name);
            Entry { start: symbol.address, size: symbol.size, name: from..text.len() }
        };
        let symbols = order.iter().map(entry).collect();
        Self { symbols, text }
    }

    /// The entries that start at `address` or before, the last one first.
    fn before(&self, address: u64) -> impl Iterator<Item = &Entry> {
        let upto = self.symbols.partition_point(|entry| entry.start <= address);
        self.symbols[..upto].iter().rev().take(4)
    }

    /// The name at `address`.
    pub fn at(&self, address: u64) -> Option<GeneratedName<'_>> {
        let entry = self.before(address).find(|entry| address - entry.start < entry.size)?;
        let &Entry { start: address, size, ref name } = entry;
        Some(GeneratedName { address, size, name: &self.text[name.clone()] })
    }

    /// The end of the last name before an `address` that has none, and the start of the next one.
    pub fn around(&self, address: u64) -> (u64, u64) {
        let ends = self.before(address).map(|entry| entry.start.saturating_add(entry.size));
        let end = ends.filter(|end| *end <= address).max().unwrap_or(0);
        let next = self.symbols.partition_point(|entry| entry.start <= address);
        (end, self.symbols.get(next).map_or(u64::MAX, |entry| entry.start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_name_of_a_place_counts() {
        let symbol = |(address, size, name): (u64, u64, &str)| RecordedSymbol {
            pid: 1,
            address,
            size,
            name: name.into(),
        };
        let all = [(0x20, 8, "b"), (0x10, 32, "a"), (0x20, 4, "c"), (0x50, 1, "d")];
        let generated = Generated::new(&all.map(symbol));
        let at = |address| generated.at(address).map(|found| (found.address, found.name));
        assert_eq!(at(0x20), Some((0x20, "c")));
        assert_eq!(at(0x25), Some((0x10, "a")));
        assert_eq!([at(0x30), at(0xf), at(0x51)], [None; 3]);
        assert_eq!(generated.around(0x40), (0x30, 0x50));
        assert_eq!(generated.around(0x5), (0, 0x10));
        assert_eq!(generated.around(u64::MAX), (0x51, u64::MAX));
    }
}
