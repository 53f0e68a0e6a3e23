//! Threads that end, or that continue without lwp.

use lwp_process::Tid;

use super::{Handled, controlled_processes};
use crate::ahead_of_time::Warming;
use crate::machine::{Machine, Mode};
use crate::profile::look_at_words;

/// A thread is about to end: where it is decides what its last fragment counts.
pub fn exiting(machine: &mut Machine, tid: Tid) -> Handled {
    if let Ok(regs) = machine.tracees.regs(tid) {
        let cache = match machine.tasks.threads.get(&tid).map(|thread| thread.mode) {
            Some(Mode::Delivering { cache, .. }) => cache,
            Some(Mode::Stepping { .. } | Mode::Parked { .. }) => None,
            _ => Some(regs),
        };
        if let Some(cache) = cache {
            machine.settle(tid, &cache);
        }
    }
    machine.guarding().about_to_leave_locks(tid);
    machine.observers.stop_clock(&machine.config, tid);
    machine.tasks.note_cpu_time(&machine.config, tid);
    machine.tasks.note_name(tid);
    if machine.observers.counts_places()
        && let Some((_, family)) = machine.space_of(tid)
    {
        look_at_words(family, tid);
    }
    machine.counting().name_calls(tid);
    machine.counting().note_files(tid);
    if let Some(what) = machine.config.kept.warm.clone()
        && let Some((space, family)) = machine.space_of(tid)
    {
        Warming { space, family, tid }.warm(&what);
    }
    if controlled_processes::holds_exiting(machine, tid) {
        Ok(())
    } else {
        machine.tracees.cont(tid, 0)
    }
}

/// Lets a thread run natively from here on, out of our sight.
pub fn release(machine: &mut Machine, tid: Tid) -> Handled {
    let pid = machine.tasks.threads.get(&tid).map_or(tid, |thread| thread.pid);
    machine.observers.stop_clock(&machine.config, tid);
    if let Some(thread) = machine.tasks.threads.remove(&tid) {
        machine.tasks.slots[thread.slot] = 0;
        machine.contexts.release(thread.slot);
    }
    if machine.tasks.threads_of(pid).next().is_none()
        && let Some(process) = machine.tasks.processes.remove(&pid)
    {
        controlled_processes::left(machine, pid);
        machine.observers.call_stacks.forget_process(pid);
        machine.depart(process);
    }
    machine.tracees.detach(tid)
}
