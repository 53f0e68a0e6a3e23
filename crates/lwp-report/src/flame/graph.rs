//! The boxes of a flame graph.

use lwp_profile::{FunctionId, Profile, Tree};
use lwp_symbols::function_name;

/// The style of a drawn graph.
#[derive(Clone, Debug)]
pub struct Style {
    /// Text above the graph.
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
    /// The number of its name.
    pub number: u32,
    /// The function's name.
    pub name: String,
    /// Its module's name.
    pub module: String,
    /// Its start, as a part of the whole.
    pub start: f64,
    /// Its width, as a part of the whole.
    pub width: f64,
    /// Number of functions outside it.
    pub depth: usize,
    /// Its count and that of its callees.
    pub total: u64,
    /// Its own count.
    pub own: u64,
    /// Its count in the profile compared with.
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
    /// The sum of everything in the profile compared with.
    pub before: Option<u64>,
    /// Most functions inside each other.
    pub depth: usize,
    /// A remark on the numbers.
    pub note: String,
}

/// A remark on contexts that were not recorded.
const INFERRED: &str =
    "stacks are inferred from numbers of calls; each function's own counts are exact";

/// A remark on events that contexts were not measured in.
const SHARED: &str = "stacks are measured in instructions, by which each function's own counts of \
                      this event, which are exact, are shared out";

/// A function's name and its module's.
pub type Name = (String, String);

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
    /// The profile of the run before.
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
        let (numbers, earlier) = (names.numbers(&own), names.numbers(&old));
        let after = Side { tree, numbers: &numbers, groups: &[] };
        let before =
            before.map(|before| Side { tree: before.tree, numbers: &earlier, groups: &[] });
        let named = |number: u32| names.all[number as usize].clone();
        let layout = Layout { names: &named, zoom: &[], least: style.least / style.width };
        let mut graph = Self::laid(after, before, event, &layout);
        if profile.has_contexts() && !tree.recorded {
            SHARED.clone_into(&mut graph.note);
        }
        graph
    }

    /// The graph of trees whose functions are named by numbers, as `layout` says.
    pub fn laid(
        after: Side<'_>,
        before: Option<Side<'_>>,
        event: &str,
        layout: &Layout<'_>,
    ) -> Self {
        let mut graph = Self {
            event: event.to_owned(),
            total: after.total(),
            before: before.map(|side| side.total()),
            note: if after.tree.recorded { String::new() } else { INFERRED.to_owned() },
            ..Self::default()
        };
        let sides = [Some((after, false)), before.map(|side| (side, true))];
        let mut members: Vec<Member<'_>> = sides
            .into_iter()
            .flatten()
            .map(|(side, before)| Member { name: ROOT, side, before, node: 0 })
            .collect();
        let mut name = ("all".to_owned(), String::new());
        let mut depth = 0;
        for &number in layout.zoom {
            graph.push((ROOT, &name), &members, Place { start: 0.0, width: 1.0, depth });
            members = inner(&members).into_iter().filter(|member| member.name == number).collect();
            name = (layout.names)(number);
            depth += 1;
        }
        let whole = (Sums::of(&members).total as f64).max(1.0);
        let number = layout.zoom.last().copied().unwrap_or(ROOT);
        let scale = Scale { whole, layout };
        let first = Pending { members, number, start: 0.0, depth };
        lay(&mut graph, first, &name, &scale);
        graph
    }

    fn push(&mut self, (number, name): (u32, &Name), members: &[Member<'_>], place: Place) {
        let Sums { total, own, before } = Sums::of(members);
        self.depth = self.depth.max(place.depth + 1);
        self.boxes.push(Box {
            number,
            name: name.0.clone(),
            module: name.1.clone(),
            start: place.start,
            width: place.width,
            depth: place.depth,
            total,
            own,
            before: self.before.map(|_| before),
        });
    }
}

/// The number of the box around everything.
pub const ROOT: u32 = u32::MAX;

/// A tree, and the number of each of its functions' names: functions of one number are one box.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// The contexts.
    pub tree: &'a Tree,
    /// By function.
    pub numbers: &'a [u32],
    /// Other trees, each below a name of this number, in place of `tree` if there are any.
    pub groups: &'a [(u32, &'a Tree)],
}

impl Side<'_> {
    /// The count of everything.
    fn total(&self) -> u64 {
        match self.groups {
            [] => self.tree.root().total,
            groups => groups.iter().fold(0, |sum, it| sum.saturating_add(it.1.root().total)),
        }
    }

    /// Returns true if the node with this number is the one around all groups.
    fn is_of_groups(&self, node: usize) -> bool {
        node == 0 && !self.groups.is_empty()
    }
}

/// The layout of a graph of numbered names.
pub struct Layout<'a> {
    /// The name with a number, and its module's.
    pub names: &'a dyn Fn(u32) -> Name,
    /// Names from the outermost on; the last one's box is as wide as the picture.
    pub zoom: &'a [u32],
    /// Boxes narrower than this part of the whole are left out.
    pub least: f64,
}

impl std::fmt::Debug for Layout<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Layout").field("zoom", &self.zoom).finish_non_exhaustive()
    }
}

/// A node of a tree, and the number of its name. Nodes of one name in one context are one box.
#[derive(Clone, Copy)]
struct Member<'a> {
    name: u32,
    side: Side<'a>,
    /// It is of the profile compared with.
    before: bool,
    node: usize,
}

/// Sums of the nodes of one name.
#[derive(Default)]
struct Sums {
    total: u64,
    own: u64,
    before: u64,
}

impl Sums {
    fn of(members: &[Member<'_>]) -> Self {
        let mut sums = Self::default();
        for Member { before, side, node, .. } in members {
            let grouped = side.is_of_groups(*node);
            let total = if grouped { side.total() } else { side.tree.total(*node) };
            if *before {
                sums.before = sums.before.saturating_add(total);
            } else {
                sums.total = sums.total.saturating_add(total);
                let own = if grouped { 0 } else { side.tree.own(*node) };
                sums.own = sums.own.saturating_add(own);
            }
        }
        sums
    }
}

struct Scale<'a> {
    whole: f64,
    layout: &'a Layout<'a>,
}

/// The place of a box.
struct Place {
    start: f64,
    width: f64,
    depth: usize,
}

/// Returns the callees of `members`, by the number of the name.
fn inner<'a>(members: &[Member<'a>]) -> Vec<Member<'a>> {
    let mut inner: Vec<Member<'a>> = Vec::new();
    for member in members {
        let Side { tree, numbers, groups } = member.side;
        if member.side.is_of_groups(member.node) {
            let group = |&(name, tree): &(u32, &'a Tree)| Member {
                name,
                side: Side { tree, numbers, groups: &[] },
                ..*member
            };
            inner.extend(groups.iter().filter(|group| group.1.root().total > 0).map(group));
            continue;
        }
        let name = |child: usize| numbers[tree.shape().functions()[child].index()];
        let children = tree.called(member.node).filter(|child| tree.total(*child) > 0);
        inner.extend(children.map(|node| Member { name: name(node), node, ..*member }));
    }
    inner.sort_by_key(|member| member.name);
    inner
}

/// A box that is to be laid out.
struct Pending<'a> {
    members: Vec<Member<'a>>,
    number: u32,
    start: f64,
    depth: usize,
}

/// Lays out a box, and what lies inside. What is too narrow to be drawn is not looked into: of a
/// million contexts hardly any are. Stacks may be deeper than this program's own.
fn lay(graph: &mut Graph, first: Pending<'_>, name: &Name, scale: &Scale<'_>) {
    let width = |members: &[Member<'_>]| Sums::of(members).total as f64 / scale.whole;
    let outermost = first.depth;
    let mut waiting = vec![first];
    while let Some(Pending { members, number, start, depth }) = waiting.pop() {
        let place = Place { start, width: width(&members), depth };
        match depth == outermost {
            true => graph.push((number, name), &members, place),
            false => graph.push((number, &(scale.layout.names)(number)), &members, place),
        }
        let inner = inner(&members);
        let mut at = start;
        let before = waiting.len();
        for members in inner.chunk_by(|a, b| a.name == b.name) {
            let wide = width(members);
            if wide >= scale.layout.least {
                let (members, number) = (members.to_vec(), members[0].name);
                waiting.push(Pending { members, number, start: at, depth: depth + 1 });
            }
            at += wide;
        }
        // From left to right.
        waiting[before..].reverse();
    }
}
