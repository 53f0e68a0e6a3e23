//! An interpreter's file: its symbols, and the places of its functions.

use std::ops::Range;

use object::elf::R_X86_64_RELATIVE;
use object::read::ReadRef;
use object::{
    Object, ObjectSection, ObjectSegment, ObjectSymbol, ObjectSymbolTable, RelocationFlags,
    RelocationTarget,
};
use rustc_hash::{FxHashMap, FxHashSet};

/// An ELF file. Addresses are the file's own.
#[derive(Debug)]
pub struct File<'d, R: ReadRef<'d>> {
    object: object::File<'d, R>,
    exported: FxHashMap<String, (u64, u64)>,
}

/// Returns whether one of `names`, or another name with that end, is among these `strings`; a
/// linker lets names share their ends.
fn mention_any(strings: &[u8], names: &[&[&str]]) -> bool {
    let names: Vec<&[u8]> = names.iter().flat_map(|it| it.iter().map(|it| it.as_bytes())).collect();
    let mut strings = strings.split(|byte| *byte == 0);
    strings.any(|string| names.iter().any(|name| string.ends_with(name)))
}

impl<'d, R: ReadRef<'d>> File<'d, R> {
    /// The file in `data`, with what it exports of `names`; `None` where it exports none of them.
    ///
    /// A program waits while its files are looked at. Most have no interpreter in them, and
    /// thousands of symbols: their names are looked through as one, without the symbols.
    pub fn parse(data: R, names: &[&[&str]]) -> Option<Self> {
        let object = object::File::parse(data).ok()?;
        let strings = object.section_by_name(".dynstr").and_then(|it| it.data().ok());
        if strings.is_some_and(|strings| !mention_any(strings, names)) {
            return None;
        }
        let mut exported = FxHashMap::default();
        for symbol in object.dynamic_symbols().filter(|symbol| symbol.is_definition()) {
            let Ok(name) = symbol.name() else { continue };
            // The version of a symbol is no part of its name.
            if names.iter().any(|names| names.contains(&name)) {
                exported.insert(name.to_owned(), (symbol.address(), symbol.size()));
            }
        }
        (!exported.is_empty()).then_some(Self { object, exported })
    }

    /// The address of what is exported by this name.
    pub fn at(&self, name: &str) -> Option<u64> {
        self.exported.get(name).map(|(address, _)| *address)
    }

    /// The addresses of the function that is exported by this name.
    pub fn range(&self, name: &str) -> Option<Range<u64>> {
        self.exported.get(name).map(|(address, size)| *address..address.saturating_add(*size))
    }

    /// Returns the bytes of the file at an address.
    pub fn bytes(&self, address: u64, len: u64) -> Option<&'d [u8]> {
        self.object.segments().find_map(|it| it.data_range(address, len).ok()?)
    }

    /// The offset in the file of what is loaded at an address.
    pub fn offset(&self, address: u64) -> Option<u64> {
        self.object.segments().find_map(|segment| {
            let (offset, size) = segment.file_range();
            let within = address.checked_sub(segment.address())?;
            (within < size).then(|| offset + within)
        })
    }

    /// The word at an address when the file has been loaded, at the addresses that it names: one of
    /// the file, or what the dynamic linker puts there.
    pub fn word_when_loaded(&self, address: u64) -> Option<u64> {
        let mut all = self.object.dynamic_relocations().into_iter().flatten();
        if let Some((_, relocation)) = all.find(|(at, _)| *at == address) {
            let addend = relocation.addend() as u64;
            return match (relocation.flags(), relocation.target()) {
                (RelocationFlags::Elf { r_type: R_X86_64_RELATIVE }, _) => Some(addend),
                (_, RelocationTarget::Symbol(symbol)) => {
                    let symbol =
                        self.object.dynamic_symbol_table()?.symbol_by_index(symbol).ok()?;
                    (symbol.is_definition()).then(|| symbol.address().wrapping_add(addend))
                }
                _ => None,
            };
        }
        self.bytes(address, 8)?.try_into().ok().map(u64::from_le_bytes)
    }

    /// The byte that is exported by this name.
    pub fn byte(&self, name: &str) -> Option<u8> {
        self.bytes(self.at(name)?, 1)?.first().copied()
    }

    /// The functions, and parts of functions, whose names, exported or not, answer to `is`.
    pub fn functions(&self, is: impl Fn(&str) -> bool) -> Vec<Range<u64>> {
        let symbols = self.object.symbols().chain(self.object.dynamic_symbols());
        let found = symbols.filter(|it| it.is_definition() && it.name().is_ok_and(&is));
        let mut ranges: Vec<Range<u64>> =
            found.map(|it| it.address()..it.address().saturating_add(it.size())).collect();
        ranges.sort_unstable_by_key(|range| (range.start, range.end));
        ranges.dedup();
        ranges
    }

    /// The constants of the file.
    pub fn constants(&self) -> Option<&'d [u8]> {
        self.object.section_by_name(".rodata")?.data().ok()
    }

    /// The words of the file, by address, that the dynamic linker makes addresses in the file, and
    /// which.
    pub fn relative_words(&self) -> FxHashMap<u64, u64> {
        let all = self.object.dynamic_relocations().into_iter().flatten();
        let relative = RelocationFlags::Elf { r_type: R_X86_64_RELATIVE };
        let own = all.filter(|(_, it)| it.flags() == relative);
        own.map(|(at, it)| (at, it.addend() as u64)).collect()
    }

    /// Returns the `len` bytes behind `text` in the constants of the file.
    pub fn behind(&self, text: &[u8], len: usize) -> Option<&'d [u8]> {
        let constants = self.constants()?;
        let at = constants.windows(text.len()).position(|window| window == text)?;
        constants.get(at + text.len()..)?.get(..len)
    }

    /// The largest function that the functions at `from` call, directly or through at most `depth`
    /// others, told by the table of unwind information: it needs no symbols.
    pub fn largest_called(&self, from: &[u64], depth: usize) -> Option<Range<u64>> {
        let starts = self.starts()?;
        let function = |address: u64| {
            let at = starts.binary_search(&address).ok()?;
            let end = starts.get(at + 1).copied().unwrap_or(address);
            (end - address < LARGEST).then_some(address..end)
        };
        let mut seen: FxHashSet<u64> = from.iter().copied().collect();
        let mut level: Vec<Range<u64>> = from.iter().filter_map(|at| function(*at)).collect();
        let mut largest: Option<Range<u64>> = None;
        for _ in 0..=depth {
            let mut next = Vec::new();
            for caller in &level {
                let called = self.called(caller).into_iter().filter(|to| seen.insert(*to));
                next.extend(called.filter_map(function));
            }
            largest =
                largest.into_iter().chain(next.iter().cloned()).max_by_key(|it| it.end - it.start);
            level = next;
        }
        largest
    }

    /// The largest function that the functions at `from` lead into, but not to the beginning of.
    pub fn largest_entered(&self, from: &[u64]) -> Option<Range<u64>> {
        let starts = self.starts()?;
        let around = |address: u64| {
            let after = starts.partition_point(|it| *it <= address);
            let start = *starts.get(after.checked_sub(1)?)?;
            let range = start..*starts.get(after)?;
            (start < address && range.end - start < LARGEST).then_some(range)
        };
        let callers = from.iter().filter_map(|at| around(at.checked_add(1)?));
        let targets: Vec<u64> = callers.flat_map(|caller| self.called(&caller)).collect();
        targets.into_iter().filter_map(around).max_by_key(|it| it.end - it.start)
    }

    /// Returns the possible targets of direct calls and jumps in a function: whatever looks like
    /// one is taken for it.
    fn called(&self, function: &Range<u64>) -> Vec<u64> {
        let Some(code) = self.bytes(function.start, function.end - function.start) else {
            return Vec::new();
        };
        let branches = code.windows(5).zip(function.start..);
        let branches = branches.filter(|(bytes, _)| matches!(bytes[0], 0xe8 | 0xe9));
        let to = |(bytes, at): (&[u8], u64)| {
            let distance = i32::from_le_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]);
            at.wrapping_add(5).wrapping_add_signed(i64::from(distance))
        };
        branches.map(to).collect()
    }

    /// Returns the addresses at which functions begin, in order: the search table of
    /// `.eh_frame_hdr`, in the form that linkers give it.
    fn starts(&self) -> Option<Vec<u64>> {
        /// Pairs of 32 bits relative to the section, behind a word and a count.
        const FORM: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
        let section = self.object.section_by_name(".eh_frame_hdr")?;
        let (bytes, base) = (section.data().ok()?, section.address());
        if bytes.get(..4)? != FORM {
            return None;
        }
        let first = |pair: &[u8]| {
            let distance = i32::from_le_bytes([pair[0], pair[1], pair[2], pair[3]]);
            base.wrapping_add_signed(i64::from(distance))
        };
        let mut starts: Vec<u64> = bytes.get(12..)?.chunks_exact(8).map(first).collect();
        starts.sort_unstable();
        Some(starts)
    }
}

/// No function is larger.
const LARGEST: u64 = 1 << 20;
