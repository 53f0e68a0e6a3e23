//! Changes to the memory of programs: code that is mapped, unmapped or written to, and the heap.

use lwp_calls::syscalls::{Pending, nr};
use lwp_code::family::{Family, UnitId};
use lwp_code::space::Space;
use lwp_mailbox::contexts::Contexts;
use lwp_process::Tid;
use lwp_process::maps;

use super::dispatch::remove_entries;
use crate::machine::{CodeCaches, Machine, Tasks};

/// The bytes by which a heap may be taken to be larger than it is: the kernel refuses to let some
/// grow.
const GROWTH: u64 = 64 << 20;

/// Takes in changes to what programs have mapped.
#[derive(Debug)]
pub struct Remapping<'a> {
    /// The contexts of all threads.
    pub contexts: &'a Contexts,
    /// Processes and threads.
    pub tasks: &'a mut Tasks,
    /// Address spaces and their translations.
    pub caches: &'a mut CodeCaches,
}

impl Machine {
    /// Returns the means to take in changes to memory.
    pub fn remapping(&mut self) -> Remapping<'_> {
        let Self { contexts, tasks, caches, .. } = self;
        Remapping { contexts, tasks, caches }
    }
}

impl Remapping<'_> {
    /// Returns every side of the address space that a thread runs in.
    fn all_sides(&self, tid: Tid) -> Vec<usize> {
        self.caches.of(self.tasks).all_sides(tid)
    }

    /// Executable memory in `range` has been mapped anew, or made executable after it may have been
    /// written to.
    pub fn changed(&mut self, tid: Tid, range: (u64, u64), mapped: bool) {
        self.tasks.forget_cuts(self.contexts);
        for side in self.all_sides(tid) {
            let Some((space, family)) = self.caches.side(side) else { continue };
            let units = space.forget(range);
            if mapped {
                space.code.note_mapped(range);
            } else {
                space.code.note_written(range);
            }
            for unit in units {
                drop_code(tid, space, family, unit, range, false);
            }
            // Anonymous code may have been translated before it was known by this range.
            for unit in space.code.private_units() {
                family.invalidate(unit, tid, range, false);
            }
        }
    }

    /// Returns whether there is code in `range`, as far as is known.
    pub fn has_code(&self, tid: Tid, range: (u64, u64)) -> bool {
        let spaces = self.all_sides(tid);
        spaces.iter().any(|side| {
            self.caches.spaces[*side].as_ref().is_some_and(|it| it.code.overlaps(range))
        })
    }

    /// `range` can no longer be executed: what was translated of it is cut off, so that going there
    /// faults as it should.
    pub fn gone(&mut self, tid: Tid, range: (u64, u64)) {
        self.tasks.forget_cuts(self.contexts);
        for side in self.all_sides(tid) {
            let Some((space, family)) = self.caches.side(side) else { continue };
            for unit in space.forget(range) {
                drop_code(tid, space, family, unit, range, true);
            }
        }
    }

    /// Returns whether a call is brk(2) and takes no code away, whatever it returns.
    pub fn leaves_heap(&mut self, tid: Tid, pending: &Pending) -> bool {
        if pending.number != nr::BRK {
            return false;
        }
        let Some(known) = self.heap_end(tid) else { return false };
        let wanted = pending.args[0];
        if wanted == 0 || wanted < known && !self.has_code(tid, (wanted, known)) {
            return known != 0;
        }
        let grows = known != 0 && (known..known.saturating_add(GROWTH)).contains(&wanted);
        if grows {
            self.note_heap_end(tid, wanted);
        }
        grows
    }

    fn heap_end(&self, tid: Tid) -> Option<u64> {
        let space = self.caches.spaces.get(self.tasks.base_space(tid)?)?.as_ref()?;
        Some(space.heap_end)
    }

    /// Notes an address up to which the heap may have reached.
    fn note_heap_end(&mut self, tid: Tid, end: u64) {
        let space = self.tasks.base_space(tid).and_then(|at| self.caches.spaces.get_mut(at));
        if let Some(Some(space)) = space {
            space.heap_end = space.heap_end.max(end);
        }
    }

    /// Notes the heap of an address space in which a program has been running.
    pub fn find_heap(&mut self, tid: Tid) {
        let heap = maps::read(tid).into_iter().find(|mapping| mapping.name == "[heap]");
        if let Some(heap) = heap {
            self.note_heap_end(tid, heap.end);
        }
    }

    /// The heap ends at `end`: what was above is gone, as far as another thread has grown it too.
    pub fn heap_ends(&mut self, tid: Tid, end: u64) {
        let base = self.tasks.base_space(tid);
        let beside =
            self.tasks.threads.iter().filter(|(it, _)| self.tasks.base_space(**it) == base);
        let growing = beside.filter_map(|(_, thread)| thread.pending);
        let growing = growing.filter(|call| call.number == nr::BRK).map(|call| call.args[0]);
        let known = growing.chain(self.heap_end(tid)).max().unwrap_or(0);
        let gone = (end.saturating_add(4095) & !4095, known.saturating_add(4095) & !4095);
        if gone.0 < gone.1 && self.has_code(tid, gone) {
            self.gone(tid, gone);
        }
        self.note_heap_end(tid, end);
    }

    /// Finds out which code from `start` on is no longer mapped.
    pub fn find_gone(&mut self, tid: Tid, start: u64) {
        let mappings = maps::read(tid);
        for side in self.all_sides(tid) {
            let Some((space, _)) = self.caches.side(side) else { continue };
            for range in space.code.gone(start, &mappings) {
                self.gone(tid, range);
            }
        }
    }
}

/// Drops the translations of `range`: they are no longer valid, or not where its bytes differ.
pub fn drop_code(
    tid: Tid,
    space: &mut Space,
    family: &mut Family,
    unit: UnitId,
    range: (u64, u64),
    all: bool,
) {
    if !family.modules[unit].changes() {
        // A file's own translation is not at fault; this address space leaves it.
        let gone = space.leave_unit(family, unit);
        remove_entries(tid, family, &gone);
    } else {
        family.invalidate(unit, tid, range, all);
    }
}
