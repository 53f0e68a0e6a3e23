//! `cargo xtask stress`: programs that are sensitive to timing, many times; see `tests/stress.sh`.
//! With `--loaded`, the tests on a machine that does something else as well.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Result, bail};

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
    /// Instead, run the tests, one at a time, beside three busy loops of the same priority
    #[arg(long, conflicts_with = "checkers")]
    loaded: bool,
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

/// Runs the tests of some packages, or of all, while the processors are busy. Building is not
/// slowed down.
fn loaded(options: &Options) -> Result<()> {
    /// More than the processors of a small machine.
    const LOOPS: usize = 3;
    let packages = &options.names;
    let mut arguments = vec!["--no-fail-fast", "--"];
    arguments.extend(options.filter.as_deref());
    arguments.push("--test-threads=1");
    workspace::run(tests(packages, &["--no-run"]))?;
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
            None => in_rounds(options.rounds.unwrap_or(1), || tests(packages, &arguments)),
        };
        over.store(true, Ordering::Relaxed);
        eprintln!("== beside {LOOPS} busy loops: {} minutes", began.elapsed().as_secs() / 60);
        result
    })
}

/// Runs a command so often, also after it has failed.
fn in_rounds(rounds: u32, command: impl Fn() -> Command) -> Result<()> {
    match (0..rounds).filter(|_| workspace::run(command()).is_err()).count() {
        0 => Ok(()),
        failed => bail!("{failed} of {rounds} rounds failed"),
    }
}

/// The tests of some packages, or of all. All are built in either case, because cargo compiles
/// dependencies anew, with other features, where packages are named.
fn tests(packages: &[String], arguments: &[&str]) -> Command {
    /// Runs a test program if its package is wanted.
    const RUNNER: &str = r#"case " $ONLY " in *" $CARGO_PKG_NAME "*) exec "$@";; esac"#;
    let mut command = cargo(&["test", "--workspace"]);
    if !packages.is_empty() {
        let target = format!("target.'cfg(unix)'.runner=['sh', '-c', '{RUNNER}', 'sh']");
        command.args(["--config", &target]).env("ONLY", packages.join(" "));
    }
    command.args(arguments);
    command
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
            filter: None,
            names: vec!["xz".into()],
        };
        let command = script(&options, PathBuf::from("lwp"));
        let words: Vec<_> = command.get_args().skip(1).collect();
        assert_eq!(words, ["-n", "3", "-t", "7", "-m", "native stat", "xz"]);
    }

    #[test]
    fn one_round_that_fails_is_a_failure() {
        let rounds = std::cell::Cell::new(0);
        let second_fails = || {
            rounds.set(rounds.get() + 1);
            Command::new(if rounds.get() == 2 { "false" } else { "true" })
        };
        let error = in_rounds(3, second_fails).expect_err("a round has failed");
        assert_eq!((rounds.get(), error.to_string().as_str()), (3, "1 of 3 rounds failed"));
        assert!(in_rounds(2, || Command::new("true")).is_ok());
    }

    #[test]
    fn tests_are_those_of_the_packages() {
        let words = |command: Command| {
            command.get_args().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(words(tests(&[], &["--no-run"])), ["test", "--workspace", "--no-run"]);
        let two = tests(&["lwp-dbt".to_owned(), "lwp-tests".to_owned()], &["--no-run"]);
        let only = two.get_envs().find(|(name, _)| *name == "ONLY").and_then(|(_, value)| value);
        assert_eq!(only, Some("lwp-dbt lwp-tests".as_ref()));
        assert_eq!(words(two)[..3], ["test", "--workspace", "--config"]);
    }
}
