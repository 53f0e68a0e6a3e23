//! Maps lwp's memory into an address space whose thread stands still, and unmaps it.

use std::os::fd::RawFd;
use std::sync::Arc;

use lwp_code::arena::Arena;
use lwp_code::family::Family;
use lwp_dbt::Layout;
use lwp_mailbox::contexts::{Contexts, FileId};
use lwp_mailbox::huge_table;
use lwp_mailbox::memory_map::EMPTY_TABLE;
use lwp_mailbox::memory_map::is_ours;
use lwp_process::inject::{Call, Injector, Map, RECEIVE_BYTES, RED_ZONE};
use lwp_process::limits::LockedMemory;
use lwp_process::mapped::Expected;
use lwp_process::maps::{self, Status};
use lwp_process::regs::Regs;
use lwp_process::shm::Inode;
use lwp_process::{Tid, Tracees, memory};

use super::contexts::{map_contexts, with_contexts};
use super::{
    MADV_DONTDUMP, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_PRIVATE, MAP_SHARED, PROT_EXEC, PROT_READ,
    PROT_WRITE, SYS_CLOSE, SYS_MADVISE, SYS_MUNMAP, Table, find_syscall_of_program,
};
use crate::machine::{CodeCaches, Machine, Tasks};

/// Flags of open(2), for files that the program is to read and for its contexts. Whatever is opened,
/// nobody waits for it.
pub(super) const READ_ONLY: u64 = 0o2_004_000;
pub(super) const READ_WRITE: u64 = 0o2_004_002;
const SYS_MPROTECT: u64 = 10;
const SYS_MUNLOCK: u64 = 150;

/// Maps memory of ours into address spaces whose threads stand still, and takes it out of them.
#[derive(Clone, Copy, Debug)]
pub struct Mapper<'a> {
    pub(super) tasks: &'a Tasks,
    pub(super) caches: &'a CodeCaches,
    pub(super) contexts: &'a Contexts,
    pub(super) tracees: &'a Arc<dyn Tracees>,
}

impl Machine {
    /// Returns the means to map memory of ours.
    pub fn mapper(&self) -> Mapper<'_> {
        let Self { tasks, caches, contexts, tracees, .. } = self;
        Mapper { tasks, caches, contexts, tracees }
    }
}

impl Mapper<'_> {
    pub(super) fn map_into(
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
        let fd = open_on_stack(injector, regs, of.arenas.memory.fd(), READ_ONLY)?;
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
        maps.iter().zip(&results).try_for_each(|(map, result)| injector.has_made(map, *result))?;
        if matches!(table, Table::Huge)
            && !huge_table::is_made(of.layout().low, &results[maps.len()..made])
        {
            let fd = open_on_stack(injector, regs, of.arenas.memory.fd(), READ_ONLY)?;
            injector.map(&table_maps(of, Table::Empty, MAP_FIXED), fd)?;
            injector.calls(&undumped(of))?;
            injector.call([SYS_CLOSE, fd, 0, 0, 0, 0, 0])?;
        }
        if !opened {
            let fd = open_on_stack(injector, regs, contexts.fd(), READ_WRITE)?;
            map_contexts(injector, contexts, contexts.wanted(), fd)?;
        }
        // In a process that has been attached to, other threads have gone on.
        verify(injector, of.arenas.memory.file().inode(), &self.family_maps(family, table, 0)?)
    }

    /// Opens the file of the family with number `family` in a tracee whose context is mapped
    /// already.
    pub(super) fn reopen_memory(
        &self,
        injector: &mut Injector,
        family: usize,
    ) -> Result<u64, String> {
        let context = self.tasks.context(self.contexts, injector.tid).ok_or("no such thread")?;
        let Some(Some(family)) = self.caches.families.get(family) else {
            return Err("no such family".into());
        };
        let fd = family.arenas.memory.fd();
        let path = context.write_scratch(path_of(fd).as_bytes());
        opened(injector, path, fd, READ_ONLY)
    }

    /// The mappings of a family's low window and usual arenas, that of the routines first.
    pub(super) fn family_maps(
        &self,
        family: usize,
        table: Table,
        place: u64,
    ) -> Result<Vec<Map>, String> {
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
    pub fn take_down(&self, tid: Tid) -> Result<(), String> {
        let mappings = maps::read(tid);
        let site = find_syscall_of_program(tid, &mappings)?;
        let mut injector = Injector::new(self.tracees, tid, site, &Status::read(tid));
        for mapping in mappings.iter().filter(|mapping| is_ours(mapping)) {
            let bytes = mapping.end - mapping.start;
            injector.call([SYS_MUNMAP, mapping.start, bytes, 0, 0, 0, 0])?;
        }
        Ok(())
    }

    /// Makes a mapping in a process that may have asked for all its future ones to be locked: ours
    /// are not to be, nor are they to take memory at once. Until the last of the calls nothing can
    /// be done with it.
    pub(super) fn map_late(
        &self,
        injector: &mut Injector,
        map: &Map,
        fd: u64,
    ) -> Result<(), String> {
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
}

/// Fails unless `maps` are of `file` in the tracee. Whoever shares its descriptors may have put
/// another file in the place of ours before it was mapped, and nothing of that may be executed or
/// believed.
pub(super) fn verify(injector: &Injector, file: Inode, maps: &[Map]) -> Result<(), String> {
    let expected = |map: &Map| Expected { address: map.address, offset: map.offset };
    let parts: Vec<Expected> = maps.iter().map(expected).collect();
    match injector.has_mapped(file, &parts) {
        true => Ok(()),
        false => Err("another file has been mapped in the place of the virtual CPU's".into()),
    }
}

/// The path by which a tracee opens `descriptor`, one of ours, and a NUL.
pub fn path_of(descriptor: RawFd) -> String {
    format!("/proc/{}/fd/{descriptor}\0", std::process::id())
}

/// Opens `descriptor`, one of ours, in a tracee whose registers are `regs`: nothing of ours is
/// mapped there yet, so the path goes onto its stack for a moment.
pub(super) fn open_on_stack(
    injector: &mut Injector,
    regs: &Regs,
    descriptor: RawFd,
    flags: u64,
) -> Result<u64, String> {
    let path = path_of(descriptor);
    // Below the red zone of whatever runs there.
    let scratch = (regs.0.rsp - RED_ZONE) & !15;
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
        let received = injector.receive(descriptor, scratch);
        received.map_err(|reason| format!("{open}; nor can it be handed over: {reason}"))
    })
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
pub(super) fn arena_map(arena: &Arena, place: u64) -> Map {
    Map {
        address: arena.address,
        bytes: arena.bytes,
        prot: PROT_READ | PROT_EXEC,
        flags: MAP_SHARED | place,
        offset: arena.offset,
    }
}

/// The calls that keep a family's low window and usual arenas out of core dumps.
pub(super) fn undumped(family: &Family) -> Vec<Call> {
    let usual = family.arenas.iter().take(family.kind.arenas.len());
    let arenas = usual.map(|arena| (arena.address, arena.bytes));
    std::iter::once((family.layout().low, Layout::BYTES))
        .chain(arenas)
        .map(|(address, bytes)| [SYS_MADVISE, address, bytes, MADV_DONTDUMP, 0, 0, 0])
        .collect()
}
