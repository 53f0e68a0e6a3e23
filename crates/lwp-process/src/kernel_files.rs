//! Files of the kernel's own file systems, /proc and /sys: no program has a say in their paths.
//!
//! What a program names or maps is opened by `tracee_files` and `program_files`, with the program's
//! rights and below its root. The lints of the engine's crates forbid every other way.
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

/// `/proc/WHO/NAME`, or `/proc/WHO` itself.
pub fn path(who: impl Who, name: &str) -> String {
    // With a slash at its end, a link stands for what it leads to.
    if name.is_empty() { format!("/proc/{who}") } else { format!("/proc/{who}/{name}") }
}

/// The path of a file that is read: one of the kernel's, which leads to none of the process.
fn path_to_read(who: impl Who, name: &str) -> String {
    let last = name.strip_prefix("task/").and_then(|name| Some(name.split_once('/')?.1));
    let first = last.unwrap_or(name).split('/').next();
    let leads = matches!(first, Some("cwd" | "exe" | "fd" | "map_files" | "root"));
    assert!(!leads, "{name} leads to a file of the process");
    path(who, name)
}

/// What `/proc/WHO/NAME` says.
pub fn text(who: impl Who, name: &str) -> io::Result<String> {
    fs::read_to_string(path_to_read(who, name))
}

/// What `/proc/WHO/NAME` says, where that need not be UTF-8.
pub fn bytes(who: impl Who, name: &str) -> io::Result<Vec<u8>> {
    fs::read(path_to_read(who, name))
}

/// Opens `/proc/WHO/NAME`, to read it.
pub fn open(who: impl Who, name: &str) -> io::Result<File> {
    File::open(path_to_read(who, name))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic = "leads to a file of the process"]
    fn files_of_a_process_are_not_opened() {
        let _ = open(Own, "task/7/fd/3");
    }

    #[test]
    fn paths_are_below_proc() {
        assert_eq!(path(Own, ""), "/proc/self");
        assert_eq!(path(12, "fd/3"), "/proc/12/fd/3");
        let own = std::process::id();
        assert_eq!(link(Own, "").expect("a link"), PathBuf::from(own.to_string()));
        assert_eq!(text(Own, "comm").expect("a name"), text(own, "comm").expect("a name"));
        assert!(metadata(own, "").expect("a directory").is_dir());
    }
}
