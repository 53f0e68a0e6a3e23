//! The counters of a thread, which translated code counts up in its context.

use std::sync::atomic::{AtomicU64, Ordering};

use lwp_dbt::context::calls::{CALL_BYTES, CALL_PROBES, CALLS_AT, CALLS_BYTES, call_slot};
use lwp_dbt::context::{CONTEXT_BYTES, TargetFeatures};
use lwp_dbt::{Counters, trace};

use super::{Context, Sum};
use crate::memory_map::MAX_COUNTERS;

/// The counters of one thread, and its table of indirect calls.
#[derive(Clone, Copy, Debug)]
pub struct ThreadCounters<'a>(pub(super) Context<'a>);

impl ThreadCounters<'_> {
    /// Sets all counters to zero.
    pub fn clear(&self) {
        let from = self.0.base() + CONTEXT_BYTES;
        self.0.memory().punch_hole(from, u64::from(trace::RECORDS) - CONTEXT_BYTES);
    }

    /// Adds the thread's counters, weighted, to `sum`.
    pub fn collect(&self, deltas: &Counters, sum: &mut Sum) {
        let mut all = deltas.ascending();
        self.for_each(deltas.len(), |index, count| sum.add(all.deltas(index), count));
    }

    /// Calls `each` with number and value of every counter below `counters` that is not zero.
    pub fn for_each(&self, counters: usize, mut each: impl FnMut(usize, u64)) {
        let start = self.0.base() + CONTEXT_BYTES;
        for data in self.0.memory().data(start, start + counters as u64 * 8) {
            let first = ((data.start - start) / 8) as usize;
            let words = self.0.memory().words(data.start, (data.end - data.start) / 8);
            // Most are zero, eight in a row.
            for (line, words) in words.chunks(8).enumerate() {
                let read = |word: &AtomicU64| word.load(Ordering::Relaxed);
                if words.iter().fold(0, |any, word| any | read(word)) == 0 {
                    continue;
                }
                for (index, count) in words.iter().map(read).enumerate() {
                    if count != 0 {
                        each(first + line * 8 + index, count);
                    }
                }
            }
        }
    }

    /// Calls `each` with site, target and number of every indirect call in the table of those that
    /// led elsewhere than their site did first.
    pub fn for_each_call(&self, mut each: impl FnMut(u32, u64, u64)) {
        let start = self.0.base() + u64::from(CALLS_AT);
        self.for_each_piece(start, start + u64::from(CALLS_BYTES), |_, piece| {
            for slot in piece.chunks_exact(CALL_BYTES as usize) {
                let [target, site, count] = [0, 8, 16].map(|at| word(&slot[at..at + 8]));
                if count != 0 {
                    each(!(site as u32), !target, count);
                }
            }
        });
    }

    /// Counter `index`; 0 where there is no such counter.
    pub fn get(&self, index: u32) -> u64 {
        if u64::from(index) >= MAX_COUNTERS {
            return 0;
        }
        self.0.memory().load(self.0.base() + CONTEXT_BYTES + u64::from(index) * 8)
    }

    /// Sets counter `index`. The thread must be waiting.
    pub fn set(&self, index: u32, value: u64) {
        if u64::from(index) >= MAX_COUNTERS {
            return;
        }
        self.0.memory().store(self.0.base() + CONTEXT_BYTES + u64::from(index) * 8, value);
    }

    /// Returns the number of times that a call led to `target`, by that table.
    pub fn calls_to(&self, site: u32, target: u64) -> u64 {
        self.call_at(site, target).map_or(0, |at| self.0.memory().load(at + 16))
    }

    /// The place of the slot that counts calls from `site` to `target`.
    fn call_at(&self, site: u32, target: u64) -> Option<u64> {
        let first = call_slot(TargetFeatures::of_this_processor(), site, target);
        let mut slots = (first..first + CALL_PROBES)
            .map(|slot| self.0.base() + u64::from(CALLS_AT) + u64::from(slot * CALL_BYTES));
        slots.find(|at| {
            let [led, named] = [0, 8].map(|word| self.0.memory().load(at + word));
            (!(named as u32), !led) == (site, target)
        })
    }

    /// Takes the number of times that a call led to `target`, by that table, where it is 0 from
    /// then on. The thread must be waiting.
    pub fn take_call(&self, site: u32, target: u64) -> Option<u64> {
        let at = self.call_at(site, target)?;
        let count = self.0.memory().load(at + 16);
        self.0.memory().store(at + 16, 0);
        Some(count).filter(|count| *count != 0)
    }

    /// Empties that table. The thread must be waiting.
    pub fn clear_calls(&self) {
        let start = self.0.base() + u64::from(CALLS_AT);
        self.0.memory().punch_hole(start, u64::from(CALLS_BYTES).next_multiple_of(4096));
    }

    /// Calls `each` with offset and bytes of what has been written from `start` to `end`, and of
    /// some that has not, in pieces of whole slots of the table of calls.
    ///
    /// Small holes are read as what they are, zeros: that takes less than to be told of them.
    fn for_each_piece(&self, start: u64, end: u64, mut each: impl FnMut(u64, &[u8])) {
        const PIECE: u64 = 32 << 10;
        let mut buffer = vec![0u8; PIECE as usize];
        let mut read_to = start;
        for data in self.0.memory().data(start, end) {
            let mut at = data.start.max(read_to);
            while at < data.end {
                let want = (end - at).min(PIECE) as usize;
                let got = self.0.memory().read_file(at, &mut buffer[..want]).unwrap_or(0);
                if got == 0 {
                    return;
                }
                each(at, &buffer[..got]);
                at += got as u64;
            }
            read_to = at;
        }
    }
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}
