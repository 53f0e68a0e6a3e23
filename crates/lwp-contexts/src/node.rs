//! The counts of a context, with the contexts that it called last: everything that a call and a
//! return need, in one cache line.

use rustc_hash::FxHashMap;

/// Contexts that are found without a search.
const RECENT: usize = 6;

/// Most edges without a number of their own.
const MOST: usize = 1 << 22;

/// A call site with what it calls, or a jump with its target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Edge(u32);

impl Edge {
    /// None.
    pub const NONE: Self = Self(0);

    /// Stands for those that there is no room for.
    pub const OTHERS: Self = Self(u32::MAX - 1);

    /// One that always has this number.
    pub fn known(number: u32) -> Self {
        Self(number << 1 | 1)
    }
}

/// Edges that have no number of their own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Edges(FxHashMap<(u64, u64), Edge>);

impl Edges {
    /// The edge from `site` to `target`.
    pub fn of(&mut self, site: u64, target: u64) -> Edge {
        if let Some(edge) = self.0.get(&(site, target)) {
            return *edge;
        }
        let count = self.0.len();
        if count >= MOST {
            return Edge::OTHERS;
        }
        let edge = Edge((count as u32 + 1) << 1);
        self.0.insert((site, target), edge);
        edge
    }
}

/// The counts of a context, and the contexts that it called last.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
pub(crate) struct Node {
    /// How often it was entered.
    pub calls: u64,
    /// The instructions that were executed in it.
    pub instructions: u64,
    edges: [Edge; RECENT],
    contexts: [u32; RECENT],
}

impl Node {
    /// The context that `edge` leads to, if it was one of the last.
    pub fn recent(&self, edge: Edge) -> Option<u32> {
        let index = self.edges.iter().position(|recent| *recent == edge)?;
        Some(self.contexts[index])
    }

    /// `edge` leads to `context`.
    pub fn remember(&mut self, edge: Edge, context: u32) {
        let free = self.edges.iter().position(|recent| *recent == Edge::NONE);
        let index = free.unwrap_or(edge.0 as usize / 2 % RECENT);
        self.edges[index] = edge;
        self.contexts[index] = context;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_a_cache_line() {
        assert_eq!(size_of::<Node>(), 64);
    }

    #[test]
    fn the_last_edge_is_always_among_the_recent_ones() {
        let mut node = Node::default();
        for number in 1..100 {
            let edge = Edge::known(number);
            assert_eq!(node.recent(edge), None);
            node.remember(edge, number + 1);
            assert_eq!(node.recent(edge), Some(number + 1));
        }
    }

    #[test]
    fn edges_have_numbers_of_their_own() {
        let mut edges = Edges::default();
        let [one, other] = [edges.of(1, 2), edges.of(2, 1)];
        assert!(one != other && one == edges.of(1, 2) && one != Edge::NONE);
        assert!((0..10).all(|number| Edge::known(number) != one && Edge::known(number) != other));
    }
}
