//! `cargo xtask ci`: every check, and at the end which of them failed.

use std::time::Instant;

use anyhow::{Result, bail};

use crate::workspace::{self, cargo};
use crate::{abi, book, deny, examples, fleet, layering, spec_matrix, tree, unsafe_budget};

/// A check: its name and its body.
type Check = (&'static str, fn() -> Result<()>);

/// Every check, quick ones first.
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
    ("test", test),
    ("examples", || examples::check(&examples::Options::default())),
    ("doc", documentation),
    ("fleet", fleet::check),
];

/// Runs all checks, also after one has failed.
fn run_all(checks: &[Check]) -> Vec<&'static str> {
    let mut failed = Vec::new();
    for (name, check) in checks {
        eprintln!("== {name}");
        let start = Instant::now();
        let result = check();
        let seconds = start.elapsed().as_secs_f64();
        match result {
            Ok(()) => eprintln!("== {name}: ok ({seconds:.1} s)"),
            Err(error) => {
                eprintln!("== {name}: FAILED: {error:#}");
                failed.push(*name);
            }
        }
    }
    failed
}

/// Runs every check.
pub fn run() -> Result<()> {
    let failed = run_all(CHECKS);
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

fn clippy() -> Result<()> {
    workspace::run(cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
}

/// Most tests wait, or use one processor: meanwhile the fleet is built.
fn test() -> Result<()> {
    workspace::run(cargo(&["test", "--workspace", "--no-run"]))?;
    let fleet = fleet::build_ahead();
    let result = workspace::run(cargo(&["test", "--workspace", "--no-fail-fast"]));
    if let Some(mut fleet) = fleet {
        fleet.wait()?;
    }
    result
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
        assert_eq!(run_all(checks), ["bad", "worse"]);
    }
}
