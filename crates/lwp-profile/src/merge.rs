//! Merging profiles: a sum that does not depend on order or grouping.
//!
//! Promise: R8

use crate::builder::Builder;
use crate::profile::{
    Context, Event, Frame, Function, FunctionId, Location, LocationId, Mode, Profile,
};

/// The reason why two profiles cannot be merged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MergeError {
    /// Counts and estimates do not add up to either.
    #[error("one counts every execution, the other one samples")]
    Modes,
    /// Names of generated code could not be told apart.
    #[error("both have generated code of a process {pid}")]
    Processes {
        /// The process.
        pid: i32,
    },
    /// Times of one run are not those of both.
    #[error("one has a native run beside its counts, the other one has none")]
    Native,
    /// A sum over different events would show zeros that nobody measured.
    #[error("they have different events: {left} and {right}")]
    Events {
        /// Events of the one.
        left: String,
        /// Events of the other.
        right: String,
    },
}

impl Profile {
    /// The sum of two profiles. Threads with the same name and ids, functions with the same name
    /// and address, modules with the same path and build id are taken for the same.
    ///
    /// # Errors
    ///
    /// The profiles differ in mode or events, or both have generated code of one process.
    pub fn merge(&self, other: &Self) -> Result<Self, MergeError> {
        if self.mode != other.mode {
            return Err(MergeError::Modes);
        }
        if self.events != other.events {
            return Err(MergeError::Events {
                left: names(&self.events),
                right: names(&other.events),
            });
        }
        let command = match self.command == other.command {
            true => self.command.clone(),
            false => joined(&self.command, &other.command),
        };
        let mode: Mode = self.mode;
        let mut builder = Builder::new(command, mode, self.events.clone());
        let mut info = self.info.clone();
        for (key, value) in &other.info {
            let sum = info.get(key).map(|ours| joined_fact(key, ours, value));
            info.insert(key.clone(), sum.unwrap_or_else(|| value.clone()));
        }
        builder.info(info);
        for ((pid, comm), command) in self.commands.iter().chain(&other.commands) {
            builder.command(*pid, comm, command);
        }
        enter(&mut builder, self);
        enter(&mut builder, other);
        // Inclusive counts of a sum need the contexts of both.
        if !self.explains_callers() || !other.explains_callers() {
            builder.drop_contexts();
        }
        Ok(builder.finish())
    }
}

impl Profile {
    /// Returns whether contexts were measured wherever something was counted.
    fn explains_callers(&self) -> bool {
        self.has_contexts() || self.samples.is_empty()
    }
}

fn names(events: &[Event]) -> String {
    let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
    names.join(",")
}

/// Facts about recordings of time that are numbers, which sums of recordings add up.
pub(crate) const NUMBERS: [&str; 8] = [
    "cpu-time",
    "samples",
    "lost-samples",
    "damaged-records",
    "throttled",
    "complete-stacks",
    "cut-stacks",
    "lost-stacks",
];

/// The value of a fact in the sum of two recordings with these values.
pub(crate) fn joined_fact(key: &str, left: &str, right: &str) -> String {
    let number = |text: &str| text.parse::<u64>().ok().filter(|_| NUMBERS.contains(&key));
    match (number(left), number(right)) {
        (Some(left), Some(right)) => left.saturating_add(right).to_string(),
        _ => joined(left, right),
    }
}

/// Different commands, each once, in order.
fn joined(left: &str, right: &str) -> String {
    let mut all: Vec<&str> = left.split(" + ").chain(right.split(" + ")).collect();
    all.sort_unstable();
    all.dedup();
    all.join(" + ")
}

/// Enters everything that `profile` has.
pub(crate) fn enter(builder: &mut Builder, profile: &Profile) {
    let modules: Vec<_> =
        profile.modules.iter().map(|module| builder.module(module.clone())).collect();
    let functions: Vec<FunctionId> = profile
        .functions
        .iter()
        .map(|function| {
            let module = modules[function.module.index()];
            builder.function(Function { module, ..function.clone() })
        })
        .collect();
    let locations: Vec<LocationId> = profile
        .locations
        .iter()
        .map(|location| {
            let frame = |frame: &Frame| Frame {
                function: functions[frame.function.index()],
                ..frame.clone()
            };
            builder.location(Location {
                module: modules[location.module.index()],
                frames: location.frames.iter().map(frame).collect(),
                ..location.clone()
            })
        })
        .collect();
    let threads: Vec<_> =
        profile.threads.iter().map(|thread| builder.thread(thread.clone())).collect();
    for sample in &profile.samples {
        let stack = &profile.stacks[sample.stack.index()];
        let key = stack.locations.iter().map(|id| locations[id.index()]).collect();
        let stack = builder.stack(key);
        let mut values = sample.values.clone();
        values.0.resize(builder.events(), 0);
        builder.sample(threads[sample.thread.index()], stack, &values);
    }
    for call in &profile.calls {
        let from = call.from.map(|id| locations[id.index()]);
        builder.call(from, functions[call.to.index()], call.kind, call.count);
    }
    let mut numbers = Vec::with_capacity(profile.contexts.len());
    for context in &profile.contexts {
        numbers.push(builder.context(Context {
            thread: threads[context.thread.index()],
            caller: context.caller.map(|caller| numbers[caller as usize]),
            site: context.site.map(|id| locations[id.index()]),
            function: functions[context.function.index()],
            ..*context
        }));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::diff::Matched;
    use crate::profile::{CallKind, Module, Thread, Values};

    /// A profile of few names, so that two of them have much in common.
    fn profiles() -> impl Strategy<Value = Profile> {
        let sample = (0u8..3, 0u8..3, 0u8..6, prop::collection::vec(0u64..1000, 2), 0u8..3);
        prop::collection::vec(sample, 0..12).prop_map(|samples| {
            let events = vec![
                Event { name: "a".into(), ..Event::default() },
                Event { name: "b".into(), ..Event::default() },
            ];
            let mut builder = Builder::new("x", Mode::Exact, events);
            for (module, thread, address, values, line) in samples {
                let path = format!("m{module}");
                let module =
                    builder.module(Module { path, build_id: vec![module], ..Module::default() });
                let name = format!("f{}", address / 2);
                let address = u64::from(address);
                let function = Function { module, name, address, ..Function::default() };
                let function = builder.function(function);
                let frame = Frame { function, file: "a.c".into(), line: line.into() };
                let location = builder.location(Location {
                    module,
                    address,
                    bytes: [0x90][..].into(),
                    frames: [frame].into(),
                });
                let stack = builder.stack(vec![location]);
                let comm = format!("t{thread}");
                let thread = builder.thread(Thread { comm, pid: 1, tid: thread.into() });
                builder.call(Some(location), function, CallKind::Direct, values[0]);
                builder.sample(thread, stack, &Values(values));
            }
            builder.finish()
        })
    }

    proptest! {
        #[test]
        fn order_does_not_matter(a in profiles(), b in profiles()) {
            prop_assert_eq!(a.merge(&b), b.merge(&a));
        }

        #[test]
        fn grouping_does_not_matter(a in profiles(), b in profiles(), c in profiles()) {
            let left = a.merge(&b).unwrap().merge(&c);
            prop_assert_eq!(left, a.merge(&b.merge(&c).unwrap()));
        }

        #[test]
        fn totals_add_up(a in profiles(), b in profiles()) {
            let mut sum = a.total();
            sum.add(&b.total());
            prop_assert_eq!(a.merge(&b).unwrap().total(), sum);
        }

        #[test]
        fn inferred_stacks_keep_every_count(a in profiles()) {
            let inferred = crate::Inferred::of(&a, 0);
            let mut sum = Values::zero(2);
            for stack in &inferred.stacks {
                sum.add(&stack.values);
            }
            prop_assert_eq!(sum, a.total());
        }

        #[test]
        fn nothing_differs_from_itself(a in profiles(), b in profiles()) {
            let name = |p: &Profile, id| p.function(id).name.clone();
            let by = crate::diff::By::Function;
            let same = crate::diff::compare(&a, &a, by, &Matched::by_name(&a, &a, &name));
            prop_assert!(same.rows.iter().all(|row| row.delta(0) == 0 && row.delta(1) == 0));
            let there = crate::diff::compare(&a, &b, by, &Matched::by_name(&a, &b, &name));
            let back = crate::diff::compare(&b, &a, by, &Matched::by_name(&b, &a, &name));
            prop_assert_eq!(there.rows.len(), back.rows.len());
            for (x, y) in there.rows.iter().zip(&back.rows) {
                prop_assert_eq!((&x.key, x.delta(0)), (&y.key, -y.delta(0)));
            }
        }
    }

    #[test]
    fn different_events_are_not_added_up() {
        let a = Builder::new("x", Mode::Exact, Event::exact()).finish();
        let b = Builder::new("x", Mode::Exact, vec![Event::default()]).finish();
        assert!(matches!(a.merge(&b), Err(MergeError::Events { .. })));
        let c = Builder::new("x", Mode::Sampled, Event::exact()).finish();
        assert_eq!(a.merge(&c), Err(MergeError::Modes));
    }
}
