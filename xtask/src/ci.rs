//! `cargo xtask ci`: every check, and at the end which of them failed.

use std::fs::File;
use std::io::{Seek, copy, stderr};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Error, Result, bail};
use clap::Args;

use crate::testing::{Selection, Suite, Turn, Variable};
use crate::workspace::{self, cargo};
use crate::{abi, book, deny, examples, fleet, layering, spec_matrix, tree, unsafe_budget};

/// What to check besides this workspace, and how much of it.
#[derive(Args, Clone, Copy, Debug)]
pub struct Options {
    /// Check the fleet too, which is a workspace of its own
    #[arg(long)]
    fleet: bool,
    /// Run all tests, test programs in all modes, and rustdoc, as every night
    #[arg(long)]
    all: bool,
}

/// A check: its name and its body.
type Check = (&'static str, fn() -> Result<()>);

/// The checks that take seconds.
const QUICK: &[Check] = &[
    ("format", || workspace::run(cargo(&["fmt", "--all", "--check"]))),
    ("layering", layering::check),
    ("unsafe budget", unsafe_budget::check),
    ("tree", || tree::check(&tree::Options::default())),
    ("book", book::check),
    ("spec matrix", spec_matrix::check),
    ("deny", deny::check),
];

/// The checks of what has been built.
const BUILT: &[Check] = &[
    ("abi", abi::check),
    ("doc tests", documentation_tests),
    ("examples", || examples::check(&examples::Options::default())),
];

/// The build of the fleet, in a process of its own and with what the tests leave of the processors.
struct FleetBuild {
    process: Child,
    words: File,
}

impl FleetBuild {
    fn begin() -> Result<Self> {
        let path = workspace::target().join("fleet.log");
        let mut options = File::options();
        let words = options.read(true).write(true).create(true).truncate(true).open(path)?;
        // Not by name: the build has put another program in place of this one.
        let this = format!("/proc/{}/exe", std::process::id());
        let mut command = Command::new("nice");
        command.args(["-n", "10", &this, "fleet", "--no-run"]).stdin(Stdio::null());
        command.stdout(words.try_clone()?).stderr(words.try_clone()?);
        Ok(Self { process: command.spawn()?, words })
    }

    /// Waits for its end, and shows all that it has said.
    fn end(mut self) -> Result<()> {
        let status = self.process.wait()?;
        self.words.rewind()?;
        copy(&mut self.words, &mut stderr())?;
        if !status.success() {
            bail!("{status}");
        }
        Ok(())
    }
}

/// A check that has failed, and why.
type Failed = (&'static str, Error);

/// Runs all checks, also after one has failed. Returns those.
fn run_all(checks: &[Check]) -> Vec<Failed> {
    checks.iter().filter_map(|(name, check)| fails(name, check)).collect()
}

/// Runs a check, and says how it ended. Returns it if it has failed.
fn fails(name: &'static str, check: impl FnOnce() -> Result<()>) -> Option<Failed> {
    eprintln!("== {name}");
    let start = Instant::now();
    let result = check();
    let seconds = start.elapsed().as_secs_f64();
    match &result {
        Ok(()) => eprintln!("== {name}: ok ({seconds:.1} s)"),
        Err(error) => eprintln!("== {name}: FAILED: {error:#}"),
    }
    result.err().map(|error| (name, error))
}

/// Runs the checks. The reasons of failures stand at the end once more, since much is printed
/// between them and the end.
pub fn run(options: Options) -> Result<()> {
    let start = Instant::now();
    let mut failed = run_all(QUICK);
    let built = fails("build", workspace::build);
    if built.is_none() {
        let fleet = options.fleet.then(FleetBuild::begin).transpose()?;
        failed.extend(fails("test", || test_all(options.all)));
        failed.extend(run_all(BUILT));
        if options.all {
            failed.extend(fails("doc", documentation));
        }
        if let Some(build) = fleet {
            failed.extend(fails("fleet: build", || build.end()));
            failed.extend(fails("fleet: test", fleet::check));
        }
    }
    failed.extend(built);
    eprintln!("== all checks: {:.0} s", start.elapsed().as_secs_f64());
    if failed.is_empty() {
        return Ok(());
    }
    for (name, error) in &failed {
        eprintln!("== {name}: {error:#}");
    }
    let names: Vec<&str> = failed.iter().map(|(name, _)| *name).collect();
    bail!("failed: {}", names.join(", "));
}

/// Builds, lints and runs the tests of this workspace.
pub fn test(selection: &Selection) -> Result<()> {
    let turn = Turn::of_commit().of_modes(false);
    test_in([("LWP_TEST_TURN", turn.to_string().into())], selection)
}

/// Runs all tests, and test programs in all modes; or the slow tests and the modes that have the
/// turn of this commit.
fn test_all(all: bool) -> Result<()> {
    let turn = (!all).then(Turn::of_commit);
    let selection = Selection { nightly: all, turn, ..Selection::default() };
    let modes = ("LWP_TEST_MODES", "all".into());
    test_in(all.then_some(modes), &selection)
}

fn test_in(modes: impl IntoIterator<Item = Variable>, selection: &Selection) -> Result<()> {
    let (target, variables) = (workspace::target(), modes.into_iter().collect());
    Suite { cargo, target, variables, selection: selection.clone() }.run()
}

fn documentation_tests() -> Result<()> {
    let mut command = cargo(&["test", "--workspace", "--doc", "--locked"]);
    workspace::lint(&mut command);
    workspace::run(command)
}

fn documentation() -> Result<()> {
    let mut command = cargo(&["doc", "--workspace", "--no-deps", "--document-private-items"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    workspace::run(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_checks_run_and_failures_are_named() {
        let checks: &[Check] =
            &[("good", || Ok(())), ("bad", || bail!("broken")), ("worse", || bail!("more"))];
        let failed = run_all(checks).into_iter().map(|(name, error)| (name, error.to_string()));
        let expected = [("bad", "broken".to_owned()), ("worse", "more".to_owned())];
        assert_eq!(failed.collect::<Vec<_>>(), expected);
    }
}
