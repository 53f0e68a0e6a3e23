//! ptrace(2) among the processes of a run, as far as programs need it to look into another process.
//!
//! A thread can have only one tracer, which is the host. So the host emulates the program's
//! tracing: it stops a thread that a program attaches to, keeps it stopped, answers requests about
//! it, and answers the tracer's wait4(2). That is what LeakSanitizer, crash reporters and stack
//! samplers need. The host doesn't report signals, system calls, execs or new threads, so it
//! refuses the requests with which debuggers begin: PTRACE_TRACEME and the options of PTRACE_SEIZE.
//!
//! It holds threads as it holds those of [`wards`].

use std::time::{Duration, Instant};

use lwp_calls::syscalls::{Pending, nr};
use lwp_dbt::Slot;
use lwp_process::kernel_files;
use lwp_process::maps::Status;
use lwp_process::regs::{Raw, Regs};
use lwp_process::sys::Errno;
use lwp_process::{Tid, memory};
use rustc_hash::FxHashMap;

use super::stopped_work::{go_on, go_on_behind};
use super::{Handled, SIGTRAP, controlled_processes};
use crate::dumpable;
use crate::machine::{Machine, Tasks};

const TRACEME: u64 = 0;
const PEEKTEXT: u64 = 1;
const PEEKDATA: u64 = 2;
const PEEKUSER: u64 = 3;
const CONT: u64 = 7;
const GETREGS: u64 = 12;
const GETFPREGS: u64 = 14;
const ATTACH: u64 = 16;
const DETACH: u64 = 17;
const GETREGSET: u64 = 0x4204;
const SEIZE: u64 = 0x4206;
const INTERRUPT: u64 = 0x4207;
/// Sets of registers, by the names of ELF's notes.
const NT_PRSTATUS: u64 = 1;
const NT_PRFPREG: u64 = 2;
const NT_X86_XSTATE: u64 = 0x202;
/// Bytes of an XSAVE image that FXSAVE has too.
const LEGACY_BYTES: usize = 512;
/// Of wait4(2): WNOHANG, and those by which threads that are no processes are waited for.
const WNOHANG: u64 = 1;
const CLONES: u64 = 0xc000_0000;
const SIGSTOP: i32 = 19;
const PTRACE_EVENT_STOP: i32 = 128;
const PR_SET_PTRACER: u64 = 0x5961_6d61;
/// The bit of [`Slot::Watched`] by which wait4(2) comes to the host.
const WAITS: u64 = 1 << 63;
/// The time after which a thread that waits is let go to wait anew: a signal may have come for it.
const PATIENCE: Duration = Duration::from_millis(10);

const EPERM: Errno = Errno(1);
const ESRCH: Errno = Errno(3);
const EIO: Errno = Errno(5);
const EFAULT: Errno = Errno(14);
const EINVAL: Errno = Errno(22);

/// A thread that a program traces.
#[derive(Clone, Copy, Debug)]
struct Traced {
    tracer: Tid,
    seized: bool,
    /// The status of the stop that it is in, or will be in soon.
    stop: Option<i32>,
    /// The tracer has waited for that.
    told: bool,
    /// It has ended, with this status.
    ended: Option<i32>,
}

/// A thread that stands still in wait4(2).
#[derive(Clone, Copy, Debug)]
struct Waiter {
    tid: Tid,
    app: Regs,
    since: Instant,
}

/// The outcome of a wait.
enum Found {
    /// This thread has something to report.
    Ready(Tid, i32),
    /// A thread that is waited for has nothing to report yet.
    Later,
    /// There is no such thread: the kernel's answer is the right one.
    Nobody,
}

/// Every thread that a program traces, and those that wait for them.
#[derive(Debug, Default)]
pub struct Tracing {
    traced: FxHashMap<Tid, Traced>,
    waiters: Vec<Waiter>,
    /// The tracer that a process has declared, by PR_SET_PTRACER: -1 for any.
    declared: FxHashMap<i32, i32>,
}

impl Tracing {
    /// Returns whether nobody traces a thread of `tids`.
    pub fn spares(&self, tids: &[Tid]) -> bool {
        tids.iter().all(|tid| !self.traced.contains_key(tid))
    }
}

/// Returns whether the call that a context describes is to be made here.
pub fn concerns(machine: &mut Machine, tid: Tid, slot: usize) -> bool {
    let context = machine.contexts.context(slot);
    let [number, first] = [Slot::Rax, Slot::Rdi].map(|slot| context.get(slot));
    match number & 0xffff_ffff {
        nr::PTRACE => {
            // A filter may refuse the call, unless it is one that the host obeys too.
            let own = || {
                let host = Status::read(std::process::id() as Tid);
                Status::read(tid).has_filters_of(&host)
            };
            first != TRACEME
                && first < lwp_process::nested_ptrace::PROBE
                && (context.get(Slot::NoSyscalls) == 0 || own())
        }
        nr::WAIT4 => {
            let options = context.get(Slot::Rdx);
            !matches!(find(machine, tid, first as i32, options), Found::Nobody)
        }
        _ => false,
    }
}

/// Makes the call that a thread with the application registers `app` is about to make.
pub fn call(machine: &mut Machine, tid: Tid, app: &Regs) -> Handled {
    let args = [app.0.rdi, app.0.rsi, app.0.rdx, app.0.r10];
    match app.0.rax & 0xffff_ffff {
        nr::PTRACE => {
            let answer = request(machine, tid, args);
            let result = answer.map_or_else(|error| -i64::from(error.0), |()| 0);
            go_on_behind(machine, tid, app, result)
        }
        nr::WAIT4 => {
            machine.tracees.set_regs(tid, app)?;
            let waiter = Waiter { tid, app: *app, since: Instant::now() };
            match wait(machine, &waiter) {
                Some(handled) => handled,
                None => {
                    machine.tasks.tracing.waiters.push(waiter);
                    Ok(())
                }
            }
        }
        // It asks for something else by now.
        _ => go_on(machine, tid, app),
    }
}

/// Lets a waiting thread go on if there is something to report, or nobody to wait for.
fn wait(machine: &mut Machine, waiter: &Waiter) -> Option<Handled> {
    let Waiter { tid, app, since } = waiter;
    match find(machine, *tid, app.0.rdi as i32, app.0.rdx) {
        Found::Ready(other, status) => {
            let number = number_of(other, *tid);
            let told = app.0.rsi == 0
                || memory::write_exact(*tid, app.0.rsi, &status.to_le_bytes()).is_ok();
            let tracing = &mut machine.tasks.tracing;
            match tracing.traced.get_mut(&other) {
                Some(traced) if traced.ended.is_none() => traced.told = true,
                _ => forget(machine, other),
            }
            let result = if told { i64::from(number) } else { -i64::from(EFAULT.0) };
            Some(go_on_behind(machine, *tid, app, result))
        }
        Found::Later if app.0.rdx & WNOHANG != 0 => Some(go_on_behind(machine, *tid, app, 0)),
        Found::Later if since.elapsed() < PATIENCE => None,
        // It asks again, unless a signal comes first.
        Found::Later | Found::Nobody => Some(go_on(machine, *tid, app)),
    }
}

/// Lets the threads go on whose waits are over. Returns when to look next.
pub fn look(machine: &mut Machine) -> Option<Instant> {
    let waiters = std::mem::take(&mut machine.tasks.tracing.waiters);
    for waiter in waiters {
        if !machine.tasks.threads.contains_key(&waiter.tid) {
            continue;
        }
        // One that is gone reports its end by itself.
        if wait(machine, &waiter).is_none() {
            machine.tasks.tracing.waiters.push(waiter);
        }
    }
    machine.tasks.tracing.waiters.iter().map(|waiter| waiter.since + PATIENCE).min()
}

/// What a wait of `tid` for `number`, or for anybody (-1), finds.
fn find(machine: &mut Machine, tid: Tid, number: i32, options: u64) -> Found {
    if machine.tasks.tracing.traced.is_empty() || number <= 0 && number != -1 {
        return Found::Nobody;
    }
    let wanted = match number {
        -1 => None,
        _ => match machine.proc_files().thread_called(tid, number) {
            None => return Found::Nobody,
            wanted => wanted,
        },
    };
    let Some(me) = machine.tasks.threads.get(&tid).map(|thread| thread.pid) else {
        return Found::Nobody;
    };
    let tasks = &machine.tasks;
    let mut found = Found::Nobody;
    for (other, traced) in &tasks.tracing.traced {
        let tracer = tasks.threads.get(&traced.tracer).map(|thread| thread.pid);
        let leads = tasks.threads.get(other).is_none_or(|thread| thread.pid == *other);
        if tracer != Some(me)
            || wanted.is_some_and(|wanted| wanted != *other)
            || !leads && options & CLONES == 0
        {
            continue;
        }
        match state(tasks, *other, traced) {
            Some(status) => return Found::Ready(*other, status),
            // Of a child, the kernel knows when it ends.
            None if traced.stop.is_some() && !traced.told => found = Found::Later,
            None if wanted.is_some() && !is_child(machine, *other, me) => found = Found::Later,
            None => {}
        }
    }
    found
}

/// The status that a traced thread has to report.
fn state(tasks: &Tasks, tid: Tid, traced: &Traced) -> Option<i32> {
    match (traced.ended, traced.stop) {
        (Some(status), _) => Some(status),
        (None, Some(status)) => (!traced.told && tasks.wards.holds(tid)).then_some(status),
        // The program that another thread of its process has executed has ended it.
        (None, None) => (!tasks.threads.contains_key(&tid)).then_some(0),
    }
}

/// Returns whether a process is a child of another, which waits for it natively.
fn is_child(machine: &Machine, pid: i32, of: i32) -> bool {
    let process = machine.tasks.processes.get(&pid);
    process.is_some_and(|it| machine.observers.reports[it.report].parent == of)
}

/// The number that a thread has where `tid` lives.
fn number_of(other: Tid, tid: Tid) -> Tid {
    let depth = Status::read(tid).list("NSpid:").len();
    let numbers = Status::read(other).list("NSpid:");
    numbers.get(depth.wrapping_sub(1)).copied().unwrap_or(other)
}

fn request(
    machine: &mut Machine,
    tid: Tid,
    [request, number, address, data]: [u64; 4],
) -> Result<(), Errno> {
    let other = machine.proc_files().thread_called(tid, number as i32).ok_or(ESRCH)?;
    match request {
        ATTACH => return attach(machine, tid, other, false),
        SEIZE if address != 0 || data != 0 => return Err(EIO),
        SEIZE => return attach(machine, tid, other, true),
        _ => {}
    }
    let traced = machine.tasks.tracing.traced.get_mut(&other);
    let traced = traced.filter(|traced| traced.tracer == tid).ok_or(ESRCH)?;
    if request == INTERRUPT {
        if !traced.seized {
            return Err(EIO);
        }
        if traced.stop.is_none() {
            traced.stop = Some(stopped_by(SIGTRAP | PTRACE_EVENT_STOP << 8));
            machine.tasks.wards.stop(other);
            machine.errands.wake();
        }
        return Ok(());
    }
    if traced.stop.is_none() || !machine.tasks.wards.holds(other) {
        return Err(ESRCH);
    }
    match request {
        PEEKTEXT | PEEKDATA => {
            let word = memory::read_u64(other, address).map_err(|_| EIO)?;
            memory::write_u64(tid, data, word).map_err(|_| EFAULT)
        }
        PEEKUSER => {
            let words = words(&registers(machine, other)?.0);
            let word = words.get((address / 8) as usize).filter(|_| address.is_multiple_of(8));
            memory::write_u64(tid, data, *word.ok_or(EIO)?).map_err(|_| EFAULT)
        }
        GETREGS => {
            let bytes = general(machine, other)?;
            memory::write_exact(tid, data, &bytes).map_err(|_| EFAULT)
        }
        GETFPREGS => {
            let image = machine.tracees.extended_state(other)?;
            let legacy = image.get(..LEGACY_BYTES).ok_or(EIO)?;
            memory::write_exact(tid, data, legacy).map_err(|_| EFAULT)
        }
        GETREGSET => {
            let set = match address {
                NT_PRSTATUS => general(machine, other)?,
                NT_PRFPREG => {
                    let mut image = machine.tracees.extended_state(other)?;
                    image.truncate(LEGACY_BYTES);
                    image
                }
                NT_X86_XSTATE => machine.tracees.extended_state(other)?,
                _ => return Err(EINVAL),
            };
            write_set(tid, data, &set)
        }
        CONT | DETACH => {
            let signal = data as i32;
            if !(0..=64).contains(&signal) {
                return Err(EIO);
            }
            if signal != 0
                && let Some(pid) = machine.tasks.threads.get(&other).map(|thread| thread.pid)
            {
                machine.tracees.send(pid, other, signal)?;
            }
            let_go(machine, other);
            if request == DETACH {
                forget(machine, other);
            }
            Ok(())
        }
        _ => Err(EIO),
    }
}

/// The status of a thread that has stopped for this.
fn stopped_by(what: i32) -> i32 {
    what << 8 | 0x7f
}

fn attach(machine: &mut Machine, tid: Tid, other: Tid, seized: bool) -> Result<(), Errno> {
    let pid_of = |tid| machine.tasks.threads.get(&tid).map(|thread| thread.pid);
    let me = pid_of(tid).ok_or(ESRCH)?;
    let Some(pid) = pid_of(other) else {
        // It may be there, out of the run.
        let lives = std::fs::exists(format!("/proc/{other}")).unwrap_or(false);
        return Err(if lives { EPERM } else { ESRCH });
    };
    let tasks = &machine.tasks;
    if pid == me
        || tasks.wards.controls(pid)
        || !tasks.tracing.spares(&[other])
        || !controlled_processes::may_control(me, pid, dumpable::is_hidden(tasks, pid))
        || !yama_allows(machine, me, pid)
    {
        return Err(EPERM);
    }
    let stop = (!seized).then_some(stopped_by(SIGSTOP));
    let traced = Traced { tracer: tid, seized, stop, told: false, ended: None };
    machine.tasks.tracing.traced.insert(other, traced);
    if !seized {
        machine.tasks.wards.stop(other);
        machine.errands.wake();
    }
    watch_waits(machine, me, true);
    Ok(())
}

/// Returns whether Yama, if the kernel has it, would let `me` trace `pid`.
///
/// Spec: Documentation/admin-guide/LSM/Yama.rst.
fn yama_allows(machine: &Machine, me: i32, pid: i32) -> bool {
    let scope = kernel_files::of_machine("/proc/sys/kernel/yama/ptrace_scope");
    let descends = |of: i32| {
        let parent = |pid: &i32| Status::read(*pid).list("PPid:").first().copied();
        std::iter::successors(Some(pid), parent).take_while(|it| *it > 1).any(|it| it == of)
    };
    match scope.ok().as_deref().map(str::trim) {
        None | Some("0") => true,
        Some("1") => {
            let declared = machine.tasks.tracing.declared.get(&pid);
            let named = declared.is_some_and(|it| *it == -1 || *it == me);
            named || Status::read(me).has_ptrace_capability() || descends(me)
        }
        Some("2") => Status::read(me).has_ptrace_capability(),
        Some(_) => false,
    }
}

/// Notes the tracer that a process has declared.
pub fn declared(machine: &mut Machine, tid: Tid, call: &Pending, result: u64) {
    let [option, tracer, ..] = call.args;
    if call.number != nr::PRCTL || option != PR_SET_PTRACER || result != 0 {
        return;
    }
    let Some(pid) = machine.tasks.threads.get(&tid).map(|thread| thread.pid) else { return };
    let tracer = match tracer as i32 {
        0 => None,
        -1 => Some(-1),
        number => machine.proc_files().thread_called(tid, number),
    };
    match tracer {
        Some(tracer) => machine.tasks.tracing.declared.insert(pid, tracer),
        None => machine.tasks.tracing.declared.remove(&pid),
    };
}

/// Has the threads of a process tell when they wait, or no longer.
fn watch_waits(machine: &Machine, pid: i32, on: bool) {
    for (_, thread) in machine.tasks.threads_of(pid) {
        let context = machine.contexts.context(thread.slot);
        let watched = context.get(Slot::Watched);
        context.set(Slot::Watched, if on { watched | WAITS } else { watched & !WAITS });
    }
}

/// The registers of a thread that is held, as the program has them.
fn registers(machine: &mut Machine, tid: Tid) -> Result<Regs, Errno> {
    let regs = machine.tracees.regs(tid)?;
    let mut app = machine.view(tid, &regs).map_or(regs, |view| view.app);
    if let Some(context) = machine.context(tid) {
        app.0.gs_base = context.get(Slot::AppGs);
    }
    Ok(app)
}

/// The application's registers of a thread, as the bytes of `struct user_regs_struct`.
fn general(machine: &mut Machine, tid: Tid) -> Result<Vec<u8>, Errno> {
    let words = words(&registers(machine, tid)?.0);
    Ok(words.iter().flat_map(|word| word.to_le_bytes()).collect())
}

#[rustfmt::skip] // As the structure has them.
fn words(it: &Raw) -> [u64; 27] {
    [
        it.r15, it.r14, it.r13, it.r12, it.rbp, it.rbx, it.r11, it.r10, it.r9, it.r8, it.rax,
        it.rcx, it.rdx, it.rsi, it.rdi, it.orig_rax, it.rip, it.cs, it.eflags, it.rsp, it.ss,
        it.fs_base, it.gs_base, it.ds, it.es, it.fs, it.gs,
    ]
}

/// Writes a set of registers where an iovec says, as far as there is room, and how much that is.
fn write_set(tid: Tid, iovec: u64, set: &[u8]) -> Result<(), Errno> {
    let [base, room] = [0, 8].map(|at| memory::read_u64(tid, iovec.wrapping_add(at)));
    let (base, room) = (base.map_err(|_| EFAULT)?, room.map_err(|_| EFAULT)?);
    let bytes = set.len().min(usize::try_from(room).unwrap_or(usize::MAX)) & !7;
    memory::write_exact(tid, base, &set[..bytes])
        .and_then(|()| memory::write_u64(tid, iovec.wrapping_add(8), bytes as u64))
        .map_err(|_| EFAULT)
}

/// Lets a traced thread go on.
fn let_go(machine: &mut Machine, tid: Tid) {
    if let Some(traced) = machine.tasks.tracing.traced.get_mut(&tid) {
        (traced.stop, traced.told) = (None, false);
        machine.tasks.wards.go(tid);
        machine.errands.wake();
    }
}

/// A thread is traced no longer.
fn forget(machine: &mut Machine, tid: Tid) {
    let Some(traced) = machine.tasks.tracing.traced.remove(&tid) else { return };
    let tasks = &machine.tasks;
    let pid_of = |tid: Tid| tasks.threads.get(&tid).map(|thread| thread.pid);
    let Some(me) = pid_of(traced.tracer) else { return };
    if tasks.tracing.traced.values().all(|other| pid_of(other.tracer) != Some(me)) {
        watch_waits(machine, me, false);
    }
}

/// A thread of process `pid` has ended, with this wait status; `last` says whether the process has.
pub fn gone(machine: &mut Machine, pid: i32, tid: Tid, status: i32, last: bool) {
    if last {
        machine.tasks.tracing.declared.remove(&pid);
    }
    let tracing = &machine.tasks.tracing;
    if let Some(traced) = tracing.traced.get(&tid).copied() {
        let tracer = machine.tasks.threads.get(&traced.tracer).map(|thread| thread.pid);
        let waited_for = tid == pid && tracer.is_some_and(|tracer| is_child(machine, pid, tracer));
        match machine.tasks.tracing.traced.get_mut(&tid) {
            Some(traced) if !waited_for && tracer.is_some() => traced.ended = Some(status),
            _ => forget(machine, tid),
        }
    }
    let of = |(it, traced): (&Tid, &Traced)| (traced.tracer == tid).then_some(*it);
    let traced: Vec<Tid> = machine.tasks.tracing.traced.iter().filter_map(of).collect();
    release(machine, &traced);
}

/// The run lets everything go: nobody is held for anybody.
pub fn let_all_go(machine: &mut Machine) {
    let traced: Vec<Tid> = machine.tasks.tracing.traced.keys().copied().collect();
    release(machine, &traced);
}

fn release(machine: &mut Machine, traced: &[Tid]) {
    for tid in traced {
        let_go(machine, *tid);
        forget(machine, *tid);
    }
}
