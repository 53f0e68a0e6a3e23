//! Counting equal samples while they are read.

use rustc_hash::FxHashMap;

use crate::forest::{self, FrameSamples};
use crate::recording::RecordedSample;
use crate::wire::{Input, WireError};

/// The number of times that each sample was taken.
///
/// Recordings have hundreds of millions of samples and far fewer different ones. Those of one
/// thread and event are counted in a table by frame as soon as there are as many as frames, so that
/// memory stays in proportion to what was read, whatever a file claims.
#[derive(Debug, Default)]
pub struct Tally {
    groups: Vec<Group>,
    numbers: FxHashMap<(u32, u32), usize>,
    /// The group of the last sample: the next one is usually of the same.
    last: usize,
}

/// Samples of one thread and event.
#[derive(Debug)]
struct Group {
    serial: u32,
    event: u32,
    /// Counts by frame, once there are enough.
    dense: Vec<u64>,
    /// Other frames and how often each was sampled, in any order: new ones mostly come in theirs.
    sparse: Vec<(u32, u32)>,
    /// The number of entries at which equal ones are put together.
    full: usize,
    seen: usize,
}

/// Entries that are never too many.
const FEW: usize = 1 << 12;

/// Puts entries in order, and equal ones together as far as their count is a number.
fn compact(sparse: &mut Vec<(u32, u32)>) {
    sparse.sort_unstable();
    sparse.dedup_by(|next, kept| match kept.1.checked_add(next.1) {
        Some(sum) if kept.0 == next.0 => {
            kept.1 = sum;
            true
        }
        _ => false,
    });
}

impl Group {
    /// Counts samples from the start of `bytes` as long as they are of this group and in the usual
    /// form: thread and event of one byte each, frame of at most four. Returns how many bytes they
    /// have.
    fn run(&mut self, bytes: &[u8], frames: usize) -> usize {
        let mut at = 0;
        let (Ok(serial @ 0..0x80), Ok(event @ 0..0x80)) =
            (u8::try_from(self.serial), u8::try_from(self.event))
        else {
            return 0;
        };
        while let Some(&[first, second, a, b, c, d]) = bytes[at..].first_chunk() {
            let word = u32::from_le_bytes([a, b, c, d]);
            let ends = !word & 0x8080_8080;
            if [first, second] != [serial, event] || ends == 0 {
                break;
            }
            let bits = ends.trailing_zeros() + 1;
            let word = word & (u32::MAX >> (32 - bits));
            let frame =
                word & 0x7f | word >> 1 & 0x3f80 | word >> 2 & 0x1f_c000 | word >> 3 & 0xfe0_0000;
            self.add(frame, frames);
            at += 2 + bits as usize / 8;
        }
        at
    }

    #[inline]
    fn add(&mut self, frame: u32, frames: usize) {
        if let Some(count) = self.dense.get_mut(frame as usize) {
            *count = count.saturating_add(1);
            return;
        }
        self.sparse.push((frame, 1));
        self.seen += 1;
        if self.seen >= frames && self.dense.len() < frames {
            self.dense.resize(frames, 0);
            self.sparse.retain(|(frame, count)| match self.dense.get_mut(*frame as usize) {
                Some(dense) => {
                    *dense = dense.saturating_add((*count).into());
                    false
                }
                None => true,
            });
            self.seen = 0;
        }
        if self.sparse.len() >= self.full {
            compact(&mut self.sparse);
            self.full = (self.sparse.len() * 2).max(FEW);
        }
    }
}

impl Group {
    /// Adds a sample that was taken so often.
    fn add_many(&mut self, frame: u32, times: u64, frames: usize) {
        if let Some(count) = self.dense.get_mut(frame as usize) {
            *count = count.saturating_add(times);
            return;
        }
        let Some(others) = times.checked_sub(1) else { return };
        // A forged number may be anything: it stands for no more than these bits hold.
        let others = u32::try_from(others).unwrap_or(u32::MAX);
        self.add(frame, frames);
        match self.dense.get_mut(frame as usize) {
            Some(count) => *count = count.saturating_add(others.into()),
            None if others > 0 => self.sparse.push((frame, others)),
            None => {}
        }
    }
}

impl Tally {
    /// Counts the samples of a chunk; `frames` are known so far.
    pub fn read(&mut self, mut input: Input<'_>, frames: usize) -> Result<(), WireError> {
        while !input.is_empty() {
            if let Some(group) = self.groups.get_mut(self.last) {
                input.skip(group.run(input.rest(), frames));
            }
            if input.is_empty() {
                break;
            }
            let (serial, event) = (input.narrow()?, input.narrow()?);
            let frame = input.narrow()?;
            let group = self.group(serial, event);
            self.groups[group].add(frame, frames);
        }
        Ok(())
    }

    /// Counts the samples of a chunk that says how often each was taken.
    pub fn read_spans(&mut self, mut input: Input<'_>, frames: usize) -> Result<(), WireError> {
        while !input.is_empty() {
            let (serial, event) = (input.narrow()?, input.narrow()?);
            let (frame, times) = (input.narrow()?, input.number()?);
            let group = self.group(serial, event);
            self.groups[group].add_many(frame, times, frames);
        }
        Ok(())
    }

    fn group(&mut self, serial: u32, event: u32) -> usize {
        let next = self.groups.len();
        let number = *self.numbers.entry((serial, event)).or_insert(next);
        if number == next {
            let (dense, sparse) = Default::default();
            self.groups.push(Group { serial, event, dense, sparse, full: FEW, seen: 0 });
        }
        self.last = number;
        number
    }

    /// The counts of each thread and event, in the order of frames.
    pub fn apart(mut self) -> Vec<FrameSamples> {
        self.groups.sort_unstable_by_key(|group| (group.serial, group.event));
        let apart = |mut group: Group| {
            compact(&mut group.sparse);
            let mut frames = group.sparse;
            for (frame, count) in (0u32..).zip(std::mem::take(&mut group.dense)) {
                forest::push(&mut frames, frame, count);
            }
            frames.sort_unstable();
            FrameSamples { serial: group.serial, event: group.event, frames }
        };
        self.groups.into_iter().map(apart).collect()
    }

    /// The counts, ordered by thread, event and frame.
    pub fn finish(mut self) -> Vec<(RecordedSample, u64)> {
        self.groups.sort_unstable_by_key(|group| (group.serial, group.event));
        let mut out = Vec::new();
        for mut group in self.groups {
            let first = out.len();
            let sample = |frame| RecordedSample { serial: group.serial, event: group.event, frame };
            let dense = (0u32..).zip(&group.dense).filter(|(_, count)| **count > 0);
            out.extend(dense.map(|(frame, count)| (sample(frame), *count)));
            compact(&mut group.sparse);
            out.reserve(group.sparse.len());
            out.extend(
                group.sparse.iter().map(|(frame, count)| (sample(*frame), u64::from(*count))),
            );
            // Frames behind those of the table are in order; a file may hold others before.
            let added = &mut out[first..];
            if !added.is_sorted_by_key(|(sample, _)| sample.frame) {
                added.sort_unstable_by_key(|(sample, _)| sample.frame);
            }
            merge_equal(&mut out, first);
        }
        out
    }
}

/// Puts counts of one sample together from `first` on.
fn merge_equal(out: &mut Vec<(RecordedSample, u64)>, first: usize) {
    let equal = |pair: &[(RecordedSample, u64)]| pair[0].0.frame == pair[1].0.frame;
    if out[first..].windows(2).any(equal) {
        let mut of_group = out.split_off(first);
        of_group.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            kept.1 = kept.1.saturating_add(if same { next.1 } else { 0 });
            same
        });
        out.extend(of_group);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::wire::Output;

    /// Samples of few threads and events, most of them in the usual form.
    fn samples() -> impl Strategy<Value = (u32, u32, u32)> {
        let serial = prop_oneof![4 => 0u32..2, 1 => Just(300u32)];
        let frame = prop_oneof![4 => 0u32..40, 1 => any::<u32>()];
        (serial, 0u32..2, frame)
    }

    proptest! {
        #[test]
        fn every_sample_is_counted(
            chunks in prop::collection::vec(
                prop::collection::vec(samples(), 0..60), 0..6),
            frames in 1usize..30,
        ) {
            let mut tally = Tally::default();
            let mut expected: BTreeMap<(u32, u32, u32), u64> = BTreeMap::new();
            for (index, chunk) in chunks.iter().enumerate() {
                let mut output = Output::default();
                for &(serial, event, frame) in chunk {
                    [serial, event, frame].into_iter().for_each(|number| output.number(number));
                    *expected.entry((serial, event, frame)).or_default() += 1;
                }
                // Frames become more while samples arrive.
                tally.read(Input::new(&output.0), frames * (index + 1)).unwrap();
            }
            let counted: Vec<_> = tally
                .finish()
                .into_iter()
                .map(|(s, count)| ((s.serial, s.event, s.frame), count))
                .collect();
            prop_assert_eq!(counted, expected.into_iter().collect::<Vec<_>>());
        }
    }
}
