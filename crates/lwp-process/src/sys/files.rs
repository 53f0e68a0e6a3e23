//! Files of this process: leases, holes.

use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};

use super::{Errno, Result, check};

/// Has the kernel announce the breaking of leases on an open file by SIGURG, which is ignored,
/// instead of SIGIO.
fn announce_quietly(fd: RawFd) {
    /// Number of the request; libc has no name for it.
    const F_SETSIG: i32 = 10;
    // SAFETY: numbers only.
    unsafe { libc::fcntl(fd, F_SETSIG, libc::SIGURG) };
}

/// Takes a lease on an open file and gives it back: whether the kernel lets it be had.
///
/// Whoever opens the file meanwhile waits until the lease is given back; see [`announce_quietly`].
fn try_lease(fd: RawFd, kind: i32) -> Result<()> {
    // SAFETY: numbers only.
    unsafe {
        check(libc::fcntl(fd, libc::F_SETLEASE, kind).into())?;
        check(libc::fcntl(fd, libc::F_SETLEASE, libc::F_UNLCK).into()).map(drop)
    }
}

/// Returns whether any process has a file open for writing: the kernel grants no read lease then.
/// False if this process does not own the file, because it is granted no lease either.
///
/// `file` must be open for reading only.
pub fn is_open_for_writing(file: &File) -> bool {
    announce_quietly(file.as_raw_fd());
    try_lease(file.as_raw_fd(), libc::F_RDLCK) == Err(Errno(libc::EAGAIN))
}

/// Returns the offset of the next data of a sparse file, at or after `from`, if there are any.
pub fn next_data(fd: RawFd, from: u64) -> Option<u64> {
    // SAFETY: numbers only.
    let start = unsafe { libc::lseek(fd, from as i64, libc::SEEK_DATA) };
    u64::try_from(start).ok()
}

/// Returns the offset at which the data at `from` in a sparse file end: that of the next hole, or
/// the file's end. `None` if `from` is not before the file's end.
pub fn next_hole(fd: RawFd, from: u64) -> Option<u64> {
    // SAFETY: numbers only.
    let end = unsafe { libc::lseek(fd, from as i64, libc::SEEK_HOLE) };
    u64::try_from(end).ok()
}

/// Gives a range of a file back to the system; it reads as zeros.
pub fn punch_hole(fd: RawFd, from: u64, len: u64) {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: numbers only.
    unsafe { libc::fallocate(fd, mode, from as i64, len as i64) };
}
