//! Where a program's CPU time goes: the program runs natively, and the kernel samples it.
//!
//! A `cpu-clock` event of each processor interrupts a thread after each period of CPU time that it
//! has taken, and puts its registers, the top of its stack and the kernel's call chain into a ring
//! ([`lwp_perf::Rings`]). lwp reads the rings, walks the stacks by unwind tables, and reports
//! threads, modules and samples to the [`Sink`] that the virtual CPU reports to as well: the
//! recording is one of samples.
//!
//! Sums are the kernel's own: the scheduler's accounts of all processes. The difference between
//! them and the samples is reported as what it is: time in the kernel, where that may not be seen,
//! lost samples, and time between samples: of threads that ended before their next one, and where
//! the kernel took one late.
#![forbid(unsafe_code)]

mod address_space;
mod attach;
mod attended;
mod clocks;
mod cost;
mod front;
mod kernel_names;
mod launch;
mod machine;
mod off_cpu;
mod reasons;
mod remainder;
mod samples;
mod sleeper;
mod source;
mod stacks;
mod stops;
mod threads;

use std::sync::Arc;
use std::time::Duration;

use lwp_perf::attr::kind;
use lwp_perf::rings::{RingsOptions, Scope};
use lwp_perf::{Event, Kernel, Modes, Rings, Unavailable};
use lwp_process::spawn::SpawnError;
use lwp_process::sys;
use lwp_vcpu::{ExitStatus, Language};

pub use attach::{Attached, code_files, untraceable};
pub use attended::Times;
pub use clocks::user_time_of_children;
pub use cost::{CostOfSample, RATES};
pub use front::{Front, Side, split};
pub use launch::{Launch, record};
pub use lwp_perf::Linux;
pub use machine::Machine;
pub use off_cpu::{OffCpu, Spans, UNIT_NS};
pub use remainder::Remainder;
pub use samples::LabelNames;
pub use stacks::Completeness;
pub use stops::StopSums;

/// The reason why a program could not be timed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel refuses to sample.
    #[error("{0}")]
    Unavailable(#[from] Unavailable),
    /// The program, or its interpreter, does not exist.
    #[error("the program was not found")]
    NotFound,
    /// The program cannot be executed.
    #[error("{0}")]
    NotExecutable(String),
    /// There is no thread with this number.
    #[error("there is no thread {0}")]
    NoThread(i32),
    /// There is no process with this number.
    #[error("there is no process {0}")]
    NoProcess(i32),
    /// The kernel refuses to let lwp stop threads.
    #[error("ptrace(2): {0}")]
    NoStops(sys::Errno),
    /// The kernel refuses events that stop threads.
    #[error("perf_event_open(2) with sigtrap: {0}")]
    NoTraps(lwp_perf::Errno),
    /// The kernel has no accounts of threads.
    #[error("the kernel has no accounts of threads (CONFIG_SCHED_INFO)")]
    NoAccounts,
    /// A call failed that mostly does not.
    #[error("{what}: {errno}")]
    Call {
        /// The call.
        what: &'static str,
        /// The kernel's error.
        errno: lwp_perf::Errno,
    },
}

impl Error {
    /// The failure of a call.
    fn call(what: &'static str, errno: sys::Errno) -> Self {
        Self::Call { what, errno: lwp_perf::Errno::from_raw_os_error(errno.0) }
    }
}

impl From<SpawnError> for Error {
    fn from(error: SpawnError) -> Self {
        match error {
            SpawnError::Exec(sys::Errno(NOT_FOUND)) => Self::NotFound,
            SpawnError::Exec(error) => Self::NotExecutable(error.to_string()),
            SpawnError::Killed { signal, .. } => {
                Self::NotExecutable(format!("killed by signal {signal}"))
            }
            SpawnError::Nul => Self::NotExecutable("an argument contains a NUL byte".to_owned()),
            SpawnError::Trace(error) => Self::call("making a process", error),
        }
    }
}

/// ENOENT.
const NOT_FOUND: i32 = 2;

/// The name of the event in recordings; it counts nanoseconds.
pub const EVENT: &str = "cpu-time";
/// The name of the event of threads that have no processor; it counts nanoseconds too.
pub const OFF_EVENT: &str = "off-cpu";

/// The bytes of a sampled stack, unless another number is asked for. The kernel copies them all,
/// however few the stack has.
pub const STACK_BYTES: u32 = 16 << 10;
/// The most bytes of a sampled stack: a record has at most 64 KiB.
pub const MOST_STACK_BYTES: u32 = 63 << 10;

/// The most bytes of all rings together.
const ALL_RINGS: usize = 64 << 20;
/// The most bytes of one ring.
const LARGEST_RING: usize = 4 << 20;

/// The most bytes of a ring for records of switches alone.
const SWITCH_RING: usize = 1 << 20;

/// Who takes samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// The kernel does, at events of its clock.
    Events,
    /// lwp does: it stops threads for a moment.
    Stops,
    /// Events of the kernel's clock stop threads, and lwp looks at them before they go on.
    Traps,
}

/// The way in which time is sampled on this machine.
#[derive(Clone, Debug)]
pub struct Sampling {
    mechanism: Mechanism,
    kernel: Arc<dyn Kernel>,
    modes: Modes,
    /// Bytes of the user stack in each sample; 0: no stacks.
    stack_bytes: u32,
    cost: CostOfSample,
    rate: u64,
    /// The kernel records switches of threads.
    switches: bool,
    /// Threads stand still until their stacks are walked, which may be deeper than what is copied.
    still: bool,
    /// Languages whose functions are read from their interpreters, where threads stand still for
    /// samples.
    languages: Vec<Language>,
}

impl Sampling {
    /// Finds out whether the kernel may be seen, and what a sample costs. Without a `rate`, in
    /// samples a second of CPU time, the highest of [`RATES`] is taken that costs at most 1 %.
    ///
    /// # Errors
    ///
    /// The kernel refuses to sample.
    pub fn choose(
        kernel: Arc<dyn Kernel>,
        stack_bytes: u32,
        rate: Option<u64>,
    ) -> Result<Self, Unavailable> {
        let all = Modes::USER | Modes::KERNEL;
        let measured = cost::measure(&kernel, all, stack_bytes);
        let (modes, cost) = match measured {
            Ok(cost) => (all, cost),
            Err(_) => (Modes::USER, cost::measure(&kernel, Modes::USER, stack_bytes)?),
        };
        let rate = rate.unwrap_or_else(|| cost.rate());
        let switches = cost::records_switches(&kernel, modes);
        let mechanism = Mechanism::Events;
        let (still, languages) = (false, Vec::new());
        Ok(Self { mechanism, kernel, modes, stack_bytes, cost, rate, switches, still, languages })
    }

    /// Finds out what a sample costs that lwp takes itself, for where the kernel refuses to: it
    /// traces the program, and stops threads for a moment. Rates are chosen as by
    /// [`choose`](Self::choose).
    ///
    /// # Errors
    ///
    /// ptrace(2) is refused, or the kernel has no accounts of threads.
    pub fn by_stops(stack_bytes: u32, rate: Option<u64>) -> Result<Self, Error> {
        if !stops::has_accounts() {
            return Err(Error::NoAccounts);
        }
        let cost = stops::measure(stops::Trial { stack_bytes: stack_bytes as usize, traps: None })?;
        Ok(Self {
            mechanism: Mechanism::Stops,
            kernel: Arc::new(Linux),
            modes: Modes::USER,
            stack_bytes,
            cost,
            rate: rate.unwrap_or_else(|| cost.rate()),
            switches: false,
            still: false,
            languages: Vec::new(),
        })
    }

    /// Has events stop threads for samples, so that their whole stacks and the functions of these
    /// languages can be read. Modes, and how much of the stack is copied first, stay as they are.
    ///
    /// # Errors
    ///
    /// ptrace(2) is refused, or the kernel has no such events.
    pub fn by_traps(self, languages: Vec<Language>, rate: Option<u64>) -> Result<Self, Error> {
        let trial =
            stops::Trial { stack_bytes: self.stack_bytes as usize, traps: Some(self.modes) };
        let cost = stops::measure(trial)?;
        let rate = rate.unwrap_or_else(|| cost.rate());
        Ok(Self { mechanism: Mechanism::Traps, cost, rate, still: true, languages, ..self })
    }

    /// Has lwp stop threads that run, for moments, so that whole stacks and functions of these
    /// languages can be read in a process that runs already. Nothing is left behind in it if lwp is
    /// killed. Switches are seen as before.
    ///
    /// # Errors
    ///
    /// ptrace(2) is refused, or the kernel has no accounts of threads.
    pub fn by_interrupts(self, languages: Vec<Language>, rate: Option<u64>) -> Result<Self, Error> {
        let switches = self.switches;
        let stops = Self::by_stops(self.stack_bytes, rate)?;
        Ok(Self { switches, still: true, languages, kernel: self.kernel, ..stops })
    }

    /// Reads functions of these languages too where threads are stopped for samples, and whole
    /// stacks if `still`.
    #[must_use]
    pub fn reading(self, languages: Vec<Language>, still: bool) -> Self {
        Self { still: still || !languages.is_empty(), languages, ..self }
    }

    /// The languages whose functions are read from their interpreters.
    pub fn languages(&self) -> &[Language] {
        &self.languages
    }

    /// Who takes samples.
    pub fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// The way in which lwp stops threads.
    fn stops(&self, children: bool) -> stops::Plan {
        let stack_bytes = self.stack_bytes as usize;
        let traps = (self.mechanism == Mechanism::Traps).then_some(self.modes);
        let still = self.still;
        stops::Plan { period_ns: self.period_ns(), stack_bytes, children, traps, still }
    }

    /// Nanoseconds between two samples of a thread.
    pub fn period_ns(&self) -> u64 {
        (1_000_000_000 / self.rate.max(1)).max(1)
    }

    /// Samples a second of CPU time.
    pub fn rate(&self) -> u64 {
        self.rate
    }

    /// What a sample costs.
    pub fn cost(&self) -> CostOfSample {
        self.cost
    }

    /// Returns whether threads off the processor are seen: Linux 4.3 and later record switches.
    pub fn sees_switches(&self) -> bool {
        self.switches
    }

    /// Returns whether samples in the kernel are seen.
    pub fn sees_kernel(&self) -> bool {
        self.modes.contains(Modes::KERNEL)
    }

    /// Opens the rings for a process that has not executed its program yet.
    fn open(&self, pid: i32, children: bool) -> Result<Rings, Unavailable> {
        Rings::open(Arc::clone(&self.kernel), &self.options(Scope::Launched(pid), children))
    }

    /// Opens rings for threads that run, none of which has events yet.
    fn attached(&self, children: bool) -> Result<Rings, Unavailable> {
        Rings::open(Arc::clone(&self.kernel), &self.options(Scope::Running, children))
    }

    /// Opens rings for one thread that runs, which has no events yet.
    fn one_thread(&self) -> Result<Rings, Unavailable> {
        Rings::open(Arc::clone(&self.kernel), &self.options(Scope::Thread, false))
    }

    /// Opens rings for everything that runs.
    fn machine(&self) -> Result<Rings, Unavailable> {
        Rings::open(Arc::clone(&self.kernel), &self.options(Scope::Machine, true))
    }

    /// Opens rings for records of switches alone, of threads that are stopped for samples.
    fn switch_records(&self, children: bool) -> Result<Rings, Unavailable> {
        const DUMMY: u64 = 9;
        let options = RingsOptions {
            event: Event::new("dummy", kind::SOFTWARE, DUMMY),
            period: 0,
            stack_bytes: 0,
            ring_bytes: SWITCH_RING,
            ..self.options(Scope::Running, children)
        };
        Rings::open(Arc::clone(&self.kernel), &options)
    }

    fn options(&self, scope: Scope, children: bool) -> RingsOptions {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let share = (ALL_RINGS / processors).max(1 << 16);
        RingsOptions {
            event: clock(),
            period: self.period_ns(),
            scope,
            children,
            switches: self.switches && scope != Scope::Machine,
            modes: self.modes,
            stack_bytes: self.stack_bytes,
            ring_bytes: LARGEST_RING.min(1 << share.ilog2()),
        }
    }

    /// The time in which samples of one processor fill half of its ring, within bounds.
    fn patience(&self, ring_bytes: usize) -> Duration {
        let bytes = u64::from(self.stack_bytes) + 512;
        let samples = (ring_bytes as u64 / 2 / bytes).max(1);
        let ns = samples.saturating_mul(self.period_ns());
        Duration::from_nanos(ns).clamp(Duration::from_millis(2), Duration::from_millis(40))
    }
}

/// The event that is sampled: the kernel's clock of each thread's CPU time.
fn clock() -> Event {
    const CPU_CLOCK: u64 = 0;
    Event::new("cpu-clock", kind::SOFTWARE, CPU_CLOCK)
}

/// CLOCK_MONOTONIC in ns, which the records' times are of.
fn now_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// The way in which a process has ended, from its wait status.
fn ending(status: i32) -> ExitStatus {
    match lwp_process::Stop::from_status(status) {
        lwp_process::Stop::Killed { signal, core } => ExitStatus::Signal { signal, core },
        lwp_process::Stop::Exited(code) => ExitStatus::Code(code),
        _ => ExitStatus::Detached,
    }
}

#[cfg(test)]
mod tests {
    use lwp_perf::Errno;
    use lwp_perf::kernel::script::Script;

    use super::*;

    #[test]
    fn a_kernel_that_refuses_is_reported() {
        let script = Script::new()
            .file("/proc/sys/kernel/perf_event_paranoid", "3\n")
            .answering(|_| Err(Errno::ACCESS));
        let refused = Sampling::choose(Arc::new(script), 0, None).unwrap_err();
        assert_eq!(refused.cause, lwp_perf::Cause::Paranoid { level: 3, needed: 2 });
    }

    #[test]
    fn statuses_are_endings() {
        assert_eq!(ending(3 << 8), ExitStatus::Code(3));
        assert_eq!(ending(15), ExitStatus::Signal { signal: 15, core: false });
    }
}
