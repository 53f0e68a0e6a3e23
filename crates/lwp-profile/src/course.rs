//! The course of a sampled recording: which frames were sampled when.
//!
//! Samples of one thread and event are in order, an interval from each to the next, so a thread's
//! own count of the event is its clock. Threads have no clock in common. A [`Course`] keeps each
//! lane, that is one event of one thread, in parts of equal length; the longer the recording, the
//! longer its parts, so that memory has a bound.
//!
//! Promise: R60

use std::collections::BTreeMap;
use std::io::Read;

use rustc_hash::FxHashMap;

use crate::chunk::{self, Batches, Kind, ReadError};
use crate::wire::{Input, WireError};

/// Most parts of a lane.
const PARTS: usize = 512;
/// Pairs of frames and counts of all lanes, at eight bytes each, from which on parts become longer.
/// Longer parts save nothing where stacks hardly ever repeat: then as many are kept as there are
/// samples, which need about as many bytes in the file.
const ENTRIES: usize = 1 << 24;

/// Frames and how often each was sampled.
pub type Part = Vec<(u32, u32)>;

/// One event of one thread, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lane {
    /// Number of the thread.
    pub serial: u32,
    /// Index of the event.
    pub event: u32,
    /// Samples of each part; the last one may have fewer.
    pub width: u64,
    /// All samples.
    pub samples: u64,
    /// Counts of each `width` samples, in the order of time.
    pub parts: Vec<Part>,
    /// The part that is being filled.
    now: FxHashMap<u32, u32>,
    filled: u64,
}

impl Lane {
    /// Returns whether a part was finished.
    fn add(&mut self, frame: u32) -> bool {
        *self.now.entry(frame).or_default() += 1;
        self.samples += 1;
        self.filled += 1;
        self.filled == self.width && self.finish_part()
    }

    fn finish_part(&mut self) -> bool {
        self.filled = 0;
        let mut part: Part = self.now.drain().collect();
        part.sort_unstable();
        self.parts.push(part);
        true
    }

    /// Joins each two parts.
    fn halve(&mut self) {
        let pairs = std::mem::take(&mut self.parts);
        let odd = pairs.len() % 2 == 1;
        let mut pairs = pairs.into_iter();
        while let Some(mut part) = pairs.next() {
            match pairs.next() {
                Some(other) => self.parts.push(joined(&mut part, other)),
                None => {
                    for (frame, times) in part {
                        *self.now.entry(frame).or_default() += times;
                    }
                }
            }
        }
        self.filled += if odd { self.width } else { 0 };
        self.width *= 2;
    }
}

fn joined(part: &mut Part, other: Part) -> Part {
    let mut all = std::mem::take(part);
    all.extend(other);
    all.sort_unstable_by_key(|(frame, _)| *frame);
    all.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        kept.1 = if same { kept.1.saturating_add(next.1) } else { kept.1 };
        same
    });
    all
}

/// The course of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Course {
    /// Lanes by thread and event.
    pub lanes: Vec<Lane>,
}

impl Course {
    /// Reads the samples of a recording in their order, and nothing else of it. Damage ends the
    /// reading, as it does in [`crate::Recording::read`], which says so.
    ///
    /// # Errors
    ///
    /// If the file is no recording, or cannot be read.
    pub fn read(mut file: impl Read) -> Result<Self, ReadError> {
        let unreadable = |error: std::io::Error| ReadError::Unreadable(error.to_string());
        let mut head = [0; chunk::HEADER_BYTES];
        let got = chunk::fill(&mut file, &mut head).map_err(unreadable)?;
        chunk::read_header(&head[..got])?;
        let mut reading = Reading { limit: PARTS, allowed: ENTRIES, ..Reading::default() };
        let mut batches = Batches::new(file);
        loop {
            let batch = batches.next_batch().map_err(unreadable)?;
            for chunk in batch.chunks.iter().filter(|chunk| chunk.kind == Kind::SAMPLES) {
                // What cannot be decoded was said by whoever read the recording.
                let _ = reading.samples(Input::new(batch.payload(chunk)));
            }
            if batch.last {
                return Ok(reading.finish());
            }
        }
    }
}

/// A course that is being read.
#[derive(Debug, Default)]
struct Reading {
    lanes: Vec<Lane>,
    numbers: BTreeMap<(u32, u32), usize>,
    limit: usize,
    entries: usize,
    /// Entries from which on parts become longer.
    allowed: usize,
}

impl Reading {
    fn samples(&mut self, mut input: Input<'_>) -> Result<(), WireError> {
        let mut last = None;
        while !input.is_empty() {
            let of = (input.narrow()?, input.narrow()?);
            let frame = input.narrow()?;
            let number = match last {
                Some((known, number)) if known == of => number,
                _ => self.number(of),
            };
            last = Some((of, number));
            if self.lanes[number].add(frame) {
                self.make_room(number);
            }
        }
        Ok(())
    }

    fn number(&mut self, (serial, event): (u32, u32)) -> usize {
        let next = self.lanes.len();
        let number = *self.numbers.entry((serial, event)).or_insert(next);
        if number == next {
            self.lanes.push(Lane { serial, event, width: 1, ..Lane::default() });
        }
        number
    }

    fn make_room(&mut self, number: usize) {
        let size = |lane: &Lane| lane.parts.iter().map(Vec::len).sum::<usize>();
        let lane = &mut self.lanes[number];
        self.entries += lane.parts.last().map_or(0, Vec::len);
        if lane.parts.len() >= self.limit {
            lane.halve();
        }
        if self.entries > self.allowed {
            self.entries = self.lanes.iter().map(size).sum();
            if self.entries > self.allowed / 2 && self.limit > 8 {
                let before = self.entries;
                self.limit /= 2;
                self.lanes.iter_mut().filter(|lane| lane.parts.len() > 1).for_each(Lane::halve);
                self.entries = self.lanes.iter().map(size).sum();
                if self.entries > before / 4 * 3 {
                    self.allowed = self.entries * 2;
                }
            }
        }
    }

    fn finish(mut self) -> Course {
        for lane in self.lanes.iter_mut().filter(|lane| lane.filled > 0) {
            lane.finish_part();
        }
        self.lanes.sort_unstable_by_key(|lane| (lane.serial, lane.event));
        Course { lanes: self.lanes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Writer;
    use crate::recording::RecordedSample;

    fn file(frames: impl Iterator<Item = (u32, u32)>) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new()).unwrap();
        for chunk in frames.collect::<Vec<_>>().chunks(1000) {
            let sample = |&(serial, frame)| RecordedSample { serial, event: 0, frame };
            writer.samples(&chunk.iter().map(sample).collect::<Vec<_>>()).unwrap();
        }
        writer.into_inner()
    }

    #[test]
    #[cfg_attr(miri, ignore = "its many samples take an interpreter minutes")]
    fn parts_follow_each_other_in_order_and_nothing_is_lost() {
        for samples in [1u64, 3, 511, 512, 513, 1024, 5000, 100_001] {
            let course = Course::read(&*file((0..samples).map(|n| (7, (n / 100) as u32)))).unwrap();
            let [lane] = &course.lanes[..] else { panic!("{} lanes", course.lanes.len()) };
            assert_eq!((lane.serial, lane.samples), (7, samples));
            assert!(lane.parts.len() <= PARTS, "{}", lane.parts.len());
            let mut at = 0;
            for (number, part) in lane.parts.iter().enumerate() {
                let sum: u64 = part.iter().map(|(_, times)| u64::from(*times)).sum();
                let last = number + 1 == lane.parts.len();
                assert!(sum == lane.width || last && sum <= lane.width, "{samples}: {number}");
                for (frame, _) in part {
                    let first = u64::from(*frame) * 100;
                    assert!(first < at + sum && first + 100 > at, "{frame} in part {number}");
                }
                at += sum;
            }
            assert_eq!(at, samples);
        }
    }

    #[test]
    fn threads_have_lanes_of_their_own() {
        let course = Course::read(&*file((0..100).map(|n| (n % 2, n)))).unwrap();
        let lanes: Vec<_> = course.lanes.iter().map(|lane| (lane.serial, lane.samples)).collect();
        assert_eq!(lanes, [(0, 50), (1, 50)]);
        assert_eq!(course.lanes[1].parts[49], [(99, 1)]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "its many samples take an interpreter minutes")]
    fn many_different_stacks_leave_parts_short() {
        let read = |frames: u32| {
            let mut reading = Reading { limit: PARTS, allowed: 1000, ..Reading::default() };
            for sample in 0..100_000u32 {
                let number = reading.number((0, 0));
                if reading.lanes[number].add(sample % frames) {
                    reading.make_room(number);
                }
            }
            reading.finish().lanes[0].parts.len()
        };
        // A thousand entries cannot hold a hundred thousand stacks: seven times twice as many may.
        assert!(read(u32::MAX) >= 4, "{}", read(u32::MAX));
        assert!(read(10) >= 64, "{}", read(10));
    }

    #[test]
    fn other_files_are_refused() {
        assert!(Course::read(&b"{}"[..]).is_err());
    }
}
