//! The processor that the unit belongs to: its revision, limits and filters.

use lwp_arch::cpuid::fn8000_001c::Ecx;
use lwp_arch::cpuid::{Capabilities, Capabilities2007, presets};
use lwp_arch::filters::{Filters, Filters2007};
use lwp_arch::lwpcb::{EventSlot, EventSlot2007, Lwpcb, Lwpcb2007, slot_offset};
use lwp_arch::record::{latency_max, reported_latency};
use lwp_arch::retired::BranchKind;
use lwp_arch::{EventId, LinearAddr, Record, Revision};

/// A processor with the shipped form of LWP.
///
/// Spec: LWP §1.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shipped {
    /// The static half of its CPUID leaf.
    pub capabilities: Capabilities,
    /// Smallest interval the processor uses for EventId *n*, at index *n* − 1. Smaller ones in a
    /// control block are raised to it. All zero by default; only the one of EventId 1 is
    /// documented: DEV-16.
    pub minimum_intervals: [i32; lwp_arch::xsave::COUNTERS],
}

/// A processor with LWP as proposed in 2007.
///
/// Spec: P07 §5.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// Its CPUID leaf.
    pub capabilities: Capabilities2007,
    /// Number of the core, which the proposal lets hardware put into records.
    pub core_id: u8,
    /// Vector of the threshold interrupt, which the proposal leaves open.
    pub vector: u8,
}

/// The kind of processor.
///
/// Spec: LWP §8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processor {
    /// LWP as Family 15h has it.
    Shipped(Shipped),
    /// LWP as proposed in 2007.
    Proposal(Proposal),
}

/// The filters in force: those of the control block that the processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EffectiveFilters {
    /// In shipped positions.
    pub(crate) filters: Filters,
    /// NDB of the proposal.
    no_direct_branches: bool,
}

impl EffectiveFilters {
    /// Returns whether a branch of this kind may count.
    ///
    /// Spec: P07 §5.4; LWP §3.3.
    pub(crate) fn admits_branch(self, kind: BranchKind) -> bool {
        let ndb = if self.no_direct_branches { Filters2007::NDB } else { Filters2007::empty() };
        self.filters.admits_class(kind.class()) && ndb.admits_kind(kind)
    }
}

/// Addresses of the fields the unit works on after the block was loaded.
pub(crate) struct BlockFields {
    pub(crate) flags: LinearAddr,
    pub(crate) head: LinearAddr,
    pub(crate) missed: LinearAddr,
    pub(crate) tail: LinearAddr,
}

impl Processor {
    /// A shipped processor with these capabilities and no minimum intervals.
    pub const fn shipped(capabilities: Capabilities) -> Self {
        Self::Shipped(Shipped { capabilities, minimum_intervals: [0; lwp_arch::xsave::COUNTERS] })
    }

    /// The shipped processor that has everything.
    pub const fn full() -> Self {
        Self::shipped(presets::FULL)
    }

    /// The processor of the proposal that has everything, core 0.
    pub const fn proposal() -> Self {
        Self::Proposal(Proposal { capabilities: Capabilities2007::FULL, core_id: 0, vector: 0xFF })
    }

    /// Returns the document that the processor follows.
    pub const fn revision(&self) -> Revision {
        match self {
            Self::Shipped(_) => Revision::Shipped,
            Self::Proposal(_) => Revision::Proposal2007,
        }
    }

    /// Length of a record in bytes.
    ///
    /// Spec: P07 §4; LWP §1.2.
    pub(crate) const fn record_bytes(&self) -> u32 {
        match self {
            Self::Shipped(shipped) => shipped.capabilities.ebx.event_size(),
            Self::Proposal(_) => Record::SIZE as u32,
        }
    }

    /// Length of the control block in bytes.
    ///
    /// Spec: P07 §5.1; LWP §1.2.
    pub(crate) const fn block_bytes(&self) -> u64 {
        match self {
            Self::Shipped(shipped) => shipped.capabilities.ebx.lwpcb_bytes() as u64,
            Self::Proposal(proposal) => proposal.capabilities.lwpcb_bytes as u64,
        }
    }

    /// Number of event slots in the control block.
    pub(crate) const fn slots(&self) -> u8 {
        match self {
            Self::Shipped(shipped) => shipped.capabilities.ebx.max_events(),
            Self::Proposal(proposal) => proposal.capabilities.max_events,
        }
    }

    /// Offset of slot `index`, counted from 0, in the control block.
    ///
    /// Spec: P07 §5.4; LWP §3.1.
    pub(crate) fn slot_offset(&self, index: usize) -> u64 {
        let index = index as u8;
        match self {
            Self::Shipped(shipped) => {
                let ebx = shipped.capabilities.ebx;
                let id = EventId(index.saturating_add(1));
                slot_offset(u64::from(ebx.event_offset()), ebx.max_events(), id).unwrap_or(0)
            }
            Self::Proposal(_) => Lwpcb2007::slot_offset(index),
        }
    }

    /// Address of the counter in slot `index` of a block at `block`.
    pub(crate) fn counter_address(&self, block: LinearAddr, index: usize) -> LinearAddr {
        let field = match self {
            Self::Shipped(_) => EventSlot::COUNTER,
            Self::Proposal(_) => EventSlot2007::COUNTER,
        };
        block.plus(self.slot_offset(index) + field)
    }

    /// Addresses of the fields in a block at `block`.
    pub(crate) fn fields(&self, block: LinearAddr) -> BlockFields {
        match self {
            Self::Shipped(_) => BlockFields {
                flags: block.plus(Lwpcb::FLAGS),
                head: block.plus(Lwpcb::BUFFER_HEAD_OFFSET),
                missed: block.plus(Lwpcb::MISSED_EVENTS),
                tail: block.plus(Lwpcb::BUFFER_TAIL_OFFSET),
            },
            Self::Proposal(_) => BlockFields {
                flags: block.plus(Lwpcb2007::FLAGS),
                head: block.plus(Lwpcb2007::BUFFER_HEAD_OFFSET),
                missed: block.plus(Lwpcb2007::MISSED_EVENTS),
                tail: block.plus(Lwpcb2007::BUFFER_TAIL_OFFSET),
            },
        }
    }

    /// Returns whether DCache records carry the data address.
    pub(crate) const fn reports_data_address(&self) -> bool {
        match self {
            Self::Shipped(shipped) => shipped.capabilities.ecx.contains(Ecx::LWP_DATA_ADDRESS),
            Self::Proposal(proposal) => proposal.capabilities.data_address,
        }
    }

    /// Width and rounding of the latency counter in bits. The proposal has no field for the
    /// rounding; it counts in steps of 16.
    ///
    /// Spec: P07 §4.3.1; LWP §1.2.
    const fn latency_counter(&self) -> (u32, u32) {
        match self {
            Self::Shipped(shipped) => {
                let ecx = shipped.capabilities.ecx;
                (ecx.latency_max(), ecx.latency_rounding())
            }
            Self::Proposal(proposal) => (proposal.capabilities.cache_max as u32, 4),
        }
    }

    /// The latency a record shows for a miss of `cycles`.
    ///
    /// Spec: P07 §4.3.1; LWP §4.2.
    pub(crate) const fn reported_latency(&self, cycles: u32) -> u32 {
        let (bits, rounding) = self.latency_counter();
        reported_latency(cycles, bits, rounding)
    }

    /// Largest latency a record shows, in cycles.
    pub(crate) const fn latency_max(&self) -> u32 {
        latency_max(self.latency_counter().0)
    }

    /// Leaves of a Filters dword what the processor has.
    ///
    /// Spec: P07 §5.1; LWP §3.3.
    pub(crate) fn effective_filters(&self, dword: u32) -> EffectiveFilters {
        let latency = Filters::from_bits_retain(0xFF);
        let levels = Filters::CLF | Filters::NBC | Filters::RDC | Filters::RAM | Filters::OTH;
        match self {
            Self::Shipped(shipped) => {
                let ecx = shipped.capabilities.ecx;
                let mut usable = Filters::NAB | Filters::NCB | Filters::NRB;
                for (capability, bits) in [
                    (Ecx::LWP_CACHE_LATENCY, latency),
                    (Ecx::LWP_CACHE_LEVELS, levels),
                    (Ecx::LWP_BRANCH_PREDICTION, Filters::NMB | Filters::NPB),
                    (Ecx::LWP_IP_FILTERING, Filters::IPF | Filters::IPI),
                ] {
                    if ecx.contains(capability) {
                        usable |= bits;
                    }
                }
                let filters = Filters::from_bits_retain(dword) & usable;
                EffectiveFilters { filters, no_direct_branches: false }
            }
            Self::Proposal(proposal) => {
                let all = Filters2007::from_bits_retain(dword);
                let mut usable = Filters::empty();
                if proposal.capabilities.cache_latency {
                    usable |= latency;
                }
                if proposal.capabilities.cache_levels {
                    usable |= levels;
                }
                EffectiveFilters {
                    filters: all.cache_filters() & usable,
                    no_direct_branches: all.contains(Filters2007::NDB),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: LWP §3.3
    #[test]
    fn lwp_spec_3_3_filters_without_capability_are_ignored() {
        let bulldozer = Processor::shipped(presets::BULLDOZER).effective_filters(u32::MAX);
        assert_eq!(bulldozer.filters, Filters::NAB | Filters::NCB | Filters::NRB);
        let zen = Processor::shipped(presets::AMD_4700S).effective_filters(u32::MAX).filters;
        assert!(zen.contains(Filters::NMB | Filters::NPB | Filters::CLF | Filters::OTH));
        assert!(!zen.intersects(Filters::IPF | Filters::IPI));
        assert_eq!(zen.min_latency(), 4080);
    }

    /// Spec: P07 §5.1, §5.4
    #[test]
    fn p07_5_1_filters_without_capability_are_ignored() {
        let part = |levels, latency| {
            let capabilities = Capabilities2007 {
                cache_levels: levels,
                cache_latency: latency,
                ..Capabilities2007::FULL
            };
            let processor = Processor::Proposal(Proposal { capabilities, core_id: 0, vector: 0 });
            processor.effective_filters(0x1FFF)
        };
        assert_eq!(part(false, true).filters, Filters::from_bits_retain(0xFF));
        assert_eq!(part(true, false).filters.bits(), 0x1F00);
        assert!(part(true, true).admits_branch(BranchKind::DirectJump), "NDB is clear");
        let ndb = Processor::proposal().effective_filters(Filters2007::NDB.bits());
        assert!(!ndb.admits_branch(BranchKind::DirectJump));
        assert!(ndb.admits_branch(BranchKind::DirectCall));
    }
}
