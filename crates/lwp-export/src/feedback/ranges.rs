//! Ranges of code that were executed in one go, and taken branches, at the file's own addresses:
//! what profile tools make of last-branch records before they look for lines.
//!
//! Samples tell how often such a range was seen. Here a range is code whose instructions were all
//! executed so many times, so that the sums of both are the same.

use std::collections::BTreeMap;
use std::fmt::Write;

use iced_x86::FlowControl;

use super::Binary;
use super::executed::Executed;
use super::flow::{self, Flow};

/// Code from the first to the last instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CodeRange {
    first: u64,
    last: u64,
    times: u64,
}

/// The profile.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    ranges: Vec<CodeRange>,
    /// By both ends.
    branches: BTreeMap<(u64, u64), u64>,
}

impl Ranges {
    pub(super) fn of(executed: &Executed, flow: &Flow<'_>, binary: &Binary) -> Self {
        let mut out = Self::default();
        for function in flow.functions() {
            let symbol = function.symbol;
            // The last range goes on.
            let mut goes_on = false;
            for instruction in flow::decode(binary.code(symbol), symbol.address) {
                let at = instruction.ip();
                let times = executed.instructions.get(&at).copied().map_or(0, flow::positive);
                match out.ranges.last_mut().filter(|range| goes_on && range.times == times) {
                    Some(range) => range.last = at,
                    None if times > 0 => {
                        out.ranges.push(CodeRange { first: at, last: at, times });
                    }
                    None => {}
                }
                let flow = instruction.flow_control();
                let leaves = matches!(
                    flow,
                    FlowControl::UnconditionalBranch
                        | FlowControl::IndirectBranch
                        | FlowControl::Return
                );
                goes_on = times > 0 && !leaves;
            }
        }
        let taken = executed.taken.iter();
        let known =
            taken.filter_map(|(&(from, to), &times)| Some(((from, to?), flow::positive(times))));
        out.branches = known.filter(|(_, times)| *times > 0).collect();
        // Those of jumps whose targets were worked out.
        let edges = flow.functions().iter().flat_map(|function| &function.edges);
        for edge in edges.filter(|edge| executed.indirect_jumps.contains_key(&edge.from)) {
            let Some(to) = edge.to else { continue };
            let times = out.branches.entry((edge.from, to)).or_default();
            *times = edge.times.max(*times);
        }
        out
    }

    /// The raw profile of `llvm-profgen`.
    pub(super) fn render_for_profgen(&self) -> String {
        let mut out = self.render_ranges(0);
        self.render_branches(0, &mut out);
        out
    }

    /// The text that AutoFDO's tools read, whose addresses count from the beginning of the file's
    /// memory. They are told of no single addresses.
    pub(super) fn render_for_autofdo(&self, binary: &Binary) -> String {
        let start = binary.base();
        let mut out = self.render_ranges(start);
        out += "0\n";
        self.render_branches(start, &mut out);
        out
    }

    fn render_ranges(&self, start: u64) -> String {
        let mut out = format!("{}\n", self.ranges.len());
        for range in &self.ranges {
            let [first, last] = [range.first, range.last].map(|at| at.wrapping_sub(start));
            let _ = writeln!(out, "{first:x}-{last:x}:{}", range.times);
        }
        out
    }

    fn render_branches(&self, start: u64, out: &mut String) {
        let _ = writeln!(out, "{}", self.branches.len());
        for ((from, to), times) in &self.branches {
            let [from, to] = [*from, *to].map(|at| at.wrapping_sub(start));
            let _ = writeln!(out, "{from:x}->{to:x}:{times}");
        }
    }
}
