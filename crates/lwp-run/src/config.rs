//! The configuration of the virtual CPU, as the user asked for it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use lwp_arch::EventFlags;
use lwp_arch::cpuid::fn8000_001c::Features;
use lwp_arch::cpuid::{Capabilities, Capabilities2007, Edx2007, presets};
use lwp_dbt::context::{MOST_SETS, MOST_WAYS};
use lwp_dbt::plan::branch_bit;
use lwp_languages::functions::Language;
use lwp_model::{Processor, Proposal};
use lwp_process::sys::SigInfo;
use lwp_uarch::presets::Preset;
use lwp_uarch::{Caches, PredictorShape};

use crate::addition::Addition;
use crate::caches::{LEAST_WAY_BYTES, can_be_kept, can_be_watched};
use crate::outcome::ProcessReport;
use crate::sampled_code::{CodePlace, SampledCode};

mod parts;

pub use parts::{CountedConfig, KeptConfig, ProgramConfig, ReportConfig, SamplingConfig, Warm};

/// The program or process that runs on the virtual CPU.
#[derive(Clone, Debug)]
pub enum Target {
    /// A program to start.
    Launch {
        /// The file to execute, already searched for in `PATH`.
        program: PathBuf,
        /// The whole argument vector, `argv[0]` included.
        argv: Vec<OsString>,
    },
    /// A live process to take over, all threads, until it ends or a stop is asked for.
    Attach {
        /// Its process id.
        pid: i32,
    },
}

/// The instrumentation that the translated code carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Plan {
    /// Translation only.
    Plain,
    /// One execution counter per fragment and per not-taken edge: every retired instruction and
    /// branch is counted.
    Exact,
}

/// The processor that CPUID, XGETBV and the auxiliary vector show to the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum CpuModel {
    /// The host's own features, minus those that cannot be translated.
    #[default]
    Host,
    /// The host's own features without state beyond AVX, as on the processors that had Lightweight
    /// Profiling, so that XSAVE's component 62 has the same offset as on them.
    HostAvx,
    /// Fixed x86-64-v2 processor: up to SSE4.2 and POPCNT.
    V2,
    /// Fixed x86-64-v3 processor: AVX2, BMI, FMA.
    V3,
    /// Fixed x86-64-v4 processor: AVX-512 F, BW, CD, DQ, VL.
    V4,
}

/// Lightweight Profiling on the virtual CPU.
#[derive(Clone, Debug)]
pub struct LwpConfig {
    /// The form of LWP that the processor has.
    pub processor: Processor,
    /// The events that the system lets programs count: what `LWP_CFG` (`LWPMSR0`) holds.
    pub events: EventFlags,
    /// The machine whose clocks the modelled clock events follow.
    pub machine: &'static Preset,
    /// The data caches whose misses are counted; see [`fits`](Self::fits).
    pub caches: Caches,
    /// The branch predictor that judges every branch; without it nothing is known of predictions.
    pub predictor: Option<PredictorShape>,
    /// The way in which the threshold interrupt reaches the program.
    pub interrupt: Interrupt,
}

/// The machine whose caches and clocks are modelled.
const MACHINE: &Preset = &lwp_uarch::presets::GENERIC;

impl LwpConfig {
    /// The LWP of a real part by its name, or `full` for all that is documented; without DCache
    /// misses where this machine lacks the instructions to watch for them.
    ///
    /// Spec: LWP §1.3.
    pub fn part(name: &str) -> Option<Self> {
        let (_, part) = presets::ALL.into_iter().find(|(known, _)| *known == name)?;
        let mut features = part.features;
        if !can_watch_caches() {
            features.remove(Features::LWP_DME);
        }
        Some(Self::of(Processor::shipped(Capabilities { features, ..part })))
    }

    /// LWP as it was proposed in 2007, likewise.
    pub fn proposal() -> Self {
        let full = Capabilities2007::FULL;
        let mut features = full.features;
        if !can_watch_caches() {
            features.remove(Edx2007::DME);
        }
        let capabilities = Capabilities2007 { features, ..full };
        Self::of(Processor::Proposal(Proposal { capabilities, core_id: 0, vector: 0xff }))
    }

    /// Returns whether it is the form of 2007, which has no LWPINS and no LWPVAL.
    pub fn is_proposal(&self) -> bool {
        matches!(self.processor, Processor::Proposal(_))
    }

    fn of(processor: Processor) -> Self {
        Self {
            processor,
            events: EventFlags::all(),
            machine: MACHINE,
            caches: Caches::of(MACHINE),
            predictor: None,
            interrupt: Interrupt::default(),
        }
    }

    /// Returns whether translated code can keep the first level of `caches`; if not, why.
    ///
    /// # Errors
    ///
    /// One clause that names the limit.
    pub fn fits(caches: &Caches) -> Result<(), String> {
        let shape = caches.levels.first().ok_or("there is no level")?.shape;
        match can_be_kept(&shape) {
            true => Ok(()),
            false => Err(format!(
                "the first level has {} sets of {} lines; the virtual CPU keeps at most \
                 {MOST_SETS} sets of {MOST_WAYS} lines, and at least {LEAST_WAY_BYTES} bytes a way",
                shape.sets(),
                shape.ways
            )),
        }
    }
}

/// Returns whether the misses of a modelled data cache can be counted on this machine: its
/// processor needs BMI2 and FSGSBASE.
pub fn can_watch_caches() -> bool {
    can_be_watched()
}

impl Default for LwpConfig {
    fn default() -> Self {
        Self::part("full").unwrap_or_else(Self::proposal)
    }
}

/// A program's substitute for the interrupt that LWP raises when a ring fills to its threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupt {
    /// Nothing: it polls.
    None,
    /// A signal to the thread whose ring it is.
    Thread(i32),
    /// A signal to its process.
    Process(i32),
    /// One more on the eventfd that its process has under this descriptor: whoever waits for that,
    /// another thread or another process, drains the ring.
    EventFd(i32),
}

impl Default for Interrupt {
    /// SIGPWR to the thread: the kernel sends it to nobody but init, and one that is already
    /// pending is not queued again. It is sent only where the control block asks for interrupts and
    /// the program has a handler for it.
    fn default() -> Self {
        Self::Thread(30)
    }
}

/// An event that is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// The occurrences that count.
    pub what: Sampled,
    /// Every so many of them, in each thread, one is a sample. At least 1.
    pub interval: u64,
}

/// Most random bits of an interval: LWP's Random field has four.
pub const MOST_RANDOM_BITS: u8 = 15;

impl Sampling {
    /// The number of events that a sample stands for on average, where `random_bits` of the
    /// interval are random; halves are rounded down.
    pub fn mean_interval(&self, random_bits: u8) -> u64 {
        let mask = (1u64 << random_bits.min(MOST_RANDOM_BITS)) - 1;
        ((self.interval.max(1) - 1) & !mask) + mask / 2 + 1
    }
}

/// The occurrences that a sampled event counts, in each thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampled {
    /// Instructions, save those that enter the kernel.
    Instructions,
    /// Branches of these kinds, a bit each as in [`lwp_dbt::plan::branch_bit`].
    Branches(u8),
    /// Loads that miss the modelled data cache, whose model is that of [`LwpConfig::default`].
    /// Needs [`crate::can_watch_caches`].
    DcacheMisses,
}

impl Sampled {
    /// Every near branch.
    pub const ALL_BRANCHES: Self = Self::Branches(
        branch_bit::CONDITIONAL
            | branch_bit::DIRECT_JUMP
            | branch_bit::DIRECT_CALL
            | branch_bit::INDIRECT_JUMP
            | branch_bit::INDIRECT_CALL
            | branch_bit::RETURN,
    );
    /// Conditional branches.
    pub const CONDITIONAL: Self = Self::Branches(branch_bit::CONDITIONAL);
    /// Near calls.
    pub const CALLS: Self = Self::Branches(branch_bit::DIRECT_CALL | branch_bit::INDIRECT_CALL);
    /// Near returns.
    pub const RETURNS: Self = Self::Branches(branch_bit::RETURN);
    /// Indirect jumps and calls.
    pub const INDIRECT: Self =
        Self::Branches(branch_bit::INDIRECT_JUMP | branch_bit::INDIRECT_CALL);
}

/// Bounds within which a program counts, by markers of its own. Without any, markers change
/// nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Markers {
    /// A process counts from a marker that starts it to one that stops it, all of its threads; and
    /// a thread between two that toggle it.
    Between,
    /// As Callgrind has it: a thread counts where it collects and its process is instrumented.
    Callgrind {
        /// Threads collect from their beginning.
        collect: bool,
        /// Processes are instrumented from their beginning.
        instrument: bool,
    },
}

/// A place for translations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// The directory; made if it is missing.
    pub place: PathBuf,
    /// Most bytes in it.
    pub limit: u64,
}

/// A way to notice writes to generated code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Guards {
    /// Pages with generated code are guarded against writes by the best way that the kernel allows;
    /// where it allows none, generated code compares its own bytes.
    #[default]
    Best,
    /// They are guarded as for users without privileges: the kernel's own writes do not wait.
    UserMode,
    /// They are guarded as under a container's filter: by their protection.
    Protection,
    /// No page is guarded: generated code compares its own bytes.
    Off,
}

/// Settings for trials and tests. They change speed and messages, and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trials {
    /// The way to notice writes to generated code.
    pub guards: Guards,
    /// Most bytes of an arena, where that is less than usual.
    pub arena_bytes: Option<u64>,
    /// Number of fragments of changing code from which on waste is flushed, where that is less than
    /// usual.
    pub waste: Option<usize>,
    /// The time after which a program is laid out anew while it runs, where that is not the usual
    /// one.
    pub improve: Option<Duration>,
    /// Code without room near it is translated far away from it.
    pub far: bool,
    /// Threads take samples by themselves.
    pub keeps: bool,
    /// The tracer prints the stops that it handles.
    pub trace: bool,
}

impl Default for Trials {
    fn default() -> Self {
        Self {
            guards: Guards::Best,
            arena_bytes: None,
            waste: None,
            improve: None,
            far: true,
            keeps: true,
            trace: false,
        }
    }
}

/// A run of the virtual CPU.
#[derive(Clone, Debug)]
pub struct Config {
    /// The program or process to run.
    pub target: Target,
    /// The counts to take.
    pub plan: Plan,
    /// The processor shown.
    pub cpu: CpuModel,
    /// Lightweight Profiling; without it the processor has none.
    pub lwp: Option<LwpConfig>,
    /// Data caches whose misses are counted, instruction by instruction. The processor has no LWP
    /// then, because what watches the caches is used for this. Needs [`Plan::Exact`], a sink,
    /// [`can_watch_caches`] and caches that [fit](LwpConfig::fits); excludes sampled events.
    pub model: Option<Caches>,
    /// The events that are sampled, and what their samples have.
    pub sampling: SamplingConfig,
    /// The events that count at all.
    pub counted: CountedConfig,
    /// The program's surroundings.
    pub program: ProgramConfig,
    /// The reports on the run.
    pub reports: ReportConfig,
    /// The translations that are kept from run to run.
    pub kept: KeptConfig,
    /// For trials and tests.
    pub trials: Trials,
}

impl Config {
    /// Returns whether the samples of the run are wanted.
    pub fn samples(&self) -> bool {
        !self.sampling.events.is_empty()
    }

    /// Returns whether the work of a thread is to be reported.
    pub fn reports(&self, tid: lwp_process::Tid) -> bool {
        self.counted.only_thread.is_none_or(|only| only == tid)
    }

    /// Returns whether translated code works for the host from the first instruction on: samples
    /// are wanted, or misses.
    pub fn watches(&self) -> bool {
        self.samples() || self.model.is_some()
    }

    /// Runs `program` with `argv`, everything else at its default.
    pub fn launch(program: PathBuf, argv: Vec<OsString>, plan: Plan) -> Self {
        Self {
            target: Target::Launch { program, argv },
            plan,
            cpu: CpuModel::Host,
            lwp: Some(LwpConfig::default()),
            model: None,
            sampling: SamplingConfig::default(),
            counted: CountedConfig::default(),
            program: ProgramConfig::default(),
            reports: ReportConfig::default(),
            kept: KeptConfig::default(),
            trials: Trials::default(),
        }
    }
}

/// A pipe or fifo, by the device and inode of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlLine {
    /// The device.
    pub device: u64,
    /// The inode.
    pub inode: u64,
}

/// A request to a run in progress. Counting is switched by taking the difference of the counters,
/// so neither request stops the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Count from here on.
    Enable,
    /// Count no further.
    Disable,
    /// End the run: detach from an attached process, or signal a launched one with SIGTERM.
    Stop,
    /// A note that a command of [`CountedConfig::control_line`] has been read, and its request
    /// made.
    Heard,
    /// Pass on to a launched program a signal that was sent to this process instead.
    Signal(SigInfo),
    /// Send what has been counted so far to [`Control::reports`]. The program runs meanwhile:
    /// counts of one moment belong together only to within what it executes while they are read.
    Report,
}

/// The source of a run's requests.
#[derive(Debug)]
pub struct Control {
    /// Requests, in order; each is acknowledged on `done` once it has taken effect.
    pub requests: Receiver<Request>,
    /// Acknowledgements.
    pub done: std::sync::mpsc::Sender<Request>,
    /// The channel on which [`Request::Report`] is answered; each answer is as the run's processes
    /// would be if it ended now.
    pub reports: Option<std::sync::mpsc::Sender<Vec<ProcessReport>>>,
}
