//! System calls that the kernel turns into signals, which must appear to come from the program's
//! own instruction: see [`lwp_calls::user_dispatch`].

use lwp_calls::user_dispatch::Stopped;
use lwp_process::regs::Regs;
use lwp_process::sys::{Errno, UserDispatchRequest};
use lwp_process::{Stop, Tid};

use super::Handled;
use super::stopped_work::{Stepped, begin_step, set_native, step};
use crate::machine::Machine;

/// Has the kernel turn the system call at `app` into the signal that it is to be.
pub fn make_signal(machine: &mut Machine, tid: Tid, app: &Regs) -> Handled {
    let thread = machine.tasks.threads.get(&tid).ok_or(Errno::ESRCH)?;
    let stopped = thread.dispatch.by.and_then(|by| by.stops(tid, app.0.rip.wrapping_add(2)));
    let (Some(stopped), Some(meaningless)) = (stopped, meaningless_byte(machine, tid)) else {
        return step(machine, tid, app);
    };
    set_native(machine, tid, app)?;
    machine.tracees.set_user_dispatch(tid, stopped.request(meaningless))?;
    if let Some(thread) = machine.tasks.threads.get_mut(&tid) {
        thread.dispatch.told = true;
    }
    begin_step(machine, tid, app, Stepped::default())
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
