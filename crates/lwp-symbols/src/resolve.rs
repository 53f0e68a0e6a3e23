//! A recording becomes a profile.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use iced_x86::{Decoder, DecoderOptions};
use lwp_profile::{
    Block, BlockEnd, Builder, Event, Frame, Function, FunctionId, Location, LocationId, Mode,
    Module, ModuleId, Origin, Profile, Recording, Thread, Values,
};

use crate::calls;
use crate::generated::Generated;
use crate::module::ModuleNames;

/// Where to look for names.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Directories laid out like `/usr/lib/debug`, searched before it.
    pub debug_roots: Vec<PathBuf>,
    /// Leave lines and inlined functions out.
    pub functions_only: bool,
    /// Enter every instruction of functions with samples, not only the sampled ones.
    pub whole_functions: bool,
}

/// A profile, and what could not be found out.
#[derive(Clone, Debug, Default)]
pub struct Resolved {
    /// The profile.
    pub profile: Profile,
    /// What is missing, in words.
    pub warnings: Vec<String>,
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
    let mut warnings = recording.warnings.clone();
    warnings.extend(resolver.names.values().filter_map(|names| names.warning.clone()));
    warnings.dedup();
    Resolved { profile: resolver.builder.finish(), warnings }
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
    /// The number that stands for a module, where a file was mapped at several places.
    same: HashMap<u32, u32>,
    generated: Generated,
    modules: HashMap<u32, ModuleId>,
    functions: HashMap<(u32, u64), FunctionId>,
    /// Instructions of functions, by module and start: address and bytes.
    code: HashMap<(u32, u64), Rc<Vec<Code>>>,
    options: &'a Options,
}

/// An instruction's address and bytes.
type Code = (u64, Vec<u8>);

impl<'a> Resolver<'a> {
    fn new(recording: &'a Recording, options: &'a Options, mode: Mode, events: Vec<Event>) -> Self {
        let find = |module: &lwp_profile::RecordedModule| {
            let code = !recording.events.is_empty();
            ModuleNames::find(module, &recording.files, &options.debug_roots, code)
        };
        let mut first: HashMap<(&str, &[u8]), u32> = HashMap::new();
        let mut same = HashMap::new();
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
            same,
            generated: Generated::new(&recording.symbols),
            modules: HashMap::new(),
            functions: HashMap::new(),
            code: HashMap::new(),
            options,
        }
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
        let (start, size, name, origin) = self.name_at(module, address);
        if let Some(&function) = self.functions.get(&(module, start)) {
            return (function, start);
        }
        let frames = match self.options.functions_only {
            true => Vec::new(),
            false => {
                self.names.get(&module).map(|names| names.frames_at(start)).unwrap_or_default()
            }
        };
        let (file, line) =
            frames.last().map(|frame| (frame.file.to_string(), frame.line)).unwrap_or_default();
        let module_id = self.module(module);
        let function = self.builder.function(Function {
            module: module_id,
            name,
            address: start,
            size,
            origin,
            file,
            line,
        });
        self.functions.insert((module, start), function);
        (function, start)
    }

    fn name_at(&self, module: u32, address: u64) -> (u64, u64, String, Origin) {
        if let Some(symbol) = self.names.get(&module).and_then(|names| names.function_at(address)) {
            let origin = if symbol.stub { Origin::Stub } else { Origin::Symbol };
            return (symbol.address, symbol.size, symbol.name.clone(), origin);
        }
        if self.recording.modules.get(&module).is_none_or(|module| module.is_anonymous())
            && let Some(symbol) = self.generated.at(address)
        {
            return (symbol.address, symbol.size, symbol.name.clone(), Origin::Generated);
        }
        // Without names, 4 KiB of code stand for a function.
        let page = address & !0xfff;
        (page, 0x1000, format!("{page:#x}"), Origin::Unknown)
    }

    /// The location of the instruction at a file's `address`.
    pub fn location(&mut self, module: u32, address: u64, bytes: &[u8]) -> LocationId {
        let module = self.same(module);
        let module_id = self.module(module);
        if let Some(location) = self.builder.known_location(module_id, address) {
            return location;
        }
        let (function, _) = self.function_at(module, address);
        let found = match self.options.functions_only {
            true => Vec::new(),
            false => {
                self.names.get(&module).map(|names| names.frames_at(address)).unwrap_or_default()
            }
        };
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

    /// Counts of every instruction, by thread.
    fn executions(&mut self) {
        let recording = self.recording;
        for thread in recording.threads.values() {
            let mut sums: Vec<Sums> = Vec::new();
            for count in &thread.blocks {
                let block = &recording.blocks[&count.block];
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
        let (runs, not_taken) = (runs as i64, not_taken as i64);
        for (location, last) in self.instructions(block, counted) {
            let sum = sums_of(sums, location);
            add(&mut sum[0], runs);
            if !last || counted < all || block.end == BlockEnd::Other {
                continue;
            }
            let conditional = i64::from(block.end == BlockEnd::Conditional);
            let taken = runs.wrapping_sub(not_taken * conditional);
            add(&mut sum[1], runs);
            add(&mut sum[2], taken);
            add(&mut sum[3], runs * conditional);
            add(&mut sum[4], taken * conditional);
            let call = matches!(block.end, BlockEnd::Call | BlockEnd::IndirectCall);
            let indirect = matches!(block.end, BlockEnd::IndirectCall | BlockEnd::IndirectJump);
            add(&mut sum[5], runs * i64::from(call));
            add(&mut sum[6], runs * i64::from(block.end == BlockEnd::Return));
            add(&mut sum[7], runs * i64::from(indirect));
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
        let mut counts: HashMap<(u32, u32), Vec<u64>> = HashMap::new();
        let events = recording.events.len();
        for (sample, times) in &recording.samples {
            let counts =
                counts.entry((sample.serial, sample.frame)).or_insert_with(|| vec![0; events]);
            counts[sample.event as usize] += times;
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_unstable();
        let mut callers: HashMap<u32, LocationId> = HashMap::new();
        for ((serial, frame), counts) in counts {
            let Some(thread) = recording.threads.get(&serial) else { continue };
            let stack = self.stack(frame, &mut callers);
            let scaled = counts.iter().zip(&recording.events);
            let values = scaled.map(|(n, event)| n.saturating_mul(event.interval.max(1)));
            let values = Values(values.collect());
            let (comm, pid, tid) = (thread.comm.clone(), thread.pid, thread.tid);
            let thread = self.builder.thread(Thread { comm, pid, tid });
            let stack = self.builder.stack(stack);
            self.builder.sample(thread, stack, &values);
        }
    }

    /// The locations of a stack, innermost first.
    fn stack(&mut self, frame: u32, callers: &mut HashMap<u32, LocationId>) -> Vec<LocationId> {
        let frames = &self.recording.frames;
        let mut stack = Vec::new();
        let leaf = frames[frame as usize];
        stack.push(self.sampled(leaf.module, leaf.address, true));
        let mut next = leaf.caller;
        while let Some(index) = next {
            let frame = frames[index as usize];
            let location = match callers.get(&index) {
                Some(&location) => location,
                None => {
                    let location = self.sampled(frame.module, frame.address, false);
                    callers.insert(index, location);
                    location
                }
            };
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
    fn code_of(&mut self, module: u32, address: u64) -> Rc<Vec<Code>> {
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

/// The instructions of straight code.
fn instructions(start: u64, bytes: &[u8]) -> Vec<Code> {
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
