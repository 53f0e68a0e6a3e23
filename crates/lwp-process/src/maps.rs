//! `/proc/PID/maps`.
//!
//! Promise: R74

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::kernel_files::{self, Who};
use crate::missing_pages;
use crate::tracee_files::{self, Mapped};

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
    /// The path, where it is no text.
    pub path: Option<Box<OsStr>>,
}

/// Reads the mappings of a thread's address space, in ascending order.
pub fn read(tid: i32) -> Vec<Mapping> {
    let Some(text) = read_whole(tid, "maps") else { return Vec::new() };
    let mut mappings: Vec<_> = text.split(|byte| *byte == b'\n').filter_map(parse_bytes).collect();
    for mapping in &mut mappings {
        // Its pages are reckoned with before any is read.
        let is_served = mapping.is_served(tid);
        if !is_served && mapping.inode != 0 && mapping.name.contains(NEWLINE) {
            mapping.restore_newlines(tid);
        }
    }
    mappings
}

/// A newline in a path, as the kernel writes it. It leaves a backslash as it is (seq_path in
/// fs/seq_file.c), so that the same text can be a path's own.
const NEWLINE: &str = "\\012";
/// Most of them in a path that is tried in every way.
const MOST_NEWLINES: usize = 6;

/// The mapping that a line describes, whose path may be no text.
fn parse_bytes(line: &[u8]) -> Option<Mapping> {
    let text = String::from_utf8_lossy(line);
    let mut mapping = parse(&text)?;
    if matches!(text, std::borrow::Cow::Owned(_)) {
        let path = line.iter().position(|byte| *byte == b'/').map(|start| &line[start..]);
        mapping.path = path.map(|path| OsStr::from_bytes(path).into());
    }
    Some(mapping)
}

impl Mapping {
    /// The path of the file, from the root of the process.
    pub fn path(&self) -> &OsStr {
        self.path.as_deref().unwrap_or(OsStr::new(&self.name))
    }

    /// Opens the file, unless a program serves its system.
    pub fn open(&self, tid: i32) -> Option<fs::File> {
        if self.inode == 0 || self.is_served(tid) {
            return None;
        }
        let path = self.path().as_ref();
        let mapped = Mapped { range: (self.start, self.end), inode: self.inode, path };
        tracee_files::open_mapped(tid, mapped).ok()
    }

    /// Puts newlines back where the path that leads to the mapped file has them. Where none leads
    /// there, the path stays as it is.
    fn restore_newlines(&mut self, tid: i32) {
        let written = self.path().as_bytes().to_vec();
        let parts = split(&written, NEWLINE.as_bytes());
        let several = parts.len().saturating_sub(1);
        // The last attempt has newlines everywhere, the first none.
        let attempts: Vec<usize> = match several <= MOST_NEWLINES {
            true => (0..1 << several).collect(),
            false => vec![0, usize::MAX],
        };
        for attempt in attempts {
            let mut path = parts[0].to_vec();
            for (index, part) in parts[1..].iter().enumerate() {
                let is_newline = attempt >> index.min(63) & 1 != 0;
                path.extend_from_slice(if is_newline { b"\n" } else { NEWLINE.as_bytes() });
                path.extend_from_slice(part);
            }
            let path = OsString::from_vec(path);
            if tracee_files::leads_to(tid, path.as_ref(), self.inode) {
                self.name = path.to_string_lossy().into_owned();
                self.path = path.to_str().is_none().then(|| path.into());
                return;
            }
        }
    }

    /// Returns whether a program serves the file system of the file: whoever opens it may wait for
    /// that program.
    pub fn is_served(&self, tid: i32) -> bool {
        self.inode != 0 && missing_pages::is_served(tid, self.device)
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
        path: None,
    })
}

/// The parts of `bytes` between occurrences of `separator`.
fn split<'a>(bytes: &'a [u8], separator: &[u8]) -> Vec<&'a [u8]> {
    let (mut parts, mut start, mut at) = (Vec::new(), 0, 0);
    while at < bytes.len() {
        if bytes[at..].starts_with(separator) {
            parts.push(&bytes[start..at]);
            at += separator.len();
            start = at;
        } else {
            at += 1;
        }
    }
    parts.push(&bytes[start..]);
    parts
}

/// Reads `/proc/WHO/NAME`, whose size is not known beforehand, with as few calls as there can be.
pub fn read_whole(who: impl Who, name: &str) -> Option<Vec<u8>> {
    let mut file = kernel_files::open(who, name).ok()?;
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
        let text = read_whole(tid, "status").unwrap_or_default();
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

    /// Returns whether CAP_SYS_ADMIN, capability 21 of capabilities(7), is in force.
    pub fn has_admin_capability(&self) -> bool {
        self.signals("CapEff:").is_some_and(|set| set & (1 << 21) != 0)
    }

    /// Returns whether as many filters are in force as in `other`, whose child's child it is: they
    /// are the same ones then. False before Linux 5.9, which does not tell their number.
    pub fn has_filters_of(&self, other: &Self) -> bool {
        let filters = self.number("Seccomp_filters:");
        filters.is_some() && filters == other.number("Seccomp_filters:")
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.0.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
    }
}

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// The parts of a mapping as the program has set them; `pages` are those that are protected for our
/// sake, in order.
pub fn pieces(mapping: Mapping, pages: &[u64]) -> Vec<Mapping> {
    let inside = |page: &&u64| (mapping.start..mapping.end).contains(*page);
    let first = pages.partition_point(|page| *page < mapping.start);
    let protected = pages[first..].iter().take_while(inside);
    let mut cuts: Vec<(u64, bool)> = Vec::new();
    let mut at = mapping.start;
    for page in protected.filter(|_| !mapping.write) {
        cuts.extend((at < *page).then_some((at, false)));
        cuts.push((*page, true));
        at = page + PAGE;
    }
    cuts.extend((at < mapping.end).then_some((at, mapping.write)));
    cuts.dedup_by_key(|(_, write)| *write);
    let ends = cuts.iter().skip(1).map(|(start, _)| *start).chain([mapping.end]);
    let piece = |((start, write), end): (&(u64, bool), u64)| Mapping {
        start: *start,
        end,
        write: *write,
        ..mapping.clone()
    };
    cuts.iter().zip(ends).map(piece).collect()
}

/// Returns whether the kernel would have made one mapping of two neighbours.
pub fn joins(a: &Mapping, b: &Mapping) -> bool {
    let same = |it: &Mapping| (it.read, it.write, it.execute, it.shared, it.inode);
    a.end == b.start && same(a) == same(b) && b.inode == 0 && a.name == b.name
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
    fn newlines_are_those_of_the_file_that_is_mapped() {
        use std::os::unix::fs::MetadataExt;
        let dir = std::env::temp_dir().join(format!("lwp-maps-{}", std::process::id()));
        for name in ["a\nb\\012c", "a\\012b\\012c", "d\n\n"] {
            let (path, pid) = (dir.join(name), std::process::id() as i32);
            fs::create_dir_all(&dir).unwrap();
            fs::write(&path, "x").unwrap();
            let inode = fs::metadata(&path).unwrap().ino();
            let shown = path.to_str().unwrap().replace('\n', NEWLINE);
            let line = format!("1000-2000 r-xp 00000000 fd:01 {inode}  {shown}");
            let mut mapping = parse(&line).unwrap();
            mapping.restore_newlines(pid);
            assert_eq!(mapping.name, path.to_str().unwrap());
        }
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_path_that_is_no_text_is_kept() {
        let mapping = parse_bytes(b"1000-2000 r-xp 0 fd:01 7    /lib/\xff\xfe.so").unwrap();
        assert_eq!(mapping.path().as_bytes(), b"/lib/\xff\xfe.so");
        assert_eq!(mapping.name, "/lib/\u{fffd}\u{fffd}.so");
        let mapping = parse_bytes(b"1000-2000 r-xp 0 fd:01 7    /lib/a.so").unwrap();
        assert_eq!(mapping.path().as_bytes(), b"/lib/a.so");
    }

    #[test]
    fn own_mappings_are_read_in_order() {
        let maps = read(std::process::id() as i32);
        assert!(maps.iter().any(|m| m.name == "[vdso]"));
        assert!(maps.windows(2).all(|w| w[0].end <= w[1].start));
    }
}
