//! A program that is started, sampled, and waited for.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use lwp_perf::sampler::Losses;
use lwp_perf::{Errno, Rings};
use lwp_ptrace::{spawn, sys};
use lwp_vcpu::profile::Sink;
use lwp_vcpu::{Alone, Control, Outcome, Request};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::kernel_names::KernelNames;
use crate::remainder::Remainder;
use crate::samples::{LabelNames, Samples};
use crate::stacks::Completeness;
use crate::{Error, Sampling, now_ns};

/// A program to be started.
#[derive(Debug)]
pub struct Launch<'a> {
    /// Its file.
    pub program: &'a Path,
    /// Its arguments, its name first.
    pub argv: &'a [OsString],
    /// True if its children are sampled too.
    pub children: bool,
    /// Whether our standard input and output are for it alone.
    pub lets_go: [bool; 2],
    /// It is ended after so long.
    pub timeout: Option<Duration>,
    /// It is sampled no longer than this.
    pub duration: Option<Duration>,
    /// Requests: signals that it gets, and the end.
    pub control: Control,
}

/// The result of a recording.
#[derive(Debug)]
pub struct Times {
    /// The processes, and how the first one ended.
    pub outcome: Outcome,
    /// CPU time of all threads while they were sampled, by the kernel's clocks.
    pub cpu_ns: u64,
    /// The number of samples.
    pub samples: u64,
    /// CPU time that no sample stands for.
    pub remainder: Remainder,
    /// What was lost.
    pub losses: Losses,
    /// How much of the stacks was found.
    pub completeness: Completeness,
    /// Names of modules without a file.
    pub labels: Vec<LabelNames>,
    /// The kernel was sampled and hides the names of its functions.
    pub hides_names: bool,
    /// Bytes of each ring.
    pub ring_bytes: usize,
}

/// From SIGTERM to SIGKILL, as on the virtual CPU.
const PATIENCE: Duration = Duration::from_secs(5);
const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;

/// Starts a program, samples it until it ends, and reports to `sink`.
///
/// # Errors
///
/// The kernel refuses to sample, or the program cannot be started; nothing of it is executed then.
pub fn record(
    sampling: &Sampling,
    launch: &Launch<'_>,
    sink: &mut dyn Sink,
) -> Result<Times, Error> {
    let started = Instant::now();
    let before = sys::cpu_times();
    let mut rings = None;
    let pid = spawn::prepared(launch.program.as_os_str(), launch.argv, |pid| {
        rings = Some(sampling.open(pid, launch.children)?);
        Ok::<_, Error>(())
    })?;
    let fds = (0..).zip(launch.lets_go).filter(|(_, lets_go)| *lets_go);
    fds.for_each(|(fd, _)| sys::let_go_of_stream(fd));
    let Some(rings) = rings else {
        return Err(Error::Call { what: "opening rings", errno: Errno::BADF });
    };
    let words: Vec<_> = launch.argv.iter().map(|word| word.to_string_lossy()).collect();
    let mut samples = Samples::new(words.join(" "), sampling.period_ns(), sink);
    let mut attended = Attended { pid, rings, sampling, launch, started, ends: Ends::of(launch) };
    let status = attended.run(&mut samples)?;
    let mut times = attended.finish(samples)?;
    times.outcome.status = crate::ending(status);
    times.outcome.elapsed = started.elapsed();
    let after = sys::cpu_times();
    times.outcome.user = after[0].0.saturating_sub(before[0].0);
    times.outcome.system = after[0].1.saturating_sub(before[0].1);
    Ok(times)
}

/// Times at which something ends.
#[derive(Debug)]
struct Ends {
    /// The program's, and the signal that it gets then.
    program: Option<(Duration, i32)>,
    /// The recording's.
    sampling: Option<Duration>,
}

impl Ends {
    fn of(launch: &Launch<'_>) -> Self {
        let program = launch.timeout.map(|time| (time, SIGTERM));
        Self { program, sampling: launch.duration }
    }
}

/// A program while it runs.
struct Attended<'a> {
    pid: i32,
    rings: Rings,
    sampling: &'a Sampling,
    launch: &'a Launch<'a>,
    started: Instant,
    ends: Ends,
}

impl Attended<'_> {
    /// Waits until the program ends; returns its wait status.
    fn run(&mut self, samples: &mut Samples<'_>) -> Result<i32, Error> {
        let patience = self.sampling.patience(self.rings.ring_bytes());
        let process: OwnedFd = Pid::from_raw(self.pid)
            .ok_or(Errno::SRCH)
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()))
            .map_err(|errno| Error::Call { what: "pidfd_open", errno })?;
        loop {
            sys::wait_readable(&process, Some(patience));
            self.attend();
            let now = now_ns();
            let status = sys::wait_now(self.pid).map_err(|error| Error::Call {
                what: "waiting for the program",
                errno: Errno::from_raw_os_error(error.0),
            })?;
            samples.read(&mut self.rings, now);
            if let Some(status) = status {
                return Ok(status);
            }
        }
    }

    /// Answers requests and looks at the time.
    fn attend(&mut self) {
        for request in self.launch.control.requests.try_iter() {
            match request {
                Request::Stop => drop(sys::kill(self.pid, SIGTERM)),
                Request::Signal(info) => drop(sys::send_as(self.pid, &info)),
                Request::Disable => drop(self.rings.disable()),
                _ => {}
            }
            let _ = self.launch.control.done.send(request);
        }
        let elapsed = self.started.elapsed();
        if self.ends.sampling.is_some_and(|end| elapsed >= end) {
            let _ = self.rings.disable();
            self.ends.sampling = None;
        }
        if let Some((end, signal)) = self.ends.program
            && elapsed >= end
        {
            let _ = sys::kill(self.pid, signal);
            self.ends.program = (signal == SIGTERM).then(|| (end + PATIENCE, SIGKILL));
        }
    }

    /// Reads the clocks and the last records.
    fn finish(mut self, mut samples: Samples<'_>) -> Result<Times, Error> {
        let call = |errno| Error::Call { what: "reading the kernel's clocks", errno };
        self.rings.disable().map_err(call)?;
        let cpu_ns = self.rings.count().map_err(call)?;
        samples.read(&mut self.rings, u64::MAX);
        let losses = self.rings.losses();
        let (period, taken) = (self.sampling.period_ns(), samples.taken);
        let lost = losses.lost + losses.damaged;
        let remainder = Remainder::of(cpu_ns, period, taken, lost, self.sampling.sees_kernel());
        samples.finish(remainder);
        let kernel = (!samples.kernel.is_empty()).then(|| KernelNames::of(&samples.kernel));
        let hides_names = kernel.as_ref().is_some_and(KernelNames::are_hidden);
        let labels = samples.names(kernel.as_ref());
        let completeness = samples.stacks.completeness();
        let elapsed = self.started.elapsed();
        let none = Duration::ZERO;
        let outcome = Outcome {
            status: lwp_vcpu::ExitStatus::Detached,
            processes: samples.threads.into_images(),
            elapsed,
            user: none,
            system: none,
            host: none,
            alone: Alone::default(),
        };
        let ring_bytes = self.rings.ring_bytes();
        Ok(Times {
            outcome,
            cpu_ns,
            samples: taken,
            remainder,
            losses,
            completeness,
            labels,
            hides_names,
            ring_bytes,
        })
    }
}
