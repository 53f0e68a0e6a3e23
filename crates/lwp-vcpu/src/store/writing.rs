//! Who writes to the store: few at a time, and one for each key.
//!
//! Every run that translates anew wants to write what it has: of thirty that start together, all
//! but the first would write it again. Places and keys are locks on bytes of one file beside the
//! units. The kernel takes them back from whoever ends, however it ends, so nothing is left of a
//! writer that was killed.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

use lwp_ptrace::sys;
use rustix::fs::{self, Mode, OFlags};

use super::{Key, Store, is_ours};

/// Most processes that are left behind to write at a time: each has the memory of its run.
const PLACES: u32 = 2;

/// The locks of one that writes.
#[derive(Debug)]
pub struct Writing {
    pub(super) file: File,
}

impl Store {
    /// Prepares to write. Nothing is locked yet.
    pub fn writing(&self) -> io::Result<Writing> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let mode = Mode::RUSR | Mode::WUSR;
        let fd = fs::openat(&self.outer, c"writers", flags, mode)?;
        match is_ours(&fs::fstat(&fd)?) {
            true => Ok(Writing { file: File::from(fd) }),
            false => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }
}

impl Writing {
    /// Takes a place among those who are left behind; false where all are taken.
    pub fn take_place(&self) -> bool {
        (0..PLACES).any(|place| sys::lock_byte(&self.file, place) == Ok(true))
    }

    /// Takes a key; false where somebody else is writing it.
    pub fn claim(&self, key: Key) -> bool {
        let at = PLACES.max(key.0 as u32 >> 1);
        sys::lock_byte(&self.file, at) == Ok(true)
    }

    /// The descriptor that holds the locks.
    pub fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}
