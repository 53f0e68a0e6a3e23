//! Sides of an address space, on which threads with a Lightweight Profiling profile run.

use lwp_code::arena_placement::{Anchors, low_for_side, plan_side, with_wanted};
use lwp_code::family::{Basis, Family, Kind};
use lwp_dbt::{Lwp, Selection};
use lwp_mailbox::memory_map::LOW_WINDOWS;
use lwp_process::Tid;
use lwp_process::inject::Injector;
use lwp_process::maps::{self, Status};

use super::families::family_for;
use super::mapping::{Mapper, undumped, verify};
use super::{
    MAP_FIXED, MAP_FIXED_NOREPLACE, SYS_CLOSE, SYS_MUNMAP, Table, find_syscall_of_program,
};
use crate::machine::{CodeCaches, Machine, Tasks};

/// Address and bytes.
type Range = (u64, u64);

/// The reason why a side could not be mapped.
#[derive(Debug)]
enum SideError {
    /// Something has come to lie where there was room.
    Taken(String),
    /// Something else, which would be the same again.
    Other(String),
}

impl SideError {
    fn into_reason(self) -> String {
        match self {
            Self::Taken(reason) | Self::Other(reason) => reason,
        }
    }
}

impl From<String> for SideError {
    fn from(reason: String) -> Self {
        Self::Other(reason)
    }
}

/// Makes the side of an address space that threads with profiling on run on, where `selection`
/// is counted down. The thread stands in its application state; other threads go on meanwhile,
/// and may map something where there was room.
pub fn add_side(machine: &mut Machine, tid: Tid, selection: Selection) -> Result<(), String> {
    const TRIES: usize = 16;
    let pid = machine.tasks.threads.get(&tid).map_or(tid, |thread| thread.pid);
    let base =
        machine.tasks.processes.get(&pid).map(|process| process.space).ok_or("no such process")?;
    machine.tasks.forget_cuts(&machine.contexts);
    let mut mapped = map_side(machine, tid, base, selection);
    for _ in 1..TRIES {
        if !matches!(mapped, Err(SideError::Taken(_))) {
            break;
        }
        mapped = map_side(machine, tid, base, selection);
    }
    let family = mapped.map_err(SideError::into_reason)?;
    let arenas = machine.caches.usual_arenas(family);
    let side = match machine.caches.spaces.get(base) {
        Some(Some(space)) => space.side(family, arenas),
        _ => return Err("no such address space".into()),
    };
    let index = machine.caches.add(side);
    if let Some(Some(space)) = machine.caches.spaces.get_mut(base) {
        space.sides.push((selection, index));
        space.code.tell_again();
    }
    machine.lists().tell_code(base);
    Ok(())
}

/// Maps such a side, and returns its family. Where that fails nothing of it is left.
fn map_side(
    machine: &mut Machine,
    tid: Tid,
    base: usize,
    selection: Selection,
) -> Result<usize, SideError> {
    let Some(Some(space)) = machine.caches.spaces.get(base) else {
        return Err("no such address space".to_owned().into());
    };
    let windows = space.sides.len() + 1;
    let Some(Some(Family { kind: Kind { owner, basis, .. }, .. })) =
        machine.caches.families.get(space.family)
    else {
        return Err("no such family".to_owned().into());
    };
    let (owner, dispatches) = (owner.clone(), basis.dispatches);
    let mappings = maps::read(tid);
    let site = find_syscall_of_program(tid, &mappings)?;
    let (lwp, plan) = (Lwp::On(selection), machine.observers.plan_of_code(&machine.config));
    let room = low_for_side(&mappings).filter(|_| windows < LOW_WINDOWS);
    let mut surplus = Vec::new();
    let (kind, place) = match room {
        Some(layout) => {
            let taken =
                with_wanted(&mappings, &machine.tasks.wanted_beside(&machine.contexts, tid));
            let arenas = plan_side(&taken, Anchors::of(tid));
            (
                Kind { basis: Basis { plan, lwp, layout, dispatches }, owner, arenas },
                MAP_FIXED_NOREPLACE,
            )
        }
        None => {
            let (retired, later) = machine.caches.retire_side(&machine.tasks, base)?;
            surplus = later;
            let Kind { basis: Basis { layout, .. }, arenas, .. } = retired;
            (Kind { basis: Basis { plan, lwp, layout, dispatches }, owner, arenas }, MAP_FIXED)
        }
    };
    let is_new = !machine.caches.layouts.contains_key(&kind);
    let family = family_for(machine, kind)?;
    let made = machine.mapper().map_family(tid, site, family, place);
    if !surplus.is_empty() {
        let mut injector = Injector::new(&machine.tracees, tid, site, &Status::read(tid));
        for (address, bytes) in surplus {
            injector.call([SYS_MUNMAP, address, bytes, 0, 0, 0, 0])?;
        }
    }
    if made.is_err() && is_new {
        machine.caches.drop_family(family);
    }
    made.map(|()| family)
}

impl Mapper<'_> {
    /// Maps a family's low window and arenas into the address space of `tid`, all of them or none.
    fn map_family(&self, tid: Tid, site: u64, family: usize, place: u64) -> Result<(), SideError> {
        let maps = self.family_maps(family, Table::Empty, place)?;
        let mut injector = Injector::new(self.tracees, tid, site, &Status::read(tid));
        let fd = self.reopen_memory(&mut injector, family)?;
        let mut failed = None;
        for (done, map) in maps.iter().enumerate() {
            if let Err(reason) = self.map_late(&mut injector, map, fd) {
                failed = Some((done, reason));
                break;
            }
        }
        if let (None, Some(Some(of))) = (&failed, self.caches.families.get(family)) {
            injector.calls(&undumped(of))?;
            let verified = verify(&injector, of.arenas.memory.file().inode(), &maps);
            failed = verified.err().map(|reason| (maps.len(), reason));
        }
        // What was there before is gone where it was mapped over.
        if let Some((done, _)) = failed.as_ref().filter(|_| place == MAP_FIXED_NOREPLACE) {
            for map in &maps[..*done] {
                injector.call([SYS_MUNMAP, map.address, map.bytes, 0, 0, 0, 0])?;
            }
        }
        injector.call([SYS_CLOSE, fd, 0, 0, 0, 0, 0])?;
        match failed {
            None => Ok(()),
            Some((_, reason)) if place == MAP_FIXED_NOREPLACE => Err(SideError::Taken(reason)),
            Some((_, reason)) => Err(SideError::Other(reason)),
        }
    }
}

impl CodeCaches {
    /// Takes a side that no thread runs on out of an address space; a new one is to be mapped over
    /// it in one step, since a thread may still wait in its routines, which are the same. Returns
    /// where it has other arenas than its first, which nothing is mapped over.
    fn retire_side(&mut self, tasks: &Tasks, base: usize) -> Result<(Kind, Vec<Range>), String> {
        let in_use = |side: usize| tasks.threads.values().any(|thread| thread.side == Some(side));
        let Some(space) = &self.spaces[base] else {
            return Err("no such address space".into());
        };
        let idle = space.sides.iter().position(|(_, side)| !in_use(*side));
        let idle = idle.ok_or(match space.sides.len() + 1 < LOW_WINDOWS {
            true => "no room below 2 GiB for the translations of code with a profile",
            false => "too many different ways of profiling at a time in one address space",
        })?;
        let side = match &mut self.spaces[base] {
            Some(space) => space.sides.remove(idle).1,
            None => return Err("no such address space".into()),
        };
        let (space, family) = self.side(side).ok_or("a side without a family")?;
        let (index, kind) = (family.index, family.kind.clone());
        let later = family.arenas.iter().enumerate().skip(kind.arenas.len());
        let later = later.filter(|(at, _)| space.arenas.has(*at));
        let later = later.map(|(_, arena)| (arena.address, arena.bytes)).collect();
        self.spaces[side] = None;
        self.drop_family(index);
        Ok((kind, later))
    }
}
