//! The host thread that waits for writes to guarded pages.

use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use lwp_ptrace::userfault::Write;

use super::holder::Holder;
use super::{END, FIRST_PAUSE, Notices, Waiting};
use crate::machine::Machine;
use crate::server::lock;

/// The pause between two looks of a write at the machine's lock.
const LOOK: Duration = Duration::from_micros(20);

/// Waits until the machine is finished.
pub fn watch(machine: &Mutex<Machine>, waiting: &Waiting) {
    let mut timeout = None;
    loop {
        let keys = waiting.writes.wait(timeout);
        if keys.contains(&END) {
            return;
        }
        for notices in keys.into_iter().filter_map(|key| waiting.with_key(key)) {
            while let Some(write) = notices.next_write() {
                give(machine, &notices, write);
            }
        }
        let pauses = lock(machine).end_pauses(&waiting.all());
        timeout = pauses.then_some(FIRST_PAUSE);
    }
}

/// Lets a write happen, as soon as what was translated of its page is cut off.
fn give(machine: &Mutex<Machine>, notices: &Notices, write: Write) {
    let mut guard = try_lock(machine, write).unwrap_or_else(|| {
        notices.let_write(write.address);
        lock(machine)
    });
    guard.about_to_be_written(notices, write.address);
}

/// Takes the machine's lock, unless its holder may wait for the write, as where the kernel lays a
/// signal's frame into a page with code.
fn try_lock(machine: &Mutex<Machine>, write: Write) -> Option<MutexGuard<'_, Machine>> {
    let mut holder = Holder::new(write.tid);
    loop {
        match machine.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(error)) => return Some(error.into_inner()),
            Err(TryLockError::WouldBlock) if holder.waits() => return None,
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOOK),
        }
    }
}
