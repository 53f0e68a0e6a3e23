//! rt_sigaction(2) of a signal that has been ignored, in a process of several threads.
//!
//! Natively a signal that is ignored is thrown away when it is sent. A traced thread takes it
//! first, and its tracer hands it back: by then another thread may have chosen another action,
//! which would take what is long gone. Such a call is therefore made when no signal is on its way
//! that was sent before, and no thread is calm that keeps it from itself (`calm.rs`).
//!
//! A signal that comes again and again is waited for a number of times only: natively, too, one of
//! them may come just behind the call.

use lwp_dbt::Slot;
use lwp_ptrace::regs::Regs;
use lwp_ptrace::{Tid, memory};

use super::Handled;
use super::calm::{bit, ignores, keeps, would_ignore};
use super::needs::{go_on, step};
use crate::machine::{Machine, Mode};
use crate::maps::Status;
use crate::syscalls::nr;

/// The most times that one call waits.
const MOST: u32 = 200;

/// Returns whether the call that a context describes is to be made here.
pub fn concerns(machine: &Machine, tid: Tid, slot: usize) -> bool {
    let context = machine.contexts.context(slot);
    let [number, signal, action] = [Slot::Rax, Slot::Rdi, Slot::Rsi].map(|slot| context.get(slot));
    let valid = number as u32 == nr::RT_SIGACTION as u32 && matches!(signal as u32, 1..=64);
    let handles =
        || memory::read_u64(tid, action).is_ok_and(|handler| !would_ignore(handler, signal as u32));
    valid
        && action != 0
        && context.get(Slot::NoSyscalls) == 0
        && beside(machine, tid).nth(1).is_some()
        && handles()
        && ignores(&Status::read(tid), signal as u32)
}

/// Has the threads of a process, which has got another one, ask before such a call. The one that
/// has made it stands still, so a process of one thread makes no such call meanwhile.
pub fn note_beside(machine: &Machine, pid: i32) {
    for thread in machine.tasks.threads.values().filter(|thread| thread.pid == pid) {
        machine.contexts.context(thread.slot).set(Slot::Beside, 1);
    }
}

/// The threads of a thread's process.
fn beside(machine: &Machine, tid: Tid) -> impl Iterator<Item = Tid> {
    let threads = &machine.tasks.threads;
    let pid = threads.get(&tid).map(|thread| thread.pid);
    threads.iter().filter(move |(_, it)| Some(it.pid) == pid).map(|(tid, _)| *tid)
}

/// Makes the call that a thread with the application registers `app` is about to make, or has it
/// ask again.
pub fn call(machine: &mut Machine, tid: Tid, app: &Regs) -> Handled {
    machine.tracees.set_regs(tid, app)?;
    let signal = app.0.rdi as u32;
    let all: Vec<Tid> = beside(machine, tid).collect();
    // Each of them is asked: those that are calm are stopped.
    let on_its_way = all.into_iter().filter(|other| awaits(machine, tid, *other, signal)).count();
    let Some(thread) = machine.tasks.threads.get_mut(&tid) else { return Ok(()) };
    if on_its_way > 0 && thread.signals.waited < MOST {
        thread.signals.waited += 1;
        return go_on(machine, tid, app);
    }
    thread.signals.waited = 0;
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
