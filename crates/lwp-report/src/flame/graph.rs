//! The boxes of a flame graph.

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

/// A function's name and its module's.
type Name = (String, String);

/// Names of functions, numbered in their order.
struct Names {
    all: Vec<Name>,
}

impl Names {
    fn of<'n>(names: impl Iterator<Item = &'n Name>) -> Self {
        let mut all: Vec<Name> = names.cloned().collect();
        all.sort_unstable();
        all.dedup();
        Self { all }
    }

    /// The number of each function's name.
    fn numbers(&self, names: &[Name]) -> Vec<u32> {
        let place = |name| self.all.binary_search(name).unwrap_or(0) as u32;
        names.iter().map(place).collect()
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

/// A profile to compare with.
#[derive(Clone, Debug)]
pub struct Before<'a> {
    /// The profile.
    pub profile: &'a Profile,
    /// Its contexts.
    pub tree: &'a Tree,
    /// The function that each of its functions is compared with.
    pub same: Vec<Option<FunctionId>>,
}

impl Before<'_> {
    /// The names of its functions: those that they are compared with have.
    fn names(&self, after: &[Name]) -> Vec<Name> {
        let mut all = names(self.profile);
        for (name, same) in all.iter_mut().zip(&self.same) {
            if let Some(now) = same.and_then(|id| after.get(id.index())) {
                name.clone_from(now);
            }
        }
        all
    }
}

impl Graph {
    /// The graph of one event, whose contexts are `after`, its boxes compared with `before`.
    pub fn new(
        before: Option<&Before<'_>>,
        after: Contexts<'_>,
        event: &str,
        style: &Style,
    ) -> Self {
        let (profile, tree) = after;
        let own = names(profile);
        let old = before.map(|before| before.names(&own)).unwrap_or_default();
        let names = Names::of(own.iter().chain(&old));
        let (numbers, total) = (names.numbers(&own), tree.root().total);
        let earlier = before.map(|before| (names.numbers(&old), before.tree.root().total));
        let mut graph = Self {
            event: event.to_owned(),
            total,
            before: earlier.as_ref().map(|(_, total)| *total),
            note: match tree.recorded {
                true => String::new(),
                false => "stacks are inferred from numbers of calls; each function's own counts \
                          are exact"
                    .to_owned(),
            },
            ..Self::default()
        };
        let least = style.least / style.width;
        let whole = (total as f64).max(1.0);
        let mut sides = vec![Side { tree, numbers: &numbers, before: false }];
        if let Some((before, (numbers, _))) = before.zip(earlier.as_ref()) {
            sides.push(Side { tree: before.tree, numbers, before: true });
        }
        let roots: Vec<Member<'_>> =
            sides.iter().map(|side| Member { name: 0, side, node: side.tree.root() }).collect();
        let scale = Scale { whole, least, names: &names };
        lay(&mut graph, &roots, ("all", ""), 0.0, 0, &scale);
        graph
    }
}

/// One of the profiles that are drawn.
struct Side<'a> {
    tree: &'a Tree,
    /// The number of each function's name.
    numbers: &'a [u32],
    /// It is the one compared with.
    before: bool,
}

/// A node of a tree, and the number of its name. Nodes of one name in one context are one box.
#[derive(Clone, Copy)]
struct Member<'a> {
    name: u32,
    side: &'a Side<'a>,
    node: &'a Node,
}

/// What was counted in nodes of one name.
#[derive(Default)]
struct Sums {
    total: u64,
    own: u64,
    before: u64,
}

impl Sums {
    fn of(members: &[Member<'_>]) -> Self {
        let mut sums = Self::default();
        for Member { side, node, .. } in members {
            if side.before {
                sums.before = sums.before.saturating_add(node.total);
            } else {
                sums.total = sums.total.saturating_add(node.total);
                sums.own = sums.own.saturating_add(node.own);
            }
        }
        sums
    }
}

struct Scale<'a> {
    whole: f64,
    least: f64,
    names: &'a Names,
}

/// Lays out the box of `members`, and what lies inside. What is too narrow to be drawn is not looked into: of
/// a million contexts hardly any are.
fn lay(
    graph: &mut Graph,
    members: &[Member<'_>],
    (name, module): (&str, &str),
    start: f64,
    depth: usize,
    scale: &Scale<'_>,
) {
    let Sums { total, own, before } = Sums::of(members);
    let width = total as f64 / scale.whole;
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
        total,
        own,
        before: graph.before.map(|_| before),
    });
    let mut inner: Vec<Member<'_>> = Vec::new();
    for Member { side, node, .. } in members {
        let name = |child: &Node| side.numbers[child.function.index()];
        let children = side.tree.children(node);
        inner.extend(children.map(|node| Member { name: name(node), side, node }));
    }
    inner.sort_by_key(|member| member.name);
    let mut at = start;
    for members in inner.chunk_by(|a, b| a.name == b.name) {
        let (name, module) = &scale.names.all[members[0].name as usize];
        lay(graph, members, (name, module), at, depth + 1, scale);
        at += Sums::of(members).total as f64 / scale.whole;
    }
}
