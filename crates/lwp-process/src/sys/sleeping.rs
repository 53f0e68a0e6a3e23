//! Sleeping and waking: futexes, event descriptors, and descriptors that become readable.

use std::mem::zeroed;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use super::{Errno, Result, check};

/// Sleeps until `fd` becomes readable or the time is up.
pub fn wait_readable(fd: &OwnedFd, timeout: Option<Duration>) {
    wait_either_readable(fd, None, timeout);
}

/// Sleeps until `fd` or `other` becomes readable, or the time is up.
pub fn wait_either_readable(
    fd: &OwnedFd,
    other: Option<BorrowedFd<'_>>,
    timeout: Option<Duration>,
) {
    wait(fd, other, timeout, std::ptr::null());
}

/// Sleeps until `fd` or `other` becomes readable, with another mask of blocked signals, which is
/// null or lives as long as the call. Says which of the two are readable.
pub(super) fn wait(
    fd: &OwnedFd,
    other: Option<BorrowedFd<'_>>,
    timeout: Option<Duration>,
    mask: *const libc::sigset_t,
) -> [bool; 2] {
    // A negative descriptor is passed over.
    let other = other.map_or(-1, |other| other.as_raw_fd());
    let poll = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut poll = [poll(fd.as_raw_fd()), poll(other)];
    let time = timeout.map(timespec);
    let time = time.as_ref().map_or(std::ptr::null(), |time| &raw const *time);
    // SAFETY: `poll` and `time` live through the call, and so does what `mask` points to.
    unsafe { libc::ppoll(poll.as_mut_ptr(), 2, time, mask) };
    poll.map(|it| it.revents & libc::POLLIN != 0)
}

pub(super) fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: duration.as_secs() as i64,
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

/// Wakes one sleeper on a shared futex word.
pub fn futex_wake(word: &std::sync::atomic::AtomicU32) {
    // SAFETY: FUTEX_WAKE uses the address as a key; it is that of a live word.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
}

/// Sleeps while `word` is `value`, at most for `timeout`.
pub fn futex_wait(word: &std::sync::atomic::AtomicU32, value: u32, timeout: Option<Duration>) {
    let time = timeout.map(timespec);
    let time = time.as_ref().map_or(std::ptr::null(), |time| &raw const *time);
    // SAFETY: the word and the time live through the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, time) };
}

/// Most words that [`futex_wait_any`] takes.
pub const FUTEX_WAITV_MAX: usize = 128;

/// Sleeps while all of `words`, at most [`FUTEX_WAITV_MAX`], are `value`, at most for `timeout`.
/// False where the kernel knows no such call (before version 5.16), or a filter refuses it.
pub fn futex_wait_any(
    words: &[&std::sync::atomic::AtomicU32],
    value: u32,
    timeout: Duration,
) -> bool {
    #[repr(C)]
    struct Waiter {
        value: u64,
        address: u64,
        flags: u32,
        reserved: u32,
    }
    const FUTEX_32: u32 = 2;
    let waiter = |word: &&std::sync::atomic::AtomicU32| Waiter {
        value: value.into(),
        address: word.as_ptr() as u64,
        flags: FUTEX_32,
        reserved: 0,
    };
    let waiters: Vec<Waiter> = words.iter().map(waiter).collect();
    // SAFETY: the structure is plain numbers, for which zero is a value, and lives through the
    // call.
    let until = unsafe {
        let mut now: libc::timespec = zeroed();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now);
        let nanos = now.tv_nsec + i64::from(timeout.subsec_nanos());
        libc::timespec {
            tv_sec: now.tv_sec + timeout.as_secs() as i64 + nanos / 1_000_000_000,
            tv_nsec: nanos % 1_000_000_000,
        }
    };
    let count = waiters.len() as libc::c_uint;
    // SAFETY: list and time live through the call, and the list is as long as said; its addresses
    // are those of live words.
    let result = unsafe {
        let (list, until) = (waiters.as_ptr(), &raw const until);
        libc::syscall(libc::SYS_futex_waitv, list, count, 0, until, libc::CLOCK_MONOTONIC)
    };
    !matches!(check(result), Err(Errno(libc::ENOSYS | libc::EPERM | libc::EINVAL)))
}

/// An eventfd, non-blocking and closed on exec.
///
/// # Errors
///
/// The kernel's.
pub fn event_fd() -> Result<OwnedFd> {
    // SAFETY: two numbers.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    check(i64::from(fd))?;
    // SAFETY: the descriptor is new and owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Adds one to an eventfd.
pub fn event_signal(fd: &OwnedFd) {
    let one = 1u64.to_ne_bytes();
    // SAFETY: eight bytes of a live array.
    unsafe { libc::write(fd.as_raw_fd(), one.as_ptr().cast(), 8) };
}

/// Resets an eventfd.
pub fn event_clear(fd: &OwnedFd) {
    let mut value = [0u8; 8];
    // SAFETY: eight bytes of a live array.
    unsafe { libc::read(fd.as_raw_fd(), value.as_mut_ptr().cast(), 8) };
}
