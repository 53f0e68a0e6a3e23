//! The virtual CPU: runs unmodified x86-64 Linux programs by translation and counts exactly.
//!
//! Control is out of process. Translated code runs in the program's own processes; this process
//! sees them through ptrace (rare) and shared memory (the mailbox). The way of one request:
//! translated code misses an address and rings ([`lwp_dbt::routines`]); the server takes the ring,
//! translates, answers (`server`); the thread applies the answer and goes on. The way of a signal:
//! the tracer sees it (`events`), turns the thread's registers into the application's (`state`),
//! lets the kernel deliver it, and leads the handler into translated code (`exec`).
#![forbid(unsafe_code)]

mod absent;
mod addition;
mod arena;
#[cfg(feature = "attack")]
pub mod attack;
mod attend;
mod auxiliary;
mod call_stack;
mod calling;
pub mod config;
mod contexts;
mod control_line;
mod cpu_clock;
mod cpuid;
pub mod doctor;
mod elf;
mod emulate;
mod evaluators;
mod events;
mod exec;
mod exit;
mod family;
mod first_stack;
mod functions;
mod generated;
mod hidden;
mod huge_table;
mod identity;
mod inject;
mod keep;
mod learning;
mod lwp;
mod machine;
mod mapped_file;
mod maps;
mod markers;
mod memory_map;
mod native;
mod notices;
pub mod outcome;
mod owner;
mod pagemap;
mod proc_files;
pub mod profile;
pub mod program_files;
mod refusal;
mod resource_limits;
mod sampled_code;
mod saving;
mod server;
mod space;
mod state;
pub mod store;
mod syscalls;
#[cfg(test)]
mod tests;
mod warm;
mod ways;
mod written_files;
mod x87;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use lwp_ptrace::spawn::SpawnError;
use lwp_ptrace::{Ptrace, Tracee, limits, spawn, sys};

pub use addition::Addition;
pub use attend::{Attended, attend};
pub use call_stack::languages::{Declarations, Languages, leave_trace};
pub use config::{
    Cache, Config, Control, CountedConfig, CpuModel, Interrupt, KeptConfig, LwpConfig, Markers,
    Plan, ProgramConfig, ReportConfig, Request, Sampled, Sampling, SamplingConfig, Target, Warm,
    can_watch_caches,
};
pub use lwp_arch::EventFlags;
pub use lwp_languages::functions::Language;
pub use lwp_ptrace::limits::lift as lift_limits;
pub use lwp_ptrace::sys::{
    Arrivals, ChildEventsHeld, SigInfo, die_by, hold_child_events, pass_on_streams_and_signals,
    real_time_signals, unblock_signals,
};
pub use lwp_uarch::Caches;
pub use lwp_uarch::presets::by_name as machine_named;
pub use outcome::{Alone, Counts, Error, ExitStatus, Outcome, ProcessReport, ThreadReport};
pub use sampled_code::{CodePlace, SampledCode};

use cpu_clock::{CpuClocks, CpuTimes};
use events::Tracer;
use machine::Machine;

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
            native::run(config, control, &what)
        }
        outcome => outcome,
    }
}

/// The same on the virtual CPU, or not at all. `control` is taken once the program has been
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
    machine.caches.store = keep::store_for(&machine.config);
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
const DESCRIPTORS: u64 = RESERVED + 8;
/// Descriptors that contexts and translated files leave to the rest of the host.
const RESERVED: u64 = 16;

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
            guard.caches.prepared = exec::prepare(&guard).ok();
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
                let room = memory_map::ROOM;
                let environment = config.program.environment.as_deref();
                match spawn::spawn(
                    program.as_os_str(),
                    argv,
                    environment,
                    !config.program.aslr,
                    room,
                ) {
                    Ok(tracee) => {
                        config.program.let_go_of_streams();
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
        SpawnError::Trace(error) if lwp_ptrace::wards::are_had() => machine_error(
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
