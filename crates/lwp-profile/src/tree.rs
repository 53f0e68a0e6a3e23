//! Stacks as a tree of contexts, for everything that is drawn.

use rustc_hash::FxHashMap;

use crate::profile::{FunctionId, Profile};
use crate::stacks::Inferred;

/// A function in a context.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// The function that is in this context.
    pub function: FunctionId,
    /// Counted here.
    pub own: u64,
    /// Counted here and below.
    pub total: u64,
    /// The place in [`Tree::children`] at which the callees begin, and their number.
    first: u32,
    count: u32,
}

/// All contexts, with the counts of one event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// Callers before callees; the first stands above everything.
    nodes: Vec<Node>,
    /// Callees of every node, by function: one list for all, for there may be millions.
    children: Vec<u32>,
    /// The caller of every node; the first has itself.
    callers: Vec<u32>,
    /// True if contexts were recorded and not inferred.
    pub recorded: bool,
}

impl Tree {
    /// The contexts of `profile`; those of hardly any of `event` stay closed.
    pub fn of(profile: &Profile, event: usize) -> Self {
        Self::of_stacks(&Inferred::of(profile, event), event)
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

    /// Returns the node above all others.
    ///
    /// # Panics
    ///
    /// Never: every tree has it.
    pub fn root(&self) -> &Node {
        &self.nodes[Contexts::ROOT as usize]
    }

    /// All nodes: callers before callees, the root first.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The index of the caller of the node with this index; the root's is its own.
    pub fn caller(&self, node: usize) -> usize {
        self.callers[node] as usize
    }

    /// The indices of what is called from the node with this index, by function.
    pub fn called(&self, node: usize) -> impl DoubleEndedIterator<Item = usize> {
        let (first, count) = (self.nodes[node].first as usize, self.nodes[node].count as usize);
        self.children[first..first + count].iter().map(|child| *child as usize)
    }

    /// Returns the callees of `node`, by function.
    pub fn children(&self, node: &Node) -> impl Iterator<Item = &Node> {
        let (first, count) = (node.first as usize, node.count as usize);
        self.children[first..first + count].iter().map(|&child| &self.nodes[child as usize])
    }
}

/// Contexts that are being gathered.
#[derive(Clone, Debug)]
pub struct Contexts {
    /// Callers before callees.
    nodes: Vec<Gathered>,
    /// Callees by caller and function.
    calls: FxHashMap<(u32, FunctionId), u32>,
}

/// A context that is being gathered.
#[derive(Clone, Copy, Debug, Default)]
struct Gathered {
    function: FunctionId,
    caller: u32,
    /// The number of functions around it.
    depth: u32,
    own: u64,
}

/// The depth of a tree. A deeper callee is counted in the last function, because a walker may
/// call itself.
const DEEPEST: u32 = 4096;

impl Default for Contexts {
    fn default() -> Self {
        Self { nodes: vec![Gathered::default()], calls: FxHashMap::default() }
    }
}

impl Contexts {
    /// The context outside all functions.
    pub const ROOT: u32 = 0;

    /// The context of `function` called from `context`.
    pub fn call(&mut self, context: u32, function: FunctionId) -> u32 {
        let depth = self.nodes[context as usize].depth;
        if depth == DEEPEST {
            return context;
        }
        let next = self.nodes.len() as u32;
        let number = *self.calls.entry((context, function)).or_insert(next);
        if number == next {
            self.nodes.push(Gathered { function, caller: context, depth: depth + 1, own: 0 });
        }
        number
    }

    /// Adds what was counted in a context.
    pub fn add(&mut self, context: u32, count: u64) {
        let own = &mut self.nodes[context as usize].own;
        *own = own.saturating_add(count);
    }

    /// The tree. `renumbered` gives each function its final number, no two of them the same.
    pub fn finish(self, recorded: bool, renumbered: impl Fn(FunctionId) -> FunctionId) -> Tree {
        drop(self.calls);
        tree(&self.nodes, |_, gathered| gathered.own, recorded, renumbered)
    }

    /// Returns the number of contexts.
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    /// The tree of these contexts with other counts: `own` has one for each.
    pub fn with_counts(&self, own: &[u64], recorded: bool) -> Tree {
        let count = |number: usize, _: &Gathered| own.get(number).copied().unwrap_or(0);
        tree(&self.nodes, count, recorded, |function| function)
    }
}

/// The tree of contexts whose own counts `own` tells.
fn tree(
    gathered: &[Gathered],
    own: impl Fn(usize, &Gathered) -> u64,
    recorded: bool,
    renumbered: impl Fn(FunctionId) -> FunctionId,
) -> Tree {
    let node = |(number, from): (usize, &Gathered)| {
        let own = own(number, from);
        Node { own, total: own, ..Node::default() }
    };
    let mut nodes: Vec<Node> = gathered.iter().enumerate().map(node).collect();
    // Callees come behind their callers.
    for (number, from) in gathered.iter().enumerate().skip(1).rev() {
        nodes[number].function = renumbered(from.function);
        let total = nodes[number].total;
        let caller = &mut nodes[from.caller as usize];
        caller.total = caller.total.saturating_add(total);
        caller.count += 1;
    }
    let mut first = 0;
    for node in &mut nodes {
        node.first = first;
        first += std::mem::take(&mut node.count);
    }
    let mut children = vec![0; gathered.len() - 1];
    for (number, from) in (0u32..).zip(gathered).skip(1) {
        let caller = &mut nodes[from.caller as usize];
        children[(caller.first + caller.count) as usize] = number;
        caller.count += 1;
    }
    for node in nodes.iter().filter(|node| node.count > 1) {
        let (first, count) = (node.first as usize, node.count as usize);
        let called = &mut children[first..first + count];
        called.sort_unstable_by_key(|child| nodes[*child as usize].function);
    }
    let callers = gathered.iter().map(|from| from.caller).collect();
    Tree { nodes, children, callers, recorded }
}

#[cfg(test)]
mod tests {
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
        let shown = |node: &Node| (node.function.0, node.own, node.total);
        let outer = tree.children(tree.root()).next().unwrap();
        assert_eq!((tree.root().total, shown(outer)), (1111, (13, 1, 1111)));
        let below: Vec<_> = tree.children(outer).map(shown).collect();
        assert_eq!(below, [(12, 10, 110), (17, 1000, 1000)]);
    }

    #[test]
    fn depth_has_an_end_and_counts_have_none() {
        let mut contexts = Contexts::default();
        let last = (0..2 * DEEPEST).fold(Contexts::ROOT, |at, _| contexts.call(at, FunctionId(0)));
        contexts.add(last, 5);
        let tree = contexts.finish(true, |function| function);
        let mut node = tree.root();
        let mut depth = 0;
        while let Some(inner) = tree.children(node).next() {
            (node, depth) = (inner, depth + 1);
        }
        assert_eq!((depth, node.own, tree.root().total), (DEEPEST, 5, 5));
    }
}
