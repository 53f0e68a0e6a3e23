//! A recording becomes a profile.

mod places;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use iced_x86::{Decoder, DecoderOptions};
use lwp_profile::{
    Block, BlockCount, BlockEnd, Builder, Code, Contexts, Event, Frame, Function, FunctionId,
    Location, LocationId, Mode, Module, ModuleId, Origin, Profile, RecordedFrame, RecordedSample,
    Recording, StackId, Thread, ThreadId, Tree, Values,
};
use rustc_hash::FxHashMap;

use crate::calls;
use crate::dwarf::SourceFrame;
use crate::files::Files;
use crate::generated::Generated;
use crate::module::ModuleNames;

pub use places::{Places, profile_with_places};

/// Where to look for names.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Directories laid out like `/usr/lib/debug`, searched before it.
    pub debug_roots: Vec<PathBuf>,
    /// What is told apart.
    pub detail: Detail,
    /// Enter every instruction of functions with samples, not only the sampled ones.
    pub whole_functions: bool,
}

/// How much of the code is told apart: the less, the sooner the profile is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// Functions: one location, that of its first instruction, stands for each.
    Functions,
    /// Instructions, without lines and inlined functions.
    Instructions,
    /// Instructions with their lines and inlined functions.
    #[default]
    Lines,
}

/// A profile, and what could not be found out.
#[derive(Clone, Debug, Default)]
pub struct Resolved {
    /// The profile.
    pub profile: Profile,
    /// What is missing, in words.
    pub warnings: Vec<String>,
    /// Files beside the recorded ones that names were found in.
    pub debug_files: Vec<PathBuf>,
}

/// The contexts of one event, and the functions in them.
#[derive(Clone, Debug, Default)]
pub struct InContext {
    /// Functions; of a sampled recording, without counts, which the contexts have.
    pub resolved: Resolved,
    /// The contexts.
    pub tree: Tree,
}

/// Finds the names for everything in `recording`, and the contexts of the event with index `event`.
///
/// Where stacks were recorded, what they have in common is there once, and so it is looked at once:
/// a million stacks take less than a second.
pub fn contexts(recording: &Recording, options: &Options, event: usize) -> InContext {
    if recording.events.is_empty() {
        let resolved = profile(recording, options);
        let tree = Tree::of(&resolved.profile, event);
        return InContext { resolved, tree };
    }
    let events = sampled_events(recording);
    let mut resolver = Resolver::new(recording, options, Mode::Sampled, events);
    let contexts = resolver.contexts(event);
    let (warnings, debug_files) = (resolver.warnings(), resolver.files.used());
    let (profile, renumbered) = resolver.builder.finish_renumbered();
    let tree = contexts.finish(true, |function| renumbered.functions[function.index()]);
    InContext { resolved: Resolved { profile, warnings, debug_files }, tree }
}

/// Finds the names for everything in `recording`.
pub fn profile(recording: &Recording, options: &Options) -> Resolved {
    let sampled = !recording.events.is_empty();
    let (mode, events) = match sampled {
        true => (Mode::Sampled, sampled_events(recording)),
        false => (Mode::Exact, Event::exact()),
    };
    let mut resolver = Resolver::new(recording, options, mode, events);
    if sampled {
        resolver.samples();
    } else {
        resolver.executions();
        calls::add(&mut resolver);
    }
    let (warnings, debug_files) = (resolver.warnings(), resolver.files.used());
    Resolved { profile: resolver.builder.finish(), warnings, debug_files }
}

fn sampled_events(recording: &Recording) -> Vec<Event> {
    let event = |event: &lwp_profile::SampledEvent| Event {
        name: event.name.clone(),
        interval: Some(event.interval),
        modelled: event.modelled,
    };
    recording.events.iter().map(event).collect()
}

/// Signed sums of the exact events: corrections may come before what they correct.
type Sums = [i64; Event::EXACT.len()];

/// The sums of a location.
fn sums_of(sums: &mut Vec<Sums>, location: LocationId) -> &mut Sums {
    if sums.len() <= location.index() {
        sums.resize(location.index() + 1, Sums::default());
    }
    &mut sums[location.index()]
}

/// Adds without minding an overflow, which only a forged recording can cause.
fn add(sum: &mut i64, value: i64) {
    *sum = sum.wrapping_add(value);
}

/// The work in progress.
pub struct Resolver<'a> {
    /// The recording.
    pub recording: &'a Recording,
    /// The profile being built.
    pub builder: Builder,
    /// Names by module number, one of each file: see [`Self::same`].
    pub names: BTreeMap<u32, ModuleNames>,
    files: Files<'a>,
    /// The number that stands for a module, where a file was mapped at several places.
    same: FxHashMap<u32, u32>,
    generated: Generated,
    modules: FxHashMap<u32, ModuleId>,
    /// By module, start, and whether it has a name: pages stand for code that has none.
    functions: FxHashMap<(u32, u64, bool), FunctionId>,
    threads: FxHashMap<u32, ThreadId>,
    /// By innermost frame.
    stacks: FxHashMap<u32, StackId>,
    /// The function looked up last: most questions are about it again.
    last: Option<Known>,
    /// Instructions of functions, by module and start: address and bytes.
    code: FxHashMap<(u32, u64), Rc<Vec<Instruction>>>,
    options: &'a Options,
}

/// A function, and addresses that belong to it without a doubt.
#[derive(Clone, Debug)]
struct Known {
    module: u32,
    about: Range<u64>,
    function: FunctionId,
    start: u64,
}

/// What the code at an address belongs to.
struct Found<'s> {
    start: u64,
    size: u64,
    /// `None` for a page without names.
    name: Option<&'s str>,
    origin: Origin,
    /// Addresses that belong to it without a doubt.
    about: Range<u64>,
}

/// Functions that are inlined into each other, outermost first, by module, address in the process, and whether
/// the address is that of a sampled instruction.
type InlinedAt = FxHashMap<(u32, u64, bool), Box<[FunctionId]>>;

/// An instruction's address and bytes.
type Instruction = (u64, Vec<u8>);

impl<'a> Resolver<'a> {
    fn new(recording: &'a Recording, options: &'a Options, mode: Mode, events: Vec<Event>) -> Self {
        let files = Files::new(&recording.files, &options.debug_roots);
        let find = |module: &lwp_profile::RecordedModule| {
            ModuleNames::find(module, &files, !recording.events.is_empty())
        };
        let mut first: FxHashMap<(&str, &[u8]), u32> = FxHashMap::default();
        let mut same = FxHashMap::default();
        for (&id, module) in &recording.modules {
            let number = match module.is_anonymous() {
                true => id,
                false => *first.entry((&module.path, &module.build_id)).or_insert(id),
            };
            same.insert(id, number);
        }
        let firsts = recording.modules.iter().filter(|(id, _)| same.get(id) == Some(id));
        Self {
            recording,
            builder: Builder::new(recording.info("command"), mode, events),
            names: firsts.map(|(&id, module)| (id, find(module))).collect(),
            files,
            same,
            generated: Generated::new(&recording.symbols),
            modules: FxHashMap::default(),
            functions: FxHashMap::default(),
            threads: FxHashMap::default(),
            stacks: FxHashMap::default(),
            last: None,
            code: FxHashMap::default(),
            options,
        }
    }

    /// What is missing, in words.
    fn warnings(&self) -> Vec<String> {
        let mut warnings = self.recording.warnings.clone();
        warnings.extend(self.names.values().flat_map(ModuleNames::warnings));
        warnings.dedup();
        warnings
    }

    /// The number under which everything about a module is kept: that of the first one of its file.
    pub fn same(&self, module: u32) -> u32 {
        self.same.get(&module).copied().unwrap_or(module)
    }

    fn module(&mut self, id: u32) -> ModuleId {
        if let Some(&module) = self.modules.get(&id) {
            return module;
        }
        let recorded = self.recording.modules.get(&id);
        let module = match recorded {
            Some(recorded) if !recorded.is_anonymous() || recorded.path == "[vdso]" => {
                Module { path: recorded.path.clone(), build_id: recorded.build_id.clone() }
            }
            Some(_) => Module { path: "[generated]".into(), build_id: Vec::new() },
            None => Module { path: "[unknown]".into(), build_id: Vec::new() },
        };
        let module = self.builder.module(module);
        self.modules.insert(id, module);
        module
    }

    /// The address that stands for `address` of the process: the file's own, or itself.
    pub fn file_address(&self, module: u32, address: u64) -> u64 {
        let Some(recorded) = self.recording.modules.get(&module) else { return address };
        let offset = recorded.offset_of(address);
        self.names.get(&self.same(module)).map_or(offset, |names| names.address_of(offset))
    }

    /// The function with code at a file's `address`, and its start.
    pub fn function_at(&mut self, module: u32, address: u64) -> (FunctionId, u64) {
        let module = self.same(module);
        let again = |last: &&Known| last.module == module && last.about.contains(&address);
        if let Some(last) = self.last.as_ref().filter(again) {
            return (last.function, last.start);
        }
        let Found { start, size, name, origin, about } = self.named_at(module, address);
        let key = (module, start, origin != Origin::Unknown);
        let known = self.functions.get(&key).copied();
        let name = if known.is_some() { None } else { name.map(str::to_owned) };
        let function = known.unwrap_or_else(|| {
            let name = name.unwrap_or_else(|| format!("{start:#x}"));
            let function = self.new_function(
                module,
                Function { name, size, origin, address: start, ..Function::default() },
            );
            self.functions.insert(key, function);
            function
        });
        self.last = Some(Known { module, about, function, start });
        (function, start)
    }

    /// Enters a function, with its module and where it is declared.
    fn new_function(&mut self, module: u32, function: Function) -> FunctionId {
        let frames = self.frames_at(module, function.address);
        let (file, line) =
            frames.last().map(|frame| (frame.file.to_string(), frame.line)).unwrap_or_default();
        let module = self.module(module);
        self.builder.function(Function { module, file, line, ..function })
    }

    /// What debug information says about a file's `address`, where that is wanted.
    fn frames_at(&self, module: u32, address: u64) -> Vec<SourceFrame> {
        let names = self.names.get(&module).filter(|_| self.options.detail == Detail::Lines);
        names.map(|names| names.frames_at(address, &self.files)).unwrap_or_default()
    }

    fn named_at(&self, module: u32, address: u64) -> Found<'_> {
        let elf = self.names.get(&module).and_then(|names| names.elf());
        if let Some((symbol, about)) = elf.and_then(|elf| elf.function_about(address)) {
            let origin = if symbol.stub { Origin::Stub } else { Origin::Symbol };
            let (start, size, name) = (symbol.address, symbol.size, Some(symbol.name));
            return Found { start, size, name, origin, about };
        }
        let about = address..address.saturating_add(1);
        if self.recording.modules.get(&module).is_none_or(|module| module.is_anonymous())
            && let Some(symbol) = self.generated.at(address)
        {
            let (start, size, name) = (symbol.address, symbol.size, Some(symbol.name.as_str()));
            return Found { start, size, name, origin: Origin::Generated, about };
        }
        // Without names, 4 KiB of code stand for a function.
        let start = address & !0xfff;
        Found { start, size: 0x1000, name: None, origin: Origin::Unknown, about }
    }

    /// The location of the instruction at a file's `address`.
    pub fn location(&mut self, module: u32, address: u64, bytes: &[u8]) -> LocationId {
        let module = self.same(module);
        if self.options.detail == Detail::Functions {
            return self.whole(module, address);
        }
        let module_id = self.module(module);
        if let Some(location) = self.builder.known_location(module_id, address) {
            return location;
        }
        let (function, _) = self.function_at(module, address);
        let found = self.frames_at(module, address);
        let mut frames = Vec::with_capacity(found.len().max(1));
        for (index, frame) in found.iter().enumerate() {
            let inlined = index + 1 < found.len();
            let function = match inlined {
                false => function,
                true => self.builder.function(Function {
                    module: module_id,
                    name: frame.name.clone(),
                    origin: Origin::Debug,
                    ..Function::default()
                }),
            };
            frames.push(Frame { function, file: frame.file.clone(), line: frame.line });
        }
        if frames.is_empty() {
            frames.push(Frame { function, file: Arc::default(), line: 0 });
        }
        let (bytes, frames) = (bytes.into(), frames.into());
        self.builder.location(Location { module: module_id, address, bytes, frames })
    }

    /// The location that stands for the whole function at a file's `address`.
    fn whole(&mut self, module: u32, address: u64) -> LocationId {
        let (function, start) = self.function_at(module, address);
        let module = self.module(module);
        if let Some(location) = self.builder.known_location(module, start) {
            return location;
        }
        let frames = [Frame { function, ..Frame::default() }].into();
        self.builder.location(Location { module, address: start, bytes: Code::default(), frames })
    }

    /// Counts of every instruction, by thread.
    fn executions(&mut self) {
        let recording = self.recording;
        for thread in recording.threads.values() {
            let mut sums: Vec<Sums> = Vec::new();
            let known = thread.blocks.iter().map(|count| (&recording.blocks[&count.block], count));
            let mut blocks: Vec<(&Block, &BlockCount)> = known.collect();
            // Neighbours are looked up one after the other.
            blocks.sort_unstable_by_key(|(block, _)| (block.module, block.address));
            for (block, count) in blocks {
                self.block(block, count.runs, count.not_taken, &mut sums);
            }
            for &(block, instructions, times) in &thread.partial {
                let block = &recording.blocks[&block];
                for (location, _) in self.instructions(block, usize::from(instructions)) {
                    add(&mut sums_of(&mut sums, location)[0], times as i64);
                }
            }
            for &(module, address, times) in &thread.steps {
                let module = module.unwrap_or(u32::MAX);
                let address = self.file_address(module, address);
                let location = self.location(module, address, &[]);
                add(&mut sums_of(&mut sums, location)[0], times);
            }
            for jump in thread.jumps.iter().filter(|jump| jump.alone) {
                let (module, address) = (jump.from.0.unwrap_or(u32::MAX), jump.from.1);
                let address = self.file_address(module, address);
                let location = self.location(module, address, &[]);
                let not_taken = if jump.taken { 0 } else { jump.times };
                branches(jump.end, jump.times, not_taken, sums_of(&mut sums, location));
            }
            let (comm, pid, tid) = (thread.comm.clone(), thread.pid, thread.tid);
            let thread = self.builder.thread(Thread { comm, pid, tid });
            for (index, sums) in sums.iter().enumerate() {
                let location = LocationId(index as u32);
                let values = Values(sums.iter().map(|&n| u64::try_from(n).unwrap_or(0)).collect());
                if !values.is_zero() {
                    let stack = self.builder.stack(vec![location]);
                    self.builder.sample(thread, stack, &values);
                }
            }
        }
    }

    fn block(&mut self, block: &Block, runs: u64, not_taken: u64, sums: &mut Vec<Sums>) {
        let all = block.lengths.len();
        let counted = usize::from(block.counted).min(all);
        for (location, last) in self.instructions(block, counted) {
            let sum = sums_of(sums, location);
            add(&mut sum[0], runs as i64);
            if !last || counted < all || block.end == BlockEnd::Other {
                continue;
            }
            branches(block.end, runs, not_taken, sum);
        }
    }

    /// The first `count` instructions of a block, and which one is its last.
    pub fn instructions(&mut self, block: &Block, count: usize) -> Vec<(LocationId, bool)> {
        let start = self.file_address(block.module, block.address);
        let mut offset = 0usize;
        let mut out = Vec::with_capacity(count);
        for (index, &len) in block.lengths.iter().take(count).enumerate() {
            let bytes = block.bytes.get(offset..offset + usize::from(len)).unwrap_or(&[]);
            let address = start.wrapping_add(offset as u64);
            let location = self.location(block.module, address, bytes);
            out.push((location, index + 1 == block.lengths.len()));
            offset += usize::from(len);
        }
        out
    }

    /// Samples with their stacks.
    fn samples(&mut self) {
        let recording = self.recording;
        let mut samples: Vec<&(RecordedSample, u64)> = recording.samples.iter().collect();
        samples.sort_unstable_by_key(|(sample, _)| (sample.serial, sample.frame, sample.event));
        let mut callers = vec![None; recording.frames.len()];
        let same_stack = |a: &&(RecordedSample, u64), b: &&(RecordedSample, u64)| {
            (a.0.serial, a.0.frame) == (b.0.serial, b.0.frame)
        };
        for events in samples.chunk_by(same_stack) {
            let (serial, frame) = (events[0].0.serial, events[0].0.frame);
            let Some(thread) = self.thread(serial) else { continue };
            let stack = self.stack(frame, &mut callers);
            let stack = self.builder.stack(stack);
            self.stacks.insert(frame, stack);
            let values = self.values(events.iter().copied());
            self.builder.sample(thread, stack, &values);
        }
    }

    fn thread(&mut self, serial: u32) -> Option<ThreadId> {
        if let Some(&thread) = self.threads.get(&serial) {
            return Some(thread);
        }
        let thread = self.recording.threads.get(&serial)?;
        let (comm, pid, tid) = (thread.comm.clone(), thread.pid, thread.tid);
        let thread = self.builder.thread(Thread { comm, pid, tid });
        self.threads.insert(serial, thread);
        Some(thread)
    }

    /// What samples stand for.
    fn values<'s>(&self, samples: impl Iterator<Item = &'s (RecordedSample, u64)>) -> Values {
        let events = &self.recording.events;
        let mut values = Values::zero(events.len());
        for (sample, times) in samples {
            let event = sample.event as usize;
            let count = times.saturating_mul(events[event].interval.max(1));
            values.0[event] = values.0[event].saturating_add(count);
        }
        values
    }

    /// The contexts of one event.
    fn contexts(&mut self, event: usize) -> Contexts {
        let recording = self.recording;
        let mut contexts = Contexts::default();
        // The context in which each frame calls; filled in for those that do.
        let mut calling: Vec<Option<u32>> = vec![None; recording.frames.len()];
        let mut waiting = Vec::new();
        let mut known = InlinedAt::default();
        let interval = recording.events.get(event).map_or(1, |event| event.interval.max(1));
        let of_event = |(sample, _): &&(RecordedSample, u64)| sample.event as usize == event;
        for (RecordedSample { frame, .. }, times) in recording.samples.iter().filter(of_event) {
            let leaf = recording.frames[*frame as usize];
            // Outwards to what is known, and inwards again.
            let mut at = leaf.caller;
            while let Some(index) = at
                && calling[index as usize].is_none()
            {
                waiting.push(index);
                at = recording.frames[index as usize].caller;
            }
            let outer = at.and_then(|index| calling[index as usize]);
            let mut context = outer.unwrap_or(Contexts::ROOT);
            while let Some(index) = waiting.pop() {
                let frame = recording.frames[index as usize];
                context = self.called(&mut contexts, context, &mut known, frame, false);
                calling[index as usize] = Some(context);
            }
            context = self.called(&mut contexts, context, &mut known, leaf, true);
            contexts.add(context, times.saturating_mul(interval));
        }
        contexts
    }

    /// The context of a frame's function reached from another one, inlined functions included.
    fn called(
        &mut self,
        contexts: &mut Contexts,
        from: u32,
        known: &mut InlinedAt,
        frame: RecordedFrame,
        leaf: bool,
    ) -> u32 {
        let module = frame.module.unwrap_or(u32::MAX);
        let names = self.names.get(&self.same(module));
        if !names.is_some_and(ModuleNames::has_debug) {
            let address = self.file_address(module, frame.address);
            return contexts.call(from, self.function_at(module, address).0);
        }
        let functions = known.entry((module, frame.address, leaf)).or_insert_with(|| {
            let location = self.sampled(frame.module, frame.address, leaf);
            let frames = self.builder.location_at(location).frames.iter().rev();
            frames.map(|frame| frame.function).collect()
        });
        functions.iter().fold(from, |context, function| contexts.call(context, *function))
    }

    /// The locations of a stack, innermost first.
    fn stack(&mut self, frame: u32, callers: &mut [Option<LocationId>]) -> Vec<LocationId> {
        let frames = &self.recording.frames;
        let leaf = frames[frame as usize];
        let mut stack = vec![self.sampled(leaf.module, leaf.address, true)];
        let mut next = leaf.caller;
        while let Some(index) = next {
            let frame = frames[index as usize];
            let location = match callers[index as usize] {
                Some(location) => location,
                None => self.sampled(frame.module, frame.address, false),
            };
            callers[index as usize] = Some(location);
            stack.push(location);
            next = frame.caller;
        }
        stack
    }

    /// The location of a frame: of a sampled instruction, or of the call that has `address` in it.
    fn sampled(&mut self, module: Option<u32>, address: u64, leaf: bool) -> LocationId {
        let module = module.unwrap_or(u32::MAX);
        let address = self.file_address(module, address);
        let same = self.same(module);
        if self.options.detail == Detail::Functions {
            return self.whole(same, address);
        }
        let code = self.code_of(same, address);
        let after = code.partition_point(|(start, _)| *start <= address);
        let within = after.checked_sub(1).map(|index| &code[index]);
        let within = within.filter(|(start, bytes)| address - start < bytes.len() as u64);
        if leaf && self.options.whole_functions {
            for (start, bytes) in code.iter() {
                self.location(same, *start, bytes);
            }
        }
        match within {
            Some((start, bytes)) if !leaf || *start == address => {
                self.location(same, *start, bytes)
            }
            _ => self.location(same, address, &[]),
        }
    }

    /// The instructions of the function at a file's `address`, as far as its bytes are known.
    fn code_of(&mut self, module: u32, address: u64) -> Rc<Vec<Instruction>> {
        let (_, start) = self.function_at(module, address);
        if let Some(code) = self.code.get(&(module, start)) {
            return Rc::clone(code);
        }
        let names = self.names.get(&module);
        let elf = names.and_then(|names| names.elf());
        // Without a name, where instructions start is not known.
        let symbol = elf.and_then(|elf| elf.function_at(start));
        let bytes = elf.zip(symbol).and_then(|(elf, symbol)| elf.code_at(start, symbol.size));
        let code = Rc::new(bytes.map(|bytes| instructions(start, bytes)).unwrap_or_default());
        self.code.insert((module, start), Rc::clone(&code));
        code
    }
}

/// Adds `runs` of a branch, of which `not_taken` were not taken.
fn branches(end: BlockEnd, runs: u64, not_taken: u64, sum: &mut Sums) {
    let (runs, not_taken) = (runs as i64, not_taken as i64);
    let conditional = i64::from(end == BlockEnd::Conditional);
    let taken = runs.wrapping_sub(not_taken * conditional);
    let call = matches!(end, BlockEnd::Call | BlockEnd::IndirectCall);
    let indirect = matches!(end, BlockEnd::IndirectCall | BlockEnd::IndirectJump);
    add(&mut sum[1], runs);
    add(&mut sum[2], taken);
    add(&mut sum[3], runs * conditional);
    add(&mut sum[4], taken * conditional);
    add(&mut sum[5], runs * i64::from(call));
    add(&mut sum[6], runs * i64::from(end == BlockEnd::Return));
    add(&mut sum[7], runs * i64::from(indirect));
}

/// The instructions of straight code.
fn instructions(start: u64, bytes: &[u8]) -> Vec<Instruction> {
    let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
    let mut out = Vec::new();
    while decoder.can_decode() {
        let at = decoder.position();
        let instruction = decoder.decode();
        let len = if instruction.is_invalid() { 1 } else { instruction.len() };
        out.push((start + at as u64, bytes[at..(at + len).min(bytes.len())].to_vec()));
        if instruction.is_invalid() && decoder.set_position(at + 1).is_err() {
            break;
        }
    }
    out
}
