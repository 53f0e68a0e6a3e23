//! Makes superblocks from frequently executed generated code while the program runs.
//!
//! Generated code, and everything known of it, is gone when the program ends. So when a program has
//! run such code for a while, the host translates it again, with counters. Some time later, those
//! counters show where the time goes.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use lwp_code::family::{Family, UnitId, overlays};
use lwp_code::space::Space;
use lwp_dbt::{CodeCache, ExecutionProfile, Targets};
use lwp_mailbox::contexts::Context;
use lwp_process::Tid;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::guarding;
use crate::machine::{CodeCaches, Machine};

/// Generated code is observed when there has been some for so long.
const WORTH: Duration = Duration::from_millis(200);
/// The time from one look to the next: at least, and at most where nothing new is found.
const LEAST_PAUSE: Duration = Duration::from_millis(50);
const MOST_PAUSE: Duration = Duration::from_secs(5);
/// Fewer executions of blocks between two looks are nothing to go by.
const LEAST_EXECUTIONS: u64 = 500_000;
/// The time that laying superblocks may take at once. The run waits for it.
const AT_ONCE: Duration = Duration::from_millis(10);

/// The knowledge of an address space's generated code.
#[derive(Debug, Default)]
pub struct Generated {
    /// The family that has its translations.
    family: usize,
    stage: Stage,
    /// The counts at the last look, by counter, from the first one on that is looked at.
    counts: Vec<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
enum Stage {
    /// There is none.
    #[default]
    None,
    /// It is to be observed from then on, if it is still there.
    New(Instant),
    /// Counters from `first` on count its executions.
    Observed { first: usize, next: Instant, pause: Duration },
}

/// The counters of an address space, as they are now.
struct Counted {
    counts: Vec<u64>,
    targets: FxHashMap<usize, Targets>,
}

impl Counted {
    /// Nothing yet, of the counters from `first` on.
    fn new(first: usize, cache: &CodeCache) -> Self {
        let counts = vec![0; cache.counters().len().saturating_sub(first)];
        Self { counts, targets: FxHashMap::default() }
    }

    /// Adds what a thread has counted.
    fn add(&mut self, first: usize, cache: &CodeCache, context: Context<'_>) {
        let counters = cache.counters();
        context.counters().for_each(first + self.counts.len(), |number, value| {
            let Some(place) = number.checked_sub(first) else { return };
            match counters.role(number).and_then(|role| role.held(value)) {
                Some(target) => self.targets.entry(number).or_default().note(target, 1),
                None => self.counts[place] = self.counts[place].saturating_add(value),
            }
        });
    }

    /// The executions since there were `before`.
    fn since(self, first: usize, before: &[u64], cache: &CodeCache) -> ExecutionProfile {
        let before = before.iter().copied().chain(std::iter::repeat(0));
        let since = self.counts.iter().zip(before).map(|(now, before)| now.saturating_sub(before));
        let since = since.enumerate().filter(|(_, count)| *count != 0);
        let since = since.map(|(place, count)| (first + place, count));
        ExecutionProfile::of_counters(cache, since, self.targets.into_iter())
    }
}

/// Looks which generated code is executed often, where that is due, and lays superblocks over it.
pub fn improve(machine: &mut Machine) {
    let worth = machine.config.trials.improve.map_or(WORTH, |after| after.min(WORTH));
    let now = Instant::now();
    for index in 0..machine.caches.spaces.len() {
        let Some((space, family)) = machine.caches.side(index) else { continue };
        if !family.translator.learns() || !has_generated(space, family) {
            continue;
        }
        let family = space.family;
        let known = machine.caches.generated.remove(&index);
        let known = known.filter(|known| known.family == family);
        let mut known = known.unwrap_or(Generated { family, ..Generated::default() });
        match known.stage {
            Stage::None => known.stage = Stage::New(now + worth),
            Stage::New(at) if at <= now => known.stage = observe(&mut machine.caches, index),
            Stage::Observed { first, next, pause } if next <= now => {
                let found = look(machine, index, first, &mut known.counts);
                let pause = if found { LEAST_PAUSE } else { (pause * 2).min(MOST_PAUSE) };
                known.stage = Stage::Observed { first, next: Instant::now() + pause, pause };
            }
            _ => {}
        }
        machine.caches.generated.insert(index, known);
    }
}

/// Lays superblocks over what has been executed often since the counters from `first` on were
/// `counts`, which they now are. Returns whether there was anything.
pub(super) fn look(
    machine: &mut Machine,
    index: usize,
    first: usize,
    counts: &mut Vec<u64>,
) -> bool {
    let threads = machine.tasks.threads_in(index);
    let Some((_, family)) = machine.caches.side(index) else { return false };
    let mut counted = Counted::new(first, &family.code_cache);
    for context in threads.iter().filter_map(|tid| machine.tasks.context(&machine.contexts, *tid)) {
        counted.add(first, &family.code_cache, context);
    }
    let before = std::mem::replace(counts, counted.counts.clone());
    let profile = counted.since(first, &before, &family.code_cache);
    let Some(tid) = threads.first() else { return false };
    // Superblocks are laid over guarded pages alone.
    guarding::tell_again(machine, *tid);
    let Some((space, family)) = machine.caches.side(index) else { return false };
    lay_over(space, family, *tid, &profile)
}

/// Returns whether an address space has executed any generated code.
fn has_generated(space: &Space, family: &Family) -> bool {
    let units = space.code.private_units();
    units.iter().any(|id| !family.modules[*id].unit.fragments.is_empty())
}

/// Has the generated code of an address space translated anew, with counters.
fn observe(caches: &mut CodeCaches, index: usize) -> Stage {
    let Some((space, family)) = caches.side(index) else { return Stage::None };
    family.translator.learn_changing();
    for unit in space.code.private_units() {
        overlays::translate_anew(family, unit);
    }
    let first = family.code_cache.counters().len();
    Stage::Observed { first, next: Instant::now() + LEAST_PAUSE, pause: LEAST_PAUSE }
}

/// Lays superblocks over the generated code of an address space that is hot by `profile`. Returns
/// whether there was any.
fn lay_over(space: &Space, family: &mut Family, tid: Tid, profile: &ExecutionProfile) -> bool {
    let units = units(space, profile);
    let executions = units.values().map(|(_, profile)| profile.executions());
    if executions.fold(0, u64::saturating_add) < LEAST_EXECUTIONS {
        return false;
    }
    let began = Instant::now();
    let mut found = false;
    for (mappings, profile) in units.into_values() {
        let known = mappings.into_iter().filter_map(|start| space.code.at(start));
        let code: Vec<_> =
            known.map(|(start, range)| space.code_to_translate(start, range)).collect();
        let enough = || began.elapsed() > AT_ONCE;
        found |= overlays::lay(family, (&code, tid), &profile, enough);
    }
    found
}

/// The mappings and the executions of each unit of generated code.
type Units = FxHashMap<UnitId, (BTreeSet<u64>, ExecutionProfile)>;

/// The part of `profile` that is generated code, by unit, with the mappings that it lies in.
fn units(space: &Space, profile: &ExecutionProfile) -> Units {
    let private: FxHashSet<UnitId> = space.code.private_units().into_iter().collect();
    let mut units = Units::default();
    for (pc, block) in profile.iter() {
        let Some((start, code)) = space.code.at(pc.0) else { continue };
        if private.contains(&code.unit) {
            let (mappings, profile) = units.entry(code.unit).or_default();
            mappings.insert(start);
            profile.set(pc, *block);
        }
    }
    units
}
