//! Programs that set their own trap flag: a SIGTRAP after every instruction.
//!
//! lwp single-steps such a program natively, because the processor traps after every instruction
//! anyway. System calls are the exception, because the virtual CPU takes part in some: the thread
//! makes them in translated code with the flag hidden, up to the stop at the call's end. Natively,
//! the trap doesn't come after a system call either, but after the instruction that follows it.

use lwp_dbt::Commit;
use lwp_process::regs::Regs;
use lwp_process::sys::Errno;
use lwp_process::{Tid, memory};

use super::signals::rearm;
use super::stopped_work::{go_on, step};
use super::{Handled, ignored_signals};
use crate::machine::{Machine, Mode, Thread};
use crate::setup;

/// TF in the flags register.
pub const TRAP_FLAG: u64 = 0x100;

/// The program's trap flag has come to be set while it was in translated code: a signal frame had
/// it. Nothing has been executed since.
pub fn appeared(machine: &mut Machine, tid: Tid, cache: &Regs) -> Handled {
    let Some(mut view) = machine.view(tid, cache) else { return Err(Errno::ESRCH) };
    rearm(machine, tid, cache, &view.app, true);
    machine.leave(tid, cache, &mut view);
    view.app.0.eflags |= TRAP_FLAG;
    step(machine, tid, &view.app)
}

/// Returns whether the instruction at `pc` is a system call.
pub fn is_syscall(tid: Tid, pc: u64) -> bool {
    memory::read_array::<2>(tid, pc).is_ok_and(|bytes| bytes == [0x0f, 0x05])
}

/// Makes the system call at the application's pc in translated code.
pub fn call(machine: &mut Machine, tid: Tid, app: &Regs) -> Handled {
    let mut hidden = *app;
    hidden.0.eflags &= !TRAP_FLAG;
    setup::enter(machine, tid, &hidden)?;
    if let Some(thread) = machine.tasks.threads.get_mut(&tid) {
        thread.mode = Mode::Calling { entered: false };
    }
    machine.tracees.cont_syscall(tid)
}

/// Returns whether a thread makes a system call so.
pub fn is_calling(thread: &Thread) -> bool {
    matches!(thread.mode, Mode::Calling { .. })
}

/// Lets a new thread go on that such a call has made, with the registers `cache`: it has the flag
/// too.
pub fn begin(machine: &mut Machine, tid: Tid, cache: &Regs) -> Handled {
    let Some(mut view) = machine.view(tid, cache) else { return Err(Errno::ESRCH) };
    machine.leave(tid, cache, &mut view);
    machine.change_side(tid, None);
    view.app.forget_syscall();
    view.app.0.eflags |= TRAP_FLAG;
    go_on(machine, tid, &view.app)
}

/// A stop at a system call: at the end of the program's own, back to single steps. The others are
/// the mailbox's.
pub fn at_syscall(machine: &mut Machine, tid: Tid) -> Handled {
    let Some(thread) = machine.tasks.threads.get_mut(&tid) else { return Err(Errno::ESRCH) };
    if let Some(calm) = thread.signals.calm {
        return ignored_signals::at_syscall(machine, tid, calm);
    }
    let Mode::Calling { entered } = thread.mode else { return machine.tracees.cont(tid, 0) };
    thread.mode = Mode::Calling { entered: !entered };
    if !entered {
        return machine.tracees.cont_syscall(tid);
    }
    let cache = machine.tracees.regs(tid)?;
    let Some(mut view) = machine.view(tid, &cache) else {
        return machine.tracees.cont_syscall(tid);
    };
    let returned = view.has_landed();
    if !returned && !matches!(view.state.commit, Commit::AfterSyscall | Commit::RunSyscallDone) {
        return machine.tracees.cont_syscall(tid);
    }
    if lwp_process::regs::restart::is(cache.0.rax) && cache.in_syscall() {
        // A signal comes first, which finds the flag in its place.
        return machine.tracees.cont_syscall(tid);
    }
    rearm(machine, tid, &cache, &view.app, true);
    machine.leave(tid, &cache, &mut view);
    view.app.forget_syscall();
    if !returned {
        view.app.0.eflags |= TRAP_FLAG;
    }
    go_on(machine, tid, &view.app)
}
