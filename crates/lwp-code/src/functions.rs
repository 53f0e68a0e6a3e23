//! Bounds of functions in the code that is mapped, for contexts.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use lwp_contexts::{Function, Functions};
use lwp_process::Tid;
use lwp_process::maps::Mapping;
use lwp_process::program_files;
use lwp_symbols::Elf;
use rustc_hash::FxHashMap;

/// Bytes of what the stubs of a linkage table share.
const STUB: u64 = 16;

/// Answers that are remembered.
const REMEMBERED: usize = 1 << 16;

/// A device and an inode.
type FileId = ((u32, u32), u64);

/// The functions of all code that has been mapped in the address spaces of a family.
#[derive(Debug, Default)]
pub struct MappedFunctions {
    mappings: Vec<Mapped>,
    /// The functions of files by device and inode, as far as they could be read.
    files: FxHashMap<FileId, Option<Arc<Elf>>>,
    /// Functions by addresses that have been asked for.
    known: FxHashMap<u64, Function>,
}

/// A mapping of a file's code, or of other code.
#[derive(Debug)]
struct Mapped {
    range: Range<u64>,
    /// Offset of its first byte in the file.
    offset: u64,
    elf: Option<Arc<Elf>>,
}

/// A function, and addresses about one of its instructions that are in it too.
#[derive(Clone, Debug)]
struct Found {
    function: Function,
    about: Range<u64>,
}

impl MappedFunctions {
    /// Code is mapped in the address space of `tid`.
    pub fn mapped(&mut self, tid: Tid, mapping: &Mapping) {
        let range = mapping.start..mapping.end;
        let elf = self.file(tid, mapping);
        let same = |it: &Mapped| {
            let same_file = match (&it.elf, &elf) {
                (Some(one), Some(other)) => Arc::ptr_eq(one, other),
                (None, None) => true,
                _ => false,
            };
            it.range == range && it.offset == mapping.offset && same_file
        };
        if self.mappings.iter().any(same) {
            return;
        }
        self.mappings.retain(|it| it.range.end <= range.start || range.end <= it.range.start);
        self.mappings.push(Mapped { range, offset: mapping.offset, elf });
        self.known.clear();
    }

    /// Returns whether the tables of all files whose code is mapped in `extent` could be read.
    pub fn are_known_in(&self, extent: (u64, u64)) -> bool {
        let lies_there = |it: &&Mapped| it.range.start < extent.1 && extent.0 < it.range.end;
        self.mappings.iter().filter(lies_there).all(|it| it.elf.is_some())
    }

    /// Addresses about `address` that are in the same function.
    pub fn about(&self, address: u64) -> Option<Range<u64>> {
        Some(self.find(address)?.about)
    }

    fn file(&mut self, tid: Tid, mapping: &Mapping) -> Option<Arc<Elf>> {
        if mapping.inode == 0 {
            return None;
        }
        let read = || {
            let file = program_files::hold(tid, mapping)?;
            functions_of(&file).map(Arc::new)
        };
        self.files.entry((mapping.device, mapping.inode)).or_insert_with(read).clone()
    }

    fn find(&self, address: u64) -> Option<Found> {
        let mapped = self.mappings.iter().find(|it| it.range.contains(&address))?;
        mapped.function(address)
    }
}

/// The functions of a file; none where it is no ELF file.
fn functions_of(file: &File) -> Option<Elf> {
    let metadata = file.metadata().ok()?;
    let bytes = lwp_symbols::read_whole(file, &metadata).ok()?;
    Elf::parse(&bytes).ok()
}

impl Mapped {
    fn function(&self, address: u64) -> Option<Found> {
        let elf = self.elf.as_ref()?;
        let there = elf.address_of(address - self.range.start + self.offset)?;
        let before = |it: u64| address.saturating_sub(there.saturating_sub(it));
        let behind = |it: u64| address.saturating_add(it.saturating_sub(there));
        let transparent = elf.is_linkage(there);
        let named = elf.function_about(there).map(|(named, about)| (named.address, about));
        // What the stubs of a table share has no name.
        let binds = transparent && named.is_none();
        let (start, about) = named.unwrap_or_else(|| match binds {
            true => (there & !(STUB - 1), there & !(STUB - 1)..(there | (STUB - 1)) + 1),
            false => {
                let unnamed = elf.unnamed_at(there, || &[]);
                (unnamed.range.start, unnamed.about)
            }
        });
        let function = Function { start: before(start), transparent, binds };
        let from = before(about.start).max(self.range.start);
        let about = from..behind(about.end).min(self.range.end);
        Some(Found { function, about })
    }
}

impl Functions for MappedFunctions {
    fn at(&mut self, address: u64) -> Function {
        if let Some(known) = self.known.get(&address) {
            return *known;
        }
        // Code of which nothing is known is one function: jumps in it lead nowhere else.
        let of_mapping = || {
            let mapped = self.mappings.iter().find(|it| it.range.contains(&address));
            mapped.map_or(address, |it| it.range.start)
        };
        let found = self.find(address).map(|it| it.function);
        let function =
            found.unwrap_or_else(|| Function { start: of_mapping(), ..Function::default() });
        if self.known.len() >= REMEMBERED {
            self.known.clear();
        }
        self.known.insert(address, function);
        function
    }
}
