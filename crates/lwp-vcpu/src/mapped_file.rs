//! The file behind a mapping, as far as its path still leads to it.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use lwp_ptrace::sys;

use crate::maps::Mapping;

/// The inode of the file at `path`.
pub fn inode_of(path: &Path) -> Option<u64> {
    std::fs::metadata(path).ok().map(|metadata| metadata.ino())
}

/// Whether somebody has the mapped file open for writing, or may have: a page of a private mapping shows what is
/// written to the file until it is copied.
pub fn is_written(tid: i32, mapping: &Mapping) -> bool {
    // A file without a path is one that a program has made for itself, and of a memfd the kernel does not know.
    if mapping.name.ends_with(" (deleted)") {
        return true;
    }
    let path = format!("/proc/{tid}/root{}", mapping.name);
    inode_of(Path::new(&path)) == Some(mapping.inode) && sys::is_open_for_writing(&path)
}

/// The mapped file's version, if its path still leads to it.
pub fn file_version(tid: i32, mapping: &Mapping) -> Option<(i128, u64)> {
    let path = format!("/proc/{tid}/root{}", mapping.name);
    let metadata = std::fs::metadata(path).ok()?;
    if metadata.ino() != mapping.inode {
        return None;
    }
    let mtime = i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
    Some((mtime, metadata.size()))
}
