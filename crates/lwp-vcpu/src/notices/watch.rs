//! The host thread that waits for writes to guarded pages.

use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use super::{END, FIRST_PAUSE, Notices, Waiting};
use crate::machine::Machine;
use crate::server::lock;

/// How long a write waits at most for the machine's lock. Whoever holds it may be waiting for the
/// very thread that writes, as where the kernel lays a signal's frame into a page with code.
const PATIENCE: Duration = Duration::from_millis(50);
/// How often it looks.
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
            while let Some(address) = notices.next_write() {
                give(machine, &notices, address);
            }
        }
        let pauses = lock(machine).end_pauses(&waiting.all());
        timeout = pauses.then_some(FIRST_PAUSE);
    }
}

/// A write to `address` waits.
fn give(machine: &Mutex<Machine>, notices: &Notices, address: u64) {
    let mut guard = try_lock(machine).unwrap_or_else(|| {
        notices.let_write(address);
        lock(machine)
    });
    guard.about_to_be_written(notices, address);
}

fn try_lock(machine: &Mutex<Machine>) -> Option<MutexGuard<'_, Machine>> {
    let began = Instant::now();
    loop {
        match machine.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(error)) => return Some(error.into_inner()),
            Err(TryLockError::WouldBlock) if began.elapsed() > PATIENCE => return None,
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOOK),
        }
    }
}
