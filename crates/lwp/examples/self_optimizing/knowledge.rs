//! What records tell: how often branches went either way, and which methods were called.

use std::collections::BTreeMap;
use std::ops::Range;

use lwp::{BranchFlags, Event, Record};

use crate::compile::{Branch, Compiled, Plan};
use crate::program::{Block, End, METHODS};

/// Samples of both kinds that make a decision.
const ENOUGH: u64 = 64;
/// A method is the usual one from this many per cent of the samples on.
const USUAL: u64 = 80;

/// Samples of one version of the code.
pub struct Knowledge {
    code: Range<u64>,
    sites: BTreeMap<u64, Branch>,
    /// Samples of each block's branch: to *no*, to *yes*.
    pub ways: BTreeMap<usize, [u64; 2]>,
    /// Samples of each block's methods.
    pub methods: BTreeMap<usize, [u64; METHODS.len()]>,
    /// Samples of branches and of methods.
    pub branches: u64,
    pub values: u64,
    /// Records of branches outside of the code: the runtime's own.
    pub elsewhere: u64,
}

impl Knowledge {
    pub fn new(code: Range<u64>, compiled: &Compiled) -> Self {
        Self {
            code,
            sites: compiled.branches().clone(),
            ways: BTreeMap::new(),
            methods: BTreeMap::new(),
            branches: 0,
            values: 0,
            elsewhere: 0,
        }
    }

    /// Learns from a record.
    pub fn add(&mut self, record: &Record) {
        match record.event() {
            Some(Event::BranchesRetired { flags, .. }) => {
                if !self.code.contains(&record.ip().0) {
                    self.elsewhere += 1;
                    return;
                }
                self.branches += 1;
                let at = record.ip().0 - self.code.start;
                // Others are the jumps, and the branches of a `Send`.
                if let Some(branch) = self.sites.get(&at) {
                    let yes = flags.contains(BranchFlags::TKN) == branch.taken_is_yes;
                    self.ways.entry(branch.block).or_default()[usize::from(yes)] += 1;
                }
            }
            // Flags is the immediate of LWPVAL, where the compiler has put the block's number.
            Some(Event::ValueSample { flags, data2, .. }) => {
                self.values += 1;
                let method = data2.min(METHODS.len() as u64 - 1) as usize;
                self.methods.entry(flags.into()).or_default()[method] += 1;
            }
            _ => {}
        }
    }

    /// Returns whether it is time for a decision.
    pub fn is_enough(&self) -> bool {
        self.branches >= ENOUGH && self.values >= ENOUGH
    }

    /// Decides how the code should be.
    pub fn plan(&self, program: &[Block]) -> Plan {
        let usual = self.methods.iter().filter_map(|(block, samples)| {
            let all: u64 = samples.iter().sum();
            let (method, most) = samples.iter().enumerate().max_by_key(|(_, times)| **times)?;
            (*most * 100 >= all * USUAL).then_some((*block, method as u8))
        });
        Plan { order: self.order(program), usual: usual.collect(), samples_values: false }
    }

    /// Lays the blocks out as traces: each block is followed by its likeliest successor that has no
    /// place yet, so that the likely way is straight ahead. Where a trace ends, the next one begins
    /// with the first block that is left.
    fn order(&self, program: &[Block]) -> Vec<usize> {
        let mut order = Vec::new();
        for first in 0..program.len() {
            let mut next = Some(first);
            while let Some(block) = next.filter(|block| !order.contains(block)) {
                order.push(block);
                next = match program[block].end {
                    End::Return => None,
                    End::Jump(to) => Some(to),
                    End::If { yes, no, .. } => {
                        let [of_no, of_yes] = self.ways.get(&block).copied().unwrap_or_default();
                        let ways = if of_yes > of_no { [yes, no] } else { [no, yes] };
                        ways.into_iter().find(|way| !order.contains(way))
                    }
                };
            }
        }
        order
    }
}
