//! Learning where a program spends its time: execution profiles, collected while it runs and kept
//! beside its translations, so that its code can be laid out along the paths that it takes.

use std::time::{Duration, Instant};

use lwp_dbt::{CodeCache, Counters, ExecutionProfile, Targets};
use lwp_process::Tid;
use rustc_hash::FxHashMap;

use crate::contexts::{Context, Contexts};
use crate::family::{Family, Module, UnitId};
use crate::machine::{CodeCaches, Tasks};
use crate::saving::Keeper;

/// The most counters that are looked at for the targets of indirect branches.
const MOST_TARGETS: usize = 1 << 16;

/// Most threads that are looked at each time.
const LOOKED_AT: usize = 64;

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
    fn take(&mut self, counters: &Counters, context: Context<'_>, ended: bool) {
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
    fn looks(&self, counters: &Counters) -> bool {
        let (known, holding) = &self.holding;
        let due = self.looked.is_none_or(|(at, took)| at.elapsed() >= took * PART_OF_TIME);
        due && (*known != counters.len() || !holding.is_empty())
    }

    /// Returns whether one more thread that ends is to be learned from: of many short ones, some.
    fn wants_another(&mut self) -> bool {
        self.ended += 1;
        self.ended <= ALL_OF || self.ended.is_multiple_of(ONE_IN)
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

impl CodeCaches {
    /// Takes in what a thread's counters say before they are cleared.
    pub fn learn_from(&mut self, tasks: &Tasks, contexts: &Contexts, tid: Tid) {
        let Some(thread) = tasks.threads.get(&tid) else { return };
        let (slot, long) = (thread.slot, self.saving.is_long(thread.account.started));
        let Some(index) = tasks.space_index(tid) else { return };
        self.saving.long |= long;
        let Some((_, family)) = self.side(index) else { return };
        // What is known of programs that end soon is not going to change by this run.
        let new = |(_, module): (UnitId, &Module)| module.unit.new_fragments() > 0;
        if !family.translator.learns() || !long && !family.modules.iter().any(new) {
            return;
        }
        if family.learned.wants_another() {
            let context = contexts.context(slot);
            family.learned.take(family.code_cache.counters(), context, true);
        }
    }
}

impl Keeper<'_> {
    /// Looks where the indirect branches of threads lead at the moment: of all, or of some where
    /// there are many.
    pub fn look_at_targets(&mut self) {
        let looks = |family: &Family| {
            family.translator.learns() && family.learned.looks(family.code_cache.counters())
        };
        if !self.caches.families.iter().flatten().any(looks) {
            return;
        }
        let began = Instant::now();
        let threads = self.tasks.threads.iter().take(LOOKED_AT);
        let threads: Vec<(Tid, usize)> = threads.map(|(tid, it)| (*tid, it.slot)).collect();
        for (tid, slot) in threads {
            let Some(index) = self.tasks.space_index(tid) else { continue };
            let Some((_, family)) = self.caches.side(index) else { continue };
            if family.translator.learns() {
                let context = self.contexts.context(slot);
                family.learned.take(family.code_cache.counters(), context, false);
            }
        }
        let end = Instant::now();
        for family in self.caches.families.iter_mut().flatten() {
            family.learned.looked = Some((end, end - began));
        }
    }

    /// The profile of a family so far.
    pub fn learned(&self, family: usize) -> Option<ExecutionProfile> {
        let known = self.caches.families.get(family)?.as_ref()?;
        if !known.translator.learns() {
            // It may still be laid out by what others have learned.
            return known.translator.uses_profiles().then(ExecutionProfile::default);
        }
        let mut slots = Vec::new();
        for (tid, thread) in &self.tasks.threads {
            let space = self.tasks.space_index(*tid);
            let space = space.and_then(|index| self.caches.spaces.get(index)?.as_ref());
            if space.is_some_and(|space| space.family == family) {
                slots.push(thread.slot);
            }
        }
        let contexts = slots.into_iter().map(|slot| self.contexts.context(slot));
        Some(known.learned.profile(&known.code_cache, contexts))
    }
}
