//! Letting go of a program that goes on: no thread may find a signal of lwp's afterwards.

use std::time::{Duration, Instant};

use lwp_process::{Stop, Tracee, sys};

use super::{Stops, trap};
use crate::samples::Samples;

/// The time that threads have to stop in. One that waits for a child that has not executed its
/// program cannot; it has no event any more, and goes on when this process ends.
const PATIENCE: Duration = Duration::from_secs(2);
/// The time between two looks for stops.
const BETWEEN: Duration = Duration::from_millis(1);

/// SIGTRAP's bit in a set of signals.
const TRAP: u64 = 1 << (libc::SIGTRAP - 1);

impl Stops {
    /// Ends sampling, and lets go of all threads.
    pub fn let_go(&mut self, samples: &mut Samples<'_>) {
        self.disable();
        if self.plan.traps.is_none() {
            self.end_rests(samples);
            return;
        }
        for tid in self.pids.keys() {
            // One that has ended is not there to be let go of.
            let _ = sys::interrupt(*tid);
        }
        let start = Instant::now();
        while !self.pids.is_empty() && start.elapsed() < PATIENCE {
            match sys::wait_any_of_thread() {
                Ok(Some((tid, status))) => self.stopped_at_last(tid, status, samples),
                Ok(None) => self.bell.wait(BETWEEN),
                Err(_) => return,
            }
        }
    }

    /// Has threads end the rest of their writes: whoever lets go of them adds no sums up. All
    /// others go on by themselves once this thread has ended.
    fn end_rests(&mut self, samples: &mut Samples<'_>) {
        let threads = self.processes.values().flat_map(|process| &process.threads);
        for (tid, _) in threads.filter(|(_, thread)| thread.rest.is_some()) {
            let _ = sys::interrupt(*tid);
        }
        let start = Instant::now();
        while self.status.is_none() && self.owes() && start.elapsed() < PATIENCE {
            match sys::wait_any_of_thread() {
                Ok(Some((tid, status))) => self.stopped(tid, status, samples),
                Ok(None) => self.bell.wait(BETWEEN),
                Err(_) => return,
            }
        }
    }

    /// Returns whether a thread was asked to stop and has not, or writes the rest of a write.
    fn owes(&self) -> bool {
        let mut threads = self.processes.values().flat_map(|process| process.threads.values());
        threads.any(|thread| thread.asked || thread.rest.is_some())
    }

    /// A thread stands still that is to be let go of.
    fn stopped_at_last(&mut self, tid: i32, status: i32, samples: &mut Samples<'_>) {
        match Stop::from_status(status) {
            stop @ (Stop::Interrupted | Stop::Group(_)) => {
                Tracee(tid).leave_call_to_kernel(stop);
                if let Some(mask) = mask_before_trap(tid) {
                    // The signal comes first now, and then another stop like this one.
                    if mask & TRAP != 0 && sys::set_sigmask(tid, mask & !TRAP).is_ok() {
                        self.masks.insert(tid, mask);
                    }
                    let _ = sys::cont(tid, 0);
                    return;
                }
                self.cancel_rest(tid);
                let _ = sys::detach(tid, 0);
                self.remove(tid);
            }
            Stop::Signal(signal) if trap::by_event(tid, signal).is_some() => {
                if let Some(mask) = self.masks.remove(&tid) {
                    let _ = sys::set_sigmask(tid, mask);
                }
                let _ = sys::interrupt(tid);
                let _ = sys::cont(tid, 0);
            }
            _ => self.stopped(tid, status, samples),
        }
    }
}

/// The signals that a thread blocks, if a SIGTRAP waits for it, which it may block too. No event
/// sends another one: closing an event waits until what it has sent is there.
fn mask_before_trap(tid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let pending = text.lines().find_map(|line| line.strip_prefix("SigPnd:"))?;
    let pending = u64::from_str_radix(pending.trim(), 16).ok()?;
    let mask = sys::get_sigmask(tid).ok()?;
    (pending & TRAP != 0).then_some(mask)
}
