//! The time that a sample takes from the sampled thread.
//!
//! Promise: R133

use std::sync::Arc;

use lwp_perf::rings::{RingsOptions, Scope};
use lwp_perf::{Kernel, Modes, Record, Rings, Unavailable};

use crate::now_ns;

/// Samples a second of CPU time that are chosen from: primes near round numbers, so that they are
/// out of step with what a program does a round number of times a second.
pub const RATES: [u64; 4] = [997, 499, 199, 99];

/// The part of the time that sampling may take at a rate that lwp chooses, one in so many.
const ONE_IN: u64 = 100;

/// The cost of a sample on this machine, as measured before a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CostOfSample {
    /// The median pause of a thread for a sample; `None` if too few were seen.
    ns: Option<u64>,
}

impl CostOfSample {
    /// A median pause, if there is one.
    pub(crate) fn of(ns: Option<u64>) -> Self {
        Self { ns }
    }

    /// Nanoseconds, if they could be measured.
    pub fn ns(self) -> Option<u64> {
        self.ns
    }

    /// The highest of [`RATES`] at which samples take at most 1 % of the time; else the lowest.
    pub fn rate(self) -> u64 {
        let [.., lowest] = RATES;
        let affordable = |rate: &u64| self.ns.is_some_and(|ns| ns * rate * ONE_IN <= 1_000_000_000);
        RATES.into_iter().find(affordable).unwrap_or(lowest)
    }
}

/// The time that the measurement takes.
const DURATION_NS: u64 = 20_000_000;
/// The time between two samples meanwhile.
const PERIOD_NS: u64 = 200_000;
/// Steps of the clock that are shorter are no pauses.
const PAUSE_NS: u64 = 1_000;
/// A median of fewer samples is none.
const LEAST: usize = 10;

/// Measures what a sample costs: this thread looks at the clock without a break, and sees the
/// pauses in which it was sampled.
pub(crate) fn measure(
    kernel: &Arc<dyn Kernel>,
    modes: Modes,
    stack_bytes: u32,
) -> Result<CostOfSample, Unavailable> {
    let options = RingsOptions {
        event: crate::clock(),
        period: PERIOD_NS,
        scope: Scope::Caller,
        children: false,
        switches: false,
        modes,
        stack_bytes,
        ring_bytes: 4 << 20,
    };
    let mut rings = Rings::open(Arc::clone(kernel), &options)?;
    if rings.enable().is_err() {
        return Ok(CostOfSample::default());
    }
    let pauses = watch_clock(DURATION_NS);
    let _ = rings.disable();
    let mut records = Vec::new();
    rings.take(&mut records);
    let samples = records.into_iter().filter(|(_, record)| matches!(record, Record::Sample(_)));
    let times: Vec<u64> = samples.map(|(time, _)| time).collect();
    Ok(CostOfSample { ns: median(pauses_with(&pauses, &times)) })
}

/// Returns whether the kernel records switches.
pub(crate) fn records_switches(kernel: &Arc<dyn Kernel>, modes: Modes) -> bool {
    let options = RingsOptions {
        event: crate::clock(),
        period: PERIOD_NS,
        scope: Scope::Caller,
        children: false,
        switches: true,
        modes,
        stack_bytes: 0,
        ring_bytes: 64 << 10,
    };
    Rings::open(Arc::clone(kernel), &options).is_ok()
}

/// Beginnings and ends of pauses within this time, in order.
pub(crate) fn watch_clock(duration_ns: u64) -> Vec<(u64, u64)> {
    let mut pauses = Vec::new();
    let start = now_ns();
    let mut last = start;
    while last < start + duration_ns {
        let now = now_ns();
        if now - last >= PAUSE_NS {
            pauses.push((last, now));
        }
        last = now;
    }
    pauses
}

/// The lengths of the pauses that one of the times lies in.
pub(crate) fn pauses_with(pauses: &[(u64, u64)], times: &[u64]) -> Vec<u64> {
    let pause = |time: &u64| {
        let after = pauses.partition_point(|(start, _)| start <= time);
        let (start, end) = pauses[after.checked_sub(1)?];
        (*time <= end).then_some(end - start)
    };
    times.iter().filter_map(pause).collect()
}

/// The median of enough lengths.
pub(crate) fn median(mut lengths: Vec<u64>) -> Option<u64> {
    lengths.sort_unstable();
    (lengths.len() >= LEAST).then(|| lengths[lengths.len() / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_the_highest_that_costs_one_per_cent() {
        let rate = |ns| CostOfSample { ns }.rate();
        assert_eq!(
            [10_000, 10_031, 20_000, 21_000, 60_000, 500_000].map(|ns| rate(Some(ns))),
            [997, 499, 499, 199, 99, 99]
        );
        assert_eq!(rate(None), 99);
    }

    #[test]
    fn a_sample_costs_the_pause_that_it_lies_in() {
        let pauses = [(100, 120), (200, 290), (300, 310)];
        assert_eq!(pauses_with(&pauses, &[50, 110, 150, 290, 295, 305]), [20, 90, 10]);
        assert_eq!(median(vec![5; 9]), None);
        assert_eq!(median([vec![7; 6], vec![1_000; 5]].concat()), Some(7));
    }
}
