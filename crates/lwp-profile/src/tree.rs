//! Stacks as a tree of contexts, for everything that is drawn.

use rustc_hash::FxHashMap;

use crate::profile::{FunctionId, Profile};
use crate::stacks::Inferred;

/// A function in a context.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// The function.
    pub function: FunctionId,
    /// Counted here.
    pub own: u64,
    /// Counted here and below.
    pub total: u64,
    /// Called from here, by function.
    children: Vec<u32>,
}

/// All contexts, with the counts of one event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// Callers before callees; the first stands above everything.
    nodes: Vec<Node>,
    /// Whether contexts were recorded and not inferred.
    pub recorded: bool,
}

impl Tree {
    /// The contexts of `profile`; those of hardly any of `event` stay closed.
    pub fn of(profile: &Profile, event: usize) -> Self {
        let inferred = Inferred::of(profile, event);
        let mut contexts = Contexts::default();
        for stack in &inferred.stacks {
            let from = Contexts::ROOT;
            let own =
                stack.functions.iter().fold(from, |at, function| contexts.call(at, *function));
            contexts.add(own, stack.values.get(event));
        }
        contexts.finish(inferred.recorded, |function| function)
    }

    /// What stands above everything.
    ///
    /// # Panics
    ///
    /// Never: every tree has it.
    pub fn root(&self) -> &Node {
        &self.nodes[Contexts::ROOT as usize]
    }

    /// What is called from `node`, by function.
    pub fn children(&self, node: &Node) -> impl Iterator<Item = &Node> {
        node.children.iter().map(|&child| &self.nodes[child as usize])
    }
}

/// Contexts that are being gathered.
#[derive(Clone, Debug)]
pub struct Contexts {
    nodes: Vec<Node>,
    /// How many functions are around each.
    depths: Vec<u32>,
    /// Callees by caller and function.
    calls: FxHashMap<(u32, FunctionId), u32>,
}

/// What is called from this many functions is counted in the last of them: whoever walks a tree may
/// call itself.
const DEEPEST: u32 = 4096;

impl Default for Contexts {
    fn default() -> Self {
        Self { nodes: vec![Node::default()], depths: vec![0], calls: FxHashMap::default() }
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
        let next = self.nodes.len() as u32;
        let number = *self.calls.entry((context, function)).or_insert(next);
        if number == next {
            self.nodes.push(Node { function, ..Node::default() });
            self.depths.push(depth + 1);
            self.nodes[context as usize].children.push(number);
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
        let mut nodes = self.nodes;
        for node in nodes.iter_mut().skip(1) {
            node.function = renumbered(node.function);
        }
        // Callees come behind their callers.
        for number in (0..nodes.len()).rev() {
            let children = std::mem::take(&mut nodes[number].children);
            let below = children.iter().map(|child| nodes[*child as usize].total);
            let total = below.fold(nodes[number].own, u64::saturating_add);
            let mut children = children;
            children.sort_unstable_by_key(|child| nodes[*child as usize].function);
            nodes[number].total = total;
            nodes[number].children = children;
        }
        Tree { nodes, recorded }
    }
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
