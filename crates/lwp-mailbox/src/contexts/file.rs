//! The file that the contexts of one address space lie in.
//!
//! No other address space ever has the same file: a program could have kept a way to it.

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::Arc;

use lwp_dbt::Slot;
use lwp_process::shm::Inode;
use lwp_process::{SharedFile, SharedMemory, sys};

use crate::memory_map::{CONTEXTS_BYTES, SLOTS, STEPS, mapped_slots, slot_bytes, slot_offset};

const PAGE: u64 = 4096;

/// Names the contexts of one address space. No other has the name at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId(pub(super) u64);

/// The contexts of one address space.
#[derive(Debug)]
pub struct ContextFile {
    file: Arc<SharedFile>,
    /// The parts that have been mapped here, which end where [`STEPS`] says.
    chunks: Vec<Arc<SharedMemory>>,
    /// The owner of each slot.
    slots: Vec<Option<usize>>,
    /// Longest free first.
    free: VecDeque<usize>,
    /// No slot is in use, and those that were hold what their threads have left: as a rule the file
    /// is dropped next.
    stale: bool,
    /// The number that its address space knows it by.
    secret: u64,
    /// The number of processes that live in its address space.
    pub users: usize,
}

impl ContextFile {
    pub(super) fn new() -> sys::Result<Self> {
        let file = Arc::new(SharedFile::sealed(c"lwp-contexts", CONTEXTS_BYTES)?);
        let chunk = Arc::new(file.map(0, slot_offset(STEPS[0]))?);
        // The one that every thread needs.
        chunk.make_pages(0, PAGE);
        let secret = sys::random_number()?;
        chunk.store(Slot::Secret as u64, secret);
        Ok(Self {
            file,
            chunks: vec![chunk],
            slots: Vec::new(),
            free: VecDeque::new(),
            stale: false,
            secret,
            users: 1,
        })
    }

    /// The descriptor.
    pub fn fd(&self) -> RawFd {
        self.file.fd()
    }

    /// The device and inode that mappings of it show.
    pub fn inode(&self) -> Inode {
        self.file.inode()
    }

    /// The number that nobody else's file shows in [`Slot::Secret`].
    pub fn secret(&self) -> u64 {
        self.secret
    }

    /// The number of slots that its address space must have mapped for those that are in use.
    pub fn wanted(&self) -> usize {
        self.slots.iter().rposition(Option::is_some).map_or(STEPS[0], mapped_slots)
    }

    pub(super) fn slot(&self, local: usize) -> Option<usize> {
        self.slots.get(local).copied().flatten()
    }

    /// Takes a place for `slot`: which it is, and where it lies.
    pub(super) fn take(&mut self, slot: usize) -> Option<(usize, Arc<SharedMemory>, u64)> {
        if std::mem::take(&mut self.stale) {
            (0..self.slots.len()).for_each(|local| self.clear(local));
        }
        let local = self.free.pop_front().unwrap_or(self.slots.len());
        if local >= SLOTS {
            return None;
        }
        let Some((memory, at)) = self.place(local) else {
            self.free.extend((local < self.slots.len()).then_some(local));
            return None;
        };
        if local == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[local] = Some(slot);
        Some((local, memory, at))
    }

    /// The place of a slot: the part of the file, and the offset there.
    pub(super) fn place(&mut self, local: usize) -> Option<(Arc<SharedMemory>, u64)> {
        let chunk = STEPS.into_iter().position(|step| local < step)?;
        while self.chunks.len() <= chunk {
            let (from, to) = (STEPS[self.chunks.len() - 1], STEPS[self.chunks.len()]);
            let bytes = slot_offset(to) - slot_offset(from);
            let mapped = self.file.map(slot_offset(from), bytes);
            self.chunks.push(Arc::new(mapped.ok()?));
        }
        let first = if chunk == 0 { 0 } else { STEPS[chunk - 1] };
        Some((self.chunks[chunk].clone(), slot_offset(local) - slot_offset(first)))
    }

    /// Takes a slot back, and sets it to zero before another thread gets it. In the first one of a
    /// group other threads' doors stay as they are.
    pub(super) fn give_back(&mut self, local: usize) {
        self.slots[local] = None;
        self.free.push_back(local);
        if self.slots.iter().all(Option::is_none) {
            self.stale = true;
        } else {
            self.clear(local);
        }
    }

    fn clear(&mut self, local: usize) {
        if let Some((memory, at)) = self.place(local) {
            memory.clear(at, super::SLEEP_AT);
            memory.punch_hole(at + PAGE, slot_bytes(local) - PAGE);
        }
    }
}
