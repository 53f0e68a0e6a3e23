//! When translations are written to the store: at the end of a run, and while it lasts.
//!
//! Writing takes a multiple of the time that reading takes, so what is much is written by a process
//! that is left behind ([`sys::leave_behind`]): a copy of this one, whose memory stands still while
//! the run goes on or ends. Code is the exception, being shared with the program: this one waits
//! until the other has copied it, so that the copy takes no memory here.

use std::collections::HashMap;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use lwp_dbt::ExecutionProfile;
use lwp_ptrace::sys;

use crate::keep::Unsaved;
use crate::machine::{Machine, Thread};

/// Fragments that take longer to write than anybody should wait: some 20 ms.
const MUCH: usize = 4000;
/// How long a run lasts before something is written while it goes on. Every time it takes twice as
/// long until the next.
const FIRST_PAUSE: Duration = Duration::from_secs(2);

/// The time after which a thread's program is worth knowing well.
const LONG: Duration = Duration::from_secs(1);

/// Returns whether a thread that has `started` then runs for long.
pub fn is_long(started: Instant) -> bool {
    started.elapsed() >= LONG
}

/// What has been written of a run that goes on.
#[derive(Debug)]
pub struct Saving {
    next: Instant,
    pause: Duration,
    /// New fragments that there were the last time.
    fragments: usize,
    /// True if a thread has run for so long that it is worth to know its programs well.
    pub long: bool,
}

impl Default for Saving {
    fn default() -> Self {
        Self { next: Instant::now() + FIRST_PAUSE, pause: FIRST_PAUSE, fragments: 0, long: false }
    }
}

impl Machine {
    /// Writes what this run has translated, at its end.
    pub fn keep(&mut self) {
        let mut work = self.unsaved();
        let much = work.iter().map(|unit| unit.fragments).sum::<usize>() >= MUCH;
        // Who translates ahead of time wants to find it.
        if !(much && self.config.warm.is_none() && self.save_aside(&mut work)) {
            self.save(&mut work);
        }
    }

    /// Writes what there is while the run goes on, should it be time for that: what is killed later
    /// has not been translated in vain.
    pub fn keep_meanwhile(&mut self) {
        let now = Instant::now();
        if self.caches.store.is_none() || now < self.caches.saving.next {
            return;
        }
        self.caches.saving.pause *= 2;
        self.caches.saving.next = now + self.caches.saving.pause;
        let new = self.caches.families.iter().flatten().flat_map(|family| &family.modules);
        let new: usize = new.map(|module| module.unit.new_fragments()).sum();
        if new < self.caches.saving.fragments + MUCH / 4 {
            return;
        }
        self.caches.saving.fragments = new;
        self.save_aside(&mut self.unsaved());
    }

    fn unsaved(&self) -> Vec<Unsaved> {
        let lasts = |thread: &Thread| is_long(thread.account.started);
        let long = self.caches.saving.long || self.tasks.threads.values().any(lasts);
        self.caches.families.iter().flatten().flat_map(|family| family.unsaved(long)).collect()
    }

    /// Has another process write `work`. False where there cannot be one.
    fn save_aside(&self, work: &mut [Unsaved]) -> bool {
        let Some(store) = self.caches.store.as_ref().filter(|_| !work.is_empty()) else {
            return false;
        };
        // Held by the other process until it ends.
        let Ok(lock) = store.lock_shared() else { return false };
        let Ok((mut copied, copying)) = std::io::pipe() else { return false };
        let files = work.iter().filter_map(|unit| unit.file);
        let memories = self.caches.families.iter().flatten().map(|family| family.memory.fd());
        let ours = [store.fd(), lock.as_raw_fd(), copying.as_raw_fd()];
        let kept: Vec<_> = files.chain(memories).chain(ours).collect();
        match sys::leave_behind(&kept) {
            Ok(false) => {
                drop(copying);
                // Nothing is ever written: it ends when the other process has copied everything, or
                // ends.
                let _ = copied.read(&mut [0]);
                true
            }
            Ok(true) => {
                self.copy_code(work);
                drop(copying);
                self.save(work);
                sys::exit_controller(0)
            }
            Err(_) => false,
        }
    }

    fn copy_code(&self, work: &mut [Unsaved]) {
        for unit in work {
            if let Some(family) = self.caches.families.get(unit.family).and_then(Option::as_ref) {
                family.copy_code(unit);
            }
        }
    }

    fn save(&self, work: &mut [Unsaved]) {
        self.copy_code(work);
        let mut written = false;
        let mut learned: HashMap<usize, Option<ExecutionProfile>> = HashMap::new();
        for unit in work {
            let profile = learned.entry(unit.family).or_insert_with(|| self.learned(unit.family));
            let family = self.caches.families.get(unit.family).and_then(Option::as_ref);
            written |= family.is_some_and(|family| family.save(unit, profile.as_ref()).is_some());
        }
        if let Some(store) = self.caches.store.as_ref().filter(|_| written) {
            let _ = store.prune();
        }
    }
}
