//! Mean and spread of a value over repeated runs.
//!
//! Promise: I6

/// The mean of a value over all runs, and how far it can be trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// The mean, rounded to a whole number; exact for a single run.
    pub mean: u64,
    /// The standard error of the mean, in the unit of the value. This, not the deviation of a
    /// single run, is what perf prints after "+-".
    pub error: f64,
}

impl Spread {
    /// The spread of `values`, one for each run.
    pub fn of(values: impl IntoIterator<Item = u64>) -> Self {
        let values: Vec<u64> = values.into_iter().collect();
        let runs = values.len() as u128;
        if runs == 0 {
            return Self::default();
        }
        let sum: u128 = values.iter().map(|value| u128::from(*value)).sum();
        let mean = (sum + runs / 2) / runs;
        let error = if runs == 1 { 0.0 } else { standard_error(&values, sum as f64) };
        Self { mean: u64::try_from(mean).unwrap_or(u64::MAX), error }
    }

    /// The standard error in percent of the mean.
    pub fn percent(&self) -> f64 {
        if self.mean == 0 { 0.0 } else { 100.0 * self.error / self.mean as f64 }
    }
}

/// The deviation of the values from their mean, divided by the square root of their number.
fn standard_error(values: &[u64], sum: f64) -> f64 {
    let runs = values.len() as f64;
    let mean = sum / runs;
    let squares: f64 = values.iter().map(|value| (*value as f64 - mean).powi(2)).sum();
    (squares / (runs - 1.0) / runs).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise: E7
    #[test]
    fn one_run_is_exact() {
        let large = (1 << 60) + 1;
        assert_eq!(Spread::of([large]), Spread { mean: large, error: 0.0 });
        assert_eq!(Spread::of([]), Spread::default());
    }

    #[test]
    fn equal_runs_have_no_spread() {
        let spread = Spread::of([7, 7, 7]);
        assert_eq!(spread.mean, 7);
        assert_eq!(spread.percent(), 0.0);
    }

    #[test]
    fn spread_is_the_error_of_the_mean() {
        // Deviation sqrt(2) over two runs, so 1 for the mean.
        let spread = Spread::of([9, 11]);
        assert_eq!(spread.mean, 10);
        assert!((spread.error - 1.0).abs() < 1e-12);
        assert!((spread.percent() - 10.0).abs() < 1e-12);
    }
}
