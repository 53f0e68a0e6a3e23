//! Builds the tests of a workspace once, linted on the way, and runs them.
//!
//! Every test is a process of its own, several at a time: one that hangs is ended and named, one
//! that crashes takes no other with it, and most of ours wait for programs that they have started.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

mod binaries;
mod process;
mod racy;
mod slow;
mod times;
mod turns;

use binaries::Test;
use process::Ended;
pub use racy::RACY;
use times::Times;
pub use turns::Turn;

/// How long the runner stays silent while tests run.
const QUIET: Duration = Duration::from_secs(30);

/// A variable that tests read, and its value.
pub type Variable = (&'static str, OsString);

/// A quick test takes no longer.
const QUICK: Duration = Duration::from_secs(5);

/// The tests of a workspace, and how to run them.
#[derive(Debug)]
pub struct Suite {
    /// Makes a cargo command in the workspace's directory, from its arguments.
    pub cargo: fn(&[&str]) -> Command,
    /// The directory that cargo builds in.
    pub target: PathBuf,
    /// Variables that tests read.
    pub variables: Vec<Variable>,
    /// Which tests to run.
    pub selection: Selection,
}

/// Which tests to run, and how often.
#[derive(clap::Args, Clone, Debug)]
pub struct Selection {
    /// Run the tests of these packages only
    #[arg(long = "package", short, value_name = "PACKAGE")]
    pub packages: Vec<String>,
    /// Leave out the tests that took longer than a few seconds the last time
    #[arg(long)]
    pub quick: bool,
    /// Run those too that run every night only
    #[arg(long)]
    pub nightly: bool,
    /// Run each test so often
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Run so many tests at a time; by default two for each processor
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub jobs: Option<u16>,
    /// The slow tests that do not have this turn wait for another
    #[arg(skip)]
    pub turn: Option<Turn>,
    /// Run the tests with one of these in their full names, as lwp-cli::it::stat::counts_add_up
    #[arg(value_name = "TEXT")]
    pub names: Vec<String>,
}

impl Default for Selection {
    fn default() -> Self {
        Self {
            packages: Vec::new(),
            quick: false,
            nightly: false,
            rounds: 1,
            jobs: None,
            turn: None,
            names: Vec::new(),
        }
    }
}

impl Selection {
    fn wants(&self, test: &Test) -> bool {
        let package = self.packages.is_empty() || self.packages.contains(&test.binary.package);
        let name = test.full_name();
        if self.names.is_empty() {
            return package && (self.nightly || !slow::is_nightly(&name));
        }
        package && self.names.iter().any(|it| name.contains(&**it))
    }

    /// Returns whether a test is not run in this turn.
    fn waits(&self, test: &Test, times: &Times) -> bool {
        let name = test.full_name();
        self.turn.is_some_and(|turn| !turn.has(&name) && turns::is_slow(&name, times))
    }

    fn jobs(&self) -> usize {
        let processors = || thread::available_parallelism().map_or(2, |n| n.get() * 2);
        self.jobs.map_or_else(processors, usize::from)
    }
}

impl Suite {
    /// Builds and runs the tests.
    ///
    /// # Errors
    ///
    /// If one fails, with its words and the command that repeats it alone.
    pub fn run(&self) -> Result<()> {
        let binaries = binaries::built((self.cargo)(&[]))?;
        let mut tests = Vec::new();
        for binary in &binaries {
            tests.extend(binary.tests()?.into_iter().filter(|it| self.selection.wants(it)));
        }
        let mut times = Times::read(&self.target);
        if self.selection.quick {
            let all = tests.len();
            tests.retain(|test| times.of(&test.full_name()) <= QUICK);
            eprintln!("{} of {all} tests are quick", tests.len());
        }
        let all = tests.len();
        tests.retain(|test| !self.selection.waits(test, &times));
        if tests.len() < all {
            eprintln!("{} slow tests wait for another turn; --all runs them", all - tests.len());
        }
        tests.sort_by_key(|test| std::cmp::Reverse(times.of(&test.full_name())));
        let rounds = (0..self.selection.rounds).flat_map(|_| &tests).collect();
        let ended = self.run_all(rounds, &times)?;
        times.write(&self.target, &ended);
        report(&ended)
    }

    fn run_all<'a>(
        &self,
        tests: VecDeque<&'a Test<'a>>,
        times: &Times,
    ) -> Result<Vec<(&'a Test<'a>, Ended)>> {
        let all = tests.len();
        let words = self.target.join("tmp/words");
        std::fs::create_dir_all(&words)?;
        let (queue, ended) = (Mutex::new(tests), Mutex::new(Vec::with_capacity(all)));
        let next = || locked(&queue).pop_front();
        let work = |number: usize| {
            while let Some(test) = next() {
                let file = words.join(format!("{}-{number}", std::process::id()));
                let result = process::run(self.command(test, times), &file);
                if !result.is_success() {
                    eprintln!("{}: {}", test.full_name(), result.end);
                }
                locked(&ended).push((test, result));
            }
        };
        thread::scope(|scope| {
            let workers: Vec<_> = (0..self.selection.jobs())
                .map(|number| scope.spawn(move || work(number)))
                .collect();
            let mut said = Instant::now();
            while !workers.iter().all(|worker| worker.is_finished()) {
                thread::sleep(Duration::from_millis(20));
                if said.elapsed() >= QUIET {
                    eprintln!("{} of {all} tests have ended", locked(&ended).len());
                    said = Instant::now();
                }
            }
        });
        Ok(ended.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    fn command(&self, test: &Test<'_>, times: &Times) -> Command {
        let mut command = test.command(&self.target);
        for (name, value) in &self.variables {
            command.env(name, value);
        }
        if let Some(turn) = self.selection.turn {
            let slow = turns::is_slow(&test.full_name(), times);
            command.env("LWP_TEST_TURN", turn.of_modes(slow).to_string());
        }
        command
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Prints the slowest tests, the words of those that failed, and how many did.
fn report(ended: &[(&Test<'_>, Ended)]) -> Result<()> {
    slow::print(ended);
    let failed: Vec<_> = ended.iter().filter(|(_, result)| !result.is_success()).collect();
    let mut words = String::new();
    for (test, result) in &failed {
        let name = test.full_name();
        words += &format!("\n---- {name}: {} ----\n{}", result.end, result.words.trim_end());
        words += &format!("\n  alone: {}\n", test.alone());
    }
    println!("{} passed, {} failed", ended.len() - failed.len(), failed.len());
    if !failed.is_empty() {
        bail!("{} of {} tests failed{words}", failed.len(), ended.len());
    }
    Ok(())
}
