//! Stacks of instructions: the recorded ones, those of measured contexts, or such as numbers of calls
//! suggest.
//!
//! Of measured contexts it is known what each executed in sum, and of each instruction how often it
//! was executed in sum. The table between is filled in proportion to both (see [`table`]).
//!
//! An exact profile without contexts has counts of instructions without callers. Here each count is shared out among
//! the inferred contexts of its function (see [`Inferred`]), in proportion to what the function did
//! in them. A caller stands at the place from which it made most of the calls. What was counted at
//! an instruction, in a thread, is the same in sum: only who called is an estimate.
//!
//! Promise: R51

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::measured::rounded;
use crate::profile::{FunctionId, LocationId, Profile, Sample, ThreadId, Values};
use crate::stacks::Inferred;

/// Stacks of instructions with counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Located {
    /// One row for each stack of each thread.
    pub stacks: Vec<LocatedStack>,
    /// True if the stacks were recorded; otherwise callers are estimates, or, where contexts were
    /// measured, only shares of single instructions are.
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
        if profile.has_contexts() {
            return Self { stacks: measured(profile), recorded: false };
        }
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

/// The measured contexts and the samples of a function in a thread.
#[derive(Default)]
struct Executed<'a> {
    /// Contexts by number.
    contexts: Vec<u32>,
    samples: Vec<&'a Sample>,
}

/// A sample's part in a context, if that is known, by the number of the context.
type Part<'a> = (Option<u32>, &'a Sample, Values);

/// The stacks of measured contexts.
fn measured(profile: &Profile) -> Vec<LocatedStack> {
    let mut executed: BTreeMap<(ThreadId, FunctionId), Executed<'_>> = BTreeMap::new();
    for sample in &profile.samples {
        let function = profile.location(profile.leaf(sample)).function();
        executed.entry((sample.thread, function)).or_default().samples.push(sample);
    }
    for (number, context) in (0u32..).zip(&profile.contexts) {
        if let Some(executed) = executed.get_mut(&(context.thread, context.function))
            && context.instructions > 0
        {
            executed.contexts.push(number);
        }
    }
    let parts: Vec<Part<'_>> =
        executed.into_values().flat_map(|executed| parts(profile, &executed)).collect();
    let deepest = deepest(profile, &parts);
    let stack = |(context, sample, values): Part<'_>| {
        let next = |at: &u32| profile.contexts[*at as usize].caller;
        let around = std::iter::successors(context, next);
        let callers = around.map_while(|at| profile.contexts[at as usize].site).take(deepest);
        let locations = std::iter::once(profile.leaf(sample)).chain(callers).collect();
        LocatedStack { thread: sample.thread, locations, values }
    };
    parts.into_iter().map(stack).collect()
}

/// All locations of measured stacks together: deep recursion must not take a thousand times the
/// memory of its contexts.
const MOST_LOCATIONS: usize = 1 << 25;

/// So many callers a stack can have, the innermost.
fn deepest(profile: &Profile, parts: &[Part<'_>]) -> usize {
    let mut depths: Vec<u32> = Vec::with_capacity(profile.contexts.len());
    for context in &profile.contexts {
        depths.push(context.caller.map_or(0, |caller| depths[caller as usize] + 1));
    }
    let stacks = || parts.iter().filter_map(|part| part.0).map(|context| depths[context as usize]);
    let mut deepest = stacks().max().unwrap_or(0);
    while deepest > 1
        && stacks().map(|depth| depth.min(deepest) as usize).sum::<usize>() > MOST_LOCATIONS
    {
        deepest -= deepest.div_ceil(4);
    }
    deepest as usize
}

/// The samples of a function, shared out among its contexts.
fn parts<'a>(profile: &Profile, executed: &Executed<'a>) -> Vec<Part<'a>> {
    let measured = (0..profile.events.len()).find(|event| profile.measures(*event)).unwrap_or(0);
    let of_context = |number: &u32| profile.contexts[*number as usize].instructions;
    let rows: Vec<u64> = executed.contexts.iter().map(of_context).collect();
    let columns: Vec<u64> =
        executed.samples.iter().map(|sample| sample.values.get(measured)).collect();
    let mut cells = table(&rows, &columns);
    cells.sort_unstable_by_key(|cell| (cell.1, cell.0));
    let mut parts = Vec::with_capacity(cells.len());
    for (column, sample) in executed.samples.iter().enumerate() {
        let (whole, mut given) = (columns[column], Values::zero(profile.events.len()));
        let mut before = 0;
        let first = cells.partition_point(|cell| cell.1 < column);
        for (row, _, count) in cells[first..].iter().take_while(|cell| cell.1 == column) {
            before += count;
            let mut values = Values::zero(profile.events.len());
            for (event, value) in values.0.iter_mut().enumerate() {
                let upto = rounded(sample.values.get(event), before, whole);
                *value = upto - given.0[event];
                given.0[event] = upto;
            }
            parts.push((Some(executed.contexts[*row]), *sample, values));
        }
        // What no context has, and other events of an instruction that none was counted for.
        let left = sample.values.0.iter().zip(&given.0).map(|(all, given)| all - given);
        let left = Values(left.collect());
        if !left.is_zero() {
            let context = executed.contexts.first().copied().filter(|_| whole == 0);
            parts.push((context, *sample, left));
        }
    }
    parts
}

/// Fills a table whose rows and columns have these sums: row, column and count of each cell that is
/// not zero. Cells are the products of their sums, rounded down; what is missing in rows and columns
/// then is filled in from the first to the last. Where the sums of all rows and of all columns
/// differ, the greater ones are not reached.
fn table(rows: &[u64], columns: &[u64]) -> Vec<(usize, usize, u64)> {
    let sum = |counts: &[u64]| counts.iter().map(|count| u128::from(*count)).sum::<u128>();
    let whole = sum(rows).max(sum(columns)).max(1);
    let (mut rows, mut columns) = (rows.to_vec(), columns.to_vec());
    let mut cells = Vec::new();
    if rows.len().saturating_mul(columns.len()) <= MOST_STACKS {
        let sums = columns.clone();
        for (row, left) in rows.iter_mut().enumerate() {
            let sum = *left;
            for (column, of_column) in sums.iter().enumerate() {
                let count = (u128::from(sum) * u128::from(*of_column) / whole) as u64;
                if count > 0 {
                    cells.push((row, column, count));
                    *left -= count;
                    columns[column] -= count;
                }
            }
        }
    }
    let (mut row, mut column) = (0, 0);
    while row < rows.len() && column < columns.len() {
        let count = rows[row].min(columns[column]);
        if count > 0 {
            cells.push((row, column, count));
        }
        rows[row] -= count;
        columns[column] -= count;
        if rows[row] == 0 {
            row += 1;
        } else {
            column += 1;
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::builder::Builder;
    use crate::contexts::ContextKind;
    use crate::profile::{
        CallKind, Context, Event, Frame, Function, Location, Mode, Module, Thread,
    };

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
    fn instructions_have_the_stacks_of_measured_contexts() {
        // main calls a, which calls the leaf, and b, whose leaf is ten times as expensive.
        let mut profile = profile();
        let at = |profile: &Profile, address: u64| {
            let found = profile.locations.iter().position(|it| it.address == address);
            Some(LocationId(found.expect("a location") as u32))
        };
        let made = [
            (None, None, "main", 10),
            (Some(0), at(&profile, 0), "a", 7),
            (Some(1), at(&profile, 100), "leaf", 2),
            (Some(0), at(&profile, 1), "b", 21),
            (Some(3), at(&profile, 200), "leaf", 11),
        ];
        let named = |name: &str| {
            let found = profile.functions.iter().position(|it| it.name == name);
            FunctionId(found.expect("a function") as u32)
        };
        let context = |(caller, site, name, instructions)| Context {
            caller,
            site,
            kind: if caller.is_some() { ContextKind::Call } else { ContextKind::Root },
            function: named(name),
            instructions,
            calls: 1,
            ..Context::default()
        };
        let contexts = made.into_iter().map(context).collect();
        profile.contexts = contexts;
        let mut by_stack: BTreeMap<Vec<u64>, u64> = BTreeMap::new();
        for stack in Located::of(&profile, 0).stacks {
            let address = |id: &LocationId| profile.location(*id).address;
            let mut addresses: Vec<u64> = stack.locations.iter().map(address).collect();
            // By function, what each did is known.
            addresses[0] -= addresses[0] % 100;
            *by_stack.entry(addresses).or_default() += stack.values.get(0);
        }
        let expected: [(&[u64], u64); 5] = [
            (&[0], 10),
            (&[100, 0], 7),
            (&[200, 1], 21),
            (&[300, 100, 0], 2),
            (&[300, 200, 1], 11),
        ];
        assert_eq!(by_stack, expected.map(|(stack, count)| (stack.to_vec(), count)).into());
    }

    proptest! {
        #[test]
        fn tables_have_the_sums_of_their_rows_and_columns(
            rows in prop::collection::vec(0u64..1000, 1..9),
            columns in prop::collection::vec(0u64..1000, 1..9),
        ) {
            let cells = table(&rows, &columns);
            let whole: u64 = rows.iter().sum::<u64>().min(columns.iter().sum());
            prop_assert_eq!(cells.iter().map(|cell| cell.2).sum::<u64>(), whole);
            let row = |row| cells.iter().filter(|cell| cell.0 == row).map(|cell| cell.2).sum::<u64>();
            let column =
                |column| cells.iter().filter(|cell| cell.1 == column).map(|cell| cell.2).sum::<u64>();
            prop_assert!((0..rows.len()).all(|at| row(at) <= rows[at]));
            prop_assert!((0..columns.len()).all(|at| column(at) <= columns[at]));
            if rows.iter().sum::<u64>() >= columns.iter().sum() {
                prop_assert!((0..columns.len()).all(|at| column(at) == columns[at]));
            }
        }
    }

    #[test]
    fn shares_are_rounded_to_the_nearest_and_never_overflow() {
        assert_eq!([rounded(10, 1, 4), rounded(10, 3, 4), rounded(10, 4, 4)], [3, 8, 10]);
        assert_eq!(rounded(u64::MAX, u64::MAX - 1, u64::MAX), u64::MAX - 1);
    }
}
