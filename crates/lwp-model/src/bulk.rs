//! Counting many instructions at once, as long as no event expires.
//!
//! A processor that runs faster than one instruction at a time asks what may pass unseen
//! ([`LwpUnit::headroom`]), lets that much pass ([`LwpUnit::pass`]), and reports the instruction on
//! which an event expires, alone, with [`LwpUnit::retire`]. The result is the same as reporting
//! each.

use lwp_arch::filters::Filters;
use lwp_arch::retired::{Access, Branch, BranchKind};
use lwp_arch::{EventKind, Revision};

use crate::eligible::Eligibility;
use crate::unit::{LwpUnit, Profile, State};

/// A range of instruction addresses, both ends included, or everything outside it.
///
/// Spec: LWP §3.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IpRange {
    /// BaseIP.
    pub base: u64,
    /// LimitIP.
    pub limit: u64,
    /// IPI: what lies outside passes.
    pub inverted: bool,
}

/// The counts of a running profile: its events, and their instructions.
///
/// Spec: LWP §3.3, §4.2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Watched {
    /// EventId 1 is counted by LWPVAL.
    pub values: bool,
    /// EventId 2.
    pub instructions: bool,
    /// The kinds of branches that EventId 3 counts, by their place in [`BranchKind::ALL`], a bit
    /// each.
    pub branches: u8,
    /// EventId 4.
    pub dcache: bool,
    /// EventId 5.
    pub core_clocks: bool,
    /// EventId 6.
    pub reference_clocks: bool,
    /// Only instructions in, or not in, this range count for EventId 2 to 6.
    pub ip: Option<IpRange>,
}

/// Numbers of occurrences of each event, that have passed, or may pass without one expiring. An
/// event that is not counted has [`Occurrences::UNLIMITED`] of headroom.
///
/// Spec: LWP §3.1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occurrences {
    /// Value samples, EventId 1.
    pub values: u64,
    /// Instructions retired, EventId 2.
    pub instructions: u64,
    /// Branches retired, EventId 3.
    pub branches: u64,
    /// DCache misses, EventId 4.
    pub dcache: u64,
    /// Core clocks, EventId 5.
    pub core_clocks: u64,
    /// Reference clocks, EventId 6.
    pub reference_clocks: u64,
}

impl Occurrences {
    /// More than any counter holds.
    pub const UNLIMITED: u64 = 1 << 40;

    fn of(&self, kind: EventKind) -> u64 {
        match kind {
            EventKind::ValueSample => self.values,
            EventKind::InstructionsRetired => self.instructions,
            EventKind::BranchesRetired => self.branches,
            EventKind::DcacheMisses => self.dcache,
            EventKind::CoreClocks => self.core_clocks,
            EventKind::ReferenceClocks => self.reference_clocks,
            EventKind::Programmed => 0,
        }
    }
}

impl LwpUnit {
    /// Returns the counts of the running profile; `None` with LWP off, or while a profile of the
    /// proposal has not been loaded (see [`Self::settle`]).
    pub fn watched(&self) -> Option<Watched> {
        let State::On(profile) = &self.state else { return None };
        let mut watched = Watched::default();
        let filters = self.processor().effective_filters(profile.filters);
        for kind in profile.slots.iter().filter_map(|slot| slot.kind) {
            match kind {
                EventKind::ValueSample => watched.values = true,
                EventKind::InstructionsRetired => watched.instructions = true,
                EventKind::BranchesRetired => {
                    for (place, kind) in BranchKind::ALL.into_iter().enumerate() {
                        watched.branches |= u8::from(filters.admits_branch(kind)) << place;
                    }
                }
                EventKind::DcacheMisses => watched.dcache = true,
                EventKind::CoreClocks => watched.core_clocks = true,
                EventKind::ReferenceClocks => watched.reference_clocks = true,
                EventKind::Programmed => {}
            }
        }
        let constants = profile.constants.as_ref()?;
        watched.ip = filters.filters.contains(Filters::IPF).then_some(IpRange {
            base: constants.base_ip,
            limit: constants.limit_ip,
            inverted: filters.filters.contains(Filters::IPI),
        });
        Some(watched)
    }

    /// Returns whether `access`, of an instruction that the IP filter admits, is a DCache miss that
    /// counts.
    ///
    /// Spec: LWP §3.3, §4.2.
    pub fn counts_miss(&self, access: &Access) -> bool {
        let State::On(profile) = &self.state else { return false };
        let Some(constants) = &profile.constants else { return false };
        let filters = self.processor().effective_filters(profile.filters);
        let eligibility = Eligibility { processor: self.processor(), filters, constants };
        eligibility.counts_miss(access)
    }

    /// Returns whether `branch`, of an instruction that the IP filter admits, counts.
    ///
    /// Spec: LWP §3.3, §4.2.
    pub fn counts_branch(&self, branch: &Branch) -> bool {
        let State::On(profile) = &self.state else { return false };
        let counted = profile.slots.iter().any(|s| s.kind == Some(EventKind::BranchesRetired));
        let filters = self.processor().effective_filters(profile.filters);
        counted
            && filters.admits_branch(branch.kind)
            && filters.filters.admits_prediction(branch.predicted)
    }

    /// Returns the number of occurrences of each event that may pass before one expires.
    pub fn headroom(&self) -> Occurrences {
        let revision = self.processor().revision();
        let profile = match &self.state {
            State::On(profile) => Some(profile),
            _ => None,
        };
        let room = |kind| profile.map_or(Occurrences::UNLIMITED, |p| p.room(revision, kind));
        Occurrences {
            values: room(EventKind::ValueSample),
            instructions: room(EventKind::InstructionsRetired),
            branches: room(EventKind::BranchesRetired),
            dcache: room(EventKind::DcacheMisses),
            core_clocks: room(EventKind::CoreClocks),
            reference_clocks: room(EventKind::ReferenceClocks),
        }
    }

    /// Counts occurrences that passed. No more than [`Self::headroom`] may have: what is beyond it
    /// is not counted.
    pub fn pass(&mut self, passed: &Occurrences) {
        let revision = self.processor().revision();
        let room = self.headroom();
        let State::On(profile) = &mut self.state else { return };
        for slot in &mut profile.slots {
            let Some(kind) = slot.kind else { continue };
            let count = passed.of(kind).min(room.of(kind));
            let expired = slot.count(revision, u32::try_from(count).unwrap_or(u32::MAX));
            debug_assert!(expired.is_none(), "what passes does not expire");
        }
    }
}

impl Profile {
    fn room(&self, revision: Revision, kind: EventKind) -> u64 {
        // In the proposal several slots can count one event.
        let slots = self.slots.iter().filter(|slot| slot.kind == Some(kind));
        let rooms = slots.map(|slot| {
            let counter = u64::try_from(slot.counter).unwrap_or(0);
            match revision {
                Revision::Shipped => counter,
                Revision::Proposal2007 => counter.saturating_sub(1),
            }
        });
        rooms.min().unwrap_or(Occurrences::UNLIMITED)
    }
}
