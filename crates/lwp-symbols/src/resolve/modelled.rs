//! A model's values of every instruction, beside its counts.

use lwp_profile::{BlockEnd, Event, LocationId, Modelled, ThreadExecutions};
use rustc_hash::FxHashMap;

use super::{Resolver, Sums, sums_of};

/// The index of a model's first value.
const FIRST: usize = Event::EXACT.len();

/// The events of a recording that counts everything, in the order of their values.
pub(super) fn events(modelled: bool) -> Vec<Event> {
    let mut events = Event::exact();
    if modelled {
        events.extend(Modelled::events());
    }
    events
}

impl Resolver<'_> {
    /// Adds what is modelled of a thread to the sums of its locations, which have what was counted.
    pub(super) fn model(&mut self, thread: &ThreadExecutions, sums: &mut Vec<Sums>) {
        let mut modelled: FxHashMap<LocationId, Modelled> = FxHashMap::default();
        for misses in &thread.misses {
            let location = self.location_of(misses.at);
            modelled.entry(location).or_default().missed(misses);
        }
        for (at, [runs, not_taken]) in self.conditional(thread) {
            let location = self.location(at.0, at.1, &[]);
            modelled.entry(location).or_default().branched(runs, not_taken);
        }
        for location in modelled.keys() {
            sums_of(sums, *location);
        }
        for (index, sum) in sums.iter_mut().enumerate() {
            let modelled = modelled.get(&LocationId(index as u32)).copied().unwrap_or_default();
            let instructions = u64::try_from(sum[0]).unwrap_or(0);
            for (place, value) in sum[FIRST..].iter_mut().zip(modelled.values(instructions)) {
                *place = i64::try_from(value).unwrap_or(i64::MAX);
            }
        }
    }

    fn location_of(&mut self, (module, address): (Option<u32>, u64)) -> LocationId {
        let module = module.unwrap_or(u32::MAX);
        let address = self.file_address(module, address);
        self.location(module, address, &[])
    }

    /// Conditional branches by module and address in the file: how often executed, how often not
    /// taken. Several blocks may end in the same branch.
    fn conditional(&self, thread: &ThreadExecutions) -> FxHashMap<(u32, u64), [u64; 2]> {
        let mut branches: FxHashMap<(u32, u64), [u64; 2]> = FxHashMap::default();
        let mut add = |module: u32, address: u64, runs: u64, not_taken: u64| {
            let at = (self.same(module), self.file_address(module, address));
            let sum = branches.entry(at).or_default();
            *sum = [sum[0].saturating_add(runs), sum[1].saturating_add(not_taken)];
        };
        for count in &thread.blocks {
            let Some(block) = self.recording.blocks.get(&count.block) else { continue };
            let whole = usize::from(block.counted) >= block.lengths.len();
            if let Some((_, before)) = block.lengths.split_last()
                && block.end == BlockEnd::Conditional
                && whole
            {
                let offset: u64 = before.iter().map(|len| u64::from(*len)).sum();
                let address = block.address.wrapping_add(offset);
                add(block.module, address, count.runs, count.not_taken);
            }
        }
        for jump in thread.jumps.iter().filter(|jump| jump.alone) {
            if jump.end == BlockEnd::Conditional {
                let not_taken = if jump.taken { 0 } else { jump.times };
                add(jump.from.0.unwrap_or(u32::MAX), jump.from.1, jump.times, not_taken);
            }
        }
        branches
    }
}
