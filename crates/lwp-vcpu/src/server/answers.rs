//! Answers to exits of threads from translated code.

use lwp_calls::syscalls::Effect;
use lwp_dbt::{AppPc, CachePc, RequestKind, Slot};
use lwp_mailbox::contexts::Context;
use lwp_mailbox::exit::{Exit, ThreadCx};
use lwp_process::Tid;

use super::Backlog;
use super::syscall_done;
use crate::control_line::awaits_effect;
use crate::lwp::{ThreadLwp, report_kept};
use crate::machine::{Machine, Mode, Need, Processor};
use crate::measured_contexts::Stand;
use crate::proc_files::prepare_text;
use crate::state::known_pc;
use crate::unfilled_code;
use crate::written_files::opened_for_writing;
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
        let context = self.contexts.context(slot);
        let pc = Exit::pc(context);
        // What ends the block, and may be what was noted, has not been executed then.
        if !matches!(context.kind(), RequestKind::Calls | RequestKind::Transfers) {
            self.profiling().lwp_settle_note(tid, None, pc.0);
        }
        match Exit::decode(self.contexts.context(slot)) {
            Some(exit) => {
                let cx = ThreadCx { tid, slot, alone };
                Answer { machine: self, cx }.handle(pc, exit)
            }
            None => {
                self.forged(tid, "a request of no kind");
                None
            }
        }
    }
}

/// The answer to a request of a thread, which waits for it.
#[derive(Debug)]
pub struct Answer<'m> {
    /// The machine.
    pub machine: &'m mut Machine,
    /// The thread.
    pub cx: ThreadCx,
}

impl Answer<'_> {
    /// Returns the thread's context.
    pub fn context(&self) -> Context<'_> {
        self.machine.contexts.context(self.cx.slot)
    }

    /// Handles an exit at `pc`.
    fn handle(&mut self, pc: AppPc, exit: Exit) -> Option<Backlog> {
        if self.machine.config.samples() {
            report_kept(&mut self.machine.counting(), self.cx.tid);
        }
        match exit {
            Exit::Dispatch => self.dispatch(pc, false),
            Exit::Indirect(stack) => {
                let entry = self.machine.marking().returned(self.cx.tid, pc.0, stack);
                self.dispatch(pc, entry)
            }
            Exit::Marker => self.marker(pc),
            Exit::Stale => {
                stale(self.machine, self.cx.tid, pc);
                self.dispatch(pc, false)
            }
            Exit::Syscall => {
                self.syscall();
                None
            }
            Exit::SyscallDone => self.after_syscall(pc),
            Exit::Cpuid(asked) => {
                let len = self.machine.processor.answer_for(self.context(), RequestKind::Cpuid);
                self.remember_cpuid(asked);
                self.after_instruction(pc, len)
            }
            Exit::Xgetbv => {
                let len = self.machine.processor.answer_for(self.context(), RequestKind::Xgetbv);
                self.after_instruction(pc, len)
            }
            Exit::Lwp(kind) => self.lwp_instruction(kind),
            Exit::LwpDue => self.lwp_due(pc),
            Exit::LwpNotes => self.lwp_notes_full(pc),
            Exit::LwpStepped(taken) => self.after_cut(pc, taken),
            Exit::Calls => {
                let pc = AppPc(self.calls_full()?);
                set_request(self.context(), pc);
                self.dispatch(pc, false)
            }
            Exit::Transfers => {
                self.prepare_transfer();
                None
            }
            Exit::Pointer(wide) => {
                if let Some(pointers) =
                    Pointers::of(&self.machine.tasks, &self.machine.caches, self.cx.tid)
                {
                    pointers.put_stored_right(self.context(), wide);
                }
                set_request(self.context(), pc);
                self.dispatch(pc, false)
            }
            Exit::Ends(code) => {
                self.machine.counting().end_code(self.cx.tid, pc.0, code);
                self.dispatch(pc, false)
            }
            Exit::Step => {
                self.machine.ask_tracer(self.cx.tid, Need::Step);
                None
            }
        }
    }

    /// Does what a thread cannot do that makes a transfer to another function, and has it try again.
    fn prepare_transfer(&mut self) {
        let tid = self.cx.tid;
        let after = CachePc(self.context().get(Slot::CallAfter));
        let Some(pc) = self.machine.space_of(tid).and_then(|(_, family)| known_pc(family, after))
        else {
            return self.machine.forged(tid, "a place where no transfer is made");
        };
        let (stack, target) = (self.context().get(Slot::Rsp), self.context().get(Slot::CallTarget));
        self.machine.counting().prepare_transfer(tid, pc, Stand { stack, target });
        self.context().set(Slot::Pc, pc);
        self.go_from(RequestKind::Transfers, AppPc(pc), after);
    }

    /// Goes on after a system call that the thread has made for the host.
    fn after_syscall(&mut self, pc: AppPc) -> Option<Backlog> {
        match syscall_done(self.machine, self.cx.tid) {
            Effect::Opened(fd) => {
                unfilled_code::opened(self.cx.tid, fd);
                opened_for_writing(self.machine, self.cx.tid, fd);
                if self.machine.proc_files().shows_us(self.cx.tid, fd) {
                    prepare_text(self.machine, self.cx.tid, fd);
                    return None;
                }
            }
            Effect::Written(call, bytes)
                if awaits_effect(self.machine, self.cx.tid, &call, bytes) =>
            {
                return None;
            }
            _ => {}
        }
        self.dispatch(pc, false)
    }

    /// Goes on after the last instruction of a cut fragment.
    fn after_cut(&mut self, pc: AppPc, taken: bool) -> Option<Backlog> {
        set_request(self.context(), pc);
        let stack = self.context().get(Slot::Rsp);
        self.machine.profiling().lwp_stepped(self.cx.tid, (pc.0, stack), taken);
        let each = self.machine.tasks.lwp(self.cx.tid).is_some_and(ThreadLwp::reports_each_branch);
        match self.machine.config.samples() || each {
            // What the cut fragment has led to may be taken at once.
            true => self.lwp_due(pc),
            false => self.dispatch(pc, false),
        }
    }

    /// Puts the answer to CPUID that is in the context where translated code finds it the next
    /// time.
    fn remember_cpuid(&mut self, [leaf, subleaf]: [u32; 2]) {
        let tid = self.cx.tid;
        let context = self.context();
        let answer = [Slot::Rax, Slot::Rbx, Slot::Rcx, Slot::Rdx].map(|at| context.get(at) as u32);
        let Some(known) = self.machine.processor.cpu.known(leaf, subleaf, answer) else { return };
        if let Some((_, family)) = self.machine.space_of(tid) {
            family.low_window.remember_cpuid(known);
        }
    }

    /// Goes on after an instruction of `len` bytes that has been carried out.
    pub fn after_instruction(&mut self, pc: AppPc, len: u64) -> Option<Backlog> {
        let next = pc.offset(len);
        set_request(self.context(), next);
        self.dispatch(next, false)
    }
}

/// A fragment found its own bytes changed.
fn stale(machine: &mut Machine, tid: Tid, pc: AppPc) {
    let Some((space, family)) = machine.space_of(tid) else { return };
    let Some((_, range)) = space.code_at(family, tid, pc.0) else { return };
    if family.modules[range.unit].unit.checks == lwp_dbt::Checks::SelfCheck {
        return family.invalidate_at(range.unit, tid, pc);
    }
    machine.forged(tid, "changed code where none compares itself");
}

/// Turns a request into one for the translation of `pc`.
fn set_request(context: Context<'_>, pc: AppPc) {
    context.set(Slot::Pc, pc.0);
    context.set(Slot::Kind, RequestKind::Dispatch as u64);
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
        let out = self.cpuid(leaf, context.get(Slot::Rcx) as u32);
        for (field, value) in [Slot::Rax, Slot::Rbx, Slot::Rcx, Slot::Rdx].iter().zip(out) {
            context.set(*field, u64::from(value));
        }
        2
    }
}
