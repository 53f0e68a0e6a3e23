//! When a controller may copy itself to follow a child.
//!
//! # Safety
//!
//! JUSTIFICATION: the copy of a process with several threads has only one thread. Locks that the
//! others held stay locked, and data that they were changing stays half changed, so the copy may
//! only call async-signal-safe functions. The compiler can't check that, because [`Handlers::fork`]
//! may be any safe code; the caller has to promise it. A process with one thread is copied
//! completely, and needs no promise.
//!
//! [`Handlers::fork`]: crate::Handlers::fork
#![allow(unsafe_code, reason = "a promise; see the module's safety section")]

use std::cell::{Cell, RefCell};
use std::fs;

use lwp_process::sys;

use crate::{Error, Pid};

/// The copies that this process makes of itself, one for each child that it follows; see
/// [`Handlers::fork`](crate::Handlers::fork).
#[derive(Debug, Default)]
pub struct Copies {
    /// Copies are made although this process has other threads.
    with_threads: Cell<bool>,
    /// The copies nobody has waited for.
    running: RefCell<Vec<Pid>>,
}

impl Copies {
    /// Allows following children even while this process has other threads.
    ///
    /// Otherwise, a child that is created while there are other threads runs untraced, and
    /// [`Handlers::not_followed`](crate::Handlers::not_followed) reports [`Error::Threads`]. Copies
    /// of this process inherit the permission for their own children.
    ///
    /// # Safety
    ///
    /// A copy of this process has only the calling thread: locks that other threads held are never
    /// released there, and data that they were changing stays half changed. The caller promises
    /// that this doesn't affect [`Handlers::fork`](crate::Handlers::fork), the handlers that it
    /// runs the child with, and everything else that the copy executes. In particular, the other
    /// threads hold no locks that these need, and the allocator can be used in a copy (glibc's
    /// can).
    ///
    /// Spec: fork(2), signal-safety(7).
    pub unsafe fn allow_with_threads(&self) {
        self.with_threads.set(true);
    }

    /// Waits until all copies that this process has made have ended.
    pub fn wait(&self) {
        for copy in self.running.take() {
            let _ = sys::wait_one(copy);
        }
    }

    /// Returns why this process must not copy itself now.
    pub(crate) fn may_be_made(&self) -> Result<(), Error> {
        if self.with_threads.get() || has_one_thread() {
            return Ok(());
        }
        Err(Error::Threads)
    }

    /// Notes a copy.
    pub(crate) fn add(&self, copy: Pid) {
        self.running.borrow_mut().push(copy);
    }

    /// In a copy: its siblings are not its own to wait for.
    pub(crate) fn forget(&self) {
        self.running.borrow_mut().clear();
    }

    /// Takes over the permission of the process that this one is a copy of.
    pub(crate) fn inherit(&self, from: &Self) {
        self.with_threads.set(from.with_threads.get());
    }
}

/// Returns whether the calling thread is this process's only one. If so, it remains so while it
/// makes none.
fn has_one_thread() -> bool {
    // Without /proc nobody knows.
    fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tests' harness has a thread of its own besides this one.
    #[test]
    fn other_threads_are_seen() {
        let (send, wait) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            #[allow(clippy::disallowed_methods, reason = "a test without a thread fails")]
            scope.spawn(move || wait.recv());
            assert!(!has_one_thread());
            drop(send);
        });
    }
}
