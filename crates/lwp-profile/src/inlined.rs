//! Inlined functions, as frames of measured contexts.
//!
//! The place of a call says which inlined functions it was made from. What a context counted itself
//! is only measured as a whole. It is shared out among the functions that were inlined there as the
//! counts of all instructions of the function are, thread by thread. The sums by context and by
//! inlined function are therefore measured; how the two go together is an estimate where a function
//! has several contexts.

use rustc_hash::FxHashMap;

use crate::profile::{Context, FunctionId, LocationId, Profile, ThreadId};

/// Inlined functions of a profile, and counts of one event that are still to be shared out.
pub(crate) struct Inlined {
    /// Functions that are inlined into each other, outermost first. The first chain is empty.
    chains: Vec<Vec<FunctionId>>,
    left: FxHashMap<(ThreadId, FunctionId), Vec<Share>>,
}

/// What instructions of one chain counted.
#[derive(Clone, Copy)]
struct Share {
    chain: usize,
    count: u64,
}

impl Inlined {
    /// With what the instructions of `profile` counted of the event with index `event`.
    pub fn of(profile: &Profile, event: usize) -> Self {
        let mut numbers = FxHashMap::from_iter([(Vec::new(), 0)]);
        let mut left: FxHashMap<_, Vec<Share>> = FxHashMap::default();
        for sample in &profile.samples {
            let count = sample.values.get(event);
            if count == 0 {
                continue;
            }
            let place = profile.leaf(sample);
            let next = numbers.len();
            let chain = *numbers.entry(chain(profile, place).collect()).or_insert(next);
            let function = profile.location(place).function();
            let shares = left.entry((sample.thread, function)).or_default();
            match shares.iter_mut().find(|share| share.chain == chain) {
                Some(share) => share.count = share.count.saturating_add(count),
                None => shares.push(Share { chain, count }),
            }
        }
        left.retain(|_, shares| shares.iter().any(|share| share.chain != 0));
        let mut chains = vec![Vec::new(); numbers.len()];
        for (chain, number) in numbers {
            chains[number] = chain;
        }
        Self { chains, left }
    }

    /// Shares out what a context counted: chains of inlined functions, with the count of each.
    pub fn share(&mut self, context: &Context, count: u64) -> Vec<(&[FunctionId], u64)> {
        let parts = match self.left.get_mut(&(context.thread, context.function)) {
            Some(shares) => take(shares, count),
            None => vec![(0, count)],
        };
        parts.into_iter().map(|(chain, count)| (&self.chains[chain][..], count)).collect()
    }
}

/// The number of each context of `profile`: `call` enters a function from a numbered one, or from
/// none. The inlined functions that a context was called from lie between it and its caller.
pub(crate) fn numbered(
    profile: &Profile,
    mut call: impl FnMut(Option<u32>, FunctionId) -> u32,
) -> Vec<u32> {
    let contexts = &profile.contexts;
    let mut numbers: Vec<u32> = Vec::with_capacity(contexts.len());
    for context in contexts {
        let caller = context.caller.map(|caller| {
            let function = contexts[caller as usize].function;
            let site = context.site.filter(|at| profile.location(*at).function() == function);
            let around = site.into_iter().flat_map(|site| chain(profile, site));
            around.fold(numbers[caller as usize], |at, function| call(Some(at), function))
        });
        numbers.push(call(caller, context.function));
    }
    numbers
}

/// The functions that an instruction is inlined into its function by, outermost first.
fn chain(profile: &Profile, place: LocationId) -> impl Iterator<Item = FunctionId> {
    let frames = &profile.location(place).frames;
    frames.iter().rev().skip(1).map(|frame| frame.function)
}

/// Takes `count` from all shares, by their counts, in whole numbers; so once the counts of all
/// contexts have been taken, nothing is left. What there are no shares for is of no inlined
/// function.
fn take(shares: &mut [Share], count: u64) -> Vec<(usize, u64)> {
    let whole: u128 = shares.iter().map(|share| u128::from(share.count)).sum();
    let shared = u128::from(count).min(whole);
    let part = |share: &Share| (shared * u128::from(share.count)).checked_div(whole).unwrap_or(0);
    let mut parts: Vec<(usize, u64)> =
        shares.iter().map(|share| (share.chain, part(share) as u64)).collect();
    let given: u64 = parts.iter().map(|part| part.1).sum();
    let mut missing = shared as u64 - given;
    for (share, part) in shares.iter_mut().zip(&mut parts) {
        let more = missing.min(u64::from(part.1 < share.count));
        part.1 += more;
        missing -= more;
        share.count -= part.1;
    }
    parts.push((0, count - shared as u64));
    parts.retain(|part| part.1 > 0);
    parts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Promise: R127
        #[test]
        fn whole_counts_are_shared_out_without_a_rest(
            counts in prop::collection::vec(0u64..1000, 1..8),
            cuts in prop::collection::vec(0u64..1000, 0..20),
        ) {
            let whole: u64 = counts.iter().sum();
            let mut shares: Vec<Share> =
                counts.iter().enumerate().map(|(chain, count)| Share { chain, count: *count }).collect();
            let mut sums = vec![0; counts.len()];
            let mut left = whole;
            for cut in cuts.iter().copied().chain([u64::MAX]) {
                let count = cut.min(left);
                left -= count;
                let parts = take(&mut shares, count);
                prop_assert_eq!(parts.iter().map(|part| part.1).sum::<u64>(), count);
                parts.iter().for_each(|(chain, count)| sums[*chain] += count);
            }
            prop_assert_eq!(sums, counts);
            // What is beyond the whole is of no inlined function.
            prop_assert_eq!(take(&mut shares, 7), [(0, 7)]);
        }
    }
}
