//! Families: address spaces that are laid out alike share one translator, its arenas and the
//! translations of the files they map.

use std::borrow::Cow;
use std::sync::Arc;

use lwp_dbt::context::KnownCpuid;
use lwp_dbt::{
    AppPc, AppState, CachePc, Checks, CodeCache, CodeSource, Destination, EntryId, Fragment,
    FragmentId, Layout, Lwp, Neighbour, Plan, Region, RegionLimits, Role, Translator, Unit,
};
use lwp_ptrace::{SharedMemory, sys};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::arena::{Arena, Chunk};
use crate::evaluators::Evaluators;
use crate::keep::Kept;
use crate::learning::Learned;
use crate::maps::Mapping;
use crate::memory_map::FAMILY_BYTES;
use crate::notices::{Notices, pages_of};
use crate::owner::Owner;
use crate::profile::Origins;
use crate::sampled_code::{CodePlace, SampledCode};
use crate::store::Store;
use crate::syscalls;

mod blocks;
mod changes;
mod module_code;
pub mod overlays;
mod tables;
mod waste;

use blocks::Blocks;
use module_code::ModuleCode;
pub use module_code::{Pages, is_cut_short};
pub use tables::Table;
use tables::Tables;
use waste::Waste;

/// A file and the place where it is mapped: a shared translation belongs to both.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileKey {
    /// Device and inode.
    pub file: ((u32, u32), u64),
    /// Modification time, in nanoseconds, and size: an inode number may be reused.
    pub version: (i128, u64),
    /// Address and file offset of the first mapping of the module.
    pub base: (u64, u64),
}

/// A unit's number in its family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UnitId(pub u32);

/// Code to be translated.
#[derive(Clone, Debug)]
pub struct Code {
    /// Its unit.
    pub unit: UnitId,
    /// The executable mapping that it lies in.
    pub range: (u64, u64),
    /// The notices of writes to it, if anything gives them.
    pub notices: Option<Arc<Notices>>,
}

impl Code {
    /// Returns whether it is guarded at `pc` as soon as a thread stands still for that.
    pub fn lacks_guard(&self, pc: u64) -> bool {
        self.notices.as_ref().is_some_and(|notices| notices.lacks_guard(pc, self.range.1))
    }
}

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
    arena: Option<usize>,
    /// The place of its code: the chunk in use, and whether it is the only one.
    pub chunk: Option<(Chunk, bool)>,
    /// Its cut fragments. Nothing leads to them, and they are not kept.
    cuts: Unit,
    /// The data needed to keep it beyond the run.
    pub kept: Option<Kept>,
    /// Nobody has looked yet which functions its data point to, and nothing of it was kept.
    pub unforeseen: bool,
    /// Application code read so far, by page; only where it cannot change.
    pages: Pages,
    /// The fragments made of each page, where code may change; some have been cut off since.
    made_of: FxHashMap<u64, Vec<FragmentId>>,
}

const PAGE: usize = 4096;
/// Bytes of an empty indirect table that the template holds: address spaces map them as often as
/// their table takes. Few pages to write, and few mappings for fork to copy.
pub const EMPTY_TABLE: u64 = 256 << 10;
/// Room that one region may need, and that its fragments may need for stubs.
const REGION_ROOM: u64 = 128 << 10;
const REGION_STUBS: u64 = 8 << 10;
/// The smallest chunk that is worth having, and the one that code which is not kept gets at a time.
pub const LEAST_CHUNK: u64 = 512 << 10;
const PRIVATE_CHUNK: u64 = 2 << 20;

/// Returns the size of a module's chunk: all of its code fits as a rule, because only a unit
/// that lies in one chunk can be kept.
pub fn chunk_for(code_bytes: u64) -> u64 {
    code_bytes.saturating_mul(4).max(LEAST_CHUNK)
}

/// The things that the code of a family depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Basis {
    /// The events that the translations count.
    pub plan: Plan,
    /// Their knowledge of Lightweight Profiling.
    pub lwp: Lwp,
    /// The place of the low window.
    pub layout: Layout,
}

/// The properties that the address spaces of a family have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kind {
    /// The things that their code depends on.
    pub basis: Basis,
    /// The one whose processes they are: nobody else has their code mapped when a program begins.
    pub owner: Owner,
    /// Address, bytes and offset in the family's part of the memory of each arena.
    pub arenas: Vec<(u64, u64, u64)>,
}

/// Address spaces laid out alike.
#[derive(Debug)]
pub struct Family {
    /// Its number.
    pub index: usize,
    /// The properties that its address spaces have in common.
    pub kind: Kind,
    /// The translator.
    pub translator: Translator,
    /// Everything that it has translated.
    pub code_cache: CodeCache,
    /// Its arenas.
    pub arenas: Vec<Arena>,
    /// Its modules.
    pub modules: Vec<Module>,
    files: FxHashMap<FileKey, UnitId>,
    /// Inodes of the files that any of its code was mapped from.
    inodes: FxHashSet<u64>,
    /// The memory that its address spaces can read and execute, and only the host writes: template,
    /// prepared tables, arenas.
    pub memory: Arc<SharedMemory>,
    /// The store in which units outlive the run.
    pub store: Option<Arc<Store>>,
    /// Chain slots whose template page has been filled.
    chain_filled: u32,
    /// The code that is sampled, where it is not all.
    pub sampled_code: Option<SampledCode>,
    /// Functions within which threads count.
    pub within: Vec<CodePlace>,
    /// Evaluators whose calls are counted.
    pub evaluators: Evaluators,
    /// The origins of its fragments, if a profile is wanted.
    pub origins: Option<Origins>,
    /// Entries made in this run by the address of their stub.
    stubs: FxHashMap<u64, EntryId>,
    /// Blocks in which events were due.
    blocks: Blocks,
    /// The chunks in which cut fragments lie, by arena.
    cut_chunks: FxHashMap<usize, Chunk>,
    /// The chunks with the stubs of fragments that have been cut off, by arena.
    stub_chunks: FxHashMap<usize, Chunk>,
    /// Prepared indirect tables.
    tables: Tables,
    waste: Waste,
    /// The executions learned of.
    pub learned: Learned,
}

impl Family {
    /// A family with its low window's template written, and no arenas yet.
    ///
    /// # Errors
    ///
    /// Those of making its memory.
    pub fn new(
        index: usize,
        basis: &Basis,
        emulated: lwp_dbt::block::Emulated,
    ) -> sys::Result<Self> {
        let memory = Arc::new(SharedMemory::new(c"lwp", FAMILY_BYTES)?);
        // Translated code is nobody's to change but ours.
        memory.file().seal_writes();
        let classes = syscalls::classes(&emulated);
        let translator = Translator::new(basis.plan, basis.lwp, basis.layout, emulated, classes);
        let mut family = Self {
            index,
            kind: Kind { basis: basis.clone(), owner: Owner::default(), arenas: Vec::new() },
            code_cache: translator.code_cache(),
            translator,
            arenas: Vec::new(),
            modules: Vec::new(),
            files: FxHashMap::default(),
            inodes: FxHashSet::default(),
            memory,
            store: None,
            chain_filled: 0,
            sampled_code: None,
            within: Vec::new(),
            evaluators: Evaluators::default(),
            origins: None,
            stubs: FxHashMap::default(),
            blocks: Blocks::default(),
            cut_chunks: FxHashMap::default(),
            stub_chunks: FxHashMap::default(),
            tables: Tables::default(),
            waste: Waste::new(waste::LEAST),
            learned: Learned::default(),
        };
        family.write_template(&emulated);
        Ok(family)
    }

    /// Keeps where its fragments come from, and what its counters count: before anything is
    /// translated.
    pub fn keep_origins(&mut self) {
        self.origins = Some(Origins::default());
        self.code_cache.keep_roles();
    }

    /// Adds an arena.
    pub fn add_arena(&mut self, address: u64, bytes: u64, offset: u64) {
        let code = &self.translator.routines().code;
        self.arenas.push(Arena::new(&self.memory, address, offset, bytes, code));
    }

    /// The place of the low window in its address spaces.
    pub fn layout(&self) -> Layout {
        self.translator.layout()
    }

    /// Address of a routine in the low window.
    pub fn routine(&self, offset: u32) -> u64 {
        self.layout().routines() + u64::from(offset)
    }

    /// The state of a family's low window in a new address space.
    fn write_template(&mut self, emulated: &lwp_dbt::block::Emulated) {
        let low = self.layout();
        let miss = self.routine(self.translator.routines().ask_rcx);
        self.memory.fill_new(0, EMPTY_TABLE, miss);
        let mask = lwp_dbt::context::INDEX_MASK.to_le_bytes();
        self.memory.write(low.index_mask() - low.low, &mask);
        let classes = syscalls::classes_for_table(emulated);
        self.memory.write_new(low.syscall_classes() - low.low, &classes);
        let code = self.translator.routines().code.clone();
        self.memory.write_new(low.routines() - low.low, &code);
        self.fill_chains(1);
    }

    /// Says how an address is divided for a data cache that is watched.
    pub fn watch_cache(&mut self, [sets, lines, length, places]: [u64; 4]) {
        let low = self.layout();
        self.translator.watch_cache(lines.wrapping_neg() as u32, sets as u32, places as u32);
        self.memory.store(low.set_mask() - low.low, sets);
        self.memory.store(low.line_mask() - low.low, lines);
        self.memory.store(low.set_length() - low.low, length);
        self.memory.store(low.set_places() - low.low, places);
    }

    /// Lets translated code know an answer to CPUID. No address space has a copy of its own of the
    /// page that holds them.
    pub fn remember_cpuid(&mut self, known: KnownCpuid) {
        let low = self.layout();
        let at = low.known_cpuids() - low.low;
        let count = self.memory.load(at);
        if count < KnownCpuid::MOST {
            let place = at + KnownCpuid::FIRST + count * KnownCpuid::BYTES;
            self.memory.write(place, &known.to_bytes());
            self.memory.store(at, count + 1);
        }
    }

    /// Makes sure that the chain slots below `entries` lead to the mailbox, a page at a time,
    /// before any address space can have touched the page.
    pub fn fill_chains(&mut self, entries: u32) {
        let low = self.layout();
        let miss = self.routine(self.translator.routines().ask_rcx);
        let first = self.chain_filled;
        self.chain_filled = entries.next_multiple_of(PAGE as u32 / 8).max(first);
        let at = low.chain_slot(first) - low.low;
        self.memory.fill_new(at, u64::from(self.chain_filled - first) * 8, miss);
    }

    /// The unit of a mapped file, if there is one.
    pub fn known_file(&self, key: &FileKey) -> Option<UnitId> {
        self.files.get(key).copied()
    }

    /// Makes the unit of a mapped file, which has `code_bytes` of code.
    pub fn file_unit(&mut self, key: FileKey, extent: (u64, u64), code_bytes: u64) -> UnitId {
        let id = self.new_unit(Checks::None, extent);
        self.modules[id.0 as usize].code_bytes = code_bytes;
        self.files.insert(key, id);
        id
    }

    /// A new unit.
    pub fn new_unit(&mut self, checks: Checks, extent: (u64, u64)) -> UnitId {
        let id = UnitId(self.modules.len() as u32);
        self.modules.push(Module {
            unit: Unit::new(checks),
            extent,
            entries: Vec::new(),
            code_bytes: 0,
            arena: None,
            chunk: None,
            cuts: Unit::new(checks),
            kept: None,
            unforeseen: false,
            pages: Pages::default(),
            made_of: FxHashMap::default(),
        });
        if let Some(code) = self.sampled_code.filter(|code| code.everywhere().is_none()) {
            self.set_filter(id, code.elsewhere());
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
            self.set_filter(id, filter);
        }
        for &place in &self.within {
            let code = SampledCode { place, inverted: false };
            if let Some(function) = code.in_mapping(tid, mapping) {
                self.modules[id.0 as usize].unit.mark(AppPc(function.base));
            }
        }
        self.count_evaluator(id, tid, mapping);
    }

    fn set_filter(&mut self, id: UnitId, filter: lwp_dbt::IpFilter) {
        let module = &mut self.modules[id.0 as usize];
        module.unit.filter = Some(filter);
        module.cuts.filter = Some(filter);
    }

    /// The module with this number.
    pub fn module(&mut self, id: UnitId) -> &mut Module {
        &mut self.modules[id.0 as usize]
    }

    /// The arena for code of this unit, if there is one: its own, or one near it.
    pub fn arena_of(&self, id: UnitId) -> Option<usize> {
        let Module { arena, extent: (low, high), .. } = self.modules[id.0 as usize];
        arena.or_else(|| self.arenas.iter().position(|arena| arena.reaches(low, high)))
    }

    /// Settles that all code of this unit lies in this arena: fragments of a unit lead to each
    /// other, and must reach each other.
    pub fn settle(&mut self, id: UnitId, arena: usize) {
        self.modules[id.0 as usize].arena.get_or_insert(arena);
    }

    /// Returns whether there are too few counters or entries for another region.
    fn out_of_numbers(&self) -> bool {
        self.code_cache.counters().len() as u64 + 4096 > crate::memory_map::MAX_COUNTERS
            || u64::from(self.code_cache.entry_count()) + 4096 > lwp_dbt::Layout::MAX_ENTRIES
    }

    /// Returns whether something that every address space has too little of is used up.
    pub fn is_full(&self) -> bool {
        self.waste.is_too_much() || self.lacks_room()
    }

    /// Has waste looked at after `fragments` fragments of changing code.
    pub fn weigh_waste_after(&mut self, fragments: usize) {
        self.waste = Waste::new(fragments);
    }

    /// Goes on with as much waste as there is.
    pub fn put_up_with_waste(&mut self) {
        self.waste.put_up();
    }

    /// Returns whether there is no room for code any more.
    pub fn lacks_room(&self) -> bool {
        self.out_of_numbers() || self.arenas.iter().any(|arena| arena.left() < LEAST_CHUNK)
    }

    /// Translates `pc`, which lies in `code`.
    pub fn translate(
        &mut self,
        code: &Code,
        tid: i32,
        pc: AppPc,
        entry: bool,
        limits: RegionLimits,
    ) -> Region {
        let id = code.unit;
        let Some(arena) = self.arena_of(id) else {
            return Region::default();
        };
        if self.out_of_numbers() || self.waste.is_too_much() {
            return Region::default();
        }
        if !self.find_chunk(id, arena) {
            return Region::default();
        }
        let changes = self.modules[id.0 as usize].unit.checks != Checks::None;
        if changes && self.arenas[arena].left() < REGION_STUBS {
            return Region::default();
        }
        // Entries made by this translation must find their chain slots filled.
        self.fill_chains(self.code_cache.entry_count() + 2048);
        let module = &mut self.modules[id.0 as usize];
        let mut source = ModuleCode {
            tid,
            range: code.range,
            kept: module.kept.as_ref(),
            pages: (!changes).then_some(&mut module.pages),
            notices: code.notices.as_deref(),
        };
        let Some((chunk, _)) = &mut module.chunk else { return Region::default() };
        let mut to = Destination {
            cache: &mut self.code_cache,
            unit: &mut module.unit,
            sink: &mut self.arenas[arena].sink(chunk, &self.memory),
        };
        let first = to.cache.fragment_count();
        let region = self.translator.translate(&mut to, &mut source, pc, entry, limits);
        if changes {
            self.arenas[arena].reserve_stubs(region.fragments);
            self.waste.note(self.code_cache.fragment_count() - first);
            note_pages(&module.unit, &mut module.made_of, &self.code_cache, first);
        }
        note_origins(&mut self.origins, &self.code_cache, id, &mut source);
        if changes && self.waste.is_to_be_weighed() {
            self.weigh_waste();
        }
        let module = &mut self.modules[id.0 as usize];
        for &entry in &region.entries {
            module.entries.push(entry);
            self.stubs.insert(self.code_cache.entry(entry).stub.0, entry);
        }
        region
    }

    /// Compares the fragments made of code that may change with those that are left of them.
    fn weigh_waste(&mut self) {
        let changing = self.modules.iter().filter(|it| it.unit.checks != Checks::None);
        self.waste.weigh(changing.map(|module| module.unit.kept_fragments()).sum());
    }

    /// The application's state at `pc` in routines or fragments.
    pub fn state_at(&self, pc: u64) -> Option<(AppState, Option<FragmentId>)> {
        match self.routine_offset(pc) {
            Some(offset) => Some((self.translator.routines().state_at(offset)?, None)),
            None => self.code_cache.state_at(CachePc(pc)),
        }
    }

    /// The entry with its stub at `address`.
    pub fn entry_of_stub(&self, address: u64) -> Option<EntryId> {
        let new = self.stubs.get(&address).copied();
        new.or_else(|| self.code_cache.restored_entry(CachePc(address)))
    }

    /// Makes sure that there is room for a region of this unit in one of its chunks.
    fn find_chunk(&mut self, id: UnitId, arena: usize) -> bool {
        let module = &mut self.modules[id.0 as usize];
        if module.chunk.is_some_and(|(chunk, _)| chunk.room() >= REGION_ROOM) {
            return true;
        }
        let wanted = match module.chunk {
            _ if module.unit.checks != Checks::None => PRIVATE_CHUNK,
            None => chunk_for(module.code_bytes),
            Some((chunk, _)) => chunk.bytes,
        };
        let only = module.chunk.is_none();
        match self.arenas[arena].chunk(wanted, LEAST_CHUNK) {
            Some(chunk) => {
                module.arena = Some(arena);
                module.chunk = Some((chunk, only));
                true
            }
            None => false,
        }
    }

    /// Makes sure that there is room for a cut fragment in the chunk that an arena has for them.
    fn find_cut_chunk(&mut self, arena: usize) -> bool {
        if self.cut_chunks.get(&arena).is_some_and(|chunk| chunk.room() >= REGION_ROOM) {
            return true;
        }
        let Some(chunk) = self.arenas[arena].chunk(LEAST_CHUNK, LEAST_CHUNK) else { return false };
        self.cut_chunks.insert(arena, chunk);
        true
    }

    /// Unit and bytes of a fragment, where its family keeps what it comes from.
    pub fn origin_of(&self, id: FragmentId) -> Option<(UnitId, Cow<'_, [u8]>)> {
        if let Some((unit, bytes)) = self.origins.as_ref()?.translated(id) {
            return Some((unit, bytes.into()));
        }
        let has = |module: &Module| module.unit.has_restored(id);
        let number = self.modules.iter().position(has)?;
        let fragment = self.code_cache.fragment(id);
        let mut bytes = vec![0; usize::from(fragment.app_len)];
        let kept = self.modules[number].kept.as_ref()?;
        kept.read(fragment.pc.0, &mut bytes).then(|| (UnitId(number as u32), bytes.into()))
    }

    /// The fragment whose not-taken edge leads to `id`.
    pub fn before_edge(&self, id: FragmentId) -> Option<FragmentId> {
        self.code_cache.counters().roles().find_map(|role| match role? {
            Role::RunsBehind { into, from } if into == id => Some(from),
            _ => None,
        })
    }

    /// Returns whether `pc` lies in translated code or routines of this family.
    pub fn owns(&self, pc: u64) -> bool {
        let low = self.layout();
        (low.routines()..low.chain_slot(0)).contains(&pc)
            || self.arenas.iter().any(|arena| arena.contains(pc))
    }

    /// Offset into the routines, if `pc` lies in one of their copies.
    pub fn routine_offset(&self, pc: u64) -> Option<u32> {
        let len = self.translator.routines().code.len() as u64;
        std::iter::once(self.layout().routines())
            .chain(self.arenas.iter().map(|arena| arena.address))
            .find(|&start| (start..start + len).contains(&pc))
            .map(|start| (pc - start) as u32)
    }
}

/// Notes which pages the fragments from number `first` on depend on.
fn note_pages(
    unit: &Unit,
    made_of: &mut FxHashMap<u64, Vec<FragmentId>>,
    code_cache: &CodeCache,
    first: usize,
) {
    for id in (first..code_cache.fragment_count()).map(|number| FragmentId(number as u32)) {
        let Fragment { pc, app_len, .. } = code_cache.fragment(id);
        let own = pages_of((pc.0, pc.0 + u64::from(app_len)));
        let trusted = unit.trusted_by(id).map(range_of);
        for page in own.chain(trusted.into_iter().flat_map(pages_of)) {
            let made = made_of.entry(page).or_default();
            if made.last() != Some(&id) {
                made.push(id);
            }
        }
    }
}

/// Returns the addresses of a neighbour's code.
fn range_of(neighbour: &Neighbour) -> (u64, u64) {
    (neighbour.pc.0, neighbour.pc.0 + neighbour.bytes.len() as u64)
}

/// Takes in where fragments come from that have just been made of unit `id`.
fn note_origins(
    origins: &mut Option<Origins>,
    code_cache: &CodeCache,
    id: UnitId,
    source: &mut dyn CodeSource,
) {
    let Some(origins) = origins else { return };
    for number in origins.fragments()..code_cache.fragment_count() {
        let fragment = code_cache.fragment(FragmentId(number as u32));
        let mut bytes = vec![0; usize::from(fragment.app_len)];
        let read = source.read_code(fragment.pc, &mut bytes);
        origins.push(id, &bytes[..read]);
    }
}
