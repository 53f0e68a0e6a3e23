//! Reports of a run, and those who want to know more than its reports say.

use std::time::Instant;

use super::reports::Reports;
use crate::call_stack::CallStacks;
use crate::config::Config;
use crate::cpu_clock::CpuClocks;
use crate::outcome::{Alone, ProcessReport};
use crate::profile::Profiler;

/// Everything that is kept about a run for its user.
#[derive(Debug)]
pub struct Observers {
    /// Reports so far.
    pub reports: Reports,
    /// The profile by place, if one is wanted.
    pub profiler: Option<Profiler>,
    /// Knowledge for walking sampled stacks.
    pub call_stacks: CallStacks,
    /// The clocks of a process that was attached to.
    pub clocks: Option<CpuClocks>,
    /// Instructions that were executed one at a time.
    pub alone: Alone,
    /// Counting is on.
    pub enabled: bool,
    /// Start of the run.
    pub started: Instant,
}

impl Observers {
    /// Makes the observers that a configuration asks for. A profiler joins them later.
    pub fn new(config: &Config) -> Self {
        Self {
            reports: Reports::new(config.fold),
            profiler: None,
            call_stacks: CallStacks::new(&config.languages),
            clocks: None,
            alone: Alone::default(),
            enabled: config.start_enabled,
            started: Instant::now(),
        }
    }

    /// Starts the report of a process image named `comm` that was run by `command`, and returns its
    /// number.
    pub fn add_report(&mut self, pid: i32, parent: i32, comm: String, command: String) -> usize {
        let (threads, started) = (Vec::new(), Instant::now());
        let (maker, uncounted) = (0, None);
        self.reports.add(ProcessReport {
            pid,
            parent,
            maker,
            started,
            command,
            comm,
            threads,
            uncounted,
        })
    }
}
