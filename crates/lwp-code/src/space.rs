//! Address spaces: which code is mapped where, and which entries the indirect table holds.

use std::fs::File;
use std::sync::Arc;

use lwp_dbt::{EntryId, Selection};
use lwp_process::mapped_file::{FileVersion, MappedFile};
use lwp_process::maps::{self, Mapping};
use lwp_process::pagemap::Pagemap;

use crate::family::{Code, Family, FileKey, Table, UnitId};
use crate::guards::{Source, Unasked, as_set};
use crate::module_images::ModuleSource;

mod arena_set;
mod code_map;
mod inserted;
mod joined;

pub use arena_set::ArenaSet;
pub use code_map::{CodeMap, CodeRange};
use inserted::Inserted;

/// An executable mapping that an address space does not know yet.
#[derive(Clone, Copy)]
struct Found<'a> {
    tid: i32,
    mapping: &'a Mapping,
    /// The mappings of its module.
    group: &'a [Mapping],
    pagemap: &'a Pagemap,
}

/// One address space. Threads and vfork children share it; fork copies it.
#[derive(Debug)]
pub struct Space {
    /// Index of its family.
    pub family: usize,
    /// Its code, as far as it is known.
    pub code: CodeMap,
    /// The entries in its indirect table.
    pub inserted: Inserted,
    /// The number of processes that live in it.
    pub users: usize,
    /// Other views of this address space, for threads with profiling on: indices of spaces, by
    /// selection of events.
    pub sides: Vec<(Selection, usize)>,
    /// The number of slots of its contexts that are mapped in it.
    pub contexts: usize,
    /// Its program has asked for all future mappings to be locked, by mlockall(2).
    pub locks_future: bool,
    /// The arenas of its family that are mapped in it.
    pub arenas: ArenaSet,
    /// The notices of writes to its code.
    pub notices: Source,
    /// The pages to which the kernel may write whenever it likes.
    pub unasked: Unasked,
    /// Ours are to be elsewhere before its program goes on.
    pub moves: bool,
    /// Its threads are to tell of every system call, which its family's do not yet.
    pub dispatches: bool,
    /// The end of the heap of brk(2), or an address above it; 0 where it is not known.
    pub heap_end: u64,
}

impl Space {
    /// An address space about which nothing is known yet, with the first `arenas` of its family
    /// mapped.
    pub fn new(family: usize, arenas: usize) -> Self {
        Self {
            family,
            code: CodeMap::new(),
            inserted: Inserted::default(),
            users: 1,
            sides: Vec::new(),
            contexts: 0,
            locks_future: false,
            arenas: ArenaSet::first(arenas),
            notices: Source::default(),
            unasked: Unasked::default(),
            moves: false,
            dispatches: false,
            heap_end: 0,
        }
    }

    /// Makes another side of this address space, which inherits the knowledge of its code.
    pub fn side(&self, family: usize, arenas: usize) -> Self {
        let (code, notices) = (self.code.side(), self.notices.clone());
        let unasked = self.unasked.clone();
        Self { code, notices, unasked, ..Self::new(family, arenas) }
    }

    /// Belongs to another family from here on, in which nothing of it is known.
    pub fn flush(&mut self, family: usize, arenas: usize) {
        let (users, contexts, sides) = (self.users, self.contexts, std::mem::take(&mut self.sides));
        let (locks_future, heap_end) = (self.locks_future, self.heap_end);
        let side = self.side(family, arenas);
        *self = Self { users, contexts, sides, locks_future, heap_end, ..side };
    }

    /// The copy that fork makes. Anonymous code starts over in the child, because either side may
    /// change its own; the entries returned must leave the child's table.
    pub fn fork(&self, family: &Family) -> (Self, Vec<EntryId>) {
        let mut child = Self {
            family: self.family,
            code: self.code.copy(),
            inserted: self.inserted.copy(),
            users: 1,
            sides: Vec::new(),
            contexts: self.contexts,
            // A copy's mappings are not locked, nor is what it maps.
            locks_future: false,
            arenas: self.arenas.copy(),
            notices: Source::default(),
            unasked: self.unasked.copy(),
            moves: false,
            dispatches: false,
            heap_end: self.heap_end,
        };
        let forget = |unit| child.inserted.forget(unit, &family.modules[unit].entries);
        let gone = self.code.private_units().into_iter().flat_map(forget).collect();
        (child, gone)
    }

    /// Returns whether it belongs to a family that it has outgrown: something of its own lies where
    /// an arena must be, or the family has no more arenas to give.
    pub fn needs_other_family(&self) -> bool {
        self.arenas.refuses_any() || self.moves || self.dispatches
    }

    /// Notes whether arena `index` of its family could be mapped in it.
    pub fn note_arena(&mut self, index: usize, mapped: bool) {
        self.arenas.note(index, mapped);
        // Threads know where ours are.
        self.code.tell_again();
    }

    /// Takes the entries of `unit` that should go into the table now.
    pub fn entries_to_insert(&mut self, family: &Family, unit: UnitId) -> Vec<EntryId> {
        let entries = &family.modules[unit].entries;
        self.inserted.next(&family.code_cache, unit, entries)
    }

    /// Stops using a file's translation, a part of whose code is no longer the file's: what lies
    /// beside that part may lead there directly, and is translated for this address space alone
    /// from here on. The entries returned must leave the indirect table.
    pub fn leave_unit(&mut self, family: &Family, unit: UnitId) -> Vec<EntryId> {
        self.code.leave(unit);
        self.inserted.forget(unit, &family.modules[unit].entries)
    }

    /// The executable mapping at `pc`, looked up again if it is not known.
    pub fn code_at(&mut self, family: &mut Family, tid: i32, pc: u64) -> Option<(u64, CodeRange)> {
        if let Some(found) = self.code.at(pc) {
            return Some(found);
        }
        if (VSYSCALL..VSYSCALL + 0x1000).contains(&pc) {
            return None;
        }
        self.refresh(family, tid);
        self.code.at(pc)
    }

    /// Returns whether it is still to be found out if notice of writes to `code` can be had.
    pub fn lacks_notices(&self, code: CodeRange) -> bool {
        code.guardable && matches!(self.notices, Source::Unknown)
    }

    /// Returns whether `code` at `pc` is guarded as soon as a thread stands still for that.
    pub fn lacks_guard(&self, code: CodeRange, pc: u64) -> bool {
        self.code_to_translate(0, code).lacks_guard(pc)
    }

    /// Returns whether these are the notices of writes to its code.
    pub fn has_notices(&self, key: u64) -> bool {
        matches!(&self.notices, Source::Given(notices) if notices.key == key)
    }

    /// The code in the range that begins at `start`, to be translated.
    pub fn code_to_translate(&self, start: u64, code: CodeRange) -> Code {
        let notices = match &self.notices {
            Source::Given(notices) if code.guardable => Some(Arc::clone(notices)),
            _ => None,
        };
        Code { unit: code.unit, range: (start, self.end_of_bytes(code)), notices }
    }

    /// Forgets what is known of `range`: something has been mapped or protected there.
    ///
    /// Returns the units whose translations of it must be looked at.
    pub fn forget(&mut self, range: (u64, u64)) -> Vec<UnitId> {
        if let Source::Given(notices) = &self.notices {
            notices.forget(range);
        }
        self.code.forget(range)
    }

    /// Takes in what a new program begins with, and gives it the prepared table for that, which is
    /// to be mapped, if there is one.
    pub fn begin<'a>(
        &mut self,
        family: &'a mut Family,
        tid: i32,
        mappings: &[Mapping],
    ) -> Option<&'a Table> {
        self.take_in(family, tid, mappings);
        let units = self.code.units();
        let usual = |unit: &UnitId| family.arena_of(*unit).is_some_and(|at| self.arenas.has(at));
        if !self.code.private.is_empty() || !units.iter().all(usual) {
            return None;
        }
        let table = family.low_window.tables.of(&units);
        for &entry in table.iter().flat_map(|table| &table.entries) {
            self.inserted.put(&family.code_cache, entry);
        }
        if table.is_some() {
            for unit in &units {
                // The rest has not been of use to the program before.
                self.inserted.offer_all(*unit, family.modules[*unit].entries.len());
            }
        }
        self.inserted.began_with = Some(units);
        table
    }

    /// Its program has ended: what it has inserted is what the next one that begins alike will
    /// want.
    pub fn ended(&mut self, family: &mut Family) {
        let Some(units) = self.inserted.began_with.take() else { return };
        if !family.low_window.tables.note_end(&units) {
            return;
        }
        let has = |entry: &EntryId| self.inserted.has(*entry);
        let modules = units.iter().map(|unit| &family.modules[*unit]);
        let entries = modules.flat_map(|module| &module.entries).copied().filter(has).collect();
        family.low_window.make_table(&family.code_cache, units, entries);
    }

    fn refresh(&mut self, family: &mut Family, tid: i32) {
        self.take_in(family, tid, &maps::read(tid));
    }

    fn take_in(&mut self, family: &mut Family, tid: i32, mappings: &[Mapping]) {
        let mappings = &*as_set(mappings, &self.notices);
        let pagemap = Pagemap::of(tid);
        let mut group_start = 0;
        for (index, mapping) in mappings.iter().enumerate() {
            if index == 0 || !continues(&mappings[index - 1], mapping) {
                group_start = index;
            }
            let known = self.code.has_mapping(mapping);
            if !mapping.execute || known || mapping.start >= VSYSCALL {
                continue;
            }
            if lwp_mailbox::memory_map::is_ours(mapping) {
                continue;
            }
            let end = mappings[index..]
                .iter()
                .zip(mappings[index..].iter().skip(1).map(Some).chain([None]))
                .find(|(a, b)| b.is_none_or(|b| !continues(a, b)))
                .map_or(mapping.end, |(a, _)| a.end);
            let group_end =
                index + mappings[index..].iter().take_while(|other| other.end <= end).count();
            let group = &mappings[group_start..group_end];
            self.add_code(family, &Found { tid, mapping, group, pagemap: &pagemap });
        }
    }

    /// Takes an executable mapping in: a file's as a whole, anonymous memory by 1 GiB of address,
    /// so that a translation can lie near it.
    fn add_code(&mut self, family: &mut Family, found: &Found<'_>) {
        let Found { tid, mapping, .. } = *found;
        self.code.grow();
        let is_file = mapping.inode != 0 && !mapping.write && !mapping.shared;
        let file = is_file.then(|| MappedFile::of(tid, mapping));
        let written = self.code.patched || file.as_ref().is_some_and(|file| file.is_written);
        let file = file.and_then(|file| file.file);
        let inode = mapping.inode;
        if !written && let Some(unit) = self.shared_unit(family, found, file) {
            let range =
                CodeRange { end: mapping.end, unit, guardable: false, inode, joined: false };
            self.code.insert(mapping.start, range);
            if let Some(origins) = &mut family.origins {
                origins.mapped(unit, tid, mapping);
            }
            if let Some(functions) = &mut family.functions {
                functions.mapped(tid, mapping);
            }
            return;
        }
        let checked = mapping.write || mapping.shared || written;
        let kernel_writes = family.translator.emulated().fills && mapping.name == "[stack]";
        let of_memory = mapping.read && mapping.write && !mapping.shared && mapping.inode == 0;
        let guardable = of_memory && !kernel_writes;
        let mut start = mapping.start;
        while start < mapping.end {
            let gib = start >> 30;
            let end = mapping.end.min((gib + 1) << 30);
            let unit = self.private_unit(family, checked, gib);
            family.modules.note_code(unit, tid, mapping);
            self.code.replace(start, CodeRange { end, unit, guardable, inode, joined: false });
            if let Some(origins) = &mut family.origins {
                origins.mapped(unit, tid, mapping);
            }
            if let Some(functions) = &mut family.functions {
                functions.mapped(tid, mapping);
            }
            start = end;
        }
    }

    /// The unit of a file's mapping whose content is the file's, which the host reads itself.
    fn shared_unit(
        &mut self,
        family: &mut Family,
        found: &Found<'_>,
        file: Option<(File, FileVersion)>,
    ) -> Option<UnitId> {
        let Found { tid, mapping, group, pagemap } = *found;
        let first = group.first()?;
        let touched = self.code.was_written(mapping);
        let vdso = mapping.name == "[vdso]";
        if mapping.write || mapping.shared || touched || (mapping.inode == 0 && !vdso) {
            return None;
        }
        if !vdso && pagemap.has_private_pages((mapping.start, mapping.end)) {
            return None;
        }
        let (file, version) = match file {
            Some((file, version)) => (Some(file), version),
            None if vdso => (None, FileVersion::default()),
            None => return None,
        };
        let key = FileKey { file: version, base: (first.start, first.offset) };
        if let Some(id) = family.modules.known_file(&key) {
            return Some(id);
        }
        let code = ModuleSource::of(tid, group, file)?;
        let executable = group.iter().filter(|mapping| mapping.execute);
        let code_bytes = executable.map(|mapping| mapping.end - mapping.start).sum();
        let extent = (first.start, group.last()?.end);
        let id = family.modules.file_unit(key, extent, code_bytes);
        family.modules[id].code = Some(code);
        for mapping in group.iter().filter(|mapping| mapping.execute) {
            family.modules.note_code(id, tid, mapping);
        }
        family.restore(id, group);
        Some(id)
    }
}

/// The address at which the kernel's vsyscall page appears.
pub const VSYSCALL: u64 = 0xffff_ffff_ff60_0000;

/// Returns whether two neighbouring mappings belong to one module.
fn continues(a: &Mapping, b: &Mapping) -> bool {
    a.inode != 0 && a.inode == b.inode && a.device == b.device && b.offset >= a.offset
}
