//! Counting on the virtual CPU: `cputrack --lwp`.
//!
//! The virtual CPU counts every thread all the time and keeps its own books, so there are no sets to
//! bind and none to rotate. It says at every tick what was counted so far, and when threads and
//! processes have started and ended; rows about that are printed then, with their own times.

mod printer;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use lwp_vcpu::config::{Cache, Control, Request};
use lwp_vcpu::{Config, Counts, Plan, ProcessReport, Target};
use signal_hook::consts::{SIGHUP, SIGTERM};
use signal_hook::iterator::Signals;

use super::options::Options;
use crate::failure::Failure;
use crate::output::Output;
use crate::signals::answered;
use crate::spec::Spec;
use printer::Printer;

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
    let printer = Mutex::new(Printer::new(options, &specs, output));
    let (requests, control, reports) = connect();
    answer_signals(requests.clone(), options.pid.is_some())?;
    let outcome = std::thread::scope(|scope| {
        let (done, over) = channel::<()>();
        let printer = &printer;
        let ticks = move || ticks(options, printer, &requests, &reports, &over);
        let started = std::thread::Builder::new().name("ticks".into()).spawn_scoped(scope, ticks);
        started.map_err(no_thread)?;
        let outcome = lwp_vcpu::run(&config, Some(control));
        drop(done);
        outcome.map_err(failure)
    });
    let outcome = outcome?;
    let mut printer = printer.into_inner().unwrap_or_else(PoisonError::into_inner);
    printer.finish(&outcome);
    if printer.failed { Err(Failure::Reported) } else { printer.output.finish() }
}

fn no_thread(error: std::io::Error) -> Failure {
    Failure::new(format!("starting a thread: {error}"))
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
    let answer = move || {
        for signal in signals.forever() {
            if attached || matches!(signal, SIGTERM | SIGHUP) {
                let _ = requests.send(Request::Stop);
            }
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(answer).map_err(no_thread)?;
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
    if options.pid.is_some() {
        // A live process is left alone after that; one of our own needs the virtual CPU to its end.
        printer.lock().unwrap_or_else(PoisonError::into_inner).enough = true;
        let _ = requests.send(Request::Stop);
    }
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
}
