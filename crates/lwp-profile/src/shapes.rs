//! Other trees of the same contexts: from callees to callers, and with recursion folded.

use crate::profile::FunctionId;
use crate::tree::{Contexts, Tree};

/// Nodes that are worth a thread.
const MANY: usize = 1 << 17;

/// A context without a place in another form.
pub const NOWHERE: u32 = u32::MAX;

/// A tree in another form, and the number of the node there that each of its nodes is counted in,
/// [`NOWHERE`] for nodes that nothing was counted in.
pub type Placed = (Tree, Vec<u32>);

/// A function and nodes of it.
type List<'a> = (FunctionId, &'a [u32]);

/// The nodes of each function that has any; `ends` says where each function's end.
fn by_function<'a>(nodes: &'a [u32], ends: &[usize]) -> Vec<List<'a>> {
    let mut start = 0;
    let lists = ends.iter().map(|end| &nodes[std::mem::replace(&mut start, *end)..*end]);
    (0..).map(FunctionId).zip(lists).filter(|(_, nodes)| !nodes.is_empty()).collect()
}

/// The sum of the lengths of some lists.
fn entries(lists: &[List<'_>]) -> usize {
    lists.iter().map(|list| list.1.len()).sum()
}

impl Tree {
    /// This tree's counts from the inside out: functions with a count are below the root, and their
    /// callers below them. What is less than `least` is not followed to its callers.
    pub fn inverted(&self, least: u64) -> Self {
        self.inverted_placed(least).0
    }

    /// The tree of [`Self::inverted`], with the place of every node that has a count.
    pub fn inverted_placed(&self, least: u64) -> Placed {
        let (nodes, ends) = self.counted_by_function();
        let lists = by_function(&nodes, &ends);
        let mut leads = vec![0u32; nodes.len()];
        let mut contexts = match nodes.len() < MANY {
            true => self.followed(&lists, least, &mut leads),
            false => self.followed_by_two(&lists, least, &mut leads),
        };
        contexts.add(Contexts::ROOT, self.own(0));
        let (tree, numbers) = contexts.finish_placed(self.recorded, |function| function);
        let mut places = vec![NOWHERE; self.len()];
        places[0] = 0;
        for (node, lead) in nodes.iter().zip(leads) {
            places[*node as usize] = numbers[lead as usize];
        }
        (tree, places)
    }

    /// Does the work of [`Self::followed`] with two threads: nothing is below two functions.
    fn followed_by_two(&self, lists: &[List<'_>], least: u64, leads: &mut [u32]) -> Contexts {
        let mut left = leads.len() / 2;
        let half = lists.iter().take_while(|list| {
            left = left.saturating_sub(list.1.len());
            left > 0
        });
        let (front, back) = lists.split_at(half.count());
        let (in_front, behind) = leads.split_at_mut(entries(front));
        std::thread::scope(|scope| {
            let back = || {
                let mut leads = vec![0; entries(back)];
                (self.followed(back, least, &mut leads), leads)
            };
            let other = std::thread::Builder::new().spawn_scoped(scope, back);
            let mut contexts = self.followed(front, least, in_front);
            // Without another thread this one has the work of both.
            let done = other.ok().and_then(|other| other.join().ok());
            let (rest, found) = done.unwrap_or_else(back);
            let numbers = contexts.append(&rest);
            let found = found.iter().map(|number| numbers[*number as usize]);
            behind.iter_mut().zip(found).for_each(|(lead, number)| *lead = number);
            contexts
        })
    }

    /// The contexts from functions to their callers; each function comes with the nodes that
    /// something was counted in. `leads`, as long as all of them, gets the context that each is
    /// counted in.
    fn followed(&self, lists: &[List<'_>], least: u64, leads: &mut [u32]) -> Contexts {
        let contexts = Contexts::default();
        let mut inverse = Inverse { tree: self, contexts, least: least.max(1), leads };
        let mut next = 0;
        for (function, nodes) in lists {
            let first = next;
            let part = |node: &u32| {
                next += 1;
                Part { node: *node, id: next - 1, count: self.own(*node as usize) }
            };
            let parts: Vec<Part> = nodes.iter().map(part).collect();
            // One function after the other: all parts at once would need much more memory.
            let mut waiting = Vec::new();
            inverse.follow(Contexts::ROOT, *function, &parts, &mut waiting);
            while let Some((context, parts)) = waiting.pop() {
                inverse.group(context, parts, &mut waiting);
            }
            inverse.settle(first as usize..next as usize);
        }
        inverse.contexts
    }

    /// Nodes that something was counted in, function by function, and where each function's end.
    fn counted_by_function(&self) -> (Vec<u32>, Vec<usize>) {
        let functions = self.shape().functions();
        let counted = || (1..self.len()).filter(|node| self.own(*node) > 0);
        let mut ends = vec![0usize; self.functions()];
        counted().for_each(|node| ends[functions[node].index()] += 1);
        let mut sum = 0;
        for end in &mut ends {
            // Until they are filled, lists end where they start.
            sum += std::mem::replace(end, sum);
        }
        let mut nodes = vec![0u32; sum];
        for node in counted() {
            let end = &mut ends[functions[node].index()];
            nodes[*end] = node as u32;
            *end += 1;
        }
        (nodes, ends)
    }

    /// Returns a number that is greater than that of every function in the tree.
    fn functions(&self) -> usize {
        let functions = self.shape().functions().iter();
        functions.map(|function| function.index() + 1).max().unwrap_or(0)
    }

    /// The tree with recursion folded: a function called while it was already running, by itself or
    /// by others, counts in the context that it was running in.
    pub fn folded(&self) -> Self {
        self.folded_placed().0
    }

    /// The tree of [`Self::folded`], with the place of every node that has a count.
    pub fn folded_placed(&self) -> Placed {
        let shape = self.shape();
        let mut places = vec![NOWHERE; self.len()];
        places[0] = Contexts::ROOT;
        let mut contexts = Contexts::default();
        contexts.add(Contexts::ROOT, self.own(0));
        // The context that each function is running in, and the node behind what it has called.
        let mut running = vec![(Contexts::ROOT, 0); self.functions()];
        let mut around = vec![(Contexts::ROOT, self.len())];
        let mut node = 1;
        while node < self.len() {
            let end = shape.end(node);
            if self.total(node) == 0 {
                node = end;
                continue;
            }
            while around.last().is_some_and(|(_, end)| *end <= node) {
                around.pop();
            }
            let from = around.last().map_or(Contexts::ROOT, |(context, _)| *context);
            let function = shape.functions()[node];
            let running = &mut running[function.index()];
            if running.1 <= node {
                *running = (contexts.call(from, function), end);
            }
            contexts.add(running.0, self.own(node));
            places[node] = running.0;
            around.push((running.0, end));
            node += 1;
        }
        let (tree, numbers) = contexts.finish_placed(self.recorded, |function| function);
        for place in places.iter_mut().filter(|place| **place != NOWHERE) {
            *place = numbers[*place as usize];
        }
        (tree, places)
    }
}

/// A node, and how much of what is looked at is its.
#[derive(Clone, Copy)]
struct Part {
    node: u32,
    /// The index of a node that it comes from, among those that something was counted in.
    id: u32,
    count: u64,
}

/// A bit of the contexts that nodes have been counted in.
const ENDED: u32 = 1 << 31;

struct Inverse<'a> {
    tree: &'a Tree,
    contexts: Contexts,
    least: u64,
    /// By index: the smaller index of a node whose callers this one's have been joined with, or the
    /// context that it is counted in and [`ENDED`].
    leads: &'a mut [u32],
}

impl Inverse<'_> {
    /// Enters the functions of `parts` below `context`, and what remains to be done for their
    /// callers.
    fn group(&mut self, context: u32, mut parts: Vec<Part>, waiting: &mut Vec<(u32, Vec<Part>)>) {
        let functions = self.tree.shape().functions();
        let function = |part: &Part| functions[part.node as usize];
        parts.sort_unstable_by_key(|part| (function(part), part.node));
        for parts in parts.chunk_by(|a, b| function(a) == function(b)) {
            self.follow(context, function(&parts[0]), parts, waiting);
        }
    }

    /// Enters a function below `context`, with its nodes in `parts`.
    fn follow(
        &mut self,
        context: u32,
        function: FunctionId,
        parts: &[Part],
        waiting: &mut Vec<(u32, Vec<Part>)>,
    ) {
        let sum = parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.count));
        if sum == 0 {
            return;
        }
        let inner = self.contexts.call(context, function);
        if sum < self.least || inner == context {
            self.contexts.add(inner, sum);
            parts.iter().for_each(|part| self.leads[part.id as usize] = inner | ENDED);
            return;
        }
        // Many nodes have the same caller: the further out, the fewer are left.
        let caller = |part: &Part| self.tree.caller(part.node as usize) as u32;
        let mut callers: Vec<Part> =
            parts.iter().map(|part| Part { node: caller(part), ..*part }).collect();
        // Callers of nodes in order are nearly in order.
        callers.sort_by_key(|part| part.node);
        callers.dedup_by(|next, kept| {
            let same = next.node == kept.node;
            if same {
                let ids = [next.id.min(kept.id), next.id.max(kept.id)];
                self.leads[ids[1] as usize] = ids[0];
                *kept = Part { id: ids[0], count: kept.count.saturating_add(next.count), ..*kept };
            }
            same
        });
        // What has no caller ends here.
        if let Some(outermost) = callers.first().copied().filter(|part| part.node == 0) {
            self.contexts.add(inner, outermost.count);
            self.leads[outermost.id as usize] = inner | ENDED;
            callers.remove(0);
        }
        if !callers.is_empty() {
            waiting.push((inner, callers));
        }
    }

    /// Finds the contexts that some nodes are counted in: all of their callers have been followed.
    fn settle(&mut self, ids: std::ops::Range<usize>) {
        for id in ids.clone() {
            if self.leads[id] & ENDED == 0 {
                self.leads[id] = self.leads[self.leads[id] as usize];
            }
        }
        self.leads[ids].iter_mut().for_each(|lead| *lead &= !ENDED);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tree::Node;

    /// Stacks of single letters, outermost first, and what was counted in each.
    fn tree(stacks: &[(&str, u64)]) -> Tree {
        let mut contexts = Contexts::default();
        for (stack, count) in stacks {
            let function = |name: u8| FunctionId(u32::from(name - b'a'));
            let at =
                stack.bytes().fold(Contexts::ROOT, |at, name| contexts.call(at, function(name)));
            contexts.add(at, *count);
        }
        contexts.finish(true, |function| function)
    }

    fn shown(tree: &Tree) -> Vec<(String, u64, u64)> {
        let mut out = Vec::new();
        let mut waiting = vec![(0, String::new())];
        while let Some((node, path)) = waiting.pop() {
            for inner in tree.called(node) {
                let Node { function, own, total } = tree.node(inner);
                let path = format!("{path}{}", char::from(b'a' + function.0 as u8));
                out.push((path.clone(), own, total));
                waiting.push((inner, path));
            }
        }
        out.sort();
        out
    }

    fn expected(rows: &[(&str, u64, u64)]) -> Vec<(String, u64, u64)> {
        rows.iter().map(|row| (row.0.to_owned(), row.1, row.2)).collect()
    }

    #[test]
    fn callers_stand_below_what_they_called() {
        let inverted = tree(&[("ab", 10), ("acb", 5), ("a", 1), ("acbb", 2)]).inverted(0);
        let rows = [
            ("a", 1, 1),
            ("b", 0, 17),
            ("ba", 10, 10),
            ("bb", 0, 2),
            ("bbc", 0, 2),
            ("bbca", 2, 2),
            ("bc", 0, 5),
            ("bca", 5, 5),
        ];
        assert_eq!(shown(&inverted), expected(&rows));
        assert_eq!(inverted.root().total, 18);
        let short = tree(&[("ab", 10), ("acb", 5), ("a", 1)]).inverted(12);
        let rows = [("a", 1, 1), ("b", 0, 15), ("ba", 10, 10), ("bc", 5, 5)];
        assert_eq!(shown(&short), expected(&rows));
    }

    #[test]
    fn two_threads_follow_callers_as_one_does() {
        let mut contexts = Contexts::default();
        let mut numbers = vec![Contexts::ROOT];
        let mut random = 1u64;
        while numbers.len() < MANY * 2 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let from = numbers[(random >> 33) as usize % numbers.len()];
            let number = contexts.call(from, FunctionId((random >> 40) as u32 % 50));
            contexts.add(number, random >> 60);
            numbers.push(number);
        }
        let tree = contexts.finish(true, |function| function);
        let (nodes, ends) = tree.counted_by_function();
        assert!(nodes.len() > MANY);
        let lists = by_function(&nodes, &ends);
        let least = tree.root().total / 1000;
        let mut leads = vec![0; nodes.len()];
        let mut one = tree.followed(&lists, least, &mut leads);
        one.add(Contexts::ROOT, tree.own(0));
        let (one, numbers) = one.finish_placed(true, |function| function);
        let (two, places) = tree.inverted_placed(least);
        assert_eq!(two, one);
        for (node, lead) in nodes.iter().zip(leads) {
            assert_eq!(places[*node as usize], numbers[lead as usize]);
        }
    }

    /// Counts of places that nodes of `tree` have.
    fn placed(tree: &Tree, of: &[u32], len: usize) -> Vec<u64> {
        let mut sums = vec![0; len];
        for node in (0..tree.len()).filter(|node| tree.own(*node) > 0) {
            sums[of[node] as usize] += tree.own(node);
        }
        sums
    }

    proptest! {
        /// Promise: R115
        #[test]
        fn nodes_are_counted_at_their_places(
            calls in prop::collection::vec((any::<usize>(), 0u32..5), 0..200),
            own in prop::collection::vec(0u64..3, 200),
            least in 0u64..20,
        ) {
            let mut contexts = Contexts::default();
            let mut numbers = vec![Contexts::ROOT];
            for ((at, function), count) in calls.iter().zip(own) {
                let number = contexts.call(numbers[at % numbers.len()], FunctionId(*function));
                contexts.add(number, count);
                numbers.push(number);
            }
            let tree = contexts.finish(true, |function| function);
            for (other, places) in [tree.inverted_placed(least), tree.folded_placed()] {
                let own: Vec<u64> = (0..other.len()).map(|node| other.own(node)).collect();
                prop_assert_eq!(placed(&tree, &places, other.len()), own);
            }
            // Each node's function is the one that it is counted below, or in.
            let (inverted, places) = tree.inverted_placed(least);
            for node in (1..tree.len()).filter(|node| tree.own(*node) > 0) {
                let outwards = std::iter::successors(Some(places[node] as usize), |at| {
                    Some(inverted.caller(*at))
                });
                let mut path: Vec<_> = outwards.take_while(|at| *at > 0).collect();
                path.reverse();
                let mut at = node;
                for inner in path {
                    prop_assert_eq!(inverted.node(inner).function, tree.node(at).function);
                    at = tree.caller(at);
                }
            }
        }
    }

    #[test]
    fn recursion_counts_where_it_began() {
        let folded = tree(&[("aba", 1), ("abab", 2), ("abac", 4), ("ab", 8), ("ac", 16)]).folded();
        let rows = [("a", 1, 31), ("ab", 10, 10), ("ac", 20, 20)];
        assert_eq!(shown(&folded), expected(&rows));
    }
}
