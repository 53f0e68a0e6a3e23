//! Modelled core clocks and reference clocks.

use lwp_arch::retired::{Access, AccessKind};

/// Fractions of a cycle are kept in units of 1/256.
const ONE: u64 = 256;

/// The rates at which time passes on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockRates {
    /// Instructions that retire per cycle when nothing stalls, in units of 1/256.
    pub instructions_per_cycle_256: u32,
    /// Latency of a load that hits the first level, which is taken as hidden, in cycles.
    pub hidden_cycles: u32,
    /// Part of the rest of a load's latency that the program waits for, in units of 1/256.
    pub exposed_256: u32,
    /// Cycles lost by a misprediction.
    pub mispredict_cycles: u32,
}

/// The core clock: a formula over retired instructions and modelled stalls.
///
/// ```text
///   cycles = instructions / width
///          + Σ loads that missed: (latency − hidden) × exposed
///          + mispredictions × penalty
/// ```
///
/// Stores and prefetches do not stall. Fractions are carried from one instruction to the next, so
/// the sum is exact to a cycle: DEV-36.
///
/// Spec: LWP §4.2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreClock {
    rates: ClockRates,
    /// Time not yet given out, below one cycle, in units of 1/256.
    carry_256: u64,
    /// Time owed by instructions, as a remainder of the division by the width.
    remainder: u64,
}

impl CoreClock {
    /// A clock at zero. A width of 0 is taken as one instruction per cycle.
    pub const fn new(rates: ClockRates) -> Self {
        Self { rates, carry_256: 0, remainder: 0 }
    }

    /// Passes the time of one instruction and returns its whole cycles.
    ///
    /// Spec: LWP §4.2.
    pub fn retire(&mut self, accesses: &[Access], mispredicted: bool) -> u32 {
        let width = self.width();
        // 1 / (width / 256) cycles in units of 1/256, with the remainder kept.
        let base = ONE * ONE + self.remainder;
        self.remainder = base % width;
        let mut time_256 = self.carry_256 + base / width;

        time_256 += accesses.iter().map(|access| self.stall_256(access)).sum::<u64>();
        if mispredicted {
            time_256 += self.misprediction_256();
        }
        self.carry_256 = time_256 % ONE;
        u32::try_from(time_256 / ONE).unwrap_or(u32::MAX)
    }

    /// Passes the time of `count` instructions that neither miss nor mispredict, and returns its
    /// whole cycles: the sum of what [`Self::retire`] would have returned.
    ///
    /// Spec: LWP §4.2.
    pub fn retire_many(&mut self, count: u64) -> u64 {
        let width = self.width();
        let base = ONE * ONE * count + self.remainder;
        self.remainder = base % width;
        let time_256 = self.carry_256 + base / width;
        self.carry_256 = time_256 % ONE;
        time_256 / ONE
    }

    /// Returns the time that the program waits for `access`, in units of 1/256 of a cycle.
    ///
    /// Spec: LWP §4.2.
    pub fn stall_256(&self, access: &Access) -> u64 {
        match (access.kind, access.miss) {
            (AccessKind::Load, Some(miss)) => self.longest_stall_256(miss.latency_cycles),
            _ => 0,
        }
    }

    /// Returns the time that the program waits after a misprediction, in units of 1/256 of a cycle.
    ///
    /// Spec: LWP §4.2.
    pub fn misprediction_256(&self) -> u64 {
        u64::from(self.rates.mispredict_cycles) * ONE
    }

    /// Returns the time that the program waits for a load of this latency.
    ///
    /// Spec: LWP §4.2.
    pub fn longest_stall_256(&self, latency_cycles: u32) -> u64 {
        let beyond = latency_cycles.saturating_sub(self.rates.hidden_cycles);
        u64::from(beyond) * u64::from(self.rates.exposed_256)
    }

    /// Passes the time of waits that add up to `time_256`, of instructions whose own time passes
    /// apart, and returns its whole cycles.
    ///
    /// Spec: LWP §4.2.
    pub fn wait(&mut self, time_256: u64) -> u64 {
        let time_256 = self.carry_256 + time_256;
        self.carry_256 = time_256 % ONE;
        time_256 / ONE
    }

    /// Returns the number of waits of `longest_256` that fit into half of `cycles`; one, if it fits
    /// into all of them.
    ///
    /// Spec: LWP §4.2.
    pub fn waits_within(&self, cycles: u64, longest_256: u64) -> u64 {
        let half_256 = cycles.saturating_mul(ONE / 2);
        let one = u64::from(half_256.saturating_mul(2) >= longest_256);
        half_256.checked_div(longest_256).map_or(u64::MAX, |waits| waits.max(one))
    }

    /// Returns the number of such instructions that retire before more than `cycles` have passed.
    ///
    /// Spec: LWP §4.2.
    pub fn instructions_within(&self, cycles: u64) -> u64 {
        let owed = (cycles.saturating_add(1).saturating_mul(ONE)).saturating_sub(self.carry_256);
        let limit = owed.saturating_mul(self.width()).saturating_sub(self.remainder + 1);
        limit / (ONE * ONE)
    }

    /// Returns the result of [`Self::retire_many`] as one division: when `n` more instructions have
    /// retired, `(65536 n + offset) / divisor` cycles have passed. Returns offset and divisor.
    pub fn division(&self) -> (u64, u64) {
        (self.carry_256 * self.width() + self.remainder, ONE * self.width())
    }

    /// Instructions per cycle, in units of 1/256.
    fn width(&self) -> u64 {
        match u64::from(self.rates.instructions_per_cycle_256) {
            0 => ONE,
            width => width,
        }
    }
}

/// The reference clock: time of the thread on a processor, times a constant rate.
///
/// Time comes from outside, as nanoseconds of CPU time or, for runs that must repeat exactly, as
/// core cycles of the model at their nominal rate. Fractions are carried on.
///
/// Spec: LWP §4.2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReferenceClock {
    /// Counts per `per` units of time.
    rate: u64,
    per: u64,
    remainder: u64,
}

impl ReferenceClock {
    /// A clock of `hz` counts per second, fed with nanoseconds.
    pub const fn of_nanoseconds(hz: u64) -> Self {
        Self { rate: hz, per: 1_000_000_000, remainder: 0 }
    }

    /// A clock of `hz` counts per second, fed with cycles of a core that makes `core_hz` of them. A
    /// core rate of 0 is taken as equal to the reference.
    pub const fn of_core_cycles(hz: u64, core_hz: u64) -> Self {
        let per = if core_hz == 0 { hz } else { core_hz };
        Self { rate: hz, per: if per == 0 { 1 } else { per }, remainder: 0 }
    }

    /// Passes `units` of time and returns the whole counts.
    ///
    /// Spec: LWP §4.2.
    pub fn advance(&mut self, units: u64) -> u64 {
        let product = u128::from(units) * u128::from(self.rate) + u128::from(self.remainder);
        self.remainder = (product % u128::from(self.per)) as u64;
        u64::try_from(product / u128::from(self.per)).unwrap_or(u64::MAX)
    }

    /// The terms of [`Self::advance`], which computes `(rate units + remainder) / per`.
    pub const fn division(&self) -> (u64, u64, u64) {
        (self.rate, self.remainder, self.per)
    }

    /// Returns the number of units of time that may pass before more than `counts` have.
    ///
    /// Spec: LWP §4.2.
    pub fn units_within(&self, counts: u64) -> u64 {
        if self.rate == 0 {
            return u64::MAX;
        }
        let limit =
            (u128::from(counts) + 1) * u128::from(self.per) - u128::from(self.remainder) - 1;
        u64::try_from(limit / u128::from(self.rate)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lwp_arch::LinearAddr;
    use lwp_arch::record::DataSource;
    use lwp_arch::retired::CacheMiss;
    use proptest::prelude::*;

    const RATES: ClockRates = ClockRates {
        instructions_per_cycle_256: 4 * 256,
        hidden_cycles: 4,
        exposed_256: 128,
        mispredict_cycles: 13,
    };

    fn miss(kind: AccessKind, latency_cycles: u32) -> Access {
        let address = LinearAddr(0);
        let miss = Some(CacheMiss { address, source: DataSource::Dram, latency_cycles });
        Access { kind, address, miss }
    }

    /// Spec: LWP §4.2. DEV-36
    #[test]
    fn lwp_spec_4_2_dev_36_cycles_follow_the_formula() {
        let mut clock = CoreClock::new(RATES);
        let four: Vec<u32> = (0..4).map(|_| clock.retire(&[], false)).collect();
        assert_eq!(four, [0, 0, 0, 1], "four instructions a cycle");
        // (104 − 4) / 2 = 50 for the load; stores and prefetches are free; 13 for the
        // misprediction.
        let accesses =
            [AccessKind::Load, AccessKind::Store, AccessKind::Prefetch].map(|kind| miss(kind, 104));
        assert_eq!(clock.retire(&accesses, false), 50);
        assert_eq!(clock.retire(&[], true), 13);
        assert_eq!(clock.retire(&[miss(AccessKind::Load, 3)], false), 0, "nothing below zero");
        assert_eq!(clock.retire(&[], false), 1, "the quarters add up");
        let mut narrow = CoreClock::new(ClockRates { instructions_per_cycle_256: 0, ..RATES });
        assert_eq!(narrow.retire(&[], false), 1);
    }

    /// Spec: LWP §4.2
    #[test]
    fn lwp_spec_4_2_reference_clock_keeps_its_rate() {
        let mut clock = ReferenceClock::of_nanoseconds(2_500_000_000);
        assert_eq!([1, 1, 1, 1].map(|ns| clock.advance(ns)), [2, 3, 2, 3]);
        let mut slow = ReferenceClock::of_core_cycles(100_000_000, 4_000_000_000);
        assert_eq!([39, 1, 40].map(|cycles| slow.advance(cycles)), [0, 1, 1]);
        let mut same = ReferenceClock::of_core_cycles(7, 0);
        assert_eq!(same.advance(5), 5);
        assert_eq!(ReferenceClock::of_core_cycles(0, 0).advance(5), 0);
    }

    proptest! {
        /// Misses that are waited for together, apart from their instructions, take the time of
        /// each.
        ///
        /// Spec: LWP §4.2. DEV-36
        #[test]
        fn lwp_spec_4_2_dev_36_waits_in_bulk_are_the_same(
            latencies in prop::collection::vec(0..400u32, 0..50), width in 1..3000u32, cycles in 0..9000u64,
        ) {
            let rates = ClockRates { instructions_per_cycle_256: width, ..RATES };
            let mut singly = CoreClock::new(rates);
            let mut bulk = singly.clone();
            let loads: Vec<Access> = latencies.iter().map(|l| miss(AccessKind::Load, *l)).collect();
            let sum: u64 = loads.iter().map(|load| u64::from(singly.retire(&[*load], false))).sum();
            let waits = loads.iter().map(|load| bulk.stall_256(load)).sum();
            let instructions = bulk.retire_many(loads.len() as u64);
            prop_assert_eq!(instructions + bulk.wait(waits), sum);
            prop_assert_eq!(&singly, &bulk);

            let longest = bulk.longest_stall_256(400);
            let waits = bulk.waits_within(cycles, longest);
            let left = cycles - (waits * longest).div_ceil(256);
            let instructions = bulk.instructions_within(left);
            let taken = bulk.retire_many(instructions) + bulk.wait(waits * longest);
            prop_assert!(taken <= cycles);
        }

        /// However time is cut into pieces, the sum is the same to one count.
        ///
        /// Spec: LWP §4.2. DEV-36
        #[test]
        fn lwp_spec_4_2_dev_36_fractions_are_not_lost(
            pieces in prop::collection::vec(0..10_000u64, 0..50), width in 1..3000u32, count in 0..2000u64,
        ) {
            let total: u64 = pieces.iter().sum();
            let mut clock = ReferenceClock::of_nanoseconds(3_300_000_123);
            let counted: u64 = pieces.into_iter().map(|piece| clock.advance(piece)).sum();
            prop_assert_eq!(counted, total * 3_300_000_123 / 1_000_000_000);

            let rates = ClockRates { instructions_per_cycle_256: width, ..RATES };
            let mut core = CoreClock::new(rates);
            let cycles: u64 = (0..count).map(|_| u64::from(core.retire(&[], false))).sum();
            // `count` instructions at `width`/256 each cycle.
            prop_assert_eq!(cycles, count * 256 / u64::from(width));
            let (offset, divisor) = core.division();
            prop_assert_eq!((65536 * total + offset) / divisor, core.retire_many(total));
        }

        /// Many instructions at once take the time of each, and what fits into a time fits exactly.
        ///
        /// Spec: LWP §4.2. DEV-36
        /// Promise: W8
        #[test]
        fn lwp_spec_4_2_dev_36_time_in_bulk_is_the_same(
            before in 0..50u64, width in 1..3000u32, cycles in 0..500u64, counts in 0..500u64,
        ) {
            let rates = ClockRates { instructions_per_cycle_256: width, ..RATES };
            let mut clock = CoreClock::new(rates);
            let mut reference = ReferenceClock::of_core_cycles(2_000_000_000, 3_600_000_000);
            reference.advance(clock.retire_many(before));
            let within = clock.instructions_within(cycles);
            let (mut singly, mut bulk) = (clock.clone(), clock.clone());
            let sum: u64 = (0..within).map(|_| u64::from(singly.retire(&[], false))).sum();
            prop_assert_eq!(bulk.retire_many(within), sum);
            prop_assert_eq!(&singly, &bulk);
            prop_assert!(sum <= cycles);
            prop_assert!(clock.clone().retire_many(within + 1) > cycles);

            let units = reference.units_within(counts);
            prop_assert!(reference.clone().advance(units) <= counts);
            prop_assert!(reference.advance(units + 1) > counts);
        }
    }
}
