//! The command lwp-fleet, which `lwp fleet` runs: recordings of many machines and commits, kept, asked with SQL,
//! compared.
#![forbid(unsafe_code)]

mod args;
mod commands;
mod failure;
mod git;
mod numbers;

use std::process::ExitCode;

use clap::Parser;

use crate::args::CommandLine;
use crate::failure::Failure;

fn main() -> ExitCode {
    let line = match CommandLine::try_parse() {
        Ok(line) => line,
        Err(error) if !error.use_stderr() => {
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
        Err(error) => return Failure::usage(&error).report(),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let done = match runtime {
        Ok(runtime) => runtime.block_on(commands::dispatch(line)),
        Err(error) => Err(Failure::new(format!("no threads: {error}"))),
    };
    match done {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}
