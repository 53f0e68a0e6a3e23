//! An event is due: executes the instruction on which it expires by itself, and reports it.

use std::sync::Arc;

use iced_x86::Mnemonic;
use lwp_arch::retired::BranchKind;
use lwp_arch::{AppPc as Ip, Fault};
use lwp_code::family::Family;
use lwp_code::space::Space;
use lwp_dbt::block::{Block, Terminator};
use lwp_dbt::{AppPc, CachePc, Checks, EventDeltas, FragmentId, RegionLimits, RequestKind, Slot};
use lwp_model::LinearMemory;
use lwp_process::Tid;
use lwp_process::regs::Raw;

use super::Profiling;
use super::known::DueFor;
use super::memory::TraceeMemory;
use super::sampler::asked_with;
use super::{Cut, Executed, Profiled, ThreadLwp};
use crate::machine::{Need, Observers, Thread};
use crate::measured_contexts::Branched;
use crate::profile::Executions;
use crate::server::{Answer, Backlog};

/// Instructions of a block in which a thread learns the way to all samples at once, at most.
const FEW: u32 = 16;

impl Answer<'_> {
    /// The countdown ends in the block at `pc`, which has not begun.
    pub fn lwp_due(&mut self, pc: AppPc) -> Option<Backlog> {
        let tid = self.cx.tid;
        self.machine.tasks.lwp_collect(&self.machine.contexts, tid);
        if self.machine.tasks.lwp(tid).is_some_and(ThreadLwp::is_off) {
            self.context().set(Slot::Kind, RequestKind::Dispatch as u64);
            return self.lwp_switch(pc);
        }
        if let Some(profiled) = self.machine.tasks.profiled(&self.machine.contexts, tid) {
            profiled.make_room();
        }
        self.machine.tasks.filter_samples_at(&self.machine.config, &self.machine.caches, tid, pc.0);
        self.context().set(Slot::Kind, RequestKind::Dispatch as u64);
        let block =
            self.machine.space_of(tid).and_then(|(space, family)| block_at(space, family, tid, pc));
        let Some(block) = block else {
            self.machine.ask_tracer(tid, Need::Step);
            return None;
        };
        if self.machine.config.watches() {
            return self.sample_due(pc, &block);
        }
        let repeats =
            block.insns.is_empty() && matches!(block.terminator, Terminator::Repeat { .. });
        let mut lwp = self.machine.tasks.lwp_mut(tid);
        let due = lwp.as_ref().and_then(|lwp| lwp.due_index(&block));
        if let Some(lwp) = &mut lwp {
            lwp.cache.expect_nothing();
        }
        let Some(index) = due.or(repeats.then_some(0)) else {
            return self.dispatch(pc, false);
        };
        // What precedes the instruction on which a fault would be met is executed first.
        let fault = lwp.and_then(|lwp| lwp.would_fault(&mut TraceeMemory::dry(tid), &block, index));
        let alone_only = index as usize == block.insns.len() && !can_be_cut(&block);
        if index > 0 && (fault.is_some() || alone_only) {
            return self.lwp_cut(pc, index, None);
        }
        if let Some(fault) = fault {
            if let Some(lwp) = self.machine.tasks.lwp_mut(tid) {
                lwp.unit.model.await_restart(Ip(pc.0));
            }
            self.machine.tasks.lwp_publish(&self.machine.contexts, tid);
            self.context().set(Slot::Kind, RequestKind::LwpDue as u64);
            self.lwp_fault(fault);
            return None;
        }
        if let Some(lwp) = self.machine.tasks.lwp_mut(tid) {
            lwp.touched = 0;
        }
        if alone_only {
            return self.lwp_emulate(pc, &block);
        }
        match self.machine.tasks.lwp(tid).and_then(|lwp| lwp.due_for(&block)) {
            Some(event) => self.lwp_cut_for(pc, index + 1, event),
            None => self.lwp_cut(pc, index + 1, None),
        }
    }

    /// Leads the thread to a cut fragment of `most` instructions. `next_time` is what it may lead
    /// itself there for from then on, if anything.
    pub fn lwp_cut(&mut self, pc: AppPc, most: u32, next_time: Option<DueFor>) -> Option<Backlog> {
        let tid = self.cx.tid;
        let Some(cut) = self.machine.profiling().lwp_make_cut(tid, pc, most) else {
            self.machine.ask_tracer(tid, Need::Step);
            return None;
        };
        if let Some(event) = next_time {
            self.machine.profiling().lwp_know_cut(tid, &cut, None, event);
        }
        self.go(pc, cut.head);
        None
    }

    /// Sends the thread to a cut fragment that ends with the instruction on which `event` is due;
    /// the next time, the thread goes there by itself if it can.
    fn lwp_cut_for(&mut self, pc: AppPc, most: u32, event: DueFor) -> Option<Backlog> {
        let tid = self.cx.tid;
        let Some(cut) = self.machine.profiling().lwp_make_cut(tid, pc, most) else {
            self.machine.ask_tracer(tid, Need::Step);
            return None;
        };
        if !self.machine.profiling().lwp_know_cut(tid, &cut, None, event) {
            self.go(pc, cut.head);
            return None;
        }
        // It knows the way now. What is left to do is that it finds what follows.
        if let Some(lwp) = self.machine.tasks.lwp_mut(tid) {
            lwp.cut = None;
        }
        follows(&cut.block).into_iter().flatten().for_each(|pc| self.make_entry(pc));
        self.dispatch(pc, false)
    }

    /// Executes the one instruction at `pc` that only the host can, and reports it.
    fn lwp_emulate(&mut self, pc: AppPc, block: &Block) -> Option<Backlog> {
        let tid = self.cx.tid;
        let kind = match block.terminator {
            Terminator::Emulate { kind: kind @ (RequestKind::Cpuid | RequestKind::Xgetbv) } => kind,
            _ => {
                self.context().set(Slot::Kind, RequestKind::Step as u64);
                self.machine.ask_tracer(tid, Need::Step);
                return None;
            }
        };
        self.machine.processor.answer_for(self.context(), kind);
        if let Some(thread) = self.machine.tasks.threads.get_mut(&tid) {
            thread.account.correction.add(lwp_dbt::deltas_of(block), 1);
        }
        self.machine.counting().pass_corrections(tid);
        self.machine
            .observers
            .note_place(&mut self.machine.tasks, tid, |places| places.stepped(pc.0, 1));
        let next = block.next();
        self.machine.profiling().lwp_retire(tid, &Executed::plain(pc.0, next.0));
        self.machine.tasks.lwp_publish(&self.machine.contexts, tid);
        self.after_instruction(pc, next.0 - pc.0)
    }
}

/// Lets the thread lead itself to the sample that is due before the instruction behind `most`
/// others of `block`, at `pc`, and keep it. Other samples will be due in the block: it learns the
/// way to all of them at once, if they are few.
pub(super) fn lead_to_kept(
    answer: &mut Answer<'_>,
    pc: AppPc,
    most: u32,
    block: &Block,
) -> Option<Backlog> {
    let tid = answer.cx.tid;
    let others = block.insns.len() as u32;
    for other in (1..=others).filter(|other| *other != most && others <= FEW) {
        know_way_to_sample(answer, pc, other);
    }
    let Some((cut, known)) = know_way_to_sample(answer, pc, most) else {
        answer.machine.ask_tracer(tid, Need::Step);
        return None;
    };
    if !known {
        answer.go(pc, cut.head);
        return None;
    }
    if let Some(lwp) = answer.machine.tasks.lwp_mut(tid) {
        lwp.cut = None;
    }
    answer.dispatch(pc, false)
}

/// Makes the cut fragment of `most` instructions at `pc`, and lets the thread lead itself there.
/// Returns it, and whether the thread can, and could not before.
fn know_way_to_sample(answer: &mut Answer<'_>, pc: AppPc, most: u32) -> Option<(Led, bool)> {
    let tid = answer.cx.tid;
    let cut = answer.machine.profiling().lwp_make_cut(tid, pc, most)?;
    // Not by the table: an entry for each sampled instruction would stand before those that
    // branches look for.
    let limits = RegionLimits::fragments(1);
    let next = answer.translation(cut.block.next(), false, limits).map(|(head, _)| head);
    let known = answer.machine.profiling().lwp_know_cut(tid, &cut, next, DueFor::Sample);
    Some((cut, known))
}

impl Profiling<'_> {
    fn lwp_make_cut(&mut self, tid: Tid, pc: AppPc, most: u32) -> Option<Led> {
        let side = self.caches.side(self.tasks.space_index(tid)?)?;
        self.tasks.profiled(self.contexts, tid)?.make_cut(side, tid, pc, most)
    }

    /// Lets a thread lead itself to the cut fragment that it has been led to. False where it
    /// cannot, or could before.
    fn lwp_know_cut(&mut self, tid: Tid, cut: &Led, next: Option<CachePc>, event: DueFor) -> bool {
        // What cut fragments execute is counted by the host, where it is. Samples lead to it
        // anyway.
        let counted = self.observers.plan_of_code(self.config) != lwp_dbt::Plan::Plain
            || self.observers.profiler.is_some();
        if !cut.lasts || counted && event != DueFor::Sample {
            return false;
        }
        let Some(side) = self.tasks.space_index(tid) else { return false };
        let profiled = self.tasks.profiled(self.contexts, tid);
        profiled.is_some_and(|mut it| it.know_cut(side, &cut.block, (cut.head, next), event))
    }

    /// The last instruction of a cut fragment has retired and control is at `next`.
    /// The stack pointer is `stack`.
    pub fn lwp_stepped(&mut self, tid: Tid, (next, stack): (u64, u64), taken: bool) {
        // LWPVAL counts for itself, also in a cut fragment.
        self.lwp_repeated(tid, None);
        let Some(mut profiled) = self.tasks.profiled(self.contexts, tid) else { return };
        profiled.collect_but(profiled.lwp.end_of_cut());
        let Some(cut) = profiled.lwp.cut.take() else { return };
        let Some(&last) = cut.pcs.last() else { return };
        let mut deltas = cut.deltas;
        if !taken {
            deltas.conditional_taken = 0;
        }
        if let Some(thread) = self.tasks.threads.get_mut(&tid) {
            thread.leave_cut(self.observers, &cut.pcs, cut.pcs.len() as u32 - 1, deltas);
        }
        self.observers.note_place(self.tasks, tid, |places| places.jumped(last, next, deltas));
        let (kind, released) = (cut.branch.filter(|_| taken), cut.released);
        self.counting().branched(tid, Branched { kind, at: last, target: next, stack, released });
        let branch = cut.branch.map(|kind| (kind, taken));
        let fall_through = cut.next;
        self.lwp_retire(tid, &Executed { branch, fall_through, ..Executed::plain(last, next) });
        if self.config.samples()
            && let Some(registers) = self.context(tid).map(|it| asked_with(it, last))
        {
            self.counting().take_overdue(tid, registers);
        }
        self.tasks.lwp_publish(self.contexts, tid);
    }

    /// A cut fragment was left after `executed` instructions, with this pc and stack pointer, and
    /// will not be gone on with.
    pub fn lwp_abandon_cut(&mut self, tid: Tid, executed: u32, (rip, stack): (u64, u64)) {
        let Some(cut) = self.tasks.lwp(tid).and_then(|lwp| lwp.cut.as_ref()) else { return };
        if executed as usize >= cut.pcs.len() {
            let taken =
                cut.branch.is_some_and(|kind| kind != BranchKind::Conditional || rip != cut.next);
            self.lwp_stepped(tid, (rip, stack), taken);
            return;
        }
        self.tasks.lwp_collect(self.contexts, tid);
        let cut = self.tasks.lwp_mut(tid).and_then(|lwp| lwp.cut.take());
        let pcs = cut.map(|cut| cut.pcs).unwrap_or_default();
        let deltas = EventDeltas { instructions: executed as i32, ..EventDeltas::default() };
        if let Some(thread) = self.tasks.threads.get_mut(&tid) {
            thread.leave_cut(self.observers, &pcs, executed, deltas);
        }
        self.counting().pass_corrections(tid);
        self.tasks.lwp_publish(self.contexts, tid);
    }

    /// A repeated string instruction at the end of a cut fragment, if it has begun, has come as far
    /// as `regs` say, or as the context says where it is left out.
    pub(super) fn lwp_repeated(&mut self, tid: Tid, regs: Option<&Raw>) {
        if let Some(pc) = self.tasks.lwp(tid).and_then(ThreadLwp::end_of_cut) {
            self.tasks.filter_samples_at(self.config, self.caches, tid, pc);
        }
        if let Some(mut profiled) = self.tasks.profiled(self.contexts, tid) {
            profiled.repeated(tid, regs);
        }
    }
}

/// Returns the block at `pc` of an address space.
pub(super) fn block_at(
    space: &mut Space,
    family: &mut Family,
    tid: Tid,
    pc: AppPc,
) -> Option<Arc<Block>> {
    let (start, range) = space.code_at(family, tid, pc.0)?;
    family.block(range.unit, tid, (start, range.end), pc, 0)
}

/// A cut fragment that a thread is about to be led to.
struct Led {
    /// The instructions that it executes.
    block: Arc<Block>,
    /// Its beginning.
    head: CachePc,
    /// It stays valid.
    lasts: bool,
}

impl Profiled<'_, '_> {
    /// Makes the cut fragment of `most` instructions at `pc` of the thread's address space, which
    /// the thread is about to be led to.
    fn make_cut(
        self,
        (space, family): (&mut Space, &mut Family),
        tid: Tid,
        pc: AppPc,
        most: u32,
    ) -> Option<Led> {
        let (start, range) = space.code_at(family, tid, pc.0)?;
        let bounds = (start, range.end);
        let mut block = family.block(range.unit, tid, bounds, pc, most as usize)?;
        let lasts = match family.modules[range.unit].unit.checks {
            Checks::None | Checks::Notified => true,
            // All threads forget their cuts before guarded code is written to.
            Checks::SelfCheck => {
                let code = space.code_to_translate(start, range);
                let guarded = code.is_guarded(pc.0, block.bytes.len());
                if guarded {
                    // It may have been written to between reading it and guarding it.
                    block = family.block(range.unit, tid, bounds, pc, most as usize)?;
                }
                guarded
            }
        };
        let (head, fragment) = family.cut(range.unit, tid, bounds, pc, most as usize)?;
        self.lwp.cut = Some(Cut::of(&block, fragment));
        self.lwp.allow_notes(self.context);
        Some(Led { block, head, lasts })
    }
}

impl Cut {
    /// The cut fragment that executes `block`.
    fn of(block: &Block, fragment: FragmentId) -> Self {
        let mut deltas = lwp_dbt::deltas_of(block);
        // Elsewhere the host executes it and counts; here translated code does.
        deltas.instructions += i32::from(block.terminator == Terminator::Repeat { walked: false });
        Self {
            fragment,
            pcs: instruction_pcs(block, block.instructions() as usize),
            next: block.next().0,
            branch: branch_kind(block),
            released: match block.terminator {
                Terminator::Return { release } => release.into(),
                _ => 0,
            },
            deltas,
        }
    }
}

impl ThreadLwp {
    /// The instruction of `block` on which an event expires, if one does.
    fn due_index(&self, block: &Block) -> Option<u32> {
        let due = self.countdown.due_index(self.room(), block);
        if self.selection().dcache {
            // Any access may be the one on which an event expires: one instruction at a time.
            let misses = self.unit.room_for_misses() < self.cache.lines();
            return due.or(misses.then_some(0)).map(|_| 0);
        }
        due
    }

    /// The fault that storing the records of instruction `index` would meet, found on a copy, in
    /// `memory`, which nothing is to be written to.
    fn would_fault<M: LinearMemory>(
        &self,
        memory: &mut M,
        block: &Block,
        index: u32,
    ) -> Option<Fault> {
        let selection = self.selection();
        let mut trial = self.unit.trial();
        if selection.instructions {
            trial.pass(true, [u64::from(index), 0, 0], 0);
        }
        let ip = instruction_pcs(block, index as usize + 1).last().copied()?;
        let kind = (index as usize == block.insns.len()).then(|| branch_kind(block)).flatten();
        let executed =
            Executed { branch: kind.map(|kind| (kind, true)), ..Executed::plain(ip, ip) };
        trial.retire(memory, &executed, self.cache.waiting(), &selection).err()
    }

    /// The number of instructions in the cut fragment that the thread is in, and whether `fragment`
    /// is it.
    pub fn cut_of(&self, fragment: Option<FragmentId>) -> Option<(u32, bool)> {
        let cut = self.cut.as_ref()?;
        Some((cut.pcs.len() as u32, fragment == Some(cut.fragment)))
    }

    /// The pc of the instruction that the thread's cut fragment ends with.
    pub(super) fn end_of_cut(&self) -> Option<u64> {
        self.cut.as_ref()?.pcs.last().copied()
    }
}

impl Thread {
    /// `instructions` of a cut fragment have passed; it counts `deltas` in all.
    fn pass_cut(&mut self, instructions: u32, deltas: EventDeltas) {
        self.account.correction.add(deltas, 1);
        let Some(lwp) = &mut self.lwp else { return };
        // Nothing has been dealt out since the cut was made, so nothing else has passed.
        if lwp.selection().instructions {
            lwp.pass(u64::from(instructions), 0, 0);
        }
    }

    /// The thread has left a cut fragment with these instructions, of which so many have passed: it
    /// counts `deltas` in all. The profile counts its instructions one by one.
    fn leave_cut(&mut self, observers: &Observers, pcs: &[u64], passed: u32, deltas: EventDeltas) {
        self.pass_cut(passed, deltas);
        let executed = &pcs[..(deltas.instructions as usize).min(pcs.len())];
        observers.note_in(self, |places| stepped(places, executed));
    }

    /// Notes that the instructions before an LWP instruction at the end of a cut fragment have
    /// passed. Returns true if it stands at the end of one.
    pub(super) fn reach_end_of_cut(&mut self, observers: &Observers) -> bool {
        let cut = self.lwp.as_mut().and_then(|lwp| lwp.cut.as_mut());
        let Some(cut) = cut else { return false };
        let before = (cut.pcs.len() as u32).saturating_sub(1);
        if before > 0 {
            let passed: Vec<u64> = cut.pcs.drain(..before as usize).collect();
            cut.deltas.instructions = 1;
            let deltas = EventDeltas { instructions: before as i32, ..EventDeltas::default() };
            self.pass_cut(before, deltas);
            observers.note_in(self, |places| stepped(places, &passed));
        }
        true
    }
}

/// Instructions of a cut fragment have been executed; the profile counts them one by one.
fn stepped(places: &mut Executions, pcs: &[u64]) {
    pcs.iter().for_each(|pc| places.stepped(*pc, 1));
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

/// Returns the places at which control can go on behind `block`, where they are known.
fn follows(block: &Block) -> [Option<AppPc>; 2] {
    let next = block.next();
    match block.terminator {
        Terminator::Jump { target } | Terminator::Call { target } => [Some(target), None],
        Terminator::Conditional { target, .. } | Terminator::CountedLoop { target } => {
            [Some(target), Some(next)]
        }
        Terminator::Fall => [Some(next), None],
        _ => [None, None],
    }
}

/// Addresses of the first `count` instructions.
pub(super) fn instruction_pcs(block: &Block, count: usize) -> Vec<u64> {
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
