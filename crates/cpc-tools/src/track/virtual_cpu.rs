//! Counting on the virtual CPU: `cputrack --lwp`.
//!
//! The virtual CPU counts every thread all the time and keeps its own books, so there are no sets to
//! bind and none to rotate. It says what was counted so far, and in the end; when a thread started or
//! ended it does not say, and rows about that are missing.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use lwp_vcpu::config::{Cache, Control, Request};
use lwp_vcpu::{Config, Counts, Outcome, Plan, ProcessReport, Target};
use signal_hook::consts::{SIGHUP, SIGTERM};
use signal_hook::iterator::Signals;

use super::options::Options;
use crate::failure::Failure;
use crate::output::Output;
use crate::rows::{Columns, Note, TrackRow};
use crate::signals::answered;
use crate::spec::Spec;

/// How one event is taken from what the virtual CPU counts.
type Count = fn(&Counts) -> u64;

/// Names, what they count, and how.
#[rustfmt::skip] // A table: one event a line.
const EVENTS: &[(&[&str], Count)] = &[
    (&["instructions", "PAPI_tot_ins"],                   |c| c.instructions),
    (&["branches", "branch-instructions", "PAPI_br_ins"], |c| c.branches),
    (&["branches-taken"],                                 Counts::taken),
    (&["conditional-branches", "PAPI_br_cn"],             |c| c.conditional),
    (&["conditional-taken", "PAPI_br_tkn"],               |c| c.conditional_taken),
    (&["conditional-not-taken", "PAPI_br_ntk"],           |c| c.conditional - c.conditional_taken),
    (&["unconditional-branches", "PAPI_br_ucn"],          |c| c.branches - c.conditional),
    (&["calls"],                                          |c| c.calls),
    (&["returns"],                                        |c| c.returns),
    (&["indirect-branches"],                              |c| c.indirect),
];

/// What can be counted here.
pub fn listing() -> String {
    let mut text = "\n\tCPU performance counter interface: the virtual CPU\n\n".to_owned();
    text += "\tevents  [picN=]event[,[picN=]event...]\n\n";
    for (names, _) in EVENTS {
        let _ = writeln!(text, "{:>17}{}", "", names.join(" "));
    }
    text += "\n\tCounted exactly, in user mode, for every thread all the time.\n";
    text
}

/// One specification: its events in the order of their columns.
struct Columned {
    text: String,
    pics: Vec<u32>,
    counts: Vec<Count>,
}

impl Columned {
    fn parse(text: &str) -> Result<Self, Failure> {
        let spec = Spec::parse(text, &[])?;
        if let Some(modifier) = spec.modifiers.first() {
            let reason = match &*modifier.name {
                "sys" => {
                    "the virtual CPU counts in user mode only; without --lwp the PMU may do it"
                }
                _ => "the virtual CPU always counts user mode",
            };
            return Err(Failure::Usage(format!("'{}': {reason}", modifier.name)));
        }
        let mut columned = Self { text: text.to_owned(), pics: Vec::new(), counts: Vec::new() };
        for wanted in &spec.events {
            let pic = wanted.pic.unwrap_or_else(|| columned.pics.iter().max().map_or(0, |p| p + 1));
            if columned.pics.contains(&pic) {
                return Err(Failure::Usage(format!("pic{pic} is used twice in '{text}'")));
            }
            columned.pics.push(pic);
            columned.counts.push(count_named(&wanted.event)?);
        }
        Ok(columned)
    }
}

fn count_named(name: &str) -> Result<Count, Failure> {
    // Modifiers of perf are understood where they ask for what is counted anyway.
    let bare = name.strip_suffix(":u").unwrap_or(name);
    let same = |known: &&&str| {
        **known == bare || (known.starts_with("PAPI") && known.eq_ignore_ascii_case(bare))
    };
    let row = EVENTS.iter().find(|(names, _)| names.iter().any(|known| same(&known)));
    row.map(|(_, count)| *count).ok_or_else(|| {
        Failure::Usage(format!(
            "'{name}': the virtual CPU does not count this; see cputrack --lwp -h for what it counts"
        ))
    })
}

/// Counts what the options ask for.
pub fn track(options: &Options) -> Result<(), Failure> {
    let specs: Vec<Columned> =
        options.specs.iter().map(|spec| Columned::parse(spec)).collect::<Result<_, _>>()?;
    if options.tsc {
        return Err(Failure::Usage("-t: the virtual CPU counts no clock cycles".into()));
    }
    let config = configuration(options)?;
    let mut output = Output::open(options.output.as_deref())?;
    if !options.no_title {
        let widest = specs.iter().max_by_key(|spec| spec.pics.len());
        output.write(&options.columns().track_title(widest.map_or(&[], |spec| &spec.pics)));
    }
    let printer = Mutex::new(Printer {
        options,
        columns: options.columns(),
        specs: &specs,
        output,
        started: Instant::now(),
        images: BTreeMap::new(),
        failed: false,
    });
    let (requests, control, reports) = connect();
    answer_signals(requests.clone(), options.pid.is_some())?;
    let outcome = std::thread::scope(|scope| {
        let (done, over) = channel::<()>();
        let printer = &printer;
        scope.spawn(move || ticks(options, printer, &requests, &reports, &over));
        let outcome = lwp_vcpu::run(&config, Some(control));
        drop(done);
        outcome
    });
    let outcome = outcome.map_err(failure)?;
    let mut printer = printer.into_inner().unwrap_or_else(PoisonError::into_inner);
    printer.finish(&outcome);
    if printer.failed { Err(Failure::Reported) } else { Ok(()) }
}

fn failure(error: lwp_vcpu::Error) -> Failure {
    match &error {
        lwp_vcpu::Error::Machine { remedy, .. } if !remedy.is_empty() => {
            Failure::new(format!("{error}\n  {remedy}"))
        }
        _ => Failure::new(error),
    }
}

fn configuration(options: &Options) -> Result<Config, Failure> {
    let target = match options.pid {
        Some(pid) => Target::Attach { pid },
        None => {
            Target::Launch { program: search(&options.command[0])?, argv: options.command.clone() }
        }
    };
    let mut config = Config::launch(PathBuf::new(), Vec::new(), Plan::Exact);
    config.target = target;
    config.follow_children = options.follow_fork;
    // Where the command `lwp` keeps its translations, unless it is told how many to keep there.
    if std::env::var_os("LWP_CACHE_LIMIT").is_none() {
        let limit = lwp_vcpu::store::DEFAULT_LIMIT;
        config.cache = lwp_vcpu::store::default_place().map(|place| Cache { place, limit });
    }
    Ok(config)
}

/// Finds the program as a shell does.
fn search(name: &std::ffi::OsStr) -> Result<PathBuf, Failure> {
    pctx::search(name).map_err(Failure::from).and_then(|file| match Path::new(&file).is_file() {
        true => Ok(file),
        false => Err(Failure::new(format!("{}: cannot be executed", name.display()))),
    })
}

type Connected = (Sender<Request>, Control, Receiver<Vec<ProcessReport>>);

fn connect() -> Connected {
    let (requests, asked) = channel();
    let (done, _) = channel();
    let (reports, answers) = channel();
    (requests, Control { requests: asked, done, reports: Some(reports) }, answers)
}

/// A terminal's ^C reaches the program too, and its end ends the run. SIGTERM and SIGHUP end the
/// program, and any signal the observation of a live process.
fn answer_signals(requests: Sender<Request>, attached: bool) -> Result<(), Failure> {
    let signals = Signals::new(answered());
    let mut signals = signals.map_err(|error| Failure::new(format!("signal handlers: {error}")))?;
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if attached || matches!(signal, SIGTERM | SIGHUP) {
                let _ = requests.send(Request::Stop);
            }
        }
    });
    Ok(())
}

/// Asks for the counts so far once every period, until the run is over or there were enough.
fn ticks(
    options: &Options,
    printer: &Mutex<Printer<'_>>,
    requests: &Sender<Request>,
    reports: &Receiver<Vec<ProcessReport>>,
    over: &Receiver<()>,
) {
    let Some(period) = options.period() else {
        return;
    };
    let mut left = options.samples.unwrap_or(u32::MAX);
    let mut next = Instant::now() + period;
    while left > 0 {
        let wait = next.saturating_duration_since(Instant::now());
        if !matches!(over.recv_timeout(wait), Err(RecvTimeoutError::Timeout)) {
            return;
        }
        while next <= Instant::now() {
            next += period;
        }
        if requests.send(Request::Report).is_err() {
            return;
        }
        // The run may end before it answers.
        let answer = loop {
            match reports.recv_timeout(Duration::from_millis(20)) {
                Ok(answer) => break answer,
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    if !matches!(over.try_recv(), Err(std::sync::mpsc::TryRecvError::Empty)) {
                        return;
                    }
                }
            }
        };
        printer.lock().unwrap_or_else(PoisonError::into_inner).tick(&answer);
        left -= 1;
    }
}

/// What was printed of one program image.
#[derive(Default)]
struct Image {
    /// Threads in the order in which they were seen: their numbers are the places, from 1.
    tids: Vec<i32>,
    /// Their counts at the tick before, one row a specification.
    seen: BTreeMap<i32, Vec<Vec<u64>>>,
}

impl Image {
    fn number(&mut self, tid: i32) -> i32 {
        let place = self.tids.iter().position(|known| *known == tid).unwrap_or_else(|| {
            self.tids.push(tid);
            self.tids.len() - 1
        });
        i32::try_from(place + 1).unwrap_or(i32::MAX)
    }
}

/// Prints rows.
struct Printer<'a> {
    options: &'a Options,
    columns: Columns,
    specs: &'a [Columned],
    output: Output,
    started: Instant,
    /// By place in the list of reports.
    images: BTreeMap<usize, Image>,
    failed: bool,
}

impl Printer<'_> {
    /// Whether the report at `index` is asked for: with -f every process, with -e every image.
    fn wanted(&self, reports: &[ProcessReport], index: usize) -> bool {
        let report = &reports[index];
        let first = reports.first().is_some_and(|first| first.pid == report.pid);
        let later = reports[..index].iter().any(|other| other.pid == report.pid);
        (self.options.follow_fork || first)
            && (self.options.follow_exec || !later)
            && report.uncounted.is_none()
    }

    /// Prints what every living thread has counted since the tick before.
    fn tick(&mut self, reports: &[ProcessReport]) {
        let seconds = self.started.elapsed().as_secs_f64();
        for (index, report) in reports.iter().enumerate() {
            let over = reports[index + 1..].iter().any(|later| later.pid == report.pid);
            if over || !self.wanted(reports, index) {
                continue;
            }
            for thread in &report.threads {
                let image = self.images.entry(index).or_default();
                let lwp = image.number(thread.tid);
                let now: Vec<Vec<u64>> = self
                    .specs
                    .iter()
                    .map(|spec| spec.counts.iter().map(|count| count(&thread.counts)).collect())
                    .collect();
                let fresh = fresh(image.seen.entry(thread.tid).or_default(), &now);
                if Path::new(&format!("/proc/{}/task/{}", report.pid, thread.tid)).exists() {
                    self.rows(seconds, report.pid, lwp, "tick", &fresh);
                }
            }
        }
    }

    /// One row a specification.
    fn rows(&mut self, seconds: f64, pid: i32, lwp: i32, tag: &str, counts: &[Vec<u64>]) {
        for (spec, counts) in self.specs.iter().zip(counts) {
            let note = if self.specs.len() > 1 { Note::Text(&spec.text) } else { Note::None };
            let counts = Some((0, &**counts));
            let row = TrackRow { seconds, pid, lwp, tag, counts, note };
            self.output.write(&self.columns.track(row));
        }
    }

    /// Prints the totals of every process image.
    fn finish(&mut self, outcome: &Outcome) {
        let seconds = outcome.elapsed.as_secs_f64();
        let reports = &outcome.processes;
        for (index, report) in reports.iter().enumerate() {
            if let Some(reason) = &report.uncounted
                && (self.options.follow_fork || index == 0)
            {
                eprintln!("cputrack: process {} was not counted: {reason}", report.pid);
                self.failed = true;
            }
            if !self.wanted(reports, index) {
                continue;
            }
            self.threads(seconds, index, report);
            let next = reports[index + 1..].iter().find(|later| later.pid == report.pid);
            let tag = if next.is_some() { "exec" } else { "exit" };
            self.rows(seconds, report.pid, 1, tag, &self.counts(&report.counts()));
            if let Some(next) = next.filter(|_| self.options.follow_exec) {
                let note = format!("'{}'", next.comm);
                let row = TrackRow {
                    seconds,
                    pid: report.pid,
                    lwp: 1,
                    tag: "exec",
                    counts: None,
                    note: Note::Text(&note),
                };
                self.output.write(&self.columns.track(row));
            }
        }
    }

    /// Rows for the threads of a process that is over.
    fn threads(&mut self, seconds: f64, index: usize, report: &ProcessReport) {
        for thread in &report.threads {
            let lwp = self.images.entry(index).or_default().number(thread.tid);
            let counts = self.counts(&thread.counts);
            if self.options.verbose {
                self.rows(seconds, report.pid, lwp, "fini_lwp", &counts);
            }
            if thread.tid != report.pid {
                self.rows(seconds, report.pid, lwp, "lwp_exit", &counts);
            }
        }
    }

    fn counts(&self, counts: &Counts) -> Vec<Vec<u64>> {
        let of = |spec: &Columned| spec.counts.iter().map(|count| count(counts)).collect();
        self.specs.iter().map(of).collect()
    }
}

/// What `now` has more than `seen`, which becomes `now`. Counters are read while they run, so one may
/// be behind for a moment; it then counts from where it was.
fn fresh(seen: &mut Vec<Vec<u64>>, now: &[Vec<u64>]) -> Vec<Vec<u64>> {
    seen.resize(now.len(), Vec::new());
    let rows = seen.iter_mut().zip(now);
    rows.map(|(seen, now)| {
        seen.resize(now.len(), 0);
        let fresh = |(seen, now): (&mut u64, &u64)| {
            let before = std::mem::replace(seen, (*seen).max(*now));
            *seen - before
        };
        seen.iter_mut().zip(now).map(fresh).collect()
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_understood() {
        let counts = Counts {
            instructions: 100,
            branches: 20,
            conditional: 12,
            conditional_taken: 7,
            calls: 3,
            returns: 2,
            indirect: 1,
        };
        let count = |name: &str| count_named(name).map(|count| count(&counts)).unwrap();
        assert_eq!(count("instructions:u"), 100);
        assert_eq!(count("PAPI_TOT_INS"), 100);
        assert_eq!(count("branches-taken"), 15);
        assert_eq!(count("PAPI_br_ntk"), 5);
        assert_eq!(count("PAPI_br_ucn"), 8);
        for unknown in ["cycles", "instructions:k", "PAPI_tot_cyc", "0xc0"] {
            assert!(count_named(unknown).is_err(), "{unknown}");
        }
    }

    #[test]
    fn specifications_without_attributes() {
        let spec = Columned::parse("pic2=calls,returns,pic0=branches").unwrap();
        assert_eq!(spec.pics, [2, 3, 0]);
        for wrong in ["calls,sys", "calls,nouser", "pic0=calls,pic0=returns", "cycles"] {
            assert!(Columned::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn differences_never_run_backwards() {
        let mut seen = Vec::new();
        assert_eq!(fresh(&mut seen, &[vec![5, 9]]), [[5, 9]]);
        assert_eq!(fresh(&mut seen, &[vec![4, 10]]), [[0, 1]]);
        assert_eq!(fresh(&mut seen, &[vec![7, 10]]), [[2, 0]], "sums stay right");
    }
}
