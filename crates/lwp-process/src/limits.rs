//! Resource limits: the virtual CPU needs more than the program may have, and the program must not
//! see that.
//!
//! A limit is lifted in this process and put back in the program before it is executed; see
//! getrlimit(2).

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};

use crate::kernel_files;
use crate::sys::{self, Errno, Result};

/// Limits that are lifted: for the machine's memory, which is a large sparse file mapped as a
/// whole, for its heap and the stacks of its threads, and for the descriptors that lead to it and
/// to tracees.
const LIFTED: [Resource; 4] = [Resource::As, Resource::Data, Resource::Fsize, Resource::Nofile];

/// Descriptors that files of contexts, translations and programs leave to the rest of the host.
pub const RESERVED: u64 = 16;

/// The bytes by which limits of a program are raised for memory that is not its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Room {
    /// Of the limit on its address space.
    pub address_space: u64,
    /// Of the hard limit on that, which can never be raised again.
    pub hard_address_space: u64,
    /// Of the limit on its data.
    pub data: u64,
}

/// Stands for "no limit".
const NONE: u64 = u64::MAX;

/// Soft and hard limits as they were before [`lift`], in the order of [`LIFTED`].
static BEFORE: [[AtomicU64; 2]; 4] = [const { [const { AtomicU64::new(NONE) }; 2] }; 4];

/// Takes away this process's own limits, as far as that is allowed, the first time that it is
/// called. The programs that it starts to be traced keep them.
pub fn lift() {
    static LIFTED_ONCE: Once = Once::new();
    LIFTED_ONCE.call_once(lift_all);
}

fn lift_all() {
    for (resource, before) in LIFTED.into_iter().zip(&BEFORE) {
        let old = getrlimit(resource);
        let Some(current) = old.current else { continue };
        // A privileged process may raise the hard limit as well; how many descriptors there may be
        // at all is for the kernel to say.
        let unlimited = Rlimit { current: None, maximum: None };
        let lifted = match resource {
            Resource::Nofile => Rlimit { current: old.maximum, maximum: old.maximum },
            _ => unlimited,
        };
        let soft = Rlimit { current: old.maximum, maximum: old.maximum };
        if setrlimit(resource, lifted).is_ok() || setrlimit(resource, soft).is_ok() {
            before[0].store(current, Ordering::Relaxed);
            before[1].store(old.maximum.unwrap_or(NONE), Ordering::Relaxed);
        }
    }
}

/// Gives a new child the limits that this process had, raised by `room`. Makes system calls and
/// nothing else: it runs between fork and exec.
pub(crate) fn restore_in_child(room: Room) {
    for (resource, before) in LIFTED.into_iter().zip(&BEFORE) {
        let more = match resource {
            Resource::As => [room.address_space, room.hard_address_space],
            Resource::Data => [room.data; 2],
            _ => [0; 2],
        };
        let before = [0, 1].map(|index| before[index].load(Ordering::Relaxed));
        let raised = |index: usize| match before[index] {
            NONE => None,
            value => Some(value.saturating_add(more[index])),
        };
        let (current, maximum) = (raised(0), raised(1));
        let hard = Some(before[1]).filter(|hard| *hard != NONE);
        let within = Rlimit { current: current.min(hard.or(current)), maximum: hard };
        if current.is_some() && setrlimit(resource, Rlimit { current, maximum }).is_err() {
            let _ = setrlimit(resource, within);
        }
    }
}

/// The number of descriptors that this process may have open.
pub fn descriptors() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// The number of descriptors that this process may still open.
pub fn free_descriptors() -> u64 {
    let most = descriptors().unwrap_or(u64::MAX);
    match kernel_files::entries(kernel_files::Own, "fd") {
        Ok(open) => {
            let number = |name: std::ffi::OsString| name.to_str()?.parse::<u64>().ok();
            let numbers = open.flatten().filter_map(|entry| number(entry.file_name()));
            // The one that leads to the list is open for as long as this takes.
            let taken = numbers.filter(|number| *number < most).count() as u64;
            most.saturating_sub(taken.saturating_sub(1))
        }
        Err(error) if error.raw_os_error() == Some(libc::EMFILE) => 0,
        Err(_) => most,
    }
}

/// The bytes of address space that this process may still map; `None` without a limit.
pub fn room() -> Option<u64> {
    let limit = getrlimit(Resource::As).current?;
    let sizes = kernel_files::text(kernel_files::Own, "statm").ok()?;
    let pages: u64 = sizes.split(' ').next()?.parse().ok()?;
    Some(limit.saturating_sub(pages.saturating_mul(4096)))
}

/// Soft and hard limit on address space that this process had before [`lift`]; `u64::MAX` for none.
pub fn address_space_before() -> [u64; 2] {
    [0, 1].map(|index| BEFORE[0][index].load(Ordering::Relaxed))
}

/// Soft and hard limit on address space of a process; `None` where that may not be looked at.
pub fn address_space(pid: i32) -> Option<[u64; 2]> {
    sys::limit_of(pid, libc::RLIMIT_AS).ok()
}

/// Sets both, as far as that is allowed.
pub fn set_address_space(pid: i32, limit: [u64; 2]) {
    let [current, maximum] = limit.map(|value| Some(value).filter(|value| *value != NONE));
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = prlimit(Some(pid), Resource::As, Rlimit { current, maximum });
    }
}

/// Returns whether a file of `bytes` bytes may be made: trying it would send SIGXFSZ.
pub(crate) fn allow_file(bytes: u64) -> bool {
    getrlimit(Resource::Fsize).current.is_none_or(|limit| bytes <= limit)
}

/// The descriptors of a stopped tracee, without their limit while this value lives.
#[derive(Debug)]
pub struct MoreFiles {
    pid: Pid,
    before: Rlimit,
}

impl MoreFiles {
    /// Raises the limit of `tid`'s process by one, past its hard limit where that is allowed.
    ///
    /// # Errors
    ///
    /// `EPERM` where raising is not allowed; nothing has changed then.
    pub fn allow(tid: i32) -> Result<Self> {
        let error = |error: rustix::io::Errno| Errno(error.raw_os_error());
        let pid = Pid::from_raw(tid).ok_or(Errno::ESRCH)?;
        // prlimit(2) reads by writing what is there already; /proc says what that is.
        let before = files_of(tid).ok_or(Errno::ESRCH)?;
        let Some(current) = before.current else { return Err(Errno(libc::EPERM)) };
        let more = current + 64;
        let maximum = before.maximum.map(|maximum| maximum.max(more));
        prlimit(Some(pid), Resource::Nofile, Rlimit { current: Some(more), maximum })
            .map_err(error)?;
        Ok(Self { pid, before })
    }
}

impl Drop for MoreFiles {
    fn drop(&mut self) {
        let before = Rlimit { current: self.before.current, maximum: self.before.maximum };
        let _ = prlimit(Some(self.pid), Resource::Nofile, before);
    }
}

/// A raised limit on the memory that a stopped tracee may lock, while this value lives.
#[derive(Debug)]
pub struct LockedMemory {
    pid: Pid,
    before: Rlimit,
}

impl LockedMemory {
    /// Raises the limit of `tid`'s process by `bytes`, as far as that is allowed. `None` where
    /// there is no limit, or none that could be raised.
    pub fn allow(tid: i32, bytes: u64) -> Option<Self> {
        let before = limit_of(tid, LOCKED)?;
        let pid = Pid::from_raw(tid)?;
        let more = before.current?.saturating_add(bytes);
        let maximum = before.maximum.map(|maximum| maximum.max(more));
        let after = Rlimit { current: Some(more), maximum };
        prlimit(Some(pid), Resource::Memlock, after).ok()?;
        Some(Self { pid, before })
    }
}

impl Drop for LockedMemory {
    fn drop(&mut self) {
        let before = Rlimit { current: self.before.current, maximum: self.before.maximum };
        let _ = prlimit(Some(self.pid), Resource::Memlock, before);
    }
}

/// The name of the limit on locked memory in /proc.
const LOCKED: &str = "Max locked memory";

/// Returns the number of bytes that `tid`'s process may lock; `None` without a limit.
pub fn locked_memory(tid: i32) -> Option<u64> {
    limit_of(tid, LOCKED)?.current
}

/// Raises the limit on address space of `tid`'s process, where it has one, by `bytes`, up to its
/// hard limit.
pub fn raise_address_space(tid: i32, bytes: u64) {
    let Some([soft, hard]) = address_space(tid).filter(|[soft, _]| *soft != NONE) else { return };
    set_address_space(tid, [soft.saturating_add(bytes).min(hard), hard]);
}

/// The limits on memory of `tid`'s process, as words behind what they refuse; empty without any.
pub fn on_memory(tid: i32) -> String {
    let limits = [("Max data size", "data", 'd'), ("Max address space", "address space", 'v')];
    let named = limits.into_iter().filter_map(|(name, what, option)| {
        let bytes = limit_of(tid, name)?.current?;
        Some(format!("; its limit on {what} is {} KiB (ulimit -{option})", bytes >> 10))
    });
    named.collect()
}

/// A process's limit on its descriptors.
fn files_of(tid: i32) -> Option<Rlimit> {
    limit_of(tid, "Max open files")
}

/// The limit of a process that /proc calls `name`.
fn limit_of(tid: i32, name: &str) -> Option<Rlimit> {
    let limits = kernel_files::text(tid, "limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    let mut values = line.split_whitespace().map(|word| word.parse::<u64>().ok());
    Some(Rlimit { current: values.next()?, maximum: values.next()? })
}
