//! Control of a process where ptrace is the virtual CPU's own.
//!
//! A program on the virtual CPU cannot trace another: the host does. It can ask the host to tell it
//! of another program's threads, forks, execs and exits, and to hold a thread at each of these, by
//! requests of ptrace(2) that no kernel has. The process that asks is the *guardian*, the other one
//! its *ward*.
//!
//! | request | argument | result |
//! | --- | --- | --- |
//! | [`PROBE`] | | 0 |
//! | [`TAKE`] | process; an eventfd that counts events; flags | its events are kept from now on |
//! | [`GO`] | thread | it goes on, if it is held |
//! | [`STOP`] | thread | it stands still soon |
//! | [`NEXT`] | ward; four words of memory | 1, and the next event there; 0 where there is none |
//! | [`GIVE`] | ward or new process, and its next guardian | |
//! | [`DROP`] | ward | it has no guardian any more and goes on |
//! | [`GUARDIAN`] | process; 0 for the caller's | the process whose ward it is; 0 without one |
//!
//! An event is four words: [`kind`], thread, and two that depend on the kind.

use std::ffi::OsStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use crate::spawn::{self, SpawnError, Starting};
use crate::sys::{self, Errno, Result};

/// Requests; see the module's table. The kernel's own are below 0x5000.
pub const PROBE: u64 = 0x6c77_7000;
/// See [`PROBE`].
pub const TAKE: u64 = PROBE + 1;
/// See [`PROBE`].
pub const GO: u64 = PROBE + 2;
/// See [`PROBE`].
pub const STOP: u64 = PROBE + 3;
/// See [`PROBE`].
pub const NEXT: u64 = PROBE + 4;
/// See [`PROBE`].
pub const GIVE: u64 = PROBE + 5;
/// See [`PROBE`].
pub const DROP: u64 = PROBE + 6;
/// See [`PROBE`].
pub const GUARDIAN: u64 = PROBE + 7;

/// Flag of [`TAKE`]: the ward dies with its guardian.
pub const CREATED: u64 = 1;
/// Flag of [`TAKE`]: every thread is to stand still.
pub const STAND: u64 = 2;

/// Kinds of events. The thread is held, save by [`kind::GONE`], [`kind::STANDING`] and
/// [`kind::LEFT`].
pub mod kind {
    /// A new thread.
    pub const THREAD: u64 = 1;
    /// A new process; with its maker's thread.
    pub const PROCESS: u64 = 2;
    /// Another program, before its first instruction.
    pub const EXEC: u64 = 3;
    /// A thread that is about to end; with its status, and 1 where it alone does.
    pub const EXITING: u64 = 4;
    /// A thread that has ended; with its wait status.
    pub const GONE: u64 = 5;
    /// A thread that stands still, as was asked for.
    pub const STOPPED: u64 = 6;
    /// All threads of a process that was taken stand still.
    pub const STANDING: u64 = 7;
    /// The process goes on natively, out of the host's sight.
    pub const LEFT: u64 = 8;
}

/// Something that has happened to a ward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// See [`kind::THREAD`].
    Thread(i32),
    /// See [`kind::PROCESS`].
    Process {
        /// The new process.
        child: i32,
        /// The thread that has made it.
        maker: i32,
    },
    /// See [`kind::EXEC`].
    Exec,
    /// See [`kind::EXITING`].
    Exiting {
        /// The thread.
        tid: i32,
        /// Its status, as of wait(2).
        status: i32,
        /// True if others of its process go on.
        alone: bool,
    },
    /// See [`kind::GONE`].
    Gone {
        /// The thread.
        tid: i32,
        /// Its status, as of wait(2).
        status: i32,
    },
    /// See [`kind::STOPPED`].
    Stopped(i32),
    /// See [`kind::STANDING`].
    Standing,
    /// See [`kind::LEFT`].
    Left,
}

impl Event {
    fn from_words([what, tid, a, b]: [u64; 4]) -> Option<Self> {
        let tid = tid as i32;
        Some(match what {
            kind::THREAD => Self::Thread(tid),
            kind::PROCESS => Self::Process { child: tid, maker: a as i32 },
            kind::EXEC => Self::Exec,
            kind::EXITING => Self::Exiting { tid, status: a as i32, alone: b != 0 },
            kind::GONE => Self::Gone { tid, status: a as i32 },
            kind::STOPPED => Self::Stopped(tid),
            kind::STANDING => Self::Standing,
            kind::LEFT => Self::Left,
            _ => return None,
        })
    }
}

/// Returns whether the host of the virtual CPU takes requests of this process. The kernel knows
/// none of them.
pub fn are_had() -> bool {
    sys::ptrace_request(PROBE, 0, 0, 0) == Ok(0)
}

/// Makes `pid` a ward of this process.
///
/// # Errors
///
/// ESRCH if the virtual CPU runs no such process, EBUSY if it is another process's ward, EPERM if
/// it is another user's.
pub fn take(pid: i32, bell: &OwnedFd, flags: u64) -> Result<()> {
    sys::ptrace_request(TAKE, pid, bell.as_raw_fd() as u64, flags).map(drop)
}

/// Lets a thread that is held go on.
///
/// # Errors
///
/// The kernel's.
pub fn go(tid: i32) -> Result<()> {
    sys::ptrace_request(GO, tid, 0, 0).map(drop)
}

/// Has a thread stand still.
///
/// # Errors
///
/// The kernel's.
pub fn stop(tid: i32) -> Result<()> {
    sys::ptrace_request(STOP, tid, 0, 0).map(drop)
}

/// Makes a ward, or a new process that is held, the ward of another process.
///
/// # Errors
///
/// The kernel's.
pub fn give(pid: i32, guardian: i32) -> Result<()> {
    sys::ptrace_request(GIVE, pid, guardian as u64, 0).map(drop)
}

/// Lets a ward go.
///
/// # Errors
///
/// The kernel's.
pub fn release(pid: i32) -> Result<()> {
    sys::ptrace_request(DROP, pid, 0, 0).map(drop)
}

/// The guardian of a process; with 0, of this one.
pub fn guardian(pid: i32) -> Option<i32> {
    let pid = sys::ptrace_request(GUARDIAN, pid, 0, 0).ok()?;
    i32::try_from(pid).ok().filter(|pid| *pid > 0)
}

/// The next event of a ward.
///
/// # Errors
///
/// ESRCH if `pid` is no ward of this process.
pub fn next(pid: i32) -> Result<Option<Event>> {
    loop {
        match sys::ptrace_words(NEXT, pid)? {
            None => return Ok(None),
            Some(words) => {
                if let Some(event) = Event::from_words(words) {
                    return Ok(Some(event));
                }
            }
        }
    }
}

/// The time between two looks for an awaited event.
const LOOK: Duration = Duration::from_micros(200);

/// Starts `program` as a ward, held before its first instruction.
///
/// # Errors
///
/// Those of [`spawn::spawn`].
pub fn spawn(
    program: &OsStr,
    argv: &[impl AsRef<OsStr>],
    bell: &OwnedFd,
) -> std::result::Result<i32, SpawnError> {
    let plan = spawn::plan(program, argv, None, false, crate::limits::Room::default())?;
    let mut starting = Starting::new(&plan)?;
    let pid = starting.child.pid;
    take(pid, bell, CREATED).map_err(SpawnError::Trace)?;
    starting.go();
    loop {
        match next(pid).map_err(SpawnError::Trace)? {
            Some(Event::Exec) => {
                starting.child.done();
                return Ok(pid);
            }
            Some(Event::Exiting { tid, .. }) => {
                let _ = go(tid);
            }
            Some(Event::Gone { status, .. }) => {
                let _ = sys::wait_one(pid);
                let failure = starting.failure();
                starting.child.done();
                return Err(match failure {
                    Some(error) => SpawnError::Exec(error),
                    None => SpawnError::Killed {
                        signal: libc::WTERMSIG(status),
                        core: libc::WCOREDUMP(status),
                    },
                });
            }
            Some(Event::Left) => return Err(SpawnError::Trace(Errno(libc::ENOEXEC))),
            Some(_) => {}
            None => thread::sleep(LOOK),
        }
    }
}

/// Takes a live process and waits until its threads stand still; those that do within ten seconds.
///
/// # Errors
///
/// Those of [`take`].
pub fn capture(pid: i32, bell: &OwnedFd) -> Result<Vec<i32>> {
    take(pid, bell, STAND)?;
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut tids = Vec::new();
    loop {
        match next(pid)? {
            Some(Event::Stopped(tid) | Event::Thread(tid)) if !tids.contains(&tid) => {
                tids.push(tid);
            }
            Some(Event::Standing) => return Ok(tids),
            Some(Event::Exiting { tid, .. }) => {
                tids.retain(|known| *known != tid);
                go(tid)?;
            }
            Some(Event::Process { child, .. }) => go(child)?,
            Some(Event::Gone { tid, .. }) if tid == pid => return Err(Errno::ESRCH),
            Some(Event::Left) => return Err(Errno::ESRCH),
            Some(_) => {}
            None if Instant::now() > deadline => return Ok(tids),
            None => thread::sleep(LOOK),
        }
    }
}
