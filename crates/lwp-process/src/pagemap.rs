//! `/proc/PID/pagemap`: whether a process has pages of its own in a private file mapping.
//!
//! A page that was written to, by a debugger, by text relocations or through `/proc/PID/mem`, is a
//! copy of the process's own, and what is in it is not what the file says.

use std::cell::OnceCell;
use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::kernel_files;

const PAGE: u64 = 4096;
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const OF_FILE: u64 = 1 << 61;

/// The page table of one process, opened on first use.
#[derive(Debug)]
pub struct Pagemap {
    tid: i32,
    file: OnceCell<Option<File>>,
}

impl Pagemap {
    /// The page table of a thread's process.
    pub fn of(tid: i32) -> Self {
        Self { tid, file: OnceCell::new() }
    }

    /// Returns whether the process has a copy of any page in `range`, a private file mapping.
    /// Unknown counts as no, because the file can be read in any case.
    pub fn has_private_pages(&self, range: (u64, u64)) -> bool {
        let open = || kernel_files::open(self.tid, "pagemap").ok();
        let Some(file) = self.file.get_or_init(open) else { return false };
        let mut buffer = [0u8; 8192];
        let mut page = range.0 / PAGE;
        let end = range.1.div_ceil(PAGE);
        while page < end {
            let want = buffer.len().min((end - page) as usize * 8);
            let got = match file.read_at(&mut buffer[..want], page * 8) {
                Ok(got) if got >= 8 => got / 8,
                _ => return false,
            };
            if buffer[..got * 8].chunks_exact(8).any(is_private) {
                return true;
            }
            page += got as u64;
        }
        false
    }
}

fn is_private(entry: &[u8]) -> bool {
    let entry = u64::from_le_bytes(entry.try_into().expect("eight bytes"));
    entry & (PRESENT | SWAPPED) != 0 && entry & OF_FILE == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_code_is_the_file_s_and_own_stack_is_not() {
        let pid = std::process::id() as i32;
        let maps = crate::maps::read(pid);
        let code = is_private as fn(&[u8]) -> bool as usize as u64;
        let stack = &raw const maps as u64;
        let around = |address: u64| {
            let found = maps.iter().find(|m| (m.start..m.end).contains(&address)).unwrap();
            (found.start, found.end)
        };
        let pages = Pagemap::of(pid);
        assert!(!pages.has_private_pages(around(code)));
        assert!(pages.has_private_pages(around(stack)));
    }

    #[test]
    fn entries_are_told_apart() {
        let private = |entry: u64| is_private(&entry.to_le_bytes());
        assert!(private(PRESENT) && private(SWAPPED));
        assert!(!private(0) && !private(PRESENT | OF_FILE) && !private(OF_FILE));
    }
}
