//! The part that chance has in sampled values.

use lwp_profile::Event;
use lwp_report::chance::{margin, standard_error};

use crate::measure::Measure;

/// The way in which the values of a recording were sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sampling {
    /// The interval between samples; 0 if the values were counted.
    interval: u64,
    /// The sum of the recording's values.
    whole: u64,
}

impl Sampling {
    /// The sampling of values of `measure`, whose sum is `whole`, with a sample every `interval`.
    /// Tools that counted, or that summed up what each sample stands for, give 1.
    pub fn new(measure: &Measure, interval: Option<i64>, whole: i64) -> Self {
        let is_sampled = !measure.is_exact() && measure.event != Event::OFF_CPU;
        let interval = interval.filter(|interval| is_sampled && *interval > 1).unwrap_or(0);
        Self { interval: positive(interval), whole: positive(whole) }
    }

    /// The standard error of one of the values.
    pub fn error(self, value: i64) -> f64 {
        match self.interval {
            0 => 0.0,
            interval => standard_error(positive(value), self.whole.max(positive(value)), interval),
        }
    }
}

fn positive(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// Half the width of the interval that holds the difference of two values in 95 of 100 pairs of
/// recordings; 0 if both were counted.
pub fn margin_of(sides: [(Sampling, i64); 2]) -> i64 {
    margin(&sides.map(|(sampling, value)| sampling.error(value))).round() as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::Filter;

    fn sampling(event: &str, interval: i64) -> Sampling {
        Sampling::new(&Measure::new(event, &Filter::default()), Some(interval), 1_000_000_000)
    }

    #[test]
    fn what_was_counted_is_certain() {
        for (event, interval) in [("instructions", 5000), ("off-cpu", 5000), ("cpu-time", 1)] {
            assert_eq!(sampling(event, interval).error(5_000_000), 0.0, "{event}");
        }
        assert_eq!(margin_of([(Sampling::default(), 1), (Sampling::default(), 9)]), 0);
    }

    #[test]
    fn few_samples_are_uncertain() {
        let time = sampling("cpu-time", 1_000_000);
        // 100 of 1000 samples: the square root of 1000 · 0.1 · 0.9 is 9.5 of them.
        assert!((9.0e6..10.5e6).contains(&time.error(100_000_000)));
        assert!(margin_of([(time, 100_000_000), (time, 120_000_000)]) > 20_000_000);
        assert!(margin_of([(time, 100_000_000), (time, 150_000_000)]) < 50_000_000);
        // More than the whole, as damaged rows may say.
        assert!(time.error(i64::MAX).is_finite());
    }
}
