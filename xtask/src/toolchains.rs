//! Checks with other toolchains: the oldest one that published crates promise, and miri.

use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::workspace;

/// Packages that miri can interpret: their unit tests make no system calls but to read files.
const INTERPRETED: &[&str] = &["lwp-arch", "lwp-profile", "lwp-uarch"];

/// A command of rustup's cargo, for another toolchain than the one at hand.
fn cargo(toolchain: &str) -> Command {
    let mut command = Command::new("cargo");
    command.arg(format!("+{toolchain}")).current_dir(workspace::root()).stdin(Stdio::null());
    // Nothing is downloaded on the way, and nothing of the cargo that runs us is passed on.
    command.env("RUSTUP_AUTO_INSTALL", "0").env_remove("RUSTC").env_remove("RUSTUP_TOOLCHAIN");
    command
}

fn answers(mut command: Command) -> bool {
    let command = command.stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Checks published crates with the toolchain that Cargo.toml names as `rust-version`. Says so
/// where it is not installed.
pub fn oldest() -> Result<()> {
    let metadata = workspace::metadata()?;
    let packages = metadata["packages"].as_array().context("metadata without packages")?;
    let published =
        packages.iter().filter(|it| it["publish"].as_array().is_none_or(|to| !to.is_empty()));
    let mut toolchain = None;
    let mut names = Vec::new();
    for package in published {
        let version = package["rust_version"].as_str().context("a package without rust-version")?;
        toolchain = Some(full(version));
        names.extend(["--package", package["name"].as_str().context("a package without name")?]);
    }
    let toolchain = toolchain.context("no package is published")?;
    let mut version = cargo(&toolchain);
    version.arg("--version");
    if !answers(version) {
        eprintln!("msrv: skipped: rustup toolchain install {toolchain} --profile minimal");
        return Ok(());
    }
    let mut check = cargo(&toolchain);
    check.args(["check", "--locked"]).args(names);
    workspace::run(check)
}

/// A version as rustup names its toolchain: with three numbers.
fn full(version: &str) -> String {
    match version.matches('.').count() {
        0 | 1 => format!("{version}.0"),
        _ => version.to_owned(),
    }
}

/// Runs the unit tests of packages that miri can interpret. Says so where it is not installed.
pub fn interpreted() -> Result<()> {
    let mut version = cargo("nightly");
    version.args(["miri", "--version"]);
    if !answers(version) {
        eprintln!("miri: skipped: rustup toolchain install nightly --component miri,rust-src");
        return Ok(());
    }
    let mut test = cargo("nightly");
    test.args(["miri", "test", "--lib", "--locked"]);
    for package in INTERPRETED {
        test.args(["--package", package]);
    }
    // Tests read files of the tree; random cases take long under an interpreter.
    test.env("MIRIFLAGS", "-Zmiri-disable-isolation").env("PROPTEST_CASES", "4");
    workspace::run(test)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn toolchains_have_three_numbers() {
        assert_eq!(full("1.95"), "1.95.0");
        assert_eq!(full("1.95.1"), "1.95.1");
    }

    #[test]
    fn a_toolchain_that_is_missing_does_not_answer() {
        let mut missing = cargo("no-such-toolchain");
        missing.arg("--version");
        assert!(!answers(missing));
    }
}
