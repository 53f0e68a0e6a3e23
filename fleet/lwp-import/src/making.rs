//! Facts in the making, from whatever has functions and stacks.

use std::collections::{BTreeMap, HashMap};

use lwp_facts::{CallFact, Facts, FunctionFact, Limits, LineFact, ModuleFact, Run, StackFact};
use lwp_facts::{clean_name, without_cargo_hash};
use lwp_profile::{CallKind, Event, Mode};
use lwp_symbols::{Scheme, stable_name_as};

use crate::{Error, Result};

/// The name of what has none.
pub const UNKNOWN: &str = "[unknown]";

/// Facts in the making.
pub struct Making<'a> {
    pub facts: Facts,
    limits: &'a Limits,
    modules: HashMap<String, u32>,
    functions: HashMap<(u32, String), u32>,
    lines: BTreeMap<(u32, String, u32), Vec<u64>>,
    stacks: BTreeMap<Vec<u32>, Vec<u64>>,
    calls: BTreeMap<(Option<u32>, u32), u64>,
}

impl<'a> Making<'a> {
    pub fn new(run: Run, events: Vec<Event>, limits: &'a Limits) -> Result<Self> {
        if events.is_empty() {
            return Err(Error::Empty);
        }
        if events.len() > limits.events {
            return Err(Error::Limit { most: limits.events as u64, of: "events" });
        }
        let total = vec![0; events.len()];
        let facts = Facts { run, mode: Mode::Sampled, events, total, ..Facts::default() };
        Ok(Self {
            facts,
            limits,
            modules: HashMap::new(),
            functions: HashMap::new(),
            lines: BTreeMap::new(),
            stacks: BTreeMap::new(),
            calls: BTreeMap::new(),
        })
    }

    /// The module with a path; the empty one is unknown.
    pub fn module(&mut self, path: &str, build_id: &str) -> u32 {
        let file = path.rsplit('/').next().unwrap_or(path);
        let name = clean_name(without_cargo_hash(if file.is_empty() { UNKNOWN } else { file }));
        let next = self.facts.modules.len() as u32;
        let index = *self.modules.entry(name.clone()).or_insert(next);
        if index == next {
            let (path, build_id) = (clean_name(path), clean_name(build_id));
            self.facts.modules.push(ModuleFact { name, path, build_id });
        }
        index
    }

    /// A function by its name and that of its module.
    pub fn function(&mut self, module: u32, name: &str, place: (&str, u32)) -> Result<u32> {
        let name = if name.is_empty() { UNKNOWN } else { name };
        let name = clean_name(&stable_name_as(name, Scheme::Foreign));
        let next = self.facts.functions.len() as u32;
        let index = *self.functions.entry((module, name.clone())).or_insert(next);
        if index == next {
            let own = vec![0; self.facts.events.len()];
            let (file, line) = (clean_name(place.0), place.1.min(i32::MAX as u32));
            let function =
                FunctionFact { module, name, file, line, own, ..FunctionFact::default() };
            self.facts.functions.push(function);
            self.check_rows()?;
        }
        Ok(index)
    }

    fn check_rows(&self) -> Result<()> {
        let rows = self.facts.functions.len()
            + self.facts.modules.len()
            + self.lines.len()
            + self.stacks.len()
            + self.calls.len();
        match rows > self.limits.rows {
            true => Err(Error::Limit { most: self.limits.rows as u64, of: "rows" }),
            false => Ok(()),
        }
    }

    /// Adds what was counted in a function's own code, and at a line of it.
    pub fn own(&mut self, function: u32, line: Option<(&str, u32)>, values: &[u64]) -> Result<()> {
        add(&mut self.facts.functions[function as usize].own, values)?;
        add(&mut self.facts.total, values)?;
        if let Some((file, line)) = line.filter(|(_, line)| (1..=i32::MAX as u32).contains(line)) {
            let zero = || vec![0; values.len()];
            let key = (function, clean_name(file), line);
            add(self.lines.entry(key).or_insert_with(zero), values)?;
            self.check_rows()?;
        }
        Ok(())
    }

    /// Adds a stack, outermost function first; its counts belong to the innermost one.
    pub fn sample(
        &mut self,
        frames: &[u32],
        line: Option<(&str, u32)>,
        values: &[u64],
    ) -> Result<()> {
        let Some(leaf) = frames.last() else { return Ok(()) };
        self.own(*leaf, line, values)?;
        self.stack(frames, values)
    }

    /// Adds a stack alone.
    pub fn stack(&mut self, frames: &[u32], values: &[u64]) -> Result<()> {
        let inner = &frames[frames.len().saturating_sub(self.limits.frames)..];
        let zero = || vec![0; values.len()];
        add(self.stacks.entry(inner.to_vec()).or_insert_with(zero), values)?;
        self.check_rows()
    }

    /// Adds calls.
    pub fn call(&mut self, caller: u32, callee: u32, count: u64) -> Result<()> {
        let sum = self.calls.entry((Some(caller), callee)).or_default();
        *sum = sum.saturating_add(count);
        let entered = &mut self.facts.functions[callee as usize].entered;
        *entered = entered.saturating_add(count);
        self.check_rows()
    }

    /// All calls: caller, callee, and how often.
    pub fn calls(&self) -> Vec<((Option<u32>, u32), u64)> {
        self.calls.iter().map(|(pair, count)| (*pair, *count)).collect()
    }

    /// The facts, if anything was counted.
    pub fn finish(mut self) -> Result<Facts> {
        if self.facts.total.iter().all(|value| *value == 0) {
            return Err(Error::Empty);
        }
        self.facts.run.complete = true;
        let line = |((function, file, line), own)| LineFact { function, file, line, own };
        self.facts.lines = self.lines.into_iter().map(line).collect();
        let stack = |(frames, own)| StackFact { frames, own };
        self.facts.stacks = self.stacks.into_iter().map(stack).collect();
        let call =
            |((caller, callee), count)| CallFact { caller, callee, how: CallKind::Direct, count };
        self.facts.calls = self.calls.into_iter().map(call).collect();
        Ok(self.facts)
    }
}

/// An event that was sampled.
pub fn sampled(name: &str, interval: i64) -> Event {
    let interval = u64::try_from(interval).unwrap_or(1).max(1);
    Event { name: clean_name(name), interval: Some(interval), ..Event::default() }
}

/// The name of an event from its type and unit: `samples`, `cpu-nanoseconds`.
pub fn event_name(kind: &str, unit: &str) -> String {
    match unit {
        "" | "count" => kind.to_owned(),
        unit => format!("{kind}-{unit}"),
    }
}

/// The page of an address, as the name of a function without one.
pub fn page(build_id: &str, address: u64) -> String {
    format!("[{}+{:#x}]", build_id.get(..16).unwrap_or(build_id), address & !0xfff)
}

fn add(sums: &mut [u64], values: &[u64]) -> Result<()> {
    for (sum, value) in sums.iter_mut().zip(values) {
        let next = sum.checked_add(*value).filter(|sum| i64::try_from(*sum).is_ok());
        *sum = next.ok_or(Error::Limit { most: i64::MAX as u64, of: "events" })?;
    }
    Ok(())
}
