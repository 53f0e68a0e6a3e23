//! System calls that seldom concern code, and those that are made natively.

use lwp_dbt::Slot;
use lwp_ptrace::regs::Regs;
use lwp_ptrace::{Tid, Tracee};

use crate::absent;
use crate::machine::Machine;
use crate::syscalls::{self, Effect};
use crate::ways::{REFUSED, Way};

/// Gives a thread that has made a call natively, or has been made by one, its own registers.
pub fn put_back_held(machine: &mut Machine, tid: Tid, regs: &mut Regs) {
    let pending = machine.tasks.threads.get_mut(&tid).and_then(|thread| thread.pending.as_mut());
    if let Some(held) = pending.and_then(|pending| pending.held.take()) {
        held.put_back(tid, &mut regs.0);
    }
}

impl Machine {
    /// A thread is about to make a call of the 32-bit table natively, at `app`. Returns the result
    /// of one that cannot be made, because ours is there or the virtual CPU has no such thing.
    pub fn about_to_call_of_32_bits(&mut self, tid: Tid, app: &Regs) -> Option<u64> {
        let mut pending = syscalls::of_32_bits(tid, &app.0)?;
        let refused = syscalls::refused_of_32_bits(&pending);
        if let Some(result) = refused.or_else(|| self.proc_files().about_to_read(tid, &pending)) {
            return Some(result as u64);
        }
        let slot = self.tasks.threads.get(&tid)?.slot;
        self.contexts.context(slot).set(Slot::R8, app.0.rdi & 0xffff_ffff);
        let clear = self.lists().stands_in_the_way(tid, slot, &mut pending) == Way::Clear;
        if let Some(result) = pending.result {
            return Some(result as u64);
        }
        if !clear || pending.shortened.is_some() {
            return Some(REFUSED as u64);
        }
        if syscalls::installs_filter(&pending) {
            self.contexts.context(slot).set(Slot::NoSyscalls, 1);
            self.note_filter(tid, syscalls::filters_all_threads(&pending));
        }
        if let Ok(mut regs) = Tracee(tid).regs() {
            pending.held = syscalls::hold(tid, &pending, &mut regs.0);
            let _ = Tracee(tid).set_regs(&regs);
        }
        self.tasks.threads.get_mut(&tid)?.pending = Some(pending);
        None
    }

    /// A thread has made a call natively, whose result may be in `regs`. Returns the descriptor of
    /// a file that shows us, where it has opened one.
    pub fn called_natively(&mut self, tid: Tid, regs: &mut Regs) -> Option<i32> {
        let thread = self.tasks.threads.get_mut(&tid)?;
        let pending = thread.pending.take()?;
        let slot = thread.slot;
        let result = syscalls::result_of_32_bits(regs.0.rax);
        let context = self.contexts.context(slot);
        let (told, effect) = syscalls::after(context, tid, &pending, result);
        context.set(Slot::Rax, told);
        self.settle_effect(tid, slot, effect);
        let told = self.contexts.context(slot).get(Slot::Rax);
        if told != result {
            regs.0.rax = told;
        }
        let Effect::Opened(fd) = effect else { return None };
        absent::opened(tid, fd);
        self.opened_for_writing(tid, fd);
        self.proc_files().shows_us(tid, fd).then_some(fd)
    }
}
