//! The branch predictor of a thread, where one is modelled.
//!
//! A prediction depends on every branch before it, and on how it went. So none passes in bulk: every
//! branch is executed at the end of a cut fragment and reported, whatever the profile's filters leave
//! out. That costs some microseconds a branch, which is why nothing is predicted unless it is asked for.

use lwp_arch::AppPc as Ip;
use lwp_arch::retired::Branch;
use lwp_dbt::{IpFilter, Selection};
use lwp_model::Occurrences;
use lwp_uarch::{Predictor, PredictorShape};

use super::Executed;

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
}

impl Judge {
    /// A predictor for a profile that counts `selection`, if it counts what depends on predictions:
    /// branches, or instructions for their own sake or for their time. What is to be counted down is
    /// changed so that each branch is noticed.
    pub fn new(shape: Option<PredictorShape>, selection: &mut Selection) -> Option<Box<Self>> {
        let shape = shape.filter(|_| selection.counts_down())?;
        selection.branches = EVERY_KIND;
        let ip = selection.ip.take();
        let each = ip.is_some() && selection.instructions;
        Some(Box::new(Self { predictor: Predictor::new(shape), ip, each }))
    }

    /// Whether an instruction at `ip` counts.
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

    /// What may pass where `room` is left: no branch.
    pub fn limit(&self, room: Occurrences) -> Occurrences {
        let instructions = if self.each { 0 } else { room.instructions };
        Occurrences { branches: 0, instructions, ..room }
    }
}
