//! The families of address spaces: how they are made, shared, and exchanged for others.

use lwp_code::arena_placement::{Anchors, plan_arenas, with_wanted};
use lwp_code::family::{Family, Kind, Waste};
use lwp_code::functions::MappedFunctions;
use lwp_code::interpreter_entries::Evaluators;
use lwp_code::origins::Origins;
use lwp_mailbox::memory_map::{FAMILIES, FAMILY_BYTES, HOST_BYTES, is_ours};
use lwp_process::inject::Injector;
use lwp_process::maps::{self, Status};
use lwp_process::{Tid, limits, sys};

use super::mapping::{undumped, verify};
use super::{MAP_FIXED, SYS_CLOSE, SYS_MUNMAP, Table, find_syscall_of_program};
use crate::machine::{CodeCaches, Machine};
use crate::our_ranges::overlap;

/// Gives address space `index` another family, with nothing translated or at least not full.
/// `tid`, one of its threads, stands in its application state; none is in translated code.
pub fn flush(machine: &mut Machine, tid: Tid, index: usize) -> Result<(), String> {
    let wanted = machine.tasks.wanted_beside(&machine.contexts, tid);
    let Some((space, family)) = machine.caches.side(index) else {
        return Err("no such address space".into());
    };
    let (old, mut kind) = (family.index, family.kind.clone());
    kind.basis.dispatches |= std::mem::take(&mut space.dispatches);
    let mapped: Vec<(u64, u64)> = (0..family.arenas.len())
        .filter(|arena| space.arenas.has(*arena))
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
    let site = find_syscall_of_program(tid, &mappings)?;
    let usable = |family: &Option<Family>| {
        family.as_ref().is_some_and(|family| family.index != old && !family.is_full())
    };
    if !machine
        .caches
        .layouts
        .get(&kind)
        .is_some_and(|index| usable(&machine.caches.families[*index]))
    {
        machine.caches.layouts.remove(&kind);
    }
    let new = family_for(machine, kind.clone())?;
    let mut injector = Injector::new(&machine.tracees, tid, site, &Status::read(tid));
    let fd = machine.mapper().reopen_memory(&mut injector, new)?;
    for (address, bytes) in surplus {
        injector.call([SYS_MUNMAP, address, bytes, 0, 0, 0, 0])?;
    }
    let maps = machine.mapper().family_maps(new, Table::Empty, MAP_FIXED)?;
    for map in &maps {
        machine.mapper().map_late(&mut injector, map, fd)?;
    }
    if let Some(Some(of)) = machine.caches.families.get(new) {
        injector.calls(&undumped(of))?;
        verify(&injector, of.arenas.memory.file().inode(), &maps)?;
    }
    injector.call([SYS_CLOSE, fd, 0, 0, 0, 0, 0])?;
    for tid in machine.tasks.threads_in(index) {
        if let Some(slot) = machine.tasks.threads.get(&tid).map(|thread| thread.slot) {
            machine.counting().keep_counts(tid, slot);
        }
    }
    if let Some(Some(space)) = machine.caches.spaces.get_mut(index) {
        space.flush(new, kind.arenas.len());
    }
    machine.caches.drop_family(old);
    machine.tasks.forget_cuts(&machine.contexts);
    Ok(())
}

/// Returns the index of a new family.
fn place_for_family(machine: &mut Machine) -> Result<usize, String> {
    let place = |caches: &CodeCaches| {
        let free = caches.families.iter().position(Option::is_none);
        Some(free.unwrap_or(caches.families.len())).filter(|index| *index < FAMILIES)
    };
    if place(&machine.caches).is_none() {
        // Programs with random layouts leave families that hardly any other finds of use.
        machine.keeper().keep();
        for index in 0..machine.caches.families.len() {
            machine.caches.drop_family(index);
        }
    }
    let place = place(&machine.caches);
    place.ok_or_else(|| "too many different address space layouts at a time".into())
}

/// The reason why there is no memory for a family.
fn no_memory(error: sys::Errno) -> String {
    let needed = FAMILY_BYTES + HOST_BYTES;
    let limit = limits::room().filter(|room| *room < needed).map(|room| {
        let [room, needed] = [room, needed].map(|bytes| bytes >> 20);
        format!(
            ", because the limit on address space (`ulimit -H -v`) leaves {room} of the {needed} \
             MiB that lwp needs"
        )
    });
    format!("no memory for translated code: {error}{}", limit.unwrap_or_default())
}

/// The family of this kind, made if it is new.
pub(super) fn family_for(machine: &mut Machine, kind: Kind) -> Result<usize, String> {
    if let Some(&index) = machine.caches.layouts.get(&kind) {
        return Ok(index);
    }
    let index = place_for_family(machine)?;
    let prepared = match index == 0 && kind.basis == machine.observers.first_basis(&machine.config)
    {
        true => machine.caches.prepared.take(),
        false => None,
    };
    let mut family = match prepared {
        Some(family) => family,
        None => Family::new(index, &kind.basis, machine.processor.emulated).map_err(no_memory)?,
    };
    for &(address, bytes, offset) in &kind.arenas {
        family.add_arena(address, bytes, offset);
    }
    family.kind = kind.clone();
    if let Some(fragments) = machine.config.trials.waste {
        family.waste = Waste::new(fragments);
    }
    let watched = machine.config.watches().then(|| crate::lwp::watched_config(&machine.config));
    if let Some(lwp) = machine.config.lwp.as_ref().or(watched.as_ref()) {
        family.watch_cache(crate::lwp::masks(&lwp.caches.levels[0].shape));
    }
    let traces = kind.basis.plan.traces();
    family.functions = traces.then(MappedFunctions::default);
    family.store.clone_from(&machine.caches.store);
    family.modules.sampled_code = machine.config.counted.code;
    family.modules.within.clone_from(&machine.config.counted.within);
    family.modules.evaluators = Evaluators::of(
        &machine.config,
        machine.observers.plan_of_code(&machine.config).counts_calls(),
    );
    let places = machine.observers.profiler.is_some() && !machine.config.samples();
    if places {
        family.origins = Some(Origins::default());
        family.code_cache.keep_roles();
    }
    if family.store.is_some() && family.translator.uses_profiles() {
        family.translator.learn();
    }
    if index == machine.caches.families.len() {
        machine.caches.families.push(Some(family));
    } else {
        machine.caches.families[index] = Some(family);
    }
    machine.caches.layouts.insert(kind, index);
    Ok(index)
}

impl CodeCaches {
    /// Frees a family that no address space uses any more.
    pub(super) fn drop_family(&mut self, index: usize) {
        if self.spaces.iter().flatten().any(|space| space.family == index) {
            return;
        }
        self.layouts.retain(|_, family| *family != index);
        self.families[index] = None;
    }
}
