//! Keeping translations from run to run: between the units of a family and the store.
//!
//! The data kept of a unit are a function of the module's file and the translator; the key says all
//! of it. The address at which the module is mapped does not matter. While a module may be kept,
//! its code is read from the file and not from the process: nothing that a process has done to its
//! own copy can get into the store.

use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use lwp_calls::syscalls;
use lwp_dbt::freeze::{Freeze, Frozen};
use lwp_dbt::{
    AppPc, CachePc, CodeSource, CodeTarget, ExecutionProfile, Image, Knowledge, Lwp, Placement,
    Plan, Selection,
};
use lwp_mailbox::memory_map::MAX_COUNTERS;
use lwp_process::maps::Mapping;
use lwp_process::{SharedMemory, limits, memory, sys};
use lwp_run::config::Config;
use twox_hash::XxHash3_128;

use crate::family::{Family, LEAST_CHUNK, Module, Pages, UnitId, chunk_for};
use crate::file_identity::{self, Segment, Stamp};
use crate::store::{Description, Header, Origin, Store, Unplaced};

/// The source of the code of a unit that does not change.
#[derive(Clone, Debug)]
pub struct ModuleSource {
    source: Source,
    segments: Arc<[Segment]>,
}

/// The data needed to keep one unit.
#[derive(Debug)]
pub struct Kept {
    code: ModuleSource,
    path: String,
    /// The header found in the store.
    found: Option<Header>,
    /// The origin of its translation.
    origin: Origin,
    /// The origin of its execution profile.
    profile: Origin,
}

/// The source from which a module's code is read.
#[derive(Clone, Debug)]
enum Source {
    /// A file, and its stamp when it was opened.
    File(Arc<File>, Stamp),
    /// The vdso, which is no file.
    Bytes(Arc<[u8]>),
}

/// Code of so many bytes is put in place by several threads: a megabyte takes one a millisecond.
const WORTH_THREADS: u64 = 1 << 20;
const MOST_THREADS: usize = 4;

/// Fewer new fragments than this, or than this part of what there was, are not worth writing.
const FEW: usize = 4;
const FEW_PART: usize = 200;
/// An entry that is not kept is asked for in every run, which takes as long as translating so many
/// fragments.
const ENTRY: usize = 16;

/// The store that a run uses, if it uses one.
pub fn store_for(config: &Config) -> Option<Arc<Store>> {
    let cache = config.kept.cache.as_ref()?;
    // A store that cannot be had costs time and nothing else.
    Store::open(&cache.place, cache.limit).ok().map(Arc::new)
}

impl ModuleSource {
    /// The source of the code in `group`, the mappings of a module; `file` is the one that they are
    /// of. None where it cannot be read, or the host needs its descriptors for other things.
    pub fn of(tid: i32, group: &[Mapping], file: Option<File>) -> Option<Self> {
        let first = group.first()?;
        let code = group.iter().filter(|mapping| mapping.execute);
        let segments = code
            .map(|mapping| Segment {
                start: mapping.start,
                end: mapping.end,
                offset: mapping.offset,
            })
            .collect();
        let source = match file {
            Some(file) => {
                // It stays open, and the rest of the host needs descriptors more.
                let number = u64::from(file.as_raw_fd().unsigned_abs());
                if limits::descriptors()
                    .is_some_and(|most| number + lwp_process::limits::RESERVED >= most)
                {
                    return None;
                }
                let stamp = Stamp::of(&file)?;
                Source::File(Arc::new(file), stamp)
            }
            None if first.inode == 0 => {
                let mut bytes = vec![0; (first.end - first.start) as usize];
                memory::read_exact(tid, first.start, &mut bytes).ok()?;
                Source::Bytes(bytes.into())
            }
            None => return None,
        };
        Some(Self { source, segments })
    }

    /// Reads a page of the module's code. False where there is none.
    pub fn read(&self, page: u64, buffer: &mut [u8]) -> bool {
        let covers = |segment: &&Segment| (segment.start..segment.end).contains(&page);
        let Some(segment) = self.segments.iter().find(covers) else { return false };
        let mut at = page - segment.start;
        let mut rest = buffer;
        match &self.source {
            Source::Bytes(bytes) => {
                let Some(bytes) = bytes.get(at as usize..) else { return false };
                let len = bytes.len().min(rest.len());
                rest[..len].copy_from_slice(&bytes[..len]);
                true
            }
            Source::File(file, _) => {
                at += segment.offset;
                while !rest.is_empty() {
                    match file.read_at(rest, at) {
                        // The last page is zero behind the file's end.
                        Ok(0) => return rest.len() < 4096,
                        Ok(got) => {
                            at += got as u64;
                            rest = &mut rest[got..];
                        }
                        Err(_) => return false,
                    }
                }
                true
            }
        }
    }
}

impl Kept {
    /// Returns whether what the store has is a translation of this very module.
    fn fits(&self, header: &Header) -> bool {
        match &self.code.source {
            Source::Bytes(_) => true,
            Source::File(_, stamp) if header.stamp == *stamp => true,
            // The same content elsewhere, or touched.
            Source::File(file, _) => {
                file_identity::content(file, &self.code.segments) == Some(header.content)
            }
        }
    }

    /// The description of this unit for the store; `None` where its file has changed meanwhile.
    fn describe(&self, fragments: usize, address: u64) -> Option<Description> {
        let (stamp, content) = match &self.code.source {
            Source::Bytes(_) => (Stamp::default(), 0),
            Source::File(file, stamp) => {
                let known = self.found.as_ref().filter(|found| found.stamp == *stamp);
                let content = match known {
                    Some(found) => found.content,
                    None => file_identity::content(file, &self.code.segments)?,
                };
                // Last, so that the code that was translated and hashed is that of the stamp.
                if Stamp::of(file)? != *stamp {
                    return None;
                }
                (*stamp, content)
            }
        };
        let (fragments, path) = (fragments as u64, self.path.clone());
        let (code_bytes, origin) = ((0, 0), self.origin.clone());
        Some(Description { stamp, content, address, fragments, path, code_bytes, origin })
    }
}

impl Family {
    /// Fills a new unit, the source of whose code is known, with what the store has of it, and
    /// prepares to keep it. `group` are the mappings of its module.
    pub fn restore(&mut self, id: UnitId, group: &[Mapping]) {
        let Some(store) = self.store.clone() else { return };
        let keeping = Keeping { family: self, store: &store };
        let Some(mut kept) = keeping.identify(id, group) else { return };
        if let Some((header, image)) = store.load(kept.origin.key(), |header| kept.fits(header))
            && self.place(id, image).is_some()
        {
            kept.found = Some(header);
        }
        self.modules[id].kept = Some(kept);
    }

    /// Puts an image into a chunk of its own.
    fn place(&mut self, id: UnitId, image: Vec<u8>) -> Option<()> {
        let image = Image::parse(Box::new(image)).ok()?;
        let entries = u64::from(self.code_cache.entry_count()) + image.entries() as u64;
        let counters = (self.code_cache.counters().len() + image.counters()) as u64;
        if entries + 4096 > lwp_dbt::Layout::MAX_ENTRIES || counters + 4096 > MAX_COUNTERS {
            return None;
        }
        let len = image.code_len() as u64;
        let module = &self.modules[id];
        let extent = module.extent;
        let arena = self.arena_of(id)?;
        let least = (len + LEAST_CHUNK).next_multiple_of(4096);
        let mut chunk = self.arenas[arena].chunk(chunk_for(module.code_bytes).max(least), least)?;
        let first = self.code_cache.entry_count();
        self.low_window.fill_chains(first + image.entries() as u32 + 2048);
        let at = Placement {
            code: CachePc(chunk.address),
            routines: CachePc(self.arenas[arena].address),
            module: AppPc(extent.0),
        };
        let to = self.arenas[arena].offset_of(at.code);
        let memory = self.arenas.memory.clone();
        let module = &mut self.modules[id];
        let write = |at: u64, code: &[u8]| {
            memory.write_new(to + at, code);
            true
        };
        let threads = if len < WORTH_THREADS { 1 } else { sys::allowed_cpus().min(MOST_THREADS) };
        let target = CodeTarget { write: &write, threads };
        if self.code_cache.restore(&mut module.unit, image, at, &target).is_err() {
            self.arenas[arena].give_back(chunk);
            return None;
        }
        chunk.used = len.next_multiple_of(64);
        let module = &mut self.modules[id];
        module.settle(arena);
        module.chunk = Some((chunk, true));
        let last = self.code_cache.entry_count();
        module.entries.extend((first..last).map(lwp_dbt::EntryId));
        Some(())
    }

    /// The family with the store in which it is kept, if it is.
    pub fn keeping(&self) -> Option<Keeping<'_>> {
        Some(Keeping { family: self, store: self.store.as_deref()? })
    }
}

/// A family that is kept, and the store.
#[derive(Clone, Copy, Debug)]
pub struct Keeping<'a> {
    family: &'a Family,
    store: &'a Store,
}

impl Keeping<'_> {
    /// Identifies a module, if it can be kept.
    fn identify(&self, id: UnitId, group: &[Mapping]) -> Option<Kept> {
        let first = group.first()?;
        let code = self.family.modules[id].code.clone()?;
        let name = match &code.source {
            Source::Bytes(bytes) => (XxHash3_128::oneshot(bytes), true),
            Source::File(file, stamp) if stamp.is_settled() => file_identity::name_of(file, stamp),
            Source::File(..) => return None,
        };
        let segments = &code.segments;
        let extent = (first.start, group.last()?.end);
        let unit = &self.family.modules[id].unit;
        let lwp = self.family.translator.lwp_of(unit);
        let filter = unit.filter;
        // A unit's own filter is a matter of places in its module.
        let base = if filter.is_some() { extent.0 } else { 0 };
        let profile = profile_words(lwp, base);
        let rest = self.rest_of_key(id, profile, extent, first.offset, segments);
        let relative = segments.iter().map(|it| it.relative_to(extent.0)).collect();
        let origin = Origin::here(name, rest, relative);
        let profile = origin.of_profile();
        let path = first.name.clone();
        Some(Kept { code, path, found: None, origin, profile })
    }

    /// The hash of everything that the translation of a module depends on, but for its name.
    fn rest_of_key(
        &self,
        id: UnitId,
        profile: [u64; 5],
        extent: (u64, u64),
        offset: u64,
        segments: &[Segment],
    ) -> u128 {
        let plan = match self.family.translator.plan() {
            Plan::Plain => 0u64,
            Plan::Exact => 1,
            Plan::Calls => 2,
            Plan::Contexts => 3,
        };
        let roles = u64::from(self.family.code_cache.counters().has_roles());
        let emulated = self.family.translator.emulated();
        let mut bytes = Vec::with_capacity(1024);
        bytes.extend(lwp_dbt::VERSION.to_le_bytes());
        let flags = [
            emulated.xgetbv,
            emulated.tsc,
            emulated.random,
            emulated.lwp,
            emulated.no_inserts,
            emulated.fewer_states,
            emulated.lwp_state,
            emulated.no_transactions,
            emulated.markers,
            emulated.requests,
            emulated.writes,
            emulated.fills,
        ]
        .map(u64::from);
        // A module is kept once, wherever it is mapped.
        let place = [self.family.layout().low, extent.1 - extent.0, offset];
        let what = [plan, roles].into_iter().chain(place).chain(flags);
        for word in what.chain(profile) {
            bytes.extend(word.to_le_bytes());
        }
        // Translated code makes calls by their classes.
        bytes.extend(lwp_calls::syscalls::classes_for_table(&emulated));
        bytes.extend(self.family.translator.watched_words().into_iter().flat_map(u32::to_le_bytes));
        bytes.extend(places(segments, extent.0).flat_map(u64::to_le_bytes));
        for begin in &self.family.modules[id].unit.marks.alone {
            bytes.extend((begin.0 - extent.0).to_le_bytes());
        }
        for (at, value) in &self.family.modules[id].unit.marks.values {
            bytes.extend((at.0 - extent.0).to_le_bytes());
            bytes.push(value.base as u8);
            let sets = value.sets.map_or([0, 0, 0], |[through, at]| [1, through, at]);
            let through = value.through.map_or([0, 0], |through| [1, through]);
            let all = [value.offset].into_iter().chain(through).chain(sets);
            bytes.extend(all.flat_map(i32::to_le_bytes));
        }
        for end in &self.family.modules[id].unit.marks.ends {
            bytes.extend((end.0 - extent.0).to_le_bytes());
        }
        bytes.extend(syscalls::classes(&emulated).iter().map(|class| *class as u8));
        bytes.extend(self.family.translator.routines().code.iter());
        XxHash3_128::oneshot(&bytes)
    }

    /// The units that have grown enough to be written, with their code as it is now.
    ///
    /// `long` says of the run that its programs are worth to be known well.
    pub fn unsaved(&self, long: bool) -> Vec<Unsaved> {
        let modules = self.family.modules.iter();
        modules.filter_map(|(id, module)| self.unsaved_unit(id, module, long)).collect()
    }

    fn unsaved_unit(&self, id: UnitId, module: &Module, long: bool) -> Option<Unsaved> {
        let kept = module.kept.as_ref()?;
        let (chunk, true) = module.chunk? else { return None };
        let (new, old) = (module.unit.new_fragments(), module.unit.restored_fragments());
        let moved = kept.found.as_ref().is_some_and(|found| match &kept.code.source {
            Source::File(_, stamp) => found.stamp != *stamp,
            Source::Bytes(_) => false,
        });
        let grown = moved || are_worth_writing(new, module.unit.new_entries(), old);
        let known = module.unit.knowledge();
        let unknown = known != Knowledge::Well && long && self.family.translator.uses_profiles();
        if !grown && !unknown {
            return None;
        }
        if !unknown && self.have_others_written(kept, old, old + new) {
            return None;
        }
        let arena = self.family.arenas.iter().find(|arena| arena.contains(chunk.address))?;
        let code = Code::Shared(arena.offset_of(CachePc(chunk.address)), chunk.used as usize);
        let at = Placement {
            code: CachePc(chunk.address),
            routines: CachePc(arena.address),
            module: AppPc(module.extent.0),
        };
        let file = match &kept.code.source {
            Source::File(file, _) => Some(file.as_raw_fd()),
            Source::Bytes(_) => None,
        };
        let fragments = new + old;
        let (family, module, extent) = (self.family.index, id, module.extent);
        Some(Unsaved { family, module, extent, fragments, at, code, file, long, grown, known })
    }

    /// Returns whether another run has written as much of a unit in the meantime: all `fragments`
    /// of it, of which this one has found `old`.
    fn have_others_written(&self, kept: &Kept, old: usize, fragments: usize) -> bool {
        let there = self.store.header(kept.origin.key());
        there.is_some_and(|there| has_as_much(&there, old, fragments))
    }

    /// Returns the executions of a module in earlier runs.
    pub fn known_executions(&self, module: &Module) -> Option<ExecutionProfile> {
        let kept = module.kept.as_ref()?;
        let (_, bytes) = self.store.load(kept.profile.key(), |header| kept.fits(header))?;
        Some(ExecutionProfile::from_bytes(bytes.as_ref(), AppPc(module.extent.0)))
    }

    /// Returns the module's executions: those of earlier runs, and of this one, which is
    /// kept.
    fn learned(&self, module: &Module, learned: &ExecutionProfile) -> Option<ExecutionProfile> {
        let kept = module.kept.as_ref()?;
        let base = AppPc(module.extent.0);
        let mut all = None;
        let add = |known: Option<Vec<u8>>| {
            let known = known.map(|bytes| ExecutionProfile::from_bytes(bytes.as_ref(), base));
            let mut profile = known.unwrap_or_default();
            if !profile.add(learned, module.extent) {
                all = Some(profile);
                return None;
            }
            let mut about = kept.describe(profile.iter().count(), module.extent.0)?;
            about.origin = kept.profile.clone();
            let bytes = profile.to_bytes(base);
            all = Some(profile);
            Some((about, bytes))
        };
        // A profile that cannot be kept costs speed and nothing else.
        let _ = Unplaced::update(self.store, kept.profile.key(), |header| kept.fits(header), add);
        all
    }

    /// A unit laid out by what is known of it, as an image.
    fn laid_out(
        &self,
        unsaved: &Unsaved,
        learned: &ExecutionProfile,
    ) -> Option<(Frozen, Knowledge)> {
        let module = &self.family.modules[unsaved.module];
        let profile = self.learned(module, learned)?;
        let before = unsaved.known;
        let restored = module.unit.restored_fragments() > 0;
        let wanted = unsaved.long && restored || before == Knowledge::Watched;
        let wanted = wanted && self.family.translator.learns();
        let knowledge = Knowledge::from_profile(&profile, wanted);
        // What counts in any case is good as it is.
        let as_it_is = knowledge == Knowledge::Little && self.family.translator.plan().counts();
        if as_it_is || knowledge == before && !unsaved.grown {
            return None;
        }
        let mut source = KeptCode { kept: module.kept.as_ref()?, pages: Pages::default() };
        let known = (&self.family.code_cache, &module.unit);
        let how = (unsaved.at, knowledge);
        let new = lwp_dbt::rebuild(&self.family.translator, known, &profile, &mut source, how)?;
        let unit = Freeze { unit: &new.unit, at: unsaved.at, code: new.code, knowledge };
        Some((new.cache.freeze(self.family.layout(), unit)?, knowledge))
    }

    /// Writes a unit to the store, its code having been copied; that is gone afterwards. Where
    /// something has been `learned` of its executions, it is laid out anew. Returns the knowledge
    /// by which that was done.
    pub fn save(
        &self,
        unsaved: &mut Unsaved,
        learned: Option<&ExecutionProfile>,
    ) -> Option<Knowledge> {
        let Code::Copied(code) = std::mem::replace(&mut unsaved.code, Code::Gone) else {
            return None;
        };
        let module = &self.family.modules[unsaved.module];
        let kept = module.kept.as_ref()?;
        if self.family.functions.as_ref().is_some_and(|it| !it.are_known_in(module.extent)) {
            return None;
        }
        let unknown = unsaved.known != Knowledge::Well && unsaved.long;
        let old = module.unit.restored_fragments();
        if !unknown && self.have_others_written(kept, old, unsaved.fragments) {
            return None;
        }
        let (image, known) = match learned.and_then(|learned| self.laid_out(unsaved, learned)) {
            Some(laid_out) => laid_out,
            None if !unsaved.grown => return None,
            None => {
                let unit = Freeze {
                    unit: &module.unit,
                    at: unsaved.at,
                    code,
                    knowledge: Knowledge::Little,
                };
                (self.family.code_cache.freeze(self.family.layout(), unit)?, Knowledge::Little)
            }
        };
        let fragments = module.unit.new_fragments() + module.unit.restored_fragments();
        let mut about = kept.describe(fragments, module.extent.0)?;
        about.code_bytes = image.code_bytes;
        let new = self.store.write(kept.origin.key(), &about, &image.parts).ok()?;
        // Laying out takes long: another process may have written more, of this run or another one.
        let has_more = |there: &Header| {
            let is_new = kept.found.as_ref().is_none_or(|found| !found.has_image_of(there));
            let more = is_new && there.fragments > fragments as u64;
            more || !unknown && has_as_much(there, old, unsaved.fragments)
        };
        new.replace(has_more).ok()?.then_some(known)
    }
}

/// Returns whether a unit that the store has holds all `fragments` of one, of which `old` had been
/// kept before.
fn has_as_much(there: &Header, old: usize, fragments: usize) -> bool {
    there.fragments > old as u64 && there.fragments >= fragments as u64
}

/// The places of the segments of a module, relative to `origin`, and in its file.
fn places(segments: &[Segment], origin: u64) -> impl Iterator<Item = u64> {
    segments.iter().flat_map(move |it| [it.start - origin, it.end - origin, it.offset])
}

/// Code of a module that is kept, read from its file.
struct KeptCode<'a> {
    kept: &'a Kept,
    pages: Pages,
}

impl CodeSource for KeptCode<'_> {
    fn read_code(&mut self, pc: AppPc, buffer: &mut [u8]) -> usize {
        let covers = |segment: &&Segment| (segment.start..segment.end).contains(&pc.0);
        let Some(segment) = self.kept.code.segments.iter().find(covers) else { return 0 };
        let len = buffer.len().min((segment.end - pc.0) as usize);
        let read = |page, bytes: &mut [u8]| self.kept.code.read(page, bytes);
        self.pages.read(pc.0, &mut buffer[..len], read)
    }
}

/// Returns whether `fragments` and `entries` that were made in this run are enough to write a unit,
/// of which `old` fragments are kept.
fn are_worth_writing(fragments: usize, entries: usize, old: usize) -> bool {
    let news = fragments + ENTRY * entries;
    news > 0 && (old == 0 || news >= FEW.max(old / FEW_PART))
}

/// The words that code run by threads with profiling on depends on; the filter's addresses less
/// `origin`.
fn profile_words(lwp: Lwp, origin: u64) -> [u64; 5] {
    let (kind, selection) = match lwp {
        Lwp::Absent => (0, Selection::default()),
        Lwp::Off => (1, Selection::default()),
        Lwp::On(selection) => (2, selection),
    };
    let Selection { values, instructions, branches, scarce_branches, dcache, ip } = selection;
    let filters = ip.map_or(0, |ip| 1 + u64::from(ip.inverted));
    let (base, limit) = match ip {
        None => (0, 0),
        // Empty, wherever it is.
        Some(ip) if ip.base > ip.limit => (1, 0),
        Some(ip) => (ip.base.wrapping_sub(origin), ip.limit.wrapping_sub(origin)),
    };
    let flags = u64::from(values) | u64::from(instructions) << 1 | u64::from(dcache) << 2;
    [kind, flags | u64::from(branches) << 8 | u64::from(scarce_branches) << 3, filters, base, limit]
}

/// A unit that is to be written.
#[derive(Debug)]
pub struct Unsaved {
    /// Its family's number.
    pub family: usize,
    /// Its number there.
    module: UnitId,
    /// The addresses of its module.
    pub extent: (u64, u64),
    /// The number of fragments that it has, new and old.
    pub fragments: usize,
    at: Placement,
    code: Code,
    /// Its module's file.
    pub file: Option<RawFd>,
    /// True if the run has lasted so long that it is worth to know more of it.
    long: bool,
    /// True if it is to be written whatever is known of it.
    grown: bool,
    /// The knowledge by which it is laid out now.
    known: Knowledge,
}

impl Unsaved {
    /// Returns whether it may be worth more when laid out by what is known now.
    pub fn may_improve(&self) -> bool {
        self.long && self.known != Knowledge::Well
    }

    /// Returns whether it is worth more when laid out by `known`.
    pub fn is_improved_by(&self, known: Knowledge) -> bool {
        known > self.known
    }

    /// Takes a copy of the unit's code as it is now, without what is translated and linked later.
    pub fn copy_code(&mut self, memory: &SharedMemory) {
        if let Code::Shared(offset, len) = self.code {
            let mut bytes = vec![0; len];
            self.code = match memory.read_file(offset, &mut bytes) {
                Ok(read) if read == len => Code::Copied(bytes),
                _ => Code::Gone,
            };
        }
    }
}

/// The code of a unit that is to be written.
#[derive(Debug)]
enum Code {
    /// Still in the machine's memory: offset and length.
    Shared(u64, usize),
    Copied(Vec<u8>),
    Gone,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_news_of_a_large_unit_is_not_written() {
        assert!(!are_worth_writing(0, 0, 0) && !are_worth_writing(0, 0, 9000));
        assert!(are_worth_writing(1, 0, 0) && !are_worth_writing(3, 0, 100));
        assert!(are_worth_writing(4, 0, 100) && !are_worth_writing(44, 0, 9000));
        assert!(are_worth_writing(45, 0, 9000));
    }

    #[test]
    fn entries_that_every_run_would_ask_for_are_written() {
        assert!(are_worth_writing(0, 1, 100) && !are_worth_writing(0, 2, 9000));
        assert!(are_worth_writing(0, 3, 9000));
    }
}
