//! Signals sent to lwp itself while a program runs.
//!
//! lwp stands in front of the program: who signals lwp means the program, which gets the signal
//! (`lwp_vcpu::Request::Signal`) and decides what becomes of it. lwp ends when the program does. A
//! terminal sends ^C and ^\ to the whole foreground job, so the program has them already. Once the
//! program is over, a second deadly signal ends lwp.
//!
//! A process that lwp has attached to is not behind it: there a signal ends the run, and the process
//! goes on. It would end with lwp, and so it has some time to be let go first.
//!
//! SIGXFSZ says that a file of lwp's became larger than its limit allows. It would end the
//! program's host; write(2) fails as well, which is reported.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use lwp_vcpu::Arrivals;
use signal_hook::consts::{
    SIGALRM, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGQUIT, SIGTERM, SIGURG, SIGUSR1, SIGUSR2, SIGVTALRM,
    SIGWINCH, SIGXFSZ,
};

use crate::failure::Failure;
use crate::requests::Requests;
use crate::threads;

/// The signals that ask for the end.
const ENDING: [i32; 4] = [SIGINT, SIGQUIT, SIGTERM, SIGHUP];

/// Others that are passed on, with those of real time. A signal by which lwp itself would fail is
/// none of them.
const OTHERS: [i32; 10] =
    [SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGIO, SIGPWR, SIGURG, SIGWINCH, SIGSTKFLT];
const SIGSTKFLT: i32 = 16;
const SIGPWR: i32 = 30;

/// The program that signals are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// It has been started, and gets them.
    Launched,
    /// It has been started and gets them, save SIGWINCH: lwp has the terminal and follows its size.
    Beside,
    /// It ran before.
    Attached,
}

impl Program {
    /// The program that was attached to, or is started.
    pub fn attached(attached: bool) -> Self {
        if attached { Self::Attached } else { Self::Launched }
    }

    fn signals(self) -> Vec<i32> {
        let others = OTHERS.into_iter().chain(lwp_vcpu::real_time_signals());
        let passed = |signal: &i32| match self {
            Self::Launched => true,
            Self::Beside => *signal != SIGWINCH,
            Self::Attached => false,
        };
        ENDING.into_iter().chain(others.filter(passed)).collect()
    }
}

/// The time for which another signal does not end lwp while it lets a process go: timeout(1) sends
/// two, and so do impatient fingers.
const LETTING_GO: Duration = Duration::from_secs(5);

/// The time for which another signal does not end lwp once the program has ended: signals that the
/// program had as well may come that late on a busy machine, and then mean no impatience.
const FINISHING: Duration = Duration::from_secs(1);

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

/// Answers signals from here on.
pub fn answer(requests: Arc<Requests>, program: Program) -> Result<Interrupted, Failure> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = ignored_signals(&status);
    // A launched program is started with them ignored all the same, and may come to handle them.
    let answered = |signal: &i32| program != Program::Attached || ignored & bit(*signal) == 0;
    let mut arrivals =
        Arrivals::of(program.signals().into_iter().filter(answered)).map_err(|error| {
            Failure::io("signal handlers", &std::io::Error::from_raw_os_error(error.0))
        })?;
    let interrupted = Interrupted::default();
    let flag = interrupted.clone();
    threads::start("lwp-signals", move || {
        lwp_vcpu::unblock_signals();
        let _held = lwp_vcpu::hold_child_events();
        let mut asked: Option<Instant> = None;
        while let Some(info) = arrivals.wait() {
            let signal = info.signo();
            let ends = ENDING.contains(&signal);
            let heeded = ends && ignored & bit(signal) == 0;
            if heeded {
                flag.note(signal);
            }
            let patience = match program {
                Program::Attached => LETTING_GO,
                _ if requests.pass_on(info) || !heeded => continue,
                _ => FINISHING,
            };
            if asked.is_some_and(|first| first.elapsed() >= patience) {
                lwp_vcpu::die_by(signal);
            }
            if asked.is_none() {
                asked = Some(Instant::now());
                if program == Program::Attached {
                    requests.stop();
                }
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
