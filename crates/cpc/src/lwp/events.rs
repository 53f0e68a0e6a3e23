//! The events of Lightweight Profiling by name.

use lwp_arch::EventId;
use lwp_arch::cpuid::fn8000_001c::Features;

/// An event and its names: that of this processor, that of PAPI, and those of perf.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) id: EventId,
    /// The bit of CPUID leaf 8000_001C that says it can be used.
    feature: Features,
    pub(super) names: &'static [&'static str],
}

/// Every event. The names of the processor are those of the bits in CPUID.
#[rustfmt::skip] // One event a line.
pub(super) const TABLE: &[Row] = &[
    row(EventId::VALUE_SAMPLE,         Features::LWP_VAL,   &["lwp_val"]),
    row(EventId::INSTRUCTIONS_RETIRED, Features::LWP_IRE,   &["lwp_ire", "PAPI_tot_ins", "instructions"]),
    row(EventId::BRANCHES_RETIRED,     Features::LWP_BRE,   &["lwp_bre", "PAPI_br_ins", "branches", "branch-instructions"]),
    row(EventId::DCACHE_MISSES,        Features::LWP_DME,   &["lwp_dme", "PAPI_l1_ldm", "L1-dcache-load-misses"]),
    row(EventId::CORE_CLOCKS,          Features::LWP_CNH,   &["lwp_cnh", "PAPI_tot_cyc", "cycles", "cpu-cycles"]),
    row(EventId::REFERENCE_CLOCKS,     Features::LWP_RNH,   &["lwp_rnh", "PAPI_ref_cyc", "ref-cycles"]),
    row(EventId::PROGRAMMED,           Features::LWP_AVAIL, &["lwp_ins"]),
];

const fn row(id: EventId, feature: Features, names: &'static [&'static str]) -> Row {
    Row { id, feature, names }
}

/// The event `name` stands for. Generic names are compared without regard to case.
pub(super) fn by_name(name: &str) -> Option<EventId> {
    let is = |known: &&str| {
        if known.starts_with("PAPI") { known.eq_ignore_ascii_case(name) } else { *known == name }
    };
    TABLE.iter().find(|row| row.names.iter().any(is)).map(|row| row.id)
}

/// Returns whether the unit lets a program use the event.
pub(super) fn has(enabled: Features, id: EventId) -> bool {
    TABLE.iter().any(|row| row.id == id && enabled.contains(row.feature))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generic_names_ignore_case_and_others_do_not() {
        assert_eq!(by_name("papi_TOT_INS"), Some(EventId::INSTRUCTIONS_RETIRED));
        assert_eq!(by_name("lwp_bre"), Some(EventId::BRANCHES_RETIRED));
        assert_eq!(by_name("LWP_BRE"), None);
    }

    #[test]
    fn perf_s_names_are_known() {
        assert_eq!(by_name("instructions"), Some(EventId::INSTRUCTIONS_RETIRED));
        assert_eq!(by_name("branches"), Some(EventId::BRANCHES_RETIRED));
        assert_eq!(by_name("branch-instructions"), Some(EventId::BRANCHES_RETIRED));
        assert_eq!(by_name("L1-dcache-load-misses"), Some(EventId::DCACHE_MISSES));
        assert_eq!(by_name("cycles"), Some(EventId::CORE_CLOCKS));
        assert_eq!(by_name("instructions:u"), None, "modes are flags");
    }

    #[test]
    fn events_that_are_not_enabled_do_not_exist() {
        assert!(!has(Features::LWP_AVAIL | Features::LWP_IRE, EventId::BRANCHES_RETIRED));
        assert!(has(Features::LWP_AVAIL, EventId::PROGRAMMED));
        assert!(!has(Features::empty(), EventId::PROGRAMMED));
        assert!(!has(Features::all(), EventId(7)));
    }
}
