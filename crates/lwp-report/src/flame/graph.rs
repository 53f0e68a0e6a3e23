//! The boxes of a flame graph.

use std::collections::BTreeMap;

use lwp_profile::{Node, Profile, Tree};
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
    children: BTreeMap<(String, String), Context>,
}

impl Graph {
    /// The graph of one event.
    pub fn of(profile: &Profile, event: usize, style: &Style) -> Self {
        Self::build(None, profile, event, style)
    }

    /// The graph of `after`, its boxes compared with `before`.
    pub fn compared(before: &Profile, after: &Profile, event: usize, style: &Style) -> Self {
        Self::build(Some(before), after, event, style)
    }

    fn build(before: Option<&Profile>, profile: &Profile, event: usize, style: &Style) -> Self {
        let tree = Tree::of(profile, event);
        let mut root = Context::default();
        enter(profile, &tree.root, &mut root, event, false);
        let name = profile.events.get(event).map_or("", |event| event.name.as_str());
        if let Some(before) = before
            && let Some(event) = before.event(name)
        {
            enter(before, &Tree::of(before, event).root, &mut root, event, true);
        }
        let mut graph = Self {
            event: name.to_owned(),
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
        lay(&mut graph, &root, ("all", ""), 0.0, 0, &Scale { whole, least });
        graph
    }
}

fn enter(profile: &Profile, node: &Node, into: &mut Context, event: usize, before: bool) {
    match before {
        true => into.before = into.before.saturating_add(node.total.get(event)),
        false => {
            into.total = into.total.saturating_add(node.total.get(event));
            into.own = into.own.saturating_add(node.own.get(event));
        }
    }
    for (function, child) in &node.children {
        let name = function_name(profile, *function, true);
        let module = profile.module_of(*function).name().to_owned();
        let context = into.children.entry((name, module)).or_default();
        enter(profile, child, context, event, before);
    }
}

struct Scale {
    whole: f64,
    least: f64,
}

fn lay(
    graph: &mut Graph,
    context: &Context,
    (name, module): (&str, &str),
    start: f64,
    depth: usize,
    scale: &Scale,
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
    for ((name, module), child) in &context.children {
        lay(graph, child, (name, module), at, depth + 1, scale);
        at += child.total as f64 / scale.whole;
    }
}
