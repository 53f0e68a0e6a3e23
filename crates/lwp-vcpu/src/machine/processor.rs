//! The processor that programs see.

use std::cell::{Cell, OnceCell};
use std::time::{Duration, Instant};

use lwp_arch::cpuid::fn8000_001c;
use lwp_dbt::block::Emulated;
use lwp_process::{SharedMemory, sys};
use lwp_run::config::{Config, LwpConfig, Plan, Target};

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
    clock: PerformanceClock,
}

/// The performance time-stamp counter at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stamp {
    /// Its value.
    now: u64,
    /// The means by which a thread can read it, if there are any.
    clock: Option<StampClock>,
}

impl Stamp {
    /// Its value.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// The means by which a thread can read it, if there are any.
    pub fn clock(&self) -> Option<StampClock> {
        self.clock
    }

    /// The counter for a thread that can't read it.
    pub fn without_clock(self) -> Self {
        Self { clock: None, ..self }
    }
}

/// The relation of the performance time-stamp counter to the processor's time stamp counter, which
/// stays the same during a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StampClock {
    /// The processor's counter when the other was 0.
    base: u64,
    /// Ticks of the other for one of the processor's, times 2³².
    rate: u64,
}

impl StampClock {
    /// The relation that follows from the ticks of both in the time since the latter was `base`:
    /// none if no time has passed.
    fn of(base: u64, processor_ticks: u64, ticks: u64) -> Option<Self> {
        let rate = (u128::from(ticks) << 32).checked_div(u128::from(processor_ticks))?;
        let rate = u64::try_from(rate).ok().filter(|rate| *rate > 0)?;
        Some(Self { base, rate })
    }

    /// The processor's counter when the other was 0, and ticks of the other for one of the
    /// processor's, times 2³².
    pub fn base_and_rate(self) -> (u64, u64) {
        (self.base, self.rate)
    }

    /// The counter's value when the processor's is this.
    fn at(self, processor: u64) -> u64 {
        let passed = u128::from(processor.saturating_sub(self.base));
        ((passed * u128::from(self.rate)) >> 32) as u64
    }
}

/// The performance time-stamp counter: 100 MHz since the run began.
#[derive(Debug)]
struct PerformanceClock {
    started: Instant,
    /// The processor's time stamp counter at that time, if threads may read it.
    base: Option<u64>,
    related: OnceCell<Option<StampClock>>,
}

/// The shortest time in which the rate of the processor's counter is measured. Reading both clocks
/// takes less than a ten-thousandth of it.
const MEASURED: Duration = Duration::from_millis(1);

impl PerformanceClock {
    fn start(config: &Config) -> Self {
        // A process that was attached to may have asked for faults.
        let own = matches!(config.target, Target::Launch { .. });
        let base = if own { sys::time_stamp_counter() } else { None };
        Self { started: Instant::now(), base, related: OnceCell::new() }
    }

    /// Ticks since the run began.
    fn ticks(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64 / 10
    }

    fn stamp(&self) -> Stamp {
        let clock = *self.related.get_or_init(|| self.relate());
        let now = clock.zip(sys::time_stamp_counter()).map(|(clock, tsc)| clock.at(tsc));
        Stamp { now: now.unwrap_or_else(|| self.ticks()), clock }
    }

    /// Measures the rate of the processor's counter since the run began.
    fn relate(&self) -> Option<StampClock> {
        let base = self.base?;
        while self.started.elapsed() < MEASURED {
            std::hint::spin_loop();
        }
        let ticks = self.ticks();
        StampClock::of(base, sys::time_stamp_counter()?.checked_sub(base)?, ticks)
    }
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
        let clock = PerformanceClock::start(config);
        Self { cpu, emulated, random, tsc: 1 << 32, lwp_was_found, random_file, clock }
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

    /// Returns the performance time-stamp counter: 100 MHz since the run began, or the virtual
    /// counter.
    pub fn stamp(&self) -> Stamp {
        match self.emulated.tsc {
            true => Stamp { now: self.tsc, clock: None },
            false => self.clock.stamp(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_performance_counter_follows_from_the_processor_s() {
        // 3 GHz, for a second.
        let clock = StampClock::of(50, 3_000_000_000, 100_000_000).expect("a relation");
        assert_eq!((clock.at(50), clock.at(49)), (0, 0));
        // Less than a millionth off.
        let hour = clock.at(50 + 3600 * 3_000_000_000);
        assert!(hour.abs_diff(3600 * 100_000_000) < 360_000, "{hour}");
        assert_eq!(StampClock::of(50, 0, 10), None);
        assert_eq!(StampClock::of(50, u64::MAX, 1), None);
    }
}
