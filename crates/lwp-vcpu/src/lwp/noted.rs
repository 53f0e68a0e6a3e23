//! Events that a thread has noted and not recorded yet: see `noted.rs` among the routines.

use lwp_dbt::context::{LWP_LOW_MAX, LWP_SHIFT};
use lwp_dbt::{AppPc, Slot};
use lwp_ptrace::Tid;

use super::Executed;
use super::due::branch_kind;
use crate::contexts::Context;
use crate::machine::Machine;
use crate::state::View;

/// More instructions than a block has.
const MOST_INSTRUCTIONS: u64 = 1 << 16;

/// A noted event, as the context says it.
#[derive(Clone, Copy, Debug)]
struct Note {
    /// Address of its block.
    block: u64,
    /// The number of the block's instruction that it is on, counted from 1.
    index: u64,
    /// That instruction's address.
    ip: u64,
    /// The amounts that the block has taken from the countdown.
    high: u64,
    low: u64,
}

impl Note {
    fn of(context: Context<'_>) -> Option<Self> {
        if context.get(Slot::LwpNote) == 0 {
            return None;
        }
        let delta = context.get(Slot::LwpNoteWeight);
        let (high, index) = (delta >> LWP_SHIFT, context.get(Slot::LwpNoteIndex));
        // Otherwise it is not one that translated code has noted.
        if index == 0 || index > high || high > MOST_INSTRUCTIONS {
            context.set(Slot::LwpNote, 0);
            return None;
        }
        Some(Self {
            block: context.get(Slot::LwpNoteBlock),
            index,
            ip: context.get(Slot::LwpNoteIp),
            high,
            low: delta & LWP_LOW_MAX,
        })
    }
}

impl Machine {
    /// Returns whether a thread has noted an event.
    pub(super) fn lwp_has_note(&self, tid: Tid) -> bool {
        self.lwp_note(tid).is_some()
    }

    fn lwp_note(&self, tid: Tid) -> Option<Note> {
        self.tasks.threads.get(&tid)?.lwp.as_ref()?;
        Note::of(self.context(tid)?)
    }

    /// A thread leaves translated code that has noted an event.
    pub(super) fn lwp_leave_noted(&mut self, tid: Tid, view: &View) {
        let Some(note) = self.lwp_note(tid) else { return };
        // Else it is the next block that has begun, even if that is the same again.
        let runs = self.context(tid).is_some_and(|context| !context.has_taken_in_vain());
        let charged = runs && view.state.countdown.is_some();
        let within = view.fragment.filter(|_| charged).filter(|id| {
            let found = self.space_of(tid).map(|(_, family)| family.code_cache.fragment(*id).pc);
            found == Some(AppPc(note.block))
        });
        let executed = within.and(view.state.countdown);
        self.lwp_settle_note(tid, executed, view.app.0.rip);
    }

    /// Settles a noted event, if there is one: of its block so many instructions have been
    /// executed, or all, and control is at `next`.
    pub fn lwp_settle_note(&mut self, tid: Tid, executed: Option<u32>, next: u64) {
        let Some(note) = self.lwp_note(tid) else { return };
        let Some(context) = self.context(tid) else { return };
        context.deal_nothing();
        self.lwp_give_back(tid, note.high as u32, note.low as u32);
        self.lwp_collect(tid);
        let executed = executed.map_or(note.high, u64::from);
        if executed < note.index {
            self.lwp_pass(tid, executed, 0);
        } else {
            self.lwp_pass(tid, note.index - 1, 0);
            let last = self.lwp_noted_instruction(tid, &note, next);
            self.lwp_retire(tid, &last);
            let branches =
                if executed == note.high && note.index < note.high { note.low } else { 0 };
            self.lwp_pass(tid, executed - note.index, branches);
        }
        self.lwp_publish(tid);
    }

    fn lwp_pass(&mut self, tid: Tid, instructions: u64, branches: u64) {
        if let Some(lwp) = self.tasks.threads.get_mut(&tid).and_then(|thread| thread.lwp.as_mut()) {
            lwp.pass(instructions, branches, 0);
        }
    }

    /// The instruction that the event is on, after which control was at `next` if it is the block's
    /// last one.
    fn lwp_noted_instruction(&mut self, tid: Tid, note: &Note, next: u64) -> Executed {
        let plain = Executed::plain(note.ip, next);
        if note.index < note.high {
            return plain;
        }
        let Some(block) = self.lwp_block(tid, AppPc(note.block)) else { return plain };
        let fall_through = block.next().0;
        let branch = branch_kind(&block).map(|kind| {
            let conditional = kind == lwp_arch::retired::BranchKind::Conditional;
            (kind, !conditional || next != fall_through)
        });
        Executed { fall_through, branch, ..plain }
    }
}
