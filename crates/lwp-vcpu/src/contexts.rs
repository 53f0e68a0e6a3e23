//! The contexts: one slot a thread, in a file that its address space alone maps, and the doors they
//! ring.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lwp_dbt::context::calls::{CALL_BYTES, CALL_PROBES, CALLS_AT, CALLS_BYTES, call_slot};
use lwp_dbt::context::{
    APPLY_MAX, APPLY_SHORT, BRANCH_BYTES, BRANCHES_AT, CONTEXT_BYTES, CUT_BYTES, CUTS_AT,
    LWP_DEALT_AT, LWP_LOW_MAX, LWP_SLOTS, MOST_BRANCHES, MOST_NOTES, NOTE_BYTES, NOTES_AT,
    RANGES_AT, SETS_AT, TargetFeatures, UNDO_AT, UNDO_BYTES, UNDOS, lwp_slot_displacement, ranges,
};
use lwp_dbt::{Counters, EventDeltas, RequestKind, Slot};
use lwp_ptrace::{SharedMemory, Tid, sys};

use crate::machine::Tasks;
use crate::memory_map::{
    APPLY_LIST, DOORS, DOORS_AT, MAX_COUNTERS, SLEEP_AT, SLOT_BYTES, VECTOR_AT, VECTOR_BYTES,
    slot_address,
};
use crate::outcome::Counts;

mod doors;
mod file;
mod files;

pub use doors::{DoorGroup, Doors};
pub use file::{ContextFile, FileId};
pub use files::Files;

/// Offset in a context of room for a path, behind all fields.
const SCRATCH: u64 = (RANGES_AT + ranges::BYTES) as u64;

/// The contexts of all threads, by numbers that are theirs as long as they live.
#[derive(Debug)]
pub struct Contexts {
    /// The files that they lie in.
    pub files: Files,
    slots: Vec<Option<Place>>,
    free: Vec<usize>,
    /// The doors at which the threads ring.
    pub doors: Arc<Doors>,
    /// The state components of the virtual processor.
    pub state_mask: u64,
}

/// The place of one thread's context.
#[derive(Debug)]
struct Place {
    file: FileId,
    local: usize,
    /// The chunk of the file that it lies in, and its offset there.
    memory: Arc<SharedMemory>,
    at: u64,
    doors: Arc<DoorGroup>,
}

impl Contexts {
    /// None yet.
    pub fn new(state_mask: u64) -> Self {
        let doors = Arc::<Doors>::default();
        Self {
            files: Files::new(doors.clone()),
            slots: Vec::new(),
            free: Vec::new(),
            doors,
            state_mask,
        }
    }

    /// A fresh context in an address space, for a thread that spins for `spin` pauses at first;
    /// `None` when there is none to be had.
    pub fn allocate(&mut self, id: FileId, spin: u64) -> Option<usize> {
        let slot = self.free.pop().unwrap_or(self.slots.len());
        let file = self.files.get_mut(id)?;
        let Some((local, memory, at)) = file.take(slot) else {
            self.free.extend((slot < self.slots.len()).then_some(slot));
            return None;
        };
        let doors = self.doors.group(id, file, local);
        let place = Place { file: id, local, memory, at, doors };
        if slot == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[slot] = Some(place);
        let context = self.context(slot);
        context.place_it();
        context.set(Slot::Spin, spin);
        context.set(Slot::StateMask, self.state_mask);
        context.set(Slot::GuardedTo, 0);
        context.set(Slot::Beside, 0);
        Some(slot)
    }

    /// Takes a slot back; its counters must have been read.
    pub fn release(&mut self, slot: usize) {
        let Some(place) = self.slots.get_mut(slot).and_then(Option::take) else { return };
        place.doors.flag(place.local).store(0, Ordering::SeqCst);
        if let Some(file) = self.files.get_mut(place.file) {
            file.give_back(place.local);
        }
        self.free.push(slot);
    }

    /// The slot of an address space's `local`th thread.
    pub fn slot_of(&self, id: FileId, local: usize) -> Option<usize> {
        self.files.get(id)?.slot(local)
    }

    /// The context of a thread of a run.
    pub fn of(&self, tasks: &Tasks, tid: Tid) -> Option<Context<'_>> {
        Some(self.context(tasks.threads.get(&tid)?.slot))
    }

    /// The context of a thread that has this slot.
    pub fn context(&self, slot: usize) -> Context<'_> {
        let place = self.slots[slot].as_ref().expect("a thread keeps its slot as long as it lives");
        Context { place }
    }
}

/// One thread's context.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    place: &'a Place,
}

impl Context<'_> {
    /// Its address in the tracee.
    pub fn address(&self) -> u64 {
        slot_address(self.place.local)
    }

    /// Says where it lies, and where its thread rings.
    fn place_it(&self) {
        let leader = slot_address(self.local() & !(DOORS - 1));
        self.set(Slot::DoorFlag, leader + DOORS_AT + (self.local() % DOORS) as u64);
        self.set(Slot::DoorSleep, slot_address(0) + SLEEP_AT);
        self.set(Slot::This, self.address());
    }

    /// Its number among its address space's contexts.
    pub fn local(&self) -> usize {
        self.place.local
    }

    fn memory(&self) -> &SharedMemory {
        &self.place.memory
    }

    /// Its offset in the memory.
    fn base(&self) -> u64 {
        self.place.at
    }

    /// Reads a field.
    pub fn get(&self, field: Slot) -> u64 {
        self.memory().load(self.base() + u64::from(field as u32))
    }

    /// Writes a field.
    pub fn set(&self, field: Slot, value: u64) {
        self.memory().store(self.base() + u64::from(field as u32), value);
    }

    /// Writes a word anywhere, as its thread can.
    #[cfg(feature = "attack")]
    pub fn forge(&self, offset: u64, value: u64) {
        self.memory().store(self.base() + offset % SLOT_BYTES, value);
    }

    /// The kind of request that is being made; `None` for a number that translated code cannot have
    /// written.
    pub fn asked(&self) -> Option<RequestKind> {
        RequestKind::from_raw(u32::try_from(self.get(Slot::Kind)).ok()?)
    }

    /// The same where it does not matter what a forged number stands for: a dispatch.
    pub fn kind(&self) -> RequestKind {
        self.asked().unwrap_or(RequestKind::Dispatch)
    }

    /// The amount of a part of the countdown that has passed since it was `published`, of which
    /// `left` is left. Translated code can go beyond what was published by no more than a block
    /// counts; what the program has written there itself is cut to that.
    pub fn passed(published: i64, left: i64) -> u64 {
        let passed = published.saturating_sub(left);
        let most = published.saturating_add(BLOCK_COUNTS_MOST);
        u64::try_from(passed.min(most)).unwrap_or(0)
    }

    /// Sets all counters to zero.
    pub fn clear_counters(&self) {
        let from = self.base() + CONTEXT_BYTES;
        self.memory().punch_hole(from, SLOT_BYTES - CONTEXT_BYTES);
    }

    /// Reads a word of the LWP countdown.
    pub fn lwp_word(&self, index: u32) -> u64 {
        let at = u64::from(lwp_dbt::context::lwp_slot_displacement(index));
        self.memory().load(self.base() + at)
    }

    /// Returns whether a block has taken from a word of the LWP countdown while nothing was dealt
    /// out: it is about to give that back, and to have what it counts taken by hand.
    pub fn has_taken_in_vain(&self) -> bool {
        let nothing = i64::from(lwp_dbt::routines::NOTHING_GIVEN).cast_unsigned();
        self.get(Slot::LwpGiven) == nothing && self.lwp_words() != nothing
    }

    /// The sum of all words of the LWP countdown.
    pub fn lwp_words(&self) -> u64 {
        let words = (0..LWP_SLOTS).map(|index| self.lwp_word(index));
        words.fold(0, u64::wrapping_add)
    }

    /// Lets no word of the LWP countdown have anything of the high part: the next block that counts
    /// has it dealt out. Whatever event was noted is settled.
    pub fn deal_nothing(&self) {
        for index in 0..LWP_SLOTS {
            let word = u64::from(lwp_slot_displacement(index));
            let dealt = u64::from(LWP_DEALT_AT + index * 8);
            self.memory().store(self.base() + word, LWP_LOW_MAX);
            self.memory().store(self.base() + dealt, LWP_LOW_MAX);
        }
        self.set(Slot::LwpGiven, LWP_LOW_MAX * u64::from(LWP_SLOTS));
        self.set(Slot::LwpNote, 0);
    }

    /// Reads the notes of data cache misses.
    pub fn lwp_notes(&self) -> impl Iterator<Item = [u64; 2]> {
        let first = self.base() + u64::from(NOTES_AT);
        let notes = (self.get(Slot::LwpNotes) & u64::from(u32::MAX)).min(u64::from(MOST_NOTES));
        (0..notes).map(move |note| {
            let at = first + note * u64::from(NOTE_BYTES);
            [self.memory().load(at), self.memory().load(at + 8)]
        })
    }

    /// The branches written down for the predictor, in order: see [`BRANCHES_AT`].
    pub fn lwp_branches(&self) -> impl Iterator<Item = [u64; 2]> {
        let first = self.base() + u64::from(BRANCHES_AT);
        let branches = self.get(Slot::LwpBranches).min(u64::from(MOST_BRANCHES));
        (0..branches).map(move |branch| {
            let at = first + branch * u64::from(BRANCH_BYTES);
            [self.memory().load(at), self.memory().load(at + 8)]
        })
    }

    /// Reads a line of the data cache, `place` bytes behind its first: the address, negated.
    pub fn lwp_line(&self, place: u64) -> u64 {
        self.memory().load(self.base() + u64::from(SETS_AT) + within_sets(place))
    }

    /// Writes it.
    pub fn set_lwp_line(&self, place: u64, line: u64) {
        self.memory().store(self.base() + u64::from(SETS_AT) + within_sets(place), line);
    }

    /// Reads change `index` of the data cache: pc, line, place, line that had to go.
    pub fn lwp_undo(&self, index: u64) -> [u64; 4] {
        let entry = (index % u64::from(UNDOS)) * u64::from(UNDO_BYTES);
        let at = self.base() + u64::from(UNDO_AT) + entry;
        std::array::from_fn(|word| self.memory().load(at + word as u64 * 8))
    }

    /// The key of known cut `index`.
    pub fn known_cut_key(&self, index: u32) -> u64 {
        self.memory().load(self.base() + u64::from(CUTS_AT) + u64::from(index * CUT_BYTES))
    }

    /// Writes the first words of known cut `index`, the key last.
    pub fn set_known_cut(&self, index: u32, words: &[u64]) {
        let at = self.base() + u64::from(CUTS_AT) + u64::from(index * CUT_BYTES);
        for (word, value) in words.iter().enumerate().rev() {
            self.memory().store(at + word as u64 * 8, *value);
        }
    }

    /// Says where there is code, in `code`; `None` where the thread is to ask whenever it matters.
    pub fn set_code_ranges(&self, state: u64, code: Option<&[(u64, u64)]>) {
        let at = |offset: u32| self.base() + u64::from(RANGES_AT + offset);
        let code = code.filter(|code| code.len() <= ranges::MOST);
        // Who looks through the list meanwhile sees that it has changed.
        self.memory().store(at(ranges::COUNT), 0);
        self.memory().store(at(ranges::STATE), state);
        let Some(code) = code else { return };
        for (index, (start, end)) in code.iter().enumerate() {
            self.memory().store(at(ranges::FIRST + index as u32 * 16), *start);
            self.memory().store(at(ranges::FIRST + index as u32 * 16 + 8), *end);
        }
        self.memory().store(at(ranges::COUNT), code.len() as u64 + 1);
    }

    /// Takes the request back, answered or not: the thread is stopped and will not look for it.
    pub fn cancel(&self) {
        self.place.doors.flag(self.place.local).store(0, Ordering::SeqCst);
        self.set(Slot::Resp, 0);
        self.memory().u32(self.wait_offset()).store(0, Ordering::SeqCst);
        self.set(Slot::Kind, RequestKind::Dispatch as u64);
    }

    /// Rings the bell for the thread, and wakes the server.
    pub fn ring(&self) {
        self.place.doors.flag(self.place.local).store(1, Ordering::SeqCst);
        self.place.doors.wake();
    }

    fn wait_offset(&self) -> u64 {
        self.base() + u64::from(Slot::Wait as u32)
    }

    /// Lets the thread carry out the answer at `tail`. Returns whether it had fallen asleep.
    pub fn answer(&self, tail: u64) -> bool {
        let resp = self.base() + u64::from(Slot::Resp as u32);
        self.memory().u64(resp).store(tail, Ordering::SeqCst);
        let wait = self.memory().u32(self.wait_offset());
        if wait.swap(0, Ordering::SeqCst) == 0 {
            return false;
        }
        sys::futex_wake(wait);
        true
    }

    /// Writes the insertion list: table slot address, chain slot address, entry address.
    pub fn set_apply_list(&self, list: &[[u64; 3]]) {
        debug_assert!(list.len() <= APPLY_MAX);
        let within = match list.len() <= APPLY_SHORT {
            true => u64::from(Slot::ApplyList as u32),
            false => APPLY_LIST,
        };
        self.set(Slot::ApplyAt, self.address() + within);
        let base = self.base() + within;
        for (index, triple) in list.iter().enumerate() {
            for (word, value) in triple.iter().enumerate() {
                self.memory().store(base + index as u64 * 24 + word as u64 * 8, *value);
            }
        }
        self.set(Slot::ApplyCount, list.len() as u64);
    }

    /// Puts bytes where the thread can read them, and returns their address in the tracee.
    pub fn write_scratch(&self, bytes: &[u8]) -> u64 {
        let len = bytes.len().min((SLEEP_AT - SCRATCH) as usize - 1);
        let offset = self.base() + SCRATCH;
        self.memory().write(offset, &bytes[..len]);
        self.memory().write(offset + len as u64, &[0]);
        self.address() + SCRATCH
    }

    /// Returns the address of the room for the buffers of a system call that goes on.
    pub fn vector_address(&self) -> u64 {
        self.address() + VECTOR_AT
    }

    /// Puts the buffers of a system call that goes on there.
    pub fn write_vector(&self, bytes: &[u8]) {
        let len = bytes.len().min(VECTOR_BYTES as usize);
        self.memory().write(self.base() + VECTOR_AT, &bytes[..len]);
    }

    /// One triple of the insertion list.
    pub fn apply_triple(&self, index: usize) -> [u64; 3] {
        let within = match self.get(Slot::ApplyAt) == self.address() + APPLY_LIST {
            true => APPLY_LIST,
            false => u64::from(Slot::ApplyList as u32),
        };
        let base = self.base() + within + index as u64 * 24;
        [0, 8, 16].map(|word| self.memory().load(base + word))
    }

    /// Copies the registers and the like that another context holds: a new thread's state is its
    /// maker's.
    pub fn inherit(&self, from: Context<'_>) {
        for field in [
            Slot::Rcx,
            Slot::R11,
            Slot::Rax,
            Slot::Rdi,
            Slot::Rsi,
            Slot::Rdx,
            Slot::R10,
            Slot::Rbx,
            Slot::R8,
            Slot::R9,
            Slot::Pc,
            Slot::Next,
            Slot::AppGs,
            Slot::SigPc,
            Slot::SigFrame,
            Slot::NoSyscalls,
            Slot::Watched,
        ] {
            self.set(field, from.get(field));
        }
    }

    /// Copies everything that another context holds before its counters.
    pub fn copy(&self, from: Context<'_>) {
        for at in (0..SLEEP_AT).step_by(8) {
            self.memory().store(self.base() + at, from.memory().load(from.base() + at));
        }
        self.place_it();
    }

    /// Adds the thread's counters, weighted, to `sum`.
    pub fn collect(&self, deltas: &Counters, sum: &mut Sum) {
        let mut all = deltas.ascending();
        self.for_each_counter(deltas.len(), |index, count| sum.add(all.deltas(index), count));
    }

    /// Calls `each` with number and value of every counter below `counters` that is not zero.
    pub fn for_each_counter(&self, counters: usize, mut each: impl FnMut(usize, u64)) {
        let start = self.base() + CONTEXT_BYTES;
        for data in self.memory().data(start, start + counters as u64 * 8) {
            let first = ((data.start - start) / 8) as usize;
            let words = self.memory().words(data.start, (data.end - data.start) / 8);
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
        let start = self.base() + u64::from(CALLS_AT);
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
    pub fn counter(&self, index: u32) -> u64 {
        if u64::from(index) >= MAX_COUNTERS {
            return 0;
        }
        self.memory().load(self.base() + CONTEXT_BYTES + u64::from(index) * 8)
    }

    /// Sets counter `index`. The thread must be waiting.
    pub fn set_counter(&self, index: u32, value: u64) {
        if u64::from(index) >= MAX_COUNTERS {
            return;
        }
        self.memory().store(self.base() + CONTEXT_BYTES + u64::from(index) * 8, value);
    }

    /// Returns the number of times that a call led to `target`, by that table.
    pub fn calls_to(&self, site: u32, target: u64) -> u64 {
        self.call_at(site, target).map_or(0, |at| self.memory().load(at + 16))
    }

    /// The place of the slot that counts calls from `site` to `target`.
    fn call_at(&self, site: u32, target: u64) -> Option<u64> {
        let first = call_slot(TargetFeatures::of_this_processor(), site, target);
        let mut slots = (first..first + CALL_PROBES)
            .map(|slot| self.base() + u64::from(CALLS_AT) + u64::from(slot * CALL_BYTES));
        slots.find(|at| {
            let [led, named] = [0, 8].map(|word| self.memory().load(at + word));
            (!(named as u32), !led) == (site, target)
        })
    }

    /// Takes the number of times that a call led to `target`, by that table, where it is 0 from
    /// then on. The thread must be waiting.
    pub fn take_call(&self, site: u32, target: u64) -> Option<u64> {
        let at = self.call_at(site, target)?;
        let count = self.memory().load(at + 16);
        self.memory().store(at + 16, 0);
        Some(count).filter(|count| *count != 0)
    }

    /// Empties that table. The thread must be waiting.
    pub fn clear_calls(&self) {
        let start = self.base() + u64::from(CALLS_AT);
        self.memory().punch_hole(start, u64::from(CALLS_BYTES).next_multiple_of(4096));
    }

    /// Calls `each` with offset and bytes of what has been written from `start` to `end`, and of
    /// some that has not, in pieces of whole slots of the table of calls.
    ///
    /// Small holes are read as what they are, zeros: that takes less than to be told of them.
    fn for_each_piece(&self, start: u64, end: u64, mut each: impl FnMut(u64, &[u8])) {
        const PIECE: u64 = 32 << 10;
        let mut buffer = vec![0u8; PIECE as usize];
        let mut read_to = start;
        for data in self.memory().data(start, end) {
            let mut at = data.start.max(read_to);
            while at < data.end {
                let want = (end - at).min(PIECE) as usize;
                let got = self.memory().read_file(at, &mut buffer[..want]).unwrap_or(0);
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

/// More than a block counts.
const BLOCK_COUNTS_MOST: i64 = 1 << 20;

/// A place among the sets of the data cache, whatever the program has written down as one.
fn within_sets(place: u64) -> u64 {
    const SETS_BYTES: u64 = (UNDO_AT - SETS_AT) as u64;
    (place % SETS_BYTES) & !7
}

/// A sum of weighted counters, modulo 2^64: a program can write to its counters. Signed:
/// corrections may come before what they correct.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum([i64; 7]);

impl Sum {
    /// Adds `count` times `deltas`.
    pub fn add(&mut self, deltas: EventDeltas, count: u64) {
        let count = count as i64;
        for (sum, delta) in self.0.iter_mut().zip(deltas.by_event()) {
            *sum = sum.wrapping_add(i64::from(delta).wrapping_mul(count));
        }
    }

    /// Adds another sum.
    pub fn add_sum(&mut self, other: Self) {
        for (sum, value) in self.0.iter_mut().zip(other.0) {
            *sum = sum.wrapping_add(value);
        }
    }

    /// Takes another sum away.
    #[must_use]
    pub fn minus(mut self, other: Self) -> Self {
        for (sum, value) in self.0.iter_mut().zip(other.0) {
            *sum = sum.wrapping_sub(value);
        }
        self
    }

    /// As counts; a negative value would be an error of ours and shows as zero.
    pub fn counts(self) -> Counts {
        let [instructions, branches, conditional, conditional_taken, calls, returns, indirect] =
            self.0.map(|value| u64::try_from(value).unwrap_or(0));
        Counts { instructions, branches, conditional, conditional_taken, calls, returns, indirect }
    }
}
