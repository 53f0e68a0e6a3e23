//! `/proc/PID/maps`.

use std::fs;
use std::io::Read;

use lwp_ptrace::absent;

/// One mapping of a tracee.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// May be read.
    pub read: bool,
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
    let Some(text) = read_whole(&format!("/proc/{tid}/maps")) else { return Vec::new() };
    let mappings: Vec<_> = String::from_utf8_lossy(&text).lines().filter_map(parse).collect();
    for mapping in &mappings {
        // Its pages are reckoned with before any is read.
        mapping.is_served(tid);
    }
    mappings
}

impl Mapping {
    /// Returns whether a program serves the file system of the file: whoever opens it may wait for
    /// that program.
    pub fn is_served(&self, tid: i32) -> bool {
        self.inode != 0 && absent::is_served(tid, self.device)
    }
}

/// The mapping that a line describes.
pub fn parse(line: &str) -> Option<Mapping> {
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
        read: perms.first() == Some(&b'r'),
        write: perms.get(1) == Some(&b'w'),
        execute: perms.get(2) == Some(&b'x'),
        shared: perms.get(3) == Some(&b's'),
        offset: u64::from_str_radix(offset, 16).ok()?,
        device: (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?),
        inode: inode.parse().ok()?,
        name: name.to_owned(),
    })
}

/// Reads a file of `/proc`, whose size is not known beforehand, with as few calls as there can be.
pub fn read_whole(path: &str) -> Option<Vec<u8>> {
    let mut file = fs::File::open(path).ok()?;
    let mut text = Vec::with_capacity(16 << 10);
    loop {
        let len = text.len();
        text.resize(text.capacity(), 0);
        let got = file.read(&mut text[len..]).ok()?;
        text.truncate(len + got);
        match got {
            0 => return Some(text),
            _ if text.len() == text.capacity() => text.reserve(text.len()),
            _ => {}
        }
    }
}

/// `/proc/TID/status` at one moment.
#[derive(Clone, Debug, Default)]
pub struct Status(String);

impl Status {
    /// Reads it; empty where there is none.
    pub fn read(tid: i32) -> Self {
        let text = read_whole(&format!("/proc/{tid}/status")).unwrap_or_default();
        Self(String::from_utf8_lossy(&text).into_owned())
    }

    /// A status with this text.
    pub fn of(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// A set of signals, bit 0 being the first.
    pub fn signals(&self, name: &str) -> Option<u64> {
        u64::from_str_radix(self.field(name)?, 16).ok()
    }

    /// Returns whether CAP_SYS_PTRACE, capability 19 of capabilities(7), is in force.
    pub fn has_ptrace_capability(&self) -> bool {
        self.signals("CapEff:").is_some_and(|set| set & (1 << 19) != 0)
    }

    /// A number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.field(name)?.parse().ok()
    }

    /// The last of several numbers.
    pub fn last_number(&self, name: &str) -> Option<i32> {
        self.field(name)?.split_whitespace().next_back()?.parse().ok()
    }

    /// Several numbers.
    pub fn list(&self, name: &str) -> Vec<i32> {
        let words = self.field(name).unwrap_or_default().split_whitespace();
        words.filter_map(|word| word.parse().ok()).collect()
    }

    /// Returns whether a system call filter is in force.
    pub fn is_filtered(&self) -> bool {
        self.number("Seccomp:").is_some_and(|mode| mode != 0)
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.0.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
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
