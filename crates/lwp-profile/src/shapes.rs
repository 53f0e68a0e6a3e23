//! Other trees of the same contexts: from callees to callers, and with recursion folded.

use crate::profile::FunctionId;
use crate::tree::{Contexts, Tree};

/// Nodes that are worth a thread.
const MANY: usize = 1 << 17;

/// A function and nodes of it.
type List<'a> = (FunctionId, &'a [u32]);

/// The nodes of each function that has any; `ends` says where each function's end.
fn by_function<'a>(nodes: &'a [u32], ends: &[usize]) -> Vec<List<'a>> {
    let mut start = 0;
    let lists = ends.iter().map(|end| &nodes[std::mem::replace(&mut start, *end)..*end]);
    (0..).map(FunctionId).zip(lists).filter(|(_, nodes)| !nodes.is_empty()).collect()
}

impl Tree {
    /// The same counts from the inside out: functions that something was counted in stand below the
    /// root, their callers below them. What is less than `least` is not followed to its callers.
    pub fn inverted(&self, least: u64) -> Self {
        let (nodes, ends) = self.counted_by_function();
        let lists = by_function(&nodes, &ends);
        let mut contexts = match nodes.len() < MANY {
            true => self.followed(&lists, least),
            false => {
                // What is below one function is not below another.
                let mut left = nodes.len() / 2;
                let half = lists.iter().take_while(|list| {
                    left = left.saturating_sub(list.1.len());
                    left > 0
                });
                let (front, back) = lists.split_at(half.count());
                std::thread::scope(|scope| {
                    let back = || self.followed(back, least);
                    let other = std::thread::Builder::new().spawn_scoped(scope, back);
                    let mut contexts = self.followed(front, least);
                    // Without another thread this one has the work of both.
                    let rest = other.ok().and_then(|other| other.join().ok());
                    contexts.append(&rest.unwrap_or_else(back));
                    contexts
                })
            }
        };
        contexts.add(Contexts::ROOT, self.own(0));
        contexts.finish(self.recorded, |function| function)
    }

    /// The contexts from functions to their callers; each function comes with the nodes that
    /// something was counted in.
    fn followed(&self, lists: &[List<'_>], least: u64) -> Contexts {
        let mut inverse =
            Inverse { tree: self, contexts: Contexts::default(), least: least.max(1) };
        for (function, nodes) in lists {
            let parts: Parts = nodes.iter().map(|node| (*node, self.own(*node as usize))).collect();
            // One function after the other: all parts at once would need much more memory.
            let mut waiting = Vec::new();
            inverse.follow(Contexts::ROOT, *function, &parts, &mut waiting);
            while let Some((context, parts)) = waiting.pop() {
                inverse.group(context, parts, &mut waiting);
            }
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
        let shape = self.shape();
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
            around.push((running.0, end));
            node += 1;
        }
        contexts.finish(self.recorded, |function| function)
    }
}

/// Nodes, and how much of what is looked at is theirs.
type Parts = Vec<(u32, u64)>;

struct Inverse<'a> {
    tree: &'a Tree,
    contexts: Contexts,
    least: u64,
}

impl Inverse<'_> {
    /// Enters the functions of `parts` below `context`, and what remains to be done for their
    /// callers.
    fn group(&mut self, context: u32, mut parts: Parts, waiting: &mut Vec<(u32, Parts)>) {
        let functions = self.tree.shape().functions();
        let function = |part: &(u32, u64)| functions[part.0 as usize];
        parts.sort_unstable_by_key(|part| (function(part), part.0));
        for parts in parts.chunk_by(|a, b| function(a) == function(b)) {
            self.follow(context, function(&parts[0]), parts, waiting);
        }
    }

    /// Enters a function below `context`, with its nodes in `parts`.
    fn follow(
        &mut self,
        context: u32,
        function: FunctionId,
        parts: &[(u32, u64)],
        waiting: &mut Vec<(u32, Parts)>,
    ) {
        let sum = parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.1));
        if sum == 0 {
            return;
        }
        let inner = self.contexts.call(context, function);
        if sum < self.least || inner == context {
            self.contexts.add(inner, sum);
            return;
        }
        // Many nodes have the same caller: the further out, the fewer are left.
        let mut callers: Parts = parts
            .iter()
            .map(|(node, part)| (self.tree.caller(*node as usize) as u32, *part))
            .collect();
        // Callers of nodes in order are nearly in order.
        callers.sort_by_key(|(caller, _)| *caller);
        callers.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            kept.1 = if same { kept.1.saturating_add(next.1) } else { kept.1 };
            same
        });
        // What has no caller ends here.
        if let Some((0, outermost)) = callers.first().copied() {
            self.contexts.add(inner, outermost);
            callers.remove(0);
        }
        if !callers.is_empty() {
            waiting.push((inner, callers));
        }
    }
}

#[cfg(test)]
mod tests {
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
        let mut one = tree.followed(&lists, least);
        one.add(Contexts::ROOT, tree.own(0));
        assert_eq!(tree.inverted(least), one.finish(true, |function| function));
    }

    #[test]
    fn recursion_counts_where_it_began() {
        let folded = tree(&[("aba", 1), ("abab", 2), ("abac", 4), ("ab", 8), ("ac", 16)]).folded();
        let rows = [("a", 1, 31), ("ab", 10, 10), ("ac", 20, 20)];
        assert_eq!(shown(&folded), expected(&rows));
    }
}
