//! The part of a subject that a selection leaves, and the trees that are drawn of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use lwp_profile::{
    CallGraph, Contexts, FunctionId, Inclusive, Inferred, StackId, ThreadId, Tree, Values,
};
use lwp_report::annotate::Counts;

use crate::selection::{Selection, Who};
use crate::subject::Subject;

/// The outermost boxes of a picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum By {
    /// The outermost functions.
    #[default]
    Function,
    /// Processes.
    Process,
    /// Threads.
    Thread,
    /// Languages of innermost functions.
    Language,
}

/// The form of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shape {
    /// Callers below callees.
    pub inverted: bool,
    /// Recursion folded.
    pub folded: bool,
    /// The outermost boxes.
    pub by: By,
}

/// A tree with names of groups: functions behind the profile's stand for them.
#[derive(Debug, Default)]
pub struct Shaped {
    /// The tree.
    pub tree: Tree,
    /// Groups.
    pub groups: Vec<String>,
}

/// The part of a subject that a selection leaves.
#[derive(Debug)]
pub struct Picked {
    /// The selection.
    pub selection: Selection,
    /// Own counts of locations, and of everything.
    pub counts: Counts,
    /// Own counts of functions, what was inlined into them included.
    pub own: Vec<Values>,
    /// Inclusive counts of functions, of the selected event.
    pub inclusive: Vec<f64>,
    /// True if inclusive counts are true and not estimates.
    pub inclusive_exact: bool,
    /// Callers, callees and numbers of calls: of recordings where every call was counted, of all
    /// threads.
    pub graph: Option<CallGraph>,
    /// Estimated costs of calls, where they were counted.
    pub estimates: Option<Inclusive>,
    /// Contexts.
    pub tree: Arc<Shaped>,
    shaped: Mutex<BTreeMap<Shape, Arc<Shaped>>>,
}

/// Contexts of less than this part of the whole are not followed in inverted trees.
const FINEST: u64 = 100_000;
/// Most groups; what is in none of them is left out of a picture by groups.
const GROUPS: usize = 64;

impl Picked {
    /// Adds up what is selected.
    pub fn new(subject: &Subject, selection: &Selection) -> Self {
        let profile = subject.profile();
        let events = profile.events.len();
        let mut counts = Counts {
            by_location: vec![Values::zero(events); profile.locations.len()],
            total: Values::zero(events),
        };
        let contexts = subject.contexts.as_ref();
        let mut in_context = vec![0u64; contexts.map_or(0, |(contexts, _)| contexts.count())];
        visit(subject, selection, &mut |stack, values| {
            let leaf = profile.stacks[stack.index()].locations[0];
            counts.by_location[leaf.index()].add(values);
            counts.total.add(values);
            if let Some((_, of_stacks)) = contexts {
                let own = &mut in_context[of_stacks[stack.index()] as usize];
                *own = own.saturating_add(values.get(selection.event));
            }
        });
        let mut own = vec![Values::zero(events); profile.functions.len()];
        for (location, values) in profile.locations.iter().zip(&counts.by_location) {
            own[location.function().index()].add(values);
        }
        let mut picked = Self {
            selection: selection.clone(),
            counts,
            own,
            inclusive: Vec::new(),
            inclusive_exact: true,
            graph: None,
            estimates: None,
            tree: Arc::default(),
            shaped: Mutex::default(),
        };
        match contexts {
            Some((contexts, _)) => picked.set_recorded(contexts.with_counts(&in_context, true)),
            None => picked.infer(subject),
        }
        picked
    }

    /// The inclusive counts of recorded contexts.
    fn set_recorded(&mut self, tree: Tree) {
        self.inclusive = inclusive(&tree, self.own.len());
        self.tree = Arc::new(Shaped { tree, groups: Vec::new() });
    }

    /// Estimates contexts and inclusive counts by numbers of calls.
    fn infer(&mut self, subject: &Subject) {
        let (profile, event) = (subject.profile(), self.selection.event);
        let mut graph = CallGraph::of(profile);
        graph.own.clone_from(&self.own);
        let inclusive = Inclusive::of(profile, &graph, event);
        let stacks = Inferred::from_calls(profile, &graph, &inclusive, event);
        let tree = Tree::of_stacks(&stacks, event);
        self.inclusive.clone_from(&inclusive.of);
        self.inclusive_exact = inclusive.exact;
        self.tree = Arc::new(Shaped { tree, groups: Vec::new() });
        (self.graph, self.estimates) = (Some(graph), Some(inclusive));
    }

    /// The count of everything, of the selected event.
    pub fn total(&self) -> u64 {
        self.counts.total.get(self.selection.event)
    }

    /// The tree in another shape.
    pub fn shaped(&self, subject: &Subject, shape: Shape) -> Arc<Shaped> {
        if shape == Shape::default() {
            return Arc::clone(&self.tree);
        }
        let lock = || self.shaped.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(&shape) {
            return Arc::clone(known);
        }
        let made = match shape.by {
            By::Function => Shaped { tree: self.formed(shape), groups: Vec::new() },
            _ => self.grouped(subject, shape),
        };
        let made = Arc::new(made);
        lock().insert(shape, Arc::clone(&made));
        made
    }

    fn formed(&self, shape: Shape) -> Tree {
        let tree = &self.tree.tree;
        let folded = shape.folded.then(|| tree.folded());
        let tree = folded.as_ref().unwrap_or(tree);
        match shape.inverted {
            true => tree.inverted(tree.root().total / FINEST),
            false => tree.clone(),
        }
    }

    /// The trees of all groups side by side.
    fn grouped(&self, subject: &Subject, shape: Shape) -> Shaped {
        let mut contexts = Contexts::default();
        let mut names = Vec::new();
        for (name, who) in groups(subject, shape.by) {
            let mut selection = self.selection.clone();
            selection.who.push(who);
            let part = Picked::new(subject, &selection);
            if part.total() == 0 || names.len() >= GROUPS {
                continue;
            }
            let number = FunctionId((self.own.len() + names.len()) as u32);
            names.push(name);
            let top = contexts.call(Contexts::ROOT, number);
            copy(&part.formed(shape), &mut contexts, top);
        }
        let recorded = self.tree.tree.recorded;
        Shaped { tree: contexts.finish(recorded, |function| function), groups: names }
    }
}

/// Enters a tree below a context.
fn copy(tree: &Tree, contexts: &mut Contexts, top: u32) {
    let mut places = vec![top; tree.nodes().len()];
    contexts.add(top, tree.root().own);
    for (index, node) in tree.nodes().iter().enumerate().skip(1) {
        if node.total > 0 {
            places[index] = contexts.call(places[tree.caller(index)], node.function);
            contexts.add(places[index], node.own);
        }
    }
}

/// Groups with their names, the heaviest threads first.
pub fn groups(subject: &Subject, by: By) -> Vec<(String, Who)> {
    let profile = subject.profile();
    match by {
        By::Function => Vec::new(),
        By::Language => {
            let mut all: Vec<_> = subject.labels.iter().map(|label| label.language).collect();
            all.sort_unstable();
            all.dedup();
            all.into_iter().map(|one| (one.name().to_owned(), Who::Language(one))).collect()
        }
        By::Process => {
            let mut first: BTreeMap<i32, &str> = BTreeMap::new();
            for thread in &profile.threads {
                let comm = first.entry(thread.pid).or_insert(&thread.comm);
                *comm = if thread.tid == thread.pid { &thread.comm } else { comm };
            }
            let group = |(pid, comm): (i32, &str)| (format!("{comm} ({pid})"), Who::Process(pid));
            first.into_iter().map(group).collect()
        }
        By::Thread => {
            let name = |number: &u32| {
                let thread = &profile.threads[*number as usize];
                (format!("{} ({})", thread.comm, thread.tid), Who::Thread(*number))
            };
            subject.threads.iter().map(name).collect()
        }
    }
}

/// Shows `each` the stacks of a selection with what was counted in them.
fn visit(subject: &Subject, selection: &Selection, each: &mut dyn FnMut(StackId, &Values)) {
    let profile = subject.profile();
    let meets = |thread: ThreadId, stack: StackId| {
        selection.who.is_empty() || {
            let leaf = profile.location(profile.stacks[stack.index()].locations[0]);
            let language = subject.labels[leaf.frames[0].function.index()].language;
            let (number, thread) = (thread.index(), &profile.threads[thread.index()]);
            selection.who.iter().all(|who| who.meets(number, thread, language))
        }
    };
    let Some((from, to)) = selection.range else {
        for sample in profile.samples.iter().filter(|one| meets(one.thread, one.stack)) {
            each(sample.stack, &sample.values);
        }
        return;
    };
    let event = selection.event;
    let interval = profile.events.get(event).and_then(|event| event.interval).unwrap_or(1);
    // Parts have many entries for one stack.
    let mut times = vec![0u64; profile.stacks.len()];
    for lane in subject.of.lanes.iter().filter(|lane| lane.event == event) {
        let mut start = 0u64;
        for part in &lane.parts {
            let end = start.saturating_add(lane.width);
            if end > from && start < to {
                for (stack, more) in part.iter().filter(|(stack, _)| meets(lane.thread, *stack)) {
                    times[stack.index()] += u64::from(*more);
                }
            }
            start = end;
        }
    }
    let mut values = Values::zero(profile.events.len());
    for (stack, times) in (0..).map(StackId).zip(times).filter(|(_, times)| *times > 0) {
        values.0[event] = times.saturating_mul(interval);
        each(stack, &values);
    }
}

/// Adds up the counts of the tree's contexts by function. A context counts for a function once,
/// however often the function is in it.
pub fn inclusive(tree: &Tree, functions: usize) -> Vec<f64> {
    let mut sums = vec![0u64; functions];
    let mut running = vec![0u32; functions];
    walk(tree, &mut |node, entered| {
        let function = tree.nodes()[node].function.index();
        let Some(depth) = running.get_mut(function) else { return };
        if entered {
            if *depth == 0 {
                sums[function] = sums[function].saturating_add(tree.nodes()[node].total);
            }
            *depth += 1;
        } else {
            *depth -= 1;
        }
    });
    sums.into_iter().map(|sum| sum as f64).collect()
}

/// Walks a tree: each node but the root is entered, then what it calls, then it is left. Contexts
/// without counts are left out.
pub fn walk(tree: &Tree, each: &mut dyn FnMut(usize, bool)) {
    let counted = |node: &usize| tree.nodes()[*node].total > 0;
    let mut waiting: Vec<(usize, bool)> =
        tree.called(0).rev().filter(counted).map(|node| (node, true)).collect();
    while let Some((node, entering)) = waiting.pop() {
        each(node, entering);
        if entering {
            waiting.push((node, false));
            waiting.extend(tree.called(node).rev().filter(counted).map(|node| (node, true)));
        }
    }
}
