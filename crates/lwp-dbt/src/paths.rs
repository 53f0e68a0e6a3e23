//! Paths: the sequences of blocks that become superblocks, according to a profile.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::addr::AppPc;
use crate::block::{Block, Terminator};
use crate::execution_profile::{BlockProfile, ExecutionProfile};

/// Most blocks and instructions of a path.
const MOST_BLOCKS: usize = 48;
const MOST_INSTRUCTIONS: u32 = 300;
/// A path ends where less than this part of its executions get to.
const LEAST_PART: f64 = 0.4;
/// Blocks that are executed less often, or that all of their kind together make up less than this
/// part of all executions, are not worth a path.
const LEAST_RUNS: u64 = 200;
const COLD_PART: f64 = 0.001;
/// Most instructions of all paths together. What is executed often all over a large program, as in
/// compilers, gains less by superblocks than it loses by the processor's caches.
const MOST_IN_ALL: u64 = 80_000;
/// Most instructions of all paths together, with those that are entered once in [`OFTEN`]
/// executions of blocks or more often. A server that answers the same requests again and again has
/// such paths.
const MOST_OFTEN: u64 = 320_000;
const OFTEN: u64 = 25_000;

/// A path to be laid out as a superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    /// Its blocks.
    pub pcs: Vec<AppPc>,
    /// The number of times that it is entered, by estimate.
    pub runs: u64,
}

/// Forms paths through the code that `decode` reads.
pub(crate) struct Paths<'a> {
    profile: &'a ExecutionProfile,
    decode: &'a mut dyn FnMut(AppPc) -> Option<Block>,
    decoded: FxHashMap<AppPc, Option<Arc<Block>>>,
    /// The executions of each block that no path covers yet.
    left: FxHashMap<AppPc, u64>,
    /// Blocks with fewer executions are cold.
    hot: u64,
}

impl<'a> Paths<'a> {
    /// The paths that `profile` suggests, the hottest first.
    pub fn form(
        profile: &'a ExecutionProfile,
        decode: &'a mut dyn FnMut(AppPc) -> Option<Block>,
    ) -> Vec<Path> {
        let hot = threshold(profile);
        let left = profile.iter().map(|(pc, block)| (pc, block.runs)).collect();
        let mut paths = Self { profile, decode, decoded: FxHashMap::default(), left, hot };
        paths.all()
    }

    fn all(&mut self) -> Vec<Path> {
        let mut heap: BinaryHeap<(u64, Reverse<AppPc>)> =
            self.left.iter().map(|(pc, runs)| (*runs, Reverse(*pc))).collect();
        let mut found = Vec::new();
        let all = self.left.values().fold(0, |sum: u64, runs| sum.saturating_add(*runs));
        let mut instructions = 0;
        while let Some((runs, Reverse(head))) = heap.pop() {
            let left = self.left.get(&head).copied().unwrap_or(0);
            if left < self.hot {
                if runs < self.hot {
                    break;
                }
                continue;
            }
            if left < runs {
                heap.push((left, Reverse(head)));
                continue;
            }
            let (path, length) = self.from(head, left);
            instructions += u64::from(length);
            if instructions > most_for(left, all) {
                break;
            }
            if path.is_empty() {
                continue;
            }
            found.push(Path { pcs: path, runs: left });
        }
        found.sort_by_key(|path| Reverse(path.runs));
        found
    }

    fn block(&mut self, pc: AppPc) -> Option<Arc<Block>> {
        let decode = &mut *self.decode;
        self.decoded.entry(pc).or_insert_with(|| decode(pc).map(Arc::new)).clone()
    }

    /// The path that begins at `head`, which is executed `runs` times, and its instructions; takes
    /// what it covers.
    fn from(&mut self, head: AppPc, runs: u64) -> (Vec<AppPc>, u32) {
        let mut path: Vec<AppPc> = Vec::new();
        let mut returns: Vec<AppPc> = Vec::new();
        let mut part = 1.0;
        let mut length = 0;
        let mut pc = head;
        while let Some(block) = self.block(pc) {
            length += block.instructions();
            path.push(pc);
            let covered = (runs as f64 * part) as u64;
            if let Some(left) = self.left.get_mut(&pc) {
                *left = left.saturating_sub(covered);
            }
            let full = path.len() >= MOST_BLOCKS || length >= MOST_INSTRUCTIONS;
            let Some((next, likely)) = self.next(&block, &mut returns).filter(|_| !full) else {
                break;
            };
            part *= likely;
            let known = self.profile.block(next).is_some_and(|block| block.runs >= self.hot);
            // A loop goes on at its own beginning.
            if part < LEAST_PART || !known || path.contains(&next) {
                break;
            }
            pc = next;
        }
        self.left.insert(head, 0);
        (path, length)
    }

    /// Returns the likeliest successor of `block`, and its part of the executions; `returns` are
    /// the places that calls on the path return to.
    fn next(&self, block: &Block, returns: &mut Vec<AppPc>) -> Option<(AppPc, f64)> {
        let known = self.profile.block(block.pc);
        let likeliest = || known.and_then(|known| known.targets.likeliest());
        match block.terminator {
            Terminator::Fall => Some((block.next(), 1.0)),
            Terminator::Jump { target } => Some((target, 1.0)),
            Terminator::Call { target } => {
                returns.push(block.next());
                Some((target, 1.0))
            }
            Terminator::Conditional { target, .. } => {
                let BlockProfile { runs, not_taken, .. } = *known?;
                let not_taken = not_taken.min(runs) as f64 / runs.max(1) as f64;
                Some(match not_taken >= 0.5 {
                    true => (block.next(), not_taken),
                    false => (target, 1.0 - not_taken),
                })
            }
            Terminator::IndirectCall => {
                let found = likeliest()?;
                returns.push(block.next());
                Some(found)
            }
            Terminator::IndirectJump => likeliest(),
            Terminator::Return { .. } => match returns.pop() {
                Some(to) => Some((to, 1.0)),
                None => likeliest(),
            },
            _ => None,
        }
    }
}

/// The executions from which on a block is hot: those below make up a small part of all.
fn threshold(profile: &ExecutionProfile) -> u64 {
    let mut runs: Vec<u64> = profile.iter().map(|(_, block)| block.runs).collect();
    runs.sort_unstable();
    let all: f64 = runs.iter().map(|runs| *runs as f64).sum();
    let mut below = 0.0;
    for runs in runs {
        below += runs as f64;
        if below > all * COLD_PART {
            return runs.max(LEAST_RUNS);
        }
    }
    LEAST_RUNS
}

/// The instructions that paths may have together, up to one that is entered `runs` times where
/// blocks are executed `all` times.
fn most_for(runs: u64, all: u64) -> u64 {
    if runs < all / OFTEN { MOST_IN_ALL } else { MOST_OFTEN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_are_answered_again_and_again_have_more_paths() {
        // A request of PostgreSQL's executes 17,800 blocks; cc1's paths are entered less often.
        assert_eq!(most_for(1_000_000, 17_800 * 1_000_000), MOST_OFTEN);
        assert_eq!(most_for(20_244, 684_873_536), MOST_IN_ALL);
        assert_eq!(most_for(u64::MAX, u64::MAX), MOST_OFTEN);
    }
}
