//! The file that the contexts of one address space lie in.

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::Arc;

use lwp_ptrace::{SharedFile, SharedMemory, sys};

use crate::memory_map::{CONTEXTS_BYTES, SLOT_BYTES, SLOTS, STEPS, mapped_slots, slot_offset};

const PAGE: u64 = 4096;

/// Names the contexts of one address space. No other has the name at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId(pub(super) u64);

impl FileId {
    /// The name of no contexts.
    pub const NONE: Self = Self(0);
}

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
    /// No slot is in use, and those that were hold what their threads have left.
    stale: bool,
    /// The number of processes that live in its address space.
    pub users: usize,
}

impl ContextFile {
    pub(super) fn new() -> sys::Result<Self> {
        let file = Arc::new(SharedFile::counted(c"lwp-contexts", CONTEXTS_BYTES)?);
        let chunk = Arc::new(file.map(0, slot_offset(STEPS[0]))?);
        Ok(Self {
            file,
            chunks: vec![chunk],
            slots: Vec::new(),
            free: VecDeque::new(),
            stale: false,
            users: 1,
        })
    }

    /// Returns whether another address space may have it when its own is gone: nothing of that has
    /// it open or mapped any more.
    pub(super) fn can_be_used_again(&self) -> bool {
        self.file.is_sole()
    }

    /// Returns whether no ended thread has left anything in the file.
    pub(super) fn is_ready(&self) -> bool {
        !self.stale
    }

    /// Returns whether it is as large as one of a process with few threads.
    pub(super) fn is_small(&self) -> bool {
        self.chunks.len() == 1
    }

    /// The descriptor.
    pub fn fd(&self) -> RawFd {
        self.file.fd()
    }

    /// The inode that mappings of it show.
    pub fn inode(&self) -> Option<u64> {
        Some(self.file.inode())
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
        self.clean();
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
            let mapped = self.file.map(slot_offset(from), slot_offset(to - from));
            self.chunks.push(Arc::new(mapped.ok()?));
        }
        let first = if chunk == 0 { 0 } else { STEPS[chunk - 1] };
        Some((self.chunks[chunk].clone(), slot_offset(local - first)))
    }

    /// Takes a slot back, and sets it to zero before another thread gets it. In the first one of a
    /// group other threads' doors stay as they are.
    pub(super) fn give_back(&mut self, local: usize) {
        self.slots[local] = None;
        self.free.push_back(local);
        if self.slots.iter().all(Option::is_none) {
            self.stale = true;
            return;
        }
        if let Some((memory, at)) = self.place(local) {
            memory.clear(at, super::SLEEP_AT);
            memory.punch_hole(at + PAGE, SLOT_BYTES - PAGE);
        }
    }

    /// Sets everything to zero that earlier threads have left. Their pages are thrown away, so that
    /// nothing which still holds one of them reaches what comes next; the one that every thread
    /// needs is made anew.
    pub(super) fn clean(&mut self) {
        if !std::mem::take(&mut self.stale) {
            return;
        }
        for (chunk, end) in self.chunks.iter().zip(STEPS) {
            let used = self.slots.len().min(end);
            let first = end - (chunk.len() / SLOT_BYTES) as usize;
            if used > first {
                chunk.punch_hole(0, slot_offset(used - first));
            }
        }
        self.slots.clear();
        self.free.clear();
        self.chunks[0].make_pages(0, PAGE);
    }
}
