//! mlockall(2), which must lock the program's memory but not the virtual CPU's.
//!
//! The tracer locks the program's mappings one by one (mlock2), which has the same effect. The
//! kernel allows either the whole address space to be locked, or nothing; the tracer applies that
//! rule without lwp's memory. The kernel itself locks future mappings; if one of them is lwp's, it
//! is unlocked at once (`Mapper::map_late`).

use lwp_calls::syscalls;
use lwp_code::space::VSYSCALL;
use lwp_dbt::Slot;
use lwp_mailbox::memory_map::is_ours;
use lwp_process::inject::{Call, Injector};
use lwp_process::kernel_files;
use lwp_process::maps::{self, Mapping, Status};
use lwp_process::regs::Regs;
use lwp_process::{Tid, limits};

use super::Handled;
use super::stopped_work::go_on_behind;
use crate::machine::Machine;
use crate::setup::find_syscall;

const SYS_MLOCKALL: u64 = 151;
const SYS_MUNLOCKALL: u64 = 152;
const SYS_MLOCK2: u64 = 325;
const MCL_CURRENT: u64 = 1;
const MCL_FUTURE: u64 = 2;
const MCL_ONFAULT: u64 = 4;
const MLOCK_ONFAULT: u64 = 1;
const EPERM: i64 = -1;
const ENOMEM: i64 = -12;
const CAP_IPC_LOCK: u64 = 14;
/// So many calls at a time: their list goes onto the program's stack.
const AT_ONCE: usize = 32;

/// Makes the call that the thread with the application registers `app` is about to make.
pub fn lock_all(machine: &mut Machine, tid: Tid, app: &Regs) -> Handled {
    machine.tracees.set_regs(tid, app)?;
    let result = locked(machine, tid, app).unwrap_or(ENOMEM);
    go_on_behind(machine, tid, app, result)
}

/// Makes the call of the 32-bit table that the thread is about to make, should it be this one, and
/// returns its result.
pub fn lock_all_of_32_bits(machine: &mut Machine, tid: Tid, app: &Regs) -> Option<u64> {
    let pending = syscalls::of_32_bits(tid, &app.0)?;
    let filtered = machine.context(tid).is_none_or(|context| context.get(Slot::NoSyscalls) != 0);
    if filtered || !syscalls::locks(pending.number, pending.args[0]) {
        return None;
    }
    let mut regs = *app;
    regs.0.rdi = pending.args[0];
    Some(locked(machine, tid, &regs).unwrap_or(ENOMEM) as u64)
}

/// The call's result. An error means that nothing could be done in the program.
fn locked(machine: &mut Machine, tid: Tid, app: &Regs) -> Result<i64, String> {
    let flags = app.0.rdi & 7;
    let status = Status::read(tid);
    let mappings = maps::read(tid);
    let own: Vec<&Mapping> =
        mappings.iter().filter(|it| it.start < VSYSCALL && !is_ours(it)).collect();
    if let Some(error) = refused(tid, &status, flags, &own) {
        return Ok(error);
    }
    let site = find_syscall(tid, &mappings)?;
    let mut injector = Injector::new(&machine.tracees, tid, site, &status);
    if let Some((_, family)) = machine.space_of(tid) {
        injector.use_batch(family.routine(family.translator.routines().batch), app.0.rsp);
    }
    let mut calls: Vec<Call> = Vec::new();
    if flags & MCL_CURRENT != 0 {
        // Whatever was said of future mappings before no longer holds.
        calls.push([SYS_MUNLOCKALL, 0, 0, 0, 0, 0, 0]);
        let how = if flags & MCL_ONFAULT != 0 { MLOCK_ONFAULT } else { 0 };
        let lock = |it: &&Mapping| [SYS_MLOCK2, it.start, it.end - it.start, how, 0, 0, 0];
        calls.extend(own.iter().map(lock));
    }
    if flags & MCL_FUTURE != 0 {
        calls.push([SYS_MLOCKALL, flags & !MCL_CURRENT, 0, 0, 0, 0, 0]);
    }
    let mut last = 0;
    for calls in calls.chunks(AT_ONCE) {
        last = injector.calls(calls)?.pop().unwrap_or(0);
    }
    drop(injector);
    if let Some(Some(space)) = base_space(machine, tid) {
        space.locks_future = flags & MCL_FUTURE != 0;
    }
    // What cannot be populated is locked all the same.
    Ok(if flags & MCL_FUTURE != 0 { last } else { 0 })
}

fn base_space(machine: &mut Machine, tid: Tid) -> Option<&mut Option<lwp_code::space::Space>> {
    let pid = machine.tasks.threads.get(&tid)?.pid;
    let space = machine.tasks.processes.get(&pid)?.space;
    machine.caches.spaces.get_mut(space)
}

/// The error that natively the call would end with, where it would.
fn refused(tid: Tid, status: &Status, flags: u64, own: &[&Mapping]) -> Option<i64> {
    let limit = limits::locked_memory(tid)?;
    if may_lock_everything(tid, status) {
        return None;
    }
    if limit == 0 {
        return Some(EPERM);
    }
    let bytes: u64 = own.iter().map(|mapping| mapping.end - mapping.start).sum();
    (flags & MCL_CURRENT != 0 && bytes > limit / 4096 * 4096).then_some(ENOMEM)
}

/// Returns whether a thread has CAP_IPC_LOCK in the first user namespace, in which alone it counts.
fn may_lock_everything(tid: Tid, status: &Status) -> bool {
    const FIRST: &str = "user:[4026531837]";
    let namespace = kernel_files::link(tid, "ns/user");
    let capable = status.signals("CapEff:").is_some_and(|set| set & (1 << CAP_IPC_LOCK) != 0);
    capable && namespace.is_ok_and(|link| link.as_os_str() == FIRST)
}
