//! lwp as two processes, where threads are stopped by signals.
//!
//! A thread that stands before a signal of lwp's event gets that signal if its tracer is killed
//! just then, and dies of it. So the process that somebody may kill, since it is the one that was
//! started, traces nothing: it stands in front, passes signals on and ends as the other one does.
//! The process behind it records. When the front is gone, it lets go of the program, thread by
//! thread.
//!
//! Promise: R147

use std::os::fd::OwnedFd;

use lwp_process::sys;
use lwp_vcpu::{Arrivals, ExitStatus, real_time_signals};
use rustix::process::{PidfdFlags, getpid, pidfd_open};

use crate::Error;
use crate::attended::{ends_within, failed};

/// The process that this is from now on.
#[derive(Debug)]
pub enum Side {
    /// The front; the other one has ended in this way.
    Front(ExitStatus),
    /// The one behind, which records.
    Back(Front),
}

/// The process in front of the one that records.
#[derive(Debug)]
pub struct Front(OwnedFd);

impl Front {
    /// Returns whether it is gone.
    pub(crate) fn is_gone(&self) -> bool {
        ends_within(Some(&self.0), std::time::Duration::ZERO)
    }
}

/// Splits this process, which has one thread, in two. The front comes back when the other one has
/// ended; it leaves those of the standard streams alone that are for the program only.
///
/// # Errors
///
/// The kernel cannot make a process.
pub fn split(lets_go: [bool; 2]) -> Result<Side, Error> {
    let front = pidfd_open(getpid(), PidfdFlags::empty()).map_err(failed("pidfd_open"))?;
    let forked = sys::fork_controller().map_err(|errno| Error::call("fork", errno))?;
    let Some(back) = forked else { return Ok(Side::Back(Front(front))) };
    sys::let_go_of_streams(lets_go);
    pass_on(back)?;
    let status = sys::wait_one(back).map_err(|errno| Error::call("waiting for lwp", errno))?;
    Ok(Side::Front(crate::ending(status)))
}

/// Signals that end a process, or mean something to a program, and can be passed on.
const PASSED: [i32; 14] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGIO,
    libc::SIGPWR,
    libc::SIGURG,
    libc::SIGSTKFLT,
    libc::SIGCONT,
];

/// Passes signals on that somebody sends to this process. Those of a terminal reach both.
fn pass_on(back: i32) -> Result<(), Error> {
    let signals = PASSED.into_iter().chain(real_time_signals());
    let mut arrivals =
        Arrivals::of(signals).map_err(|errno| Error::call("signal handlers", errno))?;
    let thread = std::thread::Builder::new().name("lwp-signals".into());
    let pass = move || {
        while let Some(info) = arrivals.wait() {
            // The kernel's own have a code above zero.
            if info.code() <= 0 {
                let _ = sys::send_as(back, &info);
            }
        }
    };
    thread.spawn(pass).map(drop).map_err(|error| Error::Call {
        what: "making a thread",
        errno: lwp_perf::Errno::from_io_error(&error).unwrap_or(lwp_perf::Errno::AGAIN),
    })
}
