//! Notice of writes to a tracee's pages, by userfaultfd(2).
//!
//! A page that is protected so stays writable for the program. Its first write waits until whoever
//! holds the descriptor has lifted the protection; [`Reach`] says whether that holds for the writes
//! that the kernel makes for system calls too. Nothing of it shows in the program's memory map but
//! the flag `uw` in `/proc/PID/smaps`.
//!
//! # Safety
//!
//! JUSTIFICATION: nothing else tells of a write before it happens without a signal in the program.
//!
//! The calls here pass numbers, and pointers to plain structures of the kernel's interface that
//! live as long as the call. The addresses in them are the tracee's.
#![allow(unsafe_code, reason = "ioctl(2) on a userfaultfd; see the module's safety section")]

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::sys::{Errno, Result};
use crate::tracee::Tid;

/// The system call's number, for a tracee to make it.
pub const SYS_USERFAULTFD: u64 = 323;
/// O_CLOEXEC and O_NONBLOCK.
const FLAGS: u64 = 0o2_000_000 | 0o4000;
const USER_MODE_ONLY: u64 = 1;

/// The writes that wait for the holder of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// All of them.
    All,
    /// Those of programs. The kernel's own writes to a protected page fail: with EFAULT, where a
    /// system call makes them. Users without privileges get no more than this.
    UserMode,
}

impl Reach {
    /// The argument of userfaultfd(2) for such a descriptor.
    pub fn flags(self) -> u64 {
        match self {
            Self::All => FLAGS,
            Self::UserMode => FLAGS | USER_MODE_ONLY,
        }
    }

    /// The most that this process can get, or the error that refuses it any descriptor.
    ///
    /// # Errors
    ///
    /// Those of userfaultfd(2), and EINVAL where the kernel cannot protect pages against writing.
    pub fn best() -> Result<Self> {
        let reaches = |reach| Userfault::own(reach).map(|_| reach);
        reaches(Self::All).or_else(|_| reaches(Self::UserMode))
    }
}

const API: u64 = 0xaa;
const UFFDIO_API: u64 = 0xc018_aa3f;
const UFFDIO_REGISTER: u64 = 0xc020_aa00;
const UFFDIO_WRITEPROTECT: u64 = 0xc018_aa06;
const REGISTER_MODE_WP: u64 = 2;
const WRITEPROTECT_MODE_WP: u64 = 1;
const FEATURE_FLAG_WP: u64 = 1;
const FEATURE_THREAD_ID: u64 = 1 << 8;
/// Pages that are not there yet can be protected: from Linux 6.4 on.
const FEATURE_WP_UNPOPULATED: u64 = 1 << 13;
const EVENT_PAGEFAULT: u8 = 0x12;

/// A write that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// Somewhere in the page.
    pub address: u64,
    /// The thread that makes it, by its number in its own namespace of process numbers.
    pub tid: Tid,
}

/// An address space's descriptor.
#[derive(Debug)]
pub struct Userfault {
    fd: OwnedFd,
}

impl Userfault {
    /// Takes over descriptor `number` of process `pid`, which has just made it.
    ///
    /// # Errors
    ///
    /// Those of pidfd_open(2) and pidfd_getfd(2), and EINVAL where the kernel cannot protect pages
    /// against writing.
    pub fn take(pid: i32, number: i32) -> Result<Self> {
        let error = |error: rustix::io::Errno| Errno(error.raw_os_error());
        let process = Pid::from_raw(pid).ok_or(Errno::ESRCH)?;
        let process = pidfd_open(process, PidfdFlags::empty()).map_err(error)?;
        let fd = pidfd_getfd(process, number, PidfdGetfdFlags::empty()).map_err(error)?;
        Self::begin(fd)
    }

    fn begin(fd: OwnedFd) -> Result<Self> {
        let descriptor = Self { fd };
        let features = FEATURE_FLAG_WP | FEATURE_THREAD_ID | FEATURE_WP_UNPOPULATED;
        descriptor.call(UFFDIO_API, &mut [API, features, 0])?;
        Ok(descriptor)
    }

    /// Makes a descriptor of this process's own address space.
    ///
    /// # Errors
    ///
    /// Those of userfaultfd(2), and EINVAL where the kernel cannot protect pages against writing.
    pub fn own(reach: Reach) -> Result<Self> {
        // SAFETY: the call takes a number and makes a descriptor.
        let number = unsafe { libc::syscall(libc::SYS_userfaultfd, reach.flags()) };
        if number < 0 {
            return Err(Errno::last());
        }
        // SAFETY: the descriptor was made just now, and nobody else has it.
        Self::begin(unsafe { OwnedFd::from_raw_fd(number as i32) })
    }

    /// Lets pages in `range` be protected; all of it must be private memory of no file.
    ///
    /// # Errors
    ///
    /// Those of UFFDIO_REGISTER: see userfaultfd(2).
    pub fn register(&self, range: (u64, u64)) -> Result<()> {
        self.call(UFFDIO_REGISTER, &mut [range.0, range.1 - range.0, REGISTER_MODE_WP, 0])
    }

    /// Protects `range`, or lifts the protection and lets go on who has waited for that.
    ///
    /// # Errors
    ///
    /// ENOENT where it is not registered, and others of UFFDIO_WRITEPROTECT.
    pub fn protect(&self, range: (u64, u64), protected: bool) -> Result<()> {
        let mode = if protected { WRITEPROTECT_MODE_WP } else { 0 };
        self.call(UFFDIO_WRITEPROTECT, &mut [range.0, range.1 - range.0, mode])
    }

    /// A write that waits, if there is one.
    pub fn next_write(&self) -> Option<Write> {
        let mut message = [0u8; 32];
        loop {
            // It does not block.
            let read = rustix::io::read(&self.fd, &mut message).ok()?;
            if read < message.len() {
                return None;
            }
            if message[0] == EVENT_PAGEFAULT {
                let address = u64::from_le_bytes(message[16..24].try_into().expect("eight bytes"));
                let tid = Tid::from_le_bytes(message[24..28].try_into().expect("four bytes"));
                return Some(Write { address, tid });
            }
        }
    }

    fn call<const N: usize>(&self, request: u64, argument: &mut [u64; N]) -> Result<()> {
        loop {
            // SAFETY: the request's structure is as long as the array, which outlives the call.
            let result = unsafe {
                libc::ioctl(self.fd.as_raw_fd(), request as libc::c_ulong, argument.as_mut_ptr())
            };
            match Errno::last() {
                _ if result == 0 => return Ok(()),
                // The map of the address space has changed meanwhile; nothing has been done yet.
                Errno(libc::EAGAIN) => {}
                error => return Err(error),
            }
        }
    }
}

/// The descriptors of all address spaces, to wait for a write in any of them.
#[derive(Debug)]
pub struct Writes {
    all: OwnedFd,
}

impl Writes {
    /// None yet.
    ///
    /// # Errors
    ///
    /// Those of epoll_create1(2).
    pub fn new() -> std::io::Result<Self> {
        Ok(Self { all: epoll::create(epoll::CreateFlags::CLOEXEC)? })
    }

    /// Waits for writes there too, known by `key`.
    ///
    /// # Errors
    ///
    /// Those of epoll_ctl(2).
    pub fn add(&self, descriptor: &Userfault, key: u64) -> std::io::Result<()> {
        self.add_fd(&descriptor.fd, key)
    }

    /// Ends waiting, with `key`, when this event descriptor is signalled.
    ///
    /// # Errors
    ///
    /// Those of epoll_ctl(2).
    pub fn add_fd(&self, fd: &OwnedFd, key: u64) -> std::io::Result<()> {
        let data = epoll::EventData::new_u64(key);
        Ok(epoll::add(&self.all, fd, data, epoll::EventFlags::IN)?)
    }

    /// Waits until something is written, or for `timeout`; the keys of the address spaces.
    pub fn wait(&self, timeout: Option<Duration>) -> Vec<u64> {
        let mut events = Vec::with_capacity(16);
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let room = rustix::buffer::spare_capacity(&mut events);
        match epoll::wait(&self.all, room, timeout.as_ref()) {
            Ok(_) => events.iter().map(|event| event.data.u64()).collect(),
            Err(_) => Vec::new(),
        }
    }
}
