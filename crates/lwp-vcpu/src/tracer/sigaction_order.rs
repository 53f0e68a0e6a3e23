//! rt_sigaction(2) for a signal that was ignored or handled before, in a process with several
//! threads.
//!
//! Natively, the kernel discards an ignored signal when it is sent, and a handled signal reaches
//! its handler before the running thread makes another call. A traced thread stops first, and its
//! tracer hands the signal back later. By then, another thread may have chosen a different action:
//! it would get a signal that should be long gone, or end the process by one that should have been
//! handled. So such a call waits until no earlier signal is on its way, and no thread is calm and
//! blocks it (`ignored_signals.rs`).
//!
//! The call only waits for signals that were on their way when it was first tried, so a thread that
//! raises signals all the time doesn't delay it forever. The thread that has to take a signal may
//! not get a processor for a while, so the call keeps waiting even if nothing happens.
//!
//! Nobody knows how many real-time signals are queued, so the call waits as long as they come. Each
//! process has one budget for that; once it is spent, a call waits as it does for other signals.

use std::time::Duration;

use lwp_calls::syscalls::nr;
use lwp_dbt::Slot;
use lwp_process::maps::Status;
use lwp_process::regs::Regs;
use lwp_process::{Tid, memory};
use rustc_hash::FxHashMap;

use super::Handled;
use super::ignored_signals::{SIG_DFL, SIG_IGN, bit, ignores, is_handled, keeps, would_ignore};
use super::stopped_work::{go_on, step};
use crate::machine::{Machine, Mode};

/// The most times that a call asks: seconds.
const MOST_ASKED: u32 = 100_000;

/// The number of times that the calls of a process may ask for real-time signals at first, and the
/// time after which they may once more.
const BUDGET: u64 = 1000;
const REFILL: Duration = Duration::from_millis(10);

/// First real-time signal, as the kernel counts.
const SIGRTMIN: u32 = 32;

/// Signals that a thread has taken, by number.
#[derive(Clone, Debug, Default)]
pub struct Taken(FxHashMap<u32, u32>);

impl Taken {
    /// Notes one that has been handed to the kernel and has reached its handler, or nobody.
    pub fn note(&mut self, signal: i32) {
        *self.0.entry(signal as u32).or_default() += 1;
    }

    fn of(&self, signal: u32) -> u32 {
        self.0.get(&signal).copied().unwrap_or(0)
    }
}

/// The wait of a call for signals on their way.
#[derive(Clone, Debug, Default)]
pub struct Wait {
    /// The times that the call has asked.
    pub asked: u32,
    /// Threads from which one was kept, when the call first asked.
    kept: Vec<Tid>,
    /// The number of signals that the process's threads have taken, once they have taken one that
    /// was pending for any of them.
    shared: Option<u32>,
    /// Threads to which signals were on their way, with the number that each has taken by then.
    own: Vec<(Tid, u32)>,
}

/// Signals of one number on their way to a thread.
#[derive(Clone, Copy, Debug, Default)]
struct Coming {
    /// The number that the thread has taken.
    taken: u32,
    /// The number that wait for it alone, that it has stopped for, or that are held.
    own: u32,
    /// One waits for any thread of its process.
    shared: bool,
    /// Such signals are kept from it for a while.
    kept: bool,
}

impl Wait {
    /// Notes that the call asks, with the signals on their way to each thread. Returns whether it
    /// waits on.
    fn goes_on(&mut self, coming: &[(Tid, Coming)]) -> bool {
        let first = self.asked == 0;
        self.asked += 1;
        let taken: u32 = coming.iter().map(|(_, it)| it.taken).sum();
        let all: u32 = coming.iter().map(|(_, it)| it.own).sum();
        let is_shared = coming.iter().any(|(_, it)| it.shared);
        let goals = |tids: &dyn Fn(Tid) -> bool| {
            let of = coming.iter().filter(|(tid, it)| tids(*tid) && it.own > 0);
            of.map(|(tid, it)| (*tid, it.taken + it.own)).collect::<Vec<_>>()
        };
        let is_kept = |tid: Tid| coming.iter().any(|(other, it)| *other == tid && it.kept);
        if first {
            self.kept = coming.iter().filter(|(_, it)| it.kept).map(|(tid, _)| *tid).collect();
            self.shared = is_shared.then_some(taken + all + 1);
            self.own = goals(&|tid| !is_kept(tid));
        }
        let freed: Vec<Tid> = self.kept.iter().copied().filter(|tid| !is_kept(*tid)).collect();
        if !freed.is_empty() {
            self.kept.retain(|tid| !freed.contains(tid));
            self.own.extend(goals(&|tid| freed.contains(&tid)));
        }
        if self.shared.is_some_and(|goal| !is_shared || taken >= goal) {
            self.shared = None;
            // Whoever has it now has not taken it yet.
            self.own.extend(goals(&|_| true));
        }
        self.own.retain(|(tid, goal)| {
            coming.iter().any(|(it, coming)| it == tid && coming.own > 0 && coming.taken < *goal)
        });
        let waits = !self.kept.is_empty() || self.shared.is_some() || !self.own.is_empty();
        waits && self.asked <= MOST_ASKED
    }
}

/// Returns whether the call that a context describes is to be made here.
pub fn concerns(machine: &Machine, tid: Tid, slot: usize) -> bool {
    let context = machine.contexts.context(slot);
    let [number, signal, action] = [Slot::Rax, Slot::Rdi, Slot::Rsi].map(|slot| context.get(slot));
    let valid = number as u32 == nr::RT_SIGACTION as u32 && matches!(signal as u32, 1..=64);
    valid
        && action != 0
        && context.get(Slot::NoSyscalls) == 0
        && beside(machine, tid).nth(1).is_some()
        && memory::read_u64(tid, action)
            .is_ok_and(|handler| matters(&Status::read(tid), signal as u32, handler))
}

/// Returns whether the process of a thread has not spent its budget for real-time signals.
fn may_ask(machine: &Machine, tid: Tid) -> bool {
    let pid = machine.tasks.threads.get(&tid).map(|thread| thread.pid);
    let process = pid.and_then(|pid| machine.tasks.processes.get(&pid));
    let refilled = machine.observers.started.elapsed().as_millis() / REFILL.as_millis();
    process.is_some_and(|it| u128::from(it.asked) < u128::from(BUDGET) + refilled)
}

/// Returns whether a signal that was sent before must be taken before a process with this status
/// sets another handler.
fn matters(status: &Status, signal: u32, handler: u64) -> bool {
    let leaves_handler = is_handled(status, signal) && matches!(handler, SIG_DFL | SIG_IGN);
    leaves_handler || ignores(status, signal) && !would_ignore(handler, signal)
}

/// Has the threads of a process that are several since `tid` has come ask before such a call. The
/// maker of a new thread stands still, so one that is alone makes no such call meanwhile.
pub fn note_beside(machine: &Machine, tid: Tid) {
    let told = |tid| machine.context(tid).is_some_and(|context| context.get(Slot::Beside) != 0);
    let untold = beside(machine, tid).filter(|other| *other != tid).take_while(|it| !told(*it));
    let untold: Vec<Tid> = untold.collect();
    for tid in untold.into_iter().chain([tid]) {
        if let Some(context) = machine.context(tid) {
            context.set(Slot::Beside, 1);
        }
    }
}

/// The threads of a thread's process.
fn beside(machine: &Machine, tid: Tid) -> impl Iterator<Item = Tid> {
    let thread = machine.tasks.threads.get(&tid);
    thread.into_iter().flat_map(|it| machine.tasks.threads_of(it.pid)).map(|(tid, _)| tid)
}

/// Makes the call that a thread with the application registers `app` is about to make, or has it
/// ask again.
pub fn call(machine: &mut Machine, tid: Tid, app: &Regs) -> Handled {
    machine.tracees.set_regs(tid, app)?;
    let signal = app.0.rdi as u32;
    let all: Vec<Tid> = beside(machine, tid).collect();
    // Each of them is asked: those that are calm are stopped.
    let coming: Vec<(Tid, Coming)> =
        all.iter().filter_map(|it| Some((*it, coming(machine, tid, *it, signal)?))).collect();
    let more = may_ask(machine, tid);
    let Some(thread) = machine.tasks.threads.get_mut(&tid) else { return Ok(()) };
    let queued = signal >= SIGRTMIN && coming.iter().any(|(_, it)| it.own > 0 || it.shared);
    let goes_on = thread.signals.wait.goes_on(&coming);
    if queued && let Some(process) = machine.tasks.processes.get_mut(&thread.pid) {
        process.asked += 1;
    }
    if goes_on || queued && more {
        return go_on(machine, tid, app);
    }
    if let Some(thread) = machine.tasks.threads.get_mut(&tid) {
        thread.signals.wait = Wait::default();
    }
    step(machine, tid, app)
}

/// The signals of this number on their way to `other`; `tid` makes the call.
fn coming(machine: &Machine, tid: Tid, other: Tid, signal: u32) -> Option<Coming> {
    let thread = machine.tasks.threads.get(&other)?;
    let kept = other != tid && thread.signals.calm.is_some_and(|calm| keeps(&calm, signal));
    if kept && machine.tracees.interrupt(other).is_err() {
        return None;
    }
    // Pending first: a signal that is taken between the two looks is seen by the second one.
    let status = Status::read(other);
    let blocked = status.signals("SigBlk:").unwrap_or(0);
    let pending = |field| status.signals(field).unwrap_or(0) & !blocked & bit(signal) != 0;
    let delivers = matches!(thread.mode, Mode::Delivering { .. });
    let delivering = delivers && thread.signals.delivering as u32 == signal;
    let stopped = || machine.tracees.siginfo(other).is_ok_and(|it| it.signo() as u32 == signal);
    let stands = other != tid && (delivering || stopped());
    // It has left the kernel's queue, and is sent again when the hold ends (`pacing.rs`).
    let held = thread.signals.calm.and_then(|calm| calm.held());
    let is_held = held.is_some_and(|(held, _)| held.signal() == signal);
    Some(Coming {
        taken: thread.signals.taken.of(signal),
        own: [pending("SigPnd:"), stands, is_held].into_iter().map(u32::from).sum(),
        shared: pending("ShdPnd:"),
        kept,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_matters_that_takes_what_was_meant_for_another() {
        const HANDLER: u64 = 0x1000;
        let status = Status::of("SigIgn:\t0000000000000001\nSigCgt:\t0000000000002000\n");
        for (signal, handler, told) in [
            (1, HANDLER, true),
            (1, SIG_DFL, true),
            (1, SIG_IGN, false),
            (14, HANDLER, false),
            (14, SIG_DFL, true),
            (14, SIG_IGN, true),
            (17, HANDLER, true),
            (17, SIG_DFL, false),
            (2, HANDLER, false),
        ] {
            assert_eq!(matters(&status, signal, handler), told, "{signal} {handler:#x}");
        }
    }

    const NONE: Coming = Coming { taken: 0, own: 0, shared: false, kept: false };

    #[test]
    fn a_call_waits_for_a_thread_that_gets_no_processor() {
        let mut wait = Wait::default();
        let coming = [(1, Coming { own: 1, taken: 3, ..NONE })];
        for _ in 0..MOST_ASKED {
            assert!(wait.goes_on(&coming));
        }
        assert!(!wait.goes_on(&coming));
    }

    #[test]
    fn later_signals_are_not_waited_for() {
        let mut wait = Wait::default();
        // One has been raised, and when that has been taken there is another.
        assert!(wait.goes_on(&[(1, Coming { own: 1, taken: 7, ..NONE }), (2, NONE)]));
        let later = Coming { own: 1, taken: 7, ..NONE };
        assert!(wait.goes_on(&[(1, Coming { own: 1, taken: 7, ..NONE }), (2, later)]));
        assert!(!wait.goes_on(&[(1, Coming { own: 1, taken: 8, ..NONE }), (2, later)]));
        // Two: one that the thread has stopped for, and one behind it.
        let mut wait = Wait::default();
        assert!(wait.goes_on(&[(1, Coming { own: 2, taken: 7, ..NONE })]));
        assert!(wait.goes_on(&[(1, Coming { own: 2, taken: 8, ..NONE })]));
        assert!(!wait.goes_on(&[(1, Coming { own: 2, taken: 9, ..NONE })]));
    }

    #[test]
    fn a_signal_to_a_process_is_waited_for_where_it_is_taken() {
        let shared = Coming { shared: true, ..NONE };
        let mut wait = Wait::default();
        assert!(wait.goes_on(&[(1, shared), (2, shared)]));
        // A thread has stopped for it, and gets the next one as well.
        assert!(wait.goes_on(&[(1, NONE), (2, Coming { own: 1, ..NONE })]));
        assert!(
            !wait.goes_on(&[
                (1, shared),
                (2, Coming { taken: 1, own: 1, shared: true, kept: false })
            ])
        );
        // Others follow so fast that there is always one.
        let mut wait = Wait::default();
        assert!(wait.goes_on(&[(1, shared), (2, shared)]));
        assert!(!wait.goes_on(&[(1, shared), (2, Coming { taken: 1, ..shared })]));
    }

    #[test]
    fn a_signal_that_is_kept_from_a_thread_is_waited_for_once_it_is_not() {
        let mut wait = Wait::default();
        assert!(wait.goes_on(&[(1, Coming { kept: true, ..NONE })]));
        assert!(wait.goes_on(&[(1, Coming { own: 1, ..NONE })]));
        assert!(!wait.goes_on(&[(1, Coming { kept: true, taken: 1, ..NONE })]));
    }
}
