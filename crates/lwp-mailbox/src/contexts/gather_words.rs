//! The part of a context that tells its thread to copy memory for samples: see
//! [`lwp_dbt::context::gather`].

use lwp_dbt::Slot;
use lwp_dbt::context::gather::{FACT_BYTES, FACT_WORDS, FACTS, FACTS_AT, STEPS_AT, places_of_fact};

use super::Context;

/// Steps and facts of one thread.
#[derive(Clone, Copy, Debug)]
pub struct GatherWords<'a>(pub(super) Context<'a>);

impl GatherWords<'_> {
    /// Writes the steps.
    pub fn set_steps(&self, steps: &[[u64; 2]]) {
        self.steps(steps).for_each(|(at, word)| self.0.memory().store(at, word));
    }

    /// Returns whether these are the steps.
    pub fn has_steps(&self, steps: &[[u64; 2]]) -> bool {
        self.steps(steps).all(|(at, word)| self.0.memory().load(at) == word)
    }

    fn steps(&self, steps: &[[u64; 2]]) -> impl Iterator<Item = (u64, u64)> {
        let first = self.0.base() + u64::from(STEPS_AT);
        (first..).step_by(8).zip(steps.iter().flatten().copied())
    }

    /// Lets the thread do them for each sample that it keeps, or none.
    pub fn enable(&self, enabled: bool) {
        self.0.set(Slot::Gather, u64::from(enabled));
    }

    /// Adds a fact to those that the thread knows; of two that were at its places, the one that was
    /// added first is forgotten.
    pub fn add_fact(&self, fact: &[u64; FACT_WORDS]) {
        let [first, second] = places_of_fact(fact[0]);
        if [first, second].iter().any(|place| self.fact(*place) == *fact) {
            return;
        }
        if self.fact(first)[0] != fact[0] {
            self.set_fact(second, &self.fact(first));
        }
        self.set_fact(first, fact);
    }

    /// Lets the thread know none.
    pub fn forget_facts(&self) {
        (0..FACTS).for_each(|place| self.set_fact(place, &[0; FACT_WORDS]));
    }

    fn word(&self, place: u32, index: usize) -> u64 {
        self.0.base() + u64::from(FACTS_AT + place * FACT_BYTES) + index as u64 * 8
    }

    fn fact(&self, place: u32) -> [u64; FACT_WORDS] {
        std::array::from_fn(|index| self.0.memory().load(self.word(place, index)))
    }

    fn set_fact(&self, place: u32, fact: &[u64; FACT_WORDS]) {
        for (index, value) in fact.iter().enumerate() {
            self.0.memory().store(self.word(place, index), *value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contexts::Contexts;

    #[test]
    fn facts_are_found_at_their_places_until_others_come() {
        let mut contexts = Contexts::new(0);
        let file = contexts.files.add().expect("a file in memory");
        let slot = contexts.allocate(file, 0).expect("a context");
        let words = contexts.context(slot).gather();
        let knows = |fact: &[u64; FACT_WORDS]| {
            places_of_fact(fact[0]).iter().any(|place| words.fact(*place) == *fact)
        };
        let place = |first: u64| places_of_fact(first)[0] & !1;
        let same = (1..).filter(|first| place(*first) == place(1)).take(3);
        let facts: Vec<[u64; FACT_WORDS]> = same.map(|first| [first, 2, 3, 4, 5, 6]).collect();
        words.add_fact(&facts[0]);
        words.add_fact(&facts[1]);
        words.add_fact(&facts[1]);
        // Another one in the place of the first, by the same first word.
        let newer = [facts[0][0], 7, 8, 9, 10, 11];
        words.add_fact(&newer);
        assert!(knows(&newer));
        words.add_fact(&facts[2]);
        assert!(knows(&facts[2]));
        words.forget_facts();
        assert!(!facts.iter().chain([&newer]).any(knows));
    }
}
