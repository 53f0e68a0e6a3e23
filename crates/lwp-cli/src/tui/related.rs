//! Callers and callees of a function, as counted calls or recorded stacks tell them.

use std::collections::{BTreeMap, BTreeSet};

use lwp_profile::{CallGraph, FunctionId, Profile};
use lwp_symbols::fitted;

/// Functions on the other side of calls, the greatest count first; `None` where it is not known.
pub type Side = Vec<(Option<FunctionId>, u64)>;

/// A line about a caller or a callee: what stands before and behind its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Neighbour {
    /// The number of calls, and their direction.
    before: String,
    name: String,
    /// Its share.
    after: String,
}

impl Neighbour {
    /// A caller or a callee, with what stands before and behind its name.
    pub fn new(before: String, name: String, after: String) -> Self {
        Self { before, name, after }
    }

    /// A remark in place of callers and callees.
    pub fn note(text: &str) -> Self {
        Self { before: text.to_owned(), ..Self::default() }
    }

    /// The whole line.
    pub fn text(&self) -> String {
        format!("{}{}{}", self.before, self.name, self.after)
    }

    /// The line in a width: blanks go first, then parts of the name.
    pub fn fitting(&self, width: usize) -> String {
        let whole = self.text();
        let taken = |before: &str| before.chars().count() + self.after.chars().count();
        if whole.chars().count() <= width || self.name.is_empty() {
            return whole;
        }
        let fits =
            width.saturating_sub(taken(&self.before)) >= LEAST.min(self.name.chars().count());
        let before = if fits { self.before.as_str() } else { self.before.trim_start() };
        let name = fitted(&self.name, width.saturating_sub(taken(before)));
        format!("{before}{name}{}", self.after)
    }
}

/// Characters that a name has before blanks go.
const LEAST: usize = 20;

/// Callers and callees with numbers of calls; of a sampled profile, with what was counted while
/// the two stood next to each other on the stack.
pub fn sides(
    profile: &Profile,
    graph: &CallGraph,
    function: FunctionId,
    event: usize,
) -> [Side; 2] {
    let mut sides = match profile.calls.is_empty() {
        true => from_stacks(profile, function, event),
        false => {
            let callees = graph.callees[function.index()].iter();
            let callees = callees.map(|(callee, count)| (Some(*callee), *count)).collect();
            [graph.callers[function.index()].clone(), callees]
        }
    };
    for side in &mut sides {
        side.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    }
    sides
}

/// A sample counts once for each neighbour, however often the two are on its stack.
fn from_stacks(profile: &Profile, function: FunctionId, event: usize) -> [Side; 2] {
    let mut sums: [BTreeMap<FunctionId, u64>; 2] = Default::default();
    for sample in profile.samples.iter().filter(|sample| sample.values.get(event) > 0) {
        let locations = profile.stacks[sample.stack.index()].locations.iter();
        let frames = locations.flat_map(|id| profile.location(*id).frames.iter());
        let stack: Vec<FunctionId> = frames.map(|frame| frame.function).collect();
        let mut near: [BTreeSet<FunctionId>; 2] = Default::default();
        for pair in stack.windows(2) {
            // Innermost functions come first.
            let [callee, caller] = [pair[0], pair[1]];
            if callee == function {
                near[0].insert(caller);
            }
            if caller == function {
                near[1].insert(callee);
            }
        }
        for (sums, near) in sums.iter_mut().zip(near) {
            for other in near {
                let sum = sums.entry(other).or_default();
                *sum = sum.saturating_add(sample.values.get(event));
            }
        }
    }
    sums.map(|sums| sums.into_iter().map(|(id, sum)| (Some(id), sum)).collect())
}

#[cfg(test)]
mod tests {
    use lwp_profile::{Builder, Event, Frame, Function, Location, Mode, Module, Thread, Values};

    use super::*;

    /// Promise: R50: comparisons and tables fit a screen, and names stay readable.
    #[test]
    fn narrow_lines_keep_the_name_of_the_function() {
        let line = Neighbour {
            before: format!("{:>22}  calls      ", "1,000"),
            name: "a_namespace::of_great_length::Table<unsigned long>::insert(int)".into(),
            after: ": 12.50%".into(),
        };
        assert_eq!(line.fitting(200), line.text());
        for width in [40, 50, 60, 80] {
            let text = line.fitting(width);
            assert!(text.chars().count() <= width && text.contains("::insert: 12.50%"), "{text}");
        }
        assert!(line.fitting(60).contains("  calls      …::"), "{}", line.fitting(60));
    }

    #[test]
    fn samples_count_once_for_each_neighbour() {
        let mut builder = Builder::new("c", Mode::Sampled, vec![Event::default()]);
        let module = builder.module(Module::default());
        let mut locations = Vec::new();
        let mut ids = Vec::new();
        for (name, address) in [("main", 0), ("f", 16), ("g", 32)] {
            let of = Function { module, name: name.into(), address, ..Function::default() };
            ids.push(builder.function(of));
            let frames = [Frame { function: ids[ids.len() - 1], ..Frame::default() }].into();
            let of = Location { module, address, frames, ..Location::default() };
            locations.push(builder.location(of));
        }
        let thread = builder.thread(Thread::default());
        // Innermost first: f calls itself, and g.
        for (stack, count) in [(vec![1, 1, 0], 10), (vec![2, 1, 2, 1, 0], 5), (vec![0], 1)] {
            let stack = builder.stack(stack.into_iter().map(|at| locations[at]).collect());
            builder.sample(thread, stack, &Values(vec![count]));
        }
        let (profile, now) = builder.finish_renumbered();
        let [main, f, g] = [0, 1, 2].map(|at: usize| Some(now.functions[ids[at].index()]));
        let graph = CallGraph::of(&profile);
        let of = |id: Option<FunctionId>| sides(&profile, &graph, id.unwrap(), 0);
        assert_eq!(of(f), [vec![(main, 15), (f, 10), (g, 5)], vec![(f, 10), (g, 5)]]);
        assert_eq!(of(g), [vec![(f, 5)], vec![(f, 5)]]);
        assert_eq!(of(main), [vec![], vec![(f, 15)]]);
    }
}
