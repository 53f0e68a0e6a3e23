//! The countdown of a thread, as it has been published to translated code.

use lwp_arch::EventKind;
use lwp_dbt::block::Block;
use lwp_dbt::context::lwp_parts;
use lwp_dbt::{IpFilter, Selection, Slot};
use lwp_mailbox::contexts::{Context, LwpWords};
use lwp_model::Watched;

use super::known::DueFor;

/// The amount of instructions, and of branches where only they count, below which the thread may
/// take what is left block by block: some twenty blocks of code without loops, which cost as much
/// as two deals.
const LAST_INSTRUCTIONS: u64 = 128;
const LAST_BRANCHES: u64 = 20;

/// The events that a thread counts down, and the amounts up to the next one.
#[derive(Clone, Debug, Default)]
pub(super) struct Countdown {
    /// The events that are counted down.
    pub(super) selection: Selection,
    /// The clock whose events the high part counts down to, if it does.
    clock: Option<EventKind>,
    /// The amounts as they were published: high part, low part, value samples.
    pub(super) published: [i64; 3],
}

impl Countdown {
    /// A countdown of these events, of which none has been published.
    pub(super) fn new(selection: Selection) -> Self {
        Self { selection, clock: None, published: [0; 3] }
    }

    /// Publishes that so much may pass, with nothing dealt out: the next block that counts has it
    /// dealt.
    pub(super) fn publish(&mut self, context: Context<'_>, room: [i64; 3]) {
        self.published = room;
        let [high, low, values] = room;
        context.set(Slot::LwpHigh, high as u64);
        context.set(Slot::LwpLow, low as u64);
        context.set(Slot::LwpValue, values as u64);
        context.set(Slot::LwpShare, u64::from(self.selection.branch_share()));
        let last = if self.selection.instructions { LAST_INSTRUCTIONS } else { LAST_BRANCHES };
        context.set(Slot::LwpLast, last);
        context.lwp().deal_nothing();
    }

    /// The amounts that have passed since the countdown was published, of which `left` is left.
    pub(super) fn passed(&self, left: [i64; 3]) -> [u64; 3] {
        std::array::from_fn(|part| LwpWords::passed(self.published[part], left[part]))
    }

    /// The high and the low amount that have passed since the countdown was published, of which
    /// `left` is left. The thread has added `kept` to the high one.
    pub(super) fn passed_with_kept(&self, left: [i64; 2], kept: u64) -> [u64; 2] {
        let [high, low] = left;
        let published = self.published[0].saturating_add_unsigned(kept);
        [LwpWords::passed(published, high), LwpWords::passed(self.published[1], low)]
    }

    /// A countdown of other events, for a profile that has been loaded.
    pub(super) fn select(&mut self, selection: Selection, clock: Option<EventKind>) {
        (self.selection, self.clock) = (selection, clock);
    }

    /// The clock whose events the high part counts down to, if it does.
    pub(super) fn clock(&self) -> Option<EventKind> {
        self.clock
    }

    /// The events that the high and the low part count down to.
    pub(super) fn kinds(&self) -> [EventKind; 2] {
        let by_instructions = self.clock.unwrap_or(EventKind::InstructionsRetired);
        match self.selection.instructions {
            true => [by_instructions, EventKind::BranchesRetired],
            false => [EventKind::BranchesRetired, EventKind::InstructionsRetired],
        }
    }

    /// The instruction of `block` on which a part of the countdown ends where `room` is left, if
    /// one does.
    pub(super) fn due_index(&self, room: [i64; 3], block: &Block) -> Option<u32> {
        let [high, low, _] = room;
        let (by_high, by_low) = lwp_dbt::countdown_of(block, &self.selection);
        let last = block.instructions() - 1;
        let first = match self.selection.instructions {
            true => (i64::from(by_high) > high).then_some(high as u32),
            false => (i64::from(by_high) > high).then_some(last),
        };
        let second = (i64::from(by_low) > low).then_some(last);
        first.into_iter().chain(second).min()
    }

    /// The event of which a record is due in `block` where `room` is left, if a thread can record
    /// it by itself.
    pub(super) fn due_for(&self, room: [i64; 3], block: &Block) -> Option<DueFor> {
        let [high, low, _] = room;
        let (by_high, by_low) = lwp_dbt::countdown_of(block, &self.selection);
        let (high_due, low_due) = (i64::from(by_high) > high, i64::from(by_low) > low);
        match (self.selection.instructions, high_due) {
            // Both on the last instruction are the host's.
            (true, true) if low_due && high + 1 == i64::from(by_high) => None,
            (true, true) => Some(DueFor::Instruction),
            _ => Some(DueFor::Branch),
        }
    }

    /// Returns whether nothing but the branch that ends `block` is due in it where `room` is left,
    /// and is to be judged.
    pub(super) fn branch_is_due(&self, room: [i64; 3], block: &Block) -> bool {
        let [high, ..] = room;
        let (by_high, by_low) = lwp_dbt::countdown_of(block, &self.selection);
        match self.selection.instructions {
            true => i64::from(by_high) <= high && by_low > 0,
            false => by_high > 0,
        }
    }
}

/// The events that have to be counted down for a profile that watches `watched`.
pub(super) fn selection(watched: Watched) -> Selection {
    let ip = |range: lwp_model::IpRange| IpFilter {
        base: range.base,
        limit: range.limit,
        inverted: range.inverted,
    };
    let selection = Selection {
        values: watched.values,
        instructions: watched.instructions || watched.core_clocks || watched.reference_clocks,
        branches: watched.branches,
        scarce_branches: false,
        dcache: watched.dcache,
        ip: watched.ip.map(ip),
    };
    // A filter where nothing is filtered would only make translations differ.
    Selection { ip: selection.ip.filter(|_| selection.filters()), ..selection }
}

/// The rest of the countdown: high and low part.
pub(super) fn countdown(context: Context<'_>) -> [i64; 2] {
    let counted = context.get(Slot::LwpGiven).wrapping_sub(context.lwp().words());
    let [high, low] = lwp_parts(counted, context.get(Slot::LwpShare));
    [
        context.get(Slot::LwpHigh).wrapping_sub(high) as i64,
        context.get(Slot::LwpLow).wrapping_sub(low) as i64,
    ]
}
