//! Credentials of one thread of this process.

use super::{Result, check};

/// Users, groups and capabilities that the kernel looks at when a file is opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// The user for files.
    pub user: u32,
    /// The group for files.
    pub group: u32,
    /// Further groups.
    pub groups: Vec<u32>,
    /// The effective capabilities, bit by bit.
    pub capabilities: u64,
}

/// Gives the calling thread, and no other, the credentials of somebody who may do less. There is no
/// way back: the thread is one that ends soon.
///
/// # Errors
///
/// The kernel's. The thread may have some of the credentials then.
pub fn lower_thread_credentials(wanted: &Credentials) -> Result<()> {
    const VERSION_3: u32 = 0x2008_0522;
    let groups = &wanted.groups;
    // The C library would change all threads, hence system calls.
    // SAFETY: the kernel reads as many groups as the vector has.
    check(unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) })?;
    // SAFETY: numbers only. These two return what was there before, and never fail as others do.
    unsafe {
        libc::syscall(libc::SYS_setfsgid, wanted.group);
        libc::syscall(libc::SYS_setfsuid, wanted.user);
    }
    let mut header = [VERSION_3, 0];
    let mut sets = [[0u32; 3]; 2];
    // SAFETY: a header and two structures of three words each, as capget(2) says, which live
    // through the call.
    check(unsafe { libc::syscall(libc::SYS_capget, header.as_mut_ptr(), sets.as_mut_ptr()) })?;
    for (set, allowed) in sets.iter_mut().zip([wanted.capabilities, wanted.capabilities >> 32]) {
        set[0] &= allowed as u32;
    }
    header[0] = VERSION_3;
    // SAFETY: as above.
    check(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) }).map(drop)
}

/// The user and the group for files of the calling thread.
pub fn file_credentials() -> (u32, u32) {
    // SAFETY: numbers only; -1 is nobody's, and changes nothing.
    let (user, group) = unsafe {
        (libc::syscall(libc::SYS_setfsuid, u32::MAX), libc::syscall(libc::SYS_setfsgid, u32::MAX))
    };
    (user as u32, group as u32)
}
