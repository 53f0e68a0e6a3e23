//! Attaches to a running process.

use lwp_dbt::Slot;
use lwp_process::maps::Status;
use lwp_process::regs::Regs;
use lwp_process::sys::Errno;
use lwp_process::{Tid, Tracee};

use super::exec_image::new_report;
use super::{ignored_signals, rseq, sigaction_order};
use crate::machine::{Machine, Process};
use crate::setup;
use crate::unfilled_code;

/// Leads the threads of process `pid`, all of which stand still in their application states, into
/// translated code.
///
/// # Errors
///
/// The reason why it cannot be translated. It has been let go, and goes on natively.
pub fn attach(machine: &mut Machine, pid: i32, threads: &[Tracee]) -> Result<(), String> {
    // The first thread of a process may have ended before others.
    let leader = threads.iter().find(|thread| thread.0 == pid).or(threads.first());
    let leader = leader.ok_or("the process has no threads")?.0;
    let regs = machine.tracees.regs(leader).map_err(|error| error.to_string())?;
    let taken = take_over(machine, pid, threads, (leader, &regs));
    if taken.is_err() {
        let _ = machine.mapper().take_down(leader);
        let _ = machine.tracees.set_regs(leader, &regs);
        for thread in threads {
            let _ = machine.tracees.loosen(thread.0);
        }
        for thread in threads {
            let _ = machine.tracees.detach(thread.0);
        }
    }
    taken
}

fn take_over(
    machine: &mut Machine,
    pid: i32,
    threads: &[Tracee],
    (leader, regs): (Tid, &Regs),
) -> Result<(), String> {
    let text = |error: Errno| error.to_string();
    for thread in threads {
        look_at_filter(machine, thread.0)?;
    }
    let rseq = rseq::are_registered(machine, pid, threads)?;
    let report = new_report(machine, pid, 0);
    let contexts = machine.contexts.files.add().map_err(|error| error.to_string())?;
    let process = Process { rseq, ..Process::new(report, contexts) };
    machine.tasks.processes.insert(pid, process);
    for thread in threads {
        machine.add_thread(thread.0, pid, contexts).ok_or("too many threads at a time")?;
        if machine.tasks.threads.len() > 1 {
            sigaction_order::note_beside(machine, thread.0);
        }
    }
    let mut quiet = *regs;
    quiet.forget_syscall();
    machine.tracees.set_regs(leader, &quiet).map_err(text)?;
    setup::set_up(machine, leader, &quiet)?;
    machine.remapping().find_heap(leader);
    unfilled_code::look_for_descriptors(pid);
    for &Tracee(tid) in threads {
        let own = if tid == leader { Ok(*regs) } else { machine.tracees.regs(tid) };
        match own.and_then(|regs| lead_in(machine, tid, regs)) {
            // It has been killed, and reports that by itself.
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(error) => return Err(text(error)),
        }
    }
    Ok(())
}

/// Refuses a thread whose own system call filter may kill it for calls of ours, which the kernel
/// lets past a filter for privileged users only. A filter that this process has too lets them pass.
fn look_at_filter(machine: &Machine, tid: Tid) -> Result<(), String> {
    let filters = |status: &Status| status.number("Seccomp_filters:").unwrap_or(0);
    let status = Status::read(tid);
    let ours = Status::read(std::process::id().cast_signed());
    if !status.is_filtered() || filters(&status) == filters(&ours) {
        return Ok(());
    }
    let suspended = machine.tracees.suspend_filter(tid, true);
    if suspended.and_then(|()| machine.tracees.suspend_filter(tid, false)).is_ok() {
        return Ok(());
    }
    Err("it has a system call filter of its own, which may kill it for calls that lwp makes in it; \
         attach with CAP_SYS_ADMIN and outside of containers, or have lwp start the program"
        .into())
}

/// Leads a thread with these registers into translated code.
fn lead_in(machine: &mut Machine, tid: Tid, mut regs: Regs) -> Result<(), Errno> {
    if let Some(context) = machine.context(tid) {
        context.set(Slot::AppGs, regs.0.gs_base);
        if Status::read(tid).is_filtered() {
            context.set(Slot::NoSyscalls, 1);
            machine.tasks.filtered = true;
        }
    }
    // Nothing but lwp has interrupted its call.
    ignored_signals::take_back(machine, tid, &mut regs)?;
    setup::enter(machine, tid, &regs)?;
    // A member of a stopped group stops again, as one.
    machine.tracees.interrupt(tid)?;
    machine.tracees.cont(tid, 0)
}
