//! Pages of tracees that a program fills, once they are asked for: by userfaultfd(2), or as the
//! server of a file system that they are mapped from (FUSE).
//!
//! Whoever reads such a page waits until the program has filled it. A host that waits so while
//! threads of the program wait for the host never goes on. Therefore, once a program of the run may
//! have such pages ([`expect`]), the accesses of [`crate::memory`] end in front of one, as they do
//! in front of memory that is not mapped. A thread of the program that needs the page is led to
//! read it itself. Files of such a system are not opened by the host ([`is_served`]).
//!
//! Promise: F34

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::kernel_files;
use crate::tracee::Tid;

const PAGE: u64 = 4096;
/// The bits of an entry of `/proc/PID/pagemap` for a page that is in memory, or swapped out or on
/// its way: neither is asked for.
const THERE: u64 = 3 << 62;
/// Flags of a mapping in `/proc/PID/smaps`: its pages that are missing, or missing in the page
/// table, are asked for.
const FILLED: [&str; 2] = ["um", "ui"];

/// The major and minor number of a device.
type Device = (u32, u32);

static EXPECTED: AtomicBool = AtomicBool::new(false);
/// Devices of file systems that are known to be the kernel's own.
static OF_KERNEL: Mutex<BTreeSet<Device>> = Mutex::new(BTreeSet::new());

/// Reckons with such pages from now on, in all tracees.
pub fn expect() {
    EXPECTED.store(true, Ordering::Release);
}

/// Returns whether a program of the run may have such pages.
pub fn is_expected() -> bool {
    EXPECTED.load(Ordering::Acquire)
}

/// Returns whether a process sees a file system on `device` that a program serves. Then its pages
/// are reckoned with.
pub fn is_served(tid: Tid, device: Device) -> bool {
    let mut of_kernel = OF_KERNEL.lock().unwrap_or_else(PoisonError::into_inner);
    if of_kernel.contains(&device) {
        return false;
    }
    let mounts = kernel_files::text(tid, "mountinfo").unwrap_or_default();
    let served = mounts.lines().any(|line| mounts_served(line) == Some(device));
    if served {
        expect();
    } else {
        of_kernel.insert(device);
    }
    served
}

/// The device of the file system that a line of mountinfo tells of, if a program serves it.
fn mounts_served(line: &str) -> Option<Device> {
    let (mount, system) = line.split_once(" - ")?;
    let kind = system.split(' ').next()?;
    let (major, minor) = mount.split(' ').nth(2)?.split_once(':')?;
    let served = kind == "fuseblk" || kind == "fuse" || kind.starts_with("fuse.");
    served.then_some((major.parse().ok()?, minor.parse().ok()?))
}

/// Returns the first address in `bytes` bytes from `address` on whose page a program has yet to
/// fill.
pub fn first(tid: Tid, address: u64, bytes: usize) -> Option<u64> {
    if !is_expected() || bytes == 0 {
        return None;
    }
    let pages = kernel_files::open(tid, "pagemap").ok()?;
    let end = address.checked_add(bytes as u64)?;
    (address & !(PAGE - 1)..end)
        .step_by(PAGE as usize)
        .find(|page| is_absent(&pages, *page) && is_filled_by_program(tid, *page))
        .map(|page| page.max(address))
}

/// Returns how many of `bytes` bytes from `address` on can be accessed without waiting for a
/// program.
pub(crate) fn reach(tid: Tid, address: u64, bytes: usize) -> usize {
    first(tid, address, bytes).map_or(bytes, |absent| (absent - address) as usize)
}

fn is_absent(pages: &File, page: u64) -> bool {
    let mut entry = [0; 8];
    pages.read_exact_at(&mut entry, page / PAGE * 8).is_ok()
        && u64::from_le_bytes(entry) & THERE == 0
}

/// Returns whether a page lies in memory of which a program is told when a page is missing, or of a
/// file that a program serves.
fn is_filled_by_program(tid: Tid, page: u64) -> bool {
    let Ok(file) = kernel_files::open(tid, "smaps") else { return false };
    is_marked(BufReader::new(file), page, |device| is_served(tid, device))
}

/// Returns whether the mapping of `page` has one of the flags in `smaps`, or is of a device that is
/// `served`.
fn is_marked(smaps: impl BufRead, page: u64, served: impl Fn(Device) -> bool) -> bool {
    let mut inside = false;
    for line in smaps.lines().map_while(Result::ok) {
        if let Some((start, end)) = range_of(&line) {
            if inside || start > page {
                return false;
            }
            inside = page < end;
            if inside && device_of(&line).is_some_and(&served) {
                return true;
            }
        } else if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| inside) {
            return flags.split_ascii_whitespace().any(|flag| FILLED.contains(&flag));
        }
    }
    false
}

/// The range of the mapping that a line begins to tell of.
fn range_of(line: &str) -> Option<(u64, u64)> {
    let (start, end) = line.split_ascii_whitespace().next()?.split_once('-')?;
    Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
}

/// The device of the file that is mapped there.
fn device_of(line: &str) -> Option<Device> {
    let mut fields = line.split_ascii_whitespace().skip(3);
    let (major, minor) = fields.next()?.split_once(':')?;
    let device = (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
    (fields.next()? != "0").then_some(device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_those_of_the_page_s_mapping() {
        let text = "1000-2000 rw-p 00000000 00:00 0 \nRss: 0 kB\nVmFlags: rd wr um sd \n\
                    2000-4000 rw-p 00000000 00:00 0 [heap]\nRss: 4 kB\nVmFlags: rd wr ac \n\
                    5000-6000 rw-s 00000000 00:01 9 /memfd:a b\nVmFlags: rd ui \n";
        let marked = |page| is_marked(text.as_bytes(), page, |_| false);
        assert!(marked(0x1000) && marked(0x5000));
        assert!(!marked(0) && !marked(0x2000) && !marked(0x3000) && !marked(0x4000));
        assert!(!marked(0x6000));
        let served = |page| is_marked(text.as_bytes(), page, |device| device == (0, 1));
        assert!(served(0x1000) && served(0x5000) && !served(0x2000));
        let cut_short = "1000-2000 rw-p 00000000 00:00 0\n";
        assert!(!is_marked(cut_short.as_bytes(), 0x1000, |_| true));
    }

    #[test]
    fn file_systems_of_programs_are_told_from_the_kernel_s() {
        let served = |kind: &str| {
            mounts_served(&format!(
                "9 2 0:44 / /mnt/a\\040- rw shared:1 - {kind} /usr rw,user_id=0"
            ))
        };
        assert_eq!(served("fuse"), Some((0, 44)));
        assert_eq!(served("fuse.sshfs"), Some((0, 44)));
        assert_eq!(served("fuseblk"), Some((0, 44)));
        assert!(served("fusectl").is_none() && served("ext4").is_none());
        assert_eq!(mounts_served("9 2 0:44 / /mnt"), None);
    }

    #[test]
    fn memory_of_no_file_is_of_no_device() {
        assert_eq!(device_of("1000-2000 rw-p 00000000 00:00 0 [heap]"), None);
        assert_eq!(device_of("1000-2000 rw-p 00000000 fd:1f 77  /a"), Some((0xfd, 0x1f)));
    }
}
