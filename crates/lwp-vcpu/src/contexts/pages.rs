//! What a slot keeps of its memory from one thread to the next.
//!
//! A script's processes come one after the other, and each counts in much the same pages as the one before. Where
//! those stay, set to zero, the next process neither has them made nor faults at each: a page that is there is mapped
//! together with its neighbours.

use std::ops::Range;

use lwp_ptrace::{SharedMemory, sys};

use crate::memory_map::{SLOT_BYTES, slot_address, slot_offset};

/// Most bytes that one slot keeps, and how many slots do: what has ended takes 16 MiB at most.
const MOST: u64 = 512 << 10;
const SLOTS_THAT_KEEP: usize = 32;
/// A hole of no more bytes is filled: zeros are read in less time than it takes to ask where it ends.
const SMALL_HOLE: u64 = 16 << 10;
/// How much the kernel maps at a fault of a file's page that is there (fault_around_bytes), at a multiple of that.
const MAPPED_AT_ONCE: u64 = 64 << 10;

/// What each slot has kept: places in the slot.
#[derive(Debug, Default)]
pub struct Pages {
    kept: Vec<Vec<Range<u64>>>,
}

impl Pages {
    /// Sets a slot to zero that nobody uses any more.
    pub fn clear(&mut self, memory: &SharedMemory, slot: usize) {
        let start = slot_offset(slot);
        if self.kept.len() <= slot {
            self.kept.resize_with(slot + 1, Vec::new);
        }
        let kept = &mut self.kept[slot];
        kept.clear();
        let mut bytes = 0;
        for data in data(memory, start, start + SLOT_BYTES) {
            let (mut from, to) = (data.start - start, data.end - start);
            match kept.last_mut() {
                Some(last) if from - last.end <= SMALL_HOLE => {
                    from = last.end;
                    last.end = to;
                }
                _ => kept.push(from..to),
            }
            bytes += to - from;
            if slot >= SLOTS_THAT_KEEP || bytes > MOST {
                kept.clear();
                sys::punch_hole(memory.fd(), start, SLOT_BYTES);
                return;
            }
            memory.clear(start + from, to - from);
        }
    }

    /// An address in a slot, as a tracee has it, of each stretch that is mapped at once and of which something was
    /// kept.
    pub fn places(&self, slot: usize) -> impl Iterator<Item = u64> {
        let mut after = 0;
        let parts = |kept: &Range<u64>| {
            let next = (kept.start / MAPPED_AT_ONCE + 1) * MAPPED_AT_ONCE;
            let others = (next..kept.end).step_by(MAPPED_AT_ONCE as usize);
            std::iter::once(kept.start).chain(others)
        };
        let first = move |place: &u64| {
            let first = *place >= after;
            after = after.max((place / MAPPED_AT_ONCE + 1) * MAPPED_AT_ONCE);
            first
        };
        let kept = self.kept.get(slot).into_iter().flatten();
        kept.flat_map(parts).filter(first).map(move |place| slot_address(slot) + place)
    }
}

/// Where in the memory there is anything from `start` to `end`.
pub fn data(memory: &SharedMemory, start: u64, end: u64) -> impl Iterator<Item = Range<u64>> {
    let mut from = start;
    std::iter::from_fn(move || {
        let data = sys::next_data(memory.fd(), from).filter(|data| *data < end)?.max(from);
        from = sys::next_hole(memory.fd(), data).map_or(end, |hole| hole.min(end));
        (data < from).then_some(data..from)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_zero_and_found_again() {
        let memory = SharedMemory::new(c"pages", 3 * SLOT_BYTES).unwrap();
        let start = slot_offset(1);
        let written = [0, 5 << 10, 100 << 10, 130 << 10, SLOT_BYTES - 8];
        for place in written {
            memory.store(start + place, 1);
        }
        memory.store(start - 8, 7);
        let mut pages = Pages::default();
        pages.clear(&memory, 1);
        assert!(written.iter().all(|place| memory.load(start + place) == 0));
        assert_eq!(memory.load(start - 8), 7);
        let data = data(&memory, start, start + SLOT_BYTES);
        let data: Vec<_> = data.map(|data| data.start - start..data.end - start).collect();
        let last = SLOT_BYTES - 4096..SLOT_BYTES;
        assert_eq!(data, [0..8 << 10, 100 << 10..104 << 10, 128 << 10..132 << 10, last]);
        pages.clear(&memory, 1);
        let places: Vec<u64> = pages.places(1).map(|place| place - slot_address(1)).collect();
        assert_eq!(places, [0, 100 << 10, 128 << 10, SLOT_BYTES - 4096]);
        assert_eq!(pages.places(2).count(), 0);
    }

    #[test]
    fn small_holes_are_filled() {
        let memory = SharedMemory::new(c"pages", 2 * SLOT_BYTES).unwrap();
        let start = slot_offset(1);
        for place in [4 << 10, 24 << 10, 48 << 10] {
            memory.store(start + place, 1);
        }
        let mut pages = Pages::default();
        pages.clear(&memory, 1);
        let data = data(&memory, start, start + SLOT_BYTES);
        let data: Vec<_> = data.map(|data| data.start - start..data.end - start).collect();
        assert_eq!(data, [4 << 10..28 << 10, 48 << 10..52 << 10]);
        assert!((0..64 << 10).step_by(8).all(|place| memory.load(start + place) == 0));
    }

    #[test]
    fn what_is_much_is_given_back() {
        let memory = SharedMemory::new(c"pages", 2 * SLOT_BYTES).unwrap();
        let start = slot_offset(1);
        for at in (0..MOST + 4096).step_by(4096) {
            memory.store(start + at, 1);
        }
        let mut pages = Pages::default();
        pages.clear(&memory, 1);
        assert_eq!(data(&memory, start, start + SLOT_BYTES).count(), 0);
        assert_eq!(pages.places(1).count(), 0);
    }

    #[test]
    fn long_stretches_have_a_place_for_each_part_that_is_mapped_at_once() {
        let kept = vec![vec![4096..200 << 10, 204 << 10..208 << 10]];
        let places: Vec<u64> =
            Pages { kept }.places(0).map(|place| place - slot_address(0)).collect();
        assert_eq!(places, [4096, 64 << 10, 128 << 10, 192 << 10]);
    }
}
