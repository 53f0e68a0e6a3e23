//! Inclusive counts and calls of measured contexts.
//!
//! A context's instructions are measured. Its part of another event is not: what a function counted
//! of that is shared out among the function's contexts by their instructions, thread by thread, and
//! is an estimate.
//!
//! An inclusive count has what was executed while a function was running, or a call was in progress:
//! once, however often a recursive function is on the stack.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::inlined::{self, Inlined};
use crate::profile::{Context, FunctionId, LocationId, Profile, ThreadId};

/// Measured contexts, all or some, with their counts of one event.
#[derive(Clone, Debug)]
pub struct Measured<'a> {
    profile: &'a Profile,
    contexts: &'a [Context],
    event: usize,
    /// Counts of each context alone.
    own: Vec<u64>,
    /// Counts of functions without contexts.
    apart: Vec<(FunctionId, u64)>,
    exact: bool,
}

/// Functions on the other side of calls, with the number of these and what was counted in them.
/// There is no caller where a thread or a signal's handler began.
pub type Neighbours = Vec<(Option<FunctionId>, u64, u64)>;

/// Calls from one place to one function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeasuredCall {
    /// The calling function; `None` where a thread or a signal's handler began.
    pub caller: Option<FunctionId>,
    /// The calling instruction.
    pub site: Option<LocationId>,
    /// The function called.
    pub callee: FunctionId,
    /// The number of calls.
    pub calls: u64,
    /// Counted while one of these calls was in progress.
    pub inclusive: u64,
    /// Of that, counted while the caller was not called again. For each function, this of all its
    /// calls and what it counted itself add up to its inclusive count.
    pub below: u64,
}

impl<'a> Measured<'a> {
    /// All contexts of `profile` with the counts of the event with index `event`; none if they were
    /// not measured.
    pub fn of(profile: &'a Profile, event: usize) -> Option<Self> {
        Self::part(profile, event, |_| true)
    }

    /// The contexts of `profile` of which those that `wanted` chooses, by thread and function, have
    /// counts.
    pub fn part(
        profile: &'a Profile,
        event: usize,
        wanted: impl Fn(&Context) -> bool,
    ) -> Option<Self> {
        let contexts = &profile.contexts[..];
        let exact = profile.measures(event);
        let mut shares = Shares::default();
        if !exact {
            shares = Shares::new(profile, event);
        }
        let mut count = |context: &Context| match exact {
            true => context.instructions,
            false => shares.next(context),
        };
        let of = |context: &Context| match (wanted(context), count(context)) {
            (true, count) => count,
            (false, _) => 0,
        };
        let own = contexts.iter().map(of).collect();
        let apart = shares.left().filter(|(context, _)| wanted(context));
        let apart = apart.map(|(context, count)| (context.function, count)).collect();
        let measured = Self { profile, contexts, event, own, apart, exact };
        (!contexts.is_empty()).then_some(measured)
    }

    /// Returns true if the counts were measured; otherwise they are shared out by instructions.
    pub fn is_exact(&self) -> bool {
        self.exact
    }

    /// The contexts.
    pub fn contexts(&self) -> &[Context] {
        self.contexts
    }

    /// The counts of each context alone.
    pub fn own(&self) -> &[u64] {
        &self.own
    }

    /// Counts of functions that no context of theirs has.
    pub fn apart(&self) -> &[(FunctionId, u64)] {
        &self.apart
    }

    /// The number of each context: `call` enters a function from a numbered one, or from none.
    pub(crate) fn numbered(&self, call: impl FnMut(Option<u32>, FunctionId) -> u32) -> Vec<u32> {
        inlined::numbered(self.profile, call)
    }

    /// The inlined functions in them.
    pub(crate) fn inlined(&self) -> Inlined {
        Inlined::of(self.profile, self.event)
    }

    /// The counts of each context with all that was called from it.
    pub fn totals(&self) -> Vec<u64> {
        let mut totals = self.own.clone();
        for (number, context) in self.contexts.iter().enumerate().rev() {
            if let Some(caller) = context.caller {
                totals[caller as usize] = totals[caller as usize].saturating_add(totals[number]);
            }
        }
        totals
    }

    /// The number behind the last context below each.
    fn ends(&self) -> Vec<usize> {
        let mut ends: Vec<usize> = (1..=self.contexts.len()).collect();
        for (number, context) in self.contexts.iter().enumerate().rev() {
            if let Some(caller) = context.caller {
                ends[caller as usize] = ends[caller as usize].max(ends[number]);
            }
        }
        ends
    }

    /// The inclusive count of each function.
    pub fn inclusive(&self) -> Vec<u64> {
        self.inclusive_by(self.profile.functions.len(), FunctionId::index)
    }

    /// The inclusive count of each of so many groups of functions, by the group of each function.
    ///
    /// # Panics
    ///
    /// If a function's group is none of them.
    pub fn inclusive_by(&self, groups: usize, group: impl Fn(FunctionId) -> usize) -> Vec<u64> {
        let (totals, ends) = (self.totals(), self.ends());
        let mut sums = vec![0u64; groups];
        // The number behind all that each group, where one of it is running, has called.
        let mut running = vec![0; groups];
        for (number, context) in self.contexts.iter().enumerate() {
            let group = group(context.function);
            if running[group] <= number {
                running[group] = ends[number];
                sums[group] = sums[group].saturating_add(totals[number]);
            }
        }
        for (function, count) in &self.apart {
            let sum = &mut sums[group(*function)];
            *sum = sum.saturating_add(*count);
        }
        sums
    }

    /// The calls, by place and callee.
    pub fn calls(&self) -> Vec<MeasuredCall> {
        let (totals, ends, again) = (self.totals(), self.ends(), self.called_again());
        let mut sums: BTreeMap<_, (MeasuredCall, usize)> = BTreeMap::new();
        for (number, context) in self.contexts.iter().enumerate() {
            let caller = context.caller.map(|caller| self.contexts[caller as usize].function);
            let key = (caller, context.site, context.function);
            let (call, running) = sums.entry(key).or_default();
            (call.caller, call.site, call.callee) = key;
            call.calls = call.calls.saturating_add(context.calls);
            let below = totals[number].saturating_sub(again[number]);
            call.below = call.below.saturating_add(below);
            if *running <= number {
                *running = ends[number];
                call.inclusive = call.inclusive.saturating_add(totals[number]);
            }
        }
        sums.into_values().map(|(call, _)| call).collect()
    }

    /// The callers of a function, and its callees: by the function on the other side, the number of
    /// calls, and what was counted while one of them was in progress.
    pub fn around(&self, function: FunctionId) -> [Neighbours; 2] {
        let (totals, ends) = (self.totals(), self.ends());
        let mut sides: [BTreeMap<_, (usize, u64, u64)>; 2] = Default::default();
        for (number, context) in self.contexts.iter().enumerate() {
            let caller = context.caller.map(|caller| self.contexts[caller as usize].function);
            let of_side = [
                (context.function == function).then_some(caller),
                (caller == Some(function)).then_some(Some(context.function)),
            ];
            for (side, other) in sides.iter_mut().zip(of_side) {
                let Some(other) = other else { continue };
                let (running, calls, cost) = side.entry(other).or_default();
                *calls = calls.saturating_add(context.calls);
                if *running <= number {
                    *running = ends[number];
                    *cost = cost.saturating_add(totals[number]);
                }
            }
        }
        sides.map(|side| {
            side.into_iter().map(|(other, (_, calls, cost))| (other, calls, cost)).collect()
        })
    }

    /// What was counted in each context, and below it, after its caller's function was called
    /// again.
    fn called_again(&self) -> Vec<u64> {
        let totals = self.totals();
        let mut again = vec![0u64; self.contexts.len()];
        // The contexts around the present one, and where the function of each was running before.
        let mut path: Vec<(usize, Option<usize>)> = Vec::new();
        // The place in the path of each function's innermost context.
        let mut innermost: Vec<Option<usize>> = vec![None; self.profile.functions.len()];
        for (number, context) in self.contexts.iter().enumerate() {
            let caller = context.caller.map(|caller| caller as usize);
            while path.last().map(|around| around.0) != caller {
                let Some((left, before)) = path.pop() else { break };
                innermost[self.contexts[left].function.index()] = before;
            }
            let before = &mut innermost[context.function.index()];
            if let Some(place) = *before {
                // What the function itself called there, on the way here.
                let called = path.get(place + 1).map_or(number, |around| around.0);
                again[called] = again[called].saturating_add(totals[number]);
            }
            path.push((number, before.replace(path.len())));
        }
        again
    }
}

/// A function whose contexts have another sum of instructions than its own count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unequal {
    /// The function.
    pub function: FunctionId,
    /// What was counted of it, instruction by instruction.
    pub counted: u64,
    /// The sum of its contexts.
    pub measured: u64,
}

impl Profile {
    /// The functions whose contexts, if they were measured, differ from what was counted: with
    /// merged contexts all that are among these, otherwise none.
    pub fn unequal_contexts(&self) -> Vec<Unequal> {
        let Some(event) = (0..self.events.len()).find(|event| self.measures(*event)) else {
            return Vec::new();
        };
        let mut measured = vec![0u64; self.functions.len()];
        for context in &self.contexts {
            let sum = &mut measured[context.function.index()];
            *sum = sum.saturating_add(context.instructions);
        }
        let counted = self.by_function().into_iter().map(|own| own.get(event));
        let both = (0..).map(FunctionId).zip(counted.zip(measured));
        let unequal = both.filter(|(_, (counted, measured))| counted != measured);
        let row = |(function, (counted, measured))| Unequal { function, counted, measured };
        unequal.map(row).collect()
    }

    /// Returns whether contexts were measured in the event with this index: in instructions.
    pub fn measures(&self, event: usize) -> bool {
        let measured = |event: &crate::Event| event.name == crate::Event::EXACT[0];
        self.has_contexts() && self.events.get(event).is_some_and(measured)
    }
}

/// Contexts by function: those that differ only in thread and place of the call are one.
#[derive(Clone, Debug, Default)]
pub(crate) struct ByFunction {
    /// Caller and function of each; callers come before what they call.
    nodes: Vec<(Option<u32>, FunctionId)>,
    known: FxHashMap<(Option<u32>, FunctionId), u32>,
}

impl ByFunction {
    /// The number of a function that is called from another one.
    pub fn call(&mut self, caller: Option<u32>, function: FunctionId) -> u32 {
        let next = self.nodes.len() as u32;
        let number = *self.known.entry((caller, function)).or_insert(next);
        if number == next {
            self.nodes.push((caller, function));
        }
        number
    }

    /// What was counted, context by context, of which `numbers` has the number of each.
    pub fn counts(&mut self, of: &Measured<'_>, numbers: &[u32]) -> Vec<(u32, u64)> {
        let mut inlined = of.inlined();
        let mut counts = Vec::with_capacity(numbers.len());
        for ((context, own), number) in of.contexts.iter().zip(&of.own).zip(numbers) {
            for (chain, count) in inlined.share(context, *own) {
                let inner = |at, function: &FunctionId| self.call(Some(at), *function);
                counts.push((chain.iter().fold(*number, inner), count));
            }
        }
        for (function, count) in &of.apart {
            counts.push((self.call(None, *function), *count));
        }
        counts
    }

    /// Caller and function of each.
    pub fn nodes(&self) -> &[(Option<u32>, FunctionId)] {
        &self.nodes
    }
}

/// Counts of functions, by thread, that are shared out among their contexts.
#[derive(Default)]
struct Shares(FxHashMap<(ThreadId, FunctionId), Share>);

#[derive(Clone, Copy, Default)]
struct Share {
    /// The function's count.
    count: u64,
    /// The instructions of all its contexts.
    whole: u64,
    /// Of these, those of contexts that have had their part.
    passed: u64,
    /// The sum of these parts.
    given: u64,
}

impl Shares {
    fn new(profile: &Profile, event: usize) -> Self {
        let mut shares = Self::default();
        for sample in &profile.samples {
            let function = profile.location(profile.leaf(sample)).function();
            let share = shares.0.entry((sample.thread, function)).or_default();
            share.count = share.count.saturating_add(sample.values.get(event));
        }
        for context in &profile.contexts {
            let share = shares.0.entry((context.thread, context.function)).or_default();
            share.whole = share.whole.saturating_add(context.instructions);
        }
        shares
    }

    /// The part of the next context: what lies between the parts of those before it and of those up
    /// to it, both rounded. So parts are whole and add up to the count.
    fn next(&mut self, context: &Context) -> u64 {
        let Some(share) = self.0.get_mut(&(context.thread, context.function)) else { return 0 };
        share.passed = share.passed.saturating_add(context.instructions);
        let upto = match share.whole {
            0 => 0,
            whole => rounded(share.count, share.passed, whole),
        };
        let part = upto.saturating_sub(share.given);
        share.given = share.given.max(upto);
        part
    }

    /// Counts of functions that none of their contexts has got, in order.
    fn left(&self) -> impl Iterator<Item = (Context, u64)> {
        let left = self.0.iter().map(|(key, share)| (*key, share.count - share.given));
        let left: BTreeMap<_, u64> = left.filter(|(_, left)| *left > 0).collect();
        left.into_iter().map(|((thread, function), left)| {
            (Context { thread, function, ..Context::default() }, left)
        })
    }
}

/// `part` of `whole` of `count`, to the nearest.
pub(crate) fn rounded(count: u64, part: u64, whole: u64) -> u64 {
    let (count, part, whole) = (u128::from(count), u128::from(part), u128::from(whole));
    let share = (count * part + whole / 2) / whole;
    u64::try_from(share.min(count)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        Builder, ContextKind, Event, Frame, Function, Location, Mode, Module, Thread, Tree, Values,
    };

    /// A context of a made-up run: the index of its caller among those before it, as far as there
    /// are any, its function, the place of the call, calls, instructions.
    type Made = (Option<usize>, u32, u64, u64, u64);

    /// A profile with these contexts in `threads` threads, by turns, and functions' counts of
    /// instructions and calls.
    fn profile(made: &[Made], threads: i32) -> Profile {
        let mut builder = Builder::new("c", Mode::Exact, Event::exact());
        let module = builder.module(Module { path: "/p".into(), ..Module::default() });
        let ids: Vec<ThreadId> =
            (0..threads).map(|tid| builder.thread(Thread { tid, ..Thread::default() })).collect();
        let function = |builder: &mut Builder, number: u32| {
            let address = u64::from(number) * 100;
            let name = format!("f{number}");
            builder.function(Function { module, name, address, ..Function::default() })
        };
        let place = |builder: &mut Builder, function: FunctionId, at: u64| {
            let address = builder.function_at(function).address + at;
            let frames = [Frame { function, ..Frame::default() }].into();
            builder.location(Location { module, address, frames, ..Location::default() })
        };
        let mut numbers: Vec<(u32, FunctionId, ThreadId)> = Vec::new();
        for (index, &(caller, callee, at, calls, instructions)) in made.iter().enumerate() {
            let caller = caller.filter(|_| index > 0).map(|caller| numbers[caller % index]);
            let thread = caller.map_or(ids[index % ids.len()], |caller| caller.2);
            let callee = function(&mut builder, callee);
            let site = caller.map(|caller| place(&mut builder, caller.1, at));
            let kind = if site.is_some() { ContextKind::Call } else { ContextKind::Root };
            let caller = caller.map(|caller| caller.0);
            let context =
                Context { thread, caller, site, function: callee, kind, calls, instructions };
            numbers.push((builder.context(context), callee, thread));
            let own = place(&mut builder, callee, 7);
            let stack = builder.stack(vec![own]);
            let mut values = Values::zero(Event::EXACT.len());
            (values.0[0], values.0[5]) = (instructions, calls);
            builder.sample(thread, stack, &values);
        }
        builder.finish()
    }

    fn named(profile: &Profile, name: &str) -> FunctionId {
        let found = profile.functions.iter().position(|function| function.name == name);
        FunctionId(found.expect("a function") as u32)
    }

    /// The functions around a context and its own, outermost first.
    fn path(profile: &Profile, number: usize) -> Vec<usize> {
        let next = |at: &usize| profile.contexts[*at].caller.map(|caller| caller as usize);
        let mut path: Vec<usize> = std::iter::successors(Some(number), next).collect();
        path.reverse();
        path
    }

    #[test]
    fn a_function_has_from_each_caller_what_it_did_for_that() {
        // main calls cheap and dear, which both call work a thousand times.
        let made = [
            (None, 0, 0, 1, 50),
            (Some(0), 1, 10, 1, 6_000),
            (Some(0), 2, 20, 1, 6_000),
            (Some(1), 3, 5, 1_000, 12_000),
            (Some(2), 3, 5, 1_000, 6_006_000),
        ];
        let profile = profile(&made, 1);
        let measured = Measured::of(&profile, 0).unwrap();
        assert!(measured.is_exact());
        let inclusive = measured.inclusive();
        let of = |name: &str| inclusive[named(&profile, name).index()];
        assert_eq!([of("f1"), of("f2"), of("f3")], [18_000, 6_012_000, 6_018_000]);
        let calls: Vec<_> = measured
            .calls()
            .into_iter()
            .filter(|call| call.callee == named(&profile, "f3"))
            .map(|call| (call.caller, call.calls, call.inclusive, call.below))
            .collect();
        let of = |name| Some(named(&profile, name));
        let [callers, callees] = measured.around(named(&profile, "f1"));
        assert_eq!(callers, [(of("f0"), 1, 18_000)]);
        assert_eq!(callees, [(of("f3"), 1_000, 12_000)]);
        let from = |name, cost| (Some(named(&profile, name)), 1_000, cost, cost);
        assert_eq!(calls, [from("f1", 12_000), from("f2", 6_006_000)]);
        // Of another event, each has a part, and all have the whole.
        let measured = Measured::of(&profile, 5).unwrap();
        assert!(!measured.is_exact());
        assert_eq!(measured.inclusive()[named(&profile, "f0").index()], 2_003);
        assert_eq!(measured.inclusive()[named(&profile, "f2").index()], 1 + 1_996);
        // Contexts and functions have the same counts, unless the former were measured wrongly.
        assert_eq!(profile.unequal_contexts(), []);
        let (mut wrong, function) = (profile.clone(), named(&profile, "f3"));
        wrong.contexts.retain(|context| context.instructions != 12_000);
        let unequal = Unequal { function, counted: 6_018_000, measured: 6_006_000 };
        assert_eq!(wrong.unequal_contexts(), [unequal]);
    }

    #[test]
    fn work_of_a_recursive_function_counts_once() {
        // even calls odd calls even, and so on; both call leaf.
        let mut made: Vec<Made> = vec![(None, 0, 0, 1, 1), (Some(0), 1, 1, 1, 10)];
        for depth in 1..100 {
            made.push((Some(depth), 1 + depth as u32 % 2, 2, 1, 10));
        }
        made.push((Some(50), 3, 3, 1, 7));
        let profile = profile(&made, 1);
        let measured = Measured::of(&profile, 0).unwrap();
        let inclusive = measured.inclusive();
        let of = |name: &str| inclusive[named(&profile, name).index()];
        assert_eq!([of("f0"), of("f1"), of("f2"), of("f3")], [1_008, 1_007, 997, 7]);
        let odd = measured.calls().into_iter().find(|call| call.callee == named(&profile, "f2"));
        // What odd did until even was called again.
        assert_eq!(odd.map(|call| (call.calls, call.inclusive)), Some((50, 997)));
        assert!(odd.is_some_and(|call| call.below < 600), "{odd:?}");
    }

    #[test]
    fn a_million_contexts_are_soon_added_up() {
        // As deep as can be, of one function.
        let mut profile = profile(&[(None, 0, 0, 1, 1), (Some(0), 0, 1, 1, 1)], 1);
        let one = profile.contexts[1];
        let deeper = |caller| Context { caller: Some(caller), ..one };
        profile.contexts.extend((1..999_999).map(deeper));
        let measured = Measured::of(&profile, 0).unwrap();
        assert_eq!(measured.inclusive(), [1_000_000]);
        let calls = measured.calls();
        assert_eq!((calls[1].inclusive, calls[1].below), (999_999, 0));
        assert_eq!(Tree::of_measured(&measured).root().total, 1_000_000);
    }

    proptest! {
        /// Promise: R127
        #[test]
        fn inclusive_counts_are_those_of_looking_at_every_stack(
            made in prop::collection::vec(
                (prop::option::weighted(0.9, any::<usize>()), 0u32..6, 0u64..3, 0u64..9, 0u64..99),
                1..80,
            ),
            threads in 1i32..3,
        ) {
            let profile = profile(&made, threads);
            for event in [0, 5] {
                let measured = Measured::of(&profile, event).unwrap();
                let whole: u64 = made.iter().map(|one| if event == 0 { one.4 } else { one.3 }).sum();
                let apart: u64 = measured.apart.iter().map(|one| one.1).sum();
                prop_assert_eq!(measured.own().iter().sum::<u64>() + apart, whole);
                prop_assert_eq!(Tree::of_measured(&measured).root().total, whole);
                let mut expected = vec![0; profile.functions.len()];
                let mut calls: BTreeMap<_, u64> = BTreeMap::new();
                for (function, count) in &measured.apart {
                    expected[function.index()] += count;
                }
                for (number, own) in measured.own().iter().enumerate() {
                    let path = path(&profile, number);
                    let on_stack = |at: &usize| profile.contexts[*at].function;
                    let mut functions: Vec<_> = path.iter().map(on_stack).collect();
                    functions.sort_unstable();
                    functions.dedup();
                    functions.iter().for_each(|function| expected[function.index()] += own);
                    let call = |at: &usize| {
                        let context = profile.contexts[*at];
                        (context.caller.map(|at| on_stack(&(at as usize))), context.site, context.function)
                    };
                    let mut made: Vec<_> = path.iter().map(call).collect();
                    made.sort_unstable();
                    made.dedup();
                    made.into_iter().for_each(|call| *calls.entry(call).or_default() += own);
                }
                let inclusive = measured.inclusive();
                prop_assert_eq!(&inclusive, &expected);
                // Whoever adds a function's own count and its calls up has the inclusive count.
                let mut summed = vec![0; expected.len()];
                for (context, own) in profile.contexts.iter().zip(measured.own()) {
                    summed[context.function.index()] += own;
                }
                for (function, count) in &measured.apart {
                    summed[function.index()] += count;
                }
                for call in measured.calls() {
                    let key = (call.caller, call.site, call.callee);
                    prop_assert_eq!(Some(&call.inclusive), calls.get(&key));
                    if let Some(caller) = call.caller {
                        summed[caller.index()] += call.below;
                    }
                }
                prop_assert_eq!(summed, expected);
            }
        }

        #[test]
        fn sums_of_profiles_have_the_contexts_of_both(
            made in prop::collection::vec(
                (prop::option::of(any::<usize>()), 0u32..4, 0u64..3, 0u64..9, 0u64..99), 1..30),
            more in prop::collection::vec(
                (prop::option::of(any::<usize>()), 0u32..4, 0u64..3, 0u64..9, 0u64..99), 1..30),
        ) {
            let (one, other) = (profile(&made, 2), profile(&more, 1));
            let both = one.merge(&other).unwrap();
            prop_assert_eq!(&both, &other.merge(&one).unwrap());
            let sum = |profile: &Profile| {
                Measured::of(profile, 0).unwrap().inclusive().iter().sum::<u64>()
            };
            prop_assert_eq!(sum(&both), sum(&one) + sum(&other));
            let mut without = other.clone();
            without.contexts.clear();
            prop_assert!(!one.merge(&without).unwrap().has_contexts());
        }
    }
}
