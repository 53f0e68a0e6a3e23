//! The processor that lwp looks from.
//!
//! The scheduler likes to put whoever wakes and whoever is woken on one processor. A program that
//! shares lwp's never runs while lwp looks, so lwp moves to another one, drawn at random.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The processors that this thread may use.
#[derive(Debug, Default)]
pub(crate) struct Seat {
    processors: Vec<usize>,
}

impl Seat {
    /// Those that it may use now.
    pub fn new() -> Self {
        let set = sched_getaffinity(None).unwrap_or_default();
        let is_set = |processor: &usize| set.is_set(*processor);
        Self { processors: (0..CpuSet::MAX_CPU).filter(is_set).collect() }
    }

    /// Returns whether there is but one.
    pub fn is_only_one(&self) -> bool {
        self.processors.len() <= 1
    }

    /// Moves to one of them, by a random number.
    pub fn change(&self, random: u64) {
        if self.is_only_one() {
            return;
        }
        let at = usize::try_from(random % self.processors.len() as u64).unwrap_or(0);
        let mut one = CpuSet::new();
        one.set(self.processors[at]);
        // Where that is refused, lwp stays where it is.
        let _ = sched_setaffinity(None, &one);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_moves_among_the_processors_that_it_may_use() {
        let before = Seat::new();
        before.change(u64::MAX);
        assert!(before.is_only_one() || Seat::new().is_only_one());
    }
}
