//! Samples by their contexts, for pages: stacks are not listed, however many there are.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use lwp_profile::{
    Builder, Contexts, FunctionId, LocationId, Mode, RecordedSample, Recording, Sampled, Samples,
    StackId, Taken, ThreadId,
};
use rustc_hash::FxHashMap;

use super::{Options, Resolved, Resolver, sampled_events};

/// A sampled recording whose stacks are contexts.
#[derive(Clone, Debug, Default)]
pub struct InSamples {
    /// Functions and locations, without stacks and counts of their own.
    pub resolved: Resolved,
    /// The samples.
    pub samples: Samples,
    /// The number of each thread by its serial number.
    pub threads: BTreeMap<u32, ThreadId>,
    /// By innermost frame; [`NONE`] of frames without samples.
    stacks: Vec<u32>,
}

impl InSamples {
    /// The number of the stack whose innermost frame has this index.
    pub fn stack(&self, frame: u32) -> Option<StackId> {
        self.stacks.get(frame as usize).filter(|stack| **stack != NONE).map(|it| StackId(*it))
    }
}

/// The same before it is in order. The recording's frames and samples, most of a large one, are
/// needed no longer.
#[derive(Debug)]
pub struct Gathered {
    found: Found,
    builder: Builder,
    threads: FxHashMap<u32, ThreadId>,
    taken: Vec<Taken>,
    units: Vec<u64>,
    warnings: Vec<String>,
    debug_files: Vec<PathBuf>,
}

/// Finds the names for everything in a sampled `recording`, and the context of each stack.
pub fn samples(recording: &Recording, options: &Options) -> Gathered {
    let events = sampled_events(recording);
    let mut resolver = Resolver::new(recording, options, Mode::Sampled, events);
    let mut found = Found::new(recording.frames.len());
    let mut taken = Vec::new();
    let of = |sample: &RecordedSample| (sample.serial, sample.event);
    for group in recording.samples.chunk_by(|a, b| of(&a.0) == of(&b.0)) {
        let (serial, event) = of(&group[0].0);
        let Some(thread) = resolver.thread(serial) else { continue };
        let mut stacks = Vec::with_capacity(group.len());
        for (sample, times) in group {
            let stack = found.stack(&mut resolver, sample.frame);
            lwp_profile::sampled::push(&mut stacks, StackId(stack), *times);
        }
        taken.push(Taken { thread, event: event as usize, stacks });
    }
    found.calling = Vec::new();
    let units = recording.events.iter().map(|event| event.interval.max(1)).collect();
    let (warnings, debug_files) = (resolver.warnings(), resolver.files.used());
    let (builder, threads) = (resolver.builder, resolver.threads);
    Gathered { found, builder, threads, taken, units, warnings, debug_files }
}

impl Gathered {
    /// Puts everything in order.
    pub fn finish(self) -> InSamples {
        let Self { found, builder, threads, mut taken, units, warnings, debug_files } = self;
        let (profile, now) = builder.finish_renumbered();
        let Found { contexts, mut numbers, mut stacks, .. } = found;
        let (shape, places) = contexts.arranged(|function| now.functions[function.index()]);
        for stack in &mut stacks {
            stack.context = places[stack.context as usize];
            stack.leaf = now.locations[stack.leaf.index()];
        }
        drop(places);
        let thread = |id: ThreadId| now.threads[id.index()];
        taken.iter_mut().for_each(|taken| taken.thread = thread(taken.thread));
        let mut samples = Samples { shape: Arc::new(shape), stacks, taken, units };
        let sorted = samples.sort();
        for number in &mut numbers {
            *number = sorted.get(*number as usize).map_or(NONE, |stack| stack.0);
        }
        InSamples {
            resolved: Resolved { profile, warnings, debug_files },
            samples,
            threads: threads.iter().map(|(serial, id)| (*serial, thread(*id))).collect(),
            stacks: numbers,
        }
    }
}

/// A number that nothing has.
const NONE: u32 = u32::MAX;

/// The place of an address, and the functions there that are inlined into each other, outermost
/// first.
type Place = (LocationId, Box<[FunctionId]>);

/// Contexts and stacks that have been found.
#[derive(Debug)]
struct Found {
    contexts: Contexts,
    /// By frame: the context in which it calls.
    calling: Vec<u32>,
    /// By frame: the stack that it is the innermost of.
    numbers: Vec<u32>,
    stacks: Vec<Sampled>,
    /// Places by module, address in the process, and whether that is of a sampled instruction.
    places: FxHashMap<(u32, u64, bool), Place>,
    /// Frames that are on the way to one whose context is known.
    waiting: Vec<u32>,
}

impl Found {
    fn new(frames: usize) -> Self {
        Self {
            contexts: Contexts::default(),
            calling: vec![NONE; frames],
            numbers: vec![NONE; frames],
            stacks: Vec::new(),
            places: FxHashMap::default(),
            waiting: Vec::new(),
        }
    }

    /// The number of the stack whose innermost frame has this index.
    fn stack(&mut self, resolver: &mut Resolver<'_>, frame: u32) -> u32 {
        let known = self.numbers[frame as usize];
        if known != NONE {
            return known;
        }
        let recording = resolver.recording;
        let leaf = resolver.folded.standing(recording, frame);
        // Outwards to what is known, and inwards again.
        let mut at = resolver.folded.caller(recording, leaf);
        while let Some(index) = at
            && self.calling[index as usize] == NONE
        {
            self.waiting.push(index);
            at = resolver.folded.caller(recording, index);
        }
        let mut context = at.map_or(Contexts::ROOT, |index| self.calling[index as usize]);
        while let Some(index) = self.waiting.pop() {
            context = self.called(resolver, context, index, false).0;
            self.calling[index as usize] = context;
        }
        let (context, leaf) = self.called(resolver, context, leaf, true);
        let number = self.stacks.len() as u32;
        self.stacks.push(Sampled { context, leaf });
        self.numbers[frame as usize] = number;
        number
    }

    /// The context of a frame's innermost function called from another one, and its location.
    fn called(
        &mut self,
        resolver: &mut Resolver<'_>,
        from: u32,
        frame: u32,
        leaf: bool,
    ) -> (u32, LocationId) {
        let frame = resolver.recording.frames[frame as usize];
        let key = (frame.module.unwrap_or(u32::MAX), frame.address, leaf);
        let (location, functions) = self.places.entry(key).or_insert_with(|| {
            let location = resolver.sampled(frame.module, frame.address, leaf);
            let frames = resolver.builder.location_at(location).frames.iter().rev();
            (location, frames.map(|frame| frame.function).collect())
        });
        let inner =
            functions.iter().fold(from, |context, function| self.contexts.call(context, *function));
        (inner, *location)
    }
}
