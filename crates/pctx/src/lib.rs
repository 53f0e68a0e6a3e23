//! Controls a process and reports its events, after Solaris' libpctx.
//!
//! [`Pctx::create`] starts a program, and [`Pctx::capture`] attaches to a running process.
//! [`Pctx::run`] lets the process run, and calls [`Handlers`] when a thread starts or ends, when
//! the process forks, executes another program or exits, and at regular ticks. Threads are called
//! LWPs, as in Solaris, and are numbered from 1.
//!
//! ```
//! use std::process::ExitStatus;
//!
//! use pctx::{End, Flow, Handlers, LwpId, Pctx};
//!
//! struct Printer;
//!
//! impl Handlers for Printer {
//!     fn init_lwp(&mut self, pctx: &Pctx, lwp: LwpId) -> Flow {
//!         println!("thread {} of process {}", lwp, pctx.pid());
//!         Flow::Continue
//!     }
//!
//!     fn exit(&mut self, _: &Pctx, _: LwpId, status: ExitStatus) {
//!         println!("{status}");
//!     }
//! }
//!
//! let pctx = Pctx::create("true".as_ref(), &["true".into()])?;
//! let end = pctx.run(None, None, &mut Printer)?;
//! assert!(matches!(end, End::Exited(status) if status.code() == Some(0)));
//! # Ok::<(), pctx::Error>(())
//! ```
//!
//! # Order of the calls
//!
//! | what happens | calls |
//! | --- | --- |
//! | a run begins | `init_lwp` for every LWP |
//! | a thread starts | `init_lwp`, `lwp_create`, before its first instruction |
//! | a thread ends | `fini_lwp`, `lwp_exit` |
//! | exec | `fini_lwp` for every LWP, `exec`, `init_lwp` for LWP 1 |
//! | fork | `fork`, in a copy of the controller; see [`Handlers::fork`] |
//! | exit | `fini_lwp` for every LWP, `exit` |
//! | every period | `tick` for every LWP |
//!
//! # What differs from Solaris
//!
//! * The process isn't stopped for a tick. A stop would interrupt its system calls (see below), and
//!   another thread's counters can be read while it runs.
//! * A job control stop doesn't end the run; the process stays stopped until somebody continues it.
//! * `exec` is called once the new program is loaded, so you don't see a failed exec.
//! * `exit` also reports a process that a signal kills; the status has the signal.
//!
//! # What a program may notice
//!
//! Stopping a traced thread interrupts its system call, and so does a signal that the program
//! ignores. The kernel then continues or restarts the call, so the program doesn't see EINTR. But a
//! tracer doesn't see when a call began or how far it got, so a program may notice two things. A
//! call whose remaining time the kernel doesn't keep, such as epoll_wait(2), restarts with its full
//! timeout. A call that has transferred some of its bytes, such as write(2) to a pipe, returns
//! early with their number.
//!
//! While a followed child passes from one tracer to the next, it executes none of its own code: it
//! sleeps in pause(2) or, if it has a system call filter (seccomp), spins in a loop of one jump,
//! which takes a little processor time. Under Yama (`kernel.yama.ptrace_scope` is 1) and without
//! privileges, the child also has to call prctl(2), so a child with a filter isn't followed.
//!
//! ptrace(2) ties a tracee to one thread of its tracer, so a [`Pctx`] stays on the thread that made
//! it.
#![deny(unsafe_code)]
#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod child;
mod copies;
mod error;
mod host;
mod lwps;
mod run;
mod sleeper;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;

use std::cell::{Cell, RefCell};
use std::ffi::{OsStr, OsString};
use std::marker::PhantomData;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ThreadId};
use std::time::Duration;

use lwp_process::limits::Room;
use lwp_process::tracee::OPTIONS;
use lwp_process::{nested_ptrace, spawn, sys};

pub use copies::Copies;
pub use error::{Error, find_program};
pub use lwp_process::Errno;
pub use lwps::LwpId;
pub use run::{End, Flow, Handlers};

use host::Means;
use lwps::Lwps;
use run::Run;

/// A process id, a thread id.
pub type Pid = i32;

/// A controlled process. Dropping this detaches from the process, which continues to run.
#[derive(Debug)]
#[must_use = "the process is let go when this is dropped"]
pub struct Pctx {
    pid: Pid,
    means: Means,
    /// True if it dies with us.
    created: Cell<bool>,
    lwps: RefCell<Lwps>,
    gone: Cell<bool>,
    /// The leader's exit status, where it ended before others.
    leader_status: Cell<Option<i32>>,
    /// The process is being let go.
    leaving: Cell<bool>,
    wake: Arc<Wake>,
    /// Copies of this controller that follow children.
    copies: Copies,
    /// The thread that made this.
    owner: ThreadId,
    /// ptrace knows threads, so this value must not leave its own.
    thread: PhantomData<*const ()>,
}

/// The means by which others wake a run.
#[derive(Debug)]
struct Wake {
    fd: OwnedFd,
    terminate: AtomicBool,
}

/// Ends a run from a signal handler or another thread.
#[derive(Clone, Debug)]
pub struct Terminator(Arc<Wake>);

impl Terminator {
    /// Makes [`Pctx::run`] return as soon as it can. This is async-signal-safe.
    pub fn terminate(&self) {
        self.0.terminate.store(true, Ordering::Relaxed);
        sys::event_signal(&self.0.fd);
    }
}

impl Pctx {
    /// Starts `program`, which is looked up in `PATH` unless its name has a slash. `argv` is its
    /// whole argument vector, including the first word. The program is stopped before its first
    /// instruction, and is killed if this process dies.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] or [`Error::NotExecutable`] for the program, [`Error::Nul`] for an
    /// argument with a NUL byte, and [`Error::System`] if the system refuses to start or trace it.
    pub fn create(program: &OsStr, argv: &[OsString]) -> Result<Self, Error> {
        let file = error::find_program(program)?;
        let fd = sys::event_fd().map_err(Error::System)?;
        let means = Means::here();
        let spawned = match means {
            Means::Ptrace => {
                spawn::spawn(file.as_os_str(), argv, None, false, Room::default()).map(|it| it.0)
            }
            Means::Host => nested_ptrace::spawn(file.as_os_str(), argv, &fd),
        };
        let pid = spawned.map_err(|error| Error::from_spawn(program, error))?;
        Ok(Self::with(means, fd, pid, true, &[pid]))
    }

    /// Attaches to the running process `pid` and stops it. The process survives if this process
    /// dies.
    ///
    /// # Errors
    ///
    /// [`Error::Ourselves`], [`Error::NoProcess`], [`Error::Zombie`], [`Error::Traced`],
    /// [`Error::Permission`], [`Error::KernelThread`] or [`Error::Outside`], if the process can't
    /// be controlled for that reason, and [`Error::System`] if the system refuses for any other
    /// reason.
    pub fn capture(pid: Pid) -> Result<Self, Error> {
        if pid == std::process::id().cast_signed() {
            return Err(Error::Ourselves);
        }
        let fd = sys::event_fd().map_err(Error::System)?;
        let means = Means::here();
        let mut tids = match means {
            Means::Ptrace => seized(pid)?,
            Means::Host => host::capture(pid, &fd)?,
        };
        // The leader is LWP 1.
        tids.sort_by_key(|tid| (*tid != pid, *tid));
        Ok(Self::with(means, fd, pid, false, &tids))
    }

    fn with(means: Means, fd: OwnedFd, pid: Pid, created: bool, stopped: &[Pid]) -> Self {
        Self {
            pid,
            means,
            created: Cell::new(created),
            lwps: RefCell::new(Lwps::stopped(stopped)),
            gone: Cell::new(false),
            leader_status: Cell::new(None),
            leaving: Cell::new(false),
            wake: Arc::new(Wake { fd, terminate: AtomicBool::new(false) }),
            copies: Copies::default(),
            owner: thread::current().id(),
            thread: PhantomData,
        }
    }

    /// Lets the process run until something ends the run; see [`End`]. If there is a `period`, it
    /// calls [`Handlers::tick`] for every thread once per period, and the run ends after `ticks`
    /// periods if that is given.
    ///
    /// The run changes SIGCHLD's disposition, and restores it at its end.
    ///
    /// # Errors
    ///
    /// [`Error::NoProcess`] if the process has ended, and [`Error::System`] if the system refuses
    /// to report its events.
    pub fn run(
        &self,
        period: Option<Duration>,
        ticks: Option<u32>,
        handlers: &mut dyn Handlers,
    ) -> Result<End, Error> {
        if self.is_gone() {
            return Err(Error::NoProcess(self.pid));
        }
        let before = sys::ChildDisposition::now();
        sys::signal_child_events(&self.wake.fd).map_err(Error::System)?;
        let end = Run::new(self, handlers).execute(period, ticks);
        sys::forget_child_events();
        before.restore();
        Ok(end)
    }

    /// The process's id.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// The kernel's number of the thread `lwp`, if it is alive.
    #[must_use]
    pub fn tid(&self, lwp: LwpId) -> Option<Pid> {
        self.lwps.borrow().tid(lwp)
    }

    /// The living threads, in the order in which they started.
    #[must_use]
    pub fn lwps(&self) -> Vec<LwpId> {
        self.lwps.borrow().ids()
    }

    /// Returns whether the calling thread is the one that made this. In safe Rust it always is; a C
    /// library has to check.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.owner == thread::current().id()
    }

    /// Returns whether the process has ended.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.gone.get()
    }

    /// Returns a handle with which a signal handler or another thread can end a run.
    #[must_use]
    pub fn terminator(&self) -> Terminator {
        Terminator(Arc::clone(&self.wake))
    }

    /// The copies of this process that follow children.
    #[must_use]
    pub fn copies(&self) -> &Copies {
        &self.copies
    }

    /// Kills the process if [`Self::create`] started it.
    pub fn kill(&self) {
        if self.created.get() && !self.gone.get() {
            let _ = sys::kill(self.pid, libc::SIGKILL);
        }
    }

    /// Detaches from the process, which continues to run.
    pub fn release(self) {
        drop(self);
    }
}

/// Takes over every thread of a live process by ptrace.
fn seized(pid: Pid) -> Result<Vec<Pid>, Error> {
    let threads = spawn::attach(pid).map_err(|error| Error::from_attach(pid, error))?;
    let tids: Vec<Pid> = threads.iter().map(|tracee| tracee.0).collect();
    if !tids.contains(&pid) {
        spawn::let_go(&threads);
        // Its first thread, whose status is the process's, has ended.
        return Err(Error::from_attach(pid, Errno::ESRCH));
    }
    for tid in &tids {
        let _ = sys::set_options(*tid, OPTIONS & !libc::PTRACE_O_EXITKILL);
    }
    Ok(tids)
}

impl Drop for Pctx {
    fn drop(&mut self) {
        if !self.gone.get() {
            run::let_go(self);
        }
    }
}
