//! A program that walks memory, seen through a whole model.

use lwp_arch::record::DataSource;
use lwp_arch::retired::{AccessKind, BranchKind};
use lwp_arch::{AppPc, LinearAddr};
use lwp_uarch::{Model, Operand, Preset, Step, presets};

/// What one run showed.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    /// Source and latency of each miss.
    misses: Vec<(DataSource, u32)>,
    mispredicted: usize,
    core_cycles: u64,
    reference_cycles: u64,
}

impl Seen {
    fn note(&mut self, model: &mut Model, step: &Step<'_>) {
        let retired = model.retire(step);
        let misses = retired.accesses.iter().filter_map(|access| access.miss);
        self.misses.extend(misses.map(|miss| (miss.source, miss.latency_cycles)));
        let wrong = retired.branch.is_some_and(|branch| branch.predicted == Some(false));
        self.mispredicted += usize::from(wrong);
        self.core_cycles += u64::from(retired.core_cycles);
        self.reference_cycles += u64::from(retired.reference_cycles);
    }

    fn from(&self, source: DataSource) -> u64 {
        self.misses.iter().filter(|miss| miss.0 == source).count() as u64
    }
}

/// Runs two rounds over `bytes` bytes, a load and a branch per line; the branch leaves the loop at
/// the end of a round.
fn walk(preset: &Preset, bytes: u64) -> Seen {
    let mut model = Model::with_predictor(preset);
    let mut seen = Seen::default();
    let lines = bytes / 64;
    for _ in 0..2 {
        for line in 0..lines {
            let address = LinearAddr(0x4000_0000 + line * 64);
            let load = Operand { kind: AccessKind::Load, address, bytes: 8 };
            let step = Step { operands: &[load], ..Step::plain(AppPc(0x400), AppPc(0x404)) };
            seen.note(&mut model, &step);
            let again = line + 1 < lines;
            let next_ip = AppPc(if again { 0x400 } else { 0x406 });
            let jump = Step {
                branch: Some((BranchKind::Conditional, again)),
                fall_through: AppPc(0x406),
                ..Step::plain(AppPc(0x404), next_ip)
            };
            seen.note(&mut model, &jump);
        }
    }
    seen
}

/// Spec: LWP §4.2
#[test]
fn lwp_spec_4_2_a_walk_misses_where_the_caches_end() {
    for preset in presets::ALL {
        let [first, second, third] = preset.levels.map(|level| level.shape.bytes);
        let memory = (DataSource::Dram, preset.memory.latency_cycles);
        let small = walk(preset, first);
        assert_eq!(small.misses, vec![memory; (first / 64) as usize], "{}", preset.name);

        // Walked in order, least-recently-used replacement keeps nothing of what does not fit.
        let larger = walk(preset, 2 * first);
        assert_eq!(larger.from(DataSource::Dram), 2 * first / 64, "{}", preset.name);
        assert_eq!(
            larger.from(DataSource::NoStatus),
            2 * first / 64,
            "{}: second level",
            preset.name
        );

        let large = walk(preset, 2 * second);
        assert_eq!(
            large.from(DataSource::LocalL3),
            2 * second / 64,
            "{}: third level",
            preset.name
        );

        let huge = walk(preset, 2 * third);
        assert_eq!(
            huge.from(DataSource::Dram),
            2 * 2 * third / 64,
            "{}: nothing helps",
            preset.name
        );
    }
}

/// Spec: LWP §4.2. DEV-35
#[test]
fn lwp_spec_4_2_dev_35_mispredictions_stop_when_the_loop_is_learnt() {
    let seen = walk(&presets::GENERIC, 64 * 1000);
    assert!((2..60).contains(&seen.mispredicted), "{} of 2000", seen.mispredicted);
}

/// Spec: LWP §4.2. DEV-36
#[test]
fn lwp_spec_4_2_dev_36_time_is_the_sum_of_the_formula() {
    for preset in presets::ALL {
        let seen = walk(preset, 64 * 500);
        let clock = &preset.clock;
        let stalls: u64 = seen
            .misses
            .iter()
            .map(|miss| u64::from(miss.1 - clock.hidden_cycles) * u64::from(clock.exposed_256))
            .sum();
        let instructions = 2 * 2 * 500 * 256 * 256 / u64::from(clock.instructions_per_cycle_256);
        let penalty = seen.mispredicted as u64 * u64::from(clock.mispredict_cycles) * 256;
        assert_eq!(seen.core_cycles, (stalls + instructions + penalty) / 256, "{}", preset.name);
        let reference = u128::from(seen.core_cycles) * u128::from(preset.reference_hz);
        let reference = reference / u128::from(preset.core_hz);
        assert_eq!(u128::from(seen.reference_cycles), reference, "{}", preset.name);
    }
}

/// Spec: LWP §4.2
#[test]
fn lwp_spec_4_2_models_repeat_exactly() {
    assert_eq!(walk(&presets::ZEN4, 64 * 3000), walk(&presets::ZEN4, 64 * 3000));
}
