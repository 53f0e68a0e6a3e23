//! The edges between basic blocks of executed functions, each with how often it was taken.
//!
//! A recording's blocks begin where code was entered, and an optimiser's wherever any branch of the
//! function could lead. So each executed function is decoded: an edge is a branch that was taken,
//! or the last instruction before such a place, if control fell through.
//!
//! Targets of indirect jumps come from the conservation of flow. What entered a switch's case, and
//! came from no branch, call or code before it, came from an indirect jump with the case in its
//! table. That is exact where one jump has the case; among several it is shared out by how often
//! they were executed.
//!
//! Promise: R136

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};
use lwp_symbols::before_suffix;
use rustc_hash::FxHashSet;

use super::binary::{Binary, Symbol};
use super::executed::{Executed, Target};
use super::jump_tables;

/// Executions of a way from one instruction to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Edge {
    pub from: u64,
    pub to: Target,
    pub times: u64,
    /// The way is one of two, and the other one was taken so many times.
    pub other: Option<u64>,
}

/// The edges of one function.
#[derive(Debug)]
pub(super) struct Function<'a> {
    pub symbol: &'a Symbol,
    /// How often it was entered at its start, from where nothing is known of.
    pub entered: u64,
    pub edges: Vec<Edge>,
}

/// The executed functions of a file.
#[derive(Debug)]
pub(super) struct Flow<'a> {
    functions: Vec<Function<'a>>,
    indirect_jumps: [u64; 2],
}

impl<'a> Flow<'a> {
    pub(super) fn of(executed: &Executed, binary: &'a Binary) -> Self {
        let mut out = Self { functions: Vec::new(), indirect_jumps: [0; 2] };
        let entries: BTreeSet<u64> = executed.taken.keys().filter_map(|(_, to)| *to).collect();
        for symbol in binary.functions() {
            let range = symbol.address..symbol.end;
            if executed.instructions.range(range.clone()).all(|(_, times)| *times <= 0) {
                continue;
            }
            let code = decode(binary.code(symbol), symbol.address);
            let part = Part { executed, binary, range, code };
            out.function(symbol, &part, &entries);
        }
        out
    }

    fn function(&mut self, symbol: &'a Symbol, part: &Part<'_>, entries: &BTreeSet<u64>) {
        let mut edges = part.taken();
        let tables = part.tables();
        let jumped = part.indirect_jumps(&tables, &mut self.indirect_jumps);
        edges.extend(jumped);
        edges.extend(part.falls(&part.leaders(&tables, entries)));
        edges.sort_by_key(|edge| (edge.from, edge.to));
        let entered = part.executed.unexplained(symbol.address);
        self.functions.push(Function { symbol, entered, edges });
    }

    pub(super) fn functions(&self) -> &[Function<'a>] {
        &self.functions
    }

    /// Executions of indirect jumps whose targets were worked out, and of the others.
    pub(super) fn indirect_jumps(&self) -> [u64; 2] {
        self.indirect_jumps
    }
}

/// The instructions of code.
pub(super) fn decode(bytes: &[u8], address: u64) -> Vec<Instruction> {
    Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).into_iter().collect()
}

/// A sum that may be less than 0, if a recording is forged.
pub(super) fn positive(times: i64) -> u64 {
    u64::try_from(times).unwrap_or(0)
}

/// Where each indirect jump of a function can lead.
type Tables = Vec<(u64, BTreeSet<u64>)>;

/// A function that is worked on.
struct Part<'a> {
    executed: &'a Executed,
    binary: &'a Binary,
    range: Range<u64>,
    code: Vec<Instruction>,
}

impl Part<'_> {
    /// Branches and calls that were taken.
    fn taken(&self) -> Vec<Edge> {
        let all = self.executed.taken.range((self.range.start, None)..(self.range.end, None));
        let edge = |(&(from, to), &times): (&(u64, Target), &i64)| {
            let times = positive(times);
            let at = self.code.binary_search_by_key(&from, Instruction::ip).ok()?;
            let conditional = self.code[at].flow_control() == FlowControl::ConditionalBranch;
            let other = conditional.then(|| self.fallen(from));
            (times > 0).then_some(Edge { from, to, times, other })
        };
        all.filter_map(edge).collect()
    }

    fn fallen(&self, from: u64) -> u64 {
        positive(self.executed.falls.get(&from).copied().unwrap_or_default())
    }

    fn tables(&self) -> Tables {
        let starts: FxHashSet<u64> = self.code.iter().map(Instruction::ip).collect();
        // A switch in a function that was split has cases in its other part.
        let is_target = |to: u64| match self.range.contains(&to) {
            true => starts.contains(&to),
            false => self.is_other_part(to),
        };
        jump_tables::of(&self.code, self.binary, is_target)
    }

    fn is_other_part(&self, address: u64) -> bool {
        let here = self.binary.function_at(self.range.start);
        let there = self.binary.function_at(address);
        let whole = |symbol: &Symbol| before_suffix(&symbol.name, &["cold"]).to_owned();
        here.zip(there).is_some_and(|(here, there)| whole(here) == whole(there))
    }

    /// Shares what entered cases from nowhere else out over the jumps that can lead there.
    fn indirect_jumps(&self, tables: &Tables, sums: &mut [u64; 2]) -> Vec<Edge> {
        let jumps = self.executed.indirect_jumps.range(self.range.clone());
        let mut left: BTreeMap<u64, u64> =
            jumps.map(|(from, times)| (*from, positive(*times))).collect();
        let all: u64 = left.values().fold(0, |sum, times| sum.saturating_add(*times));
        let mut of_case: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for (jump, targets) in tables.iter().filter(|(jump, _)| left.contains_key(jump)) {
            targets.iter().for_each(|to| of_case.entry(*to).or_default().push(*jump));
        }
        // Cases of one jump first: what is left of the others is then known better.
        let mut cases: Vec<(&u64, &Vec<u64>)> = of_case.iter().collect();
        cases.sort_by_key(|(to, jumps)| (jumps.len(), **to));
        let mut edges = Vec::new();
        for (&to, jumps) in cases {
            edges.extend(share(self.executed.unexplained(to), to, jumps, &mut left));
        }
        let unknown = left.values().fold(0, |sum: u64, times| sum.saturating_add(*times));
        sums[0] = sums[0].saturating_add(all.saturating_sub(unknown));
        sums[1] = sums[1].saturating_add(unknown);
        edges
    }

    /// Where basic blocks begin, beside those behind branches.
    fn leaders(&self, tables: &Tables, entries: &BTreeSet<u64>) -> FxHashSet<u64> {
        let branches = self.code.iter().filter(|it| {
            let flow = it.flow_control();
            matches!(flow, FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch)
        });
        let mut leaders: FxHashSet<u64> = branches.map(Instruction::near_branch_target).collect();
        leaders.extend(tables.iter().flat_map(|(_, targets)| targets));
        leaders.extend(self.binary.inner(&self.range));
        leaders.extend(entries.range(self.range.clone()));
        leaders
    }

    /// Ways to the next basic block without a branch.
    fn falls(&self, leaders: &FxHashSet<u64>) -> Vec<Edge> {
        let mut edges = Vec::new();
        // The last instruction of the block that is no padding.
        let mut last = self.range.start;
        for (at, instruction) in self.code.iter().enumerate() {
            let (from, next) = (instruction.ip(), instruction.next_ip());
            if instruction.mnemonic() != Mnemonic::Nop || leaders.contains(&from) {
                last = from;
            }
            let times = self.fallen(from);
            let conditional = instruction.flow_control() == FlowControl::ConditionalBranch;
            let ends = leaders.contains(&next) || conditional && !self.is_jump(at + 1);
            if times > 0 && ends && next < self.range.end {
                let other = conditional.then(|| self.branched(from));
                edges.push(Edge { from: last, to: Some(next), times, other });
            }
        }
        edges
    }

    /// An optimiser takes a jump behind a conditional branch as a part of its block.
    fn is_jump(&self, at: usize) -> bool {
        let next = self.code.get(at);
        next.is_some_and(|it| it.flow_control() == FlowControl::UnconditionalBranch)
    }

    /// Executions of a conditional branch that were taken.
    fn branched(&self, from: u64) -> u64 {
        let taken = self.executed.taken.range((from, None)..(from + 1, None));
        taken.fold(0, |sum, (_, times)| sum.saturating_add(positive(*times)))
    }
}

/// Shares `times` entries of a case out over jumps, by what is left of each.
fn share(times: u64, to: u64, jumps: &[u64], left: &mut BTreeMap<u64, u64>) -> Vec<Edge> {
    let all: u64 = jumps.iter().fold(0, |sum, jump| sum.saturating_add(left[jump]));
    let (mut times, mut all) = (times.min(all), all);
    let mut edges = Vec::new();
    for &from in jumps {
        let Some(rest) = left.get_mut(&from).filter(|_| all > 0) else { continue };
        let part = u128::from(times) * u128::from(*rest) / u128::from(all);
        let part = (part as u64).min(times).min(*rest);
        all = all.saturating_sub(*rest);
        times -= part;
        *rest -= part;
        if part > 0 {
            edges.push(Edge { from, to: Some(to), times: part, other: None });
        }
    }
    edges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_of_several_jumps_are_shared_out_and_nothing_is_lost() {
        let mut left = BTreeMap::from([(0x10, 30), (0x20, 10)]);
        let edges = share(20, 0x40, &[0x10, 0x20], &mut left);
        let times: Vec<(u64, u64)> = edges.iter().map(|edge| (edge.from, edge.times)).collect();
        assert_eq!(times, [(0x10, 15), (0x20, 5)]);
        assert_eq!(left, BTreeMap::from([(0x10, 15), (0x20, 5)]));
        // More than the jumps were executed came some other way.
        let edges = share(99, 0x50, &[0x10, 0x20], &mut left);
        assert_eq!(edges.iter().map(|edge| edge.times).sum::<u64>(), 20);
        assert_eq!(share(9, 0x60, &[0x10], &mut left), []);
    }
}
