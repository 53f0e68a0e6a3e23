//! Functions of an ELF file that no symbol names.

use std::ops::Range;

use super::{Elf, Symbol};
use crate::bounds::{Unnamed, part_of_gap};

impl Elf {
    /// The function whose symbol stands at the start of the bounds about `address` but does not
    /// reach it, and addresses about this one for which the answer is the same.
    pub(super) fn named_by_bounds(&self, address: u64) -> Option<(Symbol<'_>, Range<u64>)> {
        let known = self.bounds.known(address)?;
        let at = self.starts.binary_search(&known.start).ok()?;
        Some((self.symbol(&self.functions[at]), self.between_symbols(&known, address)))
    }

    /// The function at an `address` that no symbol reaches. `starts`: addresses that calls led to,
    /// in order, asked for where nothing else has bounds.
    pub fn unnamed_at<'s>(&self, address: u64, starts: impl FnOnce() -> &'s [u64]) -> Unnamed {
        if let Some(range) = self.bounds.known(address) {
            let about = self.between_symbols(&range, address);
            return Unnamed { range, about };
        }
        let gap = self.between_symbols(&self.bounds.gap(address), address);
        part_of_gap(&gap, address, starts(), self.bounds.entry_in(&gap))
    }

    /// The size of the function that starts at `address`, named or not, where it has bounds.
    pub fn known_size(&self, address: u64) -> Option<u64> {
        let unnamed = || self.bounds.known(address).map(|range| range.end - range.start);
        self.function_at(address).map(|symbol| symbol.size).or_else(unnamed)
    }

    /// The part of `range` about `address` that no symbol reaches into.
    fn between_symbols(&self, range: &Range<u64>, address: u64) -> Range<u64> {
        let upto = self.starts.partition_point(|start| *start <= address);
        let before = self.functions[..upto].iter().rev().take(8);
        let ends = before.map(|entry| entry.address.saturating_add(entry.size.max(1)));
        let start = ends.filter(|end| *end <= address).max().unwrap_or(0);
        let end = self.starts.get(upto).copied().unwrap_or(u64::MAX);
        range.start.max(start)..range.end.min(end)
    }
}
