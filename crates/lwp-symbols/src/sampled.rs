//! Samples and their stacks become part of a profile.

use std::rc::Rc;

use iced_x86::{Decoder, DecoderOptions};
use lwp_profile::{
    Contexts, FunctionId, LocationId, RecordedFrame, RecordedSample, Thread, ThreadId, Values,
};
use rustc_hash::FxHashMap;

use crate::module::ModuleNames;
use crate::resolve::{Detail, Instruction, Resolver};

/// Functions that are inlined into each other, outermost first, by module, address in the process,
/// and whether the address is that of a sampled instruction.
type InlinedAt = FxHashMap<(u32, u64, bool), Box<[FunctionId]>>;

impl Resolver<'_> {
    /// Looks up every place in a stack, each once.
    pub fn frames(&mut self) {
        let frames = &self.recording.frames;
        let place = |index: u32, leaf: bool| {
            let frame = frames.get(index as usize)?;
            Some((frame.module, frame.address, leaf))
        };
        let leaves = self.recording.samples.iter().map(|(sample, _)| place(sample.frame, true));
        let callers = frames.iter().filter_map(|frame| frame.caller).map(|it| place(it, false));
        let mut places: Vec<(Option<u32>, u64, bool)> = leaves.chain(callers).flatten().collect();
        places.sort_unstable();
        places.dedup();
        for (module, address, leaf) in places {
            self.sampled(module, address, leaf);
        }
    }

    /// Samples with their stacks.
    pub fn samples(&mut self) {
        let recording = self.recording;
        let mut samples: Vec<&(RecordedSample, u64)> = recording.samples.iter().collect();
        samples.sort_unstable_by_key(|(sample, _)| (sample.serial, sample.frame, sample.event));
        let mut callers = vec![None; recording.frames.len()];
        let same_stack = |a: &&(RecordedSample, u64), b: &&(RecordedSample, u64)| {
            (a.0.serial, a.0.frame) == (b.0.serial, b.0.frame)
        };
        let weights = recording.weights();
        for events in samples.chunk_by(same_stack) {
            let (serial, frame) = (events[0].0.serial, events[0].0.frame);
            let Some(thread) = self.thread(serial) else { continue };
            let stack = self.stack(frame, &mut callers);
            let stack = self.builder.stack(stack);
            self.stacks.insert(frame, stack);
            let values = values(&weights, events.iter().copied());
            self.builder.sample(thread, stack, &values);
        }
    }

    pub(crate) fn thread(&mut self, serial: u32) -> Option<ThreadId> {
        if let Some(&thread) = self.threads.get(&serial) {
            return Some(thread);
        }
        let thread = self.recording.threads.get(&serial)?;
        let (comm, pid, tid) = (thread.comm.clone(), thread.pid, thread.tid);
        let thread = self.builder.thread(Thread { comm, pid, tid });
        self.threads.insert(serial, thread);
        Some(thread)
    }

    /// The contexts of one event.
    pub fn contexts(&mut self, event: usize) -> Contexts {
        let recording = self.recording;
        let mut contexts = Contexts::default();
        // The context in which each frame calls; filled in for those that do.
        let mut calling: Vec<Option<u32>> = vec![None; recording.frames.len()];
        let mut waiting = Vec::new();
        let mut known = InlinedAt::default();
        let weight = recording.weights().get(event).copied().unwrap_or(1);
        let of_event = |(sample, _): &&(RecordedSample, u64)| sample.event as usize == event;
        for (RecordedSample { frame, .. }, times) in recording.samples.iter().filter(of_event) {
            let leaf = self.folded.standing(recording, *frame);
            // Outwards to what is known, and inwards again.
            let mut at = self.folded.caller(recording, leaf);
            while let Some(index) = at
                && calling[index as usize].is_none()
            {
                waiting.push(index);
                at = self.folded.caller(recording, index);
            }
            let outer = at.and_then(|index| calling[index as usize]);
            let mut context = outer.unwrap_or(Contexts::ROOT);
            while let Some(index) = waiting.pop() {
                let frame = recording.frames[index as usize];
                context = self.called(&mut contexts, context, &mut known, frame, false);
                calling[index as usize] = Some(context);
            }
            let leaf = recording.frames[leaf as usize];
            context = self.called(&mut contexts, context, &mut known, leaf, true);
            contexts.add(context, times.saturating_mul(weight));
        }
        contexts
    }

    /// The context of a frame's function reached from another one, inlined functions included.
    fn called(
        &mut self,
        contexts: &mut Contexts,
        from: u32,
        known: &mut InlinedAt,
        frame: RecordedFrame,
        leaf: bool,
    ) -> u32 {
        let module = frame.module.unwrap_or(u32::MAX);
        let names = self.names.get(&self.same(module));
        if !names.is_some_and(ModuleNames::has_debug) {
            let address = self.file_address(module, frame.address);
            return contexts.call(from, self.function_at(module, address).0);
        }
        let functions = known.entry((module, frame.address, leaf)).or_insert_with(|| {
            let location = self.sampled(frame.module, frame.address, leaf);
            let frames = self.builder.location_at(location).frames.iter().rev();
            frames.map(|frame| frame.function).collect()
        });
        functions.iter().fold(from, |context, function| contexts.call(context, *function))
    }

    /// The locations of a stack, innermost first.
    fn stack(&mut self, frame: u32, callers: &mut [Option<LocationId>]) -> Vec<LocationId> {
        let frames = &self.recording.frames;
        let leaf = self.folded.standing(self.recording, frame);
        let mut next = self.folded.caller(self.recording, leaf);
        let leaf = frames[leaf as usize];
        let mut stack = vec![self.sampled(leaf.module, leaf.address, true)];
        while let Some(index) = next {
            let frame = frames[index as usize];
            let location = match callers[index as usize] {
                Some(location) => location,
                None => self.sampled(frame.module, frame.address, false),
            };
            callers[index as usize] = Some(location);
            stack.push(location);
            next = self.folded.caller(self.recording, index);
        }
        stack
    }

    /// The location of a frame: of a sampled instruction, or of the call that has `address` in it.
    pub(crate) fn sampled(&mut self, module: Option<u32>, address: u64, leaf: bool) -> LocationId {
        let module = module.unwrap_or(u32::MAX);
        let address = self.file_address(module, address);
        let same = self.same(module);
        if self.options.detail == Detail::Functions {
            return self.whole(same, address);
        }
        let code = self.code_of(same, address);
        let after = code.partition_point(|(start, _)| *start <= address);
        let within = after.checked_sub(1).map(|index| &code[index]);
        let within = within.filter(|(start, bytes)| address - start < bytes.len() as u64);
        if leaf {
            self.enter_whole(same, &code);
        }
        match within {
            Some((start, bytes)) if !leaf || *start == address => {
                self.location(same, *start, bytes)
            }
            _ => self.location(same, address, &[]),
        }
    }

    /// Notes a function that is to be shown whole, and enters its instructions, once.
    fn enter_whole(&mut self, module: u32, code: &[Instruction]) {
        let (Some(largest), Some((start, _))) = (self.options.whole_functions, code.first()) else {
            return;
        };
        let bytes: u64 = code.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        let end = code.last().map_or(*start, |(last, bytes)| last + bytes.len() as u64);
        if bytes > largest || self.whole.insert((module, *start), end).is_some() {
            return;
        }
        if self.names.get(&module).is_some_and(ModuleNames::has_debug) {
            for (start, bytes) in code {
                self.location(module, *start, bytes);
            }
            return;
        }
        // Without lines the instructions say nothing, but other functions may begin among them.
        self.functions_in(module, *start..end);
    }

    /// The instructions of the function at a file's `address`, as far as its bytes are known.
    fn code_of(&mut self, module: u32, address: u64) -> Rc<Vec<Instruction>> {
        let (_, start) = self.function_at(module, address);
        if let Some(code) = self.code.get(&(module, start)) {
            return Rc::clone(code);
        }
        let names = self.names.get(&module);
        let elf = names.and_then(|names| names.elf());
        // Without bounds, it is not known where instructions start.
        let size = elf.and_then(|elf| elf.known_size(start));
        let pieces = elf.zip(size).map(|(elf, size)| elf.code_in(start, size));
        let pieces = pieces.unwrap_or_default().into_iter();
        let code = Rc::new(pieces.flat_map(|(at, bytes)| instructions(at, bytes)).collect());
        self.code.insert((module, start), Rc::clone(&code));
        code
    }
}

/// The instructions of straight code.
fn instructions(start: u64, bytes: &[u8]) -> Vec<Instruction> {
    let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
    let mut out = Vec::new();
    while decoder.can_decode() {
        let at = decoder.position();
        let instruction = decoder.decode();
        let len = if instruction.is_invalid() { 1 } else { instruction.len() };
        out.push((start + at as u64, bytes[at..(at + len).min(bytes.len())].into()));
        if instruction.is_invalid() && decoder.set_position(at + 1).is_err() {
            break;
        }
    }
    out
}

/// Returns the values that samples stand for.
fn values<'s>(weights: &[u64], samples: impl Iterator<Item = &'s (RecordedSample, u64)>) -> Values {
    let mut values = Values::zero(weights.len());
    for (sample, times) in samples {
        let event = sample.event as usize;
        let count = times.saturating_mul(weights[event]);
        values.0[event] = values.0[event].saturating_add(count);
    }
    values
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use lwp_profile::{
        Mapping, NamedCode, NamedSegment, Profile, RecordedModule, RecordedNames, Recording,
        SampledEvent, ThreadExecutions,
    };
    use proptest::prelude::*;

    use super::*;
    use crate::resolve::{Options, profile};

    /// Four pages of code, of which `functions` have names: starts and sizes. Frames are callers
    /// and addresses; each is sampled as often as its number says.
    fn recording(functions: &[(u64, u64)], frames: &[(usize, u64)]) -> Recording {
        let mapping = Mapping { start: 0, end: 0x4000, offset: 0 };
        let module = RecordedModule {
            path: "/gone".into(),
            mappings: vec![mapping],
            ..RecordedModule::default()
        };
        let named = |&(address, size): &(u64, u64)| NamedCode {
            address,
            size,
            name: format!("f{address:x}").into(),
            ..NamedCode::default()
        };
        let names = RecordedNames {
            segments: vec![NamedSegment { offset: 0, length: 0x4000, address: 0 }],
            functions: functions.iter().map(named).collect(),
            ..RecordedNames::default()
        };
        let frame = |(at, (caller, address)): (usize, &(usize, u64))| RecordedFrame {
            caller: (at > 0).then(|| (*caller % at.max(1)) as u32),
            module: Some(0),
            address: *address,
        };
        let sample = |at: usize| {
            let sample = RecordedSample { frame: at as u32, ..RecordedSample::default() };
            (sample, at as u64 % 5 + 1)
        };
        Recording {
            modules: [(0, module)].into(),
            names: vec![names],
            events: vec![SampledEvent { name: "e".into(), interval: 10, modelled: false }],
            threads: [(0, ThreadExecutions::default())].into(),
            frames: frames.iter().enumerate().map(frame).collect(),
            samples: (0..frames.len()).map(sample).collect(),
            ..Recording::default()
        }
    }

    /// Own and inclusive counts of functions by name.
    fn counts(profile: &Profile) -> BTreeMap<String, [u64; 2]> {
        let mut counts: BTreeMap<String, [u64; 2]> = BTreeMap::new();
        let name = |id: LocationId| profile.function(profile.location(id).function()).name.clone();
        for sample in &profile.samples {
            let stack = &profile.stacks[sample.stack.index()].locations;
            let count = sample.values.get(0);
            counts.entry(name(stack[0])).or_default()[0] += count;
            let around: BTreeSet<String> = stack.iter().map(|id| name(*id)).collect();
            around.into_iter().for_each(|name| counts.entry(name).or_default()[1] += count);
        }
        counts
    }

    /// The counts of each detail.
    fn by_detail(recording: &Recording) -> [BTreeMap<String, [u64; 2]>; 3] {
        [Detail::Functions, Detail::Instructions, Detail::Lines].map(|detail| {
            counts(&profile(recording, &Options { detail, ..Options::default() }).profile)
        })
    }

    #[test]
    fn code_without_a_name_is_not_counted_for_the_function_at_the_start_of_its_page() {
        // The second frame has no name, in the page that the first one's function starts.
        let recording = recording(&[(0x1000, 16)], &[(0, 0x1004), (0, 0x1800), (1, 0x1008)]);
        let expected = [("0x1010", [20, 50]), ("f1000", [40, 60])];
        let expected = BTreeMap::from(expected.map(|(name, counts)| (name.to_owned(), counts)));
        assert_eq!(by_detail(&recording), [(); 3].map(|()| expected.clone()));
    }

    proptest! {
        /// Promise: R115
        #[test]
        fn functions_count_the_same_in_every_detail(
            starts in prop::collection::btree_map(0u64..0x400, 1u64..40, 0..40),
            frames in prop::collection::vec((any::<usize>(), 0u64..0x4000), 1..60),
        ) {
            let functions: Vec<_> = starts.into_iter().map(|(at, size)| (at * 16, size)).collect();
            let [whole, instructions, lines] = by_detail(&recording(&functions, &frames));
            prop_assert_eq!(&whole, &lines);
            prop_assert_eq!(&instructions, &lines);
        }
    }
}
