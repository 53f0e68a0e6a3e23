//! The contexts and their counts.

use rustc_hash::FxHashMap;

use crate::{Function, Functions};

/// Most contexts of a thread; what comes then is counted together.
const MOST: usize = 1 << 20;

/// How control came into a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The thread began there.
    Root,
    /// By a call.
    Call,
    /// By a jump from another function: a tail call. It returns to where its caller would.
    Jump,
    /// A signal interrupted the caller there.
    Signal,
    /// Stands for contexts that there was no room for.
    Merged,
}

/// A function as it was entered along one path of callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// The caller's context; that of a root is its own.
    pub caller: u32,
    /// How control came here.
    pub kind: Kind,
    /// The last byte of the call or jump; the address that a signal interrupted.
    pub site: u64,
    /// The first instruction that was executed.
    pub entry: u64,
    /// How often it was entered.
    pub calls: u64,
    /// The instructions that were executed here, without what was called.
    pub instructions: u64,
}

/// Where a jump has led.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Led {
    /// The context that control is in now.
    pub to: u32,
    /// True if it has been entered; false if it was never left.
    pub enters: bool,
}

/// A context, and its function.
#[derive(Clone, Copy, Debug)]
struct Node {
    context: Context,
    function: Function,
}

/// The way from a caller into a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Edge {
    caller: u32,
    site: u64,
    entry: u64,
}

/// The calling contexts of a thread.
#[derive(Clone, Debug)]
pub struct Tree {
    nodes: Vec<Node>,
    /// Contexts by how they are entered.
    called: FxHashMap<Edge, u32>,
    merged: Option<u32>,
}

impl Tree {
    /// The thread begins at `entry`: context 0.
    pub fn new(entry: u64, functions: &mut dyn Functions) -> Self {
        let mut tree = Self::empty();
        tree.add(Context::root(entry), functions);
        tree
    }

    fn empty() -> Self {
        Self { nodes: Vec::new(), called: FxHashMap::default(), merged: None }
    }

    /// The contexts. A caller comes before what it calls.
    pub fn contexts(&self) -> impl ExactSizeIterator<Item = Context> {
        self.nodes.iter().map(|node| node.context)
    }

    /// A context has been entered so many times more.
    pub fn add_calls(&mut self, context: u32, calls: u64) {
        if let Some(node) = self.nodes.get_mut(context as usize) {
            node.context.calls = node.context.calls.wrapping_add(calls);
        }
    }

    /// So many more instructions were executed in a context, modulo 2^64.
    pub fn add_instructions(&mut self, context: u32, instructions: u64) {
        if let Some(node) = self.nodes.get_mut(context as usize) {
            node.context.instructions = node.context.instructions.wrapping_add(instructions);
        }
    }

    /// The context that a call from `caller` at `site` to `target` leads to.
    pub fn call(
        &mut self,
        caller: u32,
        site: u64,
        target: u64,
        functions: &mut dyn Functions,
    ) -> u32 {
        self.find(Context::new(Kind::Call, caller, site, target), functions)
    }

    /// The context of a signal's handler at `entry`, where the signal has interrupted the thread at
    /// `at`.
    pub fn signal(
        &mut self,
        caller: u32,
        at: u64,
        entry: u64,
        functions: &mut dyn Functions,
    ) -> u32 {
        self.find(Context::new(Kind::Signal, caller, at, entry), functions)
    }

    /// The context that a jump from `from` at `site` to `target` leads to.
    pub fn jump(
        &mut self,
        from: u32,
        site: u64,
        target: u64,
        functions: &mut dyn Functions,
    ) -> Led {
        let function = functions.at(target);
        let node = self.nodes[from as usize];
        if function.start == node.function.start {
            return Led { to: from, enters: false };
        }
        let left = node.context;
        if node.function.transparent && left.kind != Kind::Root {
            let to = self.find(Context { entry: target, ..left }, functions);
            if node.function.binds {
                self.nodes[to as usize].function.transparent = true;
            }
            return Led { to, enters: true };
        }
        // Functions that jump to each other in turn are in one context each.
        let mut at = left;
        while at.kind == Kind::Jump {
            let Node { context, function: before } = self.nodes[at.caller as usize];
            if before.start == function.start {
                return Led { to: at.caller, enters: false };
            }
            at = context;
        }
        let to = self.find(Context::new(Kind::Jump, from, site, target), functions);
        Led { to, enters: true }
    }

    /// A copy for a thread that begins in some of the contexts, `kept`, where nothing has been
    /// counted: with these, and their callers. Returns their numbers in the copy, too.
    pub fn forked(&self, kept: impl Iterator<Item = u32>) -> (Self, Vec<Option<u32>>) {
        let mut numbers: Vec<Option<u32>> = vec![None; self.nodes.len()];
        numbers[0] = Some(0);
        for context in kept {
            let mut at = context as usize;
            while numbers[at].is_none() {
                numbers[at] = Some(0);
                at = self.nodes[at].context.caller as usize;
            }
        }
        let mut copy = Self::empty();
        for (index, node) in self.nodes.iter().enumerate() {
            if numbers[index].is_none() {
                continue;
            }
            let caller = numbers[node.context.caller as usize].unwrap_or(0);
            let context = Context { caller, calls: 0, instructions: 0, ..node.context };
            let number = copy.nodes.len() as u32;
            copy.nodes.push(Node { context, ..*node });
            numbers[index] = Some(number);
            if number > 0 && context.kind != Kind::Merged {
                copy.called.insert(context.edge(), number);
            }
        }
        copy.merged = self.merged.and_then(|merged| numbers[merged as usize]);
        (copy, numbers)
    }

    /// The number of a context, which is made if there is none.
    fn find(&mut self, wanted: Context, functions: &mut dyn Functions) -> u32 {
        let wanted = Context { calls: 0, instructions: 0, ..wanted };
        if self.merged == Some(wanted.caller) {
            return wanted.caller;
        }
        if let Some(context) = self.called.get(&wanted.edge()) {
            return *context;
        }
        if self.nodes.len() >= MOST {
            return self.merge(functions);
        }
        let number = self.add(wanted, functions);
        self.called.insert(wanted.edge(), number);
        number
    }

    /// The context of everything that there is no room for.
    fn merge(&mut self, functions: &mut dyn Functions) -> u32 {
        if let Some(merged) = self.merged {
            return merged;
        }
        let root = Context::root(self.nodes[0].context.entry);
        let merged = self.add(Context { kind: Kind::Merged, ..root }, functions);
        self.merged = Some(merged);
        merged
    }

    fn add(&mut self, context: Context, functions: &mut dyn Functions) -> u32 {
        let function = functions.at(context.entry);
        self.nodes.push(Node { context, function });
        self.nodes.len() as u32 - 1
    }
}

impl Context {
    fn new(kind: Kind, caller: u32, site: u64, entry: u64) -> Self {
        Self { caller, kind, site, entry, calls: 0, instructions: 0 }
    }

    fn root(entry: u64) -> Self {
        Self::new(Kind::Root, 0, 0, entry)
    }

    fn edge(self) -> Edge {
        let Self { caller, site, entry, .. } = self;
        Edge { caller, site, entry }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Functions of 256 bytes; those from 0xf000 on are transparent, and that at 0xf500 leads to the
    /// resolver.
    struct Pages;

    impl Functions for Pages {
        fn at(&mut self, address: u64) -> Function {
            let binds = address == BINDS;
            Function { start: address & !0xff, transparent: address >= 0xf000, binds }
        }
    }

    const MAIN: u64 = 0x1000;
    const F: u64 = 0x2000;
    const G: u64 = 0x3000;
    const STUB: u64 = 0xf000;
    const BINDS: u64 = 0xf500;
    const RESOLVER: u64 = 0x7000;
    const SITE: u64 = 0x10;

    fn tree() -> Tree {
        Tree::new(MAIN, &mut Pages)
    }

    /// Each context as its caller's entry, kind and entry.
    fn told(tree: &Tree) -> Vec<(u64, Kind, u64)> {
        let all: Vec<Context> = tree.contexts().collect();
        all.iter().map(|it| (all[it.caller as usize].entry, it.kind, it.entry)).collect()
    }

    #[test]
    fn a_function_has_a_context_for_each_caller() {
        let mut tree = tree();
        let f = tree.call(0, SITE, F, &mut Pages);
        let g = tree.call(f, SITE, G, &mut Pages);
        assert_ne!(tree.call(0, SITE, G, &mut Pages), g);
        assert_ne!(tree.call(f, SITE + 1, G, &mut Pages), g);
        assert_eq!(tree.call(f, SITE, G, &mut Pages), g);
        tree.add_calls(g, 2);
        tree.add_instructions(g, 5);
        tree.add_instructions(g, 1_u64.wrapping_neg());
        let context = tree.contexts().nth(g as usize).expect("a context");
        assert_eq!((context.calls, context.instructions), (2, 4));
    }

    #[test]
    fn functions_that_jump_to_each_other_have_a_context_each() {
        let mut tree = tree();
        let f = tree.call(0, SITE, F, &mut Pages);
        let g = tree.jump(f, SITE, G, &mut Pages);
        assert!(g.enters);
        assert_eq!(tree.jump(g.to, SITE, F, &mut Pages), Led { to: f, enters: false });
        assert_eq!(told(&tree)[2], (F, Kind::Jump, G));
        // main has called f, and not jumped there.
        assert!(tree.jump(f, SITE, MAIN, &mut Pages).enters);
    }

    #[test]
    fn a_jump_within_a_function_is_no_transfer() {
        let mut tree = tree();
        let f = tree.call(0, SITE, F, &mut Pages);
        assert_eq!(tree.jump(f, SITE, F + 0x20, &mut Pages), Led { to: f, enters: false });
    }

    #[test]
    fn what_a_stub_jumps_to_was_called_by_its_caller() {
        let mut tree = tree();
        let stub = tree.call(0, SITE, STUB, &mut Pages);
        let binds = tree.jump(stub, SITE, BINDS, &mut Pages).to;
        let resolver = tree.jump(binds, SITE, RESOLVER, &mut Pages).to;
        let found = tree.jump(resolver, SITE, F, &mut Pages).to;
        assert_eq!(tree.jump(stub, SITE, F, &mut Pages), Led { to: found, enters: true });
        assert!(told(&tree)[1..].iter().all(|it| (it.0, it.1) == (MAIN, Kind::Call)));
    }

    #[test]
    fn a_copy_has_the_contexts_that_are_kept_and_their_callers() {
        let mut tree = tree();
        let g = tree.call(0, SITE, G, &mut Pages);
        let f = tree.call(0, SITE, F, &mut Pages);
        let inner = tree.signal(f, SITE, G, &mut Pages);
        tree.add_calls(inner, 7);
        let (mut copy, numbers) = tree.forked([inner].into_iter());
        assert_eq!(numbers, [Some(0), None, Some(1), Some(2)]);
        assert_eq!(told(&copy)[1..], [(MAIN, Kind::Call, F), (F, Kind::Signal, G)]);
        assert!(copy.contexts().all(|it| (it.calls, it.instructions) == (0, 0)));
        assert_eq!(copy.call(0, SITE, F, &mut Pages), 1);
        assert_eq!(copy.call(0, SITE, G, &mut Pages), 3);
        assert_eq!(numbers[g as usize], None);
    }
}
