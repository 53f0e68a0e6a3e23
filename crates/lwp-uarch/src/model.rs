//! The parts put together: what an instruction did goes in, what a unit counts comes out.

use lwp_arch::retired::{Access, AccessKind, Branch, BranchKind};
use lwp_arch::{AppPc, LinearAddr, Retired};

use crate::branch::{Predictor, PredictorShape};
use crate::caches::Caches;
use crate::clock::{CoreClock, ReferenceClock};
use crate::latency::Hierarchy;
use crate::presets::Preset;

/// A memory operand of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// Load, store or prefetch. A read-modify-write operand is a load followed by a store.
    pub kind: AccessKind,
    /// Linear address of the lowest byte.
    pub address: LinearAddr,
    /// Length in bytes.
    pub bytes: u32,
}

/// The effect of an instruction, as anyone who executes it knows without a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step<'a> {
    /// Linear address of the instruction.
    pub ip: AppPc,
    /// Linear address of the byte after the instruction.
    pub fall_through: AppPc,
    /// Linear address of the instruction executed next.
    pub next_ip: AppPc,
    /// The kind of branch and whether it was taken, if it is one.
    pub branch: Option<(BranchKind, bool)>,
    /// Its memory operands, in the order of access.
    pub operands: &'a [Operand],
    /// It entered or left CPL 3.
    pub crosses_privilege: bool,
}

impl Step<'static> {
    /// An instruction that is no branch and touches no memory.
    pub const fn plain(ip: AppPc, next_ip: AppPc) -> Self {
        Self {
            ip,
            fall_through: next_ip,
            next_ip,
            branch: None,
            operands: &[],
            crosses_privilege: false,
        }
    }
}

/// A modelled machine.
///
/// Spec: P07 §4.2, §4.3; LWP §4.2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    caches: Hierarchy,
    predictor: Option<Predictor>,
    core: CoreClock,
    reference: ReferenceClock,
    accesses: Vec<Access>,
}

impl Model {
    /// A machine of this kind, with cold caches, clocks at zero and **no** branch predictor:
    /// records say that nothing is known of predictions, and mispredictions cost no time.
    pub fn new(preset: &Preset) -> Self {
        Self::with(preset, &Caches::of(preset), None)
    }

    /// As [`Self::new`], with the branch predictor of the preset.
    pub fn with_predictor(preset: &Preset) -> Self {
        Self::with(preset, &Caches::of(preset), Some(preset.predictor))
    }

    /// A machine with the clocks of `preset`, these caches, and this branch predictor.
    pub fn with(preset: &Preset, caches: &Caches, predictor: Option<PredictorShape>) -> Self {
        Self {
            caches: Hierarchy::new(&caches.levels, caches.memory),
            predictor: predictor.map(Predictor::new),
            core: CoreClock::new(preset.clock),
            reference: ReferenceClock::of_core_cycles(preset.reference_hz, preset.core_hz),
            accesses: Vec::new(),
        }
    }

    /// Returns the modelled data caches, as they are now.
    pub const fn caches(&self) -> &Hierarchy {
        &self.caches
    }

    /// Forgets caches and predictions; clocks go on.
    pub fn flush(&mut self) {
        self.caches.flush();
        if let Some(predictor) = &mut self.predictor {
            predictor.flush();
        }
    }

    /// The branch of a step, with its prediction.
    ///
    /// Spec: P07 §4.2; LWP §4.2.
    fn judge(&mut self, step: &Step<'_>) -> Option<Branch> {
        let (kind, taken) = step.branch?;
        let predicted = self.predictor.as_mut().map(|predictor| {
            predictor.retire(step.ip, step.fall_through, kind, taken, step.next_ip)
        });
        Some(Branch { kind, taken, predicted })
    }

    /// As [`Self::retire`], but no time passes.
    ///
    /// Spec: LWP §4.2.
    pub fn retire_in_no_time(&mut self, step: &Step<'_>) -> Retired<'_> {
        let (core, reference) = (self.core.clone(), self.reference.clone());
        let Retired { branch, .. } = self.retire(step);
        (self.core, self.reference) = (core, reference);
        Retired {
            ip: step.ip,
            next_ip: step.next_ip,
            branch,
            accesses: &self.accesses,
            core_cycles: 0,
            reference_cycles: 0,
            crosses_privilege: step.crosses_privilege,
        }
    }

    /// Lets an instruction retire. Reference clocks follow the core clock at the nominal rates of
    /// the preset; whoever has a real clock replaces [`Retired::reference_cycles`].
    ///
    /// Spec: LWP §4.2.
    pub fn retire(&mut self, step: &Step<'_>) -> Retired<'_> {
        self.accesses.clear();
        for operand in step.operands {
            let access = self.caches.access(operand.kind, operand.address, operand.bytes);
            self.accesses.push(access);
        }
        let branch = self.judge(step);
        let mispredicted = branch.is_some_and(|branch| branch.predicted == Some(false));
        let core_cycles = self.core.retire(&self.accesses, mispredicted);
        let reference_cycles = self.reference.advance(u64::from(core_cycles));
        Retired {
            ip: step.ip,
            next_ip: step.next_ip,
            branch,
            accesses: &self.accesses,
            core_cycles,
            reference_cycles: u32::try_from(reference_cycles).unwrap_or(u32::MAX),
            crosses_privilege: step.crosses_privilege,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets;

    fn load(address: u64) -> Operand {
        Operand { kind: AccessKind::Load, address: LinearAddr(address), bytes: 8 }
    }

    /// Spec: LWP §4.2
    #[test]
    fn lwp_spec_4_2_without_a_predictor_nothing_is_known_of_predictions() {
        let step = Step {
            branch: Some((BranchKind::Conditional, true)),
            ..Step::plain(AppPc(0x10), AppPc(0x40))
        };
        let mut blind = Model::new(&presets::GENERIC);
        assert_eq!(blind.retire(&step).branch.unwrap().predicted, None);
        let mut seeing = Model::with_predictor(&presets::GENERIC);
        let first = seeing.retire(&step);
        assert_eq!(first.branch.unwrap().predicted, Some(false));
        let penalty = presets::GENERIC.clock.mispredict_cycles;
        assert_eq!(first.core_cycles, penalty, "and it costs time");
    }

    /// Spec: LWP §4.2
    #[test]
    fn lwp_spec_4_2_clocks_follow_the_stalls() {
        let mut model = Model::new(&presets::GENERIC);
        let operands = [load(0x5000), load(0x5008)];
        let step = Step { operands: &operands, ..Step::plain(AppPc(1), AppPc(5)) };
        let cold = model.retire(&step).core_cycles;
        let warm = model.retire(&step).core_cycles;
        let preset = &presets::GENERIC;
        let beyond = preset.memory.latency_cycles - preset.levels[0].latency_cycles;
        assert_eq!(cold, beyond * preset.clock.exposed_256 / 256, "one of the two loads missed");
        assert!(warm <= 1);
        model.flush();
        assert!(model.retire(&step).core_cycles >= cold);
        assert!(model.caches().first().is_some_and(|first| first.contains(0x5000 / 64)));
    }

    /// Spec: LWP §4.2
    #[test]
    fn lwp_spec_4_2_the_rest_of_the_step_passes_through() {
        let mut model = Model::new(&presets::ZEN4);
        let step = Step { crosses_privilege: true, ..Step::plain(AppPc(0x10), AppPc(0x12)) };
        let retired = model.retire(&step);
        assert_eq!((retired.ip, retired.next_ip), (AppPc(0x10), AppPc(0x12)));
        assert!(retired.crosses_privilege && retired.branch.is_none());
    }
}
