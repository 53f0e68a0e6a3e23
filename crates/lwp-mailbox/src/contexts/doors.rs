//! The doors: where threads ring when they want something.
//!
//! A thread has a flag of its own in its address space's contexts, beside those of the threads
//! before and after it, and a word there says whether the host sleeps. The host goes through the
//! flags without the machine's lock.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use lwp_process::{SharedMemory, sys};

use super::{ContextFile, FileId};
use crate::memory_map::{DOORS, DOORS_AT, SLEEP_AT};

/// The flags of neighbouring threads.
#[derive(Debug)]
pub struct DoorGroup {
    file: FileId,
    /// The number of the first of the threads in its address space.
    first: usize,
    memory: Arc<SharedMemory>,
    at: u64,
    /// The number of flags that have ever been in use.
    used: AtomicUsize,
    /// The start of the contexts, with the sleep word.
    start: Arc<SharedMemory>,
}

impl DoorGroup {
    /// Returns whether it is the first of its address space.
    pub fn leads(&self) -> bool {
        self.first == 0
    }

    /// The flag of its address space's `local`th thread.
    pub fn flag(&self, local: usize) -> &AtomicU8 {
        self.memory.u8(self.at + (local % DOORS) as u64)
    }

    /// The word that is 1 while the host sleeps.
    pub fn sleep_word(&self) -> &AtomicU32 {
        self.start.u32(SLEEP_AT)
    }

    /// Wakes the host, where it sleeps.
    pub fn wake(&self) {
        self.sleep_word().store(0, Ordering::SeqCst);
        sys::futex_wake(self.sleep_word());
    }

    /// Returns whether anybody has rung.
    pub fn has_rung(&self, order: Ordering) -> bool {
        self.words().any(|word| word.load(order) != 0)
    }

    /// Takes the rings: calls `each` with the file and place of every thread that has rung, as its
    /// flag says. There need not be such a thread.
    pub fn take_rings(&self, mut each: impl FnMut(FileId, usize)) {
        for (index, word) in self.words().enumerate() {
            if word.load(Ordering::Acquire) == 0 {
                continue;
            }
            for (place, flag) in
                word.swap(0, Ordering::SeqCst).to_le_bytes().into_iter().enumerate()
            {
                if flag != 0 {
                    each(self.file, self.first + index * 8 + place);
                }
            }
        }
    }

    fn words(&self) -> impl Iterator<Item = &AtomicU64> {
        let used = self.used.load(Ordering::Acquire).div_ceil(8);
        (0..used).map(|word| self.memory.u64(self.at + word as u64 * 8))
    }
}

/// All doors.
#[derive(Debug, Default)]
pub struct Doors {
    groups: Mutex<Vec<Arc<DoorGroup>>>,
    /// The number of times that the list has changed.
    changes: AtomicU64,
    /// The word that the host sleeps on besides: 1 while it does.
    sleep: AtomicU32,
}

impl Doors {
    /// The group of an address space's `local`th thread, made if it is the first of it.
    pub(super) fn group(&self, id: FileId, file: &mut ContextFile, local: usize) -> Arc<DoorGroup> {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let first = local & !(DOORS - 1);
        let known = groups.iter().find(|group| (group.file, group.first) == (id, first));
        if let Some(group) = known {
            group.used.fetch_max(local - first + 1, Ordering::SeqCst);
            // The host may be asleep on its word, which is zero after an earlier address space.
            if self.sleep.load(Ordering::SeqCst) != 0 {
                group.sleep_word().store(1, Ordering::SeqCst);
            }
            return group.clone();
        }
        let place = |local| file.place(local).expect("what is in use is mapped");
        let [(memory, at), (start, _)] = [first, 0].map(place);
        let (at, used) = (at + DOORS_AT, AtomicUsize::new(local - first + 1));
        let group = Arc::new(DoorGroup { file: id, first, memory, at, used, start });
        groups.push(group.clone());
        self.changes.fetch_add(1, Ordering::SeqCst);
        drop(groups);
        // The host may be about to sleep, and not on this address space's word.
        self.wake();
        group
    }

    /// Forgets those of an address space.
    pub(super) fn remove(&self, id: FileId) {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        groups.retain(|group| group.file != id);
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    /// The groups there are now, where `known` is not how often they have changed; `known` is then.
    pub fn changed(&self, known: &mut u64) -> Option<Vec<Arc<DoorGroup>>> {
        let now = self.changes.load(Ordering::SeqCst);
        if now == *known {
            return None;
        }
        let groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        *known = self.changes.load(Ordering::SeqCst);
        Some(groups.clone())
    }

    /// The word that the host sleeps on besides those of the groups.
    pub fn sleep_word(&self) -> &AtomicU32 {
        &self.sleep
    }

    /// Wakes the host, where it sleeps.
    pub fn wake(&self) {
        if self.sleep.swap(0, Ordering::SeqCst) != 0 {
            sys::futex_wake(&self.sleep);
        }
    }
}
