//! Kept samples, reported while their threads go on: see `lwp/kept.rs`.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::lock;
use crate::lwp::report_all_early;
use crate::machine::Machine;

/// The pause between two looks at what threads have kept: a few samples come in it, and a thread
/// has room for some more.
const PAUSE: Duration = Duration::from_micros(20);
/// The part of the server's time that goes to looking in vain, at most: one in so many.
const RARELY: u32 = 10;

/// The time for which the server sleeps at most while threads keep samples.
const NAP: Duration = Duration::from_millis(1);

/// The next look.
#[derive(Debug)]
pub struct EarlyReports {
    next: Instant,
    /// There was something at the last one.
    found: bool,
}

impl EarlyReports {
    /// The first look is due at once.
    pub fn new(now: Instant) -> Self {
        Self { next: now, found: false }
    }

    /// Returns `nap`, the time for which the server wants to sleep, or less if samples are kept.
    pub fn shorten(&self, nap: Duration) -> Duration {
        if self.found { nap.min(NAP) } else { nap }
    }

    /// Reports what all threads have kept, if a look is due. Returns whether there was anything.
    pub fn look(&mut self, machine: &Mutex<Machine>) -> bool {
        let now = Instant::now();
        if now < self.next {
            return false;
        }
        let any = report_all_early(&mut lock(machine));
        let taken = now.elapsed();
        let pause = if any { PAUSE } else { PAUSE.max(taken * RARELY) };
        (self.next, self.found) = (now + taken + pause, any);
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_sleeps_less_while_samples_are_kept() {
        let now = Instant::now();
        let mut early = EarlyReports::new(now);
        assert_eq!(early.shorten(20 * NAP), 20 * NAP);
        early.found = true;
        assert_eq!((early.shorten(20 * NAP), early.shorten(NAP / 2)), (NAP, NAP / 2));
    }
}
