//! Events that a thread has noted but not yet recorded: see `noted.rs` among the routines.

use lwp_dbt::block::Block;
use lwp_dbt::context::lwp_parts;
use lwp_dbt::{AppPc, Slot};
use lwp_mailbox::contexts::Context;
use lwp_process::Tid;

use super::Executed;
use super::Profiling;
use super::due::{block_at, branch_kind};
use super::leave::give_back;
use crate::state::View;

/// More instructions than a block has.
const MOST_INSTRUCTIONS: u64 = 1 << 16;

/// A noted event, as the context says it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Note {
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
    pub(super) fn of(context: Context<'_>) -> Option<Self> {
        if context.get(Slot::LwpNote) == 0 {
            return None;
        }
        let weight = context.get(Slot::LwpNoteWeight);
        let [high, low] = lwp_parts(weight, context.get(Slot::LwpShare));
        let index = context.get(Slot::LwpNoteIndex);
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
            low,
        })
    }
}

impl Profiling<'_> {
    /// A thread leaves translated code that has noted an event.
    pub(super) fn lwp_leave_noted(&mut self, tid: Tid, view: &View, note: Note) {
        // Else it is the next block that has begun, even if that is the same again.
        let runs = self.context(tid).is_some_and(|context| !context.lwp().has_taken_in_vain());
        let charged = runs && view.state.countdown.is_some();
        let within = view.fragment.filter(|_| charged).filter(|id| {
            let found = self.space_of(tid).map(|(_, family)| family.code_cache.fragment(*id).pc);
            found == Some(AppPc(note.block))
        });
        let executed = within.and(view.state.countdown);
        self.lwp_settle_note(tid, executed, view.app.0.rip);
    }

    /// Settles a noted event, if there is one: of its block so many instructions have been
    /// executed, or all, and control is at `next`. Returns whether there was one: then nothing that
    /// the block has not executed is left in the countdown.
    pub fn lwp_settle_note(&mut self, tid: Tid, executed: Option<u32>, next: u64) -> bool {
        let Some(mut profiled) = self.tasks.profiled(self.contexts, tid) else { return false };
        let Some(note) = profiled.note() else { return false };
        profiled.context.lwp().deal_nothing();
        give_back(profiled.context, (note.high as u32, note.low as u32));
        profiled.collect_but(None);
        let executed = executed.map_or(note.high, u64::from);
        let (before, after) = note.around(executed);
        profiled.lwp.pass(before, 0, 0);
        if let Some((instructions, branches)) = after {
            let block = match note.is_last() {
                true => self
                    .space_of(tid)
                    .and_then(|(space, family)| block_at(space, family, tid, AppPc(note.block))),
                false => None,
            };
            self.lwp_retire(tid, &note.executed(block.as_deref(), next));
            if let Some(lwp) = self.tasks.lwp_mut(tid) {
                lwp.pass(instructions, branches, 0);
            }
        }
        self.tasks.lwp_publish(self.contexts, tid);
        true
    }
}

impl Note {
    /// Returns whether the event is on the last instruction of its block.
    fn is_last(&self) -> bool {
        self.index >= self.high
    }

    /// The amounts that pass around the instruction that the event is on, where so many
    /// instructions of its block have been executed: instructions before it, and instructions and
    /// branches after it if it is among those.
    fn around(&self, executed: u64) -> (u64, Option<(u64, u64)>) {
        if executed < self.index {
            return (executed, None);
        }
        let branches = if executed == self.high && !self.is_last() { self.low } else { 0 };
        (self.index - 1, Some((executed - self.index, branches)))
    }

    /// The instruction that the event is on, after which control was at `next` if it is the last of
    /// its block, which is `block` where that is known.
    fn executed(&self, block: Option<&Block>, next: u64) -> Executed {
        let plain = Executed::plain(self.ip, next);
        let Some(block) = block.filter(|_| self.is_last()) else { return plain };
        let fall_through = block.next().0;
        let branch = branch_kind(block).map(|kind| {
            let conditional = kind == lwp_arch::retired::BranchKind::Conditional;
            (kind, !conditional || next != fall_through)
        });
        Executed { fall_through, branch, ..plain }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lwp_dbt::context::LWP_SHIFT;
    use lwp_mailbox::contexts::Contexts;

    fn note(index: u64, high: u64, low: u64) -> Option<Note> {
        let mut contexts = Contexts::new(0);
        let file = contexts.files.add().expect("a file in memory");
        let slot = contexts.allocate(file, 0).expect("a context");
        let context = contexts.context(slot);
        context.set(Slot::LwpNote, 1);
        context.set(Slot::LwpNoteWeight, high << LWP_SHIFT | low);
        context.set(Slot::LwpNoteIndex, index);
        context.set(Slot::LwpNoteIp, 0x40_0010);
        let note = Note::of(context);
        assert_eq!(context.get(Slot::LwpNote) != 0, note.is_some());
        note
    }

    #[test]
    fn an_event_is_on_an_instruction_of_its_block() {
        assert!(note(1, 1, 0).is_some() && note(7, 9, 1).is_some());
        for (index, high) in [(0, 3), (4, 3), (1, MOST_INSTRUCTIONS + 1)] {
            assert!(note(index, high, 0).is_none(), "{index} of {high}");
        }
    }

    #[test]
    fn all_that_has_been_executed_passes_around_the_event() {
        let within = note(3, 5, 1).expect("a note");
        assert_eq!(within.around(2), (2, None));
        assert_eq!(within.around(3), (2, Some((0, 0))));
        assert_eq!(within.around(4), (2, Some((1, 0))));
        assert_eq!(within.around(5), (2, Some((2, 1))));
        // The branch that ends the block is the event itself.
        let last = note(5, 5, 1).expect("a note");
        assert_eq!(last.around(5), (4, Some((0, 0))));
        assert!(last.is_last() && !within.is_last());
    }

    #[test]
    fn the_instruction_is_no_branch_where_it_does_not_end_its_block() {
        let executed = note(3, 5, 1).expect("a note").executed(None, 0x50_0000);
        assert_eq!((executed.ip, executed.next, executed.branch), (0x40_0010, 0x50_0000, None));
    }
}
