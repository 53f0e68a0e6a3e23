//! Maps the contexts of an address space into it: for further threads, and again for the child of a
//! fork.

use lwp_dbt::routines::NAME_TAG_BYTES;
use lwp_mailbox::contexts::{ContextFile, FileId};
use lwp_mailbox::memory_map::{
    CONTEXTS_AT, CONTEXTS_BYTES, NAME_TAG_AT, SLOTS, is_ours, mapped_slots, slot_offset,
};
use lwp_process::inject::{Call, Injector, Map};
use lwp_process::maps::{self, Mapping, Status};
use lwp_process::regs::Regs;
use lwp_process::{Tid, limits};

use super::mapping::{Mapper, READ_WRITE, open_on_stack, path_of, verify};
use super::{
    MADV_DONTDUMP, MADV_DONTFORK, MAP_FIXED_NOREPLACE, MAP_PRIVATE, MAP_SHARED, PROT_READ,
    PROT_WRITE, SYS_CLOSE, SYS_MADVISE, SYS_MUNMAP, find_syscall,
};
use crate::machine::{CodeCaches, Machine, Tasks};

const SYS_OPEN: u64 = 2;
const SYS_MREMAP: u64 = 25;

/// Maps more of the contexts into the address space of `tid`, which stands still, where its own
/// is not among those that are mapped.
pub fn grow_contexts(machine: &mut Machine, tid: Tid) -> Result<(), String> {
    let own = machine.context(tid).ok_or("no such thread")?.local();
    grow_contexts_to(machine, tid, mapped_slots(own))
}

/// Maps as many of the contexts into the address space of `tid`, which stands still.
pub fn grow_contexts_to(machine: &mut Machine, tid: Tid, wanted: usize) -> Result<(), String> {
    let pid = machine.tasks.threads.get(&tid).ok_or("no such thread")?.pid;
    let space = machine.tasks.processes.get(&pid).ok_or("no such process")?.space;
    let Some(Some(space)) = machine.caches.spaces.get(space) else {
        return Err("no such address space".into());
    };
    let mapped = space.contexts;
    if wanted <= mapped {
        return Ok(());
    }
    let more = slot_offset(wanted) - slot_offset(mapped);
    limits::raise_address_space(tid, more);
    let mappings = maps::read(tid);
    let site = find_syscall(tid, &mappings)?;
    let mut injector = Injector::new(&machine.tracees, tid, site, &Status::read(tid));
    let (old, new) = (slot_offset(mapped), slot_offset(wanted));
    injector.call([SYS_MREMAP, CONTEXTS_AT, old, new, 0, 0, 0])?;
    drop(injector);
    machine.caches.note_contexts(&machine.tasks, tid, wanted);
    Ok(())
}

/// Maps the contexts of a copy that fork has made from outside. It stands still, and its only
/// thread has executed nothing but what has left `left_open`, a descriptor.
pub fn move_in(
    machine: &mut Machine,
    tid: Tid,
    regs: &Regs,
    left_open: Option<u64>,
) -> Result<(), String> {
    let contexts = machine.tasks.contexts_of(tid).ok_or("no such process")?;
    let file = machine.contexts.files.get(contexts).ok_or("no contexts")?;
    let mappings = maps::read(tid);
    let site = find_syscall(tid, &mappings)?;
    let mut injector = Injector::new(&machine.tracees, tid, site, &Status::read(tid));
    if let Some(fd) = left_open.filter(|fd| (*fd as i64) >= 0) {
        injector.call([SYS_CLOSE, fd, 0, 0, 0, 0, 0])?;
    }
    let fd = open_on_stack(&mut injector, regs, file.fd(), READ_WRITE)?;
    machine.mapper().unmap_contexts(&mut injector, &mappings)?;
    let mapped = machine.mapper().slots_for(tid);
    map_contexts(&mut injector, file, mapped, fd)?;
    drop(injector);
    machine.caches.note_contexts(&machine.tasks, tid, mapped);
    Ok(())
}

impl Mapper<'_> {
    /// The number of slots that the address space of `tid` is to have mapped: that of its
    /// contexts, and no fewer than the one that it is a copy of, since its limits allow for those.
    pub fn slots_for(&self, tid: Tid) -> usize {
        let makers = self.tasks.base_space(tid).and_then(|base| self.caches.spaces.get(base));
        let makers = makers.and_then(Option::as_ref).map_or(0, |space| space.contexts);
        let file = self.tasks.contexts_of(tid).and_then(|id| self.contexts.files.get(id));
        file.map_or(0, ContextFile::wanted).max(makers)
    }

    /// Takes whatever contexts there are out of an address space.
    fn unmap_contexts(&self, injector: &mut Injector, mappings: &[Mapping]) -> Result<(), String> {
        let end = CONTEXTS_AT + slot_offset(SLOTS);
        let ours = |mapping: &&Mapping| mapping.start < end && NAME_TAG_AT < mapping.end;
        // The name tag may be of a file that is gone.
        let known = |mapping: &&Mapping| is_ours(mapping) || mapping.start == NAME_TAG_AT;
        for mapping in mappings.iter().filter(ours).filter(known) {
            let bytes = mapping.end - mapping.start;
            injector.call([SYS_MUNMAP, mapping.start, bytes, 0, 0, 0, 0])?;
        }
        Ok(())
    }
}

impl Tasks {
    /// The contexts of a thread's address space.
    pub fn contexts_of(&self, tid: Tid) -> Option<FileId> {
        let pid = self.threads.get(&tid)?.pid;
        Some(self.processes.get(&pid)?.contexts)
    }
}

impl CodeCaches {
    /// Notes how many slots of its contexts the address space of `tid` has mapped.
    pub fn note_contexts(&mut self, tasks: &Tasks, tid: Tid, mapped: usize) {
        let Some(process) = tasks.threads.get(&tid).and_then(|it| tasks.processes.get(&it.pid))
        else {
            return;
        };
        if let Some(Some(space)) = self.spaces.get_mut(process.space) {
            space.contexts = mapped;
        }
    }
}

/// The mapping of so many contexts, and the one that tells whose they are.
fn contexts_maps(slots: usize) -> [Map; 2] {
    let contexts = Map {
        address: CONTEXTS_AT,
        bytes: slot_offset(slots),
        prot: PROT_READ | PROT_WRITE,
        flags: MAP_SHARED | MAP_FIXED_NOREPLACE,
        offset: 0,
    };
    let name_tag = Map {
        address: NAME_TAG_AT,
        bytes: NAME_TAG_BYTES,
        prot: 0,
        flags: MAP_PRIVATE | MAP_FIXED_NOREPLACE,
        offset: CONTEXTS_BYTES,
    };
    [contexts, name_tag]
}

/// The calls that keep contexts out of core dumps, and out of the copies that fork makes: whatever
/// becomes of those, they never reach their maker's.
fn kept_apart(map: &Map) -> [Call; 2] {
    let advise = |advice| [SYS_MADVISE, map.address, map.bytes, advice, 0, 0, 0];
    [advise(MADV_DONTDUMP), advise(MADV_DONTFORK)]
}

/// Maps `slots` of an address space's contexts, which are open at `fd`, into it, and closes `fd`.
pub(super) fn map_contexts(
    injector: &mut Injector,
    contexts: &ContextFile,
    slots: usize,
    fd: u64,
) -> Result<(), String> {
    let maps = contexts_maps(slots);
    let mapped = injector.map(&maps, fd);
    injector.call([SYS_CLOSE, fd, 0, 0, 0, 0, 0])?;
    mapped?;
    verify(injector, contexts.inode(), &maps)?;
    for call in kept_apart(&maps[0]) {
        injector.call(call)?;
    }
    Ok(())
}

/// Makes `calls`, the last of which closes `fd`, and maps the contexts in the same stop if that can
/// be: as nothing else runs in the process, the next file to be opened has the same number. Says
/// whether they have been mapped.
pub(super) fn with_contexts(
    injector: &mut Injector,
    calls: Vec<Call>,
    contexts: &ContextFile,
    fd: u64,
) -> Result<(Vec<i64>, bool), String> {
    let maps = contexts_maps(contexts.wanted());
    let before = calls.len();
    let all = |path: u64| {
        let mut all = calls.clone();
        all.push([SYS_OPEN, path, READ_WRITE, 0, 0, 0, 0]);
        all.extend(maps.iter().map(|map| map.call(fd)));
        all.push([SYS_CLOSE, fd, 0, 0, 0, 0, 0]);
        all.extend(kept_apart(&maps[0]));
        all
    };
    let path = path_of(contexts.fd());
    let made = injector.sees_our_files().then(|| injector.calls_about(path.as_bytes(), all));
    let Some(results) = made.flatten() else {
        return Ok((injector.calls(&calls)?, false));
    };
    let mut results = results?;
    let made = results.split_off(before);
    let opened = made[0];
    if opened >= 0 && opened as u64 != fd {
        injector.call([SYS_CLOSE, opened as u64, 0, 0, 0, 0, 0])?;
    }
    if opened as u64 == fd {
        maps.iter()
            .zip(&made[1..])
            .try_for_each(|(map, result)| injector.has_made(map, *result))?;
        verify(injector, contexts.inode(), &maps)?;
    }
    Ok((results, opened as u64 == fd))
}
