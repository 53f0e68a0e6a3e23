//! Symbol tables, segments and stubs of an ELF file.

mod dots;
mod go;
mod unnamed;

use std::ops::Range;
use std::sync::Arc;
use std::sync::OnceLock;

use lwp_profile::{NamedSegment, RecordedNames};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{
    LittleEndian, Object, ObjectSection, ObjectSegment, ObjectSymbol, RelocationFlags,
    RelocationTarget, SectionFlags, SymbolKind, elf,
};
use rustc_hash::FxHashMap;

use crate::bounds::Bounds;
use crate::files::Bytes;
use crate::identity::Identity;

/// A function by its symbol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// First address, as the file has it.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// Name, mangled as it stands.
    pub name: &'a str,
    /// A stub that jumps to another module's function of this name.
    pub stub: bool,
    /// The address is that of a resolver, which chooses the function when the program starts.
    pub indirect: bool,
}

/// A symbol whose name is in [`Elf::text`].
#[derive(Clone, Debug)]
struct Entry {
    address: u64,
    size: u64,
    name: Range<u32>,
    stub: bool,
    indirect: bool,
}

/// The reason why a file is of no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ElfError {
    /// Not an ELF file of this machine, or a damaged one.
    #[error("not a usable ELF file: {0}")]
    Malformed(String),
}

/// An ELF file's tables, as far as they are needed.
#[derive(Clone, Debug, Default)]
pub struct Elf {
    /// Build id, empty where there is none.
    pub build_id: Vec<u8>,
    /// The name it is linked by.
    pub identity: Identity,
    /// Functions by address, not overlapping where the file does not say so.
    functions: Vec<Entry>,
    /// Their addresses: what is searched lies together.
    starts: Vec<u64>,
    /// Functions by their bounds, named or not.
    bounds: Bounds,
    /// All names, one behind the other: there may be hundreds of thousands.
    text: String,
    /// Loaded segments: file offset, bytes in the file, address.
    segments: Vec<(u64, u64, u64)>,
    /// Imported symbols by the address of the word that holds their address.
    imports: FxHashMap<u64, String>,
    /// Functions that other modules can import: name, address, and whether it is that of a
    /// resolver.
    exports: Vec<(Range<u32>, u64, bool)>,
    /// Their order by name, once somebody has asked for one.
    exports_by_name: OnceLock<Vec<u32>>,
    /// Executable segments: address, and where the bytes are.
    code: Vec<(u64, Bytes, Range<usize>)>,
    /// Linkage tables.
    linkage: Vec<Range<u64>>,
    /// The debug link: a file name, and the checksum of the file.
    pub debug_link: Option<(String, u32)>,
}

impl Elf {
    /// Reads the tables. Functions in a debug file complement those in the file itself: see
    /// [`Self::add_symbols`].
    ///
    /// # Errors
    ///
    /// The bytes are no ELF file of 64 bits, or a malformed one.
    pub fn parse(bytes: &[u8]) -> Result<Self, ElfError> {
        let malformed = |error: object::Error| ElfError::Malformed(error.to_string());
        let file = ElfFile64::<LittleEndian>::parse(bytes).map_err(malformed)?;
        let header = file.elf_header();
        let segments = header
            .program_headers(LittleEndian, bytes)
            .map_err(malformed)?
            .iter()
            .filter(|segment| segment.p_type(LittleEndian) == elf::PT_LOAD)
            .map(|segment| {
                (
                    segment.p_offset(LittleEndian),
                    segment.p_filesz(LittleEndian),
                    segment.p_vaddr(LittleEndian),
                )
            })
            .collect();
        let mut out = Self {
            build_id: file.build_id().ok().flatten().map(<[u8]>::to_vec).unwrap_or_default(),
            identity: Identity::of(bytes),
            bounds: Bounds::of(&file),
            segments,
            debug_link: file
                .gnu_debuglink()
                .ok()
                .flatten()
                .map(|(name, checksum)| (String::from_utf8_lossy(name).into_owned(), checksum)),
            ..Self::default()
        };
        out.read_symbols(&file);
        out.read_go(&file);
        out.identity.go |= dots::are_in_names(&out);
        out.read_imports(&file);
        out.read_chosen(&file);
        out.read_stubs(&file);
        out.settle();
        Ok(out)
    }

    /// The tables that recordings kept of one file; each has what was executed in its own run.
    pub fn kept(names: &[&RecordedNames]) -> Self {
        let mut out = Self::default();
        if let Some(first) = names.first() {
            let (soname, program, go) = (first.soname.clone(), first.program, first.go);
            out.identity = Identity { soname, program, go };
            let segment = |it: &NamedSegment| (it.offset, it.length, it.address);
            out.segments = first.segments.iter().map(segment).collect();
        }
        let mut unnamed = Vec::new();
        for names in names {
            for function in &names.functions {
                if function.name.is_empty() {
                    let end = function.address.saturating_add(function.size);
                    unnamed.push(function.address..end);
                    continue;
                }
                let Some(name) = out.keep_name(&function.name) else { break };
                let (address, size, stub) = (function.address, function.size, function.stub);
                out.functions.push(Entry { address, size, name, stub, indirect: false });
            }
            for (name, address, resolver) in &names.exports {
                let Some(name) = out.keep_name(name) else { break };
                out.exports.push((name, *address, *resolver));
            }
            out.imports.extend(names.imports.iter().map(|(word, name)| (*word, name.to_string())));
            let code = names.code.iter().map(|(address, bytes)| (*address, bytes.as_slice()));
            out.code.extend(code.map(|(address, bytes)| (address, bytes.into(), 0..bytes.len())));
        }
        out.code.sort_unstable_by_key(|(address, ..)| *address);
        let segments = out.segments.iter();
        let code = segments.map(|(_, length, address)| *address..address.saturating_add(*length));
        out.bounds = Bounds::kept(unnamed, code.collect());
        out.settle();
        out
    }

    /// Loaded segments.
    pub fn segments(&self) -> impl Iterator<Item = NamedSegment> {
        let segments = self.segments.iter();
        segments.map(|&(offset, length, address)| NamedSegment { offset, length, address })
    }

    /// Keeps the bytes of executable segments, for [`Self::code_in`].
    pub fn keep_code(&mut self, bytes: &Bytes) {
        let Ok(file) = ElfFile64::<LittleEndian>::parse(&**bytes) else { return };
        self.code = file
            .segments()
            .filter(|segment| segment.permissions().executable())
            .filter_map(|segment| {
                let (from, length) = segment.file_range();
                let (from, length) = (usize::try_from(from).ok()?, usize::try_from(length).ok()?);
                let range = from..from.checked_add(length)?;
                bytes.get(range.clone())?;
                Some((segment.address(), Arc::clone(bytes), range))
            })
            .collect();
    }

    /// Adds the functions of a debug file, whose addresses are the same.
    pub fn add_symbols(&mut self, bytes: &[u8]) {
        if let Ok(file) = ElfFile64::<LittleEndian>::parse(bytes) {
            self.read_symbols(&file);
            self.identity.go |= dots::are_in_names(self);
            self.settle();
        }
    }

    /// Nothing but the names of functions in a file, several of one function too, and sizes as they
    /// stand.
    pub fn names_in(bytes: &[u8]) -> Self {
        let mut names = Self::default();
        if let Ok(file) = ElfFile64::<LittleEndian>::parse(bytes) {
            names.read_symbols(&file);
            names.read_go(&file);
        }
        names
    }

    /// Its functions.
    pub fn symbols(&self) -> impl Iterator<Item = Symbol<'_>> {
        self.functions.iter().map(|entry| self.symbol(entry))
    }

    fn symbol(&self, entry: &Entry) -> Symbol<'_> {
        let &Entry { address, size, stub, indirect, .. } = entry;
        Symbol { address, size, name: self.name(&entry.name), stub, indirect }
    }

    fn name(&self, range: &Range<u32>) -> &str {
        &self.text[range.start as usize..range.end as usize]
    }

    /// Keeps a name; `None` where there are more than four gigabytes of them.
    fn keep_name(&mut self, name: &str) -> Option<Range<u32>> {
        let start = u32::try_from(self.text.len()).ok()?;
        let end = u32::try_from(self.text.len() + name.len()).ok()?;
        self.text.push_str(name);
        Some(start..end)
    }

    /// Returns whether the file names its own functions beyond what it exports.
    pub fn is_stripped(bytes: &[u8]) -> bool {
        ElfFile64::<LittleEndian>::parse(bytes).is_ok_and(|file| {
            file.symbol_table().is_none_or(|table| {
                use object::ObjectSymbolTable;
                table.symbols().next().is_none()
            })
        })
    }

    fn read_symbols(&mut self, file: &ElfFile64<'_, LittleEndian>) {
        for (symbol, dynamic) in
            file.symbols().map(|s| (s, false)).chain(file.dynamic_symbols().map(|s| (s, true)))
        {
            let indirect = symbol.elf_symbol().st_info.st_type() == elf::STT_GNU_IFUNC;
            let function = symbol.kind() == SymbolKind::Text || indirect;
            let label = symbol.kind() == SymbolKind::Label || symbol.kind() == SymbolKind::Unknown;
            let defined =
                symbol.is_definition() || (label || indirect) && symbol.section_index().is_some();
            let code = function || label && in_code(file, &symbol);
            if !defined || !code {
                continue;
            }
            let Ok(name) = symbol.name_bytes() else { continue };
            let name = String::from_utf8_lossy(name);
            if name.is_empty() || name.starts_with('$') || name.starts_with(".L") {
                continue;
            }
            let Some(name) = self.keep_name(&name) else { return };
            let (address, size) = (symbol.address(), symbol.size());
            if dynamic && function {
                self.exports.push((name.clone(), address, indirect));
            }
            self.functions.push(Entry { address, size, name, stub: false, indirect });
        }
    }

    /// Reads the names that a Go program has for itself if it has no symbols.
    fn read_go(&mut self, file: &ElfFile64<'_, LittleEndian>) {
        if file.symbol_table().is_some() {
            return;
        }
        for function in go::functions(file).into_iter().flatten() {
            let Some(name) = self.keep_name(function.name()) else { return };
            let Range { start: address, end } = function.range();
            let size = end - address;
            self.functions.push(Entry { address, size, name, stub: false, indirect: false });
        }
    }

    fn read_imports(&mut self, file: &ElfFile64<'_, LittleEndian>) {
        use object::ObjectSymbolTable;
        let Some(relocations) = file.dynamic_relocations() else { return };
        let Some(table) = file.dynamic_symbol_table() else { return };
        for (address, relocation) in relocations {
            let RelocationFlags::Elf { r_type } = relocation.flags() else { continue };
            if r_type != elf::R_X86_64_JUMP_SLOT && r_type != elf::R_X86_64_GLOB_DAT {
                continue;
            }
            let RelocationTarget::Symbol(index) = relocation.target() else { continue };
            if let Ok(name) = table.symbol_by_index(index).and_then(|symbol| symbol.name_bytes()) {
                self.imports.insert(address, String::from_utf8_lossy(name).into_owned());
            }
        }
    }

    /// Words that hold the address of a variant of a function, chosen when the program starts. They
    /// are called by the name of the function that chooses, which is that of what is chosen for
    /// everybody else.
    fn read_chosen(&mut self, file: &ElfFile64<'_, LittleEndian>) {
        let choosers = self.functions.iter().filter(|symbol| symbol.indirect);
        let mut names: Vec<(u64, &str)> =
            choosers.map(|symbol| (symbol.address, self.name(&symbol.name))).collect();
        names.sort_by_key(|(address, name)| (*address, name.starts_with('_'), name.len(), *name));
        let mut chosen = Vec::new();
        for section in file.sections() {
            let SectionFlags::Elf { sh_flags, .. } = section.flags() else { continue };
            let rela = section.elf_section_header().sh_type.get(LittleEndian) == elf::SHT_RELA;
            let Ok(bytes) = section.data() else { continue };
            if !rela || !sh_flags.contains(elf::SHF_ALLOC) {
                continue;
            }
            for entry in bytes.chunks_exact(24) {
                let number = |at: usize| {
                    entry[at..at + 8].iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte))
                };
                if number(8) as u32 != elf::R_X86_64_IRELATIVE.0 {
                    continue;
                }
                let at = names.partition_point(|(address, _)| *address < number(16));
                let name = names.get(at).filter(|(address, _)| *address == number(16));
                let name =
                    name.map_or_else(|| format!("*ABS*+{:#x}", number(16)), |it| it.1.to_owned());
                chosen.push((number(0), name));
            }
        }
        self.imports.extend(chosen);
    }

    /// Finds the stubs of the procedure linkage table by what they do: jump through a word that
    /// holds an imported address.
    fn read_stubs(&mut self, file: &ElfFile64<'_, LittleEndian>) {
        for (section, entry) in [(".plt", 16), (".plt.sec", 16), (".plt.got", 8)] {
            let Some(section) = file.section_by_name(section) else { continue };
            let Ok(bytes) = section.data() else { continue };
            let end = section.address().saturating_add(bytes.len() as u64);
            self.linkage.push(section.address()..end);
            // With control-flow protection the entries of .plt.got are longer.
            // Those of a program without a linker have no way back to it.
            let entry = match entry {
                8 if bytes.starts_with(&[0xf3, 0x0f, 0x1e, 0xfa]) => 16,
                16 if bytes.starts_with(&[0xff, 0x25])
                    && bytes.get(6..8) == Some(&[0x66, 0x90]) =>
                {
                    8
                }
                entry => entry,
            };
            for (index, code) in bytes.chunks_exact(entry).enumerate() {
                let address = section.address().wrapping_add((index * entry) as u64);
                let Some(word) = jump_through(code, address) else { continue };
                let Some(name) = self.imports.get(&word) else { continue };
                let (name, size) = (format!("{name}@plt"), entry as u64);
                let Some(name) = self.keep_name(&name) else { return };
                self.functions.push(Entry { address, size, name, stub: true, indirect: false });
            }
        }
    }

    /// Sorts, keeps the best of several names, and gives labels without a size one.
    fn settle(&mut self) {
        let places = self.functions.iter().zip(0u32..);
        let mut order: Vec<(u64, u32)> = places.map(|(entry, at)| (entry.address, at)).collect();
        order.sort_unstable();
        // Of names with and without a size at one address, one with a size is first.
        let best = |same: &[(u64, u32)]| {
            let mut entries = same.iter().map(|&(_, at)| &self.functions[at as usize]);
            if same.len() == 1 {
                return entries.next().cloned();
            }
            entries.min_by_key(|entry| (rank(&self.symbol(entry)), self.name(&entry.name))).cloned()
        };
        self.functions = order.chunk_by(|a, b| a.0 == b.0).filter_map(best).collect();
        self.exports_by_name.take();
        self.starts = self.functions.iter().map(|symbol| symbol.address).collect();
        for (index, symbol) in self.functions.iter_mut().enumerate() {
            if symbol.size == 0 {
                let segment = self
                    .segments
                    .iter()
                    .find(|(_, len, address)| {
                        (*address..address.saturating_add(*len)).contains(&symbol.address)
                    })
                    .map_or(symbol.address, |(_, len, address)| address.saturating_add(*len));
                let next = self.starts.get(index + 1).copied().unwrap_or(segment);
                let unnamed = self.bounds.next_start(symbol.address).unwrap_or(segment);
                let end = next.min(unnamed).min(segment.max(symbol.address));
                symbol.size = end - symbol.address;
            }
        }
    }

    /// The function at `address`: the one that starts last before it and reaches it.
    pub fn function_at(&self, address: u64) -> Option<Symbol<'_>> {
        Some(self.function_about(address)?.0)
    }

    /// The function at `address`, with the addresses around it that are in the same function.
    pub fn function_about(&self, address: u64) -> Option<(Symbol<'_>, Range<u64>)> {
        self.symbol_about(address).or_else(|| self.named_by_bounds(address))
    }

    fn symbol_about(&self, address: u64) -> Option<(Symbol<'_>, Range<u64>)> {
        let upto = self.starts.partition_point(|start| *start <= address);
        // A few steps back: a function may contain the symbol of its own part.
        let mut before = self.functions[..upto].iter().rev().take(8);
        let entry = before.find(|entry| address - entry.address < entry.size.max(1))?;
        let next = self.starts.get(upto).copied().unwrap_or(u64::MAX);
        let end = entry.address.saturating_add(entry.size.max(1)).min(next);
        // Behind a symbol within it is more of it, before that something else.
        let start = if self.starts[upto - 1] == entry.address { entry.address } else { address };
        Some((self.symbol(entry), start..end))
    }

    /// Returns whether `address` is in a stub of a linkage table, in what those share, or in the
    /// dynamic linker's resolver, to which that leads.
    pub fn is_linkage(&self, address: u64) -> bool {
        self.linkage.iter().any(|range| range.contains(&address))
            || self.symbol_about(address).is_some_and(|(symbol, _)| {
                symbol.stub || symbol.name.starts_with("_dl_runtime_resolve")
            })
    }

    /// The address of what lies at `offset` in the file.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        let (start, _, address) = self
            .segments
            .iter()
            .find(|(start, len, _)| (*start..start.saturating_add(*len)).contains(&offset))?;
        Some(address.wrapping_add(offset - start))
    }

    /// Returns the offset in the file of the byte at `address`.
    pub fn offset_of(&self, address: u64) -> Option<u64> {
        let (start, _, begin) = self
            .segments
            .iter()
            .find(|(_, len, begin)| (*begin..begin.saturating_add(*len)).contains(&address))?;
        Some(start.wrapping_add(address - begin))
    }

    /// The code of the `size` bytes from `address` on, in pieces that start at an instruction: one
    /// of a file, and of what a recording keeps as many as there are.
    pub fn code_in(&self, address: u64, size: u64) -> Vec<(u64, &[u8])> {
        let end = address.saturating_add(size);
        let pieces = self.code.iter().filter_map(|(start, bytes, range)| {
            let bytes = &bytes[range.clone()];
            let behind = start.saturating_add(bytes.len() as u64);
            let (from, to) = (address.max(*start), end.min(behind));
            let part = |from: u64, to: u64| &bytes[(from - start) as usize..(to - start) as usize];
            (from < to).then(|| (from, part(from, to)))
        });
        pieces.collect()
    }

    /// The symbol whose address the word at `address` holds.
    pub fn import_at(&self, address: u64) -> Option<&str> {
        self.imports.get(&address).map(String::as_str)
    }

    /// The address of an exported function, and whether it is that of a resolver.
    pub fn export(&self, name: &str) -> Option<(u64, bool)> {
        let named = |at: u32| self.name(&self.exports[at as usize].0);
        let order = self.exports_by_name.get_or_init(|| {
            let mut order: Vec<u32> = (0u32..).take(self.exports.len()).collect();
            order.sort_by(|&a, &b| named(a).cmp(named(b)));
            order
        });
        // Of several versions, the last one.
        let upto = order.partition_point(|&at| named(at) <= name);
        let last = *order[..upto].last()?;
        let (_, address, resolver) = &self.exports[last as usize];
        (named(last) == name).then_some((*address, *resolver))
    }
}

fn in_code(
    file: &ElfFile64<'_, LittleEndian>,
    symbol: &object::read::elf::ElfSymbol64<'_, '_, LittleEndian>,
) -> bool {
    let kind = symbol.elf_symbol().st_info.st_type();
    let section = symbol.section_index().and_then(|index| file.section_by_index(index).ok());
    // By its flags: in a debug file, code has no bytes.
    let code = |flags| matches!(flags, SectionFlags::Elf { sh_flags, .. } if sh_flags.contains(elf::SHF_EXECINSTR));
    kind == elf::STT_NOTYPE && section.is_some_and(|section| code(section.flags()))
}

/// Ranks several names for one address: functions before labels, public names before
/// private ones.
fn rank(symbol: &Symbol<'_>) -> (bool, bool, usize, usize) {
    let underscores = symbol.name.bytes().take_while(|byte| *byte == b'_').count();
    // Mangled names start with an underscore too.
    let mangled = symbol.name.starts_with("_Z") || symbol.name.starts_with("_R");
    let underscores = if mangled { 0 } else { underscores };
    (symbol.stub, symbol.size == 0, underscores, symbol.name.len())
}

/// The word through which `code` at `address` jumps: `jmp *word(%rip)`, perhaps after `endbr64` and
/// with a `bnd` prefix.
pub fn jump_through(code: &[u8], address: u64) -> Option<u64> {
    let at = code.windows(2).position(|pair| pair == [0xff, 0x25])?;
    word_after(code, at, address)
}

/// The word through which the instruction `code` at `address` calls or jumps, where it is addressed
/// relative to the instruction pointer.
pub fn branch_through(code: &[u8], address: u64) -> Option<u64> {
    let at = code.iter().position(|byte| *byte == 0xff)?;
    matches!(code.get(at + 1), Some(0x25 | 0x15)).then(|| word_after(code, at, address))?
}

fn word_after(code: &[u8], at: usize, address: u64) -> Option<u64> {
    let displacement = i32::from_le_bytes(code.get(at + 2..at + 6)?.try_into().ok()?);
    Some(address.wrapping_add(at as u64 + 6).wrapping_add(i64::from(displacement) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_program_is_read() {
        let path = std::env::current_exe().unwrap();
        let elf = Elf::parse(&std::fs::read(path).unwrap()).unwrap();
        let main = elf.symbols().find(|symbol| symbol.name == "main").unwrap();
        assert_eq!(elf.function_at(main.address).map(|s| s.name), Some("main"));
        assert_eq!(elf.function_at(main.address + main.size - 1).unwrap().address, main.address);
        assert!(
            elf.segments
                .iter()
                .any(|(offset, _, address)| { elf.address_of(*offset) == Some(*address) })
        );
        assert!(elf.imports.values().any(|name| name == "write" || name == "__libc_start_main"));
    }

    #[test]
    fn other_files_are_errors() {
        assert!(Elf::parse(b"").is_err());
        assert!(Elf::parse(b"#!/bin/sh\n").is_err());
        let mut truncated = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        truncated.truncate(200);
        let _ = Elf::parse(&truncated);
    }

    #[test]
    fn stubs_are_known_by_their_jump() {
        // endbr64; bnd jmp *0x2f75(%rip); nopl
        let code =
            [0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 0x75, 0x2f, 0, 0, 0x0f, 0x1f, 0x44, 0, 0];
        assert_eq!(jump_through(&code, 0x1050), Some(0x1050 + 11 + 0x2f75));
        // call *0x10(%rip)
        assert_eq!(branch_through(&[0xff, 0x15, 0x10, 0, 0, 0], 0x100), Some(0x116));
        assert_eq!(branch_through(&[0xff, 0xe0], 0x100), None);
    }
}
