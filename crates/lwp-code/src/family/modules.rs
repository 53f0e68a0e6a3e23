//! The modules of a family: the units of its code, and the files that they are of.

use std::ops::{Index, IndexMut};

use lwp_dbt::{AppPc, Checks, CodeCache, EntryId, FragmentId, IpFilter, Unit};
use lwp_process::mapped_file::FileVersion;
use lwp_process::maps::Mapping;
use lwp_run::sampled_code::{CodePlace, SampledCode};
use rustc_hash::{FxHashMap, FxHashSet};

use super::Pages;
use crate::arena::Chunk;
use crate::interpreter_entries::Evaluators;
use crate::module_images::{Kept, ModuleSource};

/// A file and the place where it is mapped: a shared translation belongs to both.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileKey {
    /// The file: an inode's number may be reused, and the file changed.
    pub file: FileVersion,
    /// Address and file offset of the first mapping of the module.
    pub base: (u64, u64),
}

/// A unit's number in its family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UnitId(pub u32);

/// A unit with what is needed to translate more of it.
#[derive(Debug)]
pub struct Module {
    /// The code that has been translated.
    pub unit: Unit,
    /// Its addresses, lowest and highest.
    pub extent: (u64, u64),
    /// Its entries, in the order they were made.
    pub entries: Vec<EntryId>,
    /// Bytes of its code, as far as they are known.
    pub code_bytes: u64,
    /// The arena that its code must lie in, once it has any or none near it can be had.
    pub(super) arena: Option<usize>,
    /// The place of its code: the chunk in use, and whether it is the only one.
    pub chunk: Option<(Chunk, bool)>,
    /// Its cut fragments. Nothing leads to them, and they are not kept.
    pub(super) cuts: Unit,
    /// The source of its code, where that does not change: what is translated of it belongs to
    /// every process that has the same file.
    pub code: Option<ModuleSource>,
    /// The data needed to keep it beyond the run.
    pub kept: Option<Kept>,
    /// Application code read so far, by page; only where it cannot change.
    pub(super) pages: Pages,
    /// The fragments made of each page, where code may change; some have been cut off since.
    pub(super) made_of: FxHashMap<u64, Vec<FragmentId>>,
}

impl Module {
    /// A module with no code yet.
    fn new(checks: Checks, extent: (u64, u64)) -> Self {
        Self {
            unit: Unit::new(checks),
            extent,
            entries: Vec::new(),
            code_bytes: 0,
            arena: None,
            chunk: None,
            cuts: Unit::new(checks),
            code: None,
            kept: None,
            pages: Pages::default(),
            made_of: FxHashMap::default(),
        }
    }

    /// Settles that all of its code lies in this arena: fragments of a unit lead to each other, and
    /// must reach each other.
    pub fn settle(&mut self, arena: usize) {
        self.arena.get_or_insert(arena);
    }

    fn set_filter(&mut self, filter: IpFilter) {
        self.unit.filter = Some(filter);
        self.cuts.filter = Some(filter);
    }

    /// Returns whether its code may change.
    pub fn changes(&self) -> bool {
        self.unit.checks != Checks::None
    }
}

/// The modules of a family, by the numbers of their units.
#[derive(Debug, Default)]
pub struct Modules {
    all: Vec<Module>,
    files: FxHashMap<FileKey, UnitId>,
    /// Inodes of the files that any of the code was mapped from.
    inodes: FxHashSet<u64>,
    /// Entries made in this run by the address of their stub.
    stubs: FxHashMap<u64, EntryId>,
    /// The code that is sampled, where it is not all.
    pub sampled_code: Option<SampledCode>,
    /// Functions within which threads count.
    pub within: Vec<CodePlace>,
    /// Evaluators whose calls are counted.
    pub evaluators: Evaluators,
}

impl Index<UnitId> for Modules {
    type Output = Module;

    fn index(&self, id: UnitId) -> &Module {
        &self.all[id.0 as usize]
    }
}

impl IndexMut<UnitId> for Modules {
    fn index_mut(&mut self, id: UnitId) -> &mut Module {
        &mut self.all[id.0 as usize]
    }
}

impl Modules {
    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of modules.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns every module from number `first` on.
    pub fn iter_from(&self, first: usize) -> impl Iterator<Item = (UnitId, &Module)> {
        let known = self.all.iter().enumerate().skip(first);
        known.map(|(number, module)| (UnitId(number as u32), module))
    }

    /// Returns every module.
    pub fn iter(&self) -> impl Iterator<Item = (UnitId, &Module)> {
        self.iter_from(0)
    }

    /// The module of a unit, if there is such a unit.
    pub fn get(&self, id: UnitId) -> Option<&Module> {
        self.all.get(id.0 as usize)
    }

    /// The number of fragments that are left of those made of code that may change.
    pub(super) fn left_of_changing(&self) -> usize {
        let changing = self.all.iter().filter(|module| module.changes());
        changing.map(|module| module.unit.kept_fragments()).sum()
    }

    /// The unit of a mapped file, if there is one.
    pub fn known_file(&self, key: &FileKey) -> Option<UnitId> {
        self.files.get(key).copied()
    }

    /// Makes the unit of a mapped file, which has `code_bytes` of code.
    pub fn file_unit(&mut self, key: FileKey, extent: (u64, u64), code_bytes: u64) -> UnitId {
        let id = self.new_unit(Checks::None, extent);
        self[id].code_bytes = code_bytes;
        self.files.insert(key, id);
        id
    }

    /// A new unit.
    pub fn new_unit(&mut self, checks: Checks, extent: (u64, u64)) -> UnitId {
        let id = UnitId(self.all.len() as u32);
        self.all.push(Module::new(checks, extent));
        if let Some(code) = self.sampled_code.filter(|code| code.everywhere().is_none()) {
            self[id].set_filter(code.elsewhere());
        }
        id
    }

    /// Returns whether code of a file with this inode has ever been known.
    pub fn knows_inode(&self, inode: u64) -> bool {
        self.inodes.contains(&inode)
    }

    /// A unit holds code of `mapping`, one of thread `tid`'s: if that is the code that is sampled,
    /// the unit knows from here on.
    pub fn note_code(&mut self, id: UnitId, tid: i32, mapping: &Mapping) {
        self.inodes.insert(mapping.inode);
        if let Some(filter) = self.sampled_code.and_then(|code| code.in_mapping(tid, mapping)) {
            self[id].set_filter(filter);
        }
        let unit = &mut self.all[id.0 as usize].unit;
        for &place in &self.within {
            let code = SampledCode { place, inverted: false };
            if let Some(function) = code.in_mapping(tid, mapping) {
                unit.marks.alone.insert(AppPc(function.base));
            }
        }
        self.evaluators.count(unit, tid, mapping);
    }

    /// Notes entries that have been made of a unit.
    pub fn add_entries(&mut self, id: UnitId, entries: &[EntryId], code_cache: &CodeCache) {
        self[id].entries.extend_from_slice(entries);
        let stub = |entry: &EntryId| (code_cache.entry(*entry).stub.0, *entry);
        self.stubs.extend(entries.iter().map(stub));
    }

    /// The entry made in this run with its stub at `address`.
    pub fn entry_of_stub(&self, address: u64) -> Option<EntryId> {
        self.stubs.get(&address).copied()
    }
}
