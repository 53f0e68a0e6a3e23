//! The processor that programs see.

use std::cell::Cell;
use std::time::Instant;

use lwp_arch::cpuid::fn8000_001c;
use lwp_dbt::block::Emulated;
use lwp_process::{SharedMemory, sys};
use lwp_run::config::{Config, LwpConfig, Plan};

use crate::cpuid::VirtualCpu;

/// The processor shown, and the state of what it answers by itself.
#[derive(Debug)]
pub struct Processor {
    /// Its identity and features.
    pub cpu: VirtualCpu,
    /// Instructions that are answered instead of executed.
    pub emulated: Emulated,
    /// State of the seeded random stream.
    pub random: u64,
    /// The virtual time stamp counter.
    pub tsc: u64,
    /// A program has read the leaf that describes its Lightweight Profiling, or has used it.
    pub lwp_was_found: Cell<bool>,
    /// Under determinism, the replacement of the random devices, and its path.
    pub random_file: Option<(SharedMemory, String)>,
}

impl Processor {
    /// Makes the processor that a configuration asks for; `fills`: the kernel cannot write to
    /// guarded pages.
    pub fn new(config: &Config, fills: bool) -> Self {
        let cpu = VirtualCpu::new(config.cpu, config.lwp.as_ref());
        let emulated = Emulated {
            xgetbv: cpu.xcr0() != sys::xcr0(),
            tsc: config.program.deterministic,
            random: config.program.deterministic,
            lwp: config.lwp.is_some(),
            no_inserts: config.lwp.as_ref().is_some_and(LwpConfig::is_proposal),
            fewer_states: cpu.real_xcr0() != sys::xcr0(),
            lwp_state: !cpu.components().is_empty(),
            no_transactions: !std::arch::is_x86_feature_detected!("rtm"),
            markers: config.plan == Plan::Exact || config.counted.markers.is_some(),
            requests: config.counted.markers.is_some(),
            writes: config.counted.control_line.is_some(),
            fills,
            // Of the families that need it.
            dispatches: false,
        };
        let random_file =
            if config.program.deterministic { seeded_file(config.program.seed) } else { None };
        let lwp_was_found = Cell::new(false);
        let random = config.program.seed;
        Self { cpu, emulated, random, tsc: 1 << 32, lwp_was_found, random_file }
    }

    /// Answers CPUID.
    pub fn cpuid(&self, leaf: u32, subleaf: u32) -> [u32; 4] {
        if leaf == fn8000_001c::LEAF && self.emulated.lwp {
            self.lwp_was_found.set(true);
        }
        self.cpu.cpuid(leaf, subleaf)
    }

    /// Returns the next number of the seeded stream (splitmix64).
    pub fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns the performance time-stamp counter: 100 MHz since the run began, at `started`, or
    /// the virtual counter.
    pub fn timestamp(&self, started: Instant) -> u64 {
        match self.emulated.tsc {
            true => self.tsc,
            false => started.elapsed().as_nanos() as u64 / 10,
        }
    }

    /// Advances the virtual time stamp counter by `step` and returns it.
    pub fn virtual_tsc(&mut self, step: u64) -> u64 {
        self.tsc += step;
        self.tsc
    }
}

/// A file of seeded random bytes, long enough for any seed, and the path to open it by.
fn seeded_file(seed: u64) -> Option<(SharedMemory, String)> {
    const BYTES: u64 = 1 << 20;
    let file = SharedMemory::new(c"lwp-random", BYTES).ok()?;
    let mut state = seed ^ 0x5851_f42d_4c95_7f2d;
    for at in (0..BYTES).step_by(8) {
        // splitmix64's increment with a multiplicative mix: any even distribution will do.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        file.store(at, mixed ^ (mixed >> 29));
    }
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.fd());
    Some((file, path))
}
