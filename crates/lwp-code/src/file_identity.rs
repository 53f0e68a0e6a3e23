//! The file that a module is, and whether it is still the same.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use twox_hash::XxHash3_128;

/// An executable mapping of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// Offset of `start` in the file.
    pub offset: u64,
}

impl Segment {
    /// The segment with addresses relative to `origin`.
    pub fn relative_to(&self, origin: u64) -> Self {
        let (start, end) = (self.start.wrapping_sub(origin), self.end.wrapping_sub(origin));
        Self { start, end, offset: self.offset }
    }
}

/// The file system's statement about a file; equal stamps mean an unchanged file, unless it was
/// changed a moment before the stamp was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Device.
    pub device: u64,
    /// Inode.
    pub inode: u64,
    /// Size in bytes.
    pub size: u64,
    /// Modification of the content, in nanoseconds.
    pub modified: u64,
    /// Modification of the inode, in nanoseconds; programs cannot set it.
    pub changed: u64,
}

/// Shorter than this ago, a change may carry the same time as the next one: where times have
/// fractions, and where they are whole seconds, as on some file systems.
const GRANULARITY: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(3)];

impl Stamp {
    /// The stamp of an open file.
    pub fn of(file: &File) -> Option<Self> {
        let metadata = file.metadata().ok()?;
        let nanos =
            |seconds: i64, nanos: i64| (seconds as u64).wrapping_mul(1_000_000_000) + nanos as u64;
        Some(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: nanos(metadata.mtime(), metadata.mtime_nsec()),
            changed: nanos(metadata.ctime(), metadata.ctime_nsec()),
        })
    }

    /// Returns whether a change from now on would be seen in the stamp.
    pub fn is_settled(&self) -> bool {
        let Ok(now) = SystemTime::now().duration_since(UNIX_EPOCH) else { return false };
        let latest = Duration::from_nanos(self.modified.max(self.changed));
        let whole = self.changed.is_multiple_of(1_000_000_000);
        now.checked_sub(latest).is_some_and(|age| age > GRANULARITY[usize::from(whole)])
    }
}

/// A hash of the file's code, as far as it is mapped by `segments`.
pub fn content(file: &File, segments: &[Segment]) -> Option<u128> {
    let mut hasher = XxHash3_128::new();
    let mut buffer = vec![0; 256 << 10];
    for segment in segments {
        hasher.write(&segment.offset.to_le_bytes());
        let mut at = segment.offset;
        let end = segment.offset + (segment.end - segment.start);
        while at < end {
            let want = buffer.len().min((end - at) as usize);
            match file.read_at(&mut buffer[..want], at) {
                // The last page is mapped whole.
                Ok(0) => break,
                Ok(got) => {
                    hasher.write(&buffer[..got]);
                    at += got as u64;
                }
                Err(_) => return None,
            }
        }
    }
    Some(hasher.finish_128())
}

/// The hash that stands for a file, and whether it does so on every machine: that of its build id
/// and size, or else of its place on this one.
pub fn name_of(file: &File, stamp: &Stamp) -> (u128, bool) {
    let build = build_id(file);
    let travels = build.is_some();
    let mut name = build.unwrap_or_else(|| {
        [stamp.device, stamp.inode].into_iter().flat_map(u64::to_le_bytes).collect()
    });
    name.extend(stamp.size.to_le_bytes());
    (XxHash3_128::oneshot(&name), travels)
}

/// The build id of an ELF file: the linker's hash of its content.
pub fn build_id(file: &File) -> Option<Vec<u8>> {
    let mut head = vec![0; 4096];
    let got = file.read_at(&mut head, 0).ok()?;
    head.truncate(got);
    // It may be in any of them: the processor's properties often stand in one of their own.
    notes(&head).filter(|(_, len)| *len <= 64 << 10).find_map(|(at, len)| {
        let mut section = vec![0; len as usize];
        file.read_exact_at(&mut section, at).ok()?;
        build_id_note(&section)
    })
}

/// File offset and size of the note segments, given the file's first page.
fn notes(head: &[u8]) -> impl Iterator<Item = (u64, u64)> + '_ {
    const PT_NOTE: u32 = 4;
    const PHDR_BYTES: usize = 56;
    let elf64 = head.starts_with(b"\x7fELF\x02\x01");
    let table = usize::try_from(u64_at(head, 32).unwrap_or(0)).unwrap_or(usize::MAX);
    let count = if elf64 { u16_at(head, 56).unwrap_or(0) } else { 0 };
    (0..usize::from(count)).filter_map(move |index| {
        let at = table.checked_add(index * PHDR_BYTES)?;
        let header = head.get(at..at.checked_add(PHDR_BYTES)?)?;
        (u32_at(header, 0)? == PT_NOTE).then_some((u64_at(header, 8)?, u64_at(header, 32)?))
    })
}

/// The build id among the notes of a segment.
fn build_id_note(section: &[u8]) -> Option<Vec<u8>> {
    const NT_GNU_BUILD_ID: u32 = 3;
    let mut rest = section;
    loop {
        let (name_len, len) = (u32_at(rest, 0)? as usize, u32_at(rest, 4)? as usize);
        let kind = u32_at(rest, 8)?;
        let name = rest.get(12..12usize.checked_add(name_len)?)?;
        let body = 12 + name_len.next_multiple_of(4);
        let id = rest.get(body..body.checked_add(len)?)?;
        if kind == NT_GNU_BUILD_ID && name == b"GNU\0" && !id.is_empty() {
            return Some(id.to_vec());
        }
        rest = rest.get(body + len.next_multiple_of(4)..)?;
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_id_is_found_behind_another_note() {
        let mut section = Vec::new();
        for (kind, body) in [(5u32, vec![1u8; 6]), (3, vec![0xab; 20])] {
            section.extend(4u32.to_le_bytes()); // name size
            section.extend((body.len() as u32).to_le_bytes()); // body size
            section.extend(kind.to_le_bytes());
            section.extend(b"GNU\0");
            section.extend(&body);
            section.resize(section.len().next_multiple_of(4), 0);
        }
        assert_eq!(build_id_note(&section), Some(vec![0xab; 20]));
        for len in 0..section.len() {
            // Truncated anywhere, it is not found, and nothing worse happens.
            assert_eq!(build_id_note(&section[..len]), None);
        }
        section[0] = 0xff;
        assert_eq!(build_id_note(&section), None);
    }

    #[test]
    fn a_build_id_is_found_in_any_segment_of_notes() {
        let property =
            [4u32.to_le_bytes(), 4u32.to_le_bytes(), 5u32.to_le_bytes(), *b"GNU\0", [0; 4]];
        let id = [4u32.to_le_bytes(), 4u32.to_le_bytes(), 3u32.to_le_bytes(), *b"GNU\0", *b"abcd"];
        let mut bytes = b"\x7fELF\x02\x01".to_vec();
        bytes.resize(400, 0);
        bytes[32] = 64; // program headers
        bytes[56] = 2; // their number
        for (index, at) in [200u64, 220].into_iter().enumerate() {
            let header = 64 + 56 * index;
            bytes[header] = 4; // PT_NOTE
            bytes[header + 8..header + 16].copy_from_slice(&at.to_le_bytes());
            bytes[header + 32] = 20; // bytes
        }
        bytes[200..220].copy_from_slice(property.as_flattened());
        bytes[220..240].copy_from_slice(id.as_flattened());
        let path = std::env::temp_dir().join(format!("lwp-notes-{}", std::process::id()));
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(build_id(&File::open(&path).unwrap()), Some(b"abcd".to_vec()));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn content_follows_the_code_and_only_that() {
        let path = std::env::temp_dir().join(format!("lwp-identity-{}", std::process::id()));
        let mut bytes = vec![7u8; 10_000];
        std::fs::write(&path, &bytes).unwrap();
        let segments = [Segment { start: 0x1000, end: 0x3000, offset: 4096 }];
        let first = content(&File::open(&path).unwrap(), &segments).unwrap();
        bytes[100] = 8; // outside the code
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(content(&File::open(&path).unwrap(), &segments), Some(first));
        bytes[9_999] = 8;
        std::fs::write(&path, &bytes).unwrap();
        let file = File::open(&path).unwrap();
        assert_ne!(content(&file, &segments), Some(first));
        assert!(!Stamp::of(&file).unwrap().is_settled());
        std::fs::remove_file(&path).unwrap();
    }
}
