//! Stacks for pictures: recorded ones, measured contexts, or a tree inferred from the call graph.
//!
//! An exact profile without contexts knows who called whom how often, but not in which context. The tree inferred
//! here shares the own counts of every function out among its contexts in proportion to the calls
//! that lead there. Totals, and each function's own total, are exact; how they are split between
//! contexts is an estimate.

use crate::graph::CallGraph;
use crate::inclusive::Inclusive;
use crate::inlined;
use crate::measured::{ByFunction, Measured};
use crate::profile::{FunctionId, Profile, Sample, ThreadId, Values};

/// Stacks with values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inferred {
    /// One row for each context.
    pub stacks: Vec<InferredStack>,
    /// True if the stacks, and the counts of the event that they were made for, were recorded or
    /// measured; otherwise they are estimates.
    pub recorded: bool,
}

/// A context: a function with those that led to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InferredStack {
    /// Functions, outermost first.
    pub functions: Vec<FunctionId>,
    /// The counts of the innermost function in this context.
    pub values: Values,
}

/// Contexts that hold less than this part of the whole are not opened up.
const FINEST: f64 = 1.0 / 20_000.0;
/// Deepest inferred stack.
const DEEPEST: usize = 200;

impl Inferred {
    /// The stacks of `profile`; contexts of less than a twenty-thousandth of the whole (by the
    /// event with index `event`) stay closed.
    pub fn of(profile: &Profile, event: usize) -> Self {
        if profile.is_sampled_beside(event) {
            let sampled = |sample: &&Sample| sample.values.get(event) > 0;
            let samples = profile.samples.iter().filter(sampled);
            return Self { stacks: recorded(profile, samples), recorded: true };
        }
        if profile.has_contexts() {
            return measured(profile, event, |_| true);
        }
        if profile.calls.is_empty() {
            return Self { stacks: recorded(profile, profile.samples.iter()), recorded: true };
        }
        let graph = CallGraph::of(profile);
        let inclusive = Inclusive::of(profile, &graph, event);
        Self::from_calls(profile, &graph, &inclusive, event)
    }

    /// The stacks of one thread of `profile`. The calls of an exact profile without contexts are
    /// those of all threads.
    pub fn of_thread(profile: &Profile, event: usize, thread: ThreadId) -> Self {
        if profile.is_sampled_beside(event) {
            let sampled = |of: &&Sample| of.thread == thread && of.values.get(event) > 0;
            let samples = profile.samples.iter().filter(sampled);
            return Self { stacks: recorded(profile, samples), recorded: true };
        }
        if profile.has_contexts() {
            return measured(profile, event, |of| of == thread);
        }
        if profile.calls.is_empty() {
            let samples = profile.samples.iter().filter(|sample| sample.thread == thread);
            return Self { stacks: recorded(profile, samples), recorded: true };
        }
        let mut graph = CallGraph::of(profile);
        graph.own.iter_mut().for_each(|own| *own = Values::zero(profile.events.len()));
        for sample in profile.samples.iter().filter(|sample| sample.thread == thread) {
            let function = profile.location(profile.leaf(sample)).function();
            graph.own[function.index()].add(&sample.values);
        }
        let inclusive = Inclusive::of(profile, &graph, event);
        Self::from_calls(profile, &graph, &inclusive, event)
    }

    /// The recorded stacks of some samples of `profile`.
    pub fn of_samples(profile: &Profile, samples: &[Sample]) -> Self {
        Self { stacks: recorded(profile, samples.iter()), recorded: true }
    }

    /// The stacks of an exact profile, whose own counts are those of `graph`: of all threads, or of
    /// some.
    pub fn from_calls(
        profile: &Profile,
        graph: &CallGraph,
        inclusive: &Inclusive,
        event: usize,
    ) -> Self {
        let mut total = Values::zero(profile.events.len());
        graph.own.iter().for_each(|own| total.add(own));
        let mut tree = Tree::new(profile, graph, inclusive, event, &total);
        tree.grow();
        Self { stacks: tree.stacks, recorded: false }
    }
}

/// The measured contexts of the threads that are wanted, by function.
fn measured(profile: &Profile, event: usize, wanted: impl Fn(ThreadId) -> bool) -> Inferred {
    let mut by_function = ByFunction::default();
    let numbers = inlined::numbered(profile, |caller, function| by_function.call(caller, function));
    let parts: Vec<Measured<'_>> = (0..profile.events.len())
        .filter_map(|event| Measured::part(profile, event, |context| wanted(context.thread)))
        .collect();
    let counts: Vec<Vec<(u32, u64)>> =
        parts.iter().map(|part| by_function.counts(part, &numbers)).collect();
    let deep = Deep::new(by_function.nodes());
    let mut values = vec![Values::zero(parts.len()); by_function.nodes().len()];
    for (event, counts) in counts.into_iter().enumerate() {
        for (number, count) in counts {
            let sum = &mut values[deep.counted_in(number)].0[event];
            *sum = sum.saturating_add(count);
        }
    }
    let nodes = by_function.nodes();
    let counted = (0u32..).zip(values).filter(|(_, values)| !values.is_zero());
    let stack = |(node, values): (u32, Values)| {
        let path = std::iter::successors(Some(node), |at| nodes[*at as usize].0);
        let mut functions: Vec<FunctionId> = path.map(|at| nodes[at as usize].1).collect();
        functions.reverse();
        InferredStack { functions, values }
    };
    Inferred { stacks: counted.map(stack).collect(), recorded: profile.measures(event) }
}

/// All functions of measured stacks together: a recursion a thousand deep, each time with a leaf,
/// must not take a thousand times the memory of its contexts.
const MOST_FRAMES: usize = 1 << 25;

/// Contexts that are too deep to be stacks of their own.
struct Deep {
    /// The context that each is counted in: itself, or the innermost one around it that is not too
    /// deep.
    places: Vec<u32>,
}

impl Deep {
    fn new(nodes: &[(Option<u32>, FunctionId)]) -> Self {
        let (mut depths, mut places): (Vec<u32>, Vec<u32>) = Default::default();
        for (caller, _) in nodes {
            depths.push(caller.map_or(1, |caller| depths[caller as usize] + 1));
        }
        let mut deepest = depths.iter().copied().max().unwrap_or(1);
        let frames = |deepest: u32| -> usize {
            depths.iter().map(|depth| (*depth).min(deepest) as usize).sum()
        };
        while deepest > 1 && frames(deepest) > MOST_FRAMES {
            deepest -= deepest.div_ceil(4);
        }
        for (number, (caller, _)) in (0u32..).zip(nodes) {
            let caller = caller.filter(|_| depths[number as usize] > deepest);
            places.push(caller.map_or(number, |caller| places[caller as usize]));
        }
        Self { places }
    }

    fn counted_in(&self, number: u32) -> usize {
        self.places[number as usize] as usize
    }
}

/// Recorded stacks by function, inlined ones included: of all threads, or of one.
fn recorded<'a>(
    profile: &Profile,
    samples: impl Iterator<Item = &'a Sample>,
) -> Vec<InferredStack> {
    samples
        .map(|sample| {
            let stack = &profile.stacks[sample.stack.index()];
            let frames = stack.locations.iter().flat_map(|id| profile.location(*id).frames.iter());
            let mut functions: Vec<FunctionId> = frames.map(|frame| frame.function).collect();
            functions.reverse();
            InferredStack { functions, values: sample.values.clone() }
        })
        .collect()
}

/// Entering a group of functions that call each other, at one of them.
struct Visit {
    path: Vec<FunctionId>,
    entry: FunctionId,
    /// The part of the group's work that is done in this context.
    part: f64,
}

struct Tree<'a> {
    graph: &'a CallGraph,
    component: Vec<usize>,
    members: Vec<Vec<FunctionId>>,
    entries: Vec<u64>,
    inclusive: Vec<f64>,
    least: f64,
    /// Exact sums emitted so far, per function and event, so that rounding never adds up.
    emitted: Vec<Vec<(f64, u64)>>,
    stacks: Vec<InferredStack>,
    events: usize,
}

impl<'a> Tree<'a> {
    fn new(
        profile: &Profile,
        graph: &'a CallGraph,
        inclusive: &Inclusive,
        event: usize,
        total: &Values,
    ) -> Self {
        let (component, members) = graph.components();
        let mut entries = vec![0u64; members.len()];
        for edge in &graph.edges {
            let to = component[edge.to.index()];
            if edge.from.is_none_or(|from| component[from.index()] != to) {
                entries[to] = entries[to].saturating_add(edge.count);
            }
        }
        let events = profile.events.len();
        let sum = |functions: &Vec<FunctionId>| -> f64 {
            functions.iter().map(|function| inclusive.of[function.index()]).sum()
        };
        Self {
            graph,
            inclusive: members.iter().map(sum).collect(),
            component,
            members,
            entries,
            least: total.get(event) as f64 * FINEST,
            emitted: vec![vec![(0.0, 0); events]; profile.functions.len()],
            stacks: Vec::new(),
            events,
        }
    }

    fn grow(&mut self) {
        let mut queue = self.roots();
        while let Some(visit) = queue.pop() {
            self.enter(visit, &mut queue);
        }
        self.remainders();
    }

    /// Returns the contexts without a known caller: entered by the kernel, or by indirect calls.
    fn roots(&self) -> Vec<Visit> {
        let mut roots = Vec::new();
        for (number, members) in self.members.iter().enumerate() {
            let unknown = |function: &FunctionId| {
                let callers = &self.graph.callers[function.index()];
                let counts = callers.iter().filter(|(from, _)| from.is_none());
                counts.fold(0u64, |sum, (_, count)| sum.saturating_add(*count))
            };
            if self.entries[number] == 0 {
                roots.push(Visit { path: Vec::new(), entry: members[0], part: 1.0 });
                continue;
            }
            for &entry in members {
                let count = unknown(&entry);
                if count > 0 {
                    let part = count as f64 / self.entries[number] as f64;
                    roots.push(Visit { path: Vec::new(), entry, part });
                }
            }
        }
        roots
    }

    /// Places a group's work below `visit.path`, as a breadth-first tree from its entry.
    fn enter(&mut self, visit: Visit, queue: &mut Vec<Visit>) {
        let number = self.component[visit.entry.index()];
        if visit.path.len() >= DEEPEST {
            return;
        }
        let mut paths: Vec<(FunctionId, Vec<FunctionId>)> = Vec::new();
        let mut reached = vec![visit.entry];
        paths.push((visit.entry, extended(&visit.path, visit.entry)));
        let mut at = 0;
        while at < paths.len() {
            let (function, path) = paths[at].clone();
            at += 1;
            for &(callee, _) in &self.graph.callees[function.index()] {
                if self.component[callee.index()] == number && !reached.contains(&callee) {
                    reached.push(callee);
                    paths.push((callee, extended(&path, callee)));
                }
            }
        }
        for (function, path) in paths {
            self.emit(function, &path, visit.part);
            for &(callee, count) in &self.graph.callees[function.index()] {
                let to = self.component[callee.index()];
                if to == number || self.entries[to] == 0 {
                    continue;
                }
                let part = visit.part * count as f64 / self.entries[to] as f64;
                if self.inclusive[to] * part >= self.least {
                    queue.push(Visit { path: path.clone(), entry: callee, part });
                }
            }
        }
    }

    fn emit(&mut self, function: FunctionId, path: &[FunctionId], part: f64) {
        let own = &self.graph.own[function.index()];
        let mut values = Values::zero(self.events);
        for event in 0..self.events {
            let (sum, given) = &mut self.emitted[function.index()][event];
            *sum += own.get(event) as f64 * part;
            let upto = (sum.round() as u64).min(own.get(event));
            values.0[event] = upto.saturating_sub(*given);
            *given = upto.max(*given);
        }
        if !values.is_zero() {
            self.stacks.push(InferredStack { functions: path.to_vec(), values });
        }
    }

    /// Makes the counts of contexts too fine to be opened a root of their own.
    fn remainders(&mut self) {
        for (index, own) in self.graph.own.iter().enumerate() {
            let mut values = own.clone();
            for (event, value) in values.0.iter_mut().enumerate() {
                *value -= self.emitted[index][event].1.min(*value);
            }
            if !values.is_zero() {
                let functions = vec![FunctionId(index as u32)];
                self.stacks.push(InferredStack { functions, values });
            }
        }
    }
}

fn extended(path: &[FunctionId], function: FunctionId) -> Vec<FunctionId> {
    let mut path = path.to_vec();
    path.push(function);
    path
}
