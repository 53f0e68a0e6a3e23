//! The application's state at any place of translated code.

use super::superblock::elsewhere;
use crate::addr::{AppPc, CachePc};
use crate::code_cache::CodeCache;
use crate::fragment::{Fragment, FragmentId, Within};
use crate::plan::EventDeltas;
use crate::state_map::{AppState, Commit, Found, PcSource, Remainder, Spills, bits, lookup};

impl CodeCache {
    /// Returns the application's state at `pc` in an arena, and the fragment it belongs to.
    pub fn state_at(&self, pc: CachePc) -> Option<(AppState, Option<FragmentId>)> {
        let profiles = self.profiles;
        if let Some(placed) = self.placed.iter().find(|placed| placed.contains(pc)) {
            let (base, found, id) = placed.point_at(pc)?;
            let fragment = id.map(|id| self.fragment(id));
            let within = id.and_then(|id| placed.within(id));
            return Some((app_state(base, fragment.as_ref(), found, profiles, within), id));
        }
        let (start, piece) = self.pieces.at_or_before(pc)?;
        let offset = (pc.0 - start.0) as u32;
        if offset >= piece.len {
            return None;
        }
        let found = lookup(self.points.get(piece.points), offset)?;
        let fragment = piece.fragment.map(|id| self.fragment(id));
        let within = piece.fragment.and_then(|id| self.within.get(&id).copied());
        Some((app_state(piece.pc, fragment.as_ref(), found, profiles, within), piece.fragment))
    }

    /// Returns what the counters say too much where a fragment of a superblock is left at `state`.
    pub fn remainder(&self, state: &AppState, fragment: FragmentId) -> EventDeltas {
        let (Some(remainder), Some(within)) = (state.remainder, self.within(fragment)) else {
            return EventDeltas::default();
        };
        match remainder {
            Remainder::Behind => within.behind,
            Remainder::Elsewhere => {
                within.behind.plus(elsewhere(self.fragment(fragment).deltas).negated())
            }
        }
    }
}

pub(super) fn app_state(
    pc: AppPc,
    fragment: Option<&Fragment>,
    found: Found,
    profiles: bool,
    within: Option<Within>,
) -> AppState {
    let Found { point, past } = found;
    let has = |bit: u8| point.state & bit != 0;
    let spills = spills(point.state);
    let here = PcSource::Known(pc.offset(u64::from(point.app)));
    let armed = has(bits::SYSCALL) && point.state & bits::PC_MASK == bits::PC_RCX;
    let source = match point.state & bits::PC_MASK {
        _ if armed => here,
        bits::PC_RCX => PcSource::Rcx,
        bits::PC_RCX_PLUS => PcSource::RcxPlus(pc),
        bits::PC_TARGET => fragment.map_or(here, |fragment| PcSource::Known(fragment.target)),
        _ => here,
    };
    let lost = within.and_then(|within| within.flags).filter(|_| has(bits::LOST));
    let unsummed = point.state & bits::UNSUMMED == bits::UNSUMMED;
    let commit = commit(point.state, lost.is_none() && !unsummed, armed);
    let index = u32::from(point.index);
    let charged = !has(bits::UNCOUNTED) || unsummed;
    let partial = fragment
        .filter(
            |fragment| if charged { index < u32::from(fragment.instructions) } else { index > 0 },
        )
        .map(|_| (index, charged));
    // Where profiling is on, EDGE beside UNCOUNTED says that only the countdown has been charged.
    let counted_down = charged || profiles && has(bits::EDGE);
    let counts_down = fragment.is_some_and(|fragment| fragment.countdown != (0, 0))
        || within.is_some_and(|within| within.countdown != (0, 0));
    let calls = fragment.is_some_and(|it| it.deltas.calls == 1 && it.deltas.indirect == 1);
    // EDGE beside a target in rcx says that a guard has not held.
    let made = point.state & bits::PC_MASK != 0;
    let all = spills.rcx && spills.r11 && spills.rax;
    // A fragment without a branch has no edge: there a value has been counted.
    let values = fragment.is_some_and(|it| it.deltas.branches == 0) && within.is_none();
    let held = has(bits::EDGE) && spills.rcx && spills.r11;
    let called = charged && held && !made && (calls || values && !has(bits::SYSCALL));
    let remainder = within.filter(|_| charged).map(|_| match has(bits::EDGE) {
        true => Remainder::Elsewhere,
        false => Remainder::Behind,
    });
    let edge = within.is_none()
        && has(bits::EDGE)
        && !has(bits::SYSCALL)
        && (charged || !profiles)
        && !called;
    AppState {
        pc: source,
        spills,
        commit,
        partial,
        edge_pending: edge,
        countdown: (profiles && counted_down && counts_down).then_some(index),
        called,
        unsummed,
        transfer: (all && !made && fragment.is_some()).then_some(past),
        remainder,
        flags: lost,
    }
}

/// Returns the step that is yet to be done at a point; `calls` says that the bit for system calls
/// stands for one.
fn commit(state: u8, calls: bool, armed: bool) -> Commit {
    let has = |bit: u8| state & bit != 0;
    match (has(bits::SYSCALL) && calls, armed) {
        (true, true) => Commit::SigreturnArmed,
        (true, false) if has(bits::EDGE) => Commit::LwpResult,
        (true, false) => Commit::AfterSyscall,
        _ => Commit::None,
    }
}

/// Returns the registers that are in their slots.
fn spills(state: u8) -> Spills {
    Spills {
        rcx: state & bits::SPILL_RCX != 0,
        r11: state & bits::SPILL_R11 != 0,
        rax: state & bits::SPILL_RAX != 0,
        ..Spills::default()
    }
}
