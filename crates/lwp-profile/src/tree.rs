//! Stacks as a tree of contexts, for everything that is drawn.

use std::collections::BTreeMap;

use crate::profile::{FunctionId, Profile, Values};
use crate::stacks::Inferred;

/// A function in a context.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Counted here.
    pub own: Values,
    /// Counted here and below.
    pub total: Values,
    /// Called from here, by function.
    pub children: BTreeMap<FunctionId, Node>,
}

/// All contexts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// Above everything.
    pub root: Node,
    /// Whether contexts were recorded and not inferred.
    pub recorded: bool,
}

impl Tree {
    /// The contexts of `profile`; those of hardly any of `event` stay closed.
    pub fn of(profile: &Profile, event: usize) -> Self {
        let inferred = Inferred::of(profile, event);
        let zero = Values::zero(profile.events.len());
        let fresh = || Node { own: zero.clone(), total: zero.clone(), children: BTreeMap::new() };
        let mut root = fresh();
        for stack in &inferred.stacks {
            root.total.add(&stack.values);
            let mut node = &mut root;
            for &function in &stack.functions {
                node = node.children.entry(function).or_insert_with(fresh);
                node.total.add(&stack.values);
            }
            node.own.add(&stack.values);
        }
        Self { root, recorded: inferred.recorded }
    }
}
