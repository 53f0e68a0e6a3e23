//! The part of a subject that a selection leaves, and the trees that are drawn of it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use lwp_profile::{CallGraph, FunctionId, Growing, Inclusive, Inferred, LocationId, Tree, Values};
use lwp_report::annotate::Counts;

use crate::adding::{add_up, meets};
use crate::selection::{Selection, Who};
use crate::subject::{MOST_NODES, Subject};

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
/// The same where following them would take seconds: of trees with more nodes than [`LARGE`].
const COARSE: u64 = 5_000;
/// Nodes of a large tree.
const LARGE: usize = 1 << 22;
/// Most groups; what is in none of them is left out of a picture by groups.
const GROUPS: usize = 64;

impl Picked {
    /// Adds up what is selected.
    pub fn new(subject: &Subject, selection: &Selection) -> Self {
        let profile = subject.profile();
        let mut counts = Counts::none(profile);
        let tree = match &subject.samples {
            Some(samples) => Some(add_up(subject, samples, selection, Some(&mut counts))),
            None => {
                add_exact(subject, selection, &mut counts);
                None
            }
        };
        let mut own = vec![Values::zero(profile.events.len()); profile.functions.len()];
        for (id, location) in (0..).map(LocationId).zip(&profile.locations) {
            let own = own[location.function().index()].0.iter_mut();
            own.zip(counts.at(id)).for_each(|(sum, count)| *sum = sum.saturating_add(*count));
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
        match tree {
            Some(tree) => picked.set_recorded(tree),
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
            By::Function => {
                Shaped { tree: formed(&self.tree.tree, shape).into_owned(), groups: Vec::new() }
            }
            _ => self.grouped(subject, shape),
        };
        let made = Arc::new(made);
        let mut kept = lock();
        let nodes: usize = kept.values().map(|shaped| shaped.tree.len()).sum();
        if nodes + made.tree.len() > MOST_NODES {
            kept.clear();
        }
        kept.insert(shape, Arc::clone(&made));
        made
    }

    /// The trees of all groups side by side.
    fn grouped(&self, subject: &Subject, shape: Shape) -> Shaped {
        let mut growing = Growing::default();
        let mut names = Vec::new();
        for (name, who) in groups(subject, shape.by) {
            let mut selection = self.selection.clone();
            selection.who.push(who);
            let tree = match &subject.samples {
                Some(samples) => add_up(subject, samples, &selection, None),
                None => Picked::new(subject, &selection).tree.tree.clone(),
            };
            if tree.root().total == 0 {
                continue;
            }
            growing.enter(FunctionId((self.own.len() + names.len()) as u32));
            growing.copy(&formed(&tree, shape));
            growing.leave();
            names.push(name);
            if names.len() == GROUPS {
                break;
            }
        }
        Shaped { tree: growing.finish(self.tree.tree.recorded), groups: names }
    }
}

/// The tree with recursion folded, or turned inside out, as `shape` says.
fn formed(tree: &Tree, shape: Shape) -> Cow<'_, Tree> {
    let mut tree = Cow::Borrowed(tree);
    if shape.folded {
        tree = Cow::Owned(tree.folded());
    }
    if shape.inverted {
        let finest = if tree.len() > LARGE { COARSE } else { FINEST };
        tree = Cow::Owned(tree.inverted(tree.root().total / finest));
    }
    tree
}

/// Adds up exact counts.
fn add_exact(subject: &Subject, selection: &Selection, counts: &mut Counts) {
    let profile = subject.profile();
    for sample in profile.samples.iter().filter(|sample| meets(subject, selection, sample.thread)) {
        let leaf = profile.leaf(sample);
        let language = subject.labels[profile.location(leaf).frames[0].function.index()].language;
        let spoken = |who: &Who| !matches!(who, Who::Language(wanted) if *wanted != language);
        if selection.who.iter().all(spoken) {
            counts.add_all(leaf, &sample.values);
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

/// Adds up the counts of the tree's contexts by function. A context counts for a function once,
/// however often the function is in it.
pub fn inclusive(tree: &Tree, functions: usize) -> Vec<f64> {
    let shape = tree.shape();
    let mut sums = vec![0u64; functions];
    // The node behind those that each function has called.
    let mut behind = vec![0usize; functions];
    for (node, function) in shape.functions().iter().enumerate().skip(1) {
        let Some(behind) = behind.get_mut(function.index()) else { continue };
        if *behind <= node {
            *behind = shape.end(node);
            let sum = &mut sums[function.index()];
            *sum = sum.saturating_add(tree.total(node));
        }
    }
    sums.into_iter().map(|sum| sum as f64).collect()
}
