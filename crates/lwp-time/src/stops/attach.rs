//! Programs that are started, and processes that run already, traced from then on by the calling
//! thread.
//!
//! Tracing stops no thread by itself. If this process ends, in whatever way, the kernel lets go of
//! all threads, and those that stand for a sample go on.
//!
//! Promise: R149

use std::ffi::OsString;

use lwp_perf::Rings;
use lwp_process::spawn::{spawn, threads_of};
use lwp_process::sys;

use super::{EVENTS, Plan, Stops};
use crate::Error;

/// Starts a program that stands at the end of its exec, traced by the calling thread.
///
/// # Errors
///
/// The program cannot be executed, or ptrace(2) is refused.
pub(crate) fn start(program: &std::ffi::OsStr, argv: &[OsString]) -> Result<i32, Error> {
    let room = lwp_process::limits::Room::default();
    let tracee = spawn(program, argv, None, false, room)?;
    Ok(tracee.0)
}

/// Traces all threads of a process that runs. `rings` are records of their switches, if there are
/// any.
///
/// # Errors
///
/// There is no such process, or it may not be traced, or somebody else traces it.
pub(crate) fn attach(pid: i32, plan: Plan, rings: Option<Rings>) -> Result<Stops, Error> {
    let mut stops = Stops { rings, ..Stops::of(pid, plan)? };
    // What is made meanwhile is traced by its maker's option, or found by another look.
    loop {
        let known = stops.pids.len();
        for tid in threads_of(pid).map_err(|_| Error::NoProcess(pid))? {
            seize(&mut stops, pid, tid)?;
        }
        if stops.pids.len() == known {
            break;
        }
    }
    match stops.pids.is_empty() {
        true => Err(Error::NoProcess(pid)),
        false => Ok(stops),
    }
}

/// Traces a thread, if it is not traced yet and has not ended.
fn seize(stops: &mut Stops, pid: i32, tid: i32) -> Result<(), Error> {
    if stops.pids.contains_key(&tid) {
        return Ok(());
    }
    match sys::seize(tid, EVENTS) {
        Ok(()) => {
            stops.add(pid, tid);
            stops.before += stops.thread(tid).map_or(0, |thread| thread.used);
            Ok(())
        }
        // It will stop and be met; a first thread that is traced is somebody else's.
        Err(sys::Errno(libc::EPERM)) if !stops.pids.is_empty() => Ok(()),
        Err(sys::Errno(libc::ESRCH)) => Ok(()),
        Err(errno) => Err(Error::NoStops(errno)),
    }
}

/// The threads that are traced.
pub(crate) fn threads(stops: &Stops) -> Vec<i32> {
    stops.pids.keys().copied().collect()
}
