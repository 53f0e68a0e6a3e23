//! Counts of one run and sampled times of another, in one profile.
//!
//! A program that runs natively has time and no counts; on the virtual CPU it has counts, and its
//! time says nothing. What both runs executed is paired by module, by build id, and by address:
//! generated code by its name, functions of interpreted languages by name and line.
//!
//! Promise: R139

use rustc_hash::FxHashMap;

use crate::builder::Builder;
use crate::merge::{NUMBERS, enter};
use crate::profile::{
    Event, Frame, Function, FunctionId, Location, LocationId, Module, ModuleId, Origin, Profile,
    Values,
};

/// Facts about a native run that are told beside the counts, further to numbers.
const FACTS: [&str; 4] = ["mechanism", "rate", "sample-cost", "kernel-time"];

impl Profile {
    /// These counts with the sampled times of `native`, the program's native run, as one more
    /// event. Its samples keep their stacks.
    ///
    /// If `native` has no time, the counts stay alone.
    pub fn with_native(&self, native: &Self) -> Self {
        let Some(time) = native.events.iter().position(Event::is_time) else { return self.clone() };
        let mut events = self.events.clone();
        events.push(native.events[time].clone());
        let mut builder = Builder::new(self.command.clone(), self.mode, events);
        let facts = NUMBERS.iter().chain(&FACTS).filter_map(|key| native.info.get_key_value(*key));
        let mut info = self.info.clone();
        info.extend(facts.map(|(key, value)| (key.clone(), value.clone())));
        builder.info(info);
        enter(&mut builder, self);
        let mut pairs = Pairs::new(builder, self, native);
        let zero = Values::zero(self.events.len() + 1);
        for sample in native.samples.iter().filter(|sample| sample.values.get(time) > 0) {
            let thread = native.threads[sample.thread.index()].clone();
            let thread = pairs.builder.thread(thread);
            let stack = &native.stacks[sample.stack.index()];
            let stack = stack.locations.iter().map(|id| pairs.location(*id)).collect();
            let stack = pairs.builder.stack(stack);
            let mut values = zero.clone();
            values.0[self.events.len()] = sample.values.get(time);
            pairs.builder.sample(thread, stack, &values);
        }
        pairs.builder.finish()
    }
}

/// What tells a function from the others of its module in both runs.
type Identity = (ModuleId, String, u64);

fn identity(module: ModuleId, of: &Module, function: &Function) -> Identity {
    // What has no file is somewhere else in each run.
    let place = match (of.interpreted(), of.path.starts_with('[')) {
        (Some(_), _) => function.line.into(),
        (None, true) => 0,
        (None, false) => function.address,
    };
    (module, function.name.clone(), place)
}

/// The counted run's numbers for what the native run executed.
struct Pairs<'a> {
    builder: Builder,
    native: &'a Profile,
    modules: Vec<ModuleId>,
    known: FxHashMap<Identity, FunctionId>,
    /// Counted functions by module and first address, with their ends.
    by_address: FxHashMap<ModuleId, Vec<(u64, u64, FunctionId)>>,
    functions: FxHashMap<FunctionId, FunctionId>,
    locations: FxHashMap<LocationId, LocationId>,
}

impl<'a> Pairs<'a> {
    fn new(mut builder: Builder, counted: &Profile, native: &'a Profile) -> Self {
        let mut entered = |module: &Module| {
            let same =
                |known: &&Module| known.path == module.path && known.build_id == module.build_id;
            let known = counted.modules.iter().find(same).unwrap_or(module);
            builder.module(known.clone())
        };
        let modules = native.modules.iter().map(&mut entered).collect();
        let counted_modules: Vec<ModuleId> = counted.modules.iter().map(entered).collect();
        let mut known = FxHashMap::default();
        let mut by_address: FxHashMap<ModuleId, Vec<(u64, u64, FunctionId)>> = FxHashMap::default();
        for function in &counted.functions {
            let module = counted_modules[function.module.index()];
            let of = &counted.modules[function.module.index()];
            let id = builder.function(Function { module, ..function.clone() });
            known.entry(identity(module, of, function)).or_insert(id);
            if function.origin != Origin::Debug && !of.path.starts_with('[') {
                let end = function.address.saturating_add(function.size);
                by_address.entry(module).or_default().push((function.address, end, id));
            }
        }
        by_address.values_mut().for_each(|functions| functions.sort_unstable());
        let (functions, locations) = Default::default();
        Self { builder, native, modules, known, by_address, functions, locations }
    }

    fn function(&mut self, id: FunctionId) -> FunctionId {
        if let Some(known) = self.functions.get(&id) {
            return *known;
        }
        let function = self.native.function(id);
        let module = self.modules[function.module.index()];
        let known = self.known.get(&identity(module, self.native.module_of(id), function));
        let found = match known {
            Some(known) => *known,
            None => self.builder.function(Function { module, ..function.clone() }),
        };
        self.functions.insert(id, found);
        found
    }

    /// The counted function around an address, for code that has no name: where such a function
    /// begins is known from what called it.
    fn around(&self, module: ModuleId, address: u64) -> Option<FunctionId> {
        let functions = self.by_address.get(&module)?;
        let after = functions.partition_point(|(start, ..)| *start <= address);
        let (_, end, id) = functions[..after].last()?;
        (address < *end).then_some(*id)
    }

    fn location(&mut self, id: LocationId) -> LocationId {
        if let Some(known) = self.locations.get(&id) {
            return *known;
        }
        let location = self.native.location(id);
        let module = self.modules[location.module.index()];
        let has_file = !self.native.modules[location.module.index()].path.starts_with('[');
        let counted = self.builder.known_location(module, location.address);
        let found = match counted.filter(|_| has_file) {
            Some(counted) => counted,
            None => {
                let unknown = self.native.function(location.function()).origin == Origin::Unknown;
                let around = self.around(module, location.address).filter(|_| unknown);
                let outermost = location.frames.len().saturating_sub(1);
                let mut frames: Vec<Frame> = Vec::with_capacity(location.frames.len());
                for (index, frame) in location.frames.iter().enumerate() {
                    let known = around.filter(|_| index == outermost);
                    let function = known.unwrap_or_else(|| self.function(frame.function));
                    frames.push(Frame { function, ..frame.clone() });
                }
                let frames = frames.into();
                self.builder.location(Location { module, frames, ..location.clone() })
            }
        };
        self.locations.insert(id, found);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CallGraph, Inclusive, Mode, Thread};

    /// A profile of functions `(name, address, origin)` of 16 bytes each in a program, and stacks
    /// of addresses, innermost first, with their value of the event.
    fn profile(
        (mode, event): (Mode, Event),
        functions: &[(&str, u64, Origin)],
        stacks: &[(&[u64], u64)],
    ) -> Profile {
        let mut builder = Builder::new("c", mode, vec![event]);
        let path = "/bin/c".to_owned();
        let module = builder.module(Module { path, build_id: vec![1], ..Module::default() });
        let mut numbers = Vec::new();
        for (name, address, origin) in functions {
            let (name, address, origin) = ((*name).to_owned(), *address, *origin);
            let function =
                Function { module, name, address, size: 16, origin, ..Function::default() };
            numbers.push((address, builder.function(function)));
        }
        let thread = builder.thread(Thread { pid: 1, tid: 1, ..Thread::default() });
        for (addresses, value) in stacks {
            let mut stack = Vec::new();
            for &address in *addresses {
                let of = numbers.iter().find(|(start, _)| (*start..start + 16).contains(&address));
                let function = of.expect("a function").1;
                let frames = [Frame { function, ..Frame::default() }].into();
                stack.push(builder.location(Location {
                    module,
                    address,
                    frames,
                    ..Location::default()
                }));
            }
            let stack = builder.stack(stack);
            builder.sample(thread, stack, &Values(vec![*value]));
        }
        builder.finish()
    }

    #[test]
    fn counts_and_times_of_one_function_meet() {
        let (symbol, unknown) = (Origin::Symbol, Origin::Unknown);
        let counted = Event { name: "instructions".into(), ..Event::default() };
        let functions = [("main", 0, symbol), ("leaf", 16, symbol), ("", 32, unknown)];
        let stacks: [(&[u64], u64); 3] = [(&[0], 5), (&[16], 70), (&[32], 9)];
        let counted = profile((Mode::Exact, counted), &functions, &stacks);
        let time = Event { name: Event::TIME.into(), interval: Some(10), modelled: false };
        // The native run has seen the middle of what has no name, and a function of its own.
        let functions =
            [("main", 0, symbol), ("leaf", 16, symbol), ("", 36, unknown), ("late", 64, symbol)];
        let stacks: [(&[u64], u64); 3] = [(&[20, 3], 30), (&[40, 3], 20), (&[64], 10)];
        let native = profile((Mode::Sampled, time), &functions, &stacks);
        let both = counted.with_native(&native);
        let names: Vec<&str> = both.events.iter().map(|event| event.name.as_str()).collect();
        assert_eq!(names, ["instructions", "cpu-time"]);
        let own = both.by_function();
        let of = |address| {
            let index = both.functions.iter().position(|it| it.address == address).expect("there");
            own[index].0.clone()
        };
        assert_eq!([of(0), of(16), of(32), of(64)], [[5, 0], [70, 30], [9, 20], [0, 10]]);
        assert_eq!(both.functions.len(), 4);
        // Inclusive times are those of the stacks.
        let inclusive = Inclusive::of(&both, &CallGraph::of(&both), 1);
        let main = both.functions.iter().position(|it| it.address == 0).expect("main");
        assert!(inclusive.exact && inclusive.of[main] == 50.0, "{inclusive:?}");
        // Without time there is nothing to add.
        assert_eq!(counted.with_native(&counted), counted);
    }
}
