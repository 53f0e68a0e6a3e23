//! Other trees of the same contexts: from callees to callers, and with recursion folded.

use crate::profile::FunctionId;
use crate::tree::{Contexts, Tree};

impl Tree {
    /// The same counts from the inside out: functions that something was counted in stand below the
    /// root, their callers below them. What is less than `least` is not followed to its callers.
    pub fn inverted(&self, least: u64) -> Self {
        let mut inverse =
            Inverse { tree: self, contexts: Contexts::default(), least: least.max(1) };
        let own = (1..self.nodes().len()).filter(|node| self.nodes()[*node].own > 0);
        let parts = own.map(|node| (node, self.nodes()[node].own)).collect();
        let mut waiting = vec![(Contexts::ROOT, parts)];
        while let Some((context, parts)) = waiting.pop() {
            inverse.group(context, parts, &mut waiting);
        }
        let mut contexts = inverse.contexts;
        contexts.add(Contexts::ROOT, self.root().own);
        contexts.finish(self.recorded, |function| function)
    }

    /// The tree with recursion folded: a function called while it was already running, by itself or
    /// by others, counts in the context that it was running in.
    pub fn folded(&self) -> Self {
        let mut contexts = Contexts::default();
        contexts.add(Contexts::ROOT, self.root().own);
        // The contexts that each function is running in, innermost last.
        let functions =
            self.nodes().iter().map(|node| node.function.index() + 1).max().unwrap_or(0);
        let mut running: Vec<Vec<u32>> = vec![Vec::new(); functions];
        let mut waiting: Vec<Step> =
            self.called(0).rev().map(|node| Step::Enter { node, from: Contexts::ROOT }).collect();
        while let Some(step) = waiting.pop() {
            let Step::Enter { node, from } = step else {
                if let Step::Leave(function) = step {
                    running[function.index()].pop();
                }
                continue;
            };
            let Node { function, own, .. } = self.nodes()[node];
            let context = match running[function.index()].last() {
                Some(outer) => *outer,
                None => contexts.call(from, function),
            };
            running[function.index()].push(context);
            contexts.add(context, own);
            waiting.push(Step::Leave(function));
            let enter = |node| Step::Enter { node, from: context };
            waiting.extend(self.called(node).rev().map(enter));
        }
        contexts.finish(self.recorded, |function| function)
    }
}

use crate::tree::Node;

/// A step of a walk through a tree.
enum Step {
    Enter { node: usize, from: u32 },
    Leave(FunctionId),
}

/// Nodes, and how much of what is looked at is theirs.
type Parts = Vec<(usize, u64)>;

struct Inverse<'a> {
    tree: &'a Tree,
    contexts: Contexts,
    least: u64,
}

impl Inverse<'_> {
    /// Enters the functions of `parts` below `context`, and what remains to be done for their
    /// callers.
    fn group(&mut self, context: u32, mut parts: Parts, waiting: &mut Vec<(u32, Parts)>) {
        let function = |part: &(usize, u64)| self.tree.nodes()[part.0].function;
        parts.sort_unstable_by_key(|part| (function(part), part.0));
        for parts in parts.chunk_by(|a, b| function(a) == function(b)) {
            let sum = parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.1));
            let inner = self.contexts.call(context, function(&parts[0]));
            if sum < self.least || inner == context {
                self.contexts.add(inner, sum);
                continue;
            }
            // Many nodes have the same caller: the further out, the fewer are left.
            let mut callers: Parts =
                parts.iter().map(|(node, part)| (self.tree.caller(*node), *part)).collect();
            callers.sort_unstable_by_key(|(caller, _)| *caller);
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
}

#[cfg(test)]
mod tests {
    use super::*;

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
            for inner in tree.called(node).rev() {
                let Node { function, own, total, .. } = tree.nodes()[inner];
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
    fn recursion_counts_where_it_began() {
        let folded = tree(&[("aba", 1), ("abab", 2), ("abac", 4), ("ab", 8), ("ac", 16)]).folded();
        let rows = [("a", 1, 31), ("ab", 10, 10), ("ac", 20, 20)];
        assert_eq!(shown(&folded), expected(&rows));
    }
}
