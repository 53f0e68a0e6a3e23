//! Descriptors of a tracee, as the kernel describes them.

use rustix::fs::{AtFlags, StatxFlags};

use crate::Tid;
use crate::kernel_files;

/// The type and the number of the file that a tracee has open at a descriptor, as the kernel knows
/// them: a program that serves its file system is not asked.
pub fn known_of(tid: Tid, fd: i32) -> Option<rustix::fs::Statx> {
    let path = format!("/proc/{tid}/fd/{fd}");
    let asked = StatxFlags::TYPE | StatxFlags::INO;
    rustix::fs::statx(rustix::fs::CWD, path, AtFlags::STATX_DONT_SYNC, asked).ok()
}

/// The flags of a tracee's descriptor.
pub fn flags_of(tid: Tid, fd: i32) -> Option<u64> {
    let text = kernel_files::text(tid, &format!("fdinfo/{fd}")).ok()?;
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"))?;
    u64::from_str_radix(flags.trim(), 8).ok()
}
