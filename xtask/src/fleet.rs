//! `cargo xtask fleet`: the checks of the workspace in `fleet/`, which has a lock file and a target
//! directory of its own.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::deny;
use crate::workspace::{self, cargo};

/// Packages for other systems are not wanted.
const TARGET: &str = "--target=x86_64-unknown-linux-gnu";

/// A cargo command in the fleet's workspace. What is set for this one's target directory is not for
/// that one.
fn of_fleet(arguments: &[&str]) -> Command {
    let mut command = cargo(arguments);
    command.current_dir(workspace::root().join("fleet"));
    command.env_remove("CARGO_TARGET_DIR").env("CARGO_INCREMENTAL", "0");
    command
}

/// Builds, lints and tests the fleet. Where its packages are neither here nor to be had, it says so
/// and is content.
pub fn check() -> Result<()> {
    let here = of_fleet(&["fetch", "--locked", TARGET, "--offline", "--quiet"]);
    if workspace::run(here).is_err()
        && let Err(error) = workspace::run(of_fleet(&["fetch", "--locked", TARGET]))
    {
        eprintln!(
            "skipped: the fleet is neither built nor tested: its packages cannot be fetched: {error:#}"
        );
        return Ok(());
    }
    workspace::run(of_fleet(&["fmt", "--all", "--check"]))?;
    // Tests first: they build what the lints then need only the metadata of.
    let mut tests = of_fleet(&["test", "--workspace", "--locked", "--no-fail-fast"]);
    let lwp = workspace::root().join("target/debug/lwp");
    match lwp.is_file() {
        true => {
            tests.env("LWP", lwp);
        }
        false => eprintln!("skipped: the walk of docs/fleet.md: there is no target/debug/lwp"),
    }
    // As tests/viewers.sh installs them.
    let viewers = std::env::var_os("LWP_VIEWERS").map(PathBuf::from);
    let python =
        viewers.unwrap_or_else(|| workspace::root().join("target/viewers")).join("python/bin");
    for (variable, program) in [("LWP_MOTO_SERVER", "moto_server"), ("LWP_PYTHON", "python")] {
        let program = python.join(program);
        if program.is_file() && std::env::var_os(variable).is_none() {
            tests.env(variable, program);
        }
    }
    workspace::run(tests)?;
    let lints = ["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"];
    workspace::run(of_fleet(&lints))?;
    deny::checked(&of_fleet)
}

/// The measurements of the fleet.
#[derive(clap::Args, Debug)]
#[command(disable_help_flag = true)]
pub struct Measured {
    /// Options of the measurements; --help lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTION")]
    options: Vec<OsString>,
}

/// Measures stores, questions and the server, with the options that the measurements themselves
/// have.
pub fn measure(measured: &Measured) -> Result<()> {
    let mut bench = of_fleet(&["bench", "--locked", "--workspace", "--bench", "fleet", "--"]);
    bench.args(&measured.options);
    // Cargo starts them in the package's directory; paths are meant from here.
    bench.env("LWP_BENCH_FROM", std::env::current_dir()?);
    workspace::run(bench)
}
