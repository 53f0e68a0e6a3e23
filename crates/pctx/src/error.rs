//! The reason why a process could not be taken under control.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use lwp_process::Errno;
use lwp_process::spawn::SpawnError;

use crate::Pid;

/// The reason why a process could not be taken under control.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No file of this name.
    #[error("{}: not found", .0.display())]
    NotFound(OsString),
    /// The file cannot be executed.
    #[error("{}: cannot be executed: {cause}", program.display())]
    NotExecutable {
        /// The program.
        program: OsString,
        /// The kernel's reason.
        cause: Errno,
    },
    /// An argument contains a NUL byte.
    #[error("{}: an argument contains a NUL byte", .0.display())]
    Nul(OsString),
    /// No such process.
    #[error("no process {0}")]
    NoProcess(Pid),
    /// The process has ended, and its parent has not waited for it.
    #[error("process {0} has ended: it is a zombie")]
    Zombie(Pid),
    /// The process is traced by someone else.
    #[error("process {pid} is traced already, by process {tracer}")]
    Traced {
        /// The process.
        pid: Pid,
        /// The process that traces it.
        tracer: Pid,
    },
    /// The process is another user's, privileged, or protected by the system.
    #[error(
        "no permission to control process {0}: it is another user's or privileged, or \
             kernel.yama.ptrace_scope forbids it"
    )]
    Permission(Pid),
    /// A kernel thread.
    #[error("process {0} is a part of the kernel")]
    KernelThread(Pid),
    /// The process isn't on the virtual CPU, but this program is.
    #[error(
        "process {0} is not on the virtual CPU: a program there controls only programs of its own \
             run; control it from outside"
    )]
    Outside(Pid),
    /// To follow the child, it would have to make a system call, which its filter or its being a
    /// 32-bit program prevents.
    #[error(
        "process {0} filters its system calls (seccomp) or is a 32-bit program, and \
             kernel.yama.ptrace_scope demands a call of it: be root, or set that to 0"
    )]
    Filtered(Pid),
    /// The child can't be kept from executing its own code while it passes to the next tracer.
    #[error(
        "process {0} filters its system calls (seccomp) or is a 32-bit program, and has no code in \
             which it could wait"
    )]
    Sleepless(Pid),
    /// This process has other threads, so it must not copy itself to follow a child; see
    /// [`Copies::allow_with_threads`](crate::Copies::allow_with_threads).
    #[error("a process with several threads cannot follow forks")]
    Threads,
    /// A process cannot control itself.
    #[error("a process cannot control itself")]
    Ourselves,
    /// Only the thread that made a [`Pctx`](crate::Pctx) can use it.
    #[error("process {0} is controlled by another thread: only the one that made the context can")]
    OtherThread(Pid),
    /// The system refused for another reason.
    #[error("the system refuses: {0}")]
    System(Errno),
}

impl Error {
    pub(crate) fn from_spawn(program: &OsStr, error: SpawnError) -> Self {
        let program = program.to_owned();
        match error {
            SpawnError::Exec(Errno(libc::ENOENT)) => Self::NotFound(program),
            SpawnError::Exec(cause) => Self::NotExecutable { program, cause },
            SpawnError::Killed { .. } => Self::NotExecutable { program, cause: Errno(libc::EIO) },
            SpawnError::Nul => Self::Nul(program),
            SpawnError::Trace(error) => Self::System(error),
        }
    }

    /// Returns the meaning of a refused seizure, by what the process says about itself.
    pub(crate) fn from_attach(pid: Pid, error: Errno) -> Self {
        let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else {
            return Self::NoProcess(pid);
        };
        if field(&status, "State:").is_some_and(|state| state.starts_with(['Z', 'X'])) {
            return Self::Zombie(pid);
        }
        let tracer = field(&status, "TracerPid:").and_then(|tracer| tracer.parse().ok());
        match tracer {
            Some(tracer) if tracer != 0 => Self::Traced { pid, tracer },
            _ if field(&status, "VmSize:").is_none() => Self::KernelThread(pid),
            _ if error.0 == libc::EPERM || error.0 == libc::EACCES => Self::Permission(pid),
            _ => Self::System(error),
        }
    }

    /// The `errno` value that the C library `libpctx` reports for this error.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::NotFound(_) => libc::ENOENT,
            Self::NotExecutable { cause, .. } | Self::System(cause) => cause.0,
            Self::Nul(_) | Self::Ourselves | Self::OtherThread(_) => libc::EINVAL,
            Self::NoProcess(_) | Self::Zombie(_) => libc::ESRCH,
            Self::Traced { .. } | Self::Threads => libc::EBUSY,
            Self::Permission(_) | Self::KernelThread(_) | Self::Outside(_) => libc::EPERM,
            Self::Filtered(_) | Self::Sleepless(_) => libc::EPERM,
        }
    }
}

/// The value of a line of a status file.
pub(crate) fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// Finds `program` as a shell does: in `PATH` unless its name has a slash.
///
/// ```
/// let shell = pctx::find_program("sh".as_ref())?;
/// assert!(shell.ends_with("sh"));
/// # Ok::<(), pctx::Error>(())
/// ```
///
/// # Errors
///
/// [`Error::NotFound`] if there is no such program, and [`Error::NotExecutable`] if it may not be
/// executed.
pub fn find_program(program: &OsStr) -> Result<PathBuf, Error> {
    if program.as_bytes().contains(&b'/') {
        return match refusal(Path::new(program)) {
            None => Ok(program.into()),
            Some(Errno(libc::ENOENT)) => Err(Error::NotFound(program.into())),
            Some(cause) => Err(Error::NotExecutable { program: program.into(), cause }),
        };
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let mut denied = None;
    for folder in std::env::split_paths(&path) {
        let file = folder.join(program);
        let file = if folder.as_os_str().is_empty() { Path::new(".").join(program) } else { file };
        if refusal(&file).is_none() {
            return Ok(file);
        }
        denied = denied.or(file.is_file().then_some(file));
    }
    // The kernel says what is wrong with a file that is there.
    denied.ok_or_else(|| Error::NotFound(program.into()))
}

/// Returns the reason, if it can be seen, for which nobody may execute `file`.
fn refusal(file: &Path) -> Option<Errno> {
    match fs::metadata(file) {
        Ok(metadata) if metadata.is_file() && metadata.permissions().mode() & 0o111 != 0 => None,
        Ok(_) => Some(Errno(libc::EACCES)),
        Err(error) => Some(Errno(error.raw_os_error().unwrap_or(libc::EIO))),
    }
}
