//! Stacks of instructions: the recorded ones, or such as numbers of calls suggest.
//!
//! An exact profile has counts of instructions without callers. Here each count is shared out among
//! the inferred contexts of its function (see [`Inferred`]), in proportion to what the function did
//! in them. A caller stands at the place from which it made most of the calls. What was counted at
//! an instruction, in a thread, is the same in sum: only who called is an estimate.

use std::collections::HashMap;
use std::sync::Arc;

use crate::profile::{FunctionId, LocationId, Profile, Sample, ThreadId, Values};
use crate::stacks::Inferred;

/// Stacks of instructions with counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Located {
    /// One row for each stack of each thread.
    pub stacks: Vec<LocatedStack>,
    /// True if the stacks were recorded; otherwise callers are estimates.
    pub recorded: bool,
}

/// One stack in one thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocatedStack {
    /// The thread that executed it.
    pub thread: ThreadId,
    /// Locations, innermost first.
    pub locations: Arc<[LocationId]>,
    /// The counts of the innermost one.
    pub values: Values,
}

/// So many stacks a function can have: contexts times instructions. Where there would be more, the
/// smallest contexts are counted with the others.
const MOST_STACKS: usize = 50_000;

impl Located {
    /// The stacks of `profile`. Contexts are those that the event with index `event` suggests.
    pub fn of(profile: &Profile, event: usize) -> Self {
        if profile.calls.is_empty() {
            let recorded = |sample: &Sample| LocatedStack {
                thread: sample.thread,
                locations: Arc::clone(&profile.stacks[sample.stack.index()].locations),
                values: sample.values.clone(),
            };
            return Self { stacks: profile.samples.iter().map(recorded).collect(), recorded: true };
        }
        let sites = busiest_sites(profile);
        let mut contexts: HashMap<FunctionId, Vec<Context>> = HashMap::new();
        for stack in Inferred::of(profile, event).stacks {
            let Some(&function) = stack.functions.last() else { continue };
            let callers = callers(&stack.functions, &sites);
            contexts.entry(function).or_default().push(Context { callers, values: stack.values });
        }
        let mut of_function: HashMap<FunctionId, Vec<&Sample>> = HashMap::new();
        for sample in &profile.samples {
            let function = profile.location(profile.leaf(sample)).function();
            of_function.entry(function).or_default().push(sample);
        }
        let mut functions: Vec<FunctionId> = of_function.keys().copied().collect();
        functions.sort_unstable();
        let mut stacks = Vec::with_capacity(profile.samples.len());
        for function in functions {
            let contexts = contexts.remove(&function).unwrap_or_default();
            share_out(profile, &of_function[&function], contexts, &mut stacks);
        }
        Self { stacks, recorded: false }
    }
}

/// The callers of a function, and what it did then.
struct Context {
    /// Places of calls, innermost first.
    callers: Vec<LocationId>,
    values: Values,
}

/// The place from which each function called another most often; the first of several.
fn busiest_sites(profile: &Profile) -> HashMap<(FunctionId, FunctionId), LocationId> {
    let mut sites: HashMap<(FunctionId, FunctionId), (u64, LocationId)> = HashMap::new();
    for call in &profile.calls {
        let Some(site) = call.from else { continue };
        let caller = profile.location(site).function();
        let best = sites.entry((caller, call.to)).or_insert((call.count, site));
        if call.count > best.0 || (call.count == best.0 && site < best.1) {
            *best = (call.count, site);
        }
    }
    sites.into_iter().map(|(edge, (_, site))| (edge, site)).collect()
}

/// The places of the calls along a path of functions, innermost first. Who called from nowhere
/// known is the outermost.
fn callers(
    path: &[FunctionId],
    sites: &HashMap<(FunctionId, FunctionId), LocationId>,
) -> Vec<LocationId> {
    let calls = path.windows(2).rev();
    calls.map_while(|pair| sites.get(&(pair[0], pair[1])).copied()).collect()
}

/// Shares the counts of a function's instructions out among its contexts.
///
/// The n-th context gets what lies between the first n - 1 contexts' share of a count and the first
/// n ones', both rounded: so the parts are whole and their sum is the count.
fn share_out(
    profile: &Profile,
    samples: &[&Sample],
    mut contexts: Vec<Context>,
    out: &mut Vec<LocatedStack>,
) {
    let events = profile.events.len();
    contexts.sort_by(|a, b| b.values.0.cmp(&a.values.0).then_with(|| a.callers.cmp(&b.callers)));
    contexts.truncate((MOST_STACKS / samples.len().max(1)).max(1));
    let mut whole = Values::zero(events);
    contexts.iter().for_each(|context| whole.add(&context.values));
    for sample in samples {
        let leaf = profile.leaf(sample);
        let mut before = Values::zero(events);
        let mut given = Values::zero(events);
        for (index, context) in contexts.iter().enumerate() {
            before.add(&context.values);
            let last = index + 1 == contexts.len();
            let mut values = Values::zero(events);
            for event in 0..events {
                let count = sample.values.get(event);
                let upto = match whole.get(event) {
                    _ if last => count,
                    0 => 0,
                    whole => rounded(count, before.get(event), whole),
                };
                values.0[event] = upto.saturating_sub(given.get(event));
                given.0[event] = upto.max(given.get(event));
            }
            if !values.is_zero() {
                let locations = std::iter::once(leaf).chain(context.callers.iter().copied());
                let locations = locations.collect();
                out.push(LocatedStack { thread: sample.thread, locations, values });
            }
        }
        if contexts.is_empty() {
            let (thread, values) = (sample.thread, sample.values.clone());
            out.push(LocatedStack { thread, locations: [leaf].into(), values });
        }
    }
}

/// `part` of `whole` of `count`, to the nearest.
fn rounded(count: u64, part: u64, whole: u64) -> u64 {
    let (count, part, whole) = (u128::from(count), u128::from(part), u128::from(whole));
    let share = (count * part + whole / 2) / whole;
    u64::try_from(share.min(count)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::builder::Builder;
    use crate::profile::{CallKind, Event, Frame, Function, Location, Mode, Module, Thread};

    /// `main` calls `a` once and `b` three times from two places; both call `leaf`, `a` once, `b`
    /// thrice.
    fn profile() -> Profile {
        let events = vec![Event { name: "instructions".into(), ..Event::default() }];
        let mut builder = Builder::new("c", Mode::Exact, events);
        let module = builder.module(Module { path: "/p".into(), ..Module::default() });
        let function = |builder: &mut Builder, name: &str, address| {
            let function = Function { module, name: name.into(), address, ..Function::default() };
            builder.function(function)
        };
        let ids: Vec<FunctionId> = ["main", "a", "b", "leaf"]
            .iter()
            .enumerate()
            .map(|(at, name)| function(&mut builder, name, at as u64 * 100))
            .collect();
        let thread = builder.thread(Thread::default());
        let mut locations = Vec::new();
        // Function, address, count: 13 in the leaf, at two instructions.
        let places = [(0, 0, 5), (0, 1, 5), (1, 100, 7), (2, 200, 21), (3, 300, 10), (3, 301, 3)];
        for (function, address, count) in places {
            let frames = [Frame { function: ids[function], ..Frame::default() }].into();
            let place = Location { module, address, frames, ..Location::default() };
            let location = builder.location(place);
            let stack = builder.stack(vec![location]);
            builder.sample(thread, stack, &Values([count].into()));
            locations.push(location);
        }
        let calls = [(None, 0, 1), (Some(0), 1, 1), (Some(0), 2, 1), (Some(1), 2, 2)];
        for (from, to, count) in calls.into_iter().chain([(Some(2), 3, 1), (Some(3), 3, 3)]) {
            let from = from.map(|at: usize| locations[at]);
            builder.call(from, ids[to], CallKind::Direct, count);
        }
        builder.finish()
    }

    #[test]
    fn counts_of_instructions_stay_and_callers_share_them() {
        let profile = profile();
        let located = Located::of(&profile, 0);
        assert!(!located.recorded);
        let address = |id: LocationId| profile.location(id).address;
        let mut at: BTreeMap<u64, u64> = BTreeMap::new();
        for stack in &located.stacks {
            *at.entry(address(stack.locations[0])).or_default() += stack.values.get(0);
        }
        assert_eq!(at, BTreeMap::from([(0, 5), (1, 5), (100, 7), (200, 21), (300, 10), (301, 3)]));
        // A fourth of the leaf's calls come from a, the others from b, which main calls from 1 most
        // often.
        let stacks: BTreeMap<Vec<u64>, u64> = located
            .stacks
            .iter()
            .map(|stack| {
                (stack.locations.iter().map(|id| address(*id)).collect(), stack.values.get(0))
            })
            .collect();
        let by_a = stacks[&vec![300, 100, 0]] + stacks.get(&vec![301, 100, 0]).unwrap_or(&0);
        let by_b = stacks[&vec![300, 200, 1]] + stacks[&vec![301, 200, 1]];
        assert_eq!(by_a + by_b, 13);
        assert!((3..=4).contains(&by_a), "{stacks:?}");
        assert_eq!((stacks[&vec![100, 0]], stacks[&vec![200, 1]]), (7, 21));
    }

    #[test]
    fn shares_are_rounded_to_the_nearest_and_never_overflow() {
        assert_eq!([rounded(10, 1, 4), rounded(10, 3, 4), rounded(10, 4, 4)], [3, 8, 10]);
        assert_eq!(rounded(u64::MAX, u64::MAX - 1, u64::MAX), u64::MAX - 1);
    }
}
