//! Samples at exact intervals: the host uses LWP's countdown for itself.
//!
//! Every thread counts down to its next sample, from its first instruction to its last. The host
//! takes the stack at the beginning of the block that has the N-th instruction; there, the
//! registers are the program's own, and nothing within a block calls or returns. In three cases, a
//! cut fragment takes the thread to just before the instruction instead: if a block has several
//! samples, if data cache misses are sampled, and if the stack has functions of an interpreted
//! language, because interpreters update their current line in the middle of a block. None of this
//! depends on time, so equal runs have equal samples.
//!
//! Promise: R34

use lwp_arch::retired::BranchKind;
use lwp_dbt::block::{Block, Terminator};
use lwp_dbt::operands::Use;
use lwp_dbt::plan::branch_bit;
use lwp_dbt::{AppPc, Selection, Slot};
use lwp_mailbox::contexts::{Context, Contexts};
use lwp_model::{Occurrences, Xorshift32};
use lwp_process::Tid;
use lwp_process::regs::Regs;
use lwp_run::config::{Config, MOST_RANDOM_BITS, Sampled, Sampling};
use lwp_unwind::Registers;

use super::due::{instruction_pcs, lead_to_kept};
use super::kept::{gather_of, keep_samples};
use super::known::DueFor;
use super::{Executed, ThreadLwp, instruction};
use crate::call_stack::SampledAt;
use crate::machine::{Counting, Thread};
use crate::server::{Answer, Backlog};

/// The sampled events of one thread.
#[derive(Clone, Debug)]
pub(super) struct Sampler {
    counters: Vec<Counter>,
    reload: Reload,
}

/// The values that a counter is reloaded with.
#[derive(Clone, Copy, Debug)]
struct Reload {
    /// The bits of the interval that are random.
    mask: u64,
    random: Xorshift32,
}

impl Reload {
    /// The number that may pass until the next sample of an event with this interval.
    ///
    /// Spec: LWP §3.1: the interval is one less than what lies between two records, and its low
    /// bits are replaced.
    fn left(&mut self, interval: u64) -> u64 {
        let left = interval.max(1) - 1;
        match self.mask {
            0 => left,
            mask => (left & !mask) | (u64::from(self.random.next_u32()) & mask),
        }
    }
}

/// The generator of thread `serial`. Small seeds would begin alike.
pub(super) fn generator(seed: u64, serial: u32) -> Xorshift32 {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut mixed =
        (seed ^ u64::from(serial).wrapping_add(1).wrapping_mul(GOLDEN)).wrapping_mul(GOLDEN);
    mixed ^= mixed >> 32;
    Xorshift32::new(mixed as u32)
}

#[derive(Clone, Copy, Debug)]
struct Counter {
    event: Sampling,
    /// The number that may pass before the one that is a sample.
    left: u64,
    /// The number that have passed.
    passed: u64,
    /// `passed` when counting was last switched on or off.
    mark: u64,
    /// The number that had passed by then while it was on, modulo 2^64.
    kept: u64,
}

impl Counter {
    fn pass(&mut self, count: u64) {
        self.passed += count;
        self.left = self.left.saturating_sub(count);
    }
}

impl Sampler {
    /// Counts down to the first sample of each event. `random_bits` of every interval are random,
    /// the first one's too: threads that do the same fall out of step.
    pub(super) fn new(events: &[Sampling], random_bits: u8, random: Xorshift32) -> Self {
        let mut reload = Reload { mask: (1 << random_bits.min(MOST_RANDOM_BITS)) - 1, random };
        let counter = |event: &Sampling| Counter {
            event: *event,
            left: reload.left(event.interval),
            passed: 0,
            mark: 0,
            kept: 0,
        };
        Self { counters: events.iter().map(counter).collect(), reload }
    }

    /// Of none of the events is there ever a sample.
    pub(super) fn idle(events: &[Sampling]) -> Self {
        let event = |event: &Sampling| Sampling { interval: u64::MAX, ..*event };
        Self::new(&events.iter().map(event).collect::<Vec<_>>(), 0, Xorshift32::new(0))
    }

    /// The event and the interval of samples that a thread may take by itself, if there are any:
    /// every so many instructions.
    pub(super) fn keeps(&self) -> Option<(usize, u64)> {
        let mut counters = self.counters.iter().enumerate();
        let (event, counter) =
            counters.find(|(_, counter)| counter.event.what == Sampled::Instructions)?;
        (self.reload.mask == 0).then_some((event, counter.event.interval.max(1)))
    }

    /// A thread has taken `count` samples by itself.
    pub(super) fn kept(&mut self, count: u32) {
        if let Some((event, interval)) = self.keeps() {
            let more = interval.saturating_mul(u64::from(count));
            self.counters[event].left = self.counters[event].left.saturating_add(more);
        }
    }

    /// High and low part of the countdown, and value samples, which there are none of.
    pub(super) fn room(&self) -> [i64; 3] {
        let left = |instructions: bool| {
            let counters = self.counters.iter();
            let mut of_kind = counters.filter(|counter| match counter.event.what {
                Sampled::Instructions => instructions,
                Sampled::Branches(_) => !instructions,
                Sampled::DcacheMisses => false,
            });
            of_kind.next().map(|counter| counter.left.min(Occurrences::UNLIMITED))
        };
        let parts = match (left(true), left(false)) {
            (Some(instructions), branches) => {
                [instructions, branches.unwrap_or(Occurrences::UNLIMITED)]
            }
            (None, branches) => {
                [branches.unwrap_or(Occurrences::UNLIMITED), Occurrences::UNLIMITED]
            }
        };
        [parts[0] as i64, parts[1] as i64, Occurrences::UNLIMITED as i64]
    }

    /// Lets so many of the high and the low part pass.
    pub(super) fn pass(&mut self, high: u64, low: u64) {
        let instructions =
            self.counters.iter().any(|counter| counter.event.what == Sampled::Instructions);
        for counter in &mut self.counters {
            let count = match counter.event.what {
                Sampled::Instructions => high,
                Sampled::Branches(_) if instructions => low,
                Sampled::Branches(_) => high,
                Sampled::DcacheMisses => 0,
            };
            counter.pass(count);
        }
    }

    /// The number of misses that may pass before the one that is a sample.
    pub(super) fn room_for_misses(&self) -> u64 {
        let rooms = self.of_misses().map(|(_, counter)| counter.left);
        rooms.min().unwrap_or(Occurrences::UNLIMITED)
    }

    /// Lets misses pass that no sample is of.
    pub(super) fn pass_misses(&mut self, count: u64) {
        for counter in &mut self.counters {
            if counter.event.what == Sampled::DcacheMisses {
                counter.pass(count);
            }
        }
    }

    /// The events, a bit each, of which the next miss is a sample.
    fn due_by_miss(&self) -> u32 {
        let due = self.of_misses().filter(|(_, counter)| counter.left == 0);
        due.fold(0, |bits, (event, _)| bits | 1 << event)
    }

    fn of_misses(&self) -> impl Iterator<Item = (usize, &Counter)> {
        let counters = self.counters.iter().enumerate();
        counters.filter(|(_, counter)| counter.event.what == Sampled::DcacheMisses)
    }

    /// Lets one instruction pass, with `misses` that nobody could foresee. Adds to `overdue` how
    /// many of those were to be samples of which event.
    pub(super) fn retire(
        &mut self,
        executed: &Executed,
        misses: u64,
        overdue: &mut Vec<(u32, u64)>,
    ) {
        for (event, counter) in self.counters.iter_mut().enumerate() {
            if counter.event.what == Sampled::DcacheMisses {
                counter.passed += misses;
                let (mut beyond, mut times) = (misses, 0);
                while beyond > counter.left {
                    beyond -= counter.left + 1;
                    counter.left = self.reload.left(counter.event.interval);
                    times += 1;
                }
                counter.left -= beyond;
                if times > 0 {
                    overdue.push((1 << event, times));
                }
            } else if counts(counter.event.what, executed) {
                counter.pass(1);
            }
        }
    }

    /// The first instruction of `block` that is a sample, and of which events: a bit each.
    fn due(&self, block: &Block, selection: &Selection) -> Option<(u32, u32)> {
        let (high, low) = lwp_dbt::countdown_of(block, selection);
        let last = u64::from(block.instructions()) - 1;
        let mut found: Option<(u64, u32)> = None;
        for (event, counter) in self.counters.iter().enumerate() {
            let (count, index) = match counter.event.what {
                Sampled::Instructions => (high, counter.left),
                Sampled::Branches(_) if selection.instructions => (low, last),
                Sampled::Branches(_) => (high, last),
                Sampled::DcacheMisses => continue,
            };
            if u64::from(count) <= counter.left {
                continue;
            }
            let bit = 1 << event;
            found = match found {
                Some((first, bits)) if first == index => Some((first, bits | bit)),
                Some((first, bits)) if first < index => Some((first, bits)),
                _ => Some((index, bit)),
            };
        }
        found.map(|(index, bits)| (index as u32, bits))
    }

    /// The samples `events` are being taken: the instruction that is one passes after `before`
    /// others of its block.
    fn taken(&mut self, events: u32, before: u32) {
        for (event, counter) in self.counters.iter_mut().enumerate() {
            if events >> event & 1 != 0 {
                let before = match counter.event.what {
                    Sampled::Instructions => u64::from(before),
                    // The branch ends the block.
                    Sampled::Branches(_) | Sampled::DcacheMisses => 0,
                };
                counter.left = before + self.reload.left(counter.event.interval) + 1;
            }
        }
    }

    /// The sampler as it is once the samples `events`, of instruction `index` of `block`, have been
    /// taken at the block's beginning. `None` if that is too early: there are others in the block,
    /// or there may be some of misses.
    fn after_block_of(
        &self,
        (index, events): (u32, u32),
        block: &Block,
        selection: &Selection,
    ) -> Option<Self> {
        let mut after = self.clone();
        after.taken(events, index);
        (!selection.dcache && after.due(block, selection).is_none()).then_some(after)
    }

    /// The count of each event while counting was on, given the amounts that have passed since the
    /// countdown was published.
    fn totals(&self, high: u64, low: u64, enabled: bool) -> Vec<u64> {
        let mut now = self.clone();
        now.pass(high, low);
        let counted = |counter: &Counter| match enabled {
            true => counter.kept.wrapping_add(counter.passed.wrapping_sub(counter.mark)),
            false => counter.kept,
        };
        // Some of a block may have been given back that had passed when counting was switched.
        let positive = |count: u64| u64::try_from(count.cast_signed()).unwrap_or(0);
        now.counters.iter().map(counted).map(positive).collect()
    }

    /// Starts over for another report: everything that has passed until now has been reported.
    pub(super) fn restart(&mut self, high: u64, low: u64) {
        self.switch(high, low, false);
        self.counters.iter_mut().for_each(|counter| counter.kept = 0);
    }

    pub(super) fn switch(&mut self, high: u64, low: u64, off: bool) {
        let mut now = self.clone();
        now.pass(high, low);
        for (counter, now) in self.counters.iter_mut().zip(&now.counters) {
            if off {
                let passed = now.passed.wrapping_sub(counter.mark);
                counter.kept = counter.kept.wrapping_add(passed);
            }
            counter.mark = now.passed;
        }
    }
}

/// Returns whether an instruction counts for a sampled event.
fn counts(what: Sampled, executed: &Executed) -> bool {
    match what {
        Sampled::Instructions => !executed.crosses_privilege,
        Sampled::Branches(kinds) => {
            executed.branch.is_some_and(|(kind, _)| kinds & bit_of(kind) != 0)
        }
        Sampled::DcacheMisses => false,
    }
}

fn bit_of(kind: BranchKind) -> u8 {
    match kind {
        BranchKind::Conditional => branch_bit::CONDITIONAL,
        BranchKind::DirectJump => branch_bit::DIRECT_JUMP,
        BranchKind::DirectCall => branch_bit::DIRECT_CALL,
        BranchKind::IndirectJump => branch_bit::INDIRECT_JUMP,
        BranchKind::IndirectCall => branch_bit::INDIRECT_CALL,
        BranchKind::Return => branch_bit::RETURN,
        BranchKind::FarTransfer => branch_bit::FAR_TRANSFER,
    }
}

/// The events that have to be counted down for the samples of a run.
pub fn selection(run: &Config) -> Selection {
    let ip = run.counted.code.and_then(|code| code.everywhere());
    let mut selection = Selection { ip, dcache: run.model.is_some(), ..Selection::default() };
    for event in &run.sampling.events {
        match event.what {
            Sampled::Instructions => selection.instructions = true,
            Sampled::Branches(kinds) => selection.branches |= kinds,
            Sampled::DcacheMisses => selection.dcache = true,
        }
    }
    selection
}

impl ThreadLwp {
    /// The sampler of the thread, with the events that it counts down.
    fn sampler(&self) -> Option<(&Sampler, Selection)> {
        Some((self.sampling.sampler.as_ref()?, self.selection()))
    }
}

impl Thread {
    /// The number that the thread has counted of each sampled event.
    pub fn sampled_totals(&self, contexts: &Contexts) -> Vec<u64> {
        let Some(lwp) = &self.lwp else { return Vec::new() };
        let Some(sampler) = &lwp.sampling.sampler else { return Vec::new() };
        let [high, low] = lwp.since_published(contexts.context(self.slot));
        sampler.totals(high, low, self.account.counting)
    }
}

impl Answer<'_> {
    /// A sample is due in the block at `pc`, which has not begun, or a cut fragment has led to it.
    pub fn sample_due(&mut self, pc: AppPc, block: &Block) -> Option<Backlog> {
        let tid = self.cx.tid;
        let changes = self.machine.caches.of(&self.machine.tasks).changes(tid);
        let ahead = !self.machine.config.sampling.stacks
            || !self.machine.observers.call_stacks.interprets(changes);
        let sampler = self.machine.tasks.lwp(tid).and_then(ThreadLwp::sampler);
        let due = sampler.and_then(|(sampler, selection)| {
            let due = sampler.due(block, &selection)?;
            let after = sampler.after_block_of(due, block, &selection);
            Some((due, after.filter(|_| ahead)))
        });
        let registers = asked_with(self.context(), pc.0);
        match due {
            Some(((index, events), Some(after))) => {
                let ip = instruction_pcs(block, index as usize + 1).last().copied();
                let at = SampledAt { ip: ip.unwrap_or(pc.0), registers, kept: None };
                self.machine.counting().report_samples(tid, events, at);
                if let Some(lwp) = self.machine.tasks.lwp_mut(tid) {
                    lwp.sampling.sampler = Some(after);
                }
                keep_samples(self, changes, None);
                self.machine.tasks.lwp_publish(&self.machine.contexts, tid);
            }
            Some(((0, events), None)) => {
                self.machine.counting().take_samples(tid, events, registers);
                if !ahead {
                    let gather = gather_of(self, changes);
                    keep_samples(self, changes, gather.as_ref());
                }
                self.machine.tasks.lwp_publish(&self.machine.contexts, tid);
            }
            Some(((index, _), None)) => {
                let keeps = self.context().get(Slot::Gather) != 0;
                return match keeps && self.context().get(Slot::StackEnd) != 0 {
                    true => lead_to_kept(self, pc, index, block),
                    false => self.lwp_cut(pc, index, Some(DueFor::Sample)),
                };
            }
            None => {}
        }
        match block.insns.is_empty() && matches!(block.terminator, Terminator::Repeat { .. }) {
            // Where misses are sampled the host goes through what it accesses.
            true => self.lwp_cut(pc, 1, None),
            false => self.dispatch(pc, false),
        }
    }

    /// The access that the context describes, of the instruction at `pc`, which has not been
    /// executed, misses the data cache, and there was no room for it among the notes: it may be a
    /// sample.
    pub fn sample_miss(&mut self, pc: AppPc) -> Option<Backlog> {
        let tid = self.cx.tid;
        self.machine.tasks.lwp_collect(&self.machine.contexts, tid);
        self.machine.tasks.filter_samples_at(&self.machine.config, &self.machine.caches, tid, pc.0);
        let context = self.context();
        let load = is_load(context.get(Slot::LwpMeta));
        let lwp = self.machine.tasks.lwp(tid)?;
        let (lines, (sampler, selection)) = (lwp.cache.lines(), lwp.sampler()?);
        let (due, room) = (sampler.due_by_miss(), sampler.room_for_misses());
        if !selection.admits(pc.0) {
            // None of its misses counts. Where there is room for none, it finds some alone.
            return match lines > room {
                true => self.lwp_cut(pc, 1, None),
                false => self.dispatch(pc, false),
            };
        }
        if due != 0 && load {
            let registers = asked_with(context, pc.0);
            self.machine.counting().take_samples(tid, due, registers);
            self.machine.tasks.lwp_publish(&self.machine.contexts, tid);
        } else if lines >= room {
            // Whether one of its misses is the sample is only known afterwards.
            return self.lwp_cut(pc, 1, None);
        }
        self.dispatch(pc, false)
    }
}

impl Counting<'_> {
    /// Takes the samples of misses that nobody could foresee, of an instruction that has just been
    /// executed.
    pub(super) fn take_overdue(&mut self, tid: Tid, registers: Registers) {
        let overdue = self
            .tasks
            .lwp_mut(tid)
            .map(|lwp| std::mem::take(&mut lwp.sampling.overdue))
            .unwrap_or_default();
        for (events, times) in overdue {
            let at = || SampledAt::next(registers);
            (0..times).for_each(|_| self.report_samples(tid, events, at()));
        }
    }

    /// The instruction at the application's pc is about to be executed by the host, or natively
    /// alone.
    pub fn sample_before(&mut self, tid: Tid, app: &Regs) {
        if self.tasks.lwp(tid).and_then(ThreadLwp::sampler).is_none() {
            return;
        }
        self.tasks.lwp_collect(self.contexts, tid);
        self.tasks.filter_samples_at(self.config, self.caches, tid, app.0.rip);
        let executed = instruction::classify(tid, app.0.rip, app.0.rip);
        let sampler = self.tasks.lwp(tid).and_then(ThreadLwp::sampler);
        let Some((sampler, selection)) = sampler else { return };
        let admitted = selection.admits(app.0.rip);
        let due = |counter: &Counter| {
            admitted && counter.left == 0 && counts(counter.event.what, &executed)
        };
        let bits = sampler.counters.iter().enumerate().filter(|(_, counter)| due(counter));
        let events = bits.fold(0, |bits, (event, _)| bits | 1 << event);
        if events != 0 {
            self.take_samples(tid, events, stopped_with(app));
        }
        self.tasks.lwp_publish(self.contexts, tid);
    }

    /// Takes the samples `events`, a bit each, of the instruction that is about to pass.
    fn take_samples(&mut self, tid: Tid, events: u32, registers: Registers) {
        if let Some(sampler) = self.tasks.lwp_mut(tid).and_then(|lwp| lwp.sampling.sampler.as_mut())
        {
            sampler.taken(events, 0);
        }
        self.report_samples(tid, events, SampledAt::next(registers));
    }
}

/// Returns whether an access, as [`Slot::LwpMeta`] describes it, is a load, whatever else it is.
fn is_load(meta: u64) -> bool {
    matches!(Use::from_raw(meta >> 12), Use::Load | Use::LoadStore)
}

/// The registers of a thread that waits in its mailbox, about to execute `pc`.
pub(super) fn asked_with(context: Context<'_>, pc: u64) -> Registers {
    use Slot::{R8, R9, R10, R11, R12, R13, R14, R15, Rax, Rbp, Rbx, Rcx, Rdi, Rdx, Rsi, Rsp};
    let slots = [Rax, Rdx, Rcx, Rbx, Rsi, Rdi, Rbp, Rsp, R8, R9, R10, R11, R12, R13, R14, R15];
    let mut values = [pc; 17];
    for (value, slot) in values.iter_mut().zip(slots) {
        *value = context.get(slot);
    }
    Registers::all(values)
}

/// The registers of a stopped thread.
pub(super) fn stopped_with(app: &Regs) -> Registers {
    let r = &app.0;
    Registers::all([
        r.rax, r.rdx, r.rcx, r.rbx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8, r.r9, r.r10, r.r11, r.r12,
        r.r13, r.r14, r.r15, r.rip,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampler(events: &[(Sampled, u64)]) -> Sampler {
        let event = |&(what, interval)| Sampling { what, interval };
        Sampler::new(&events.iter().map(event).collect::<Vec<_>>(), 0, generator(0, 0))
    }

    #[test]
    fn the_nth_is_the_sample() {
        let mut sampler = sampler(&[(Sampled::Instructions, 10)]);
        assert_eq!(sampler.room()[0], 9);
        sampler.pass(9, 0);
        assert_eq!(sampler.room()[0], 0);
        sampler.taken(1, 0);
        // The tenth itself, and nine more, until the twentieth.
        sampler.pass(10, 0);
        assert_eq!(sampler.room()[0], 0);
        assert_eq!(sampler.totals(0, 0, true), [19]);
    }

    #[test]
    fn random_intervals_differ_in_their_low_bits_and_repeat() {
        let event = Sampling { what: Sampled::Instructions, interval: 1000 };
        let gaps = |serial: u32| -> Vec<u64> {
            let mut sampler = Sampler::new(&[event], 6, generator(0, serial));
            let mut gaps = Vec::new();
            for _ in 0..4096 {
                let left = sampler.room()[0] as u64;
                gaps.push(left + 1);
                sampler.pass(left, 0);
                sampler.taken(1, 0);
                sampler.pass(1, 0);
            }
            gaps
        };
        let first = gaps(0);
        // 999 is 0b11_1110_0111: from 960 to 1023 may pass.
        assert!(first.iter().all(|gap| (961..=1024).contains(gap)));
        assert!((961..=1024).all(|gap| first.contains(&gap)));
        let mean = first.iter().sum::<u64>() as f64 / 4096.0;
        assert!((mean - event.mean_interval(6) as f64).abs() < 2.0, "{mean}");
        assert_eq!(first, gaps(0));
        assert_ne!(first, gaps(1));
    }

    #[test]
    fn nothing_is_sampled_of_a_thread_that_nobody_asked_for() {
        let event = |what| Sampling { what, interval: 1 };
        let mut idle = Sampler::idle(&[event(Sampled::Instructions), event(Sampled::DcacheMisses)]);
        idle.pass(1 << 60, 0);
        assert_eq!(idle.room()[0], Occurrences::UNLIMITED as i64);
        assert_eq!(idle.due_by_miss(), 0);
    }

    #[test]
    fn both_parts_of_the_countdown_have_their_counter() {
        let events = [(Sampled::ALL_BRANCHES, 7), (Sampled::Instructions, 100)];
        let mut both = sampler(&events);
        assert_eq!(both.room()[..2], [99, 6]);
        both.pass(10, 2);
        assert_eq!(both.room()[..2], [89, 4]);
        assert_eq!(both.totals(1, 1, true), [3, 11]);
        let branches = sampler(&events[..1]);
        assert_eq!(branches.room()[0], 6);
    }

    #[test]
    fn misses_that_nobody_could_foresee_are_counted_and_sampled() {
        let mut sampler = sampler(&[(Sampled::DcacheMisses, 10)]);
        assert_eq!((sampler.room_for_misses(), sampler.due_by_miss()), (9, 0));
        sampler.pass_misses(8);
        let plain = Executed::plain(0, 1);
        let mut overdue = Vec::new();
        sampler.retire(&plain, 1, &mut overdue);
        assert!(overdue.is_empty());
        assert_eq!((sampler.room_for_misses(), sampler.due_by_miss()), (0, 1));
        // The tenth and two more: eight may pass before the twentieth.
        sampler.retire(&plain, 3, &mut overdue);
        assert_eq!((sampler.room_for_misses(), sampler.due_by_miss()), (7, 0));
        // Those up to the 32nd: the 20th and the 30th are samples.
        sampler.retire(&plain, 20, &mut overdue);
        assert_eq!(overdue, [(1, 1), (1, 2)]);
        assert_eq!(sampler.room_for_misses(), 7);
        assert_eq!(sampler.totals(0, 0, true), [32]);
    }

    #[test]
    fn what_passes_while_counting_is_off_is_not_counted() {
        let mut one = sampler(&[(Sampled::Instructions, 1000)]);
        one.pass(5, 0);
        one.switch(2, 0, true);
        one.pass(40, 0);
        assert_eq!(one.totals(0, 0, false), [7]);
        one.switch(0, 0, false);
        one.pass(3, 0);
        assert_eq!(one.totals(1, 0, true), [11]);
        one.restart(1, 0);
        assert_eq!(one.totals(1, 0, true), [0]);
        assert_eq!(one.totals(4, 0, true), [3]);
    }

    #[test]
    fn what_is_given_back_behind_a_switch_is_taken_from_what_follows() {
        let mut one = sampler(&[(Sampled::Instructions, 1000)]);
        // A block of ten has begun, and is left after its seventh.
        one.restart(10, 0);
        assert_eq!(one.totals(7, 0, true), [0]);
        one.pass(7, 0);
        assert_eq!(one.totals(5, 0, true), [2]);
    }
}
