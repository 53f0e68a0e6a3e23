//! The contexts of an address space, mapped into it: for more threads, and anew for a copy that
//! fork has made.

use lwp_ptrace::regs::Regs;
use lwp_ptrace::{Tid, limits};

use super::mapping::{Mapper, READ_WRITE, open_on_stack, path_of};
use super::{
    MADV_DONTDUMP, MAP_FIXED_NOREPLACE, MAP_SHARED, PROT_READ, PROT_WRITE, SYS_CLOSE, SYS_MADVISE,
    SYS_MUNMAP, SYS_OPEN, find_syscall,
};
use crate::contexts::{ContextFile, FileId};
use crate::inject::{Call, Injector, Map};
use crate::machine::{CodeCaches, Machine, Tasks};
use crate::maps::{self, Mapping, Status};
use crate::memory_map::{CONTEXTS_AT, SLOTS, is_ours, mapped_slots, slot_offset};

const SYS_MREMAP: u64 = 25;

/// Maps more of the contexts into the address space of `tid`, which stands still, where its own
/// is not among those that are mapped.
pub fn grow_contexts(machine: &mut Machine, tid: Tid) -> Result<(), String> {
    let pid = machine.tasks.threads.get(&tid).ok_or("no such thread")?.pid;
    let space = machine.tasks.processes.get(&pid).ok_or("no such process")?.space;
    let Some(Some(space)) = machine.caches.spaces.get(space) else {
        return Err("no such address space".into());
    };
    let own = machine.context(tid).ok_or("no such thread")?.local();
    let (mapped, wanted) = (space.contexts, mapped_slots(own));
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
    injector.call([SYS_MADVISE, CONTEXTS_AT, new, MADV_DONTDUMP, 0, 0, 0])?;
    drop(injector);
    machine.caches.note_contexts(&machine.tasks, tid, wanted);
    Ok(())
}

/// Replaces the contexts that a process was made with by its own, from outside. It stands
/// still, and its only thread has executed nothing but what has left `left_open`, a descriptor.
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
    map_contexts(&mut injector, file, fd)?;
    drop(injector);
    let mapped = file.wanted();
    machine.caches.note_contexts(&machine.tasks, tid, mapped);
    Ok(())
}

impl Mapper<'_> {
    /// Takes whatever contexts there are out of an address space.
    fn unmap_contexts(&self, injector: &mut Injector, mappings: &[Mapping]) -> Result<(), String> {
        let end = CONTEXTS_AT + slot_offset(SLOTS);
        let ours = |mapping: &&Mapping| mapping.start < end && CONTEXTS_AT < mapping.end;
        for mapping in mappings.iter().filter(ours).filter(|mapping| is_ours(mapping)) {
            let bytes = mapping.end - mapping.start;
            injector.call([SYS_MUNMAP, mapping.start, bytes, 0, 0, 0, 0])?;
        }
        Ok(())
    }

    /// Takes the contexts out of a process that goes on natively.
    pub fn leave_contexts(&self, tid: Tid) -> Result<(), String> {
        let mappings = maps::read(tid);
        let site = find_syscall(tid, &mappings)?;
        let mut injector = Injector::new(self.tracees, tid, site, &Status::read(tid));
        self.unmap_contexts(&mut injector, &mappings)
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
pub(super) fn map_contexts(
    injector: &mut Injector,
    contexts: &ContextFile,
    fd: u64,
) -> Result<(), String> {
    let map = contexts_map(contexts);
    injector.map(&[map], fd)?;
    injector.call([SYS_CLOSE, fd, 0, 0, 0, 0, 0])?;
    injector.call([SYS_MADVISE, map.address, map.bytes, MADV_DONTDUMP, 0, 0, 0])?;
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
