//! Signals sent to lwp itself while a program runs.
//!
//! A terminal sends ^C and ^\ to the whole foreground job, so the program has them already: lwp
//! only has to outlive it and print the counts. SIGTERM and SIGHUP sent to lwp alone ask for the
//! end of the run; a second one ends lwp at once. A process that lwp has attached to would end with
//! it, and so it has some time to be let go first.
//!
//! SIGXFSZ says that a file of lwp's became larger than its limit allows. It would end the
//! program's host; write(2) fails as well, which is reported.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;

use crate::failure::Failure;
use crate::requests::Requests;
use crate::threads;

/// The signals that lwp answers, unless it was started with them ignored.
const ANSWERED: [i32; 4] = [SIGINT, SIGQUIT, SIGTERM, SIGHUP];

/// The time for which another signal does not end lwp while it lets a process go: timeout(1) sends
/// two, and so do impatient fingers.
const LETTING_GO: Duration = Duration::from_secs(5);

/// The signal by which the user has requested the end: no further repetition starts then.
#[derive(Clone, Debug, Default)]
pub struct Interrupted(Arc<AtomicI32>);

impl Interrupted {
    /// Returns the first signal that has asked for the end.
    pub fn signal(&self) -> Option<i32> {
        Some(self.0.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
    }

    fn note(&self, signal: i32) {
        let _ = self.0.compare_exchange(0, signal, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Lets lwp outlive files that are larger than its limit allows. The handler is no program's: exec
/// takes it away.
pub fn outlive_large_files() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if ignored_signals(&status) & bit(SIGXFSZ) == 0 {
        let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
    }
}

/// Answers signals from here on. With `attached`, the program is not in our foreground job, and ^C
/// too ends the run.
pub fn answer(requests: Arc<Requests>, attached: bool) -> Result<Interrupted, Failure> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = ignored_signals(&status);
    // A handler would make an ignored signal deadly for the program started next.
    let answered = ANSWERED.into_iter().filter(|signal| ignored & bit(*signal) == 0);
    let mut signals =
        Signals::new(answered).map_err(|error| Failure::io("signal handlers", &error))?;
    let interrupted = Interrupted::default();
    let flag = interrupted.clone();
    threads::start("lwp-signals", move || {
        let _held = lwp_vcpu::hold_child_events();
        let patience = if attached { LETTING_GO } else { Duration::ZERO };
        let mut asked: Option<Instant> = None;
        for signal in signals.forever() {
            flag.note(signal);
            let stop = attached || matches!(signal, SIGTERM | SIGHUP);
            if stop && asked.is_some_and(|first| first.elapsed() >= patience) {
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
            if stop && asked.is_none() {
                asked = Some(Instant::now());
                requests.stop();
            }
        }
    })?;
    Ok(interrupted)
}

/// The set of ignored signals, from the text of `/proc/self/status`.
fn ignored_signals(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// The bit of `signal` in a kernel signal set, where signal 1 is bit 0.
fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_status_file() {
        let status = "Name:\tlwp\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001003\n";
        let ignored = ignored_signals(status);
        assert_ne!(ignored & bit(SIGHUP), 0);
        assert_ne!(ignored & bit(SIGINT), 0);
        assert_eq!(ignored & bit(SIGTERM), 0);
        assert_eq!(ignored_signals(""), 0);
    }
}
