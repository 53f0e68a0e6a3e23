//! A recording becomes a profile.

mod modelled;
mod modules;
mod places;
mod unnamed;

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use lwp_profile::{
    Block, BlockCount, BlockEnd, Builder, Code, Event, Frame, Function, FunctionId, Location,
    LocationId, Mode, Modelled, Module, ModuleId, Origin, Profile, Recording, StackId, Thread,
    ThreadId, Tree, Values,
};
use rustc_hash::FxHashMap;

use crate::bounds::Unnamed;
use crate::builds::Builds;
use crate::calls;
use crate::dwarf::SourceFrame;
use crate::files::Files;
use crate::folding::Folded;
use crate::generated::Generated;
use crate::identity::Identity;
use crate::language::Language;
use crate::module::ModuleNames;

pub use places::{Gathered, InSamples, samples};

/// Options of the search for names.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Directories laid out like `/usr/lib/debug`, searched before it.
    pub debug_roots: Vec<PathBuf>,
    /// The detail in which code is told apart.
    pub detail: Detail,
    /// Enter every instruction of functions with samples that are no larger, not only the sampled
    /// ones.
    pub whole_functions: Option<u64>,
    /// Look into the files first, and use the names that the recording keeps only of files that are
    /// gone.
    pub from_files: bool,
    /// A store of files that are not at their old places, by build id.
    pub builds: Option<Arc<dyn Builds>>,
    /// Files that are open since they were executed, by the paths that they had: for those whose
    /// path leads to another file by now, or to none.
    pub held: Vec<(String, Arc<File>)>,
    /// Show the evaluators of interpreted languages beside the functions that they execute.
    pub no_fold: bool,
    /// Leave functions of all other languages out of stacks.
    pub only: Option<Language>,
    /// Leave functions of other languages out of stacks if they call one of this language. Those
    /// that it calls stay.
    pub without_callers_of: Option<Language>,
}

/// The detail in which code is told apart: the less, the sooner the profile is there.
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
    /// The recording with names.
    pub profile: Profile,
    /// Remarks on missing names.
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
        false => (Mode::Exact, modelled::events(recording.is_modelled())),
    };
    let mut resolver = Resolver::new(recording, options, mode, events);
    if sampled {
        resolver.samples();
    } else {
        resolver.executions();
        calls::add(&mut resolver);
        crate::contexts::add(&mut resolver);
    }
    let (warnings, debug_files) = (resolver.warnings(), resolver.files.used());
    let resolved = Resolved { profile: resolver.builder.finish(), warnings, debug_files };
    match &recording.native {
        Some(native) if !sampled => resolved.with_native(native, options),
        _ => resolved,
    }
}

impl Resolved {
    /// The counts with the sampled times of the same program's native run.
    fn with_native(mut self, native: &Recording, options: &Options) -> Self {
        let found = profile(native, options);
        let news = found.warnings.into_iter().filter(|it| !self.warnings.contains(it));
        self.warnings.extend(news.collect::<Vec<_>>());
        self.debug_files.extend(found.debug_files);
        Self { profile: self.profile.with_native(&found.profile), ..self }
    }
}

/// A resolver that has looked up everything in `recording`, once, and counted nothing.
pub fn looked_up<'a>(recording: &'a Recording, options: &'a Options) -> Resolver<'a> {
    if !recording.events.is_empty() {
        let events = sampled_events(recording);
        let mut resolver = Resolver::new(recording, options, Mode::Sampled, events);
        resolver.frames();
        return resolver;
    }
    let mut resolver = Resolver::new(recording, options, Mode::Exact, Event::exact());
    resolver.names_alone = true;
    // Whoever called has every block looked up.
    calls::add(&mut resolver);
    let mut alone: Vec<(u32, u64)> = Vec::new();
    for thread in recording.threads.values() {
        let steps = thread.steps.iter().map(|step| (step.0, step.1));
        let jumps = thread.jumps.iter().map(|jump| jump.from);
        let places = steps.chain(jumps);
        alone.extend(places.map(|(module, address)| (module.unwrap_or(u32::MAX), address)));
    }
    alone.sort_unstable();
    alone.dedup();
    for (module, address) in alone {
        let address = resolver.file_address(module, address);
        resolver.location(module, address, &[]);
    }
    resolver
}

fn sampled_events(recording: &Recording) -> Vec<Event> {
    let event = |(event, weight): (&lwp_profile::SampledEvent, u64)| Event {
        name: event.name.clone(),
        interval: Some(weight),
        modelled: event.modelled,
    };
    recording.events.iter().zip(recording.weights()).map(event).collect()
}

/// Signed sums of the exact events, and of a model's: corrections may come before what they
/// correct.
type Sums = [i64; Event::EXACT.len() + Modelled::NAMES.len()];

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
    /// Files that names are read from.
    pub(crate) files: Files<'a>,
    /// The number that stands for a module, where a file was mapped at several places.
    same: FxHashMap<u32, u32>,
    generated: Generated,
    pub(crate) folded: Folded,
    modules: FxHashMap<u32, ModuleId>,
    /// By module, start, and whether it has a name: a named function may start in one without.
    functions: FxHashMap<(u32, u64, bool), FunctionId>,
    /// Addresses that calls led to, by module, once somebody has asked for them.
    starts: OnceCell<FxHashMap<u32, Vec<u64>>>,
    pub(crate) threads: FxHashMap<u32, ThreadId>,
    /// By innermost frame.
    pub(crate) stacks: FxHashMap<u32, StackId>,
    /// Words and functions that were found by name.
    pub found: FoundByName,
    /// The function looked up last: most questions are about it again.
    last: Option<Known>,
    /// The frames entered last: neighbours mostly share them.
    last_frames: Option<Shared>,
    /// True if only names are wanted: code without lines then needs no location for each
    /// instruction.
    names_alone: bool,
    /// Instructions of functions, by module and start: address and bytes.
    pub(crate) code: FxHashMap<(u32, u64), Rc<Vec<Instruction>>>,
    /// Functions that are wanted whole, by module and start, with their ends.
    pub(crate) whole: FxHashMap<(u32, u64), u64>,
    /// Remarks on what the recording lacks.
    pub(crate) remarks: Vec<String>,
    pub(crate) options: &'a Options,
}

/// Answers about imported functions, to be kept with the recording.
#[derive(Clone, Debug, Default)]
pub struct FoundByName {
    /// Words, by module and address, and the names of what they hold.
    pub imports: BTreeMap<(u32, u64), String>,
    /// Functions that a module exports: module, name and address.
    pub exports: BTreeMap<(u32, String), u64>,
}

/// Frames of the profile, and the answer of the debug information that they were made of.
struct Shared {
    function: FunctionId,
    found: Vec<SourceFrame>,
    frames: Arc<[Frame]>,
}

/// A function, and addresses that belong to it without a doubt.
#[derive(Clone, Debug)]
struct Known {
    /// The module's number, and the one that stands for it.
    asked: u32,
    module: u32,
    about: Range<u64>,
    function: FunctionId,
    start: u64,
}

impl Known {
    /// Returns whether the code at an address of `module` is this function's without a doubt.
    fn is_about(&self, module: u32, address: u64) -> bool {
        (self.asked == module || self.module == module) && self.about.contains(&address)
    }
}

/// The function that the code at an address belongs to.
struct Found<'s> {
    start: u64,
    size: u64,
    /// `None` where nothing names it.
    name: Option<&'s str>,
    origin: Origin,
    /// Addresses that belong to it without a doubt.
    about: Range<u64>,
}

/// An instruction's address and bytes.
pub type Instruction = (u64, Code);

impl<'a> Resolver<'a> {
    fn new(recording: &'a Recording, options: &'a Options, mode: Mode, events: Vec<Event>) -> Self {
        let mut files = Files::new(&recording.files, &options.debug_roots);
        files.builds = options.builds.as_deref();
        files.held = &options.held;
        let mut first: FxHashMap<(&str, &[u8]), u32> = FxHashMap::default();
        let mut same = FxHashMap::default();
        for (&id, module) in &recording.modules {
            let number = match module.is_anonymous() {
                true => id,
                false => *first.entry((&module.path, &module.build_id)).or_insert(id),
            };
            same.insert(id, number);
        }
        let mut builder = Builder::new(recording.info("command"), mode, events);
        builder.info(recording.info.clone());
        for image in recording.images.values() {
            builder.command(image.pid, &image.comm, &image.command);
        }
        let generated = Generated::new(&recording.symbols);
        let folded = Folded::new(recording, &generated, options);
        let remarks = match options.only.filter(|_| folded.is_whole()) {
            Some(only) => vec![format!("no stack has a function of {}", only.name())],
            None => Vec::new(),
        };
        Self {
            recording,
            builder,
            names: modules::names(recording, options, &files, &same),
            files,
            found: FoundByName::default(),
            same,
            generated,
            folded,
            modules: FxHashMap::default(),
            functions: FxHashMap::default(),
            starts: OnceCell::new(),
            threads: FxHashMap::default(),
            stacks: FxHashMap::default(),
            last: None,
            last_frames: None,
            names_alone: false,
            code: FxHashMap::default(),
            whole: FxHashMap::default(),
            remarks,
            options,
        }
    }

    /// Returns remarks on missing names.
    fn warnings(&self) -> Vec<String> {
        let mut warnings = self.recording.warnings.clone();
        warnings.extend(self.remarks.iter().cloned());
        warnings.extend(self.names.values().flat_map(ModuleNames::warnings));
        warnings.dedup();
        warnings
    }

    /// The functions of a module, by the number that everything about it is kept under.
    pub fn functions_of(&self, module: u32) -> impl Iterator<Item = FunctionId> {
        self.functions.iter().filter(move |(key, _)| key.0 == module).map(|(_, id)| *id)
    }

    /// Modules of the profile and the numbers that everything about them is kept under; only of
    /// files.
    pub fn module_numbers(&self) -> impl Iterator<Item = (ModuleId, u32)> {
        let of_file = |id: &u32| self.names.get(id).is_some_and(|names| names.elf().is_some());
        self.modules.iter().filter(move |(id, _)| of_file(id)).map(|(id, module)| (*module, *id))
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
                let elf = self.names.get(&self.same(id)).and_then(ModuleNames::elf);
                let identity = elf.map(|elf| elf.identity.clone()).unwrap_or_default();
                let (path, build_id) = (recorded.path.clone(), recorded.build_id.clone());
                let Identity { soname, program, go } = identity;
                Module { path, build_id, soname, program, go }
            }
            Some(recorded) if recorded.language().is_some() || recorded.is_label() => {
                Module { path: recorded.path.clone(), ..Module::default() }
            }
            Some(_) => Module { path: "[generated]".into(), ..Module::default() },
            None => Module { path: "[unknown]".into(), ..Module::default() },
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
        if let Some(last) = self.last.as_ref().filter(|last| last.is_about(module, address)) {
            return (last.function, last.start);
        }
        let asked = module;
        let module = self.same(module);
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
        self.last = Some(Known { asked, module, about, function, start });
        (function, start)
    }

    /// Looks up the functions with code in a range of a file's addresses.
    pub(crate) fn functions_in(&mut self, module: u32, range: Range<u64>) {
        let mut at = range.start;
        while at < range.end {
            self.function_at(module, at);
            at = self.last.as_ref().map_or(range.end, |known| known.about.end.max(at + 1));
        }
    }

    /// Enters a function, with its module and where it is declared.
    fn new_function(&mut self, module: u32, function: Function) -> FunctionId {
        let names = self.names.get(&module).filter(|_| self.options.detail == Detail::Lines);
        let declared = names.map(|names| names.declared_at(function.address, &self.files));
        let (file, line) = declared.unwrap_or_default();
        let (module, file) = (self.module(module), file.to_string());
        self.builder.function(Function { module, file, line, ..function })
    }

    /// Returns the frames that debug information has for a file's `address`, if lines are
    /// requested.
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
            let (start, size, name) = (symbol.address, symbol.size, Some(symbol.name));
            return Found { start, size, name, origin: Origin::Generated, about };
        }
        let unnamed = match elf {
            Some(elf) => elf.unnamed_at(address, || self.starts_in(module)),
            None => self.without_tables(module, address),
        };
        let Unnamed { range: Range { start, end }, about } = unnamed;
        Found { start, size: end - start, name: None, origin: Origin::Unknown, about }
    }

    /// Returns whether one location stands for all of a function in `module`, by the number that
    /// everything about it is kept under.
    fn by_function(&self, module: u32) -> bool {
        let has_lines = || self.names.get(&module).is_some_and(ModuleNames::may_have_lines);
        self.options.detail == Detail::Functions || self.names_alone && !has_lines()
    }

    /// The location of the instruction at a file's `address`.
    pub fn location(&mut self, module: u32, address: u64, bytes: &[u8]) -> LocationId {
        let module = self.same(module);
        if self.by_function(module) {
            return self.whole(module, address);
        }
        let module_id = self.module(module);
        if let Some(location) = self.builder.known_location(module_id, address) {
            return location;
        }
        let (function, _) = self.function_at(module, address);
        let frames = self.frames_of(module, function, address);
        let bytes = bytes.into();
        self.builder.location(Location { module: module_id, address, bytes, frames })
    }

    /// The frames at a file's `address`, which is in `function`, innermost first.
    fn frames_of(&mut self, module: u32, function: FunctionId, address: u64) -> Arc<[Frame]> {
        let found = self.frames_at(module, address);
        if let Some(last) = &self.last_frames
            && last.function == function
            && last.found == found
        {
            return Arc::clone(&last.frames);
        }
        let module = self.module(module);
        let mut frames = Vec::with_capacity(found.len().max(1));
        for (index, frame) in found.iter().enumerate() {
            let inlined = index + 1 < found.len();
            let function = match inlined {
                false => function,
                true => self.builder.function(Function {
                    module,
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
        let frames: Arc<[Frame]> = frames.into();
        self.last_frames = Some(Shared { function, found, frames: Arc::clone(&frames) });
        frames
    }

    /// The location that stands for the whole function at a file's `address`.
    pub fn whole(&mut self, module: u32, address: u64) -> LocationId {
        let (function, start) = self.function_at(module, address);
        let module_id = self.module(module);
        let unnamed = self.builder.function_at(function).origin == Origin::Unknown;
        let start = if unnamed { self.first_without_name(module, start, address) } else { start };
        if let Some(location) = self.builder.known_location(module_id, start) {
            return location;
        }
        let frames = [Frame { function, ..Frame::default() }].into();
        let (module, bytes) = (module_id, Code::default());
        self.builder.location(Location { module, address: start, bytes, frames })
    }

    /// The first address of a function without a name that is of no named one, as `address` is: a
    /// named function may reach into its start, and an address stands for one of them.
    fn first_without_name(&self, module: u32, start: u64, address: u64) -> u64 {
        let module = self.same(module);
        let mut at = start;
        while at < address {
            let found = self.named_at(module, at);
            if found.origin == Origin::Unknown {
                break;
            }
            at = found.about.end.max(at + 1);
        }
        at.min(address)
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
                for (location, run) in self.instructions(block, usize::from(instructions)) {
                    let executed = run.wrapping_mul(times as i64);
                    add(&mut sums_of(&mut sums, location)[0], executed);
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
            if recording.is_modelled() {
                self.model(thread, &mut sums);
            }
            let events = self.builder.events();
            let (comm, pid, tid) = (thread.comm.clone(), thread.pid, thread.tid);
            let thread = self.builder.thread(Thread { comm, pid, tid });
            for (index, sums) in sums.iter().enumerate() {
                let location = LocationId(index as u32);
                let values = sums[..events].iter().map(|&n| u64::try_from(n).unwrap_or(0));
                let values = Values(values.collect());
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
        let instructions = self.instructions(block, counted);
        for &(location, run) in &instructions {
            add(&mut sums_of(sums, location)[0], run.wrapping_mul(runs as i64));
        }
        if let Some(&(location, _)) = instructions.last()
            && counted == all
            && block.end != BlockEnd::Other
        {
            branches(block.end, runs, not_taken, sums_of(sums, location));
        }
    }

    /// The locations of the first `count` instructions of a block in their order, and how many
    /// instructions in a row each stands for.
    pub fn instructions(&mut self, block: &Block, count: usize) -> Vec<(LocationId, i64)> {
        let start = self.file_address(block.module, block.address);
        let by_function = self.by_function(self.same(block.module));
        let mut offset = 0usize;
        let mut out: Vec<(LocationId, i64)> = Vec::new();
        for &len in block.lengths.iter().take(count) {
            let address = start.wrapping_add(offset as u64);
            let again = |last: &Known| last.is_about(block.module, address);
            match out.last_mut().filter(|_| by_function && self.last.as_ref().is_some_and(again)) {
                Some((_, run)) => *run += 1,
                None => {
                    let bytes = block.bytes.get(offset..offset + usize::from(len)).unwrap_or(&[]);
                    out.push((self.location(block.module, address, bytes), 1));
                }
            }
            offset += usize::from(len);
        }
        out
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
