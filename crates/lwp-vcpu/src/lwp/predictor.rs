//! The modelled branch predictor of a thread.
//!
//! A prediction depends on all earlier branches and their outcomes. So the predictor has to see
//! them all: every branch is executed at the end of a cut fragment, whatever the profile's filters
//! leave out. The thread finds the cut itself, appends the outcome to a list, and continues. The
//! host passes the list to the predictor when anything else needs the unit, when further branches
//! might make an event expire, or when too much time might pass. In the latter two cases, and if
//! misses or instructions by address are counted too, each branch is reported individually.

use lwp_arch::AppPc as Ip;
use lwp_arch::retired::Branch;
use lwp_dbt::routines::PREDICTED;
use lwp_dbt::{IpFilter, Selection, Slot};
use lwp_mailbox::contexts::Context;
use lwp_model::Occurrences;
use lwp_uarch::{Predictor, PredictorShape};

use super::Executed;
use super::known::KnownCuts;
use super::unit::ThreadUnit;

/// All kinds, by their places in [`lwp_arch::retired::BranchKind::ALL`].
const EVERY_KIND: u8 = (1 << lwp_arch::retired::BranchKind::ALL.len()) - 1;

/// A predictor, and what the profile leaves out for itself.
#[derive(Clone, Debug)]
pub(super) struct Judge {
    predictor: Predictor,
    /// The filter of the profile. What is translated counts everywhere.
    ip: Option<IpFilter>,
    /// Each instruction is reported: which of them count is decided here.
    each: bool,
    /// Branches may be written down: no misses are counted, and not each instruction is reported.
    written: bool,
    /// Branches that counted and have passed since the countdown was published.
    passed: u64,
    /// True if what the context says has been written down is of an earlier profile.
    fresh: bool,
}

impl Judge {
    /// A predictor for a profile that counts `selection`, if it counts what depends on predictions:
    /// branches, or instructions for their own sake or for their time. What is to be counted down
    /// is changed so that each branch is noticed.
    pub fn new(shape: Option<PredictorShape>, selection: &mut Selection) -> Option<Box<Self>> {
        let shape = shape.filter(|_| selection.counts_down())?;
        selection.branches = EVERY_KIND;
        let ip = selection.ip.take();
        let each = ip.is_some() && selection.instructions;
        let written = !each && !selection.dcache;
        let predictor = Predictor::new(shape);
        Some(Box::new(Self { predictor, ip, each, written, passed: 0, fresh: true }))
    }

    /// Returns whether an instruction at `ip` counts.
    pub fn admits(&self, ip: u64) -> bool {
        self.ip.is_none_or(|filter| filter.admits(ip))
    }

    /// Judges a branch that has been executed, and learns from it.
    pub fn judge(&mut self, branch: &mut Branch, executed: &Executed) {
        let (ip, behind) = (Ip(executed.ip), Ip(executed.fall_through));
        let next = Ip(executed.next);
        let right = self.predictor.retire(ip, behind, branch.kind, branch.taken, next);
        branch.predicted = Some(right);
    }

    /// The occurrences that may pass where `room` is left: no branch.
    pub fn limit(&self, room: Occurrences) -> Occurrences {
        let instructions = if self.each { 0 } else { room.instructions };
        Occurrences { branches: 0, instructions, ..room }
    }

    /// Returns the branches that counted and have not been passed on to the unit, for the last
    /// time.
    pub fn take_passed(&mut self) -> u64 {
        std::mem::take(&mut self.passed)
    }
}

impl ThreadUnit {
    /// Returns whether every branch is reported, because a predictor judges it and it may not be
    /// written down.
    pub(super) fn reports_each_branch(&self) -> bool {
        self.judge.is_some() && self.room_for_branches() == 0
    }

    /// Returns whether branches are written down at all.
    pub(super) fn writes_branches(&self) -> bool {
        self.judge.as_ref().is_some_and(|judge| judge.written)
    }

    /// The number of branches that may be written down before an event can be due.
    pub(super) fn room_for_branches(&self) -> u64 {
        if !self.writes_branches() {
            return 0;
        }
        self.clocks.branches_within(&self.model.headroom())
    }

    /// Publishes how many branches may be written down. `by_instruction`: the high part of the
    /// countdown is of instructions.
    pub(super) fn write_branches(&mut self, context: Context<'_>, by_instruction: bool) {
        let most = self.room_for_branches();
        let Some(judge) = &mut self.judge else { return };
        if std::mem::take(&mut judge.fresh) {
            context.set(Slot::LwpBranches, 0);
        }
        context.set(Slot::LwpMostBranches, most);
        if most > 0 {
            let high = usize::from(!by_instruction);
            context.set(Slot::LwpEvents, u64::from(PREDICTED[high]));
        }
    }

    /// Judges the branches that have been written down, which ended the cuts that the thread knows.
    pub(super) fn take_branches(&mut self, context: Context<'_>, known: &KnownCuts) {
        let Some(judge) = self.judge.as_mut().filter(|judge| !judge.fresh) else { return };
        if context.get(Slot::LwpBranches) == 0 {
            return;
        }
        for [cut, next] in context.lwp().branches() {
            let taken = cut & 1 != 0;
            let Some((executed, kind)) = known.ended(context, cut & !1, next) else { continue };
            let mut branch = Branch { kind, taken, predicted: None };
            judge.judge(&mut branch, &executed);
            if !judge.admits(executed.ip) {
                continue;
            }
            judge.passed += u64::from(self.model.counts_branch(&branch));
            if branch.predicted == Some(false) {
                self.clocks.wait_for_branch();
            }
        }
        context.set(Slot::LwpBranches, 0);
    }
}
