//! The code that an address space has, as far as it is known.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use lwp_process::maps::Mapping;
use rustc_hash::FxHashMap;

use crate::family::UnitId;

/// An executable mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeRange {
    /// First address after it.
    pub end: u64,
    /// The unit it belongs to.
    pub unit: UnitId,
    /// True if notice of writes to it can be had: it is private memory of no file that may be
    /// written.
    pub guardable: bool,
    /// Of which file it is; 0 for memory of none.
    pub inode: u64,
    /// Its code goes on in the mapping behind it.
    pub(super) joined: bool,
}

/// The executable mappings of an address space.
#[derive(Clone, Debug)]
pub struct CodeMap {
    /// Executable mappings by their start, as far as they are known.
    known: BTreeMap<u64, CodeRange>,
    /// Units of this address space alone, by kind and by 1 GiB of address: anonymous code.
    pub(super) private: FxHashMap<(bool, u64), UnitId>,
    /// Ranges whose file content has been or may have been written to.
    written: Vec<(u64, u64)>,
    /// Its memory has been opened for writing: any of its code may change.
    pub(super) patched: bool,
    /// The state of the executable mappings: equal numbers mean equal mappings, in any address
    /// space.
    pub changes: u64,
    /// The state of the code as its threads know it; see [`CodeMap::for_threads`].
    told: Option<u64>,
    /// The state of what is known: another one whenever it grows.
    grown: u64,
}

impl CodeMap {
    /// A map of which nothing is known yet.
    pub(super) fn new() -> Self {
        Self {
            known: BTreeMap::new(),
            private: FxHashMap::default(),
            written: Vec::new(),
            patched: false,
            changes: next_state(),
            told: None,
            grown: next_state(),
        }
    }

    /// The map of the same address space on another side, where nothing is translated yet.
    pub(super) fn side(&self) -> Self {
        Self { written: self.written.clone(), patched: self.patched, ..Self::new() }
    }

    /// The map of a copy of the address space, without code of the original alone. What was opened
    /// is the memory of the original.
    pub(super) fn copy(&self) -> Self {
        let mut copy = self.clone();
        (copy.patched, copy.told) = (false, None);
        let own = std::mem::take(&mut copy.private);
        if !own.is_empty() {
            copy.known.retain(|_, range| !own.values().any(|unit| *unit == range.unit));
        }
        copy
    }

    /// Notes that there is code which has not been known.
    pub(super) fn grow(&mut self) {
        self.grown = next_state();
    }

    /// Returns whether this mapping of a file is known.
    pub(super) fn has_mapping(&self, mapping: &Mapping) -> bool {
        // Anonymous memory grows at its end without a new mapping showing.
        mapping.inode != 0
            && self.known.get(&mapping.start).is_some_and(|code| code.end == mapping.end)
    }

    /// Notes that there is code at `start`.
    pub(super) fn insert(&mut self, start: u64, code: CodeRange) {
        self.known.insert(start, code);
    }

    /// Notes that there is code at `start`, which may have been known in pieces.
    pub(super) fn replace(&mut self, start: u64, code: CodeRange) {
        self.known.retain(|at, _| !(start..code.end).contains(at));
        self.known.insert(start, code);
    }

    /// Returns whether content of a mapping may have been written to.
    pub(super) fn was_written(&self, mapping: &Mapping) -> bool {
        self.written.iter().any(|written| written.0 < mapping.end && mapping.start < written.1)
    }

    /// Forgets all code of `unit`, which is no longer its file's.
    pub(super) fn leave(&mut self, unit: UnitId) {
        let of_it = self.known.iter().filter(|(_, code)| code.unit == unit);
        let beside: Vec<(u64, u64)> = of_it.map(|(start, code)| (*start, code.end)).collect();
        for (start, _) in &beside {
            self.known.remove(start);
        }
        self.written.extend(beside);
    }

    /// The executable mapping at `pc`, as far as it is known.
    pub fn at(&self, pc: u64) -> Option<(u64, CodeRange)> {
        let (&start, &range) = self.known.range(..=pc).next_back()?;
        (pc < range.end).then_some((start, range))
    }

    /// The ranges in which there is code, and the state of that knowledge, if its threads are still
    /// to be told. They may think of more than there is, never of less.
    pub fn for_threads(&mut self) -> Option<(u64, Vec<(u64, u64)>)> {
        if self.told == Some(self.grown) {
            return None;
        }
        self.told = Some(self.grown);
        Some((self.grown, self.known.iter().map(|(start, code)| (*start, code.end)).collect()))
    }

    /// Has its threads told again where there is code: there is a new one.
    pub fn tell_again(&mut self) {
        self.told = None;
    }

    /// Returns whether an executable mapping is known in `range`.
    pub fn overlaps(&self, range: (u64, u64)) -> bool {
        self.known.range(..range.1).next_back().is_some_and(|(_, code)| range.0 < code.end)
    }

    /// The parts of known executable mappings from `start` on that `mappings` say are none.
    pub fn gone(&self, start: u64, mappings: &[Mapping]) -> Vec<(u64, u64)> {
        let mut out = Vec::new();
        for (&from, code) in self.known.range(..) {
            let mut at = from.max(start);
            for mapping in mappings {
                let executable = mapping.execute && mapping.inode == code.inode;
                if !executable || mapping.end <= at || code.end <= mapping.start {
                    continue;
                }
                if at < mapping.start {
                    out.push((at, mapping.start));
                }
                at = mapping.end;
            }
            if at < code.end {
                out.push((at, code.end));
            }
        }
        out
    }

    /// The units of this address space alone.
    pub fn private_units(&self) -> Vec<UnitId> {
        self.private.values().copied().collect()
    }

    /// Its memory has been opened for writing: from here on its code compares itself, wherever it
    /// lies.
    pub fn note_patched(&mut self) {
        self.patched = true;
    }

    /// The ranges with code of a file with this inode, as far as is known.
    pub fn of_file(&self, inode: u64) -> Vec<(u64, u64)> {
        let of_it = self.known.iter().filter(|(_, code)| code.inode == inode);
        of_it.map(|(start, code)| (*start, code.end)).collect()
    }

    /// Forgets what is known of `range`: something has been mapped or protected there.
    ///
    /// Returns the units whose translations of it must be looked at.
    pub fn forget(&mut self, range: (u64, u64)) -> Vec<UnitId> {
        self.changes = next_state();
        let hit: Vec<u64> = self
            .known
            .range(..range.1)
            .filter(|(start, code)| **start < range.1 && range.0 < code.end)
            .map(|(start, _)| *start)
            .collect();
        let mut units = Vec::new();
        for start in hit {
            let Some(code) = self.known.remove(&start) else { continue };
            // What lies beside it is code as before.
            if start < range.0 {
                self.known.insert(start, CodeRange { end: range.0, ..code });
            }
            if range.1 < code.end {
                self.known.entry(range.1).or_insert(code);
            }
            units.push(code.unit);
        }
        units
    }

    /// Notes that the content of `range` may no longer be its file's.
    pub fn note_written(&mut self, range: (u64, u64)) {
        self.written.push(range);
    }

    /// Notes that `range` has been mapped anew.
    pub fn note_mapped(&mut self, range: (u64, u64)) {
        self.written.retain(|written| written.0 < range.0 || written.1 > range.1);
    }

    /// The units that are mapped here, in order.
    pub fn units(&self) -> Vec<UnitId> {
        let mut units: Vec<UnitId> = self.known.values().map(|code| code.unit).collect();
        units.sort_unstable();
        units.dedup();
        units
    }
}

/// A number that no state of an address space has had.
fn next_state() -> u64 {
    static STATES: AtomicU64 = AtomicU64::new(0);
    STATES.fetch_add(1, Ordering::Relaxed)
}
