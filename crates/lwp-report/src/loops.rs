//! Loops: how often each was entered, how often it went round, and what that took.
//!
//! Loops are found in the code that was executed: natural loops, which have one entry. Executions
//! of instructions and both ways of each branch are exact, and so are the numbers of a loop.

mod code;
mod graph;
mod machine;
mod text;

use std::collections::BTreeMap;

use lwp_profile::{Event, FunctionId, LocationId, Profile, Values};

use crate::beside::{Beside, Estimate};
use crate::chance;
use code::{Code, Executed};

pub use machine::{csv, json};
pub use text::{brief, table};

/// A loop of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loop {
    /// The function that it lies in.
    pub function: FunctionId,
    /// Its first instruction: every way into the loop leads there.
    pub header: LocationId,
    /// The number of loops that it lies in, with itself.
    pub depth: usize,
    /// How often it was entered.
    pub entries: u64,
    /// How often its header was executed. The last iteration of an entry may do no more than find
    /// that the loop is over.
    pub iterations: u64,
    /// Instructions of the loop without those of inner loops, and without what it calls.
    pub own: u64,
    /// Instructions with those of inner loops.
    pub all: u64,
    /// Sampled nanoseconds of the same instructions, if there was a native run.
    pub time: Option<u64>,
}

/// The loops of a profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loops {
    /// The most instructions first.
    pub loops: Vec<Loop>,
    /// Instructions of the whole profile.
    pub total: u64,
    /// Nanoseconds of the whole native run, and those that a sample stands for.
    time: Option<(u64, u64)>,
    /// Cycles with several entries, which are no loops.
    pub irreducible: usize,
}

/// Indices of the events that loops are made of.
#[derive(Clone, Copy, Debug)]
struct Events {
    instructions: usize,
    taken: Option<usize>,
    time: Option<usize>,
}

impl Loops {
    /// The loops of all functions; `None` if executions were not counted.
    pub fn of(profile: &Profile) -> Option<Self> {
        let instructions = profile.event(Event::EXACT[0])?;
        if profile.mode != lwp_profile::Mode::Exact {
            return None;
        }
        let beside = Beside::of(profile, instructions);
        let events = Events {
            instructions,
            taken: profile.event("conditional-taken"),
            time: beside.as_ref().map(|(time, _)| *time),
        };
        let total = profile.total();
        let interval = beside.map_or(1, |(_, beside)| beside.interval);
        let mut found = Self {
            total: total.get(instructions),
            time: events.time.map(|time| (total.get(time), interval)),
            ..Self::default()
        };
        let values = profile.by_location();
        for (function, locations) in by_function(profile, &values, instructions) {
            found.function(profile, function, &Counted { locations, values: &values, events });
        }
        found.loops.sort_by_key(|it| (std::cmp::Reverse(it.own), it.function, it.header));
        Some(found)
    }

    /// The loops of one function, in the order of their code.
    pub fn in_function(&self, profile: &Profile, function: FunctionId) -> Vec<&Loop> {
        let mut found: Vec<&Loop> =
            self.loops.iter().filter(|it| it.function == function).collect();
        found.sort_by_key(|it| (profile.location(it.header).address, it.depth));
        found
    }

    fn function(&mut self, profile: &Profile, function: FunctionId, counted: &Counted<'_>) {
        let entry = profile.function(function).address;
        let code = Code::new(counted.executed(profile), entry);
        let nest = code.graph().loops();
        self.irreducible = self.irreducible.saturating_add(nest.irreducible);
        let mut found: Vec<Loop> = nest
            .loops
            .iter()
            .map(|it| {
                let iterations = code.times(it.header);
                let back = it.latches.iter().map(|latch| code.passed(*latch, it.header));
                let back = back.fold(0, u64::saturating_add);
                Loop {
                    function,
                    header: code.block(it.header)[0].location,
                    entries: iterations.saturating_sub(back),
                    iterations,
                    time: counted.events.time.map(|_| 0),
                    ..Loop::default()
                }
            })
            .collect();
        for (node, innermost) in nest.innermost.iter().enumerate().skip(1) {
            let Some(innermost) = *innermost else { continue };
            let own = counted.sums(code.block(node));
            found[innermost].add_own(own);
            let mut at = Some(innermost);
            while let Some(around) = at {
                found[around].add(own);
                at = nest.loops[around].parent;
            }
        }
        for (at, found) in found.iter_mut().enumerate() {
            found.depth = std::iter::successors(Some(at), |at| nest.loops[*at].parent).count();
        }
        self.loops.extend(found);
    }

    /// Time of an iteration, inner loops included, if there is any.
    pub fn per_iteration(&self, it: &Loop) -> Option<Estimate> {
        let (whole, interval) = self.time?;
        let time = it.time.filter(|time| *time > 0 && it.iterations > 0)?;
        let margin = chance::margin(&[chance::standard_error(time, whole, interval)]);
        let ns = time as f64 / it.iterations as f64;
        Some(Estimate { ns, margin: 100.0 * margin / time as f64 })
    }

    /// Returns whether there was a native run, whose time is known.
    pub fn has_time(&self) -> bool {
        self.time.is_some()
    }
}

impl Loop {
    /// Iterations of each entry, on average.
    pub fn per_entry(&self) -> Option<f64> {
        (self.entries > 0).then(|| self.iterations as f64 / self.entries as f64)
    }

    fn add_own(&mut self, sums: Sums) {
        self.own = self.own.saturating_add(sums.instructions);
    }

    fn add(&mut self, sums: Sums) {
        self.all = self.all.saturating_add(sums.instructions);
        self.time = self.time.map(|time| time.saturating_add(sums.time));
    }
}

/// What a block has executed, and its time.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    instructions: u64,
    time: u64,
}

/// A function's locations, and what was counted there.
struct Counted<'a> {
    locations: Vec<LocationId>,
    values: &'a [Values],
    events: Events,
}

impl Counted<'_> {
    fn executed(&self, profile: &Profile) -> Vec<Executed> {
        let executed = |&id: &LocationId| {
            let values = &self.values[id.index()];
            let taken = self.events.taken.map_or(0, |event| values.get(event));
            Executed::new(profile, id, values.get(self.events.instructions), taken)
        };
        self.locations.iter().map(executed).collect()
    }

    fn sums(&self, block: &[Executed]) -> Sums {
        let add = |sums: Sums, it: &Executed| {
            let values = &self.values[it.location.index()];
            let time = self.events.time.map_or(0, |event| values.get(event));
            Sums {
                instructions: sums.instructions.saturating_add(it.times),
                time: sums.time.saturating_add(time),
            }
        };
        block.iter().fold(Sums::default(), add)
    }
}

/// The executed locations of each function.
fn by_function(
    profile: &Profile,
    values: &[Values],
    instructions: usize,
) -> BTreeMap<FunctionId, Vec<LocationId>> {
    let mut all: BTreeMap<FunctionId, Vec<LocationId>> = BTreeMap::new();
    for (index, location) in profile.locations.iter().enumerate() {
        if values[index].get(instructions) > 0 && !location.bytes.is_empty() {
            all.entry(location.function()).or_default().push(LocationId(index as u32));
        }
    }
    all
}
