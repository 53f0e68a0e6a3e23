//! The workspace as cargo and git see it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The root of the workspace: where cargo runs us from. The place where we were built may be
/// another checkout, if both share a target directory.
pub fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let package = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
        let package = package.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
        package.parent().expect("xtask lies in the workspace").to_owned()
    })
}

/// The directory that cargo builds in.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// A cargo command in the root. It does not inherit what `cargo xtask` says about this package:
/// third-party build scripts may watch those variables, as the one of `ring` does, and everything
/// above such a package would be compiled again in each clone.
pub fn cargo(arguments: &[&str]) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(arguments).current_dir(root()).stdin(Stdio::null());
    for (name, _) in
        std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_of_package))
    {
        command.env_remove(name);
    }
    command
}

/// Returns whether cargo sets this variable to something about the package that it runs.
fn is_of_package(variable: &str) -> bool {
    const OTHERS: [&str; 4] =
        ["CARGO_BIN_NAME", "CARGO_CRATE_NAME", "CARGO_PRIMARY_PACKAGE", "OUT_DIR"];
    let begins = |begin: &&str| variable.starts_with(*begin);
    ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(begins) || OTHERS.contains(&variable)
}

/// Runs `command` with its output shown.
pub fn run(mut command: Command) -> Result<()> {
    let status =
        command.status().with_context(|| format!("cannot start {}", in_a_shell(&command)))?;
    if !status.success() {
        bail!("{}: {status}", in_a_shell(&command));
    }
    Ok(())
}

/// The command as one would type it. `Debug` would list the variables that are taken away as well.
pub fn in_a_shell(command: &Command) -> String {
    let directory = command.get_current_dir().map(|it| format!("cd {} &&", it.display()));
    let set = command
        .get_envs()
        .filter_map(|(name, value)| Some(format!("{}={:?}", name.to_string_lossy(), value?)));
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words = words.map(|it| it.to_string_lossy().into_owned());
    directory.into_iter().chain(set).chain(words).collect::<Vec<_>>().join(" ")
}

/// The one way in which checks build: a package by itself has other features, and would be compiled
/// a second time, with all below it.
pub const BUILD: [&str; 4] = ["build", "--workspace", "--all-targets", "--locked"];

/// Builds all that tests load and run.
pub fn build() -> Result<()> {
    let mut build = cargo(&BUILD);
    lint(&mut build);
    run(build)
}

/// Makes clippy the compiler of this project's own packages, where it is installed. `cargo clippy`
/// would compile everything once more, for its metadata. Warnings are errors to the toolchain that
/// the packages name as the oldest; later ones know more of them.
pub fn lint(command: &mut Command) {
    static VERSION: OnceLock<Option<String>> = OnceLock::new();
    let Some(version) = VERSION.get_or_init(clippy_version) else { return };
    // As cargo-clippy sets them.
    command.env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver");
    let oldest = concat!("rustc ", env!("CARGO_PKG_RUST_VERSION"), ".");
    if version.starts_with(oldest) {
        command.env("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__");
    }
}

/// The version of clippy's compiler, or none, and a message, if there is no clippy.
fn clippy_version() -> Option<String> {
    let mut clippy = Command::new("clippy-driver");
    let output = clippy.args(["--rustc", "--version"]).stderr(Stdio::null()).output();
    match output {
        Ok(output) if output.status.success() => {
            Some(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        _ => {
            eprintln!("skipped: lints: there is no clippy (rustup component add clippy)");
            None
        }
    }
}

/// Runs `command` and returns what it printed.
pub fn output(mut command: Command) -> Result<Vec<u8>> {
    command.stdin(Stdio::null()).stderr(Stdio::inherit());
    let output =
        command.output().with_context(|| format!("cannot start {}", in_a_shell(&command)))?;
    if !output.status.success() {
        bail!("{}: {}", in_a_shell(&command), output.status);
    }
    Ok(output.stdout)
}

/// Returns the output of `cargo metadata` for the workspace, dependencies from outside left out.
pub fn metadata() -> Result<Value> {
    let text = output(cargo(&["metadata", "--format-version=1", "--no-deps"]))?;
    Ok(serde_json::from_slice(&text)?)
}

/// Returns the output of `cargo metadata` for the packages of this workspace and the fleet's.
pub fn all_metadata() -> Result<Value> {
    let mut all = metadata()?;
    let fleet = ["metadata", "--format-version=1", "--no-deps", "--manifest-path=fleet/Cargo.toml"];
    let mut other: Value = serde_json::from_slice(&output(cargo(&fleet))?)?;
    if let (Some(all), Some(other)) =
        (all["packages"].as_array_mut(), other["packages"].as_array_mut())
    {
        all.append(other);
    }
    Ok(all)
}

/// The files that belong to the tree, relative to the root: those tracked by git, and those that
/// would be if they were added. Sorted.
pub fn files() -> Result<Vec<PathBuf>> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    git.current_dir(root());
    let names = output(git)?;
    let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let mut files: Vec<PathBuf> =
        names.map(|name| PathBuf::from(String::from_utf8_lossy(name).into_owned())).collect();
    files.retain(|file| root().join(file).is_file());
    files.sort();
    files.dedup();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_is_not_told_which_package_starts_it() {
        // Cargo sets them for this test, too.
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
        let command = cargo(&["build"]);
        let kept = |name: &str| !command.get_envs().any(|it| it == (name.as_ref(), None));
        for name in ["CARGO_MANIFEST_DIR", "CARGO_PKG_NAME", "CARGO_PKG_VERSION_MAJOR"] {
            assert!(!kept(name), "{name}");
        }
        for name in ["PATH", "CARGO", "CARGO_HOME", "CARGO_TARGET_DIR", "CARGO_INCREMENTAL"] {
            assert!(kept(name), "{name}");
        }
    }

    #[test]
    fn a_command_is_shown_with_what_it_sets() {
        let mut command = Command::new("cargo");
        command.args(["build", "--locked"]).current_dir("/src").env("A", "b").env_remove("C");
        assert_eq!(in_a_shell(&command), "cd /src && A=\"b\" cargo build --locked");
    }
}
