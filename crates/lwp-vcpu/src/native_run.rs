//! Runs a program without the virtual CPU, if the machine doesn't allow it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lwp_process::{Stop, Tracee, spawn, sys};
use lwp_run::config::{Config, Control, Request, Target};
use lwp_run::outcome::{Alone, Error, ExitStatus, Outcome, ProcessReport};

use crate::attend::{Attended, attend};
use crate::{no_thread, spawn_error};

const SIGTERM: i32 = 15;

/// Starts the program natively and waits for its end; it is reported as uncounted because of
/// `reason`. What it starts is its own affair.
pub fn run(config: &Config, control: Option<Control>, reason: &str) -> Result<Outcome, Error> {
    let Target::Launch { program, argv } = &config.target else {
        return Err(Error::Machine { what: reason.to_owned(), help: String::new() });
    };
    let started = Instant::now();
    let before = sys::cpu_times();
    let environment = config.program.environment.as_deref();
    let over = &AtomicBool::new(false);
    let (born, birth) = std::sync::mpsc::channel();
    let (pid, status) = std::thread::scope(|scope| {
        // The thread first: a program that nobody attends to could not be ended.
        let timeout = config.program.timeout;
        let attend =
            move || birth.recv().map(|pid| attend(&Native { pid, over }, control, timeout));
        let thread = std::thread::Builder::new().name("lwp-attend".into());
        thread.spawn_scoped(scope, attend).map_err(|error| no_thread(&error))?;
        let started = spawn::untraced(program.as_os_str(), argv, environment, !config.program.aslr);
        let born = born;
        let pid = started.map_err(|error| spawn_error(program, error))?;
        sys::let_go_of_streams(config.program.lets_go);
        let _ = born.send(pid);
        let status = Tracee(pid).wait();
        over.store(true, Ordering::Relaxed);
        Ok((pid, status))
    })?;
    let status = match status {
        Ok(Stop::Exited(code)) => ExitStatus::Code(code),
        Ok(Stop::Killed { signal, core }) => ExitStatus::Signal { signal, core },
        other => {
            let what = format!("waiting for the program: {other:?}");
            return Err(Error::Machine { what, help: String::new() });
        }
    };
    let name = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned();
    let words: Vec<_> = argv.iter().map(|word| word.to_string_lossy()).collect();
    let after = sys::cpu_times();
    Ok(Outcome {
        alone: Alone::default(),
        status,
        processes: vec![ProcessReport {
            pid,
            parent: 0,
            maker: 0,
            started,
            command: words.join(" "),
            comm: name,
            threads: Vec::new(),
            uncounted: Some(format!("ran natively: {reason}")),
        }],
        elapsed: started.elapsed(),
        user: after[0].0.saturating_sub(before[0].0),
        system: after[0].1.saturating_sub(before[0].1),
        host: Duration::ZERO,
    })
}

/// A program that runs natively.
struct Native<'a> {
    pid: i32,
    over: &'a AtomicBool,
}

impl Attended for Native<'_> {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn answer(&self, request: Request) {
        match request {
            Request::Stop => self.send(SIGTERM),
            Request::Signal(info) => drop(sys::send_as(self.pid, &info)),
            _ => {}
        }
    }

    fn send(&self, signal: i32) {
        let _ = sys::kill(self.pid, signal);
    }
}
