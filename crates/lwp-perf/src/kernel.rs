//! The kernel as this crate uses it, as a trait.
//!
//! perf events need a PMU, which few test machines have, and their failures need machines that
//! nobody has all of. [`Linux`] is the running kernel; [`script::Script`] answers from a script.

use std::fmt::Debug;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::io::Errno;

use crate::attr::Attr;
use crate::mmap::Mapping;
use crate::page::Pages;
use crate::sys;

pub mod script;

/// An open event.
#[derive(Debug)]
pub struct Handle(Inner);

#[derive(Debug)]
enum Inner {
    Descriptor(OwnedFd),
    Scripted(usize),
    Closed,
}

impl Handle {
    /// The file descriptor; `None` under a scripted kernel.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.0 {
            Inner::Descriptor(fd) => Some(fd.as_fd()),
            Inner::Scripted(_) | Inner::Closed => None,
        }
    }

    /// Closes the descriptor before the handle is dropped. Nothing can be done to the event after
    /// that.
    pub(crate) fn close(&mut self) {
        self.0 = Inner::Closed;
    }
}

/// The controls of an open event.
///
/// Spec: perf_event_open(2), "perf_event ioctl calls".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Start counting; `group`: every member.
    Enable {
        /// Every member of the group.
        group: bool,
    },
    /// Stop counting.
    Disable {
        /// Every member of the group.
        group: bool,
    },
    /// Count from zero. Times are not reset.
    Reset {
        /// Every member of the group.
        group: bool,
    },
    /// Enable for this many overflows, then disable.
    Refresh(u32),
    /// Set a new sampling period.
    Period(u64),
    /// Let samples go to the ring of the event with this descriptor.
    Output(RawFd),
    /// Send `signal` to thread `tid` at every overflow.
    Notify {
        /// The signal; real-time signals are queued.
        signal: i32,
        /// The thread.
        tid: i32,
    },
}

/// The kernel's perf interface and the files that describe it.
pub trait Kernel: Debug + Send + Sync {
    /// perf_event_open(2). `pid` 0 is the caller, -1 all; `cpu` -1 is any.
    ///
    /// # Errors
    ///
    /// The kernel's.
    fn open(
        &self,
        attr: &Attr,
        pid: i32,
        cpu: i32,
        leader: Option<&Handle>,
    ) -> Result<Handle, Errno>;

    /// read(2) of an event. Zero bytes: the event is in error state.
    ///
    /// # Errors
    ///
    /// The kernel's.
    fn read(&self, event: &Handle, bytes: &mut [u8]) -> Result<usize, Errno>;

    /// ioctl(2) and fcntl(2) of an event.
    ///
    /// # Errors
    ///
    /// The kernel's.
    fn control(&self, event: &Handle, control: Control) -> Result<(), Errno>;

    /// Lets the records of an event go to the ring of another one of the same processor.
    ///
    /// # Errors
    ///
    /// The kernel's.
    fn share_ring(&self, event: &Handle, other: &Handle) -> Result<(), Errno>;

    /// mmap(2) of an event: the metadata page and `data_bytes` (0 or a power of two pages) of ring.
    ///
    /// # Errors
    ///
    /// The kernel's.
    fn map(&self, event: &Handle, data_bytes: usize) -> Result<Box<dyn Pages>, Errno>;

    /// poll(2): waits until the ring has data; `Ok(false)` when the time is up, an error where the
    /// event can bring no more (its thread has ended).
    ///
    /// # Errors
    ///
    /// The kernel's.
    fn wait(&self, event: &Handle, timeout: Duration) -> Result<bool, Errno>;

    /// The text of a file of sysfs or procfs.
    ///
    /// # Errors
    ///
    /// The kernel's.
    fn text(&self, path: &str) -> Result<String, Errno>;

    /// The names in a directory of sysfs or procfs, sorted.
    ///
    /// # Errors
    ///
    /// The kernel's.
    fn names(&self, directory: &str) -> Result<Vec<String>, Errno>;

    /// The CPUID instruction.
    fn cpuid(&self, leaf: u32, subleaf: u32) -> [u32; 4];
}

/// The running kernel.
#[derive(Clone, Copy, Debug, Default)]
pub struct Linux;

impl Linux {
    /// The event's descriptor. Handles of another kernel have none.
    fn fd(event: &Handle) -> Result<&OwnedFd, Errno> {
        match &event.0 {
            Inner::Descriptor(fd) => Ok(fd),
            Inner::Scripted(_) | Inner::Closed => Err(Errno::BADF),
        }
    }
}

impl Kernel for Linux {
    fn open(
        &self,
        attr: &Attr,
        pid: i32,
        cpu: i32,
        leader: Option<&Handle>,
    ) -> Result<Handle, Errno> {
        let leader = leader.map(Self::fd).transpose()?.map_or(-1, AsRawFd::as_raw_fd);
        sys::perf_event_open(attr, pid, cpu, leader).map(|fd| Handle(Inner::Descriptor(fd)))
    }

    fn read(&self, event: &Handle, bytes: &mut [u8]) -> Result<usize, Errno> {
        rustix::io::retry_on_intr(|| rustix::io::read(Self::fd(event)?, &mut *bytes))
    }

    fn control(&self, event: &Handle, control: Control) -> Result<(), Errno> {
        sys::control(Self::fd(event)?, control)
    }

    fn share_ring(&self, event: &Handle, other: &Handle) -> Result<(), Errno> {
        self.control(event, Control::Output(Self::fd(other)?.as_raw_fd()))
    }

    fn map(&self, event: &Handle, data_bytes: usize) -> Result<Box<dyn Pages>, Errno> {
        Ok(Box::new(Mapping::new(Self::fd(event)?, data_bytes)?))
    }

    fn wait(&self, event: &Handle, timeout: Duration) -> Result<bool, Errno> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut fds = [PollFd::new(Self::fd(event)?, PollFlags::IN)];
        let timeout = Timespec::try_from(timeout).map_err(|_| Errno::INVAL)?;
        match poll(&mut fds, Some(&timeout)) {
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error),
            Ok(_) if fds[0].revents().contains(PollFlags::IN) => Ok(true),
            Ok(0) => Ok(false),
            Ok(_) => Err(Errno::SRCH),
        }
    }

    fn text(&self, path: &str) -> Result<String, Errno> {
        std::fs::read_to_string(path).map_err(|error| number(&error))
    }

    fn names(&self, directory: &str) -> Result<Vec<String>, Errno> {
        let entries = std::fs::read_dir(directory).map_err(|error| number(&error))?;
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        names.sort();
        Ok(names)
    }

    fn cpuid(&self, leaf: u32, subleaf: u32) -> [u32; 4] {
        let highest = std::arch::x86_64::__cpuid(leaf & 0x8000_0000).eax;
        if leaf > highest {
            return [0; 4];
        }
        let result = std::arch::x86_64::__cpuid_count(leaf, subleaf);
        [result.eax, result.ebx, result.ecx, result.edx]
    }
}

fn number(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
