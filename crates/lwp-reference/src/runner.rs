//! The loop: every stop of every thread.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::rc::Rc;

use lwp_arch::insn::Operands;
use lwp_process::limits::Room;
use lwp_process::spawn::{SpawnError, Variable};
use lwp_process::{Errno, Regs, Stop, Tid, Vectors, spawn, sys};
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

use crate::cpuid;
use crate::decode::{Action, Decoded, LONGEST};
use crate::fault;
use crate::hardware::{Hardware, Interrupt};
use crate::lwp_insn;
use crate::memory::TraceeMemory;
use crate::observer::{Observer, Task, Unobserved};
use crate::options::Options;
use crate::snapshot::Snapshot;
use crate::state;
use crate::thread::{InFlight, Thread};

/// The end of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With this code.
    Code(i32),
    /// By a signal.
    Signal {
        /// The signal.
        signal: i32,
        /// A core was dumped.
        core: bool,
    },
}

/// A program and what it begins with.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The file to execute.
    pub program: PathBuf,
    /// Its arguments, name included.
    pub argv: Vec<OsString>,
    /// Its variables; ours where there are none given.
    pub environment: Option<Vec<Variable>>,
    /// Its address space is laid out without randomisation.
    pub fixed_layout: bool,
}

/// The reason why a program was not run to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It could not be started.
    Start(SpawnError),
    /// Tracing it went wrong; it is killed once this process ends.
    Trace(Errno),
}

/// Runs the program to its end, children included, on the processor of the caller.
///
/// # Errors
///
/// What could not be started, or what went wrong with tracing, as one line.
pub fn run(options: &Options) -> Result<End, String> {
    let argv = options.command.clone();
    let Some(program) = argv.first().map(PathBuf::from) else {
        return Err("no program given".into());
    };
    let _one = OneProcessor::stay();
    let name = program.display().to_string();
    let launch = Launch { program, argv, environment: None, fixed_layout: true };
    run_observed(&launch, options.hardware(), &mut Unobserved).map_err(|failure| match failure {
        Failure::Start(error) => format!("{name}: {error:?}"),
        Failure::Trace(error) => format!("tracing: {error}"),
    })
}

/// Runs a program to its end, and tells `observer` of what retires. The calling thread becomes the
/// tracer, and waits for every child of this process.
///
/// # Errors
///
/// The program could not be started, or not be traced.
pub fn run_observed(
    launch: &Launch,
    hardware: Hardware,
    observer: &mut dyn Observer,
) -> Result<End, Failure> {
    let (program, environment) = (launch.program.as_os_str(), launch.environment.as_deref());
    let room = Room::default();
    let first = spawn::spawn(program, &launch.argv, environment, launch.fixed_layout, room)
        .map_err(Failure::Start)?;
    let _one = OneProcessor::stay();
    let mut runner = Runner::new(hardware, observer);
    runner.begin(Task { tid: first.0, pid: first.0 });
    runner.go_on(first.0).or_else(unless_gone).map_err(Failure::Trace)?;
    let mut end = End::Signal { signal: libc::SIGKILL, core: false };
    while !runner.threads.is_empty() {
        let (tid, status) = match sys::wait_for_any() {
            // What is left of the list was taken by an exec or a kill.
            Err(Errno(libc::ECHILD)) => break,
            other => other.map_err(Failure::Trace)?,
        };
        let stop = Stop::from_status(status);
        if tid == first.0 {
            match stop {
                Stop::Exited(code) => end = End::Code(code),
                Stop::Killed { signal, core } => end = End::Signal { signal, core },
                _ => {}
            }
        }
        runner.stopped(tid, stop).or_else(unless_gone).map_err(Failure::Trace)?;
    }
    Ok(end)
}

/// A thread that was killed meanwhile is no failure: its end will be reported.
fn unless_gone(error: Errno) -> Result<(), Errno> {
    if error == Errno::ESRCH { Ok(()) } else { Err(error) }
}

/// Keeps the calling thread, and what it starts meanwhile, on one processor: a step takes a fifth
/// of the time where nothing has to be woken elsewhere. The kernel tends to wake a program that was
/// started before beside its tracer.
#[derive(Debug)]
struct OneProcessor {
    before: Option<CpuSet>,
}

impl OneProcessor {
    // It is only a matter of speed: failures are none.
    fn stay() -> Self {
        let before = sched_getaffinity(None).ok();
        let mut one = CpuSet::new();
        one.set(sched_getcpu());
        let _ = sched_setaffinity(None, &one);
        Self { before }
    }
}

impl Drop for OneProcessor {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = sched_setaffinity(None, before);
        }
    }
}

/// The threads of a run.
#[derive(Debug)]
struct Runner<'a> {
    hardware: Rc<Hardware>,
    observer: &'a mut dyn Observer,
    threads: HashMap<Tid, Thread>,
    /// The process of each thread.
    pids: HashMap<Tid, i32>,
}

impl<'a> Runner<'a> {
    fn new(hardware: Hardware, observer: &'a mut dyn Observer) -> Self {
        let hardware = Rc::new(hardware);
        Self { hardware, observer, threads: HashMap::new(), pids: HashMap::new() }
    }

    /// A new thread, with LWP off.
    fn begin(&mut self, task: Task) {
        self.threads.insert(task.tid, Thread::new(&self.hardware));
        self.pids.insert(task.tid, task.pid);
        self.observer.started(task);
    }

    /// Takes a thread from the list.
    fn end(&mut self, tid: Tid) {
        if self.threads.remove(&tid).is_some() {
            let task = self.task(tid);
            self.pids.remove(&tid);
            self.observer.ended(task);
        }
    }

    fn task(&self, tid: Tid) -> Task {
        Task { tid, pid: self.pids.get(&tid).copied().unwrap_or(tid) }
    }

    fn stopped(&mut self, tid: Tid, stop: Stop) -> Result<(), Errno> {
        match stop {
            Stop::Exited(_) | Stop::Killed { .. } => {
                self.end(tid);
                Ok(())
            }
            Stop::Exec => {
                self.executed(tid);
                self.go_on(tid)
            }
            Stop::Interrupted if self.threads.contains_key(&tid) => self.go_on(tid),
            Stop::Interrupted => self.appeared(tid, 0),
            Stop::Exiting => {
                self.exiting(tid);
                sys::cont(tid, 0)
            }
            Stop::Group(_) => sys::listen(tid),
            // In the middle of a system call, which goes on.
            Stop::Child | Stop::Syscall | Stop::Other(_) => sys::single_step(tid, 0),
            Stop::Signal(signal) => self.signalled(tid, signal),
        }
    }

    /// A thread stops for the first time. One of a process that is not followed is let go.
    fn appeared(&mut self, tid: Tid, signal: i32) -> Result<(), Errno> {
        let task = Task { tid, pid: process_of(tid) };
        if task.pid == tid && !self.observer.follows_children() {
            return sys::detach(tid, signal);
        }
        self.begin(task);
        match signal {
            0 => self.go_on(tid),
            _ => sys::single_step(tid, signal),
        }
    }

    /// exec took all other threads of the process and left LWP off. The thread that made the call
    /// has the first one's number now.
    fn executed(&mut self, tid: Tid) {
        let caller = sys::event_message(tid).ok().and_then(|tid| Tid::try_from(tid).ok());
        let caller = caller.unwrap_or(tid);
        let call = self.threads.get_mut(&caller).and_then(|thread| thread.in_flight.take());
        if let Some(InFlight { decoded, .. }) = call {
            self.observer.retired(self.task(caller), &decoded, decoded.fall_through);
        }
        let others = self.pids.iter().filter(|(_, pid)| **pid == tid).map(|(other, _)| *other);
        for other in others.collect::<Vec<_>>() {
            self.end(other);
        }
        self.threads.insert(tid, Thread::new(&self.hardware));
        self.pids.insert(tid, tid);
        self.observer.executed(self.task(tid));
    }

    /// The system call by which a thread ends has retired; what it was killed at has not.
    fn exiting(&mut self, tid: Tid) {
        let task = self.task(tid);
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        let left = |in_flight: &InFlight| {
            Regs::get(tid).is_ok_and(|regs| regs.0.rip != in_flight.before.0.rip)
        };
        if let Some(InFlight { decoded, .. }) = thread.in_flight.take().filter(left) {
            self.observer.retired(task, &decoded, decoded.fall_through);
        }
        self.observer.ending(task);
    }

    fn signalled(&mut self, tid: Tid, signal: i32) -> Result<(), Errno> {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return self.appeared(tid, signal);
        };
        if signal == libc::SIGTRAP {
            let stands =
                |at: &InFlight| Regs::get(tid).is_ok_and(|regs| regs.0.rip == at.before.0.rip);
            match sys::get_siginfo(tid)?.code() {
                // The kernel steps out of the exec or the clone by which the thread began; what
                // stands there has not been executed.
                libc::TRAP_BRKPT if thread.in_flight.as_ref().is_some_and(stands) => {
                    thread.in_flight = None;
                    return self.go_on(tid);
                }
                libc::TRAP_TRACE | libc::TRAP_BRKPT => {
                    let regs = self.completed(tid)?;
                    return self.go_on_from(tid, regs);
                }
                // The kernel has led the thread into a handler; nothing was executed.
                libc::SIGTRAP => {
                    thread.in_flight = None;
                    return self.go_on(tid);
                }
                _ => {}
            }
        }
        if let Some(information) = thread.fault.take() {
            if signal != libc::SIGSEGV {
                thread.fault = Some(information);
                thread.held.push(Stop::Signal(signal));
                return sys::single_step(tid, 0);
            }
            sys::set_siginfo(tid, &information)?;
            thread.in_flight = None;
            for stop in std::mem::take(&mut thread.held) {
                if let Stop::Signal(signal) = stop {
                    sys::tgkill(self.pids[&tid], tid, signal)?;
                }
            }
            return sys::single_step(tid, libc::SIGSEGV);
        }
        let regs = Regs::get(tid)?;
        let in_flight = thread.in_flight.as_ref();
        let stayed = in_flight.is_some_and(|in_flight| in_flight.before.0.rip == regs.0.rip);
        let lwp = in_flight.is_some_and(|f| matches!(f.decoded.action, Action::Lwp(_)));
        if signal == libc::SIGILL && stayed && lwp {
            // An ignored signal let the processor at an instruction that is ours.
            return self.go_on(tid);
        }
        let regs = if stayed { regs } else { self.completed(tid)? };
        // If no handler is called the step executes the instruction it finds.
        let decoded = self.decode(tid, &regs);
        self.prepare(tid, decoded, regs)?;
        sys::single_step(tid, signal)
    }

    /// The instruction in flight may have retired; reports it. Returns the registers afterwards.
    fn completed(&mut self, tid: Tid) -> Result<Regs, Errno> {
        let mut after = Regs::get(tid)?;
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(after) };
        let Some(in_flight) = thread.in_flight.take() else { return Ok(after) };
        let InFlight { decoded, before, snapshot } = in_flight;
        if decoded.repeats && after.0.rip == decoded.ip {
            thread.iterated(&decoded);
            return Ok(after);
        }
        touch_up(thread, &decoded, &before, &mut after, tid)?;
        let mut memory = TraceeMemory::of(tid);
        if let Action::State(access) = &decoded.action
            && after.0.rip != decoded.ip
        {
            state::after(thread, access, &mut memory);
        }
        if let Err(fault) = thread.retired(&decoded, after.0.rip, &mut memory) {
            if let Some(snapshot) = snapshot {
                snapshot.restore(tid)?;
                after = before;
            }
            thread.fault = Some(fault::information(fault));
            fault::raise(self.pids[&tid], tid)?;
        } else {
            self.report(tid, &decoded, &before, after.0.rip);
        }
        if self.interrupt(tid)?
            && let Some(thread) = self.threads.get_mut(&tid)
        {
            thread.interrupted = true;
        }
        Ok(after)
    }

    /// Tells the observer of an instruction that has retired, if it is done. After a load of SS the
    /// next one has retired too: the step went over both.
    fn report(&mut self, tid: Tid, decoded: &Decoded, before: &Regs, next: u64) {
        let task = self.task(tid);
        if !decoded.shadows_next || next == decoded.fall_through {
            return self.observer.retired(task, decoded, next);
        }
        self.observer.retired(task, decoded, decoded.fall_through);
        let mut regs = *before;
        regs.0.rip = decoded.fall_through;
        self.observer.retired(task, &self.decode(tid, &regs), next);
    }

    /// Delivers the threshold interrupt, if there is one and the program has a handler for it: the
    /// default action of most signals would end it. Returns whether there was.
    fn interrupt(&mut self, tid: Tid) -> Result<bool, Errno> {
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(false) };
        let raised = std::mem::take(&mut thread.surroundings.interrupted);
        let Some(interrupt) = self.hardware.interrupt.filter(|_| raised) else { return Ok(false) };
        let (Interrupt::Thread(signal) | Interrupt::Process(signal)) = interrupt;
        let interrupted = is_caught(tid, signal);
        match interrupt {
            _ if !interrupted => {}
            Interrupt::Thread(signal) => sys::tgkill(self.pids[&tid], tid, signal)?,
            Interrupt::Process(signal) => sys::kill(self.pids[&tid], signal)?,
        }
        Ok(interrupted)
    }

    /// The instruction at which a thread stands. LWPINS and LWPVAL are not ours in the form of
    /// 2007: the processor, which lacks them too, raises #UD.
    fn decode(&self, tid: Tid, regs: &Regs) -> Decoded {
        let code = read_code(tid, regs.0.rip);
        let mut decoded = Decoded::new(&code, &regs.0);
        let inserts = matches!(&decoded.action,
            Action::Lwp(lwp) if matches!(lwp.operands, Operands::Insert { .. }));
        if inserts && !self.hardware.has_inserts() || self.hardware.processor.is_none() {
            decoded.action = Action::Step;
        }
        let on = self.threads.get(&tid).is_some_and(|thread| thread.unit.is_on());
        // Both of these switch it on.
        match on || matches!(decoded.action, Action::Lwp(_) | Action::State(_)) {
            true => decoded.with_operands(&regs.0, || Vectors::of(tid).ok()),
            false => decoded,
        }
    }

    /// Carries out what is ours and steps the processor over the rest.
    fn go_on(&mut self, tid: Tid) -> Result<(), Errno> {
        self.go_on_from(tid, Regs::get(tid)?)
    }

    /// As [`Self::go_on`], with the registers at hand.
    fn go_on_from(&mut self, tid: Tid, mut regs: Regs) -> Result<(), Errno> {
        loop {
            let decoded = self.decode(tid, &regs);
            let Some(thread) = self.threads.get_mut(&tid) else { return sys::cont(tid, 0) };
            // A signal comes before the next instruction.
            let ours = !matches!(decoded.action, Action::Step | Action::Xgetbv | Action::State(_));
            let signal_first = thread.fault.is_some()
                || std::mem::take(&mut thread.interrupted)
                || (ours && signal_is_due(tid));
            if signal_first || !self.carry_out(tid, &decoded, &mut regs)? {
                self.prepare(tid, decoded, regs)?;
                return sys::single_step(tid, 0);
            }
        }
    }

    /// Carries out an instruction that is not the processor's. Returns whether it was one, and
    /// done.
    fn carry_out(&mut self, tid: Tid, decoded: &Decoded, regs: &mut Regs) -> Result<bool, Errno> {
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(false) };
        let mut memory = TraceeMemory::of(tid);
        let done = match &decoded.action {
            Action::Step | Action::Xgetbv => return Ok(false),
            Action::State(access) => match state::before(thread, tid, access, &mut memory) {
                Ok(true) => {
                    let mut after = *regs;
                    after.0.rip = decoded.fall_through;
                    thread.retired(decoded, decoded.fall_through, &mut memory).map(|()| after)
                }
                Ok(false) => return Ok(false),
                Err(fault) => Err(fault),
            },
            Action::Cpuid => {
                let mut after = *regs;
                show_cpuid(thread, &mut after);
                after.0.rip = decoded.fall_through;
                thread.retired(decoded, decoded.fall_through, &mut memory).map(|()| after)
            }
            Action::Lwp(lwp) => lwp_insn::execute(thread, lwp, decoded, regs, &mut memory),
        };
        match done {
            Ok(mut after) => {
                after.forget_syscall();
                after.set(tid)?;
                self.observer.retired(self.task(tid), decoded, after.0.rip);
                *regs = after;
                let interrupted = self.interrupt(tid)?;
                if let Some(thread) = self.threads.get_mut(&tid) {
                    thread.interrupted = interrupted;
                }
            }
            Err(fault) => {
                thread.fault = Some(fault::information(fault));
                fault::raise(self.pids[&tid], tid)?;
            }
        }
        Ok(true)
    }

    /// Notes the instruction that the next step may execute.
    fn prepare(&mut self, tid: Tid, decoded: Decoded, before: Regs) -> Result<(), Errno> {
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        let undoable = thread.unit.is_on() && !decoded.crosses_privilege;
        let snapshot = if undoable { Some(Snapshot::take(tid, &decoded, &before)?) } else { None };
        thread.in_flight = Some(InFlight { decoded, before, snapshot });
        Ok(())
    }
}

/// Puts right what an instruction shows of the real processor or of being stepped.
fn touch_up(
    thread: &Thread,
    decoded: &Decoded,
    before: &Regs,
    after: &mut Regs,
    tid: Tid,
) -> Result<(), Errno> {
    const TRAP_FLAG_BYTE: u8 = 1;
    match decoded.action {
        Action::Xgetbv if before.0.rcx as u32 == 0 => {
            let host = after.0.rdx << 32 | after.0.rax & 0xFFFF_FFFF;
            after.0.rdx = cpuid::xcr0(&thread.unit, host) >> 32;
            after.set(tid)
        }
        // An ignored signal let the processor at it.
        Action::Cpuid => {
            let rip = after.0.rip;
            *after = *before;
            show_cpuid(thread, after);
            after.0.rip = rip;
            after.set(tid)
        }
        Action::Step if decoded.pushes_flags => {
            let at = after.0.rsp + 1;
            let [byte] = lwp_process::memory::read_array(tid, at)?;
            lwp_process::memory::write_exact(tid, at, &[byte & !TRAP_FLAG_BYTE])
        }
        _ => Ok(()),
    }
}

fn show_cpuid(thread: &Thread, regs: &mut Regs) {
    let regs = &mut regs.0;
    let answer = cpuid::answer(&thread.unit, regs.rax as u32, regs.rcx as u32);
    [regs.rax, regs.rbx, regs.rcx, regs.rdx] = answer.map(u64::from);
}

/// Bytes at `pc`, as far as they are readable: an instruction may end at the end of a mapping.
fn read_code(tid: Tid, pc: u64) -> Vec<u8> {
    let mut bytes = vec![0; LONGEST];
    let to_page_end = 4096 - (pc & 4095) as usize;
    let whole = sys::read_memory(tid, pc, &mut bytes).unwrap_or(0);
    if whole < LONGEST && to_page_end < LONGEST {
        bytes.truncate(to_page_end);
        let part = sys::read_memory(tid, pc, &mut bytes).unwrap_or(0);
        bytes.truncate(part);
    } else {
        bytes.truncate(whole);
    }
    bytes
}

/// Returns whether a signal that the thread does not block waits for it: the kernel delivers it
/// before it lets the thread execute anything, so nothing may be carried out either.
fn signal_is_due(tid: Tid) -> bool {
    let text = status(tid);
    let set = |name| signal_set(&text, name);
    (set("SigPnd:") | set("ShdPnd:")) & !set("SigBlk:") != 0
}

/// Returns whether the program has a handler for `signal`.
fn is_caught(tid: Tid, signal: i32) -> bool {
    (1..=64).contains(&signal) && signal_set(&status(tid), "SigCgt:") >> (signal - 1) & 1 != 0
}

fn signal_set(status: &str, name: &str) -> u64 {
    u64::from_str_radix(field(status, name).unwrap_or_default(), 16).unwrap_or(0)
}

fn status(tid: Tid) -> String {
    lwp_process::kernel_files::text(tid, "status").unwrap_or_default()
}

/// The process a thread belongs to.
fn process_of(tid: Tid) -> i32 {
    field(&status(tid), "Tgid:").and_then(|digits| digits.parse().ok()).unwrap_or(tid)
}

fn field<'text>(status: &'text str, name: &str) -> Option<&'text str> {
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}
