//! A process's new image: from its first stop to its first translated instruction.

use lwp_process::Tid;
use lwp_process::kernel_files;
use lwp_run::config::{Plan, Target};

use super::thread_exit::release;
use super::{Handled, controlled_processes};
use crate::machine::{Machine, Process};
use crate::resource_limits::within_limit;
use crate::setup;

/// Starts a process's new image: the process as a whole, with its one thread stopped at the first
/// instruction.
pub fn start_image(machine: &mut Machine, tid: Tid, parent: i32) -> Handled {
    let report = new_report(machine, tid, parent);
    let contexts = match machine.contexts.files.add() {
        Ok(contexts) => contexts,
        Err(error) => {
            machine.observers.reports[report].uncounted =
                Some(format!("no memory for its contexts: {error}"));
            return machine.tracees.detach(tid);
        }
    };
    machine.tasks.started_counting.remove(&tid);
    let launched = matches!(machine.config.target, Target::Launch { .. });
    if launched && parent == 0 && !machine.tasks.raised.0.contains_key(&tid) {
        machine.tasks.raised.note_first(tid);
    }
    machine.tasks.processes.insert(tid, Process::new(report, contexts));
    let mut regs = machine.tracees.regs(tid)?;
    let added = machine.observers.extended_stack(&machine.config, tid, &regs);
    regs.0.rsp = added.unwrap_or(regs.0.rsp);
    let settled = setup::settled_stack(&machine.config, tid, &regs);
    regs.0.rsp = settled.unwrap_or(regs.0.rsp);
    if added.or(settled).is_some() {
        machine.tracees.set_regs(tid, &regs)?;
    }
    let set_up = match machine.add_thread(tid, tid, contexts) {
        Some(_) => within_limit(machine, tid, |machine| setup::set_up(machine, tid, &regs)),
        None => Err("too many threads at a time".into()),
    };
    match set_up {
        Ok(()) => {
            machine.proc_files().watch_inherited(tid);
            setup::enter(machine, tid, &regs)?;
            if controlled_processes::holds_image(machine, tid) {
                Ok(())
            } else {
                machine.tracees.cont(tid, 0)
            }
        }
        Err(reason) => {
            say_at_once(machine, report, regs.0.cs, &reason);
            machine.observers.reports[report].uncounted = Some(reason);
            machine.tasks.raised.give_back(tid);
            release(machine, tid)
        }
    }
}

/// Code segment of 32-bit programs.
const CS_32: u64 = 0x23;

/// Tells the user that a 32-bit image is going to run natively, where no report would say it before
/// it matters: of the program that was asked for, and of every one where programs may look for
/// Lightweight Profiling, of which there is none then.
fn say_at_once(machine: &Machine, report: usize, cs: u64, reason: &str) {
    let finds_lwp = machine.config.lwp.is_some() && machine.config.plan == Plan::Plain;
    if cs != CS_32 || report != 0 && !finds_lwp {
        return;
    }
    let name = &machine.observers.reports[report].comm;
    lwp_terminal::say!(
        "lwp: {name} runs natively, uncounted: {reason}\n  help: start it with lwp run, stat or record itself, which \
         step 32-bit programs, or build it for x86-64; here it finds no Lightweight Profiling"
    );
}

/// Starts the report of a process image, which names itself.
pub fn new_report(machine: &mut Machine, pid: i32, parent: i32) -> usize {
    let comm = kernel_files::text(pid, "comm").unwrap_or_default();
    let command = kernel_files::bytes(pid, "cmdline").unwrap_or_default();
    let command = String::from_utf8_lossy(&command).trim_end_matches('\0').replace('\0', " ");
    machine.observers.add_report(pid, parent, comm.trim_end().to_owned(), command)
}
