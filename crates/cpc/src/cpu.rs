//! Keeping a thread on the processor it counts.

use std::collections::BTreeSet;
use std::fs;
use std::sync::{Mutex, PoisonError};

use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_getcpu, sched_setaffinity};

use crate::error::{Error, Result, Subcode};

/// Processors this process has bound a set to.
static TAKEN: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// The processor with number `id`.
///
/// # Errors
///
/// EINVAL if there is none, ENOSYS if it is offline.
pub(crate) fn check(id: i32) -> Result<u32> {
    let no_such = Error::invalid("there is no such processor");
    let id = u32::try_from(id).ok().filter(|id| (*id as usize) < CpuSet::MAX_CPU);
    let id = id.ok_or(no_such.clone())?;
    if !listed("present", id).unwrap_or(true) {
        return Err(no_such);
    }
    if !listed("online", id).unwrap_or(true) {
        return Err(Error::new(libc::ENOSYS, "the processor is offline"));
    }
    Ok(id)
}

/// Returns whether `id` is in the kernel's list of that name; `None` if the list cannot be read.
fn listed(list: &str, id: u32) -> Option<bool> {
    let text = fs::read_to_string(format!("/sys/devices/system/cpu/{list}")).ok()?;
    Some(contains(&text, id))
}

/// Returns whether a list like `0-3,8` contains `id`.
fn contains(list: &str, id: u32) -> bool {
    list.trim().split(',').any(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let bounds = (first.trim().parse(), last.trim().parse());
        matches!(bounds, (Ok(first), Ok(last)) if (first..=last).contains(&id))
    })
}

/// Keeps a thread on a processor; dropping it lets it go where it could go before.
#[derive(Debug)]
pub(crate) struct Pin {
    id: u32,
    thread: Pid,
    before: CpuSet,
}

impl Pin {
    /// Keeps the calling thread on processor `id`.
    ///
    /// # Errors
    ///
    /// EAGAIN if this process has done so before; else [`Subcode::PbindFailed`].
    pub(crate) fn new(id: u32) -> Result<Self> {
        if !taken().insert(id) {
            return Err(Error::new(libc::EAGAIN, "a set is bound to the processor already"));
        }
        Self::move_to(id).inspect_err(|_| {
            taken().remove(&id);
        })
    }

    fn move_to(id: u32) -> Result<Self> {
        let failed = |error: rustix::io::Errno| {
            let reason = format!("the thread cannot be bound to processor {id}: {error}");
            Error::coded(Subcode::PbindFailed, reason).with_errno(error.raw_os_error())
        };
        let before = sched_getaffinity(None).map_err(failed)?;
        let mut only = CpuSet::new();
        only.set(id as usize);
        sched_setaffinity(None, &only).map_err(failed)?;
        Ok(Self { id, thread: gettid(), before })
    }

    /// Returns whether the calling thread is the one that is kept, and on its processor.
    ///
    /// # Errors
    ///
    /// EAGAIN if not.
    pub(crate) fn check_here(&self) -> Result<()> {
        if self.thread == gettid() && sched_getcpu() == self.id as usize {
            return Ok(());
        }
        Err(Error::new(libc::EAGAIN, "the thread is not on the processor it counts"))
    }

    /// Lets the thread go.
    ///
    /// # Errors
    ///
    /// EAGAIN if another thread is the one that is kept; it is let go all the same.
    pub(crate) fn release(self) -> Result<()> {
        if self.thread == gettid() {
            return Ok(());
        }
        Err(Error::new(libc::EAGAIN, "another thread has bound the set to the processor"))
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        taken().remove(&self.id);
        // The thread may have ended; then there is nothing to restore.
        let _ = sched_setaffinity(Some(self.thread), &self.before);
    }
}

fn taken() -> std::sync::MutexGuard<'static, BTreeSet<u32>> {
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "a test may panic")]

    use super::*;

    #[test]
    fn lists_of_processors_are_read() {
        assert!(contains("0-3,8\n", 0) && contains("0-3,8\n", 3) && contains("0-3,8", 8));
        assert!(!contains("0-3,8\n", 4) && !contains("\n", 0) && !contains("0-", 0));
    }

    #[test]
    fn impossible_processors_are_refused() {
        for id in [-1, 1 << 20] {
            assert_eq!(check(id).unwrap_err().errno(), libc::EINVAL);
        }
    }

    #[test]
    fn a_pinned_thread_gets_its_processors_back() {
        let before = sched_getaffinity(None).unwrap();
        let pin = Pin::new(0).unwrap();
        assert_eq!(Pin::new(0).unwrap_err().errno(), libc::EAGAIN);
        pin.check_here().unwrap();
        assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
        let elsewhere = std::thread::scope(|s| s.spawn(|| pin.check_here()).join().unwrap());
        assert_eq!(elsewhere.unwrap_err().errno(), libc::EAGAIN);
        pin.release().unwrap();
        assert_eq!(sched_getaffinity(None).unwrap(), before);
        assert!(Pin::new(0).is_ok());
    }
}
