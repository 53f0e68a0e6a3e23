//! System calls that rarely concern code, and those that are made natively.

use lwp_calls::syscalls::{self, Effect};
use lwp_dbt::Slot;
use lwp_process::regs::Regs;
use lwp_process::{Tid, Tracee};

use super::calls::{note_filter, settle_effect};
use crate::dumpable;
use crate::machine::Machine;
use crate::our_ranges::{REFUSED, Way};
use crate::tracer::rseq;
use crate::unfilled_code;
use crate::written_files::opened_for_writing;

/// Gives a thread that has made a call natively, or has been made by one, its own registers.
pub fn put_back_held(machine: &mut Machine, tid: Tid, regs: &mut Regs) {
    let pending = machine.tasks.threads.get_mut(&tid).and_then(|thread| thread.pending.as_mut());
    if let Some(held) = pending.and_then(|pending| pending.held.take()) {
        held.put_back(tid, &mut regs.0);
    }
}

/// A thread is about to make a call of the 32-bit table natively, at `app`. Returns the result
/// of one that cannot be made, because ours is there or the virtual CPU has no such thing.
pub fn about_to_call_of_32_bits(machine: &mut Machine, tid: Tid, app: &Regs) -> Option<u64> {
    let mut pending = syscalls::of_32_bits(tid, &app.0)?;
    let refused = syscalls::refused_of_32_bits(&pending, rseq::has_rseq(&machine.tasks, tid));
    let refused = refused.or_else(|| dumpable::answer(&mut machine.tasks, tid, &pending));
    if let Some(result) = refused.or_else(|| machine.proc_files().about_to_read(tid, &pending)) {
        return Some(result as u64);
    }
    let slot = machine.tasks.threads.get(&tid)?.slot;
    machine.contexts.context(slot).set(Slot::R8, app.0.rdi & 0xffff_ffff);
    let clear = machine.lists().stands_in_the_way(tid, slot, &mut pending) == Way::Clear;
    if let Some(result) = pending.result {
        return Some(result as u64);
    }
    if !clear || pending.shortened.is_some() {
        return Some(REFUSED as u64);
    }
    if syscalls::installs_filter(&pending) {
        machine.contexts.context(slot).set(Slot::NoSyscalls, 1);
        note_filter(machine, tid, syscalls::filters_all_threads(&pending));
    }
    if let Ok(mut regs) = Tracee(tid).regs() {
        pending.held = syscalls::hold(tid, &pending, &mut regs.0);
        let _ = Tracee(tid).set_regs(&regs);
    }
    machine.tasks.threads.get_mut(&tid)?.pending = Some(pending);
    None
}

/// A thread has made a call natively, whose result may be in `regs`. Returns the descriptor of
/// a file that shows us, where it has opened one.
pub fn called_natively(machine: &mut Machine, tid: Tid, regs: &mut Regs) -> Option<i32> {
    let thread = machine.tasks.threads.get_mut(&tid)?;
    let pending = thread.pending.take()?;
    let slot = thread.slot;
    let result = syscalls::result_of_32_bits(regs.0.rax);
    let context = machine.contexts.context(slot);
    let (told, effect) = syscalls::after(context, tid, &pending, result);
    context.set(Slot::Rax, told);
    settle_effect(machine, tid, slot, effect);
    let told = machine.contexts.context(slot).get(Slot::Rax);
    if told != result {
        regs.0.rax = told;
    }
    let Effect::Opened(fd) = effect else { return None };
    unfilled_code::opened(tid, fd);
    opened_for_writing(machine, tid, fd);
    machine.proc_files().shows_us(tid, fd).then_some(fd)
}
