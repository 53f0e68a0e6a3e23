//! The memory that is ours in an address space, and the program's wish to have something of its own
//! there.
//!
//! The program knows nothing of ours and may map, at a place of its choice, whatever it likes. If
//! an arena lies there, the threads of its address space leave it: translations start over
//! elsewhere ([`crate::events`], flush), and the system call is made again. The low window and the
//! contexts stay where they are.
//!
//! A thread makes its call some time after the host has looked at it, or after it has itself, with
//! the list of code and of ours in its context. Until then nothing of ours may come to lie there,
//! but other threads go on, and ask for arenas. An arena is therefore in the lists before it is
//! mapped, and is in the way of no call that a thread has looked at before that: the call's
//! arguments stand in the thread's context.

use std::sync::atomic::{Ordering, fence};

use lwp_dbt::{Layout, Slot};
use lwp_ptrace::Tid;

use crate::machine::Machine;
use crate::memory_map::{CONTEXTS_AT, slot_offset};
use crate::syscalls::{self, Pending};

/// The result for a program that wants to have something where ours cannot be moved: ENOMEM.
pub const REFUSED: i64 = -12;

/// Addresses from one to below the other.
type Range = (u64, u64);

/// Returns true if two ranges have an address in common.
pub fn overlap(a: Range, b: Range) -> bool {
    a.0 < b.1 && b.0 < a.1
}

impl Machine {
    /// The ranges in which arenas are mapped in an address space.
    fn arenas_in(&self, index: usize) -> Vec<Range> {
        let Some(Some(space)) = self.caches.spaces.get(index) else { return Vec::new() };
        let Some(Some(family)) = self.caches.families.get(space.family) else { return Vec::new() };
        let all = family.arenas.iter().enumerate();
        let mapped = all.filter(|(at, _)| space.has_arena(*at)).map(|(_, arena)| arena);
        mapped.map(|arena| (arena.address, arena.address + arena.bytes)).collect()
    }

    /// The ranges of ours in an address space that cannot be moved: low window and contexts.
    fn fixed_in(&self, index: usize) -> Vec<Range> {
        let Some(Some(space)) = self.caches.spaces.get(index) else { return Vec::new() };
        let Some(Some(family)) = self.caches.families.get(space.family) else { return Vec::new() };
        let low = family.layout().low;
        let contexts = CONTEXTS_AT + slot_offset(space.contexts);
        vec![(low, low + Layout::BYTES), (CONTEXTS_AT, contexts)]
    }

    /// Everything of ours in an address space.
    pub fn ours_in(&self, index: usize) -> Vec<Range> {
        [self.arenas_in(index), self.fixed_in(index)].concat()
    }

    /// Returns the ranges in which the threads of an address space, one of which is `tid`, are
    /// about to have something of their own, or have it by now.
    pub fn wanted_beside(&self, tid: Tid) -> Vec<Range> {
        // A thread stores what its call is about and then looks at its list of ours, which may just
        // have been written.
        fence(Ordering::SeqCst);
        let space = self.tasks.base_space(tid);
        let all = self.tasks.threads.iter();
        let beside = all.filter(|(other, _)| self.tasks.base_space(**other) == space);
        let touched = beside.flat_map(|(_, thread)| {
            let alone = syscalls::touched_alone(self.contexts.context(thread.slot));
            thread.touched.into_iter().chain(alone)
        });
        touched.filter(|range| range.0 < range.1).collect()
    }

    fn note_touched(&mut self, tid: Tid, touched: [Range; 2]) {
        if let Some(thread) = self.tasks.threads.get_mut(&tid) {
            thread.touched = touched;
        }
    }

    /// Looks at a call that maps, unmaps or changes something where ours is. Where the program is
    /// to have its way, which takes the tracer, returns true; else answers what cannot be, and what
    /// natively is about nothing.
    pub fn stands_in_the_way(&mut self, tid: Tid, slot: usize, pending: &mut Pending) -> bool {
        self.note_touched(tid, [(0, 0); 2]);
        let context = self.contexts.context(slot);
        let touched = syscalls::touches(pending, context.get(Slot::R8));
        let [first, _] = touched;
        let sides = self.all_sides(tid);
        let hits = |ours: &Range| touched.iter().any(|it| overlap(*it, *ours));
        let fixed: Vec<Range> = sides.iter().flat_map(|side| self.fixed_in(*side)).collect();
        let arenas: Vec<Range> = sides.iter().flat_map(|side| self.arenas_in(*side)).collect();
        let inside = |ours: &Range| ours.0 <= first.0 && first.1 <= ours.1 && first.0 < first.1;
        if let Some(result) = syscalls::result_on_nothing(pending.number)
            && fixed.iter().chain(&arenas).any(inside)
        {
            syscalls::answer_instead(context, pending, result);
            return false;
        }
        let alone = self.space_of(tid).is_some_and(|(space, _)| space.users == 1);
        if fixed.iter().any(hits) || arenas.iter().any(hits) && (!alone || sides.len() > 1) {
            let context = self.contexts.context(slot);
            syscalls::answer_instead(context, pending, REFUSED);
            return false;
        }
        self.note_touched(tid, touched);
        if !arenas.iter().any(hits) {
            return false;
        }
        if let Some((space, _)) = self.space_of(tid) {
            space.moves = true;
        }
        true
    }
}
