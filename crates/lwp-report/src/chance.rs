//! The part that chance has in sampled times: which row gets a sample is a matter of chance.
//!
//! Promise: R135

/// 95 % of a normal distribution lie within so many standard deviations.
const DEVIATIONS: f64 = 1.96;

/// The standard error of a part of a sampled whole, in its unit, with a sample every `interval`.
///
/// The part is that of two more samples, one of which is in it. So a part without samples has an
/// error too: differences of small parts would otherwise look surer than they are (A. Agresti and
/// B. Caffo, The American Statistician 54, 2000).
pub fn standard_error(part: u64, whole: u64, interval: u64) -> f64 {
    let interval = interval.max(1) as f64;
    let samples = whole as f64 / interval + 2.0;
    let part = ((part as f64 / interval + 1.0) / samples).min(1.0);
    interval * (samples * part * (1.0 - part)).sqrt()
}

/// Half the width of the interval that holds a sum or difference of values with these standard
/// errors in 95 of 100 cases.
pub fn margin(errors: &[f64]) -> f64 {
    DEVIATIONS * errors.iter().map(|error| error * error).sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_shrink_with_the_number_of_samples() {
        let near = |found: f64, expected: f64| {
            assert!((found / expected - 1.0).abs() < 0.01, "{found} instead of {expected}");
        };
        // 10,000 samples of 10, a fifth of them here: the square root of 10,000 · 0.2 · 0.8.
        near(standard_error(20_000, 100_000, 10), 400.0);
        near(standard_error(80_000, 400_000, 10), 800.0);
        near(margin(&[3.0, 4.0]), 9.8);
        assert!(standard_error(0, 100_000, 10) > 9.0);
        assert!(standard_error(100_000, 100_000, 10) < 11.0);
        assert!(standard_error(u64::MAX, 0, 0).is_finite());
    }

    /// Two recordings of the same: 95 of 100 differences lie within the margin.
    #[test]
    fn the_margin_holds_differences_of_equal_programs() {
        let mut state = 1u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as f64 / f64::from(1u32 << 31)
        };
        for part in [0.01, 0.3] {
            let mut held = 0;
            for _ in 0..1_000 {
                let mut take = || (0..500).filter(|_| random() < part).count() as u64;
                let [before, after] = [take(), take()];
                let errors = [before, after].map(|samples| standard_error(samples, 500, 1));
                held += u32::from(before.abs_diff(after) as f64 <= margin(&errors));
            }
            assert!((930..=1_000).contains(&held), "{part}: {held}");
        }
    }
}
