//! Following a child: handing it over to a copy of the controller.
//!
//! A tracee has one tracer, and the child of a fork has its parent's. To follow the child in a
//! separate process, the controller forks. The original then has to detach from the child and the
//! copy has to attach, and the child must not execute any of its own code in between. So the
//! original makes it sleep where neither a system call filter nor a signal reaches it
//! ([`crate::sleeper`]). The copy restores its registers and signal mask. A stop signal would also
//! hold the child, but its parent would notice. If the copy can't attach, the original attaches
//! again, wakes the child up, and lets it run untraced.

use std::fs;
use std::io::{Read, Write, pipe};

use lwp_process::{Errno, Tracee, nested_ptrace, spawn, sys};

use crate::error::field;
use crate::host::{self, Means};
use crate::sleeper::Sleeper;
use crate::{Error, Pctx, Pid};

/// The result of following a child, seen from one of the two processes.
pub(crate) enum Followed {
    /// In the original: the copy's process id.
    Original(Pid),
    /// In the copy: the child, stopped.
    Copy(Box<Pctx>),
}

/// Hands `child`, stopped for the first time, over to a copy of this process.
pub(crate) fn follow(means: Means, child: Pid, created: bool) -> Result<Followed, Error> {
    match means {
        Means::Ptrace => follow_tracee(child, created),
        Means::Host => follow_ward(child, created),
    }
}

/// Hands `child` over to a copy of this process if the virtual CPU's host holds it: the host gives
/// it to the copy.
fn follow_ward(child: Pid, created: bool) -> Result<Followed, Error> {
    let (mut ready_out, mut ready_in) = pipe().map_err(system)?;
    let Some(copy) = sys::fork_controller().map_err(Error::System)? else {
        drop(ready_in);
        // Until it has been given.
        let mut byte = [0];
        let _ = ready_out.read(&mut byte);
        return host::adopt(child, created).map(|pctx| Followed::Copy(Box::new(pctx)));
    };
    let given = nested_ptrace::give(child, copy);
    let _ = ready_in.write_all(&[1]);
    given.map_err(Error::System)?;
    Ok(Followed::Original(copy))
}

fn follow_tracee(child: Pid, created: bool) -> Result<Followed, Error> {
    let sleeper = Sleeper::put_to_sleep(child)?;
    let permits = needs_permission();
    if permits && !sleeper.may_call() {
        sleeper.wake_up().map_err(Error::System)?;
        return Err(Error::Filtered(child));
    }
    hand_over(child, &sleeper, permits, || take(child, created))
}

/// Lets `child` go and has a copy take it.
fn hand_over(
    child: Pid,
    sleeper: &Sleeper,
    permits: bool,
    take: impl FnOnce() -> Result<Pctx, Error>,
) -> Result<Followed, Error> {
    let pipes = pipe().and_then(|ready| Ok((ready, pipe()?)));
    let copy = pipes
        .map_err(system)
        .and_then(|pipes| sys::fork_controller().map_err(Error::System).map(|copy| (copy, pipes)));
    let (copy, (ready, taken)) = copy.inspect_err(|_| {
        let _ = sleeper.wake_up();
    })?;
    let ((mut ready_out, mut ready_in), (mut taken_out, mut taken_in)) = (ready, taken);
    let Some(copy) = copy else {
        drop((ready_in, taken_out));
        // Until the original has let go.
        let _ = ready_out.read(&mut [0]);
        let taken = take().and_then(|pctx| {
            sleeper.wake_up().map_err(Error::System)?;
            Ok(pctx)
        });
        let errno = taken.as_ref().err().map_or(0, Error::errno);
        let _ = taken_in.write_all(&errno.to_ne_bytes());
        // The original goes on with everything else.
        let Ok(pctx) = taken else { sys::exit_controller(1) };
        return Ok(Followed::Copy(Box::new(pctx)));
    };
    drop((ready_out, taken_in));
    if permits {
        permit(Tracee(child), sleeper, copy);
    }
    let detached = sys::detach(child, 0);
    let _ = ready_in.write_all(&[1]);
    let mut answer = libc::EIO.to_ne_bytes();
    let _ = taken_out.read_exact(&mut answer);
    match (detached, i32::from_ne_bytes(answer)) {
        (Ok(()), 0) => Ok(Followed::Original(copy)),
        (_, errno) => {
            let _ = sys::wait_one(copy);
            let error = Error::from_attach(child, Errno(errno));
            take_back(child, sleeper);
            Err(error)
        }
    }
}

/// Lets a sleeping child that nobody has taken run on by itself.
fn take_back(child: Pid, sleeper: &Sleeper) {
    // Where that is refused too, or the child has been killed, nothing can be done for it.
    let Ok(threads) = spawn::attach(child) else { return };
    if sleeper.is_asleep() {
        let _ = sleeper.wake_up();
    }
    spawn::let_go(&threads);
}

fn system(error: std::io::Error) -> Error {
    Error::System(Errno(error.raw_os_error().unwrap_or(libc::EIO)))
}

/// Returns whether a child has to allow its copy to trace it: under Yama only an ancestor may,
/// save the privileged, and the copy is none.
fn needs_permission() -> bool {
    const CAP_SYS_PTRACE: u64 = 1 << 19;
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let may = field(&status, "CapEff:").and_then(|set| u64::from_str_radix(set, 16).ok());
    scope.trim() == "1" && may.unwrap_or(0) & CAP_SYS_PTRACE == 0
}

/// Makes a child allow `copy` to trace it.
fn permit(tracee: Tracee, sleeper: &Sleeper, copy: Pid) {
    let arguments = [libc::PR_SET_PTRACER as u64, copy as u64, 0, 0, 0, 0];
    let mut held = Vec::new();
    // Signals are blocked: nothing can be held.
    let site = sleeper.site();
    let _ = tracee.syscall_quietly(site, libc::SYS_prctl as u64, arguments, &mut held);
}

/// In the copy: takes the sleeping child.
fn take(child: Pid, created: bool) -> Result<Pctx, Error> {
    let pctx = Pctx::capture(child)?;
    if created {
        let _ = sys::set_options(child, lwp_process::tracee::OPTIONS);
    }
    pctx.created.set(created);
    Ok(pctx)
}

/// Returns whether `tid` is a thread of process `pid`.
pub(crate) fn is_thread(pid: Pid, tid: Pid) -> bool {
    fs::exists(format!("/proc/{pid}/task/{tid}")).unwrap_or(false)
}

/// The command line of `pid`, with blanks between the arguments.
pub(crate) fn command_line(pid: Pid) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = bytes.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    let words: Vec<_> = words.map(String::from_utf8_lossy).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use lwp_process::Stop;
    use lwp_process::limits::Room;

    use super::*;

    /// Starts a shell that makes a child and ends with its exit code; returns both, the child at
    /// its first stop.
    fn family() -> (Tracee, Pid) {
        let argv: Vec<OsString> = ["sh", "-c", "(exit 3); exit $?"].map(OsString::from).into();
        let parent = spawn::spawn("/bin/sh".as_ref(), &argv, None, false, Room::default());
        let parent = parent.expect("a shell");
        loop {
            parent.cont(0).expect("it stands still");
            if parent.wait() == Ok(Stop::Child) {
                let child = sys::event_message(parent.0).expect("its child") as Pid;
                assert_eq!(Tracee(child).wait(), Ok(Stop::Interrupted));
                return (parent, child);
            }
        }
    }

    /// Promise: T2
    #[test]
    fn a_child_that_the_copy_is_refused_runs_on_by_itself() {
        let (parent, child) = family();
        let sleeper = Sleeper::put_to_sleep(child).expect("it sleeps");
        let refused = || Err(Error::System(Errno(libc::EPERM)));
        let followed = hand_over(child, &sleeper, false, refused);
        assert!(matches!(followed, Err(Error::Permission(it)) if it == child));
        let end = loop {
            match parent.cont(0).and_then(|()| parent.wait()).expect("its next stop") {
                Stop::Exited(code) => break code,
                Stop::Killed { signal, .. } => panic!("killed by {signal}"),
                _ => {}
            }
        };
        assert_eq!(end, 3, "the child's exit code");
    }
}
