//! Setting an address space up: after exec, and when a live process is taken over.

use std::os::fd::{AsRawFd, RawFd};

use lwp_dbt::{Layout, Lwp, Slot};
use lwp_ptrace::limits::LockedMemory;
use lwp_ptrace::memory;
use lwp_ptrace::regs::{CS_64, Regs};
use lwp_ptrace::{Tid, limits, shm, sys};

use crate::addition;
use crate::arena::Arena;
use crate::auxiliary::{AT_HWCAP, AT_HWCAP2, AT_IGNORE, AT_RANDOM, AT_SYSINFO_EHDR, Auxiliary};
use crate::config::{CpuModel, Target};
use crate::contexts::{ContextFile, FileId};
use crate::evaluators::Evaluators;
use crate::family::{Basis, EMPTY_TABLE, Family, Kind, LEAST_CHUNK, UnitId};
use crate::first_stack;
use crate::huge_table;
use crate::inject::{Call, Injector, Map, RECEIVE_BYTES};
use crate::lwp::sampled_selection;
use crate::machine::{Machine, Mode};
use crate::maps::{self, Mapping, Status};
use crate::memory_map::{
    CONTEXTS_AT, FAMILIES, LOW, is_ours, low_window, mapped_slots, slot_offset,
};
use crate::notices::FaultAction;
use crate::owner::Owner;
use crate::space::Space;
use crate::ways::overlap;
pub use places::{Anchors, Reach};
use places::{plan_arenas, planned_arena, with_wanted};

mod places;
mod sides;

const GIB: u64 = 1 << 30;
const SYS_CLOSE: u64 = 3;
const SYS_OPEN: u64 = 2;
const SYS_MUNMAP: u64 = 11;
const SYS_MPROTECT: u64 = 10;
const SYS_MREMAP: u64 = 25;
const SYS_MADVISE: u64 = 28;
const SYS_MUNLOCK: u64 = 150;
const PROT_READ: u64 = 1;
const PROT_WRITE: u64 = 2;
const PROT_EXEC: u64 = 4;
const MAP_SHARED: u64 = 1;
const MAP_PRIVATE: u64 = 2;
const MAP_FIXED: u64 = 0x10;
const MAP_FIXED_NOREPLACE: u64 = 0x10_0000;
const MADV_DONTDUMP: u64 = 16;

/// The origin of an indirect table.
#[derive(Clone, Copy, Debug)]
pub enum Table {
    /// From a prepared one: its offset in the family's memory, and the bytes of its chain slots.
    Prepared((u64, u64)),
    /// From nowhere: it is an empty one in a huge page, and made by other calls than mappings.
    Huge,
    /// From the template: an empty one.
    Empty,
}

impl Machine {
    /// Sets up the address space of `tid`, which has just become a new program and is stopped at
    /// its first instruction, and leads it into translated code.
    pub fn set_up(&mut self, tid: Tid, regs: &Regs) -> Result<(), String> {
        if regs.0.cs != CS_64 {
            return Err("32-bit program: only x86-64 programs can be translated".into());
        }
        let mappings = maps::read(tid);
        let launched = match self.config.target {
            Target::Launch { .. } => Auxiliary::at_start(tid, regs.0.rsp),
            _ => None,
        };
        let anchors = launched.as_ref().map_or_else(|| Anchors::of(tid), Anchors::among);
        let site = find_syscall(tid, &mappings)
            .ok_or("no system call instruction found in the program's memory")?;
        let status = Status::read(tid);
        let owner = Owner::of(tid, &status);
        let (mut space, family, table) = self.new_space(tid, owner, &mappings, anchors)?;
        if let Some(auxiliary) = &launched {
            self.adjust_auxv(tid, auxiliary);
        }
        let filtered = status.number("Seccomp:").is_some_and(|mode| mode != 0);
        let table = match table {
            // A filter may kill for calls that it does not expect.
            Table::Empty if !filtered && huge_table::is_wanted(tid, &mappings) => Table::Huge,
            table => table,
        };
        let mut injector = Injector::new(&self.tracees, tid, site, &status);
        let contexts = self.contexts_of(tid).ok_or("no such process")?;
        self.map_into(&mut injector, family, table, contexts, regs)?;
        drop(injector);
        space.contexts = self.contexts.files.get(contexts).map_or(0, ContextFile::wanted);
        if filtered && let Some(context) = self.context(tid) {
            context.set(Slot::NoSyscalls, 1);
            self.tasks.filtered = true;
        }
        let index = self.caches.add(space);
        let pid = self.tasks.threads.get(&tid).map_or(tid, |thread| thread.pid);
        if let Some(process) = self.tasks.processes.get_mut(&pid) {
            process.space = index;
            process.fault_action = FaultAction::inherited(&status);
        }
        Ok(())
    }

    /// Makes the address space of a program of `owner` that has just begun, without mapping
    /// anything. Returns it with the number of its family and its first table.
    pub fn new_space(
        &mut self,
        tid: Tid,
        owner: Owner,
        mappings: &[Mapping],
        anchors: Anchors,
    ) -> Result<(Space, usize, Table), String> {
        let mut arenas = plan_arenas(mappings, anchors);
        if let Some(most) = self.config.trials.arena_bytes {
            const LEAST: u64 = 1 << 20;
            let most = most.min(GIB).next_multiple_of(LEAST).max(LEAST);
            arenas.iter_mut().for_each(|(_, bytes, _)| *bytes = most.min(*bytes));
        }
        let kind = Kind { basis: self.first_basis(), owner, arenas };
        let family = self.family_for(kind)?;
        self.tasks.forget_cuts(&self.contexts);
        let mut space = Space::new(family, self.usual_arenas(family));
        let table = match self.caches.families.get_mut(family) {
            Some(Some(family)) => space.begin(family, tid, mappings),
            _ => None,
        };
        let table = table.map(|it| Table::Prepared((it.offset, it.chain_bytes)));
        Ok((space, family, table.unwrap_or(Table::Empty)))
    }

    /// The things that the code of a new program's family depends on.
    pub fn first_basis(&self) -> Basis {
        let lwp = match self.config.lwp {
            _ if self.config.watches() => Lwp::On(sampled_selection(&self.config)),
            Some(_) => Lwp::Off,
            None => Lwp::Absent,
        };
        Basis { plan: self.plan(), lwp, layout: low_window(LOW) }
    }

    /// Makes ready what a first program needs and what does not depend on it.
    ///
    /// # Errors
    ///
    /// Those of making its memory.
    pub fn prepare(&self) -> sys::Result<Family> {
        let mut family = Family::new(0, &self.first_basis(), self.processor.emulated)?;
        for known in self.processor.cpu.asked_at_start() {
            family.remember_cpuid(known);
        }
        Ok(family)
    }

    /// The place that the stack of a program that begins with these registers has been moved to:
    /// under determinism, the place where it always is.
    pub fn settled_stack(&self, tid: Tid, regs: &Regs) -> Option<u64> {
        let launched = matches!(self.config.target, Target::Launch { .. });
        if !self.config.deterministic || !launched || regs.0.cs != CS_64 {
            return None;
        }
        first_stack::settle(tid, regs.0.rsp, &maps::read(tid))
    }

    /// The place that the stack of a program that begins with these registers has been moved to
    /// because something was added to its arguments and variables.
    pub fn extended_stack(&mut self, tid: Tid, regs: &Regs) -> Option<u64> {
        let addition = addition::for_program(tid, &self.config.additions)?;
        if regs.0.cs != CS_64 {
            return None;
        }
        let stack = addition::put(tid, regs.0.rsp, &maps::read(tid), addition)?;
        if let Some(profiler) = &mut self.observers.profiler {
            profiler.add_addition(tid, addition);
        }
        Some(stack)
    }

    /// Shows the virtual processor in a new program's auxiliary vector, and under determinism takes
    /// what differs from run to run out of it: the random bytes and the vdso.
    fn adjust_auxv(&mut self, tid: Tid, auxiliary: &Auxiliary) {
        let fixed = self.config.cpu != CpuModel::Host;
        if !fixed && !self.config.deterministic {
            return;
        }
        for (at, [kind, value]) in auxiliary.entries() {
            let new = match kind {
                AT_HWCAP if fixed => [kind, u64::from(self.processor.cpu.cpuid(1, 0)[3])],
                AT_HWCAP2 if fixed => [kind, 0],
                AT_SYSINFO_EHDR if self.config.deterministic => [AT_IGNORE, 0],
                AT_RANDOM if self.config.deterministic => {
                    let bytes = [self.processor.next_random(), self.processor.next_random()]
                        .map(u64::to_le_bytes);
                    let _ = memory::write_exact(tid, value, &bytes.concat());
                    continue;
                }
                _ => continue,
            };
            let _ = memory::write_u64(tid, at, new[0]);
            let _ = memory::write_u64(tid, at + 8, new[1]);
        }
    }

    /// Leads a stopped thread with the application registers `regs` into translated code.
    pub fn enter(&mut self, tid: Tid, regs: &Regs) -> lwp_ptrace::sys::Result<()> {
        let Some((_, family)) = self.space_of(tid) else { return Err(sys::Errno::ESRCH) };
        let enter = family.routine(family.translator.routines().enter);
        let Some(thread) = self.tasks.threads.get_mut(&tid) else { return Err(sys::Errno::ESRCH) };
        thread.mode = Mode::Running;
        let slot = thread.slot;
        let context = self.contexts.context(slot);
        context.set(Slot::Pc, regs.0.rip);
        let mut cache = *regs;
        cache.0.rip = enter;
        cache.0.gs_base = context.address();
        keep_base(&mut cache);
        cache.forget_syscall();
        self.tracees.set_regs(tid, &cache)
    }

    /// The contexts of a thread's address space.
    pub fn contexts_of(&self, tid: Tid) -> Option<FileId> {
        let pid = self.tasks.threads.get(&tid)?.pid;
        Some(self.tasks.processes.get(&pid)?.contexts)
    }

    /// Notes how many slots of its contexts the address space of `tid` has mapped.
    pub fn note_contexts(&mut self, tid: Tid, mapped: usize) {
        let Some(process) =
            self.tasks.threads.get(&tid).and_then(|it| self.tasks.processes.get(&it.pid))
        else {
            return;
        };
        if let Some(Some(space)) = self.caches.spaces.get_mut(process.space) {
            space.contexts = mapped;
        }
    }

    fn map_into(
        &self,
        injector: &mut Injector,
        family: usize,
        table: Table,
        contexts: FileId,
        regs: &Regs,
    ) -> Result<(), String> {
        let Some(Some(of)) = self.caches.families.get(family) else {
            return Err("no such family".into());
        };
        let contexts = self.contexts.files.get(contexts).ok_or("no contexts")?;
        let fd = open_on_stack(injector, regs, of.memory.fd(), READ_ONLY)?;
        let maps = self.family_maps(family, table, MAP_FIXED_NOREPLACE)?;
        // The routines come first: with them the rest takes a single stop.
        injector.map(&maps[..1], fd)?;
        let maps = &maps[1..];
        injector.use_batch(of.routine(of.translator.routines().batch), regs.0.rsp);
        let mut calls: Vec<Call> = maps.iter().map(|map| map.call(fd)).collect();
        if matches!(table, Table::Huge) {
            calls.extend(huge_table::calls(of.layout().low, MAP_FIXED_NOREPLACE, fd));
        }
        let made = calls.len();
        calls.extend(undumped(of));
        calls.push([SYS_CLOSE, fd, 0, 0, 0, 0, 0]);
        let (results, opened) = with_contexts(injector, calls, contexts, fd)?;
        maps.iter().zip(&results).try_for_each(|(map, result)| map.check(*result))?;
        if matches!(table, Table::Huge)
            && !huge_table::is_made(of.layout().low, &results[maps.len()..made])
        {
            let fd = open_on_stack(injector, regs, of.memory.fd(), READ_ONLY)?;
            injector.map(&table_maps(of, Table::Empty, MAP_FIXED), fd)?;
            injector.calls(&undumped(of))?;
            injector.call([SYS_CLOSE, fd, 0, 0, 0, 0, 0])?;
        }
        if !opened {
            let fd = open_on_stack(injector, regs, contexts.fd(), READ_WRITE)?;
            map_contexts(injector, contexts, fd)?;
        }
        Ok(())
    }

    /// Opens the file of the family with number `family` in a tracee whose context is mapped
    /// already.
    fn reopen_memory(&self, injector: &mut Injector, family: usize) -> Result<u64, String> {
        let context = self.context(injector.tid).ok_or("no such thread")?;
        let Some(Some(family)) = self.caches.families.get(family) else {
            return Err("no such family".into());
        };
        let fd = family.memory.fd();
        let path = context.write_scratch(path_of(fd).as_bytes());
        opened(injector, path, fd, READ_ONLY)
    }

    /// Maps more of the contexts into the address space of `tid`, which stands still, where its own
    /// is not among those that are mapped.
    pub fn grow_contexts(&mut self, tid: Tid) -> Result<(), String> {
        let pid = self.tasks.threads.get(&tid).ok_or("no such thread")?.pid;
        let space = self.tasks.processes.get(&pid).ok_or("no such process")?.space;
        let Some(Some(space)) = self.caches.spaces.get(space) else {
            return Err("no such address space".into());
        };
        let own = self.context(tid).ok_or("no such thread")?.local();
        let (mapped, wanted) = (space.contexts, mapped_slots(own));
        if wanted <= mapped {
            return Ok(());
        }
        let more = slot_offset(wanted) - slot_offset(mapped);
        limits::raise_address_space(tid, more);
        let mappings = maps::read(tid);
        let site = find_syscall(tid, &mappings).ok_or("no system call instruction found")?;
        let mut injector = Injector::new(&self.tracees, tid, site, &Status::read(tid));
        let (old, new) = (slot_offset(mapped), slot_offset(wanted));
        injector.call([SYS_MREMAP, CONTEXTS_AT, old, new, 0, 0, 0])?;
        injector.call([SYS_MADVISE, CONTEXTS_AT, new, MADV_DONTDUMP, 0, 0, 0])?;
        drop(injector);
        self.note_contexts(tid, wanted);
        Ok(())
    }

    /// Replaces the contexts that a process was made with by its own, from outside. It stands
    /// still, and its only thread has executed nothing but what has left `left_open`, a descriptor.
    pub fn move_in(&mut self, tid: Tid, regs: &Regs, left_open: Option<u64>) -> Result<(), String> {
        let contexts = self.contexts_of(tid).ok_or("no such process")?;
        let file = self.contexts.files.get(contexts).ok_or("no contexts")?;
        let mappings = maps::read(tid);
        let site = find_syscall(tid, &mappings).ok_or("no system call instruction found")?;
        let mut injector = Injector::new(&self.tracees, tid, site, &Status::read(tid));
        if let Some(fd) = left_open.filter(|fd| (*fd as i64) >= 0) {
            injector.call([SYS_CLOSE, fd, 0, 0, 0, 0, 0])?;
        }
        let fd = open_on_stack(&mut injector, regs, file.fd(), READ_WRITE)?;
        self.unmap_contexts(&mut injector, &mappings)?;
        map_contexts(&mut injector, file, fd)?;
        drop(injector);
        let mapped = file.wanted();
        self.note_contexts(tid, mapped);
        Ok(())
    }

    /// Takes whatever contexts there are out of an address space.
    fn unmap_contexts(&self, injector: &mut Injector, mappings: &[Mapping]) -> Result<(), String> {
        let end = CONTEXTS_AT + slot_offset(crate::memory_map::SLOTS);
        let ours = |mapping: &&Mapping| mapping.start < end && CONTEXTS_AT < mapping.end;
        for mapping in mappings.iter().filter(ours).filter(|mapping| is_ours(mapping)) {
            let bytes = mapping.end - mapping.start;
            injector.call([SYS_MUNMAP, mapping.start, bytes, 0, 0, 0, 0])?;
        }
        Ok(())
    }

    /// Takes the contexts out of a process that goes on natively.
    pub fn leave_contexts(&mut self, tid: Tid) -> Result<(), String> {
        let mappings = maps::read(tid);
        let site = find_syscall(tid, &mappings).ok_or("no system call instruction found")?;
        let mut injector = Injector::new(&self.tracees, tid, site, &Status::read(tid));
        self.unmap_contexts(&mut injector, &mappings)
    }

    /// The number of arenas that every address space of a family has from the start.
    fn usual_arenas(&self, family: usize) -> usize {
        let family = self.caches.families.get(family).and_then(Option::as_ref);
        family.map_or(0, |family| family.kind.arenas.len())
    }

    /// The mappings of a family's low window and usual arenas, that of the routines first.
    fn family_maps(&self, family: usize, table: Table, place: u64) -> Result<Vec<Map>, String> {
        let Some(Some(family)) = self.caches.families.get(family) else {
            return Err("no such family".into());
        };
        let low = family.layout().low;
        let (flags, prot) = (MAP_PRIVATE | place, PROT_READ | PROT_WRITE | PROT_EXEC);
        let behind = huge_table::TABLE;
        let mut maps = vec![Map {
            address: low + behind,
            bytes: Layout::BYTES - behind,
            prot,
            flags,
            offset: behind,
        }];
        maps.extend(table_maps(family, table, place));
        let usual = family.arenas.iter().take(family.kind.arenas.len());
        maps.extend(usual.map(|arena| arena_map(arena, place)));
        Ok(maps)
    }

    /// Takes everything of ours out of the address space of `tid`, which stands in its application
    /// state and is the last of its threads.
    pub fn take_down(&mut self, tid: Tid) -> Result<(), String> {
        let mappings = maps::read(tid);
        let site = find_syscall(tid, &mappings).ok_or("no system call instruction found")?;
        let mut injector = Injector::new(&self.tracees, tid, site, &Status::read(tid));
        for mapping in mappings.iter().filter(|mapping| is_ours(mapping)) {
            let bytes = mapping.end - mapping.start;
            injector.call([SYS_MUNMAP, mapping.start, bytes, 0, 0, 0, 0])?;
        }
        Ok(())
    }

    /// Gives an address space an arena for code of `unit`: one that its family has already, for
    /// another address space, or a new one. Other threads go on meanwhile, and may map something
    /// where there was room.
    pub fn add_arena(&mut self, tid: Tid, unit: UnitId, reach: Reach) -> Result<(), String> {
        const TRIES: usize = 16;
        let mut last = Err("no room for translated code near the program's".into());
        let mut careful = true;
        for attempt in 1..=TRIES {
            // The ranges may be without limits, and the calls that they are of long over.
            careful &= attempt < TRIES;
            let wanted =
                if careful { self.tasks.wanted_beside(&self.contexts, tid) } else { Vec::new() };
            let (space, family) = self.space_of(tid).ok_or("no such thread")?;
            let (known, extent) = (family.arena_of(unit), family.module(unit).extent);
            if known.is_some_and(|index| space.has_arena(index)) {
                return Ok(());
            }
            let mappings = maps::read(tid);
            let arena = match known {
                Some(index) => family.arenas[index].clone(),
                None => {
                    let taken = with_wanted(&mappings, &wanted);
                    match planned_arena(family, &taken, extent, reach) {
                        Err(_) if careful => {
                            careful = false;
                            continue;
                        }
                        arena => arena?,
                    }
                }
            };
            last = self.place_arena(tid, &mappings, &arena, careful);
            let (space, family) = self.space_of(tid).ok_or("no such thread")?;
            match (known, &last) {
                (Some(index), made) => {
                    space.note_arena(index, made.is_ok());
                    return last;
                }
                (None, Ok(())) => {
                    family.add_arena(arena.address, arena.bytes, arena.offset);
                    let index = family.arenas.len() - 1;
                    space.note_arena(index, true);
                    if reach == Reach::Any {
                        family.settle(unit, index);
                    }
                    return Ok(());
                }
                (None, Err(_)) => {}
            }
        }
        last
    }

    /// Has all code of `unit`, near which there is no room, translated into an arena from which it
    /// cannot be reached: the one with the most room, or a new one.
    pub fn settle_far(&mut self, tid: Tid, unit: UnitId) -> Result<(), String> {
        let (space, family) = self.space_of(tid).ok_or("no such thread")?;
        let room = |at: usize| family.arenas[at].left();
        let mapped = (0..family.arenas.len()).filter(|at| space.has_arena(*at));
        match mapped.max_by_key(|at| room(*at)).filter(|at| room(*at) >= LEAST_CHUNK) {
            Some(arena) => family.settle(unit, arena),
            None => self.add_arena(tid, unit, Reach::Any)?,
        }
        Ok(())
    }

    /// Maps an arena, after the threads have been told, and if none of them is about to map
    /// something there.
    fn place_arena(
        &mut self,
        tid: Tid,
        mappings: &[Mapping],
        arena: &Arena,
        careful: bool,
    ) -> Result<(), String> {
        let there = (arena.address, arena.address + arena.bytes);
        let index = self.tasks.space_index(tid).ok_or("no such thread")?;
        self.tell_arena(index, there);
        if careful
            && self
                .tasks
                .wanted_beside(&self.contexts, tid)
                .iter()
                .any(|range| overlap(*range, there))
        {
            return Err("the program is about to have something there".into());
        }
        let family = self.space_of(tid).ok_or("no such thread")?.1.index;
        self.map_arena(tid, family, mappings, arena)
    }

    /// Maps an arena into the address space of `tid`, where there is room for it.
    fn map_arena(
        &self,
        tid: Tid,
        family: usize,
        mappings: &[Mapping],
        arena: &Arena,
    ) -> Result<(), String> {
        let site = find_syscall(tid, mappings)
            .ok_or("no system call instruction found in the program's memory")?;
        let mut injector = Injector::new(&self.tracees, tid, site, &Status::read(tid));
        let fd = self.reopen_memory(&mut injector, family)?;
        let map = arena_map(arena, MAP_FIXED_NOREPLACE);
        let mapped = self.map_late(&mut injector, &map, fd);
        injector.call([SYS_MADVISE, map.address, map.bytes, MADV_DONTDUMP, 0, 0, 0])?;
        injector.call([SYS_CLOSE, fd, 0, 0, 0, 0, 0])?;
        mapped
    }

    /// Makes a mapping in a process that may have asked for all its future ones to be locked: ours
    /// are not to be, nor are they to take memory at once. Until the last of the calls nothing can
    /// be done with it.
    fn map_late(&self, injector: &mut Injector, map: &Map, fd: u64) -> Result<(), String> {
        let process =
            self.tasks.threads.get(&injector.tid).and_then(|it| self.tasks.processes.get(&it.pid));
        let space = process.and_then(|process| self.caches.spaces.get(process.space)?.as_ref());
        if !space.is_some_and(|space| space.locks_future) {
            return injector.map(std::slice::from_ref(map), fd);
        }
        let _more = LockedMemory::allow(injector.tid, map.bytes);
        injector.map(&[Map { prot: 0, ..*map }], fd)?;
        injector.call([SYS_MUNLOCK, map.address, map.bytes, 0, 0, 0, 0])?;
        injector.call([SYS_MPROTECT, map.address, map.bytes, map.prot, 0, 0, 0])?;
        Ok(())
    }

    /// Gives address space `index` another family, with nothing translated or at least not full.
    /// `tid`, one of its threads, stands in its application state; none is in translated code.
    pub fn flush(&mut self, tid: Tid, index: usize) -> Result<(), String> {
        let wanted = self.tasks.wanted_beside(&self.contexts, tid);
        let Some((space, family)) = self.caches.side(index) else {
            return Err("no such address space".into());
        };
        let (old, mut kind) = (family.index, family.kind.clone());
        let mapped: Vec<(u64, u64)> = (0..family.arenas.len())
            .filter(|arena| space.has_arena(*arena))
            .map(|arena| (family.arenas[arena].address, family.arenas[arena].bytes))
            .collect();
        let mappings = maps::read(tid);
        let mut taken = with_wanted(&mappings, &wanted);
        taken.retain(|mapping| !is_ours(mapping));
        let hit = |&(address, bytes, _): &(u64, u64, u64)| {
            wanted.iter().any(|range| overlap(*range, (address, address + bytes)))
        };
        if kind.arenas.iter().any(hit) {
            kind.arenas = plan_arenas(&taken, Anchors::of(tid));
        }
        let stays = |range: &&(u64, u64)| {
            kind.arenas.iter().any(|&(address, bytes, _)| (address, bytes) == **range)
        };
        let surplus: Vec<(u64, u64)> = mapped.iter().filter(|it| !stays(it)).copied().collect();
        let site = find_syscall(tid, &mappings).ok_or("no system call instruction found")?;
        let usable = |family: &Option<Family>| {
            family.as_ref().is_some_and(|family| family.index != old && !family.is_full())
        };
        if !self
            .caches
            .layouts
            .get(&kind)
            .is_some_and(|index| usable(&self.caches.families[*index]))
        {
            self.caches.layouts.remove(&kind);
        }
        let new = self.family_for(kind.clone())?;
        let mut injector = Injector::new(&self.tracees, tid, site, &Status::read(tid));
        let fd = self.reopen_memory(&mut injector, new)?;
        for (address, bytes) in surplus {
            injector.call([SYS_MUNMAP, address, bytes, 0, 0, 0, 0])?;
        }
        for map in self.family_maps(new, Table::Empty, MAP_FIXED)? {
            self.map_late(&mut injector, &map, fd)?;
        }
        if let Some(Some(of)) = self.caches.families.get(new) {
            injector.calls(&undumped(of))?;
        }
        injector.call([SYS_CLOSE, fd, 0, 0, 0, 0, 0])?;
        let all = self.tasks.threads.keys().copied();
        let here: Vec<Tid> =
            all.filter(|tid| self.tasks.space_index(*tid) == Some(index)).collect();
        for tid in here {
            if let Some(slot) = self.tasks.threads.get(&tid).map(|thread| thread.slot) {
                self.keep_counts(tid, slot);
            }
        }
        if let Some(Some(space)) = self.caches.spaces.get_mut(index) {
            space.flush(new, kind.arenas.len());
        }
        self.drop_family(old);
        self.tasks.forget_cuts(&self.contexts);
        Ok(())
    }

    /// Frees a family that no address space uses any more.
    fn drop_family(&mut self, index: usize) {
        if self.caches.spaces.iter().flatten().any(|space| space.family == index) {
            return;
        }
        self.caches.layouts.retain(|_, family| *family != index);
        self.caches.families[index] = None;
    }

    /// The family of this kind, made if it is new.
    fn family_for(&mut self, kind: Kind) -> Result<usize, String> {
        if let Some(&index) = self.caches.layouts.get(&kind) {
            return Ok(index);
        }
        let free = self.caches.families.iter().position(Option::is_none);
        let index = free.unwrap_or(self.caches.families.len());
        if index >= FAMILIES {
            return Err("too many different address space layouts at a time".into());
        }
        let prepared = match index == 0 && kind.basis == self.first_basis() {
            true => self.caches.prepared.take(),
            false => None,
        };
        let mut family = match prepared {
            Some(family) => family,
            None => Family::new(index, &kind.basis, self.processor.emulated)
                .map_err(|error| format!("no memory for translated code: {error}"))?,
        };
        for &(address, bytes, offset) in &kind.arenas {
            family.add_arena(address, bytes, offset);
        }
        family.kind = kind.clone();
        if let Some(fragments) = self.config.trials.waste {
            family.weigh_waste_after(fragments);
        }
        let watched = self.config.watches().then(|| crate::lwp::watched_config(&self.config));
        if let Some(lwp) = self.config.lwp.as_ref().or(watched.as_ref()) {
            family.watch_cache(crate::lwp::masks(&lwp.caches.levels[0].shape));
        }
        family.store = self.caches.store.clone();
        family.sampled_code = self.config.sampled_code;
        family.within.clone_from(&self.config.within);
        family.evaluators = Evaluators::of(&self.config, self.plan() == lwp_dbt::Plan::Calls);
        let places = self.observers.profiler.is_some() && !self.config.samples();
        if places {
            family.keep_origins();
        }
        if family.store.is_some() {
            family.translator.learn();
        }
        if index == self.caches.families.len() {
            self.caches.families.push(Some(family));
        } else {
            self.caches.families[index] = Some(family);
        }
        self.caches.layouts.insert(kind, index);
        Ok(index)
    }
}

/// Flags of open(2), for files that the program is to read and for its contexts.
const READ_ONLY: u64 = 0o2_000_000;
const READ_WRITE: u64 = 0o2_000_002;

/// The path by which a tracee opens `descriptor`, one of ours, and a NUL.
pub fn path_of(descriptor: RawFd) -> String {
    format!("/proc/{}/fd/{descriptor}\0", std::process::id())
}

/// Opens `descriptor`, one of ours, in a tracee whose registers are `regs`: nothing of ours is
/// mapped there yet, so the path goes onto its stack for a moment.
fn open_on_stack(
    injector: &mut Injector,
    regs: &Regs,
    descriptor: RawFd,
    flags: u64,
) -> Result<u64, String> {
    let path = path_of(descriptor);
    // Below the red zone of whatever runs there.
    let scratch = (regs.0.rsp - crate::inject::RED_ZONE) & !15;
    let tid = injector.tid;
    let mut saved = vec![0; path.len().max(RECEIVE_BYTES)];
    memory::read_exact(tid, scratch, &mut saved)
        .or_else(|_| memory::write_exact(tid, scratch, path.as_bytes()))
        .map_err(|error| format!("writing to the program's stack: {error}"))?;
    memory::write_exact(tid, scratch, path.as_bytes())
        .map_err(|error| format!("writing to the program's stack: {error}"))?;
    let fd = opened(injector, scratch, descriptor, flags);
    let _ = memory::write_exact(tid, scratch, &saved);
    fd
}

/// Opens the file whose path is at `scratch`, `descriptor` of ours, or has it handed over where the
/// program has no such path.
fn opened(
    injector: &mut Injector,
    scratch: u64,
    descriptor: RawFd,
    flags: u64,
) -> Result<u64, String> {
    injector.open(scratch, flags).or_else(|open| {
        let received = match flags {
            // Opened anew, it shows for as long as the program has it.
            READ_WRITE => shm::open_again(descriptor)
                .map_err(|error| error.to_string())
                .and_then(|own| injector.receive(own.as_raw_fd(), scratch)),
            _ => injector.receive(descriptor, scratch),
        };
        received.map_err(|reason| format!("{open}; nor can it be handed over: {reason}"))
    })
}

/// The mapping of those contexts that are in use.
fn contexts_map(contexts: &ContextFile) -> Map {
    Map {
        address: CONTEXTS_AT,
        bytes: slot_offset(contexts.wanted()),
        prot: PROT_READ | PROT_WRITE,
        flags: MAP_SHARED | MAP_FIXED_NOREPLACE,
        offset: 0,
    }
}

/// Maps an address space's contexts, which are open at `fd`, into it, and closes `fd`.
fn map_contexts(injector: &mut Injector, contexts: &ContextFile, fd: u64) -> Result<(), String> {
    let map = contexts_map(contexts);
    injector.map(&[map], fd)?;
    injector.call([SYS_CLOSE, fd, 0, 0, 0, 0, 0])?;
    injector.call([SYS_MADVISE, map.address, map.bytes, MADV_DONTDUMP, 0, 0, 0])?;
    Ok(())
}

/// Makes `calls`, the last of which closes `fd`, and maps the contexts in the same stop if that can
/// be: as nothing else runs in the process, the next file to be opened has the same number. Says
/// whether they have been mapped.
fn with_contexts(
    injector: &mut Injector,
    calls: Vec<Call>,
    contexts: &ContextFile,
    fd: u64,
) -> Result<(Vec<i64>, bool), String> {
    let map = contexts_map(contexts);
    let before = calls.len();
    let all = |path: u64| {
        let mut all = calls.clone();
        all.push([SYS_OPEN, path, READ_WRITE, 0, 0, 0, 0]);
        all.push(map.call(fd));
        all.push([SYS_CLOSE, fd, 0, 0, 0, 0, 0]);
        all.push([SYS_MADVISE, map.address, map.bytes, MADV_DONTDUMP, 0, 0, 0]);
        all
    };
    let Some(results) = injector.calls_about(path_of(contexts.fd()).as_bytes(), all) else {
        return Ok((injector.calls(&calls)?, false));
    };
    let mut results = results?;
    let (opened, mapped) = (results[before], results[before + 1]);
    results.truncate(before);
    if opened >= 0 && opened as u64 != fd {
        injector.call([SYS_CLOSE, opened as u64, 0, 0, 0, 0, 0])?;
    }
    if opened as u64 == fd {
        map.check(mapped)?;
    }
    Ok((results, opened as u64 == fd))
}

/// Leaves the program's gs selector as it is where the kernel keeps a segment's base apart from its
/// selector; clears it elsewhere, where a selector would bring a base of its own.
pub fn keep_base(cache: &mut Regs) {
    if !sys::bases_are_apart() {
        cache.0.gs = 0;
    }
}

/// The mappings that make a family's indirect table.
fn table_maps(family: &Family, table: Table, place: u64) -> Vec<Map> {
    let low = family.layout().low;
    let (flags, prot) = (MAP_PRIVATE | place, PROT_READ | PROT_WRITE | PROT_EXEC);
    let bytes = huge_table::TABLE;
    match table {
        Table::Prepared((offset, chain_bytes)) => {
            let whole = Map { address: low, bytes, prot, flags, offset };
            // Over the usual ones.
            let flags = MAP_PRIVATE | MAP_FIXED;
            let chains = family.layout().chain_slot(0) - low;
            let (address, offset) = (low + chains, offset + chains);
            vec![whole, Map { address, bytes: chain_bytes, prot, flags, offset }]
        }
        Table::Huge => Vec::new(),
        // It is the same all over.
        Table::Empty => (0..bytes)
            .step_by(EMPTY_TABLE as usize)
            .map(|at| Map { address: low + at, bytes: EMPTY_TABLE, prot, flags, offset: 0 })
            .collect(),
    }
}

/// The mapping of an arena into an address space.
fn arena_map(arena: &Arena, place: u64) -> Map {
    Map {
        address: arena.address,
        bytes: arena.bytes,
        prot: PROT_READ | PROT_EXEC,
        flags: MAP_SHARED | place,
        offset: arena.offset,
    }
}

/// The calls that keep a family's low window and usual arenas out of core dumps.
fn undumped(family: &Family) -> Vec<Call> {
    let usual = family.arenas.iter().take(family.kind.arenas.len());
    let arenas = usual.map(|arena| (arena.address, arena.bytes));
    std::iter::once((family.layout().low, Layout::BYTES))
        .chain(arenas)
        .map(|(address, bytes)| [SYS_MADVISE, address, bytes, MADV_DONTDUMP, 0, 0, 0])
        .collect()
}

/// The address of a `syscall` instruction in the tracee.
pub fn find_syscall(tid: Tid, mappings: &[Mapping]) -> Option<u64> {
    let vdso_first = mappings
        .iter()
        .filter(|m| m.name == "[vdso]")
        .chain(mappings.iter().filter(|m| m.execute && m.name != "[vdso]"));
    for mapping in vdso_first {
        if mapping.start >= crate::space::VSYSCALL || is_ours(mapping) {
            continue;
        }
        let mut at = mapping.start;
        let mut page = [0u8; 4096];
        while at < mapping.end.min(mapping.start + (4 << 20)) {
            if memory::read_exact(tid, at, &mut page).is_err() {
                break;
            }
            if let Some(index) = page.windows(2).position(|pair| pair == [0x0f, 0x05]) {
                return Some(at + index as u64);
            }
            at += 4096;
        }
    }
    None
}
