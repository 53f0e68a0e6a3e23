//! `cargo xtask stress`: programs that are sensitive to timing, many times; see `tests/stress.sh`.
//! With `--loaded`, the tests on a machine that does something else as well.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::Result;

use crate::ci;
use crate::testing::{self, Selection};
use crate::workspace::{self, cargo};

/// The programs to run, and their number of runs.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Run each program in each mode this often; 100 by default. With --loaded, all tests; once
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Give a run up after this many seconds; it has failed then
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    limit: u64,
    /// Any of native, run and stat
    #[arg(long, value_name = "MODES", value_delimiter = ',', default_value = "run,stat")]
    modes: Vec<String>,
    /// Test this binary instead of building one
    #[arg(long, value_name = "FILE")]
    lwp: Option<PathBuf>,
    /// Instead, run the clients of the C libraries under memcheck, AddressSanitizer and
    /// ThreadSanitizer
    #[arg(long)]
    checkers: bool,
    /// Instead, run the tests beside three busy loops of the same priority
    #[arg(long, conflicts_with = "checkers")]
    loaded: bool,
    /// With --loaded, the tests that depend on turns or on time
    #[arg(long, requires = "loaded")]
    racy: bool,
    /// With --loaded, the tests with this in their names
    #[arg(long, value_name = "TEXT", requires = "loaded")]
    filter: Option<String>,
    /// Names, or programs of tests/programs, or folders of them with a slash behind; by default
    /// all names whose programs are installed. With --loaded, packages; all by default
    names: Vec<String>,
}

/// Builds, then runs the script, which prints a line a program and mode.
pub fn run(options: &Options) -> Result<()> {
    if options.checkers {
        return checkers();
    }
    if options.loaded {
        return loaded(options);
    }
    let lwp = match &options.lwp {
        Some(file) => std::path::absolute(file)?,
        None => {
            workspace::run(cargo(&["build", "--profile", "release-lto", "-p", "lwp-cli"]))?;
            let target = workspace::metadata()?["target_directory"].as_str().map(PathBuf::from);
            target.unwrap_or_else(|| workspace::root().join("target")).join("release-lto/lwp")
        }
    };
    workspace::run(script(options, lwp))
}

/// Every scenario of the C libraries' clients that can run under a checker.
fn checkers() -> Result<()> {
    let clients = ["-p", "lwp-cpc", "-p", "lwp-capi", "-p", "lwp-pctx"];
    let mut memcheck = cargo(&[&["test"], &clients[..], &["memcheck"]].concat());
    memcheck.env("LWP_CHECKERS", "all");
    workspace::run(memcheck)?;
    let mut sanitizers = Command::new("sh");
    sanitizers.arg(workspace::root().join("tests/sanitizers.sh"));
    workspace::run(sanitizers)
}

/// Runs tests while the processors are busy, as many at a time as without. Building is not slowed
/// down.
fn loaded(options: &Options) -> Result<()> {
    /// More than the processors of a small machine.
    const LOOPS: usize = 3;
    let racy = || testing::RACY.iter().map(|name| (*name).to_owned());
    let names = options.filter.iter().cloned().chain(options.racy.then(racy).into_iter().flatten());
    let selection = Selection {
        packages: options.names.clone(),
        rounds: options.rounds.unwrap_or(1),
        names: names.collect(),
        ..Selection::default()
    };
    workspace::build()?;
    let began = Instant::now();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let busy = || {
            while !over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        };
        let mut started = (0..LOOPS).map(|_| thread::Builder::new().spawn_scoped(scope, busy));
        let result = match started.find_map(Result::err) {
            Some(error) => Err(error.into()),
            None => ci::test(&selection),
        };
        over.store(true, Ordering::Relaxed);
        eprintln!("== beside {LOOPS} busy loops: {} minutes", began.elapsed().as_secs() / 60);
        result
    })
}

fn script(options: &Options, lwp: PathBuf) -> Command {
    let mut script = Command::new("sh");
    script.arg(workspace::root().join("tests/stress.sh"));
    script.args([
        "-n",
        &options.rounds.unwrap_or(100).to_string(),
        "-t",
        &options.limit.to_string(),
    ]);
    script.args(["-m", &options.modes.join(" ")]).args(&options.names);
    script.env("LWP_BIN", lwp);
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_gets_what_was_asked_for() {
        let options = Options {
            rounds: Some(3),
            limit: 7,
            modes: vec!["native".into(), "stat".into()],
            lwp: None,
            checkers: false,
            loaded: false,
            racy: false,
            filter: None,
            names: vec!["xz".into()],
        };
        let command = script(&options, PathBuf::from("lwp"));
        let words: Vec<_> = command.get_args().skip(1).collect();
        assert_eq!(words, ["-n", "3", "-t", "7", "-m", "native stat", "xz"]);
    }
}
