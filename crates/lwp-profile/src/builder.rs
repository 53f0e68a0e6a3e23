//! Building a profile: everything is entered by what it is, and put into canonical order at the end.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use crate::profile::{
    Call, CallKind, Event, Frame, Function, FunctionId, Location, LocationId, Mode, Module,
    ModuleId, Profile, Sample, Stack, StackId, Thread, ThreadId, Values,
};

/// A stack by its locations, innermost first.
pub type StackKey = Vec<LocationId>;

/// A table of different things in the order they came.
#[derive(Clone, Debug)]
struct Table<T> {
    items: Vec<T>,
    numbers: HashMap<T, u32>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { items: Vec::new(), numbers: HashMap::new() }
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

/// Collects a profile.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    command: String,
    mode: Mode,
    events: Vec<Event>,
    modules: Table<Module>,
    functions: Table<Function>,
    places: HashMap<(ModuleId, u64), LocationId>,
    locations: Vec<Location>,
    stacks: Table<StackKey>,
    threads: Table<Thread>,
    samples: HashMap<(ThreadId, StackId), Values>,
    calls: HashMap<(Option<LocationId>, FunctionId, CallKind), u64>,
}

impl Builder {
    /// An empty profile of these events.
    pub fn new(command: impl Into<String>, mode: Mode, events: Vec<Event>) -> Self {
        Self { command: command.into(), mode, events, ..Self::default() }
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
    fn functions_named(&self, location: &Location) -> (Vec<u8>, Vec<(Function, String, u32)>) {
        let frames = location.frames.iter().map(|frame| {
            let function = self.functions.items[frame.function.index()].clone();
            (Function { module: ModuleId::default(), ..function }, frame.file.clone(), frame.line)
        });
        (location.bytes.clone(), frames.collect())
    }

    /// Enters a stack.
    ///
    /// # Panics
    ///
    /// If it is empty.
    pub fn stack(&mut self, locations: StackKey) -> StackId {
        assert!(!locations.is_empty(), "a stack has at least one location");
        StackId(self.stacks.add(locations))
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

    /// The profile, everything sorted and renumbered.
    pub fn finish(self) -> Profile {
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
        let locations: Vec<Location> = self
            .locations
            .into_iter()
            .map(|location| Location {
                module: ModuleId(new_module[location.module.index()]),
                frames: location.frames.into_iter().map(renumber).collect(),
                ..location
            })
            .collect();
        let (locations, new_location) = sorted(locations, |location| location);
        let relocate = |id: LocationId| LocationId(new_location[id.index()]);
        let stacks: Vec<Stack> = self
            .stacks
            .items
            .into_iter()
            .map(|stack| Stack { locations: stack.into_iter().map(relocate).collect() })
            .collect();
        let (stacks, new_stack) = sorted(stacks, |stack| stack);
        let (threads, new_thread) = sorted(self.threads.items, |thread| thread);
        let samples: BTreeMap<(ThreadId, StackId), Values> = self
            .samples
            .into_iter()
            .map(|((thread, stack), values)| {
                let thread = ThreadId(new_thread[thread.index()]);
                ((thread, StackId(new_stack[stack.index()])), values)
            })
            .collect();
        let samples = samples
            .into_iter()
            .map(|((thread, stack), values)| Sample { thread, stack, values })
            .collect();
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
        Profile {
            command: self.command,
            mode: self.mode,
            events: self.events,
            modules,
            functions,
            locations,
            stacks,
            threads,
            samples,
            calls,
        }
    }
}

/// The items in order, and each old index's new one.
fn sorted<T: Ord>(items: Vec<T>, key: impl Fn(&T) -> &T) -> (Vec<T>, Vec<u32>) {
    let mut numbered: Vec<(T, usize)> =
        items.into_iter().enumerate().map(|(index, item)| (item, index)).collect();
    numbered.sort_by(|a, b| key(&a.0).cmp(key(&b.0)).then(a.1.cmp(&b.1)));
    let mut new = vec![0; numbered.len()];
    let items = numbered
        .into_iter()
        .enumerate()
        .map(|(index, (item, old))| {
            new[old] = index as u32;
            item
        })
        .collect();
    (items, new)
}
