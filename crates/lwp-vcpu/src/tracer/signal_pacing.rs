//! Paces signals, so that the program makes progress between two of them.
//!
//! Delivering a signal takes two stops, and a timer can fire more often than that. Then the next
//! signal is pending whenever a handler returns, and the program never gets any further. So the
//! tracer holds a signal that comes too soon: the thread blocks all signals and runs for as much of
//! its own processor time as the previous deliveries took, which is at least tens of thousands of
//! instructions. Meanwhile, further expirations of a timer wait in the kernel, where they merge as
//! they do natively.
//!
//! | a signal is | if |
//! | --- | --- |
//! | delivered at once | its thread raised it, or is in a system call |
//! | | its thread is at the first instruction of another signal's handler |
//! | | it is the first of its kind to come too soon: others may have been pending together |
//! | held | it repeatedly comes too soon after the previous one (a timer's: the first time) |
//!
//! The tracer ends the hold before each system call, so the program can't notice it: its calls see
//! its own mask, and a signal that comes before a call is handled before it. If the next signal is
//! already there when the thread returns to that call, the thread makes the call, and the signal
//! arrives in it. While the thread waits for the host, the hold goes on. If a signal comes twice
//! before the same rt_sigreturn(2), which is stepped, the second comes behind that return instead.

use std::time::{Duration, Instant};

use lwp_calls::syscalls::nr;
use lwp_dbt::{Commit, Slot};
use lwp_process::maps::{Status, read_whole};
use lwp_process::regs::Regs;
use lwp_process::sys::{Errno, SigInfo};
use lwp_process::{Stop, Tid};

use super::ignored_signals::{self, NEVER_BLOCKED, bit, is_handled};
use super::trap_flag::is_syscall;
use super::{Handled, controlled_processes, core_dump, retranslate};
use crate::cpu_clock;
use crate::machine::{Machine, Mode};
use crate::state::View;

/// Signals at shorter intervals than this, from handler to handler, come too soon.
const GAP: Duration = Duration::from_micros(100);
/// The shortest and the longest time for which a signal is held.
const SPANS: (Duration, Duration) = (GAP, Duration::from_millis(10));
/// First real-time signal, as the kernel counts.
const SIGRTMIN: i32 = 32;

/// The last deliveries to a thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    /// The last handler: when it was entered, with its first pc and stack pointer.
    entered: Option<(Instant, u64, u64)>,
    /// Signals whose handlers stand one upon the other, none of which has executed anything.
    stacked: u64,
    /// Number of handlers entered too soon after the one before, and the time of the first.
    hasty: u32,
    since: Option<Instant>,
    /// A signal that has been held and sent again: what it said at first.
    resent: Option<SigInfo>,
    /// The pc behind the last call before which a hold was ended, and the stack pointer.
    taken_back: Option<(u64, u64)>,
    /// The pc and the stack pointer of the last return from a handler before which a signal came.
    returning: Option<(u64, u64)>,
    /// The signal that is to come behind that return.
    put_off: Option<PutOff>,
}

/// A signal that comes behind a return from a handler, during which all signals are blocked.
#[derive(Clone, Copy, Debug)]
struct PutOff {
    info: SigInfo,
    /// The signals that the program blocks before the return.
    own: u64,
}

impl Pace {
    /// Returns whether a thread has executed nothing of its last handler.
    fn is_at_handler(&self, app: &Regs) -> bool {
        self.entered.is_some_and(|(_, pc, stack)| (app.0.rip, app.0.rsp) == (pc, stack))
    }

    /// A hold ends before a call, which is to be made after the signal has been handled: `regs` are
    /// those behind the call; or it does not.
    pub fn took_back(&mut self, regs: Option<Regs>) {
        self.taken_back = regs.map(|regs| (regs.0.rip, regs.0.rsp));
    }

    /// Returns whether the call that a thread is about to make is the one that was taken back last.
    /// The next signal has come already, so it comes in the call.
    pub fn makes_call_again(&mut self, regs: &Regs) -> bool {
        self.taken_back.take() == Some((regs.0.rip, regs.0.rsp))
    }
}

#[cfg(test)]
impl Pace {
    /// So many handlers have been entered too soon after the one before.
    pub fn come_too_soon(&mut self, times: u32) {
        self.hasty = times;
    }
}

/// A signal that is held.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    info: SigInfo,
    /// Processor time that its thread had taken, and what it must have taken before it goes on.
    taken: Option<Duration>,
    span: Duration,
}

impl Held {
    /// Its number.
    pub fn signal(&self) -> u32 {
        self.info.signo() as u32
    }
}

/// A handler's first instruction has been reached, with `regs`, from `app`.
pub fn entered(machine: &mut Machine, tid: Tid, app: &Regs, regs: &Regs) {
    let Some(thread) = machine.tasks.threads.get_mut(&tid) else { return };
    let signal = bit(thread.signals.delivering as u32);
    let pace = &mut thread.signals.pace;
    let now = Instant::now();
    pace.stacked = signal | if pace.is_at_handler(app) { pace.stacked } else { 0 };
    let last = pace.entered.replace((now, regs.0.rip, regs.0.rsp));
    if last.is_some_and(|(at, ..)| now - at < GAP) {
        pace.since = pace.since.or(last.map(|(at, ..)| at));
        pace.hasty += 1;
    } else {
        (pace.hasty, pace.since) = (0, None);
    }
}

/// The signal that a thread has stopped for: that of one that was held says what it said at first.
pub fn restore_info(machine: &mut Machine, tid: Tid, signal: i32) -> Result<(), Errno> {
    let Some(thread) = machine.tasks.threads.get_mut(&tid) else { return Ok(()) };
    let pace = &mut thread.signals.pace;
    match pace.resent.filter(|info| info.signo() == signal) {
        Some(info) => {
            pace.resent = None;
            machine.tracees.set_siginfo(tid, &info)
        }
        None => Ok(()),
    }
}

/// Lets a thread, which stands at `cache` in translated code and is about to take a signal, run on
/// for a while if that signal comes too soon. Returns whether it does.
pub fn holds(machine: &mut Machine, tid: Tid, cache: &Regs, view: &View, info: &SigInfo) -> bool {
    let Some(span) = span_of(machine, tid, (cache, view), info) else { return false };
    let signal = info.signo() as u32;
    let Some(thread) = machine.tasks.threads.get(&tid) else { return false };
    // It could not be sent again, or a call could not be taken back.
    let sendable = machine.tracees.send(thread.pid, tid, 0).is_ok();
    let filtered = machine.context(tid).is_none_or(|it| it.get(Slot::NoSyscalls) != 0);
    if !sendable || filtered || !is_handled(&Status::read(tid), signal) {
        return false;
    }
    let held = Held { info: *info, taken: processor_time(tid), span };
    ignored_signals::hold(machine, tid, held, span).is_ok()
}

/// The time for which a signal is to be held, if at all.
fn span_of(
    machine: &Machine,
    tid: Tid,
    (cache, view): (&Regs, &View),
    info: &SigInfo,
) -> Option<Duration> {
    let thread = machine.tasks.threads.get(&tid)?;
    let pace = &thread.signals.pace;
    let (at, ..) = pace.entered?;
    let between = matches!(view.state.commit, Commit::None | Commit::SigreturnLanded);
    // Signals that are pending together interrupt each other's handlers at once. Of the same signal
    // there are not two.
    let signal = bit(info.signo() as u32);
    let first = pace.is_at_handler(&view.app) && pace.stacked & signal == 0;
    let wanted = thread.errand.need.is_some() || controlled_processes::wants(machine, tid);
    let now = Instant::now();
    let soon = now - at < GAP || view.has_landed();
    if !soon || !between || first || wanted || cache.in_syscall() {
        return None;
    }
    if !matches!(thread.mode, Mode::Running) || pace.hasty < patience(info, thread.pid)? {
        return None;
    }
    let (shortest, longest) = SPANS;
    Some((now - pace.since.unwrap_or(at)).clamp(shortest, longest))
}

/// Number of times that a signal may come too soon before one is held; `None` for signals that are
/// never held.
fn patience(info: &SigInfo, pid: i32) -> Option<u32> {
    const SI_TIMER: i32 = -2;
    const SI_TKILL: i32 = -6;
    const SI_KERNEL: i32 = 0x80;
    const SI_QUEUE: i32 = -1;
    const SI_USER: i32 = 0;
    // Two at most were pending together, of a thread and of its process; a queue may be long.
    const STANDARD: u32 = 8;
    const QUEUED: u32 = 256;
    let signal = info.signo();
    if bit(signal as u32) & NEVER_BLOCKED != 0 {
        return None;
    }
    match info.code() {
        // The kernel has one of a timer at most.
        SI_TIMER => Some(0),
        SI_KERNEL if signal < SIGRTMIN => Some(0),
        // This process sends the threshold interrupts of Lightweight Profiling.
        SI_USER | SI_QUEUE if [pid, std::process::id().cast_signed()].contains(&info.sender()) => {
            None
        }
        SI_TKILL => None,
        _ if signal < SIGRTMIN => Some(STANDARD),
        _ => Some(QUEUED),
    }
}

/// Returns whether a thread whose signal is held runs on after a stop that was to end that, because
/// it has had too little processor time.
pub fn runs_on(machine: &mut Machine, tid: Tid, stop: Stop) -> bool {
    let Some(thread) = machine.tasks.threads.get(&tid) else { return false };
    let Some((held, until)) = thread.signals.calm.and_then(|calm| calm.held()) else {
        return false;
    };
    let wanted = thread.errand.need.is_some() || controlled_processes::wants(machine, tid);
    if stop != Stop::Interrupted
        || wanted
        || Instant::now() < until
        || !matches!(thread.mode, Mode::Running)
        || retranslate::concerns(machine, tid)
        || core_dump::concerns(machine, tid)
        || machine.tracees.regs(tid).is_ok_and(|regs| regs.in_syscall())
    {
        return false;
    }
    let progress = held.taken.zip(processor_time(tid)).map(|(before, now)| now - before.min(now));
    // A stop and the way back from it take some of that.
    let enough = progress.is_none_or(|progress| progress * 2 >= held.span);
    !enough && ignored_signals::hold_on(machine, tid, held.span).is_ok()
}

/// A signal has come to a thread that is about to step over the instruction at `pc`. If that is a
/// return from a handler, and a signal came before it the last time too, the thread would never
/// return: it does so now, and the signal comes then. Returns whether it is so.
pub fn comes_behind_return(machine: &mut Machine, tid: Tid, pc: u64) -> Result<bool, Errno> {
    let regs = machine.tracees.regs(tid)?;
    let returns = regs.0.rip == pc && regs.0.rax == nr::RT_SIGRETURN && is_syscall(tid, pc);
    let info = machine.tracees.siginfo(tid)?;
    let Some(thread) = machine.tasks.threads.get_mut(&tid).filter(|_| returns) else {
        return Ok(false);
    };
    let here = Some((pc, regs.0.rsp));
    let again = std::mem::replace(&mut thread.signals.pace.returning, here) == here;
    if !again || patience(&info, thread.pid).is_none() {
        return Ok(false);
    }
    let own = machine.tracees.sigmask(tid)?;
    machine.tracees.set_sigmask(tid, own | !NEVER_BLOCKED)?;
    thread.signals.pace.put_off = Some(PutOff { info, own });
    machine.tracees.single_step(tid)?;
    Ok(true)
}

/// A thread has stopped that was to return from a handler before a signal comes: the signal comes.
pub fn has_returned(machine: &mut Machine, tid: Tid) -> Handled {
    let Some(thread) = machine.tasks.threads.get_mut(&tid) else { return Ok(()) };
    let pace = &mut thread.signals.pace;
    let Some(PutOff { info, own }) = pace.put_off.take() else { return Ok(()) };
    let regs = machine.tracees.regs(tid)?;
    // Unless it has failed for its frame, or has not been made, the frame's mask is in force.
    let stands = |(pc, stack)| regs.0.rsp == stack && matches!(regs.0.rip.wrapping_sub(pc), 0 | 2);
    if pace.returning.is_some_and(stands) {
        machine.tracees.set_sigmask(tid, own)?;
    }
    send_again(machine, tid, info)
}

/// Sends a signal again that was held: it is taken as soon as the thread goes on. The kernel may
/// have another one, which natively would have been thrown away.
pub fn release(machine: &mut Machine, tid: Tid, held: &Held) -> Handled {
    if let Some(thread) = machine.tasks.threads.get_mut(&tid) {
        (thread.signals.pace.hasty, thread.signals.pace.since) = (0, None);
    }
    send_again(machine, tid, held.info)
}

/// Sends a signal again that a thread has stopped for, unless there is another one already.
fn send_again(machine: &mut Machine, tid: Tid, info: SigInfo) -> Handled {
    let signal = info.signo();
    let Some(thread) = machine.tasks.threads.get_mut(&tid) else { return Ok(()) };
    thread.signals.pace.resent = Some(info);
    let pid = thread.pid;
    let status = Status::read(tid);
    let pending = |field| status.signals(field).unwrap_or(0) & bit(signal as u32) != 0;
    let alone = machine.tasks.threads_of(pid).nth(1).is_none();
    if signal < SIGRTMIN && (pending("SigPnd:") || alone && pending("ShdPnd:")) {
        return Ok(());
    }
    machine.tracees.send(pid, tid, signal)
}

/// Processor time that a thread, which stands still, has taken.
fn processor_time(tid: Tid) -> Option<Duration> {
    let text = read_whole(tid, &format!("task/{tid}/schedstat"))?;
    cpu_clock::exact(&String::from_utf8_lossy(&text))
}
