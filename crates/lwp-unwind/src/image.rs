//! The unwind tables of a file.

use std::fs::File;
use std::ops::Range;
use std::path::Path;

use gimli::{
    BaseAddresses, DebugFrame, EhFrame, EhFrameHdr, LittleEndian, UnwindContext, UnwindSection,
};
use object::read::{ReadCache, ReadRef};
use object::{Object, ObjectSection, ObjectSegment, SegmentFlags};
use rustc_hash::FxHashMap;

use crate::row::Row;

/// The unwind tables of one file, and what has been looked up in them.
#[derive(Debug, Default)]
pub struct Image {
    eh_frame: Vec<u8>,
    eh_frame_hdr: Vec<u8>,
    debug_frame: Vec<u8>,
    bases: BaseAddresses,
    /// First address, address after it and offset of each description in `.eh_frame` (false) or
    /// `.debug_frame` (true), where `.eh_frame_hdr` has no table of them.
    index: Vec<(u64, u64, usize, bool)>,
    /// Loadable segments: offset in the file, bytes, address.
    segments: Vec<(u64, u64, u64)>,
    /// Those that are executable.
    code: Vec<(u64, u64, u64)>,
    /// Index of the row of an address. `None` where the tables say nothing.
    known: FxHashMap<u64, Option<u32>>,
    rows: Vec<Row>,
}

/// The largest table that is read.
const LARGEST_TABLE: u64 = 256 << 20;

/// Most rows kept for one file.
const MOST_ROWS: usize = 1 << 20;

impl Image {
    /// The tables of the file at `path`. A file without any, or that is not ELF, has none.
    pub fn open(path: &Path) -> Self {
        File::open(path).map(|file| Self::of_file(&file)).unwrap_or_default()
    }

    /// The tables of an open file.
    pub fn of_file(file: &File) -> Self {
        Self::read(&ReadCache::new(file))
    }

    /// The tables of a file in memory.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self::read(bytes)
    }

    /// The tables of a function in an `.eh_frame` that is meant for the address `at`; `None` where
    /// it says nothing of the instructions of `code`.
    pub(crate) fn of_table(eh_frame: &[u8], at: u64, code: &Range<u64>) -> Option<Self> {
        let bases = BaseAddresses::default().set_eh_frame(at);
        let mut image = Self { eh_frame: eh_frame.to_vec(), bases, ..Self::default() };
        image.build_index();
        image.index.retain(|(start, end, ..)| *start < code.end && *end > code.start);
        (!image.index.is_empty()).then_some(image)
    }

    /// Returns whether there are no tables.
    pub fn is_empty(&self) -> bool {
        self.eh_frame.is_empty() && self.debug_frame.is_empty()
    }

    fn read<'a>(data: impl ReadRef<'a>) -> Self {
        let Ok(file) = object::File::parse(data) else { return Self::default() };
        let mut image = Self::default();
        let section = |name: &str| {
            let section = file.section_by_name(name)?;
            let size = section.compressed_file_range().ok()?.uncompressed_size;
            // A program may say anything of its tables; those of a browser have 20 MB.
            if size > LARGEST_TABLE {
                return None;
            }
            let bytes = section.uncompressed_data().ok()?.into_owned();
            Some((section.address(), bytes))
        };
        // The content of these is not read: a program waits while its files are looked at.
        let address = |name: &str| Some(file.section_by_name(name)?.address());
        let mut bases = BaseAddresses::default();
        if let Some((address, bytes)) = section(".eh_frame") {
            bases = bases.set_eh_frame(address);
            image.eh_frame = bytes;
        }
        if let Some((address, bytes)) = section(".eh_frame_hdr") {
            bases = bases.set_eh_frame_hdr(address);
            image.eh_frame_hdr = bytes;
        }
        if let Some(address) = address(".text") {
            bases = bases.set_text(address);
        }
        if let Some(address) = address(".got") {
            bases = bases.set_got(address);
        }
        if let Some((_, bytes)) = section(".debug_frame") {
            image.debug_frame = bytes;
        }
        image.bases = bases;
        /// The flag of segments that may be executed.
        const PF_X: u32 = 1;
        for segment in file.segments() {
            let executable = matches!(segment.flags(), SegmentFlags::Elf { p_flags, .. } if p_flags.0 & PF_X != 0);
            let (offset, bytes) = segment.file_range();
            if matches!(segment.flags(), SegmentFlags::Elf { .. }) && bytes > 0 {
                let segment = (offset, bytes, segment.address());
                image.segments.push(segment);
                if executable {
                    image.code.push(segment);
                }
            }
        }
        image.build_index();
        image
    }

    /// The file's own address of what lies at `offset` in it, where that is mapped to be executed:
    /// a page of the file may be part of two segments, with an address in each.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        let starts = |(at, ..): &&(u64, u64, u64)| at & !0xfff == offset & !0xfff && offset <= *at;
        if let Some((at, _, address)) = self.code.iter().find(starts) {
            return Some(offset.wrapping_add(*address).wrapping_sub(*at));
        }
        // A mapping starts on a page, which may begin before the segment's bytes do.
        let page = |(at, bytes, address): &(u64, u64, u64)| {
            let slack = at & 0xfff;
            let within = (at - slack..at.saturating_add(*bytes)).contains(&offset);
            within.then(|| offset.wrapping_add(*address).wrapping_sub(*at))
        };
        let holds = |at: u64, bytes: u64| (at..at.saturating_add(bytes)).contains(&offset);
        let exact = self.segments.iter().find(|(at, bytes, _)| holds(*at, *bytes));
        exact.and_then(page).or_else(|| self.segments.iter().rev().find_map(page))
    }

    /// The table row for the instruction at `address`, if the tables cover it.
    pub fn row(&mut self, address: u64) -> Option<&Row> {
        let index = match self.known.get(&address) {
            Some(index) => *index,
            None => self.learn(address),
        };
        self.rows.get(index? as usize)
    }

    fn learn(&mut self, address: u64) -> Option<u32> {
        if self.known.len() >= MOST_ROWS {
            self.known.clear();
            self.rows.clear();
        }
        let index = self.look_up(address).map(|row| {
            self.rows.push(row);
            self.rows.len() as u32 - 1
        });
        self.known.insert(address, index);
        index
    }

    fn look_up(&self, address: u64) -> Option<Row> {
        let mut eh_frame = EhFrame::new(&self.eh_frame, LittleEndian);
        eh_frame.set_address_size(8);
        if !self.eh_frame_hdr.is_empty()
            && let Some(row) = self.by_header(&eh_frame, address)
        {
            return Some(row);
        }
        let after = self.index.partition_point(|(start, ..)| *start <= address);
        let &(_, end, offset, debug) = self.index.get(after.checked_sub(1)?)?;
        if address >= end {
            return None;
        }
        if debug {
            let mut section = DebugFrame::new(&self.debug_frame, LittleEndian);
            section.set_address_size(8);
            let fde =
                section.fde_from_offset(&self.bases, offset.into(), DebugFrame::cie_from_offset);
            return row_of(&section, &fde.ok()?, &self.bases, address);
        }
        let fde = eh_frame.fde_from_offset(&self.bases, offset.into(), EhFrame::cie_from_offset);
        row_of(&eh_frame, &fde.ok()?, &self.bases, address)
    }

    fn by_header(
        &self,
        eh_frame: &EhFrame<gimli::EndianSlice<'_, LittleEndian>>,
        address: u64,
    ) -> Option<Row> {
        let header = EhFrameHdr::new(&self.eh_frame_hdr, LittleEndian);
        let header = header.parse(&self.bases, 8).ok()?;
        let table = header.table()?;
        let get = EhFrame::cie_from_offset;
        let fde = table.fde_for_address(eh_frame, &self.bases, address, get).ok()?;
        row_of(eh_frame, &fde, &self.bases, address)
    }

    /// Lists the descriptions that no header lists.
    fn build_index(&mut self) {
        let mut index = Vec::new();
        if self.eh_frame_hdr.is_empty() {
            let mut section = EhFrame::new(&self.eh_frame, LittleEndian);
            section.set_address_size(8);
            list(&section, &self.bases, false, &mut index);
        }
        let mut section = DebugFrame::new(&self.debug_frame, LittleEndian);
        section.set_address_size(8);
        list(&section, &self.bases, true, &mut index);
        index.sort_unstable();
        self.index = index;
    }
}

type Slice<'a> = gimli::EndianSlice<'a, LittleEndian>;

fn list<'a, S>(
    section: &S,
    bases: &BaseAddresses,
    debug: bool,
    index: &mut Vec<(u64, u64, usize, bool)>,
) where
    S: UnwindSection<Slice<'a>>,
{
    let mut entries = section.entries(bases);
    while let Ok(Some(entry)) = entries.next() {
        if let gimli::CieOrFde::Fde(partial) = entry
            && let Ok(fde) = partial.parse(S::cie_from_offset)
        {
            let start = fde.initial_address();
            index.push((start, start.wrapping_add(fde.len()), fde.offset(), debug));
        }
    }
}

fn row_of<'a, S>(
    section: &S,
    fde: &gimli::FrameDescriptionEntry<Slice<'a>>,
    bases: &BaseAddresses,
    address: u64,
) -> Option<Row>
where
    S: UnwindSection<Slice<'a>>,
{
    if !fde.contains(address) {
        return None;
    }
    let mut context = UnwindContext::new();
    let row = fde.unwind_info_for_address(section, bases, &mut context, address).ok()?;
    Row::of(section, row, fde.is_signal_trampoline()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_without_tables_have_none() {
        assert!(Image::of_bytes(b"not ELF").row(0x1000).is_none());
        assert!(Image::open(Path::new("/does/not/exist")).row(0).is_none());
    }

    #[test]
    fn offsets_become_addresses() {
        let image =
            Image { segments: vec![(0, 0x1000, 0), (0x1f40, 0x300, 0x3f40)], ..Image::default() };
        assert_eq!(image.address_of(0x10), Some(0x10));
        assert_eq!(image.address_of(0x2000), Some(0x4000));
        // Before the segment's first byte, on its page.
        assert_eq!(image.address_of(0x1f00), Some(0x3f00));
        assert_eq!(image.address_of(0x9000), None);
    }

    /// As lld lays files out.
    #[test]
    fn a_page_of_two_segments_is_that_of_the_code() {
        let code = (0x140a0, 0x40c00, 0x150a0);
        let segments = vec![(0, 0x140a0, 0), code];
        let image = Image { segments, code: vec![code], ..Image::default() };
        assert_eq!(image.address_of(0x14000), Some(0x15000));
        assert_eq!(image.address_of(0x150a0), Some(0x160a0));
    }
}
