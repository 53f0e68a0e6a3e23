//! A tracee's memory and its descriptors.

use std::fs::File;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use super::{Errno, Result, check};
use crate::missing_pages;

/// process_vm_readv, or what does the same where that is refused; returns how many bytes were read.
///
/// # Errors
///
/// The kernel's; `EFAULT` if nothing is mapped there, `EAGAIN` if the program has yet to fill it.
pub fn read_memory(tid: i32, address: u64, buffer: &mut [u8]) -> Result<usize> {
    let buffer = match missing_pages::reach(tid, address, buffer.len()) {
        0 if !buffer.is_empty() => return Err(Errno(libc::EAGAIN)),
        reach => &mut buffer[..reach],
    };
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let remote = libc::iovec { iov_base: address as *mut _, iov_len: buffer.len() };
    // SAFETY: `local` describes the borrowed buffer; the remote address is only used in the tracee.
    let n = unsafe { libc::process_vm_readv(tid, &raw const local, 1, &raw const remote, 1, 0) };
    match check(n as i64) {
        Err(Errno(libc::EPERM | libc::ENOSYS)) => {
            memory_file(tid, false)?.read_at(buffer, address).map_err(errno)
        }
        read => Ok(read? as usize),
    }
}

/// Reads a piece of a tracee at each of these addresses, by one call. Returns how many could be
/// read before one that cannot; the others are as they were.
pub fn read_pieces<const N: usize>(tid: i32, addresses: &[u64], pieces: &mut [[u8; N]]) -> usize {
    let there = addresses.iter().copied();
    let there = there.take_while(|address| missing_pages::reach(tid, *address, N) == N);
    read_each(tid, there, pieces)
}

/// Reads pieces as [`read_pieces`] does, of no more addresses than a call takes, if nothing is
/// missing at them.
fn read_each<const N: usize>(
    tid: i32,
    addresses: impl Iterator<Item = u64>,
    pieces: &mut [[u8; N]],
) -> usize {
    let remote = |address: u64| libc::iovec { iov_base: address as *mut _, iov_len: N };
    let remote: Vec<libc::iovec> = addresses.map(remote).take(pieces.len()).collect();
    let local = libc::iovec { iov_base: pieces.as_mut_ptr().cast(), iov_len: size_of_val(pieces) };
    let count = remote.len() as libc::c_ulong;
    // SAFETY: `local` describes the borrowed pieces; the remote addresses are only used in the
    // tracee.
    let n = unsafe { libc::process_vm_readv(tid, &raw const local, 1, remote.as_ptr(), count, 0) };
    check(n as i64).map_or(0, |n| n as usize / N)
}

/// Has the kernel map what lies at these addresses of a tracee, each as if the tracee had read
/// there: of a file, that brings neighbouring pages along, and none of them faults any more. What
/// cannot be had stays as it is.
pub fn map_pages(tid: i32, addresses: &[u64]) {
    /// IOV_MAX, of which there is no constant.
    const MOST: usize = 1024;
    for some in addresses.chunks(MOST) {
        let there = some.iter().copied();
        let there = there.filter(|address| missing_pages::first(tid, *address, 1).is_none());
        read_each(tid, there, &mut [[0; 1]; MOST]);
    }
}

/// The memory of a tracee as a file: for who may trace, but whom a filter forbids the calls that
/// are faster.
#[expect(clippy::disallowed_methods, reason = "the path is one of the kernel's, with a number")]
fn memory_file(tid: i32, write: bool) -> Result<File> {
    File::options().read(!write).write(write).open(format!("/proc/{tid}/mem")).map_err(errno)
}

fn errno(error: std::io::Error) -> Errno {
    Errno(error.raw_os_error().unwrap_or(libc::EIO))
}

/// process_vm_writev, or what does nearly the same where that is refused: it also writes where the
/// tracee may not; returns how many bytes were written.
///
/// # Errors
///
/// The kernel's; `EFAULT` if nothing can be written there, `EAGAIN` if the program has yet to fill
/// it.
pub fn write_memory(tid: i32, address: u64, buffer: &[u8]) -> Result<usize> {
    let buffer = match missing_pages::reach(tid, address, buffer.len()) {
        0 if !buffer.is_empty() => return Err(Errno(libc::EAGAIN)),
        reach => &buffer[..reach],
    };
    let local = libc::iovec { iov_base: buffer.as_ptr().cast_mut().cast(), iov_len: buffer.len() };
    let remote = libc::iovec { iov_base: address as *mut _, iov_len: buffer.len() };
    // SAFETY: `local` describes the borrowed buffer, which the kernel only reads.
    let n = unsafe { libc::process_vm_writev(tid, &raw const local, 1, &raw const remote, 1, 0) };
    match check(n as i64) {
        Err(Errno(libc::EPERM | libc::ENOSYS)) => {
            memory_file(tid, true)?.write_at(buffer, address).map_err(errno)
        }
        written => Ok(written? as usize),
    }
}

/// Returns the time that a socket of process `pid` waits to receive, or to send (SO_RCVTIMEO,
/// SO_SNDTIMEO); `None` if that is not limited, if it is no socket, or if it cannot be read.
pub fn socket_timeout(pid: i32, descriptor: RawFd, receives: bool) -> Option<Duration> {
    let option = if receives { libc::SO_RCVTIMEO } else { libc::SO_SNDTIMEO };
    let zero = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let time = socket_option(pid, descriptor, option, zero)?;
    let time = Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    (!time.is_zero()).then_some(time)
}

/// Returns whether a descriptor of process `pid` is known to be a socket of this machine (AF_UNIX).
pub fn is_local_socket(pid: i32, descriptor: RawFd) -> bool {
    let domain = socket_option(pid, descriptor, libc::SO_DOMAIN, libc::AF_UNSPEC);
    domain == Some(libc::AF_UNIX)
}

/// Returns an option of a socket of process `pid`, of which `value` is of the type.
fn socket_option<T: Copy>(
    pid: i32,
    descriptor: RawFd,
    option: libc::c_int,
    mut value: T,
) -> Option<T> {
    let owned = |fd: libc::c_long| {
        // SAFETY: the descriptor is new and owned by nobody else.
        check(fd).ok().map(|fd| unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
    };
    // SAFETY: numbers only.
    let process = owned(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    let raw = process.as_raw_fd();
    // SAFETY: numbers only.
    let socket = owned(unsafe { libc::syscall(libc::SYS_pidfd_getfd, raw, descriptor, 0) })?;
    let mut size = size_of::<T>() as libc::socklen_t;
    let place = (&raw mut value).cast();
    // SAFETY: the value and its size live through the call, which writes plain numbers.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, place, &raw mut size)
    };
    check(result.into()).ok()?;
    Some(value)
}

/// Sends one byte and `descriptor` through a socket (SCM_RIGHTS, unix(7)), or fails at once if the
/// socket is full: whoever else has it may have filled it.
///
/// # Errors
///
/// The kernel's.
pub fn send_descriptor(stream: BorrowedFd<'_>, descriptor: RawFd) -> Result<()> {
    let mut byte = 0u8;
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // Length, level and kind of the message, and the descriptor, as cmsg(3) lays them out.
    let level_and_kind = libc::SOL_SOCKET as u64 | (libc::SCM_RIGHTS as u64) << 32;
    let mut control = [20, level_and_kind, descriptor as u64];
    // SAFETY: the structure is plain numbers and pointers, for which zero is a value.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: all that the message points to lives through the call.
    let sent = unsafe { libc::sendmsg(stream.as_raw_fd(), &raw const message, flags) };
    check(sent as i64).map(drop)
}
