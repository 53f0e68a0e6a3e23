//! Superblocks: blocks laid out one after the other along an expected path, with calls inlined.
//! Guards compare the targets of returns and indirect branches with the expected ones.
//!
//! A path is only a hint: the translator checks each step against the code, and ends the superblock
//! at the first block that doesn't follow from the previous one. A superblock can only be entered
//! at its beginning, where it is counted as if it were executed to its end; each side exit
//! subtracts the blocks that are left out. Branches from elsewhere to its other blocks need
//! ordinary fragments.
//!
//! The LWP countdown is also decreased at the beginning, and each side exit gives back the rest. If
//! the countdown doesn't last, an event is due in the superblock, and control continues in an
//! ordinary fragment of the first block, which counts only that block.

use super::lay::{Next, open_head};
use super::steps::{self, Step};
use super::{
    Arrival, Candidate, Destination, NOT_TAKEN, Region, Translator, Work, begin, deltas,
    direct_target, finish, lay, liveness, publish, set_displacement,
};
use crate::addr::{AppPc, CachePc};
use crate::block::{Block, CodeSource, Terminator};
use crate::emit::{
    Charge, Countdown, ExitKind, SideExit, Tally, Target, Trip, bodies, countdown, guards, heads,
    terminators,
};
use crate::fragment::{Fragment, FragmentId, Unit, Within};
use crate::plan::{Checks, EventDeltas, Lwp, Plan, Role};
use crate::recovery::Recovery;
use crate::state_map::{FlagWriter, bits};

/// The number of blocks behind a guard in which a write of the flags is looked for.
const DEPTH: u32 = 4;

/// The counts of an indirect call.
const CALL: EventDeltas = EventDeltas {
    instructions: 1,
    branches: 1,
    conditional: 0,
    conditional_taken: 0,
    calls: 1,
    returns: 0,
    indirect: 1,
};

/// The part of a superblock that has been laid.
#[derive(Default)]
struct Laid {
    fragments: Vec<FragmentId>,
    /// The counts of each block on the path.
    counts: Vec<EventDeltas>,
    /// The instructions whose flags guards overwrite.
    flags: Vec<Option<FlagWriter>>,
    /// The counter of the whole.
    counter: Option<u32>,
    /// The amounts that each block takes from the LWP countdown, where that is on.
    countdowns: Vec<Countdown>,
    /// The number of the trip that takes all of them.
    trip: Option<usize>,
    /// True if anything may have been written to memory since the place at which it can be left
    /// last, in code that may change.
    stored: bool,
    /// Of each exit, the block that it leaves; the region has so many of other superblocks.
    exits: Vec<usize>,
    first_exit: usize,
}

impl Translator {
    /// Translates the blocks along `path` as one superblock, as far as they follow one another;
    /// `entry` asks for an indirect entry of its first block too.
    ///
    /// Returns a region without head where nothing can be made of it: in code that may change,
    /// where profiling is on, where there is a fragment already.
    pub fn translate_path(
        &self,
        to: &mut Destination<'_>,
        source: &mut dyn CodeSource,
        path: &[AppPc],
        entry: bool,
    ) -> Region {
        let Some(&pc) = path.first().filter(|pc| makes_superblocks(self, to.unit, **pc)) else {
            return Region::default();
        };
        let before = to.cache.fragments.len();
        let mut work = begin(self, to, source);
        let steps = steps::follow(self, &mut work, path);
        if steps.is_empty() || !lay_superblock(self, &mut work, &steps, entry) {
            work.end();
            return Region::default();
        }
        publish(work, pc, before)
    }

    /// Returns whether the LWP countdown, if it is on, and instructions, if they are added up, can
    /// be taken for many blocks at once: all of them count, and nothing is counted beside it.
    pub(super) fn counts_down_at_once(&self, lwp: Lwp) -> bool {
        match lwp {
            _ if self.plan.traces() => false,
            Lwp::On(selection) => {
                self.plan == Plan::Plain && selection.ip.is_none() && !selection.dcache
            }
            Lwp::Off | Lwp::Absent => true,
        }
    }
}

/// Returns whether a superblock may begin at `pc`.
pub(super) fn makes_superblocks(by: &Translator, unit: &Unit, pc: AppPc) -> bool {
    let fixed = unit.checks == Checks::None && unit.marks.has_none_at(pc);
    fixed && by.counts_down_at_once(by.lwp_of(unit)) && !unit.has_fragment(pc)
}

/// Lays out a superblock. Returns false where not even the first block can be.
pub(super) fn lay_superblock(
    by: &Translator,
    work: &mut Work<'_>,
    steps: &[Step],
    entry: bool,
) -> bool {
    work.emitter.start_piece();
    let start = work.emitter.here();
    let head_pc = steps[0].block.pc;
    let first_exit = work.emitter.out.exits.len();
    let mut laid = Laid { first_exit, ..Laid::default() };
    if entry {
        finish::lay_entry(by, work, head_pc);
    }
    for at in 0..steps.len() {
        if at > 0 {
            work.close_fragment();
            work.emitter.start_piece();
        }
        let begin = if at == 0 { start } else { work.emitter.here() };
        let join = if at == 0 { open_head(work, bits::UNCOUNTED) } else { work.emitter.here() };
        let counters = work.cache.counters.len();
        if at == 0 {
            count_down(by, work, steps, &mut laid);
        }
        let Ok(next) = lay_step(by, work, steps, at, &mut laid) else {
            work.emitter.rewind(begin);
            work.cache.counters.forget_from(counters);
            if at == 0 {
                take_entry_back(work, head_pc, entry);
                return false;
            }
            end_at(work, steps[at].block.pc);
            break;
        };
        push_fragment(by, work, &steps[at], (begin, join), &mut laid);
        if at + 1 == steps.len() {
            end_of_path(by, work, next);
        }
    }
    settle(work, &laid);
    lay_alone(by, work, &steps[0].block, &laid);
    true
}

/// Takes what a superblock counts from the LWP countdown, where that is on.
fn count_down(by: &Translator, work: &mut Work<'_>, steps: &[Step], laid: &mut Laid) {
    if !by.profiles() {
        return;
    }
    let pc = steps[0].block.pc;
    let countdowns = steps.iter().map(|step| lay::countdown_of(by, work.unit, &step.block));
    laid.countdowns = countdowns.collect();
    let first = FragmentId(work.cache.fragments.len() as u32);
    let flags_dead = liveness::flags_dead(by, work, pc, 2);
    let trip = Trip::new(pc, first, Countdown::default(), flags_dead, 0);
    laid.trip = Some(work.emitter.out.trips.len());
    countdown::take(&mut work.emitter, trip);
}

/// Lays out the first block of a superblock alone, for where an event is due in the superblock.
fn lay_alone(by: &Translator, work: &mut Work<'_>, block: &Block, laid: &Laid) {
    let Some(trip) = laid.trip else { return };
    let next = lay::lay(by, work, block, Arrival::Jump, false);
    let alone = work.unit.fragments.insert(block.pc, laid.fragments[0]);
    if let Some(id) = alone {
        work.emitter.out.trips[trip].alone = Some(finish::head(work, id));
        work.unit.inner.push(id);
    }
    end_of_path(by, work, next);
}

/// Emits one block: its body, and how it goes on.
fn lay_step(
    by: &Translator,
    work: &mut Work<'_>,
    steps: &[Step],
    at: usize,
    laid: &mut Laid,
) -> Result<Option<Next>, ()> {
    let Step { block, to } = &steps[at];
    let charge = if at == 0 { charge_of(by, work, block, laid) } else { None };
    let exits = work.emitter.out.exits.len();
    work.emitter.fragment = Some(FragmentId(work.cache.fragments.len() as u32));
    work.emitter.dcache = None;
    if at > 0 && !steps[at - 1].is_left_before_branch() {
        let left = (block.pc, steps[at].counts());
        open_place(work, block, left, (Role::CutOff, laid));
    }
    laid.stored |= work.unit.checks != Checks::None && steps[at].stores();
    if !bodies::body(&mut work.emitter, block, charge) {
        return Err(());
    }
    let mut flags = None;
    let next = match to {
        None => lay::terminate(by, work, block)?,
        Some(to) => {
            flags = go_on(by, work, steps, (at, *to), laid)?;
            None
        }
    };
    laid.exits.extend((exits..work.emitter.out.exits.len()).map(|_| at));
    laid.flags.push(flags);
    Ok(next)
}

/// The branch at the end of a block, which goes on at `to` in the superblock. Returns the
/// instruction whose flags it overwrites, if it does.
fn go_on(
    by: &Translator,
    work: &mut Work<'_>,
    steps: &[Step],
    (at, to): (usize, AppPc),
    laid: &mut Laid,
) -> Result<Option<FlagWriter>, ()> {
    let block = &steps[at].block;
    match block.terminator {
        Terminator::Fall => work.emitter.fell_off(block),
        Terminator::Jump { .. } => work.emitter.point(0),
        Terminator::Call { .. } => terminators::inlined_call(&mut work.emitter, block.next()),
        Terminator::Conditional { target, condition } => {
            let taken = to != target;
            let (condition, out) =
                if taken { (condition, target) } else { (condition ^ 1, block.next()) };
            if by.plan.counts() || by.profiles() {
                let flags_dead = liveness::flags_dead(by, work, out, 2);
                let kind = ExitKind::Branch { to: out, taken, flags_dead };
                let exit = guards::branch_out(&mut work.emitter, block, condition, kind);
                work.emitter.out.exits.push(exit);
            } else {
                terminators::conditional(&mut work.emitter, condition, out);
                work.emitter.fell_through(block);
                work.emitter.point(0);
            }
            work.queue.push(Candidate::direct(out, work.doubt));
        }
        _ => return guarded(by, work, steps, (at, to), laid),
    }
    Ok(None)
}

/// A guard, by comparison where the flags are dead at `to` and can be had again elsewhere.
fn guarded(
    by: &Translator,
    work: &mut Work<'_>,
    steps: &[Step],
    (at, to): (usize, AppPc),
    laid: &mut Laid,
) -> Result<Option<FlagWriter>, ()> {
    let block = &steps[at].block;
    let target = Target::of(block).ok_or(())?;
    if steps[at].is_left_before_branch() {
        let left = EventDeltas { instructions: 1, ..deltas(block) };
        let left = (block.terminator_pc(), left);
        open_place(work, block, left, (Role::CutOffBranch, laid));
    }
    let writes = matches!(block.terminator, Terminator::IndirectCall);
    let compares = !writes || work.unit.checks == Checks::None;
    let recovery = match compares && liveness::flags_dead(by, work, to, DEPTH) {
        true => {
            let blocks: Vec<&Block> = steps[..=at].iter().map(|step| &*step.block).collect();
            Recovery::of(&blocks, |register| target.keeps(register))
        }
        false => None,
    };
    let writer = recovery.as_ref().map(|recovery| recovery.writer);
    if work.unit.checks != Checks::None
        && let Some(writer) = writer
        && let Some(code) = steps[..=at].iter().rev().find_map(|step| step.code_at(writer.pc))
    {
        let id = FragmentId(work.cache.fragments.len() as u32);
        work.cache.flag_writers.insert(id, code.into());
    }
    let mut exit = guards::guard(&mut work.emitter, block, to, recovery).ok_or(())?;
    if steps::leaves_call(by, block) {
        let pc = block.terminator_pc();
        exit.kind = exit.kind.before(pc, CALL);
        work.queue.push(Candidate::direct(pc, work.doubt));
    }
    work.emitter.out.exits.push(exit);
    Ok(writer)
}

/// The charge of a superblock, in its first block.
fn charge_of(
    by: &Translator,
    work: &mut Work<'_>,
    block: &Block,
    laid: &mut Laid,
) -> Option<Charge> {
    if !by.plan.counts() {
        return None;
    }
    let first = FragmentId(work.cache.fragments.len() as u32);
    let counter = work.cache.counters.push(EventDeltas::default(), Role::Superblock(first));
    laid.counter = Some(counter);
    let flags_dead = liveness::flags_dead(by, work, block.pc, 2);
    let dead_at = if flags_dead { None } else { block.first_dead_point(0) };
    Some(match dead_at {
        Some(at) => Charge::at(counter, at, bits::UNCOUNTED),
        None => {
            let before = bits::UNCOUNTED;
            Charge { counter, at: 0, flags_dead, before, in_terminator: false, run: None }
        }
    })
}

/// Takes in the fragment that has just been laid.
fn push_fragment(
    by: &Translator,
    work: &mut Work<'_>,
    step: &Step,
    (start, join): (CachePc, CachePc),
    laid: &mut Laid,
) {
    let block = &step.block;
    let id = FragmentId(work.cache.fragments.len() as u32);
    let counts = step.counts();
    let first = laid.fragments.is_empty();
    let flags_dead = first && liveness::flags_dead(by, work, block.pc, 2);
    work.cache.fragments.push(Fragment {
        pc: block.pc,
        app_len: block.bytes.len() as u16,
        instructions: block.instructions() as u16,
        start,
        len: 0,
        head: first.then_some(join),
        join,
        charged_first: false,
        target: direct_target(&block.terminator),
        deltas: counts,
        countdown: laid.countdowns.get(laid.fragments.len()).map_or((0, 0), |it| it.parts()),
        flags_dead,
    });
    match first && work.unit.checks == Checks::None {
        true => drop(work.unit.fragments.insert(block.pc, id)),
        false => work.unit.inner.push(id),
    }
    work.created.push(id);
    laid.fragments.push(id);
    laid.counts.push(counts);
}

/// Ends the superblock behind its last block.
fn end_of_path(by: &Translator, work: &mut Work<'_>, next: Option<Next>) {
    match next {
        Some(Next::Fall(pc)) => lay::fall_off(by, work, pc, Arrival::Fall),
        Some(Next::NotTaken(pc)) => {
            let counts = by.plan.counts();
            lay::fall_off(by, work, pc, if counts { Arrival::NotTaken } else { Arrival::Fall });
        }
        Some(Next::Return(pc)) => work.queue.push(Candidate::indirect(pc, work.doubt)),
        None => {}
    }
    work.close_fragment();
}

/// Says what the counters stand for, and what is charged ahead of each fragment.
fn settle(work: &mut Work<'_>, laid: &Laid) {
    let mut behind = vec![EventDeltas::default(); laid.counts.len()];
    let mut sum = EventDeltas::default();
    for at in (0..laid.counts.len()).rev() {
        behind[at] = sum;
        sum = sum.plus(laid.counts[at]);
    }
    if let Some(counter) = laid.counter {
        work.cache.counters.set(counter, sum);
    }
    let exits = &mut work.emitter.out.exits[laid.first_exit..];
    for (exit, &at) in exits.iter_mut().zip(&laid.exits) {
        let own = match exit.kind {
            ExitKind::Before { left, .. } => left.negated(),
            _ => elsewhere(laid.counts[at]),
        };
        let counts = behind[at].negated().plus(own);
        exit.counts = laid.counter.map(|_| counts);
    }
    let countdowns = settle_countdown(work, laid);
    for (at, &id) in laid.fragments.iter().enumerate() {
        let behind = if laid.counter.is_some() { behind[at] } else { EventDeltas::default() };
        let countdown = countdowns.get(at).map_or((0, 0), |countdown| countdown.parts());
        let (flags, next) = (laid.flags[at], laid.fragments.get(at + 1).copied());
        work.cache.within.insert(id, Within { behind, countdown, flags, next });
    }
}

/// Says how much of the LWP countdown is taken at the beginning, and given back on each way
/// out. Returns the amounts that are taken for the blocks behind each.
fn settle_countdown(work: &mut Work<'_>, laid: &Laid) -> Vec<Countdown> {
    let Some(trip) = laid.trip else { return Vec::new() };
    let mut behind = vec![Countdown::default(); laid.fragments.len()];
    let mut sum = Countdown::default();
    for at in (0..laid.fragments.len()).rev() {
        behind[at] = sum;
        // As large as that of all steps at most, which fits.
        sum = sum.plus(laid.countdowns[at]).unwrap_or(sum);
    }
    countdown::set_countdown(&mut work.emitter, trip, sum);
    let word = work.emitter.out.trips[trip].word;
    let exits = &mut work.emitter.out.exits[laid.first_exit..];
    for (exit, &at) in exits.iter_mut().zip(&laid.exits) {
        let amount = behind[at].packed();
        exit.gives_back = (amount != 0).then_some(Tally::Countdown { word, amount });
    }
    behind
}

/// Emits the ways out of the superblocks of a region. Returns the patchable places that lead
/// out, and where to.
pub(super) fn side_exits(work: &mut Work<'_>) -> Vec<[CachePc; 2]> {
    let mut places = Vec::new();
    for exit in std::mem::take(&mut work.emitter.out.exits) {
        let from = exit.fragment;
        let counters = &mut work.cache.counters;
        let tally = match exit.counts {
            Some(counts) => Some(Tally::Counter(counters.push(counts, (exit.role)(from)))),
            None => exit.gives_back,
        };
        let before = guards::side_exit(&mut work.emitter, &exit, tally);
        if work.emitter.here() != before {
            work.cache.close_piece(&work.emitter, before, exit.block, Some(exit.fragment));
        }
        let after = guards::side_exit_done(&mut work.emitter, &exit);
        let pc = match exit.kind {
            ExitKind::Branch { to, .. } | ExitKind::Before { pc: to, .. } => to,
            _ => exit.block,
        };
        work.cache.close_piece(&work.emitter, after, pc, None);
        for at in exit.at {
            set_displacement(&mut work.emitter, at, before);
        }
        places.extend(exit.place.map(|place| [place, before]));
    }
    places
}

/// A place in `block` at which a superblock of code that may change is left for the instruction
/// at `pc` while it is closed. The counts `left` of the block are still to come there.
///
/// There is none where the thread itself has written nothing since the place before: writes of
/// others it need not see before it serialises.
fn open_place(
    work: &mut Work<'_>,
    block: &Block,
    (pc, left): (AppPc, EventDeltas),
    (role, laid): (fn(FragmentId) -> Role, &mut Laid),
) {
    if work.unit.checks == Checks::None || !std::mem::take(&mut laid.stored) {
        return;
    }
    let place = heads::patchable_head(&mut work.emitter, 0);
    let exit = SideExit::at_place(&work.emitter, block, place, (pc, left), role);
    work.emitter.out.exits.push(exit);
    work.queue.push(Candidate::direct(pc, work.doubt));
}

/// The block at `pc` cannot be laid out: the superblock ends in front of it.
fn end_at(work: &mut Work<'_>, pc: AppPc) {
    let start = work.emitter.here();
    work.emitter.start_piece();
    work.emitter.point(0);
    work.emitter.jump_link(pc);
    work.queue.push(Candidate::direct(pc, work.doubt));
    work.cache.close_piece(&work.emitter, start, pc, None);
}

fn take_entry_back(work: &mut Work<'_>, pc: AppPc, entry: bool) {
    if entry {
        work.cache.entries.pop();
        work.entries.pop();
        work.unit.entries.remove(&pc);
    }
}

/// Returns the change of a block's `counts` where its branch leads elsewhere.
pub(super) fn elsewhere(counts: EventDeltas) -> EventDeltas {
    match counts {
        EventDeltas { conditional: 1, conditional_taken: 1, .. } => NOT_TAKEN,
        EventDeltas { conditional: 1, .. } => NOT_TAKEN.negated(),
        _ => EventDeltas::default(),
    }
}
