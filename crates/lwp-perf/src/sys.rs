//! System calls that no safe interface offers: perf_event_open and the ioctls of its descriptors.
//!
//! # Safety
//!
//! JUSTIFICATION: neither std nor rustix has perf_event_open. Pointers are passed to live
//! structures of the size the kernel is told; everything else is a number. The descriptors are
//! owned, and an event writes into no memory of this process but the mapping in `mmap.rs`.
#![allow(unsafe_code, reason = "the system call boundary; see the module's safety section")]

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::Errno;

use crate::attr::Attr;
use crate::kernel::Control;

/// `_IO('$', nr)` and `_IOW('$', 4, u64)`.
///
/// Spec: perf_event.h, `PERF_EVENT_IOC_*`.
mod ioc {
    pub const ENABLE: u64 = 0x2400;
    pub const DISABLE: u64 = 0x2401;
    pub const REFRESH: u64 = 0x2402;
    pub const RESET: u64 = 0x2403;
    pub const PERIOD: u64 = 0x4008_2404;
    pub const SET_OUTPUT: u64 = 0x2405;
    pub const FLAG_GROUP: u64 = 1;
}

const FLAG_FD_CLOEXEC: u64 = 8;

fn last() -> Errno {
    let error = std::io::Error::last_os_error();
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

fn check(value: i64) -> Result<i64, Errno> {
    if value == -1 { Err(last()) } else { Ok(value) }
}

/// perf_event_open(2), closed on exec.
pub fn perf_event_open(attr: &Attr, pid: i32, cpu: i32, leader: RawFd) -> Result<OwnedFd, Errno> {
    let attr = &raw const *attr;
    // SAFETY: the structure lives through the call and holds its own size; the kernel reads that
    // much.
    let fd = check(unsafe {
        libc::syscall(libc::SYS_perf_event_open, attr, pid, cpu, leader, FLAG_FD_CLOEXEC)
    })?;
    let fd = RawFd::try_from(fd).map_err(|_| Errno::BADF)?;
    // SAFETY: the descriptor is new and owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Carries out `control` on the event `fd`.
pub fn control(fd: &OwnedFd, control: Control) -> Result<(), Errno> {
    let flag = |group: bool| if group { ioc::FLAG_GROUP } else { 0 };
    let (request, argument) = match control {
        Control::Enable { group } => (ioc::ENABLE, flag(group)),
        Control::Disable { group } => (ioc::DISABLE, flag(group)),
        Control::Reset { group } => (ioc::RESET, flag(group)),
        Control::Refresh(overflows) => (ioc::REFRESH, u64::from(overflows)),
        Control::Output(ring) => (ioc::SET_OUTPUT, ring as u64),
        Control::Notify { signal, tid } => return notify(fd, signal, tid),
        Control::Period(period) => {
            // SAFETY: the request reads eight bytes through the pointer, which lives through the
            // call.
            let done = unsafe { libc::ioctl(fd.as_raw_fd(), ioc::PERIOD, &raw const period) };
            return check(i64::from(done)).map(drop);
        }
    };
    // SAFETY: these requests take a number.
    check(i64::from(unsafe { libc::ioctl(fd.as_raw_fd(), request, argument) })).map(drop)
}

/// Sends `signal` to `tid` whenever the event overflows.
fn notify(fd: &OwnedFd, signal: i32, tid: i32) -> Result<(), Errno> {
    /// `F_OWNER_TID`: the owner is a thread.
    const OWNER_TID: i32 = 0;
    /// `struct f_owner_ex`.
    #[repr(C)]
    struct Owner {
        kind: i32,
        pid: i32,
    }
    /// `F_SETSIG` and `F_SETOWN_EX`.
    const SET_SIGNAL: i32 = 10;
    const SET_OWNER_EX: i32 = 15;
    let owner = Owner { kind: OWNER_TID, pid: tid };
    let fd = fd.as_raw_fd();
    // SAFETY: the owner structure lives through the call; the others take numbers.
    unsafe {
        check(i64::from(libc::fcntl(fd, SET_OWNER_EX, &raw const owner)))?;
        check(i64::from(libc::fcntl(fd, SET_SIGNAL, signal)))?;
        let flags = check(i64::from(libc::fcntl(fd, libc::F_GETFL)))? as i32;
        check(i64::from(libc::fcntl(fd, libc::F_SETFL, flags | libc::O_ASYNC)))?;
    }
    Ok(())
}
