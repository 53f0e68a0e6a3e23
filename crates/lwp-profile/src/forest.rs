//! Sampled stacks of a recording in a few bytes a frame, for recordings with a hundred million.

use rustc_hash::FxHashMap;

use crate::recording::{RecordedFrame, Recording};
use crate::wire::{Input, WireError};

/// A module and an address.
pub type Place = (Option<u32>, u64);

/// A number that no frame has.
const NONE: u32 = u32::MAX;
/// Frames that are dropped at once.
const TOGETHER: usize = 1 << 20;

/// A set of numbers.
#[derive(Clone, Debug, Default)]
pub struct Bits(Vec<u64>);

impl Bits {
    /// Adds a number.
    pub fn insert(&mut self, number: u32) {
        let word = number as usize / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (number % 64);
    }

    /// Returns true if a number was added.
    pub fn contains(&self, number: u32) -> bool {
        self.0.get(number as usize / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }
}

/// The samples of one event in one thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrameSamples {
    /// Number of the thread.
    pub serial: u32,
    /// Index of the event.
    pub event: u32,
    /// Innermost frames in order, and how often each was sampled. A frame of more samples than a
    /// number holds is there several times.
    pub frames: Vec<(u32, u32)>,
}

/// Frames: the caller of each, and the number of its place.
#[derive(Clone, Debug, Default)]
struct Frames(Vec<(u32, u32)>);

/// The stacks of a recording. A caller comes before what it calls.
#[derive(Clone, Debug, Default)]
pub struct Forest {
    /// [`TOGETHER`] frames each but the last.
    frames: Vec<Frames>,
    len: usize,
    callers: Bits,
    places: Vec<Place>,
    numbers: FxHashMap<Place, u32>,
    /// Samples by thread and event.
    pub samples: Vec<FrameSamples>,
}

impl Forest {
    /// The stacks and samples of a recording.
    pub fn of(recording: &Recording) -> Self {
        let mut forest = Self::default();
        recording.frames.iter().for_each(|frame| forest.push(*frame));
        let of = |sample: &(crate::RecordedSample, u64)| (sample.0.serial, sample.0.event);
        for group in recording.samples.chunk_by(|a, b| of(a) == of(b)) {
            let (serial, event) = of(&group[0]);
            let mut frames = Vec::with_capacity(group.len());
            for (sample, times) in group {
                push(&mut frames, sample.frame, *times);
            }
            forest.samples.push(FrameSamples { serial, event, frames });
        }
        forest
    }

    /// Returns the number of frames.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there is no frame.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Modules and addresses of frames, by number.
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// The caller of a frame, and the number of its place.
    pub fn frame(&self, index: u32) -> (Option<u32>, usize) {
        let frames = &self.frames[index as usize / TOGETHER].0;
        let (caller, place) = frames[index as usize % TOGETHER];
        ((caller != NONE).then_some(caller), place as usize)
    }

    /// Returns true if another frame was called from this one.
    pub fn is_caller(&self, index: u32) -> bool {
        self.callers.contains(index)
    }

    /// Drops frames before this one, which nobody asks for any more.
    pub fn drop_before(&mut self, index: u32) {
        if (index as usize).is_multiple_of(TOGETHER)
            && let Some(before) = (index as usize / TOGETHER).checked_sub(1)
        {
            self.frames[before] = Frames::default();
        }
    }

    /// Takes the bits of all callers out.
    pub fn into_callers(self) -> Bits {
        self.callers
    }

    fn push(&mut self, frame: RecordedFrame) {
        let next = self.places.len() as u32;
        let place = *self.numbers.entry((frame.module, frame.address)).or_insert(next);
        if place == next {
            self.places.push((frame.module, frame.address));
        }
        if let Some(caller) = frame.caller {
            self.callers.insert(caller);
        }
        if self.len.is_multiple_of(TOGETHER) {
            self.frames.push(Frames(Vec::new()));
        }
        if let Some(frames) = self.frames.last_mut() {
            frames.0.push((frame.caller.unwrap_or(NONE), place));
        }
        self.len += 1;
    }

    /// Reads the frames of a chunk.
    pub(crate) fn read(&mut self, input: Input<'_>) -> Result<(), WireError> {
        each_frame(input, self.len, |frame| self.push(frame))
    }
}

/// Adds samples of a frame.
pub(crate) fn push(frames: &mut Vec<(u32, u32)>, frame: u32, times: u64) {
    let mut left = times;
    while left > 0 {
        let some = u32::try_from(left).unwrap_or(u32::MAX);
        frames.push((frame, some));
        left -= u64::from(some);
    }
}

/// Reads the frames of a chunk; `known` came before.
pub(crate) fn each_frame(
    mut input: Input<'_>,
    known: usize,
    mut push: impl FnMut(RecordedFrame),
) -> Result<(), WireError> {
    let first: u32 = input.narrow()?;
    if first as usize != known {
        // Frames before these are missing: those after them cannot be told apart.
        return Err(WireError::Range { at: 0 });
    }
    let mut last = 0u64;
    let mut index = known as u64;
    while !input.is_empty() {
        let back = input.number()?;
        let module: u64 = input.number()?;
        last = last.wrapping_add(input.signed()? as u64);
        let caller = index.checked_sub(back).filter(|_| back > 0);
        if back > index {
            return Err(WireError::Range { at: 0 });
        }
        push(RecordedFrame {
            caller: caller.map(|caller| caller as u32),
            module: module.checked_sub(1).and_then(|module| u32::try_from(module).ok()),
            address: last,
        });
        index += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Writer;
    use crate::recording::{RecordedSample, SampledEvent, ThreadExecutions};

    /// Promise: R115
    #[test]
    fn stacks_apart_are_those_of_the_recording() {
        let mut writer = Writer::new(Vec::new()).unwrap();
        let frames: Vec<RecordedFrame> = (0..100u32)
            .map(|at| RecordedFrame {
                caller: (at > 2).then_some(at / 2),
                module: (at % 3 > 0).then_some(at % 3),
                address: u64::from(at % 7) * 1000,
            })
            .collect();
        writer.events(&[SampledEvent { name: "e".into(), interval: 5, modelled: false }]).unwrap();
        writer.thread(&ThreadExecutions { serial: 1, ..ThreadExecutions::default() }).unwrap();
        writer.frames(0, &frames[..60]).unwrap();
        // Samples of an event, a thread and a frame that are missing are left out.
        let rows = [(1, 0, 50), (1, 0, 3), (1, 0, 50), (1, 1, 3), (2, 0, 3), (1, 0, 200)];
        let sample = |(serial, event, frame)| RecordedSample { serial, event, frame };
        writer.samples(&rows.map(sample)).unwrap();
        writer.frames(60, &frames[60..]).unwrap();
        writer.end().unwrap();
        let bytes = writer.into_inner();
        let whole = Recording::parse(&bytes).unwrap();
        let (rest, forest) = Recording::read_apart(&bytes[..]).unwrap();
        assert_eq!(forest.samples, Forest::of(&whole).samples);
        assert_eq!(forest.samples[0].frames, [(3, 1), (50, 2)]);
        assert_eq!((forest.len(), &rest.warnings), (whole.frames.len(), &whole.warnings));
        for (index, frame) in (0..).zip(&whole.frames) {
            let (caller, place) = forest.frame(index);
            assert_eq!(caller, frame.caller);
            assert_eq!(forest.places()[place], (frame.module, frame.address));
            let called = whole.frames.iter().any(|it| it.caller == Some(index));
            assert_eq!(forest.is_caller(index), called);
        }
        let apart = Recording { frames: Vec::new(), samples: Vec::new(), ..whole };
        assert_eq!(rest, apart);
    }
}
