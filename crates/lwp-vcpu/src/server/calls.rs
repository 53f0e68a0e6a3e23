//! System calls that threads make with the host's help.

use lwp_dbt::{AppPc, Lwp, RegionLimits, RequestKind, Slot};
use lwp_ptrace::Tid;

use super::dispatch::FIRST;
use crate::events::{settling, wards};
use crate::machine::{Machine, Need};
use crate::maps;
use crate::syscalls::{self, Before, Effect, Pending};
use crate::ways::Way;

impl Machine {
    /// Arranges the system call that the thread is about to make.
    pub(super) fn syscall(&mut self, tid: Tid, slot: usize) {
        if syscalls::locks_all(self.contexts.context(slot)) {
            self.ask_tracer(tid, Need::Lock);
            return;
        }
        if settling::concerns(self, tid, slot) {
            self.ask_tracer(tid, Need::Settle);
            return;
        }
        let fills = self.processor.emulated.fills;
        self.guarding().about_to_fill(tid, slot, fills);
        if self.awaits_release(tid, slot) {
            self.ask_tracer(tid, Need::Guard);
            return;
        }
        let Some(mut pending) = self.look_at_call(tid, slot) else {
            self.ask_tracer(tid, Need::Step);
            return;
        };
        if let Some(result) = self.proc_files().about_to_read(tid, &pending) {
            syscalls::answer_instead(self.contexts.context(slot), &mut pending, result);
        }
        match self.lists().stands_in_the_way(tid, slot, &mut pending) {
            Way::Clear => {}
            Way::Moves => return self.ask_tracer(tid, Need::Flush),
            Way::Around => return self.ask_tracer(tid, Need::Around),
        }
        let alone = pending.result.is_none()
            && pending.shortened.is_none()
            && !self.config.control_line.is_some_and(|line| line.is_written_by(tid, &pending))
            && !self.proc_files().tells_of_ours(tid, &pending);
        if alone && self.run_and_go(tid, slot, &pending) {
            return;
        }
        if let Some(tail) = self.reported_call(tid, slot, pending) {
            self.contexts.context(slot).answer(tail);
        }
    }

    /// Arranges the system call in the context; returns the routine that makes it and reports it.
    /// `None` where it must be stepped over.
    pub fn arrange_call(&mut self, tid: Tid, slot: usize) -> Option<u64> {
        let fills = self.processor.emulated.fills;
        self.guarding().about_to_fill(tid, slot, fills);
        let mut pending = self.look_at_call(tid, slot)?;
        if self.lists().stands_in_the_way(tid, slot, &mut pending) != Way::Clear {
            let context = self.contexts.context(slot);
            syscalls::answer_instead(context, &mut pending, crate::ways::REFUSED);
        }
        self.reported_call(tid, slot, pending)
    }

    /// Looks at a system call before it is made. `None` where it must be stepped over.
    fn look_at_call(&mut self, tid: Tid, slot: usize) -> Option<Pending> {
        let mut random = self.processor.random;
        let mut stream = || {
            random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
            random ^ (random >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
        };
        let context = self.contexts.context(slot);
        let file = self.processor.random_file.as_ref().map(|(_, path)| path.as_str());
        let (action, mut pending) = syscalls::before(context, tid, &mut stream, file);
        self.processor.random = random;
        self.arrange_limit(tid, slot, &mut pending);
        (action != Before::Step).then_some(pending)
    }

    /// The routine that makes a call which has been looked at, and reports it.
    fn reported_call(&mut self, tid: Tid, slot: usize, pending: Pending) -> Option<u64> {
        let (_, family) = self.space_of(tid)?;
        let tail = family.routine(family.translator.routines().run);
        if syscalls::installs_filter(&pending) {
            self.note_filter(tid, syscalls::filters_all_threads(&pending));
        }
        if let Some(thread) = self.tasks.threads.get_mut(&tid) {
            thread.pending = Some(pending);
        }
        let context = self.contexts.context(slot);
        context.set(Slot::Next, context.get(Slot::Pc).wrapping_add(2));
        Some(tail)
    }

    /// Lets the thread make a call and go on behind it, where nothing need be settled. False where
    /// something must be.
    fn run_and_go(&mut self, tid: Tid, slot: usize, pending: &Pending) -> bool {
        let mut memory = self.remapping();
        if !syscalls::concerns_nobody(pending, |range| memory.has_code(tid, range))
            && !memory.leaves_heap(tid, pending)
        {
            return false;
        }
        let Some((_, family)) = self.space_of(tid) else { return false };
        if matches!(family.translator.lwp(), Lwp::On(_)) {
            return false;
        }
        let tail = family.routine(family.translator.routines().run_and_go);
        let next = AppPc(self.contexts.context(slot).get(Slot::Pc).wrapping_add(2));
        let limits = RegionLimits::fragments(FIRST);
        let Some((head, _)) = self.translation(tid, next, false, limits) else { return false };
        let context = self.contexts.context(slot);
        context.set(Slot::Next, next.0);
        context.set(Slot::Go, head.0);
        context.answer(tail);
        true
    }

    /// A system call filter is about to be in force in this thread, or in all of its process. A
    /// filter that is then refused leaves the threads to their spinning, which is only slower.
    pub(super) fn note_filter(&mut self, tid: Tid, all: bool) {
        self.tasks.filtered = true;
        let Some(pid) = self.tasks.threads.get(&tid).map(|thread| thread.pid) else { return };
        for thread in self.tasks.threads.values().filter(|thread| all && thread.pid == pid) {
            self.contexts.context(thread.slot).set(Slot::NoSyscalls, 1);
        }
    }

    /// Settles what a system call has done, and says what. The result that the program sees is in
    /// its context.
    pub fn syscall_done(&mut self, tid: Tid) -> Effect {
        let Some(thread) = self.tasks.threads.get_mut(&tid) else { return Effect::None };
        let Some(pending) = thread.pending.take() else { return Effect::None };
        let slot = thread.slot;
        // Not before: until now a signal may have the call made once more.
        let asked = wards::asked(self, tid, &pending);
        let context = self.contexts.context(slot);
        context.set(Slot::Kind, RequestKind::Dispatch as u64);
        let (result, effect) = syscalls::after(context, tid, &pending, context.get(Slot::Rax));
        context.set(Slot::Rax, asked.map_or(result, |asked| asked as u64));
        self.settle_effect(tid, slot, effect);
        effect
    }

    pub fn settle_effect(&mut self, tid: Tid, slot: usize, effect: Effect) {
        match effect {
            Effect::None | Effect::Opened(_) | Effect::Written(..) => {}
            Effect::Limited(pending) => self.show_limit(tid, &pending),
            Effect::Copied(fd) => self.proc_files().note_copy(tid, fd),
            Effect::Described(pending) => self.proc_files().describe(tid, &pending),
            Effect::Listed(pending, bytes) => {
                let left = self.proc_files().without_ours(tid, &pending, bytes);
                self.contexts.context(slot).set(Slot::Rax, left);
            }
            Effect::Mapped(range) => self.remapping().changed(tid, range, true),
            Effect::Protected(range) => self.remapping().changed(tid, range, false),
            Effect::Unlocked(range) => {
                // What counts on notice of a change is not told of the writes to come.
                self.remapping().gone(tid, range);
                self.remapping().changed(tid, range, false);
            }
            Effect::Unexecutable(range) => self.remapping().gone(tid, range),
            Effect::Moved(from, to) => {
                // Mostly it is data that grows.
                let mut memory = self.remapping();
                if memory.has_code(tid, from) || memory.has_code(tid, to) {
                    memory.gone(tid, from);
                    memory.changed(tid, to, true);
                }
            }
            Effect::HeapEnds(end) => self.remapping().heap_ends(tid, end),
            Effect::Attached(start) => {
                let found = maps::read(tid).into_iter().find(|it| it.start == start);
                let end = found.map_or(start + 4096, |mapping| mapping.end);
                self.remapping().gone(tid, (start, end));
                self.remapping().changed(tid, (start, end), true);
            }
            Effect::Detached(start) => self.remapping().find_gone(tid, start),
            Effect::FaultAction(at) => self.tasks.note_fault_action(tid, at),
        }
    }
}
