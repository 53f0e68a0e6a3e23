//! lwp's own memory in an address space, and system calls of the program that concern it.
//!
//! The program doesn't know of lwp's memory, and may map anything at an address of its choice. If
//! an arena is there, the threads of the address space leave it: translations start over elsewhere
//! ([`crate::tracer`], retranslate), and the thread repeats the system call. The low window and the
//! contexts never move.
//!
//! If a call concerns a range that is partly lwp's, but doesn't map anything there, it sees a hole
//! instead of lwp's memory: it ends at the hole, is made for the parts around it, or fails
//! ([`syscalls::at_hole`]).
//!
//! Either the host checks a call, or the thread itself does, with the list of code and of lwp's
//! memory in its context. The thread makes the call some time later. Until then, lwp must not map
//! anything there, but other threads continue and request arenas. So an arena is in the lists
//! before it is mapped. It also avoids all calls that threads checked before that, whose arguments
//! are in the threads' contexts.

use std::sync::atomic::{Ordering, fence};

use lwp_calls::syscalls::{self, AtHole, NOWHERE, Pending, nr};
use lwp_dbt::{Layout, Slot};
use lwp_mailbox::contexts::{Context, Contexts};
use lwp_mailbox::memory_map::{CONTEXTS_AT, NAME_TAG_AT, slot_offset};
use lwp_process::Tid;

use crate::machine::{CodeCaches, Machine, Tasks, Where};

/// The result for a program that wants to have something where ours cannot be moved: ENOMEM.
pub const REFUSED: i64 = -12;

/// Addresses from one to below the other.
type Range = (u64, u64);

/// No range.
const NOTHING: [Range; 2] = [(0, 0); 2];

/// Returns true if two ranges have an address in common.
pub fn overlap(a: Range, b: Range) -> bool {
    a.0 < b.1 && b.0 < a.1
}

/// The way in which a call can be made that may be about memory of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The call as the context describes it.
    Clear,
    /// The call as the context describes it, once arenas have moved, which takes the tracer.
    Moves,
    /// Calls for the parts of its range that lie around what is ours, which takes the tracer.
    Around,
}

/// The ranges of ours in an address space, on all of its sides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ours {
    /// Low windows and contexts, which cannot be moved.
    fixed: Vec<Range>,
    /// Mapped arenas.
    arenas: Vec<Range>,
    /// Arenas can be moved: the address space has one process and one side.
    moves: bool,
}

impl CodeCaches {
    /// Returns what is ours in an address space.
    pub fn ours(&self, base: usize) -> Ours {
        let mut ours = Ours::default();
        for side in self.sides(base) {
            let (fixed, arenas) = self.fixed_and_arenas(side);
            ours.fixed.extend(fixed);
            ours.arenas.extend(arenas);
        }
        let space = self.spaces.get(base).and_then(Option::as_ref);
        ours.moves = space.is_some_and(|space| space.users == 1 && space.sides.is_empty());
        ours
    }

    /// Returns everything of ours on one side of an address space.
    pub fn ours_in(&self, side: usize) -> Vec<Range> {
        let (fixed, arenas) = self.fixed_and_arenas(side);
        [arenas, fixed].concat()
    }

    /// The low window and the contexts on a side of an address space, and the arenas.
    fn fixed_and_arenas(&self, side: usize) -> (Vec<Range>, Vec<Range>) {
        let space = self.spaces.get(side).and_then(Option::as_ref);
        let (Some(space), Some(family)) = (space, self.family_of(side)) else {
            return Default::default();
        };
        let low = family.layout().low;
        let contexts = CONTEXTS_AT + slot_offset(space.contexts);
        let all = family.arenas.iter().enumerate();
        let mapped = all.filter(|(at, _)| space.arenas.has(*at)).map(|(_, arena)| arena);
        let arenas = mapped.map(|arena| (arena.address, arena.address + arena.bytes)).collect();
        (vec![(low, low + Layout::BYTES), (NAME_TAG_AT, contexts)], arenas)
    }
}

impl Tasks {
    /// Returns the ranges in which the threads of an address space, one of which is `tid`, are
    /// about to have something of their own, or have it by now.
    pub fn wanted_beside(&self, contexts: &Contexts, tid: Tid) -> Vec<Range> {
        // A thread stores what its call is about and then looks at its list of ours, which may just
        // have been written.
        fence(Ordering::SeqCst);
        let space = self.base_space(tid);
        let all = self.threads.iter();
        let beside = all.filter(|(other, _)| self.base_space(**other) == space);
        let touched = beside.flat_map(|(_, thread)| {
            let alone = syscalls::touched_alone(contexts.context(thread.slot));
            thread.touched.into_iter().chain(alone)
        });
        touched.filter(|range| range.0 < range.1).collect()
    }
}

/// The way in which a call can be made, and the ranges that it is noted to touch meanwhile.
type Arranged = (Way, [Range; 2]);

impl Ours {
    /// Returns every range of ours.
    pub fn all(&self) -> Vec<Range> {
        [&self.arenas[..], &self.fixed].concat()
    }

    /// Looks at a call that touches these ranges, which may be ours, and arranges it in the
    /// context.
    fn arrange(
        &self,
        context: Context<'_>,
        pending: &mut Pending,
        touched: [Range; 2],
    ) -> Arranged {
        if let Some(at_hole) = syscalls::at_hole(pending) {
            if let Some(arranged) = self.find_hole(context, pending, at_hole) {
                return arranged;
            }
            if pending.number != nr::MREMAP {
                return (Way::Clear, touched);
            }
        }
        let hit = |ours: &Range| touched.iter().any(|it| overlap(*it, *ours));
        let arenas = self.arenas.iter().any(hit);
        if self.fixed.iter().any(hit) || arenas && !self.moves {
            syscalls::answer_instead(context, pending, REFUSED);
            return (Way::Clear, NOTHING);
        }
        (if arenas { Way::Moves } else { Way::Clear }, touched)
    }

    /// The ranges of ours that a call is about too.
    fn within(&self, range: Range) -> Vec<Range> {
        let mut ours = self.all();
        ours.retain(|ours| range.0 < range.1 && overlap(range, *ours));
        ours
    }

    /// Arranges a call whose range is partly ours, and which natively finds nothing there. `None`
    /// for any other.
    fn find_hole(
        &self,
        context: Context<'_>,
        pending: &mut Pending,
        at_hole: AtHole,
    ) -> Option<Arranged> {
        let range = syscalls::pages_of(pending);
        let ours = self.within(range);
        let first = ours.iter().map(|ours| ours.0).min()?;
        let parts = syscalls::around(range, &ours);
        let bytes = pending.args[1];
        match at_hole {
            AtHole::GoesOn(_) if !parts.is_empty() => {
                return Some((Way::Around, [range, (0, 0)]));
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
        Some((Way::Clear, NOTHING))
    }

    /// Returns the parts of a call's range around what is ours, for one that goes on behind holes,
    /// and the result that it returns then. `None` where there is nothing of ours, or where it is
    /// another call.
    pub fn parts_around(&self, pending: &Pending) -> Option<(Vec<Range>, i64)> {
        let Some(AtHole::GoesOn(told)) = syscalls::at_hole(pending) else { return None };
        let range = syscalls::pages_of(pending);
        let ours = self.within(range);
        let parts = syscalls::around(range, &ours);
        (!ours.is_empty() && !parts.is_empty()).then_some((parts, told))
    }
}

/// The lists that threads have, in their contexts, of code and of what is ours in their address
/// space.
#[derive(Debug)]
pub struct Lists<'a> {
    tasks: &'a mut Tasks,
    contexts: &'a Contexts,
    caches: &'a mut CodeCaches,
}

impl Machine {
    /// Returns the lists of code and of what is ours.
    pub fn lists(&mut self) -> Lists<'_> {
        let Self { tasks, contexts, caches, .. } = self;
        Lists { tasks, contexts, caches }
    }
}

impl Where<'_> {
    /// Returns what is ours in the address space of a thread.
    pub fn ours_of(&self, tid: Tid) -> Ours {
        self.tasks.base_space(tid).map(|base| self.caches.ours(base)).unwrap_or_default()
    }
}

impl Lists<'_> {
    /// Lets the threads of an address space know where there is code, if there is more of it than
    /// they know.
    ///
    /// Nobody executes what they do not know of: whoever comes there first asks, and is answered
    /// after this.
    pub fn tell_code(&mut self, index: usize) {
        self.tell_code_and(index, &[]);
    }

    /// Tells them of an arena as well that is about to be mapped.
    pub fn tell_arena(&mut self, index: usize, arena: (u64, u64)) {
        let again = |caches: &mut CodeCaches| {
            if let Some(Some(space)) = caches.spaces.get_mut(index) {
                space.code.tell_again();
            }
        };
        again(self.caches);
        self.tell_code_and(index, &[arena]);
        // Perhaps nothing comes of it.
        again(self.caches);
    }

    fn tell_code_and(&mut self, index: usize, arenas: &[(u64, u64)]) {
        let Some(Some(space)) = self.caches.spaces.get_mut(index) else { return };
        let Some((state, mut code)) = space.code.for_threads() else { return };
        code.extend(arenas);
        // What is known on one side is not known on another.
        let alone = space.sides.is_empty();
        code.extend(self.caches.ours_in(index));
        let code = alone.then_some(&code[..]);
        for (&tid, thread) in &self.tasks.threads {
            if self.tasks.space_index(tid) == Some(index) {
                self.contexts.context(thread.slot).set_code_ranges(state, code);
            }
        }
    }

    /// Looks at a call that may be about memory of ours, and arranges it in the context. Returns
    /// how it can be made.
    pub fn stands_in_the_way(&mut self, tid: Tid, slot: usize, pending: &mut Pending) -> Way {
        let context = self.contexts.context(slot);
        let mut touched = syscalls::touches(pending, context.get(Slot::R8));
        if pending.number == nr::SHMAT && pending.args[1] != 0 {
            touched[0] = syscalls::attaches(tid, pending);
        }
        let (way, touched) =
            self.caches.of(self.tasks).ours_of(tid).arrange(context, pending, touched);
        if let Some(thread) = self.tasks.threads.get_mut(&tid) {
            thread.touched = touched;
        }
        if way == Way::Moves
            && let Some((space, _)) = self.caches.space_of(self.tasks, tid)
        {
            space.moves = true;
        }
        way
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOW: Range = (0x1_0000, 0x2_0000);
    const ARENA: Range = (0x10_0000, 0x20_0000);
    const CODE: u64 = 4;
    const MAP_FIXED: u64 = 0x10;

    /// Arranges a call, and returns the context's first three arguments too.
    fn arranged(ours: &Ours, pending: &mut Pending) -> (Way, [Range; 2], [u64; 3]) {
        let mut contexts = Contexts::new(0);
        let file = contexts.files.add().expect("a file in memory");
        let slot = contexts.allocate(file, 0).expect("a context");
        let context = contexts.context(slot);
        let registers = [Slot::Rdi, Slot::Rsi, Slot::Rdx];
        for (register, value) in registers.into_iter().zip(pending.args) {
            context.set(register, value);
        }
        let touched = syscalls::touches(pending, 0);
        let (way, touched) = ours.arrange(context, pending, touched);
        (way, touched, registers.map(|register| context.get(register)))
    }

    fn ours(moves: bool) -> Ours {
        Ours { fixed: vec![LOW], arenas: vec![ARENA], moves }
    }

    #[test]
    fn arenas_move_where_the_address_space_is_one_process_s() {
        let map = |at| Pending::new(nr::MMAP, [at, 0x1000, CODE, MAP_FIXED]);
        let mut elsewhere = map(0x50_0000);
        let (way, touched, _) = arranged(&ours(true), &mut elsewhere);
        assert_eq!((way, touched[0]), (Way::Clear, (0x50_0000, 0x50_1000)));
        let mut there = map(ARENA.0);
        assert_eq!(arranged(&ours(true), &mut there).0, Way::Moves);
        assert_eq!(there.result, None);
        for (ours, at) in [(ours(false), ARENA.0), (ours(true), LOW.0)] {
            let mut refused = map(at);
            let (way, touched, _) = arranged(&ours, &mut refused);
            assert_eq!((way, touched, refused.result), (Way::Clear, NOTHING, Some(REFUSED)));
        }
    }

    #[test]
    fn nothing_is_unmapped_where_only_ours_is() {
        let mut inside = Pending::new(nr::MUNMAP, [ARENA.0, 0x1000, 0, 0]);
        assert_eq!(arranged(&ours(true), &mut inside).0, Way::Clear);
        assert_eq!(inside.result, Some(0));
        let mut across = Pending::new(nr::MUNMAP, [ARENA.0 - 0x1000, 0x2000, 0, 0]);
        let (way, touched, _) = arranged(&ours(true), &mut across);
        assert_eq!((way, touched[0]), (Way::Around, (ARENA.0 - 0x1000, ARENA.0 + 0x1000)));
        let (parts, told) = ours(true).parts_around(&across).expect("parts");
        assert_eq!((parts, told), (vec![(ARENA.0 - 0x1000, ARENA.0)], 0));
        assert_eq!(ours(true).parts_around(&inside), None);
    }

    #[test]
    fn calls_end_at_the_hole_in_which_ours_is() {
        let mut locks = Pending::new(nr::MLOCK, [ARENA.0 - 0x3000, 0x8000, 0, 0]);
        let (way, _, arguments) = arranged(&ours(true), &mut locks);
        assert_eq!((way, arguments[1], locks.shortened), (Way::Clear, 0x3000, Some((0x3000, -12))));
        let mut inside = Pending::new(nr::MLOCK, [ARENA.0, 0x1000, 0, 0]);
        let (_, _, arguments) = arranged(&ours(true), &mut inside);
        assert_eq!((arguments[0], inside.shortened), (NOWHERE, Some((0, -12))));
        let mut seals = Pending::new(nr::MSEAL, [ARENA.0 - 0x1000, 0x2000, 0, 0]);
        let (_, _, arguments) = arranged(&ours(true), &mut seals);
        assert_eq!((arguments[0], seals.shortened), (NOWHERE, Some((0, REFUSED))));
    }

    #[test]
    fn ranges_that_only_touch_have_nothing_in_common() {
        assert!(overlap((0, 2), (1, 3)) && overlap((0, 9), (3, 4)));
        assert!(!overlap((0, 2), (2, 3)) && !overlap((4, 5), (2, 4)));
    }
}
