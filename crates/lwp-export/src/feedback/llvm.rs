//! LLVM's sample profile as text: how often each line of a function was executed, counted from the
//! line of its declaration, with what was inlined into it, and where its calls led.
//!
//! A line's count is the greatest of its instructions, as LLVM's own tools have it: an optimiser
//! moves instructions out of their blocks, but rarely into ones that are executed more often.
//!
//! Promise: R141

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};
use lwp_symbols::{CodePlace, CompiledError, CompiledFunction, before_suffix};
use rustc_hash::FxHashMap;

use super::Binary;
use super::executed::Executed;

/// Functions may have code in common, but all of it comes to less than so many times the file.
const SHARED: usize = 16;

/// A line, counted from its function's, and the discriminator of its basic block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Location {
    offset: u16,
    discriminator: u32,
}

/// What a line has.
#[derive(Clone, Debug, Default)]
struct Line {
    times: u64,
    /// Calls, by the called function.
    targets: BTreeMap<Arc<str>, u64>,
}

/// What a function has, or a copy of it that was inlined.
#[derive(Clone, Debug, Default)]
struct Samples {
    lines: BTreeMap<Location, Line>,
    inlined: BTreeMap<(Location, Arc<str>), Self>,
}

/// A function and how often it was entered.
#[derive(Clone, Debug, Default)]
struct Function {
    entered: u64,
    samples: Samples,
}

/// The profile.
#[derive(Debug, Default)]
pub(super) struct LlvmProfile {
    functions: BTreeMap<Arc<str>, Function>,
    /// Executed instructions of functions with lines, and of others.
    instructions: [u64; 2],
    discriminators: bool,
}

/// A file and what was executed of it.
struct Source<'a> {
    executed: &'a Executed,
    binary: &'a Binary,
    /// Names of functions by their first addresses.
    names: FxHashMap<u64, Arc<str>>,
}

impl LlvmProfile {
    /// The profile of a file.
    pub(super) fn of(executed: &Executed, binary: &Binary) -> Result<Self, CompiledError> {
        let is_executed = |range: &std::ops::Range<u64>| {
            executed.instructions.range(range.clone()).any(|(_, times)| *times > 0)
        };
        let compiled = CompiledFunction::all_of(binary.bytes(), &is_executed)?;
        let name = |it: &CompiledFunction| it.scopes().first().map(|scope| scope.name().clone());
        let names = compiled.iter().filter_map(|it| start_of(it, binary).zip(name(it))).collect();
        let source = Source { executed, binary, names };
        let mut out = Self::default();
        let mut room = binary.bytes().len().saturating_mul(SHARED);
        for function in &compiled {
            let sizes = function.ranges().iter().map(|range| range.end - range.start);
            let size = sizes.fold(0, u64::saturating_add);
            room = usize::try_from(size).ok().and_then(|size| room.checked_sub(size)).ok_or_else(
                || CompiledError::Damaged("its functions have more code than the file".to_owned()),
            )?;
            out.add(function, &source);
        }
        out.count_instructions(executed);
        Ok(out)
    }

    /// The number of functions.
    pub(super) fn functions(&self) -> usize {
        self.functions.len()
    }

    /// Executed instructions of functions with lines, and of others.
    pub(super) fn instructions(&self) -> [u64; 2] {
        self.instructions
    }

    /// Returns whether discriminators tell the basic blocks of a line apart.
    pub(super) fn has_discriminators(&self) -> bool {
        self.discriminators
    }

    fn count_instructions(&mut self, executed: &Executed) {
        let all = executed.instructions.values();
        let all = all.fold(0, |sum: u64, times| sum.saturating_add(positive(*times)));
        self.instructions[1] = all.saturating_sub(self.instructions[0]);
    }

    fn add(&mut self, function: &CompiledFunction, source: &Source<'_>) {
        let Some(outermost) = function.scopes().first() else { return };
        let (name, known) = (outermost.name(), outermost.declared() > 0);
        if !is_plain(name) || !known {
            return;
        }
        let mut copy = Copy::of(function);
        let start = start_of(function, source.binary);
        let mut entries = 0;
        for range in function.ranges() {
            let code = source.binary.code_of(range);
            let code: Vec<Instruction> =
                Decoder::with_ip(64, code, range.start, DecoderOptions::NONE).into_iter().collect();
            let places = function.places(code.iter().map(Instruction::ip));
            for (instruction, place) in code.iter().zip(places) {
                let times = source.times(instruction.ip());
                self.instructions[0] = self.instructions[0].saturating_add(times);
                copy.execute(place, times);
                copy.call(place, source.calls(instruction));
            }
            if start == Some(range.start) {
                entries = source.entries(&code);
            }
        }
        self.discriminators |= copy.discriminators;
        let sum = self.functions.entry(Arc::clone(name)).or_default();
        sum.entered = sum.entered.saturating_add(entries);
        sum.samples.add(copy.samples());
    }

    /// The profile as text, the functions that were executed most first.
    pub(super) fn render(&self) -> String {
        let sums = self.functions.iter().map(|(name, it)| (it.samples.total(), name, it));
        let mut sums: Vec<(u64, &Arc<str>, &Function)> = sums.filter(|it| it.0 > 0).collect();
        sums.sort_by_key(|(sum, name, _)| (std::cmp::Reverse(*sum), *name));
        let mut out = String::new();
        for (sum, name, function) in sums {
            let _ = writeln!(out, "{name}:{sum}:{}", function.entered);
            function.samples.render(1, &mut out);
        }
        out
    }
}

impl Source<'_> {
    fn times(&self, address: u64) -> u64 {
        self.executed.instructions.get(&address).copied().map_or(0, positive)
    }

    /// Calls that an instruction has made, and jumps to other functions, by where they led.
    fn calls(&self, instruction: &Instruction) -> Vec<(Arc<str>, u64)> {
        let is_call =
            matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall);
        let from = instruction.ip();
        let own = self.binary.function_at(from).map(|it| it.address);
        let taken = self.executed.taken.range((from, None)..(from.saturating_add(1), None));
        let led = |(&(_, to), &times): (&(u64, Option<u64>), &i64)| {
            let to = to?;
            let name = self.function_name(to)?;
            let calls = is_call || Some(to) != own;
            (times > 0 && calls).then_some((name, positive(times)))
        };
        taken.filter_map(led).collect()
    }

    /// The name of the function that begins at an address.
    fn function_name(&self, address: u64) -> Option<Arc<str>> {
        let compiled = self.names.get(&address).cloned();
        let name = compiled.or_else(|| {
            let symbol = self.binary.function_at(address)?;
            (symbol.address == address).then(|| Arc::from(symbol.name.as_str()))
        });
        name.filter(|name| is_plain(name))
    }

    /// How often a function was called that begins with this code. Jumps back to its beginning are
    /// no calls.
    fn entries(&self, code: &[Instruction]) -> u64 {
        let Some(start) = code.first().map(Instruction::ip) else { return 0 };
        let jumps = code.iter().filter(|it| {
            let flow = it.flow_control();
            matches!(flow, FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch)
        });
        let back = jumps.filter_map(|it| self.executed.taken.get(&(it.ip(), Some(start))));
        let back = back.fold(0, |sum: u64, times| sum.saturating_add(positive(*times)));
        entered(self.executed, start).saturating_sub(back)
    }
}

/// Where a function is entered; `None` if it is a part that its caller was split from.
fn start_of(function: &CompiledFunction, binary: &Binary) -> Option<u64> {
    let starts = || function.ranges().iter().map(|range| range.start);
    let symbols = starts().filter_map(|start| {
        let symbol = binary.function_at(start)?;
        (symbol.address == start).then_some(symbol)
    });
    let mut symbols = symbols.peekable();
    if symbols.peek().is_none() {
        return starts().next();
    }
    symbols.find(|symbol| !is_part(&symbol.name)).map(|symbol| symbol.address)
}

/// Returns whether compilers give such a name to a part of a function.
fn is_part(name: &str) -> bool {
    before_suffix(name, &["cold", "part"]) != name
}

/// How often code was entered at an address.
fn entered(executed: &Executed, address: u64) -> u64 {
    executed.entered.get(&address).copied().map_or(0, positive)
}

fn positive(times: i64) -> u64 {
    u64::try_from(times).unwrap_or(0)
}

/// A node for each way of calls through which code was inlined.
struct Node {
    parent: Option<(usize, (Location, Arc<str>))>,
    lines: BTreeMap<Location, Line>,
}

/// One function's code, of which there may be several copies.
struct Copy<'a> {
    function: &'a CompiledFunction,
    nodes: Vec<Node>,
    /// The node of each scope; `None` if its place is not known.
    of_scope: Vec<Option<usize>>,
    discriminators: bool,
}

impl<'a> Copy<'a> {
    fn of(function: &'a CompiledFunction) -> Self {
        let root = Node { parent: None, lines: BTreeMap::new() };
        let mut known: BTreeMap<(usize, Location, Arc<str>), usize> = BTreeMap::new();
        let mut out = Self {
            function,
            nodes: vec![root],
            of_scope: Vec::with_capacity(function.scopes().len()),
            discriminators: false,
        };
        for scope in function.scopes() {
            let node = match scope.call() {
                None => Some(0),
                Some((parent, place)) => {
                    let at = out.location(parent, place.line(), place.discriminator());
                    let around = out.of_scope.get(parent).copied().flatten();
                    let usable = is_plain(scope.name()) && scope.declared() > 0;
                    around.zip(at).filter(|_| usable).map(|(around, at)| {
                        let key = (around, at, Arc::clone(scope.name()));
                        *known.entry(key).or_insert_with(|| {
                            let parent = Some((around, (at, Arc::clone(scope.name()))));
                            out.nodes.push(Node { parent, lines: BTreeMap::new() });
                            out.nodes.len() - 1
                        })
                    })
                }
            };
            out.of_scope.push(node);
        }
        out
    }

    /// The place of a line in the function of a scope, if both are known.
    fn location(&self, scope: usize, line: u64, discriminator: u64) -> Option<Location> {
        let declared = self.function.scopes().get(scope)?.declared();
        let known = line > 0 && declared > 0;
        let discriminator = match self.function.is_by_llvm() {
            true => base(discriminator),
            false => u32::try_from(discriminator).unwrap_or(0),
        };
        // Compilers look lines up like this, those before the function too.
        let offset = line.wrapping_sub(declared) as u16;
        known.then_some(Location { offset, discriminator })
    }

    fn line(&mut self, place: CodePlace) -> Option<&mut Line> {
        let at = self.location(place.scope(), place.line(), place.discriminator())?;
        self.discriminators |= place.discriminator() > 0;
        let node = self.of_scope.get(place.scope()).copied().flatten()?;
        Some(self.nodes.get_mut(node)?.lines.entry(at).or_default())
    }

    /// An instruction was executed so many times. Compilers make some for no line.
    fn execute(&mut self, place: CodePlace, times: u64) {
        let copies = match self.function.is_by_llvm() {
            true => duplication(place.discriminator()),
            false => 1,
        };
        let Some(line) = self.line(place) else { return };
        line.times = line.times.max(times.saturating_mul(copies));
    }

    fn call(&mut self, place: CodePlace, targets: Vec<(Arc<str>, u64)>) {
        let known = if targets.is_empty() { None } else { self.line(place) };
        let Some(line) = known else { return };
        for (name, times) in targets {
            let sum = line.targets.entry(name).or_default();
            *sum = sum.saturating_add(times);
        }
    }

    fn samples(self) -> Samples {
        let mut all: Vec<Samples> = Vec::with_capacity(self.nodes.len());
        let mut parents = Vec::with_capacity(self.nodes.len());
        for node in self.nodes {
            all.push(Samples { lines: node.lines, inlined: BTreeMap::new() });
            parents.push(node.parent);
        }
        // Callers come before what was inlined into them.
        while let (Some(samples), Some(Some((parent, key)))) =
            (all.pop_if(|_| parents.len() > 1), parents.pop())
        {
            all[parent].inlined.insert(key, samples);
        }
        all.pop().unwrap_or_default()
    }
}

impl Samples {
    /// Adds what another copy of the same function has.
    fn add(&mut self, other: Self) {
        for (at, line) in other.lines {
            let sum = self.lines.entry(at).or_default();
            sum.times = sum.times.saturating_add(line.times);
            for (name, times) in line.targets {
                let sum = sum.targets.entry(name).or_default();
                *sum = sum.saturating_add(times);
            }
        }
        for (key, samples) in other.inlined {
            self.inlined.entry(key).or_default().add(samples);
        }
    }

    /// The sum of all lines.
    fn total(&self) -> u64 {
        let own = self.lines.values().map(|line| line.times);
        let inlined = self.inlined.values().map(Self::total);
        own.chain(inlined).fold(0, u64::saturating_add)
    }

    fn render(&self, depth: usize, out: &mut String) {
        for (at, line) in &self.lines {
            let _ = write!(out, "{:depth$}{at}: {}", "", line.times);
            for (name, times) in &line.targets {
                let _ = write!(out, " {name}:{times}");
            }
            out.push('\n');
        }
        for ((at, name), samples) in &self.inlined {
            let total = samples.total();
            let _ = writeln!(out, "{:depth$}{at}: {name}:{total}", "");
            samples.render(depth + 1, out);
        }
    }
}

impl std::fmt::Display for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.discriminator {
            0 => write!(f, "{}", self.offset),
            discriminator => write!(f, "{}.{discriminator}", self.offset),
        }
    }
}

/// Returns whether the text form can hold a name.
fn is_plain(name: &str) -> bool {
    let is_odd = |c: char| c.is_whitespace() || c.is_control() || c == ':';
    let first = name.chars().next();
    let begins = first.is_some_and(|c| !c.is_ascii_digit() && !matches!(c, '[' | '#' | '!'));
    begins && !name.contains(is_odd)
}

/// The number of a discriminator's first part.
///
/// LLVM puts three numbers into a discriminator: the basic block, how many times the code was
/// duplicated, and which copy it is. A part is one bit that is set for 0, or 7 bits, or 14.
fn base(discriminator: u64) -> u32 {
    part(discriminator)
}

/// How many times the code was duplicated, each copy of which executed a part of the sum.
fn duplication(discriminator: u64) -> u64 {
    let behind = match (discriminator & 1, discriminator & 0x40) {
        (1, _) => discriminator >> 1,
        (_, 0) => discriminator >> 7,
        _ => discriminator >> 14,
    };
    u64::from(part(behind)).max(1)
}

fn part(bits: u64) -> u32 {
    let bits = bits as u32;
    let number = bits >> 1;
    match (bits & 1, number & 0x20) {
        (1, _) => 0,
        (_, 0) => number & 0x1f,
        _ => (number >> 1) & 0xfe0 | number & 0x1f,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discriminators_have_parts() {
        assert_eq!((base(0), duplication(0)), (0, 1));
        assert_eq!((base(2), duplication(2)), (1, 1));
        // Block 3 of code that there is four times.
        let four = 4 << 1 << 7 | 3 << 1;
        assert_eq!((base(four), duplication(four)), (3, 4));
        // No block, duplicated twice.
        assert_eq!((base(2 << 2 | 1), duplication(2 << 2 | 1)), (0, 2));
        // 100 does not fit into five bits.
        let large: u64 = ((100 & 0xfe0) << 1 | 100 & 0x1f | 0x20) << 1;
        assert_eq!((base(large), duplication(large | 5 << 1 << 14)), (100, 5));
    }

    #[test]
    fn parts_are_told_from_functions_and_their_clones() {
        assert!(is_part("f.cold") && is_part("f.isra.0.cold.3") && is_part("f.part.0"));
        assert!(!is_part("f") && !is_part("f.constprop.0"));
        assert!(!is_part("app.coldStart") && !is_part("app.part.sum"));
    }

    #[test]
    fn names_that_would_break_a_line_are_left_out() {
        for odd in ["", "a b", "a:b", "a\nb", "7up", "[main]", "#x", "!CFGChecksum"] {
            assert!(!is_plain(odd), "{odd:?}");
        }
        assert!(is_plain("_ZN1aE") && is_plain("main"));
    }
}
