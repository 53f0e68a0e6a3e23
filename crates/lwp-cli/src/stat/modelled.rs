//! A model's values of a run, beside its counts: cache misses and mispredicted branches.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lwp_profile::Modelled;
use lwp_vcpu::profile::{Block, BlockEnd, Module, Sample, Sink, ThreadExecutions};
use rustc_hash::FxHashMap;

use crate::recorded;

/// A model's values of every thread, by the index of its process and its number.
pub type Models = BTreeMap<(usize, i32), Modelled>;

/// Receives what was executed, and keeps what a model wants of it.
#[derive(Clone, Debug, Default)]
pub struct Modelling {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// Places of the conditional branches at the ends of blocks, by block.
    branches: FxHashMap<u32, Place>,
    /// By serial number; a later report replaces the earlier one.
    threads: BTreeMap<u32, (usize, i32, Modelled)>,
}

type Place = (Option<u32>, u64);

impl Modelling {
    /// Returns the values of all threads.
    pub fn finish(&self) -> Models {
        let mut models = Models::new();
        for (image, tid, modelled) in self.state().threads.values() {
            models.entry((*image, *tid)).or_default().add(modelled);
        }
        models
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn model(&self, thread: &ThreadExecutions) -> Modelled {
        let mut modelled = Modelled::default();
        thread.misses.iter().for_each(|misses| modelled.missed(&recorded::misses(misses)));
        let mut branches: FxHashMap<Place, [u64; 2]> = FxHashMap::default();
        let ends = thread.blocks.iter().filter_map(|count| {
            self.branches.get(&count.block).map(|at| (*at, count.runs, count.not_taken))
        });
        let alone = thread.jumps.iter().filter(|jump| jump.alone).filter_map(|jump| {
            let not_taken = if jump.taken { 0 } else { jump.times };
            let conditional = jump.end == BlockEnd::Conditional;
            conditional.then_some(((jump.from.module, jump.from.address), jump.times, not_taken))
        });
        for (at, runs, not_taken) in ends.chain(alone) {
            // Several blocks may end in the same branch.
            let sum = branches.entry(at).or_default();
            *sum = [sum[0].saturating_add(runs), sum[1].saturating_add(not_taken)];
        }
        branches.values().for_each(|[runs, not_taken]| modelled.branched(*runs, *not_taken));
        modelled
    }
}

impl Sink for Modelling {
    fn module(&mut self, _module: &Module) {}

    fn blocks(&mut self, blocks: &[Block]) {
        let mut state = self.state();
        for block in blocks {
            let whole = usize::from(block.counted) >= block.lengths.len();
            if let Some((_, before)) = block.lengths.split_last()
                && block.end == BlockEnd::Conditional
                && whole
            {
                let offset: u64 = before.iter().map(|len| u64::from(*len)).sum();
                let at = (Some(block.module), block.pc.wrapping_add(offset));
                state.branches.insert(block.id, at);
            }
        }
    }

    fn thread(&mut self, thread: &ThreadExecutions) {
        let mut state = self.state();
        let modelled = state.model(thread);
        state.threads.insert(thread.serial, (thread.image as usize, thread.tid, modelled));
    }

    fn sample(&mut self, _sample: &Sample<'_>) {}
}
