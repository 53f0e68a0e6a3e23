//! Address spaces: which code is mapped where, and which entries the indirect table holds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lwp_dbt::{EntryId, Selection};
use rustc_hash::FxHashMap;

use crate::family::{Code, Family, FileKey, Table, UnitId};
use crate::mapped_file::MappedFile;
use crate::maps::{self, Mapping};
use crate::notices::{Source, Unasked, as_set};
use crate::pagemap::Pagemap;

mod inserted;
mod joined;

use inserted::Inserted;

/// An executable mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeRange {
    /// First address after it.
    pub end: u64,
    /// The unit it belongs to.
    pub unit: UnitId,
    /// True if notice of writes to it can be had: it is private memory of no file that may be
    /// written.
    pub guardable: bool,
    /// Of which file it is; 0 for memory of none.
    pub inode: u64,
    /// Its code goes on in the mapping behind it.
    joined: bool,
}

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
    /// Executable mappings by their start, as far as they are known.
    code: BTreeMap<u64, CodeRange>,
    /// The entries in its indirect table.
    pub inserted: Inserted,
    /// Units of its own, by kind and by 1 GiB of address: anonymous code.
    private: FxHashMap<(bool, u64), UnitId>,
    /// Ranges whose file content has been or may have been written to.
    written: Vec<(u64, u64)>,
    /// Its memory has been opened for writing: any of its code may change.
    patched: bool,
    /// The modules that its program began with, if they are all of files.
    began_with: Option<Vec<UnitId>>,
    /// The number of processes that live in it.
    pub users: usize,
    /// The same address space as threads with profiling on see it: indices of spaces, by what is
    /// counted down.
    pub sides: Vec<(Selection, usize)>,
    /// The number of slots of its contexts that are mapped in it.
    pub contexts: usize,
    /// Its program has asked for all future mappings to be locked, by mlockall(2).
    pub locks_future: bool,
    /// The state of its executable mappings: equal numbers mean equal mappings, in any address
    /// space.
    pub changes: u64,
    /// The state of its code as its threads know it; see [`Space::code_for_threads`].
    told: Option<u64>,
    /// The state of `code`: another one whenever it grows.
    grown: u64,
    /// The arenas of its family that are mapped in it, a bit each: others may have been made for
    /// another address space since this one and that one parted.
    mapped: u64,
    /// Those that cannot be.
    refused: u64,
    /// The notices of writes to its code.
    pub notices: Source,
    /// The pages to which the kernel may write whenever it likes.
    pub unasked: Unasked,
    /// Ours are to be elsewhere before its program goes on.
    pub moves: bool,
    /// The end of the heap of brk(2), or an address above it; 0 where it is not known.
    pub heap_end: u64,
}

impl Space {
    /// An address space about which nothing is known yet, with the first `arenas` of its family
    /// mapped.
    pub fn new(family: usize, arenas: usize) -> Self {
        Self {
            family,
            code: BTreeMap::new(),
            inserted: Inserted::default(),
            private: FxHashMap::default(),
            written: Vec::new(),
            patched: false,
            began_with: None,
            users: 1,
            sides: Vec::new(),
            changes: next_state(),
            told: None,
            grown: next_state(),
            contexts: 0,
            locks_future: false,
            mapped: (1 << arenas) - 1,
            refused: 0,
            notices: Source::default(),
            unasked: Unasked::default(),
            moves: false,
            heap_end: 0,
        }
    }

    /// The same address space on another side: what is known of its code comes along.
    pub fn side(&self, family: usize, arenas: usize) -> Self {
        let (written, notices) = (self.written.clone(), self.notices.clone());
        let unasked = self.unasked.clone();
        Self { written, notices, unasked, patched: self.patched, ..Self::new(family, arenas) }
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
    pub fn fork(&self, family: &mut Family) -> (Self, Vec<EntryId>) {
        let mut child = Self {
            family: self.family,
            code: self.code.clone(),
            inserted: self.inserted.copy(),
            private: FxHashMap::default(),
            written: self.written.clone(),
            // What was opened is the memory of the original.
            patched: false,
            began_with: None,
            users: 1,
            sides: Vec::new(),
            changes: self.changes,
            told: None,
            grown: self.grown,
            contexts: self.contexts,
            // A copy's mappings are not locked, nor is what it maps.
            locks_future: false,
            mapped: self.mapped,
            refused: 0,
            notices: Source::default(),
            unasked: self.unasked.copy(),
            moves: false,
            heap_end: self.heap_end,
        };
        let own: Vec<UnitId> = self.private.values().copied().collect();
        if own.is_empty() {
            return (child, Vec::new());
        }
        child.code.retain(|_, range| !own.contains(&range.unit));
        let forget = |unit| child.inserted.forget(unit, &family.module(unit).entries);
        let gone = own.into_iter().flat_map(forget).collect();
        (child, gone)
    }

    /// Returns whether arena `index` of its family is mapped in it.
    pub fn has_arena(&self, index: usize) -> bool {
        self.mapped & (1 << index) != 0
    }

    /// Returns whether it has turned out that arena `index` of its family cannot be mapped in it.
    pub fn refuses_arena(&self, index: usize) -> bool {
        self.refused & (1 << index) != 0
    }

    /// Returns whether it belongs to a family that it has outgrown: something of its own lies where
    /// an arena must be, or the family has no more arenas to give.
    pub fn needs_other_family(&self) -> bool {
        self.refused != 0 || self.moves
    }

    /// Notes whether arena `index` of its family could be mapped in it.
    pub fn note_arena(&mut self, index: usize, mapped: bool) {
        let (set, other) = match mapped {
            true => (&mut self.mapped, &mut self.refused),
            false => (&mut self.refused, &mut self.mapped),
        };
        *set |= 1 << index;
        *other &= !(1 << index);
        // Threads know where ours are.
        self.told = None;
    }

    /// Takes the entries of `unit` that should go into the table now.
    pub fn entries_to_insert(&mut self, family: &Family, unit: UnitId) -> Vec<EntryId> {
        let entries = &family.modules[unit.0 as usize].entries;
        self.inserted.next(&family.code_cache, unit, entries)
    }

    /// The units of this address space alone.
    pub fn private_units(&self) -> Vec<UnitId> {
        self.private.values().copied().collect()
    }

    /// Stops using a file's translation, a part of whose code is no longer the file's: what lies
    /// beside that part may lead there directly, and is translated for this address space alone
    /// from here on. The entries returned must leave the indirect table.
    pub fn leave_unit(&mut self, family: &Family, unit: UnitId) -> Vec<EntryId> {
        let of_it = self.code.iter().filter(|(_, code)| code.unit == unit);
        let beside: Vec<(u64, u64)> = of_it.map(|(start, code)| (*start, code.end)).collect();
        for (start, _) in &beside {
            self.code.remove(start);
        }
        self.written.extend(beside);
        self.inserted.forget(unit, &family.modules[unit.0 as usize].entries)
    }

    /// The executable mapping at `pc`, looked up again if it is not known.
    pub fn code_at(&mut self, family: &mut Family, tid: i32, pc: u64) -> Option<(u64, CodeRange)> {
        if let Some(found) = self.known_code(pc) {
            return Some(found);
        }
        if (VSYSCALL..VSYSCALL + 0x1000).contains(&pc) {
            return None;
        }
        self.refresh(family, tid);
        self.known_code(pc)
    }

    /// The executable mapping at `pc`, as far as it is known.
    pub fn known_code(&self, pc: u64) -> Option<(u64, CodeRange)> {
        let (&start, &range) = self.code.range(..=pc).next_back()?;
        (pc < range.end).then_some((start, range))
    }

    /// The ranges in which there is code, and the state of that knowledge, if its threads are still
    /// to be told. They may think of more than there is, never of less.
    pub fn code_for_threads(&mut self) -> Option<(u64, Vec<(u64, u64)>)> {
        if self.told == Some(self.grown) {
            return None;
        }
        self.told = Some(self.grown);
        Some((self.grown, self.code.iter().map(|(start, code)| (*start, code.end)).collect()))
    }

    /// Has its threads told again where there is code: there is a new one.
    pub fn tell_again(&mut self) {
        self.told = None;
    }

    /// Returns whether an executable mapping is known in `range`.
    pub fn has_code(&self, range: (u64, u64)) -> bool {
        self.code.range(..range.1).next_back().is_some_and(|(_, code)| range.0 < code.end)
    }

    /// The parts of known executable mappings from `start` on that `mappings` say are none.
    pub fn gone(&self, start: u64, mappings: &[Mapping]) -> Vec<(u64, u64)> {
        let mut out = Vec::new();
        for (&from, code) in self.code.range(..) {
            let mut at = from.max(start);
            for mapping in mappings {
                let executable = mapping.execute && mapping.inode == code.inode;
                if !executable || mapping.end <= at || code.end <= mapping.start {
                    continue;
                }
                if at < mapping.start {
                    out.push((at, mapping.start));
                }
                at = mapping.end;
            }
            if at < code.end {
                out.push((at, code.end));
            }
        }
        out
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

    /// Its memory has been opened for writing: from here on its code compares itself, wherever it
    /// lies.
    pub fn note_patched(&mut self) {
        self.patched = true;
    }

    /// The ranges with code of a file with this inode, as far as is known.
    pub fn code_of_file(&self, inode: u64) -> Vec<(u64, u64)> {
        let of_it = self.code.iter().filter(|(_, code)| code.inode == inode);
        of_it.map(|(start, code)| (*start, code.end)).collect()
    }

    /// Forgets what is known of `range`: something has been mapped or protected there.
    ///
    /// Returns the units whose translations of it must be looked at.
    pub fn forget(&mut self, range: (u64, u64)) -> Vec<UnitId> {
        self.changes = next_state();
        if let Source::Given(notices) = &self.notices {
            notices.forget(range);
        }
        let hit: Vec<u64> = self
            .code
            .range(..range.1)
            .filter(|(start, code)| **start < range.1 && range.0 < code.end)
            .map(|(start, _)| *start)
            .collect();
        let mut units = Vec::new();
        for start in hit {
            let Some(code) = self.code.remove(&start) else { continue };
            // What lies beside it is code as before.
            if start < range.0 {
                self.code.insert(start, CodeRange { end: range.0, ..code });
            }
            if range.1 < code.end {
                self.code.entry(range.1).or_insert(code);
            }
            units.push(code.unit);
        }
        units
    }

    /// Notes that the content of `range` may no longer be its file's.
    pub fn note_written(&mut self, range: (u64, u64)) {
        self.written.push(range);
    }

    /// Notes that `range` has been mapped anew.
    pub fn note_mapped(&mut self, range: (u64, u64)) {
        self.written.retain(|written| written.0 < range.0 || written.1 > range.1);
    }

    /// The units that are mapped here, in order.
    pub fn units(&self) -> Vec<UnitId> {
        let mut units: Vec<UnitId> = self.code.values().map(|code| code.unit).collect();
        units.sort_unstable();
        units.dedup();
        units
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
        let units = self.units();
        let usual = |unit: &UnitId| family.arena_of(*unit).is_some_and(|at| self.has_arena(at));
        if !self.private.is_empty() || !units.iter().all(usual) {
            return None;
        }
        let table = family.table_for(&units);
        for &entry in table.iter().flat_map(|table| &table.entries) {
            self.inserted.put(&family.code_cache, entry);
        }
        if table.is_some() {
            for unit in &units {
                // The rest has not been of use to the program before.
                self.inserted.offer_all(*unit, family.modules[unit.0 as usize].entries.len());
            }
        }
        self.began_with = Some(units);
        table
    }

    /// Its program has ended: what it has inserted is what the next one that begins alike will
    /// want.
    pub fn ended(&mut self, family: &mut Family) {
        let Some(units) = self.began_with.take() else { return };
        if !family.note_end(&units) {
            return;
        }
        let has = |entry: &EntryId| self.inserted.has(*entry);
        let modules = units.iter().map(|unit| &family.modules[unit.0 as usize]);
        let entries = modules.flat_map(|module| &module.entries).copied().filter(has).collect();
        family.make_table(units, entries);
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
            // Anonymous memory grows at its end without a new mapping showing.
            let known = mapping.inode != 0
                && self.code.get(&mapping.start).is_some_and(|code| code.end == mapping.end);
            if !mapping.execute || known || mapping.start >= VSYSCALL {
                continue;
            }
            if crate::memory_map::is_ours(mapping) {
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
        self.grown = next_state();
        let is_file = mapping.inode != 0 && !mapping.write && !mapping.shared;
        let file = is_file.then(|| MappedFile::of(tid, mapping));
        let written = self.patched || file.is_some_and(|file| file.is_written);
        let version = file.and_then(|file| file.version);
        let inode = mapping.inode;
        if !written && let Some(unit) = self.shared_unit(family, found, version) {
            let range =
                CodeRange { end: mapping.end, unit, guardable: false, inode, joined: false };
            self.code.insert(mapping.start, range);
            if let Some(origins) = &mut family.origins {
                origins.mapped(unit, mapping);
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
            family.note_code(unit, tid, mapping);
            // It may have been known in pieces.
            self.code.retain(|at, _| !(start..end).contains(at));
            self.code.insert(start, CodeRange { end, unit, guardable, inode, joined: false });
            if let Some(origins) = &mut family.origins {
                origins.mapped(unit, mapping);
            }
            start = end;
        }
    }

    /// The unit of a file's mapping whose content is the file's.
    fn shared_unit(
        &mut self,
        family: &mut Family,
        found: &Found<'_>,
        version: Option<(i128, u64)>,
    ) -> Option<UnitId> {
        let Found { tid, mapping, group, pagemap } = *found;
        let first = group.first()?;
        let touched =
            self.written.iter().any(|written| written.0 < mapping.end && mapping.start < written.1);
        let vdso = mapping.name == "[vdso]";
        if mapping.write || mapping.shared || touched || (mapping.inode == 0 && !vdso) {
            return None;
        }
        if !vdso && pagemap.has_private_pages((mapping.start, mapping.end)) {
            return None;
        }
        let version = if vdso { (0, 0) } else { version? };
        let key = FileKey {
            file: (mapping.device, mapping.inode),
            version,
            base: (first.start, first.offset),
        };
        if let Some(id) = family.known_file(&key) {
            return Some(id);
        }
        let code = group.iter().filter(|mapping| mapping.execute);
        let code_bytes = code.map(|mapping| mapping.end - mapping.start).sum();
        let extent = (first.start, group.last()?.end);
        let id = family.file_unit(key, extent, code_bytes);
        for mapping in group.iter().filter(|mapping| mapping.execute) {
            family.note_code(id, tid, mapping);
        }
        family.restore(id, tid, group);
        // What has been translated in an earlier run says better what is wanted.
        let module = family.module(id);
        module.unforeseen = !vdso && module.unit.restored_fragments() == 0;
        Some(id)
    }
}

/// The address at which the kernel's vsyscall page appears.
pub const VSYSCALL: u64 = 0xffff_ffff_ff60_0000;

/// A number that no state of an address space has had.
fn next_state() -> u64 {
    static STATES: AtomicU64 = AtomicU64::new(0);
    STATES.fetch_add(1, Ordering::Relaxed)
}

/// Returns whether two neighbouring mappings belong to one module.
fn continues(a: &Mapping, b: &Mapping) -> bool {
    a.inode != 0 && a.inode == b.inode && a.device == b.device && b.offset >= a.offset
}
