//! Counting on the virtual CPU: `cputrack --lwp`.
//!
//! The virtual CPU counts every thread all the time and keeps its own books, so there are no sets
//! to bind and none to rotate. It says at every tick what was counted so far, and when threads and
//! processes have started and ended; rows about that are printed then, with their own times.
//!
//! A program that switches its counters by `cpc_enable` and `cpc_disable` asks the process that
//! traces it, which is this one: what a thread does while its counters stand still is taken off its
//! counts.

mod events;
mod printer;
mod switches;

use std::io::{self, PipeReader};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lwp_vcpu::config::{Cache, Control, Request};
use lwp_vcpu::{Config, Plan, ProcessReport, Sampling, Target};
use rustix::event::{PollFd, PollFlags, poll};
use signal_hook::consts::{SIGHUP, SIGTERM};
use signal_hook::iterator::Signals;

use super::options::Options;
use crate::failure::Failure;
use crate::output::Output;
use crate::signals::answered;
use events::Columned;
pub use events::listing;
use printer::Printer;

/// Counts what the options ask for.
pub fn track(options: &Options) -> Result<(), Failure> {
    let specs: Vec<Columned> =
        options.specs.iter().map(|spec| Columned::parse(spec)).collect::<Result<_, _>>()?;
    let sampling = events::sampling(&specs)?;
    let config = configuration(options, &sampling)?;
    let mut output = Output::open(options.output.as_deref())?;
    if !options.no_title {
        let widest = specs.iter().max_by_key(|spec| spec.pics.len());
        output.write(&options.columns().track_title(widest.map_or(&[], |spec| &spec.pics)));
    }
    let (requests, control, reports) = connect();
    answer_signals(requests.clone(), options.pid.is_some())?;
    let printer = Mutex::new(Printer::new(options, &specs, &sampling, output));
    let books = Books { printer, requests, reports: Mutex::new(reports) };
    // Without it the program is told that there are no counters to be switched.
    let wishes = cpc::SwitchRequests::of_this_process().ok();
    let (ended, ending) = io::pipe().map_err(Failure::new)?;
    let outcome = std::thread::scope(|scope| {
        let (done, over) = channel::<()>();
        let books = &books;
        let named = |name: &str| std::thread::Builder::new().name(name.into());
        named("ticks")
            .spawn_scoped(scope, move || ticks(options, books, &over))
            .map_err(no_thread)?;
        if let Some(wishes) = &wishes {
            let fulfil = move || books.fulfil(wishes, &ended);
            named("wishes").spawn_scoped(scope, fulfil).map_err(no_thread)?;
        }
        let outcome = lwp_vcpu::run(&config, Some(control));
        drop((done, ending));
        outcome.map_err(failure)
    });
    let outcome = outcome?;
    let mut printer = books.printer.into_inner().unwrap_or_else(PoisonError::into_inner);
    printer.finish(&outcome);
    if printer.failed { Err(Failure::Reported) } else { printer.output.finish() }
}

fn no_thread(error: std::io::Error) -> Failure {
    Failure::new(format!("starting a thread: {error}"))
}

/// The printer, and the way to the virtual CPU's counts.
struct Books<'a> {
    printer: Mutex<Printer<'a>>,
    requests: Sender<Request>,
    reports: Mutex<Receiver<Vec<ProcessReport>>>,
}

impl<'a> Books<'a> {
    fn printer(&self) -> MutexGuard<'_, Printer<'a>> {
        self.printer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the counts so far; `None` once the run is over, also if it ends before it answers.
    fn so_far(&self) -> Option<Vec<ProcessReport>> {
        let reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        self.requests.send(Request::Report).ok()?;
        reports.recv().ok()
    }

    /// Switches counters as the program's threads wish, until nobody holds the other end of
    /// `ended`.
    fn fulfil(&self, wishes: &cpc::SwitchRequests, ended: &PipeReader) {
        loop {
            let mut fds = [PollFd::new(wishes, PollFlags::IN), PollFd::new(ended, PollFlags::IN)];
            // An interrupted wait is as good as one that brings something: the socket is looked at.
            let _ = poll(&mut fds, None);
            let over = !fds[1].revents().is_empty();
            wishes.answer_by(|tid, running| self.switch(tid, running));
            if over {
                return;
            }
        }
    }

    /// The thread that wishes it waits meanwhile, so what it has counted is what it has done up to
    /// its call.
    fn switch(&self, tid: i32, running: bool) -> Result<(), cpc::Error> {
        let none = cpc::c::error(EINVAL, "the thread has no counters");
        let reports = self.so_far().ok_or(none.clone())?;
        if self.printer().switch(&reports, tid, running) { Ok(()) } else { Err(none) }
    }
}

/// The error number of a call that is not possible now.
const EINVAL: i32 = rustix::io::Errno::INVAL.raw_os_error();

fn failure(error: lwp_vcpu::Error) -> Failure {
    match &error {
        lwp_vcpu::Error::Machine { help, .. } if !help.is_empty() => {
            Failure::new(format!("{error}\n  {help}"))
        }
        lwp_vcpu::Error::NotExecutable { program, cause } => {
            Failure::new(format!("{program}: cannot be executed: {cause}"))
        }
        _ => Failure::new(error),
    }
}

fn configuration(options: &Options, sampling: &[Sampling]) -> Result<Config, Failure> {
    let target = match options.pid {
        Some(pid) => Target::Attach { pid },
        None => {
            let program = pctx::find_program(&options.command[0])?;
            Target::Launch { program, argv: options.command.clone() }
        }
    };
    let plan = if sampling.is_empty() { Plan::Exact } else { Plan::Plain };
    let mut config = Config::launch(PathBuf::new(), Vec::new(), plan);
    config.program.shows_tracer = true;
    if options.pid.is_some() || !sampling.is_empty() {
        // A process that runs already has seen its processor; and samples need LWP's countdown.
        config.lwp = None;
    }
    if !sampling.is_empty() {
        config.sampling.events = sampling.to_vec();
        config.sampling.stacks = false;
    }
    if options.tsc {
        if !Path::new("/proc/self/schedstat").exists() {
            return Err(Failure::new(
                "-t: this kernel does not say how long a thread has run (schedstat)",
            ));
        }
        config.reports.thread_times = true;
        // Its frequency is measured before anything is counted.
        let _ = cpc::tsc_cycles(Duration::ZERO);
    }
    config.target = target;
    config.program.follow_children = options.follow_fork;
    // Where the command `lwp` keeps its translations, unless it is told how many to keep there.
    if std::env::var_os("LWP_CACHE_LIMIT").is_none() {
        let limit = lwp_vcpu::store::DEFAULT_LIMIT;
        config.kept.cache = lwp_vcpu::store::default_place().map(|place| Cache { place, limit });
    }
    Ok(config)
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
fn ticks(options: &Options, books: &Books<'_>, over: &Receiver<()>) {
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
        let Some(reports) = books.so_far() else {
            return;
        };
        books.printer().tick(&reports);
        left -= 1;
    }
    if options.pid.is_some() {
        // A live process is left alone after that; one of our own needs the virtual CPU to its end.
        books.printer().enough = true;
        let _ = books.requests.send(Request::Stop);
    }
}
