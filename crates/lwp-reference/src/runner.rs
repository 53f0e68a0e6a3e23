//! The loop: every stop of every thread.

use std::collections::HashMap;
use std::ffi::OsStr;

use lwp_arch::Revision;
use lwp_arch::insn::Operands;
use lwp_ptrace::limits::Room;
use lwp_ptrace::{Errno, Regs, Stop, Tid, Vectors, spawn, sys};

use crate::cpuid;
use crate::decode::{Action, Decoded, LONGEST};
use crate::fault;
use crate::lwp_insn;
use crate::memory::TraceeMemory;
use crate::options::Options;
use crate::snapshot::Snapshot;
use crate::state;
use crate::thread::{InFlight, Thread};

/// The end of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// Runs the program to its end, children included.
///
/// # Errors
///
/// What could not be started, or what went wrong with tracing, as one line.
pub fn run(options: &Options) -> Result<End, String> {
    let Some(program) = options.command.first() else { return Err("no program given".into()) };
    stay_on_one_processor();
    let first = spawn::spawn(OsStr::new(program), &options.command, None, true, Room::default())
        .map_err(|error| format!("{}: {error:?}", program.display()))?;
    let mut runner = Runner::new(options.clone());
    runner.threads.insert(first.0, Thread::new(options));
    runner.pids.insert(first.0, first.0);
    let mut end = End::Signal(libc::SIGKILL);
    let lost = |error: Errno| format!("tracing: {error}");
    runner.go_on(first.0).map_err(lost)?;
    while !runner.threads.is_empty() {
        let (tid, status) = sys::wait_for_any().map_err(lost)?;
        let stop = Stop::from_status(status);
        if tid == first.0 {
            match stop {
                Stop::Exited(code) => end = End::Code(code),
                Stop::Killed { signal, .. } => end = End::Signal(signal),
                _ => {}
            }
        }
        match runner.stopped(tid, stop) {
            // It was killed meanwhile; its end will be reported.
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(error) => return Err(lost(error)),
        }
    }
    Ok(end)
}

/// Tracer and program on one processor: a step takes a fifth of the time, because nothing has to be
/// woken elsewhere.
fn stay_on_one_processor() {
    let mut one = rustix::thread::CpuSet::new();
    one.set(rustix::thread::sched_getcpu());
    // Only a matter of speed.
    let _ = rustix::thread::sched_setaffinity(None, &one);
}

/// The threads of a run.
#[derive(Debug)]
struct Runner {
    options: Options,
    threads: HashMap<Tid, Thread>,
    /// The process of each thread.
    pids: HashMap<Tid, i32>,
}

impl Runner {
    fn new(options: Options) -> Self {
        Self { options, threads: HashMap::new(), pids: HashMap::new() }
    }

    fn stopped(&mut self, tid: Tid, stop: Stop) -> Result<(), Errno> {
        match stop {
            Stop::Exited(_) | Stop::Killed { .. } => {
                self.threads.remove(&tid);
                Ok(())
            }
            Stop::Exec => {
                self.executed(tid);
                self.go_on(tid)
            }
            Stop::Interrupted => {
                if !self.threads.contains_key(&tid) {
                    self.threads.insert(tid, Thread::new(&self.options));
                    self.pids.insert(tid, process_of(tid));
                }
                self.go_on(tid)
            }
            Stop::Exiting => sys::cont(tid, 0),
            Stop::Group(_) => sys::listen(tid),
            // In the middle of a system call, which goes on.
            Stop::Child | Stop::Syscall | Stop::Other(_) => sys::single_step(tid, 0),
            Stop::Signal(signal) => self.signalled(tid, signal),
        }
    }

    /// exec took all other threads of the process and left LWP off.
    fn executed(&mut self, tid: Tid) {
        self.threads.insert(tid, Thread::new(&self.options));
        self.pids.insert(tid, tid);
    }

    fn signalled(&mut self, tid: Tid, signal: i32) -> Result<(), Errno> {
        let Some(thread) = self.threads.get_mut(&tid) else {
            // A new thread whose first stop is a signal.
            self.threads.insert(tid, Thread::new(&self.options));
            self.pids.insert(tid, process_of(tid));
            return sys::cont(tid, signal);
        };
        if signal == libc::SIGTRAP {
            match sys::get_siginfo(tid)?.code() {
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
        }
        if self.interrupt(tid)?
            && let Some(thread) = self.threads.get_mut(&tid)
        {
            thread.interrupted = true;
        }
        Ok(after)
    }

    /// Delivers the threshold interrupt, if there is one and the program has a handler for it: the
    /// default action of most signals would end it. Returns whether there was.
    fn interrupt(&mut self, tid: Tid) -> Result<bool, Errno> {
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(false) };
        let raised = std::mem::take(&mut thread.surroundings.interrupted);
        let interrupted = raised && is_caught(tid, self.options.threshold_signal);
        if interrupted {
            sys::tgkill(self.pids[&tid], tid, self.options.threshold_signal)?;
        }
        Ok(interrupted)
    }

    /// The instruction at which a thread stands. LWPINS and LWPVAL are not ours in the form of
    /// 2007: the processor, which lacks them too, raises #UD.
    fn decode(&self, tid: Tid, regs: &Regs) -> Decoded {
        let code = read_code(tid, regs.0.rip);
        let mut decoded = Decoded::new(&code, &regs.0, || Vectors::of(tid).ok());
        let inserts = matches!(&decoded.action,
            Action::Lwp(lwp) if matches!(lwp.operands, Operands::Insert { .. }));
        if inserts && self.options.processor().revision() == Revision::Proposal2007 {
            decoded.action = Action::Step;
        }
        decoded
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
            let [byte] = lwp_ptrace::memory::read_array(tid, at)?;
            lwp_ptrace::memory::write_exact(tid, at, &[byte & !TRAP_FLAG_BYTE])
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
    std::fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default()
}

/// The process a thread belongs to.
fn process_of(tid: Tid) -> i32 {
    field(&status(tid), "Tgid:").and_then(|digits| digits.parse().ok()).unwrap_or(tid)
}

fn field<'text>(status: &'text str, name: &str) -> Option<&'text str> {
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}
