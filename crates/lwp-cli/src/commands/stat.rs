//! `lwp stat`: the program on the virtual CPU, counted.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lwp_terminal::Plain;
use lwp_vcpu::profile::Sink;
use lwp_vcpu::{Config, Outcome, Plan};

use crate::args::StatArgs;
use crate::ending::Ending;
use crate::engine::Engine;
use crate::failure::Failure;
use crate::requests::Requests;
use crate::signals::{self, Interrupted, Program};
use crate::stat::intervals::Intervals;
use crate::stat::modelled::{Modelling, Models};
use crate::stat::report::{MODELLED, Report, Scope};
use crate::stat::{control, csv, events, json, text};
use crate::threads;

/// Runs or attaches, and writes the report.
pub fn execute(args: &StatArgs) -> Result<Ending, Failure> {
    let requested = match (&args.events[..], args.interval_print) {
        // The kernel tells times when a process has ended.
        ([], Some(_)) => events::parse(&[events::DEFAULT_COUNTS.to_owned()])?,
        ([], None) if args.model => events::parse(&[events::with_model(events::DEFAULT)])?,
        (events, _) => events::parse(events)?,
    };
    let mut config = args.counting.configuration(Plan::Exact)?;
    let wanted = |one: &events::Requested| one.source.as_ref().is_ok_and(|it| it.is_modelled());
    let models = args.model || requested.iter().any(wanted);
    if models {
        args.counting.machine.add_model(&mut config)?;
    }
    config.reports.fold = scope(args) == Scope::Total && !models;
    let engine = Engine::choose(&config)?;
    let intervals = ["-I", "leave it out: the counts of the whole run are printed at its end"];
    engine.refuse(&config, args.interval_print.is_some(), intervals)?;
    let output = Mutex::new(output(args)?);
    let requests = Arc::new(Requests::default());
    if let Some(place) = &args.counting.control {
        config.counted.control_line = Some(control::serve(place, Arc::clone(&requests))?);
    }
    let program = Program::attached(args.counting.attaches());
    let interrupted = signals::answer(Arc::clone(&requests), program)?;
    engine.warn(&config);
    let session = Session { args, config, engine, requests, interrupted };
    let write_text = |text: &str| {
        let mut output = lock(&output);
        let written = Plain::new(&mut *output).write_all(text.as_bytes());
        match written.and_then(|()| output.flush()) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                Err(Failure::io(output_name(args), &error))
            }
            _ => Ok(()),
        }
    };
    if let Some(ms) = args.interval_print {
        if args.field_separator.is_none() && !args.json {
            write_text(text::INTERVALS)?;
        }
        return session.by_interval(Duration::from_millis(ms), |at, outcome| {
            write_text(&rendered(args, Report::interval(&requested, scope(args), at, outcome)))
        });
    }
    let mut write = |runs: &[Run]| {
        let outcomes: Vec<Outcome> = runs.iter().map(|run| run.outcome.clone()).collect();
        let models: Vec<Models> = runs.iter().filter_map(|run| run.models.clone()).collect();
        let (title, scope) = (title(args), scope(args));
        write_text(&rendered(args, Report::modelled(title, &requested, scope, &outcomes, &models)))
    };
    match args.repeat {
        0 => session.repeat_for_ever(&mut write),
        runs => session.repeat(runs, &mut write),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// State that all repetitions share.
struct Session<'a> {
    args: &'a StatArgs,
    config: Config,
    engine: Engine,
    requests: Arc<Requests>,
    interrupted: Interrupted,
}

/// A run, and what a model says of it.
struct Run {
    outcome: Outcome,
    models: Option<Models>,
}

/// Writes the report on some runs.
type Writer<'a> = &'a mut dyn FnMut(&[Run]) -> Result<(), Failure>;

impl Session<'_> {
    /// Runs `runs` times, fewer if interrupted, and reports the mean of the whole runs.
    fn repeat(&self, runs: u32, write: Writer<'_>) -> Result<Ending, Failure> {
        let mut whole = Vec::new();
        let mut ending = Ending::SUCCESS;
        for number in 1..=runs {
            let (run, how) = self.once(number == runs)?;
            let cut = self.over(how);
            if cut && number > 1 {
                say_cut(number, self.interrupted(how));
            } else {
                whole.push(run);
            }
            if number > 1 && how != ending && !cut {
                lwp_terminal::say!("lwp: run {number} ended with {}", how.words());
            }
            // A failure counts, also one that the next run does not have.
            if ending == Ending::SUCCESS || cut {
                ending = how;
            }
            if cut {
                break;
            }
        }
        write(&whole)?;
        self.say_if_different(&whole);
        Ok(if runs > 1 { self.interrupted(ending) } else { ending })
    }

    /// Runs and reports until interrupted.
    fn repeat_for_ever(&self, write: Writer<'_>) -> Result<Ending, Failure> {
        for number in 1u32.. {
            let (run, ending) = self.once(false)?;
            let ending = self.interrupted(ending);
            let cut = number > 1 && self.interrupted.signal().is_some();
            match cut {
                true => say_cut(number, ending),
                false => write(&[run])?,
            }
            if self.over(ending) {
                return Ok(ending);
            }
        }
        Ok(Ending::SUCCESS)
    }

    /// Runs once, and reports what is counted in each interval of this length, and in what is left
    /// at the end.
    fn by_interval(
        &self,
        length: Duration,
        write: impl Fn(Duration, &Outcome) -> Result<(), Failure> + Sync,
    ) -> Result<Ending, Failure> {
        let counting = &self.args.counting;
        let (control, reports) = self.requests.connect_reporting();
        counting.schedule(&self.requests)?;
        let companion = counting.companion(&self.requests)?;
        let (over, ended) = channel();
        std::thread::scope(|scope| {
            let (requests, write) = (&self.requests, &write);
            let ticks = threads::start_in(scope, "lwp-intervals", move || {
                let started = Intervals::start();
                started.run(length, requests, &reports, &ended, |at, outcome| {
                    // What is wrong with the place is said at the end, where it is still wrong.
                    let _ = write(at, &outcome);
                })
            })?;
            let outcome = lwp_vcpu::run(&self.config(true), Some(control));
            drop(over);
            let intervals = ticks.join();
            self.requests.disconnect();
            let outcome = outcome?;
            let ending = counting.ending(companion, &outcome);
            if let Ok(mut intervals) = intervals {
                let (at, rest) = intervals.end(outcome.processes);
                write(at, &rest)?;
            }
            Ok(ending)
        })
    }

    /// Names the remedy where runs of one program have not counted the same.
    fn say_if_different(&self, runs: &[Run]) {
        let counts = runs.iter().map(|run| run.outcome.counts().instructions);
        let (least, most) = (counts.clone().min(), counts.max());
        let fixed = self.config.program.deterministic || self.args.counting.attaches();
        let (Some(least), Some(most)) = (least, most.filter(|_| !fixed)) else { return };
        if least != most {
            lwp_terminal::say!(
                "lwp: the runs differ by up to {} instructions. Random numbers, as in the hash \
                 maps of Rust, Go and Python, make them differ, and so do time and threads; \
                 --deterministic fixes random numbers and addresses",
                lwp_report::number::grouped(most - least)
            );
        }
    }

    /// Returns whether a run that ended like this is the last.
    fn over(&self, ending: Ending) -> bool {
        self.interrupted.signal().is_some() || matches!(ending, Ending::Signal(_))
    }

    /// The end of a series whose last run ended like this: not a success if it was interrupted.
    fn interrupted(&self, last: Ending) -> Ending {
        let signal = self.interrupted.signal().filter(|_| last == Ending::SUCCESS);
        signal.map_or(last, Ending::Signal)
    }

    /// The configuration of a run; no other needs the standard streams after the last.
    fn config(&self, last: bool) -> Config {
        let mut config = self.config.clone();
        let output = self.args.output.as_deref();
        config.program.lets_go = [last, last && output.is_none_or(|it| it.as_os_str() != "-")];
        config
    }

    /// One run, which may be the `last`, and how lwp shall end if it is.
    fn once(&self, last: bool) -> Result<(Run, Ending), Failure> {
        let control = self.requests.connect();
        let counting = &self.args.counting;
        counting.schedule(&self.requests)?;
        let companion = counting.companion(&self.requests)?;
        let modelling = self.config.model.is_some().then(Modelling::default);
        let sink = modelling.clone().map(|modelling| Box::new(modelling) as Box<dyn Sink>);
        let outcome = self.engine.run(&self.config(last), control, sink);
        self.requests.disconnect();
        let outcome = outcome?;
        counting.say_if_unmarked(&outcome);
        let ending = counting.ending(companion, &outcome);
        let models = modelling.map(|modelling| modelling.finish());
        Ok((Run { outcome, models }, ending))
    }
}

/// Says that a run was cut off: its counts are lower than those of the others for no reason of the
/// program's.
fn say_cut(number: u32, how: Ending) {
    lwp_terminal::say!(
        "lwp: run {number} was cut off ({}) and is left out; runs before it are whole",
        how.words()
    );
}

/// Opens the place for the report, before anything runs.
fn output(args: &StatArgs) -> Result<Box<dyn Write + Send>, Failure> {
    let Some(path) = &args.output else {
        return Ok(Box::new(io::stderr()));
    };
    if path.as_os_str() == "-" {
        return Ok(Box::new(io::stdout()));
    }
    let opened = if args.append {
        OpenOptions::new().append(true).create(true).open(path)
    } else {
        File::create(path)
    };
    let file = opened.map_err(|error| Failure::output(path, &error))?;
    Ok(Box::new(file))
}

fn output_name(args: &StatArgs) -> String {
    args.output.as_ref().map_or("standard error".into(), |path| path.display().to_string())
}

fn scope(args: &StatArgs) -> Scope {
    match (args.per_thread, args.per_process) {
        (true, _) => Scope::Thread,
        (_, true) => Scope::Process,
        _ => Scope::Total,
    }
}

/// Returns the heading's name for the program.
fn title(args: &StatArgs) -> String {
    match (args.counting.pid, args.counting.tid) {
        (Some(pid), _) => format!("process id '{pid}'"),
        (None, Some(tid)) => format!("thread id '{tid}'"),
        (None, None) => format!("'{}'", args.counting.title()),
    }
}

fn rendered(args: &StatArgs, mut report: Report) -> String {
    if args.no_metric {
        report
            .groups
            .iter_mut()
            .flat_map(|group| &mut group.rows)
            // Whether something is modelled is no number that follows from it.
            .filter(|row| !row.metric.is_some_and(|metric| metric.unit.ends_with(MODELLED)))
            .for_each(|row| row.metric = None);
    }
    match &args.field_separator {
        Some(separator) => csv::render(&report, separator),
        None if args.json => json::render(&report),
        None => text::render(&report, !args.no_big_num),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::time::Duration;

    use super::*;
    use crate::counting::CountingArgs;

    fn args(command: &[&str]) -> StatArgs {
        let command = command.iter().map(OsString::from).collect();
        let counting = CountingArgs { command, ..CountingArgs::default() };
        StatArgs { counting, repeat: 1, ..StatArgs::default() }
    }

    #[test]
    fn configuration_follows_the_options() {
        let config = args(&["/bin/sh"]).counting.configuration(Plan::Exact).unwrap();
        assert!(config.program.follow_children && config.counted.start_enabled);
        assert_eq!(config.plan, Plan::Exact);

        let mut args = args(&["/bin/sh"]);
        args.counting.no_inherit = true;
        args.counting.delay = Some(-1);
        args.counting.machine.timeout = Some(50);
        let config = args.counting.configuration(Plan::Exact).unwrap();
        assert!(!config.program.follow_children && !config.counted.start_enabled);
        assert_eq!(config.program.timeout, Some(Duration::from_millis(50)));

        args.counting.pid = Some(7);
        assert_eq!(args.counting.configuration(Plan::Exact).unwrap().program.timeout, None);
        args.counting.delay = Some(-2);
        assert!(args.counting.configuration(Plan::Exact).is_err());
    }

    #[test]
    fn headings() {
        let mut args = args(&["gzip", "-9", "a file"]);
        assert_eq!(title(&args), "'gzip -9 a file'");
        args.counting.pid = Some(42);
        assert_eq!(title(&args), "process id '42'");
    }
}
