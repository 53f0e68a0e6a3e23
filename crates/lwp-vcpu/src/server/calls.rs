//! System calls about which threads ask the host.

use lwp_calls::syscalls::{self, Before, Effect, Pending, nr};
use lwp_dbt::{AppPc, Lwp, RegionLimits, RequestKind, Slot};
use lwp_mailbox::exit::ThreadCx;
use lwp_process::Tid;
use lwp_process::maps;

use super::Answer;
use super::dispatch::FIRST;
use super::user_dispatch::Dispatched;
use crate::control_line::is_written_by;
use crate::dumpable;
use crate::guarding::awaits_release;
use crate::machine::{Machine, Need};
use crate::our_ranges::Way;
use crate::resource_limits::{arrange_limit, show_limit};
use crate::tracer::{
    context_handover, controlled_processes, emulated_ptrace, rseq, sigaction_order,
};

impl Answer<'_> {
    /// Arranges the system call that the thread is about to make.
    pub fn syscall(&mut self) {
        let ThreadCx { tid, slot, .. } = self.cx;
        let call = Pending::of(self.context());
        self.note_clock(&call);
        let dispatched = self.user_dispatch(&call);
        if let Dispatched::Waits(need) = dispatched {
            self.machine.ask_tracer(tid, need);
            return;
        }
        if syscalls::locks_all(self.context()) {
            self.machine.ask_tracer(tid, Need::Lock);
            return;
        }
        if sigaction_order::concerns(self.machine, tid, slot) {
            self.machine.ask_tracer(tid, Need::Settle);
            return;
        }
        if emulated_ptrace::concerns(self.machine, tid, slot) {
            self.machine.ask_tracer(tid, Need::Trace);
            return;
        }
        if self.lacks_room(&call) {
            self.machine.ask_tracer(tid, Need::Room);
            return;
        }
        let fills = self.machine.processor.emulated.fills;
        self.machine.guarding().about_to_fill(tid, slot, fills);
        if awaits_release(self.machine, tid, slot) {
            self.machine.ask_tracer(tid, Need::Guard);
            return;
        }
        let Some(mut pending) = look_at_call(self.machine, tid, slot) else {
            self.machine.ask_tracer(tid, Need::Step);
            return;
        };
        if let Dispatched::Result(result) = dispatched {
            syscalls::answer_instead(self.context(), &mut pending, result);
        }
        if let Some(result) = self.machine.proc_files().about_to_read(tid, &pending) {
            syscalls::answer_instead(self.context(), &mut pending, result);
        }
        match self.machine.lists().stands_in_the_way(tid, slot, &mut pending) {
            Way::Clear => {}
            Way::Moves => return self.machine.ask_tracer(tid, Need::Flush),
            Way::Around => return self.machine.ask_tracer(tid, Need::Around),
        }
        let alone = pending.result.is_none()
            && pending.shortened.is_none()
            && !self
                .machine
                .config
                .counted
                .control_line
                .is_some_and(|line| is_written_by(line, tid, &pending))
            && !self.machine.proc_files().tells_of_ours(tid, &pending);
        if alone && self.run_and_go(&pending) {
            return;
        }
        if let Some(tail) = reported_call(self.machine, tid, slot, pending) {
            self.context().answer(tail);
        }
    }

    /// Notes whether the thread is about to have reads of the time stamp counter fault, or no longer.
    fn note_clock(&mut self, call: &Pending) {
        const PR_SET_TSC: u32 = 26;
        const PR_TSC_ENABLE: u32 = 1;
        const PR_TSC_SIGSEGV: u32 = 2;
        let [what, mode, ..] = call.args.map(|word| word as u32);
        let sets = call.number == nr::PRCTL && what == PR_SET_TSC;
        let known = sets && matches!(mode, PR_TSC_ENABLE | PR_TSC_SIGSEGV);
        if known && let Some(thread) = self.machine.tasks.threads.get_mut(&self.cx.tid) {
            thread.clock_faults = mode == PR_TSC_SIGSEGV;
            self.machine.profiling().lwp_stamp_anew(self.cx.tid);
        }
    }

    /// Returns whether the thread is about to install a filter, which the host cannot suspend, and
    /// more contexts are still to be mapped for threads to come.
    fn lacks_room(&self, call: &Pending) -> bool {
        if !syscalls::installs_filter(call) {
            return false;
        }
        let tasks = &self.machine.tasks;
        let thread = tasks.threads.get(&self.cx.tid);
        let process = thread.and_then(|thread| tasks.processes.get(&thread.pid));
        process.is_some_and(|process| !process.has_room) && !context_handover::may_suspend_filters()
    }

    /// Lets the thread make a call and go on behind it, where nothing need be settled. False where
    /// something must be.
    fn run_and_go(&mut self, pending: &Pending) -> bool {
        let tid = self.cx.tid;
        let mut memory = self.machine.remapping();
        if !syscalls::concerns_nobody(pending, |range| memory.has_code(tid, range))
            && !memory.leaves_heap(tid, pending)
        {
            return false;
        }
        let Some((_, family)) = self.machine.space_of(tid) else { return false };
        if matches!(family.translator.lwp(), Lwp::On(_)) {
            return false;
        }
        let tail = family.routine(family.translator.routines().run_and_go);
        let next = AppPc(self.context().get(Slot::Pc).wrapping_add(2));
        let limits = RegionLimits::fragments(FIRST);
        let Some((head, _)) = self.translation(next, false, limits) else { return false };
        let context = self.context();
        context.set(Slot::Next, next.0);
        context.set(Slot::Go, head.0);
        context.answer(tail);
        true
    }
}

/// Arranges the system call in the context; returns the routine that makes it and reports it.
/// `None` where it must be stepped over.
pub fn arrange_call(machine: &mut Machine, tid: Tid, slot: usize) -> Option<u64> {
    let fills = machine.processor.emulated.fills;
    machine.guarding().about_to_fill(tid, slot, fills);
    let mut pending = look_at_call(machine, tid, slot)?;
    if machine.lists().stands_in_the_way(tid, slot, &mut pending) != Way::Clear {
        let context = machine.contexts.context(slot);
        syscalls::answer_instead(context, &mut pending, crate::our_ranges::REFUSED);
    }
    reported_call(machine, tid, slot, pending)
}

/// Looks at a system call before it is made. `None` where it must be stepped over.
fn look_at_call(machine: &mut Machine, tid: Tid, slot: usize) -> Option<Pending> {
    let mut random = machine.processor.random;
    let mut stream = || {
        random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        random ^ (random >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    };
    let context = machine.contexts.context(slot);
    let file = machine.processor.random_file.as_ref().map(|(_, path)| path.as_str());
    let (action, mut pending) = syscalls::before(context, tid, &mut stream, file);
    machine.processor.random = random;
    if pending.number == nr::RSEQ && !rseq::has_rseq(&machine.tasks, tid) {
        syscalls::refuse_rseq(machine.contexts.context(slot), &mut pending);
    }
    arrange_limit(machine, tid, slot, &mut pending);
    dumpable::arrange(machine, tid, slot, &mut pending);
    (action != Before::Step).then_some(pending)
}

/// The routine that makes a call which has been looked at, and reports it.
fn reported_call(machine: &mut Machine, tid: Tid, slot: usize, pending: Pending) -> Option<u64> {
    let (_, family) = machine.space_of(tid)?;
    let tail = family.routine(family.translator.routines().run);
    if syscalls::installs_filter(&pending) {
        note_filter(machine, tid, syscalls::filters_all_threads(&pending));
    }
    if let Some(thread) = machine.tasks.threads.get_mut(&tid) {
        thread.pending = Some(pending);
    }
    let context = machine.contexts.context(slot);
    context.set(Slot::Next, context.get(Slot::Pc).wrapping_add(2));
    Some(tail)
}

/// A system call filter is about to be in force in this thread, or in all of its process. A
/// filter that is then refused leaves the threads to their spinning, which is only slower.
pub(super) fn note_filter(machine: &mut Machine, tid: Tid, all: bool) {
    machine.tasks.filtered = true;
    let Some(pid) = machine.tasks.threads.get(&tid).map(|thread| thread.pid) else { return };
    for (_, thread) in machine.tasks.threads_of(pid).filter(|_| all) {
        machine.contexts.context(thread.slot).set(Slot::NoSyscalls, 1);
    }
}

/// Settles what a system call has done, and says what. The result that the program sees is in
/// its context.
pub fn syscall_done(machine: &mut Machine, tid: Tid) -> Effect {
    let Some(thread) = machine.tasks.threads.get_mut(&tid) else { return Effect::None };
    let Some(pending) = thread.pending.take() else { return Effect::None };
    let slot = thread.slot;
    // Not before: until now a signal may have the call made once more.
    let asked = controlled_processes::asked(machine, tid, &pending);
    let context = machine.contexts.context(slot);
    context.set(Slot::Kind, RequestKind::Dispatch as u64);
    let (result, effect) = syscalls::after(context, tid, &pending, context.get(Slot::Rax));
    context.set(Slot::Rax, asked.map_or(result, |asked| asked as u64));
    emulated_ptrace::declared(machine, tid, &pending, result);
    settle_effect(machine, tid, slot, effect);
    effect
}

pub fn settle_effect(machine: &mut Machine, tid: Tid, slot: usize, effect: Effect) {
    match effect {
        Effect::None | Effect::Opened(_) | Effect::Written(..) => {}
        Effect::Limited(pending) => show_limit(machine, tid, &pending),
        Effect::Copied(fd) => machine.proc_files().note_copy(tid, fd),
        Effect::Described(pending) => machine.proc_files().describe(tid, &pending),
        Effect::Listed(pending, bytes) => {
            let left = machine.proc_files().without_ours(tid, &pending, bytes);
            machine.contexts.context(slot).set(Slot::Rax, left);
        }
        Effect::Mapped(range) => machine.remapping().changed(tid, range, true),
        Effect::Protected(range) => machine.remapping().changed(tid, range, false),
        Effect::Unlocked(range) => {
            // What counts on notice of a change is not told of the writes to come.
            machine.remapping().gone(tid, range);
            machine.remapping().changed(tid, range, false);
        }
        Effect::Unexecutable(range) => machine.remapping().gone(tid, range),
        Effect::Moved(from, to) => {
            // Mostly it is data that grows.
            let mut memory = machine.remapping();
            if memory.has_code(tid, from) || memory.has_code(tid, to) {
                memory.gone(tid, from);
                memory.changed(tid, to, true);
            }
        }
        Effect::HeapEnds(end) => machine.remapping().heap_ends(tid, end),
        Effect::Attached(start) => {
            let found = maps::read(tid).into_iter().find(|it| it.start == start);
            let end = found.map_or(start + 4096, |mapping| mapping.end);
            machine.remapping().gone(tid, (start, end));
            machine.remapping().changed(tid, (start, end), true);
        }
        Effect::Detached(start) => machine.remapping().find_gone(tid, start),
        Effect::FaultAction(at) => machine.tasks.note_fault_action(tid, at),
    }
}
