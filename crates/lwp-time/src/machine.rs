//! Everything that runs on the machine, sampled.

use std::time::Instant;

use lwp_perf::Rings;
use lwp_process::spawn::threads_of;
use lwp_vcpu::Control;

use crate::attach::found;
use crate::attended::{Attended, Ends, Subject, Times, failed};
use crate::clocks::MachineClock;
use crate::off_cpu::Spans;
use crate::samples::Samples;
use crate::source::Source;
use crate::{Error, Sampling};

/// The machine, sampled from now on.
#[derive(Debug)]
pub struct Machine<'a> {
    sampling: &'a Sampling,
    started: Instant,
    clock: MachineClock,
    rings: Rings,
}

impl<'a> Machine<'a> {
    /// Begins to sample everything.
    ///
    /// # Errors
    ///
    /// The kernel refuses; it allows that to few.
    pub fn begin(sampling: &'a Sampling) -> Result<Self, Error> {
        let rings = sampling.machine()?;
        rings.enable().map_err(failed("starting to sample"))?;
        Ok(Self { sampling, started: Instant::now(), clock: MachineClock::begin(), rings })
    }

    /// Samples until the end is asked for, and reports to `sink`.
    ///
    /// # Errors
    ///
    /// The kernel refuses to end it.
    pub fn record(self, control: Control, sink: &mut dyn Spans) -> Result<Times, Error> {
        let Self { sampling, started, clock, rings } = self;
        let mut samples = Samples::new(String::new(), sampling, sink);
        for pid in processes() {
            // One that is gone has no threads.
            found(pid, threads_of(pid).unwrap_or_default(), &mut samples);
        }
        let mut attended = Attended {
            subject: Subject::Machine(clock),
            source: Source::Rings(Box::new(rings)),
            sampling,
            control: &control,
            started,
            ends: Ends::default(),
            sum: None,
            front: None,
        };
        attended.run(None, &mut samples)?;
        attended.finish(samples, None)
    }
}

/// All processes.
fn processes() -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}
