//! The files that a tracee has mapped, as the kernel tells it.
//!
//! A descriptor can be exchanged between the call that opens it and the one that maps it, by
//! whoever shares the table that it stands in. A mapping cannot: so it is the mapping whose file is
//! checked.
//!
//! Promise: B6

use crate::kernel_files;
use crate::shm::Inode;
use crate::tracee::Tid;

/// A part of a file that is expected at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The first address.
    pub address: u64,
    /// Its offset in the file.
    pub offset: u64,
}

/// Returns whether each of `parts` is mapped from `file` in the address space of `tid`.
pub fn are_mapped(tid: Tid, file: Inode, parts: &[Expected]) -> bool {
    let maps = kernel_files::bytes(tid, "maps").unwrap_or_default();
    let lines: Vec<Line> = maps.split(|byte| *byte == b'\n').filter_map(Line::parse).collect();
    parts.iter().all(|part| lines.iter().any(|line| line.shows(file, *part)))
}

/// The beginning of a line of `/proc/PID/maps`.
#[derive(Debug)]
struct Line {
    start: u64,
    end: u64,
    offset: u64,
    file: Inode,
}

impl Line {
    fn parse(line: &[u8]) -> Option<Self> {
        // Only the path, which comes last, may be no text.
        let mut fields = line.split(|byte| *byte == b' ').map(std::str::from_utf8);
        let mut field = || fields.next()?.ok();
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let (start, end) = field()?.split_once('-')?;
        field()?;
        let offset = hex(field()?)?;
        let (major, minor) = field()?.split_once(':')?;
        let device = (hex(major)? as u32, hex(minor)? as u32);
        let inode = field()?.parse().ok()?;
        Some(Self { start: hex(start)?, end: hex(end)?, offset, file: (device, inode) })
    }

    fn shows(&self, file: Inode, part: Expected) -> bool {
        self.file == file
            && (self.start..self.end).contains(&part.address)
            && self.offset.wrapping_add(part.address - self.start) == part.offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_shows_the_part_of_its_file() {
        let line =
            b"00002000-00005000 rw-s 00001000 00:01 77                 /memfd:\xff x (deleted)";
        let line = Line::parse(line).expect("a line of maps");
        let shows = |file, address, offset| line.shows(file, Expected { address, offset });
        assert!(shows(((0, 1), 77), 0x2000, 0x1000) && shows(((0, 1), 77), 0x4000, 0x3000));
        assert!(!shows(((0, 1), 78), 0x2000, 0x1000), "another file");
        assert!(!shows(((0, 2), 77), 0x2000, 0x1000), "another device");
        assert!(!shows(((0, 1), 77), 0x2000, 0), "another part");
        assert!(!shows(((0, 1), 77), 0x5000, 0x4000), "behind it");
        assert!(Line::parse(b"").is_none() && Line::parse(b"Rss: 4 kB").is_none());
    }

    #[test]
    fn own_memory_is_found_where_it_is() {
        let file = std::sync::Arc::new(crate::SharedFile::new(c"mapped", 1 << 16).expect("memory"));
        let memory = file.map(0x1000, 0x2000).expect("a mapping");
        let own = std::process::id().cast_signed();
        let address = std::fs::read_to_string("/proc/self/maps")
            .expect("maps")
            .lines()
            .find(|line| line.contains("memfd:mapped"))
            .and_then(|line| u64::from_str_radix(line.split('-').next()?, 16).ok())
            .expect("it is mapped");
        let part = Expected { address, offset: 0x1000 };
        assert!(are_mapped(own, file.inode(), &[part]));
        let ((major, minor), inode) = file.inode();
        assert!(!are_mapped(own, ((major, minor), inode + 1), &[part]));
        drop(memory);
        assert!(!are_mapped(own, file.inode(), &[part]));
    }
}
