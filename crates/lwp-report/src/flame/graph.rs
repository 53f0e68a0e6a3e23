//! The boxes of a flame graph.

use std::collections::BTreeMap;

use lwp_profile::{FunctionId, Node, Profile, Tree};
use lwp_symbols::function_name;

/// How a graph is drawn.
#[derive(Clone, Debug)]
pub struct Style {
    /// Title.
    pub title: String,
    /// Outermost functions at the top instead of the bottom.
    pub icicle: bool,
    /// Pixels of the whole width.
    pub width: f64,
    /// Boxes narrower than this are left out, in pixels.
    pub least: f64,
}

impl Default for Style {
    fn default() -> Self {
        Self { title: String::new(), icicle: false, width: 1200.0, least: 0.3 }
    }
}

/// A function in a context.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Box {
    /// The function's name.
    pub name: String,
    /// Its module's name.
    pub module: String,
    /// Where it starts, as a part of the whole.
    pub start: f64,
    /// Its width, as a part of the whole.
    pub width: f64,
    /// How many functions are outside it.
    pub depth: usize,
    /// What was counted in it and what it called.
    pub total: u64,
    /// What was counted in it alone.
    pub own: u64,
    /// What was counted in it in the profile compared with.
    pub before: Option<u64>,
}

/// A flame graph, laid out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    /// Boxes, outer ones before inner ones.
    pub boxes: Vec<Box>,
    /// The event's name.
    pub event: String,
    /// The sum of everything.
    pub total: u64,
    /// The same in the profile compared with.
    pub before: Option<u64>,
    /// Most functions inside each other.
    pub depth: usize,
    /// What must be said about the numbers.
    pub note: String,
}

/// A context by names: comparable between profiles.
#[derive(Clone, Debug, Default)]
struct Context {
    total: u64,
    own: u64,
    before: u64,
    /// By the number of the name.
    children: BTreeMap<u32, Context>,
}

/// A function's name and its module's.
type Name = (String, String);

/// Names of functions, numbered in their order.
struct Names {
    all: Vec<Name>,
}

impl Names {
    fn of(profiles: &[&Profile]) -> Self {
        let mut all: Vec<Name> = profiles.iter().flat_map(|profile| names(profile)).collect();
        all.sort_unstable();
        all.dedup();
        Self { all }
    }

    /// The number of each function's name.
    fn numbers(&self, profile: &Profile) -> Vec<u32> {
        let place = |name: Name| self.all.binary_search(&name).unwrap_or(0) as u32;
        names(profile).into_iter().map(place).collect()
    }
}

/// The names of a profile's functions.
fn names(profile: &Profile) -> Vec<Name> {
    let name = |index: usize| {
        let id = FunctionId(index as u32);
        (function_name(profile, id, true), profile.module_of(id).name().to_owned())
    };
    (0..profile.functions.len()).map(name).collect()
}

/// A profile with its contexts.
pub type Contexts<'a> = (&'a Profile, &'a Tree);

impl Graph {
    /// The graph of one event, whose contexts are `after`, its boxes compared with `before`.
    pub fn new(
        before: Option<Contexts<'_>>,
        after: Contexts<'_>,
        event: &str,
        style: &Style,
    ) -> Self {
        let (profile, tree) = after;
        let profiles: Vec<&Profile> = before.iter().map(|one| one.0).chain([profile]).collect();
        let names = Names::of(&profiles);
        let mut root = Context::default();
        enter(tree, tree.root(), &mut root, &names.numbers(profile), false);
        if let Some((profile, tree)) = before {
            enter(tree, tree.root(), &mut root, &names.numbers(profile), true);
        }
        let mut graph = Self {
            event: event.to_owned(),
            total: root.total,
            before: before.map(|_| root.before),
            note: match tree.recorded {
                true => String::new(),
                false => "stacks are inferred from numbers of calls; each function's own counts \
                          are exact"
                    .to_owned(),
            },
            ..Self::default()
        };
        let least = style.least / style.width;
        let whole = (root.total as f64).max(1.0);
        let scale = Scale { whole, least, names: &names };
        lay(&mut graph, &root, ("all", ""), 0.0, 0, &scale);
        graph
    }
}

fn enter(tree: &Tree, node: &Node, into: &mut Context, names: &[u32], before: bool) {
    match before {
        true => into.before = into.before.saturating_add(node.total),
        false => {
            into.total = into.total.saturating_add(node.total);
            into.own = into.own.saturating_add(node.own);
        }
    }
    for child in tree.children(node) {
        let name = names[child.function.index()];
        enter(tree, child, into.children.entry(name).or_default(), names, before);
    }
}

struct Scale<'a> {
    whole: f64,
    least: f64,
    names: &'a Names,
}

fn lay(
    graph: &mut Graph,
    context: &Context,
    (name, module): (&str, &str),
    start: f64,
    depth: usize,
    scale: &Scale<'_>,
) {
    let width = context.total as f64 / scale.whole;
    if width < scale.least && depth > 0 {
        return;
    }
    graph.depth = graph.depth.max(depth + 1);
    graph.boxes.push(Box {
        name: name.to_owned(),
        module: module.to_owned(),
        start,
        width,
        depth,
        total: context.total,
        own: context.own,
        before: graph.before.map(|_| context.before),
    });
    let mut at = start;
    for (&number, child) in &context.children {
        let (name, module) = &scale.names.all[number as usize];
        lay(graph, child, (name, module), at, depth + 1, scale);
        at += child.total as f64 / scale.whole;
    }
}
