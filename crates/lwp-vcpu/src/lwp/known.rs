//! Cut fragments that a thread finds without the host, once the host has made them.

use lwp_arch::record::{BranchFlags, Event};
use lwp_arch::retired::BranchKind;
use lwp_arch::{AppPc as Ip, EventKind, Record, Revision};
use lwp_dbt::block::{Block, Terminator};
use lwp_dbt::context::{CUT_BYTES, CUTS_AT, KnownCut};
use lwp_dbt::routines::{RECORDED, SAMPLES};
use lwp_dbt::{CachePc, Selection, Slot};
use lwp_mailbox::contexts::Context;
use rustc_hash::FxHashMap;

use super::countdown::Countdown;
use super::due::branch_kind;
use super::sampler::Sampler;
use super::unit::ThreadUnit;
use super::{Cut, Executed, Sampling, ThreadLwp};

/// The cuts that a thread's context knows, by their place in it.
#[derive(Clone, Debug, Default)]
pub struct KnownCuts {
    cuts: FxHashMap<u32, Cut>,
    /// The side whose translations they are, if any can be found there.
    side: Option<usize>,
}

impl KnownCuts {
    /// False where it is known already: the thread did not lead itself there, for a reason.
    pub(super) fn remember(
        &mut self,
        context: Context<'_>,
        side: usize,
        known: KnownCut,
        cut: Cut,
    ) -> bool {
        let places = KnownCut::places(known.key);
        let is_it = |index: &u32| {
            self.cuts.contains_key(index) && context.lwp().known_cut_key(*index) == known.key
        };
        if places.iter().any(is_it) {
            return false;
        }
        let free = |index: &u32| !self.cuts.contains_key(index);
        let index = places.into_iter().find(free).unwrap_or(places[0]);
        self.cuts.insert(index, cut);
        self.side = Some(side);
        context.lwp().set_known_cut(index, &known.words());
        true
    }

    /// Lets none be found any more. A thread that has led itself to one is still in it.
    pub(super) fn forget(&mut self, context: Context<'_>) {
        if self.side.take().is_none() {
            return;
        }
        for &index in self.cuts.keys() {
            context.lwp().set_known_cut(index, &[0]);
        }
    }

    /// The thread is about to run on `side`: lets it find no others' cuts.
    pub fn use_on(&mut self, context: Context<'_>, side: usize) {
        if self.side.is_some_and(|known| known != side) {
            self.forget(context);
        }
    }

    /// The cut that `address` is the place of.
    pub(super) fn at(&self, context: Context<'_>, address: u64) -> Option<&Cut> {
        let offset = address.checked_sub(context.address() + u64::from(CUTS_AT))?;
        self.cuts.get(&((offset / u64::from(CUT_BYTES)) as u32))
    }
}

impl KnownCuts {
    /// The branch that ended the cut that `address` is the place of, after which control was at
    /// `next`.
    pub(super) fn ended(
        &self,
        context: Context<'_>,
        address: u64,
        next: u64,
    ) -> Option<(Executed, BranchKind)> {
        let cut = self.at(context, address)?;
        let ended = Executed { fall_through: cut.next, ..Executed::plain(*cut.pcs.last()?, next) };
        Some((ended, cut.branch?))
    }
}

/// The event that a cut is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DueFor {
    /// Instructions retired.
    Instruction,
    /// Branches retired.
    Branch,
    /// A sample of the instruction that follows.
    Sample,
}

impl ThreadLwp {
    /// The event that is due in `block`, where it is one that a thread can record by itself.
    pub(super) fn due_for(&self, block: &Block) -> Option<DueFor> {
        if self.unit.writes_branches() {
            let due = self.countdown.branch_is_due(self.room(), block);
            return due.then_some(DueFor::Branch);
        }
        if !self.unit.records_events() {
            return None;
        }
        self.countdown.due_for(self.room(), block)
    }
}

impl Cut {
    /// The facts that the thread's context is to know of the cut, the first instructions of a
    /// block, which are `block`, at `head`, where `selection` is counted down. `None` where the
    /// thread cannot lead itself there.
    pub(super) fn known(
        &self,
        block: &Block,
        head: CachePc,
        event: DueFor,
        selection: &Selection,
    ) -> Option<KnownCut> {
        let &ip = self.pcs.last().filter(|_| can_be_known(block))?;
        let count = match event {
            DueFor::Instruction | DueFor::Sample => self.pcs.len() as u32,
            DueFor::Branch => 0,
        };
        let (high, low) = lwp_dbt::countdown_of(block, selection);
        Some(KnownCut {
            key: KnownCut::key(block.pc.0, count),
            head: head.0,
            ip,
            next_mask: if event == DueFor::Branch { u64::MAX } else { 0 },
            high: u32::from(high),
            low: u32::from(low),
            part: u64::from(event == DueFor::Branch && selection.instructions),
            next: 0,
        })
    }
}

impl ThreadUnit {
    /// Returns whether records of instructions and branches may be stored by the thread.
    pub(super) fn records_events(&self) -> bool {
        self.stores() && (self.counts_what_is_published() || self.only_clock().is_some())
    }

    /// The clock whose events the countdown of instructions leads to, if those are all that it
    /// leads to, and translated code can work out how far it is from one to the next.
    pub(super) fn only_clock(&self) -> Option<EventKind> {
        let watched = self.model.watched().filter(|_| self.judge.is_none())?;
        if watched.dcache || watched.instructions || !self.clocks.can_be_told() {
            return None;
        }
        match (watched.core_clocks, watched.reference_clocks) {
            (true, false) => Some(EventKind::CoreClocks),
            (false, true) => Some(EventKind::ReferenceClocks),
            _ => None,
        }
    }

    /// The instructions, or branches, between two events of the high part of `countdown`, at least.
    fn span(&self, countdown: &Countdown, interval: u64) -> u64 {
        match countdown.clock() {
            Some(kind) => {
                let reference = kind == EventKind::ReferenceClocks;
                self.clocks.least_instructions(interval, reference)
            }
            None => interval.saturating_sub(1),
        }
    }

    /// Publishes what the thread needs to record events of `countdown` by itself.
    pub(super) fn write_events(
        &self,
        context: Context<'_>,
        countdown: &Countdown,
        random_mask: u64,
    ) {
        let [high, low, _] = countdown.published;
        context.set(Slot::LwpHighBase, high as u64);
        context.set(Slot::LwpLowBase, low as u64);
        let interval = |kind| self.model.interval(kind).unwrap_or(0) as u64 & !random_mask;
        let [high, low] = countdown.kinds().map(interval);
        let by_instruction = countdown.selection.instructions;
        let by = if by_instruction { 1 } else { 2 };
        context.set(Slot::LwpHighInterval, high);
        context.set(Slot::LwpHighSpan, self.span(countdown, high));
        context.set(Slot::LwpLowInterval, if by_instruction { low } else { 0 });
        context.set(Slot::LwpEvents, if self.records_events() { by } else { 0 });
        let revision = self.model.direct().map_or(Revision::Shipped, |direct| direct.revision());
        let clock = countdown.clock();
        let first = |event, taken| u64::from(first_dword(revision, event, clock, taken));
        context.set(Slot::LwpFirst, first(DueFor::Instruction, false));
        let branch = [false, true].map(|taken| first(DueFor::Branch, taken));
        context.set(Slot::LwpFirstOfBranch, branch[0] | branch[1] << 32);
    }
}

impl Sampling {
    /// Publishes whether the thread may lead itself to cut fragments before samples, or keep them,
    /// where `selection` is counted down.
    pub(super) fn write(&mut self, context: Context<'_>, selection: &Selection) {
        let samples = may_keep(selection);
        context.set(Slot::LwpEvents, if samples { u64::from(SAMPLES) } else { 0 });
        let sampler = self.sampler.as_ref().filter(|_| samples);
        match sampler.and_then(Sampler::keeps) {
            Some((_, interval)) => {
                context.set(Slot::LwpHighInterval, interval);
                self.kept.write(context);
            }
            None => context.set(Slot::StackEnd, 0),
        }
    }
}

/// Returns whether a thread may keep samples where `selection` is counted down: where the data
/// cache is watched, its sets lie in the room for steps and facts.
pub(super) fn may_keep(selection: &Selection) -> bool {
    selection.instructions && !selection.dcache
}

/// The first dword of every record of an event, but for the core's number. `clock`: what expires on
/// an instruction is this clock's.
fn first_dword(revision: Revision, event: DueFor, clock: Option<EventKind>, taken: bool) -> u32 {
    let event = match event {
        // Of a sample no record is stored.
        DueFor::Instruction | DueFor::Sample => match clock {
            Some(EventKind::ReferenceClocks) => Event::ReferenceClocks,
            Some(_) => Event::CoreClocks,
            None => Event::InstructionsRetired,
        },
        DueFor::Branch => {
            Event::BranchesRetired { flags: BranchFlags::new(taken, None), target: Ip(0) }
        }
    };
    let record = Record::new(revision, event, Ip(0), 0, 0).unwrap_or_default();
    let [a, b, c, d, ..] = record.to_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// Returns whether the end of a cut fragment reports itself in a way that needs no more than the
/// record.
fn can_be_known(block: &Block) -> bool {
    branch_kind(block).is_some() || block.terminator == Terminator::Fall
}

/// A routine has stored the record of an event: what it made ready comes to pass.
pub fn finish_record(context: Context<'_>) {
    for (from, to) in RECORDED {
        context.set(to, context.get(from));
    }
    context.set(Slot::LwpCut, 0);
    context.set(Slot::LwpNote, 0);
}
