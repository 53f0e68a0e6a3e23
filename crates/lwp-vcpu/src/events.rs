//! The tracer: the host thread that receives ptrace stops.
//!
//! Stops are rare: exec, new threads and processes, signals, exits, and what the server cannot do
//! from outside (see [`Need`]). Everything else happens in translated code or through the mailbox.

use std::fs;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use lwp_dbt::Slot;
use lwp_dbt::Weights;
use lwp_ptrace::regs::Regs;
use lwp_ptrace::sys::{self, Errno};
use lwp_ptrace::{Stop, Tid, Tracee};

use crate::config::{Control, Request, Target};
use crate::machine::{Machine, Mode, Need, Process};
use crate::memory_map::{CONTEXTS_AT, SLOT_BYTES, slot_address};
use crate::outcome::{ExitStatus, ProcessReport};
use crate::server::{lock, remove_entries};
use crate::syscalls::{self, nr};

const SIGTRAP: i32 = 5;
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;
const TRAP_BRKPT: i32 = 1;
const TRAP_TRACE: i32 = 2;
const TRAP_FLAG: u64 = 0x100;
const CLONE_VM: u64 = 0x100;

/// How often requests are looked for.
const REQUEST_POLL: Duration = Duration::from_millis(5);

/// How often the profile's sink hears of threads that are still running.
const CHECKPOINT: Duration = Duration::from_secs(10);

/// The tracer's own state.
#[derive(Debug)]
pub struct Tracer<'a> {
    machine: &'a Mutex<Machine>,
    first: i32,
    control: Option<Control>,
    status: Option<ExitStatus>,
    deadline: Option<Instant>,
    terminated: bool,
    /// When the profile's sink was last told about the live threads.
    checkpointed: Instant,
    /// Threads are being let go, because the run that attached to them ends.
    detaching: bool,
}

type Handled = Result<(), Errno>;

impl<'a> Tracer<'a> {
    /// A tracer of the process `first`.
    pub fn new(machine: &'a Mutex<Machine>, first: i32, control: Option<Control>) -> Self {
        let timeout = lock(machine).config.timeout;
        Self {
            machine,
            first,
            control,
            status: None,
            deadline: timeout.map(|timeout| Instant::now() + timeout),
            terminated: false,
            checkpointed: Instant::now(),
            detaching: false,
        }
    }

    /// Takes in the first process, stopped at its exec event.
    pub fn begin(&mut self, tid: Tid) -> Handled {
        self.exec(&mut lock(self.machine), tid)
    }

    /// Takes in a live process, all threads stopped in their application states.
    pub fn attach(&mut self, pid: i32, threads: &[Tracee]) -> Result<(), String> {
        let mut machine = lock(self.machine);
        let leader = threads.iter().find(|thread| thread.0 == pid).or(threads.first());
        let leader = *leader.ok_or("the process has no threads")?;
        let report = new_report(&mut machine, pid, 0);
        machine.processes.insert(pid, Process { space: usize::MAX, report });
        let text = |error: Errno| error.to_string();
        let regs = leader.regs().map_err(text)?;
        for thread in threads {
            machine.add_thread(thread.0, pid).ok_or("too many threads at a time")?;
        }
        let mut quiet = regs;
        quiet.forget_syscall();
        leader.set_regs(&quiet).map_err(text)?;
        machine.set_up(leader.0, &quiet)?;
        for thread in threads {
            let mut regs = if *thread == leader { regs } else { thread.regs().map_err(text)? };
            if let Some(context) = machine.context(thread.0) {
                context.set(Slot::AppGs, regs.0.gs_base);
            }
            regs.rewind_syscall();
            machine.enter(thread.0, &regs).map_err(text)?;
            thread.cont(0).map_err(text)?;
        }
        Ok(())
    }

    /// Runs until every tracee is gone; returns how the first process ended.
    pub fn run(&mut self) -> ExitStatus {
        let wake = lock(self.machine).wake_tracer.clone();
        loop {
            // Whatever happens after this leaves the descriptor readable.
            sys::event_clear(&wake);
            loop {
                match sys::wait_any() {
                    Ok(Some((tid, status))) => self.stopped(tid, Stop::from_status(status)),
                    Ok(None) => break,
                    Err(_) => return self.status.unwrap_or(ExitStatus::Code(0)),
                }
            }
            if self.idle(&wake) {
                break;
            }
        }
        self.status.unwrap_or(ExitStatus::Code(0))
    }

    /// Lets the profile's sink know how far the live threads are, every now and then.
    fn checkpoint(&mut self) {
        let mut machine = lock(self.machine);
        if machine.profiler.is_some() && self.checkpointed.elapsed() >= CHECKPOINT {
            machine.checkpoint();
            self.checkpointed = Instant::now();
        }
    }

    /// Nothing has stopped: looks at requests, then sleeps. True when all is over.
    fn idle(&mut self, wake: &OwnedFd) -> bool {
        self.needs();
        self.requests();
        self.checkpoint();
        if lock(self.machine).threads.is_empty() {
            return true;
        }
        let mut timeout = self.deadline.map(|at| at.saturating_duration_since(Instant::now()));
        if timeout.is_some_and(|left| left.is_zero()) {
            self.time_out();
            return false;
        }
        if self.control.is_some() {
            // Requests come over a channel, which cannot be polled together with a descriptor.
            timeout = Some(timeout.unwrap_or(REQUEST_POLL).min(REQUEST_POLL));
        }
        sys::wait_readable(wake, timeout);
        false
    }

    /// Stops the threads that the server wants something done for.
    fn needs(&mut self) {
        let mut machine = lock(self.machine);
        for tid in std::mem::take(&mut machine.needy) {
            let _ = sys::interrupt(tid);
        }
    }

    fn requests(&mut self) {
        let Some(control) = &self.control else { return };
        let attached = matches!(lock(self.machine).config.target, Target::Attach { .. });
        let mut detach = false;
        while let Ok(request) = control.requests.try_recv() {
            match request {
                Request::Enable => lock(self.machine).set_enabled(true),
                Request::Disable => lock(self.machine).set_enabled(false),
                Request::Stop if attached => detach = true,
                Request::Stop => {
                    let _ = sys::kill(self.first, SIGTERM);
                }
                Request::Report => {
                    if let Some(reports) = &control.reports {
                        let _ = reports.send(lock(self.machine).so_far());
                    }
                }
            }
            let _ = control.done.send(request);
        }
        if detach {
            self.detach_all();
        }
    }

    /// Stops every thread in order to let it go.
    fn detach_all(&mut self) {
        self.detaching = true;
        self.status.get_or_insert(ExitStatus::Detached);
        for &tid in lock(self.machine).threads.keys() {
            let _ = sys::interrupt(tid);
        }
    }

    fn time_out(&mut self) {
        if self.terminated {
            let _ = sys::kill(self.first, SIGKILL);
            self.deadline = None;
        } else {
            let _ = sys::kill(self.first, SIGTERM);
            self.terminated = true;
            self.deadline = Some(Instant::now() + Duration::from_secs(2));
        }
    }

    /// One stop of one thread, whatever it is.
    fn stopped(&mut self, tid: Tid, stop: Stop) {
        let machine = self.machine;
        let mut machine = lock(machine);
        trace(&machine, tid, stop);
        let known = machine.threads.contains_key(&tid);
        let result = match stop {
            Stop::Exited(_) | Stop::Killed { .. } => {
                self.gone(&mut machine, tid, stop);
                Ok(())
            }
            _ if !known => newcomer(&mut machine, tid, stop),
            Stop::Exec => self.exec(&mut machine, tid),
            Stop::Child => self.child(&mut machine, tid),
            Stop::Exiting => exiting(&mut machine, tid),
            Stop::Group(_) => group_stop(&mut machine, tid),
            Stop::Interrupted if self.detaching && in_place(&machine, tid) => {
                detach_thread(&mut machine, tid)
            }
            Stop::Interrupted => interrupted(&mut machine, tid),
            Stop::Signal(signal) => signalled(&mut machine, tid, signal),
            Stop::Syscall | Stop::Other(_) => Tracee(tid).cont(0),
        };
        // A thread that is gone under our hands reports its end by itself.
        if let Err(error) = result
            && error != Errno::ESRCH
        {
            eprintln!("lwp: thread {tid} at {stop:?}: {error}");
        }
    }

    /// A thread has ended.
    fn gone(&mut self, machine: &mut Machine, tid: Tid, stop: Stop) {
        let pid = machine.threads.get(&tid).map(|thread| thread.pid);
        machine.remove_thread(tid);
        if tid == self.first {
            self.status = Some(match stop {
                Stop::Killed { signal, core } => ExitStatus::Signal { signal, core },
                Stop::Exited(code) => ExitStatus::Code(code),
                _ => ExitStatus::Code(0),
            });
        }
        let Some(pid) = pid else { return };
        if !machine.threads.values().any(|thread| thread.pid == pid)
            && let Some(process) = machine.processes.remove(&pid)
        {
            machine.remember(pid, process);
        }
    }

    /// A process has become another program.
    fn exec(&mut self, machine: &mut Machine, tid: Tid) -> Handled {
        let pid = tid;
        // exec ends all other threads, and the one that called it takes the leader's id.
        let others: Vec<Tid> = machine
            .threads
            .iter()
            .filter(|(_, thread)| thread.pid == pid)
            .map(|(&tid, _)| tid)
            .collect();
        for other in others {
            machine.remove_thread(other);
        }
        let parent = match machine.processes.remove(&pid) {
            Some(process) => {
                machine.leave_space(process.space);
                machine.reports[process.report].parent
            }
            None => 0,
        };
        // Leave the system call before anything is done in the new image.
        sys::cont_syscall(tid, 0)?;
        match Tracee(tid).wait()? {
            Stop::Syscall => {}
            stop @ (Stop::Exited(_) | Stop::Killed { .. }) => {
                self.gone(machine, tid, stop);
                return Ok(());
            }
            _ => {}
        }
        start_image(machine, tid, parent)
    }

    /// A thread or process has been made.
    fn child(&mut self, machine: &mut Machine, tid: Tid) -> Handled {
        let child = sys::event_message(tid)? as Tid;
        let regs = Tracee(tid).regs()?;
        if !machine.threads.contains_key(&child)
            && let Some(thread) = machine.threads.get(&tid)
        {
            let maker = Maker { tid, slot: thread.slot, pid: thread.pid };
            adopt(machine, maker, child, &regs);
        }
        Tracee(tid).cont(0)
    }
}

fn trace(machine: &Machine, tid: Tid, stop: Stop) {
    if std::env::var_os("LWP_TRACE").is_some() {
        if let (Stop::Signal(_), Ok(regs), Ok(info)) =
            (stop, Tracee(tid).regs(), sys::get_siginfo(tid))
        {
            eprintln!(
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
        let mode = machine.threads.get(&tid).map(|thread| thread.mode);
        eprintln!(
            "lwp: {tid}: {stop:?} {}",
            match mode {
                Some(Mode::Running) => "running",
                Some(Mode::New) => "new",
                Some(Mode::Delivering { .. }) => "delivering",
                Some(Mode::Stepping { .. }) => "stepping",
                None => "unknown",
            }
        );
    }
}

/// Starts a process's new image: the process as a whole, with its one thread stopped at the first
/// instruction.
pub fn start_image(machine: &mut Machine, tid: Tid, parent: i32) -> Handled {
    let report = new_report(machine, tid, parent);
    machine.processes.insert(tid, Process { space: usize::MAX, report });
    let regs = Tracee(tid).regs()?;
    let set_up = match machine.add_thread(tid, tid) {
        Some(_) => machine.set_up(tid, &regs),
        None => Err("too many threads at a time".into()),
    };
    match set_up {
        Ok(()) => {
            machine.enter(tid, &regs)?;
            Tracee(tid).cont(0)
        }
        Err(reason) => {
            machine.reports[report].uncounted = Some(reason);
            release(machine, tid)
        }
    }
}

/// Starts the report of a process image.
fn new_report(machine: &mut Machine, pid: i32, parent: i32) -> usize {
    let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    machine.reports.push(ProcessReport {
        pid,
        parent,
        comm: comm.trim_end().to_owned(),
        threads: Vec::new(),
        uncounted: None,
    });
    machine.reports.len() - 1
}

/// Whether a thread stands where it can be let go: in translated code.
fn in_place(machine: &Machine, tid: Tid) -> bool {
    machine.threads.get(&tid).is_some_and(|thread| matches!(thread.mode, Mode::Running))
}

/// Puts a thread back into its own code and lets it go, counted up to here.
fn detach_thread(machine: &mut Machine, tid: Tid) -> Handled {
    let regs = Tracee(tid).regs()?;
    let Some(mut view) = machine.view(tid, &regs) else { return sys::detach(tid, 0) };
    rearm(machine, tid, &regs, &view.app, true);
    machine.leave(tid, &regs, &mut view);
    let mut app = view.app;
    app.rewind_syscall();
    app.0.gs_base = machine.context(tid).map_or(0, |context| context.get(Slot::AppGs));
    Tracee(tid).set_regs(&app)?;
    let pid = machine.threads.get(&tid).map_or(tid, |thread| thread.pid);
    let last = machine.threads.values().filter(|thread| thread.pid == pid).count() == 1;
    if last && let Err(reason) = machine.take_down(tid) {
        eprintln!("lwp: process {pid} keeps the virtual CPU's mappings: {reason}");
    }
    machine.remove_thread(tid);
    if last && let Some(process) = machine.processes.remove(&pid) {
        machine.leave_space(process.space);
    }
    sys::detach(tid, 0)
}

/// Lets a thread run natively from here on, out of our sight.
fn release(machine: &mut Machine, tid: Tid) -> Handled {
    let pid = machine.threads.get(&tid).map_or(tid, |thread| thread.pid);
    if let Some(thread) = machine.threads.remove(&tid) {
        machine.slots[thread.slot] = 0;
        machine.contexts.release(thread.slot);
    }
    if !machine.threads.values().any(|thread| thread.pid == pid)
        && let Some(process) = machine.processes.remove(&pid)
    {
        machine.leave_space(process.space);
    }
    sys::detach(tid, 0)
}

/// The thread that has made another.
#[derive(Clone, Copy, Debug)]
struct Maker {
    tid: Tid,
    slot: usize,
    pid: i32,
}

/// A tracee that we have not been told of stands still: a new one, whose maker's event comes later or,
/// if the maker has been killed, never. Its gs base still is its maker's, and its registers still
/// are those of the call that made it.
fn newcomer(machine: &mut Machine, tid: Tid, stop: Stop) -> Handled {
    if stop != Stop::Interrupted {
        return Tracee(tid).cont(0);
    }
    let regs = Tracee(tid).regs()?;
    let slot = (regs.0.gs_base.wrapping_sub(CONTEXTS_AT) / SLOT_BYTES) as usize;
    let owner = machine.slots.get(slot).copied().unwrap_or(0);
    let pid = match machine.threads.get(&owner) {
        Some(thread) => thread.pid,
        None => machine.slot_owner.get(&slot).copied().unwrap_or(0),
    };
    if adopt(machine, Maker { tid, slot, pid }, tid, &regs) {
        return begin(machine, tid);
    }
    eprintln!("lwp: process {tid} has no known maker and is killed");
    sys::kill(tid, SIGKILL)
}

/// Takes a new thread or process in. False where that is impossible.
fn adopt(machine: &mut Machine, maker: Maker, child: Tid, regs: &Regs) -> bool {
    let Maker { tid: maker, slot: from, pid } = maker;
    let is_thread = fs::exists(format!("/proc/{pid}/task/{child}")).unwrap_or(false);
    let side = machine.threads.get(&maker).and_then(|thread| thread.side);
    let shares_memory = match regs.0.orig_rax {
        nr::CLONE => regs.0.rdi & CLONE_VM != 0,
        nr::CLONE3 => lwp_ptrace::memory::read_u64(maker, regs.0.rdi).unwrap_or(0) & CLONE_VM != 0,
        nr::VFORK => true,
        _ => false,
    };
    let child_pid = if is_thread { pid } else { child };
    let Some(slot) = machine.add_thread(child, child_pid) else { return false };
    machine.contexts.context(slot).inherit(machine.contexts.context(from));
    if !is_thread {
        let Some(process) = machine.processes.get(&pid).or(machine.limbo.get(&pid)) else {
            return false;
        };
        let (space, report) = (process.space, process.report);
        let space = if shares_memory { share(machine, space) } else { copy(machine, child, space) };
        let comm = machine.reports[report].comm.clone();
        machine.reports.push(ProcessReport {
            pid: child,
            parent: pid,
            comm,
            threads: Vec::new(),
            uncounted: None,
        });
        let report = machine.reports.len() - 1;
        machine.processes.insert(child, Process { space, report });
    }
    // It starts in the code that its maker was in; see `begin`.
    let side = side.and_then(|side| match is_thread || shares_memory {
        true => Some(side),
        false => machine.side_copied(pid, child, side),
    });
    if let Some(thread) = machine.threads.get_mut(&child) {
        thread.side = side;
    }
    true
}

fn share(machine: &mut Machine, space: usize) -> usize {
    if let Some(Some(shared)) = machine.spaces.get_mut(space) {
        shared.users += 1;
    }
    space
}

fn copy(machine: &mut Machine, child: Tid, space: usize) -> usize {
    let Some(Some(original)) = machine.spaces.get(space) else { return space };
    let Some(Some(family)) = machine.families.get_mut(original.family) else { return space };
    let sides = original.sides.clone();
    let (mut forked, gone) = original.fork(family);
    if !gone.is_empty() {
        remove_entries(child, family, &gone);
    }
    for (selection, side) in sides {
        forked.sides.push((selection, copy(machine, child, side)));
    }
    machine.add_space(forked)
}

/// A new tracee's first stop: gives it its own context.
fn begin(machine: &mut Machine, tid: Tid) -> Handled {
    let Some(thread) = machine.threads.get_mut(&tid) else { return Err(Errno::ESRCH) };
    thread.mode = Mode::Running;
    let (slot, pid) = (thread.slot, thread.pid);
    if pid == tid && !machine.config.follow_children {
        return let_go(machine, tid);
    }
    if machine.threads.get(&tid).is_some_and(|thread| thread.side.is_some()) {
        return begin_unprofiled(machine, tid);
    }
    Tracee(tid).set_gs_base(slot_address(slot))?;
    Tracee(tid).cont(0)
}

/// Profiling is off in a new thread or process, whose maker's is on: it leaves the maker's side.
fn begin_unprofiled(machine: &mut Machine, tid: Tid) -> Handled {
    let regs = Tracee(tid).regs()?;
    let Some(mut view) = machine.view(tid, &regs) else { return Err(Errno::ESRCH) };
    machine.leave(tid, &regs, &mut view);
    machine.change_side(tid, None);
    machine.enter(tid, &view.app)?;
    Tracee(tid).cont(0)
}

/// Lets a new child process run natively: not followed.
fn let_go(machine: &mut Machine, tid: Tid) -> Handled {
    let regs = Tracee(tid).regs()?;
    if let Some(view) = machine.view(tid, &regs) {
        let mut app = view.app;
        app.0.gs_base = machine.context(tid).map_or(0, |context| context.get(Slot::AppGs));
        Tracee(tid).set_regs(&app)?;
    }
    if let Some(process) = machine.processes.get(&tid) {
        let report = process.report;
        machine.reports[report].uncounted = Some("child processes are not followed".into());
    }
    release(machine, tid)
}

/// A thread is about to end: where it is decides what its last fragment counts.
fn exiting(machine: &mut Machine, tid: Tid) -> Handled {
    if let Ok(regs) = Tracee(tid).regs() {
        let cache = match machine.threads.get(&tid).map(|thread| thread.mode) {
            Some(Mode::Delivering { cache, .. }) => cache,
            Some(Mode::Stepping { .. }) => None,
            _ => Some(regs),
        };
        if let Some(cache) = cache {
            machine.settle(tid, &cache);
        }
    }
    if machine.config.warm {
        machine.warm(tid);
    }
    Tracee(tid).cont(0)
}

/// Job control has stopped the thread; it waits for SIGCONT without our keeping it.
fn group_stop(_: &mut Machine, tid: Tid) -> Handled {
    sys::listen(tid)
}

/// PTRACE_INTERRUPT took effect, or a group stop ended, or a new tracee stands still.
fn interrupted(machine: &mut Machine, tid: Tid) -> Handled {
    let Some(thread) = machine.threads.get(&tid) else { return Err(Errno::ESRCH) };
    match thread.mode {
        Mode::New => begin(machine, tid),
        Mode::Delivering { cache, app } => delivered(machine, tid, cache, app),
        Mode::Stepping { .. } => sys::single_step(tid, 0),
        Mode::Running => match thread.need {
            Some(need) => satisfy(machine, tid, need),
            None => Tracee(tid).cont(0),
        },
    }
}

/// Does what the server wanted done.
fn satisfy(machine: &mut Machine, tid: Tid, need: Need) -> Handled {
    let regs = Tracee(tid).regs()?;
    let Some(mut view) = machine.view(tid, &regs) else { return Tracee(tid).cont(0) };
    if let Some(thread) = machine.threads.get_mut(&tid) {
        thread.need = None;
    }
    machine.leave(tid, &regs, &mut view);
    match need {
        Need::Arena => make_arena(machine, tid, &view.app),
        Need::Side => make_side(machine, tid, &view.app),
        Need::Step => step(machine, tid, &view.app),
    }
}

/// Makes the side of the address space that the thread's profile wants, and moves the thread there.
fn make_side(machine: &mut Machine, tid: Tid, app: &Regs) -> Handled {
    Tracee(tid).set_regs(app)?;
    let thread = machine.threads.get(&tid).ok_or(Errno::ESRCH)?;
    let selection = thread.lwp.as_ref().map(|lwp| lwp.selection);
    if selection.is_none() {
        machine.change_side(tid, None);
    }
    if let Some(selection) = selection {
        let made = match machine.lwp_side(tid, selection) {
            Some(_) => Ok(()),
            None => machine.add_side(tid, selection),
        };
        if let Err(reason) = made {
            eprintln!("lwp: thread {tid}: its profile ends: {reason}");
            if let Some(thread) = machine.threads.get_mut(&tid) {
                thread.lwp_end();
            }
        }
        let side = machine.lwp_side(tid, selection);
        machine.change_side(tid, side);
        machine.lwp_publish(tid);
    }
    machine.enter(tid, app)?;
    Tracee(tid).cont(0)
}

fn make_arena(machine: &mut Machine, tid: Tid, app: &Regs) -> Handled {
    let pc = app.0.rip;
    Tracee(tid).set_regs(app)?;
    let extent = machine.space_of(tid).and_then(|(space, family)| {
        let (_, range) = space.code_at(family, tid, pc)?;
        Some(family.module(range.unit).extent)
    });
    // Without room nearby such code runs one instruction at a time: slow, but right.
    if extent.is_some_and(|extent| machine.add_arena(tid, extent).is_err()) {
        return step(machine, tid, app);
    }
    machine.enter(tid, app)?;
    Tracee(tid).cont(0)
}

/// Executes one instruction natively, in place.
fn step(machine: &mut Machine, tid: Tid, app: &Regs) -> Handled {
    if let Some(next) = machine.lwp_step(tid, app) {
        return make_side(machine, tid, &next);
    }
    if let Some(next) = emulate(machine, tid, app) {
        machine.enter(tid, &next)?;
        return Tracee(tid).cont(0);
    }
    let mut native = *app;
    native.0.gs_base = machine.context(tid).map_or(0, |context| context.get(Slot::AppGs));
    native.forget_syscall();
    Tracee(tid).set_regs(&native)?;
    if let Some(thread) = machine.threads.get_mut(&tid) {
        thread.mode = Mode::Stepping { pc: app.0.rip };
    }
    sys::single_step(tid, 0)
}

/// Instructions that the virtual processor answers and that need more than the mailbox can give.
fn emulate(machine: &mut Machine, tid: Tid, app: &Regs) -> Option<Regs> {
    if !machine.emulated.tsc && !machine.emulated.random {
        return None;
    }
    let next = crate::emulate::instruction(machine, tid, app)?;
    count_instruction(machine, tid, app.0.rip, next.0.rip);
    Some(next)
}

/// The host has executed the instruction at `pc`, and `next` is the one to follow.
fn count_instruction(machine: &mut Machine, tid: Tid, pc: u64, next: u64) {
    if let Some(thread) = machine.threads.get_mut(&tid) {
        thread.correction.add(Weights { instructions: 1, ..Weights::default() }, 1);
    }
    machine.note_place(tid, |places| places.stepped(pc, 1));
    machine.lwp_executed(tid, pc, next);
}

/// A signal is about to be delivered.
fn signalled(machine: &mut Machine, tid: Tid, signal: i32) -> Handled {
    let Some(thread) = machine.threads.get(&tid) else { return Err(Errno::ESRCH) };
    match thread.mode {
        Mode::Stepping { pc } => stepped(machine, tid, signal, pc),
        Mode::Delivering { cache, app } => {
            // Not delivered yet; this one goes first, from the same state.
            let _ = app;
            deliver(machine, tid, signal, cache, app)
        }
        _ => {
            let mut regs = Tracee(tid).regs()?;
            if signal == SIGTRAP && sys::get_siginfo(tid)?.code() == TRAP_TRACE {
                // The program has set its own trap flag: single-stepping itself is not supported.
                regs.0.eflags &= !TRAP_FLAG;
                Tracee(tid).set_regs(&regs)?;
                return Tracee(tid).cont(0);
            }
            match machine.view(tid, &regs) {
                Some(view) => deliver(machine, tid, signal, Some(regs), view.app),
                None => Tracee(tid).cont(signal),
            }
        }
    }
}

/// A stop while one instruction is executed natively.
fn stepped(machine: &mut Machine, tid: Tid, signal: i32, pc: u64) -> Handled {
    let mut regs = Tracee(tid).regs()?;
    if let Some(context) = machine.context(tid) {
        context.set(Slot::AppGs, regs.0.gs_base);
    }
    let code = sys::get_siginfo(tid)?.code();
    // The kernel reports the step over a system call as a breakpoint.
    let stepped_syscall = || {
        lwp_ptrace::memory::read_array::<2>(tid, pc)
            .is_ok_and(|bytes| matches!(bytes, [0x0f, 0x05] | [0xcd, 0x80] | [0x0f, 0x34]))
    };
    let trap = signal == SIGTRAP && (code == TRAP_TRACE || code == TRAP_BRKPT && stepped_syscall());
    if regs.0.rip != pc {
        count_instruction(machine, tid, pc, regs.0.rip);
    }
    if trap {
        if lwp_ptrace::regs::restart::is(regs.0.rax) && regs.in_syscall() {
            regs.0.rip -= 2;
            regs.0.rax = regs.0.orig_rax;
        }
        machine.enter(tid, &regs)?;
        return Tracee(tid).cont(0);
    }
    deliver(machine, tid, signal, None, regs)
}

/// Hands a signal to the kernel with the application's state in place, so that the frame it builds,
/// or the core it dumps, is the application's.
///
/// PTRACE_INTERRUPT before the tracee goes on makes it stop again before it executes anything: at
/// the handler's first instruction, or where it was if there is no handler.
fn deliver(
    machine: &mut Machine,
    tid: Tid,
    signal: i32,
    cache: Option<Regs>,
    app: Regs,
) -> Handled {
    let mut info = sys::get_siginfo(tid)?;
    if let Some(cache) = cache {
        let inside = machine.family_at(tid, info.address()).is_some();
        if info.code() > 0 && inside {
            info.set_address(app.0.rip.wrapping_add(info.address() - cache.0.rip));
            sys::set_siginfo(tid, &info)?;
        }
        rearm(machine, tid, &cache, &app, true);
    }
    let mut native = app;
    native.0.gs_base = slot_address(machine.threads.get(&tid).map_or(0, |thread| thread.slot));
    Tracee(tid).set_regs(&native)?;
    if let Some(thread) = machine.threads.get_mut(&tid) {
        thread.mode = Mode::Delivering { cache, app };
    }
    sys::interrupt(tid)?;
    Tracee(tid).cont(signal)
}

/// A signal frame that was redirected for its return is the application's again while a signal is
/// delivered (`out`), and redirected again if nothing came of it.
fn rearm(machine: &mut Machine, tid: Tid, cache: &Regs, app: &Regs, out: bool) {
    let Some(view) = machine.view(tid, cache) else { return };
    if out {
        if view.is_armed() || view.has_landed() {
            machine.disarm(tid);
        }
        return;
    }
    if !view.is_armed() {
        return;
    }
    if let Some(family) = machine.family_at(tid, cache.0.rip) {
        let landing = family.routine(family.translator.routines().sigreturn);
        let at = app.0.rsp + lwp_dbt::routines::SIGFRAME_RIP as u64;
        let _ = lwp_ptrace::memory::write_u64(tid, at, landing);
    }
}

/// A signal that nobody handles has interrupted a system call which does not restart by itself
/// (`epoll_wait`, `sigtimedwait` …). Without a tracer the call would not have noticed such a signal: it
/// is made again, or, where such signals come so densely that it would never end, times out.
fn restart_if_interrupted(machine: &mut Machine, tid: Tid, cache: &mut Regs) {
    const EINTR: i64 = -4;
    /// Interruptions at one place that follow each other faster than this are of one call.
    const DENSE: Duration = Duration::from_millis(100);
    if !cache.in_syscall() || cache.0.rax as i64 != EINTR {
        return;
    }
    let Some(thread) = machine.threads.get_mut(&tid) else { return };
    let now = Instant::now();
    let since = match thread.interrupted {
        Some((rip, first, last)) if rip == cache.0.rip && now - last < DENSE => first,
        _ => now,
    };
    thread.interrupted = Some((cache.0.rip, since, now));
    match syscalls::timed_out(tid, cache, now - since) {
        Some(result) => {
            cache.0.rax = result as u64;
            thread.interrupted = None;
        }
        None => {
            cache.0.rax = cache.0.orig_rax;
            cache.0.rip -= 2;
        }
    }
    cache.forget_syscall();
}

/// The stop after a delivery: either a handler's first instruction, or nothing happened.
fn delivered(machine: &mut Machine, tid: Tid, cache: Option<Regs>, app: Regs) -> Handled {
    let regs = Tracee(tid).regs()?;
    let handled = regs.0.rip != app.0.rip || regs.0.rsp != app.0.rsp;
    if handled {
        if let Some(cache) = cache
            && let Some(mut view) = machine.view(tid, &cache)
        {
            machine.leave(tid, &cache, &mut view);
        }
        machine.enter(tid, &regs)?;
        return Tracee(tid).cont(0);
    }
    match cache {
        Some(mut cache) => {
            rearm(machine, tid, &cache, &app, false);
            restart_if_interrupted(machine, tid, &mut cache);
            if let Some(thread) = machine.threads.get_mut(&tid) {
                thread.mode = Mode::Running;
            }
            let need = machine.threads.get(&tid).and_then(|thread| thread.need);
            Tracee(tid).set_regs(&cache)?;
            match need {
                Some(need) => satisfy(machine, tid, need),
                None => Tracee(tid).cont(0),
            }
        }
        None => {
            machine.enter(tid, &regs)?;
            Tracee(tid).cont(0)
        }
    }
}
