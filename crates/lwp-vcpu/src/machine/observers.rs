//! Reports of a run, and observers that need more than its reports.

use std::time::Instant;

use lwp_code::family::Basis;
use lwp_dbt::Lwp;
use lwp_mailbox::memory_map::{LOW, low_window};
use lwp_process::Tid;
use lwp_run::config::{Config, Markers, Plan};
use lwp_run::outcome::{Alone, ProcessReport};

use super::reports::Reports;
use super::{Tasks, Thread};
use crate::call_stack::CallStacks;
use crate::cpu_clock::CpuClocks;
use crate::lwp::sampled_selection;
use crate::profile::{Executions, Profiler};

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
    /// Samples take the place of a profile by place.
    samples: bool,
}

impl Observers {
    /// Makes the observers that a configuration asks for. A profiler joins them later.
    pub fn new(config: &Config) -> Self {
        Self {
            reports: Reports::new(config.reports.fold),
            profiler: None,
            call_stacks: CallStacks::new(&config.sampling.languages),
            clocks: None,
            alone: Alone::default(),
            enabled: config.counted.start_enabled,
            started: Instant::now(),
            samples: config.samples(),
        }
    }

    /// Returns whether executions are counted by place.
    pub fn counts_places(&self) -> bool {
        self.profiler.is_some() && !self.samples
    }

    /// Notes a correction of a thread's counters by its place, if executions are counted so.
    pub fn note_place(&self, tasks: &mut Tasks, tid: Tid, note: impl FnOnce(&mut Executions)) {
        if let Some(thread) = tasks.threads.get_mut(&tid) {
            self.note_in(thread, note);
        }
    }

    /// Notes a correction of `thread`'s counters by its place, if executions are counted by place.
    pub fn note_in(&self, thread: &mut Thread, note: impl FnOnce(&mut Executions)) {
        if self.counts_places() {
            note(&mut thread.account.profile.places);
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

impl Observers {
    /// The plan of translated code.
    pub fn plan_of_code(&self, config: &Config) -> lwp_dbt::Plan {
        match config.plan {
            Plan::Plain => lwp_dbt::Plan::Plain,
            Plan::Exact if self.measures_contexts(config) => lwp_dbt::Plan::Contexts,
            Plan::Exact if self.profiler.as_ref().is_some_and(Profiler::wants_calls) => {
                lwp_dbt::Plan::Calls
            }
            Plan::Exact => lwp_dbt::Plan::Exact,
        }
    }

    /// Returns whether calling contexts are measured: where everything is counted from the start,
    /// and nothing else uses the words in which instructions are added up. If the program then
    /// switches counting itself, its threads report no contexts.
    fn measures_contexts(&self, config: &Config) -> bool {
        let wanted = self.profiler.as_ref().is_some_and(Profiler::wants_contexts);
        let counted = &config.counted;
        let from_start = match counted.markers {
            None => true,
            Some(Markers::Callgrind { collect, instrument }) => collect && instrument,
            Some(Markers::Between) => false,
        };
        let always = counted.start_enabled
            && from_start
            && counted.control_line.is_none()
            && counted.within.is_empty();
        wanted && always && !config.watches()
    }

    /// The things that the code of a new program's family depends on.
    pub fn first_basis(&self, config: &Config) -> Basis {
        let lwp = match config.lwp {
            _ if config.watches() => Lwp::On(sampled_selection(config)),
            Some(_) => Lwp::Off,
            None => Lwp::Absent,
        };
        Basis { plan: self.plan_of_code(config), lwp, layout: low_window(LOW), dispatches: false }
    }
}
