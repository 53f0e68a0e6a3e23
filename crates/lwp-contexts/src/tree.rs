//! The contexts and their counts.

use rustc_hash::FxHashMap;

use crate::frames::{Frame, Frames};
use crate::node::{Edge, Edges, Node};
use crate::{Function, Functions, Leave, Transfer};

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

/// What a context is; its counts are apart, where they share no cache line with this.
#[derive(Clone, Copy, Debug)]
struct About {
    caller: u32,
    kind: Kind,
    site: u64,
    entry: u64,
    edge: Edge,
    function: Function,
}

/// The calling contexts of a thread.
#[derive(Clone, Debug)]
pub struct Tree {
    nodes: Vec<Node>,
    about: Vec<About>,
    /// Contexts by caller and edge.
    called: FxHashMap<(u32, Edge), u32>,
    edges: Edges,
    frames: Frames,
    /// The thread's instructions at the last transfer.
    passed: u64,
    merged: Option<u32>,
}

impl Tree {
    /// The thread begins at `entry`, where it has executed so many instructions.
    pub fn new(entry: u64, instructions: u64, functions: &mut dyn Functions) -> Self {
        let mut tree = Self::empty(Frames::new(0), instructions);
        tree.add(About::root(entry, functions.at(entry)));
        tree
    }

    fn empty(frames: Frames, passed: u64) -> Self {
        Self {
            nodes: Vec::new(),
            about: Vec::new(),
            called: FxHashMap::default(),
            edges: Edges::default(),
            frames,
            passed,
            merged: None,
        }
    }

    /// The contexts. A caller comes before what it calls.
    pub fn contexts(&self) -> impl ExactSizeIterator<Item = Context> {
        self.about.iter().zip(&self.nodes).map(|(about, node)| {
            let &About { caller, kind, site, entry, .. } = about;
            let &Node { calls, instructions, .. } = node;
            Context { caller, kind, site, entry, calls, instructions }
        })
    }

    /// The thread has executed so many instructions, modulo 2^64.
    pub fn pass(&mut self, instructions: u64) {
        let passed = instructions.wrapping_sub(self.passed);
        self.passed = instructions;
        let current = self.frames.top().context as usize;
        let sum = &mut self.nodes[current].instructions;
        *sum = sum.wrapping_add(passed);
    }

    /// A transfer has been made.
    pub fn transfer(&mut self, transfer: &Transfer, functions: &mut dyn Functions) {
        let &Transfer { leave, stack, instructions, site, target, edge } = transfer;
        self.pass(instructions);
        match leave {
            Leave::Call => {
                self.frames.settle(stack);
                let caller = self.frames.top().context;
                let edge = edge.map_or_else(|| self.edges.of(site, target), Edge::known);
                let context = self.entered(caller, edge, (Kind::Call, site, target), functions);
                let stack = stack.wrapping_sub(8);
                self.frames.push(Frame { stack, context, handler: false });
            }
            Leave::Return => {
                let top = self.frames.top();
                if top.handler && top.stack == stack {
                    // To the call that ends it.
                    self.go_to(site, target, functions);
                } else if !self.frames.returned(stack) {
                    self.jump(stack.wrapping_add(8), site, target, functions);
                }
            }
            Leave::Jump => {
                // A stack is also switched by a jump to where a frame of the other one returns.
                let is_outside = stack > self.frames.top().stack;
                if !is_outside || !self.frames.returned(stack.wrapping_sub(8)) {
                    self.jump(stack, site, target, functions);
                }
            }
        }
    }

    /// A signal has interrupted the thread at `at`: its handler at `entry` returns to `stack`.
    pub fn interrupt(&mut self, at: u64, entry: u64, stack: u64, functions: &mut dyn Functions) {
        let caller = self.frames.top().context;
        let edge = self.edges.of(at, entry);
        let context = self.entered(caller, edge, (Kind::Signal, at, entry), functions);
        self.frames.push(Frame { stack, context, handler: true });
    }

    /// The innermost signal's handler is over, where the thread has executed so many instructions.
    pub fn resume(&mut self, instructions: u64) {
        self.pass(instructions);
        self.frames.leave_handler();
    }

    /// A copy of the thread: in the same context, where nothing has been counted. It has no contexts
    /// but those of frames, and their callers.
    pub fn forked(&self) -> Self {
        let mut numbers: Vec<Option<u32>> = vec![None; self.about.len()];
        numbers[0] = Some(0);
        self.frames.contexts().for_each(|context| self.mark(context, &mut numbers));
        let mut copy = Self::empty(self.frames.clone(), self.passed);
        copy.edges = self.edges.clone();
        for index in 0..numbers.len() {
            if numbers[index].is_none() {
                continue;
            }
            let about = self.about[index];
            let caller = numbers[about.caller as usize].unwrap_or(0);
            let number = copy.add(About { caller, ..about });
            numbers[index] = Some(number);
            if number > 0 && about.kind != Kind::Merged {
                copy.called.insert((caller, about.edge), number);
            }
        }
        let number = |context: u32| numbers[context as usize].unwrap_or(0);
        copy.frames.renumber(number);
        copy.merged = self.merged.and_then(|merged| numbers[merged as usize]);
        copy
    }

    /// Marks a context and its callers.
    fn mark(&self, context: u32, numbers: &mut [Option<u32>]) {
        let mut at = context;
        while numbers[at as usize].is_none() {
            numbers[at as usize] = Some(0);
            at = self.about[at as usize].caller;
        }
    }

    /// Instructions count from here on, where the thread has executed so many.
    pub fn begin_at(&mut self, instructions: u64) {
        self.passed = instructions;
    }

    /// Control jumps to `target`, which may be in another function.
    fn jump(&mut self, stack: u64, site: u64, target: u64, functions: &mut dyn Functions) {
        self.frames.settle(stack);
        self.go_to(site, target, functions);
    }

    /// Control jumps to `target`, on the stack in use.
    fn go_to(&mut self, site: u64, target: u64, functions: &mut dyn Functions) {
        let top = self.frames.top();
        let function = functions.at(target);
        let from = self.about[top.context as usize];
        if function.start == from.function.start {
            return;
        }
        if from.function.transparent && from.kind != Kind::Root {
            let About { caller, kind, site, .. } = from;
            let edge = self.edges.of(site, target);
            let context = self.entered(caller, edge, (kind, site, target), functions);
            if from.function.binds {
                self.about[context as usize].function.transparent = true;
            }
            return self.frames.replace(context);
        }
        // Functions that jump to each other in turn are in one context each.
        let all = self.frames.all();
        let same = all.iter().rev().take_while(|frame| frame.stack == top.stack);
        let is_it =
            |frame: &Frame| self.about[frame.context as usize].function.start == function.start;
        if let Some(back) = same.enumerate().find(|(_, frame)| is_it(frame)).map(|(back, _)| back) {
            let index = all.len() - 1 - back;
            return self.frames.leave_to(index);
        }
        let edge = self.edges.of(site, target);
        let context = self.entered(top.context, edge, (Kind::Jump, site, target), functions);
        self.frames.push(Frame { stack: top.stack, context, handler: false });
    }

    /// The context that is entered from `caller`.
    fn entered(
        &mut self,
        caller: u32,
        edge: Edge,
        way: (Kind, u64, u64),
        functions: &mut dyn Functions,
    ) -> u32 {
        let context = match self.nodes[caller as usize].recent(edge) {
            Some(context) => context,
            None => self.find(caller, edge, way, functions),
        };
        let calls = &mut self.nodes[context as usize].calls;
        *calls = calls.saturating_add(1);
        context
    }

    #[cold]
    fn find(
        &mut self,
        caller: u32,
        edge: Edge,
        (kind, site, entry): (Kind, u64, u64),
        functions: &mut dyn Functions,
    ) -> u32 {
        if self.merged == Some(caller) {
            return caller;
        }
        let context = match self.called.get(&(caller, edge)) {
            Some(context) => *context,
            None if edge == Edge::OTHERS => return self.merge(functions),
            None if self.about.len() >= MOST => return self.merge(functions),
            None => {
                let function = functions.at(entry);
                let context = self.add(About { caller, kind, site, entry, edge, function });
                self.called.insert((caller, edge), context);
                context
            }
        };
        self.nodes[caller as usize].remember(edge, context);
        context
    }

    /// The context of everything that there is no room for.
    fn merge(&mut self, functions: &mut dyn Functions) -> u32 {
        if let Some(merged) = self.merged {
            return merged;
        }
        let entry = self.about[0].entry;
        let root = About::root(entry, functions.at(entry));
        let merged = self.add(About { kind: Kind::Merged, ..root });
        self.merged = Some(merged);
        merged
    }

    fn add(&mut self, about: About) -> u32 {
        self.about.push(about);
        self.nodes.push(Node::default());
        self.about.len() as u32 - 1
    }
}

impl About {
    fn root(entry: u64, function: Function) -> Self {
        Self { caller: 0, kind: Kind::Root, site: 0, entry, edge: Edge::NONE, function }
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

    struct Thread {
        tree: Tree,
        stack: u64,
        instructions: u64,
    }

    impl Thread {
        fn new() -> Self {
            Self { tree: Tree::new(MAIN, 0, &mut Pages), stack: 0x9000, instructions: 0 }
        }

        /// Executes `instructions`, the last of which leaves for `target`.
        fn leave(&mut self, instructions: u64, leave: Leave, target: u64) -> &mut Self {
            self.instructions += instructions;
            let (stack, instructions) = (self.stack, self.instructions);
            let transfer = Transfer { leave, stack, instructions, site: 0x10, target, edge: None };
            self.tree.transfer(&transfer, &mut Pages);
            match leave {
                Leave::Call => self.stack -= 8,
                Leave::Return => self.stack += 8,
                Leave::Jump => {}
            }
            self
        }

        fn call(&mut self, instructions: u64, target: u64) -> &mut Self {
            self.leave(instructions, Leave::Call, target)
        }

        fn ret(&mut self, instructions: u64) -> &mut Self {
            self.leave(instructions, Leave::Return, MAIN + 1)
        }

        fn jump(&mut self, instructions: u64, target: u64) -> &mut Self {
            self.leave(instructions, Leave::Jump, target)
        }

        /// Each context as caller's entry, entry, calls, instructions.
        fn told(&self) -> Vec<(u64, u64, u64, u64)> {
            let all: Vec<Context> = self.tree.contexts().collect();
            let line =
                |it: &Context| (all[it.caller as usize].entry, it.entry, it.calls, it.instructions);
            all.iter().map(line).collect()
        }
    }

    #[test]
    fn instructions_belong_to_the_context_that_executes_them() {
        let mut thread = Thread::new();
        thread.call(3, F).call(5, G).ret(7).ret(2).call(1, G).ret(11).call(1, F).ret(13);
        assert_eq!(
            thread.told(),
            [(MAIN, MAIN, 0, 5), (MAIN, F, 2, 20), (F, G, 1, 7), (MAIN, G, 1, 11)]
        );
    }

    #[test]
    fn a_tail_call_returns_to_the_caller_of_its_caller() {
        let mut thread = Thread::new();
        thread.call(1, F).jump(2, G).ret(4).call(8, F).ret(16);
        assert_eq!(thread.told(), [(MAIN, MAIN, 0, 9), (MAIN, F, 2, 18), (F, G, 1, 4)]);
        assert_eq!(thread.tree.about[2].kind, Kind::Jump);
    }

    #[test]
    fn functions_that_jump_to_each_other_have_a_context_each() {
        let mut thread = Thread::new();
        thread.call(1, F);
        for _ in 0..1000 {
            thread.jump(1, G).jump(1, F);
        }
        thread.ret(1);
        assert_eq!(thread.told(), [(MAIN, MAIN, 0, 1), (MAIN, F, 1, 1001), (F, G, 1000, 1000)]);
        assert_eq!(thread.stack, 0x9000);
    }

    #[test]
    fn a_jump_within_a_function_is_no_transfer() {
        let mut thread = Thread::new();
        thread.call(1, F).jump(2, F + 0x20).ret(4);
        assert_eq!(thread.told(), [(MAIN, MAIN, 0, 1), (MAIN, F, 1, 6)]);
    }

    #[test]
    fn what_a_stub_jumps_to_was_called_by_its_caller() {
        let mut thread = Thread::new();
        // Through the resolver, which calls G.
        thread.call(1, STUB).jump(1, BINDS).jump(2, RESOLVER);
        thread.call(6, G).ret(9).jump(2, F).ret(30);
        thread.call(1, STUB).jump(1, F).ret(30);
        let told = thread.told();
        assert_eq!(told[0], (MAIN, MAIN, 0, 2));
        assert_eq!(told[1], (MAIN, STUB, 2, 2));
        assert_eq!(told[2], (MAIN, BINDS, 1, 2));
        assert_eq!(told[3], (MAIN, RESOLVER, 1, 8));
        assert_eq!(told[4], (RESOLVER, G, 1, 9));
        assert_eq!(told[5], (MAIN, F, 2, 60));
    }

    #[test]
    fn longjmp_leaves_what_it_jumps_over() {
        let mut thread = Thread::new();
        thread.call(1, F).call(1, G).call(1, F);
        thread.stack = 0x9000;
        thread.jump(1, MAIN + 0x40).call(5, G).ret(7);
        let told = thread.told();
        assert_eq!(told[0], (MAIN, MAIN, 0, 6));
        assert_eq!(told[4], (MAIN, G, 1, 7));
    }

    #[test]
    fn a_signal_is_a_context_of_what_it_interrupts() {
        let mut thread = Thread::new();
        thread.call(1, F);
        thread.tree.pass(4);
        thread.instructions = 4;
        thread.tree.interrupt(F + 9, G, 0x7000, &mut Pages);
        thread.stack = 0x7000;
        // To the call that ends the handler.
        thread.leave(10, Leave::Return, 0x4000);
        thread.instructions += 2;
        thread.tree.resume(thread.instructions);
        thread.stack = 0x8ff8;
        thread.ret(2);
        let told = thread.told();
        assert_eq!(told, [(MAIN, MAIN, 0, 1), (MAIN, F, 1, 5), (F, G, 1, 10), (G, 0x4000, 1, 2)]);
        assert_eq!(thread.tree.about[2].kind, Kind::Signal);
    }

    #[test]
    fn a_forked_copy_begins_where_the_original_is() {
        let mut thread = Thread::new();
        thread.call(1, G).ret(1).call(1, F).call(1, G);
        let mut copy = Thread { tree: thread.tree.forked(), ..thread };
        copy.ret(5).ret(6).call(1, F);
        assert_eq!(copy.told(), [(MAIN, MAIN, 0, 1), (MAIN, F, 1, 6), (F, G, 0, 5)]);
    }

    #[test]
    fn a_program_may_do_anything_with_its_stack() {
        use proptest::prelude::*;
        let word = prop_oneof![Just(0u64), Just(u64::MAX), Just(0x9000), any::<u64>()];
        let leaves = prop_oneof![Just(Leave::Call), Just(Leave::Return), Just(Leave::Jump)];
        let steps = prop::collection::vec((leaves, word.clone(), word.clone(), word), 0..200);
        let mut runner = proptest::test_runner::TestRunner::default();
        runner
            .run(&steps, |steps| {
                let mut tree = Tree::new(MAIN, 0, &mut Pages);
                for (leave, stack, instructions, target) in &steps {
                    let transfer = Transfer {
                        leave: *leave,
                        stack: *stack,
                        instructions: *instructions,
                        site: 1,
                        target: *target,
                        edge: None,
                    };
                    tree.transfer(&transfer, &mut Pages);
                }
                let all: Vec<Context> = tree.contexts().collect();
                let sum = all.iter().fold(0u64, |sum, it| sum.wrapping_add(it.instructions));
                let last = steps.last().map_or(0, |step| step.2);
                prop_assert_eq!(sum, last);
                for (index, context) in all.iter().enumerate() {
                    prop_assert!(context.caller as usize <= index.saturating_sub(1));
                }
                Ok(())
            })
            .unwrap();
    }
}
