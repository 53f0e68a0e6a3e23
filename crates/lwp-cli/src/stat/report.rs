//! Results of a measurement, ready to be written in any format.

use std::time::Duration;

use lwp_profile::Modelled;
use lwp_vcpu::{Outcome, ProcessReport, ThreadReport};

use super::events::{Event, Measured, Requested};
use super::modelled::Models;
use super::spread::Spread;

/// The result of `lwp stat`.
#[derive(Debug)]
pub struct Report {
    /// The program: the command in quotes, or the process id.
    pub title: String,
    /// Number of runs that the values are the mean of.
    pub runs: usize,
    /// The scope of each group: threads, processes, or the whole.
    pub scope: Scope,
    /// The rows, by thread or process if that was asked for.
    pub groups: Vec<Group>,
    /// The times of the run.
    pub times: Times,
    /// One line for each process that was not counted, and why.
    pub uncounted: Vec<String>,
    /// Remarks on instructions executed one at a time.
    pub remarks: Vec<String>,
    /// End of the interval that the report is about, from the start of the run; `None` if it is
    /// about all of it.
    pub at: Option<Duration>,
}

/// The scope of one group of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Scope {
    /// Everything that ran.
    #[default]
    Total,
    /// One process image.
    Process,
    /// One thread.
    Thread,
}

/// The rows of one thread, process, or of everything.
#[derive(Debug)]
pub struct Group {
    /// `name-id`, empty for everything.
    pub label: String,
    /// One row for each event, in the order asked for.
    pub rows: Vec<Row>,
}

/// One event's value.
#[derive(Debug)]
pub struct Row {
    /// The event in the user's words.
    pub label: String,
    /// The unit of the value.
    pub unit: Unit,
    /// The value, in events or nanoseconds, or why there is none.
    pub value: Result<Spread, Missing>,
    /// A number derived from the value.
    pub metric: Option<Metric>,
}

/// The reason why there is no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// It cannot be measured here: why.
    Unsupported(String),
    /// It could be, but nothing of what ran was counted; each process says why.
    NotCounted,
}

impl Missing {
    /// Returns the text in place of the value, in perf's words.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Unsupported(_) => "<not supported>",
            Self::NotCounted => "<not counted>",
        }
    }

    /// The reason why there is none.
    pub fn reason(&self) -> &str {
        match self {
            Self::Unsupported(reason) => reason,
            Self::NotCounted => "no process was counted",
        }
    }
}

/// The unit of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Events.
    Count,
    /// Nanoseconds, written as milliseconds.
    Msec,
    /// Nanoseconds.
    Ns,
}

impl Unit {
    /// The unit as it stands beside the value.
    pub fn name(self) -> &'static str {
        match self {
            Self::Count => "",
            Self::Msec => "msec",
            Self::Ns => "ns",
        }
    }
}

/// A derived number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metric {
    /// The number.
    pub value: f64,
    /// The number's meaning, as "% of branches".
    pub unit: &'static str,
}

/// The times of a run, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// Wall clock.
    pub elapsed: Spread,
    /// User CPU time of the program.
    pub user: Spread,
    /// System CPU time of the program.
    pub system: Spread,
    /// CPU time of the virtual CPU outside the program.
    pub host: Spread,
    /// User and system CPU time together.
    pub task: Spread,
}

impl Times {
    fn of(outcomes: &[Outcome]) -> Self {
        let spread = |time: fn(&Outcome) -> Duration| {
            Spread::of(outcomes.iter().map(|outcome| nanoseconds(time(outcome))))
        };
        Self {
            elapsed: spread(|outcome| outcome.elapsed),
            user: spread(|outcome| outcome.user),
            system: spread(|outcome| outcome.system),
            host: spread(|outcome| outcome.host),
            task: spread(|outcome| outcome.user + outcome.system),
        }
    }

    /// The value of a time event with its unit, or `None` for a count.
    fn value(&self, event: Event) -> Option<(Spread, Unit)> {
        match event {
            Event::TaskClock => Some((self.task, Unit::Msec)),
            Event::Duration => Some((self.elapsed, Unit::Ns)),
            Event::UserTime => Some((self.user, Unit::Ns)),
            Event::SystemTime => Some((self.system, Unit::Ns)),
            _ => None,
        }
    }
}

/// Ends the unit of what follows from a modelled event.
pub const MODELLED: &str = "(modelled)";

/// The reason why a modelled event has no value.
const NO_MODEL: &str = "misses are modelled for whole runs only";
/// The reason why a time has no value.
const WHOLE_RUN: &str = "times are measured for the whole run only";

impl Report {
    /// Puts the outcomes of one or more runs of the same command together.
    pub fn new(title: String, requested: &[Requested], scope: Scope, outcomes: &[Outcome]) -> Self {
        Self::modelled(title, requested, scope, outcomes, &[])
    }

    /// Combines the outcomes of one or more runs of a command, with the modelled counts of each run
    /// if there are any.
    pub fn modelled(
        title: String,
        requested: &[Requested],
        scope: Scope,
        outcomes: &[Outcome],
        models: &[Models],
    ) -> Self {
        let times = Times::of(outcomes);
        let last = outcomes.last().map_or(&[][..], |outcome| &outcome.processes);
        let groups = parts(scope, outcomes, models).into_iter();
        Self {
            title,
            runs: outcomes.len(),
            scope,
            groups: groups.map(|part| group(part, requested, scope, &times)).collect(),
            times,
            uncounted: last.iter().filter_map(uncounted).collect(),
            remarks: outcomes.iter().filter_map(|outcome| outcome.alone.remark()).collect(),
            at: None,
        }
    }

    /// Returns the report on an interval that ended at `at`.
    pub fn interval(
        requested: &[Requested],
        scope: Scope,
        at: Duration,
        outcome: &Outcome,
    ) -> Self {
        let mut report = Self::new(String::new(), requested, scope, std::slice::from_ref(outcome));
        report.at = Some(at);
        let rows = report.groups.iter_mut().flat_map(|group| &mut group.rows);
        for (row, requested) in rows.zip(requested.iter().cycle()) {
            let timed = [Event::TaskClock, Event::UserTime, Event::SystemTime];
            if requested.source.as_ref().is_ok_and(|event| timed.contains(event)) {
                // The kernel tells when a process has ended.
                row.value = Err(Missing::Unsupported(WHOLE_RUN.into()));
                row.metric = None;
            }
        }
        // It was counted all the time.
        report.times.task = report.times.elapsed;
        report
    }
}

/// Counts that belong together: the same thing in every run.
struct Part {
    label: String,
    counts: Vec<Measured>,
}

/// Splits what was counted into the parts that `scope` asks for.
fn parts(scope: Scope, outcomes: &[Outcome], models: &[Models]) -> Vec<Part> {
    let counted = || {
        let processes = outcomes.iter().flat_map(|outcome| outcome.processes.iter().enumerate());
        processes.filter(|(_, process)| process.uncounted.is_none())
    };
    // Only totals are of more than one run.
    let model = |run: usize, of: &dyn Fn(usize, i32) -> bool| {
        let mut sum = Modelled::default();
        let all = models.get(run)?.iter().filter(|((image, tid), _)| of(*image, *tid));
        all.for_each(|(_, modelled)| sum.add(modelled));
        Some(sum)
    };
    match scope {
        Scope::Total => {
            // A run of which nothing was counted has no count, which is not zero.
            let none = |outcome: &&Outcome| {
                let mut processes = outcome.processes.iter();
                !outcome.processes.is_empty() && processes.all(|one| one.uncounted.is_some())
            };
            let counted = outcomes.iter().enumerate().filter(|(_, outcome)| !none(outcome));
            let measured = |(run, outcome): (usize, &Outcome)| Measured {
                counts: outcome.counts(),
                modelled: model(run, &|_, _| true),
            };
            vec![Part { label: String::new(), counts: counted.map(measured).collect() }]
        }
        Scope::Process => {
            let part = |(index, process): (usize, &ProcessReport)| Part {
                label: format!("{}-{}", process.comm, process.pid),
                counts: vec![Measured {
                    counts: process.counts(),
                    modelled: model(0, &|image, _| image == index),
                }],
            };
            counted().map(part).collect()
        }
        Scope::Thread => {
            let of = |(index, process): (usize, &ProcessReport)| -> Vec<Part> {
                let part = |thread: &ThreadReport| Part {
                    label: format!("{}-{}", thread.comm, thread.tid),
                    counts: vec![Measured {
                        counts: thread.counts,
                        modelled: model(0, &|image, tid| (image, tid) == (index, thread.tid)),
                    }],
                };
                process.threads.iter().map(part).collect()
            };
            counted().flat_map(of).collect()
        }
    }
}

fn group(part: Part, requested: &[Requested], scope: Scope, times: &Times) -> Group {
    let mut sum = Measured::default();
    for one in &part.counts {
        sum.counts += one.counts;
        if let Some(modelled) = &one.modelled {
            sum.modelled.get_or_insert_default().add(modelled);
        }
    }
    let row = |requested: &Requested| {
        let (value, unit) = value(requested, &part.counts, scope, times);
        let event = requested.source.as_ref().ok().filter(|_| value.is_ok());
        let metric = event.and_then(|event| metric(*event, &sum, times));
        Row { label: requested.label.clone(), unit, value, metric }
    };
    let rows = requested.iter().map(row).collect();
    Group { label: part.label, rows }
}

/// The value of one event over the runs, and its unit.
fn value(
    requested: &Requested,
    runs: &[Measured],
    scope: Scope,
    times: &Times,
) -> (Result<Spread, Missing>, Unit) {
    let event = match &requested.source {
        Ok(event) => *event,
        Err(reason) => return (Err(Missing::Unsupported(reason.clone())), Unit::Count),
    };
    match times.value(event) {
        Some((time, unit)) if scope == Scope::Total => (Ok(time), unit),
        Some((_, unit)) => (Err(Missing::Unsupported(WHOLE_RUN.into())), unit),
        None if runs.is_empty() => (Err(Missing::NotCounted), Unit::Count),
        None if event.is_modelled() && runs.iter().any(|run| run.modelled.is_none()) => {
            (Err(Missing::Unsupported(NO_MODEL.into())), Unit::Count)
        }
        None => {
            let counts = runs.iter().filter_map(|counts| event.count(counts));
            (Ok(Spread::of(counts)), Unit::Count)
        }
    }
}

/// Derives a number from an event: its share in the event that contains it.
fn metric(event: Event, counts: &Measured, times: &Times) -> Option<Metric> {
    let share = |of: Event, unit| {
        let (part, whole) = (event.count(counts)?, of.count(counts)?);
        (whole > 0).then(|| Metric { value: 100.0 * part as f64 / whole as f64, unit })
    };
    match event {
        Event::Branches => share(Event::Instructions, "% of instructions"),
        Event::Taken | Event::Conditional | Event::Calls | Event::Returns | Event::Indirect => {
            share(Event::Branches, "% of branches")
        }
        Event::ConditionalTaken => share(Event::Conditional, "% of conditional branches"),
        Event::TaskClock => {
            let (task, elapsed) = (times.task.mean as f64, times.elapsed.mean as f64);
            (elapsed > 0.0).then(|| Metric { value: task / elapsed, unit: "CPUs utilized" })
        }
        Event::Modelled(4) => share(Event::Conditional, "% of conditional branches (modelled)"),
        Event::Modelled(5) => {
            let (cycles, all) = (event.count(counts)?, counts.counts.instructions);
            let value = if all == 0 { 0.0 } else { cycles as f64 / all as f64 };
            Some(Metric { value, unit: "per instruction (modelled)" })
        }
        Event::Modelled(_) => {
            let (misses, all) = (event.count(counts)?, counts.counts.instructions);
            let value = if all == 0 { 0.0 } else { 1000.0 * misses as f64 / all as f64 };
            Some(Metric { value, unit: "per 1000 instructions (modelled)" })
        }
        Event::Instructions | Event::Duration | Event::UserTime | Event::SystemTime => None,
    }
}

/// The line for a process that ran natively.
pub fn uncounted(process: &ProcessReport) -> Option<String> {
    let reason = process.uncounted.as_ref()?;
    Some(format!("{}-{}: {reason}", process.comm, process.pid))
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
pub mod samples {
    //! Outcomes and reports for the tests of the writers.

    use std::time::Instant;

    use lwp_vcpu::{Alone, Counts, ExitStatus, ThreadReport};

    use super::*;
    use crate::stat::events;

    /// A run of two processes, one with two threads, and one that was not counted.
    pub fn outcome() -> Outcome {
        let counts = |instructions: u64| Counts {
            instructions,
            branches: instructions / 5,
            conditional: instructions / 10,
            conditional_taken: instructions / 20,
            calls: instructions / 100,
            returns: instructions / 100,
            indirect: instructions / 200,
        };
        let thread = |tid, comm: &str, instructions| ThreadReport {
            tid,
            comm: comm.into(),
            counts: counts(instructions),
            started: Instant::now(),
            ended: None,
            sampled: Vec::new(),
            cpu: None,
        };
        let process = |pid, comm: &str, threads| ProcessReport {
            pid,
            parent: 0,
            maker: 0,
            started: Instant::now(),
            command: String::new(),
            comm: comm.into(),
            threads,
            uncounted: None,
        };
        let mut native = process(14, "sudo", Vec::new());
        native.uncounted = Some("set-user-id programs run natively".into());
        Outcome {
            status: ExitStatus::Code(0),
            processes: vec![
                process(11, "make", vec![thread(11, "make", 2_000_000)]),
                process(12, "cc1", vec![thread(12, "cc1", 1_000_000), thread(13, "gc", 1_000)]),
                native,
            ],
            elapsed: Duration::from_nanos(10_000_000),
            user: Duration::from_nanos(7_250_000),
            system: Duration::from_nanos(1_000_000),
            host: Duration::from_nanos(2_500_000),
            alone: Alone::default(),
        }
    }

    /// A report on `runs` outcomes of the command `make -j2`.
    pub fn report(events: &str, scope: Scope, outcomes: &[Outcome]) -> Report {
        let requested = events::parse(&[events.to_owned()]).unwrap();
        Report::new("'make -j2'".into(), &requested, scope, outcomes)
    }

    /// Two runs that differ in their times and, by 10 %, in the instructions of one thread.
    pub fn two_outcomes() -> [Outcome; 2] {
        let mut second = outcome();
        second.processes[0].threads[0].counts.instructions += 300_100;
        second.elapsed = Duration::from_nanos(12_000_000);
        [outcome(), second]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_cover_every_process() {
        let report = samples::report("instructions,branches", Scope::Total, &[samples::outcome()]);
        let rows = &report.groups[0].rows;
        assert_eq!(rows[0].value, Ok(Spread { mean: 3_001_000, error: 0.0 }));
        assert_eq!(rows[1].metric.unwrap().unit, "% of instructions");
        assert_eq!(report.uncounted, ["sudo-14: set-user-id programs run natively"]);
    }

    /// Promise: E6
    #[test]
    fn what_was_not_counted_is_no_zero() {
        let mut native = samples::outcome();
        native.processes.drain(..2);
        let only = samples::report("calls", Scope::Total, std::slice::from_ref(&native));
        assert_eq!(only.groups[0].rows[0].value, Err(Missing::NotCounted));
        // Nor does it make a mean smaller.
        let one = samples::report("instructions", Scope::Total, &[samples::outcome(), native]);
        assert_eq!(one.groups[0].rows[0].value, Ok(Spread { mean: 3_001_000, error: 0.0 }));
    }

    #[test]
    fn scopes_split_what_was_counted() {
        let labels = |scope| {
            let report = samples::report("calls", scope, &[samples::outcome()]);
            report.groups.into_iter().map(|group| group.label).collect::<Vec<_>>()
        };
        assert_eq!(labels(Scope::Process), ["make-11", "cc1-12"]);
        assert_eq!(labels(Scope::Thread), ["make-11", "cc1-12", "gc-13"]);
    }

    /// Promise: L3
    #[test]
    fn times_belong_to_the_whole_run() {
        let report = samples::report("task-clock", Scope::Thread, &[samples::outcome()]);
        assert!(report.groups[0].rows[0].value.is_err());
        assert_eq!(report.groups[0].rows[0].metric, None);
    }

    #[test]
    fn nothing_is_derived_from_nothing() {
        let mut outcome = samples::outcome();
        outcome.processes.clear();
        let report = samples::report("branches,calls", Scope::Total, &[outcome]);
        assert!(report.groups[0].rows.iter().all(|row| row.metric.is_none()));
    }
}
