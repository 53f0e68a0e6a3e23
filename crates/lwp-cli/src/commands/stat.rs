//! `lwp stat`: the program on the virtual CPU, counted.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::sync::Arc;
use std::thread::JoinHandle;

use lwp_vcpu::{Config, ExitStatus, Outcome, Target};

use crate::args::StatArgs;
use crate::counting::Counting;
use crate::ending::Ending;
use crate::failure::Failure;
use crate::program;
use crate::requests::Requests;
use crate::signals::{self, Interrupted};
use crate::stat::report::{Report, Scope};
use crate::stat::{control, csv, events, json, text};

/// Runs or attaches, and writes the report.
pub fn execute(args: &StatArgs) -> Result<Ending, Failure> {
    let requested = events::parse(&args.events)?;
    let config = counting(args).configuration()?;
    let mut output = output(args)?;
    let requests = Arc::new(Requests::default());
    if let Some(place) = &args.control {
        control::serve(place, Arc::clone(&requests))?;
    }
    let interrupted = signals::answer(Arc::clone(&requests), args.pid.is_some())?;
    let session = Session { args, config, requests, interrupted };
    let mut write = |outcomes: &[Outcome]| {
        let report = Report::new(title(args), &requested, scope(args), outcomes);
        let written = output.write_all(rendered(args, &report).as_bytes());
        written.map_err(|error| Failure::io(output_name(args), &error))
    };
    match args.repeat {
        0 => session.repeat_for_ever(&mut write),
        runs => session.repeat(runs, &mut write),
    }
}

/// What stays the same over all repetitions.
struct Session<'a> {
    args: &'a StatArgs,
    config: Config,
    requests: Arc<Requests>,
    interrupted: Interrupted,
}

/// Writes the report on some runs.
type Writer<'a> = &'a mut dyn FnMut(&[Outcome]) -> Result<(), Failure>;

impl Session<'_> {
    /// Runs `runs` times, fewer if interrupted, and reports the mean.
    fn repeat(&self, runs: u32, write: Writer<'_>) -> Result<Ending, Failure> {
        let mut outcomes = Vec::new();
        let mut ending = Ending::SUCCESS;
        for _ in 0..runs {
            let (outcome, how) = self.once()?;
            outcomes.push(outcome);
            ending = how;
            if self.over(ending) {
                break;
            }
        }
        write(&outcomes)?;
        Ok(ending)
    }

    /// Runs and reports until interrupted.
    fn repeat_for_ever(&self, write: Writer<'_>) -> Result<Ending, Failure> {
        loop {
            let (outcome, ending) = self.once()?;
            write(&[outcome])?;
            if self.over(ending) {
                return Ok(ending);
            }
        }
    }

    /// Whether a run that ended like this is the last.
    fn over(&self, ending: Ending) -> bool {
        self.interrupted.get() || matches!(ending, Ending::Signal(_))
    }

    /// One run, and how lwp shall end if it is the last.
    fn once(&self) -> Result<(Outcome, Ending), Failure> {
        let control = self.requests.connect();
        counting(self.args).schedule(&self.requests);
        let companion = self.companion()?;
        let outcome = lwp_vcpu::run(&self.config, Some(control));
        self.requests.disconnect();
        let outcome = outcome?;
        let ending = match companion {
            Some(companion) => companion.join().unwrap_or(Ending::SUCCESS),
            // Someone else's child: how it ended is for its parent to know.
            None if self.args.pid.is_some() => Ending::SUCCESS,
            None => outcome.status.into(),
        };
        Ok((outcome, ending))
    }

    /// Starts the command that says how long to count an attached process, as in
    /// `lwp stat -p PID sleep 5`. It is not counted; its end is the end of the run.
    fn companion(&self) -> Result<Option<JoinHandle<Ending>>, Failure> {
        if self.args.pid.is_none() || self.args.command.is_empty() {
            return Ok(None);
        }
        let child = start(&self.args.command)?;
        let requests = Arc::clone(&self.requests);
        Ok(Some(std::thread::spawn(move || {
            let ending = wait(child);
            requests.stop();
            ending
        })))
    }
}

/// Starts `command` natively.
fn start(command: &[OsString]) -> Result<Child, Failure> {
    let Target::Launch { program, argv } = program::launch(command)? else {
        unreachable!("launch() launches");
    };
    let child = std::process::Command::new(&program).args(&argv[1..]).spawn();
    child.map_err(|error| Failure::io(program.display(), &error))
}

/// How `child` ended.
fn wait(mut child: Child) -> Ending {
    let Ok(status) = child.wait() else {
        return Ending::SUCCESS;
    };
    match (status.code(), status.signal()) {
        (Some(code), _) => ExitStatus::Code(code).into(),
        (None, Some(signal)) => Ending::Signal(signal),
        (None, None) => Ending::SUCCESS,
    }
}

fn counting(args: &StatArgs) -> Counting<'_> {
    Counting {
        machine: &args.machine,
        pid: args.pid,
        command: &args.command,
        delay: args.delay,
        no_inherit: args.no_inherit,
        plan: lwp_vcpu::Plan::Exact,
    }
}

/// Opens the place for the report, before anything runs.
fn output(args: &StatArgs) -> Result<Box<dyn Write>, Failure> {
    let Some(path) = &args.output else {
        return Ok(Box::new(io::stderr()));
    };
    let opened = if args.append {
        OpenOptions::new().append(true).create(true).open(path)
    } else {
        File::create(path)
    };
    let file = opened.map_err(|error| Failure::io(path.display(), &error))?;
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

/// What ran, for the heading.
fn title(args: &StatArgs) -> String {
    if let Some(pid) = args.pid {
        return format!("process id '{pid}'");
    }
    let words: Vec<String> =
        args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    format!("'{}'", words.join(" "))
}

fn rendered(args: &StatArgs, report: &Report) -> String {
    match &args.field_separator {
        Some(separator) => csv::render(report, separator),
        None if args.json => json::render(report),
        None => text::render(report, !args.no_big_num),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use lwp_vcpu::Plan;

    fn args(command: &[&str]) -> StatArgs {
        let command = command.iter().map(OsString::from).collect();
        StatArgs { command, repeat: 1, ..StatArgs::default() }
    }

    #[test]
    fn configuration_follows_the_options() {
        let config = counting(&args(&["/bin/sh"])).configuration().unwrap();
        assert!(config.follow_children && config.start_enabled);
        assert_eq!(config.plan, Plan::Exact);

        let mut args = args(&["/bin/sh"]);
        args.no_inherit = true;
        args.delay = Some(-1);
        args.machine.timeout = Some(50);
        let config = counting(&args).configuration().unwrap();
        assert!(!config.follow_children && !config.start_enabled);
        assert_eq!(config.timeout, Some(Duration::from_millis(50)));

        args.pid = Some(7);
        assert_eq!(counting(&args).configuration().unwrap().timeout, None);
        args.delay = Some(-2);
        assert!(counting(&args).configuration().is_err());
    }

    #[test]
    fn headings() {
        let mut args = args(&["gzip", "-9", "a file"]);
        assert_eq!(title(&args), "'gzip -9 a file'");
        args.pid = Some(42);
        assert_eq!(title(&args), "process id '42'");
    }
}
