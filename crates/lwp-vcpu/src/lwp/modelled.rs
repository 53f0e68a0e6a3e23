//! Misses of modelled data caches by instruction, from which times are estimated.
//!
//! A thread that counts misses has a sampler without events, so that translated code models the
//! first level and logs its misses, but does nothing else for LWP. The outer levels process the log
//! in order.

use lwp_arch::retired::{Access, AccessKind};
use lwp_run::config::{Config, LwpConfig};
use lwp_uarch::Caches;
use rustc_hash::FxHashMap;

use super::Sampling;
use crate::machine::Thread;
use crate::profile::Misses;

/// The misses of a thread.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    /// The latency of what no level has.
    memory_cycles: u32,
    /// Since counting was last switched, by address.
    fresh: FxHashMap<u64, Misses>,
    /// The misses counted before.
    kept: FxHashMap<u64, Misses>,
}

impl Tally {
    /// Of caches like these.
    pub fn new(caches: &Caches) -> Self {
        let memory_cycles = caches.memory.latency_cycles;
        Self { memory_cycles, fresh: FxHashMap::default(), kept: FxHashMap::default() }
    }

    /// An access of the instruction at `ip`.
    pub fn add(&mut self, ip: u64, access: &Access) {
        let Some(miss) = access.miss else { return };
        let memory = u64::from(miss.latency_cycles >= self.memory_cycles);
        let misses = self.fresh.entry(ip).or_default();
        match access.kind {
            AccessKind::Load => {
                misses.loads += 1;
                misses.memory_loads += memory;
            }
            AccessKind::Store => {
                misses.stores += 1;
                misses.memory_stores += memory;
            }
            // Nobody waits for a prefetch.
            AccessKind::Prefetch => {}
        }
    }

    /// Counting is being switched.
    pub(super) fn switch(&mut self, off: bool) {
        let fresh = std::mem::take(&mut self.fresh);
        if off {
            fresh
                .into_iter()
                .for_each(|(ip, misses)| add(self.kept.entry(ip).or_default(), misses));
        }
    }
}

fn add(sum: &mut Misses, more: Misses) {
    sum.loads += more.loads;
    sum.stores += more.stores;
    sum.memory_loads += more.memory_loads;
    sum.memory_stores += more.memory_stores;
}

/// The configuration that watches the caches for a run that samples or models.
pub fn watched_config(run: &Config) -> LwpConfig {
    let mut config = LwpConfig::default();
    if let Some(caches) = &run.model {
        config.caches = caches.clone();
    }
    config
}

impl Tally {
    /// Misses by address, in order; `counting` says whether what has passed since the last switch
    /// counts.
    fn misses(&self, counting: bool) -> Vec<(Option<u32>, u64, Misses)> {
        let mut sums = self.kept.clone();
        if counting {
            self.fresh.iter().for_each(|(ip, misses)| add(sums.entry(*ip).or_default(), *misses));
        }
        let missed = sums.into_iter().filter(|(_, misses)| *misses != Misses::default());
        let mut missed: Vec<_> = missed.map(|(ip, misses)| (None, ip, misses)).collect();
        missed.sort_unstable_by_key(|(_, ip, _)| *ip);
        missed
    }

    /// Forgets all misses.
    pub(super) fn forget(&mut self) {
        self.fresh.clear();
        self.kept.clear();
    }
}

impl Sampling {
    /// Returns whether it matters which level of the caches has what the first has not: samples do
    /// not say.
    pub(super) fn needs_levels(&self) -> bool {
        self.sampler.is_none() || self.tally.is_some()
    }

    /// The instruction at `ip` has missed and passed. Returns whether the miss counts for what is
    /// sampled.
    pub(super) fn miss_passes(&mut self, ip: u64, access: &Access) -> bool {
        if let Some(tally) = &mut self.tally {
            tally.add(ip, access);
            return false;
        }
        access.kind == AccessKind::Load
    }
}

impl Thread {
    /// The misses of the thread by address, in order.
    pub fn misses(&self) -> Vec<(Option<u32>, u64, Misses)> {
        let tally = self.lwp.as_ref().and_then(|lwp| lwp.sampling.tally.as_ref());
        tally.map(|tally| tally.misses(self.account.counting)).unwrap_or_default()
    }
}
