//! The server's side of the doors: which of them have rung, and sleeping until one does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lwp_mailbox::contexts::{DoorGroup, Doors};
use lwp_process::sys;

/// Naps where the kernel can wait for one word only (before version 5.16), and where there are more
/// address spaces than it waits for at a time.
const SHORT_NAP: Duration = Duration::from_millis(1);
/// Naps where the kernel can wait for one word only, and several would have to be waited for.
const SHORTEST_NAP: Duration = Duration::from_micros(50);

/// All doors, as the server knows them.
#[derive(Debug)]
pub struct Bells {
    doors: Arc<Doors>,
    groups: Vec<Arc<DoorGroup>>,
    changes: u64,
}

impl Bells {
    /// Those of the machine with these doors.
    pub fn new(doors: &Arc<Doors>) -> Self {
        Self { doors: doors.clone(), groups: Vec::new(), changes: 0 }
    }

    /// The groups in which somebody has rung.
    pub fn ringing(&mut self) -> impl Iterator<Item = &DoorGroup> {
        self.refresh();
        self.groups.iter().map(AsRef::as_ref).filter(|group| group.has_rung(Ordering::Acquire))
    }

    fn refresh(&mut self) -> bool {
        let changed = self.doors.changed(&mut self.changes);
        let any = changed.is_some();
        if let Some(groups) = changed {
            self.groups = groups;
        }
        any
    }

    /// Asks every thread that rings from now on to wake the server.
    pub fn about_to_sleep(&mut self) {
        self.refresh();
        for word in self.words() {
            word.store(1, Ordering::SeqCst);
        }
    }

    /// Sleeps until a thread rings, or has rung since it was asked to wake the server; at most for
    /// `nap`.
    pub fn sleep(&mut self, nap: Duration) {
        let new = self.refresh();
        if !new && !self.groups.iter().any(|group| group.has_rung(Ordering::SeqCst)) {
            let words: Vec<_> = self.words().collect();
            let most = words.len().min(sys::FUTEX_WAITV_MAX);
            let all = if most < words.len() { nap.min(SHORT_NAP) } else { nap };
            if !sys::futex_wait_any(&words[..most], 1, all) {
                // The first word is not one that a thread wakes the server by.
                match words[..] {
                    [_, word] => sys::futex_wait(word, 1, Some(nap.min(SHORT_NAP))),
                    _ => sys::futex_wait(words[0], 1, Some(nap.min(SHORTEST_NAP))),
                }
            }
        }
        for word in self.words() {
            word.store(0, Ordering::SeqCst);
        }
    }

    /// The words that the server sleeps on: one of its own, and one of each address space.
    fn words(&self) -> impl Iterator<Item = &AtomicU32> {
        let own = std::iter::once(self.doors.sleep_word());
        let leaders = self.groups.iter().filter(|group| group.leads());
        own.chain(leaders.map(|group| group.sleep_word()))
    }
}
