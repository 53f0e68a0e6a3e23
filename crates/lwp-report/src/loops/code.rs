//! The executed code of a function: basic blocks, and how often control went from one to another.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, OpKind};
use lwp_profile::{LocationId, Profile};

use super::graph::{Graph, Node};

/// An executed instruction.
#[derive(Clone, Debug)]
pub(super) struct Executed {
    pub location: LocationId,
    address: u64,
    /// Where it ends; where that is not known, nowhere.
    end: Option<u64>,
    pub times: u64,
    flow: FlowControl,
    target: Option<u64>,
    /// Of a conditional branch: how often it was taken.
    taken: u64,
}

impl Executed {
    /// An instruction that was executed so many times, and whose branch was taken so often.
    pub fn new(profile: &Profile, location: LocationId, times: u64, taken: u64) -> Self {
        let place = profile.location(location);
        let mut decoder = Decoder::with_ip(64, &place.bytes, place.address, DecoderOptions::NONE);
        let decoded = decoder.can_decode().then(|| decoder.decode());
        let decoded = decoded.filter(|instruction| !instruction.is_invalid());
        let near = |it: &Instruction| it.op0_kind() == OpKind::NearBranch64;
        Self {
            location,
            address: place.address,
            end: decoded.map(|it| it.next_ip()),
            times,
            flow: decoded.map_or(FlowControl::Next, |it| it.flow_control()),
            target: decoded.filter(near).map(|it| it.near_branch64()),
            taken,
        }
    }

    fn is_conditional(&self) -> bool {
        matches!(self.flow, FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend)
    }

    /// How often control went on to the next instruction.
    fn fallen(&self) -> u64 {
        match self.flow {
            FlowControl::UnconditionalBranch
            | FlowControl::IndirectBranch
            | FlowControl::Return => 0,
            _ if self.is_conditional() => self.times.saturating_sub(self.taken),
            _ => self.times,
        }
    }

    /// How often control went to the target.
    fn jumped(&self) -> u64 {
        match self.flow {
            FlowControl::UnconditionalBranch => self.times,
            _ if self.is_conditional() => self.taken,
            _ => 0,
        }
    }

    fn ends_block(&self) -> bool {
        self.is_conditional()
            || matches!(
                self.flow,
                FlowControl::UnconditionalBranch
                    | FlowControl::IndirectBranch
                    | FlowControl::Return
            )
    }
}

/// The executed code of a function.
#[derive(Debug)]
pub(super) struct Code {
    /// In the order of addresses.
    pub instructions: Vec<Executed>,
    /// The first instruction of each block.
    starts: Vec<usize>,
    graph: Graph,
    /// Times that control went from one block to another.
    edges: BTreeMap<(Node, Node), u64>,
}

impl Code {
    /// The code of a function that is entered at `entry`.
    pub fn new(mut instructions: Vec<Executed>, entry: u64) -> Self {
        instructions.sort_by_key(|it| it.address);
        let starts = starts(&instructions, entry);
        let mut code = Self {
            // One more node stands for everything that leads here.
            graph: Graph::new(starts.len() + 1),
            instructions,
            starts,
            edges: BTreeMap::new(),
        };
        code.known_edges();
        code.indirect_jumps(entry);
        code.entries(entry);
        code
    }

    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The instructions of a block, which is a node other than the root.
    pub fn block(&self, node: Node) -> &[Executed] {
        let end = self.starts.get(node).copied().unwrap_or(self.instructions.len());
        &self.instructions[self.starts[node - 1]..end]
    }

    /// How often a block was executed.
    pub fn times(&self, node: Node) -> u64 {
        self.block(node).first().map_or(0, |first| first.times)
    }

    /// How often control went from one block to another.
    pub fn passed(&self, from: Node, to: Node) -> u64 {
        self.edges.get(&(from, to)).copied().unwrap_or(0)
    }

    /// The block that begins at an address.
    fn at(&self, address: u64) -> Option<Node> {
        let start = |start: &usize| self.instructions[*start].address;
        self.starts.binary_search_by_key(&address, start).ok().map(|index| index + 1)
    }

    fn nodes(&self) -> std::ops::RangeInclusive<Node> {
        1..=self.starts.len()
    }

    fn add(&mut self, from: Node, to: Node, times: u64) {
        if times > 0 {
            self.graph.edge(from, to);
            let sum = self.edges.entry((from, to)).or_default();
            *sum = sum.saturating_add(times);
        }
    }

    /// Direct branches, and ways to the next block.
    fn known_edges(&mut self) {
        for node in self.nodes() {
            let Some(last) = self.block(node).last().cloned() else { continue };
            if let Some(to) = last.end.and_then(|end| self.at(end)) {
                // A call may not return, so that what follows was executed less often.
                self.add(node, to, last.fallen().min(self.times(to)));
            }
            if let Some(to) = last.target.and_then(|target| self.at(target)) {
                self.add(node, to, last.jumped());
            }
        }
    }

    /// What entered each block from no block that is known.
    fn unexplained(&self) -> Vec<(Node, u64)> {
        let mut inflow: BTreeMap<Node, u64> = BTreeMap::new();
        for ((_, to), times) in &self.edges {
            let sum = inflow.entry(*to).or_default();
            *sum = sum.saturating_add(*times);
        }
        let rest = |node| {
            let rest = self.times(node).saturating_sub(inflow.get(&node).copied().unwrap_or(0));
            (node, rest)
        };
        self.nodes().map(rest).filter(|(_, times)| *times > 0).collect()
    }

    /// Jumps through a table lead to whatever was entered from nowhere else: which of several jumps
    /// led there makes no difference to the loops that they all lie in.
    fn indirect_jumps(&mut self, entry: u64) {
        let is_jump = |node: &Node| {
            let last = self.block(*node).last();
            last.is_some_and(|last| last.flow == FlowControl::IndirectBranch && last.times > 0)
        };
        let mut jumps: Vec<(Node, u64)> =
            self.nodes().filter(is_jump).map(|node| (node, self.times(node))).collect();
        for (to, times) in self.unexplained() {
            if Some(to) == self.at(entry) {
                continue;
            }
            let mut left = times;
            for (from, rest) in &mut jumps {
                let part = left.min(*rest);
                (left, *rest) = (left - part, *rest - part);
                self.add(*from, to, part);
            }
        }
    }

    /// The root leads to the entry, and to whatever is not reached from there: code behind an
    /// exception, or of a function that was running when counting began.
    fn entries(&mut self, entry: u64) {
        let mut seen = vec![false; self.starts.len() + 1];
        let unexplained = self.unexplained();
        let first = self.at(entry).into_iter();
        let others = unexplained.into_iter().map(|(node, _)| node);
        for node in first.chain(others).chain(self.nodes()) {
            if !seen[node] {
                self.graph.edge(0, node);
                self.graph.reach(node, &mut seen);
            }
        }
    }
}

/// The first instruction of each basic block.
fn starts(instructions: &[Executed], entry: u64) -> Vec<usize> {
    let mut leaders: BTreeSet<u64> = instructions.iter().filter_map(|it| it.target).collect();
    leaders.insert(entry);
    let mut starts = Vec::new();
    for (index, instruction) in instructions.iter().enumerate() {
        let before = index.checked_sub(1).map(|at| &instructions[at]);
        let follows = before.is_some_and(|it| it.end == Some(instruction.address));
        // Counts that differ show an entry, too: of a case of a switch, or behind a call.
        let goes_on = before.is_some_and(|it| !it.ends_block() && it.times == instruction.times);
        if !follows || !goes_on || leaders.contains(&instruction.address) {
            starts.push(index);
        }
    }
    starts
}
