//! Names for code that a program generates while it runs.
//!
//! [`register`] adds a line to the *perf map* of the process, `/tmp/perf-PID.map`: the list in
//! which `perf` and `lwp record` look for the names of code that is in no file. It needs no LWP.
//!
//! ```no_run
//! # fn compile() -> &'static [u8] { &[] }
//! let code: &[u8] = compile();
//! let start = code.as_ptr().addr();
//! lwp::code::register(start..start + code.len(), "query_17")?;
//! # Ok::<(), lwp::code::Error>(())
//! ```
//!
//! A profiler reads the list when the program has ended, or when it looks. There is no way to take
//! a name back; where the same address is named again, the later name is taken.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::fd::OwnedFd;
use rustix::fs::{FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;

mod birth;

/// The reason why a piece of code has not got its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The name is empty or has a control character, such as a line feed, which would end the line.
    #[error("a name of code must have characters, and none that control")]
    Name,
    /// There is no byte from start to end.
    #[error("the code has no bytes")]
    Empty,
    /// The file belongs to another user, has another name too, or is no regular file: somebody else
    /// has put it there.
    #[error("the list of generated code in /tmp is not this user's own file")]
    NotOurs,
    /// The system's refusal to open or write the file.
    #[error("the list of generated code: {0}")]
    File(Errno),
}

impl Error {
    /// The number that C calls this by, one of `errno`: EINVAL for name and code, EPERM for
    /// somebody else's file, and the system's own.
    pub fn errno(&self) -> i32 {
        let errno = match self {
            Self::Name | Self::Empty => Errno::INVAL,
            Self::NotOurs => Errno::PERM,
            Self::File(errno) => *errno,
        };
        errno.raw_os_error()
    }
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Self {
        Self::File(errno)
    }
}

/// The process that has added to its list. A child has another number, and so a list of its own.
static ADDED: AtomicI32 = AtomicI32::new(0);

/// Makes generated code known by `name` to profilers. `code` is the addresses of its bytes in this
/// process.
///
/// Any thread may call this at any time, also in a child of `fork`, which has a list of its own: it
/// begins empty. Each call opens, writes and closes the file: a name is there when the call
/// returns, and no descriptor stays behind. What an earlier process of the same number has left is
/// dropped.
///
/// # Errors
///
/// [`Error::Name`], [`Error::Empty`], [`Error::NotOurs`], and [`Error::File`] where the file cannot
/// be written; then nothing has changed, save that a full disk may leave the beginning of the line.
pub fn register(code: Range<usize>, name: impl AsRef<[u8]>) -> Result<(), Error> {
    let line = line(&code, name.as_ref())?;
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    let path = PathBuf::from(format!("/tmp/perf-{pid}.map"));
    if ADDED.load(Ordering::Acquire) == pid {
        return append(&open(&path)?.0, &line);
    }
    append_first(&path, &line, birth::of_this_process())?;
    ADDED.store(pid, Ordering::Release);
    Ok(())
}

/// `START SIZE NAME`, both numbers hexadecimal.
fn line(code: &Range<usize>, name: &[u8]) -> Result<Vec<u8>, Error> {
    if code.is_empty() {
        return Err(Error::Empty);
    }
    if name.is_empty() || name.iter().any(u8::is_ascii_control) {
        return Err(Error::Name);
    }
    let mut line = format!("{:x} {:x} ", code.start, code.len()).into_bytes();
    line.extend_from_slice(name);
    line.push(b'\n');
    Ok(line)
}

/// Opens the list, and says what it is. Everybody can write where it lies, so what is no file of
/// this user is not touched: no link is followed, and a pipe is not waited for.
fn open(path: &Path) -> Result<(OwnedFd, Stat), Error> {
    let flags = OFlags::WRONLY
        | OFlags::CREATE
        | OFlags::APPEND
        | OFlags::CLOEXEC
        | OFlags::NOFOLLOW
        | OFlags::NONBLOCK;
    let refused = |errno| match errno {
        // A link, a pipe or a socket; or a file of somebody else's, which the system keeps from us.
        Errno::LOOP | Errno::NXIO => Error::NotOurs,
        Errno::ACCESS if path.symlink_metadata().is_ok() => Error::NotOurs,
        errno => Error::File(errno),
    };
    let file = rustix::fs::open(path, flags, Mode::from_raw_mode(0o644)).map_err(refused)?;
    let stat = rustix::fs::fstat(&file)?;
    let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    // With another name it may be any file of this user's.
    if !regular || stat.st_nlink != 1 || stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err(Error::NotOurs);
    }
    Ok((file, stat))
}

/// Adds the line as one write: appending writes do not come between each other.
fn append(file: &OwnedFd, line: &[u8]) -> Result<(), Error> {
    match rustix::io::write(file, line)? {
        written if written == line.len() => Ok(()),
        _ => Err(Error::File(Errno::NOSPC)),
    }
}

/// Adds the process's first line, after what is older than the process has been dropped. Threads
/// that do this at the same time wait for each other; the second finds a file that is new.
fn append_first(path: &Path, line: &[u8], birth: Option<birth::Time>) -> Result<(), Error> {
    let (file, _) = open(path)?;
    rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
    let written = drop_older(&file, birth).and_then(|()| append(&file, line));
    // A child that is forked now has the file too, and would keep it locked.
    rustix::fs::flock(&file, FlockOperation::Unlock)?;
    written
}

fn drop_older(file: &OwnedFd, birth: Option<birth::Time>) -> Result<(), Error> {
    let stat = rustix::fs::fstat(file)?;
    let changed = (stat.st_mtime, stat.st_mtime_nsec);
    if birth.is_some_and(|birth| changed < birth) {
        rustix::fs::ftruncate(file, 0)?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "code_tests.rs"]
mod tests;
