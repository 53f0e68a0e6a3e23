//! Callgrind's output (format version 1): `callgrind_annotate`, KCachegrind.
//!
//! Own costs and numbers of calls are true counts. The inclusive cost of a call is an estimate: it
//! assumes that every call of a function costs the same. Calls inside a group of functions that call
//! each other are written with an inclusive cost of zero, because the group's cost is its entries'.
//!
//! Of a profile with recorded stacks, the inclusive cost of a call is what was sampled below it; how
//! often it was made is not known and written as 0.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

use lwp_profile::{Call, CallGraph, FunctionId, Inclusive, LocationId, Profile, Values};
use lwp_symbols::function_name;

use crate::{INFERRED, one_line};

/// Callgrind's short names for our events, and what they are called in full.
#[rustfmt::skip] // A table: one event a line.
const EVENTS: [(&str, &str, &str); 8] = [
    ("instructions",         "Ir",      "Instructions retired"),
    ("branches",             "Br",      "Branches retired"),
    ("branches-taken",       "BrTaken", "Branches taken"),
    ("conditional-branches", "Bc",      "Conditional branches"),
    ("conditional-taken",    "BcTaken", "Conditional branches taken"),
    ("calls",                "Calls",   "Calls"),
    ("returns",              "Rets",    "Returns"),
    ("indirect-branches",    "Bi",      "Indirect branches"),
];

/// The profile as callgrind would write it.
pub fn render(profile: &Profile) -> String {
    let mut out = Output::new(profile);
    out.header();
    out.functions();
    out.text
}

struct Output<'a> {
    profile: &'a Profile,
    text: String,
    names: HashMap<(char, String), usize>,
    graph: CallGraph,
    inclusive: Vec<Inclusive>,
    values: Vec<Values>,
    sampled: Sampled,
}

/// What was sampled below calls of a function from a place.
type Sampled = BTreeMap<LocationId, BTreeMap<FunctionId, Values>>;

/// The calls on recorded stacks. Where a stack has a call several times, it counts once.
fn sampled(profile: &Profile) -> Sampled {
    let mut out = Sampled::new();
    for sample in &profile.samples {
        let stack = &profile.stacks[sample.stack.index()].locations;
        let mut calls: Vec<(LocationId, FunctionId)> = stack
            .windows(2)
            .map(|pair| (pair[1], profile.location(pair[0]).function()))
            .filter(|(from, to)| profile.location(*from).function() != *to)
            .collect();
        calls.sort_unstable();
        calls.dedup();
        for (from, to) in calls {
            let zero = || Values::zero(profile.events.len());
            out.entry(from).or_default().entry(to).or_insert_with(zero).add(&sample.values);
        }
    }
    out
}

impl<'a> Output<'a> {
    fn new(profile: &'a Profile) -> Self {
        let graph = CallGraph::of(profile);
        let inclusive =
            (0..profile.events.len()).map(|event| Inclusive::of(profile, &graph, event)).collect();
        Self {
            profile,
            text: String::new(),
            names: HashMap::new(),
            graph,
            inclusive,
            values: profile.by_location(),
            sampled: sampled(profile),
        }
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        let _ = writeln!(self.text, "{line}");
    }

    fn header(&mut self) {
        let profile = self.profile;
        self.line(format_args!("# callgrind format"));
        self.line(format_args!("version: 1"));
        self.line(format_args!("creator: lwp-{}", env!("CARGO_PKG_VERSION")));
        let pid = profile.threads.first().map_or(0, |thread| thread.pid);
        self.line(format_args!("pid: {pid}"));
        self.line(format_args!("cmd: {}", one_line(&profile.command)));
        self.line(format_args!("part: 1"));
        match profile.has_stacks() {
            true => self.line(format_args!(
                "desc: Inclusive costs: sampled; numbers of calls are not known"
            )),
            false => self.line(format_args!("desc: Inclusive costs: estimated; {INFERRED}")),
        }
        self.line(format_args!("positions: instr line"));
        let mut shorts = Vec::new();
        for event in &profile.events {
            let row = EVENTS.iter().find(|row| row.0 == event.name);
            let (short, long) = match row {
                Some(row) => (row.1.to_owned(), row.2.to_owned()),
                None => (event.name.replace([' ', ':', '-'], "_"), event.name.clone()),
            };
            self.line(format_args!("event: {short} : {long}"));
            shorts.push(short);
        }
        self.line(format_args!("events: {}", shorts.join(" ")));
        let total = costs(&profile.total().0);
        self.line(format_args!("summary: {total}"));
    }

    /// A name with its number, written out the first time. Files and objects have numbers of their
    /// own kind.
    fn name(&mut self, kind: char, name: &str) -> String {
        let name = one_line(name);
        let next = self.names.len() + 1;
        match self.names.get(&(kind, name.clone())) {
            Some(number) => format!("({number})"),
            None => {
                self.names.insert((kind, name.clone()), next);
                format!("({next}) {name}")
            }
        }
    }

    fn functions(&mut self) {
        let profile = self.profile;
        let mut by_function: BTreeMap<FunctionId, Vec<LocationId>> = BTreeMap::new();
        for (index, location) in profile.locations.iter().enumerate() {
            let id = LocationId(index as u32);
            by_function.entry(location.function()).or_default().push(id);
        }
        let mut calls: HashMap<LocationId, Vec<&Call>> = HashMap::new();
        for call in &profile.calls {
            if let Some(from) = call.from {
                calls.entry(from).or_default().push(call);
            }
        }
        for (function, locations) in by_function {
            self.function(function, &locations, &calls);
        }
    }

    fn function(
        &mut self,
        function: FunctionId,
        locations: &[LocationId],
        calls: &HashMap<LocationId, Vec<&Call>>,
    ) {
        let profile = self.profile;
        let object = self.name('o', &profile.module_of(function).path);
        let own_file = file_of(profile, function);
        let file = self.name('f', &own_file);
        let name = self.name('n', &function_name(profile, function, true));
        self.line(format_args!("\nob={object}\nfl={file}\nfn={name}"));
        let mut current = own_file.clone();
        for &id in locations {
            let location = profile.location(id);
            let frame = location.frames.first();
            let (file, line) = frame.map_or(("", 0), |frame| (&*frame.file, frame.line));
            let file = if file.is_empty() { own_file.as_str() } else { file };
            if file != current {
                let kind = if file == own_file { "fe" } else { "fi" };
                current = file.to_owned();
                let name = self.name('f', file);
                self.line(format_args!("{kind}={name}"));
            }
            let address = location.address;
            if !self.values[id.index()].is_zero() {
                let values = costs(&self.values[id.index()].0);
                self.line(format_args!("{address:#x} {line} {values}"));
            }
            for call in calls.get(&id).into_iter().flatten() {
                self.call(call, function, address, line);
            }
            for (to, values) in self.sampled.remove(&id).unwrap_or_default() {
                self.callee(to, 0);
                self.line(format_args!("{address:#x} {line} {}", costs(&values.0)));
            }
        }
    }

    fn call(&mut self, call: &Call, from: FunctionId, address: u64, line: u32) {
        self.callee(call.to, call.count);
        let together = from == call.to || self.same_group(from, call.to);
        let values: Vec<u64> = self
            .inclusive
            .iter()
            .map(|inclusive| match together {
                true => 0,
                false => inclusive.of_calls(call.to, call.count).round() as u64,
            })
            .collect();
        let values = costs(&values);
        self.line(format_args!("{address:#x} {line} {values}"));
    }

    fn callee(&mut self, to: FunctionId, count: u64) {
        let profile = self.profile;
        let callee = profile.function(to);
        let object = self.name('o', &profile.module_of(to).path);
        let file = self.name('f', &file_of(profile, to));
        let name = self.name('n', &function_name(profile, to, true));
        self.line(format_args!("cob={object}\ncfi={file}\ncfn={name}"));
        self.line(format_args!("calls={count} {:#x} {}", callee.address, callee.line));
    }

    fn same_group(&self, a: FunctionId, b: FunctionId) -> bool {
        self.inclusive.first().is_some_and(|inclusive| inclusive.same_group(a, b))
            && !self.graph.edges.is_empty()
    }
}

fn file_of(profile: &Profile, function: FunctionId) -> String {
    let file = &profile.function(function).file;
    if file.is_empty() { "???".to_owned() } else { file.clone() }
}

/// Costs in the order of the events. The format allows zeros at the end to be left out, but
/// `callgrind_annotate` complains.
fn costs(values: &[u64]) -> String {
    let words: Vec<String> = values.iter().map(u64::to_string).collect();
    words.join(" ")
}
