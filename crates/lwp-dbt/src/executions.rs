//! Executions by fragment: which instructions an increment of a counter stands for.

use std::iter;

use crate::addr::AppPc;
use crate::code_cache::CodeCache;
use crate::fragment::{Fragment, FragmentId};
use crate::plan::{EventDeltas, Role};
use crate::state_map::{AppState, Remainder};

/// Most fragments of a superblock; the links of a damaged image may lead in a circle.
const MOST_FRAGMENTS: usize = 1 << 10;

/// Something that happened in a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Execution {
    /// It was executed from its beginning to its end.
    Whole(FragmentId),
    /// Only so many instructions from its beginning were executed.
    Cut(FragmentId, u16),
    /// The conditional branch at its end was not taken.
    NotTaken(FragmentId),
    /// The indirect call at its end led to this address.
    Called(FragmentId, AppPc),
}

/// Receives what happened, and how often.
type Add<'a> = &'a mut dyn FnMut(Execution, i64);

impl CodeCache {
    /// Passes the executions that one increment of a counter with this role stands for to `add`.
    ///
    /// Two kinds of roles take other counters to tell, and add nothing: the edge that a
    /// [`Role::Head`] was not entered by, and the targets of a [`Role::CallTarget`].
    pub fn executions(&self, role: Role, add: Add<'_>) {
        match role {
            Role::Runs(id) => add(Execution::Whole(id), 1),
            Role::RunsBehind { into, from } => {
                add(Execution::Whole(into), 1);
                add(Execution::NotTaken(from), 1);
            }
            Role::NotTaken(id) => add(Execution::NotTaken(id), 1),
            Role::Superblock(first) => self.along(Some(first), 1, add),
            Role::SideExit(id) => self.left(id, counts_call(self, &self.fragment(id)), add),
            Role::CutOff(id) => self.along(Some(id), -1, add),
            Role::CutOffBranch(id) => self.left(id, true, add),
            Role::Head(_)
            | Role::CallTarget(_)
            | Role::Called(_)
            | Role::Target(_)
            | Role::Transfer(_) => {}
        }
    }

    /// Passes what the counters say too much where a fragment of a superblock is left at `state` to
    /// `add`, less than nothing each; the fragment's own execution is not among it.
    pub fn not_executed(&self, state: &AppState, id: FragmentId, add: Add<'_>) {
        let Some((remainder, within)) = state.remainder.zip(self.within(id)) else { return };
        match remainder {
            Remainder::Behind if state.partial.is_some() => self.branch(id, -1, add),
            Remainder::Behind => {}
            Remainder::Elsewhere => self.branch_elsewhere(&self.fragment(id), id, add),
        }
        self.along(within.next, -1, add);
    }

    /// A superblock is executed from `first` to its end.
    fn along(&self, first: Option<FragmentId>, times: i64, add: Add<'_>) {
        let next = |id: &FragmentId| self.within(*id)?.next;
        for id in iter::successors(first, next).take(MOST_FRAGMENTS) {
            add(Execution::Whole(id), times);
            self.branch(id, times, add);
        }
    }

    /// The branch at the end of `id` leads along the superblock.
    fn branch(&self, id: FragmentId, times: i64, add: Add<'_>) {
        let fragment = self.fragment(id);
        if is_not_taken(fragment.deltas) {
            add(Execution::NotTaken(id), times);
        }
        if counts_call(self, &fragment)
            && let Some(next) = self.within(id).and_then(|within| within.next)
        {
            add(Execution::Called(id, self.fragment(next).pc), times);
        }
    }

    /// The superblock is left at the end of `id`: its branch leads elsewhere or, `before` it, has
    /// not been executed.
    fn left(&self, id: FragmentId, before: bool, add: Add<'_>) {
        let Some(within) = self.within(id) else { return };
        let fragment = self.fragment(id);
        if before {
            add(Execution::Whole(id), -1);
            add(Execution::Cut(id, fragment.instructions.saturating_sub(1)), 1);
            self.branch(id, -1, add);
        } else {
            self.branch_elsewhere(&fragment, id, add);
        }
        self.along(within.next, -1, add);
    }

    /// The branch at the end of `id` does not lead where its superblock expects it to.
    fn branch_elsewhere(&self, fragment: &Fragment, id: FragmentId, add: Add<'_>) {
        match fragment.deltas {
            deltas if is_not_taken(deltas) => add(Execution::NotTaken(id), -1),
            EventDeltas { conditional: 1, .. } => add(Execution::NotTaken(id), 1),
            _ => {}
        }
    }
}

/// Returns whether a fragment ends in an indirect call that is counted by where it leads.
fn counts_call(cache: &CodeCache, fragment: &Fragment) -> bool {
    cache.calls && fragment.deltas.calls == 1 && fragment.deltas.indirect == 1
}

/// Returns whether these are the counts of a fragment whose conditional branch is not taken.
fn is_not_taken(deltas: EventDeltas) -> bool {
    matches!(deltas, EventDeltas { conditional: 1, conditional_taken: 0, .. })
}
