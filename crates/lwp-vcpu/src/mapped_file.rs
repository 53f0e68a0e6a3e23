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
    /// Time of the last change, in nanoseconds, and size in bytes. None if the path leads to
    /// another file by now.
    pub version: Option<(i128, u64)>,
    /// Somebody has the file open for writing, or may have. Until a page of a private mapping is
    /// copied, it shows every write to the file.
    pub is_written: bool,
}

impl MappedFile {
    /// Looks at the file of a mapping.
    pub fn of(tid: i32, mapping: &Mapping) -> Self {
        // A file without a path is one that a program has made for itself; the kernel keeps no
        // count of a memfd's writers.
        // Who serves a file system may change a file at any time.
        if mapping.name.ends_with(" (deleted)") || mapping.is_served(tid) {
            return Self { version: None, is_written: true };
        }
        let path = mapping.path_from(tid);
        let opened = sys::open_to_read(&path);
        // Who may execute a file need not be able to read it.
        let metadata = match &opened {
            Ok(file) => file.metadata(),
            Err(_) => std::fs::metadata(&path),
        };
        let Some(metadata) = metadata.ok().filter(|metadata| metadata.ino() == mapping.inode)
        else {
            return Self { version: None, is_written: false };
        };
        let changed =
            i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
        Self {
            version: Some((changed, metadata.size())),
            is_written: opened.is_ok_and(|file| sys::is_open_for_writing(&file)),
        }
    }
}
