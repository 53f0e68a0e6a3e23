//! A program that is started, sampled, and waited for.

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use lwp_perf::Errno;
use lwp_ptrace::{spawn, sys};
use lwp_vcpu::Control;

use crate::attended::{Attended, Ends, SIGTERM, Subject, Times, process};
use crate::clocks::Clocks;
use crate::off_cpu::Spans;
use crate::samples::Samples;
use crate::{Error, Sampling};

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

/// Starts a program, samples it until it ends, and reports to `sink`.
///
/// # Errors
///
/// The kernel refuses to sample, or the program cannot be started; nothing of it is executed then.
pub fn record(
    sampling: &Sampling,
    launch: &Launch<'_>,
    sink: &mut dyn Spans,
) -> Result<Times, Error> {
    let started = Instant::now();
    let before = sys::cpu_times();
    let mut opened = None;
    let pid = spawn::prepared(launch.program.as_os_str(), launch.argv, |pid| {
        let rings = sampling.open(pid, launch.children)?;
        opened = Some((rings, Clocks::begin(&[pid], launch.children)));
        Ok::<_, Error>(())
    })?;
    let fds = (0..).zip(launch.lets_go).filter(|(_, lets_go)| *lets_go);
    fds.for_each(|(fd, _)| sys::let_go_of_stream(fd));
    let Some((rings, clocks)) = opened else {
        return Err(Error::Call { what: "opening rings", errno: Errno::BADF });
    };
    let words: Vec<_> = launch.argv.iter().map(|word| word.to_string_lossy()).collect();
    let mut samples = Samples::new(words.join(" "), sampling, sink);
    let ends =
        Ends { program: launch.timeout.map(|time| (time, SIGTERM)), sampling: launch.duration };
    let mut attended = Attended {
        subject: Subject::Child(pid, clocks),
        rings,
        sampling,
        control: &launch.control,
        started,
        ends,
        sum: None,
    };
    let status = attended.run(Some(&process(pid)?), &mut samples)?;
    let mut times = attended.finish(samples, status)?;
    let after = sys::cpu_times();
    times.outcome.user = after[0].0.saturating_sub(before[0].0);
    times.outcome.system = after[0].1.saturating_sub(before[0].1);
    Ok(times)
}
