//! Samples of a part of a recording, in the order of their contexts.

use std::sync::Arc;

use crate::profile::FunctionId;
use crate::tree::Shape;

/// Sums of counts before each of a list of contexts, and at the end that of everything: the
/// differences are counts of contexts, and of whatever is below them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// Counts.
    Counts(Vec<u64>),
    /// Samples, and the number of events that each stands for: half as large.
    Samples(Vec<u32>, u64),
}

impl Before {
    /// The count from one place in the list up to another.
    pub(crate) fn between(&self, from: usize, to: usize) -> u64 {
        match self {
            Self::Counts(before) => before[to] - before[from],
            Self::Samples(before, unit) => {
                u64::from(before[to] - before[from]).saturating_mul(*unit)
            }
        }
    }
}

/// Contexts of a [`Shape`] in their order, with the samples of each: those of one thread, or of a
/// span of time. What was sampled below a context are the entries from its number to its end, so
/// that neither a number for every context of the recording nor a tree is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    contexts: Vec<u32>,
    before: Before,
    /// Numbers of entries before every so many contexts.
    places: Vec<u32>,
    /// A shift by so many bits turns a context into an index of `places`.
    shift: u32,
}

impl Default for Run {
    /// Nothing.
    fn default() -> Self {
        Self::new(&[], 1)
    }
}

/// Entries between two numbers in [`Run::places`], on the average.
const TOGETHER: usize = 8;

impl Run {
    /// The run of contexts and samples that are in order, each sample of which stands for `unit`
    /// events. A context may be there several times.
    pub fn new(samples: &[(u32, u32)], unit: u64) -> Self {
        let different = samples.chunk_by(|a, b| a.0 == b.0).count();
        let count =
            |(context, times): &(u32, u32)| (*context, u64::from(*times).saturating_mul(unit));
        Self::taken(samples.iter().copied(), different, unit)
            .unwrap_or_else(|| Self::counted(&samples.iter().map(count).collect::<Vec<_>>()))
    }

    /// The run of samples that come in the order of their contexts, of about `different` ones;
    /// `None` if they are not in order, or more than a number of 32 bits can be.
    pub fn taken(
        samples: impl Iterator<Item = (u32, u32)>,
        different: usize,
        unit: u64,
    ) -> Option<Self> {
        let mut contexts: Vec<u32> = Vec::with_capacity(different);
        let mut before = Vec::with_capacity(different + 1);
        let mut sum = 0u32;
        for (context, times) in samples {
            let last = contexts.last().copied();
            if last != Some(context) {
                if last > Some(context) {
                    return None;
                }
                contexts.push(context);
                before.push(sum);
            }
            sum = sum.checked_add(times)?;
        }
        before.push(sum);
        Some(Self::of(contexts, Before::Samples(before, unit)))
    }

    /// The run of contexts and counts that are in order.
    fn counted(counts: &[(u32, u64)]) -> Self {
        let (mut contexts, mut before) = (Vec::new(), vec![0u64]);
        let mut sum = 0u64;
        for same in counts.chunk_by(|a, b| a.0 == b.0) {
            sum = same.iter().fold(sum, |sum, (_, count)| sum.saturating_add(*count));
            contexts.push(same[0].0);
            before.push(sum);
        }
        Self::of(contexts, Before::Counts(before))
    }

    fn of(contexts: Vec<u32>, before: Before) -> Self {
        let last = contexts.last().map_or(0, |last| *last as usize);
        let shift = (last / (contexts.len() / TOGETHER).max(1)).max(1).ilog2();
        let places = places(&contexts, shift);
        Self { contexts, before, places, shift }
    }

    /// One run with the samples of several.
    pub fn joined(runs: &[Arc<Self>]) -> Self {
        let entries = runs.iter().map(|run| run.len()).sum();
        if let Some(unit) = Self::unit_of(runs) {
            let mut samples = Vec::with_capacity(entries);
            for run in runs {
                let times = run.counts().map(|(context, count)| (context, (count / unit) as u32));
                samples.extend(times);
            }
            sort(&mut samples);
            return Self::new(&samples, unit);
        }
        let mut counts = Vec::with_capacity(entries);
        for run in runs {
            counts.extend(run.counts());
        }
        // Each run is in order: this sort merges them.
        counts.sort_by_key(|(context, _)| *context);
        Self::counted(&counts)
    }

    /// The number of events that every sample of the runs stands for, if all samples together are
    /// no more than a number of 32 bits can be.
    pub(crate) fn unit_of(runs: &[Arc<Self>]) -> Option<u64> {
        let mut all = 0u32;
        let mut unit = None;
        for run in runs {
            let Before::Samples(before, of_run) = &run.before else { return None };
            all = all.checked_add(before.last().copied().unwrap_or(0))?;
            if *unit.get_or_insert(*of_run) != *of_run {
                return None;
            }
        }
        // A forged interval would not be found in its counts again.
        unit.filter(|unit| *unit > 0 && unit.checked_mul(all.into()).is_some())
    }

    /// The contexts with their samples, each of which stands for `unit` events; `None` if they do
    /// not, or are more than a number of 32 bits can be.
    pub fn samples(&self, unit: u64) -> Option<impl Iterator<Item = (u32, u32)>> {
        let Before::Samples(before, of_run) = &self.before else { return None };
        let times = before.windows(2).map(|two| two[1] - two[0]);
        (*of_run == unit).then(|| self.contexts.iter().copied().zip(times))
    }

    /// The contexts with their counts.
    pub fn counts(&self) -> impl Iterator<Item = (u32, u64)> {
        let counts = (0..self.len()).map(|at| self.count(at));
        self.contexts.iter().copied().zip(counts)
    }

    /// Returns the number of contexts.
    pub fn len(&self) -> usize {
        self.contexts.len()
    }

    /// Returns true if there is no sample.
    pub fn is_empty(&self) -> bool {
        self.contexts.is_empty()
    }

    /// The number of entries whose contexts come before this one.
    fn entries_before(&self, context: usize) -> usize {
        let index = context >> self.shift;
        let Some(&[from, to]) = self.places.get(index..).and_then(|places| places.first_chunk())
        else {
            return self.len();
        };
        let near = &self.contexts[from as usize..to as usize];
        from as usize + near.partition_point(|known| (*known as usize) < context)
    }

    /// The count of the contexts from one number up to another.
    pub fn between(&self, from: usize, to: usize) -> u64 {
        let first = self.entries_before(from);
        if self.contexts.get(first).is_none_or(|context| *context as usize >= to) {
            return 0;
        }
        self.before.between(first, self.entries_before(to))
    }

    /// The count of the entry with this index.
    fn count(&self, index: usize) -> u64 {
        self.before.between(index, index + 1)
    }

    /// Returns how much was counted with each function anywhere on the stack, once
    /// however often it is on it. `functions` is greater than every function's number.
    pub fn inclusive(&self, shape: &Shape, functions: usize) -> Vec<(FunctionId, u64)> {
        let mut walk = Walk {
            run: self,
            shape,
            open: vec![Open { context: 0, end: u32::MAX, entry: 0, outermost: false }],
            running: vec![false; functions],
            sums: vec![0; functions],
        };
        let mut missing = Vec::new();
        for (entry, &context) in self.contexts.iter().enumerate() {
            walk.close(context, entry);
            let innermost = walk.open[walk.open.len() - 1].context;
            let mut at = context;
            while at != innermost {
                missing.push(at);
                at = shape.caller(at as usize) as u32;
            }
            while let Some(inner) = missing.pop() {
                walk.enter(inner, entry);
            }
        }
        walk.close(u32::MAX - 1, self.len());
        let sums = (0..).map(FunctionId).zip(walk.sums);
        sums.filter(|(_, sum)| *sum > 0).collect()
    }
}

/// Puts samples of several runs, one behind the other, into the order of contexts.
pub fn sort(samples: &mut [(u32, u32)]) {
    // Each run is in order: this sort merges them.
    samples.sort_by_key(|(context, _)| *context);
}

/// Returns how many of `contexts` come before each multiple of a power of two.
fn places(contexts: &[u32], shift: u32) -> Vec<u32> {
    let buckets = contexts.last().map_or(0, |last| (last >> shift) as usize + 1);
    let mut places = vec![0u32; buckets + 1];
    for context in contexts {
        places[(context >> shift) as usize + 1] += 1;
    }
    for bucket in 0..buckets {
        places[bucket + 1] += places[bucket];
    }
    places
}

/// A context around the one that is looked at.
struct Open {
    context: u32,
    end: u32,
    /// The first entry in it.
    entry: usize,
    /// Its function is nowhere around it.
    outermost: bool,
}

/// A walk through the contexts of a run and those around them.
struct Walk<'a> {
    run: &'a Run,
    shape: &'a Shape,
    open: Vec<Open>,
    /// By function: it is that of an open context.
    running: Vec<bool>,
    sums: Vec<u64>,
}

impl Walk<'_> {
    fn enter(&mut self, context: u32, entry: usize) {
        let function = self.shape.functions()[context as usize].index();
        let outermost = !std::mem::replace(&mut self.running[function], true);
        let end = self.shape.end(context as usize) as u32;
        self.open.push(Open { context, end, entry, outermost });
    }

    /// Leaves the contexts that end before `next`, which `entry` is the first of.
    fn close(&mut self, next: u32, entry: usize) {
        while let Some(last) = self.open.last().filter(|last| last.end <= next) {
            if last.outermost {
                let function = self.shape.functions()[last.context as usize].index();
                self.running[function] = false;
                let sum = &mut self.sums[function];
                *sum = sum.saturating_add(self.run.before.between(last.entry, entry));
            }
            self.open.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tree::{Contexts, Tree};

    proptest! {
        /// Promise: R115
        #[test]
        fn a_run_counts_as_a_tree_does(
            calls in prop::collection::vec((any::<usize>(), 0u32..9), 0..200),
            samples in prop::collection::vec((any::<u32>(), 1u32..5), 0..100),
            unit in 1u64..1000,
        ) {
            let mut contexts = Contexts::default();
            let mut numbers = vec![Contexts::ROOT];
            for (at, function) in calls {
                numbers.push(contexts.call(numbers[at % numbers.len()], FunctionId(function)));
            }
            let (shape, _) = contexts.arranged(|function| function);
            let shape = std::sync::Arc::new(shape);
            let mut samples: Vec<(u32, u32)> =
                samples.into_iter().map(|(at, times)| (at % shape.len() as u32, times)).collect();
            samples.sort_unstable();
            let mut own = vec![0u64; shape.len()];
            for (context, times) in &samples {
                own[*context as usize] += u64::from(*times) * unit;
            }
            let tree = Tree::counted(&shape, own.clone(), true);
            let run = Run::new(&samples, unit);
            let mut times = vec![0; shape.len()];
            run.samples(unit).into_iter().flatten().for_each(|(at, n)| times[at as usize] += n);
            prop_assert_eq!(&times.iter().map(|n| u64::from(*n) * unit).collect::<Vec<_>>(), &own);
            let runs = Tree::of_runs(&shape, vec![std::sync::Arc::new(run.clone())], Vec::new());
            for node in 0..tree.len() {
                prop_assert_eq!(runs.node(node), tree.node(node));
            }
            // A tree of its own may leave out what nothing was counted in.
            let met = |tree: &Tree| -> Vec<_> {
                let nodes = (1..tree.len()).map(|node| tree.node(node));
                nodes.filter(|node| node.total > 0).collect()
            };
            prop_assert_eq!(met(&runs.alone()), met(&tree));
            let mut inclusive = vec![0u64; 9];
            let mut behind = [0; 9];
            for node in 1..tree.len() {
                let function = shape.functions()[node].index();
                if behind[function] <= node {
                    behind[function] = shape.end(node);
                    inclusive[function] += tree.total(node);
                }
            }
            let mut found = vec![0u64; 9];
            for (function, sum) in run.inclusive(&shape, 9) {
                found[function.index()] += sum;
            }
            prop_assert_eq!(found, inclusive);
        }
    }

    #[test]
    fn more_samples_than_a_word_holds_are_counted() {
        let shape = Shape::default();
        let run = Run::new(&[(0, u32::MAX), (0, u32::MAX)], 3);
        assert_eq!(run.between(0, shape.len()), 6 * u64::from(u32::MAX));
        assert_eq!(Run::new(&[(0, 2)], u64::MAX).between(0, 1), u64::MAX);
        assert_eq!((Run::default().between(0, 1), Run::default().len()), (0, 0));
        assert_eq!(Run::taken([(1, u32::MAX), (1, 1)].into_iter(), 1, 1), None);
        assert_eq!(Run::taken([(2, 1), (1, 1)].into_iter(), 2, 1), None);
    }
}
