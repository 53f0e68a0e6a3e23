//! Bounds of functions that no symbol names.
//!
//! Unwind tables have the bounds of every compiled function, in stripped files too. Code that they
//! leave out is split where recorded calls led, and where the file itself says that it is entered.
//!
//! Promise: R117

use std::ops::Range;

use gimli::{BaseAddresses, CieOrFde, EhFrame, EndianSlice, LittleEndian as Little, UnwindSection};
use lwp_profile::{Mapping, RecordedModule};
use object::read::elf::{ElfFile64, FileHeader};
use object::{LittleEndian, Object, ObjectSection, ObjectSegment, SectionFlags, elf};

/// The alignment of functions in compiled code.
const ALIGNMENT: u64 = 16;

/// A function without a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unnamed {
    /// Its first address and the first one behind it.
    pub range: Range<u64>,
    /// Addresses that belong to it without a doubt.
    pub about: Range<u64>,
}

/// Parts of a file that are known to hold code, and functions in them.
#[derive(Clone, Debug, Default)]
pub struct Bounds {
    /// Functions by address.
    functions: Vec<Range<u64>>,
    /// Executable sections, or segments of a file without sections, by address.
    code: Vec<Range<u64>>,
    /// The address at which the kernel or the dynamic linker enters the file.
    entry: Option<u64>,
}

impl Bounds {
    /// The bounds that a file has.
    pub fn of(file: &ElfFile64<'_, LittleEndian>) -> Self {
        let entry = file.elf_header().e_entry(LittleEndian);
        let mut out = Self {
            functions: unwound(file),
            code: code(file),
            entry: Some(entry).filter(|entry| *entry != 0),
        };
        out.settle();
        out
    }

    /// Bounds that recordings have kept.
    pub fn kept(functions: Vec<Range<u64>>, code: Vec<Range<u64>>) -> Self {
        let mut out = Self { functions, code, entry: None };
        out.settle();
        out
    }

    fn settle(&mut self) {
        let empty = |range: &Range<u64>| range.is_empty();
        self.functions.retain(|range| !empty(range));
        self.functions.sort_unstable_by_key(|range| (range.start, range.end));
        self.functions.dedup_by_key(|range| range.start);
        self.code.retain(|range| !empty(range));
        self.code.sort_unstable_by_key(|range| (range.start, range.end));
    }

    /// The function at `address` that the file or a recording knows.
    pub fn known(&self, address: u64) -> Option<Range<u64>> {
        let upto = self.functions.partition_point(|range| range.start <= address);
        // Damaged tables overlap; the last one to start counts.
        let mut before = self.functions[..upto].iter().rev().take(4);
        let found = before.find(|range| range.contains(&address))?;
        let next = self.functions.get(upto).map_or(u64::MAX, |range| range.start);
        Some(found.start..found.end.min(next.max(address + 1)))
    }

    /// The start of the first known function behind `address`.
    pub fn next_start(&self, address: u64) -> Option<u64> {
        let upto = self.functions.partition_point(|range| range.start <= address);
        self.functions.get(upto).map(|range| range.start)
    }

    /// The code about `address` that belongs to no known function.
    pub fn gap(&self, address: u64) -> Range<u64> {
        let within = |range: &&Range<u64>| range.contains(&address);
        let section = self.code.iter().find(within).cloned().unwrap_or(0..u64::MAX);
        let upto = self.functions.partition_point(|range| range.start <= address);
        let before = self.functions[..upto].iter().rev().take(4).map(|range| range.end);
        let start = before.filter(|end| *end <= address).max().unwrap_or(0);
        let end = self.functions.get(upto).map_or(u64::MAX, |range| range.start);
        start.max(section.start)..end.min(section.end)
    }

    /// The address at which the file is entered, if it is in this range.
    pub fn entry_in(&self, range: &Range<u64>) -> Option<u64> {
        self.entry.filter(|entry| range.contains(entry))
    }
}

/// The part of a gap that `address` lies in. `starts`: addresses that calls led to, in order.
pub fn part_of_gap(gap: &Range<u64>, address: u64, starts: &[u64], entry: Option<u64>) -> Unnamed {
    let upto = starts.partition_point(|start| *start <= address);
    let called = upto.checked_sub(1).map(|at| starts[at]);
    let entered = called.into_iter().chain(entry).filter(|at| gap.contains(at) && *at <= address);
    // Padding is of no function.
    let aligned = gap.start.checked_next_multiple_of(ALIGNMENT).unwrap_or(gap.start);
    let (start, padding) = match entered.max() {
        Some(entered) => (entered, None),
        None if aligned <= address => (aligned, None),
        None => (gap.start, Some(aligned)),
    };
    let next = starts.get(upto).copied().into_iter().chain(entry).chain(padding);
    let next = next.filter(|at| *at > address);
    let end = next.min().unwrap_or(u64::MAX).min(gap.end).max(address.saturating_add(1));
    Unnamed { range: start..end, about: start..end }
}

/// The mapping about an address as the file has it; everything, where none is recorded.
pub fn mapped(module: &RecordedModule, address: u64) -> (u64, u64) {
    let range = |mapping: &Mapping| {
        let start = module.offset_of(mapping.start);
        (start, start.saturating_add(mapping.end.saturating_sub(mapping.start)))
    };
    let mut ranges = module.mappings.iter().map(range);
    ranges.find(|(start, end)| (*start..*end).contains(&address)).unwrap_or((0, u64::MAX))
}

/// Executable sections; of a file without sections, executable segments.
fn code(file: &ElfFile64<'_, LittleEndian>) -> Vec<Range<u64>> {
    let range = |start: u64, size: u64| start..start.saturating_add(size);
    let executable = |flags| {
        let wanted = elf::SHF_EXECINSTR;
        matches!(flags, SectionFlags::Elf { sh_flags, .. } if sh_flags.contains(wanted))
    };
    let sections = file.sections().filter(|section| executable(section.flags()));
    let found: Vec<_> = sections.map(|section| range(section.address(), section.size())).collect();
    if !found.is_empty() {
        return found;
    }
    let segments = file.segments().filter(|segment| segment.permissions().executable());
    segments.map(|segment| range(segment.address(), segment.size())).collect()
}

/// The functions of the unwind tables.
fn unwound(file: &ElfFile64<'_, LittleEndian>) -> Vec<Range<u64>> {
    let address = |name| file.section_by_name(name).map_or(0, |section| section.address());
    let bases = BaseAddresses::default()
        .set_text(address(".text"))
        .set_got(address(".got"))
        .set_eh_frame_hdr(address(".eh_frame_hdr"));
    let section = file.section_by_name(".eh_frame");
    let found = section.and_then(|section| Some((section.address(), section.data().ok()?)));
    let Some((start, bytes)) = found.or_else(|| without_sections(file)) else { return Vec::new() };
    functions_in(bytes, &bases.set_eh_frame(start))
}

/// The unwind tables of a file without sections, by its program headers.
fn without_sections<'data>(file: &ElfFile64<'data, LittleEndian>) -> Option<(u64, &'data [u8])> {
    use object::read::elf::ProgramHeader;
    let headers = file.elf_header().program_headers(LittleEndian, file.data()).ok()?;
    let header = headers.iter().find(|it| it.p_type(LittleEndian) == elf::PT_GNU_EH_FRAME)?;
    let bytes = header.data(LittleEndian, file.data()).ok()?;
    let bases = BaseAddresses::default().set_eh_frame_hdr(header.p_vaddr(LittleEndian));
    let parsed = gimli::EhFrameHdr::new(bytes, Little).parse(&bases, 8).ok()?;
    let gimli::Pointer::Direct(start) = parsed.eh_frame_ptr() else { return None };
    file.segments().find_map(|segment| {
        let offset = usize::try_from(start.checked_sub(segment.address())?).ok()?;
        let rest = segment.data().ok()?.get(offset..)?;
        (!rest.is_empty()).then_some((start, rest))
    })
}

/// The functions that the unwind tables in `bytes` tell about, up to the first damage.
fn functions_in(bytes: &[u8], bases: &BaseAddresses) -> Vec<Range<u64>> {
    type Common<'a> = gimli::CommonInformationEntry<EndianSlice<'a, Little>>;
    let section = EhFrame::new(bytes, Little);
    // Neighbours mostly share it.
    let mut last: Option<(gimli::EhFrameOffset, Common<'_>)> = None;
    let mut functions = Vec::new();
    let mut entries = section.entries(bases);
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let parsed = partial.parse(|section, bases, offset| {
            if let Some((known, common)) = &last
                && *known == offset
            {
                return Ok(common.clone());
            }
            let common = section.cie_from_offset(bases, offset)?;
            last = Some((offset, common.clone()));
            Ok(common)
        });
        let Ok(function) = parsed else { continue };
        let (mut start, size) = (function.initial_address(), function.len());
        let Some(end) = start.checked_add(size) else { continue };
        // The tables of signal trampolines begin a byte early, for unwinders that look before the
        // address of return.
        start += u64::from(function.is_signal_trampoline());
        // What the linker has left out has the address 0.
        if start > 1 {
            functions.push(start..end);
        }
    }
    functions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_this_program_have_the_bounds_of_their_symbols() {
        let path = std::env::current_exe().unwrap();
        let bytes = std::fs::read(path).unwrap();
        let file = ElfFile64::<LittleEndian>::parse(&*bytes).unwrap();
        let bounds = Bounds::of(&file);
        let elf = crate::Elf::parse(&bytes).unwrap();
        let main = elf.symbols().find(|symbol| symbol.name == "main").unwrap();
        let known = bounds.known(main.address + 1).unwrap();
        assert_eq!(known, main.address..main.address + main.size);
        // The same without sections, as some packers leave files.
        let (mut stripped, mut whole) = (bytes.clone(), bounds.functions.clone());
        stripped[0x28..0x30].fill(0);
        stripped[0x3c..0x40].fill(0);
        let file = ElfFile64::<LittleEndian>::parse(&*stripped).unwrap();
        let mut found = Bounds::of(&file).functions;
        found.sort_by_key(|range| range.start);
        whole.sort_by_key(|range| range.start);
        assert_eq!(found, whole);
    }

    #[test]
    fn damaged_tables_end_the_reading() {
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let file = ElfFile64::<LittleEndian>::parse(&*bytes).unwrap();
        let section = file.section_by_name(".eh_frame").unwrap();
        let mut table = section.data().unwrap()[..4096].to_vec();
        let bases = BaseAddresses::default().set_eh_frame(section.address());
        for at in 0..table.len() {
            let before = std::mem::replace(&mut table[at], 0xff);
            let mut bounds =
                Bounds { functions: functions_in(&table, &bases), ..Bounds::default() };
            bounds.settle();
            for address in [0, section.address(), u64::MAX - 1] {
                let _ = (bounds.known(address), bounds.gap(address));
            }
            table[at] = before;
        }
    }

    #[test]
    fn gaps_are_split_at_the_targets_of_calls() {
        let gap = 0x105..0x200;
        let part = |address, starts: &[u64]| part_of_gap(&gap, address, starts, Some(0x180)).range;
        assert_eq!(part(0x112, &[]), 0x110..0x180);
        assert_eq!(part(0x106, &[]), 0x105..0x110);
        assert_eq!(part(0x190, &[]), 0x180..0x200);
        assert_eq!(part(0x190, &[0x50, 0x108, 0x188, 0x300]), 0x188..0x200);
        assert_eq!(part(0x150, &[0x50, 0x108, 0x188, 0x300]), 0x108..0x180);
        assert_eq!(part(0x107, &[0x50, 0x108, 0x188]), 0x105..0x108);
    }
}
