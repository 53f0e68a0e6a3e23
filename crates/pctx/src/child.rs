//! Following a child: handing it over to a copy of the controller.
//!
//! A tracee has one tracer, and a fork's child is born with its parent's. To follow it in a process
//! of its own, the controller forks; the child must be let go by the original and taken by the
//! copy, and may execute nothing of its own in between. So it is made to sleep: it stands right
//! behind the system call that made it, whose instruction it executes again, as pause(2) and with
//! every signal blocked. The copy interrupts the pause and puts registers and mask back. Nothing of
//! it can be seen by the program; a stop signal would be, by its parent.

use std::fs;
use std::io::{Read, Write, pipe};

use lwp_ptrace::{Errno, Regs, Tracee, sys, wards};

use crate::host::{self, Means};
use crate::{Error, Pctx, Pid};

/// The state that the copy must put back.
struct Sleeper {
    regs: Regs,
    mask: u64,
}

/// Length of the instruction `syscall`.
const SYSCALL_BYTES: u64 = 2;
const SYSCALL: [u8; 2] = [0x0f, 0x05];

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

/// The same where the host of the virtual CPU holds the child: it is given to the copy.
fn follow_ward(child: Pid, created: bool) -> Result<Followed, Error> {
    let (mut ready_out, mut ready_in) = pipe().map_err(system)?;
    let Some(copy) = sys::fork_controller().map_err(Error::System)? else {
        drop(ready_in);
        // Until it has been given.
        let mut byte = [0];
        let _ = ready_out.read(&mut byte);
        return host::adopt(child, created).map(|pctx| Followed::Copy(Box::new(pctx)));
    };
    let given = wards::give(child, copy);
    let _ = ready_in.write_all(&[1]);
    given.map_err(Error::System)?;
    Ok(Followed::Original(copy))
}

fn follow_tracee(child: Pid, created: bool) -> Result<Followed, Error> {
    let tracee = Tracee(child);
    let (mut ready_out, mut ready_in) = pipe().map_err(system)?;
    let sleeper = put_to_sleep(tracee).map_err(Error::System)?;
    let copy = match sys::fork_controller() {
        Ok(Some(copy)) => copy,
        Ok(None) => {
            drop(ready_in);
            // Until the original has let go.
            let mut byte = [0];
            let _ = ready_out.read(&mut byte);
            drop(ready_out);
            return take(child, created, &sleeper).map(|pctx| Followed::Copy(Box::new(pctx)));
        }
        Err(error) => {
            wake_up(tracee, &sleeper).map_err(Error::System)?;
            return Err(Error::System(error));
        }
    };
    allow_tracing(tracee, &sleeper, copy);
    let detached = sys::detach(child, 0);
    let _ = ready_in.write_all(&[1]);
    detached.map_err(Error::System)?;
    Ok(Followed::Original(copy))
}

fn system(error: std::io::Error) -> Error {
    Error::System(Errno(error.raw_os_error().unwrap_or(libc::EIO)))
}

/// Makes the next thing that `tracee` does a pause without signals.
fn put_to_sleep(tracee: Tracee) -> Result<Sleeper, Errno> {
    let saved = Sleeper { regs: tracee.regs()?, mask: sys::get_sigmask(tracee.0)? };
    let site = saved.regs.0.rip.wrapping_sub(SYSCALL_BYTES);
    let mut code = [0; 2];
    if sys::read_memory(tracee.0, site, &mut code)? != code.len() || code != SYSCALL {
        return Err(Errno(libc::ENOEXEC));
    }
    sys::set_sigmask(tracee.0, u64::MAX)?;
    let mut regs = saved.regs;
    regs.0.rip = site;
    regs.0.rax = libc::SYS_pause as u64;
    regs.forget_syscall();
    tracee.set_regs(&regs)?;
    Ok(saved)
}

/// Puts back what [`put_to_sleep`] changed.
fn wake_up(tracee: Tracee, sleeper: &Sleeper) -> Result<(), Errno> {
    let mut regs = sleeper.regs;
    // The kernel must not restart the interrupted pause.
    regs.forget_syscall();
    tracee.set_regs(&regs)?;
    sys::set_sigmask(tracee.0, sleeper.mask)
}

/// Under Yama only an ancestor may trace, and the copy is none: the child has to allow it. Where
/// Yama does not apply, or allows it anyway, nothing is done.
fn allow_tracing(tracee: Tracee, sleeper: &Sleeper, copy: Pid) {
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    if scope.trim() != "1" {
        return;
    }
    let site = sleeper.regs.0.rip.wrapping_sub(SYSCALL_BYTES);
    let arguments = [libc::PR_SET_PTRACER as u64, copy as u64, 0, 0, 0, 0];
    let mut held = Vec::new();
    // Signals are blocked: nothing can be held.
    let _ = tracee.syscall_quietly(site, libc::SYS_prctl as u64, arguments, &mut held);
}

/// In the copy: takes the sleeping child.
fn take(child: Pid, created: bool, sleeper: &Sleeper) -> Result<Pctx, Error> {
    let pctx = Pctx::capture(child)?;
    wake_up(Tracee(child), sleeper).map_err(Error::System)?;
    let options = lwp_ptrace::tracee::OPTIONS;
    if created {
        let _ = sys::set_options(child, options);
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
