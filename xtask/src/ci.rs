//! `cargo xtask ci`: every check, and at the end which of them failed.

use std::fs::File;
use std::io::{Seek, copy, stderr};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Error, Result, bail};

use crate::workspace::{self, cargo};
use crate::{abi, book, deny, examples, failures, layering, spec_matrix, tree, unsafe_budget};

/// A check: its name and its body.
type Check = (&'static str, fn() -> Result<()>);

/// The checks before the fleet's, quick ones first.
const CHECKS: &[Check] = &[
    ("format", || workspace::run(cargo(&["fmt", "--all", "--check"]))),
    ("layering", layering::check),
    ("unsafe budget", unsafe_budget::check),
    ("tree", || tree::check(&tree::Options::default())),
    ("book", book::check),
    ("spec matrix", spec_matrix::check),
    ("deny", deny::check),
    ("clippy", clippy),
    ("abi", abi::check),
];

/// The checks beside the fleet's. Most tests of both wait, or use one processor.
const BESIDE_FLEET: &[Check] = &[
    ("test", || failures::run(cargo(&["test", "--workspace", "--no-fail-fast"]))),
    ("examples", || examples::check(&examples::Options::default())),
    ("doc", documentation),
];

/// `cargo xtask fleet` in a process of its own.
struct Fleet {
    process: Child,
    words: File,
}

impl Fleet {
    fn begin() -> Result<Self> {
        let path = workspace::target().join("fleet.log");
        let mut options = File::options();
        let words = options.read(true).write(true).create(true).truncate(true).open(path)?;
        // Not by name: a build may have put another program in place of this one.
        let mut command = Command::new("/proc/self/exe");
        command.arg("fleet").stdin(Stdio::null());
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

/// Runs every check. The reasons of failures stand at the end once more, since much is printed
/// between them and the end.
pub fn run() -> Result<()> {
    let mut failed = run_all(CHECKS);
    let fleet = Fleet::begin()?;
    failed.extend(run_all(BESIDE_FLEET));
    failed.extend(fails("fleet", || fleet.end()));
    if failed.is_empty() {
        return Ok(());
    }
    for (name, error) in &failed {
        eprintln!("== {name}: {error:#}");
    }
    let names: Vec<&str> = failed.iter().map(|(name, _)| *name).collect();
    bail!("failed: {}", names.join(", "));
}

fn clippy() -> Result<()> {
    workspace::run(cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
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
