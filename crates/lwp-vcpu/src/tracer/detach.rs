//! Releases processes, which then continue natively.
//!
//! The tracer releases a process as a whole: it stops each thread in translated code, moves it back
//! to its own code, and *parks* it. When all threads are parked, the tracer removes the virtual
//! CPU's mappings and releases the threads. A thread that ends meanwhile needs no work.
//!
//! If two processes share an address space, neither can be released, because the parent of a vfork
//! can't be stopped before its child is gone.

use lwp_dbt::Slot;
use lwp_process::regs::{Regs, restart};
use lwp_process::{Stop, Tid};
use rustc_hash::FxHashMap;

use super::signals::rearm;
use super::{Handled, controlled_processes, core_dump, ignored_signals, interrupted, retranslate};
use crate::dumpable;
use crate::machine::{Machine, Mode, Thread};

/// Returns whether a thread stands where it can be parked: in translated code, and in an address
/// space that no other process needs.
pub fn in_place(machine: &Machine, tid: Tid) -> bool {
    let Some(thread) = machine.tasks.threads.get(&tid) else { return false };
    matches!(thread.mode, Mode::Running) && !is_shared(machine, thread.pid)
}

/// Processes that have ended, and are only remembered, need nothing.
fn is_shared(machine: &Machine, pid: i32) -> bool {
    let processes = &machine.tasks.processes;
    let Some(space) = processes.get(&pid).map(|process| process.space) else { return false };
    processes.values().filter(|process| process.space == space).nth(1).is_some()
}

/// Returns whether a thread is about to be in translated code again, with its own registers until
/// then.
pub fn is_on_the_way(machine: &Machine, tid: Tid) -> bool {
    let mode = machine.tasks.threads.get(&tid).map(|thread| thread.mode);
    matches!(mode, Some(Mode::Delivering { .. } | Mode::Stepping { .. } | Mode::Calling { .. }))
}

/// A member of a stopped group goes on to translated code.
pub fn arrive(machine: &mut Machine, tid: Tid) -> Handled {
    let mode = machine.tasks.threads.get(&tid).map(|thread| thread.mode);
    if matches!(mode, Some(Mode::Delivering { .. })) {
        // It stops again, as a member, before it executes anything.
        machine.tracees.interrupt(tid)?;
    }
    interrupted(machine, tid)
}

/// Puts a thread, which has stopped for this or is a member of a stopped group, back into its own
/// code and keeps it.
pub fn park(machine: &mut Machine, tid: Tid, stop: Stop) -> Handled {
    let stopped = machine.tracees.regs(tid)?;
    let mut cache = stopped;
    let group = matches!(stop, Stop::Group(_));
    // Job control ends a call natively, too.
    if !group {
        ignored_signals::resume_call_elsewhere(machine, tid, &mut cache);
    }
    let Some(mut view) = machine.view(tid, &cache) else {
        return if group { machine.tracees.listen(tid) } else { machine.tracees.cont(tid, 0) };
    };
    rearm(machine, tid, &cache, &view.app, true);
    machine.leave(tid, &cache, &mut view);
    if cache.0.rip.wrapping_add(2) == stopped.0.rip {
        // The kernel makes the call again, unless a signal is handled before: then it has failed.
        view.app.0.rip = view.app.0.rip.wrapping_add(2);
        view.app.0.rax = restart::ERESTARTNOHAND as u64;
        view.app.0.orig_rax = stopped.0.orig_rax;
    }
    view.app.0.gs_base = machine.context(tid).map_or(0, |context| context.get(Slot::AppGs));
    machine.tracees.set_regs(tid, &view.app)?;
    if let Some(thread) = machine.tasks.threads.get_mut(&tid) {
        thread.mode = Mode::Parked { app: view.app, group };
    }
    Ok(())
}

/// After a stop while everything is let go: `tid` is to be parked soon, and processes whose threads
/// all are leave.
pub fn press(machine: &mut Machine, tid: Tid) {
    if in_place(machine, tid) {
        let _ = machine.tracees.interrupt(tid);
    }
    let mut processes: FxHashMap<i32, (bool, bool)> = FxHashMap::default();
    for thread in machine.tasks.threads.values() {
        let (any, all) = processes.entry(thread.pid).or_insert((false, true));
        let parked = matches!(thread.mode, Mode::Parked { .. });
        *any |= parked;
        *all &= parked || thread.account.settled;
    }
    for (pid, (any, all)) in processes {
        if !any || is_held(machine, pid) {
            continue;
        }
        match is_shared(machine, pid) {
            true => let_on(machine, machine.tasks.tids_of(pid)),
            false if all => leave(machine, pid),
            false => {}
        }
    }
}

/// Returns whether the threads of a process are parked for something else.
fn is_held(machine: &Machine, pid: i32) -> bool {
    let mut threads = machine.tasks.threads_of(pid);
    threads.any(|(tid, _)| core_dump::concerns(machine, tid) || retranslate::concerns(machine, tid))
}

/// Lets those parked threads go on that wait for others, which do not stop.
pub fn let_all_on(machine: &mut Machine) {
    let all = machine.tasks.threads.keys().copied().collect();
    let_on(machine, all);
}

fn let_on(machine: &mut Machine, threads: Vec<Tid>) {
    for tid in threads {
        if !core_dump::concerns(machine, tid) && !retranslate::concerns(machine, tid) {
            retranslate::let_on(machine, tid);
        }
    }
}

/// A process leaves, whose threads are parked, counted up to here.
fn leave(machine: &mut Machine, pid: i32) {
    let threads = machine.tasks.threads_of(pid);
    let parked = |(tid, thread): (Tid, &Thread)| match thread.mode {
        Mode::Parked { app, group } => Some((tid, app, group)),
        _ => None,
    };
    let parked: Vec<(Tid, Regs, bool)> = threads.filter_map(parked).collect();
    // Rather one outside of a call.
    let Some(&(worker, mut app, _)) =
        parked.iter().min_by_key(|(_, app, group)| (*group, app.in_syscall()))
    else {
        return;
    };
    if let Err(reason) = machine.mapper().take_down(worker) {
        lwp_terminal::say!("lwp: process {pid} keeps the virtual CPU's mappings: {reason}");
    }
    dumpable::tell_kernel(machine, worker);
    // Where it stands now, the kernel need not make a call again.
    app.rewind_syscall();
    let _ = ignored_signals::keep_own_mask(machine, worker);
    let _ = machine.tracees.set_regs(worker, &app);
    for &(tid, ..) in &parked {
        machine.observers.stop_clock(&machine.config, tid);
        machine.tasks.note_name(tid);
        machine.counting().remove_thread(tid);
        let _ = machine.tracees.loosen(tid);
    }
    // All at once: an ignored signal that a traced thread is sent wakes any other.
    for &(tid, ..) in &parked {
        // Another one, which goes on already, may have ended it by exec.
        let _ = machine.tracees.detach(tid);
    }
    controlled_processes::left(machine, pid);
    machine.tasks.raised.give_back(pid);
    // Threads that have not ended yet still belong to it.
    if machine.tasks.threads_of(pid).next().is_none()
        && let Some(process) = machine.tasks.processes.remove(&pid)
    {
        machine.observers.call_stacks.forget_process(pid);
        machine.depart(process);
    }
}
