//! Building a profile: everything is entered by what it is, and put into canonical order at the
//! end.

use std::collections::BTreeMap;
use std::hash::Hash;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::arrange;
use crate::contexts::ContextKind;
use crate::profile::{
    Call, CallKind, Code, Context, Event, Frame, Function, FunctionId, Location, LocationId, Mode,
    Module, ModuleId, Profile, Sample, Stack, StackId, Thread, ThreadId, Values,
};

/// The frames of a location.
type Frames = Arc<[Frame]>;

/// A stack by its locations, innermost first.
pub type StackKey = Vec<LocationId>;

/// A table of different things in the order they came.
#[derive(Clone, Debug)]
struct Table<T> {
    items: Vec<T>,
    numbers: FxHashMap<T, u32>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { items: Vec::new(), numbers: FxHashMap::default() }
    }
}

impl<T: Clone + Eq + Hash> Table<T> {
    fn add(&mut self, item: T) -> u32 {
        if let Some(&number) = self.numbers.get(&item) {
            return number;
        }
        let number = u32::try_from(self.items.len()).expect("fewer than four billion items");
        self.items.push(item.clone());
        self.numbers.insert(item, number);
        number
    }
}

/// Final numbers in a profile, by the ones that things were entered under.
#[derive(Clone, Debug, Default)]
pub struct Renumbered {
    /// The final number of each function, by its number on entry.
    pub functions: Vec<FunctionId>,
    /// The final number of each location, by its number on entry.
    pub locations: Vec<LocationId>,
    /// The final number of each stack, by its number on entry.
    pub stacks: Vec<StackId>,
    /// The final number of each thread, by its number on entry.
    pub threads: Vec<ThreadId>,
}

/// Collects a profile.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    command: String,
    info: BTreeMap<String, String>,
    commands: BTreeMap<(i32, String), String>,
    mode: Mode,
    events: Vec<Event>,
    modules: Table<Module>,
    functions: Table<Function>,
    places: FxHashMap<(ModuleId, u64), LocationId>,
    locations: Vec<Location>,
    stacks: Table<Arc<[LocationId]>>,
    threads: Table<Thread>,
    samples: FxHashMap<(ThreadId, StackId), Values>,
    calls: FxHashMap<(Option<LocationId>, FunctionId, CallKind), u64>,
    contexts: Vec<Context>,
    known_contexts: FxHashMap<ContextKey, u32>,
}

/// What tells contexts apart: thread, caller, place of the call, function and kind.
type ContextKey = (ThreadId, Option<u32>, Option<LocationId>, FunctionId, ContextKind);

impl Builder {
    /// An empty profile of these events.
    pub fn new(command: impl Into<String>, mode: Mode, events: Vec<Event>) -> Self {
        Self { command: command.into(), mode, events, ..Self::default() }
    }

    /// Returns the number of events that the values have.
    pub fn events(&self) -> usize {
        self.events.len()
    }

    /// Takes over what is known about the run.
    pub fn info(&mut self, info: BTreeMap<String, String>) {
        self.info = info;
    }

    /// Notes the arguments of a process with this name.
    pub fn command(&mut self, pid: i32, comm: &str, command: &str) {
        if !command.is_empty() {
            self.commands.insert((pid, comm.to_owned()), command.to_owned());
        }
    }

    /// Enters a module.
    pub fn module(&mut self, module: Module) -> ModuleId {
        ModuleId(self.modules.add(module))
    }

    /// Enters a function.
    pub fn function(&mut self, function: Function) -> FunctionId {
        FunctionId(self.functions.add(function))
    }

    /// The location at an address, if it has been entered.
    pub fn known_location(&self, module: ModuleId, address: u64) -> Option<LocationId> {
        self.places.get(&(module, address)).copied()
    }

    /// Enters a location. Of two descriptions of one address the greater one stays, so that the
    /// order in which they come does not matter.
    pub fn location(&mut self, location: Location) -> LocationId {
        let key = (location.module, location.address);
        if let Some(&id) = self.places.get(&key) {
            let known = &self.locations[id.index()];
            if self.functions_named(&location) > self.functions_named(known) {
                self.locations[id.index()] = location;
            }
            return id;
        }
        let id = LocationId(self.locations.len() as u32);
        self.places.insert(key, id);
        self.locations.push(location);
        id
    }

    /// A description by content, which does not depend on numbers.
    fn functions_named(&self, location: &Location) -> (Code, Vec<(Function, Arc<str>, u32)>) {
        let frames = location.frames.iter().map(|frame| {
            let function = self.functions.items[frame.function.index()].clone();
            (Function { module: ModuleId::default(), ..function }, frame.file.clone(), frame.line)
        });
        (location.bytes, frames.collect())
    }

    /// Enters a stack.
    ///
    /// # Panics
    ///
    /// If it is empty.
    pub fn stack(&mut self, locations: StackKey) -> StackId {
        assert!(!locations.is_empty(), "a stack has at least one location");
        StackId(self.stacks.add(locations.into()))
    }

    /// Enters a thread.
    pub fn thread(&mut self, thread: Thread) -> ThreadId {
        ThreadId(self.threads.add(thread))
    }

    /// Adds counts.
    pub fn sample(&mut self, thread: ThreadId, stack: StackId, values: &Values) {
        let zero = || Values::zero(values.0.len());
        self.samples.entry((thread, stack)).or_insert_with(zero).add(values);
    }

    /// Adds calls.
    pub fn call(&mut self, from: Option<LocationId>, to: FunctionId, kind: CallKind, count: u64) {
        let sum = self.calls.entry((from, to, kind)).or_default();
        *sum = sum.saturating_add(count);
    }

    /// Adds a context's counts, and returns its number for those that are called from it. Its
    /// caller has been entered before.
    pub fn context(&mut self, context: Context) -> u32 {
        let Context { thread, caller, site, function, kind, .. } = context;
        let next = self.contexts.len() as u32;
        let key = (thread, caller, site, function, kind);
        let number = *self.known_contexts.entry(key).or_insert(next);
        if number == next {
            self.contexts.push(Context { calls: 0, instructions: 0, ..context });
        }
        self.add_to_context(number, context.calls, context.instructions);
        number
    }

    /// Adds to the counts of a context that has been entered.
    pub fn add_to_context(&mut self, number: u32, calls: u64, instructions: u64) {
        let known = &mut self.contexts[number as usize];
        known.calls = known.calls.saturating_add(calls);
        known.instructions = known.instructions.saturating_add(instructions);
    }

    /// Drops all contexts.
    pub fn drop_contexts(&mut self) {
        (self.contexts, self.known_contexts) = Default::default();
    }

    /// The locations as they were entered.
    pub fn locations(&self) -> &[Location] {
        &self.locations
    }

    /// The function with this number, as it was entered.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn function_at(&self, id: FunctionId) -> &Function {
        &self.functions.items[id.index()]
    }

    /// The location with this number, as it was entered.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn location_at(&self, id: LocationId) -> &Location {
        &self.locations[id.index()]
    }

    /// The profile, everything sorted and renumbered.
    pub fn finish(self) -> Profile {
        self.finish_renumbered().0
    }

    /// The profile, everything sorted and renumbered, with the final number of each entry by its
    /// first one.
    pub fn finish_renumbered(self) -> (Profile, Renumbered) {
        let (modules, new_module) = sorted(self.modules.items, |module| module);
        let functions: Vec<Function> = self
            .functions
            .items
            .into_iter()
            .map(|function| Function {
                module: ModuleId(new_module[function.module.index()]),
                ..function
            })
            .collect();
        let (functions, new_function) = sorted(functions, |function| function);
        let renumber = |frame: Frame| Frame {
            function: FunctionId(new_function[frame.function.index()]),
            ..frame
        };
        // Neighbours that share their frames go on doing so.
        let mut last: Option<(Frames, Frames)> = None;
        let mut renumbered = |frames: Frames| match &last {
            Some((old, new)) if Arc::ptr_eq(old, &frames) => Arc::clone(new),
            _ => {
                let new: Frames = frames.iter().cloned().map(renumber).collect();
                last = Some((frames, Arc::clone(&new)));
                new
            }
        };
        let locations: Vec<Location> = self
            .locations
            .into_iter()
            .map(|location| Location {
                module: ModuleId(new_module[location.module.index()]),
                frames: renumbered(location.frames),
                ..location
            })
            .collect();
        let (locations, new_location) = sorted(locations, |location| location);
        let relocate = |id: LocationId| LocationId(new_location[id.index()]);
        let relocated = |stack: Arc<[LocationId]>| {
            // A stack's only owner may change it where it is.
            let mut locations = stack;
            match Arc::get_mut(&mut locations) {
                Some(own) => own.iter_mut().for_each(|id| *id = relocate(*id)),
                None => locations = locations.iter().copied().map(relocate).collect(),
            }
            Stack { locations }
        };
        drop(self.stacks.numbers);
        let stacks: Vec<Stack> = self.stacks.items.into_iter().map(relocated).collect();
        let (stacks, new_stack) = sorted(stacks, |stack| stack);
        let (threads, new_thread) = sorted(self.threads.items, |thread| thread);
        let mut samples: Vec<Sample> = self
            .samples
            .into_iter()
            .map(|((thread, stack), values)| Sample {
                thread: ThreadId(new_thread[thread.index()]),
                stack: StackId(new_stack[stack.index()]),
                values,
            })
            .collect();
        samples.sort_unstable_by_key(|sample| (sample.thread, sample.stack));
        let mut calls: Vec<Call> = self
            .calls
            .into_iter()
            .map(|((from, to, kind), count)| Call {
                from: from.map(relocate),
                to: FunctionId(new_function[to.index()]),
                kind,
                count,
            })
            .collect();
        calls.sort_unstable();
        drop(self.known_contexts);
        let mut contexts = self.contexts;
        for context in &mut contexts {
            context.thread = ThreadId(new_thread[context.thread.index()]);
            context.site = context.site.map(relocate);
            context.function = FunctionId(new_function[context.function.index()]);
        }
        let contexts = arrange::contexts(&contexts);
        let renumbered = Renumbered {
            functions: new_function.into_iter().map(FunctionId).collect(),
            locations: new_location.into_iter().map(LocationId).collect(),
            stacks: new_stack.into_iter().map(StackId).collect(),
            threads: new_thread.into_iter().map(ThreadId).collect(),
        };
        let profile = Profile {
            command: self.command,
            info: self.info,
            mode: self.mode,
            events: self.events,
            modules,
            functions,
            locations,
            stacks,
            threads,
            commands: self.commands,
            samples,
            calls,
            contexts,
        };
        (profile, renumbered)
    }
}

/// The items in order, and each old index's new one.
fn sorted<T: Ord>(items: Vec<T>, key: impl Fn(&T) -> &T) -> (Vec<T>, Vec<u32>) {
    let mut order: Vec<u32> = (0..items.len() as u32).collect();
    order.sort_unstable_by(|&a, &b| {
        key(&items[a as usize]).cmp(key(&items[b as usize])).then(a.cmp(&b))
    });
    let mut new = vec![0; items.len()];
    for (index, &old) in order.iter().enumerate() {
        new[old as usize] = index as u32;
    }
    let mut items: Vec<Option<T>> = items.into_iter().map(Some).collect();
    let sorted = order.iter().filter_map(|&old| items[old as usize].take()).collect();
    (sorted, new)
}
