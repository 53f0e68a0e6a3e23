//! Samples that threads take without the host and keep until it reports them: see `kept.rs` among
//! the routines.
//!
//! The host takes the first sample of a thread. If its stack is one that a thread can copy, the
//! thread keeps those that follow. Whatever the thread asks for next, the host reports them first,
//! so they come in order.

use lwp_dbt::Slot;
use lwp_dbt::context::kept::{COUNT_SHIFT, HEADER, KEPT_BYTES, NO_STACK, STACK_UNIT};
use lwp_mailbox::contexts::{Context, KeptSample};
use lwp_process::Tid;
use lwp_process::maps::Status;
use lwp_run::config::Target;
use lwp_unwind::{RIP, Registers};

use super::countdown::countdown;
use super::gather::{self, Gather, pieces};
use super::known::may_keep;
use super::sampler::Sampler;
use super::{Sampling, ThreadLwp};
use crate::call_stack::{KeptStack, SampledAt};
use crate::machine::{Counting, Machine};
use crate::server::Answer;

/// The samples of one thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Kept {
    /// The end of the stack that is copied with a sample, 0 while the thread may keep none, or
    /// [`NO_STACK`].
    end: u64,
    /// The state that its address space was in then.
    changes: u64,
    /// The number that the countdown has taken in.
    counted: u32,
    /// The bytes of those that have been reported.
    reported: u32,
    /// A copied stack was not all of the stack.
    fell_short: bool,
}

/// More samples than there is room for.
const MOST: u32 = KEPT_BYTES / HEADER;
/// Readings of a countdown that changes all the time.
const MOST_READINGS: u32 = 8;

impl Kept {
    /// The number of samples that the countdown has not taken in.
    pub(super) fn since(&self, context: Context<'_>) -> u32 {
        let (_, count) = context.lwp().kept();
        // Otherwise it is not the thread that has counted.
        Some(count.wrapping_sub(self.counted)).filter(|it| *it <= MOST).unwrap_or(0)
    }

    /// The countdown takes in all samples. Returns the number of those that it had not.
    pub(super) fn count(&mut self, context: Context<'_>) -> u32 {
        let since = self.since(context);
        (_, self.counted) = context.lwp().kept();
        since
    }

    /// Lets the thread keep samples, or no longer. The countdown has taken in what the context
    /// says, which may be another than before.
    pub(super) fn write(&mut self, context: Context<'_>) {
        let (bytes, count) = context.lwp().kept();
        (self.counted, self.reported) = (count, self.reported.min(bytes));
        context.set(Slot::StackEnd, self.end);
    }

    /// From the next sample on, a thread asks the host.
    pub(super) fn stop(&mut self, context: Context<'_>) {
        self.end = 0;
        context.set(Slot::StackEnd, 0);
        context.gather().enable(false);
    }

    /// The thread may keep samples, whose stacks end at `end` while the address space is in the
    /// state `changes`; without one they have none. `gather`: other memory that belongs to them.
    pub(super) fn start(
        &mut self,
        context: Context<'_>,
        end: Option<u64>,
        changes: u64,
        gather: Option<&Gather>,
    ) {
        if !gather::publish(context, gather) {
            return self.stop(context);
        }
        let unit = u64::from(STACK_UNIT);
        self.end = end.map_or(NO_STACK, |end| end.next_multiple_of(unit));
        self.changes = changes;
        self.fell_short = false;
    }

    /// The next sample that has not been reported.
    fn next(&mut self, context: Context<'_>) -> Option<KeptSample> {
        let (bytes, _) = context.lwp().kept();
        let sample = context.lwp().kept_sample(self.reported, bytes);
        self.reported = sample.as_ref().map_or(bytes, |sample| self.reported + sample.size());
        sample
    }

    /// Makes room for others. The thread waits for the host.
    pub(super) fn make_room(&mut self, context: Context<'_>) {
        let (_, count) = context.lwp().kept();
        context.set(Slot::Kept, u64::from(count) << COUNT_SHIFT);
        self.reported = 0;
    }
}

impl Sampling {
    /// The parts of the countdown, and the amount of the high one that kept samples have added
    /// since it was published. The thread may be running.
    pub(super) fn countdown_with_kept(&self, context: Context<'_>) -> ([i64; 2], u64) {
        let interval = self.sampler.as_ref().and_then(Sampler::keeps).map_or(0, |(_, it)| it);
        let mut before = self.kept.since(context);
        let mut parts = countdown(context);
        for _ in 0..MOST_READINGS {
            let since = self.kept.since(context);
            if since == before {
                break;
            }
            (before, parts) = (since, countdown(context));
        }
        (parts, interval.saturating_mul(u64::from(before)))
    }

    /// The sampler takes in the samples that the thread has taken by itself.
    pub(super) fn take_kept(&mut self, context: Context<'_>) {
        let count = self.kept.count(context);
        if let Some(sampler) = &mut self.sampler {
            sampler.kept(count);
        }
    }
}

/// A thread, of which a sample has been taken, keeps those that follow, if their stacks can be
/// copied. `changes`: the state of its address space; `gather`: the memory that belongs to a stack.
pub(super) fn keep_samples(answer: &mut Answer<'_>, changes: u64, gather: Option<&Gather>) {
    let machine = &mut *answer.machine;
    let stacks = &machine.observers.call_stacks;
    let copied = gather.is_some() || !stacks.interprets(changes);
    let end = match machine.config.sampling.stacks {
        true => stacks.end_of_last().filter(|_| copied).map(Some),
        false => Some(None),
    };
    let context = machine.contexts.context(answer.cx.slot);
    let Some(lwp) = machine.tasks.lwp_mut(answer.cx.tid) else { return };
    let keeps = machine.config.trials.keeps && may_keep(&lwp.selection());
    let attached = matches!(machine.config.target, Target::Attach { .. });
    let may_fault =
        || lwp.sampling.kept.end != 0 || may_fault(&Status::read(answer.cx.tid), attached);
    match end.filter(|_| keeps && may_fault()) {
        Some(end) => lwp.sampling.kept.start(context, end, changes, gather),
        None => lwp.sampling.kept.stop(context),
    }
}

/// Returns whether a copy of a thread's memory may fault. Where the signals are blocked or ignored
/// the kernel resets their action and lets them through. Whoever blocks them later has told its
/// action by then, unless it was `attached` to.
fn may_fault(status: &Status, attached: bool) -> bool {
    const SIGBUS: u64 = 1 << 6;
    const SIGSEGV: u64 = 1 << 10;
    let has_none = |field| status.signals(field).is_none_or(|set| set & (SIGBUS | SIGSEGV) == 0);
    has_none("SigBlk:") && has_none("SigIgn:") && (!attached || has_none("SigCgt:"))
}

/// The memory of a thread's interpreter that its next samples need. The thread leads itself to
/// them: the host does not count what cut fragments execute then.
pub(super) fn gather_of(answer: &Answer<'_>, changes: u64) -> Option<Gather> {
    let machine = &*answer.machine;
    let plain = machine.observers.plan_of_code(&machine.config) == lwp_dbt::Plan::Plain;
    let thread = machine.tasks.threads.get(&answer.cx.tid).filter(|_| plain)?;
    machine.observers.call_stacks.gather((answer.cx.tid, thread.pid), changes)
}

/// Reports the samples that a thread has kept, which asks for something or is stopped. It keeps no
/// more if its code or its stack is another by now.
pub fn report_kept(counting: &mut Counting<'_>, tid: Tid) {
    report_early(counting, tid);
    let changes = counting.caches.of(counting.tasks).changes(tid);
    if let Some(profiled) = counting.tasks.profiled(counting.contexts, tid) {
        let kept = &mut profiled.lwp.sampling.kept;
        if kept.end != 0 && (kept.changes != changes || kept.fell_short) {
            kept.stop(profiled.context);
            if kept.fell_short {
                profiled.context.gather().forget_facts();
            }
        }
    }
}

/// Reports the samples that a thread has kept so far while it goes on. Nothing that it does next
/// depends on this. Returns whether there were any.
fn report_early(counting: &mut Counting<'_>, tid: Tid) -> bool {
    let mut any = false;
    while let Some((event, at)) = next_of(counting, tid) {
        any = true;
        counting.report_samples(tid, 1 << event, at);
        let whole = !counting.config.sampling.stacks
            || counting.observers.call_stacks.end_of_last().is_some();
        if let Some(lwp) = counting.tasks.lwp_mut(tid) {
            lwp.sampling.kept.fell_short |= !whole;
        }
    }
    any
}

/// Reports the samples that threads have kept so far, for all threads.
pub fn report_all_early(machine: &mut Machine) -> bool {
    let tids: Vec<Tid> = machine.tasks.threads.keys().copied().collect();
    let mut any = false;
    for tid in tids {
        any |= report_early(&mut machine.counting(), tid);
    }
    any
}

/// The next sample that a thread has kept, and its event.
fn next_of(counting: &mut Counting<'_>, tid: Tid) -> Option<(usize, SampledAt)> {
    let profiled = counting.tasks.profiled(counting.contexts, tid)?;
    let ThreadLwp { sampling, .. } = profiled.lwp;
    let (event, _) = sampling.sampler.as_ref().and_then(Sampler::keeps)?;
    let kept = &mut sampling.kept;
    let sample = kept.next(profiled.context)?;
    let mut registers = [0; 17];
    registers[..16].copy_from_slice(&sample.registers);
    registers[usize::from(RIP)] = sample.block;
    let memory = pieces(&sample.gathered);
    let stack =
        KeptStack { changes: kept.changes, start: sample.stack, bytes: sample.bytes, memory };
    Some((
        event,
        SampledAt { ip: sample.ip, registers: Registers::all(registers), kept: Some(stack) },
    ))
}
