//! A branch predictor that could be drawn on one page.

use lwp_arch::AppPc;
use lwp_arch::retired::BranchKind;

/// Sizes of a predictor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PredictorShape {
    /// Base-2 logarithm of the number of two-bit counters for conditional branches, at most 24.
    pub direction_log2: u32,
    /// The number of outcomes of conditional branches that choose among the counters, at most 32.
    pub history_bits: u32,
    /// Base-2 logarithm of the number of remembered targets of indirect branches, at most 24.
    pub indirect_log2: u32,
    /// Depth of the return stack.
    pub return_stack: usize,
}

/// A predictor of the classic kind.
///
/// - Conditional branches: two-bit counters, chosen by the address xor the recent outcomes
///   (gshare). Counters start at "weakly not taken". Only the direction can be wrong; the target is
///   in the code.
/// - Indirect jumps and calls, far transfers: the last target seen at this address with this
///   history.
/// - Returns: a stack of return addresses that forgets its oldest entry when it is full.
/// - Direct jumps and calls: always right.
///
/// No shipped processor predicts like this; theirs are not published in enough detail: DEV-35.
///
/// Spec: P07 §4.2; LWP §4.2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Predictor {
    shape: PredictorShape,
    counters: Vec<u8>,
    targets: Vec<Option<AppPc>>,
    returns: Vec<AppPc>,
    history: u64,
}

/// Counter value from which a branch is predicted taken.
const TAKEN: u8 = 2;
/// Largest counter value.
const STRONGLY_TAKEN: u8 = 3;

impl Predictor {
    /// A predictor that has seen nothing. Sizes beyond their limits are cut.
    pub fn new(shape: PredictorShape) -> Self {
        let shape = PredictorShape {
            direction_log2: shape.direction_log2.min(24),
            history_bits: shape.history_bits.min(32),
            indirect_log2: shape.indirect_log2.min(24),
            ..shape
        };
        Self {
            counters: vec![TAKEN - 1; 1 << shape.direction_log2],
            targets: vec![None; 1 << shape.indirect_log2],
            returns: Vec::new(),
            history: 0,
            shape,
        }
    }

    /// Judges a branch at `ip` that went to `next_ip`, and learns from it. `fall_through` is the
    /// address after the branch, which a call leaves on the stack. Returns whether the prediction
    /// was right.
    pub fn retire(
        &mut self,
        ip: AppPc,
        fall_through: AppPc,
        kind: BranchKind,
        taken: bool,
        next_ip: AppPc,
    ) -> bool {
        match kind {
            BranchKind::Conditional => self.conditional(ip, taken),
            BranchKind::DirectJump => true,
            BranchKind::DirectCall => {
                self.call(fall_through);
                true
            }
            BranchKind::IndirectJump | BranchKind::FarTransfer => self.indirect(ip, next_ip),
            BranchKind::IndirectCall => {
                let right = self.indirect(ip, next_ip);
                self.call(fall_through);
                right
            }
            BranchKind::Return => self.returns.pop() == Some(next_ip),
        }
    }

    /// Forgets everything.
    pub fn flush(&mut self) {
        *self = Self::new(self.shape);
    }

    fn index(&self, ip: AppPc, log2: u32) -> usize {
        ((ip.0 ^ self.history) & ((1 << log2) - 1)) as usize
    }

    fn conditional(&mut self, ip: AppPc, taken: bool) -> bool {
        let index = self.index(ip, self.shape.direction_log2);
        let counter = &mut self.counters[index];
        let right = (*counter >= TAKEN) == taken;
        *counter =
            if taken { (*counter + 1).min(STRONGLY_TAKEN) } else { counter.saturating_sub(1) };
        let mask = (1 << self.shape.history_bits) - 1;
        self.history = (self.history << 1 | u64::from(taken)) & mask;
        right
    }

    fn indirect(&mut self, ip: AppPc, next_ip: AppPc) -> bool {
        let index = self.index(ip, self.shape.indirect_log2);
        self.targets[index].replace(next_ip) == Some(next_ip)
    }

    fn call(&mut self, fall_through: AppPc) {
        if self.shape.return_stack == 0 {
            return;
        }
        if self.returns.len() == self.shape.return_stack {
            self.returns.remove(0);
        }
        self.returns.push(fall_through);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: PredictorShape =
        PredictorShape { direction_log2: 10, history_bits: 4, indirect_log2: 6, return_stack: 3 };

    fn conditional(predictor: &mut Predictor, ip: u64, taken: bool) -> bool {
        let next = if taken { ip + 100 } else { ip + 2 };
        predictor.retire(AppPc(ip), AppPc(ip + 2), BranchKind::Conditional, taken, AppPc(next))
    }

    /// Spec: LWP §4.2. DEV-35
    #[test]
    fn lwp_spec_4_2_dev_35_a_loop_is_learnt() {
        let mut p = Predictor::new(PredictorShape { history_bits: 0, ..SHAPE });
        let outcomes: Vec<bool> = (0..10).map(|i| conditional(&mut p, 0x10, i != 9)).collect();
        assert!(!outcomes[0], "weakly not taken at first");
        assert!(outcomes[1..9].iter().all(|&right| right));
        assert!(!outcomes[9], "the exit surprises");
        assert!(conditional(&mut p, 0x10, true), "one surprise does not change the habit");
    }

    /// Spec: LWP §4.2. DEV-35
    #[test]
    fn lwp_spec_4_2_dev_35_history_learns_a_pattern_that_counters_alone_cannot() {
        let wrong = |history_bits| {
            let mut p = Predictor::new(PredictorShape { history_bits, ..SHAPE });
            let all: Vec<bool> = (0..200).map(|i| conditional(&mut p, 0x10, i % 2 == 0)).collect();
            all[100..].iter().filter(|&&right| !right).count()
        };
        assert_eq!(wrong(4), 0, "the pattern is known after a while");
        assert!(wrong(0) >= 50);
    }

    /// Spec: P07 §4.2; LWP §4.2
    #[test]
    fn lwp_spec_4_2_direct_branches_are_always_right() {
        let mut p = Predictor::new(SHAPE);
        for kind in [BranchKind::DirectJump, BranchKind::DirectCall] {
            assert!(p.retire(AppPc(1), AppPc(6), kind, true, AppPc(99)));
        }
    }

    /// Spec: LWP §4.2. DEV-35
    #[test]
    fn lwp_spec_4_2_dev_35_returns_follow_calls_down_to_the_depth_of_the_stack() {
        let mut p = Predictor::new(SHAPE);
        for (ip, kind) in [
            (0x10, BranchKind::DirectCall),
            (0x20, BranchKind::IndirectCall),
            (0x30, BranchKind::DirectCall),
            (0x40, BranchKind::DirectCall),
        ] {
            p.retire(AppPc(ip), AppPc(ip + 5), kind, true, AppPc(ip + 0x10));
        }
        let ret = |p: &mut Predictor, to: u64| {
            p.retire(AppPc(0x99), AppPc(0x9A), BranchKind::Return, true, AppPc(to))
        };
        assert_eq!([0x45, 0x35, 0x25].map(|to| ret(&mut p, to)), [true; 3]);
        assert!(!ret(&mut p, 0x15), "the oldest of four was forgotten");
        p.retire(AppPc(0x10), AppPc(0x15), BranchKind::DirectCall, true, AppPc(0x20));
        assert!(!ret(&mut p, 0x777), "a return to elsewhere is mispredicted");
        let mut none = Predictor::new(PredictorShape { return_stack: 0, ..SHAPE });
        none.retire(AppPc(0x10), AppPc(0x15), BranchKind::DirectCall, true, AppPc(0x20));
        assert!(!ret(&mut none, 0x15));
    }

    /// Spec: LWP §4.2. DEV-35
    #[test]
    fn lwp_spec_4_2_dev_35_indirect_branches_repeat_their_last_target() {
        let mut p = Predictor::new(SHAPE);
        let jump = |p: &mut Predictor, to: u64| {
            p.retire(AppPc(0x10), AppPc(0x12), BranchKind::IndirectJump, true, AppPc(to))
        };
        let seen = [0xA0, 0xA0, 0xB0, 0xB0].map(|to| jump(&mut p, to));
        assert_eq!(seen, [false, true, false, true]);
        p.flush();
        assert!(!jump(&mut p, 0xB0));
    }
}
