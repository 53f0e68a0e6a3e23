//! The entries in the indirect table of an address space.

use lwp_dbt::context::{APPLY_MAX, APPLY_SHORT};
use lwp_dbt::{CodeCache, EntryId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::family::UnitId;

/// Entries that the table of an address space has, and the next ones to insert.
#[derive(Clone, Debug, Default)]
pub struct Inserted {
    /// A bit for each entry.
    entries: Vec<u64>,
    /// Length of the beginning of each unit's entry list that has been offered to the table.
    offered: FxHashMap<UnitId, usize>,
    /// Number of a unit's entries that this address space has been offered itself, and not the one
    /// it was copied from.
    asked: FxHashMap<UnitId, usize>,
    /// Entries made since the last answer about their unit.
    fresh: FxHashMap<UnitId, Vec<EntryId>>,
    /// Addresses to which no indirect branch is to lead without asking.
    pub withheld: FxHashSet<u64>,
    /// The modules that the program began with, if they are all of files.
    pub(super) began_with: Option<Vec<UnitId>>,
}

impl Inserted {
    /// Returns the copy that fork makes. It has been offered nothing itself.
    pub fn copy(&self) -> Self {
        Self { asked: FxHashMap::default(), began_with: None, ..self.clone() }
    }

    /// Notes that entries of a unit have been made, for the next answer about it.
    pub fn add_fresh(&mut self, unit: UnitId, entries: &[EntryId]) {
        if !entries.is_empty() {
            self.fresh.entry(unit).or_default().extend_from_slice(entries);
        }
    }

    /// Returns whether an entry is in the table.
    pub fn has(&self, entry: EntryId) -> bool {
        let word = self.entries.get(entry.0 as usize / 64);
        word.is_some_and(|bits| bits & (1 << (entry.0 % 64)) != 0)
    }

    /// Notes that `entry` is going into the table. Returns false if it is there already, or is not
    /// to be there.
    pub fn put(&mut self, cache: &CodeCache, entry: EntryId) -> bool {
        if !self.withheld.is_empty() && self.withheld.contains(&cache.entry(entry).pc.0) {
            return false;
        }
        let (word, bit) = (entry.0 as usize / 64, entry.0 % 64);
        if self.entries.len() <= word {
            self.entries.resize(word + 1, 0);
        }
        let new = self.entries[word] & (1 << bit) == 0;
        self.entries[word] |= 1 << bit;
        new
    }

    /// Notes that `entry` is not in the table any more. Returns false if it was not.
    pub fn take(&mut self, entry: EntryId) -> bool {
        let was = self.has(entry);
        if was {
            self.entries[entry.0 as usize / 64] &= !(1 << (entry.0 % 64));
        }
        was
    }

    /// Notes that all entries of a unit, of which there are `number`, have been offered.
    pub fn offer_all(&mut self, unit: UnitId, number: usize) {
        self.offered.insert(unit, number);
    }

    /// Forgets a unit, whose entries leave the table. Returns those that were in it.
    pub fn forget(&mut self, unit: UnitId, entries: &[EntryId]) -> Vec<EntryId> {
        self.offered.remove(&unit);
        self.fresh.remove(&unit);
        entries.iter().copied().filter(|entry| self.take(*entry)).collect()
    }

    /// Takes the entries that should go into the table now: fresh ones, then older ones of `unit`,
    /// whose list is `entries`, that this address space has not been given.
    ///
    /// Every request about a unit brings as many as all requests before: a program that uses much
    /// of it soon has all, and one that uses little pays for little. So does a copy of a program
    /// that uses much, which has a page of the table copied for most of what it inserts.
    pub fn next(&mut self, cache: &CodeCache, unit: UnitId, entries: &[EntryId]) -> Vec<EntryId> {
        let mut at = self.offered.get(&unit).copied().unwrap_or(0);
        let asked = self.asked.get(&unit).copied().unwrap_or(0);
        let (first, room) = (at, asked.clamp(APPLY_SHORT, APPLY_MAX));
        let mut out = Vec::new();
        // Only of the unit that the thread is about to execute: that one cannot be unmapped, other
        // than by mistake, before the thread has inserted them.
        let mut fresh = self.fresh.remove(&unit).unwrap_or_default();
        while out.len() < room
            && let Some(entry) = fresh.pop()
        {
            if self.put(cache, entry) {
                out.push(entry);
            }
        }
        if !fresh.is_empty() {
            self.fresh.insert(unit, fresh);
        }
        while out.len() < room && at < entries.len() {
            if self.put(cache, entries[at]) {
                out.push(entries[at]);
            }
            at += 1;
        }
        self.asked.insert(unit, asked + at - first);
        self.offered.insert(unit, at);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: UnitId = UnitId(0);

    #[test]
    fn each_request_brings_as_many_as_all_before_and_none_twice() {
        let entries: Vec<EntryId> = (0..1000).map(EntryId).collect();
        let (mut inserted, cache) = (Inserted::default(), CodeCache::default());
        inserted.add_fresh(UNIT, &entries[990..]);
        let mut got = Vec::new();
        for expected in [64, 64, 118, 236, 472, 46, 0] {
            // Ten of the first are fresh ones, which are not of the list offered and come once.
            let next = inserted.next(&cache, UNIT, &entries);
            assert_eq!(next.len(), expected);
            got.extend(next);
        }
        got.sort_unstable();
        got.dedup();
        assert_eq!(got, entries);
    }

    #[test]
    fn a_copy_has_what_its_original_has_and_is_offered_little() {
        let entries: Vec<EntryId> = (0..1000).map(EntryId).collect();
        let (mut inserted, cache) = (Inserted::default(), CodeCache::default());
        let first: usize = (0..3).map(|_| inserted.next(&cache, UNIT, &entries).len()).sum();
        let mut copy = inserted.copy();
        assert!(entries[..first].iter().all(|entry| copy.has(*entry)));
        assert_eq!(copy.next(&cache, UNIT, &entries).len(), APPLY_SHORT);
        assert_eq!(inserted.next(&cache, UNIT, &entries).len(), first);
    }

    #[test]
    fn entries_leave_the_table_once() {
        let entries: Vec<EntryId> = (0..70).map(EntryId).collect();
        let (mut inserted, cache) = (Inserted::default(), CodeCache::default());
        let first = inserted.next(&cache, UNIT, &entries);
        assert!(!inserted.take(EntryId(1 << 20)));
        assert_eq!(inserted.forget(UNIT, &entries), first);
        assert_eq!(inserted.forget(UNIT, &entries), []);
        assert_eq!(inserted.next(&cache, UNIT, &entries), first);
    }
}
