//! The clock cycles for which a thread has been running, if no counter has them.

use std::sync::OnceLock;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::sys::time_stamp;

/// CPU time of a thread while something counted, as clock cycles of the time-stamp counter.
///
/// Asking the kernel takes longer than all the rest of a sample. So it is asked at a start, at a
/// stop, and where it has not been for a millisecond; in between the time-stamp counter says what
/// has been added. What the thread spends off the processors within such a millisecond counts too,
/// until the kernel is asked again: the sum is never late, never falls, and at most a millisecond
/// early.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cycles {
    /// Cycles up to the last stop.
    before: u64,
    running: Option<Running>,
}

/// A stretch of time between a start and a stop.
#[derive(Clone, Copy, Debug)]
struct Running {
    /// CPU time of the thread at its start, in ns.
    start_ns: u64,
    /// Cycles since then when the kernel was last asked.
    asked: u64,
    /// The time-stamp counter when it was.
    asked_at: u64,
    /// The last answer.
    said: u64,
}

impl Running {
    fn new() -> Self {
        Self { start_ns: thread_ns(), asked: 0, asked_at: time_stamp(), said: 0 }
    }

    /// Cycles since the start, by the kernel.
    fn ask(&mut self) -> u64 {
        self.asked = cycles(thread_ns().saturating_sub(self.start_ns));
        self.asked_at = time_stamp();
        self.say(self.asked)
    }

    /// Cycles since the start; `now` is the time-stamp counter.
    fn elapsed(&mut self, now: u64) -> u64 {
        // Processors' counters may differ by a little; behind is as good as none.
        let passed = now.saturating_sub(self.asked_at);
        if passed >= frequency_khz() { self.ask() } else { self.say(self.asked + passed) }
    }

    fn say(&mut self, cycles: u64) -> u64 {
        self.said = self.said.max(cycles);
        self.said
    }
}

impl Cycles {
    /// None yet, and standing still.
    pub(crate) fn stopped() -> Self {
        Self::default()
    }

    /// Goes on from now. In the thread whose time it is.
    pub(crate) fn start(&mut self) {
        self.stop();
        self.running = Some(Running::new());
    }

    /// Stands still from now on.
    pub(crate) fn stop(&mut self) {
        if let Some(mut running) = self.running.take() {
            self.before += running.ask();
        }
    }

    /// Cycles so far.
    pub(crate) fn elapsed(&mut self) -> u64 {
        let running = self.running.as_mut();
        self.before + running.map_or(0, |running| running.elapsed(time_stamp()))
    }
}

fn thread_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    (time.tv_sec * 1_000_000_000 + time.tv_nsec) as u64
}

/// Returns how many cycles of the time-stamp counter pass in `time`. The first call measures the
/// counter's frequency, which takes a few milliseconds.
///
/// ```
/// use std::time::Duration;
///
/// let [one, two] = [1, 2].map(|seconds| cpc::tsc_cycles(Duration::from_secs(seconds)));
/// assert!(one > 0 && two >= 2 * one - 1 && two <= 2 * one + 1);
/// ```
#[must_use]
pub fn tsc_cycles(time: Duration) -> u64 {
    cycles(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// Converts nanoseconds to cycles of the time-stamp counter.
pub(crate) fn cycles(ns: u64) -> u64 {
    (u128::from(ns) * u128::from(frequency_khz()) / 1_000_000) as u64
}

/// For how long the frequency of the time-stamp counter is measured.
const CALIBRATION_NS: u64 = 4_000_000;

static KHZ: OnceLock<u64> = OnceLock::new();

/// Measures the frequency of the time-stamp counter if that has not been done. Before anything is
/// counted: the wait is not to be a part of what the application measures.
pub(crate) fn calibrate() {
    frequency_khz();
}

/// Frequency of the time-stamp counter in kHz, measured once.
fn frequency_khz() -> u64 {
    *KHZ.get_or_init(|| {
        let (ns, tsc) = both_clocks();
        while monotonic_ns() - ns < CALIBRATION_NS {
            std::hint::spin_loop();
        }
        let (end_ns, end_tsc) = both_clocks();
        let (ns, tsc) = (end_ns - ns, end_tsc.saturating_sub(tsc));
        (u128::from(tsc) * 1_000_000 / u128::from(ns)) as u64
    })
}

/// CLOCK_MONOTONIC, and the time-stamp counter at that moment: of several attempts the one during
/// which least passed, so that an interruption between the two does no harm.
fn both_clocks() -> (u64, u64) {
    let attempt = |_| {
        let before = time_stamp();
        let ns = monotonic_ns();
        let took = time_stamp().wrapping_sub(before);
        (took, ns, before.wrapping_add(took / 2))
    };
    let best = (0..8).map(attempt).min_by_key(|(took, ..)| *took);
    best.map_or((0, 0), |(_, ns, tsc)| (ns, tsc))
}

/// CLOCK_MONOTONIC in nanoseconds.
pub(crate) fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    (now.tv_sec * 1_000_000_000 + now.tv_nsec) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets the thread use this much CPU time.
    fn spin(ns: u64) {
        let begin = thread_ns();
        while thread_ns() - begin < ns {}
    }

    #[test]
    fn cycles_stand_still_while_stopped() {
        let mut cycles = Cycles::stopped();
        assert_eq!(cycles.elapsed(), 0);
        cycles.start();
        spin(1_000_000);
        cycles.stop();
        let stopped = cycles.elapsed();
        assert!(stopped >= super::cycles(1_000_000));
        spin(1_000_000);
        assert_eq!(cycles.elapsed(), stopped);
    }

    /// A thread that sleeps is on no processor: all but the millisecond that may be counted early.
    #[test]
    fn time_off_the_processors_does_not_count() {
        let mut cycles = Cycles::stopped();
        cycles.start();
        let mut before = 0;
        for _ in 0..20 {
            std::thread::sleep(std::time::Duration::from_millis(5));
            let now = cycles.elapsed();
            assert!(now >= before, "it never falls");
            before = now;
        }
        let busy_ns = thread_ns();
        assert!(before <= super::cycles(busy_ns + 1_000_000), "{before}");
    }

    #[test]
    fn the_kernel_is_asked_once_a_millisecond() {
        let mut running = Running { start_ns: thread_ns(), asked: 7, asked_at: 1000, said: 0 };
        assert_eq!(running.elapsed(1500), 507);
        assert_eq!(running.elapsed(900), 507, "another processor's counter may be behind");
        let asked_at = running.asked_at;
        running.elapsed(1000 + frequency_khz());
        assert_ne!(running.asked_at, asked_at);
    }
}
