//! The decision whether waiting awake pays.
//!
//! It pays where the thread and the server have a processor each. Where they share one, who spins
//! takes time from the one waited for. Which processor a thread was on it says with every request;
//! what cannot be seen so, as where two virtual processors are one real one, is judged by what
//! spinning has brought.

use lwp_dbt::{NO_PROCESSOR, PROCESSOR_SEGMENT};
use lwp_process::sys;

/// The judgement whether the program's threads and the server have processors of their own.
#[derive(Debug)]
pub struct SpinPolicy {
    /// Pauses that a thread spins where that pays; 0 where there is one processor.
    usual: u64,
    /// Grows with every spin that ended in sleep, shrinks with every one that did not.
    crowding: u32,
    answers: u32,
    /// The server's processor when it last had something to do.
    server: u64,
    /// True if the thread that was answered last had asked on the server's processor; unknown at
    /// first.
    together: Option<bool>,
}

impl SpinPolicy {
    const CROWDED: u32 = 32;
    const MOST: u32 = 64;
    /// One answer of so many finds out whether spinning pays again.
    const PROBES: u32 = 64;

    /// That of threads that spin for `usual` pauses where it pays.
    pub fn new(usual: u64) -> Self {
        Self { usual, crowding: 0, answers: 0, server: NO_PROCESSOR, together: None }
    }

    /// The server, which runs this, is ready.
    pub fn begin(&mut self) {
        self.server = processor();
    }

    /// The server, which runs this, is about to answer a thread that was on processor `asked`.
    pub fn note_processor(&mut self, asked: u64) {
        self.server = processor();
        self.together = Some(same(self.server, asked));
    }

    /// A thread that had `spun` was found asleep, or not.
    pub fn note(&mut self, spun: bool, asleep: bool) {
        self.answers = self.answers.wrapping_add(1);
        match (spun, asleep) {
            (true, true) => self.crowding = (self.crowding + 4).min(Self::MOST),
            (true, false) if self.crowded() => self.crowding -= 8,
            (true, false) => self.crowding = self.crowding.saturating_sub(1),
            (false, _) => {}
        }
    }

    /// Returns whether hand-offs are expensive at the moment.
    fn crowded(&self) -> bool {
        self.crowding > Self::CROWDED
    }

    /// Returns whether the server had better sleep than spin.
    pub fn sleeps(&self) -> bool {
        self.together == Some(true) || self.crowded()
    }

    /// The time for which the thread that is being answered shall spin the next time: now and then
    /// as always, to see whether it pays again. On the server's processor it never does.
    pub fn spin(&self) -> u64 {
        let probes = self.answers.is_multiple_of(Self::PROBES);
        if self.together == Some(true) || self.crowded() && !probes { 0 } else { self.usual }
    }

    /// The time for which a thread shall spin the first time, whose program this thread has made
    /// ready on the processor that it will be on too.
    pub fn first_spin(&self) -> u64 {
        let together = self.together.unwrap_or_else(|| same(self.server, processor()));
        if together { 0 } else { self.usual }
    }
}

/// The processor that this runs on.
fn processor() -> u64 {
    sys::segment_limit(PROCESSOR_SEGMENT).map_or(NO_PROCESSOR, u64::from)
}

fn same(one: u64, other: u64) -> bool {
    one == other && one != NO_PROCESSOR
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: u64 = 1000;

    #[test]
    fn a_thread_on_the_servers_processor_does_not_spin() {
        let mut policy = SpinPolicy::new(USUAL);
        assert!(policy.spin() == USUAL && !policy.sleeps());
        policy.note_processor(policy.server);
        // Nobody knows where there is no such segment.
        assert!(!policy.sleeps());
        policy.together = Some(true);
        assert!(policy.spin() == 0 && policy.first_spin() == 0 && policy.sleeps());
        policy.note_processor(NO_PROCESSOR);
        assert!(policy.spin() == USUAL && policy.first_spin() == USUAL && !policy.sleeps());
    }

    #[test]
    fn spinning_in_vain_ends_and_is_tried_again() {
        let mut policy = SpinPolicy { together: Some(false), ..SpinPolicy::new(USUAL) };
        for _ in 0..9 {
            assert_eq!(policy.spin(), USUAL);
            policy.note(true, true);
        }
        assert!(policy.spin() == 0 && policy.sleeps());
        let mut tries = 0;
        while policy.sleeps() {
            tries += 1;
            let spun = policy.spin() != 0;
            policy.note(spun, false);
        }
        assert!((1..=64).contains(&tries), "{tries}");
    }
}
