//! munmap(2) and madvise(2) of a range that is partly lwp's. The calls are made for the parts
//! around lwp's memory, because natively they also skip unmapped memory.

use lwp_calls::syscalls::{self, Pending};
use lwp_dbt::Slot;
use lwp_process::Tid;
use lwp_process::inject::Injector;
use lwp_process::maps::{self, Status};
use lwp_process::regs::Regs;

use super::Handled;
use super::stopped_work::go_on_behind;
use super::trap_flag::is_syscall;
use crate::machine::Machine;
use crate::server::settle_effect;
use crate::setup::find_syscall;

const ENOMEM: i64 = -12;

/// The call that a thread with the application registers `app` is about to make.
fn pending(app: &Regs) -> Pending {
    let regs = &app.0;
    Pending::new(regs.rax & 0xffff_ffff, [regs.rdi, regs.rsi, regs.rdx, regs.r10])
}

/// Returns whether such a call is to be made here.
pub fn concerns(machine: &Machine, tid: Tid, app: &Regs) -> bool {
    machine.caches.of(&machine.tasks).ours_of(tid).parts_around(&pending(app)).is_some()
}

/// Makes it.
pub fn call(machine: &mut Machine, tid: Tid, app: &Regs) -> Handled {
    machine.tracees.set_regs(tid, app)?;
    let result = made(machine, tid, app).unwrap_or(ENOMEM);
    go_on_behind(machine, tid, app, result)
}

/// The call's result. An error means that nothing could be done in the program.
fn made(machine: &mut Machine, tid: Tid, app: &Regs) -> Result<i64, String> {
    let call = pending(app);
    let (parts, told) = machine
        .caches
        .of(&machine.tasks)
        .ours_of(tid)
        .parts_around(&call)
        .ok_or("there is nothing of ours any more")?;
    let site = match is_syscall(tid, app.0.rip) {
        true => app.0.rip,
        false => find_syscall(tid, &maps::read(tid))?,
    };
    let mut injector = Injector::new(&machine.tracees, tid, site, &Status::read(tid));
    // A filter may know the place of the program's call.
    let filtered = machine.context(tid).is_none_or(|context| context.get(Slot::NoSyscalls) != 0);
    if let (Some((_, family)), false) = (machine.space_of(tid), filtered) {
        injector.use_batch(family.routine(family.translator.routines().batch), app.0.rsp);
    }
    let mut told = told;
    let mut done = Vec::new();
    for (start, end) in parts {
        let [_, _, third, fourth] = call.args;
        let results = injector.calls(&[[call.number, start, end - start, third, fourth, 0, 0]])?;
        match results.first() {
            Some(0..) => done.push((start, end)),
            Some(&ENOMEM) if told == ENOMEM => done.push((start, end)),
            // As the kernel does, it ends with this.
            error => {
                told = error.copied().unwrap_or(ENOMEM);
                break;
            }
        }
    }
    drop(injector);
    for (start, end) in done {
        let part = Pending::new(call.number, [start, end - start, call.args[2], call.args[3]]);
        settle(machine, tid, &part);
    }
    Ok(told)
}

/// Settles what the call has done to a part.
fn settle(machine: &mut Machine, tid: Tid, part: &Pending) {
    let Some(slot) = machine.tasks.threads.get(&tid).map(|thread| thread.slot) else { return };
    let (_, effect) = syscalls::after(machine.contexts.context(slot), tid, part, 0);
    settle_effect(machine, tid, slot, effect);
}
