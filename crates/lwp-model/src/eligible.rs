//! The events that an instruction causes, and their numbers, after the filters.

use alloc::vec;
use alloc::vec::Vec;

use lwp_arch::record::{BranchFlags, Event};
use lwp_arch::retired::{Access, AccessKind, CacheMiss};
use lwp_arch::{EventKind, Retired};

use crate::processor::{EffectiveFilters, Processor};
use crate::unit::Constants;

/// The occurrences of one event in one instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Occurrences {
    /// The number of events.
    pub(crate) count: u32,
    /// The report of each. Shorter than `count` if the rest report the same as the last.
    events: Vec<Event>,
}

impl Occurrences {
    const NONE: Self = Self { count: 0, events: Vec::new() };

    fn of(events: Vec<Event>) -> Self {
        Self { count: events.len() as u32, events }
    }

    fn repeated(count: u32, event: Event) -> Self {
        Self { count, events: vec![event] }
    }

    /// Returns the report of occurrence `index`.
    pub(crate) fn event(&self, index: u32) -> Option<Event> {
        self.events.get(index as usize).or(self.events.last()).copied()
    }
}

/// The filters in force while a profile runs.
pub(crate) struct Eligibility<'a> {
    pub(crate) processor: &'a Processor,
    pub(crate) filters: EffectiveFilters,
    pub(crate) constants: &'a Constants,
}

impl Eligibility<'_> {
    /// The occurrences of `kind` in `retired` that count.
    ///
    /// Value samples and programmed events do not come from retiring and have none here.
    ///
    /// Spec: P07 §3, §4; LWP §3.3, §4.2.
    pub(crate) fn occurrences(&self, kind: EventKind, retired: &Retired<'_>) -> Occurrences {
        if retired.crosses_privilege || !self.admits_ip(retired.ip.0) {
            return Occurrences::NONE;
        }
        match kind {
            EventKind::InstructionsRetired => Occurrences::repeated(1, Event::InstructionsRetired),
            EventKind::BranchesRetired => self.branches(retired),
            EventKind::DcacheMisses => self.misses(retired),
            EventKind::CoreClocks => Occurrences::repeated(retired.core_cycles, Event::CoreClocks),
            EventKind::ReferenceClocks => {
                Occurrences::repeated(retired.reference_cycles, Event::ReferenceClocks)
            }
            EventKind::ValueSample | EventKind::Programmed => Occurrences::NONE,
        }
    }

    fn admits_ip(&self, ip: u64) -> bool {
        self.filters.filters.admits_ip(ip, self.constants.base_ip, self.constants.limit_ip)
    }

    /// One occurrence per branch, taken or not.
    ///
    /// Spec: P07 §4.2; LWP §4.2.
    fn branches(&self, retired: &Retired<'_>) -> Occurrences {
        let Some(branch) = retired.branch else { return Occurrences::NONE };
        let admitted = self.filters.admits_branch(branch.kind)
            && self.filters.filters.admits_prediction(branch.predicted);
        if !admitted {
            return Occurrences::NONE;
        }
        let flags = BranchFlags::new(branch.taken, branch.predicted);
        Occurrences::repeated(1, Event::BranchesRetired { flags, target: retired.next_ip })
    }

    /// One occurrence per demand load that missed. An instruction with several loads can have
    /// several.
    ///
    /// Spec: P07 §4.3; LWP §4.2.
    fn misses(&self, retired: &Retired<'_>) -> Occurrences {
        let loads = retired.accesses.iter().filter(|access| access.kind == AccessKind::Load);
        let misses = loads.filter_map(|access| access.miss);
        Occurrences::of(misses.filter_map(|miss| self.miss(&miss)).collect())
    }

    /// Returns whether an access is a miss that counts.
    pub(crate) fn counts_miss(&self, access: &Access) -> bool {
        let miss = access.miss.filter(|_| access.kind == AccessKind::Load);
        miss.is_some_and(|miss| self.miss(&miss).is_some())
    }

    /// Returns the report of a miss, if the filters let it count.
    ///
    /// MinLatency is compared with the latency as reported, "at least": DEV-18. A minimum above
    /// what the counter can hold means its maximum.
    ///
    /// Spec: P07 §4.3.1, §5.4; LWP §3.3.
    fn miss(&self, miss: &CacheMiss) -> Option<Event> {
        let filters = self.filters.filters;
        let latency_cycles = self.processor.reported_latency(miss.latency_cycles);
        let minimum = filters.min_latency().min(self.processor.latency_max());
        let admitted = latency_cycles >= minimum && miss.source.admitted_by(filters);
        admitted.then(|| Event::DcacheMisses {
            source: miss.source,
            latency_cycles,
            data_address: self.processor.reports_data_address().then_some(miss.address),
        })
    }
}
