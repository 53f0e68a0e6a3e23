//! The part of a subject that a selection leaves, and the trees that are drawn of it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use lwp_profile::{
    CallGraph, Context, FunctionId, Inclusive, Inferred, LocationId, Measured, NOWHERE, Placed,
    Samples, Tree, Values,
};
use lwp_report::annotate::Counts;

use crate::adding::{Portion, Sums, chosen, meets, runs, sums_within};
use crate::forms;
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

impl Shape {
    /// The shapes that differ from the usual one in one thing, and one whose parts need it; those
    /// that take least come first.
    pub const FIRST: [Self; 6] = [
        Self { by: By::Process, inverted: false, folded: false },
        Self { by: By::Thread, inverted: false, folded: false },
        Self { by: By::Language, inverted: false, folded: false },
        Self { by: By::Function, inverted: true, folded: false },
        Self { by: By::Function, inverted: false, folded: true },
        Self { by: By::Function, inverted: true, folded: true },
    ];
}

/// A group of a picture: a process, a thread, a language.
#[derive(Debug)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Its contexts.
    pub tree: Tree,
}

/// A tree, or several of them side by side.
#[derive(Debug, Default)]
pub struct Shaped {
    /// The tree; of groups, an empty one.
    pub tree: Tree,
    /// Groups.
    pub groups: Vec<Group>,
    /// The number of the node that each context of the subject is counted in: of a large
    /// recording's tree of everything.
    pub places: Option<Vec<u32>>,
}

impl From<Tree> for Shaped {
    fn from(tree: Tree) -> Self {
        Self { tree, ..Self::default() }
    }
}

impl Shaped {
    /// Returns the number of counts that it holds and shares with nobody.
    fn held(&self) -> usize {
        self.tree.held() + self.groups.iter().map(|group| group.tree.held()).sum::<usize>()
    }
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
    /// Estimated costs of calls, where they were counted and contexts were not measured.
    pub estimates: Option<Inclusive>,
    /// Contexts, by the form of the tree: each is made when it is asked for.
    shaped: Mutex<BTreeMap<Shape, Place>>,
}

/// Contexts of less than this part of the whole are not followed in inverted trees.
const FINEST: u64 = 100_000;
/// Contexts of less than this part of the whole are not followed in inverted trees of more than
/// [`LARGE`] nodes, where that would take seconds.
const COARSE: u64 = 5_000;
/// Nodes of a large tree.
const LARGE: usize = 1 << 22;
/// Most groups; what is in none of them is left out of a picture by groups.
const GROUPS: usize = 64;

impl Picked {
    /// Adds up what is selected.
    pub fn new(subject: &Subject, selection: &Selection) -> Self {
        let profile = subject.profile();
        let functions = profile.functions.len();
        let mut picked = Self {
            selection: selection.clone(),
            counts: Counts::none(profile),
            own: vec![Values::zero(profile.events.len()); functions],
            inclusive: vec![0.0; functions],
            inclusive_exact: true,
            graph: None,
            estimates: None,
            shaped: Mutex::default(),
        };
        match &subject.samples {
            Some(samples) => picked.add(subject, samples),
            None => add_exact(subject, selection, &mut picked.counts),
        }
        for (id, location) in (0..).map(LocationId).zip(&profile.locations) {
            let own = picked.own[location.function().index()].0.iter_mut();
            own.zip(picked.counts.at(id))
                .for_each(|(sum, count)| *sum = sum.saturating_add(*count));
        }
        if subject.samples.is_none() {
            picked.infer(subject);
        }
        picked
    }

    /// Adds up samples.
    fn add(&mut self, subject: &Subject, samples: &Samples) {
        let event = self.selection.event;
        let mut inclusive = vec![0u64; self.own.len()];
        let mut include = |sums: &Sums| {
            for (function, count) in &sums.inclusive {
                let sum = &mut inclusive[function.index()];
                *sum = sum.saturating_add(*count);
            }
        };
        if let Some(range) = self.selection.range {
            for sums in sums_within(subject, samples, &self.selection, range) {
                include(&sums);
                sums.leaves.iter().for_each(|(leaf, count)| self.counts.add(*leaf, event, *count));
            }
        } else {
            for Portion { event: of, sums, .. } in chosen(subject, &self.selection) {
                sums.leaves.iter().for_each(|(leaf, count)| self.counts.add(*leaf, *of, *count));
                if *of == event {
                    include(sums);
                }
            }
        }
        self.inclusive = inclusive.into_iter().map(|sum| sum as f64).collect();
    }

    /// Takes contexts and inclusive counts that were measured, or else estimates them by numbers of
    /// calls.
    fn infer(&mut self, subject: &Subject) {
        let (profile, event) = (subject.profile(), self.selection.event);
        let mut graph = CallGraph::of(profile);
        graph.own.clone_from(&self.own);
        let selected = |context: &Context| {
            let spoken = speaks(subject, &self.selection, context.function);
            spoken && meets(subject, &self.selection, context.thread)
        };
        if profile.is_sampled_beside(event) {
            self.sampled_beside(subject);
            self.graph = Some(graph);
            return;
        }
        if let Some(measured) = Measured::part(profile, event, selected) {
            let sums = measured.inclusive().into_iter().map(|sum| sum as f64).collect();
            (self.inclusive, self.inclusive_exact) = (sums, measured.is_exact());
            let known = Arc::new(Shaped::from(Tree::of_measured(&measured)));
            self.shaped = Mutex::new([(Shape::default(), Arc::new(known.into()))].into());
            self.graph = Some(graph);
            return;
        }
        let inclusive = Inclusive::of(profile, &graph, event);
        let stacks = Inferred::from_calls(profile, &graph, &inclusive, event);
        let tree = Tree::of_stacks(&stacks, event);
        self.inclusive.clone_from(&inclusive.of);
        self.inclusive_exact = inclusive.exact;
        let known = Arc::new(Shaped::from(tree));
        self.shaped = Mutex::new([(Shape::default(), Arc::new(known.into()))].into());
        (self.graph, self.estimates) = (Some(graph), Some(inclusive));
    }

    /// Takes the stacks of a native run, which was sampled beside the counts.
    fn sampled_beside(&mut self, subject: &Subject) {
        let (profile, event) = (subject.profile(), self.selection.event);
        let selected = |sample: &&lwp_profile::Sample| {
            let function = profile.location(profile.leaf(sample)).frames[0].function;
            sample.values.get(event) > 0
                && speaks(subject, &self.selection, function)
                && meets(subject, &self.selection, sample.thread)
        };
        let samples: Vec<_> = profile.samples.iter().filter(selected).cloned().collect();
        let part = Inferred::of_samples(profile, &samples);
        let mut inclusive = vec![0.0; profile.functions.len()];
        let mut last = vec![usize::MAX; inclusive.len()];
        for (number, stack) in part.stacks.iter().enumerate() {
            for function in &stack.functions {
                if std::mem::replace(&mut last[function.index()], number) != number {
                    inclusive[function.index()] += stack.values.get(event) as f64;
                }
            }
        }
        self.inclusive = inclusive;
        let known = Arc::new(Shaped::from(Tree::of_stacks(&part, event)));
        self.shaped = Mutex::new([(Shape::default(), Arc::new(known.into()))].into());
    }

    /// The count of everything, of the selected event.
    pub fn total(&self) -> u64 {
        self.counts.total.get(self.selection.event)
    }

    /// Contexts from callers to callees.
    pub fn tree(&self, subject: &Subject) -> Arc<Shaped> {
        self.shaped(subject, Shape::default())
    }

    /// The tree in a shape. Who asks for one that is being made waits for it.
    pub fn shaped(&self, subject: &Subject, shape: Shape) -> Arc<Shaped> {
        let place = {
            let mut kept = self.shaped.lock().unwrap_or_else(PoisonError::into_inner);
            let plain = |shape: &Shape| *shape == Shape::default() || Shape::FIRST.contains(shape);
            let others = kept.iter().filter(|(shape, _)| !plain(shape));
            if !kept.contains_key(&shape) && held(others.map(|(_, place)| place)) > MOST_NODES {
                kept.retain(|shape, _| plain(shape));
            }
            Arc::clone(kept.entry(shape).or_default())
        };
        let make = || {
            Arc::new(match (shape.by, shape == Shape::default()) {
                (By::Function, true) => Shaped::from(tree(subject, &self.selection)),
                (By::Function, false) => self.formed(subject, shape),
                _ => self.grouped(subject, shape),
            })
        };
        Arc::clone(place.get_or_init(make))
    }

    /// The tree in a shape, if it has been made.
    pub fn known(&self, shape: Shape) -> Option<Arc<Shaped>> {
        let kept = self.shaped.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(&shape)?.get().cloned()
    }

    /// The tree with recursion folded, or turned inside out.
    fn formed(&self, subject: &Subject, shape: Shape) -> Shaped {
        if let Some(tree) = forms::of_part(subject, &self.selection, self.total(), shape) {
            return tree.into();
        }
        let plain = self.tree(subject);
        let tree = plain.tree.alone();
        let shared = |samples: &Samples| std::ptr::eq(&*samples.shape, tree.shape());
        let everything = self.selection.who.is_empty() && self.selection.range.is_none();
        if !subject.large || !everything || !subject.samples.as_ref().is_some_and(shared) {
            return formed(tree, shape).into();
        }
        match shape.inverted && shape.folded {
            true => {
                let folded = self.shaped(subject, Shape { inverted: false, ..shape });
                let (tree, inner) = inverted_placed(&folded.tree);
                let place = |at: &u32| inner.get(*at as usize).copied().unwrap_or(NOWHERE);
                let places = folded.places.as_ref().map(|all| all.iter().map(place).collect());
                Shaped { tree, places, ..Shaped::default() }
            }
            false => {
                let placed =
                    if shape.folded { tree.folded_placed() } else { inverted_placed(&tree) };
                Shaped { tree: placed.0, places: Some(placed.1), ..Shaped::default() }
            }
        }
    }

    /// Returns the number of counts that it holds and shares with nobody.
    pub fn held(&self) -> usize {
        held(self.shaped.lock().unwrap_or_else(PoisonError::into_inner).values())
    }

    /// The trees of all groups side by side.
    fn grouped(&self, subject: &Subject, shape: Shape) -> Shaped {
        let of_group = |(name, who): (String, Who)| {
            let mut selection = self.selection.clone();
            selection.who.push(who);
            let tree = match subject.samples {
                Some(_) => tree(subject, &selection),
                None => Self::new(subject, &selection).tree(subject).tree.clone(),
            };
            let (shape, total) = (Shape { by: By::Function, ..shape }, tree.root().total);
            let tree = || match shape == Shape::default() {
                true => tree,
                false => forms::of_part(subject, &selection, total, shape)
                    .unwrap_or_else(|| formed(tree.alone(), shape)),
            };
            (total > 0).then(|| Group { name, tree: tree() })
        };
        let groups = groups(subject, shape.by).into_iter().filter_map(of_group);
        let mut tree = Tree::default();
        tree.recorded = self.inclusive_exact;
        Shaped { groups: groups.take(GROUPS).collect(), ..tree.into() }
    }
}

/// A tree that is made when it is asked for.
type Place = Arc<OnceLock<Arc<Shaped>>>;

fn held<'a>(kept: impl Iterator<Item = &'a Place>) -> usize {
    kept.filter_map(|place| place.get()).map(|shaped| shaped.held()).sum()
}

/// The contexts of a selection, of a sampled recording.
fn tree(subject: &Subject, selection: &Selection) -> Tree {
    let Some(samples) = &subject.samples else { return Tree::default() };
    let (with, without) = runs(subject, samples, selection);
    let tree = Tree::of_runs(&samples.shape, with, without);
    // Whoever looks for a function among contexts looks at all of them.
    if tree.is_sparse() { tree.alone().into_owned() } else { tree }
}

/// The tree with recursion folded, or turned inside out, as `shape` says.
fn formed(mut tree: Cow<'_, Tree>, shape: Shape) -> Tree {
    if shape.folded {
        tree = Cow::Owned(tree.folded());
    }
    if shape.inverted {
        let finest = if tree.len() > LARGE { COARSE } else { FINEST };
        tree = Cow::Owned(tree.inverted(tree.root().total / finest));
    }
    tree.into_owned()
}

/// The tree of everything turned inside out, with places: finer than what is shown of it, because a
/// context of hardly anything may be much of a part. The finer, the longer adding up takes.
fn inverted_placed(tree: &Tree) -> Placed {
    tree.inverted_placed(tree.root().total / (2 * FINEST))
}

/// Adds up exact counts.
fn add_exact(subject: &Subject, selection: &Selection, counts: &mut Counts) {
    let profile = subject.profile();
    for sample in profile.samples.iter().filter(|sample| meets(subject, selection, sample.thread)) {
        let leaf = profile.leaf(sample);
        if speaks(subject, selection, profile.location(leaf).frames[0].function) {
            counts.add_all(leaf, &sample.values);
        }
    }
}

/// Returns true if a function is in the languages of a selection.
fn speaks(subject: &Subject, selection: &Selection, function: FunctionId) -> bool {
    let language = subject.labels[function.index()].language;
    let spoken = |who: &Who| !matches!(who, Who::Language(wanted) if *wanted != language);
    selection.who.iter().all(spoken)
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
            let titles = profile.process_titles();
            let group = |(pid, comm): (i32, &str)| {
                let title = titles.get(&(pid, comm.to_owned())).map_or(comm, String::as_str);
                (format!("{title} ({pid})"), Who::Process(pid))
            };
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
