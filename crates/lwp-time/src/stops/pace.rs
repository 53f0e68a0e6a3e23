//! When lwp looks at a program's threads.

use std::time::Duration;

/// Looks after which their distance is chosen anew.
const WINDOW: u32 = 64;
/// The shortest distance, one in so many of a period.
const SHORTEST: u64 = 16;

/// Draws the times at which lwp looks at random, so that they have nothing to do with what a
/// program does in turns.
///
/// Each look takes a sample of each thread that runs. Where looks come late or miss threads,
/// samples stand for less time than was used; then lwp looks more often, but never because of what
/// a thread does just now: that would be no matter of chance any more.
#[derive(Debug)]
pub(crate) struct Pace {
    period_ns: u64,
    distance_ns: u64,
    state: u64,
    looks: u32,
    /// Samples and CPU time when the distance was chosen.
    since: Progress,
}

/// What was used and sampled so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    pub samples: u64,
    pub used_ns: u64,
}

impl Pace {
    /// One sample in `period_ns` of CPU time on average.
    pub fn new(period_ns: u64, seed: u64) -> Self {
        let period_ns = period_ns.max(SHORTEST);
        let since = Progress::default();
        Self { period_ns, distance_ns: period_ns, state: seed, looks: 0, since }
    }

    /// Time until lwp looks again: half a distance to one and a half.
    pub fn pause(&mut self, now: Progress) -> Duration {
        self.looks += 1;
        if self.looks >= WINDOW {
            self.looks = 0;
            self.adapt(now);
        }
        Duration::from_nanos(self.distance_ns / 2 + self.random() % self.distance_ns)
    }

    /// Looks more often if samples stand for less than was used, and less often if for more.
    fn adapt(&mut self, now: Progress) {
        let sampled = now.samples.saturating_sub(self.since.samples).saturating_mul(self.period_ns);
        let used = now.used_ns.saturating_sub(self.since.used_ns);
        self.since = now;
        if used >= self.period_ns {
            let factor = (sampled as f64 / used as f64).clamp(0.5, 2.0);
            let distance = (self.distance_ns as f64 * factor) as u64;
            self.distance_ns = distance.clamp(self.period_ns / SHORTEST, self.period_ns);
        }
    }

    /// SplitMix64, by Guy Steele, Doug Lea and Christine Flood.
    pub fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_come_once_a_period_on_average() {
        let mut pace = Pace::new(5_000_000, 7);
        let idle = Progress::default();
        let all: Vec<u128> = (0..10_000).map(|_| pace.pause(idle).as_nanos()).collect();
        let mean = all.iter().sum::<u128>() / 10_000;
        assert!((4_900_000..5_100_000).contains(&mean), "{mean}");
        assert!(all.iter().all(|it| (2_500_000..7_500_000).contains(it)));
    }

    #[test]
    fn looks_come_more_often_while_samples_are_missing() {
        let mut pace = Pace::new(1_600_000, 7);
        let mut now = Progress::default();
        let mut longest = Duration::ZERO;
        for _ in 0..20 * WINDOW {
            now.used_ns += 1_600_000;
            longest = pace.pause(now);
        }
        assert!(longest <= Duration::from_micros(150), "{longest:?}");
        for _ in 0..20 * WINDOW {
            now.used_ns += 1_600_000;
            now.samples += 2;
            longest = pace.pause(now);
        }
        assert!(longest >= Duration::from_micros(800), "{longest:?}");
    }
}
