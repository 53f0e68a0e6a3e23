//! Files of the kernel's own file systems, /proc and /sys: no program has a say in their paths.
//!
//! What a program names or maps is opened by [`tracee_files`](crate::tracee_files) and
//! [`program_files`](crate::program_files), with that program's rights and below its root. The lints
//! of the engine's crates forbid every other way.
#![expect(clippy::disallowed_methods, reason = "this is one of the three places that open files")]

use std::fmt::{self, Display};
use std::fs::{self, File, Metadata, ReadDir};
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags};

/// Whose directory in /proc: a number, never a name.
pub trait Who: Display + Copy {}

impl Who for i32 {}
impl Who for u32 {}
impl Who for Own {}

/// This process itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Own;

impl Display for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("self")
    }
}

/// `/proc/WHO/NAME`.
pub fn path(who: impl Who, name: &str) -> String {
    format!("/proc/{who}/{name}")
}

/// What `/proc/WHO/NAME` says.
pub fn text(who: impl Who, name: &str) -> io::Result<String> {
    fs::read_to_string(path(who, name))
}

/// What `/proc/WHO/NAME` says, where that need not be UTF-8.
pub fn bytes(who: impl Who, name: &str) -> io::Result<Vec<u8>> {
    fs::read(path(who, name))
}

/// Opens `/proc/WHO/NAME`, to read it. NAME is a file of the kernel's, not one that leads to a file
/// of the process.
pub fn open(who: impl Who, name: &str) -> io::Result<File> {
    File::open(path(who, name))
}

/// Where the link `/proc/WHO/NAME` leads, as the kernel describes it.
pub fn link(who: impl Who, name: &str) -> io::Result<PathBuf> {
    fs::read_link(path(who, name))
}

/// Facts about what `/proc/WHO/NAME` leads to.
pub fn metadata(who: impl Who, name: &str) -> io::Result<Metadata> {
    fs::metadata(path(who, name))
}

/// A handle of what `/proc/WHO/NAME` leads to: nothing is opened.
pub fn handle(who: impl Who, name: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::PATH | OFlags::CLOEXEC;
    rustix::fs::open(path(who, name), flags, Mode::empty())
}

/// The entries of the directory `/proc/WHO/NAME`.
pub fn entries(who: impl Who, name: &str) -> io::Result<ReadDir> {
    fs::read_dir(path(who, name))
}

/// What a file says that is about the machine, as `/proc/sys/kernel/osrelease`.
pub fn of_machine(path: &'static str) -> io::Result<String> {
    fs::read_to_string(path)
}

/// The entries of a directory that is about the machine.
pub fn entries_of_machine(path: &'static str) -> io::Result<ReadDir> {
    fs::read_dir(path)
}
