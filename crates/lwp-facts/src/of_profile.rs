//! Facts of a profile.

use std::collections::{BTreeMap, HashMap};

use lwp_profile::{
    CallGraph, CallKind, FunctionId, Inferred, Measured, Mode, Origin, Profile, Values,
};
use lwp_terminal::escape::is_hostile;
use twox_hash::XxHash3_64;

use crate::{CallFact, Facts, FunctionFact, Limits, LineFact, ModuleFact, Run, StackFact};

/// Returns the name that a function keeps from build to build.
pub type StableName<'a> = &'a dyn Fn(&Profile, FunctionId) -> String;

impl Facts {
    /// The facts of `profile`; `stable` gives functions the names that they keep from build to
    /// build.
    pub fn of(profile: &Profile, stable: StableName<'_>) -> Self {
        let mut making = Making::new(profile, stable);
        making.functions();
        making.lines();
        making.calls();
        making.stacks();
        making.inclusive();
        making.facts
    }
}

/// Facts in the making.
struct Making<'a> {
    profile: &'a Profile,
    facts: Facts,
    /// The fact of each function of the profile, once it is wanted.
    known: Vec<Option<u32>>,
    by_name: HashMap<(u32, String), u32>,
    /// The fact of each module.
    modules: Vec<u32>,
    stable: StableName<'a>,
    graph: CallGraph,
}

impl<'a> Making<'a> {
    fn new(profile: &'a Profile, stable: StableName<'a>) -> Self {
        let mut facts = Facts {
            run: Run::of_info(&profile.info),
            mode: profile.mode,
            events: profile.events.clone(),
            total: profile.total().0,
            ..Facts::default()
        };
        facts.run.change(clean_name);
        // A program that was run under two paths is one module for whoever compares.
        let mut by_name: BTreeMap<String, u32> = BTreeMap::new();
        let mut modules = Vec::new();
        for module in &profile.modules {
            let name = module_name(module);
            let next = facts.modules.len() as u32;
            let index = *by_name.entry(name.clone()).or_insert(next);
            if index == next {
                let (path, build_id) = (clean_name(&module.path), module.build_id_hex());
                facts.modules.push(ModuleFact { name, path, build_id });
            }
            modules.push(index);
        }
        let known = vec![None; profile.functions.len()];
        let graph = CallGraph::of(profile);
        Self { profile, facts, known, by_name: HashMap::new(), modules, stable, graph }
    }

    /// The fact of a function; the first time, it is made.
    fn function(&mut self, id: FunctionId) -> u32 {
        if let Some(known) = self.known[id.index()] {
            return known;
        }
        let function = self.profile.function(id);
        let module = self.modules[function.module.index()];
        let name = self.name(id);
        let next = self.facts.functions.len() as u32;
        let index = *self.by_name.entry((module, name.clone())).or_insert(next);
        if index == next {
            let own = vec![0; self.facts.events.len()];
            let (file, line) = (clean_name(&function.file), function.line);
            let fact = FunctionFact { module, name, file, line, own, ..FunctionFact::default() };
            self.facts.functions.push(fact);
        }
        self.known[id.index()] = Some(index);
        index
    }

    fn name(&self, id: FunctionId) -> String {
        let function = self.profile.function(id);
        let name = match function.origin {
            Origin::Unknown => {
                let build = self.profile.module_of(id).build_id_hex();
                let short = build.get(..16).unwrap_or("");
                format!("[{short}+{}]", function.name)
            }
            _ if function.name.is_empty() => "[inlined]".to_owned(),
            Origin::Stub => format!("{} [stub]", (self.stable)(self.profile, id)),
            _ => (self.stable)(self.profile, id),
        };
        clean_name(&name)
    }

    fn functions(&mut self) {
        for number in 0..self.profile.functions.len() {
            let id = FunctionId(number as u32);
            let entered = self.graph.calls_of(id);
            let own = std::mem::take(&mut self.graph.own[number]);
            if own.is_zero() && entered == 0 {
                continue;
            }
            let index = self.function(id);
            let fact = &mut self.facts.functions[index as usize];
            fact.entered = fact.entered.saturating_add(entered);
            add(&mut fact.own, &own);
        }
    }

    fn lines(&mut self) {
        let mut sums: BTreeMap<(u32, String, u32), Values> = BTreeMap::new();
        let by_location = self.profile.by_location();
        for (location, values) in self.profile.locations.iter().zip(by_location) {
            let frame = location.frames.first().filter(|frame| frame.line != 0);
            let Some(frame) = frame.filter(|_| !values.is_zero()) else { continue };
            let key = (self.function(location.function()), clean_name(&frame.file), frame.line);
            sums.entry(key).or_insert_with(|| Values::zero(values.0.len())).add(&values);
        }
        let line = |((function, file, line), values): (_, Values)| LineFact {
            function,
            file,
            line,
            own: values.0,
        };
        self.facts.lines = sums.into_iter().map(line).collect();
    }

    fn calls(&mut self) {
        let profile = self.profile;
        let mut sums: BTreeMap<(Option<u32>, u32, CallKind), u64> = BTreeMap::new();
        for call in &profile.calls {
            let caller = call.from.map(|site| self.function(profile.location(site).function()));
            let callee = self.function(call.to);
            let sum = sums.entry((caller, callee, call.kind)).or_default();
            *sum = sum.saturating_add(call.count);
        }
        let call = |((caller, callee, how), count)| CallFact { caller, callee, how, count };
        self.facts.calls = sums.into_iter().map(call).collect();
    }

    /// The inclusive counts of all functions that have a row.
    fn inclusive(&mut self) {
        let (profile, facts) = (self.profile, &mut self.facts);
        let Some(event) = facts.counted_instructions() else { return };
        let Some(measured) = Measured::of(profile, event).filter(|_| profile.measures(event))
        else {
            return;
        };
        // Functions without a row are the last group.
        let rest = facts.functions.len();
        let group = |id: FunctionId| self.known[id.index()].map_or(rest, |index| index as usize);
        let counts = measured.inclusive_by(rest + 1, group);
        let total = facts.total[event];
        for (fact, count) in facts.functions.iter_mut().zip(counts) {
            let own = fact.own[event];
            fact.inclusive = Some(count.min(total).max(own));
        }
    }

    fn stacks(&mut self) {
        if self.profile.mode == Mode::Exact {
            return;
        }
        let deepest = Limits::default().frames;
        let mut sums: BTreeMap<Vec<u32>, Values> = BTreeMap::new();
        for stack in Inferred::of(self.profile, 0).stacks {
            // The innermost ones of a stack that is too deep.
            let inner = &stack.functions[stack.functions.len().saturating_sub(deepest)..];
            let frames: Vec<u32> = inner.iter().map(|id| self.function(*id)).collect();
            let zero = || Values::zero(stack.values.0.len());
            sums.entry(frames).or_insert_with(zero).add(&stack.values);
        }
        let stack = |(frames, values): (_, Values)| StackFact { frames, own: values.0 };
        self.facts.stacks = sums.into_iter().map(stack).collect();
    }
}

fn add(sums: &mut [u64], values: &Values) {
    for (sum, value) in sums.iter_mut().zip(&values.0) {
        *sum = sum.saturating_add(*value);
    }
}

/// The name that a module keeps from build to build.
fn module_name(module: &lwp_profile::Module) -> String {
    let name = match module.soname.is_empty() || module.program {
        true => without_cargo_hash(module.name()),
        false => &module.soname,
    };
    clean_name(if name.is_empty() { "[unknown]" } else { name })
}

/// `parse` of `parse-0123456789abcdef`: cargo names programs of tests and benchmarks by a hash of
/// how they were built.
pub fn without_cargo_hash(name: &str) -> &str {
    match name.rsplit_once('-') {
        Some((stem, hash))
            if hash.len() == 16
                && !stem.is_empty()
                && hash.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) =>
        {
            stem
        }
        _ => name,
    }
}

/// A name without control characters, no longer than readers take; names that differ stay
/// different.
pub fn clean_name(name: &str) -> String {
    let most = Limits::default().name_bytes;
    let name: String = name.chars().map(|c| if is_hostile(c) { '\u{fffd}' } else { c }).collect();
    if name.len() <= most {
        return name;
    }
    let end = format!("…#{:016x}", XxHash3_64::oneshot(name.as_bytes()));
    let mut cut = most - end.len();
    while !name.is_char_boundary(cut) {
        cut -= 1;
    }
    format!("{}{end}", &name[..cut])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_of_cargo_are_no_part_of_a_name() {
        assert_eq!(without_cargo_hash("parse-0123456789abcdef"), "parse");
        for name in ["parse-0123456789abcde", "-0123456789abcdef", "a-0123456789abcdeg", "x"] {
            assert_eq!(without_cargo_hash(name), name);
        }
    }

    #[test]
    fn long_names_stay_different() {
        let (a, b) = ("é".repeat(5000), format!("{}x", "é".repeat(4999)));
        assert_ne!(clean_name(&a), clean_name(&b));
        assert!(clean_name(&a).len() <= 4096);
        assert_eq!(clean_name("a\u{1b}b"), "a\u{fffd}b");
    }
}
