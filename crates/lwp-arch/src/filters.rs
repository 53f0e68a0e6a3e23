//! The Filters dword, which decides which occurrences of an event count.
//!
//! An occurrence that a filter rejects isn't even counted, let alone recorded. An occurrence must
//! pass all filters. If the processor lacks the capability of a filter, the filter is ignored.

use crate::retired::{BranchClass, BranchKind};

/// Cycles per step of MinLatency.
///
/// Spec: P07 §5.4; LWP §3.3.
pub const LATENCY_STEP: u32 = 16;

/// Declares the accessors that both revisions of the dword share.
///
/// `latency_filters!(Filters)` adds `min_latency` and `with_min_latency` to the bitflags type
/// `Filters`.
macro_rules! latency_filters {
    ($Name:ident) => {
        impl $Name {
            /// MinLatency in cycles, a multiple of 16; 0 for no filter by latency.
            ///
            /// Spec: P07 §5.4; LWP §3.3.
            pub const fn min_latency(self) -> u32 {
                (self.bits() & 0xFF) * LATENCY_STEP
            }

            /// Returns these filters with MinLatency set to `steps` times 16 cycles.
            #[must_use]
            pub const fn with_min_latency(self, steps: u8) -> Self {
                Self::from_bits_retain(self.bits() & !0xFF | steps as u32)
            }
        }
    };
}

bitflags::bitflags! {
    /// The Filters dword of the shipped LWPCB.
    ///
    /// ```text
    ///   31  30  29  28  27  26  25  24    13 12  11  10   9   8  7         0
    ///  +---+---+---+---+---+---+---+--------+---+---+---+---+---+------------+
    ///  |IPF|IPI|NRB|NCB|NAB|NPB|NMB|reserved|OTH|RAM|RDC|NBC|CLF| MinLatency |
    ///  +---+---+---+---+---+---+---+--------+---+---+---+---+---+------------+
    /// ```
    ///
    /// Bits 27 to 29 were observed on real processors; the other positions are unconfirmed: DEV-2.
    ///
    /// Spec: LWP §3.3.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct Filters: u32 {
        /// Filter by cache level: the next four bits say which levels count.
        const CLF = 1 << 8;
        /// Count misses served by a cache on the northbridge.
        const NBC = 1 << 9;
        /// Count misses served by a remote data cache.
        const RDC = 1 << 10;
        /// Count misses served by DRAM.
        const RAM = 1 << 11;
        /// Count misses served by anything else, such as MMIO.
        const OTH = 1 << 12;
        /// Do not count mispredicted branches.
        const NMB = 1 << 25;
        /// Do not count correctly predicted branches.
        const NPB = 1 << 26;
        /// Do not count absolute branches.
        const NAB = 1 << 27;
        /// Do not count conditional branches.
        const NCB = 1 << 28;
        /// Do not count unconditional relative branches.
        const NRB = 1 << 29;
        /// Invert the test of the IP filter.
        const IPI = 1 << 30;
        /// Filter by instruction address.
        const IPF = 1 << 31;

        // MinLatency and the reserved bits are part of the value.
        const _ = !0;
    }
}

latency_filters!(Filters);

impl Filters {
    /// Returns whether a branch of this class may count.
    ///
    /// Spec: LWP §3.3.
    pub const fn admits_class(self, class: BranchClass) -> bool {
        let barred = match class {
            BranchClass::Absolute => Self::NAB,
            BranchClass::Conditional => Self::NCB,
            BranchClass::Relative => Self::NRB,
        };
        !self.contains(barred)
    }

    /// Returns whether a branch may count that was predicted correctly, mispredicted, or not
    /// predicted (`None`). A branch without a prediction always counts: DEV-3.
    ///
    /// Spec: LWP §3.3.
    pub const fn admits_prediction(self, predicted: Option<bool>) -> bool {
        match predicted {
            Some(true) => !self.contains(Self::NPB),
            Some(false) => !self.contains(Self::NMB),
            None => true,
        }
    }

    /// Returns whether an instruction at `ip` passes the IP filter:
    /// `(base_ip ≤ ip ≤ limit_ip) ≠ IPI`. Both ends belong to the range: DEV-4. Always true while
    /// IPF is clear.
    ///
    /// Spec: LWP §3.3.
    pub const fn admits_ip(self, ip: u64, base_ip: u64, limit_ip: u64) -> bool {
        if !self.contains(Self::IPF) {
            return true;
        }
        let inside = base_ip <= ip && ip <= limit_ip;
        inside != self.contains(Self::IPI)
    }
}

bitflags::bitflags! {
    /// The filter dword of the 2007 LWPCB.
    ///
    /// ```text
    ///   31            14  13  12  11  10   9   8  7         0
    ///  +----------------+---+---+---+---+---+---+------------+
    ///  |    reserved    |NDB|OTH|RAM|RDC|NBC|CLF| MinLatency |
    ///  +----------------+---+---+---+---+---+---+------------+
    /// ```
    ///
    /// The names and their order are documented; the positions are this project's choice: DEV-1.
    ///
    /// Spec: P07 §5.4 table 4.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct Filters2007: u32 {
        /// Filter by cache level: the next four bits say which levels count.
        const CLF = 1 << 8;
        /// Count misses served by a cache on the northbridge.
        const NBC = 1 << 9;
        /// Count misses served by a remote data cache.
        const RDC = 1 << 10;
        /// Count misses served by DRAM.
        const RAM = 1 << 11;
        /// Count misses served by anything else, such as MMIO.
        const OTH = 1 << 12;
        /// Do not count unconditional jumps relative to RIP. Calls still count.
        const NDB = 1 << 13;

        // MinLatency and the reserved bits are part of the value.
        const _ = !0;
    }
}

latency_filters!(Filters2007);

impl Filters2007 {
    /// Returns whether a branch of this kind may count.
    ///
    /// The proposal lists "calls" among the branches that count normally, without excluding direct
    /// ones, so NDB drops only direct unconditional jumps.
    ///
    /// Spec: P07 §5.4 table 4.
    pub const fn admits_kind(self, kind: BranchKind) -> bool {
        !(self.contains(Self::NDB) && matches!(kind, BranchKind::DirectJump))
    }

    /// The cache filters in their shipped positions, which are the same.
    ///
    /// Spec: LWP §3.4.
    pub const fn cache_filters(self) -> Filters {
        Filters::from_bits_retain(self.bits() & 0x1FFF)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: LWP §3.3. DEV-2
    #[test]
    fn lwp_spec_3_3_dev_2_filter_positions() {
        #[rustfmt::skip] // A table.
        let positions = [
            (Filters::CLF, 8), (Filters::NBC, 9), (Filters::RDC, 10), (Filters::RAM, 11),
            (Filters::OTH, 12), (Filters::NMB, 25), (Filters::NPB, 26), (Filters::NAB, 27),
            (Filters::NCB, 28), (Filters::NRB, 29), (Filters::IPI, 30), (Filters::IPF, 31),
        ];
        for (filter, bit) in positions {
            assert_eq!(filter.bits(), 1 << bit, "{filter:?}");
        }
    }

    /// Spec: LWP §3.3
    #[test]
    fn lwp_spec_3_3_min_latency_counts_in_steps_of_16() {
        let filters = Filters::from_bits_retain(0x8000_0105);
        assert_eq!(filters.min_latency(), 80);
        let wider = filters.with_min_latency(255);
        assert_eq!(wider.min_latency(), 4080);
        assert!(wider.contains(Filters::IPF | Filters::CLF), "the other bits stay");
    }

    /// The value a replay debugger used on silicon to count conditional branches only.
    ///
    /// Spec: LWP §3.3
    #[test]
    fn lwp_spec_3_3_nab_and_nrb_leave_conditional_branches() {
        let filters = Filters::from_bits_retain(0x2800_0000);
        assert!(filters.admits_class(BranchClass::Conditional));
        assert!(!filters.admits_class(BranchClass::Relative));
        assert!(!filters.admits_class(BranchClass::Absolute));
        let none = Filters::from_bits_retain(0x3800_0000);
        assert!(!none.admits_class(BranchClass::Conditional));
    }

    /// Spec: LWP §3.3
    #[test]
    fn lwp_spec_3_3_prediction_filters_split_predicted_branches() {
        assert!(!Filters::NMB.admits_prediction(Some(false)));
        assert!(Filters::NMB.admits_prediction(Some(true)));
        assert!(!Filters::NPB.admits_prediction(Some(true)));
        assert!(Filters::NPB.admits_prediction(Some(false)));
        let both = Filters::NMB | Filters::NPB;
        assert!(!both.admits_prediction(Some(true)) && !both.admits_prediction(Some(false)));
    }

    /// Spec: LWP §3.3. DEV-3
    #[test]
    fn lwp_spec_3_3_dev_3_unpredicted_branches_pass_the_prediction_filters() {
        assert!((Filters::NMB | Filters::NPB).admits_prediction(None));
    }

    /// Spec: LWP §3.3. DEV-4
    #[test]
    fn lwp_spec_3_3_dev_4_ip_range_includes_both_ends_and_can_be_inverted() {
        let admitted = |filters: Filters, ip| filters.admits_ip(ip, 0x1000, 0x1FFF);
        for (ip, inside) in [(0xFFF, false), (0x1000, true), (0x1FFF, true), (0x2000, false)] {
            assert_eq!(admitted(Filters::IPF, ip), inside, "{ip:#x}");
            assert_eq!(admitted(Filters::IPF | Filters::IPI, ip), !inside, "{ip:#x} inverted");
            assert!(admitted(Filters::IPI, ip), "IPI alone does nothing");
        }
    }

    /// Spec: P07 §5.4
    #[test]
    fn p07_5_4_ndb_drops_direct_jumps_only() {
        use BranchKind::*;
        for kind in [Conditional, DirectCall, IndirectJump, IndirectCall, Return, FarTransfer] {
            assert!(Filters2007::NDB.admits_kind(kind), "{kind:?}");
        }
        assert!(!Filters2007::NDB.admits_kind(DirectJump));
        assert!(Filters2007::empty().admits_kind(DirectJump));
    }

    /// Spec: LWP §3.4
    #[test]
    fn lwp_spec_3_4_cache_filters_keep_their_place() {
        let filters = (Filters2007::NDB | Filters2007::CLF | Filters2007::RAM).with_min_latency(3);
        assert_eq!(
            filters.cache_filters(),
            (Filters::CLF | Filters::RAM).with_min_latency(3),
            "NDB has no shipped counterpart"
        );
    }
}
