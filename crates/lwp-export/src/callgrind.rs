//! Callgrind's output (format version 1): `callgrind_annotate`, KCachegrind.
//!
//! Own costs and numbers of calls are true counts. Where contexts were measured, the inclusive cost
//! of a call is what was executed in it until its caller was called again: so a function's own costs
//! and those of its calls add up to its inclusive cost, also of recursive functions. Otherwise it is
//! an estimate: it assumes that every call of a function costs the same. Calls inside a group of functions that
//! call each other are written with an inclusive cost of zero, because the group's cost is its
//! entries'.
//!
//! Of a profile with recorded stacks, the inclusive cost of a call is what was sampled below it.
//! How often it was made is not known: its number is that of the samples, because readers take the
//! cost of a call that was made 0 times for the caller's own.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write;

use lwp_profile::{
    Call, CallGraph, Event, FunctionId, Inclusive, LocationId, Measured, Profile, Values,
};
use lwp_symbols::FunctionNames;

use crate::{estimate, one_line};

/// Callgrind's short names for our events, and what they are called in full.
#[rustfmt::skip] // A table: one event a line.
const EVENTS: [(&str, &str, &str); 14] = [
    ("instructions",         "Ir",      "Instructions retired"),
    ("branches",             "Br",      "Branches retired"),
    ("branches-taken",       "BrTaken", "Branches taken"),
    ("conditional-branches", "Bc",      "Conditional branches"),
    ("conditional-taken",    "BcTaken", "Conditional branches taken"),
    ("calls",                "Calls",   "Calls"),
    ("returns",              "Rets",    "Returns"),
    ("indirect-branches",    "Bi",      "Indirect branches"),
    ("modelled-load-misses",   "D1mr",    "Loads that missed the first cache, modelled"),
    ("modelled-store-misses",  "D1mw",    "Stores that missed the first cache, modelled"),
    ("modelled-llc-load-misses",      "DLmr",    "Loads that missed all caches, modelled"),
    ("modelled-llc-store-misses",     "DLmw",    "Stores that missed all caches, modelled"),
    ("modelled-mispredictions",       "Bcm",     "Conditional branches mispredicted, modelled"),
    ("modelled-cycles",     "EstCy",   "Estimated cycles, modelled"),
];

/// The form of a profile, as callgrind's own options choose it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    /// Costs have addresses (`--dump-instr`).
    pub addresses: bool,
    /// Costs have lines (`--dump-line`).
    pub lines: bool,
    /// A name is written once, and a number stands for it elsewhere (`--compress-strings`).
    pub numbers_for_names: bool,
    /// The events that are written, by name; all of them where there are none.
    pub events: Vec<&'static str>,
    /// The lines of the header before those about events, in place of ours.
    pub header: Option<String>,
    /// The sums stand behind the costs too.
    pub totals: bool,
}

impl Default for Form {
    fn default() -> Self {
        Self {
            addresses: true,
            lines: true,
            numbers_for_names: true,
            events: Vec::new(),
            header: None,
            totals: false,
        }
    }
}

/// The profile as callgrind would write it.
pub fn render(profile: &Profile) -> String {
    render_as(profile, Form::default())
}

/// The profile as callgrind would write it, in this form.
pub fn render_as(profile: &Profile, form: Form) -> String {
    let mut out = Output::new(profile, form);
    out.header();
    out.functions();
    if out.form.totals {
        let total = out.costs(&profile.total().0);
        out.line(format_args!("\ntotals: {total}"));
    }
    out.text
}

struct Output<'a> {
    profile: &'a Profile,
    form: Form,
    /// Indices of the events to write.
    events: Vec<usize>,
    text: String,
    functions: FunctionNames<'a>,
    names: HashMap<(char, String), usize>,
    graph: CallGraph,
    inclusive: Vec<Inclusive>,
    values: Vec<Values>,
    sampled: Sampled,
    measured: MeasuredCalls,
}

/// Costs of one position, and the calls from there: how many, and what they cost.
struct Row {
    file: String,
    line: u32,
    address: u64,
    values: Values,
    calls: BTreeMap<FunctionId, (u64, Values)>,
}

impl Row {
    fn call(&mut self, to: FunctionId, count: u64, values: &Values) {
        let zero = || (0, Values::zero(values.0.len()));
        let (calls, sum) = self.calls.entry(to).or_insert_with(zero);
        *calls = calls.saturating_add(count);
        sum.add(values);
    }
}

/// Measured calls by place and callee: how often, and what was executed in them until the caller was
/// called again.
type MeasuredCalls = BTreeMap<LocationId, BTreeMap<FunctionId, (u64, Values)>>;

fn measured(profile: &Profile) -> MeasuredCalls {
    let mut out = MeasuredCalls::new();
    let events = profile.events.len();
    for event in 0..events {
        for call in Measured::of(profile, event).map(|all| all.calls()).unwrap_or_default() {
            let Some(site) = call.site else { continue };
            let zero = || (0, Values::zero(events));
            let to = out.entry(site).or_default().entry(call.callee).or_insert_with(zero);
            if event == 0 {
                to.0 = to.0.saturating_add(call.calls);
            }
            to.1.0[event] = to.1.0[event].saturating_add(call.below);
        }
    }
    out
}

/// Sampled values below calls of a function, by the place of the call.
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
    fn new(profile: &'a Profile, form: Form) -> Self {
        let written = |index: &usize| {
            form.events.is_empty() || form.events.contains(&&*profile.events[*index].name)
        };
        let events = (0..profile.events.len()).filter(written).collect();
        let graph = CallGraph::of(profile);
        let estimated = if profile.has_contexts() { 0 } else { profile.events.len() };
        let inclusive = (0..estimated).map(|event| Inclusive::of(profile, &graph, event)).collect();
        Self {
            profile,
            functions: FunctionNames::new(profile, true),
            form,
            events,
            text: String::new(),
            names: HashMap::new(),
            graph,
            inclusive,
            values: profile.by_location(),
            sampled: sampled(profile),
            measured: measured(profile),
        }
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        let _ = writeln!(self.text, "{line}");
    }

    fn header(&mut self) {
        let profile = self.profile;
        self.line(format_args!("# callgrind format"));
        self.line(format_args!("version: 1"));
        match self.form.header.take() {
            Some(header) => self.text.push_str(&header),
            None => self.own_header(),
        }
        let places = match (self.form.addresses, self.form.lines) {
            (true, true) => "instr line",
            (true, false) => "instr",
            (false, _) => "line",
        };
        self.line(format_args!("positions: {places}"));
        let mut shorts = Vec::new();
        for event in self.events.iter().map(|&event| &profile.events[event]) {
            let row = EVENTS.iter().find(|row| row.0 == event.name);
            let (short, long) = match row {
                Some(row) => (row.1.to_owned(), row.2.to_owned()),
                None => (event.name.replace([' ', ':', '-'], "_"), event.name.clone()),
            };
            let _ = writeln!(self.text, "event: {short} : {long}");
            shorts.push(short);
        }
        self.line(format_args!("events: {}", shorts.join(" ")));
        let total = self.costs(&profile.total().0);
        self.line(format_args!("summary: {total}"));
    }

    fn own_header(&mut self) {
        let profile = self.profile;
        self.line(format_args!("creator: lwp-{}", env!("CARGO_PKG_VERSION")));
        let pid = profile.threads.first().map_or(0, |thread| thread.pid);
        self.line(format_args!("pid: {pid}"));
        self.line(format_args!("cmd: {}", one_line(&profile.command)));
        self.line(format_args!("part: 1"));
        match profile.has_stacks() {
            true => self.line(format_args!(
                "desc: Inclusive costs: sampled; numbers of calls are those of samples"
            )),
            false => {
                let how = if profile.has_contexts() { "measured" } else { "estimated" };
                self.line(format_args!("desc: Inclusive costs: {how}; {}", estimate(profile)));
            }
        }
    }

    /// A name with its number, written out the first time. Files and objects have numbers of their
    /// own kind.
    fn name(&mut self, kind: char, name: &str) -> String {
        let name = one_line(name);
        if !self.form.numbers_for_names {
            return name;
        }
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
        let measured: HashSet<FunctionId> =
            profile.contexts.iter().map(|context| context.function).collect();
        for call in profile.calls.iter().filter(|call| !measured.contains(&call.to)) {
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
        let name = self.function_number(function);
        self.line(format_args!("\nob={object}\nfl={file}\nfn={name}"));
        let mut current = own_file.clone();
        for row in self.rows(function, &own_file, locations, calls) {
            if row.file != current {
                let kind = if row.file == own_file { "fe" } else { "fi" };
                current.clone_from(&row.file);
                let name = self.name('f', &row.file);
                self.line(format_args!("{kind}={name}"));
            }
            let place = self.place(row.address, row.line);
            if !row.values.is_zero() {
                let values = self.costs(&row.values.0);
                self.line(format_args!("{place} {values}"));
            }
            for (to, (count, values)) in row.calls {
                self.callee(to, count);
                let values = self.costs(&values.0);
                self.line(format_args!("{place} {values}"));
            }
        }
    }

    /// A position, as the form has it.
    fn place(&self, address: u64, line: u32) -> String {
        match (self.form.addresses, self.form.lines) {
            (true, true) => format!("{address:#x} {line}"),
            (true, false) => format!("{address:#x}"),
            (false, true) => format!("{line}"),
            (false, false) => "0".to_owned(),
        }
    }

    /// Writes the values of a function's locations: of each, or of each line.
    fn rows(
        &mut self,
        function: FunctionId,
        own_file: &str,
        locations: &[LocationId],
        calls: &HashMap<LocationId, Vec<&Call>>,
    ) -> Vec<Row> {
        let profile = self.profile;
        let mut rows: Vec<Row> = Vec::new();
        let mut by_line: HashMap<(String, u32), usize> = HashMap::new();
        for &id in locations {
            let location = profile.location(id);
            let frame = location.frames.first().filter(|_| self.form.lines);
            let (file, line) = frame.map_or(("", 0), |frame| (&*frame.file, frame.line));
            let file = if file.is_empty() { own_file } else { file }.to_owned();
            let next = rows.len();
            let index = match self.form.addresses {
                true => next,
                false => *by_line.entry((file.clone(), line)).or_insert(next),
            };
            if index == next {
                let (address, values) = (location.address, Values::zero(profile.events.len()));
                rows.push(Row { file, line, address, values, calls: BTreeMap::new() });
            }
            let row = &mut rows[index];
            row.values.add(&self.values[id.index()]);
            for call in calls.get(&id).into_iter().flatten() {
                row.call(call.to, call.count, &self.below(call, function));
            }
            for (to, (count, values)) in self.measured.remove(&id).unwrap_or_default() {
                row.call(to, count, &values);
            }
            for (to, values) in self.sampled.remove(&id).unwrap_or_default() {
                row.call(to, self.samples_in(&values), &values);
            }
        }
        rows
    }

    /// The number of samples that values were taken from.
    fn samples_in(&self, values: &Values) -> u64 {
        let events = self.profile.events.iter().zip(&values.0);
        let of_event = |(event, value): (&Event, &u64)| value / event.interval.unwrap_or(1).max(1);
        events.map(of_event).fold(0, u64::saturating_add).max(1)
    }

    /// The inclusive cost of a call, estimated.
    fn below(&self, call: &Call, from: FunctionId) -> Values {
        let together = from == call.to || self.same_group(from, call.to);
        let of = |inclusive: &Inclusive| match together {
            true => 0,
            false => inclusive.of_calls(call.to, call.count).round() as u64,
        };
        Values(self.inclusive.iter().map(of).collect())
    }

    fn function_number(&mut self, id: FunctionId) -> String {
        let name = self.functions.get(id).to_owned();
        self.name('n', &name)
    }

    fn callee(&mut self, to: FunctionId, count: u64) {
        let profile = self.profile;
        let callee = profile.function(to);
        let object = self.name('o', &profile.module_of(to).path);
        let file = self.name('f', &file_of(profile, to));
        let name = self.function_number(to);
        self.line(format_args!("cob={object}\ncfi={file}\ncfn={name}"));
        let place = self.place(callee.address, callee.line);
        self.line(format_args!("calls={count} {place}"));
    }

    /// Costs in the order of the events. The format allows zeros at the end to be left out, but
    /// `callgrind_annotate` complains.
    fn costs(&self, values: &[u64]) -> String {
        let value = |event: &usize| values.get(*event).copied().unwrap_or(0).to_string();
        let words: Vec<String> = self.events.iter().map(value).collect();
        words.join(" ")
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
