//! The call graph: which function called which, how often.

use std::collections::BTreeMap;

use crate::profile::{FunctionId, Profile, Values};

/// Calls from one function to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Edge {
    /// The caller; `None` where it is not known.
    pub from: Option<FunctionId>,
    /// The callee.
    pub to: FunctionId,
    /// The number of calls.
    pub count: u64,
}

/// A caller, or a callee, and how often.
pub type Caller = (Option<FunctionId>, u64);
/// A callee and how often.
pub type Callee = (FunctionId, u64);

/// The call graph of an exact profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallGraph {
    /// Edges by callee and caller.
    pub edges: Vec<Edge>,
    /// Callees of each function.
    pub callees: Vec<Vec<Callee>>,
    /// Callers of each function.
    pub callers: Vec<Vec<Caller>>,
    /// Own counts of each function.
    pub own: Vec<Values>,
}

impl CallGraph {
    /// The call graph of `profile`: from its contexts if they were measured, from its calls if every
    /// execution was counted.
    pub fn of(profile: &Profile) -> Self {
        let mut sums: BTreeMap<(FunctionId, Option<FunctionId>), u64> = BTreeMap::new();
        for call in &profile.calls {
            let from = call.from.map(|site| profile.location(site).function());
            let sum = sums.entry((call.to, from)).or_default();
            *sum = sum.saturating_add(call.count);
        }
        if profile.has_contexts() {
            of_contexts(profile, &mut sums);
        }
        let functions = profile.functions.len();
        let mut graph = Self {
            edges: Vec::with_capacity(sums.len()),
            callees: vec![Vec::new(); functions],
            callers: vec![Vec::new(); functions],
            own: profile.by_function(),
        };
        for ((to, from), count) in sums {
            graph.edges.push(Edge { from, to, count });
            graph.callers[to.index()].push((from, count));
            if let Some(from) = from {
                graph.callees[from.index()].push((to, count));
            }
        }
        graph
    }

    /// Returns the number of calls of a function, by whomever.
    pub fn calls_of(&self, function: FunctionId) -> u64 {
        let counts = self.callers[function.index()].iter().map(|(_, count)| count);
        counts.fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Strongly connected components (Tarjan), callees before callers: each function's component,
    /// and the members of each.
    pub(crate) fn components(&self) -> (Vec<usize>, Vec<Vec<FunctionId>>) {
        Tarjan::run(&self.callees)
    }
}

/// Replaces edges to all functions that have contexts by those that the contexts tell.
fn of_contexts(profile: &Profile, sums: &mut BTreeMap<(FunctionId, Option<FunctionId>), u64>) {
    let mut known = vec![false; profile.functions.len()];
    profile.contexts.iter().for_each(|context| known[context.function.index()] = true);
    sums.retain(|(to, _), _| !known[to.index()]);
    for context in &profile.contexts {
        let from = context.caller.map(|caller| profile.contexts[caller as usize].function);
        let sum = sums.entry((context.function, from)).or_default();
        *sum = sum.saturating_add(context.calls);
    }
}

/// Tarjan's algorithm with an explicit stack: call graphs can be deep.
struct Tarjan<'a> {
    callees: &'a [Vec<Callee>],
    index: Vec<u32>,
    low: Vec<u32>,
    on_stack: Vec<bool>,
    stack: Vec<usize>,
    next: u32,
    component: Vec<usize>,
    members: Vec<Vec<FunctionId>>,
}

impl<'a> Tarjan<'a> {
    const UNSEEN: u32 = u32::MAX;

    fn run(callees: &'a [Vec<Callee>]) -> (Vec<usize>, Vec<Vec<FunctionId>>) {
        let n = callees.len();
        let mut state = Self {
            callees,
            index: vec![Self::UNSEEN; n],
            low: vec![0; n],
            on_stack: vec![false; n],
            stack: Vec::new(),
            next: 0,
            component: vec![0; n],
            members: Vec::new(),
        };
        for root in 0..n {
            if state.index[root] == Self::UNSEEN {
                state.visit(root);
            }
        }
        (state.component, state.members)
    }

    fn open(&mut self, node: usize) {
        self.index[node] = self.next;
        self.low[node] = self.next;
        self.next += 1;
        self.stack.push(node);
        self.on_stack[node] = true;
    }

    fn visit(&mut self, root: usize) {
        self.open(root);
        let mut path = vec![(root, 0)];
        while let Some(&mut (node, ref mut edge)) = path.last_mut() {
            if let Some((callee, _)) = self.callees[node].get(*edge) {
                *edge += 1;
                let callee = callee.index();
                if self.index[callee] == Self::UNSEEN {
                    self.open(callee);
                    path.push((callee, 0));
                } else if self.on_stack[callee] {
                    self.low[node] = self.low[node].min(self.index[callee]);
                }
                continue;
            }
            path.pop();
            if let Some(&(parent, _)) = path.last() {
                self.low[parent] = self.low[parent].min(self.low[node]);
            }
            if self.low[node] == self.index[node] {
                self.close(node);
            }
        }
    }

    fn close(&mut self, node: usize) {
        let number = self.members.len();
        let mut members = Vec::new();
        while let Some(member) = self.stack.pop() {
            self.on_stack[member] = false;
            self.component[member] = number;
            members.push(FunctionId(member as u32));
            if member == node {
                break;
            }
        }
        members.sort_unstable();
        self.members.push(members);
    }
}
