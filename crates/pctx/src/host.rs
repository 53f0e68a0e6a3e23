//! Control on the virtual CPU: its host traces every process, so this module asks the host instead
//! of using ptrace.

use std::os::fd::OwnedFd;

use lwp_process::nested_ptrace;
use lwp_process::{Errno, sys};

use crate::{Error, Pctx, Pid};

/// The one who does what ptrace does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Means {
    /// The kernel.
    Ptrace,
    /// The host of the virtual CPU.
    Host,
}

impl Means {
    /// That of this process.
    pub(crate) fn here() -> Self {
        if nested_ptrace::are_had() { Self::Host } else { Self::Ptrace }
    }

    /// Lets a thread that stands still go on, with a signal.
    pub(crate) fn go(self, tid: Pid, signal: i32) -> Result<(), Errno> {
        match self {
            Self::Ptrace => sys::cont(tid, signal),
            Self::Host => nested_ptrace::go(tid),
        }
    }

    /// Has a thread stand still.
    pub(crate) fn stop(self, tid: Pid) -> Result<(), Errno> {
        match self {
            Self::Ptrace => sys::interrupt(tid),
            Self::Host => nested_ptrace::stop(tid),
        }
    }

    /// Lets a new process that stands still go for good.
    pub(crate) fn let_new_go(self, pid: Pid) {
        let _ = match self {
            Self::Ptrace => sys::detach(pid, 0),
            Self::Host => nested_ptrace::go(pid),
        };
    }
}

/// Takes over a live process; returns its threads.
pub(crate) fn capture(pid: Pid, bell: &OwnedFd) -> Result<Vec<Pid>, Error> {
    nested_ptrace::capture(pid, bell).map_err(|error| match Error::from_attach(pid, error) {
        Error::System(Errno::ESRCH) => Error::Outside(pid),
        Error::System(Errno(libc::EBUSY)) => {
            Error::Traced { pid, tracer: nested_ptrace::guardian(pid).unwrap_or_default() }
        }
        other => other,
    })
}

/// Takes over a process that the host holds for this one.
pub(crate) fn adopt(pid: Pid, created: bool) -> Result<Pctx, Error> {
    let fd = sys::event_fd().map_err(Error::System)?;
    let flags = if created { nested_ptrace::CREATED } else { 0 };
    nested_ptrace::take(pid, &fd, flags).map_err(|error| Error::from_attach(pid, error))?;
    Ok(Pctx::with(Means::Host, fd, pid, created, &[pid]))
}
