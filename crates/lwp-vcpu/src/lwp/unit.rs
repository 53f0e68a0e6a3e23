//! The LWP unit of a thread, with its clocks and its branch predictor.

use lwp_arch::retired::{Access, Branch};
use lwp_arch::{AppPc as Ip, EventKind, Fault, Retired};
use lwp_dbt::Selection;
use lwp_dbt::context::PAUSE;
use lwp_model::{LinearMemory, LwpUnit, Occurrences, Xorshift32};
use lwp_run::config::LwpConfig;

use super::clocks::Clocks;
use super::countdown::selection;
use super::predictor::Judge;
use super::{CPU, Executed, Surroundings};

/// The LWP unit of a thread, with all that it needs.
#[derive(Clone, Debug)]
pub(super) struct ThreadUnit {
    /// The unit itself, which is the reference model's.
    pub(super) model: LwpUnit,
    pub(super) clocks: Clocks,
    pub(super) surroundings: Surroundings,
    /// The branch predictor, where one is modelled.
    pub(super) judge: Option<Box<Judge>>,
}

/// Returns whether branches come due much sooner than whatever instructions are counted for, by the
/// intervals of both.
fn branches_are_scarce(interval: impl Fn(EventKind) -> Option<i32>) -> bool {
    let of_instructions =
        [EventKind::InstructionsRetired, EventKind::CoreClocks, EventKind::ReferenceClocks];
    let least = of_instructions.into_iter().filter_map(&interval).min();
    let branches = interval(EventKind::BranchesRetired);
    least.zip(branches).is_some_and(|(least, branches)| branches < least / 2)
}

impl ThreadUnit {
    /// A unit without a profile.
    pub(super) fn new(config: &LwpConfig, random: Xorshift32) -> Self {
        let mut model = LwpUnit::new(config.processor);
        model.enable_events(config.events);
        let clocks = Clocks::new(config, false);
        Self { model, clocks, surroundings: Surroundings::new(random), judge: None }
    }

    /// A profile has been loaded: its clocks start. Returns what is to be counted down for it.
    pub(super) fn start(&mut self, config: &LwpConfig) -> Selection {
        let mut selection = self.model.watched().map(selection).unwrap_or_default();
        self.judge = Judge::new(config.predictor, &mut selection);
        selection.scarce_branches = selection.instructions
            && selection.branches != 0
            && branches_are_scarce(|kind| self.model.interval(kind));
        self.clocks = Clocks::new(config, selection.dcache);
        selection
    }

    /// The amounts that may pass before an event is due: high part, low part, value samples.
    /// `by_instruction`: the high one is of instructions.
    pub(super) fn room(&self, by_instruction: bool) -> [i64; 3] {
        if !self.model.is_on() {
            return [PAUSE as i64; 3];
        }
        let headroom = self.model.headroom();
        let room = self.judge.as_ref().map_or(headroom, |judge| judge.limit(headroom));
        let (high, low) = if by_instruction {
            let timely = self.clocks.instructions_within(&headroom, self.room_for_branches());
            (room.instructions.min(timely), room.branches)
        } else {
            (room.branches, Occurrences::UNLIMITED)
        };
        [high, low, room.values].map(|part| part.min(Occurrences::UNLIMITED) as i64)
    }

    /// The number of misses that may be noted before an event can be due.
    pub(super) fn room_for_misses(&self) -> u64 {
        self.clocks.misses_within(&self.model.headroom())
    }

    /// Lets parts of the countdown, `high`, `low` and value samples, and misses pass.
    pub(super) fn pass(&mut self, by_instruction: bool, parts: [u64; 3], misses: u64) {
        let [high, low, values] = parts;
        let mut passed = Occurrences { values, dcache: misses, ..Occurrences::default() };
        let judged = self.judge.as_mut().map_or(0, |judge| judge.take_passed());
        if by_instruction {
            passed.instructions = high;
            passed.branches = low + judged;
            (passed.core_clocks, passed.reference_clocks) = self.clocks.pass(high);
        } else {
            passed.branches = high + judged;
        }
        self.model.pass(&passed);
    }

    /// Returns whether an instruction at `ip` passes the filter that the predictor keeps from
    /// translated code.
    fn admits(&self, ip: u64) -> bool {
        self.judge.as_ref().is_none_or(|judge| judge.admits(ip))
    }

    /// The instruction at `ip` has missed and passed. Returns whether the miss counts for the event
    /// that is counted.
    pub(super) fn miss_passes(&mut self, ip: u64, access: &Access) -> bool {
        if !self.admits(ip) {
            return false;
        }
        self.clocks.wait_for(access);
        self.model.counts_miss(access)
    }

    /// Reports an instruction to the unit, which has missed with `accesses`. `Err` where its record
    /// cannot be stored.
    pub(super) fn retire<M: LinearMemory>(
        &mut self,
        memory: &mut M,
        executed: &Executed,
        accesses: &[Access],
        selection: &Selection,
    ) -> Result<(), Fault> {
        let mut branch =
            executed.branch.map(|(kind, taken)| Branch { kind, taken, predicted: None });
        if let (Some(judge), Some(branch)) = (&mut self.judge, &mut branch) {
            judge.judge(branch, executed);
        }
        let mispredicted = branch.is_some_and(|branch| branch.predicted == Some(false));
        let admitted = selection.admits(executed.ip) && self.admits(executed.ip);
        let (core_cycles, reference_cycles) = match !executed.crosses_privilege && admitted {
            true => self.clocks.retire(accesses, mispredicted),
            false => (0, 0),
        };
        let retired = Retired {
            branch,
            accesses,
            core_cycles,
            reference_cycles,
            crosses_privilege: executed.crosses_privilege,
            ..Retired::plain(Ip(executed.ip), Ip(executed.next))
        };
        self.model.retire(&CPU, &retired, memory, &mut self.surroundings).map(|_| ())
    }

    /// A copy, to try something out. The predictor is large, and has no part in it.
    pub(super) fn trial(&self) -> Self {
        let Self { model, clocks, surroundings, judge: _ } = self;
        Self {
            model: model.clone(),
            clocks: clocks.clone(),
            surroundings: surroundings.clone(),
            judge: None,
        }
    }
}
