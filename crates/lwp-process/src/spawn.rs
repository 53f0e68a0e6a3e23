//! Starting a program as a tracee.

use std::ffi::{CString, OsStr, OsString};
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::thread;
use std::time::Duration;

use crate::child::{self, Child, Plan};
use crate::kernel_files;
use crate::limits::Room;
use crate::stop::Stop;
use crate::sys::{self, Errno};
use crate::tracee::{OPTIONS, Tracee};

/// The reason why a program could not be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpawnError {
    /// A name, argument or variable contains a NUL byte.
    Nul,
    /// The machine refuses to let us fork or trace.
    Trace(Errno),
    /// exec failed.
    Exec(Errno),
    /// The process was killed before it was the program: by the kernel, where exec had gone too far
    /// to return, or by somebody else.
    Killed {
        /// The signal.
        signal: i32,
        /// True if a core was dumped.
        core: bool,
    },
}

/// A new process, which executes its program once it is told to.
pub(crate) struct Starting<'a> {
    pub child: Child<'a>,
    ready: PipeWriter,
    report: PipeReader,
}

impl<'a> Starting<'a> {
    pub fn new(plan: &'a Plan) -> Result<Self, SpawnError> {
        let io =
            |error: std::io::Error| SpawnError::Trace(Errno(error.raw_os_error().unwrap_or(0)));
        let (ready_out, ready) = pipe().map_err(io)?;
        let (report, report_in) = pipe().map_err(io)?;
        let child = child::start(plan, ready_out.as_raw_fd(), report_in.as_raw_fd());
        Ok(Self { child: child.map_err(SpawnError::Trace)?, ready, report })
    }

    /// Has the process execute its program. One that has been killed reads nothing.
    pub fn go(&mut self) {
        let _ = self.ready.write_all(&[1]);
    }

    /// Waits until the process executes its program or has ended. Returns the error of exec, if
    /// that has failed.
    pub fn failure(&mut self) -> Option<Errno> {
        // Its end of the pipe is closed by exec.
        let mut error = [0; 4];
        self.report.read_exact(&mut error).ok().map(|()| Errno(i32::from_ne_bytes(error)))
    }
}

/// A variable and its value.
pub type Variable = (OsString, OsString);

/// Starts `program`, stopped at its exec event, in `environment` or else in ours. A limit on its
/// address space and data are raised by `room`.
///
/// # Errors
///
/// The kernel cannot make a process, or refuses to execute or to trace the program.
pub fn spawn(
    program: &OsStr,
    argv: &[impl AsRef<OsStr>],
    environment: Option<&[Variable]>,
    fixed_layout: bool,
    room: Room,
) -> Result<Tracee, SpawnError> {
    let plan = plan(program, argv, environment, fixed_layout, room)?;
    let mut starting = Starting::new(&plan)?;
    let tracee = Tracee(starting.child.pid);
    if let Err(error) = sys::seize(tracee.0, OPTIONS) {
        return Err(match sys::wait_now(tracee.0).map(|status| status.map(Stop::from_status)) {
            Ok(Some(Stop::Killed { signal, core })) => {
                starting.child.done();
                SpawnError::Killed { signal, core }
            }
            _ => SpawnError::Trace(error),
        });
    }
    starting.go();
    // One that has been killed cannot be continued.
    let go_on = |signal| match tracee.cont(signal) {
        Err(Errno::ESRCH) | Ok(()) => Ok(()),
        Err(error) => Err(SpawnError::Trace(error)),
    };
    loop {
        match tracee.wait().map_err(SpawnError::Trace)? {
            Stop::Exec => {
                starting.child.done();
                return Ok(tracee);
            }
            stop @ (Stop::Exited(_) | Stop::Killed { .. }) => {
                let failure = starting.failure();
                starting.child.done();
                return Err(match (failure, stop) {
                    (Some(error), _) => SpawnError::Exec(error),
                    (_, Stop::Killed { signal, core }) => SpawnError::Killed { signal, core },
                    _ => SpawnError::Exec(Errno(libc::EIO)),
                });
            }
            Stop::Signal(signal) => go_on(signal)?,
            _ => go_on(0)?,
        }
    }
}

/// Starts `program` without tracing it; its process id.
///
/// # Errors
///
/// The kernel cannot make a process, or refuses to execute the program.
pub fn untraced(
    program: &OsStr,
    argv: &[impl AsRef<OsStr>],
    environment: Option<&[Variable]>,
    fixed_layout: bool,
) -> Result<i32, SpawnError> {
    let plan = plan(program, argv, environment, fixed_layout, Room::default())?;
    start_untraced(&plan, |_| Ok(()))
}

/// Starts `program` in our environment without tracing it, after `prepare` has been called with its
/// process id; returns that. If `prepare` fails, nothing is executed.
///
/// # Errors
///
/// The kernel cannot make a process, or refuses to execute the program; and those of `prepare`.
pub fn prepared<E: From<SpawnError>>(
    program: &OsStr,
    argv: &[impl AsRef<OsStr>],
    prepare: impl FnOnce(i32) -> Result<(), E>,
) -> Result<i32, E> {
    let plan = plan(program, argv, None, false, Room::default())?;
    start_untraced(&plan, prepare)
}

fn start_untraced<E: From<SpawnError>>(
    plan: &Plan,
    prepare: impl FnOnce(i32) -> Result<(), E>,
) -> Result<i32, E> {
    let mut starting = Starting::new(plan)?;
    prepare(starting.child.pid)?;
    starting.go();
    match starting.failure() {
        Some(error) => Err(SpawnError::Exec(error).into()),
        None => Ok(starting.child.done()),
    }
}

pub(crate) fn plan(
    program: &OsStr,
    argv: &[impl AsRef<OsStr>],
    environment: Option<&[Variable]>,
    fixed_layout: bool,
    room: Room,
) -> Result<Plan, SpawnError> {
    let c_string = |s: &OsStr| CString::new(s.as_bytes()).map_err(|_| SpawnError::Nul);
    let ours: Vec<Variable>;
    let environment = match environment {
        Some(environment) => environment,
        None => {
            ours = std::env::vars_os().collect();
            &ours
        }
    };
    let variable = |(name, value): &Variable| {
        CString::new([name.as_bytes(), b"=", value.as_bytes()].concat())
            .map_err(|_| SpawnError::Nul)
    };
    Ok(Plan {
        program: c_string(program)?,
        argv: argv.iter().map(|arg| c_string(arg.as_ref())).collect::<Result<Vec<_>, _>>()?,
        envp: environment.iter().map(variable).collect::<Result<Vec<_>, _>>()?,
        fixed_layout,
        room,
    })
}

/// Takes over a live process: every thread of it, stopped.
///
/// Threads that a thread makes meanwhile are found too: the list is read until it does not change.
///
/// # Errors
///
/// The kernel refuses to trace a thread of the process.
pub fn attach(pid: i32) -> Result<Vec<Tracee>, Errno> {
    let mut taken: Vec<Tracee> = Vec::new();
    let complete = take_all(pid, &mut taken).and_then(|()| {
        // Whoever it makes until now is found among its threads, or is a process of its own.
        taken.iter().try_for_each(|thread| sys::set_options(thread.0, OPTIONS))
    });
    if complete.is_err() {
        let_go(&taken);
    }
    complete.map(|()| taken)
}

/// Lets threads go that have been attached to and stand still.
pub fn let_go(threads: &[Tracee]) {
    for thread in threads {
        let _ = sys::set_options(thread.0, 0);
    }
    // One that goes on may end the others by exec: they are not to take it along.
    for thread in threads {
        let _ = sys::detach(thread.0, 0);
    }
}

/// Stops the threads of a process, and those that they make meanwhile.
fn take_all(pid: i32, taken: &mut Vec<Tracee>) -> Result<(), Errno> {
    let mut lost = false;
    loop {
        let before = taken.len();
        let mut seized = Vec::new();
        for tid in threads_of(pid)? {
            if !taken.contains(&Tracee(tid)) && seize(tid, lost)? {
                seized.push(tid);
            }
        }
        // All at once: an ignored signal that a traced thread is sent wakes any other.
        let all: Vec<i32> = taken.iter().map(|thread| thread.0).chain(seized.clone()).collect();
        for tid in seized {
            match stop(tid, &all)? {
                true => taken.push(Tracee(tid)),
                false => lost = true,
            }
        }
        if taken.len() == before {
            break;
        }
    }
    // One of them may have executed another program, which has ended the rest.
    let left = threads_of(pid)?;
    taken.retain(|thread| left.contains(&thread.0));
    if taken.is_empty() { Err(Errno::ESRCH) } else { Ok(()) }
}

/// Begins to trace a thread. False if it has ended.
///
/// If one has been lost, it may be this one: it has executed a program, and has the first thread's
/// number since.
fn seize(tid: i32, lost: bool) -> Result<bool, Errno> {
    match sys::seize(tid, 0) {
        Ok(()) => Ok(true),
        Err(Errno::ESRCH) => Ok(false),
        Err(Errno(libc::EPERM)) if has_ended(tid) => Ok(false),
        Err(Errno(libc::EPERM)) if lost && is_taken(tid) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Stops a thread. False if it has ended.
///
/// Signals that are on their way are delivered before: a call that one of them ends would be made
/// again by a thread that is led elsewhere.
fn stop(tid: i32, all: &[i32]) -> Result<bool, Errno> {
    /// The most times that a signal is waited for: others may come as fast as they are taken.
    const MOST: u32 = 50;
    let mut waited = 0;
    loop {
        let stop = next_stop(tid, all)?;
        if let Some(stop) = stop {
            Tracee(tid).leave_call_to_kernel(stop);
        }
        match stop {
            None | Some(Stop::Exited(_) | Stop::Killed { .. }) => return Ok(false),
            // It is delivered, and has taken the place of the stop that was asked for.
            Some(Stop::Signal(signal)) => {
                let _ = sys::interrupt(tid);
                let _ = sys::cont(tid, signal);
            }
            Some(Stop::Interrupted) if waited < MOST && signals_are_due(tid) => {
                waited += 1;
                let _ = sys::cont(tid, 0);
                // The stop that is asked for next would come first.
                thread::sleep(BRIEF);
            }
            Some(_) => return Ok(true),
        }
    }
}

/// The time within which a thread that goes on takes a signal.
const BRIEF: Duration = Duration::from_micros(100);

/// Asks a thread to stop, and waits for that. `None` if it has ended, or is another one by now: if
/// another thread executes a program, it takes the first one's number.
///
/// A thread that executes a program ends `all` others, and stops once those are waited for.
fn next_stop(tid: i32, all: &[i32]) -> Result<Option<Stop>, Errno> {
    /// The number of looks after which a stop is asked for again.
    const LOOKS: u32 = 50;
    for look in 0.. {
        if look % LOOKS == 0 && sys::interrupt(tid) == Err(Errno::ESRCH) && has_ended(tid) {
            // Its status is told if others are left, or there were none.
            let status = sys::poll_one(tid).ok().flatten();
            return Ok(status.map(Stop::from_status));
        }
        if look % LOOKS == LOOKS - 1 {
            for &ended in all.iter().filter(|other| **other != tid && has_ended(**other)) {
                let _ = sys::poll_one(ended);
            }
        }
        match sys::poll_one(tid) {
            Ok(Some(status)) => return Ok(Some(Stop::from_status(status))),
            Ok(None) => thread::sleep(BRIEF),
            Err(Errno(libc::ECHILD)) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Returns whether a thread has ended: the first of a process is there until the last has.
fn has_ended(tid: i32) -> bool {
    let stat = kernel_files::text(tid, "stat").unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    matches!(state, None | Some('Z' | 'X'))
}

/// Returns whether this process traces a thread.
pub fn is_taken(tid: i32) -> bool {
    let status = kernel_files::text(tid, "status").unwrap_or_default();
    // It is a thread that traces.
    let tracer = field(&status, "TracerPid:").filter(|tracer| *tracer != "0");
    let ours = |tracer| std::fs::exists(format!("/proc/self/task/{tracer}")).unwrap_or(false);
    tracer.is_some_and(ours)
}

/// Returns whether signals wait for a thread that does not block them.
fn signals_are_due(tid: i32) -> bool {
    let status = kernel_files::text(tid, "status").unwrap_or_default();
    let set = |name| {
        let set = field(&status, name).and_then(|set| u64::from_str_radix(set, 16).ok());
        set.unwrap_or(0)
    };
    (set("SigPnd:") | set("ShdPnd:")) & !set("SigBlk:") != 0
}

/// The value of a line of a `status` file.
fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// The threads of a process.
///
/// # Errors
///
/// `ESRCH` if there is no such process.
pub fn threads_of(pid: i32) -> Result<Vec<i32>, Errno> {
    let entries = kernel_files::entries(pid, "task").map_err(|_| Errno::ESRCH)?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
}
