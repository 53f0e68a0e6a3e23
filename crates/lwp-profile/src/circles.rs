//! Inclusive counts of functions that call each other in a circle.
//!
//! What a member of the circle did was done for another member if that one was somewhere among its
//! callers. How likely this was follows from numbers of calls, by the assumption that is made
//! everywhere in estimates: who called a function does not depend on why. From a call of `h` one
//! walks to its caller, chosen by numbers of calls, and on, until the walk leaves the circle; with
//! the probability that it comes through `f`, the work of that call belongs to `f` too.
//!
//! With one way through the circle, as where two functions call each other in turn, this is the
//! truth.
//!
//! Promise: R24

/// A circle: its functions are numbered from zero.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Circle {
    /// The work that each did itself, or had done outside the circle.
    pub work: Vec<f64>,
    /// Calls of each from outside the circle.
    pub entries: Vec<f64>,
    /// Caller, callee, and how often.
    pub calls: Vec<(usize, usize, f64)>,
}

/// Time grows with the cube of the number of functions. With so many it is a fraction of a second.
const LARGEST: usize = 640;

impl Circle {
    /// Returns the work done while each function was among the callers; `None` if it cannot be
    /// told, because nobody entered the circle, or it is too large.
    pub fn inclusive(&self) -> Option<Vec<f64>> {
        let visits = self.visits()?;
        let whole: f64 = self.work.iter().sum();
        let through = |f: usize| {
            let work = self.work.iter().zip(&visits);
            work.map(|(work, from)| work * from[f] / visits[f][f]).sum::<f64>().min(whole)
        };
        Some((0..self.work.len()).map(through).collect())
    }

    /// In proportion to how often a walk from one function comes by another, for all pairs.
    ///
    /// Gauss's elimination in the form of Grassmann, Taksar and Heyman (Operations Research 33,
    /// 1985): what remains on the diagonal is the sum of what leads elsewhere. Nothing is ever
    /// subtracted, so nothing is lost where one call in a thousand million comes from outside.
    fn visits(&self) -> Option<Vec<Vec<f64>>> {
        let n = self.work.len();
        if n > LARGEST {
            return None;
        }
        let mut leaves = self.entries.clone();
        let mut leads = vec![vec![0.0; n]; n];
        for &(caller, callee, times) in self.calls.iter().filter(|call| call.0 != call.1) {
            leads[callee][caller] += times;
        }
        let mut visits = vec![vec![0.0; n]; n];
        let mut pivots = vec![0.0; n];
        for k in 0..n {
            visits[k][k] = 1.0;
            pivots[k] = leaves[k] + leads[k][k + 1..].iter().sum::<f64>();
            if pivots[k] <= 0.0 {
                return None;
            }
            let (above, below) = leads.split_at_mut(k + 1);
            let (visited, visiting) = visits.split_at_mut(k + 1);
            for (i, row) in below.iter_mut().enumerate() {
                let part = row[k] / pivots[k];
                if part > 0.0 {
                    add(&mut row[k + 1..], &above[k][k + 1..], part);
                    // Back to itself is no step.
                    row[k + 1 + i] = 0.0;
                    leaves[k + 1 + i] += part * leaves[k];
                    add(&mut visiting[i][..=k], &visited[k][..=k], part);
                }
            }
        }
        for k in (0..n).rev() {
            let (now, known) = visits.split_at_mut(k + 1);
            for (j, row) in known.iter().enumerate() {
                let part = leads[k][k + 1 + j];
                if part > 0.0 {
                    add(&mut now[k], row, part);
                }
            }
            now[k].iter_mut().for_each(|value| *value /= pivots[k]);
        }
        Some(visits)
    }
}

/// Adds `part` of `from` to `to`.
fn add(to: &mut [f64], from: &[f64], part: f64) {
    for (to, from) in to.iter_mut().zip(from) {
        *to += part * from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: Option<Vec<f64>>, expected: &[f64]) {
        let found = found.expect("a result");
        assert_eq!(found.len(), expected.len());
        for (a, b) in found.iter().zip(expected) {
            assert!((a - b).abs() <= 1e-9 * b.abs(), "{found:?} {expected:?}");
        }
    }

    #[test]
    fn functions_that_call_each_other_in_turn_have_their_true_counts() {
        // even calls odd calls even, 501 times each; even is called first.
        let circle = Circle {
            work: vec![4008.0, 4004.0],
            entries: vec![1.0, 0.0],
            calls: vec![(0, 1, 501.0), (1, 0, 500.0)],
        };
        near(circle.inclusive(), &[8012.0, 8004.0]);
    }

    #[test]
    fn a_function_that_all_others_are_called_by_has_all() {
        // An interpreter: eval calls three helpers, one of which calls eval.
        let circle = Circle {
            work: vec![100.0, 10.0, 20.0],
            entries: vec![1.0, 0.0, 0.0],
            calls: vec![(0, 1, 50.0), (0, 2, 7.0), (1, 0, 50.0), (2, 0, 0.0), (0, 0, 9.0)],
        };
        let found = circle.inclusive().expect("a result");
        near(Some(vec![found[0]]), &[130.0]);
        assert!(found[1] > 100.0 && found[1] < 130.0, "{found:?}");
    }

    #[test]
    fn what_enters_once_in_a_thousand_million_is_not_lost() {
        let circle = Circle {
            work: vec![1.0, 1e9],
            entries: vec![1.0, 0.0],
            calls: vec![(0, 1, 1e15), (1, 0, 1e15)],
        };
        near(circle.inclusive(), &[1e9 + 1.0, 1e9 + 1.0]);
    }

    #[test]
    fn what_nobody_entered_cannot_be_told() {
        let circle = Circle {
            work: vec![1.0; 2],
            entries: vec![0.0; 2],
            calls: vec![(0, 1, 1.0), (1, 0, 1.0)],
        };
        assert_eq!(circle.inclusive(), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "its walks take an interpreter minutes")]
    fn walks_agree_with_walking() {
        // Against the sum over all walks, taken step by step.
        let calls = vec![
            (0, 1, 5.0),
            (1, 2, 3.0),
            (2, 0, 2.0),
            (1, 0, 4.0),
            (0, 2, 1.0),
            (2, 3, 6.0),
            (3, 1, 2.0),
        ];
        let circle =
            Circle { work: vec![3.0, 5.0, 7.0, 11.0], entries: vec![1.0, 2.0, 0.0, 1.0], calls };
        let found = circle.inclusive().expect("a result");
        for f in 0..4 {
            let mut expected = 0.0;
            for h in 0..4 {
                let (mut at, mut hit) = ([0.0; 4], 0.0);
                at[h] = 1.0;
                for _ in 0..1_000 {
                    hit += at[f];
                    at[f] = 0.0;
                    let mut next = [0.0; 4];
                    for (callee, part) in at.iter().enumerate() {
                        let called = circle.calls.iter().filter(|call| call.1 == callee);
                        let all =
                            circle.entries[callee] + called.clone().map(|it| it.2).sum::<f64>();
                        called.for_each(|call| next[call.0] += part * call.2 / all);
                    }
                    at = next;
                }
                expected += circle.work[h] * hit;
            }
            near(Some(vec![found[f]]), &[expected]);
        }
    }
}
