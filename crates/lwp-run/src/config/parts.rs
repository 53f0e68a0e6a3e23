//! The parts of a run's configuration.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::{Addition, Cache, CodePlace, ControlLine, Language, Markers, SampledCode, Sampling};

/// The sampling of events.
#[derive(Clone, Debug)]
pub struct SamplingConfig {
    /// Events that are sampled: at most instructions, one kind of branches, and cache misses. The
    /// processor has no LWP then, because its countdown is used for this. Needs
    /// [`Plan::Plain`](super::Plan::Plain) and a sink.
    pub events: Vec<Sampling>,
    /// So many low bits of every sampling interval, less one, are random: LWP's Random. At most
    /// [`MOST_RANDOM_BITS`](super::MOST_RANDOM_BITS). Every thread has a generator of its own,
    /// seeded by [`ProgramConfig::seed`] and the thread's number.
    ///
    /// Spec: LWP §3.1.
    pub random_bits: u8,
    /// Samples have call stacks; without them they have the sampled instruction alone.
    pub stacks: bool,
    /// Samples' call stacks have the functions of these interpreted languages too, read from the
    /// interpreter's memory.
    pub languages: Vec<Language>,
}

impl Default for SamplingConfig {
    fn default() -> Self {
        Self { events: Vec::new(), random_bits: 0, stacks: true, languages: Vec::new() }
    }
}

/// The bounds of counting and sampling.
#[derive(Clone, Debug)]
pub struct CountedConfig {
    /// Only this code's events are counted and sampled, if it says so.
    pub code: Option<SampledCode>,
    /// Bounds by markers.
    pub markers: Option<Markers>,
    /// Functions, by their first bytes ([`CodePlace::File`]): a thread counts in them and in what
    /// they call. Needs [`CountedConfig::markers`].
    pub within: Vec<CodePlace>,
    /// Only this thread is reported. When it ends, an attached process is left to itself.
    pub only_thread: Option<i32>,
    /// Count from the start; when false, counting waits for
    /// [`Request::Enable`](super::Request::Enable).
    pub start_enabled: bool,
    /// The pipe on which commands come, from which [`Control`](super::Control) has its requests. A
    /// thread of the program that writes one there goes on once it has taken effect.
    pub control_line: Option<ControlLine>,
}

impl Default for CountedConfig {
    fn default() -> Self {
        Self {
            code: None,
            markers: None,
            within: Vec::new(),
            only_thread: None,
            start_enabled: true,
            control_line: None,
        }
    }
}

/// The surroundings of a program, and how long it lives.
#[derive(Clone, Debug)]
pub struct ProgramConfig {
    /// The variables that a launched program begins with; our own where there are none given.
    pub environment: Option<Vec<(OsString, OsString)>>,
    /// The additions to programs, of which each program gets the first that is for it.
    pub additions: Vec<Addition>,
    /// Set an interpreter's own evaluator as its hook where its calls cannot be counted otherwise.
    /// Calls then need more of the stack.
    pub sets_evaluators: bool,
    /// Follow child processes (threads are always followed); a child not followed runs natively.
    pub follow_children: bool,
    /// Leave address space randomisation on. Off by default: layouts repeat, so counts do too.
    pub aslr: bool,
    /// Fixed layout, random numbers, time stamp counter and no vdso.
    pub deterministic: bool,
    /// Seed of everything random under `deterministic`.
    pub seed: u64,
    /// The program finds its tracer in `/proc/PID/status`, as libcpc does, which asks it for
    /// counters.
    pub shows_tracer: bool,
    /// Run a launched program natively, and report it as uncounted, where the machine does not let
    /// the virtual CPU work.
    pub native_fallback: bool,
    /// Kill the program (SIGTERM, then SIGKILL) after this long.
    pub timeout: Option<Duration>,
    /// Let go of standard input and standard output (in this order) once the program has them, so
    /// that their other ends learn when the program closes them.
    pub lets_go: [bool; 2],
}

impl Default for ProgramConfig {
    fn default() -> Self {
        Self {
            environment: None,
            additions: Vec::new(),
            sets_evaluators: false,
            follow_children: true,
            aslr: false,
            deterministic: false,
            seed: 0,
            shows_tracer: false,
            native_fallback: false,
            timeout: None,
            lets_go: [false; 2],
        }
    }
}

/// The reports on a run.
#[derive(Clone, Debug)]
pub struct ReportConfig {
    /// Processes are reported as one, the first, with the sum of all that were counted; those that
    /// were not are reported each on its own. A long run of many processes then takes no more and
    /// more memory. Of no use with a sink, which tells processes apart by their places in the
    /// outcome.
    pub fold: bool,
    /// Reports say how much CPU time each thread has taken.
    pub thread_times: bool,
    /// The interval at which a profile's sink hears of threads that are still running.
    pub checkpoint: Duration,
}

impl Default for ReportConfig {
    fn default() -> Self {
        Self { fold: false, thread_times: false, checkpoint: Duration::from_secs(10) }
    }
}

/// The translations that are kept from run to run.
#[derive(Clone, Debug, Default)]
pub struct KeptConfig {
    /// The cache in which they are kept; see [`Cache`].
    pub cache: Option<Cache>,
    /// Translate code for the cache when a process ends: code of the files that it has mapped.
    pub warm: Option<Warm>,
}

/// The code to be translated ahead of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warm {
    /// Every function.
    Functions,
    /// The blocks that execution profiles know, if there is one of the program at this path, links
    /// followed; else every function.
    Known(PathBuf),
    /// The code that has been executed before, by the file's path as the process sees it: offsets
    /// of instructions in the file, in the order in which they matter.
    Executed(Vec<(PathBuf, Vec<u64>)>),
}
