//! System calls that the kernel turns into signals, each in the place of the program's own
//! instruction: see [`lwp_calls::user_dispatch`].

use std::time::Instant;

use lwp_calls::user_dispatch::Stopped;
use lwp_dbt::Slot;
use lwp_process::regs::Regs;
use lwp_process::sys::{Errno, UserDispatchRequest};
use lwp_process::{Stop, Tid};

use super::Handled;
use super::stopped_work::{about_to_step, step};
use super::trap_flag::TRAP_FLAG;
use crate::machine::{Machine, Mode};

/// Has the kernel turn the system call at `app` into the signal that it is to be.
pub fn make_signal(machine: &mut Machine, tid: Tid, app: &Regs) -> Handled {
    let thread = machine.tasks.threads.get(&tid).ok_or(Errno::ESRCH)?;
    let stopped = thread.dispatch.by.and_then(|by| by.stops(tid, app.0.rip.wrapping_add(2)));
    let (Some(stopped), Some(meaningless)) = (stopped, meaningless_byte(machine, tid)) else {
        return step(machine, tid, app);
    };
    let mut native = *app;
    native.0.gs_base = machine.context(tid).map_or(0, |context| context.get(Slot::AppGs));
    native.forget_syscall();
    machine.tracees.set_regs(tid, &native)?;
    machine.tracees.set_user_dispatch(tid, stopped.request(meaningless))?;
    about_to_step(machine, tid, &app.0);
    if let Some(thread) = machine.tasks.threads.get_mut(&tid) {
        thread.dispatch.told = true;
        let trapped = app.0.eflags & TRAP_FLAG != 0;
        thread.mode = Mode::Stepping { pc: app.0.rip, trapped, answer: None };
        thread.errand.since = Instant::now();
        thread.errand.breakpoint = false;
    }
    machine.tracees.single_step(tid)
}

/// The address of a byte in the translations' memory, which the program cannot write to, that the
/// kernel takes for neither of its two values.
fn meaningless_byte(machine: &mut Machine, tid: Tid) -> Option<u64> {
    let (_, family) = machine.space_of(tid)?;
    let code = &family.translator.routines().code;
    let at = code.iter().position(|byte| Stopped::is_meaningless(*byte))?;
    let arena = family.arenas.first()?;
    Some(arena.address + at as u64)
}

/// A thread has stopped: if its call has become the signal, the kernel makes whatever it calls
/// next.
pub fn stopped(machine: &mut Machine, tid: Tid, stop: Stop) {
    if matches!(stop, Stop::Interrupted | Stop::Group(_)) {
        // Before the call, which it is led to once more.
        return;
    }
    let Some(thread) = machine.tasks.threads.get_mut(&tid) else { return };
    let told = std::mem::take(&mut thread.dispatch.told);
    if told && !matches!(stop, Stop::Exited(_) | Stop::Killed { .. }) {
        // One that is gone by now makes no call.
        let _ = machine.tracees.set_user_dispatch(tid, UserDispatchRequest::default());
    }
}
