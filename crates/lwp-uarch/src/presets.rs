//! The numbers of the models, one machine per row, and where they come from.
//!
//! Sources, by the letter in the tables:
//!
//! - **A**: AMD's software optimization guide of the family (47414 for 15h, 57647 for Zen 4), as
//!   quoted with its section numbers in LLVM's scheduling models `X86ScheduleBdVer2.td` and
//!   `X86ScheduleZnver4.td`.
//! - **L**: measurements of the FX-8150 by Lost Circuits, October 2011.
//! - **P**: descriptions of the parts at their launch (cache sizes, associativity, Zen 4's L2 and
//!   L3 latency).
//! - **M**: a measured 63.6 ns to DDR5-6000, at 5 GHz.
//! - **O**: ours; a round figure, with no measurement behind it.
//!
//! Latencies of the third level and of memory differ with clock ratio and modules from one machine
//! to the next; take them as the right size, not as the right number.

use lwp_arch::record::DataSource;

use crate::branch::PredictorShape;
use crate::cache::CacheShape;
use crate::clock::ClockRates;
use crate::latency::{Level, Memory};

/// A modelled machine, as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    /// Name on the command line.
    pub name: &'static str,
    /// The data caches, from the core outwards.
    pub levels: [Level; 3],
    /// The memory behind them.
    pub memory: Memory,
    /// Sizes of the branch predictor, which is only there when asked for.
    pub predictor: PredictorShape,
    /// The rates at which time passes.
    pub clock: ClockRates,
    /// Nominal core clock in Hz.
    pub core_hz: u64,
    /// Reference clock in Hz.
    pub reference_hz: u64,
}

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

const fn level(bytes: u64, ways: u32, latency_cycles: u32, source: DataSource) -> Level {
    Level { shape: CacheShape { bytes, ways, line_bytes: 64 }, latency_cycles, source }
}

const fn dram(latency_cycles: u32) -> Memory {
    Memory { latency_cycles, source: DataSource::Dram }
}

/// The one predictor of all presets, apart from the depth of the return stack: real ones are not
/// published in enough detail to differ by them: DEV-35.
const fn predictor(return_stack: usize) -> PredictorShape {
    PredictorShape { direction_log2: 14, history_bits: 12, indirect_log2: 10, return_stack }
}

const fn clock(width: u32, hidden_cycles: u32, mispredict_cycles: u32) -> ClockRates {
    ClockRates {
        instructions_per_cycle_256: width * 256,
        hidden_cycles,
        exposed_256: 128,
        mispredict_cycles,
    }
}

/// The 100 MHz of the performance time-stamp counter would be too coarse; the reference is a TSC.
const REFERENCE_HZ: u64 = 2_000_000_000;

/// A Family 15h processor of the first generation (Bulldozer): the one LWP was in.
#[rustfmt::skip] // A table.
pub const FAMILY15H: Preset = Preset {
    name: "family15h",
    levels: [
        //    size       ways  cycles                            size ways latency
        level(16 * KIB,  4,    4,   DataSource::NoStatus),    // P    P    A
        level(2 * MIB,   16,   21,  DataSource::NoStatus),    // P    P    L (20 to 22 in page, 25 to 29 random)
        level(8 * MIB,   64,   65,  DataSource::LocalL3),     // P    O    O
    ],
    memory: dram(200),                                        // O
    predictor: predictor(24),                                 // O
    //           width  hidden  mispredicted
    clock: clock(2,     4,      20),                          // O, A, A
    core_hz: 3_600_000_000,                                   // P
    reference_hz: REFERENCE_HZ,                               // O
};

/// A Zen 4 processor.
#[rustfmt::skip] // A table.
pub const ZEN4: Preset = Preset {
    name: "zen4",
    levels: [
        //    size       ways  cycles                            size ways latency
        level(32 * KIB,  8,    4,   DataSource::NoStatus),    // P    P    A
        level(MIB,       8,    14,  DataSource::NoStatus),    // P    P    P
        level(32 * MIB,  16,   50,  DataSource::LocalL3),     // P    P    P
    ],
    memory: dram(320),                                        // M
    predictor: predictor(32),                                 // O
    //           width  hidden  mispredicted
    clock: clock(4,     4,      13),                          // O, A, A (11 to 18, 13 in the common case)
    core_hz: 5_000_000_000,                                   // O
    reference_hz: REFERENCE_HZ,                               // O
};

/// No machine in particular; for numbers that shall not depend on a vendor.
#[rustfmt::skip] // A table.
pub const GENERIC: Preset = Preset {
    name: "generic",
    levels: [
        //    size       ways  cycles                            all O
        level(32 * KIB,  8,    4,   DataSource::NoStatus),
        level(512 * KIB, 8,    14,  DataSource::NoStatus),
        level(16 * MIB,  16,   45,  DataSource::LocalL3),
    ],
    memory: dram(240),
    predictor: predictor(16),
    //           width  hidden  mispredicted
    clock: clock(3,     4,      15),
    core_hz: 4_000_000_000,
    reference_hz: REFERENCE_HZ,
};

/// All presets.
pub const ALL: [&Preset; 3] = [&FAMILY15H, &ZEN4, &GENERIC];

/// The preset of this name.
pub fn by_name(name: &str) -> Option<&'static Preset> {
    ALL.into_iter().find(|preset| preset.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: LWP §11
    #[test]
    fn lwp_spec_11_names_find_their_presets() {
        for preset in ALL {
            assert_eq!(by_name(preset.name), Some(preset));
        }
        assert_eq!(by_name("zen9"), None);
    }

    /// Spec: LWP §11
    #[test]
    fn lwp_spec_11_levels_are_regular_and_grow_outwards() {
        for preset in ALL {
            let mut latency = 0;
            let mut bytes = 0;
            for level in &preset.levels {
                assert!(level.shape.is_regular(), "{}", preset.name);
                assert!(level.latency_cycles > latency && level.shape.bytes > bytes);
                (latency, bytes) = (level.latency_cycles, level.shape.bytes);
            }
            assert!(preset.memory.latency_cycles > latency, "{}", preset.name);
            assert_eq!(preset.clock.hidden_cycles, preset.levels[0].latency_cycles);
        }
    }

    /// Spec: LWP §4.2. DEV-9
    #[test]
    fn lwp_spec_4_2_dev_9_sources_name_the_northbridge_cache_and_memory() {
        for preset in ALL {
            let sources = preset.levels.map(|level| level.source);
            assert_eq!(sources[1..], [DataSource::NoStatus, DataSource::LocalL3]);
            assert_eq!(preset.memory.source, DataSource::Dram);
        }
    }

    /// Every latency fits the counter of the processor that reports it.
    ///
    /// Spec: LWP §1.2, §4.2
    #[test]
    fn lwp_spec_4_2_latencies_fit_the_smallest_counter() {
        for preset in ALL {
            assert!(preset.memory.latency_cycles <= lwp_arch::record::latency_max(10));
        }
    }
}
