//! The *perf map* of the process, `/tmp/perf-PID.map`: names for generated code.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::fd::OwnedFd;
use rustix::fs::{FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::error::Error;

mod process_start;

/// The process that has added to its list. A child has another number, and so a list of its own.
static ADDED: AtomicI32 = AtomicI32::new(0);

/// Tells profilers the name of generated code. `code` holds the addresses of its bytes in this
/// process.
///
/// This adds a line to the *perf map* of the process, `/tmp/perf-PID.map`, in which `perf` and
/// `lwp record` look up code that is in no file. It needs no LWP and works under any profiler.
/// Names cannot be removed; if an address is named twice, the later name wins.
///
/// Any thread may call this at any time. A child of `fork` starts an empty list of its own. Each
/// call opens, writes and closes the file, so the name is there when the call returns. The first
/// call drops names that an earlier process with the same number left behind.
///
/// ```no_run
/// # fn compile() -> &'static [u8] { &[] }
/// let code: &[u8] = compile();
/// let start = code.as_ptr().addr();
/// lwp::register_code(start..start + code.len(), "query_17")?;
/// # Ok::<(), lwp::Error>(())
/// ```
///
/// # Errors
///
/// [`Error::CodeName`] for a name that is empty or has a control character, [`Error::CodeEmpty`]
/// for an empty range, [`Error::PerfMapNotOwned`] if the file is not this user's, and
/// [`Error::PerfMap`] if it can't be written. An error leaves the file unchanged, except that a
/// full disk may leave the beginning of the line there.
pub fn register_code(code: Range<usize>, name: impl AsRef<[u8]>) -> Result<(), Error> {
    let line = line(&code, name.as_ref())?;
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    let path = PathBuf::from(format!("/tmp/perf-{pid}.map"));
    if ADDED.load(Ordering::Acquire) == pid {
        return append(&open(&path)?.0, &line);
    }
    append_first(&path, &line, process_start::of_this_process())?;
    ADDED.store(pid, Ordering::Release);
    Ok(())
}

/// `START SIZE NAME`, both numbers hexadecimal.
fn line(code: &Range<usize>, name: &[u8]) -> Result<Vec<u8>, Error> {
    if code.is_empty() {
        return Err(Error::CodeEmpty);
    }
    if name.is_empty() || name.iter().any(u8::is_ascii_control) {
        return Err(Error::CodeName);
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
        Errno::LOOP | Errno::NXIO => Error::PerfMapNotOwned,
        Errno::ACCESS if path.symlink_metadata().is_ok() => Error::PerfMapNotOwned,
        errno => Error::PerfMap(errno),
    };
    let file = rustix::fs::open(path, flags, Mode::from_raw_mode(0o644)).map_err(refused)?;
    let stat = rustix::fs::fstat(&file).map_err(Error::PerfMap)?;
    let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    // With another name it may be any file of this user's.
    if !regular || stat.st_nlink != 1 || stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err(Error::PerfMapNotOwned);
    }
    Ok((file, stat))
}

/// Adds the line as one write: appending writes do not come between each other.
fn append(file: &OwnedFd, line: &[u8]) -> Result<(), Error> {
    match rustix::io::write(file, line).map_err(Error::PerfMap)? {
        written if written == line.len() => Ok(()),
        _ => Err(Error::PerfMap(Errno::NOSPC)),
    }
}

/// Adds the process's first line, after what is older than the process has been dropped. Threads
/// that do this at the same time wait for each other; the second finds a file that is new.
fn append_first(
    path: &Path,
    line: &[u8],
    started: Option<process_start::Time>,
) -> Result<(), Error> {
    let (file, _) = open(path)?;
    rustix::fs::flock(&file, FlockOperation::LockExclusive).map_err(Error::PerfMap)?;
    let written = drop_older(&file, started).and_then(|()| append(&file, line));
    // A child that is forked now has the file too, and would keep it locked.
    rustix::fs::flock(&file, FlockOperation::Unlock).map_err(Error::PerfMap)?;
    written
}

fn drop_older(file: &OwnedFd, started: Option<process_start::Time>) -> Result<(), Error> {
    let stat = rustix::fs::fstat(file).map_err(Error::PerfMap)?;
    let changed = (stat.st_mtime, stat.st_mtime_nsec);
    if started.is_some_and(|started| changed < started) {
        rustix::fs::ftruncate(file, 0).map_err(Error::PerfMap)?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "perf_map_tests.rs"]
mod tests;
