//! The file behind a mapping, as far as it can be had.

use std::fs::File;
use std::os::unix::fs::MetadataExt;

use crate::sys;

use crate::maps::Mapping;

/// The file of a mapping, as it is at the moment.
#[derive(Debug)]
pub struct MappedFile {
    /// The file, and what tells it from others and from what it was before. None where the host
    /// cannot open it: then nobody else is to get what is translated of it.
    pub file: Option<(File, FileVersion)>,
    /// Somebody has the file open for writing, or may have. Until a page of a private mapping is
    /// copied, it shows every write to the file.
    pub is_written: bool,
}

/// A file, as it was once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileVersion {
    /// Device and inode, of the file that has been opened: those in a list of mappings may be
    /// another file's, too.
    pub identity: (u64, u64),
    /// Time of the last change, in nanoseconds.
    pub changed: i128,
    /// Size in bytes.
    pub size: u64,
}

impl FileVersion {
    /// What an open file is.
    pub fn of(file: &File) -> Option<Self> {
        let metadata = file.metadata().ok()?;
        let changed =
            i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
        let identity = (metadata.dev(), metadata.ino());
        Some(Self { identity, changed, size: metadata.size() })
    }
}

impl MappedFile {
    /// Looks at the file of a mapping.
    pub fn of(tid: i32, mapping: &Mapping) -> Self {
        // A file without a path is one that a program has made for itself; the kernel keeps no
        // count of a memfd's writers.
        // Who serves a file system may change a file at any time.
        if mapping.name.ends_with(" (deleted)") || mapping.is_served(tid) {
            return Self { file: None, is_written: true };
        }
        let file = mapping.open(tid);
        let is_written = file.as_ref().is_some_and(sys::is_open_for_writing);
        let known = file.and_then(|file| FileVersion::of(&file).map(|version| (file, version)));
        Self { file: known, is_written }
    }
}
