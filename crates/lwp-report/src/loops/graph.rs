//! Natural loops of a graph: dominators, the edges that lead back, and what they enclose.
//!
//! Promise: R144

/// The number of a node.
pub(super) type Node = usize;

/// A graph of nodes that are numbered from 0, the root, on.
#[derive(Clone, Debug, Default)]
pub(super) struct Graph {
    next: Vec<Vec<Node>>,
    before: Vec<Vec<Node>>,
}

/// A natural loop: all nodes from which one of its edges back to the header is reached without the
/// header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Natural {
    /// Every way into the loop leads here.
    pub header: Node,
    /// Nodes that lead back to the header.
    pub latches: Vec<Node>,
    /// The loop that this one lies in directly.
    pub parent: Option<usize>,
}

/// The loops of a graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Nest {
    pub loops: Vec<Natural>,
    /// The innermost loop of each node.
    pub innermost: Vec<Option<usize>>,
    /// Edges that lead back to where not every way leads: of cycles with several entries.
    pub irreducible: usize,
}

const UNREACHED: usize = usize::MAX;

impl Graph {
    /// So many nodes, and no edges.
    pub fn new(nodes: usize) -> Self {
        Self { next: vec![Vec::new(); nodes], before: vec![Vec::new(); nodes] }
    }

    /// Adds an edge.
    pub fn edge(&mut self, from: Node, to: Node) {
        if !self.next[from].contains(&to) {
            self.next[from].push(to);
            self.before[to].push(from);
        }
    }

    /// Nodes that can be reached from `start`, which are marked in `seen`.
    pub fn reach(&self, start: Node, seen: &mut [bool]) {
        let mut waiting = vec![start];
        while let Some(node) = waiting.pop() {
            if !std::mem::replace(&mut seen[node], true) {
                waiting.extend(self.next[node].iter().filter(|next| !seen[**next]));
            }
        }
    }

    /// The natural loops.
    pub fn loops(&self) -> Nest {
        let order = self.postorder();
        let dominators = self.dominators(&order);
        let mut nest = Nest { innermost: vec![None; self.next.len()], ..Nest::default() };
        // The innermost header first: whoever dominates another node comes behind it.
        for &header in &order.nodes {
            let latches: Vec<Node> = self.before[header]
                .iter()
                .copied()
                .filter(|latch| dominators.dominates(header, *latch))
                .collect();
            if !latches.is_empty() {
                self.enclose(header, latches, &mut nest);
            }
        }
        nest.irreducible = self.irreducible(&order, &dominators);
        nest
    }

    /// Adds the loop of these edges back, around those that lie in it.
    ///
    /// A node that lies in a loop already stands for the whole outermost loop that it lies in, so
    /// each node and each loop is entered once.
    fn enclose(&self, header: Node, latches: Vec<Node>, nest: &mut Nest) {
        let own = nest.loops.len();
        let mut waiting = latches.clone();
        nest.loops.push(Natural { header, latches, parent: None });
        // It lies in no inner loop: all nodes of one are dominated by that one's header.
        nest.innermost[header] = Some(own);
        while let Some(node) = waiting.pop() {
            if node == header {
                continue;
            }
            let from = match nest.innermost[node] {
                None => {
                    nest.innermost[node] = Some(own);
                    node
                }
                Some(_) => match nest.outermost(node) {
                    outermost if outermost == own => continue,
                    inner => {
                        nest.loops[inner].parent = Some(own);
                        nest.loops[inner].header
                    }
                },
            };
            waiting.extend(&self.before[from]);
        }
    }

    /// Nodes that the root reaches, each behind those that it leads to, save by edges back.
    fn postorder(&self) -> Order {
        let mut order = Order { nodes: Vec::new(), number: vec![UNREACHED; self.next.len()] };
        let mut seen = vec![false; self.next.len()];
        let mut path: Vec<(Node, usize)> = Vec::new();
        if !seen.is_empty() {
            seen[0] = true;
            path.push((0, 0));
        }
        while let Some((node, at)) = path.last_mut() {
            match self.next[*node].get(*at) {
                Some(&next) => {
                    *at += 1;
                    if !std::mem::replace(&mut seen[next], true) {
                        path.push((next, 0));
                    }
                }
                None => {
                    order.number[*node] = order.nodes.len();
                    order.nodes.push(*node);
                    path.pop();
                }
            }
        }
        order
    }

    /// K. Cooper, T. Harvey, K. Kennedy: A Simple, Fast Dominance Algorithm, 2001.
    fn dominators(&self, order: &Order) -> Dominators {
        let mut nearest = vec![UNREACHED; self.next.len()];
        if let Some(root) = nearest.first_mut() {
            *root = 0;
        }
        let mut changed = true;
        while std::mem::take(&mut changed) {
            for &node in order.nodes.iter().rev().filter(|node| **node != 0) {
                let known = self.before[node].iter().copied();
                let known = known.filter(|before| nearest[*before] != UNREACHED);
                let new = known.reduce(|a, b| order.common(&nearest, a, b)).unwrap_or(UNREACHED);
                changed |= std::mem::replace(&mut nearest[node], new) != new;
            }
        }
        Dominators::new(&nearest, order)
    }

    fn irreducible(&self, order: &Order, dominators: &Dominators) -> usize {
        let edges =
            order.nodes.iter().flat_map(|from| self.next[*from].iter().map(move |to| (from, to)));
        let back = edges.filter(|(from, to)| order.number[**to] >= order.number[**from]);
        back.filter(|(from, to)| !dominators.dominates(**to, **from)).count()
    }
}

impl Nest {
    /// The outermost loop that a node lies in, which must lie in one.
    fn outermost(&self, node: Node) -> usize {
        let mut at = self.innermost[node].unwrap_or(0);
        while let Some(parent) = self.loops[at].parent {
            at = parent;
        }
        at
    }
}

/// Nodes in postorder, and the place of each in it.
struct Order {
    nodes: Vec<Node>,
    number: Vec<usize>,
}

impl Order {
    /// The nearest node that dominates both.
    fn common(&self, nearest: &[Node], mut a: Node, mut b: Node) -> Node {
        while a != b {
            while self.number[a] < self.number[b] {
                a = nearest[a];
            }
            while self.number[b] < self.number[a] {
                b = nearest[b];
            }
        }
        a
    }
}

/// The tree of dominators, as intervals: a node dominates those whose interval lies in its own.
struct Dominators {
    interval: Vec<(usize, usize)>,
}

impl Dominators {
    fn new(nearest: &[Node], order: &Order) -> Self {
        let mut below: Vec<Vec<Node>> = vec![Vec::new(); nearest.len()];
        for &node in order.nodes.iter().filter(|node| **node != 0) {
            below[nearest[node]].push(node);
        }
        let mut interval = vec![(1, 0); nearest.len()];
        let mut clock = 0;
        let mut waiting: Vec<(Node, bool)> =
            order.nodes.last().map(|_| (0, false)).into_iter().collect();
        while let Some((node, left)) = waiting.pop() {
            clock += 1;
            if left {
                interval[node].1 = clock;
                continue;
            }
            interval[node].0 = clock;
            waiting.push((node, true));
            waiting.extend(below[node].iter().map(|node| (*node, false)));
        }
        Self { interval }
    }

    /// Returns whether every way from the root to `node` leads through `by`.
    fn dominates(&self, by: Node, node: Node) -> bool {
        let (a, b) = (self.interval[by], self.interval[node]);
        a.0 <= b.0 && b.1 <= a.1 && b.0 < b.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nest(nodes: usize, edges: &[(Node, Node)]) -> Nest {
        let mut graph = Graph::new(nodes);
        edges.iter().for_each(|(from, to)| graph.edge(*from, *to));
        graph.loops()
    }

    fn headers(nest: &Nest) -> Vec<(Node, Option<Node>)> {
        let header = |at: usize| nest.loops[at].header;
        nest.loops.iter().map(|it| (it.header, it.parent.map(header))).collect()
    }

    #[test]
    fn loops_lie_in_each_other() {
        // 0 → 1 ⇄ … : 1 is the outer header, 2 the inner one, 3 leads back to both.
        let found = nest(5, &[(0, 1), (1, 2), (2, 3), (3, 2), (3, 1), (1, 4)]);
        assert_eq!(headers(&found), [(2, Some(1)), (1, None)]);
        assert_eq!(found.innermost, [None, Some(1), Some(0), Some(0), None]);
        assert_eq!((found.loops[1].latches.clone(), found.irreducible), (vec![3], 0));
    }

    #[test]
    fn loops_behind_each_other_lie_side_by_side() {
        let found = nest(4, &[(0, 1), (1, 1), (1, 2), (2, 2), (2, 3), (3, 0)]);
        assert_eq!(headers(&found), [(2, Some(0)), (1, Some(0)), (0, None)]);
        assert_eq!(found.innermost, [Some(2), Some(1), Some(0), Some(2)]);
    }

    #[test]
    fn a_loop_with_two_ends_and_two_ways_back_is_one() {
        let found = nest(5, &[(0, 1), (1, 2), (2, 1), (2, 3), (3, 1), (1, 4), (3, 4)]);
        assert_eq!(headers(&found), [(1, None)]);
        assert_eq!(found.loops[0].latches, [2, 3]);
    }

    #[test]
    fn cycles_with_two_entries_are_no_loops() {
        let found = nest(3, &[(0, 1), (0, 2), (1, 2), (2, 1)]);
        assert_eq!((found.loops, found.irreducible), (vec![], 1));
    }

    #[test]
    fn what_the_root_does_not_reach_is_in_no_loop() {
        let found = nest(3, &[(1, 2), (2, 1)]);
        assert_eq!((found.loops.len(), found.irreducible), (0, 0));
        assert_eq!(nest(0, &[]), Nest::default());
    }

    /// A long chain of loops in loops takes no recursion, and no quadratic time.
    #[test]
    fn deep_nests_are_fast() {
        const DEPTH: usize = 20_000;
        let down = (0..DEPTH).map(|at| (at, at + 1));
        let back = (1..DEPTH).map(|at| (2 * DEPTH - at, at));
        let up = (DEPTH..2 * DEPTH).map(|at| (at, at + 1));
        let edges: Vec<(Node, Node)> = down.chain(up).chain(back).collect();
        let found = nest(2 * DEPTH + 1, &edges);
        assert_eq!(found.loops.len(), DEPTH - 1);
        assert_eq!(found.loops[0].parent, Some(1));
    }
}
