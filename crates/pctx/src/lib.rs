//! Process contexts after Solaris' libpctx: a process under control, and what happens to it.
//!
//! [`Pctx::create`] starts a program, [`Pctx::capture`] takes over a live process. [`Pctx::run`]
//! lets it run and calls [`Handlers`] when a thread starts or ends, when the process forks,
//! executes another program or exits, and at regular ticks. Threads are known as LWPs: small
//! numbers from 1.
//!
//! ```
//! use pctx::{End, Flow, Handlers, LwpId, Pctx, Status};
//!
//! struct Printer;
//!
//! impl Handlers for Printer {
//!     fn init_lwp(&mut self, pctx: &Pctx, lwp: LwpId) -> Flow {
//!         println!("thread {} of process {}", lwp.0, pctx.pid());
//!         Flow::Continue
//!     }
//!
//!     fn exit(&mut self, _: &Pctx, _: LwpId, status: Status) {
//!         println!("ends with {:?}", status.code());
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
//! * The process is not stopped for a tick. Counters of another thread can be read while it runs,
//!   and a stop would interrupt its system calls: see below.
//! * A stop by job control does not end the run; the process stays stopped until it is continued.
//! * `exec` comes when the new image is loaded: a failed exec is not seen.
//! * A process that a signal kills is reported by `exit` as well; the status says which signal.
//!
//! # What a program may notice
//!
//! A stop that is asked for, and a signal that the program ignores, interrupt the system call of a
//! traced thread. The kernel goes on with the call or makes it again; the program sees no EINTR.
//! Two traces remain, since a tracer does not see when a call began or how far it came: a call
//! whose rest of time the kernel does not keep, such as epoll_wait(2), waits for its whole time
//! anew, and one that has moved a part of its bytes, such as write(2) to a pipe, returns their
//! number.
//!
//! A child that is followed executes nothing of its own while it changes hands: it sleeps in
//! pause(2), or, where a filter (seccomp) sees its calls, goes around a loop of one jump, which
//! costs it a little processor time. Under Yama (`kernel.yama.ptrace_scope` 1), and without
//! privileges, it is made to call prctl(2) as well, and is not followed if it has a filter.
//!
//! ptrace belongs to a thread: a context stays on the thread that made it.
#![deny(unsafe_code)]

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

use lwp_process::limits::Room;
use lwp_process::tracee::OPTIONS;
use lwp_process::{nested_ptrace, spawn, sys};

pub use error::{Error, find_program};
pub use lwp_process::Errno;
pub use lwps::LwpId;
pub use run::{End, Flow, Handlers, Status};

use host::Means;
use lwps::Lwps;

/// A process id, a thread id.
pub type Pid = i32;

/// A process under control. Dropping it lets the process go, which runs on by itself.
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
    /// Children are followed although this process has other threads.
    follows_from_threads: Cell<bool>,
    /// Copies of this controller that follow children.
    copies: RefCell<Vec<Pid>>,
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
    /// Makes [`Pctx::run`] return as soon as it can. Async-signal-safe.
    pub fn terminate(&self) {
        self.0.terminate.store(true, Ordering::Relaxed);
        sys::event_signal(&self.0.fd);
    }
}

impl Pctx {
    /// Starts `program`, searched for in `PATH` unless its name has a slash. `argv` is its whole
    /// argument vector, the first word included. It stands before its first instruction, and is
    /// killed if this process dies.
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

    /// Takes over the live process `pid`, which stands still afterwards. It lives on if this
    /// process dies.
    ///
    /// # Errors
    ///
    /// [`Error::Ourselves`], [`Error::NoProcess`], [`Error::Zombie`], [`Error::Traced`],
    /// [`Error::Permission`], [`Error::KernelThread`] or [`Error::Outside`], by what is wrong with
    /// the process, and [`Error::System`] for any other refusal.
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
            follows_from_threads: Cell::new(false),
            copies: RefCell::default(),
            owner: thread::current().id(),
            thread: PhantomData,
        }
    }

    /// The process's id.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// The kernel's number of LWP `lwp`, if it lives.
    pub fn tid(&self, lwp: LwpId) -> Option<Pid> {
        self.lwps.borrow().tid(lwp)
    }

    /// The LWPs that live, in the order in which they started.
    pub fn lwps(&self) -> Vec<LwpId> {
        self.lwps.borrow().ids()
    }

    /// Returns whether the calling thread is the one that made this. Only a C library can get it
    /// wrong.
    pub fn is_ours(&self) -> bool {
        self.owner == thread::current().id()
    }

    /// Returns whether the process has ended.
    pub fn is_gone(&self) -> bool {
        self.gone.get()
    }

    /// Returns a handle that ends a run from elsewhere.
    pub fn terminator(&self) -> Terminator {
        Terminator(Arc::clone(&self.wake))
    }

    /// Waits for the copies of this controller that follow children.
    pub fn wait_for_copies(&self) {
        for copy in self.copies.take() {
            let _ = sys::wait_one(copy);
        }
    }

    /// Kills the process, if it is this controller's own.
    pub fn kill(&self) {
        if self.created.get() && !self.gone.get() {
            let _ = sys::kill(self.pid, libc::SIGKILL);
        }
    }

    /// Lets the process go. It runs on by itself.
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
            self.let_go();
        }
    }
}
