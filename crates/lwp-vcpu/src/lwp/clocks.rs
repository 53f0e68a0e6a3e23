//! The clocks of a thread, which its unit counts.

use lwp_arch::retired::Access;
use lwp_dbt::Slot;
use lwp_dbt::context::{MOST_BRANCHES, MOST_NOTES};
use lwp_mailbox::contexts::Context;
use lwp_model::Occurrences;
use lwp_run::config::LwpConfig;
use lwp_uarch::{CoreClock, ReferenceClock};

/// The clocks of a thread, and the time for which it waits.
#[derive(Clone, Debug)]
pub(super) struct Clocks {
    core: CoreClock,
    reference: ReferenceClock,
    /// The time for which misses and mispredicted branches have been waited for, in units of 1/256
    /// of a cycle.
    waits_256: u64,
    /// The longest time for which a miss can be waited for, where misses are counted.
    longest_miss_256: Option<u64>,
}

impl Clocks {
    /// Clocks that start now. `dcache`: misses of the data cache are counted.
    pub(super) fn new(config: &LwpConfig, dcache: bool) -> Self {
        let core = CoreClock::new(config.machine.clock);
        let slowest = config.caches.memory.latency_cycles;
        let longest_miss_256 = dcache.then(|| core.longest_stall_256(slowest));
        let (hz, core_hz) = (config.machine.reference_hz, config.machine.core_hz);
        let reference = ReferenceClock::of_core_cycles(hz, core_hz);
        Self { core, reference, waits_256: 0, longest_miss_256 }
    }

    /// The number of core cycles that may pass before a clock event is due.
    fn cycles_within(&self, room: &Occurrences) -> u64 {
        let reference = self.reference.units_within(room.reference_clocks);
        room.core_clocks.min(reference).min(Occurrences::UNLIMITED)
    }

    /// The number of misses that may be noted before an event can be due: of misses, or of the
    /// clocks, which wait for them, so that half of what may pass is left to them.
    pub(super) fn misses_within(&self, room: &Occurrences) -> u64 {
        let longest_256 = self.longest_miss_256.unwrap_or(0);
        let waits = self.core.waits_within(self.cycles_within(room), longest_256);
        room.dcache.min(waits).min(u64::from(MOST_NOTES))
    }

    /// The number of branches that may be written down before an event can be due, whatever is said
    /// of them: of branches, or of the clocks, which wait for those that are mispredicted.
    pub(super) fn branches_within(&self, room: &Occurrences) -> u64 {
        let longest_256 = self.core.misprediction_256();
        let waits = self.core.waits_within(self.cycles_within(room), longest_256);
        room.branches.min(waits).min(u64::from(MOST_BRANCHES))
    }

    /// The number of instructions that may pass before a clock event is due, with all misses that
    /// may be noted, or the `branches` that may be written down.
    pub(super) fn instructions_within(&self, room: &Occurrences, branches: u64) -> u64 {
        let waits_256 = match self.longest_miss_256 {
            Some(longest_256) => self.misses_within(room) * longest_256,
            None => branches * self.core.misprediction_256(),
        };
        let cycles = self.cycles_within(room) - waits_256.div_ceil(256);
        self.core.instructions_within(cycles)
    }

    /// A miss has been waited for.
    pub(super) fn wait_for(&mut self, access: &Access) {
        self.waits_256 += self.core.stall_256(access);
    }

    /// A mispredicted branch has been waited for.
    pub(super) fn wait_for_branch(&mut self) {
        self.waits_256 += self.core.misprediction_256();
    }

    /// Lets instructions pass with all that has been waited for. Returns the core cycles and the
    /// reference clocks.
    pub(super) fn pass(&mut self, instructions: u64) -> (u64, u64) {
        let waits = self.core.wait(std::mem::take(&mut self.waits_256));
        let cycles = self.core.retire_many(instructions) + waits;
        (cycles, self.reference.advance(cycles))
    }

    /// Lets one instruction pass that missed with these accesses. Returns the core cycles and the
    /// reference clocks.
    pub(super) fn retire(&mut self, accesses: &[Access], mispredicted: bool) -> (u32, u32) {
        let cycles = self.core.retire(accesses, mispredicted);
        (cycles, self.reference.advance(u64::from(cycles)) as u32)
    }

    /// The terms of the reference clock's division as contexts have them, if they fit: rate and
    /// `per`, and the remainder.
    fn terms(&self) -> Option<(u64, u64)> {
        let (rate, remainder, per) = self.reference.division();
        let halves = |low: u64, high: u64| {
            Some(u64::from(u32::try_from(low).ok()?) | u64::from(u32::try_from(high).ok()?) << 32)
        };
        Some((halves(rate, per)?, halves(0, remainder)?))
    }

    /// Returns whether translated code can be told the terms of the clocks.
    pub(super) fn can_be_told(&self) -> bool {
        self.terms().is_some()
    }

    /// The number of instructions between two events of a clock, at least: of the reference clock,
    /// or of the core's, which expire after `interval` each.
    pub(super) fn least_instructions(&self, interval: u64, reference: bool) -> u64 {
        let (rate, _, per) = self.reference.division();
        let cycles = match reference {
            true => u128::from(interval) * u128::from(per) / u128::from(rate.max(1)),
            false => u128::from(interval),
        };
        let (_, divisor) = self.core.division();
        let instructions = cycles.saturating_sub(1).saturating_mul(u128::from(divisor)) >> 16;
        u64::try_from(instructions).unwrap_or(u64::MAX).saturating_sub(1)
    }

    /// Publishes what the counters of clocks follow from, of which `room` is left, and `more` than
    /// what is left of the countdown of instructions. Returns whether it can be told.
    pub(super) fn write(&self, context: Context<'_>, room: &Occurrences, more: u64) -> bool {
        let Some((rates, rest)) = self.terms() else { return false };
        // Counters have 26 bits; what is not watched is not written.
        let low = |count: u64| count & u64::from(u32::MAX);
        let (offset, divisor) = self.core.division();
        context.set(Slot::LwpCoreOffset, offset);
        context.set(Slot::LwpCoreDivisor, divisor);
        context.set(Slot::LwpReferenceRate, rates);
        context.set(Slot::LwpClockRest, rest | low(more));
        let base = low(room.core_clocks) | low(room.reference_clocks) << 32;
        context.set(Slot::LwpClockBase, base);
        true
    }
}
