//! Processes that have asked the kernel to let nobody look into them.
//!
//! prctl(PR_SET_DUMPABLE) hides a process's memory from other processes of its user, including a
//! host without CAP_SYS_PTRACE. The host then could not give separate contexts to the children of
//! such a process. So it answers the call itself, and only passes it on to the kernel when it
//! releases the process, or when the process is about to dump core.

use lwp_calls::syscalls::{self, Pending, nr};
use lwp_process::Tid;
use lwp_process::inject::Injector;
use lwp_process::maps::{self, Status};

use crate::machine::{Machine, Tasks};
use crate::setup::find_syscall;

const PR_GET_DUMPABLE: u64 = 3;
const PR_SET_DUMPABLE: u64 = 4;

/// Arranges a call that hides its process or asks whether it is hidden.
pub fn arrange(machine: &mut Machine, tid: Tid, slot: usize, pending: &mut Pending) {
    if let Some(result) = answer(&mut machine.tasks, tid, pending) {
        syscalls::answer_instead(machine.contexts.context(slot), pending, result);
    }
}

/// The result of such a call, unless the kernel is to give it.
pub fn answer(tasks: &mut Tasks, tid: Tid, call: &Pending) -> Option<i64> {
    if call.number != nr::PRCTL {
        return None;
    }
    let hidden = is_hidden(tasks, tasks.threads.get(&tid)?.pid);
    match (u64::from(call.args[0] as u32), call.args[1]) {
        (PR_SET_DUMPABLE, 0) if hidden || !host().has_ptrace_capability() => {
            set(tasks, tid, true);
            Some(0)
        }
        (PR_SET_DUMPABLE, 1) if hidden => {
            set(tasks, tid, false);
            None
        }
        (PR_GET_DUMPABLE, _) if hidden => Some(0),
        _ => None,
    }
}

/// Returns whether a process is hidden without the kernel's knowledge.
pub fn is_hidden(tasks: &Tasks, pid: i32) -> bool {
    tasks.processes.get(&pid).is_some_and(|process| process.hidden)
}

/// Tells the kernel that the process of a stopped thread is hidden, if it is. From then on the host
/// sees nothing of it but registers.
pub fn tell_kernel(machine: &mut Machine, tid: Tid) {
    let Some(pid) = machine.tasks.threads.get(&tid).map(|thread| thread.pid) else { return };
    if !is_hidden(&machine.tasks, pid) {
        return;
    }
    let call = [nr::PRCTL, PR_SET_DUMPABLE, 0, 0, 0, 0, 0];
    let told = find_syscall(tid, &maps::read(tid))
        .and_then(|site| Injector::new(&machine.tracees, tid, site, &Status::read(tid)).call(call));
    match told {
        Ok(_) => set(&mut machine.tasks, tid, false),
        Err(reason) => lwp_terminal::say!("lwp: process {pid} can be looked into: {reason}"),
    }
}

/// The processes that share the memory of a thread are hidden with it.
fn set(tasks: &mut Tasks, tid: Tid, hidden: bool) {
    let process = tasks.threads.get(&tid).and_then(|thread| tasks.processes.get(&thread.pid));
    let Some(space) = process.map(|process| process.space) else { return };
    for process in tasks.processes.values_mut().filter(|process| process.space == space) {
        process.hidden = hidden;
    }
}

/// The host's own status.
fn host() -> Status {
    Status::read(std::process::id().cast_signed())
}
