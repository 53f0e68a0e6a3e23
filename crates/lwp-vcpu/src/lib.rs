//! The virtual CPU: runs unmodified x86-64 Linux programs by translation and counts exactly.
//!
//! lwp controls programs from another process, the *host*. Translated code runs in the program's
//! own processes; the host reaches them through shared memory (the mailbox) and, rarely, ptrace. A
//! request: translated code reaches an address without a translation and rings
//! ([`lwp_dbt::routines`]); the server, a thread of the host, translates and answers (`server`);
//! the program's thread applies the answer and continues. A signal: the tracer, another thread of
//! the host, sees it (`tracer`), turns the thread's registers into the application's (`state`),
//! lets the kernel deliver it, and directs the handler into translated code (`setup`).
//!
//! This crate builds on others: a process as seen from outside ([`lwp_process`]), the input and the
//! results of a run ([`lwp_run`]), the memory shared with threads ([`lwp_mailbox`]), system calls
//! ([`lwp_calls`]) and translations ([`lwp_code`]).
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests open what they have made"))]

mod ahead_of_time;
#[cfg(feature = "attack")]
pub mod attack;
mod attend;
mod background_save;
mod call_stack;
mod control_line;
mod cpu_clock;
mod cpuid;
pub mod doctor;
mod dumpable;
mod emulate;
mod guarding;
mod interpreted_calls;
mod learning;
mod lwp;
mod machine;
mod markers;
mod measured_contexts;
mod native_run;
mod our_ranges;
mod proc_files;
pub mod profile;
mod refusal;
mod relayout;
mod resource_limits;
mod sample_filters;
mod server;
mod setup;
mod state;
#[cfg(test)]
mod tests;
mod tracer;
mod unfilled_code;
mod written_files;
mod x87;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use lwp_process::spawn::SpawnError;
use lwp_process::{Ptrace, Tracee, limits, spawn, sys};

pub use attend::{Attended, attend};
pub use call_stack::languages::{Declarations, Languages, leave_trace};
pub use lwp_arch::EventFlags;
pub use lwp_code::store;
pub use lwp_languages::functions::Language;
pub use lwp_process::limits::lift as lift_limits;
pub use lwp_process::program_files;
pub use lwp_process::sys::{
    Arrivals, ChildEventsHeld, SigInfo, die_by, hold_child_events, pass_on_streams_and_signals,
    real_time_signals, unblock_signals,
};
pub use lwp_run::{
    Addition, Alone, Cache, CodePlace, Config, Control, CountedConfig, Counts, CpuModel, Error,
    ExitStatus, Interrupt, KeptConfig, LwpConfig, Markers, Outcome, Plan, ProcessReport,
    ProgramConfig, ReportConfig, Request, Sampled, SampledCode, Sampling, SamplingConfig, Target,
    ThreadReport, Warm, can_watch_caches, config, outcome,
};
pub use lwp_uarch::Caches;
pub use lwp_uarch::presets::by_name as machine_named;

use cpu_clock::{CpuClocks, CpuTimes};
use machine::Machine;
use tracer::Tracer;

/// Runs `config` to its end and reports what was counted.
///
/// `control` delivers enable, disable and stop requests while the program runs; see [`Control`].
/// The calling thread becomes the tracer. SIGCHLD's disposition in this process is changed.
///
/// # Errors
///
/// The program cannot be started, or the machine does not let it be traced.
pub fn run(config: &Config, control: Option<Control>) -> Result<Outcome, Error> {
    run_profiled(config, control, None)
}

/// Like [`run`], and tells `sink` where the counts arose. Needs [`Plan::Exact`] or
/// [`SamplingConfig::events`].
///
/// # Errors
///
/// As for [`run`].
pub fn run_profiled(
    config: &Config,
    mut control: Option<Control>,
    sink: Option<Box<dyn profile::Sink>>,
) -> Result<Outcome, Error> {
    match run_virtually(config, &mut control, sink) {
        Err(Error::Machine { what, .. })
            if config.program.native_fallback && matches!(config.target, Target::Launch { .. }) =>
        {
            native_run::run(config, control, &what)
        }
        outcome => outcome,
    }
}

/// Runs the program on the virtual CPU, or not at all. `control` is taken once the program has been
/// started.
fn run_virtually(
    config: &Config,
    control: &mut Option<Control>,
    sink: Option<Box<dyn profile::Sink>>,
) -> Result<Outcome, Error> {
    limits::lift();
    enough_descriptors()?;
    let wake =
        Arc::new(sys::event_fd().map_err(|error| {
            machine_error("making an event descriptor", error, "close some files")
        })?);
    sys::signal_child_events(&wake)
        .map_err(|error| machine_error("preparing to wait for the program", error, ""))?;
    let started = Instant::now();
    let before = sys::cpu_times();
    let mut machine = Machine::new(config.clone(), wake, Arc::new(Ptrace));
    machine.observers.started = started;
    machine.observers.profiler = sink.map(profile::Profiler::new);
    machine.caches.store = lwp_code::module_images::store_for(&machine.config);
    let machine = Mutex::new(machine);
    let status = run_in(&machine, config, control)?;
    let mut machine = machine.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let after = sys::cpu_times();
    // What was attached to is no child; the children are somebody else's, as the command beside it.
    let times = machine.observers.clocks.as_ref().map_or_else(
        || CpuTimes {
            user: after[0].0.saturating_sub(before[0].0),
            system: after[0].1.saturating_sub(before[0].1),
        },
        CpuClocks::total,
    );
    let elapsed = started.elapsed();
    machine.keeper().keep();
    Ok(Outcome {
        status,
        alone: machine.observers.alone,
        processes: std::mem::take(&mut machine.observers.reports).into_list(),
        elapsed,
        user: times.user,
        system: times.system,
        host: (after[1].0 + after[1].1).saturating_sub(before[1].0 + before[1].1),
    })
}

/// Descriptors that the host keeps for itself: those that it always has, and those that it opens to
/// look at a process. Without one of the latter it would know nothing of a process's memory.
const DESCRIPTORS: u64 = limits::RESERVED + 8;

/// Fails if the host can have too few descriptors.
fn enough_descriptors() -> Result<(), Error> {
    let (most, free) = (limits::descriptors().unwrap_or(u64::MAX), limits::free_descriptors());
    if free >= DESCRIPTORS {
        return Ok(());
    }
    let what = format!(
        "the limit on open files is {most}, which leaves {free} of the {DESCRIPTORS} that lwp needs"
    );
    let help = "raise the hard limit on open files (`ulimit -H -n`), or close some files";
    Err(Error::Machine { what, help: help.into() })
}

/// A panic in one of the two threads must not leave the other, and the program, waiting for ever.
/// The kernel kills the program then.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

const SIGKILL: i32 = 9;

/// Starts the program, with a server beside it, and traces it to its end.
fn run_in(
    machine: &Mutex<Machine>,
    config: &Config,
    control: &mut Option<Control>,
) -> Result<ExitStatus, Error> {
    sys::suit_allocator();
    // The lock is kept until the first family is ready: whoever needs it waits.
    let (ready, wait) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let serve = || {
            let _abort = AbortOnPanic;
            let _held = sys::hold_child_events();
            let mut guard = server::lock(machine);
            let _ = ready.send(());
            guard.caches.prepared = setup::prepare(&guard).ok();
            drop(guard);
            server::serve(machine, scope);
        };
        let server = std::thread::Builder::new().name("lwp-server".into());
        let server = server.spawn_scoped(scope, serve).map_err(|error| no_thread(&error))?;
        let _abort = AbortOnPanic;
        let status = Start::new(config).and_then(|start| {
            let _ = wait.recv();
            trace(machine, &start, control.take())
        });
        server::finish(machine);
        let _ = server.join();
        sys::forget_child_events();
        status
    })
}

/// A program or process that is stopped and waits for its first step on the virtual CPU.
enum Start {
    /// A new program, at its exec.
    Program(Tracee),
    /// A live process's threads.
    Live(i32, Vec<Tracee>),
    /// A new program that the kernel could not finish starting.
    Stillborn(ExitStatus),
}

impl Start {
    fn new(config: &Config) -> Result<Self, Error> {
        match &config.target {
            Target::Launch { program, argv } => {
                let room = lwp_mailbox::memory_map::ROOM;
                let environment = config.program.environment.as_deref();
                match spawn::spawn(
                    program.as_os_str(),
                    argv,
                    environment,
                    !config.program.aslr,
                    room,
                ) {
                    Ok(tracee) => {
                        sys::let_go_of_streams(config.program.lets_go);
                        Ok(Self::Program(tracee))
                    }
                    Err(SpawnError::Killed { signal, core }) => {
                        Ok(Self::Stillborn(ExitStatus::Signal { signal, core }))
                    }
                    Err(error) => Err(spawn_error(program, error)),
                }
            }
            Target::Attach { pid } => {
                refusal::of_tracer(*pid)?;
                let threads = spawn::attach(*pid).map_err(|error| match error {
                    sys::Errno::ESRCH => Error::NotFound { program: format!("process {pid}") },
                    error => {
                        let help = refusal::help(*pid, error);
                        machine_error("attaching to the process", error, &help)
                    }
                })?;
                Ok(Self::Live(*pid, threads))
            }
        }
    }
}

/// Leads what was started or attached to into translated code and traces it to its end.
fn trace(
    machine: &Mutex<Machine>,
    start: &Start,
    control: Option<Control>,
) -> Result<ExitStatus, Error> {
    match start {
        Start::Program(tracee) => {
            let mut tracer = Tracer::new(machine, tracee.0, control);
            if let Err(error) = tracer.begin(tracee.0) {
                // It has not executed anything, and must not be left behind stopped.
                let _ = sys::kill(tracee.0, SIGKILL);
                // Somebody else may have killed it; it reports that by itself.
                if error != sys::Errno::ESRCH {
                    return Err(machine_error("starting the program", error, "see `lwp doctor`"));
                }
            }
            Ok(tracer.run())
        }
        Start::Stillborn(status) => {
            let mut machine = server::lock(machine);
            let comm = match &machine.config.target {
                Target::Launch { program, .. } => {
                    program.file_name().map(std::ffi::OsStr::to_owned)
                }
                Target::Attach { .. } => None,
            };
            machine.observers.reports.add(ProcessReport {
                pid: 0,
                parent: 0,
                maker: 0,
                started: Instant::now(),
                command: String::new(),
                comm: comm.unwrap_or_default().to_string_lossy().into_owned(),
                threads: Vec::new(),
                uncounted: Some("it was killed before its first instruction".into()),
            });
            Ok(*status)
        }
        Start::Live(pid, threads) => {
            let clocks = CpuClocks::of_running(threads.iter().map(|thread| thread.0));
            server::lock(machine).observers.clocks = Some(clocks);
            let mut tracer = Tracer::new(machine, *pid, control);
            tracer.attach(*pid, threads).map_err(|what| Error::Machine {
                what: format!("taking over process {pid}: {what}"),
                help: "the process goes on natively".into(),
            })?;
            Ok(tracer.run())
        }
    }
}

/// The refusal of the machine, and the advice about it: `help`, unless the error itself says that
/// it is a limit.
fn machine_error(what: &str, error: sys::Errno, help: &str) -> Error {
    const EAGAIN: i32 = 11;
    const ENOMEM: i32 = 12;
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    const EFBIG: i32 = 27;
    let help = match error.0 {
        EAGAIN => "raise the limits on processes (`ulimit -u`) and data (`ulimit -d`)",
        ENOMEM => "raise the hard limit on address space (`ulimit -H -v`)",
        EMFILE => "raise the hard limit on open files (`ulimit -H -n`)",
        ENFILE => "end some programs, or raise fs.file-max",
        EFBIG => "raise the hard limit on the size of files (`ulimit -H -f`)",
        _ => help,
    };
    Error::Machine { what: format!("{what}: {error}"), help: help.into() }
}

fn no_thread(error: &std::io::Error) -> Error {
    let error = sys::Errno(error.raw_os_error().unwrap_or(0));
    machine_error("starting a thread", error, "see `lwp doctor`")
}

fn spawn_error(program: &Path, error: SpawnError) -> Error {
    let program = program.display().to_string();
    match error {
        SpawnError::Exec(sys::Errno(2)) => Error::NotFound { program },
        SpawnError::Exec(error) => Error::NotExecutable { program, cause: error.to_string() },
        SpawnError::Killed { signal, .. } => {
            Error::NotExecutable { program, cause: format!("killed by signal {signal}") }
        }
        SpawnError::Nul => {
            Error::NotExecutable { program, cause: "an argument contains a NUL byte".into() }
        }
        SpawnError::Trace(error) if lwp_process::nested_ptrace::are_had() => machine_error(
            "tracing the program",
            error,
            "this is the virtual CPU already: run the inner command outside of `lwp`",
        ),
        SpawnError::Trace(error) => machine_error(
            "tracing the program",
            error,
            "ptrace must be allowed: in a container, add the SYS_PTRACE capability or a seccomp \
             profile that permits ptrace; see `lwp doctor`",
        ),
    }
}
