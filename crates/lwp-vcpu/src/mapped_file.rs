//! The file behind a mapping, as far as its path still leads to it.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use lwp_ptrace::sys;

use crate::maps::Mapping;

/// The inode of the file at `path`.
pub fn inode_of(path: &Path) -> Option<u64> {
    std::fs::metadata(path).ok().map(|metadata| metadata.ino())
}

/// The file of a mapping, as it is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedFile {
    /// Time of the last change, in nanoseconds, and size in bytes; none where the path does not lead to it any more.
    pub version: Option<(i128, u64)>,
    /// Somebody has it open for writing, or may have: a page of a private mapping shows what is written to the file until
    /// it is copied.
    pub is_written: bool,
}

impl MappedFile {
    /// The one of this mapping.
    pub fn of(tid: i32, mapping: &Mapping) -> Self {
        // A file without a path is one that a program has made for itself, and of a memfd the kernel does not know.
        if mapping.name.ends_with(" (deleted)") {
            return Self { version: None, is_written: true };
        }
        let path = format!("/proc/{tid}/root{}", mapping.name);
        let opened = sys::open_to_read(&path);
        // Who may execute a file need not be able to read it.
        let metadata = match &opened {
            Ok(file) => file.metadata(),
            Err(_) => std::fs::metadata(&path),
        };
        let Some(metadata) = metadata.ok().filter(|metadata| metadata.ino() == mapping.inode) else {
            return Self { version: None, is_written: false };
        };
        let changed = i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
        Self {
            version: Some((changed, metadata.size())),
            is_written: opened.is_ok_and(|file| sys::is_open_for_writing(&file)),
        }
    }
}
