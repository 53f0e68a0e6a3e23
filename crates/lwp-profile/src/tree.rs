//! Stacks as a tree of contexts, for everything that is drawn.

use std::borrow::Cow;
use std::sync::Arc;

use crate::measured::Measured;
use crate::profile::{FunctionId, Profile};
use crate::run::{Before, Run};
use crate::stacks::Inferred;

/// A function in a context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// The function that is in this context.
    pub function: FunctionId,
    /// Counted here.
    pub own: u64,
    /// Counted here and below.
    pub total: u64,
}

/// Contexts without counts, which trees of one recording share: there may be tens of millions.
///
/// A context comes before what it calls, and its callees, by function, before its next sibling: so
/// whatever is below a context stands right behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    pub(crate) functions: Vec<FunctionId>,
    /// The caller of every context; the first has itself.
    pub(crate) callers: Vec<u32>,
    /// The number behind the last context below each.
    pub(crate) ends: Vec<u32>,
}

impl Default for Shape {
    /// Nothing but the context outside all functions.
    fn default() -> Self {
        Self { functions: vec![FunctionId(0)], callers: vec![0], ends: vec![1] }
    }
}

impl Shape {
    /// Returns the number of contexts, with the one outside all functions.
    #[allow(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.functions.len()
    }

    /// The function of each context.
    pub fn functions(&self) -> &[FunctionId] {
        &self.functions
    }

    /// The number of the caller of a context; that of the first is its own.
    pub fn caller(&self, context: usize) -> usize {
        self.callers[context] as usize
    }

    /// The number behind the last context below this one.
    pub fn end(&self, context: usize) -> usize {
        self.ends[context] as usize
    }

    /// The numbers of the contexts that are called from this one, by function.
    pub fn called(&self, context: usize) -> impl Iterator<Item = usize> {
        let end = self.end(context);
        let inside = move |at: usize| (at < end).then_some(at);
        std::iter::successors(inside(context + 1), move |at| inside(self.end(*at)))
    }

    /// The contexts with counts and those around them, as a tree of their own. `own` has numbers of
    /// contexts, in order and each once, with their counts.
    pub fn part(&self, own: &[(u32, u64)], recorded: bool) -> Tree {
        let mut part = Growing::default();
        let mut open: Vec<u32> = vec![0];
        let mut missing = Vec::new();
        for &(context, count) in own {
            while self.ends[open[open.len() - 1] as usize] <= context {
                open.pop();
                part.leave();
            }
            let innermost = open[open.len() - 1];
            let mut at = context;
            while at != innermost {
                missing.push(at);
                at = self.callers[at as usize];
            }
            while let Some(inner) = missing.pop() {
                open.push(inner);
                part.enter(self.functions[inner as usize]);
            }
            part.add(count);
        }
        part.finish(recorded)
    }
}

/// All contexts, with the counts of one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    shape: Arc<Shape>,
    counts: Counts,
    /// True if contexts, and how much was counted in each, were recorded and not inferred.
    pub recorded: bool,
}

/// The counts of contexts.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Counts {
    /// Sums before every context.
    All(Before),
    /// Those of runs, without those of others, which the first have too.
    Runs(Vec<Arc<Run>>, Vec<Arc<Run>>),
}

impl Counts {
    /// The count from one context up to another.
    fn between(&self, from: usize, to: usize) -> u64 {
        let sum = |runs: &[Arc<Run>]| {
            runs.iter().fold(0u64, |sum, run| sum.saturating_add(run.between(from, to)))
        };
        match self {
            Self::All(before) => before.between(from, to),
            Self::Runs(with, without) => sum(with).saturating_sub(sum(without)),
        }
    }
}

impl Default for Tree {
    fn default() -> Self {
        let counts = Counts::All(Before::Counts(vec![0; 2]));
        Self { shape: Arc::default(), counts, recorded: false }
    }
}

impl Tree {
    /// The contexts of `profile`; those of hardly any of `event` stay closed.
    pub fn of(profile: &Profile, event: usize) -> Self {
        let sampled = profile.is_sampled_beside(event);
        match Measured::of(profile, event).filter(|_| !sampled) {
            Some(measured) => Self::of_measured(&measured),
            None => Self::of_stacks(&Inferred::of(profile, event), event),
        }
    }

    /// The measured contexts, with functions inlined in them: those that differ only in thread and
    /// place of the call are one.
    pub fn of_measured(measured: &Measured<'_>) -> Self {
        let mut contexts = Contexts::default();
        let call = |caller: Option<u32>, function| {
            contexts.call(caller.unwrap_or(Contexts::ROOT), function)
        };
        let numbers = measured.numbered(call);
        let mut inlined = measured.inlined();
        let counted = measured.contexts().iter().zip(measured.own());
        for ((context, own), number) in counted.zip(numbers) {
            for (chain, count) in inlined.share(context, *own) {
                let at = chain.iter().fold(number, |at, function| contexts.call(at, *function));
                contexts.add(at, count);
            }
        }
        for (function, count) in measured.apart() {
            let alone = contexts.call(Contexts::ROOT, *function);
            contexts.add(alone, *count);
        }
        contexts.finish(measured.is_exact(), |function| function)
    }

    /// The contexts that stacks are of.
    pub fn of_stacks(inferred: &Inferred, event: usize) -> Self {
        let mut contexts = Contexts::default();
        for stack in &inferred.stacks {
            let from = Contexts::ROOT;
            let own =
                stack.functions.iter().fold(from, |at, function| contexts.call(at, *function));
            contexts.add(own, stack.values.get(event));
        }
        contexts.finish(inferred.recorded, |function| function)
    }

    /// The contexts of `shape` with their own counts: `own` has one for each.
    pub fn counted(shape: &Arc<Shape>, mut own: Vec<u64>, recorded: bool) -> Self {
        own.resize(shape.len() + 1, 0);
        let mut sum = 0u64;
        for count in &mut own {
            let own = std::mem::replace(count, sum);
            sum = sum.saturating_add(own);
        }
        let counts = Counts::All(Before::Counts(own));
        Self { shape: Arc::clone(shape), counts, recorded }
    }

    /// The recorded contexts of `shape` with their samples, each of which stands for `unit` events.
    /// All samples together are no more than a number of 32 bits can be.
    pub fn sampled(shape: &Arc<Shape>, mut own: Vec<u32>, unit: u64) -> Self {
        own.resize(shape.len() + 1, 0);
        let mut sum = 0u32;
        for samples in &mut own {
            let own = std::mem::replace(samples, sum);
            sum = sum.saturating_add(own);
        }
        let counts = Counts::All(Before::Samples(own, unit));
        Self { shape: Arc::clone(shape), counts, recorded: true }
    }

    /// These contexts with other samples: `own` has those of each.
    pub fn with_samples(&self, own: Vec<u32>, unit: u64) -> Self {
        Self::sampled(&self.shape, own, unit)
    }

    /// The recorded contexts of `shape` with the counts of the runs in `with` that are not in
    /// `without`: all of the latter are in the former.
    pub fn of_runs(shape: &Arc<Shape>, with: Vec<Arc<Run>>, without: Vec<Arc<Run>>) -> Self {
        Self { shape: Arc::clone(shape), counts: Counts::Runs(with, without), recorded: true }
    }

    /// This tree with a separate count for every context, and without the contexts that have none
    /// if few have one: for callers that look at all contexts.
    pub fn alone(&self) -> Cow<'_, Self> {
        let Counts::Runs(with, without) = &self.counts else { return Cow::Borrowed(self) };
        let entries: usize = with.iter().map(|run| run.len()).sum();
        if entries < self.len() / 8 && without.is_empty() {
            let own: Vec<(u32, u64)> = Run::joined(with).counts().collect();
            return Cow::Owned(self.shape.part(&own, self.recorded));
        }
        if without.is_empty()
            && let Some(unit) = Run::unit_of(with)
        {
            let mut own = vec![0u32; self.len()];
            for (context, count) in with.iter().flat_map(|run| run.counts()) {
                own[context as usize] += (count / unit) as u32;
            }
            return Cow::Owned(Self::sampled(&self.shape, own, unit));
        }
        let mut own = vec![0u64; self.len()];
        for (context, count) in with.iter().flat_map(|run| run.counts()) {
            let own = &mut own[context as usize];
            *own = own.saturating_add(count);
        }
        for (context, count) in without.iter().flat_map(|run| run.counts()) {
            let own = &mut own[context as usize];
            *own = own.saturating_sub(count);
        }
        Cow::Owned(Self::counted(&self.shape, own, self.recorded))
    }

    /// Returns true if so few contexts have counts that a tree of their own is soon made.
    pub fn is_sparse(&self) -> bool {
        let Counts::Runs(with, without) = &self.counts else { return false };
        let entries: usize = with.iter().map(|run| run.len()).sum();
        without.is_empty() && entries < self.len() / 64
    }

    /// Returns the number of counts in it, those of runs that others have too left out.
    pub fn held(&self) -> usize {
        match &self.counts {
            Counts::All(_) => self.len(),
            Counts::Runs(with, without) => {
                let own = with.iter().chain(without).filter(|run| Arc::strong_count(run) == 1);
                own.map(|run| run.len()).sum()
            }
        }
    }

    /// The contexts.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Returns the number of nodes.
    #[allow(clippy::len_without_is_empty, reason = "every tree has a root")]
    pub fn len(&self) -> usize {
        self.shape.len()
    }

    /// Returns the node above all others.
    pub fn root(&self) -> Node {
        self.node(0)
    }

    /// The node with this number: callers come before callees, the root first.
    pub fn node(&self, node: usize) -> Node {
        Node { function: self.shape.functions[node], own: self.own(node), total: self.total(node) }
    }

    /// The count of the node with this number alone.
    pub fn own(&self, node: usize) -> u64 {
        self.counts.between(node, node + 1)
    }

    /// The count of the node with this number and of all nodes below it.
    pub fn total(&self, node: usize) -> u64 {
        self.counts.between(node, self.shape.end(node))
    }

    /// The number of the caller of the node with this number; the root's is its own.
    pub fn caller(&self, node: usize) -> usize {
        self.shape.caller(node)
    }

    /// The numbers of what is called from the node with this number, by function.
    pub fn called(&self, node: usize) -> impl Iterator<Item = usize> {
        self.shape.called(node)
    }
}

/// A tree that grows context by context, outer ones before inner ones.
#[derive(Debug)]
pub struct Growing {
    shape: Shape,
    own: Vec<u64>,
    /// The contexts around the next one.
    open: Vec<u32>,
}

impl Default for Growing {
    fn default() -> Self {
        Self { shape: Shape::default(), own: vec![0], open: vec![0] }
    }
}

impl Growing {
    fn innermost(&self) -> u32 {
        self.open.last().copied().unwrap_or(0)
    }

    /// Calls a function from the innermost open context.
    pub fn enter(&mut self, function: FunctionId) {
        let number = self.shape.len() as u32;
        self.shape.callers.push(self.innermost());
        self.shape.functions.push(function);
        self.shape.ends.push(number + 1);
        self.own.push(0);
        self.open.push(number);
    }

    /// Adds what was counted in the innermost open context.
    pub fn add(&mut self, count: u64) {
        let own = &mut self.own[self.open.last().copied().unwrap_or(0) as usize];
        *own = own.saturating_add(count);
    }

    /// Closes the innermost open context.
    pub fn leave(&mut self) {
        if self.open.len() > 1 {
            let closed = self.innermost();
            self.shape.ends[closed as usize] = self.shape.len() as u32;
            self.open.pop();
        }
    }

    /// Enters all that is below the root of `tree`, with the root's own count.
    pub fn copy(&mut self, tree: &Tree) {
        self.add(tree.own(0));
        let mut ends = vec![tree.len()];
        for node in 1..tree.len() {
            while ends.last().is_some_and(|end| *end <= node) {
                ends.pop();
                self.leave();
            }
            self.enter(tree.shape.functions[node]);
            self.add(tree.own(node));
            ends.push(tree.shape.end(node));
        }
        ends.iter().skip(1).for_each(|_| self.leave());
    }

    /// The tree.
    pub fn finish(mut self, recorded: bool) -> Tree {
        while self.open.len() > 1 {
            self.leave();
        }
        self.shape.ends[0] = self.shape.len() as u32;
        Tree::counted(&Arc::new(self.shape), self.own, recorded)
    }
}

/// Contexts that are being gathered, in any order.
#[derive(Clone, Debug)]
pub struct Contexts {
    /// By number; callers come before callees.
    functions: Vec<FunctionId>,
    callers: Vec<u32>,
    /// The number of functions around each.
    depths: Vec<u16>,
    /// Own counts, as far as something was counted.
    own: Vec<u64>,
    /// Numbers of contexts at places that their callers and functions lead to, or near them; 0
    /// where there is none.
    slots: Vec<u32>,
}

/// The depth of a tree. A deeper callee is counted in the last function, because a walker may
/// call itself.
const DEEPEST: u16 = 4096;

impl Default for Contexts {
    fn default() -> Self {
        Self {
            functions: vec![FunctionId(0)],
            callers: vec![0],
            depths: vec![0],
            own: Vec::new(),
            slots: vec![0; 16],
        }
    }
}

impl Contexts {
    /// The context outside all functions.
    pub const ROOT: u32 = 0;

    /// The context of `function` called from `context`.
    pub fn call(&mut self, context: u32, function: FunctionId) -> u32 {
        let depth = self.depths[context as usize];
        if depth == DEEPEST {
            return context;
        }
        let slot = match self.find(context, function) {
            Ok(known) => return known,
            Err(slot) => slot,
        };
        let number = self.functions.len() as u32;
        self.functions.push(function);
        self.callers.push(context);
        self.depths.push(depth + 1);
        self.slots[slot] = number;
        if self.functions.len() * 4 > self.slots.len() * 3 {
            self.widen();
        }
        number
    }

    /// The number of a context, or the slot for it.
    fn find(&self, context: u32, function: FunctionId) -> Result<u32, usize> {
        // Multiplication spreads what callers and functions have in common.
        let mixed = (u64::from(context) << 32 | u64::from(function.0))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(26)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mask = self.slots.len() - 1;
        let mut slot = (mixed >> 32) as usize & mask;
        loop {
            let number = self.slots[slot];
            let at = number as usize;
            if number == 0 {
                return Err(slot);
            }
            if self.callers[at] == context && self.functions[at] == function {
                return Ok(number);
            }
            slot = (slot + 1) & mask;
        }
    }

    fn widen(&mut self) {
        let slots = std::mem::take(&mut self.slots).len() * 2;
        self.slots = vec![0; slots];
        for number in 1..self.functions.len() {
            let found = self.find(self.callers[number], self.functions[number]);
            if let Err(slot) = found {
                self.slots[slot] = number as u32;
            }
        }
    }

    /// Adds what was counted in a context.
    pub fn add(&mut self, context: u32, count: u64) {
        let at = context as usize;
        if self.own.len() <= at {
            self.own.resize(at + 1, 0);
        }
        self.own[at] = self.own[at].saturating_add(count);
    }

    /// Adds all contexts of another with their counts. Returns the number here of each.
    pub(crate) fn append(&mut self, other: &Self) -> Vec<u32> {
        let mut numbers = vec![Self::ROOT; other.functions.len()];
        for number in 1..other.functions.len() {
            let caller = numbers[other.callers[number] as usize];
            numbers[number] = self.call(caller, other.functions[number]);
        }
        for (number, count) in numbers.iter().zip(&other.own) {
            self.add(*number, *count);
        }
        numbers
    }

    /// The tree. `renumbered` gives each function its final number, no two of them the same.
    pub fn finish(self, recorded: bool, renumbered: impl Fn(FunctionId) -> FunctionId) -> Tree {
        self.finish_placed(recorded, renumbered).0
    }

    /// The tree, as [`Self::finish`] returns it, and the final number of each context.
    pub fn finish_placed(
        mut self,
        recorded: bool,
        renumbered: impl Fn(FunctionId) -> FunctionId,
    ) -> (Tree, Vec<u32>) {
        let counts = std::mem::take(&mut self.own);
        let (shape, places) = self.arranged(renumbered);
        let mut own = vec![0; shape.len()];
        for (number, count) in places.iter().zip(counts) {
            own[*number as usize] = count;
        }
        (Tree::counted(&Arc::new(shape), own, recorded), places)
    }

    /// The contexts in their final order, and the final number of each.
    pub fn arranged(self, renumbered: impl Fn(FunctionId) -> FunctionId) -> (Shape, Vec<u32>) {
        let Self { mut functions, callers, depths, own, slots } = self;
        // There may be tens of millions of contexts: lists go as soon as nobody needs them.
        drop((depths, own, slots));
        functions.iter_mut().skip(1).for_each(|function| *function = renumbered(*function));
        crate::arrange::arranged(functions, callers)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn totals_include_what_is_called_and_numbers_may_change() {
        let mut contexts = Contexts::default();
        let outer = contexts.call(Contexts::ROOT, FunctionId(7));
        let inner = contexts.call(outer, FunctionId(8));
        let recursive = contexts.call(inner, FunctionId(7));
        let other = contexts.call(outer, FunctionId(3));
        for (context, count) in [(outer, 1), (inner, 10), (recursive, 100), (other, 1000)] {
            contexts.add(context, count);
        }
        assert_eq!(contexts.call(outer, FunctionId(8)), inner);
        let tree = contexts.finish(true, |function| FunctionId(20 - function.0));
        let shown = |node: usize| {
            let Node { function, own, total } = tree.node(node);
            (function.0, own, total)
        };
        let outer = tree.called(0).next().unwrap();
        assert_eq!((tree.root().total, shown(outer)), (1111, (13, 1, 1111)));
        let below: Vec<_> = tree.called(outer).map(shown).collect();
        assert_eq!(below, [(12, 10, 110), (17, 1000, 1000)]);
    }

    /// Promise: R115
    #[test]
    fn samples_count_as_events_do() {
        let tree = grown(&[(0, 1), (1, 2), (0, 3)], &[10, 20, 30]);
        let samples = Tree::sampled(&tree.shape, vec![0, 1, 2, 3], 10);
        let nodes = |tree: &Tree| (0..tree.len()).map(|at| tree.node(at)).collect::<Vec<_>>();
        assert_eq!(nodes(&samples), nodes(&tree));
        // An interval that a forged file claims is no overflow.
        assert_eq!(Tree::sampled(&tree.shape, vec![2], u64::MAX).root().total, u64::MAX);
    }

    #[test]
    fn depth_has_an_end_and_counts_have_none() {
        let mut contexts = Contexts::default();
        let last = (0..2 * DEEPEST).fold(Contexts::ROOT, |at, _| contexts.call(at, FunctionId(0)));
        contexts.add(last, 5);
        let tree = contexts.finish(true, |function| function);
        let (mut node, mut depth) = (0, 0);
        while let Some(inner) = tree.called(node).next() {
            (node, depth) = (inner, depth + 1);
        }
        assert_eq!((depth, tree.own(node), tree.root().total), (DEEPEST, 5, 5));
    }

    /// A tree of contexts that `calls` make: the number of a context, and a function.
    fn grown(calls: &[(usize, u32)], own: &[u64]) -> Tree {
        let mut contexts = Contexts::default();
        let mut numbers = vec![Contexts::ROOT];
        for ((at, function), count) in calls.iter().zip(own) {
            let number = contexts.call(numbers[at % numbers.len()], FunctionId(*function));
            contexts.add(number, *count);
            numbers.push(number);
        }
        contexts.finish(true, |function| function)
    }

    proptest! {
        #[test]
        fn what_is_below_a_context_stands_behind_it(
            calls in prop::collection::vec((any::<usize>(), 0u32..9), 0..200),
            own in prop::collection::vec(0u64..5, 200),
        ) {
            let tree = grown(&calls, &own);
            prop_assert_eq!(tree.root().total, own[..calls.len()].iter().sum::<u64>());
            for node in 0..tree.len() {
                let called: Vec<usize> = tree.called(node).collect();
                prop_assert!(called.iter().all(|inner| tree.caller(*inner) == node));
                let functions = called.iter().map(|inner| tree.node(*inner).function);
                prop_assert!(functions.collect::<Vec<_>>().windows(2).all(|two| two[0] < two[1]));
                let below: u64 = called.iter().map(|inner| tree.total(*inner)).sum();
                prop_assert_eq!(tree.total(node), tree.own(node) + below);
            }
            let all: usize = (0..tree.len()).map(|node| tree.called(node).count()).sum();
            prop_assert_eq!(all + 1, tree.len());
        }

        /// Promise: R115
        #[test]
        fn a_part_has_the_counts_of_the_whole(
            calls in prop::collection::vec((any::<usize>(), 0u32..9), 0..200),
            own in prop::collection::vec(0u64..3, 200),
        ) {
            let tree = grown(&calls, &own);
            let counted = (0..tree.len()).filter(|node| tree.own(*node) > 0);
            let own: Vec<_> = counted.map(|node| (node as u32, tree.own(node))).collect();
            let part = tree.shape().part(&own, true);
            // What has counts has a place in both, in the same order.
            let met = (1..tree.len()).filter(|node| tree.total(*node) > 0);
            let nodes: Vec<Node> = met.map(|node| tree.node(node)).collect();
            prop_assert_eq!(nodes, (1..part.len()).map(|node| part.node(node)).collect::<Vec<_>>());
            prop_assert_eq!(part.root().total, tree.root().total);
            let mut copy = Growing::default();
            copy.copy(&part);
            prop_assert_eq!(copy.finish(true), part);
        }
    }
}
