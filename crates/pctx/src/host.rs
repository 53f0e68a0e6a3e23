//! Control on the virtual CPU: its host traces every process, so this module asks the host instead
//! of using ptrace.

use std::os::fd::OwnedFd;

use lwp_process::nested_ptrace::{self, Event};
use lwp_process::{Errno, sys};

use crate::lwps::State;
use crate::run::{End, Flow, Handlers, Status};
use crate::{Error, LwpId, Pctx, Pid};

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

impl Pctx {
    /// Takes every event there is.
    pub(crate) fn dispatch_events(&self, handlers: &mut dyn Handlers) -> Option<End> {
        loop {
            match nested_ptrace::next(self.pid) {
                Ok(Some(event)) => {
                    if let Some(end) = self.host_event(event, handlers) {
                        return Some(end);
                    }
                }
                Ok(None) => return None,
                // The run is over for it.
                Err(_) => return self.ended(self.pid, Status(0), handlers),
            }
        }
    }

    fn host_event(&self, event: Event, handlers: &mut dyn Handlers) -> Option<End> {
        match event {
            Event::Thread(tid) => {
                let lwp = self.lwps.borrow_mut().add(tid, State::Stopped(0));
                let started = handlers.init_lwp(self, lwp) == Flow::Stop
                    || handlers.lwp_create(self, lwp) == Flow::Stop;
                started.then_some(End::Handler)
            }
            Event::Process { child, maker } => {
                let maker = self.lwps.borrow().get(maker).map_or(LwpId(1), |lwp| lwp.id);
                self.made(child, maker, handlers);
                None
            }
            Event::Exec => self.executed(handlers),
            Event::Exiting { tid, status, alone } => self.leaving(tid, status, alone, handlers),
            Event::Gone { tid, status } => {
                if tid == self.pid {
                    // A child of this process is waited for, as a tracer would have.
                    let _ = sys::poll_one(tid);
                }
                self.ended(tid, Status(status), handlers)
            }
            Event::Stopped(tid) => {
                self.lwps.borrow_mut().set(tid, State::Stopped(0));
                None
            }
            Event::Standing => None,
            Event::Left => self.ended(self.pid, Status(0), handlers),
        }
    }
}
