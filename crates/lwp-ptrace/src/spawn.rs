//! Starting a program as a tracee.

use std::ffi::{CString, OsStr, OsString};
use std::io::{Read, Write, pipe};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;

use crate::child::{self, Plan};
use crate::stop::Stop;
use crate::sys::{self, Errno};
use crate::tracee::{OPTIONS, Tracee};

/// Why a program could not be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpawnError {
    /// A name, argument or variable contains a NUL byte.
    Nul,
    /// The machine refuses to let us fork or trace.
    Trace(Errno),
    /// exec failed.
    Exec(Errno),
    /// The process was killed before it was the program: by the kernel, where exec had gone too far to return,
    /// or by somebody else.
    Killed {
        /// The signal.
        signal: i32,
        /// Whether a core was dumped.
        core: bool,
    },
}

/// A variable and its value.
pub type Variable = (OsString, OsString);

/// Starts `program`, stopped at its exec event, in `environment` or else in ours. A limit on its address space
/// is raised by `address_space` bytes.
pub fn spawn(
    program: &OsStr,
    argv: &[impl AsRef<OsStr>],
    environment: Option<&[Variable]>,
    fixed_layout: bool,
    address_space: u64,
) -> Result<Tracee, SpawnError> {
    let plan = plan(program, argv, environment, fixed_layout, address_space)?;
    let io = |error: std::io::Error| SpawnError::Trace(Errno(error.raw_os_error().unwrap_or(0)));
    let (ready_out, mut ready_in) = pipe().map_err(io)?;
    let (mut report_out, report_in) = pipe().map_err(io)?;
    let child = child::start(&plan, ready_out.as_raw_fd(), report_in.as_raw_fd())
        .map_err(SpawnError::Trace)?;
    drop(report_in);
    drop(ready_out);
    let tracee = Tracee(child.pid);
    if let Err(error) = sys::seize(child.pid, OPTIONS) {
        return Err(match sys::wait_now(child.pid).map(|status| status.map(Stop::from_status)) {
            Ok(Some(Stop::Killed { signal, core })) => {
                child.done();
                SpawnError::Killed { signal, core }
            }
            _ => SpawnError::Trace(error),
        });
    }
    // One that has been killed reads nothing; the loop tells.
    let _ = ready_in.write_all(&[1]);
    // Nor can it be continued.
    let go_on = |signal| match tracee.cont(signal) {
        Err(Errno::ESRCH) | Ok(()) => Ok(()),
        Err(error) => Err(SpawnError::Trace(error)),
    };
    loop {
        match tracee.wait().map_err(SpawnError::Trace)? {
            Stop::Exec => {
                child.done();
                return Ok(tracee);
            }
            stop @ (Stop::Exited(_) | Stop::Killed { .. }) => {
                child.done();
                let mut error = [0; 4];
                return Err(match (report_out.read_exact(&mut error), stop) {
                    (Ok(()), _) => SpawnError::Exec(Errno(i32::from_ne_bytes(error))),
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
pub fn untraced(
    program: &OsStr,
    argv: &[impl AsRef<OsStr>],
    environment: Option<&[Variable]>,
    fixed_layout: bool,
) -> Result<i32, SpawnError> {
    let plan = plan(program, argv, environment, fixed_layout, 0)?;
    let io = |error: std::io::Error| SpawnError::Trace(Errno(error.raw_os_error().unwrap_or(0)));
    let (ready_out, mut ready_in) = pipe().map_err(io)?;
    let (mut report_out, report_in) = pipe().map_err(io)?;
    ready_in.write_all(&[1]).map_err(io)?;
    let child = child::start(&plan, ready_out.as_raw_fd(), report_in.as_raw_fd())
        .map_err(SpawnError::Trace)?;
    drop(report_in);
    // Its end of the pipe is closed by exec.
    let mut error = [0; 4];
    if report_out.read_exact(&mut error).is_ok() {
        return Err(SpawnError::Exec(Errno(i32::from_ne_bytes(error))));
    }
    Ok(child.done())
}

pub(crate) fn plan(
    program: &OsStr,
    argv: &[impl AsRef<OsStr>],
    environment: Option<&[Variable]>,
    fixed_layout: bool,
    address_space: u64,
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
        address_space,
    })
}

/// Takes over a live process: every thread of it, stopped.
///
/// Threads that a thread makes meanwhile are found too: the list is read until it does not change.
pub fn attach(pid: i32) -> Result<Vec<Tracee>, Errno> {
    let mut taken: Vec<Tracee> = Vec::new();
    loop {
        let before = taken.len();
        for tid in threads_of(pid)? {
            if taken.contains(&Tracee(tid)) {
                continue;
            }
            match sys::seize(tid, OPTIONS) {
                Ok(()) => {}
                // It has ended, or its maker's seizing has brought it along.
                Err(Errno(libc::ESRCH)) => continue,
                Err(Errno(libc::EPERM)) if !taken.is_empty() => {}
                Err(error) => return Err(error),
            }
            let _ = sys::interrupt(tid);
            match Tracee(tid).wait()? {
                Stop::Exited(_) | Stop::Killed { .. } => continue,
                _ => taken.push(Tracee(tid)),
            }
        }
        if taken.len() == before {
            return if taken.is_empty() { Err(Errno::ESRCH) } else { Ok(taken) };
        }
    }
}

fn threads_of(pid: i32) -> Result<Vec<i32>, Errno> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task")).map_err(|_| Errno::ESRCH)?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
}
