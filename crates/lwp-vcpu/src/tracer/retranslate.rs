//! Starts over with an address space's translations: when they have filled their arena, when an
//! arena of other address spaces can't be mapped, or when better translations are in the store.
//!
//! The tracer stops all threads and moves them out of translated code (*parks* them), gives the
//! address space another family, and lets them continue at the same place of the application. It
//! saves their counters (`Counting::keep_counts`), so that counts stay exact. Nothing points to the
//! old arenas any more, because the application only has its own addresses on its stack.
//!
//! If two processes share an address space, its translations stay, because the parent of a vfork
//! can't be stopped before its child is gone. Code for which there is no room is single-stepped
//! then.

use lwp_calls::syscalls::Transfer;
use lwp_code::family::Family;
use lwp_code::space::Space;
use lwp_process::Tid;
use lwp_process::regs::{Raw, Regs, restart};
use lwp_process::sys::Errno;

use super::signals::rearm;
use super::stopped_work::{count_instruction, go_on, step};
use super::{Handled, core_dump, ignored_signals};
use crate::machine::{Machine, Mode};
use crate::resource_limits::within_limit;
use crate::setup;

/// Returns whether a thread must stand still for a flush.
pub fn concerns(machine: &Machine, tid: Tid) -> bool {
    !machine.caches.flushes.is_empty()
        && machine
            .tasks
            .space_index(tid)
            .is_some_and(|space| machine.caches.flushes.contains(&space))
}

/// A thread, which stands in its application state `app`, has found its arena full.
pub fn begin(machine: &mut Machine, tid: Tid, app: &Regs) -> Handled {
    let Some(index) = machine.tasks.space_index(tid) else { return Err(Errno::ESRCH) };
    let shared = machine.caches.spaces[index].as_ref().is_none_or(|space| space.users > 1);
    if !machine.caches.side(index).is_some_and(is_needed) {
        // Somebody else has been here first.
        setup::enter(machine, tid, app)?;
        return machine.tracees.cont(tid, 0);
    }
    if shared || is_called_for(machine, index) {
        if put_up_with_waste(machine, index) {
            setup::enter(machine, tid, app)?;
            return machine.tracees.cont(tid, 0);
        }
        return step(machine, tid, app);
    }
    stop_all_but(machine, index, Some(tid));
    set_parked(machine, tid, *app, false)
}

/// Replaces the translations of families whose modules have been laid out anew, where that is
/// possible at the moment.
pub fn replace_improved(machine: &mut Machine) {
    for family in std::mem::take(&mut machine.errands.improved) {
        for index in 0..machine.caches.spaces.len() {
            let able = machine.caches.spaces[index]
                .as_ref()
                .is_some_and(|space| space.family == family && space.users == 1);
            if able && !is_called_for(machine, index) {
                stop_all_but(machine, index, None);
            }
        }
    }
}

/// Returns whether a thread of an address space makes a system call for us.
fn is_called_for(machine: &Machine, index: usize) -> bool {
    let modes = machine.tasks.threads_in(index).into_iter();
    let mut modes = modes.filter_map(|tid| Some(machine.tasks.threads.get(&tid)?.mode));
    modes.any(|mode| matches!(mode, Mode::Calling { .. }))
}

/// Stops the threads of an address space, to be parked.
fn stop_all_but(machine: &mut Machine, index: usize, but: Option<Tid>) {
    if machine.caches.flushes.contains(&index) {
        return;
    }
    machine.caches.flushes.push(index);
    for other in machine.tasks.threads_in(index).into_iter().filter(|other| Some(*other) != but) {
        let _ = machine.tracees.interrupt(other);
    }
}

/// Goes on without a flush where that is only to get rid of waste. Returns whether it is.
fn put_up_with_waste(machine: &mut Machine, index: usize) -> bool {
    let Some((space, family)) = machine.caches.side(index) else { return false };
    if family.lacks_room() || space.needs_other_family() {
        return false;
    }
    family.waste.put_up();
    true
}

/// Returns whether a thread stands in a call that has moved a part of its bytes, for a flush that
/// need not be: the call would return how many, because nobody adds two results up where the thread
/// is led elsewhere.
fn cuts_for_nothing(machine: &mut Machine, tid: Tid, cache: &Regs) -> bool {
    let cut = |context| Transfer::interrupted(context, tid, cache).is_some();
    let index = machine.tasks.space_index(tid);
    cache.in_syscall()
        && machine.context(tid).is_some_and(cut)
        && index.is_some_and(|index| !machine.caches.side(index).is_some_and(is_needed))
}

/// Returns whether an address space cannot go on with the translations that it has.
fn is_needed((space, family): (&mut Space, &mut Family)) -> bool {
    family.is_full() || space.needs_other_family()
}

/// Takes a stopped thread out of translated code and keeps it.
pub fn park(machine: &mut Machine, tid: Tid, group: bool) -> Handled {
    let mut cache = machine.tracees.regs(tid)?;
    if !group && cuts_for_nothing(machine, tid, &cache) {
        abandon(machine, tid);
        return ignored_signals::looked_at(machine, tid);
    }
    if group && cache.is_interrupted() {
        // A stop of job control ends it natively too.
        cache.forget_syscall();
    }
    let end = end_of_call(machine, tid, &cache);
    // System calls that have been interrupted for this are made again.
    ignored_signals::resume_call_elsewhere(machine, tid, &mut cache);
    cache.rewind_syscall();
    let Some(mut view) = machine.view(tid, &cache) else {
        abandon(machine, tid);
        return if group { machine.tracees.listen(tid) } else { machine.tracees.cont(tid, 0) };
    };
    rearm(machine, tid, &cache, &view.app, true);
    machine.leave(tid, &cache, &mut view);
    view.app.forget_syscall();
    if let Some(thread) = machine.tasks.threads.get_mut(&tid) {
        thread.signals.parked_in =
            end.map(|end| ParkedCall { begin: view.app, end }).filter(|call| call.is_same());
    }
    set_parked(machine, tid, view.app, group)
}

/// A call that a thread was parked in, and is to make again.
#[derive(Clone, Copy, Debug)]
pub struct ParkedCall {
    /// The application's registers before it.
    begin: Regs,
    /// The application's registers in it, interrupted: the kernel decides what becomes of it.
    end: Regs,
}

impl ParkedCall {
    /// Returns whether the two are before and behind one instruction.
    fn is_same(&self) -> bool {
        self.begin.0.rip.wrapping_add(2) == self.end.0.rip && self.begin.0.rsp == self.end.0.rsp
    }
}

/// The application's registers in a call that has been interrupted, with the kernel's mark of that.
fn end_of_call(machine: &mut Machine, tid: Tid, cache: &Regs) -> Option<Regs> {
    let interrupted = cache.is_interrupted() || cache.in_syscall() && restart::is(cache.0.rax);
    let view = machine.view(tid, cache).filter(|_| interrupted)?;
    Some(view.app)
}

/// The application's registers in the call that a thread was parked in, where `app` says that it
/// has not made the call again: a signal or a stop that comes now has come in the call.
pub fn still_in_call(machine: &mut Machine, tid: Tid, app: &Regs) -> Option<Regs> {
    let thread = machine.tasks.threads.get_mut(&tid)?;
    let call = thread.signals.parked_in.take()?;
    // Where it stands in translated code says nothing of these.
    let compared = |regs: &Regs| Regs(Raw { orig_rax: 0, gs_base: 0, ..regs.0 });
    (compared(app) == compared(&call.begin)).then_some(call.end)
}

/// A thread that has been let on has stopped with its group before it has made its call again: the
/// call has ended.
pub fn stopped_in_call(machine: &mut Machine, tid: Tid) -> Handled {
    let cache = machine.tracees.regs(tid)?;
    let Some(mut view) = machine.view(tid, &cache) else { return Ok(()) };
    let end = still_in_call(machine, tid, &view.app);
    let Some(mut end) = end.filter(Regs::is_interrupted) else { return Ok(()) };
    machine.leave(tid, &cache, &mut view);
    count_instruction(machine, tid, view.app.0.rip, end.0.rip);
    end.forget_syscall();
    setup::enter(machine, tid, &end)
}

fn set_parked(machine: &mut Machine, tid: Tid, app: Regs, group: bool) -> Handled {
    machine.tracees.set_regs(tid, &app)?;
    let Some(thread) = machine.tasks.threads.get_mut(&tid) else { return Err(Errno::ESRCH) };
    thread.mode = Mode::Parked { app, group };
    Ok(())
}

/// After every stop: what runs in an address space that is being flushed is stopped again, and
/// where nothing does, it is flushed.
pub fn press(machine: &mut Machine, tid: Tid) {
    if machine.caches.flushes.is_empty() {
        return;
    }
    let running = |thread: &crate::machine::Thread| matches!(thread.mode, Mode::Running);
    if concerns(machine, tid) && machine.tasks.threads.get(&tid).is_some_and(running) {
        let _ = machine.tracees.interrupt(tid);
    }
    for index in machine.caches.flushes.clone() {
        match machine.caches.spaces.get(index) {
            Some(Some(space)) if space.users > 1 => release(machine, index),
            Some(Some(_)) => finish_if_still(machine, index),
            // Its last process is gone.
            _ => machine.caches.flushes.retain(|other| *other != index),
        }
    }
}

/// Flushes an address space if none of its threads is in translated code.
fn finish_if_still(machine: &mut Machine, index: usize) {
    let threads = machine.tasks.threads_in(index);
    let still = |tid: &Tid| {
        machine.tasks.threads.get(tid).is_some_and(|thread| {
            thread.account.settled
                || matches!(thread.mode, Mode::Parked { .. } | Mode::Stepping { .. })
        })
    };
    if !threads.iter().all(still) {
        return;
    }
    let able = |tid: &&Tid| {
        let mode = machine.tasks.threads.get(tid).map(|thread| thread.mode);
        matches!(mode, Some(Mode::Parked { group: false, .. }))
    };
    if let Some(&worker) = threads.iter().find(able) {
        match within_limit(machine, worker, |machine| setup::flush(machine, worker, index)) {
            Ok(()) if machine.config.trials.trace => {
                lwp_terminal::say!("lwp: {worker}: translations flushed");
            }
            Ok(()) => {}
            // It has been killed meanwhile, and reports that by itself.
            Err(_) if machine.tracees.regs(worker).is_err() => {}
            Err(reason) => {
                lwp_terminal::say!(
                    "lwp: thread {worker}: its translations are not flushed: {reason}"
                );
                put_up_with_waste(machine, index);
            }
        }
    }
    release(machine, index);
}

/// A thread is where it should not be: everything stays as it is.
fn abandon(machine: &mut Machine, tid: Tid) {
    if let Some(index) = machine.tasks.space_index(tid) {
        release(machine, index);
    }
}

/// Lets the parked threads of an address space go on.
fn release(machine: &mut Machine, index: usize) {
    machine.caches.flushes.retain(|other| *other != index);
    for tid in machine.tasks.threads_in(index) {
        if !core_dump::concerns(machine, tid) {
            let_on(machine, tid);
        }
    }
}

/// Lets a parked thread go on.
pub fn let_on(machine: &mut Machine, tid: Tid) {
    let Some(Mode::Parked { mut app, group }) = machine.tasks.threads.get(&tid).map(|it| it.mode)
    else {
        return;
    };
    app.rewind_syscall();
    let gone_on = ignored_signals::keep_own_mask(machine, tid).and_then(|()| match group {
        true => setup::enter(machine, tid, &app).and_then(|()| machine.tracees.listen(tid)),
        false => go_on(machine, tid, &app),
    });
    // One that has been killed reports that by itself.
    if let Err(error) = gone_on
        && error != Errno::ESRCH
    {
        lwp_terminal::say!("lwp: thread {tid}: {error}");
    }
}
