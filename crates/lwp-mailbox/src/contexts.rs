//! The contexts: one slot a thread, in a file that its address space alone maps, and the doors they
//! ring.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lwp_dbt::context::{APPLY_MAX, APPLY_SHORT, RANGES_AT, ranges};
use lwp_dbt::{EventDeltas, RequestKind, Slot, trace};
use lwp_process::{SharedMemory, sys};
use lwp_run::Counts;

use crate::memory_map::{
    APPLY_LIST, DOORS, DOORS_AT, SLEEP_AT, VECTOR_AT, VECTOR_BYTES, slot_address, slot_bytes,
};

mod counters;
mod doors;
mod file;
mod files;
mod gather_words;
mod lwp_words;
mod record_words;

pub use counters::ThreadCounters;
pub use doors::{DoorGroup, Doors};
pub use file::{ContextFile, FileId};
pub use files::Files;
pub use gather_words::GatherWords;
pub use lwp_words::{KeptSample, LwpWords};
pub use record_words::{RawFrame, RawRecord, RecordWords, index_of, name_of};

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
    /// Every thread asks before it sets an action for a signal, also one that is alone.
    pub tells_actions: bool,
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
            tells_actions: false,
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
        context.set(Slot::Beside, u64::from(self.tells_actions));
        context.set(Slot::StackEnd, 0);
        context.set(Slot::Gather, 0);
        context.set(Slot::Kept, 0);
        context.records().begin();
        for word in 0..trace::WORDS {
            context.memory().store(context.base() + u64::from(trace::word(word)), 0);
        }
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

impl<'a> Context<'a> {
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

    /// Reads a word anywhere in it.
    pub fn word(&self, offset: u64) -> u64 {
        self.memory().load(self.base() + offset)
    }

    /// Words anywhere in it.
    pub fn words(&self, offset: u64, count: u64) -> &'a [AtomicU64] {
        self.place.memory.words(self.base() + offset, count)
    }

    /// Writes a word anywhere, as its thread can: for tests and fuzzers.
    pub fn forge(&self, offset: u64, value: u64) {
        self.memory().store(self.base() + offset % slot_bytes(self.local()), value);
    }

    /// The kind of request that is being made; `None` for a number that translated code cannot have
    /// written.
    pub fn asked(&self) -> Option<RequestKind> {
        RequestKind::from_raw(u32::try_from(self.get(Slot::Kind)).ok()?)
    }

    /// The kind of request that is being made; a forged number counts as a dispatch, for callers to
    /// whom that does not matter.
    pub fn kind(&self) -> RequestKind {
        self.asked().unwrap_or(RequestKind::Dispatch)
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

    /// Its counters.
    pub fn counters(self) -> ThreadCounters<'a> {
        ThreadCounters(self)
    }

    /// Its words of Lightweight Profiling.
    pub fn lwp(self) -> LwpWords<'a> {
        LwpWords(self)
    }

    /// Its records and frames of calling contexts.
    pub fn records(self) -> RecordWords<'a> {
        RecordWords(self)
    }

    /// Its steps that copy memory for samples.
    pub fn gather(self) -> GatherWords<'a> {
        GatherWords(self)
    }
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

    /// The instructions, modulo 2^64.
    pub fn instructions(self) -> u64 {
        self.0[0].cast_unsigned()
    }

    /// As counts; a negative value would be an error of ours and shows as zero.
    pub fn counts(self) -> Counts {
        let [instructions, branches, conditional, conditional_taken, calls, returns, indirect] =
            self.0.map(|value| u64::try_from(value).unwrap_or(0));
        Counts { instructions, branches, conditional, conditional_taken, calls, returns, indirect }
    }
}
