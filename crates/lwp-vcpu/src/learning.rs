//! Learns where a program spends its time: collects execution profiles while it runs, and stores
//! them beside its translations, so that its code can be laid out along the paths that it takes.

use std::time::Instant;

use lwp_code::family::{Family, Module, UnitId};
use lwp_dbt::ExecutionProfile;
use lwp_mailbox::contexts::Contexts;
use lwp_process::Tid;

use crate::background_save::Keeper;
use crate::machine::{CodeCaches, Tasks};

/// Most threads that are looked at each time.
const LOOKED_AT: usize = 64;

impl CodeCaches {
    /// Takes in what a thread's counters say before they are cleared.
    pub fn learn_from(&mut self, tasks: &Tasks, contexts: &Contexts, tid: Tid) {
        let Some(thread) = tasks.threads.get(&tid) else { return };
        let slot = thread.slot;
        let long = self.saving.has_become_long(tid, thread.account.started);
        let Some(index) = tasks.space_index(tid) else { return };
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
            family.learned.note_look(began, end);
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
