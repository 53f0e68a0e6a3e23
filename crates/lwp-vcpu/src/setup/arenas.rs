//! Arenas of an address space, those that it has from the start and later ones.

use lwp_code::arena::Arena;
use lwp_code::arena_placement::{Reach, planned_arena, with_wanted};
use lwp_code::family::{LEAST_CHUNK, UnitId};
use lwp_process::Tid;
use lwp_process::inject::Injector;
use lwp_process::maps::{self, Mapping, Status};

use super::mapping::{Mapper, arena_map, verify};
use super::{MADV_DONTDUMP, MAP_FIXED_NOREPLACE, SYS_CLOSE, SYS_MADVISE, SYS_MUNMAP, find_syscall};
use crate::machine::{CodeCaches, Machine};
use crate::our_ranges::overlap;

/// Gives an address space an arena for code of `unit`: one that its family has already, for
/// another address space, or a new one. Other threads go on meanwhile, and may map something
/// where there was room.
pub fn add_arena(
    machine: &mut Machine,
    tid: Tid,
    unit: UnitId,
    reach: Reach,
) -> Result<(), String> {
    const TRIES: usize = 16;
    let mut last = Err("no room for translated code near the program's".into());
    let mut careful = true;
    for attempt in 1..=TRIES {
        // The ranges may be without limits, and the calls that they are of long over.
        careful &= attempt < TRIES;
        let wanted =
            if careful { machine.tasks.wanted_beside(&machine.contexts, tid) } else { Vec::new() };
        let (space, family) = machine.space_of(tid).ok_or("no such thread")?;
        let (known, extent) = (family.arena_of(unit), family.modules[unit].extent);
        if known.is_some_and(|index| space.arenas.has(index)) {
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
        last = place_arena(machine, tid, &mappings, &arena, careful);
        let (space, family) = machine.space_of(tid).ok_or("no such thread")?;
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
                    family.modules[unit].settle(index);
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
pub fn settle_far(machine: &mut Machine, tid: Tid, unit: UnitId) -> Result<(), String> {
    let (space, family) = machine.space_of(tid).ok_or("no such thread")?;
    let room = |at: usize| family.arenas[at].left();
    let mapped = (0..family.arenas.len()).filter(|at| space.arenas.has(*at));
    match mapped.max_by_key(|at| room(*at)).filter(|at| room(*at) >= LEAST_CHUNK) {
        Some(arena) => family.modules[unit].settle(arena),
        None => add_arena(machine, tid, unit, Reach::Any)?,
    }
    Ok(())
}

/// Maps an arena, after the threads have been told, and if none of them is about to map
/// something there.
fn place_arena(
    machine: &mut Machine,
    tid: Tid,
    mappings: &[Mapping],
    arena: &Arena,
    careful: bool,
) -> Result<(), String> {
    let there = (arena.address, arena.address + arena.bytes);
    let index = machine.tasks.space_index(tid).ok_or("no such thread")?;
    machine.lists().tell_arena(index, there);
    if careful
        && machine
            .tasks
            .wanted_beside(&machine.contexts, tid)
            .iter()
            .any(|range| overlap(*range, there))
    {
        return Err("the program is about to have something there".into());
    }
    let family = machine.space_of(tid).ok_or("no such thread")?.1.index;
    machine.mapper().map_arena(tid, family, mappings, arena)
}

impl Mapper<'_> {
    /// Maps an arena into the address space of `tid`, where there is room for it.
    fn map_arena(
        &self,
        tid: Tid,
        family: usize,
        mappings: &[Mapping],
        arena: &Arena,
    ) -> Result<(), String> {
        let site = find_syscall(tid, mappings)?;
        let mut injector = Injector::new(self.tracees, tid, site, &Status::read(tid));
        let fd = self.reopen_memory(&mut injector, family)?;
        let map = arena_map(arena, MAP_FIXED_NOREPLACE);
        let mapped = self.map_late(&mut injector, &map, fd);
        let of = self.caches.families.get(family).and_then(Option::as_ref).ok_or("no family")?;
        let mapped = mapped.and_then(|()| {
            let own =
                verify(&injector, of.arenas.memory.file().inode(), std::slice::from_ref(&map));
            if own.is_err() {
                injector.call([SYS_MUNMAP, map.address, map.bytes, 0, 0, 0, 0])?;
            }
            own
        });
        injector.call([SYS_MADVISE, map.address, map.bytes, MADV_DONTDUMP, 0, 0, 0])?;
        injector.call([SYS_CLOSE, fd, 0, 0, 0, 0, 0])?;
        mapped
    }
}

impl CodeCaches {
    /// The number of arenas that every address space of a family has from the start.
    pub(super) fn usual_arenas(&self, family: usize) -> usize {
        let family = self.families.get(family).and_then(Option::as_ref);
        family.map_or(0, |family| family.kind.arenas.len())
    }
}
