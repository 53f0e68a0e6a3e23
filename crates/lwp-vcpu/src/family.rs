//! Families: address spaces that are laid out alike share one translator, its arenas and the
//! translations of the files they map.

use std::sync::Arc;

use lwp_dbt::{
    AppPc, Checks, CodeSource, EntryId, FragmentId, Plan, Region, RegionLimits, Role, Translator,
    Unit,
};
use lwp_ptrace::{SharedMemory, memory};
use rustc_hash::FxHashMap;

use crate::arena::Arena;
use crate::memory_map::{LOW, family_offset};
use crate::profile::Origins;
use crate::syscalls;

/// Which file is mapped where: what a shared translation belongs to.
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

/// A unit with what is needed to translate more of it.
#[derive(Debug)]
pub struct Module {
    /// What has been translated.
    pub unit: Unit,
    /// Its addresses, lowest and highest.
    pub extent: (u64, u64),
    /// Its entries, in the order they were made.
    pub entries: Vec<EntryId>,
    /// Application code read so far, by page; only where it cannot change.
    pages: FxHashMap<u64, Box<[u8; PAGE]>>,
}

const PAGE: usize = 4096;
/// Pages kept per module.
const PAGES_KEPT: usize = 1024;

/// Address spaces laid out alike.
#[derive(Debug)]
pub struct Family {
    /// Its number: where its part of the machine's memory lies.
    pub index: usize,
    /// The translator.
    pub translator: Translator,
    /// Its arenas.
    pub arenas: Vec<Arena>,
    /// Its modules.
    pub modules: Vec<Module>,
    files: FxHashMap<FileKey, UnitId>,
    memory: Arc<SharedMemory>,
    /// Chain slots whose template page has been filled.
    chain_filled: u32,
    /// Where its fragments come from, if a profile is wanted.
    pub origins: Option<Origins>,
    /// Entries by the address of their stub.
    pub stubs: FxHashMap<u64, EntryId>,
}

impl Family {
    /// A family with its low window's template written and these arenas: address, bytes, offset in
    /// the family's part of the memory.
    pub fn new(
        index: usize,
        plan: Plan,
        emulated: lwp_dbt::block::Emulated,
        arenas: &[(u64, u64, u64)],
        memory: Arc<SharedMemory>,
    ) -> Self {
        let translator = Translator::new(plan, LOW, emulated, syscalls::classes(&emulated));
        let mut family = Self {
            index,
            translator,
            arenas: Vec::new(),
            modules: Vec::new(),
            files: FxHashMap::default(),
            memory,
            chain_filled: 0,
            origins: None,
            stubs: FxHashMap::default(),
        };
        family.write_template(&emulated);
        for &(address, bytes, offset) in arenas {
            family.add_arena(address, bytes, offset);
        }
        family
    }

    /// Adds an arena.
    pub fn add_arena(&mut self, address: u64, bytes: u64, offset: u64) {
        let code = &self.translator.routines().code;
        let offset = family_offset(self.index) + offset;
        self.arenas.push(Arena::new(&self.memory, address, offset, bytes, code));
    }

    /// Offset of the low window's template in the machine's memory.
    pub fn template_offset(&self) -> u64 {
        family_offset(self.index)
    }

    /// Address of a routine in the low window.
    pub fn routine(&self, offset: u32) -> u64 {
        LOW.routines() + u64::from(offset)
    }

    /// The state of a family's low window in a new address space.
    fn write_template(&mut self, emulated: &lwp_dbt::block::Emulated) {
        let base = self.template_offset();
        let miss = self.routine(self.translator.routines().ask_rcx);
        let empty: Vec<u8> = std::iter::repeat_n(miss.to_le_bytes(), PAGE / 8).flatten().collect();
        for page in 0..lwp_dbt::context::TABLE_SLOTS * 8 / PAGE as u64 {
            self.memory.write(base + page * PAGE as u64, &empty);
        }
        let mask = lwp_dbt::context::INDEX_MASK.to_le_bytes();
        self.memory.write(base + (LOW.index_mask() - LOW.low), &mask);
        let classes = syscalls::classes_for_table(emulated);
        self.memory.write(base + (LOW.syscall_classes() - LOW.low), &classes);
        let prot: Vec<u8> = (0..256u32).map(|prot| u8::from(prot & libc_prot::EXEC != 0)).collect();
        self.memory.write(base + (LOW.prot_classes() - LOW.low), &prot);
        let code = self.translator.routines().code.clone();
        self.memory.write(base + (LOW.routines() - LOW.low), &code);
        self.fill_chains(1);
    }

    /// Makes sure that the chain slots below `entries` lead to the mailbox, a page at a time, before
    /// any address space can have touched the page.
    fn fill_chains(&mut self, entries: u32) {
        let miss = self.routine(self.translator.routines().ask_rcx);
        while self.chain_filled < entries {
            for slot in self.chain_filled..self.chain_filled + PAGE as u32 / 8 {
                let at = self.template_offset() + (LOW.chain_slot(slot) - LOW.low);
                self.memory.store(at, miss);
            }
            self.chain_filled += PAGE as u32 / 8;
        }
    }

    /// The unit of a mapped file, made if it is new.
    pub fn file_unit(&mut self, key: FileKey, extent: (u64, u64)) -> UnitId {
        if let Some(&id) = self.files.get(&key) {
            return id;
        }
        let id = self.new_unit(Checks::None, extent);
        self.files.insert(key, id);
        id
    }

    /// A new unit.
    pub fn new_unit(&mut self, checks: Checks, extent: (u64, u64)) -> UnitId {
        self.modules.push(Module {
            unit: Unit::new(checks),
            extent,
            entries: Vec::new(),
            pages: FxHashMap::default(),
        });
        UnitId(self.modules.len() as u32 - 1)
    }

    /// The module with this number.
    pub fn module(&mut self, id: UnitId) -> &mut Module {
        &mut self.modules[id.0 as usize]
    }

    /// The arena for code near `extent`, if there is one.
    fn arena_near(&self, extent: (u64, u64)) -> Option<usize> {
        self.arenas.iter().position(|arena| arena.reaches(extent.0, extent.1))
    }

    /// Whether there is an arena for code of this unit.
    pub fn has_arena(&self, id: UnitId) -> bool {
        self.arena_near(self.modules[id.0 as usize].extent).is_some()
    }

    /// Translates `pc`, which lies in unit `id`; `limit` is the end of the executable mapping.
    pub fn translate(
        &mut self,
        id: UnitId,
        tid: i32,
        range: (u64, u64),
        pc: AppPc,
        entry: bool,
        limits: RegionLimits,
    ) -> Region {
        let Some(arena) = self.arena_near(self.modules[id.0 as usize].extent) else {
            return Region::default();
        };
        if self.translator.counters().len() as u64 + 4096 > crate::memory_map::MAX_COUNTERS
            || u64::from(self.translator.entry_count()) + 4096 > lwp_dbt::Layout::MAX_ENTRIES
        {
            return Region::default();
        }
        // Entries made by this translation must find their chain slots filled.
        self.fill_chains(self.translator.entry_count() + 2048);
        let module = &mut self.modules[id.0 as usize];
        let mut source = ModuleCode {
            tid,
            range,
            pages: (module.unit.checks == Checks::None).then_some(&mut module.pages),
        };
        let mut sink = self.arenas[arena].sink(&self.memory);
        let region =
            self.translator.translate(&mut module.unit, &mut source, &mut sink, pc, entry, limits);
        if let Some(origins) = &mut self.origins {
            for number in origins.fragments()..self.translator.fragment_count() {
                let fragment = self.translator.fragment(FragmentId(number as u32));
                let mut bytes = vec![0; usize::from(fragment.app_len)];
                let read = source.read_code(fragment.pc, &mut bytes);
                origins.push(id, &bytes[..read]);
            }
        }
        for &entry in &region.entries {
            module.entries.push(entry);
            self.stubs.insert(self.translator.entry(entry).stub.0, entry);
        }
        region
    }

    /// Cuts off the fragment at `pc` if its bytes differ from what thread `tid` has there now.
    pub fn invalidate_at(&mut self, id: UnitId, tid: i32, pc: AppPc) {
        let Some(arena) = self.arena_near(self.modules[id.0 as usize].extent) else { return };
        let module = &mut self.modules[id.0 as usize];
        let Some(&fragment) = module.unit.fragments.get(&pc) else { return };
        if differs(tid, pc, module.unit.bytes_of(fragment)) {
            let mut sink = self.arenas[arena].sink(&self.memory);
            self.translator.invalidate(&mut module.unit, &mut sink, fragment);
        }
    }

    /// Cuts off every fragment of a unit that overlaps `range` and whose bytes differ from what
    /// thread `tid` has there now; `all` cuts them off whatever they are.
    pub fn invalidate(&mut self, id: UnitId, tid: i32, range: (u64, u64), all: bool) -> usize {
        let Some(arena) = self.arena_near(self.modules[id.0 as usize].extent) else { return 0 };
        let module = &mut self.modules[id.0 as usize];
        let stale: Vec<_> = module
            .unit
            .fragments
            .iter()
            .filter(|(pc, id)| {
                let len = u64::from(self.translator.fragment(**id).app_len);
                pc.0 < range.1
                    && range.0 < pc.0 + len
                    && (all || differs(tid, **pc, module.unit.bytes_of(**id)))
            })
            .map(|(_, id)| *id)
            .collect();
        let mut sink = self.arenas[arena].sink(&self.memory);
        for &fragment in &stale {
            self.translator.invalidate(&mut module.unit, &mut sink, fragment);
        }
        stale.len()
    }

    /// The fragment whose not-taken edge leads to `id`.
    pub fn before_edge(&self, id: FragmentId) -> Option<FragmentId> {
        self.translator.roles().iter().find_map(|role| match *role {
            Role::RunsBehind { into, from } if into == id => Some(from),
            _ => None,
        })
    }

    /// Whether `pc` lies in translated code or routines of this family.
    pub fn owns(&self, pc: u64) -> bool {
        (LOW.routines()..LOW.chain_slot(0)).contains(&pc)
            || self.arenas.iter().any(|arena| arena.contains(pc))
    }

    /// Offset into the routines, if `pc` lies in one of their copies.
    pub fn routine_offset(&self, pc: u64) -> Option<u32> {
        let len = self.translator.routines().code.len() as u64;
        std::iter::once(LOW.routines())
            .chain(self.arenas.iter().map(|arena| arena.address))
            .find(|&start| (start..start + len).contains(&pc))
            .map(|start| (pc - start) as u32)
    }
}

/// Whether the bytes at `pc` are not those that a fragment was made from.
fn differs(tid: i32, pc: AppPc, bytes: Option<&[u8]>) -> bool {
    let Some(bytes) = bytes else { return true };
    let mut now = vec![0; bytes.len()];
    memory::read_exact(tid, pc.0, &mut now).is_err() || now != bytes
}

/// Protection bits of mmap.
mod libc_prot {
    pub const EXEC: u32 = 4;
}

/// Reads code of one executable mapping.
struct ModuleCode<'a> {
    tid: i32,
    range: (u64, u64),
    pages: Option<&'a mut FxHashMap<u64, Box<[u8; PAGE]>>>,
}

impl CodeSource for ModuleCode<'_> {
    fn read_code(&mut self, pc: AppPc, buffer: &mut [u8]) -> usize {
        if pc.0 < self.range.0 || pc.0 >= self.range.1 {
            return 0;
        }
        let want = buffer.len().min((self.range.1 - pc.0) as usize);
        let buffer = &mut buffer[..want];
        match &mut self.pages {
            None => lwp_ptrace::sys::read_memory(self.tid, pc.0, buffer).unwrap_or(0),
            Some(pages) => read_cached(pages, self.tid, pc.0, buffer),
        }
    }
}

fn read_cached(
    pages: &mut FxHashMap<u64, Box<[u8; PAGE]>>,
    tid: i32,
    address: u64,
    buffer: &mut [u8],
) -> usize {
    let mut done = 0;
    while done < buffer.len() {
        let at = address + done as u64;
        let page = at & !(PAGE as u64 - 1);
        if !pages.contains_key(&page) {
            let mut bytes = Box::new([0; PAGE]);
            if memory::read_exact(tid, page, &mut bytes[..]).is_err() {
                return done;
            }
            if pages.len() >= PAGES_KEPT {
                pages.clear();
            }
            pages.insert(page, bytes);
        }
        let offset = (at - page) as usize;
        let len = (PAGE - offset).min(buffer.len() - done);
        buffer[done..done + len].copy_from_slice(&pages[&page][offset..offset + len]);
        done += len;
    }
    done
}
