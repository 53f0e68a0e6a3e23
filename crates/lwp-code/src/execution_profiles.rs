//! What a family's threads have executed so far, for the layout of its code along their paths.

use std::time::{Duration, Instant};

use lwp_dbt::{CodeCache, Counters, ExecutionProfile, Targets};
use lwp_mailbox::contexts::Context;
use rustc_hash::FxHashMap;

/// The most counters that are looked at for the targets of indirect branches.
const MOST_TARGETS: usize = 1 << 16;

/// Looking at running threads takes one part in so many of the time at most.
const PART_OF_TIME: u32 = 32;

/// So many threads that end are learned from, and then one in so many.
const ALL_OF: u32 = 32;
const ONE_IN: u32 = 16;

/// The counts of a family's threads so far.
#[derive(Clone, Debug, Default)]
pub struct Learned {
    /// By counter, of threads that have ended.
    counts: Vec<u64>,
    /// By counter, where the branch was seen to lead.
    targets: FxHashMap<usize, Targets>,
    /// The counters that hold targets, among the first so many.
    holding: (usize, Vec<usize>),
    /// The number of threads that have ended.
    ended: u32,
    /// The end of the last look at running threads, and what it took.
    looked: Option<(Instant, Duration)>,
}

impl Learned {
    /// Takes in what a thread's counters say; those that count as well where they are about to be
    /// cleared.
    pub fn take(&mut self, counters: &Counters, context: Context<'_>, ended: bool) {
        let (known, holding) = &mut self.holding;
        if *known != counters.len() {
            holding.extend(counters.targets_from(*known));
            holding.truncate(MOST_TARGETS);
            *known = counters.len();
        }
        if !ended && holding.is_empty() {
            return;
        }
        if ended {
            self.counts.resize(counters.len().max(self.counts.len()), 0);
        }
        let mut next = holding.iter().copied().peekable();
        // Counters come in the order of their numbers.
        context.counters().for_each(counters.len(), |number, value| {
            while next.next_if(|held| *held < number).is_some() {}
            if next.next_if_eq(&number).is_some() {
                if let Some(target) = counters.role(number).and_then(|role| role.held(value)) {
                    self.targets.entry(number).or_default().note(target, 1);
                }
            } else if ended {
                self.counts[number] = self.counts[number].saturating_add(value);
            }
        });
    }

    /// Returns whether there may be counters that hold targets, and looking at them now takes no
    /// more than its part of the time.
    pub fn looks(&self, counters: &Counters) -> bool {
        let (known, holding) = &self.holding;
        let due = self.looked.is_none_or(|(at, took)| at.elapsed() >= took * PART_OF_TIME);
        due && (*known != counters.len() || !holding.is_empty())
    }

    /// Returns whether one more thread that ends is to be learned from: of many short ones, some.
    pub fn wants_another(&mut self) -> bool {
        self.ended += 1;
        self.ended <= ALL_OF || self.ended.is_multiple_of(ONE_IN)
    }

    /// Running threads have been looked at, from `began` to `end`.
    pub fn note_look(&mut self, began: Instant, end: Instant) {
        self.looked = Some((end, end - began));
    }

    /// The profile of everything learned, with what `threads` say at the moment.
    pub fn profile<'a>(
        &self,
        cache: &CodeCache,
        threads: impl Iterator<Item = Context<'a>>,
    ) -> ExecutionProfile {
        let mut all = self.clone();
        for context in threads {
            all.take(cache.counters(), context, true);
        }
        let counts = all.counts.into_iter().enumerate().filter(|(_, count)| *count != 0);
        ExecutionProfile::of_counters(cache, counts, all.targets.into_iter())
    }
}
