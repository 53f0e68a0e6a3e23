//! Signals: from the stop before delivery to the handler's first instruction.

use lwp_arch::insn;
use lwp_dbt::{Commit, RequestKind};
use lwp_process::Tid;
use lwp_process::maps::Status;
use lwp_process::regs::Regs;
use lwp_process::sys::{Errno, SigInfo};

use super::ignored_signals::{self, Ignored};
use super::stopped_work::{count_instruction, go_on, satisfy, step, stepped};
use super::trap_flag::{self, TRAP_FLAG};
use super::{Handled, SIGTRAP, TRAP_BRKPT, TRAP_TRACE};
use super::{core_dump, passed_signals, retranslate, signal_pacing};
use crate::guarding;
use crate::lwp::restores_lwp;
use crate::machine::{Machine, Mode};
use crate::state::{View, disarm};
use crate::x87::Pointers;

const SIGSEGV: i32 = 11;

/// A signal is about to be delivered.
pub fn signalled(machine: &mut Machine, tid: Tid, signal: i32) -> Handled {
    let Some(thread) = machine.tasks.threads.get(&tid) else { return Err(Errno::ESRCH) };
    let mode = thread.mode;
    signal_pacing::restore_info(machine, tid, signal)?;
    if passed_signals::arrived(machine, tid)? {
        return Ok(());
    }
    if signal == SIGSEGV && guarding::write_fault(machine, tid)? {
        return guarding::write_again(machine, tid, mode);
    }
    match mode {
        Mode::Stepping { pc, .. }
            if signal != SIGTRAP && signal_pacing::comes_behind_return(machine, tid, pc)? =>
        {
            Ok(())
        }
        Mode::Stepping { pc, trapped, answer } => {
            stepped(machine, tid, signal, (pc, trapped, answer))
        }
        Mode::Delivering { cache, app } => {
            // Not delivered yet; this one goes first, from the same state.
            let _ = app;
            deliver(machine, tid, signal, cache, app)
        }
        mode => interrupts(machine, tid, signal, mode),
    }
}

/// A signal has come to a thread in the middle of its work.
fn interrupts(machine: &mut Machine, tid: Tid, signal: i32, mode: Mode) -> Handled {
    let regs = machine.tracees.regs(tid)?;
    let own = regs.0.eflags & TRAP_FLAG != 0;
    let info = machine.tracees.siginfo(tid).ok();
    let is_step = || info.as_ref().is_some_and(|info| is_of_trap_flag(info.code()));
    if own && signal == SIGTRAP && is_step() {
        return trap_flag::appeared(machine, tid, &regs);
    }
    let fault = info.as_ref().filter(|info| is_fault(signal, info));
    match (machine.view(tid, &regs), fault) {
        (Some(view), Some(_)) if view.state.commit == Commit::LwpTrying => {
            ask_instead(machine, tid, regs)
        }
        (Some(mut view), Some(fault))
            if refused(machine, tid, fault, &view)
                || out_of_reach(machine, tid, fault, (&view, &regs))
                || locked_frame(tid, fault, &view)
                || unreadable(machine, tid, &view) =>
        {
            machine.leave(tid, &regs, &mut view);
            step(machine, tid, &view.app)
        }
        (Some(view), None)
            if info.is_some_and(|it| signal_pacing::holds(machine, tid, &regs, &view, &it)) =>
        {
            Ok(())
        }
        (Some(mut view), fault) => {
            if fault.is_none()
                && let Some(end) = retranslate::still_in_call(machine, tid, &view.app)
            {
                rearm(machine, tid, &regs, &view.app, true);
                machine.leave(tid, &regs, &mut view);
                count_instruction(machine, tid, view.app.0.rip, end.0.rip);
                return deliver(machine, tid, signal, None, end);
            }
            if matches!(mode, Mode::Calling { .. }) {
                view.app.0.eflags |= TRAP_FLAG;
            }
            deliver(machine, tid, signal, Some(regs), view.app)
        }
        (None, _) => machine.tracees.cont(tid, signal),
    }
}

/// Returns whether a SIGTRAP with this code is of the trap flag; see `is_step` for the second.
fn is_of_trap_flag(code: i32) -> bool {
    matches!(code, TRAP_TRACE | TRAP_BRKPT)
}

/// Returns whether `signal` is of the instruction that the thread has just executed, and not sent.
fn is_fault(signal: i32, info: &SigInfo) -> bool {
    const SIGBUS: i32 = 7;
    matches!(signal, SIGSEGV | SIGBUS) && info.code() > 0
}

/// Returns whether the processor has refused an XRSTOR in translated code, because it has no LWP
/// state: that is a general protection fault, which has no address.
fn refused(machine: &Machine, tid: Tid, fault: &SigInfo, view: &View) -> bool {
    const SI_KERNEL: i32 = 0x80;
    view.state.commit == Commit::None
        && fault.code() == SI_KERNEL
        && restores_lwp(&machine.processor, machine.context(tid), tid, &view.app)
}

/// Returns whether a fragment that compares its own bytes could not read them. The processor
/// fetches an instruction at a time: those in reach are executed, and the fault is of the one that
/// is not.
fn out_of_reach(machine: &Machine, tid: Tid, fault: &SigInfo, at: (&View, &Regs)) -> bool {
    let (view, cache) = at;
    let family = machine.family_at(tid, cache.0.rip);
    let Some((family, id)) = family.zip(view.fragment) else { return false };
    let fragment = family.code_cache.fragment(id);
    let offset = fault.address().wrapping_sub(fragment.pc.0);
    view.state.commit == Commit::None
        && view.app.0.rip == fragment.pc.0
        && offset < u64::from(fragment.app_len)
}

/// Returns whether a signal frame could not be redirected for the return from its handler: the
/// kernel only reads it.
fn locked_frame(tid: Tid, fault: &SigInfo, view: &View) -> bool {
    let rip = view.app.0.rsp.wrapping_add(lwp_dbt::routines::SIGFRAME_RIP as u64);
    view.state.commit == Commit::None
        && fault.address() == rip
        && trap_flag::is_syscall(tid, view.app.0.rip)
}

/// Returns whether a routine that looks at a system call's operands could not read them: the kernel
/// is to say so.
fn unreadable(machine: &Machine, tid: Tid, view: &View) -> bool {
    let kind = machine.context(tid).map(|context| context.kind());
    view.state.commit == Commit::Mailbox && kind == Some(RequestKind::Syscall)
}

/// A routine could not reach what the record of an event needs: the thread asks the host, which
/// knows what becomes of it.
fn ask_instead(machine: &mut Machine, tid: Tid, mut regs: Regs) -> Handled {
    machine.guarding().restore_action(tid, &Status::read(tid))?;
    let family = machine.family_at(tid, regs.0.rip).ok_or(Errno::ESRCH)?;
    regs.0.rip = family.routine(family.translator.routines().lwp.due);
    machine.tracees.set_regs(tid, &regs)?;
    machine.tracees.cont(tid, 0)
}

/// Hands a signal to the kernel with the application's state in place, so that the frame it builds,
/// or the core it dumps, is the application's.
///
/// PTRACE_INTERRUPT before the tracee goes on makes it stop again before it executes anything: at
/// the handler's first instruction, or where it was if there is no handler.
pub fn deliver(
    machine: &mut Machine,
    tid: Tid,
    signal: i32,
    cache: Option<Regs>,
    app: Regs,
) -> Handled {
    let mut info = machine.tracees.siginfo(tid)?;
    if let Some(cache) = cache {
        let inside = machine.family_at(tid, info.address()).is_some();
        // The program may also have found one of our addresses by itself.
        let offset = info.address().wrapping_sub(cache.0.rip);
        if info.code() > 0 && inside && offset < insn::LONGEST as u64 {
            info.set_address(app.0.rip.wrapping_add(offset));
            machine.tracees.set_siginfo(tid, &info)?;
        }
        rearm(machine, tid, &cache, &app, true);
    }
    machine.guarding().about_to_lay_frame(tid, app.0.rsp);
    guarding::unprotect_for_signal(machine, tid, &info)?;
    if let Some(pointers) = Pointers::of(&machine.tasks, &machine.caches, tid) {
        pointers.put_unit_right(&*machine.tracees);
    }
    let mut native = app;
    native.0.gs_base = machine.context(tid).map_or(0, |context| context.address());
    machine.tracees.set_regs(tid, &native)?;
    if let Some(thread) = machine.tasks.threads.get_mut(&tid) {
        thread.mode = Mode::Delivering { cache, app };
        thread.signals.delivering = signal;
    }
    if core_dump::hold(machine, tid, signal) {
        return Ok(());
    }
    machine.tracees.interrupt(tid)?;
    machine.tracees.cont(tid, signal)
}

/// A signal frame that was redirected for its return is the application's again while a signal is
/// delivered (`out`), and redirected again if nothing came of it.
pub fn rearm(machine: &mut Machine, tid: Tid, cache: &Regs, app: &Regs, out: bool) {
    let Some(view) = machine.view(tid, cache) else { return };
    if out {
        if (view.is_armed() || view.has_landed())
            && let Some(context) = machine.context(tid)
        {
            disarm(context, tid);
        }
        return;
    }
    if !view.is_armed() {
        return;
    }
    if let Some(family) = machine.family_at(tid, cache.0.rip) {
        let landing = family.routine(family.translator.routines().sigreturn);
        let at = app.0.rsp + lwp_dbt::routines::SIGFRAME_RIP as u64;
        let _ = lwp_process::memory::write_u64(tid, at, landing);
    }
}

/// The stop after a delivery: either a handler's first instruction, or nothing happened.
pub fn delivered(machine: &mut Machine, tid: Tid, cache: Option<Regs>, app: Regs) -> Handled {
    core_dump::survived(machine, tid);
    let regs = machine.tracees.regs(tid)?;
    let handled = regs.0.rip != app.0.rip || regs.0.rsp != app.0.rsp;
    if let Some(thread) = machine.tasks.threads.get_mut(&tid) {
        thread.signals.taken.note(thread.signals.delivering);
    }
    if handled {
        if let Some(thread) = machine.tasks.threads.get_mut(&tid) {
            thread.signals.ignored = Ignored::default();
        }
        if let Some(cache) = cache
            && let Some(mut view) = machine.view(tid, &cache)
        {
            machine.leave(tid, &cache, &mut view);
        }
        machine.counting().enter_handler(tid, app.0.rip, regs.0.rip, regs.0.rsp);
        signal_pacing::entered(machine, tid, &app, &regs);
        return go_on(machine, tid, &regs);
    }
    match cache {
        Some(mut cache) => {
            rearm(machine, tid, &cache, &app, false);
            ignored_signals::resume_call(machine, tid, &mut cache);
            let calling = app.0.eflags & TRAP_FLAG != 0;
            if let Some(thread) = machine.tasks.threads.get_mut(&tid) {
                thread.mode =
                    if calling { Mode::Calling { entered: false } } else { Mode::Running };
            }
            let need = machine.tasks.threads.get(&tid).and_then(|thread| thread.errand.need);
            machine.tracees.set_regs(tid, &cache)?;
            machine.ask_again(tid);
            match need {
                Some(need) => satisfy(machine, tid, need),
                None if calling => machine.tracees.cont_syscall(tid),
                None => ignored_signals::go_on(machine, tid, &cache),
            }
        }
        None => {
            // A call in which nothing has come of the signal goes on.
            let mut regs = regs;
            ignored_signals::take_back(machine, tid, &mut regs)?;
            go_on(machine, tid, &regs)
        }
    }
}
