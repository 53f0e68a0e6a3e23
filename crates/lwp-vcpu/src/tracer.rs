//! The tracer: the host thread that receives ptrace stops.
//!
//! Stops are rare: exec, new threads and processes, signals, exits, and what the server cannot do
//! from outside (see `Need`). Everything else happens in translated code or through the mailbox.
//!
//! Promise: E5, I1

mod attach;
mod compatibility_mode;
pub mod context_handover;
pub mod controlled_processes;
pub mod core_dump;
mod detach;
pub mod emulated_ptrace;
mod exec_image;
pub mod ignored_signals;
mod mlockall;
mod new_tasks;
mod partial_unmap;
pub mod passed_signals;
pub mod retranslate;
pub mod rseq;
pub mod run_requests;
mod sessions;
pub mod sigaction_order;
pub mod signal_pacing;
mod signals;
mod single_step_effects;
mod stopped_work;
mod thread_exit;
mod trap_flag;
mod user_dispatch;

use std::sync::Mutex;
use std::time::{Duration, Instant};

use lwp_process::sys::{self, Errno};
use lwp_process::{Stop, Tid, Tracee};
use lwp_run::config::{Control, Target};
use lwp_run::outcome::ExitStatus;
use rustc_hash::FxHashSet;

use crate::machine::{Machine, Mode, Need, Thread};
use crate::server::lock;
use exec_image::start_image;
use new_tasks::{Maker, begin, newcomer};
use sessions::Sessions;
use signals::{delivered, signalled};
use stopped_work::satisfy;
use thread_exit::exiting;
use trap_flag::at_syscall;

const EAGAIN: i64 = -11;
const SIGTRAP: i32 = 5;
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;
/// `si_code` of a signal that a process, or the kernel on a thread's behalf, has sent.
const SI_USER: i32 = 0;
/// `si_code` of a breakpoint.
const TRAP_BRKPT: i32 = 1;
/// `si_code` of the trap flag.
const TRAP_TRACE: i32 = 2;

/// The value that a run returns if its program could not be traced to its end.
const LOST: i32 = 125;

/// The interval at which requests are looked for.
const REQUEST_POLL: Duration = Duration::from_millis(5);
/// The time for which stops are handled without a look at anything else.
const BUSY: Duration = Duration::from_millis(10);

/// Times at which the tracer does something without a stop.
#[derive(Debug)]
struct Times {
    /// The end of the time that the program has.
    deadline: Option<Instant>,
    /// The time at which the profile's sink was last told about the live threads.
    checkpointed: Instant,
    /// The time of the next look at the calm threads.
    calm: Option<Instant>,
    /// The time at which a process dies though not all its threads stand still.
    dying: Option<Instant>,
    /// The time of the next look at threads that wait for those that they trace.
    waits: Option<Instant>,
    /// The time of the next look at sessions.
    look: Option<Instant>,
    /// The number of looks since everything is to be let go.
    asked: u32,
}

/// The tracer's own state.
#[derive(Debug)]
pub struct Tracer<'a> {
    machine: &'a Mutex<Machine>,
    first: i32,
    control: Option<Control>,
    status: Option<ExitStatus>,
    terminated: bool,
    /// The times at which there is something to do without a stop.
    times: Times,
    /// Commands of the control line that have been heard, and that nobody stands still for.
    heard: usize,
    /// Threads are being let go, because the run that attached to them ends, or the program has
    /// left them behind.
    detaching: bool,
    /// The sessions in which processes are waited for once the first is gone.
    sessions: Sessions,
    /// The first process has been killed, because it could not be traced any further.
    lost: bool,
}

type Handled = Result<(), Errno>;

impl<'a> Tracer<'a> {
    /// A tracer of the process `first`.
    pub fn new(machine: &'a Mutex<Machine>, first: i32, control: Option<Control>) -> Self {
        let mut state = lock(machine);
        let timeout = state.config.program.timeout;
        state.errands.passing.first = first;
        drop(state);
        Self {
            machine,
            first,
            control,
            status: None,
            terminated: false,
            times: Times {
                deadline: timeout.map(|timeout| Instant::now() + timeout),
                checkpointed: Instant::now(),
                calm: None,
                dying: None,
                waits: None,
                look: None,
                asked: 0,
            },
            heard: 0,
            detaching: false,
            sessions: Sessions::at_first(first),
            lost: false,
        }
    }

    /// Returns how the first process has ended, if it has.
    pub fn status(&self) -> Option<ExitStatus> {
        self.status
    }

    /// Takes in the first process, stopped at its exec event.
    pub fn begin(&mut self, tid: Tid) -> Handled {
        self.exec(&mut lock(self.machine), tid)
    }

    /// Takes in a live process, all threads stopped in their application states.
    ///
    /// # Errors
    ///
    /// The reason why it cannot be translated. It has been let go, and goes on natively.
    pub fn attach(&mut self, pid: i32, threads: &[Tracee]) -> Result<(), String> {
        attach::attach(&mut lock(self.machine), pid, threads)
    }

    /// Runs until every tracee is gone; returns how the first process ended.
    pub fn run(&mut self) -> ExitStatus {
        let wake = lock(self.machine).errands.wake_tracer.clone();
        let held = sys::hold_child_events();
        let pending = held.descriptor().ok();
        loop {
            let began = Instant::now();
            let mut quiet = false;
            while !quiet && began.elapsed() < BUSY {
                match sys::wait_any() {
                    Ok(Some((tid, status))) => self.stopped(tid, Stop::from_status(status)),
                    Ok(None) => quiet = true,
                    Err(_) => return self.status().unwrap_or(ExitStatus::Code(0)),
                }
            }
            if self.is_over() {
                break;
            }
            if quiet {
                lock(self.machine).contexts.files.tidy();
            }
            // Whatever has happened since it was looked for ends this at once.
            if let Some(timeout) = self.patience()
                && quiet
            {
                held.wait(&wake, pending.as_ref(), timeout);
            }
        }
        self.status().unwrap_or(ExitStatus::Code(0))
    }

    /// Lets the profile's sink know how far the live threads are, every now and then.
    fn checkpoint(&mut self) {
        let mut machine = lock(self.machine);
        if machine.observers.profiler.is_some()
            && self.times.checkpointed.elapsed() >= machine.config.reports.checkpoint
        {
            machine.counting().checkpoint();
            self.times.checkpointed = Instant::now();
        }
    }

    /// Looks at what is no stop: requests first of all. True when all is over.
    fn is_over(&mut self) -> bool {
        self.needs();
        self.requests();
        self.checkpoint();
        self.times.calm = ignored_signals::look(&mut lock(self.machine), self.detaching);
        self.times.dying = core_dump::press(&mut lock(self.machine));
        self.times.waits = emulated_ptrace::look(&mut lock(self.machine));
        if self.only_thread_is_gone() {
            self.detach_all();
        }
        self.let_daemons_go();
        // A first process that runs natively is still waited for.
        self.status.is_some() && lock(self.machine).tasks.threads.is_empty()
    }

    /// Once the program is over: lets its daemons go if they are all that is left. Threads that are
    /// to be let go and could not be, or are new, are asked once more.
    fn let_daemons_go(&mut self) {
        let now = Instant::now();
        let concerned = self.detaching || self.status.is_some();
        if !concerned || self.times.look.is_some_and(|at| now < at) {
            return;
        }
        self.times.look = Some(now + sessions::LOOK);
        if self.detaching {
            self.times.asked += 1;
            if self.times.asked.is_multiple_of(sessions::PATIENCE) {
                detach::let_all_on(&mut lock(self.machine));
                return;
            }
        }
        if !self.detaching {
            if !sessions::are_left_alone(&lock(self.machine), &self.sessions) {
                return;
            }
            self.say_left_behind();
        }
        self.detach_all();
    }

    fn say_left_behind(&self) {
        let machine = lock(self.machine);
        let processes: FxHashSet<i32> = machine.tasks.threads.values().map(|it| it.pid).collect();
        let (many, verb) = match processes.len() {
            1 => ("1 process".to_owned(), "goes"),
            number => (format!("{number} processes"), "go"),
        };
        lwp_terminal::say!(
            "lwp: {many} that the program leaves behind {verb} on natively, counted up to here"
        );
    }

    /// The time to wait for something to happen, if at all.
    fn patience(&mut self) -> Option<Option<Duration>> {
        let timeout = self.times.deadline.map(|at| at.saturating_duration_since(Instant::now()));
        if timeout.is_some_and(|left| left.is_zero()) {
            self.time_out();
            return None;
        }
        // Requests come over a channel, which cannot be polled together with a descriptor.
        let polled = self.control.is_some().then_some(REQUEST_POLL);
        let moments = [self.times.calm, self.times.dying, self.times.waits, self.times.look]
            .into_iter()
            .flatten();
        let looks = moments.map(|at| at.saturating_duration_since(Instant::now()));
        Some(timeout.into_iter().chain(polled).chain(looks).min())
    }

    /// Stops the threads that the server wants something done for.
    pub fn needs(&mut self) {
        let mut machine = lock(self.machine);
        for (tid, fd) in machine.seen.news() {
            machine.ask_tracer(tid, Need::Hide(fd));
        }
        for tid in std::mem::take(&mut machine.errands.needy) {
            let _ = machine.tracees.interrupt(tid);
        }
        if !self.detaching {
            retranslate::replace_improved(&mut machine);
        }
        for (tid, error) in controlled_processes::attend(&mut machine) {
            if error != Errno::ESRCH {
                let pid = machine.tasks.threads.get(&tid).map_or(tid, |thread| thread.pid);
                self.end(
                    &machine,
                    pid,
                    &format!("thread {tid} was held and cannot go on: {error}"),
                );
            }
        }
        for (pid, what) in std::mem::take(&mut machine.errands.forgeries) {
            let reason = format!("it has forged a request to the virtual CPU: {what}");
            if let Some(process) = machine.tasks.processes.get(&pid) {
                let report = process.report;
                machine.observers.reports[report].uncounted = Some(reason.clone());
            }
            self.end(&machine, pid, &reason);
        }
    }

    /// Returns whether one thread was to be reported, of a process that was attached to, and has
    /// ended.
    fn only_thread_is_gone(&self) -> bool {
        let machine = lock(self.machine);
        let attached = matches!(machine.config.target, Target::Attach { .. });
        let gone = |tid| !machine.tasks.threads.contains_key(&tid);
        attached && !self.detaching && machine.config.counted.only_thread.is_some_and(gone)
    }

    /// Stops every thread in order to let it go.
    pub fn detach_all(&mut self) {
        self.detaching = true;
        self.status.get_or_insert(ExitStatus::Detached);
        let mut machine = lock(self.machine);
        controlled_processes::let_all_go(&mut machine);
        emulated_ptrace::let_all_go(&mut machine);
        for &tid in machine.tasks.threads.keys() {
            let _ = machine.tracees.interrupt(tid);
        }
    }

    pub fn time_out(&mut self) {
        let machine = lock(self.machine);
        if self.terminated {
            let _ = machine.tracees.kill(self.first, SIGKILL);
            self.times.deadline = None;
        } else {
            let _ = machine.tracees.kill(self.first, SIGTERM);
            self.terminated = true;
            self.times.deadline = Some(Instant::now() + Duration::from_secs(2));
        }
    }

    /// One stop of one thread, whatever it is.
    pub fn stopped(&mut self, tid: Tid, stop: Stop) {
        let machine = self.machine;
        let mut machine = lock(machine);
        trace(&machine, tid, stop);
        controlled_processes::stopped(&mut machine, tid);
        user_dispatch::stopped(&mut machine, tid, stop);
        // The first thread is not, if it had ended before its process was attached to: another one
        // that executes a program has its number from then on.
        let replaced = stop == Stop::Exec && machine.tasks.processes.contains_key(&tid);
        let known = replaced || machine.tasks.threads.contains_key(&tid);
        if let Some(thread) = machine.tasks.threads.get_mut(&tid) {
            thread.signals.stopped = matches!(stop, Stop::Group(_));
            if !matches!(stop, Stop::Group(_) | Stop::Signal(_)) {
                thread.signals.parked_in = None;
            }
        }
        if signal_pacing::runs_on(&mut machine, tid, stop) {
            return;
        }
        end_calm(&mut machine, tid, stop);
        if new_tasks::is_moving(&machine, tid, stop) && !new_tasks::finish_moving(&mut machine, tid)
        {
            return;
        }
        let result = match stop {
            Stop::Exited(_) | Stop::Killed { .. } => {
                self.gone(&mut machine, tid, stop);
                Ok(())
            }
            _ if !known => newcomer(&mut machine, tid, stop),
            Stop::Exec => self.exec(&mut machine, tid),
            Stop::Child => self.child(&mut machine, tid),
            Stop::Exiting => {
                if tid == self.first {
                    self.sessions.at_last(tid);
                }
                exiting(&mut machine, tid)
            }
            // One of a stopped group stays stopped.
            Stop::Interrupted | Stop::Group(_)
                if self.detaching && detach::in_place(&machine, tid) =>
            {
                detach::park(&mut machine, tid, stop)
            }
            Stop::Group(_) if self.detaching && detach::is_on_the_way(&machine, tid) => {
                detach::arrive(&mut machine, tid)
            }
            Stop::Group(_) => group_stopped(&mut machine, tid),
            Stop::Interrupted => interrupted(&mut machine, tid),
            Stop::Signal(signal) => signalled(&mut machine, tid, signal),
            Stop::Syscall => at_syscall(&mut machine, tid),
            Stop::Other(_) => machine.tracees.cont(tid, 0),
        };
        retranslate::press(&mut machine, tid);
        controlled_processes::press(&mut machine, tid);
        core_dump::press_thread(&machine, tid);
        core_dump::press(&mut machine);
        if self.detaching {
            detach::press(&mut machine, tid);
        }
        // A thread that is gone under our hands reports its end by itself.
        if let Err(error) = result
            && error != Errno::ESRCH
        {
            self.lose(&machine, tid, stop, error);
        }
    }

    /// A thread stands still and cannot be led on: its process ends, and says why.
    fn lose(&mut self, machine: &Machine, tid: Tid, stop: Stop, error: Errno) {
        let pid = machine.tasks.threads.get(&tid).map_or(tid, |thread| thread.pid);
        self.end(machine, pid, &format!("thread {tid} cannot go on after {stop:?}: {error}"));
    }

    /// Ends a process that cannot be traced any further.
    fn end(&mut self, machine: &Machine, pid: i32, reason: &str) {
        lwp_terminal::say!("lwp: process {pid} is killed: {reason}");
        self.lost |= pid == self.first;
        let _ = machine.tracees.kill(pid, SIGKILL);
    }

    /// A thread has ended.
    fn gone(&mut self, machine: &mut Machine, tid: Tid, stop: Stop) {
        let pid = machine.tasks.threads.get(&tid).map(|thread| thread.pid);
        machine.counting().remove_thread(tid);
        if let Some(pid) = pid {
            let last = machine.tasks.threads_of(pid).next().is_none();
            controlled_processes::gone(machine, pid, tid, stop.status(), last);
            emulated_ptrace::gone(machine, pid, tid, stop.status(), last);
        }
        if tid == self.first {
            self.status = Some(match stop {
                Stop::Killed { .. } if self.lost => ExitStatus::Code(LOST),
                Stop::Killed { signal, core } => ExitStatus::Signal { signal, core },
                Stop::Exited(code) => ExitStatus::Code(code),
                _ => ExitStatus::Code(0),
            });
        }
        let Some(pid) = pid else { return };
        if machine.tasks.threads_of(pid).next().is_none()
            && let Some(process) = machine.tasks.processes.remove(&pid)
        {
            machine.caches.ended(process.space);
            machine.observers.call_stacks.forget_process(pid);
            machine.tasks.raised.0.remove(&pid);
            machine.remember(pid, process);
        }
        new_tasks::orphans(machine);
    }

    /// A process has become another program.
    fn exec(&mut self, machine: &mut Machine, tid: Tid) -> Handled {
        let pid = tid;
        machine.tasks.dying.remove(&pid);
        // exec ends all other threads, and the one that called it takes the leader's id.
        for other in machine.tasks.tids_of(pid) {
            machine.counting().remove_thread(other);
        }
        machine.observers.call_stacks.forget_process(pid);
        let parent = match machine.tasks.processes.remove(&pid) {
            Some(process) => {
                machine.caches.ended(process.space);
                let report = process.report;
                machine.depart(process);
                let parent = machine.observers.reports[report].parent;
                machine.observers.reports.forget(report);
                parent
            }
            None => 0,
        };
        new_tasks::orphans(machine);
        // Leave the system call before anything is done in the new image.
        machine.tracees.cont_syscall(tid)?;
        match machine.tracees.wait(tid)? {
            Stop::Syscall => {}
            stop @ (Stop::Exited(_) | Stop::Killed { .. }) => {
                self.gone(machine, tid, stop);
                return Ok(());
            }
            _ => {}
        }
        start_image(machine, tid, parent)
    }

    /// Tells a thread at the end of its call that it could not make another.
    fn decline(&mut self, machine: &mut Machine, tid: Tid) -> Handled {
        machine.tracees.cont_syscall(tid)?;
        match machine.tracees.wait(tid)? {
            Stop::Syscall => {
                let mut regs = machine.tracees.regs(tid)?;
                regs.0.rax = EAGAIN as u64;
                machine.tracees.set_regs(tid, &regs)
            }
            stop @ (Stop::Exited(_) | Stop::Killed { .. }) => {
                self.gone(machine, tid, stop);
                Err(Errno::ESRCH)
            }
            _ => Ok(()),
        }
    }

    /// A thread or process has been made.
    fn child(&mut self, machine: &mut Machine, tid: Tid) -> Handled {
        let child = machine.tracees.event_message(tid)? as Tid;
        let regs = machine.tracees.regs(tid)?;
        if !machine.tasks.threads.contains_key(&child)
            && let Some(thread) = machine.tasks.threads.get(&tid)
        {
            let maker = Maker { tid, slot: Some(thread.slot), pid: thread.pid };
            if !new_tasks::reported(machine, maker, child, &regs) {
                self.decline(machine, tid)?;
            }
        }
        match machine.tasks.threads.get(&tid).map(|thread| thread.mode) {
            // By a way into the kernel that is stepped over: INT 0x80.
            Some(Mode::Stepping { .. }) => machine.tracees.single_step(tid),
            Some(Mode::Calling { .. }) => machine.tracees.cont_syscall(tid),
            _ => machine.tracees.cont(tid, 0),
        }
    }
}

/// A thread has stopped as a member of its group.
fn group_stopped(machine: &mut Machine, tid: Tid) -> Handled {
    if core_dump::concerns(machine, tid) {
        return core_dump::park(machine, tid, true);
    }
    if retranslate::concerns(machine, tid) {
        return retranslate::park(machine, tid, true);
    }
    if controlled_processes::wants(machine, tid) {
        controlled_processes::keep(machine, tid, true);
        return Ok(());
    }
    let running = |thread: &Thread| matches!(thread.mode, Mode::Running);
    if machine.tasks.threads.get(&tid).is_some_and(running) {
        retranslate::stopped_in_call(machine, tid)?;
    }
    ignored_signals::stopped_by_job_control(machine, tid)?;
    machine.tracees.listen(tid)
}

fn trace(machine: &Machine, tid: Tid, stop: Stop) {
    if machine.config.trials.trace {
        if let (Stop::Signal(_), Ok(regs), Ok(info)) =
            (stop, machine.tracees.regs(tid), machine.tracees.siginfo(tid))
        {
            lwp_terminal::say!(
                "lwp: rip {:#x} rsp {:#x} code {} addr {:#x} rax {:#x} rcx {:#x} fl {:#x}",
                regs.0.rip,
                regs.0.rsp,
                info.code(),
                info.address(),
                regs.0.rax,
                regs.0.rcx,
                regs.0.eflags
            );
        }
        let mode = machine.tasks.threads.get(&tid).map(|thread| thread.mode);
        lwp_terminal::say!(
            "lwp: {tid}: {stop:?} {}",
            match mode {
                Some(Mode::Running) => "running",
                Some(Mode::New) => "new",
                Some(Mode::Delivering { .. }) => "delivering",
                Some(Mode::Stepping { .. }) => "stepping",
                Some(Mode::Calling { .. }) => "calling",
                Some(Mode::Parked { .. }) => "parked",
                None => "unknown",
            }
        );
    }
}

/// A stop ends the calm of a thread, unless it is one at a system call.
fn end_calm(machine: &mut Machine, tid: Tid, stop: Stop) {
    if !matches!(stop, Stop::Syscall | Stop::Exited(_) | Stop::Killed { .. }) {
        // One that is gone reports that by itself.
        let _ = ignored_signals::interrupted(machine, tid);
        let _ = signal_pacing::has_returned(machine, tid);
    }
}

/// PTRACE_INTERRUPT took effect, or a group stop ended, or a new tracee stands still.
fn interrupted(machine: &mut Machine, tid: Tid) -> Handled {
    let Some(thread) = machine.tasks.threads.get(&tid) else { return Err(Errno::ESRCH) };
    match thread.mode {
        Mode::New => begin(machine, tid),
        Mode::Delivering { cache, app } => delivered(machine, tid, cache, app),
        Mode::Stepping { .. } => machine.tracees.single_step(tid),
        Mode::Calling { .. } => machine.tracees.cont_syscall(tid),
        // It goes on when all others of its address space stand still too.
        Mode::Parked { .. } => Ok(()),
        Mode::Running if core_dump::concerns(machine, tid) => core_dump::park(machine, tid, false),
        Mode::Running if retranslate::concerns(machine, tid) => {
            retranslate::park(machine, tid, false)
        }
        Mode::Running => match thread.errand.need {
            Some(need) => satisfy(machine, tid, need),
            None if controlled_processes::wants(machine, tid) => {
                controlled_processes::keep(machine, tid, false);
                Ok(())
            }
            None => ignored_signals::looked_at(machine, tid),
        },
    }
}
