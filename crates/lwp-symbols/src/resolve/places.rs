//! Samples by their contexts, for pages: stacks are not listed, however many there are.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use lwp_profile::{
    Bits, Builder, Contexts, Forest, FrameSamples, FunctionId, LocationId, Mode, Recording,
    Sampled, Samples, StackId, Taken, ThreadId,
};
use rustc_hash::FxHashMap;

use super::{Options, Resolved, Resolver, sampled_events};
use crate::folding::Folded;

/// A sampled recording whose stacks are contexts.
#[derive(Clone, Debug, Default)]
pub struct InSamples {
    /// Functions and locations, without stacks and counts of their own.
    pub resolved: Resolved,
    /// The samples.
    pub samples: Samples,
    /// The number of each thread by its serial number.
    pub threads: BTreeMap<u32, ThreadId>,
    stacks: Stacks,
}

impl InSamples {
    /// The number of the stack whose innermost frame has this index.
    pub fn stack(&self, frame: u32) -> Option<StackId> {
        self.stacks.of(frame).map(StackId)
    }
}

/// Places before they are in order. The recording's frames and samples, most of a large one, are
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

/// Finds the names for everything in a sampled `recording`, whose stacks are `forest`, and the
/// context of each stack. Frames are dropped as contexts take their place.
pub fn samples(recording: &Recording, mut forest: Forest, options: &Options) -> Gathered {
    let events = sampled_events(recording);
    let mut resolver = Resolver::new(recording, options, Mode::Sampled, events);
    resolver.folded = Folded::apart(recording, &forest, &resolver.generated, options);
    let groups = std::mem::take(&mut forest.samples);
    let mut found = Found::new(&groups, forest.len(), forest.places().len());
    for index in 0..forest.len() as u32 {
        found.frame(&mut resolver, &forest, index);
        if resolver.folded.is_empty() {
            forest.drop_before(index);
        }
    }
    found.stacks_of.callers = forest.into_callers();
    let mut taken = Vec::new();
    for FrameSamples { serial, event, frames } in groups {
        let Some(thread) = resolver.thread(serial) else { continue };
        let stack = |(frame, times): (u32, u32)| Some((StackId(found.stacks_of.of(frame)?), times));
        // In the same memory: there may be tens of millions.
        let stacks = frames.into_iter().filter_map(stack).collect();
        taken.push(Taken { thread, event: event as usize, stacks });
    }
    let units = recording.weights();
    let (warnings, debug_files) = (resolver.warnings(), resolver.files.used());
    let (builder, threads) = (resolver.builder, resolver.threads);
    Gathered { found, builder, threads, taken, units, warnings, debug_files }
}

impl Gathered {
    /// Puts everything in order.
    pub fn finish(self) -> InSamples {
        let Self { found, builder, threads, mut taken, units, warnings, debug_files } = self;
        let (profile, now) = builder.finish_renumbered();
        let Found { contexts, mut stacks_of, mut stacks, .. } = found;
        let (shape, places) = contexts.arranged(|function| now.functions[function.index()]);
        for stack in &mut stacks {
            stack.context = places[stack.context as usize];
            stack.leaf = now.locations[stack.leaf.index()];
        }
        drop(places);
        let thread = |id: ThreadId| now.threads[id.index()];
        taken.iter_mut().for_each(|taken| taken.thread = thread(taken.thread));
        let shape = Arc::new(shape);
        let mut samples = Samples { shape, stacks, in_order: false, taken, units };
        let sorted = samples.sort();
        stacks_of.renumber(&sorted);
        InSamples {
            resolved: Resolved { profile, warnings, debug_files },
            samples,
            threads: threads.iter().map(|(serial, id)| (*serial, thread(*id))).collect(),
            stacks: stacks_of,
        }
    }
}

/// The place of an address, and the functions there that are inlined into each other, outermost
/// first.
type Place = (LocationId, Box<[FunctionId]>);

/// The number of the stack of each frame that was sampled.
#[derive(Clone, Debug, Default)]
struct Stacks {
    /// By frame: the context in which it calls, or the number of its stack.
    numbers: Vec<u32>,
    /// Frames with samples.
    sampled: Bits,
    /// Frames that call others.
    callers: Bits,
    /// Numbers of the stacks of those that do both.
    both: FxHashMap<u32, u32>,
}

impl Stacks {
    fn of(&self, frame: u32) -> Option<u32> {
        if !self.sampled.contains(frame) {
            return None;
        }
        match self.callers.contains(frame) {
            true => self.both.get(&frame).copied(),
            false => self.numbers.get(frame as usize).copied(),
        }
    }

    /// Gives stacks their final numbers.
    fn renumber(&mut self, now: &[StackId]) {
        let new = |old: u32| now.get(old as usize).map_or(old, |stack| stack.0);
        for (frame, number) in (0u32..).zip(&mut self.numbers) {
            if self.sampled.contains(frame) && !self.callers.contains(frame) {
                *number = new(*number);
            }
        }
        self.both.values_mut().for_each(|number| *number = new(*number));
    }
}

/// Contexts and stacks that have been found.
#[derive(Debug)]
struct Found {
    contexts: Contexts,
    stacks_of: Stacks,
    stacks: Vec<Sampled>,
    /// By the number of a place: the index in `places` of a call there, and of a sampled
    /// instruction.
    known: [Vec<u32>; 2],
    places: Vec<Place>,
}

/// An index that no place has.
const NONE: u32 = u32::MAX;

impl Found {
    fn new(groups: &[FrameSamples], frames: usize, places: usize) -> Self {
        let mut sampled = Bits::default();
        for (frame, _) in groups.iter().flat_map(|group| &group.frames) {
            sampled.insert(*frame);
        }
        Self {
            contexts: Contexts::default(),
            stacks_of: Stacks { numbers: Vec::with_capacity(frames), sampled, ..Stacks::default() },
            stacks: Vec::new(),
            known: [vec![NONE; places], vec![NONE; places]],
            places: Vec::new(),
        }
    }

    /// Finds the context of a frame, and its stack if it has samples. Frames come in order.
    fn frame(&mut self, resolver: &mut Resolver<'_>, forest: &Forest, index: u32) {
        let (caller, place) = forest.frame(index);
        let calling = |frame: Option<u32>, numbers: &[u32]| {
            frame.map_or(Contexts::ROOT, |frame| numbers[frame as usize])
        };
        let from = calling(caller, &self.stacks_of.numbers);
        let is_caller = forest.is_caller(index);
        let context = match (is_caller, resolver.folded.contains(index)) {
            // Whoever it calls is called by the frame that stands for it.
            (true, true) => from,
            (true, false) => self.called(resolver, forest, (from, place), false).0,
            (false, _) => NONE,
        };
        self.stacks_of.numbers.push(context);
        if !self.stacks_of.sampled.contains(index) {
            return;
        }
        let mut standing = index;
        while resolver.folded.contains(standing)
            && let Some(caller) = forest.frame(standing).0
        {
            standing = caller;
        }
        let (caller, place) = forest.frame(standing);
        let from = calling(caller, &self.stacks_of.numbers);
        let (context, leaf) = self.called(resolver, forest, (from, place), true);
        let number = self.stacks.len() as u32;
        self.stacks.push(Sampled { context, leaf });
        match is_caller {
            true => {
                self.stacks_of.both.insert(index, number);
            }
            false => self.stacks_of.numbers[index as usize] = number,
        }
    }

    /// The context of the innermost function at a place called from another one, and its location.
    fn called(
        &mut self,
        resolver: &mut Resolver<'_>,
        forest: &Forest,
        (from, place): (u32, usize),
        leaf: bool,
    ) -> (u32, LocationId) {
        let known = &mut self.known[usize::from(leaf)][place];
        if *known == NONE {
            let (module, address) = forest.places()[place];
            let location = resolver.sampled(module, address, leaf);
            let frames = resolver.builder.location_at(location).frames.iter().rev();
            *known = self.places.len() as u32;
            self.places.push((location, frames.map(|frame| frame.function).collect()));
        }
        let (location, functions) = &self.places[*known as usize];
        let inner =
            functions.iter().fold(from, |context, function| self.contexts.call(context, *function));
        (inner, *location)
    }
}
