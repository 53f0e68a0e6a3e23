//! The command lwp-fleet, which `lwp fleet` runs.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use lwp_fleet::{CommandLine, commands, finish, run};

fn main() -> ExitCode {
    finish(CommandLine::try_parse(), |line| run(commands::dispatch(line)))
}
