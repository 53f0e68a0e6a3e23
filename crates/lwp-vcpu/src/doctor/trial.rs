//! A trial: stops a small program at its start, and then runs it on the virtual CPU.
#![expect(
    clippy::disallowed_methods,
    reason = "the paths are constants, and the program is one of them"
)]

use std::path::{Path, PathBuf};
use std::time::Duration;

use lwp_dbt::Layout;
use lwp_mailbox::memory_map::{CONTEXTS_AT, LOW, ROOM, slot_offset};
use lwp_process::maps::{self, Mapping};
use lwp_process::spawn::{self, SpawnError};
use lwp_process::{Tracee, sys};
use lwp_run::config::{Config, Plan};
use lwp_run::outcome::{Error, ExitStatus, Outcome};

use super::Check;

const SIGKILL: i32 = 9;
const SIGSYS: i32 = 31;
const LIMIT: Duration = Duration::from_secs(20);
const ALLOW_PTRACE: &str = "in a container: --cap-add=SYS_PTRACE, or a seccomp profile that permits \
                            ptrace and process_vm_readv";

/// Does what every run does.
pub fn checks() -> Vec<Check> {
    let places = ["/bin/true", "/usr/bin/true"];
    let Some(program) = places.map(PathBuf::from).into_iter().find(|path| path.is_file()) else {
        return vec![Check::warn(
            "trial",
            "there is no /bin/true to try",
            "run any program: `lwp stat PROGRAM`",
        )];
    };
    match spawn::spawn(program.as_os_str(), &["true"], None, true, ROOM) {
        Ok(tracee) => {
            let mappings = maps::read(tracee.0);
            end(tracee);
            let mut config = Config::launch(program.clone(), vec!["true".into()], Plan::Exact);
            config.program.timeout = Some(LIMIT);
            let outcome = crate::run(&config, None);
            let steps = outcome.as_ref().ok().map(|outcome| single_steps(&program, outcome));
            let mut checks = vec![
                Check::ok("ptrace", "a program can be traced from its start"),
                window(&mappings),
                run(&program, outcome),
            ];
            checks.extend(steps);
            checks
        }
        Err(error) => vec![refused(error)],
    }
}

fn end(tracee: Tracee) {
    let _ = sys::kill(tracee.0, SIGKILL);
    loop {
        match tracee.wait() {
            Ok(lwp_process::Stop::Killed { .. } | lwp_process::Stop::Exited(_)) | Err(_) => return,
            Ok(_) => drop(tracee.cont(0)),
        }
    }
}

fn refused(error: SpawnError) -> Check {
    match error {
        SpawnError::Trace(error) => Check::fail("ptrace", error.to_string(), ALLOW_PTRACE),
        SpawnError::Exec(error) => Check::fail(
            "ptrace",
            format!("a traced program cannot be executed: {error}"),
            "see whether programs can be executed here at all",
        ),
        SpawnError::Killed { signal, .. } => Check::fail(
            "ptrace",
            format!("a traced program is killed by signal {signal} before it starts"),
            ALLOW_PTRACE,
        ),
        SpawnError::Nul => Check::fail("ptrace", "a variable contains a NUL byte", ""),
    }
}

/// Returns whether what lies at fixed addresses in every program finds its place.
fn window(mappings: &[Mapping]) -> Check {
    let name = "fixed addresses";
    let wanted = [(LOW, LOW + Layout::BYTES), (CONTEXTS_AT, CONTEXTS_AT + slot_offset(1))];
    let taken = |(start, end): &(u64, u64)| {
        mappings.iter().find(|mapping| mapping.start < *end && *start < mapping.end)
    };
    match wanted.iter().find_map(|range| Some((range, taken(range)?))) {
        None => Check::ok(name, "the translator's tables find their place in a new program"),
        Some(((start, end), other)) => Check::fail(
            name,
            format!("{start:#x} to {end:#x} is taken by {} at {:#x}", other.name, other.start),
            "start lwp without what maps it there (LD_PRELOAD, a loader, a sandbox)",
        ),
    }
}

fn run(program: &Path, outcome: Result<Outcome, Error>) -> Check {
    let name = "trial";
    let title = program.display();
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(Error::Machine { what, help }) => return Check::fail(name, what, &help),
        Err(error) => return Check::fail(name, error.to_string(), ""),
    };
    let uncounted = outcome.processes.iter().find_map(|process| process.uncounted.clone());
    let threads = outcome.processes.iter().flat_map(|process| &process.threads);
    let instructions: u64 = threads.map(|thread| thread.counts.instructions).sum();
    match (outcome.status, uncounted) {
        (ExitStatus::Code(0), None) if instructions > 0 => Check::ok(
            name,
            format!(
                "{title}: {instructions} instructions in {:.1} ms",
                outcome.elapsed.as_secs_f64() * 1e3
            ),
        ),
        (_, Some(reason)) => Check::fail(name, format!("{title}: {reason}"), ALLOW_PTRACE),
        (ExitStatus::Signal { signal: SIGSYS, .. }, _) => Check::fail(
            name,
            format!("{title}: a system call that the virtual CPU needs is forbidden"),
            "allow mmap, futex and close in the seccomp profile",
        ),
        (status, None) => Check::fail(
            name,
            format!("{title} ended with {status:?} after {instructions} instructions"),
            "please report this with the output of `lwp doctor`",
        ),
    }
}

/// The share of its instructions that a program executed one at a time: some at its start, and
/// each takes thousands of times longer than in translated code.
fn single_steps(program: &Path, outcome: &Outcome) -> Check {
    /// Of so many instructions of a program, one may be stepped over.
    const MANY: u64 = 1000;
    let name = "single steps";
    let title = program.display();
    let (steps, all) = (outcome.alone.instructions, outcome.counts().instructions);
    let micros = outcome.alone.time.as_micros() as u64 / steps.max(1);
    let detail = match steps {
        0 => format!("{title}: no instruction was executed one at a time"),
        _ => format!(
            "{title}: {steps} of {all} instructions were executed one at a time, {micros} us each"
        ),
    };
    if steps <= all / MANY {
        return Check::ok(name, detail);
    }
    Check::warn(
        name,
        detail,
        "if a program keeps doing this, it is slow because of a bug in lwp: `lwp run -v` shows how \
         much time it takes; please report it with the output of `lwp doctor`",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Status;
    use lwp_run::outcome::{Alone, Counts, ProcessReport, ThreadReport};
    use std::time::Instant;

    fn mapping(start: u64, end: u64) -> Mapping {
        let mut mapping = maps::read(std::process::id() as i32).swap_remove(0);
        (mapping.start, mapping.end, mapping.name) = (start, end, "library".into());
        mapping
    }

    #[test]
    fn taken_addresses_are_named() {
        assert_eq!(window(&[mapping(0x40_0000, 0x50_0000)]).status, Status::Ok);
        let taken = window(&[mapping(LOW + 0x1000, LOW + 0x2000)]);
        assert_eq!(taken.status, Status::Fail);
        assert!(taken.detail.contains("library"), "{taken:?}");
        let around = window(&[mapping(CONTEXTS_AT - 0x1000, CONTEXTS_AT + slot_offset(1) + 1)]);
        assert_eq!(around.status, Status::Fail);
    }

    #[test]
    fn failures_have_their_own_help() {
        let error = Error::Machine { what: "no room".into(), help: "make some".into() };
        let check = run(Path::new("true"), Err(error));
        assert_eq!((check.status, check.help.as_str()), (Status::Fail, "make some"));
        let refusal = refused(SpawnError::Trace(sys::Errno(1)));
        assert_eq!(refusal.status, Status::Fail);
        assert!(refusal.help.contains("SYS_PTRACE"));
    }

    /// The outcome of a program of one thread that has executed so many instructions.
    fn outcome(instructions: u64) -> Outcome {
        let thread = ThreadReport {
            tid: 1,
            comm: "true".into(),
            counts: Counts { instructions, ..Counts::default() },
            started: Instant::now(),
            ended: None,
            sampled: Vec::new(),
            cpu: None,
        };
        let process = ProcessReport {
            pid: 1,
            parent: 0,
            maker: 0,
            started: Instant::now(),
            command: "true".into(),
            comm: "true".into(),
            threads: vec![thread],
            uncounted: None,
        };
        Outcome {
            status: ExitStatus::Code(0),
            processes: vec![process],
            elapsed: Duration::ZERO,
            user: Duration::ZERO,
            system: Duration::ZERO,
            host: Duration::ZERO,
            alone: Alone::default(),
        }
    }

    /// Promise: I15
    #[test]
    fn many_single_steps_are_a_defect() {
        let check = |instructions| {
            let alone = Alone { instructions, time: Duration::from_micros(instructions * 40) };
            single_steps(Path::new("true"), &Outcome { alone, ..outcome(100_000) })
        };
        assert_eq!(check(0).status, Status::Ok);
        assert_eq!(check(100).status, Status::Ok);
        assert!(check(100).detail.contains("100 of 100000"), "{:?}", check(100));
        let many = check(101);
        assert_eq!(many.status, Status::Warn);
        assert!(many.detail.contains("40 us each") && many.help.contains("report"), "{many:?}");
    }

    #[test]
    fn every_way_in_which_a_program_is_not_started_is_told() {
        let refusals = [
            (SpawnError::Exec(sys::Errno(13)), "cannot be executed"),
            (SpawnError::Killed { signal: SIGSYS, core: false }, "signal 31"),
            (SpawnError::Nul, "NUL"),
        ];
        for (error, words) in refusals {
            let check = refused(error);
            assert_eq!((check.status, &*check.name), (Status::Fail, "ptrace"));
            assert!(check.detail.contains(words), "{check:?}");
        }
    }

    #[test]
    fn a_trial_works_if_its_program_ends_well_and_has_been_counted() {
        let outcome = |status, instructions, uncounted: Option<&str>| {
            let elapsed = Duration::from_micros(2500);
            let mut outcome = Outcome { status, elapsed, ..outcome(instructions) };
            outcome.processes[0].uncounted = uncounted.map(Into::into);
            outcome
        };
        let killed = |signal| ExitStatus::Signal { signal, core: false };
        for (outcome, status, words) in [
            (outcome(ExitStatus::Code(0), 7, None), Status::Ok, "7 instructions in 2.5 ms"),
            (outcome(ExitStatus::Code(0), 0, None), Status::Fail, "after 0 instructions"),
            (outcome(ExitStatus::Code(3), 7, None), Status::Fail, "Code(3)"),
            (outcome(ExitStatus::Code(0), 7, Some("no room")), Status::Fail, "no room"),
            (outcome(killed(SIGSYS), 7, None), Status::Fail, "forbidden"),
            (outcome(killed(SIGKILL), 7, None), Status::Fail, "after 7 instructions"),
        ] {
            let check = run(Path::new("true"), Ok(outcome));
            assert_eq!(check.status, status, "{check:?}");
            assert!(check.detail.contains(words) && check.detail.starts_with("true"), "{check:?}");
        }
        let missing = Error::NotFound { program: "true".into() };
        assert_eq!(run(Path::new("true"), Err(missing)).detail, "true: not found");
    }
}
