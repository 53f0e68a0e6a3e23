//! Ignored signals, which must not disturb or slow down the program.
//!
//! Natively, the kernel discards an ignored signal. For a traced thread, it doesn't: it stops the
//! thread, and ends system calls with an error. So a thread that has received such a signal is
//! *calm* for a while: it blocks the signals that it ignores. The calm ends before anything that
//! could notice it.
//!
//! | calm begins | and ends |
//! | --- | --- |
//! | with a call that has been interrupted, and is made again | with that call, at its deadline at the latest |
//! | with signals that follow each other closely | after [`SPAN`] |
//! | with a handled signal that `signal_pacing.rs` holds | after a while, or before any call |
//! | | before a call to which the mask of blocked signals matters, or that sends one of them |
//! | | with any other stop |
//!
//! A calm thread stops at its system calls (PTRACE_SYSCALL). If the mask matters to a call, the
//! tracer takes the call back; the thread repeats it once the mask is the program's own again and
//! pending ignored signals are discarded. If signals come faster than that, the call may find the
//! latest ones pending.

use std::time::{Duration, Instant};

use lwp_calls::syscalls::{self, Transfer};
use lwp_dbt::{Commit, Slot};
use lwp_process::Tid;
use lwp_process::maps::Status;
use lwp_process::regs::{Regs, restart};
use lwp_process::sys::Errno;

use super::signal_pacing::Held;
use super::{Handled, signal_pacing};
use crate::machine::{Machine, Mode};

/// Signals at shorter intervals than this are not waited for one by one.
const CLOSE: Duration = Duration::from_millis(5);
/// The time for which a thread that is not in a call stays calm.
const SPAN: Duration = Duration::from_millis(20);
/// The interval between looks at one that is in a call: other threads may begin to handle a signal
/// meanwhile.
const LOOK: Duration = Duration::from_millis(100);
const EINTR: i64 = -4;
pub const SIG_DFL: u64 = 0;
pub const SIG_IGN: u64 = 1;
/// SIGCHLD, SIGCONT, SIGURG, SIGWINCH.
const IGNORED_BY_DEFAULT: u64 = bit(17) | bit(18) | bit(23) | bit(28);
/// Signals that instructions raise, which must not be blocked, and those that cannot be.
pub const NEVER_BLOCKED: u64 =
    bit(4) | bit(5) | bit(7) | bit(8) | bit(9) | bit(11) | bit(19) | bit(31);

pub const fn bit(signal: u32) -> u64 {
    match signal {
        1..=64 => 1 << (signal - 1),
        // A program may write another number where its call stands.
        _ => 0,
    }
}

/// The means by which ignored signals are kept from a thread.
#[derive(Clone, Copy, Debug)]
pub struct Calm {
    /// The signals that the program blocks.
    own: u64,
    /// The signals that are blocked in addition.
    hidden: u64,
    /// The next stop at a system call is that at its end.
    inside: bool,
    /// A call to be taken back at its end: its number.
    redo: Option<u64>,
    /// The call that has been interrupted.
    call: Option<Interrupted>,
    /// The time to look whether it is still right.
    look: Instant,
    /// Until when the stop is waited for that has been asked for.
    stopping: Option<Instant>,
    /// The signal that is held, where it is that which the thread is calm for.
    held: Option<Held>,
}

impl Calm {
    /// The signal that is held, and the time until which it is.
    pub fn held(&self) -> Option<(Held, Instant)> {
        Some((self.held?, self.look))
    }
}

/// A call that an ignored signal has interrupted.
#[derive(Clone, Copy, Debug)]
pub struct Interrupted {
    /// The pc behind it, in translated code.
    rip: u64,
    /// Its number, where it has failed with EINTR and is led back to its beginning.
    led_back: Option<u64>,
    /// The time at which it is over, and the value that it returns then.
    deadline: Option<(Instant, i64)>,
    /// The part of it that has been done, where it is led to the rest.
    transfer: Option<Transfer>,
}

/// The facts about ignored signals that are remembered between two of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ignored {
    /// The time at which the last one came.
    last: Option<Instant>,
    /// The call that it has interrupted.
    call: Option<Interrupted>,
    /// The pc behind a call that has been taken back last.
    taken_back: Option<u64>,
}

/// Nothing has come of a signal, which has perhaps interrupted a call: arranges in `cache` that it
/// goes on, or is over should its time be up.
pub fn resume_call(machine: &mut Machine, tid: Tid, cache: &mut Regs) {
    let transfer =
        machine.context(tid).and_then(|context| Transfer::interrupted(context, tid, cache));
    resume(machine, tid, cache, transfer);
}

/// Resumes a call of a thread that is redirected elsewhere, where nobody adds two results up: a
/// call that has moved a part of its bytes returns how many. Nobody sees the call end there: at the
/// same place the thread may make another one, of whose time nothing has passed.
pub fn resume_call_elsewhere(machine: &mut Machine, tid: Tid, cache: &mut Regs) {
    resume(machine, tid, cache, None);
    if let Some(thread) = machine.tasks.threads.get_mut(&tid) {
        thread.signals.ignored.call = None;
    }
}

/// Leads a thread back to a call that has been interrupted, wherever it makes that again.
pub fn take_back(machine: &Machine, tid: Tid, regs: &mut Regs) -> Result<(), Errno> {
    if regs.is_interrupted() {
        lead_back(regs);
    } else if regs.in_syscall() && restart::is(regs.0.rax) {
        regs.rewind_syscall();
    } else {
        regs.forget_syscall();
        return Ok(());
    }
    keep_own_mask(machine, tid)
}

/// Has a thread in a call with a mask of its own, such as ppoll(2), block the signals that it
/// blocks outside: those that come now are taken when it makes the call again.
pub fn keep_own_mask(machine: &Machine, tid: Tid) -> Result<(), Errno> {
    // The kernel tells of the mask outside, and forgets the call's.
    let own = machine.tracees.sigmask(tid)?;
    machine.tracees.set_sigmask(tid, own)
}

fn lead_back(regs: &mut Regs) {
    regs.0.rax = regs.0.orig_rax;
    regs.0.rip -= 2;
    regs.forget_syscall();
}

fn resume(machine: &mut Machine, tid: Tid, cache: &mut Regs, transfer: Option<Transfer>) {
    let failed = cache.is_interrupted();
    let interrupted = failed || transfer.is_some();
    let Some(thread) = machine.tasks.threads.get_mut(&tid) else { return };
    if !cache.in_syscall() || !(interrupted || restart::is(cache.0.rax)) {
        thread.signals.ignored.call = None;
        return;
    }
    let timed = interrupted || syscalls::forgets_time(cache);
    let known = thread.signals.ignored.call.filter(|call| call.rip == cache.0.rip);
    let mut call = known.unwrap_or_else(|| {
        let began = Instant::now();
        let timeout = if timed { syscalls::timeout(thread.pid, tid, cache) } else { None };
        let deadline = timeout.and_then(|(time, result)| Some((began.checked_add(time)?, result)));
        Interrupted { rip: cache.0.rip, led_back: None, deadline, transfer: None }
    });
    (call.led_back, call.transfer) = (None, transfer);
    match call.deadline {
        Some((at, result)) if timed && at <= Instant::now() => {
            thread.signals.ignored.call = None;
            if transfer.is_none() {
                cache.0.rax = result as u64;
            }
            cache.forget_syscall();
        }
        _ => {
            if interrupted {
                call.led_back = Some(cache.0.orig_rax);
                lead_back(cache);
            }
            if let Some(transfer) = transfer {
                transfer.pass_on(cache);
            }
            thread.signals.ignored.call = Some(call);
        }
    }
}

/// Lets a thread go on, in translated code with the registers `cache`, after a signal that nobody
/// handles.
pub fn go_on(machine: &mut Machine, tid: Tid, cache: &Regs) -> Handled {
    let Some(thread) = machine.tasks.threads.get_mut(&tid) else { return Err(Errno::ESRCH) };
    let now = Instant::now();
    let close = thread.signals.ignored.last.is_some_and(|last| now - last < CLOSE);
    thread.signals.ignored.last = Some(now);
    let call = thread.signals.ignored.call;
    if call.is_none() && !close {
        return machine.tracees.cont(tid, 0);
    }
    let own = machine.tracees.sigmask(tid)?;
    let unblocked = if call.is_some() { syscalls::unblocks(tid, cache) } else { 0 };
    let hidden = ignored_signals(tid) & !own & !unblocked;
    machine.tracees.set_sigmask(tid, own | hidden)?;
    let look = now + if call.is_some() { LOOK } else { SPAN };
    thread.signals.calm = Some(Calm {
        own,
        hidden,
        inside: false,
        redo: None,
        call,
        look,
        stopping: None,
        held: None,
    });
    machine.tracees.cont_syscall(tid)
}

/// Lets a thread run on for `span` without any signal, one of which is held.
pub fn hold(machine: &mut Machine, tid: Tid, held: Held, span: Duration) -> Handled {
    let own = machine.tracees.sigmask(tid)?;
    let hidden = !own & !NEVER_BLOCKED;
    machine.tracees.set_sigmask(tid, own | hidden)?;
    let (held, look) = (Some(held), Instant::now() + span);
    let calm =
        Calm { own, hidden, inside: false, redo: None, call: None, look, stopping: None, held };
    go_on_calmly(machine, tid, calm)
}

/// Lets a thread run on for another `span`.
pub fn hold_on(machine: &mut Machine, tid: Tid, span: Duration) -> Handled {
    let calm = machine.tasks.threads.get(&tid).and_then(|thread| thread.signals.calm);
    let calm = calm.ok_or(Errno::ESRCH)?;
    go_on_calmly(machine, tid, Calm { look: Instant::now() + span, stopping: None, ..calm })
}

/// The signals that a thread's process ignores and that can be blocked.
fn ignored_signals(tid: Tid) -> u64 {
    ignored(&Status::read(tid)) & !NEVER_BLOCKED
}

/// The signals that a process ignores.
fn ignored(status: &Status) -> u64 {
    let of = |field| status.signals(field).unwrap_or(0);
    of("SigIgn:") | IGNORED_BY_DEFAULT & !of("SigCgt:")
}

/// Returns whether a process ignores a signal.
pub fn ignores(status: &Status, signal: u32) -> bool {
    ignored(status) & bit(signal) != 0
}

/// Returns whether a process has a handler for a signal.
pub fn is_handled(status: &Status, signal: u32) -> bool {
    status.signals("SigCgt:").unwrap_or(0) & bit(signal) != 0
}

/// Returns whether a signal with this handler is ignored.
pub fn would_ignore(handler: u64, signal: u32) -> bool {
    handler == SIG_IGN || handler == SIG_DFL && bit(signal) & IGNORED_BY_DEFAULT != 0
}

/// Returns whether a signal that is ignored is kept from a thread.
pub fn keeps(calm: &Calm, signal: u32) -> bool {
    calm.hidden & bit(signal) != 0
}

/// Ends the calm of a stopped thread.
pub fn end(machine: &mut Machine, tid: Tid) -> Result<(), Errno> {
    let Some(thread) = machine.tasks.threads.get_mut(&tid) else { return Ok(()) };
    let Some(calm) = thread.signals.calm.take() else { return Ok(()) };
    thread.signals.ignored.call = calm.call;
    machine.tracees.set_sigmask(tid, calm.own)?;
    match calm.held {
        Some(held) => signal_pacing::release(machine, tid, &held),
        None => Ok(()),
    }
}

/// A stop that is none at a system call ends the calm. A call that was to be made again, and has
/// not been, has still been interrupted; one that was to go on has done what it has done.
pub fn interrupted(machine: &mut Machine, tid: Tid) -> Result<(), Errno> {
    let Some(thread) = machine.tasks.threads.get_mut(&tid) else { return Ok(()) };
    let Some(calm) = thread.signals.calm else { return Ok(()) };
    end(machine, tid)?;
    let Some(call) = calm.call else { return Ok(()) };
    let led_back = call.led_back.filter(|_| !calm.inside);
    if led_back.is_none() && call.transfer.is_none() {
        return Ok(());
    }
    let mut regs = machine.tracees.regs(tid)?;
    match led_back {
        Some(number) if regs.0.rip == call.rip - 2 => {
            regs.0.rip = call.rip;
            (regs.0.rax, regs.0.orig_rax) = (EINTR as u64, number);
        }
        _ if regs.0.rip == call.rip && regs.in_syscall() => {}
        _ => return Ok(()),
    }
    if let Some(transfer) = call.transfer {
        let second = regs.0.rax.cast_signed();
        transfer.put_back(tid, &mut regs, second);
    }
    machine.tracees.set_regs(tid, &regs)
}

/// Ends the stop of a thread that nothing is wanted of any more. It has perhaps been interrupted in
/// a call, which goes on, or is over if its time is up.
pub fn looked_at(machine: &mut Machine, tid: Tid) -> Handled {
    let mut regs = machine.tracees.regs(tid)?;
    let call = machine.tasks.threads.get(&tid).and_then(|thread| thread.signals.ignored.call);
    let known = call.is_some_and(|call| call.rip == regs.0.rip);
    if !known && (!regs.in_syscall() || restart::is(regs.0.rax)) {
        return machine.tracees.cont(tid, 0);
    }
    resume_call(machine, tid, &mut regs);
    machine.tracees.set_regs(tid, &regs)?;
    match machine.tasks.threads.get(&tid).is_some_and(|it| it.signals.ignored.call.is_some()) {
        true => go_on(machine, tid, &regs),
        false => machine.tracees.cont(tid, 0),
    }
}

/// A stop of job control ends calls that a signal can end, as it does natively: they are not made
/// again when the thread goes on.
pub fn stopped_by_job_control(machine: &mut Machine, tid: Tid) -> Result<(), Errno> {
    let ended = |regs: &Regs| regs.in_syscall() && !restart::is(regs.0.rax);
    let mode = machine.tasks.threads.get_mut(&tid).map(|thread| &mut thread.mode);
    if let Some(Mode::Delivering { cache: Some(cache), .. }) = mode {
        if ended(cache) {
            cache.forget_syscall();
        }
        return Ok(());
    }
    let mut regs = machine.tracees.regs(tid)?;
    if ended(&regs) {
        regs.forget_syscall();
        machine.tracees.set_regs(tid, &regs)?;
    }
    Ok(())
}

/// A calm thread has stopped at a system call.
pub fn at_syscall(machine: &mut Machine, tid: Tid, mut calm: Calm) -> Handled {
    let mut regs = machine.tracees.regs(tid)?;
    let again = regs.0.rax as i64 == EINTR || restart::is(regs.0.rax);
    if again || machine.tasks.threads.get(&tid).is_some_and(|thread| thread.errand.need.is_some()) {
        // Any stop takes back what has been asked for before it.
        machine.tracees.interrupt(tid)?;
    }
    let filtered = machine.context(tid).is_some_and(|context| context.get(Slot::NoSyscalls) != 0);
    calm.inside = !calm.inside;
    if calm.held.is_some() && waits_for_host(machine, tid, &regs) {
        return go_on_calmly(machine, tid, calm);
    }
    if calm.inside {
        if let Some(call) = &mut calm.call {
            call.led_back = None;
        }
        let minds = || syscalls::minds_signals(tid, &regs, calm.hidden);
        if calm.hidden != 0 && (calm.held.is_some() || minds()) {
            // A filter may kill for a call that is none. A second time nothing is won: signals come
            // faster than the thread gets to its call.
            if filtered || was_taken_back(machine, tid, &calm, &regs) {
                end(machine, tid)?;
                return machine.tracees.cont(tid, 0);
            }
            calm.redo = Some(regs.0.orig_rax);
            regs.forget_syscall();
            machine.tracees.set_regs(tid, &regs)?;
        }
        return go_on_calmly(machine, tid, calm);
    }
    if let Some(thread) = machine.tasks.threads.get_mut(&tid) {
        thread.signals.ignored.taken_back = calm.redo.map(|_| regs.0.rip);
        if calm.held.is_some() {
            thread.signals.pace.took_back(calm.redo.map(|_| regs));
        }
    }
    if let Some(number) = calm.redo {
        regs.0.rax = number;
        regs.0.rip -= 2;
        regs.forget_syscall();
        machine.tracees.set_regs(tid, &regs)?;
        end(machine, tid)?;
        return machine.tracees.cont(tid, 0);
    }
    let cut = |context| Transfer::interrupted(context, tid, &regs);
    if calm.call.is_none() && machine.context(tid).and_then(cut).is_some() {
        // By the stop that was to end the calm, which this one takes back.
        machine.tracees.interrupt(tid)?;
    }
    match calm.call.filter(|_| !again) {
        Some(call) => returned(machine, tid, (calm, call), regs),
        None => go_on_calmly(machine, tid, calm),
    }
}

/// Returns whether a call is not the program's: the thread waits in it for what it has asked the
/// host.
fn waits_for_host(machine: &mut Machine, tid: Tid, regs: &Regs) -> bool {
    machine.view(tid, regs).is_some_and(|view| view.state.commit == Commit::Mailbox)
}

/// Returns whether the call that a calm thread is about to make was taken back before: for a signal
/// that is held, whose handler has returned since, or for those that are ignored.
fn was_taken_back(machine: &mut Machine, tid: Tid, calm: &Calm, regs: &Regs) -> bool {
    let Some(thread) = machine.tasks.threads.get_mut(&tid) else { return false };
    let signals = &mut thread.signals;
    let held = calm.held.is_some() && signals.pace.makes_call_again(regs);
    held || signals.ignored.taken_back == Some(regs.0.rip)
}

/// The call of a calm thread has returned, or a part of it: then it goes on.
fn returned(
    machine: &mut Machine,
    tid: Tid,
    (mut calm, call): (Calm, Interrupted),
    mut regs: Regs,
) -> Handled {
    if let Some(transfer) = call.transfer.filter(|_| call.rip == regs.0.rip) {
        let second = regs.0.rax.cast_signed();
        transfer.put_back(tid, &mut regs, second);
        if second > 0
            && let Some(call) = cut_again(machine, tid, &mut regs, call)
        {
            calm.call = Some(call);
            machine.tracees.set_regs(tid, &regs)?;
            return go_on_calmly(machine, tid, calm);
        }
        // It is over, whatever comes now: a signal that it has raised itself, for example.
        regs.forget_syscall();
        machine.tracees.set_regs(tid, &regs)?;
    }
    calm.call = None;
    if let Some(thread) = machine.tasks.threads.get_mut(&tid) {
        thread.signals.calm = Some(calm);
    }
    end(machine, tid)?;
    machine.tracees.cont(tid, 0)
}

/// Leads a transfer that has moved more of its bytes, and not all, to those that are left: a signal
/// has come before it was calm. One that moves nothing more is over.
fn cut_again(
    machine: &Machine,
    tid: Tid,
    regs: &mut Regs,
    mut call: Interrupted,
) -> Option<Interrupted> {
    let transfer = Transfer::interrupted(machine.context(tid)?, tid, regs)?;
    (call.led_back, call.transfer) = (Some(regs.0.orig_rax), Some(transfer));
    lead_back(regs);
    transfer.pass_on(regs);
    Some(call)
}

fn go_on_calmly(machine: &mut Machine, tid: Tid, calm: Calm) -> Handled {
    if let Some(thread) = machine.tasks.threads.get_mut(&tid) {
        thread.signals.calm = Some(calm);
    }
    machine.tracees.cont_syscall(tid)
}

/// Stops the calm threads that have been calm for long enough, or whose call's time is up, or
/// `all`. Returns when to do so next.
pub fn look(machine: &mut Machine, all: bool) -> Option<Instant> {
    let now = Instant::now();
    let calm: Vec<(Tid, Calm)> = machine
        .tasks
        .threads
        .iter()
        .filter_map(|(tid, thread)| Some((*tid, thread.signals.calm?)))
        .collect();
    let mut next = None;
    for (tid, mut calm) in calm {
        let deadline = calm.call.and_then(|call| Some(call.deadline?.0));
        let over = deadline.is_some_and(|at| at <= now);
        // A stop that has missed the call is asked for once more.
        if calm.stopping.is_none_or(|until| until <= now)
            && (all || over || calm.look <= now && !still_right(machine, tid, &calm))
        {
            let _ = machine.tracees.interrupt(tid);
            calm.stopping = Some(now + SPAN);
        }
        // A hold goes on if its thread has had too little processor time.
        let held = calm.held.is_some();
        if calm.look <= now && !held {
            calm.look = now + LOOK;
        }
        if let Some(thread) = machine.tasks.threads.get_mut(&tid) {
            thread.signals.calm = Some(calm);
        }
        let again = if calm.stopping.is_some() { calm.stopping } else { deadline };
        let look = Some(calm.look).filter(|_| !held || calm.stopping.is_none());
        next = [next, again, look].into_iter().flatten().min();
    }
    next
}

/// Returns whether a thread in a call may stay calm: no other has begun to handle what it blocks.
fn still_right(machine: &Machine, tid: Tid, calm: &Calm) -> bool {
    let Some(thread) = machine.tasks.threads.get(&tid) else { return false };
    let alone = machine.tasks.threads_of(thread.pid).nth(1).is_none();
    calm.call.is_some() && (alone || calm.hidden & !ignored_signals(tid) == 0)
}
