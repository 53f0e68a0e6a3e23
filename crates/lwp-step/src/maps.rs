//! The executable mappings of a process.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use lwp_process::tracee_files::{Mapped, open_mapped};
use lwp_process::{Tid, missing_pages};

/// An executable mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// Offset of `start` in the file.
    pub offset: u64,
    /// Major and minor number of the file's device.
    device: (u32, u32),
    /// Inode; 0 means no file.
    pub inode: u64,
    /// The file's path as the process sees it, a bracketed name, or empty.
    pub path: PathBuf,
}

impl Mapping {
    /// Returns whether an address lies within.
    pub fn has(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// Opens the file, unless a program serves its file system: that program may be waiting for us.
    pub fn open(&self, tid: Tid) -> Option<File> {
        if self.inode == 0 || missing_pages::is_served(tid, self.device) {
            return None;
        }
        let range = (self.start, self.end);
        open_mapped(tid, Mapped { range, inode: self.inode, path: &self.path }).ok()
    }
}

/// Reads the executable mappings of the process of `tid`.
pub fn executable(tid: Tid) -> Vec<Mapping> {
    let text = fs::read(format!("/proc/{tid}/maps")).unwrap_or_default();
    text.split(|byte| *byte == b'\n').filter_map(parse).collect()
}

/// Parses a line of /proc/PID/maps; `None` for one that is not executable.
fn parse(line: &[u8]) -> Option<Mapping> {
    const DELETED: &[u8] = b" (deleted)";
    let mut rest = line;
    let [range, rights, offset, device, inode] = std::array::from_fn(|_| {
        let end = rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len());
        let (field, left) = rest.split_at(end);
        rest = left.strip_prefix(b" ").unwrap_or(left);
        std::str::from_utf8(field).unwrap_or_default()
    });
    if rights.as_bytes().get(2) != Some(&b'x') {
        return None;
    }
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let number = |text: &str| u32::from_str_radix(text, 16).ok();
    let (start, end) = range.split_once('-')?;
    let (major, minor) = device.split_once(':')?;
    let path = rest.trim_ascii_start();
    let path = path.strip_suffix(DELETED).unwrap_or(path);
    Some(Mapping {
        start: hex(start)?,
        end: hex(end)?,
        offset: hex(offset)?,
        device: (number(major)?, number(minor)?),
        inode: inode.parse().ok()?,
        path: Path::new(OsStr::from_bytes(path)).to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executable_lines_are_parsed() {
        let line =
            b"08049000-0804b000 r-xp 00001000 fd:01 1234                       /tmp/a b (deleted)";
        let mapping = parse(line).expect("a mapping");
        assert_eq!((mapping.start, mapping.end, mapping.offset), (0x804_9000, 0x804_b000, 0x1000));
        assert_eq!((mapping.device, mapping.inode), ((0xfd, 1), 1234));
        assert_eq!(mapping.path, Path::new("/tmp/a b"));
        assert!(mapping.has(0x804_9000) && !mapping.has(0x804_b000));
        let vdso = parse(b"f7fc4000-f7fc6000 r-xp 00000000 00:00 0          [vdso]").unwrap();
        assert_eq!((vdso.path.as_os_str(), vdso.inode), (OsStr::new("[vdso]"), 0));
        assert_eq!(parse(b"f7fc4000-f7fc6000 rwxp 00000000 00:00 0 ").unwrap().path, Path::new(""));
        for other in
            [&b""[..], b"f7fc0000-f7fc4000 r--p 00000000 00:00 0 [vvar]", b"x-y r-xp 0 0 0"]
        {
            assert_eq!(parse(other), None);
        }
    }
}
