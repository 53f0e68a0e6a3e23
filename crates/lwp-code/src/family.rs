//! Families: address spaces that are laid out alike share one translator, its arenas and the
//! translations of the files they map.

use std::borrow::Cow;
use std::sync::Arc;

use lwp_calls::syscalls;
use lwp_dbt::block::Emulated;
use lwp_dbt::{
    AppPc, AppState, CachePc, CodeCache, CodeSource, Destination, EntryId, Fragment, FragmentId,
    Layout, Lwp, Neighbour, Plan, Region, RegionLimits, Translator, Unit,
};
use lwp_mailbox::memory_map::{FAMILY_BYTES, HOST_BYTES};
use lwp_process::owner::Owner;
use lwp_process::{SharedMemory, limits, sys};
use rustc_hash::FxHashMap;

use crate::execution_profiles::Learned;
use crate::functions::MappedFunctions;
use crate::guards::{Notices, pages_of};
use crate::module_images::ModuleSource;
use crate::origins::Origins;
use crate::store::Store;
use crate::transfer_sites::Sites;

mod arenas;
mod blocks;
mod changes;
mod low_window;
mod module_code;
mod modules;
pub mod overlays;
mod restored_code;
mod tables;
mod waste;

pub use arenas::Arenas;
use blocks::Blocks;
use low_window::LowWindow;
use module_code::ModuleCode;
pub use module_code::{Pages, is_cut_short};
pub use modules::{FileKey, Module, Modules, UnitId};
pub use restored_code::RestoredCode;
pub use tables::Table;
pub use waste::Waste;

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

    /// Returns whether nobody writes to the `len` bytes at `pc` without notice.
    pub fn is_guarded(&self, pc: u64, len: usize) -> bool {
        let range = (pc, pc + len as u64);
        self.notices.as_ref().is_some_and(|notices| notices.have_guarded(range))
    }
}

const PAGE: usize = 4096;
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
    /// Every system call is the host's: a thread has some of its calls become signals.
    pub dispatches: bool,
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
    pub arenas: Arenas,
    /// Its modules.
    pub modules: Modules,
    /// The low window of its address spaces.
    pub low_window: LowWindow,
    /// The store in which units outlive the run.
    pub store: Option<Arc<Store>>,
    /// The origins of its fragments, if a profile is wanted.
    pub origins: Option<Origins>,
    /// Blocks in which events were due.
    blocks: Blocks,
    /// The fragments of code that may change.
    pub waste: Waste,
    /// The executions learned of.
    pub learned: Learned,
    /// The functions of its code, where contexts are measured.
    pub functions: Option<MappedFunctions>,
    /// The places where its code leaves functions.
    pub sites: Sites,
}

impl Family {
    /// A family with its low window's template written, and no arenas yet.
    ///
    /// # Errors
    ///
    /// Those of making its memory.
    pub fn new(index: usize, basis: &Basis, emulated: Emulated) -> sys::Result<Self> {
        if limits::room().is_some_and(|room| room < FAMILY_BYTES + HOST_BYTES) {
            return Err(sys::Errno::ENOMEM);
        }
        let memory = Arc::new(SharedMemory::new(c"lwp", FAMILY_BYTES)?);
        // Translated code is nobody's to change but ours.
        memory.file().seal_writes();
        let emulated = Emulated { dispatches: basis.dispatches, ..emulated };
        let classes = syscalls::classes(&emulated);
        let translator = Translator::new(basis.plan, basis.lwp, basis.layout, emulated, classes);
        let low_window = LowWindow::new(memory.clone(), &translator, &emulated);
        Ok(Self {
            index,
            kind: Kind { basis: basis.clone(), owner: Owner::default(), arenas: Vec::new() },
            code_cache: translator.code_cache(),
            translator,
            arenas: Arenas::new(memory),
            modules: Modules::default(),
            low_window,
            store: None,
            origins: None,
            blocks: Blocks::default(),
            waste: Waste::new(waste::LEAST),
            learned: Learned::default(),
            functions: None,
            sites: Sites::default(),
        })
    }

    /// Adds an arena.
    pub fn add_arena(&mut self, address: u64, bytes: u64, offset: u64) {
        self.arenas.add(address, bytes, offset, &self.translator.routines().code);
    }

    /// The place of the low window in its address spaces.
    pub fn layout(&self) -> Layout {
        self.translator.layout()
    }

    /// Address of a routine in the low window.
    pub fn routine(&self, offset: u32) -> u64 {
        self.layout().routines() + u64::from(offset)
    }

    /// Says how an address is divided for a data cache that is watched.
    pub fn watch_cache(&mut self, masks: [u64; 4]) {
        let [sets, lines, _, places] = masks;
        self.translator.watch_cache(lines.wrapping_neg() as u32, sets as u32, places as u32);
        self.low_window.watch_cache(masks);
    }

    /// The arena for code of this unit, if there is one: its own, or one near it.
    pub fn arena_of(&self, id: UnitId) -> Option<usize> {
        self.arenas.of(&self.modules[id])
    }

    /// Returns whether there are too few counters or entries for another region.
    fn out_of_numbers(&self) -> bool {
        self.code_cache.counters().len() as u64 + 4096 > lwp_mailbox::memory_map::MAX_COUNTERS
            || u64::from(self.code_cache.entry_count()) + 4096 > lwp_dbt::Layout::MAX_ENTRIES
    }

    /// Returns whether something that every address space has too little of is used up.
    pub fn is_full(&self) -> bool {
        self.waste.is_too_much() || self.lacks_room()
    }

    /// Returns whether there is no room for code any more.
    pub fn lacks_room(&self) -> bool {
        self.out_of_numbers() || self.arenas.lack_room()
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
        if !self.arenas.find_chunk(arena, &mut self.modules[id]) {
            return Region::default();
        }
        let changes = self.modules[id].changes();
        if changes && self.arenas[arena].left() < REGION_STUBS {
            return Region::default();
        }
        // Entries made by this translation must find their chain slots filled.
        self.low_window.fill_chains(self.code_cache.entry_count() + 2048);
        let module = &mut self.modules[id];
        let mut source = ModuleCode {
            tid,
            range: code.range,
            source: module.code.as_ref(),
            pages: (!changes).then_some(&mut module.pages),
            notices: code.notices.as_deref(),
            functions: self.functions.as_ref(),
        };
        let Some((chunk, _)) = &mut module.chunk else { return Region::default() };
        let mut to = Destination {
            cache: &mut self.code_cache,
            unit: &mut module.unit,
            sink: &mut self.arenas.sink(arena, chunk),
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
            self.waste.weigh(self.modules.left_of_changing());
        }
        self.modules.add_entries(id, &region.entries, &self.code_cache);
        region
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
        let new = self.modules.entry_of_stub(address);
        new.or_else(|| self.code_cache.restored_entry(CachePc(address)))
    }

    /// Unit and bytes of a fragment, where its family keeps what it comes from.
    pub fn origin_of(&self, id: FragmentId) -> Option<(UnitId, Cow<'_, [u8]>)> {
        if let Some((unit, bytes)) = self.origins.as_ref()?.translated(id) {
            return Some((unit, bytes.into()));
        }
        let (unit, fragment, code) = self.restored(id)?;
        let mut bytes = vec![0; usize::from(fragment.app_len)];
        code.read(fragment.pc.0, &mut bytes).then(|| (unit, bytes.into()))
    }

    /// A fragment that an earlier run has translated: its unit, and the source of its code.
    fn restored(&self, id: FragmentId) -> Option<(UnitId, Fragment, &ModuleSource)> {
        let (unit, module) = self.modules.iter().find(|(_, it)| it.unit.has_restored(id))?;
        Some((unit, self.code_cache.fragment(id), module.code.as_ref()?))
    }

    /// Returns whether `pc` lies in translated code or routines of this family.
    pub fn owns(&self, pc: u64) -> bool {
        let low = self.layout();
        (low.routines()..low.chain_slot(0)).contains(&pc) || self.arenas.contain(pc)
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
