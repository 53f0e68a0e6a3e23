//! 32-bit programs: executed on the real processor, one instruction at a time, and counted.
//!
//! The translator knows 64-bit code only. Until it knows the other, this takes its place: slow, and
//! right. [`run`] has the parameters and the result of [`lwp_vcpu::run_profiled`]. The runner of
//! `lwp-reference` steps the program with the reference unit of Lightweight Profiling beside it;
//! `counts` sums up what retires, `recording` notes where, and a thread of its own attends to
//! requests (`attend`).
//!
//! A 64-bit program that a stepped one executes is stepped too.
#![forbid(unsafe_code)]

mod attend;
mod counts;
mod maps;
mod narrow;
mod recording;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use lwp_arch::EventFlags;
use lwp_process::spawn::SpawnError;
use lwp_process::{Errno, sys};
use lwp_reference::{End, Failure, Hardware, Interrupt, Launch, run_observed};
use lwp_uarch::{Caches, presets};
use lwp_vcpu::profile::Sink;
use lwp_vcpu::{Alone, Config, Control, Counts, CpuModel, Error, ExitStatus, Outcome, Target};

use attend::{Finish, Shared};
use counts::Counter;
pub use narrow::is_narrow;

/// Returns whether a configuration is for this: it starts a 32-bit program.
pub fn is_for(config: &Config) -> bool {
    matches!(&config.target, Target::Launch { program, .. } if is_narrow(program))
}

/// The first thing in a configuration that is not to be had for a 32-bit program, in words, and
/// what to do instead.
pub fn unsupported(config: &Config) -> Option<(&'static str, &'static str)> {
    const LEAVE_OUT: &str = "leave it out: everything is counted";
    let interrupt = config.lwp.as_ref().map(|lwp| lwp.interrupt);
    let wanted = [
        (
            config.program.deterministic,
            "--deterministic",
            "leave it out (`lwp gate --no-deterministic`): addresses are fixed all the same, \
             unless --aslr is given",
        ),
        (
            !config.sampling.events.is_empty(),
            "sampling",
            "leave -c, -F and -e out: everything is recorded",
        ),
        (config.model.is_some(), "--model", "leave it out"),
        (
            config.counted.markers.is_some(),
            "counting between markers or within functions",
            LEAVE_OUT,
        ),
        (config.counted.code.is_some(), "counting a part of the code", LEAVE_OUT),
        (config.counted.control_line.is_some(), "--control", LEAVE_OUT),
        (
            matches!(config.cpu, CpuModel::V2 | CpuModel::V3 | CpuModel::V4),
            "another processor than this machine's",
            "leave --cpu out, or name a part of Lightweight Profiling",
        ),
        (
            matches!(interrupt, Some(lwp_vcpu::Interrupt::EventFd(_))),
            "a threshold interrupt by eventfd",
            "name a signal with --interrupt",
        ),
    ];
    wanted.into_iter().find(|(wanted, ..)| *wanted).map(|(_, what, instead)| (what, instead))
}

/// Runs a configuration that [is for this](is_for) and has nothing [unsupported].
///
/// The calling thread becomes the tracer, and waits for every child of this process.
///
/// # Errors
///
/// The program cannot be started, or the machine does not let it be traced.
pub fn run(
    config: &Config,
    control: Option<Control>,
    sink: Option<Box<dyn Sink>>,
) -> Result<Outcome, Error> {
    let Target::Launch { program, argv } = &config.target else {
        let program = "a running process".to_owned();
        let cause = "only programs that lwp starts are stepped".to_owned();
        return Err(Error::Refused { program, cause });
    };
    let launch = Launch {
        program: program.clone(),
        argv: argv.clone(),
        environment: config.program.environment.clone(),
        fixed_layout: !config.program.aslr,
    };
    let (started, before) = (Instant::now(), sys::cpu_times());
    let shared = Arc::new(Shared::new(config.counted.start_enabled));
    let mut counter = Counter::new(config, Arc::clone(&shared), sink);
    let end = std::thread::scope(|scope| {
        let attend = || lwp_vcpu::attend(&*shared, control, config.program.timeout);
        let thread = std::thread::Builder::new().name("lwp-attend".into());
        thread.spawn_scoped(scope, attend).map_err(|error| Error::Machine {
            what: format!("starting a thread: {error}"),
            help: "end some processes, or raise the limit on their number".into(),
        })?;
        let _finish = Finish(&shared);
        run_observed(&launch, hardware(config), &mut counter)
            .map_err(|failure| error_of(program, failure))
    })?;
    let (after, elapsed) = (sys::cpu_times(), started.elapsed());
    let processes = counter.into_reports();
    let mut counts = Counts::default();
    processes.iter().for_each(|process| counts += process.counts());
    Ok(Outcome {
        status: match end {
            End::Code(code) => ExitStatus::Code(code),
            End::Signal { signal, core } => ExitStatus::Signal { signal, core },
        },
        processes,
        elapsed,
        user: after[0].0.saturating_sub(before[0].0),
        system: after[0].1.saturating_sub(before[0].1),
        host: (after[1].0 + after[1].1).saturating_sub(before[1].0 + before[1].1),
        alone: Alone { instructions: counts.instructions, time: elapsed },
    })
}

/// The processor that a program finds.
fn hardware(config: &Config) -> Hardware {
    let Some(lwp) = &config.lwp else {
        let generic = &presets::GENERIC;
        return Hardware {
            processor: None,
            events: EventFlags::empty(),
            caches: Caches::of(generic),
            clocks: generic,
            predictor: None,
            seed: 0,
            interrupt: None,
        };
    };
    Hardware {
        processor: Some(lwp.processor),
        events: lwp.events,
        caches: lwp.caches.clone(),
        clocks: lwp.machine,
        predictor: lwp.predictor,
        // The model's generator takes 32 bits.
        seed: (config.program.seed & u64::from(u32::MAX)) as u32,
        interrupt: match lwp.interrupt {
            lwp_vcpu::Interrupt::Thread(signal) => Some(Interrupt::Thread(signal)),
            lwp_vcpu::Interrupt::Process(signal) => Some(Interrupt::Process(signal)),
            lwp_vcpu::Interrupt::None | lwp_vcpu::Interrupt::EventFd(_) => None,
        },
    }
}

/// The kernel's answer to a format that it does not execute, and to a missing file.
const ENOEXEC: Errno = Errno(8);
const ENOENT: Errno = Errno(2);

fn error_of(program: &Path, failure: Failure) -> Error {
    let program = program.display().to_string();
    let cannot = |cause: String| Error::NotExecutable { program: program.clone(), cause };
    let machine = |what: &str, error: Errno| Error::Machine {
        what: format!("{what}: {error}"),
        help: "ptrace must be allowed: in a container, add the SYS_PTRACE capability or a seccomp \
               profile that permits ptrace; see `lwp doctor`"
            .into(),
    };
    match failure {
        Failure::Start(SpawnError::Exec(ENOENT)) => Error::NotFound { program },
        Failure::Start(SpawnError::Exec(ENOEXEC)) => cannot(
            "this kernel runs no 32-bit programs: it was built without CONFIG_IA32_EMULATION, or \
             started with ia32_emulation=0"
                .into(),
        ),
        Failure::Start(SpawnError::Exec(error)) => cannot(error.to_string()),
        Failure::Start(SpawnError::Killed { signal, .. }) => {
            cannot(format!("killed by signal {signal}"))
        }
        Failure::Start(SpawnError::Nul) => cannot("an argument contains a NUL byte".into()),
        Failure::Start(SpawnError::Trace(error)) => machine("tracing the program", error),
        Failure::Trace(error) => machine("stepping the program", error),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use lwp_vcpu::{Markers, Plan};

    use super::*;

    #[test]
    fn what_is_not_to_be_had_is_named() {
        let config = Config::launch(PathBuf::from("/bin/true"), Vec::new(), Plan::Exact);
        assert_eq!(unsupported(&config), None);
        let mut fixed = config.clone();
        fixed.program.deterministic = true;
        assert!(unsupported(&fixed).is_some_and(|(what, _)| what == "--deterministic"));
        let mut marked = config.clone();
        marked.counted.markers = Some(Markers::Between);
        assert!(unsupported(&marked).is_some_and(|(what, _)| what.contains("markers")));
        let mut other = config;
        other.cpu = CpuModel::V2;
        assert!(unsupported(&other).is_some());
    }

    #[test]
    fn a_kernel_without_compatibility_mode_is_named() {
        let error = error_of(Path::new("game"), Failure::Start(SpawnError::Exec(ENOEXEC)));
        assert!(error.to_string().starts_with("game: this kernel runs no 32-bit programs"));
        let error = error_of(Path::new("game"), Failure::Start(SpawnError::Exec(ENOENT)));
        assert_eq!(error, Error::NotFound { program: "game".into() });
    }
}
