//! rt_sigaction(2) of a signal that has been ignored, or no longer is handled, in a process of
//! several threads.
//!
//! Natively a signal that is ignored is thrown away when it is sent, and one that a handler awaits
//! has reached it before the thread that runs makes another call. A traced thread takes it first,
//! and its tracer hands it back: by then another thread may have chosen another action, which would
//! take what is long gone, or end the process by what it has handled. Such a call is therefore made
//! when no signal is on its way that was sent before, and no thread is calm that keeps it from
//! itself (`calm.rs`).
//!
//! The thread that is to take a signal may get no processor for a while, so the call waits as long
//! as nothing happens. Signals that come again and again are waited for a number of times only:
//! natively, too, one of them may come just behind the call.

use lwp_dbt::Slot;
use lwp_ptrace::regs::Regs;
use lwp_ptrace::{Tid, memory};

use super::Handled;
use super::calm::{SIG_DFL, SIG_IGN, bit, ignores, is_handled, keeps, would_ignore};
use super::needs::{go_on, step};
use crate::machine::{Machine, Mode};
use crate::maps::Status;
use crate::syscalls::nr;

/// The most times that a call finds signals taken since it last asked, and another on its way.
const MOST_TAKEN: u32 = 200;

/// The most times that a call asks: seconds.
const MOST_ASKED: u32 = 100_000;

/// The wait of a call for signals on their way.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wait {
    /// The times that the call has asked.
    pub asked: u32,
    /// The times of those at which signals had been taken since the time before.
    pub found_taken: u32,
    /// The signals that the process's threads had taken in all, the last time.
    taken: u64,
}

impl Wait {
    /// Notes that the call asks and that the process has taken `taken` signals in all. Returns
    /// whether it waits on.
    fn goes_on(&mut self, taken: u64) -> bool {
        self.asked += 1;
        self.found_taken += u32::from(self.taken != taken);
        self.taken = taken;
        self.asked <= MOST_ASKED && self.found_taken <= MOST_TAKEN
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
    let on_its_way = all.iter().filter(|other| awaits(machine, tid, **other, signal)).count();
    let threads = &mut machine.tasks.threads;
    let taken = all.iter().filter_map(|it| threads.get(it)).map(|it| it.signals.taken).sum();
    let Some(thread) = threads.get_mut(&tid) else { return Ok(()) };
    if on_its_way > 0 && thread.signals.wait.goes_on(taken) {
        return go_on(machine, tid, app);
    }
    thread.signals.wait = Wait::default();
    step(machine, tid, app)
}

/// Returns whether such a signal is on its way to `other`, or kept from it; `tid` makes the call.
fn awaits(machine: &Machine, tid: Tid, other: Tid, signal: u32) -> bool {
    let Some(thread) = machine.tasks.threads.get(&other) else { return false };
    if other != tid && thread.signals.calm.is_some_and(|calm| keeps(&calm, signal)) {
        return machine.tracees.interrupt(other).is_ok();
    }
    // Pending first: a signal that is taken between the two looks is seen by the second one.
    let status = Status::read(other);
    let of = |field| status.signals(field).unwrap_or(0);
    let unblocked = (of("SigPnd:") | of("ShdPnd:")) & !of("SigBlk:");
    let taken = || machine.tracees.siginfo(other).is_ok_and(|it| it.signo() as u32 == signal);
    let delivering = matches!(thread.mode, Mode::Delivering { .. });
    unblocked & bit(signal) != 0 || other != tid && (delivering || taken())
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

    #[test]
    fn a_call_waits_for_a_thread_that_gets_no_processor() {
        let mut wait = Wait::default();
        for _ in 0..MOST_ASKED {
            assert!(wait.goes_on(3));
        }
        assert!(!wait.goes_on(3));
        assert_eq!(wait.found_taken, 1);
    }

    #[test]
    fn signals_that_come_again_and_again_are_not_waited_for_without_end() {
        let mut wait = Wait::default();
        let times = (1..).take_while(|taken| wait.goes_on(*taken)).count();
        assert_eq!(times, MOST_TAKEN as usize);
    }
}
