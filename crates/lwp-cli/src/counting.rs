//! Options that `stat`, `record` and `top` share: the program to count, and the time from which it
//! is counted.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use clap::Args;
use lwp_terminal::escape::printable;
use lwp_vcpu::config::Request;
use lwp_vcpu::{Config, ExitStatus, Markers, Outcome, Plan, Target, ThreadReport};

use crate::args::{MachineArgs, usage_error};
use crate::code_filter;
use crate::ending::Ending;
use crate::failure::{Failure, NOT_FOUND};
use crate::headings;
use crate::program;
use crate::requests::Requests;
use crate::threads;

/// A program to be counted, as its command line says.
#[derive(Args, Clone, Debug, Default)]
pub struct CountingArgs {
    /// Attach to the running process PID until it ends, PROGRAM ends, or lwp is interrupted. Don't
    /// kill lwp with SIGKILL: the process would die with it
    #[arg(short, long, value_name = "PID", help_heading = headings::SCOPE)]
    pub pid: Option<i32>,

    /// Attach to the process of the running thread TID and count only that thread, until it ends.
    /// lwp does not follow its children; the process's other threads run on the virtual CPU too
    #[arg(short, long, value_name = "TID", conflicts_with = "pid", help_heading = headings::SCOPE)]
    pub tid: Option<i32>,

    /// Do not follow child processes; they run natively
    #[arg(short = 'i', long, help_heading = headings::SCOPE)]
    pub no_inherit: bool,

    /// A channel by which another program switches counting on and off
    #[arg(
        help_heading = headings::SCOPE,
        long,
        value_name = "CHANNEL",
        help = "Obey enable, disable, ping and stop, written to fd:CTL[,ACK] or fifo:CTL[,ACK]"
    )]
    pub control: Option<String>,

    /// Start counting after MS milliseconds, or with -1 when --control says so
    #[arg(short = 'D', long, value_name = "MS", allow_negative_numbers = true,
        help_heading = headings::SCOPE)]
    pub delay: Option<i64>,

    /// Count only between markers that the program executes: `lwp::count_start`, `<lwp_count.h>`,
    /// or Valgrind's requests to callgrind
    #[arg(long, help_heading = headings::SCOPE)]
    pub marked: bool,

    /// Count only in FUNCTION and in the functions that it calls: NAME or NAME@FILE, with * for any
    /// letters and ? for one
    #[arg(long, value_name = "FUNCTION", help_heading = headings::SCOPE)]
    pub within: Vec<String>,

    /// Exit with code 0, however the program ends
    #[arg(long, help_heading = headings::RUN)]
    pub ignore_status: bool,

    /// The processor and its surroundings.
    #[command(flatten)]
    pub machine: MachineArgs,

    /// The program and its arguments
    #[arg(value_name = "PROGRAM", trailing_var_arg = true, required_unless_present_any = ["pid", "tid"])]
    pub command: Vec<OsString>,
}

impl CountingArgs {
    /// Returns whether the program finds Lightweight Profiling, if nothing takes samples.
    pub fn offers_lwp(&self) -> bool {
        self.machine.lwp.config(self.machine.cpu, self.attaches()).is_some()
    }

    /// The configuration of the run: translated for counting, or for sampling, which counts by
    /// itself.
    pub fn configuration(&self, plan: Plan) -> Result<Config, Failure> {
        if self.delay.is_some_and(|delay| delay < -1) {
            return Err(usage_error(
                "the delay is negative",
                "give milliseconds, or -1 to wait for --control",
            ));
        }
        if self.attaches() && self.machine.deterministic {
            return Err(usage_error(
                "--deterministic is for programs that lwp starts: the surroundings of a running \
                 process are settled",
                "leave --deterministic out, or start the program: --deterministic -- PROGRAM",
            ));
        }
        let target = match (self.pid, self.tid) {
            (Some(pid), _) => Target::Attach { pid },
            (None, Some(tid)) => Target::Attach { pid: process_of(tid)? },
            (None, None) => program::launch(&self.command)?,
        };
        let mut config = self.machine.config(target, plan);
        config.counted.only_thread = self.tid;
        config.program.follow_children = !self.no_inherit && self.tid.is_none();
        config.counted.start_enabled = self.delay.is_none();
        for function in &self.within {
            config.counted.within.extend(code_filter::functions(function, &config.target, &[])?);
        }
        if self.marked || !self.within.is_empty() {
            config.counted.markers = Some(Markers::Between);
        }
        if self.attaches() {
            config.program.timeout = None;
        }
        Ok(config)
    }

    /// Says so where nothing was counted, because no marker was met.
    pub fn say_if_unmarked(&self, outcome: &Outcome) {
        let counted = outcome.processes.iter().any(|process| {
            let sampled = |thread: &ThreadReport| thread.sampled.iter().any(|count| *count > 0);
            process.counts().instructions > 0 || process.threads.iter().any(sampled)
        });
        match (self.marked, &self.within[..]) {
            _ if counted => {}
            (true, _) => {
                lwp_terminal::say!("lwp: nothing was counted: the program executed no marker");
            }
            (false, [_, ..]) => {
                lwp_terminal::say!(
                    "lwp: nothing was counted: no thread has entered {}",
                    printable(&self.within.join(", "))
                );
            }
            (false, []) => {}
        }
    }

    /// Returns whether what is counted runs already.
    pub fn attaches(&self) -> bool {
        self.pid.or(self.tid).is_some()
    }

    /// Starts the clocks of `--delay` and, when attached, of `--timeout`: a launched program's
    /// timeout is the virtual CPU's business, because it ends the program.
    pub fn schedule(&self, requests: &Requests) -> Result<(), Failure> {
        let delay = self.delay.and_then(|ms| u64::try_from(ms).ok());
        let stop = self.machine.timeout().filter(|_| self.attaches());
        let times = [(delay.map(Duration::from_millis), Request::Enable), (stop, Request::Stop)];
        for (time, request) in times {
            if let Some(time) = time {
                send_after(time, request, requests)?;
            }
        }
        Ok(())
    }

    /// Counts no further from `time` on.
    pub fn stop_after(&self, time: Duration, requests: &Requests) -> Result<(), Failure> {
        let request = if self.attaches() { Request::Stop } else { Request::Disable };
        send_after(time, request, requests)
    }

    /// Starts the command that says how long to count an attached process, as in
    /// `lwp stat -p PID sleep 5`. It is not counted; its end is the end of the run.
    pub fn companion(&self, requests: &Arc<Requests>) -> Result<Option<Companion>, Failure> {
        if self.attaches() { self.beside(requests) } else { Ok(None) }
    }

    /// Starts the command beside what runs already, if there is one.
    pub fn beside(&self, requests: &Arc<Requests>) -> Result<Option<Companion>, Failure> {
        if self.command.is_empty() {
            return Ok(None);
        }
        let requests = Arc::clone(requests);
        let (started, starting) = std::sync::mpsc::channel();
        // The thread first: a command that nobody waits for would be left behind.
        let thread = threads::start("lwp-companion", move || {
            let ending = starting.recv().map_or(Ending::SUCCESS, wait);
            requests.stop();
            ending
        })?;
        let _ = started.send(start(&self.command)?);
        Ok(Some(Companion(thread)))
    }

    /// Returns the way in which lwp ends after a run: as the program did, or as the command beside
    /// it.
    pub fn ending(&self, companion: Option<Companion>, outcome: &Outcome) -> Ending {
        let ending = match companion {
            Some(Companion(thread)) => thread.join().unwrap_or(Ending::SUCCESS),
            // Someone else's child: how it ended is for its parent to know.
            None if self.attaches() => Ending::SUCCESS,
            None => outcome.status.into(),
        };
        if self.ignore_status { Ending::SUCCESS } else { ending }
    }

    /// The program's arguments; empty where none is started.
    pub fn arguments(&self) -> String {
        let words = self.command.iter().skip(1).filter(|_| !self.attaches());
        let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
        words.join(" ")
    }

    /// Names the program in words.
    pub fn title(&self) -> String {
        let words: Vec<String> =
            self.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        match (self.pid, self.tid) {
            (Some(pid), _) => format!("process {pid}"),
            (None, Some(tid)) => format!("thread {tid}"),
            (None, None) => words.join(" "),
        }
    }
}

/// Ends the current run after `time`.
pub fn stop_after(time: Duration, requests: &Requests) -> Result<(), Failure> {
    send_after(time, Request::Stop, requests)
}

/// Sends `request` to the current run, after `time`.
fn send_after(time: Duration, request: Request, requests: &Requests) -> Result<(), Failure> {
    let Some(sender) = requests.current() else { return Ok(()) };
    threads::start("lwp-clock", move || {
        std::thread::sleep(time);
        let _ = sender.send(request);
    })?;
    Ok(())
}

/// The process that thread `tid` belongs to.
pub fn process_of(tid: i32) -> Result<i32, Failure> {
    let status = std::fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
    let leader = status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok());
    leader.ok_or_else(|| {
        Failure::new(NOT_FOUND, format!("thread {tid}: not found"))
            .with_help("`ps -eL` lists threads: the column LWP has their numbers")
    })
}

/// A command that runs beside an attached process.
#[derive(Debug)]
pub struct Companion(JoinHandle<Ending>);

/// Starts `command` natively.
fn start(command: &[OsString]) -> Result<Child, Failure> {
    let Target::Launch { program, argv } = program::launch(command)? else {
        unreachable!("launch() launches");
    };
    let child = std::process::Command::new(&program).args(&argv[1..]).spawn();
    child.map_err(|error| Failure::io(program.display(), &error))
}

/// Waits for `child`, and returns the way in which it ended.
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
