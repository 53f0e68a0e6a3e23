//! Clock cycles for which a thread has been running, where no counter tells.

use std::sync::OnceLock;

use rustix::time::{ClockId, clock_gettime};

/// CPU time of a thread while something counted, as clock cycles of the time-stamp counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cycles {
    /// Nanoseconds up to the last stop.
    before_ns: u64,
    /// CPU time of the thread at the last start; none while stopped.
    since_ns: Option<u64>,
}

impl Cycles {
    /// None yet, and standing still.
    pub(crate) const fn stopped() -> Self {
        Self { before_ns: 0, since_ns: None }
    }

    /// Goes on from now. In the thread whose time it is.
    pub(crate) fn start(&mut self) {
        self.since_ns = Some(thread_ns());
    }

    /// Stands still from now on.
    pub(crate) fn stop(&mut self) {
        self.before_ns = self.elapsed_ns();
        self.since_ns = None;
    }

    fn elapsed_ns(&self) -> u64 {
        let running = self.since_ns.map_or(0, |since| thread_ns().saturating_sub(since));
        self.before_ns + running
    }

    /// Cycles so far.
    pub(crate) fn elapsed(&self) -> u64 {
        if *self == Self::stopped() { 0 } else { cycles(self.elapsed_ns()) }
    }
}

fn thread_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    (time.tv_sec * 1_000_000_000 + time.tv_nsec) as u64
}

/// Cycles of the time-stamp counter in `ns` nanoseconds.
pub(crate) fn cycles(ns: u64) -> u64 {
    (u128::from(ns) * u128::from(frequency_khz()) / 1_000_000) as u64
}

/// Frequency of the time-stamp counter in kHz, measured once over ten milliseconds.
fn frequency_khz() -> u64 {
    static KHZ: OnceLock<u64> = OnceLock::new();
    *KHZ.get_or_init(|| {
        let (ns, tsc) = (monotonic_ns(), crate::sys::time_stamp());
        while monotonic_ns() - ns < 10_000_000 {
            std::hint::spin_loop();
        }
        let (ns, tsc) = (monotonic_ns() - ns, crate::sys::time_stamp() - tsc);
        (u128::from(tsc) * 1_000_000 / u128::from(ns)) as u64
    })
}

/// CLOCK_MONOTONIC in nanoseconds.
pub(crate) fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    (now.tv_sec * 1_000_000_000 + now.tv_nsec) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_stand_still_while_stopped() {
        let mut cycles = Cycles::stopped();
        assert_eq!(cycles.elapsed(), 0);
        cycles.start();
        let begin = thread_ns();
        while thread_ns() - begin < 1_000_000 {}
        cycles.stop();
        let stopped = cycles.elapsed();
        assert!(stopped >= super::cycles(1_000_000));
        assert_eq!(cycles.elapsed(), stopped);
    }
}
