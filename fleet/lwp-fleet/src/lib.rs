//! The commands of lwp-fleet, which `lwp fleet` runs: recordings of many machines and commits,
//! kept, asked with SQL, compared. A library because lwp-fleet-node knows the questions as well.
#![forbid(unsafe_code)]

mod args;
pub mod commands;
mod failure;
mod git;

use std::process::ExitCode;
use std::time::Duration;

pub use args::{ClusterArgs, StoreArgs};
pub use commands::{Command, CommandLine, Question};
pub use failure::Failure;

/// Executes what a command line asks for, or says what is wrong with it, and returns the exit code
/// to end with.
pub fn finish<L>(
    line: Result<L, clap::Error>,
    execute: impl FnOnce(L) -> Result<ExitCode, Failure>,
) -> ExitCode {
    let done = match line {
        Ok(line) => execute(line),
        Err(error) if !error.use_stderr() => {
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
        Err(error) => Err(Failure::usage(&error)),
    };
    match done {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

/// The time that tasks have to end behind the one that was asked for: temporary files go with them.
const END: Duration = Duration::from_secs(2);

/// Runs a task on as many threads as there are processors.
///
/// # Errors
///
/// If there are no threads, or the task fails.
pub fn run(task: impl Future<Output = Result<ExitCode, Failure>>) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(format!("no threads: {error}")))?;
    let done = runtime.block_on(task);
    runtime.shutdown_timeout(END);
    done
}
