//! Samples by their contexts, for recordings with tens of millions of different stacks.
//!
//! A [`Profile`] keeps each stack as a list of its locations. Here a stack is two numbers, its
//! innermost instruction and its context, and a sample three.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::profile::{LocationId, Mode, Profile, StackId, ThreadId};
use crate::tree::{Contexts, Shape};

/// A stack: the instruction that was sampled, and the number of its context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sampled {
    /// The context, in [`Samples::shape`].
    pub context: u32,
    /// The innermost location.
    pub leaf: LocationId,
}

/// Samples of one event in one thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// The thread.
    pub thread: ThreadId,
    /// Index of the event.
    pub event: usize,
    /// Stacks, by number, and how often each was sampled. A stack of more samples than a number
    /// holds is there several times.
    pub stacks: Vec<(StackId, u32)>,
}

/// All samples of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Samples {
    /// The contexts of all stacks.
    pub shape: Arc<Shape>,
    /// Different stacks, by number.
    pub stacks: Vec<Sampled>,
    /// True if stacks are in the order of their contexts.
    pub in_order: bool,
    /// Samples, by thread and event.
    pub taken: Vec<Taken>,
    /// The number of events that a sample of each event stands for.
    pub units: Vec<u64>,
}

impl Samples {
    /// The samples of a profile with stacks; numbers of stacks are the profile's. `None` if it has
    /// exact counts.
    pub fn of(profile: &Profile) -> Option<Self> {
        if profile.mode == Mode::Exact {
            return None;
        }
        let mut contexts = Contexts::default();
        let mut stacks = Vec::with_capacity(profile.stacks.len());
        for stack in &profile.stacks {
            let context = stack.locations.iter().rev().fold(Contexts::ROOT, |at, location| {
                let frames = profile.location(*location).frames.iter().rev();
                frames.fold(at, |at, frame| contexts.call(at, frame.function))
            });
            stacks.push(Sampled { context, leaf: stack.locations[0] });
        }
        let (shape, places) = contexts.arranged(|function| function);
        for stack in &mut stacks {
            stack.context = places[stack.context as usize];
        }
        // Sums of several recordings may have had several intervals.
        let mut units = vec![0; profile.events.len()];
        for sample in &profile.samples {
            let values = units.iter_mut().zip(&sample.values.0);
            values.for_each(|(unit, value)| *unit = common_divisor(*unit, *value));
        }
        let mut taken: Vec<Taken> = Vec::new();
        let mut numbers = FxHashMap::default();
        for sample in &profile.samples {
            for (event, value) in sample.values.0.iter().enumerate().filter(|it| *it.1 > 0) {
                let next = taken.len();
                let number = *numbers.entry((sample.thread, event)).or_insert(next);
                if number == next {
                    taken.push(Taken { thread: sample.thread, event, stacks: Vec::new() });
                }
                push(&mut taken[number].stacks, sample.stack, value / units[event]);
            }
        }
        let in_order = stacks.is_sorted_by_key(|stack| stack.context);
        Some(Self { shape: Arc::new(shape), stacks, in_order, taken, units })
    }

    /// Puts stacks into the order of their contexts, equal ones together, so that adding up goes
    /// through memory in order. Returns the number of each stack by its old one.
    pub fn sort(&mut self) -> Vec<StackId> {
        let mut order: Vec<u32> = (0..self.stacks.len() as u32).collect();
        order.sort_unstable_by_key(|stack| self.stacks[*stack as usize]);
        let mut new = vec![StackId(0); order.len()];
        let mut stacks: Vec<Sampled> = Vec::with_capacity(order.len());
        for old in order {
            let stack = self.stacks[old as usize];
            if stacks.last() != Some(&stack) {
                stacks.push(stack);
            }
            new[old as usize] = StackId(stacks.len() as u32 - 1);
        }
        self.stacks = stacks;
        self.in_order = true;
        for taken in &mut self.taken {
            taken.stacks.iter_mut().for_each(|(stack, _)| *stack = new[stack.index()]);
            taken.stacks.sort_unstable();
        }
        new
    }
}

/// The greatest number that divides both.
fn common_divisor(a: u64, b: u64) -> u64 {
    let (mut a, mut b) = (a, b);
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Adds `times` samples of a stack.
pub fn push(stacks: &mut Vec<(StackId, u32)>, stack: StackId, times: u64) {
    let mut left = times;
    while left > 0 {
        let some = u32::try_from(left).unwrap_or(u32::MAX);
        stacks.push((stack, some));
        left -= u64::from(some);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::Builder;
    use crate::profile::{Event, Frame, Function, Location, Module, Thread, Values};

    #[test]
    fn stacks_keep_their_counts_whatever_order_they_are_in() {
        let event = Event { name: "e".into(), interval: Some(10), modelled: false };
        let mut builder = Builder::new("c", Mode::Sampled, vec![event]);
        let module = builder.module(Module::default());
        let mut locations = Vec::new();
        for (name, address) in [("main", 0), ("main", 1), ("leaf", 10)] {
            let start = address / 10 * 10;
            let of = Function { module, name: name.into(), address: start, ..Function::default() };
            let frame = Frame { function: builder.function(of), ..Frame::default() };
            let frames = [frame].into();
            let at = Location { module, address, frames, ..Location::default() };
            locations.push(builder.location(at));
        }
        let thread = builder.thread(Thread::default());
        // Two places of main call the leaf: one context. Five samples of ten are half of ten.
        for (stack, count) in [(vec![2, 0], 20), (vec![2, 1], 30), (vec![1], 5 << 33)] {
            let stack = builder.stack(stack.into_iter().map(|at| locations[at]).collect());
            builder.sample(thread, stack, &Values(vec![count]));
        }
        let mut samples = Samples::of(&builder.finish()).expect("samples");
        assert_eq!(
            (samples.shape.len(), samples.stacks.len(), &samples.units[..]),
            (3, 3, &[10][..])
        );
        let sums = |samples: &Samples| {
            let mut sums = vec![0u64; samples.shape.len()];
            for (stack, times) in &samples.taken[0].stacks {
                let context = samples.stacks[stack.index()].context;
                sums[context as usize] += u64::from(*times) * samples.units[0];
            }
            sums
        };
        let before = sums(&samples);
        assert_eq!(before.iter().filter(|sum| **sum > 0).count(), 2);
        assert_eq!(before.iter().sum::<u64>(), (5 << 33) + 50);
        let new = samples.sort();
        assert_eq!((new.len(), samples.stacks.len()), (3, 2));
        assert_eq!(sums(&samples), before);
    }
}
