//! Answers to exits of threads.

use lwp_dbt::{AppPc, RequestKind, Slot};
use lwp_ptrace::Tid;

use super::Backlog;
use crate::absent;
use crate::contexts::Context;
use crate::exit::{Exit, ThreadCx};
use crate::lwp::{ThreadLwp, report_kept};
use crate::machine::{Machine, Mode, Need, Processor};
use crate::syscalls::Effect;
use crate::x87::Pointers;

impl Machine {
    /// Answers the request in `slot`. Returns translations that are worth making in spare time.
    pub fn answer(&mut self, slot: usize, alone: bool) -> Option<Backlog> {
        let tid = *self.tasks.slots.get(slot)?;
        let thread = self.tasks.threads.get_mut(&tid)?;
        if thread.errand.need.is_some() {
            return None;
        }
        if matches!(thread.mode, Mode::Delivering { .. }) {
            // Its state has been handed to the kernel: a handler's return would ask for this again.
            thread.signals.put_off = true;
            return None;
        }
        if let Some(mut profiled) = self.tasks.profiled(&self.contexts, tid) {
            profiled.take_over();
        }
        let pc = Exit::pc(self.contexts.context(slot));
        self.profiling().lwp_settle_note(tid, None, pc.0);
        match Exit::decode(self.contexts.context(slot)) {
            Some(exit) => self.handle(ThreadCx { tid, slot, alone }, pc, exit),
            None => {
                self.forged(tid, "a request of no kind");
                None
            }
        }
    }

    /// Handles an exit at `pc`.
    fn handle(&mut self, cx: ThreadCx, pc: AppPc, exit: Exit) -> Option<Backlog> {
        if self.config.samples() {
            report_kept(&mut self.counting(), cx.tid);
        }
        match exit {
            Exit::Dispatch => self.dispatch(cx, pc, false),
            Exit::Indirect(stack) => {
                let entry = self.marking().returned(cx.tid, pc.0, stack);
                self.dispatch(cx, pc, entry)
            }
            Exit::Marker => self.marker(cx, pc),
            Exit::Stale => {
                self.stale(cx.tid, pc);
                self.dispatch(cx, pc, false)
            }
            Exit::Syscall => {
                self.syscall(cx.tid, cx.slot);
                None
            }
            Exit::SyscallDone => self.after_syscall(cx, pc),
            Exit::Cpuid(asked) => {
                let len =
                    self.processor.answer_for(self.contexts.context(cx.slot), RequestKind::Cpuid);
                self.remember_cpuid(cx.tid, cx.slot, asked);
                self.after_instruction(cx, pc, len)
            }
            Exit::Xgetbv => {
                let len =
                    self.processor.answer_for(self.contexts.context(cx.slot), RequestKind::Xgetbv);
                self.after_instruction(cx, pc, len)
            }
            Exit::Lwp(kind) => self.lwp_instruction(cx, kind),
            Exit::LwpDue => self.lwp_due(cx, pc),
            Exit::LwpNotes => self.lwp_notes_full(cx, pc),
            Exit::LwpStepped(taken) => self.after_cut(cx, pc, taken),
            Exit::Calls => {
                let pc = AppPc(self.calls_full(cx.tid, cx.slot)?);
                self.set_request(cx.slot, pc);
                self.dispatch(cx, pc, false)
            }
            Exit::Pointer(wide) => {
                if let Some(pointers) = Pointers::of(&self.tasks, &self.caches, cx.tid) {
                    pointers.put_stored_right(self.contexts.context(cx.slot), wide);
                }
                self.set_request(cx.slot, pc);
                self.dispatch(cx, pc, false)
            }
            Exit::Ends(code) => {
                self.counting().end_code(cx.tid, pc.0, code);
                self.dispatch(cx, pc, false)
            }
            Exit::Step => {
                self.ask_tracer(cx.tid, Need::Step);
                None
            }
        }
    }

    /// Turns a request into one for the translation of `pc`.
    fn set_request(&self, slot: usize, pc: AppPc) {
        let context = self.contexts.context(slot);
        context.set(Slot::Pc, pc.0);
        context.set(Slot::Kind, RequestKind::Dispatch as u64);
    }

    /// Goes on after a system call that the thread has made for the host.
    fn after_syscall(&mut self, cx: ThreadCx, pc: AppPc) -> Option<Backlog> {
        match self.syscall_done(cx.tid) {
            Effect::Opened(fd) => {
                absent::opened(cx.tid, fd);
                self.opened_for_writing(cx.tid, fd);
                if self.proc_files().shows_us(cx.tid, fd) {
                    self.ask_tracer(cx.tid, Need::Hide(fd));
                    return None;
                }
            }
            Effect::Written(call, bytes) if self.awaits_effect(cx.tid, &call, bytes) => {
                return None;
            }
            _ => {}
        }
        self.dispatch(cx, pc, false)
    }

    /// Goes on after the last instruction of a cut fragment.
    fn after_cut(&mut self, cx: ThreadCx, pc: AppPc, taken: bool) -> Option<Backlog> {
        self.set_request(cx.slot, pc);
        self.profiling().lwp_stepped(cx.tid, pc.0, taken);
        let each = self.tasks.lwp(cx.tid).is_some_and(ThreadLwp::reports_each_branch);
        match self.config.samples() || each {
            // What the cut fragment has led to may be taken at once.
            true => self.lwp_due(cx, pc),
            false => self.dispatch(cx, pc, false),
        }
    }

    /// Puts the answer to CPUID that is in the context where translated code finds it the next
    /// time.
    fn remember_cpuid(&mut self, tid: Tid, slot: usize, [leaf, subleaf]: [u32; 2]) {
        let context = self.contexts.context(slot);
        let answer = [Slot::Rax, Slot::Rbx, Slot::Rcx, Slot::Rdx].map(|at| context.get(at) as u32);
        let Some(known) = self.processor.cpu.known(leaf, subleaf, answer) else { return };
        if let Some((_, family)) = self.space_of(tid) {
            family.low_window.remember_cpuid(known);
        }
    }

    /// Goes on after an instruction of `len` bytes that has been carried out.
    pub fn after_instruction(&mut self, cx: ThreadCx, pc: AppPc, len: u64) -> Option<Backlog> {
        let next = pc.offset(len);
        self.set_request(cx.slot, next);
        self.dispatch(cx, next, false)
    }

    /// A fragment found its own bytes changed.
    fn stale(&mut self, tid: Tid, pc: AppPc) {
        let Some((space, family)) = self.space_of(tid) else { return };
        let Some((_, range)) = space.code_at(family, tid, pc.0) else { return };
        if family.modules[range.unit].unit.checks == lwp_dbt::Checks::SelfCheck {
            return family.invalidate_at(range.unit, tid, pc);
        }
        self.forged(tid, "changed code where none compares itself");
    }
}

impl Processor {
    /// Carries out CPUID or XGETBV on the registers in the context; returns the instruction's
    /// length.
    pub fn answer_for(&self, context: Context<'_>, kind: RequestKind) -> u64 {
        if kind == RequestKind::Xgetbv {
            let value = self.cpu.xcr0();
            context.set(Slot::Rax, value & 0xffff_ffff);
            context.set(Slot::Rdx, value >> 32);
            return 3;
        }
        let leaf = context.get(Slot::Rax) as u32;
        let out = self.cpu.cpuid(leaf, context.get(Slot::Rcx) as u32);
        for (field, value) in [Slot::Rax, Slot::Rbx, Slot::Rcx, Slot::Rdx].iter().zip(out) {
            context.set(*field, u64::from(value));
        }
        2
    }
}
