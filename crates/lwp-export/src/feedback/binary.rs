//! What an optimiser's profile needs of a file: its functions under the names that BOLT gives them,
//! their code, and read-only data with jump tables.
//!
//! Promise: R136

use std::fs::Metadata;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use lwp_profile::RecordedModule;
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{LittleEndian, Object, ObjectSection, ObjectSymbol, SectionFlags, SymbolKind, elf};
use rustc_hash::FxHashMap;

/// The reason why a file is of no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BinaryError {
    /// Not an ELF file of 64 bits, or a damaged one.
    #[error("not a usable ELF file: {0}")]
    Malformed(String),
}

/// A function with its name as BOLT's profiles have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Symbol {
    /// First address.
    pub address: u64,
    /// First address after it.
    pub end: u64,
    /// The linker's name.
    pub name: String,
    /// BOLT's name: a local function's has its file and a number behind it.
    pub unique: String,
}

/// A symbol as the file has it.
struct Raw<'a> {
    address: u64,
    size: u64,
    /// The end of its section.
    limit: u64,
    name: &'a str,
    /// Of a local symbol, the file that it is of, which may have no name.
    file: Option<&'a str>,
}

/// A program or library.
#[derive(Clone, Debug, Default)]
pub struct Binary {
    bytes: Arc<[u8]>,
    build_id: Vec<u8>,
    version: Option<(u64, i64)>,
    /// Loaded segments: file offset, bytes in the file, address.
    segments: Vec<(u64, u64, u64)>,
    /// By address, none inside of another.
    functions: Vec<Symbol>,
    /// Addresses of symbols inside of functions.
    inner: Vec<u64>,
    /// Data sections: address, and where the bytes are.
    data: Vec<(u64, Range<usize>)>,
    symbols: bool,
    relocations: bool,
    bolted: bool,
    debug_info: bool,
}

impl Binary {
    /// Reads the tables of a file.
    ///
    /// # Errors
    ///
    /// The bytes are no ELF file of 64 bits, or a malformed one.
    pub fn parse(bytes: Arc<[u8]>, metadata: Option<&Metadata>) -> Result<Self, BinaryError> {
        let malformed = |error: object::Error| BinaryError::Malformed(error.to_string());
        let mut out = Self::default();
        {
            let file = ElfFile64::<LittleEndian>::parse(&*bytes).map_err(malformed)?;
            let headers = file.elf_header().program_headers(LittleEndian, &*bytes);
            let loaded = headers.map_err(malformed)?.iter();
            out.segments = loaded
                .filter(|it| it.p_type(LittleEndian) == elf::PT_LOAD)
                .map(|it| {
                    let (offset, length) = (it.p_offset(LittleEndian), it.p_filesz(LittleEndian));
                    (offset, length, it.p_vaddr(LittleEndian))
                })
                .collect();
            out.build_id = file.build_id().ok().flatten().unwrap_or_default().to_vec();
            out.read_sections(&file);
            out.read_symbols(&file);
        }
        let modified = |it: &Metadata| {
            let nanoseconds = it.mtime().saturating_mul(1_000_000_000);
            (it.size(), nanoseconds.saturating_add(it.mtime_nsec()))
        };
        out.version = metadata.map(modified);
        out.bytes = bytes;
        Ok(out)
    }

    /// The GNU build id, empty where there is none.
    pub fn build_id(&self) -> &[u8] {
        &self.build_id
    }

    /// Size and modification time, in nanoseconds since 1970.
    pub fn version(&self) -> Option<(u64, i64)> {
        self.version
    }

    /// Returns whether the file names its own functions.
    pub fn has_symbols(&self) -> bool {
        self.symbols
    }

    /// Returns whether the linker has kept its relocations, without which BOLT cannot move
    /// functions.
    pub fn has_relocations(&self) -> bool {
        self.relocations
    }

    /// Returns whether it has debug information.
    pub fn has_debug_info(&self) -> bool {
        self.debug_info
    }

    /// Returns whether BOLT has written this file.
    pub fn is_bolted(&self) -> bool {
        self.bolted
    }

    fn read_sections(&mut self, file: &ElfFile64<'_, LittleEndian>) {
        for section in file.sections() {
            let name = section.name().unwrap_or_default();
            let header = section.elf_section_header();
            self.relocations |=
                name == ".rela.text" && header.sh_type.get(LittleEndian) == elf::SHT_RELA;
            self.debug_info |= name == ".debug_info";
            self.bolted |= name == ".note.bolt_info" || name == ".bolt.org.text";
            let SectionFlags::Elf { sh_flags, .. } = section.flags() else { continue };
            let Some((offset, length)) = section.file_range() else { continue };
            let data = sh_flags.contains(elf::SHF_ALLOC) && !sh_flags.contains(elf::SHF_EXECINSTR);
            let range = usize::try_from(offset).ok().zip(usize::try_from(length).ok());
            let end = range.and_then(|(from, length)| Some(from..from.checked_add(length)?));
            if let Some(range) = end.filter(|_| data) {
                self.data.push((section.address(), range));
            }
        }
    }

    fn read_symbols(&mut self, file: &ElfFile64<'_, LittleEndian>) {
        let mut raw = Vec::new();
        let mut of_file = "";
        for symbol in file.symbols() {
            let Ok(name) = symbol.name() else { continue };
            if symbol.kind() == SymbolKind::File {
                of_file = name;
                continue;
            }
            let named = !name.is_empty() && !name.contains(|c: char| c.is_control());
            let section = symbol.section_index().and_then(|at| file.section_by_index(at).ok());
            let Some(section) = section.filter(|_| symbol.kind() == SymbolKind::Text && named)
            else {
                continue;
            };
            let limit = section.address().saturating_add(section.size());
            let (address, size) = (symbol.address(), symbol.size());
            let file = symbol.is_local().then_some(of_file);
            raw.push(Raw { address, size, limit, name, file });
        }
        self.symbols = !raw.is_empty();
        // Global names come first: they need no number.
        raw.sort_by_key(|it| (it.address, it.file.is_some(), std::cmp::Reverse(it.size)));
        let mut numbers: FxHashMap<String, u32> = FxHashMap::default();
        for index in 0..raw.len() {
            let unique = unique_name(&raw[index], &mut numbers);
            let next = raw[index + 1..].iter().find(|it| it.address > raw[index].address);
            self.add(&raw[index], unique, next.map(|it| it.address));
        }
    }

    fn add(&mut self, raw: &Raw<'_>, unique: String, next: Option<u64>) {
        let size = match raw.size {
            // Written in assembly, without a size.
            0 => next.unwrap_or(u64::MAX).min(raw.limit).saturating_sub(raw.address),
            size => size,
        };
        if let Some(last) = self.functions.last_mut().filter(|last| raw.address < last.end) {
            if raw.address > last.address {
                self.inner.push(raw.address);
            }
            return;
        }
        let (address, name) = (raw.address, raw.name.to_owned());
        let end = address.saturating_add(size);
        if size > 0 {
            self.functions.push(Symbol { address, end, name, unique });
        }
    }

    /// The address that the code at an offset of the file has.
    pub(super) fn address_of(&self, offset: u64) -> Option<u64> {
        let inside = |(start, length, _): &&(u64, u64, u64)| {
            offset.checked_sub(*start).is_some_and(|into| into < *length)
        };
        let (start, _, address) = self.segments.iter().find(inside)?;
        address.checked_add(offset - start)
    }

    /// Where a module of a process has the file's code of an address.
    pub(super) fn place_in(&self, module: &RecordedModule, address: u64) -> Option<u64> {
        let inside = |(_, length, start): &&(u64, u64, u64)| {
            address.checked_sub(*start).is_some_and(|into| into < *length)
        };
        let (offset, _, start) = self.segments.iter().find(inside)?;
        let offset = offset.checked_add(address - start)?;
        module.mappings.iter().find_map(|mapping| {
            let into = offset.checked_sub(mapping.offset)?;
            let place = mapping.start.checked_add(into)?;
            (place < mapping.end).then_some(place)
        })
    }

    /// Its functions, by address.
    pub(super) fn functions(&self) -> &[Symbol] {
        &self.functions
    }

    /// The function with code at an address.
    pub(super) fn function_at(&self, address: u64) -> Option<&Symbol> {
        let after = self.functions.partition_point(|it| it.address <= address);
        self.functions[..after].last().filter(|it| address < it.end)
    }

    /// Addresses of symbols inside of `range`, without its start.
    pub(super) fn inner(&self, range: &Range<u64>) -> impl Iterator<Item = u64> {
        let from = self.inner.partition_point(|it| *it <= range.start);
        self.inner[from..].iter().copied().take_while(|it| *it < range.end)
    }

    /// The address at which the file's beginning is loaded.
    pub(super) fn base(&self) -> u64 {
        let starts = self.segments.iter().map(|(offset, _, address)| address.wrapping_sub(*offset));
        starts.min().unwrap_or_default()
    }

    /// The whole file.
    pub(super) fn bytes(&self) -> &Arc<[u8]> {
        &self.bytes
    }

    /// The bytes of code.
    pub(super) fn code_of(&self, range: &Range<u64>) -> &[u8] {
        self.loaded(range.start, range.end.saturating_sub(range.start))
    }

    /// The bytes of a function.
    pub(super) fn code(&self, function: &Symbol) -> &[u8] {
        self.loaded(function.address, function.end - function.address)
    }

    fn loaded(&self, address: u64, length: u64) -> &[u8] {
        let bytes = self.segments.iter().find_map(|(offset, in_file, start)| {
            let into = address.checked_sub(*start).filter(|into| into < in_file)?;
            let from = usize::try_from(offset.checked_add(into)?).ok()?;
            let length = usize::try_from(length.min(in_file - into)).ok()?;
            self.bytes.get(from..from.checked_add(length)?)
        });
        bytes.unwrap_or_default()
    }

    /// The bytes of data from an address to the end of its section.
    pub(super) fn data_from(&self, address: u64) -> &[u8] {
        let bytes = self.data.iter().find_map(|(start, range)| {
            let into = usize::try_from(address.checked_sub(*start)?).ok()?;
            self.bytes.get(range.clone())?.get(into..).filter(|bytes| !bytes.is_empty())
        });
        bytes.unwrap_or_default()
    }
}

/// The name that BOLT gives a function. It counts local functions of one name and file in the order
/// of their addresses; spaces and backslashes get a backslash.
fn unique_name(raw: &Raw<'_>, numbers: &mut FxHashMap<String, u32>) -> String {
    let name = match raw.file {
        None => raw.name.to_owned(),
        Some(file) => {
            let prefix = match file {
                "" => raw.name.to_owned(),
                file => format!("{}/{file}", raw.name),
            };
            let number = numbers.entry(prefix.clone()).or_default();
            *number += 1;
            format!("{prefix}/{number}")
        }
    };
    name.replace('\\', "\\\\").replace(' ', "\\ ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_functions_have_their_file_and_a_number() {
        let mut numbers = FxHashMap::default();
        let mut unique = |name, file| {
            let raw = Raw { address: 1, size: 1, limit: 2, name, file };
            unique_name(&raw, &mut numbers)
        };
        assert_eq!(unique("main", None), "main");
        assert_eq!(unique("f", Some("a.c")), "f/a.c/1");
        assert_eq!(unique("f", Some("b.c")), "f/b.c/1");
        assert_eq!(unique("f", Some("a.c")), "f/a.c/2");
        assert_eq!(unique("f", Some("")), "f/1");
        assert_eq!(unique(r"an odd\name", None), r"an\ odd\\name");
    }

    #[test]
    fn what_is_no_program_is_refused() {
        assert!(Binary::parse(b"#!/bin/sh\n".as_slice().into(), None).is_err());
        assert!(Binary::parse(Arc::default(), None).is_err());
    }
}
