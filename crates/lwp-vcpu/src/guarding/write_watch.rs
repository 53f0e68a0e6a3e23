//! The host thread that waits for writes to guarded pages.
//!
//! The thread takes the machine's lock before it lets a write happen, but the holder of that lock
//! may make or wait for such a write itself. So the thread never sleeps on the lock: between two
//! attempts to take it, it receives further writes, and lets those happen that the holder waits
//! for.

use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use lwp_process::sys;
use lwp_process::userfault::Write;

use super::lock_holder::Holder;
use super::{END, FIRST_PAUSE, Notices, PAUSED, Waiting, about_to_be_written};
use crate::machine::Machine;

/// The pause between two looks at the lock while a write waits.
const LOOK: Duration = Duration::from_micros(20);
/// The pause between two looks at the lock while no write waits.
const CALM_LOOK: Duration = Duration::from_millis(1);

/// Waits until the machine is finished.
pub fn watch(machine: &Mutex<Machine>, waiting: &Waiting) {
    let mut writes = Pending { waiting, writes: Vec::new() };
    let mut timeout = None;
    loop {
        let keys = waiting.writes.wait(timeout);
        if keys.contains(&END) {
            return;
        }
        if keys.contains(&PAUSED) {
            sys::event_clear(&waiting.paused);
        }
        writes.receive(keys);
        let mut guard = writes.lock(machine);
        for pending in writes.writes.drain(..) {
            about_to_be_written(&mut guard, &pending.notices, pending.write.address);
        }
        let pauses = guard.guarding().end_pauses(&waiting.all());
        timeout = pauses.then_some(FIRST_PAUSE);
    }
}

/// The writes that have been received and whose pages are not cut off yet.
struct Pending<'a> {
    waiting: &'a Waiting,
    writes: Vec<Received>,
}

struct Received {
    notices: Arc<Notices>,
    write: Write,
    holder: Holder,
    /// It has happened already.
    let_happen: bool,
}

impl Pending<'_> {
    /// Receives the writes that wait in the address spaces with these keys.
    fn receive(&mut self, keys: Vec<u64>) {
        for notices in keys.into_iter().filter_map(|key| self.waiting.with_key(key)) {
            while let Some(write) = notices.next_write() {
                let (notices, holder) = (Arc::clone(&notices), Holder::new(write.tid));
                self.writes.push(Received { notices, write, holder, let_happen: false });
            }
        }
    }

    /// Takes the lock. Its holder may wait for a write, as where the kernel lays a signal's frame
    /// into a page with code, or make one, as where it writes to the program's memory.
    fn lock<'m, T>(&mut self, lock: &'m Mutex<T>) -> MutexGuard<'m, T> {
        loop {
            match lock.try_lock() {
                Ok(guard) => return guard,
                Err(TryLockError::Poisoned(error)) => return error.into_inner(),
                Err(TryLockError::WouldBlock) => self.let_happen(),
            }
        }
    }

    /// Lets the writes happen that the holder of the lock waits for, and waits for others a moment.
    fn let_happen(&mut self) {
        let mut look = CALM_LOOK;
        for received in self.writes.iter_mut().filter(|received| !received.let_happen) {
            if received.holder.waits() {
                received.notices.let_write(received.write.address);
                received.let_happen = true;
            } else {
                look = Duration::ZERO;
            }
        }
        if look.is_zero() {
            std::thread::sleep(LOOK);
        }
        let keys = self.waiting.writes.wait(Some(look));
        self.receive(keys);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread::JoinHandle;

    use lwp_process::userfault::{Reach, Userfault};
    use lwp_process::{Tid, memory};

    use lwp_code::guards::pages_of;

    use super::super::{Means, PAGE, Unasked};
    use super::*;

    const KEY: u64 = 1;

    /// Two whole pages of memory of no file, and their notices; none where they are refused.
    fn guarded(waiting: &Waiting, memory: &[u8]) -> Option<(Arc<Notices>, Vec<usize>)> {
        let start = memory.as_ptr().addr();
        let first = start.next_multiple_of(PAGE as usize);
        let range = (first as u64, first as u64 + 2 * PAGE);
        let descriptor = Userfault::own(Reach::All).ok()?;
        waiting.writes.add(&descriptor, KEY).expect("a descriptor");
        let means = Means::Userfault { descriptor, waits_for_kernel: true };
        let notices = Arc::new(Notices::new(KEY, means, Unasked::default()));
        waiting.given().insert(KEY, Arc::downgrade(&notices));
        assert!(notices.guard(range, range));
        Some((notices, pages_of(range).map(|page| page as usize - start).collect()))
    }

    fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        std::thread::Builder::new().spawn(work).expect("a thread")
    }

    #[test]
    fn the_holder_of_the_lock_may_write_to_guarded_pages() {
        let waiting = Arc::new(Waiting::new().expect("descriptors"));
        let mut memory = vec![0u8; 1 << 20];
        let Some((_notices, pages)) = guarded(&waiting, &memory) else {
            println!("skipped: this kernel gives no notice of its own writes");
            return;
        };
        let lock = Arc::new(Mutex::new(()));
        let held = lock.lock().expect("nobody panics");
        let watched = {
            let (lock, waiting) = (Arc::clone(&lock), Arc::clone(&waiting));
            spawn(move || {
                let mut pending = Pending { waiting: &waiting, writes: Vec::new() };
                drop(pending.lock(&lock));
                pending.writes.len()
            })
        };
        let (written, end) = mpsc::channel();
        spawn(move || {
            // As the host writes to a program's memory.
            let process = std::process::id() as Tid;
            for page in pages {
                let byte = memory[page..].as_mut_ptr().addr() as u64;
                memory::write_exact(process, byte, &[1]).expect("a byte");
            }
            let _ = written.send(());
        });
        end.recv_timeout(Duration::from_secs(60))
            .expect("the writes happen while the lock is held");
        drop(held);
        assert_eq!(watched.join().expect("a thread"), 2, "both are still to be cut off");
    }
}
