//! A program while it is sampled: requests, times, and the end.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use lwp_perf::Errno;
use lwp_perf::sampler::Losses;
use lwp_process::sys;
use lwp_vcpu::{Alone, Control, Outcome, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::clocks::{Clocks, MachineClock, ThreadClock};
use crate::front::Front;
use crate::kernel_names::KernelNames;
use crate::off_cpu::OffCpu;
use crate::remainder::Remainder;
use crate::samples::{LabelNames, Samples};
use crate::source::Source;
use crate::stacks::Completeness;
use crate::stops::StopSums;
use crate::{Error, Mechanism, Sampling, now_ns};

/// The result of a recording.
#[derive(Debug)]
pub struct Times {
    /// The processes, and how the first one ended.
    pub outcome: Outcome,
    /// CPU time of all threads while they were sampled, by the kernel's clocks.
    pub cpu_ns: u64,
    /// The number of samples.
    pub samples: u64,
    /// The number of threads and processes that were made.
    pub made: u64,
    /// CPU time that no sample stands for.
    pub remainder: Remainder,
    /// Time off the processor, if the kernel records switches.
    pub off_cpu: Option<OffCpu>,
    /// What was lost.
    pub losses: Losses,
    /// How much of the stacks was found.
    pub completeness: Completeness,
    /// Names of modules without a file.
    pub labels: Vec<LabelNames>,
    /// The kernel was sampled and hides the names of its functions.
    pub hides_names: bool,
    /// Bytes of each ring; 0 if there are none.
    pub ring_bytes: usize,
    /// The stops, if threads were stopped for samples.
    pub stops: Option<StopSums>,
    /// lwp's front was killed, and the program goes on by itself.
    pub abandoned: bool,
}

/// What is sampled.
#[derive(Debug)]
pub(crate) enum Subject {
    /// A program that was started, and is waited for.
    Child(i32, Clocks),
    /// A process that ran before, and goes on afterwards.
    Stranger(Clocks),
    /// A thread of such a process.
    Thread(ThreadClock),
    /// Everything that runs.
    Machine(MachineClock),
}

impl Subject {
    /// Looks at accounts that cannot be read when it has ended. Returns whether it is a thread that
    /// has ended: a process's end is waited for.
    fn look(&mut self, live: &[i32], source: &Source) -> Result<bool, Errno> {
        match self {
            Self::Child(_, clocks) if clocks.come_with_wait() => {}
            Self::Child(_, clocks) | Self::Stranger(clocks) if clocks.is_due() => {
                clocks.look(live, source.count()?);
            }
            Self::Thread(clock) => return Ok(!clock.look(source.count()?)),
            Self::Child(..) | Self::Stranger(_) | Self::Machine(_) => {}
        }
        Ok(false)
    }

    /// CPU time since the beginning; see [`Clocks::since`].
    fn since(&self, live: &[i32], source: &Source, over: bool) -> Result<u64, Errno> {
        Ok(match self {
            Self::Child(_, clocks) if over => clocks.since_of_child(live, source.count()?),
            // All of its threads have stood at their ends.
            Self::Stranger(_) if matches!(source, Source::Stops(_)) => source.count()?,
            Self::Child(_, clocks) | Self::Stranger(clocks) => clocks.since(live, source.count()?),
            Self::Thread(clock) => clock.since(source.count()?),
            Self::Machine(clock) => clock.since(source.processors()),
        })
    }

    /// A child's number.
    fn child(&self) -> Option<i32> {
        match self {
            Self::Child(pid, _) => Some(*pid),
            Self::Stranger(_) | Self::Thread(_) | Self::Machine(_) => None,
        }
    }
}

/// Times at which something ends.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ends {
    /// The program's, and the signal that it gets then.
    pub program: Option<(Duration, i32)>,
    /// The sampling's.
    pub sampling: Option<Duration>,
}

/// From SIGTERM to SIGKILL, as on the virtual CPU.
const PATIENCE: Duration = Duration::from_secs(5);
pub(crate) const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;

/// A program while it is sampled.
pub(crate) struct Attended<'a> {
    pub subject: Subject,
    pub source: Source,
    pub sampling: &'a Sampling,
    pub control: &'a Control,
    pub started: Instant,
    pub ends: Ends,
    /// CPU time until sampling ended, if it has ended before the program.
    pub sum: Option<u64>,
    /// The process in front of this one, if there are two.
    pub front: Option<&'a Front>,
}

/// Turns a refusal of the kernel's into an error of the call `what`.
pub(crate) fn failed(what: &'static str) -> impl Fn(Errno) -> Error {
    move |errno| Error::Call { what, errno }
}

/// A descriptor that is readable once a process has ended.
pub(crate) fn process(pid: i32) -> Result<OwnedFd, Error> {
    let opened = Pid::from_raw(pid).ok_or(Errno::SRCH);
    let opened = opened.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()));
    opened.map_err(|errno| match errno {
        // The last two are said of threads that are no process.
        Errno::SRCH | Errno::INVAL | Errno::NOENT => Error::NoProcess(pid),
        errno => failed("pidfd_open")(errno),
    })
}

/// Waits until a process has ended or the time is up; true if it has ended.
pub(crate) fn ends_within(process: Option<&OwnedFd>, time: Duration) -> bool {
    let fds = process.map(|process| PollFd::new(process, PollFlags::IN));
    let mut fds: Vec<PollFd<'_>> = fds.into_iter().collect();
    let time = Timespec::try_from(time).ok();
    // An interrupted wait ends early: requests are looked at then.
    poll(&mut fds, time.as_ref()).is_ok_and(|ready| ready > 0)
}

impl Attended<'_> {
    /// Samples until the process ends, or, if it is no child, the end is asked for. Returns a
    /// child's wait status.
    pub fn run(
        &mut self,
        process: Option<&OwnedFd>,
        samples: &mut Samples<'_>,
    ) -> Result<Option<i32>, Error> {
        let patience = self.sampling.patience(self.source.ring_bytes());
        loop {
            let ended = self.pause(process, patience, samples)?;
            let stop = self.attend(samples)?;
            let now = now_ns();
            let gone = self.look(samples)?;
            let child = self.subject.child();
            let status = child.map(|pid| self.status_of(pid)).transpose()?;
            self.source.read(samples, now);
            let over = child.is_none() && (ended || stop || gone);
            if over || status.flatten().is_some() || self.is_abandoned() {
                if let Source::Stops(stops) = &mut self.source {
                    stops.let_go(samples);
                }
                return Ok(status.flatten());
            }
        }
    }

    /// Sleeps until samples are to be taken in; returns whether the process has ended, as far as
    /// that shows here.
    fn pause(
        &mut self,
        process: Option<&OwnedFd>,
        patience: Duration,
        samples: &mut Samples<'_>,
    ) -> Result<bool, Error> {
        if let Source::Stops(stops) = &mut self.source {
            return stops.turn(samples).map(|()| stops.status().is_some());
        }
        let looks = self.sum.is_none() && self.sees_off_cpu();
        let soon = if looks { samples.patience() } else { patience };
        Ok(ends_within(process, patience.min(soon)))
    }

    /// Returns whether nobody is left to record for.
    fn is_abandoned(&self) -> bool {
        self.front.is_some_and(Front::is_gone)
    }

    /// Looks at accounts: see [`Subject::look`].
    fn look(&mut self, samples: &Samples<'_>) -> Result<bool, Error> {
        match &self.source {
            Source::Rings(_) => {
                let looked = self.subject.look(&samples.threads.live(), &self.source);
                looked.map_err(failed("reading the kernel's clocks"))
            }
            // It stands at its end, and is looked at there.
            Source::Stops(_) => Ok(false),
        }
    }

    /// The wait status of the child, if it has ended.
    fn status_of(&self, pid: i32) -> Result<Option<i32>, Error> {
        match &self.source {
            Source::Rings(_) => {
                sys::wait_now(pid).map_err(|errno| Error::call("waiting for the program", errno))
            }
            Source::Stops(stops) => Ok(stops.status()),
        }
    }

    /// Returns whether time off the processor is recorded.
    fn sees_off_cpu(&self) -> bool {
        self.sampling.sees_switches() && !matches!(self.subject, Subject::Machine(_))
    }

    /// Answers requests and looks at the time. Returns whether the end was asked for.
    fn attend(&mut self, samples: &mut Samples<'_>) -> Result<bool, Error> {
        let mut stop = false;
        let mut disable = false;
        for request in self.control.requests.try_iter() {
            match (request, self.subject.child()) {
                (Request::Stop, None) => stop = true,
                (Request::Stop, Some(pid)) => drop(sys::kill(pid, SIGTERM)),
                (Request::Signal(info), Some(pid)) => drop(sys::send_as(pid, &info)),
                (Request::Disable, _) => disable = true,
                _ => {}
            }
            let _ = self.control.done.send(request);
        }
        let elapsed = self.started.elapsed();
        if self.ends.sampling.is_some_and(|end| elapsed >= end) {
            self.ends.sampling = None;
            disable = true;
        }
        if let (Some((end, signal)), Some(pid)) = (self.ends.program, self.subject.child())
            && elapsed >= end
        {
            let _ = sys::kill(pid, signal);
            self.ends.program = (signal == SIGTERM).then(|| (end + PATIENCE, SIGKILL));
        }
        if disable && self.sum.is_none() {
            self.end_sampling(samples, false)?;
        }
        Ok(stop)
    }

    /// Ends sampling, reads the last records, and adds the accounts up: if a child is `over`, those
    /// of one that was waited for.
    fn end_sampling(&mut self, samples: &mut Samples<'_>, over: bool) -> Result<(), Error> {
        let call = failed("reading the kernel's clocks");
        self.source.disable().map_err(&call)?;
        let now = now_ns();
        self.source.read(samples, u64::MAX);
        if !over {
            samples.end_waiting(now);
        }
        let live = samples.threads.live();
        self.sum = Some(self.subject.since(&live, &self.source, over).map_err(&call)?);
        Ok(())
    }

    /// Reads the clocks and the last records, and says what was found.
    pub fn finish(mut self, mut samples: Samples<'_>, status: Option<i32>) -> Result<Times, Error> {
        if self.sum.is_none() {
            self.end_sampling(&mut samples, status.is_some())?;
        }
        let cpu_ns = self.sum.unwrap_or(0);
        let losses = self.source.losses();
        let (period, taken) = (self.sampling.period_ns(), samples.taken);
        let lost = losses.lost + losses.damaged;
        let stops = self.source.stops();
        // A stop that lwp asks for shows whose time it is.
        let knows = self.sampling.sees_kernel() || self.sampling.mechanism() == Mechanism::Stops;
        let remainder = Remainder::of(cpu_ns, period, taken, lost, knows);
        samples.finish(remainder);
        let kernel = (!samples.kernel.is_empty()).then(|| KernelNames::of(&samples.kernel));
        let hides_names = kernel.as_ref().is_some_and(KernelNames::are_hidden);
        let labels = samples.names(kernel.as_ref());
        let completeness = samples.stacks.completeness();
        let made = samples.threads.made_so_far();
        let off_cpu = self.sees_off_cpu().then(|| samples.off.threads.sums());
        let none = Duration::ZERO;
        let outcome = Outcome {
            status: status.map_or(lwp_vcpu::ExitStatus::Detached, crate::ending),
            processes: samples.threads.into_images(),
            elapsed: self.started.elapsed(),
            user: none,
            system: none,
            host: none,
            alone: Alone::default(),
        };
        let ring_bytes = self.source.ring_bytes();
        let abandoned = status.is_none() && self.is_abandoned();
        Ok(Times {
            outcome,
            cpu_ns,
            samples: taken,
            made,
            remainder,
            off_cpu,
            losses,
            completeness,
            labels,
            hides_names,
            ring_bytes,
            stops,
            abandoned,
        })
    }
}
