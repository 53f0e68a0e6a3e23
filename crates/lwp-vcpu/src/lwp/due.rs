//! An event is due: the instruction on which it expires is executed alone and reported.

use std::sync::Arc;

use iced_x86::Mnemonic;
use lwp_arch::Fault;
use lwp_arch::retired::BranchKind;
use lwp_dbt::block::{Block, Terminator};
use lwp_dbt::{AppPc, CachePc, Checks, EventDeltas, FragmentId, RequestKind, Slot};
use lwp_ptrace::Tid;
use lwp_ptrace::regs::Raw;

use super::known::DueFor;
use super::memory::TraceeMemory;
use super::sampler::asked_with;
use super::{Cut, Executed};
use crate::exit::ThreadCx;
use crate::machine::{Machine, Need};
use crate::server::Backlog;

impl Machine {
    /// The countdown ends in the block at `pc`, which has not begun.
    pub fn lwp_due(&mut self, cx: ThreadCx, pc: AppPc) -> Option<Backlog> {
        let ThreadCx { tid, slot, .. } = cx;
        self.lwp_collect(tid);
        self.filter_samples_at(tid, pc.0);
        self.contexts.context(slot).set(Slot::Kind, RequestKind::Dispatch as u64);
        let Some(block) = self.lwp_block(tid, pc) else {
            self.ask_tracer(tid, Need::Step);
            return None;
        };
        if self.watches() {
            return self.sample_due(cx, pc, &block);
        }
        let repeats =
            block.insns.is_empty() && matches!(block.terminator, Terminator::Repeat { .. });
        let index = self.lwp_due_index(tid, &block).or(repeats.then_some(0));
        if let Some(lwp) = self.tasks.threads.get_mut(&tid).and_then(|thread| thread.lwp.as_mut()) {
            lwp.lines = 1;
        }
        let Some(index) = index else {
            return self.dispatch(cx, pc, false);
        };
        // What precedes the instruction on which a fault would be met is executed first.
        let fault = self.lwp_would_fault(tid, &block, index);
        let alone_only = index as usize == block.insns.len() && !can_be_cut(&block);
        if index > 0 && (fault.is_some() || alone_only) {
            return self.lwp_cut(tid, slot, pc, index, None);
        }
        if let Some(fault) = fault {
            self.contexts.context(slot).set(Slot::Kind, RequestKind::LwpDue as u64);
            self.lwp_fault(tid, slot, fault);
            return None;
        }
        if alone_only {
            return self.lwp_emulate(cx, pc, &block);
        }
        let event =
            self.tasks.threads.get(&tid).and_then(|thread| thread.lwp.as_ref()?.due_for(&block));
        match event {
            Some(event) => self.lwp_cut_for(cx, pc, index + 1, event),
            None => self.lwp_cut(tid, slot, pc, index + 1, None),
        }
    }

    pub(super) fn lwp_block(&mut self, tid: Tid, pc: AppPc) -> Option<Arc<Block>> {
        let (space, family) = self.space_of(tid)?;
        let (start, range) = space.code_at(family, tid, pc.0)?;
        family.block(range.unit, tid, (start, range.end), pc, 0)
    }

    /// The instruction of `block` on which an event expires, if one does.
    fn lwp_due_index(&mut self, tid: Tid, block: &Block) -> Option<u32> {
        let lwp = self.tasks.threads.get(&tid)?.lwp.as_ref()?;
        let [high, low, _] = lwp.room();
        let selection = lwp.selection;
        let (by_high, by_low) = lwp_dbt::countdown_of(block, &selection);
        let last = block.instructions() - 1;
        let first = match selection.instructions {
            true => (i64::from(by_high) > high).then_some(high as u32),
            false => (i64::from(by_high) > high).then_some(last),
        };
        let second = (i64::from(by_low) > low).then_some(last);
        let due = first.into_iter().chain(second).min();
        if selection.dcache {
            // Any access may be the one on which an event expires: one instruction at a time.
            let misses = lwp.misses_within(&lwp.unit.headroom()) < lwp.lines;
            return due.or(misses.then_some(0)).map(|_| 0);
        }
        due
    }

    /// The fault that storing the records of instruction `index` would meet, found on a copy.
    fn lwp_would_fault(&mut self, tid: Tid, block: &Block, index: u32) -> Option<Fault> {
        let mut trial = {
            let lwp = self.tasks.threads.get_mut(&tid)?.lwp.as_mut()?;
            // The caches are large, and have no part in this.
            let (cache, judge) = (lwp.dcache.take(), lwp.judge.take());
            let trial = lwp.clone();
            (lwp.dcache, lwp.judge) = (cache, judge);
            trial
        };
        if trial.selection.instructions {
            trial.pass(u64::from(index), 0, 0);
        }
        let ip = instruction_pcs(block, index as usize + 1).last().copied()?;
        let kind = (index as usize == block.insns.len()).then(|| branch_kind(block)).flatten();
        let executed =
            Executed { branch: kind.map(|kind| (kind, true)), ..Executed::plain(ip, ip) };
        trial.retire(&mut TraceeMemory::dry(tid), &executed).err()
    }

    /// Leads the thread to a cut fragment of `most` instructions. `next_time` is what it may lead
    /// itself there for from then on, if anything.
    pub(super) fn lwp_cut(
        &mut self,
        tid: Tid,
        slot: usize,
        pc: AppPc,
        most: u32,
        next_time: Option<DueFor>,
    ) -> Option<Backlog> {
        let Some((block, head, lasts)) = self.lwp_make_cut(tid, slot, pc, most) else {
            self.ask_tracer(tid, Need::Step);
            return None;
        };
        if let Some(event) = next_time.filter(|_| lasts) {
            self.lwp_know_cut(tid, &block, head, event);
        }
        self.go(tid, slot, pc, head);
        None
    }

    /// The same, to the instruction on which `event` is due; the thread leads itself there where it
    /// can.
    fn lwp_cut_for(
        &mut self,
        cx: ThreadCx,
        pc: AppPc,
        most: u32,
        event: DueFor,
    ) -> Option<Backlog> {
        let ThreadCx { tid, slot, .. } = cx;
        let Some((block, head, lasts)) = self.lwp_make_cut(tid, slot, pc, most) else {
            self.ask_tracer(tid, Need::Step);
            return None;
        };
        if !lasts || !self.lwp_know_cut(tid, &block, head, event) {
            self.go(tid, slot, pc, head);
            return None;
        }
        // It knows the way now. What is left to do is that it finds what follows.
        self.take_cut(tid);
        self.lwp_make_ready(tid, &block);
        self.dispatch(cx, pc, false)
    }

    /// A cut fragment of `most` instructions, which the thread is about to be led to: what it
    /// executes, where it begins, and whether it stays valid.
    fn lwp_make_cut(
        &mut self,
        tid: Tid,
        slot: usize,
        pc: AppPc,
        most: u32,
    ) -> Option<(Arc<Block>, CachePc, bool)> {
        let (space, family) = self.space_of(tid)?;
        let (start, range) = space.code_at(family, tid, pc.0)?;
        let bounds = (start, range.end);
        let block = family.block(range.unit, tid, bounds, pc, most as usize)?;
        let (head, fragment) = family.cut(range.unit, tid, bounds, pc, most as usize)?;
        let lasts = family.module(range.unit).unit.checks == Checks::None;
        let mut deltas = lwp_dbt::deltas_of(&block);
        // Elsewhere the host executes it and counts; here translated code does.
        deltas.instructions += i32::from(block.terminator == Terminator::Repeat { walked: false });
        if let Some(thread) = self.tasks.threads.get_mut(&tid)
            && let Some(lwp) = &mut thread.lwp
        {
            lwp.cut = Some(Cut {
                fragment,
                pcs: instruction_pcs(&block, block.instructions() as usize),
                next: block.next().0,
                branch: branch_kind(&block),
                deltas,
            });
            lwp.allow_notes(self.contexts.context(slot));
        }
        Some((block, head, lasts))
    }

    /// Lets a thread that ends `block` in a cut fragment find what follows in the indirect table.
    fn lwp_make_ready(&mut self, tid: Tid, block: &Block) {
        let next = block.next();
        let follows = match block.terminator {
            Terminator::Jump { target } | Terminator::Call { target } => [Some(target), None],
            Terminator::Conditional { target, .. } | Terminator::CountedLoop { target } => {
                [Some(target), Some(next)]
            }
            Terminator::Fall => [Some(next), None],
            _ => [None, None],
        };
        for pc in follows.into_iter().flatten() {
            self.make_entry(tid, pc);
        }
    }

    /// Executes the one instruction at `pc` that only the host can, and reports it.
    fn lwp_emulate(&mut self, cx: ThreadCx, pc: AppPc, block: &Block) -> Option<Backlog> {
        let ThreadCx { tid, slot, .. } = cx;
        let kind = match block.terminator {
            Terminator::Emulate { kind: kind @ (RequestKind::Cpuid | RequestKind::Xgetbv) } => kind,
            _ => {
                self.contexts.context(slot).set(Slot::Kind, RequestKind::Step as u64);
                self.ask_tracer(tid, Need::Step);
                return None;
            }
        };
        self.answer_for_processor(slot, kind);
        if let Some(thread) = self.tasks.threads.get_mut(&tid) {
            thread.account.correction.add(lwp_dbt::deltas_of(block), 1);
        }
        self.note_place(tid, |places| places.stepped(pc.0, 1));
        let next = block.next();
        self.lwp_retire(tid, &Executed::plain(pc.0, next.0));
        self.lwp_publish(tid);
        self.after_instruction(cx, pc, next.0 - pc.0)
    }

    /// The last instruction of a cut fragment has retired and control is at `next`.
    pub fn lwp_stepped(&mut self, tid: Tid, next: u64, taken: bool) {
        // LWPVAL counts for itself, also in a cut fragment.
        self.lwp_repeated(tid, None);
        self.lwp_collect_but(tid, self.lwp_end_of_cut(tid));
        let Some(cut) = self.take_cut(tid) else { return };
        let Some(&last) = cut.pcs.last() else { return };
        let mut deltas = cut.deltas;
        if !taken {
            deltas.conditional_taken = 0;
        }
        self.lwp_pass_cut(tid, cut.pcs.len() as u32 - 1, deltas);
        self.lwp_note_cut(tid, &cut.pcs[..(deltas.instructions as usize).min(cut.pcs.len())]);
        self.note_place(tid, |places| places.jumped(last, next, deltas));
        let branch = cut.branch.map(|kind| (kind, taken));
        let fall_through = cut.next;
        self.lwp_retire(tid, &Executed { branch, fall_through, ..Executed::plain(last, next) });
        if self.samples()
            && let Some(context) = self.context(tid)
        {
            self.take_overdue(tid, asked_with(context, last));
        }
        self.lwp_publish(tid);
    }

    /// A cut fragment was left after `executed` instructions and will not be gone on with.
    pub fn lwp_abandon_cut(&mut self, tid: Tid, executed: u32, rip: u64) {
        let Some(cut) =
            self.tasks.threads.get(&tid).and_then(|thread| thread.lwp.as_ref()?.cut.as_ref())
        else {
            return;
        };
        if executed as usize >= cut.pcs.len() {
            let taken =
                cut.branch.is_some_and(|kind| kind != BranchKind::Conditional || rip != cut.next);
            self.lwp_stepped(tid, rip, taken);
            return;
        }
        self.lwp_collect(tid);
        let pcs = self.take_cut(tid).map(|cut| cut.pcs).unwrap_or_default();
        let deltas = EventDeltas { instructions: executed as i32, ..EventDeltas::default() };
        self.lwp_pass_cut(tid, executed, deltas);
        self.lwp_note_cut(tid, &pcs[..(executed as usize).min(pcs.len())]);
        self.lwp_publish(tid);
    }

    /// The number of instructions in the cut fragment that the thread is in, and whether `fragment`
    /// is it.
    pub fn lwp_cut_of(&self, tid: Tid, fragment: Option<FragmentId>) -> Option<(u32, bool)> {
        let cut = self.tasks.threads.get(&tid)?.lwp.as_ref()?.cut.as_ref()?;
        Some((cut.pcs.len() as u32, fragment == Some(cut.fragment)))
    }

    /// The pc of the instruction that the thread's cut fragment ends with.
    fn lwp_end_of_cut(&self, tid: Tid) -> Option<u64> {
        self.tasks.threads.get(&tid)?.lwp.as_ref()?.cut.as_ref()?.pcs.last().copied()
    }

    /// A repeated string instruction at the end of a cut fragment, if it has begun, has come as far
    /// as `regs` say, or as the context says where it is left out.
    pub(super) fn lwp_repeated(&mut self, tid: Tid, regs: Option<&Raw>) {
        let pc = self.lwp_end_of_cut(tid);
        if let Some(pc) = pc {
            self.filter_samples_at(tid, pc);
        }
        if let Some(thread) = self.tasks.threads.get_mut(&tid)
            && let Some(lwp) = &mut thread.lwp
            && let Some(pc) = pc
        {
            let context = self.contexts.context(thread.slot);
            let now = match regs {
                Some(regs) => [regs.rcx, regs.rsi, regs.rdi],
                None => [Slot::Rcx, Slot::Rsi, Slot::Rdi].map(|slot| context.get(slot)),
            };
            lwp.repeated(tid, context, pc, now);
        }
    }

    fn take_cut(&mut self, tid: Tid) -> Option<Cut> {
        self.tasks.threads.get_mut(&tid)?.lwp.as_mut()?.cut.take()
    }

    /// `instructions` of a cut fragment have passed; it counts `deltas` in all.
    fn lwp_pass_cut(&mut self, tid: Tid, instructions: u32, deltas: EventDeltas) {
        let Some(thread) = self.tasks.threads.get_mut(&tid) else { return };
        thread.account.correction.add(deltas, 1);
        let Some(lwp) = &mut thread.lwp else { return };
        // Nothing has been dealt out since the cut was made, so nothing else has passed.
        if lwp.selection.instructions {
            lwp.pass(u64::from(instructions), 0, 0);
        }
    }

    /// Instructions of a cut fragment have been executed; the profile counts them one by one.
    fn lwp_note_cut(&mut self, tid: Tid, pcs: &[u64]) {
        self.note_place(tid, |places| pcs.iter().for_each(|pc| places.stepped(*pc, 1)));
    }

    /// Notes that the instructions before an LWP instruction at the end of a cut fragment have
    /// passed. Returns true if it stands at the end of one.
    pub(super) fn lwp_reach_end_of_cut(&mut self, tid: Tid) -> bool {
        let Some((instructions, _)) = self.lwp_cut_of(tid, None) else { return false };
        if instructions > 1 {
            let before = instructions - 1;
            let deltas = EventDeltas { instructions: before as i32, ..EventDeltas::default() };
            self.lwp_pass_cut(tid, before, deltas);
            if let Some(thread) = self.tasks.threads.get_mut(&tid)
                && let Some(cut) = thread.lwp.as_mut().and_then(|lwp| lwp.cut.as_mut())
            {
                let passed: Vec<u64> = cut.pcs.drain(..before as usize).collect();
                cut.deltas.instructions = 1;
                self.lwp_note_cut(tid, &passed);
            }
        }
        true
    }
}

/// Returns whether the block's terminator can be the last instruction of a cut fragment.
fn can_be_cut(block: &Block) -> bool {
    !matches!(
        block.terminator,
        Terminator::Syscall { .. }
            | Terminator::Emulate { .. }
            | Terminator::StateSave
            | Terminator::StorePointer
            | Terminator::Step
    )
}

/// Addresses of the first `count` instructions.
fn instruction_pcs(block: &Block, count: usize) -> Vec<u64> {
    let offsets = block.insns.iter().map(|insn| u64::from(insn.offset));
    let last = std::iter::once(u64::from(block.terminator_offset));
    offsets.chain(last).take(count).map(|offset| block.pc.0 + offset).collect()
}

pub(super) fn branch_kind(block: &Block) -> Option<BranchKind> {
    Some(match block.terminator {
        Terminator::Conditional { .. } | Terminator::CountedLoop { .. } => BranchKind::Conditional,
        Terminator::Jump { .. } => BranchKind::DirectJump,
        Terminator::Call { .. } => BranchKind::DirectCall,
        Terminator::IndirectJump => BranchKind::IndirectJump,
        Terminator::IndirectCall => BranchKind::IndirectCall,
        Terminator::Return { .. } => BranchKind::Return,
        _ => return None,
    })
}

/// Returns whether an instruction enters or leaves user mode.
pub(super) fn crosses_privilege(mnemonic: Mnemonic) -> bool {
    use Mnemonic::{Int, Int1, Int3, Into, Iret, Iretd, Iretq, Syscall, Sysenter, Sysexit, Sysret};
    matches!(
        mnemonic,
        Int | Int1 | Int3 | Into | Iret | Iretd | Iretq | Syscall | Sysenter | Sysexit | Sysret
    )
}
