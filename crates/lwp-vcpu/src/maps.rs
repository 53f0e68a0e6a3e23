//! `/proc/PID/maps`.

use std::fs;

/// One mapping of a tracee.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// May be written.
    pub write: bool,
    /// May be executed.
    pub execute: bool,
    /// Shared with other mappings of the same object.
    pub shared: bool,
    /// Offset in the file.
    pub offset: u64,
    /// Device and inode; inode 0 means no file.
    pub device: (u32, u32),
    /// See `device`.
    pub inode: u64,
    /// Path or bracketed name.
    pub name: String,
}

/// Reads the mappings of a thread's address space, in ascending order.
pub fn read(tid: i32) -> Vec<Mapping> {
    let Ok(text) = fs::read(format!("/proc/{tid}/maps")) else { return Vec::new() };
    String::from_utf8_lossy(&text).lines().filter_map(parse).collect()
}

fn parse(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let perms = fields.next()?.as_bytes();
    let offset = fields.next()?;
    let (major, minor) = fields.next()?.split_once(':')?;
    let inode = fields.next()?;
    let name = fields.next().unwrap_or("").trim_start();
    Some(Mapping {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        write: perms.get(1) == Some(&b'w'),
        execute: perms.get(2) == Some(&b'x'),
        shared: perms.get(3) == Some(&b's'),
        offset: u64::from_str_radix(offset, 16).ok()?,
        device: (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?),
        inode: inode.parse().ok()?,
        name: name.to_owned(),
    })
}

/// A number in `/proc/TID/status`.
pub fn status_field(tid: i32, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let value = line.trim();
    match name {
        "SigIgn:" | "SigBlk:" | "SigCgt:" => u64::from_str_radix(value, 16).ok(),
        _ => value.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_mapping_is_parsed() {
        let line = "7f0a1000-7f0a3000 r-xp 00001000 fd:01 1234                       /lib/a b.so";
        let mapping = parse(line).unwrap();
        assert_eq!((mapping.start, mapping.end), (0x7f0a_1000, 0x7f0a_3000));
        assert!(mapping.execute && !mapping.write && !mapping.shared);
        assert_eq!((mapping.offset, mapping.device, mapping.inode), (0x1000, (0xfd, 1), 1234));
        assert_eq!(mapping.name, "/lib/a b.so");
    }

    #[test]
    fn own_mappings_are_read_in_order() {
        let maps = read(std::process::id() as i32);
        assert!(maps.iter().any(|m| m.name == "[vdso]"));
        assert!(maps.windows(2).all(|w| w[0].end <= w[1].start));
    }
}
