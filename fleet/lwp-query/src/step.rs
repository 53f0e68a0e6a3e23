//! Steps in a series of counts.
//!
//! Promise: FL37

use lwp_report::chance::margin;

/// A value of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Value {
    /// The value.
    pub value: f64,
    /// Its standard error; 0 if it was counted.
    pub error: f64,
}

/// A change that stays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The index of the first point behind it.
    pub at: usize,
    /// The value before it.
    pub before: f64,
    /// The value behind it.
    pub after: f64,
}

/// Points that a median is taken of, on each side.
const WINDOW: usize = 8;
/// The least change of an exact series that is one: a part of the value, and a number of events.
const EXACT: (f64, f64) = (0.001, 1000.0);
/// The least change of a jittery series, as a part of the value.
const JITTERY: f64 = 0.005;
/// The least change of a jittery series, in spreads of its values.
const SPREADS: f64 = 3.0;

/// The steps in `values`, which are in order of time.
///
/// A series is exact if that is `known`, as of deterministic runs, or half of all neighbours are
/// equal: there a step is any change by a thousandth and a thousand events that the next point does
/// not take back. Otherwise a step is where the medians of eight points before and behind differ by
/// more than three times the greater spread, and half a per cent. A change that chance may have
/// made is no step.
pub fn steps_in(values: &[Value], known: bool) -> Vec<Step> {
    let pairs = values.windows(2);
    let equal = pairs.clone().filter(|pair| pair[0].value == pair[1].value).count();
    match known || 2 * equal >= pairs.len() {
        true => exact(values),
        false => jittery(values),
    }
}

fn exact(values: &[Value]) -> Vec<Step> {
    let is_step = |before: Value, after: Value| {
        let change = (after.value - before.value).abs();
        let least = (EXACT.0 * before.value.abs()).max(EXACT.1);
        change >= least && change > margin(&[before.error, after.error])
    };
    let mut steps = Vec::new();
    let Some(mut level) = values.first().copied() else { return steps };
    for (at, value) in values.iter().copied().enumerate().skip(1) {
        if !is_step(level, value) {
            // Many small changes are a step when they have added up to one.
            continue;
        }
        // One run that was disturbed is none.
        let taken_back = values.get(at + 1).is_some_and(|next| !is_step(level, *next));
        if !taken_back {
            steps.push(Step { at, before: level.value, after: value.value });
            level = value;
        }
    }
    steps
}

fn jittery(values: &[Value]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut best: Option<(f64, Step)> = None;
    let window = WINDOW.min(values.len() / 2);
    if window < 3 {
        return steps;
    }
    for at in window..=values.len() - window {
        let (before, after) = (&values[at - window..at], &values[at..at + window]);
        let chance = margin(&[error_of_median(before), error_of_median(after)]);
        let [before, after] = [before, after].map(|side| side.iter().map(|it| it.value).collect());
        let [before, after]: [Vec<f64>; 2] = [before, after];
        let (old, new) = (median(&before), median(&after));
        let spread = spread(&before, old).max(spread(&after, new));
        let change = (new - old).abs();
        let step = Step { at, before: old, after: new };
        let least = (SPREADS * spread).max(JITTERY * old.abs()).max(chance);
        // Of neighbours that are all past the limit, the place where most moved.
        let clear = (values[at].value - values[at - 1].value).abs();
        match (change > least, &best) {
            (true, Some((most, _))) if *most >= clear => {}
            (true, _) => best = Some((clear, step)),
            (false, Some((_, found))) => {
                steps.push(*found);
                best = None;
            }
            (false, None) => {}
        }
    }
    steps.extend(best.map(|(_, step)| step));
    steps
}

/// The standard error of the median of values with an error each: √(π/2) times that of their mean.
fn error_of_median(values: &[Value]) -> f64 {
    let squares: f64 = values.iter().map(|it| it.error * it.error).sum();
    std::f64::consts::FRAC_PI_2.sqrt() * squares.sqrt() / values.len() as f64
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() % 2 {
        1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// The median distance from the median.
fn spread(values: &[f64], median_of: f64) -> f64 {
    let distances: Vec<f64> = values.iter().map(|value| (value - median_of).abs()).collect();
    median(&distances)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(values: &[f64]) -> Vec<Value> {
        sampled(values, 0.0)
    }

    fn sampled(values: &[f64], error: f64) -> Vec<Value> {
        values.iter().map(|value| Value { value: *value, error }).collect()
    }

    fn places(values: &[Value]) -> Vec<usize> {
        steps_in(values, false).iter().map(|step| step.at).collect()
    }

    fn at(values: &[f64]) -> Vec<usize> {
        places(&counted(values))
    }

    #[test]
    fn a_change_that_chance_may_have_made_is_no_step() {
        // A function without samples until it has four of them, as half of its neighbours.
        let mut values = [0.0; 16];
        values[8..].fill(4e6);
        assert_eq!(places(&sampled(&values, 0.0)), [8]);
        assert_eq!(places(&sampled(&values, 2e6)), [0; 0]);
        assert_eq!(places(&sampled(&values, 1e6)), [8]);
        // No two values are equal: medians of eight are surer than the values themselves.
        let jitter = |n: usize| [0.0, 3e5, 1e5, 2e5][n % 4] + n as f64;
        let values: Vec<f64> =
            (0..16).map(|n| 9e6 + jitter(n) + if n < 8 { 0.0 } else { 4e6 }).collect();
        assert_eq!(places(&sampled(&values, 2e6)), [8]);
        assert_eq!(places(&sampled(&values, 5e6)), [0; 0]);
    }

    #[test]
    fn an_exact_series_has_a_step_where_it_changes() {
        let mut values = vec![1e6; 20];
        assert_eq!(at(&values), [0; 0]);
        values[12..].fill(1.05e6);
        assert_eq!(at(&values), [12]);
        assert_eq!(
            steps_in(&counted(&values), false)[0],
            Step { at: 12, before: 1e6, after: 1.05e6 }
        );
        // Also at the last point, which nothing takes back yet.
        assert_eq!(at(&[1e6, 1e6, 1e6, 2e6]), [3]);
        // Two points tell nothing, unless it is known that they are exact.
        let two = counted(&[1e6, 2e6]);
        assert_eq!([places(&two).len(), steps_in(&two, true).len()], [0, 1]);
        assert_eq!([at(&[]), at(&[1.0])], [vec![], vec![]] as [Vec<usize>; 2]);
    }

    #[test]
    fn one_disturbed_run_and_small_changes_are_no_steps() {
        let mut values = vec![1e6; 20];
        values[7] = 3e6;
        values[10] = 1e6 + 900.0;
        assert_eq!(at(&values), [0; 0]);
        // A thousandth, but of little.
        assert_eq!(at(&[100.0, 100.0, 100.0, 200.0, 200.0, 200.0]), [0; 0]);
    }

    #[test]
    fn small_changes_add_up() {
        let mut values: Vec<f64> = Vec::new();
        for step in 0..10 {
            values.extend([1e6 + 600.0 * f64::from(step); 4]);
        }
        assert_eq!(at(&values).first(), Some(&8));
    }

    #[test]
    fn a_jittery_series_has_a_step_where_its_middle_moves() {
        // Noise of half a per cent that repeats nowhere.
        let noise = |n: u64| {
            (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f64 / f64::from(1 << 24) - 0.5
        };
        let series = |change: f64| -> Vec<f64> {
            (0..60)
                .map(|n| (1.0 + 0.005 * noise(n)) * if n < 30 { 1e6 } else { 1e6 * change })
                .collect()
        };
        assert_eq!(at(&series(1.0)), [0; 0]);
        assert_eq!(at(&series(1.05)), [30]);
        assert_eq!(at(&series(0.95)), [30]);
    }
}
