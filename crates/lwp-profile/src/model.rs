//! Estimates of time: what is counted and what is modelled, weighted.
//!
//! The weights are those of callgrind's cycle estimation, for the terms that there are. Nothing is
//! known of an instruction cache, of where indirect jumps and returns are expected to lead, or of
//! locked accesses.

use crate::profile::Event;
use crate::recording::RecordedMisses;

/// Cycles that a load or store costs beside its instruction if the first level does not have the
/// line.
pub const MISS_CYCLES: u64 = 10;
/// Cycles in addition if no level has the line.
pub const MEMORY_CYCLES: u64 = 100;
/// Cycles that a mispredicted conditional branch costs.
pub const MISPREDICTION_CYCLES: u64 = 10;

/// A model's values of some instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modelled {
    /// Loads of data that the first level did not have.
    pub load_misses: u64,
    /// Stores to data that the first level did not have.
    pub store_misses: u64,
    /// Loads of data that no level had.
    pub memory_loads: u64,
    /// Stores to data that no level had.
    pub memory_stores: u64,
    /// Conditional branches that did not go where they go more often.
    pub mispredictions: u64,
}

impl Modelled {
    /// The names of [`Self::values`].
    pub const NAMES: [&'static str; 6] = [
        "modelled-load-misses",
        "modelled-store-misses",
        "modelled-llc-load-misses",
        "modelled-llc-store-misses",
        "modelled-mispredictions",
        "modelled-cycles",
    ];

    /// Adds misses of the caches.
    pub fn missed(&mut self, misses: &RecordedMisses) {
        let pairs = [
            (&mut self.load_misses, misses.loads),
            (&mut self.store_misses, misses.stores),
            (&mut self.memory_loads, misses.memory_loads),
            (&mut self.memory_stores, misses.memory_stores),
        ];
        pairs.into_iter().for_each(|(sum, more)| *sum = sum.saturating_add(more));
    }

    /// Adds a conditional branch that was executed `runs` times, and `not_taken` times not taken.
    /// Its predictor knows which way it goes more often, and nothing else.
    pub fn branched(&mut self, runs: u64, not_taken: u64) {
        let wrong = not_taken.min(runs.saturating_sub(not_taken));
        self.mispredictions = self.mispredictions.saturating_add(wrong);
    }

    /// Adds another sum.
    pub fn add(&mut self, other: &Self) {
        let pairs = [
            (&mut self.load_misses, other.load_misses),
            (&mut self.store_misses, other.store_misses),
            (&mut self.memory_loads, other.memory_loads),
            (&mut self.memory_stores, other.memory_stores),
            (&mut self.mispredictions, other.mispredictions),
        ];
        pairs.into_iter().for_each(|(sum, more)| *sum = sum.saturating_add(more));
    }

    /// Estimated cycles, given how many instructions there were.
    pub fn cycles(&self, instructions: u64) -> u64 {
        let missed = self.load_misses.saturating_add(self.store_misses);
        let memory = self.memory_loads.saturating_add(self.memory_stores);
        let terms = [
            missed.saturating_mul(MISS_CYCLES),
            memory.saturating_mul(MEMORY_CYCLES),
            self.mispredictions.saturating_mul(MISPREDICTION_CYCLES),
        ];
        terms.into_iter().fold(instructions, u64::saturating_add)
    }

    /// The values of the events of a model, given how many instructions there were.
    pub fn values(&self, instructions: u64) -> [u64; Self::NAMES.len()] {
        [
            self.load_misses,
            self.store_misses,
            self.memory_loads,
            self.memory_stores,
            self.mispredictions,
            self.cycles(instructions),
        ]
    }

    /// The events of a model.
    pub fn events() -> Vec<Event> {
        let event =
            |name: &&str| Event { name: (*name).to_owned(), interval: None, modelled: true };
        Self::NAMES.iter().map(event).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_are_instructions_and_what_is_waited_for() {
        let mut modelled = Modelled::default();
        let at = (None, 0x1000);
        modelled.missed(&RecordedMisses {
            at,
            loads: 3,
            stores: 2,
            memory_loads: 1,
            memory_stores: 0,
        });
        modelled.branched(10, 4);
        modelled.branched(10, 6);
        modelled.branched(7, 0);
        // What cannot be is no reason to panic.
        modelled.branched(1, 5);
        assert_eq!(modelled.values(1000), [3, 2, 1, 0, 8, 1000 + 50 + 100 + 80]);
        let mut twice = modelled;
        twice.add(&modelled);
        assert_eq!(twice.cycles(2000), 2 * modelled.cycles(1000));
        let most = Modelled { load_misses: u64::MAX, ..Modelled::default() };
        assert_eq!(most.cycles(u64::MAX), u64::MAX);
    }
}
