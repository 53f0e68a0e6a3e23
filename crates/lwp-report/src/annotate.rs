//! One function's code with counts: source lines, instructions, and where branches went.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use iced_x86::{Decoder, DecoderOptions, FlowControl, Formatter, GasFormatter, Instruction};
use iced_x86::{IntelFormatter, OpKind};
use lwp_profile::{FunctionId, Location, LocationId, Measured, Origin, Profile, Values};
use lwp_symbols::{demangle, ends_in, function_name, last_part, short_name, stable_name};

use crate::arrows::{Arrows, Jump};
use crate::beside::Beside;

/// The form of a listing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Index of the event whose counts are shown.
    pub event: usize,
    /// Intel's syntax instead of AT&T's.
    pub intel: bool,
}

/// Access to source code: lines by number, counted from one.
pub trait Sources {
    /// The text of a line, if the file can be read.
    fn line(&mut self, file: &str, line: u32) -> Option<String>;

    /// A remark on a file that is not the one that the code was made from.
    fn doubt(&mut self, _file: &str) -> Option<String> {
        None
    }
}

/// A function that an instruction called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Called {
    /// The function's name.
    pub name: String,
    /// Number of calls.
    pub calls: u64,
    /// The event's count while they were in progress, where contexts were measured in it.
    pub cost: Option<u64>,
    /// True if it is the stub of a linkage table, and the function that it leads to is listed too.
    pub stub: bool,
}

/// One line of a listing.
#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    /// A source line that the following instructions belong to.
    Source {
        /// File.
        file: String,
        /// Line.
        line: u32,
        /// Its text, if the file could be read.
        text: Option<String>,
        /// Inlined functions it belongs to, outermost first.
        inlined: Vec<String>,
    },
    /// An instruction.
    Instruction {
        /// Its address as the file has it.
        address: u64,
        /// Its bytes; none where they were not recorded.
        bytes: Vec<u8>,
        /// Its text.
        text: String,
        /// The event's count.
        count: u64,
        /// The count of the event that is told beside it, if there is one.
        beside: Option<u64>,
        /// Executions.
        executed: u64,
        /// Of a conditional branch: how often it was taken.
        taken: Option<u64>,
        /// Jump arrows.
        arrows: String,
        /// The functions it called.
        calls: Vec<Called>,
    },
    /// Start of a copy of the function that was inlined into this one.
    Within {
        /// The function that the copy is a part of.
        function: String,
    },
    /// Bytes that were never executed.
    Gap {
        /// Number of bytes.
        bytes: u64,
    },
}

/// A function's listing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listing {
    /// The function's name.
    pub name: String,
    /// The name of the program or library that holds it.
    pub module: String,
    /// The event's name.
    pub event: String,
    /// The event that is told beside it: time beside instructions, and instructions beside time.
    pub beside: Option<String>,
    /// The function's own count.
    pub total: u64,
    /// The whole profile's count.
    pub whole: u64,
    /// True if executions of every instruction are known.
    pub exact: bool,
    /// True if an interpreter executes the function: it has lines, and each instruction in the
    /// listing stands for one.
    pub interpreted: bool,
    /// Rows of the listing: source, instructions, gaps.
    pub lines: Vec<Line>,
    /// Remarks on source files whose lines may not fit, one a file.
    pub doubts: Vec<String>,
}

/// The functions that `name` can mean: by full name, else by a shorter form, else by a part of it.
/// Functions with code of their own come before those that were only inlined.
pub fn find(profile: &Profile, name: &str) -> Vec<FunctionId> {
    let distinct = |all: &mut dyn Iterator<Item = FunctionId>| -> Vec<FunctionId> {
        let all: BTreeSet<FunctionId> = all.collect();
        all.into_iter().collect()
    };
    let with_code = distinct(&mut profile.locations.iter().map(Location::function));
    let frames = profile.locations.iter().flat_map(|location| location.frames.iter());
    let everywhere = distinct(&mut frames.map(|frame| frame.function));
    let symbol = |id: FunctionId| profile.function(id).name.as_str();
    let full = |id| symbol(id) == name || function_name(profile, id, true) == name;
    let short = |id| stable_name(symbol(id)) == name || short_name(symbol(id)) == name;
    let last = |id| ends_in(&short_name(symbol(id)), name);
    let bare = |id| last_part(&short_name(symbol(id))) == name;
    let part = |id| demangle(symbol(id)).contains(name);
    let tests: [&dyn Fn(FunctionId) -> bool; 4] = [&full, &short, &last, &bare];
    let exact = [&with_code, &everywhere].into_iter().flat_map(|ids| tests.map(|test| (ids, test)));
    let all = exact.chain([(&with_code, &part as &dyn Fn(_) -> _), (&everywhere, &part)]);
    let mut found = all.map(|(ids, test)| ids.iter().copied().filter(|id| test(*id)).collect());
    found.find(|ids: &Vec<FunctionId>| !ids.is_empty()).unwrap_or_default()
}

/// The function, and the functions in the same module that debug information calls by its name: its
/// inlined copies.
fn with_copies(profile: &Profile, id: FunctionId) -> Vec<FunctionId> {
    let function = profile.function(id);
    let name = short_name(&function.name);
    let copies = (0..profile.functions.len() as u32).map(FunctionId).filter(|copy| {
        let other = profile.function(*copy);
        *copy != id
            && other.origin == Origin::Debug
            && other.module == function.module
            && (other.name == function.name || other.name == name)
    });
    std::iter::once(id).chain(copies).collect()
}

/// Returns the locations of a function's code: its own, in order, then those of its copies in
/// others.
fn locations(profile: &Profile, id: FunctionId) -> Vec<LocationId> {
    let ids = with_copies(profile, id);
    let mut found: Vec<LocationId> = (0..profile.locations.len() as u32)
        .map(LocationId)
        .filter(|location| {
            profile.location(*location).frames.iter().any(|frame| ids.contains(&frame.function))
        })
        .collect();
    found.sort_unstable_by_key(|location| {
        let place = profile.location(*location);
        (place.function() != id, place.module, place.function(), place.address)
    });
    found
}

/// Counts of a profile, or of a part of it.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Of every event at every location on its own: one list for all, for there may be millions.
    by_location: Vec<u64>,
    /// Of everything.
    pub total: Values,
}

impl Counts {
    /// Nothing counted yet at the locations of `profile`.
    pub fn none(profile: &Profile) -> Self {
        let events = profile.events.len();
        let by_location = vec![0; profile.locations.len() * events];
        Self { by_location, total: Values::zero(events) }
    }

    /// All that `profile` counts.
    pub fn of(profile: &Profile) -> Self {
        let mut counts = Self::none(profile);
        for sample in &profile.samples {
            counts.add_all(profile.leaf(sample), &sample.values);
        }
        counts
    }

    /// Adds the count of one event at a location.
    pub fn add(&mut self, location: LocationId, event: usize, count: u64) {
        let at = location.index() * self.total.0.len() + event;
        self.by_location[at] = self.by_location[at].saturating_add(count);
        self.total.0[event] = self.total.0[event].saturating_add(count);
    }

    /// Adds the counts of all events at a location.
    pub fn add_all(&mut self, location: LocationId, values: &Values) {
        values.0.iter().enumerate().for_each(|(event, count)| self.add(location, event, *count));
    }

    /// The counts of all events at a location.
    pub fn at(&self, location: LocationId) -> &[u64] {
        let events = self.total.0.len();
        &self.by_location[location.index() * events..(location.index() + 1) * events]
    }
}

/// The listing of one function, with the copies of it that were inlined.
pub fn function(
    profile: &Profile,
    id: FunctionId,
    options: Options,
    sources: &mut dyn Sources,
) -> Listing {
    listing(profile, &Counts::of(profile), id, options, sources)
}

/// The listing of one function with `counts`, those of a part of the profile.
pub fn listing(
    profile: &Profile,
    counts: &Counts,
    id: FunctionId,
    options: Options,
    sources: &mut dyn Sources,
) -> Listing {
    let locations = locations(profile, id);
    let mut work = Work::new(profile, counts, options, &locations);
    let mut listing = Listing {
        name: function_name(profile, id, true),
        module: profile.module_of(id).name().to_owned(),
        event: profile.events.get(options.event).map_or(String::new(), |e| e.name.clone()),
        beside: Beside::of(profile, options.event).map(|(_, beside)| beside.event),
        whole: counts.total.get(options.event),
        exact: profile.mode == lwp_profile::Mode::Exact,
        interpreted: profile.module_of(id).interpreted().is_some(),
        ..Listing::default()
    };
    let mut last: Option<(std::sync::Arc<str>, u32)> = None;
    let mut next: Option<u64> = None;
    let mut within = id;
    for (index, &location) in locations.iter().enumerate() {
        let place = profile.location(location);
        if place.function() != within {
            within = place.function();
            listing.lines.push(Line::Within { function: function_name(profile, within, true) });
            (last, next) = (None, None);
        }
        // Between parts of a copy lies what is not of it.
        let gap = next.filter(|_| within == id).and_then(|next| place.address.checked_sub(next));
        if let Some(bytes) = gap.filter(|bytes| *bytes > 0) {
            listing.lines.push(Line::Gap { bytes });
        }
        if let Some(frame) = place.frames.first().filter(|frame| frame.line != 0) {
            let here = (frame.file.clone(), frame.line);
            if last.as_ref() != Some(&here) {
                listing.lines.push(Line::Source {
                    text: sources.line(&frame.file, frame.line),
                    file: frame.file.to_string(),
                    line: frame.line,
                    inlined: inlined(profile, place),
                });
                last = Some(here);
            }
        }
        let line = work.instruction(location, index);
        if let Line::Instruction { count, .. } = &line {
            listing.total = listing.total.saturating_add(*count);
        }
        listing.lines.push(line);
        // Where the length is not known, no gap can be told.
        let bytes = place.bytes.len() as u64;
        next = (bytes > 0).then(|| place.address.wrapping_add(bytes));
    }
    listing.doubts = doubts(&listing.lines, sources);
    listing
}

/// Remarks on the source files of a listing.
fn doubts(lines: &[Line], sources: &mut dyn Sources) -> Vec<String> {
    let file = |line: &'_ Line| match line {
        Line::Source { file, text: Some(_), .. } => Some(file.clone()),
        _ => None,
    };
    let files: BTreeSet<String> = lines.iter().filter_map(file).collect();
    files.iter().filter_map(|file| sources.doubt(file)).collect()
}

fn inlined(profile: &Profile, place: &lwp_profile::Location) -> Vec<String> {
    let inner = &place.frames[..place.frames.len() - 1];
    inner.iter().rev().map(|frame| function_name(profile, frame.function, true)).collect()
}

/// A listing in progress.
struct Work<'a> {
    profile: &'a Profile,
    options: Options,
    executed: usize,
    beside: Option<usize>,
    conditional: Option<usize>,
    taken: Option<usize>,
    values: HashMap<LocationId, Values>,
    calls: HashMap<LocationId, Vec<Called>>,
    instructions: Vec<Option<Instruction>>,
    arrows: Arrows,
}

impl<'a> Work<'a> {
    fn new(
        profile: &'a Profile,
        counts: &Counts,
        options: Options,
        locations: &[LocationId],
    ) -> Self {
        let values: HashMap<LocationId, Values> =
            locations.iter().map(|id| (*id, Values(counts.at(*id).to_vec()))).collect();
        let calls = calls(profile, options.event, &|from| values.contains_key(&from));
        let instructions: Vec<Option<Instruction>> =
            locations.iter().map(|id| decoded(profile, *id)).collect();
        Self {
            profile,
            options,
            executed: profile.event("instructions").unwrap_or(options.event),
            beside: Beside::of(profile, options.event).map(|(event, _)| event),
            conditional: profile.event("conditional-branches"),
            taken: profile.event("conditional-taken"),
            values,
            calls,
            arrows: Arrows::new(&jumps(profile, locations, &instructions), locations.len()),
            instructions,
        }
    }

    fn instruction(&mut self, id: LocationId, index: usize) -> Line {
        let values = &self.values[&id];
        let conditional = self.conditional.is_some_and(|event| values.get(event) > 0);
        Line::Instruction {
            address: self.profile.location(id).address,
            bytes: self.profile.location(id).bytes.to_vec(),
            text: match &self.instructions[index] {
                Some(instruction) => text(instruction, self.options.intel),
                None => "(bytes not recorded)".to_owned(),
            },
            count: values.get(self.options.event),
            beside: self.beside.map(|event| values.get(event)),
            executed: values.get(self.executed),
            taken: self.taken.filter(|_| conditional).map(|event| values.get(event)),
            arrows: self.arrows.row(index),
            calls: self.calls.remove(&id).unwrap_or_default(),
        }
    }
}

/// The calls from the places that are wanted: measured ones, or else those that were counted.
fn calls(
    profile: &Profile,
    event: usize,
    wanted: &dyn Fn(LocationId) -> bool,
) -> HashMap<LocationId, Vec<Called>> {
    let mut sums: BTreeMap<(LocationId, FunctionId), (u64, Option<u64>)> = BTreeMap::new();
    let mut measured = BTreeSet::new();
    if let Some(contexts) = Measured::of(profile, event) {
        measured = profile.contexts.iter().map(|context| context.function).collect();
        for call in contexts.calls() {
            if let Some(site) = call.site.filter(|site| wanted(*site)) {
                let sum = sums.entry((site, call.callee)).or_default();
                sum.0 = sum.0.saturating_add(call.calls);
                if contexts.is_exact() {
                    sum.1 = Some(sum.1.unwrap_or(0).saturating_add(call.inclusive));
                }
            }
        }
    }
    for call in profile.calls.iter().filter(|call| !measured.contains(&call.to)) {
        if let Some(site) = call.from.filter(|site| wanted(*site)) {
            let sum = &mut sums.entry((site, call.to)).or_default().0;
            *sum = sum.saturating_add(call.count);
        }
    }
    let mut calls: HashMap<LocationId, BTreeMap<String, Called>> = HashMap::new();
    for ((site, callee), (times, cost)) in sums {
        let name = function_name(profile, callee, true);
        let called = calls.entry(site).or_default().entry(name.clone()).or_default();
        called.name = name;
        called.calls = called.calls.saturating_add(times);
        called.cost = cost.map(|cost| cost.saturating_add(called.cost.unwrap_or(0)));
        called.stub = profile.function(callee).origin == Origin::Stub;
    }
    let listed = |calls: BTreeMap<String, Called>| {
        let alone = calls.values().all(|called| called.stub);
        let one = |called: Called| Called { stub: called.stub && !alone, ..called };
        calls.into_values().map(one).collect()
    };
    calls.into_iter().map(|(site, calls)| (site, listed(calls))).collect()
}

fn decoded(profile: &Profile, id: LocationId) -> Option<Instruction> {
    let place = profile.location(id);
    let mut decoder = Decoder::with_ip(64, &place.bytes, place.address, DecoderOptions::NONE);
    decoder.can_decode().then(|| decoder.decode()).filter(|one| !one.is_invalid())
}

/// Jumps from one line of the listing to another.
fn jumps(
    profile: &Profile,
    locations: &[LocationId],
    instructions: &[Option<Instruction>],
) -> Vec<Jump> {
    let mut out = Vec::new();
    // By function and address: modules may have the same addresses.
    let place = |id: LocationId| {
        let place = profile.location(id);
        (place.module, place.function(), place.address)
    };
    let lines: HashMap<_, usize> =
        locations.iter().enumerate().map(|(line, id)| (place(*id), line)).collect();
    for (from, instruction) in instructions.iter().enumerate() {
        let Some(instruction) = instruction else { continue };
        let flow = instruction.flow_control();
        let direct =
            matches!(flow, FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch)
                && instruction.op0_kind() == OpKind::NearBranch64;
        if !direct {
            continue;
        }
        let target = instruction.near_branch64();
        let (module, function, _) = place(locations[from]);
        out.extend(lines.get(&(module, function, target)).map(|&to| Jump { from, to }));
    }
    out
}

fn text(instruction: &Instruction, intel: bool) -> String {
    let mut out = String::new();
    match intel {
        true => {
            let mut formatter = IntelFormatter::new();
            formatter.options_mut().set_space_after_operand_separator(true);
            formatter.options_mut().set_branch_leading_zeros(false);
            formatter.options_mut().set_hex_prefix("0x");
            formatter.options_mut().set_hex_suffix("");
            formatter.format(instruction, &mut out);
        }
        false => {
            let mut formatter = GasFormatter::new();
            formatter.options_mut().set_space_after_operand_separator(true);
            formatter.options_mut().set_branch_leading_zeros(false);
            formatter.format(instruction, &mut out);
        }
    }
    out
}
