//! What a process has mapped, by the kernel's records.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;

use lwp_perf::sample::Mmap;
use lwp_unwind::CodeRange;

/// An executable mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapped {
    pub start: u64,
    pub end: u64,
    pub offset: u64,
    pub device: (u32, u32),
    /// 0 if there is no file.
    pub inode: u64,
    pub path: OsString,
}

impl Mapped {
    /// From a record; `None` if it is not executable.
    pub fn of(record: &Mmap) -> Option<Self> {
        const PROT_EXEC: u32 = 4;
        let end = record.address.checked_add(record.length)?;
        (record.protection & PROT_EXEC != 0 && end > record.address).then(|| Self {
            start: record.address,
            end,
            offset: record.offset,
            device: record.device,
            inode: record.inode,
            path: record.path.clone(),
        })
    }

    /// From a line of `/proc/PID/maps`; `None` if it is not executable.
    ///
    /// Spec: proc_pid_maps(5): addresses, rights, offset, device, inode, and behind blanks the
    /// path, which alone may be no text.
    pub fn of_line(line: &[u8]) -> Option<Self> {
        let mut fields = line.splitn(6, |byte| *byte == b' ');
        let mut text = || std::str::from_utf8(fields.next()?).ok();
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let (start, end) = text()?.split_once('-')?;
        let rights = text()?;
        let offset = hex(text()?)?;
        let (major, minor) = text()?.split_once(':')?;
        let device = (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
        let inode = text()?.parse().ok()?;
        let path = fields.next().unwrap_or_default().trim_ascii_start();
        let path = if path.is_empty() { &b"//anon"[..] } else { path };
        let (start, end) = (hex(start)?, hex(end)?);
        (rights.as_bytes().get(2) == Some(&b'x') && end > start).then(|| Self {
            start,
            end,
            offset,
            device,
            inode,
            path: OsString::from_vec(path.to_vec()),
        })
    }

    /// The file, if it is one.
    pub fn file(&self) -> Option<&Path> {
        // Anonymous memory is "//anon", shared memory without a name something of the kind.
        let path = self.path.as_bytes();
        let named = path.starts_with(b"/") && !path.starts_with(b"//");
        (named && self.inode != 0).then(|| Path::new(&self.path))
    }

    /// Returns whether it is the kernel's shared object.
    pub fn is_vdso(&self) -> bool {
        self.path == "[vdso]"
    }

    /// The parts of it that lie outside of a range.
    fn outside(self, start: u64, end: u64) -> impl Iterator<Item = Self> {
        let before = (self.start < start).then(|| Self { end: start, ..self.clone() });
        let after = (self.end > end).then(|| {
            let offset = self.offset.wrapping_add(end - self.start);
            Self { start: end, offset, ..self }
        });
        before.into_iter().chain(after)
    }
}

/// The executable mappings of a process.
#[derive(Clone, Debug, Default)]
pub(crate) struct AddressSpace {
    maps: BTreeMap<u64, Mapped>,
    /// What stacks are walked with, until the mappings change.
    pub code: Option<Arc<Vec<CodeRange>>>,
}

impl AddressSpace {
    /// Adds a mapping, which replaces what was there. Nothing says that memory was unmapped: what
    /// lies there next replaces it.
    pub fn map(&mut self, mapped: Mapped) {
        let (start, end) = (mapped.start, mapped.end);
        let before = self.maps.range(..end).filter(|(_, other)| other.end > start);
        let over: Vec<u64> = before.map(|(start, _)| *start).collect();
        for key in over {
            let old = self.maps.remove(&key).into_iter();
            let rest: Vec<Mapped> = old.flat_map(|old| old.outside(start, end)).collect();
            self.maps.extend(rest.into_iter().map(|piece| (piece.start, piece)));
        }
        self.maps.insert(start, mapped);
        self.code = None;
    }

    /// Replaces everything by what the process's file `maps` says.
    pub fn replace(&mut self, maps: &[u8]) {
        let lines = maps.split(|byte| *byte == b'\n').filter_map(Mapped::of_line);
        self.maps = lines.map(|mapped| (mapped.start, mapped)).collect();
        self.code = None;
    }

    /// Returns whether there is code at an address.
    pub fn has(&self, address: u64) -> bool {
        let before = self.maps.range(..=address).next_back();
        before.is_some_and(|(_, mapped)| address < mapped.end)
    }

    /// All mappings, in order.
    pub fn mappings(&self) -> Vec<Mapped> {
        self.maps.values().cloned().collect()
    }

    /// What a child begins with.
    pub fn copy(&self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped(start: u64, end: u64, offset: u64, path: &str) -> Mapped {
        Mapped { start, end, offset, device: (8, 1), inode: 5, path: path.into() }
    }

    #[test]
    fn a_mapping_replaces_what_was_there() {
        let mut space = AddressSpace::default();
        space.map(mapped(0x1000, 0x9000, 0x100, "/a"));
        space.map(mapped(0x3000, 0x4000, 0, "/b"));
        space.map(mapped(0x8000, 0xa000, 0, "/c"));
        let found: Vec<_> =
            space.mappings().into_iter().map(|it| (it.start, it.end, it.offset)).collect();
        assert_eq!(
            found,
            [
                (0x1000, 0x3000, 0x100),
                (0x3000, 0x4000, 0),
                (0x4000, 0x8000, 0x3100),
                (0x8000, 0xa000, 0)
            ]
        );
        space.map(mapped(0, u64::MAX, 0, "/d"));
        assert_eq!(space.mappings().len(), 1);
    }

    #[test]
    fn a_file_of_maps_replaces_everything() {
        let mut space = AddressSpace::default();
        space.map(mapped(0x1000, 0x9000, 0x100, "/a"));
        space.replace(b"2000-3000 r-xp 0 08:01 5 /b\n3000-4000 rw-p 0 08:01 5 /b\n");
        assert_eq!(space.mappings(), [mapped(0x2000, 0x3000, 0, "/b")]);
        let found = [0x1fff, 0x2000, 0x2fff, 0x3000].map(|address| space.has(address));
        assert_eq!(found, [false, true, true, false]);
    }

    #[test]
    fn files_are_told_from_other_memory() {
        assert!(mapped(0, 1, 0, "/lib/a.so").file().is_some());
        assert!(mapped(0, 1, 0, "//anon").file().is_none());
        assert!(Mapped { inode: 0, ..mapped(0, 1, 0, "/lib/a.so") }.file().is_none());
        assert!(mapped(0, 1, 0, "[vdso]").is_vdso());
        let record = Mmap { address: 0x1000, length: 0x1000, protection: 5, ..Mmap::default() };
        assert!(Mapped::of(&record).is_some_and(|it| it.end == 0x2000));
        assert_eq!(Mapped::of(&Mmap { protection: 3, ..record.clone() }), None);
        assert_eq!(Mapped::of(&Mmap { length: u64::MAX, ..record }), None);
    }

    #[test]
    fn lines_of_maps_are_mappings() {
        let line = b"7f00-8000 r-xp 00001000 fe:0a 77                 /lib/a b\xff.so";
        let found = Mapped::of_line(line).expect("a mapping");
        let expected = Mapped {
            device: (0xfe, 0xa),
            inode: 77,
            path: OsString::from_vec(b"/lib/a b\xff.so".to_vec()),
            ..mapped(0x7f00, 0x8000, 0x1000, "")
        };
        assert_eq!(found, expected);
        let vdso = Mapped::of_line(b"1000-3000 r-xp 00000000 00:00 0          [vdso]");
        assert!(vdso.is_some_and(|it| it.is_vdso()));
        let anonymous = Mapped::of_line(b"1000-3000 rwxp 00000000 00:00 0 ");
        assert!(anonymous.is_some_and(|it| it.file().is_none() && it.path == "//anon"));
        for none in [&b""[..], b"1000-3000 r--p 0 00:00 0", b"x-3000 r-xp 0 00:00 0", b"1-2 r-xp"] {
            assert_eq!(Mapped::of_line(none), None);
        }
    }
}
