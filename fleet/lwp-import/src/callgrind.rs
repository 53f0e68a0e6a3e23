//! Callgrind's output, version 1.
//!
//! Its counts are of instructions that Valgrind has seen: true, and of events with Valgrind's
//! names. Contexts are inferred from calls, as for recordings of lwp.

use std::collections::HashMap;

use lwp_facts::{Facts, Limits, Run, Source, without_cargo_hash};
use lwp_profile::{
    Builder, CallKind, Event, Frame, Function, FunctionId, Inferred, Location, LocationId, Mode,
    Module, Origin, Values,
};

use crate::making::Making;
use crate::{Error, Result};

/// Reads one file, with all its parts added up.
pub fn read(text: &str, run: &Run, limits: &Limits) -> Result<Vec<Facts>> {
    let names = text.lines().find_map(|line| line.strip_prefix("events:"));
    let no_events = || Error::Line { line: 1, why: "there is no line \"events:\"".to_owned() };
    let names: Vec<&str> = names.ok_or_else(no_events)?.split_whitespace().collect();
    let event =
        |name: &&str| Event { name: (*name).to_owned(), interval: Some(1), ..Event::default() };
    let mut run = Run { source: Source::Callgrind, ..run.clone() };
    if let Some(command) = text.lines().find_map(|line| line.strip_prefix("cmd:")) {
        command.trim().clone_into(&mut run.command);
        let program = command.split_whitespace().next().unwrap_or("");
        let file = program.rsplit('/').next().unwrap_or("");
        if run.benchmark.is_empty() {
            without_cargo_hash(file).clone_into(&mut run.benchmark);
        }
    }
    if let Some(creator) = text.lines().find_map(|line| line.strip_prefix("creator:")) {
        creator.trim().clone_into(&mut run.tool);
    }
    let events: Vec<Event> = names.iter().map(event).collect();
    let positions = text.lines().find_map(|line| line.strip_prefix("positions:"));
    let positions = positions.unwrap_or("line").split_whitespace();
    let positions: Vec<&str> = positions.collect();
    let mut reading = Reading {
        making: Making::new(run, events, limits)?,
        positions: positions.len(),
        line_at: positions.iter().position(|name| *name == "line"),
        last: vec![0; positions.len()],
        files: Names::default(),
        objects: Names::default(),
        functions: Names::default(),
        here: Here::default(),
        costs: HashMap::new(),
    };
    for (number, line) in text.lines().enumerate() {
        let at = |why: String| Error::Line { line: number + 1, why };
        reading.line(line).map_err(|fault| match fault {
            Fault::Text(why) => at(why),
            Fault::Whole(error) => error,
        })?;
    }
    infer(&mut reading.making, &reading.costs)?;
    Ok(vec![reading.making.finish()?])
}

/// A fault of a line, or of everything.
enum Fault {
    Text(String),
    Whole(Error),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Whole(error)
    }
}

impl From<&str> for Fault {
    fn from(why: &str) -> Self {
        Self::Text(why.to_owned())
    }
}

/// Names for which numbers stand, once they were written in full.
#[derive(Default)]
struct Names<'a>(HashMap<&'a str, &'a str>);

impl<'a> Names<'a> {
    fn get(&mut self, text: &'a str) -> Result<&'a str, Fault> {
        // A name may begin with a parenthesis too: (below main), (anonymous namespace)::f.
        let number = text.strip_prefix('(').and_then(|rest| rest.split_once(')'));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let Some((number, name)) = number.filter(|(number, _)| is_number(number)) else {
            return Ok(text);
        };
        match name.trim() {
            "" => self.0.get(number).copied().ok_or_else(|| "a number without a name".into()),
            name => {
                self.0.insert(number, name);
                Ok(name)
            }
        }
    }
}

/// The place that the next costs belong to, and the call that was announced.
#[derive(Default)]
struct Here<'a> {
    object: &'a str,
    file: &'a str,
    /// The file of the function itself; `fi` and `fe` change only where code comes from.
    function: Option<u32>,
    called_object: Option<&'a str>,
    called: Option<&'a str>,
    called_file: Option<&'a str>,
    calls: Option<u64>,
    /// True if the next position is that of a jump.
    jumps: bool,
}

struct Reading<'a, 'l> {
    making: Making<'l>,
    positions: usize,
    line_at: Option<usize>,
    last: Vec<u64>,
    files: Names<'a>,
    objects: Names<'a>,
    functions: Names<'a>,
    here: Here<'a>,
    /// Costs of the first event below calls, by caller and callee.
    costs: HashMap<(u32, u32), u64>,
}

impl<'a> Reading<'a, '_> {
    fn line(&mut self, line: &'a str) -> Result<(), Fault> {
        let first = line.bytes().next();
        match first {
            None | Some(b'#') => return Ok(()),
            Some(b'0'..=b'9' | b'+' | b'-' | b'*') => return self.costs(line),
            _ => {}
        }
        let Some((key, value)) = line.split_once('=') else {
            // Lines of the head, and totals at the end.
            return if line.contains(':') { Ok(()) } else { Err("no line of callgrind's".into()) };
        };
        match key {
            "ob" => self.here.object = self.objects.get(value)?,
            "fl" | "fi" | "fe" => self.here.file = self.files.get(value)?,
            "fn" => {
                let name = self.functions.get(value)?;
                let module = self.making.module(self.here.object, "");
                self.here.function =
                    Some(self.making.function(module, without_cycle(name), (self.here.file, 0))?);
            }
            "cob" => self.here.called_object = Some(self.objects.get(value)?),
            "cfi" | "cfl" => self.here.called_file = Some(self.files.get(value)?),
            "cfn" => self.here.called = Some(self.functions.get(value)?),
            "calls" => {
                let count = value.split_whitespace().next().and_then(|text| text.parse().ok());
                self.here.calls = Some(count.ok_or("calls without a count")?);
            }
            // Jumps are not counted, but the names that they introduce stand for numbers later on.
            "jfi" => drop(self.files.get(value)?),
            "jfn" => drop(self.functions.get(value)?),
            "jump" | "jcnd" => self.here.jumps = true,
            _ if line.contains(':') => {}
            _ => return Err("an unknown word".into()),
        }
        Ok(())
    }

    /// A line of costs: those of the function, or those below a call, which are counted where they
    /// were made.
    fn costs(&mut self, line: &'a str) -> Result<(), Fault> {
        let mut tokens = line.split_whitespace();
        for place in &mut self.last {
            let token = tokens.next().ok_or("a line without its position")?;
            *place = position(token, *place).ok_or("no position")?;
        }
        if std::mem::take(&mut self.here.jumps) {
            return Ok(());
        }
        let mut values = vec![0; self.making.facts.events.len()];
        for (value, token) in values.iter_mut().zip(tokens) {
            *value = token.parse().map_err(|_| Fault::from("no count"))?;
        }
        let function = self.here.function.ok_or("costs before a function")?;
        if let Some(count) = self.here.calls.take() {
            let name = self.here.called.take().ok_or("calls without a function")?;
            let object = self.here.called_object.take().unwrap_or(self.here.object);
            let file = self.here.called_file.take().unwrap_or(self.here.file);
            let module = self.making.module(object, "");
            let callee = self.making.function(module, without_cycle(name), (file, 0))?;
            let cost = self.costs.entry((function, callee)).or_default();
            *cost = cost.saturating_add(values.first().copied().unwrap_or(0));
            return Ok(self.making.call(function, callee, count)?);
        }
        let line = self.line_at.and_then(|at| u32::try_from(self.last[at]).ok());
        let place = line.map(|line| (self.here.file, line));
        debug_assert_eq!(self.last.len(), self.positions);
        Ok(self.making.own(function, place, &values)?)
    }
}

/// A position: a number, or a distance from the last one.
fn position(token: &str, last: u64) -> Option<u64> {
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    };
    match (token.strip_prefix('+'), token.strip_prefix('-'), token) {
        (_, _, "*") => Some(last),
        (Some(more), _, _) => last.checked_add(number(more)?),
        (_, Some(less), _) => last.checked_sub(number(less)?),
        _ => number(token),
    }
}

/// `f` of `f'2`: callgrind numbers levels of recursion when it is told to.
fn without_cycle(name: &str) -> &str {
    match name.rsplit_once('\'') {
        Some((stem, level)) if !level.is_empty() && level.bytes().all(|b| b.is_ascii_digit()) => {
            stem
        }
        _ => name,
    }
}

/// Adds the stacks that the calls make likely. What a function costs is shared out by the costs
/// that its callers saw below their calls, and by numbers of calls where the file has no costs.
fn infer(making: &mut Making<'_>, costs: &HashMap<(u32, u32), u64>) -> Result<()> {
    let facts = &making.facts;
    let mut builder = Builder::new("", Mode::Exact, facts.events.clone());
    let module = builder.module(Module::default());
    let mut places: Vec<LocationId> = Vec::new();
    let thread = builder.thread(lwp_profile::Thread::default());
    for (index, fact) in facts.functions.iter().enumerate() {
        let address = index as u64 + 1;
        let name = format!("{index}");
        let function =
            Function { module, name, address, origin: Origin::Symbol, ..Function::default() };
        let function = builder.function(function);
        let frames = vec![Frame { function, ..Frame::default() }].into();
        let place = builder.location(Location { module, address, frames, ..Location::default() });
        places.push(place);
        let stack = builder.stack([place].into_iter().collect());
        builder.sample(thread, stack, &Values(fact.own.clone()));
    }
    let mut below: HashMap<u32, u64> = HashMap::new();
    for ((_, callee), cost) in costs {
        let sum = below.entry(*callee).or_default();
        *sum = sum.saturating_add(*cost);
    }
    for ((caller, callee), count) in making.calls() {
        let cost = caller.and_then(|caller| costs.get(&(caller, callee))).copied();
        let has_costs = below.get(&callee).is_some_and(|cost| *cost > 0);
        let count = cost.filter(|_| has_costs).unwrap_or(count);
        let to = builder.location_at(places[callee as usize]).function();
        let from = caller.map(|caller| places[caller as usize]);
        builder.call(from, to, CallKind::Direct, count);
    }
    let profile = builder.finish();
    for stack in Inferred::of(&profile, 0).stacks {
        // A profile has numbers of its own; names are those of the facts.
        let index = |id: &FunctionId| profile.function(*id).name.parse::<u32>().ok();
        let frames: Option<Vec<u32>> = stack.functions.iter().map(index).collect();
        if let Some(frames) = frames.filter(|frames| !frames.is_empty()) {
            making.stack(&frames, &stack.values.0)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(text: &str) -> Facts {
        let run = Run { benchmark: "b".into(), ..Run::default() };
        let all = read(text, &run, &Limits::default());
        all.unwrap_or_else(|error| panic!("{error}: {text}")).remove(0)
    }

    fn own(facts: &Facts) -> Vec<(&str, u64)> {
        facts.functions.iter().map(|function| (function.name.as_str(), function.own[0])).collect()
    }

    const HEAD: &str = "# callgrind format\nversion: 1\npositions: line\nevents: Ir\n\n";

    #[test]
    fn names_in_parentheses_are_no_numbers() {
        let names = ["(below main)", "(anonymous namespace)::f(int)", "(3rd)", "()"];
        for name in names {
            let read = facts(&format!("{HEAD}fl=a.c\nfn={name}\n3 10\n"));
            assert_eq!(own(&read), [(name, 10)]);
            let read = facts(&format!("{HEAD}fl=(1) a.c\nfn=(7) {name}\n3 10\nfn=(7)\n4 1\n"));
            assert_eq!(own(&read), [(name, 11)]);
        }
    }

    #[test]
    fn names_that_jumps_introduce_are_known() {
        let text = "fl=(1) a.c\nfn=(1) main\n3 10\njfi=(2) b.h\njfn=(2) g\njcnd=3/5 7\n4\n7 10\n\
                    fi=(2)\n8 10\nfn=(2)\n9 5\n";
        let read = facts(&format!("{HEAD}{text}"));
        assert_eq!(own(&read), [("main", 30), ("g", 5)]);
        let lines: Vec<_> = read.lines.iter().map(|row| (row.file.as_str(), row.line)).collect();
        assert_eq!(lines, [("a.c", 3), ("a.c", 7), ("b.h", 8), ("b.h", 9)]);
    }

    #[test]
    fn costs_below_calls_are_those_of_their_callers() {
        let text = "fl=a.c\nfn=cheap\n1 4\ncfn=work\ncalls=1 9\n1 60\nfn=dear\n2 4\ncfn=work\n\
                    calls=1 9\n2 600000\nfn=main\n3 2\ncfn=cheap\ncalls=1 1\n3 64\ncfn=dear\n\
                    calls=1 2\n3 600004\nfn=work\n9 600060\n";
        let read = facts(&format!("{HEAD}{text}"));
        let name = |frame: &u32| read.functions[*frame as usize].name.as_str();
        let stacks: Vec<(Vec<&str>, u64)> = read
            .stacks
            .iter()
            .map(|stack| (stack.frames.iter().map(name).collect(), stack.own[0]))
            .collect();
        assert!(stacks.contains(&(vec!["main", "cheap", "work"], 60)), "{stacks:?}");
        assert!(stacks.contains(&(vec!["main", "dear", "work"], 600_000)), "{stacks:?}");
    }

    #[test]
    fn positions_may_be_distances() {
        let cases = [("12", Some(12)), ("+3", Some(13)), ("-3", Some(7)), ("*", Some(10))];
        for (token, wanted) in cases.into_iter().chain([("0x1f", Some(31)), ("-11", None)]) {
            assert_eq!(position(token, 10), wanted, "{token}");
        }
        assert_eq!(
            [without_cycle("f'2"), without_cycle("f'"), without_cycle("f")],
            ["f", "f'", "f"]
        );
    }
}
