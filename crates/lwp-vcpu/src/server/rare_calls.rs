//! System calls that seldom concern code, and those that are made natively.

use lwp_dbt::Slot;
use lwp_ptrace::regs::Regs;
use lwp_ptrace::{Tid, Tracee};

use crate::absent;
use crate::machine::Machine;
use crate::maps;
use crate::syscalls::{self, Effect, Pending, nr};
use crate::ways::{REFUSED, Way};

/// The bytes by which a heap may be taken to be larger than it is: the kernel refuses to let some
/// grow.
const GROWTH: u64 = 64 << 20;

/// Gives a thread that has made a call natively, or has been made by one, its own registers.
pub fn put_back_held(machine: &mut Machine, tid: Tid, regs: &mut Regs) {
    let pending = machine.tasks.threads.get_mut(&tid).and_then(|thread| thread.pending.as_mut());
    if let Some(held) = pending.and_then(|pending| pending.held.take()) {
        held.put_back(tid, &mut regs.0);
    }
}

impl Machine {
    /// Returns whether a call is brk(2) and takes no code away, whatever it returns.
    pub(super) fn leaves_heap(&mut self, tid: Tid, pending: &Pending) -> bool {
        if pending.number != nr::BRK {
            return false;
        }
        let Some(known) = self.heap_end(tid) else { return false };
        let wanted = pending.args[0];
        if wanted == 0 || wanted < known && !self.has_code(tid, (wanted, known)) {
            return known != 0;
        }
        let grows = known != 0 && (known..known.saturating_add(GROWTH)).contains(&wanted);
        if grows {
            self.note_heap_end(tid, wanted);
        }
        grows
    }

    fn heap_end(&self, tid: Tid) -> Option<u64> {
        let space = self.caches.spaces.get(self.tasks.base_space(tid)?)?.as_ref()?;
        Some(space.heap_end)
    }

    /// Notes an address up to which the heap may have reached.
    fn note_heap_end(&mut self, tid: Tid, end: u64) {
        let space = self.tasks.base_space(tid).and_then(|at| self.caches.spaces.get_mut(at));
        if let Some(Some(space)) = space {
            space.heap_end = space.heap_end.max(end);
        }
    }

    /// Notes the heap of an address space in which a program has been running.
    pub fn find_heap(&mut self, tid: Tid) {
        let heap = maps::read(tid).into_iter().find(|mapping| mapping.name == "[heap]");
        if let Some(heap) = heap {
            self.note_heap_end(tid, heap.end);
        }
    }

    /// The heap ends at `end`: what was above is gone, as far as another thread has grown it too.
    pub(super) fn heap_ends(&mut self, tid: Tid, end: u64) {
        let base = self.tasks.base_space(tid);
        let beside =
            self.tasks.threads.iter().filter(|(it, _)| self.tasks.base_space(**it) == base);
        let growing = beside.filter_map(|(_, thread)| thread.pending);
        let growing = growing.filter(|call| call.number == nr::BRK).map(|call| call.args[0]);
        let known = growing.chain(self.heap_end(tid)).max().unwrap_or(0);
        let gone = (end.saturating_add(4095) & !4095, known.saturating_add(4095) & !4095);
        if gone.0 < gone.1 && self.has_code(tid, gone) {
            self.code_gone(tid, gone);
        }
        self.note_heap_end(tid, end);
    }

    /// Finds out which code from `start` on is no longer mapped.
    pub(super) fn find_gone(&mut self, tid: Tid, start: u64) {
        let mappings = maps::read(tid);
        for side in self.all_sides(tid) {
            let Some((space, _)) = self.caches.side(side) else { continue };
            for range in space.gone(start, &mappings) {
                self.code_gone(tid, range);
            }
        }
    }

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
