//! The memory that is ours in an address space, and the program's wish to have something of its own
//! there.
//!
//! The program knows nothing of ours and may map, at a place of its choice, whatever it likes. If
//! an arena lies there, the threads of its address space leave it: translations start over
//! elsewhere ([`crate::events`], flush), and the system call is made again. The low window and the
//! contexts stay where they are.
//!
//! A call about a range that is partly ours, which it does not fill, finds a hole there: it ends at
//! the hole, is made for the parts around it, or fails ([`syscalls::at_hole`]).
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
use crate::syscalls::{self, AtHole, NOWHERE, Pending, nr};

/// The result for a program that wants to have something where ours cannot be moved: ENOMEM.
pub const REFUSED: i64 = -12;

/// Addresses from one to below the other.
type Range = (u64, u64);

/// Returns true if two ranges have an address in common.
pub fn overlap(a: Range, b: Range) -> bool {
    a.0 < b.1 && b.0 < a.1
}

/// The way in which a call can be made that may be about memory of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The call as the context describes it.
    Clear,
    /// The same when arenas have moved, which takes the tracer.
    Moves,
    /// Calls for the parts of its range that lie around what is ours, which takes the tracer.
    Around,
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

    /// Everything of ours in the address space of a thread.
    fn ours_of(&self, tid: Tid) -> Vec<Range> {
        self.all_sides(tid).into_iter().flat_map(|side| self.ours_in(side)).collect()
    }

    /// Looks at a call that may be about memory of ours, and arranges it in the context. Returns
    /// how it can be made.
    pub fn stands_in_the_way(&mut self, tid: Tid, slot: usize, pending: &mut Pending) -> Way {
        self.note_touched(tid, [(0, 0); 2]);
        let mut touched = syscalls::touches(pending, self.contexts.context(slot).get(Slot::R8));
        if let Some(at_hole) = syscalls::at_hole(pending) {
            if let Some(way) = self.finds_hole(tid, slot, pending, at_hole) {
                return way;
            }
            if pending.number != nr::MREMAP {
                self.note_touched(tid, touched);
                return Way::Clear;
            }
        }
        if pending.number == nr::SHMAT && pending.args[1] != 0 {
            touched[0] = syscalls::attaches(tid, pending);
        }
        let sides = self.all_sides(tid);
        let hits = |ours: &Range| touched.iter().any(|it| overlap(*it, *ours));
        let hit = |all: Vec<Range>| all.iter().any(hits);
        let fixed = sides.iter().any(|side| hit(self.fixed_in(*side)));
        let arenas = sides.iter().any(|side| hit(self.arenas_in(*side)));
        let alone = self.space_of(tid).is_some_and(|(space, _)| space.users == 1);
        if fixed || arenas && (!alone || sides.len() > 1) {
            syscalls::answer_instead(self.contexts.context(slot), pending, REFUSED);
            return Way::Clear;
        }
        self.note_touched(tid, touched);
        if !arenas {
            return Way::Clear;
        }
        if let Some((space, _)) = self.space_of(tid) {
            space.moves = true;
        }
        Way::Moves
    }

    /// Arranges a call whose range is partly ours, and which natively finds nothing there. `None`
    /// for any other.
    fn finds_hole(
        &mut self,
        tid: Tid,
        slot: usize,
        pending: &mut Pending,
        at_hole: AtHole,
    ) -> Option<Way> {
        let range = syscalls::pages_of(pending);
        let mut ours = self.ours_of(tid);
        ours.retain(|ours| range.0 < range.1 && overlap(range, *ours));
        let first = ours.iter().map(|ours| ours.0).min()?;
        let parts = syscalls::around(range, &ours);
        let (context, bytes) = (self.contexts.context(slot), pending.args[1]);
        match at_hole {
            AtHole::GoesOn(_) if !parts.is_empty() => {
                self.note_touched(tid, [range, (0, 0)]);
                return Some(Way::Around);
            }
            AtHole::GoesOn(0) => syscalls::answer_instead(context, pending, 0),
            AtHole::Notes(told) => pending.shortened = Some((bytes, told)),
            AtHole::Ends(told) if range.0 < first => {
                let bytes = first - pending.args[0];
                context.set(Slot::Rsi, bytes);
                pending.shortened = Some((bytes, told));
            }
            AtHole::GoesOn(told) | AtHole::Ends(told) => {
                context.set(Slot::Rdi, NOWHERE);
                pending.shortened = Some((0, told));
            }
            AtHole::Fails => {
                context.set(Slot::Rdi, NOWHERE);
                pending.shortened = Some((0, REFUSED));
            }
        }
        Some(Way::Clear)
    }

    /// The parts of a call's range around what is ours, for one that goes on behind holes, and the
    /// result that it returns then. `None` where there is nothing of ours, or where it is another
    /// call.
    pub fn parts_of(&self, tid: Tid, pending: &Pending) -> Option<(Vec<Range>, i64)> {
        let Some(AtHole::GoesOn(told)) = syscalls::at_hole(pending) else { return None };
        let range = syscalls::pages_of(pending);
        let mut ours = self.ours_of(tid);
        ours.retain(|ours| range.0 < range.1 && overlap(range, *ours));
        let parts = syscalls::around(range, &ours);
        (!ours.is_empty() && !parts.is_empty()).then_some((parts, told))
    }
}
