//! The server: the host thread that answers the mailboxes.
//!
//! Translated code that needs something rings its door flag and waits; the server looks through the
//! flags, and when none is set spins for a while and then sleeps on a futex that the next ring
//! wakes. Both sides adapt ([`SpinPolicy`]): if the thread asks on the server's own processor, or
//! if threads that have spun are found asleep, the two sides share a processor, spinning takes time
//! from the other side, and a hand-off is expensive. Then neither side spins, and the server
//! translates more at a time.

use std::sync::{Mutex, MutexGuard};
use std::thread::Scope;
use std::time::{Duration, Instant};

use lwp_dbt::{Candidate, Queue};
use lwp_process::{Tid, sys};

use crate::AbortOnPanic;
use crate::guarding;
use crate::machine::Machine;
use crate::relayout;

mod answers;
mod bells;
mod calls;
mod dispatch;
mod early_reports;
mod rare_calls;
mod remapping;
mod user_dispatch;
mod wait_predictor;

pub use answers::Answer;
use bells::Bells;
pub use calls::{arrange_call, settle_effect, syscall_done};
pub use dispatch::remove_entries;
use dispatch::work_off;
use early_reports::EarlyReports;
pub use lwp_mailbox::SpinPolicy;
pub use rare_calls::{about_to_call_of_32_bits, called_natively, put_back_held};
pub use remapping::drop_code;
use wait_predictor::{Wait, WaitPredictor};

/// Fragments translated after an answer, while nobody asks for anything.
const SPARE: usize = 120;
/// Places kept that could be translated then.
const MOST_SPARE: usize = 1 << 14;
/// The time for which the server spins after its last request.
const SPIN: Duration = Duration::from_micros(50);
/// Sleeps are bounded: what has been translated is written every now and then.
const NAP: Duration = Duration::from_millis(20);
/// The longest sleep while there are threads that may not make the system call that wakes us.
const FILTERED_NAP: Duration = Duration::from_micros(50);

/// The places that a thread may come to next, as found while answering it.
#[derive(Debug)]
pub struct Backlog {
    tid: Tid,
    found: Vec<Candidate>,
}

/// Translation that can wait until nobody asks for anything.
#[derive(Debug, Default)]
struct Spare {
    tid: Tid,
    queue: Queue,
    left: usize,
}

impl Spare {
    /// Adds what has been found; what an earlier thread has left is forgotten.
    fn add(&mut self, backlog: &Backlog) {
        if self.tid != backlog.tid {
            self.queue = Queue::default();
            self.tid = backlog.tid;
        }
        self.queue.requeue(&backlog.found);
        self.queue.shorten(MOST_SPARE);
        self.left = SPARE;
    }
}

/// Runs until the machine is finished. Threads of the host that it needs besides are made in
/// `scope`.
pub fn serve<'scope>(machine: &'scope Mutex<Machine>, scope: &'scope Scope<'scope, '_>) {
    let alone = sys::allowed_cpus() <= 1;
    let mut bells = Bells::new(&lock(machine).contexts.doors);
    let mut last = Instant::now();
    let mut sleeps = false;
    let mut spare = Spare::default();
    let mut guard = lock(machine);
    guard.spin_policy.begin();
    let mut predictor = guard.config.samples().then(|| WaitPredictor::new(last));
    let mut early = guard.config.samples().then(|| EarlyReports::new(last));
    drop(guard);
    loop {
        let mut served = false;
        let found = predictor.as_ref().map(|_| Instant::now());
        for group in bells.ringing() {
            let mut guard = lock(machine);
            group.take_rings(|file, local| {
                // Nothing but the flag says that there is such a thread.
                if let Some(slot) = guard.contexts.slot_of(file, local)
                    && let Some(rest) = guard.answer(slot, alone)
                {
                    spare.add(&rest);
                }
            });
            sleeps = guard.spin_policy.sleeps();
            watch_writes(&mut guard, machine, scope);
            served = true;
        }
        if served {
            last = Instant::now();
            if let (Some(predictor), Some(found)) = (&mut predictor, found) {
                predictor.note(found, last);
            }
            continue;
        }
        if spare.left > 0 {
            work_off(&mut lock(machine), &mut spare);
            last = Instant::now();
            continue;
        }
        if early.as_mut().is_some_and(|early| early.look(machine)) {
            last = Instant::now();
            continue;
        }
        let expected =
            predictor.as_ref().map_or(Wait::Unknown, |predictor| predictor.wait(Instant::now()));
        if !alone && !sleeps && (last.elapsed() < SPIN || expected == Wait::Spin) {
            for _ in 0..32 {
                std::hint::spin_loop();
            }
            continue;
        }
        if sleep(machine, &mut bells, expected, early.as_ref()).is_none() {
            return;
        }
    }
}

/// Starts the thread that waits for writes to guarded pages, if there is none and one is wanted.
/// Where there can be no more threads, nobody guards pages.
fn watch_writes<'scope>(
    guard: &mut Machine,
    machine: &'scope Mutex<Machine>,
    scope: &'scope Scope<'scope, '_>,
) {
    let Some(waiting) = guard.caches.notices.new_waiting() else { return };
    let watch = move || {
        let _abort = AbortOnPanic;
        let _held = sys::hold_child_events();
        guarding::watch(machine, &waiting);
    };
    let thread = std::thread::Builder::new().name("lwp-writes".into());
    if thread.spawn_scoped(scope, watch).is_err() {
        guard.caches.withdraw_notices();
    }
}

/// Sleeps until a thread rings, or for a while. `None` when all is over.
fn sleep(
    machine: &Mutex<Machine>,
    bells: &mut Bells,
    expected: Wait,
    early: Option<&EarlyReports>,
) -> Option<()> {
    bells.about_to_sleep();
    // Who gets a door after this, or sets `finished`, finds that we are about to sleep.
    let mut guard = lock(machine);
    if guard.finished {
        return None;
    }
    guard.keeper().look_at_targets();
    relayout::improve(&mut guard);
    guard.keeper().keep_meanwhile();
    let nap = match expected {
        _ if guard.tasks.filtered => FILTERED_NAP,
        Wait::Sleep(nap) => nap,
        Wait::Spin | Wait::Unknown => NAP,
    };
    drop(guard);
    bells.sleep(early.map_or(nap, |early| early.shorten(nap)));
    Some(())
}

/// Everything is over: ends the server, also where it sleeps.
pub fn finish(machine: &Mutex<Machine>) {
    let mut guard = lock(machine);
    guard.finished = true;
    guard.contexts.doors.wake();
    guard.caches.notices.end();
}

/// The machine, also after a panic elsewhere: the run is over then, but its reports are not.
pub fn lock(machine: &Mutex<Machine>) -> MutexGuard<'_, Machine> {
    machine.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
