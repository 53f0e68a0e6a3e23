//! A program that is started, sampled, and waited for.

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use lwp_perf::Errno;
use lwp_process::{spawn, sys};
use lwp_vcpu::Control;

use crate::attended::{Attended, Ends, SIGTERM, Subject, Times, process};
use crate::clocks::Clocks;
use crate::front::Front;
use crate::off_cpu::Spans;
use crate::samples::Samples;
use crate::source::Source;
use crate::stops::{self, Stops};
use crate::{Error, Mechanism, Sampling};

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
    /// The process in front of this one, if there are two.
    pub front: Option<&'a Front>,
}

/// Starts a program, samples it until it ends, and reports to `sink`.
///
/// # Errors
///
/// The kernel refuses to sample, or the program cannot be started; nothing of it is executed then.
pub fn record(
    sampling: &Sampling,
    launch: Launch<'_>,
    sink: &mut dyn Spans,
) -> Result<Times, Error> {
    match sampling.mechanism() {
        Mechanism::Events => by_events(sampling, &launch, sink),
        Mechanism::Stops | Mechanism::Traps => by_stops(sampling, launch, sink),
    }
}

fn by_events(
    sampling: &Sampling,
    launch: &Launch<'_>,
    sink: &mut dyn Spans,
) -> Result<Times, Error> {
    let begun = Begun::now();
    let mut opened = None;
    let pid = spawn::prepared(launch.program.as_os_str(), launch.argv, |pid| {
        let rings = sampling.open(pid, launch.children)?;
        opened = Some((rings, Clocks::begin(&[pid], launch.children)));
        Ok::<_, Error>(())
    })?;
    launch.let_go();
    let Some((rings, clocks)) = opened else {
        return Err(Error::Call { what: "opening rings", errno: Errno::BADF });
    };
    let mut samples = Samples::new(launch.words(), sampling, sink);
    let process = process(pid)?;
    let mut attended = Attended {
        subject: Subject::Child(pid, clocks),
        source: Source::Rings(Box::new(rings)),
        sampling,
        control: &launch.control,
        started: begun.at,
        ends: launch.ends(),
        sum: None,
        front: None,
    };
    let status = attended.run(Some(&process), &mut samples)?;
    Ok(begun.completed(attended.finish(samples, status)?))
}

/// Samples by stops, in a thread that traces the program. With that thread the control ends: what
/// the program has left behind goes on by itself, without another stop.
fn by_stops(sampling: &Sampling, launch: Launch<'_>, sink: &mut dyn Spans) -> Result<Times, Error> {
    in_tracer(move || traced(sampling, &launch, sink))
}

/// Has a thread of its own trace: what it traces is let go of with its end.
pub(crate) fn in_tracer(
    trace: impl FnOnce() -> Result<Times, Error> + Send,
) -> Result<Times, Error> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("lwp-time".into());
        let thread = thread.spawn_scoped(scope, trace).map_err(|error| Error::Call {
            what: "making a thread",
            errno: Errno::from_io_error(&error).unwrap_or(Errno::AGAIN),
        })?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn traced(sampling: &Sampling, launch: &Launch<'_>, sink: &mut dyn Spans) -> Result<Times, Error> {
    let begun = Begun::now();
    let pid = stops::start(launch.program.as_os_str(), launch.argv)?;
    launch.let_go();
    let clocks = Clocks::begin(&[pid], launch.children);
    let mut samples = Samples::new(launch.words(), sampling, sink);
    let mut stops = Stops::begin(pid, sampling.stops(launch.children), &mut samples)?;
    if sampling.sees_switches() {
        stops.record_switches(sampling.switch_records(launch.children)?)?;
    }
    stops.go();
    let mut attended = Attended {
        subject: Subject::Child(pid, clocks),
        source: Source::Stops(Box::new(stops)),
        sampling,
        control: &launch.control,
        started: begun.at,
        ends: launch.ends(),
        sum: None,
        front: launch.front,
    };
    let status = attended.run(None, &mut samples)?;
    Ok(begun.completed(attended.finish(samples, status)?))
}

impl Launch<'_> {
    /// Leaves those of our streams to the program that are for it alone.
    fn let_go(&self) {
        sys::let_go_of_streams(self.lets_go);
    }

    fn words(&self) -> String {
        let words: Vec<_> = self.argv.iter().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }

    fn ends(&self) -> Ends {
        Ends { program: self.timeout.map(|time| (time, SIGTERM)), sampling: self.duration }
    }
}

/// The time at which a program was started, and what children had used by then.
struct Begun {
    at: Instant,
    user: Duration,
    system: Duration,
}

impl Begun {
    fn now() -> Self {
        let [(user, system), _] = sys::cpu_times();
        Self { at: Instant::now(), user, system }
    }

    /// Adds what the program has used since.
    fn completed(&self, mut times: Times) -> Times {
        let [(user, system), _] = sys::cpu_times();
        times.outcome.user = user.saturating_sub(self.user);
        times.outcome.system = system.saturating_sub(self.system);
        times
    }
}
