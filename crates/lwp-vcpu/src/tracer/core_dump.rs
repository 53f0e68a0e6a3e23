//! Threads of a process that is about to die from a signal that dumps core.
//!
//! A core dump shows the registers of every thread. The thread that received the signal waits until
//! all others have stopped with the application's registers (`Mode::Parked`), and only then takes
//! its signal. If the process survives after all, they continue in translated code.

use std::time::{Duration, Instant};

use lwp_dbt::Slot;
use lwp_process::Tid;
use lwp_process::maps::Status;
use lwp_process::regs::restart;

use super::{Handled, retranslate};
use crate::dumpable;
use crate::machine::{Machine, Mode};

/// The time within which all threads stand still, but for those that the kernel cannot stop: the
/// parent of a vfork, for example.
const PATIENCE: Duration = Duration::from_millis(500);
const EINTR: i64 = -4;
/// SIGQUIT, SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGXCPU, SIGXFSZ, SIGSYS.
const DUMPS_CORE: [i32; 10] = [3, 4, 5, 6, 7, 8, 11, 24, 25, 31];

/// A process that is about to die.
#[derive(Debug)]
pub struct Dying {
    /// The thread that waits for all others, and its signal.
    first: (Tid, i32),
    /// Threads to which such a signal has come later.
    later: Vec<(Tid, i32)>,
    /// The time at which it waits no longer.
    until: Instant,
    /// It has taken its signal.
    gone_on: bool,
}

/// Keeps a thread, which stands in its application state and is about to take `signal`, if its
/// process will die of that and has other threads.
pub fn hold(machine: &mut Machine, tid: Tid, signal: i32) -> bool {
    let Some(thread) = machine.tasks.threads.get(&tid) else { return false };
    let pid = thread.pid;
    if !DUMPS_CORE.contains(&signal) || !is_fatal(tid, signal) {
        return false;
    }
    show_segment_base(machine, tid);
    let others: Vec<Tid> =
        machine.tasks.tids_of(pid).into_iter().filter(|other| *other != tid).collect();
    if others.is_empty() {
        dumpable::tell_kernel(machine, tid);
        return false;
    }
    if let Some(dying) = machine.tasks.dying.get_mut(&pid) {
        if dying.first.0 == tid {
            // It has survived one, and another comes before it is seen again.
            (dying.first.1, dying.gone_on) = (signal, false);
            dying.until = Instant::now() + PATIENCE;
        } else {
            dying.later.push((tid, signal));
        }
        return true;
    }
    let until = Instant::now() + PATIENCE;
    let dying = Dying { first: (tid, signal), later: Vec::new(), until, gone_on: false };
    machine.tasks.dying.insert(pid, dying);
    for other in others {
        let parked = machine.tasks.threads.get(&other).map(|thread| thread.mode);
        match parked {
            // For a flush.
            Some(Mode::Parked { .. }) => show_segment_base(machine, other),
            _ => drop(machine.tracees.interrupt(other)),
        }
    }
    true
}

/// Returns whether nobody handles or ignores a signal. The kernel has made an instruction's own
/// signal so where the program ignores or blocks it.
fn is_fatal(tid: Tid, signal: i32) -> bool {
    let status = Status::read(tid);
    let has = |name| status.signals(name).is_none_or(|set| set & (1 << (signal - 1)) != 0);
    !has("SigCgt:") && !has("SigIgn:")
}

/// Gives a stopped thread the application's gs base.
fn show_segment_base(machine: &Machine, tid: Tid) {
    let base = machine.context(tid).map(|context| context.get(Slot::AppGs));
    if let (Some(base), Ok(mut regs)) = (base, machine.tracees.regs(tid)) {
        regs.0.gs_base = base;
        // One that is gone reports that by itself.
        let _ = machine.tracees.set_regs(tid, &regs);
    }
}

/// Returns whether a thread is to stand still because another of its process dies.
pub fn concerns(machine: &Machine, tid: Tid) -> bool {
    let Some(thread) = machine.tasks.threads.get(&tid) else { return false };
    machine.tasks.dying.get(&thread.pid).is_some_and(|dying| dying.first.0 != tid)
}

/// Takes a stopped thread out of translated code, and shows it where the application has it: in
/// the call that has been interrupted, if it was in one.
pub fn park(machine: &mut Machine, tid: Tid, group: bool) -> Handled {
    let cache = machine.tracees.regs(tid)?;
    let seen = machine.view(tid, &cache).map(|view| view.app);
    retranslate::park(machine, tid, group)?;
    let mode = machine.tasks.threads.get(&tid).map(|thread| thread.mode);
    let Some(Mode::Parked { app, .. }) = mode else { return Ok(()) };
    let interrupted = |rax: u64| restart::is(rax) || rax.cast_signed() == EINTR;
    let in_call = seen.filter(|seen| seen.in_syscall() && interrupted(seen.0.rax));
    machine.tracees.set_regs(tid, &in_call.unwrap_or(app))?;
    show_segment_base(machine, tid);
    Ok(())
}

/// After every stop and every now and then: processes whose threads all stand still, or whose
/// time is up, die. Returns when to look again.
pub fn press(machine: &mut Machine) -> Option<Instant> {
    let mut next = None;
    let pids: Vec<i32> = machine.tasks.dying.keys().copied().collect();
    for pid in pids {
        let Some(dying) = machine.tasks.dying.get(&pid) else { continue };
        let ((first, signal), until, gone_on) = (dying.first, dying.until, dying.gone_on);
        if !machine.tasks.threads.contains_key(&first) {
            live_on(machine, pid);
        } else if !gone_on && (until <= Instant::now() || all_stand_still(machine, pid)) {
            if let Some(dying) = machine.tasks.dying.get_mut(&pid) {
                dying.gone_on = true;
            }
            take(machine, first, signal);
        } else if !gone_on {
            next = [next, Some(until)].into_iter().flatten().min();
        }
    }
    next
}

/// Stops a thread again that has gone on after its stop.
pub fn press_thread(machine: &Machine, tid: Tid) {
    let runs = |mode: &Mode| matches!(mode, Mode::Running);
    if concerns(machine, tid)
        && machine.tasks.threads.get(&tid).is_some_and(|thread| runs(&thread.mode))
    {
        let _ = machine.tracees.interrupt(tid);
    }
}

/// One that executes an instruction natively has the application's registers as well.
fn all_stand_still(machine: &Machine, pid: i32) -> bool {
    let Some(dying) = machine.tasks.dying.get(&pid) else { return true };
    machine.tasks.threads_of(pid).all(|(tid, thread)| {
        tid == dying.first.0
            || thread.account.settled
            || dying.later.iter().any(|(later, _)| *later == tid)
            || matches!(thread.mode, Mode::Parked { .. } | Mode::Stepping { .. })
    })
}

/// Lets a thread take its signal, to stop again should it survive that.
fn take(machine: &mut Machine, tid: Tid, signal: i32) {
    dumpable::tell_kernel(machine, tid);
    // One that is gone reports that by itself.
    let _ = machine.tracees.interrupt(tid).and_then(|()| machine.tracees.cont(tid, signal));
}

/// A thread has survived a signal: if the others of its process stand still for that, they go on.
pub fn survived(machine: &mut Machine, tid: Tid) {
    let Some(pid) = machine.tasks.threads.get(&tid).map(|thread| thread.pid) else { return };
    if machine.tasks.dying.get(&pid).is_some_and(|dying| dying.first.0 == tid) {
        live_on(machine, pid);
    }
}

/// A process does not die: its threads go on, and take the signals that have come to them.
fn live_on(machine: &mut Machine, pid: i32) {
    let Some(dying) = machine.tasks.dying.remove(&pid) else { return };
    for (tid, signal) in dying.later {
        take(machine, tid, signal);
    }
    for tid in machine.tasks.tids_of(pid) {
        if !retranslate::concerns(machine, tid) {
            retranslate::let_on(machine, tid);
        }
    }
}
