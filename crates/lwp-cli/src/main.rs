//! The `lwp` command.
//!
//! Everything interesting happens in the virtual CPU; this crate turns a command line into a
//! configuration, and an outcome into text, CSV or JSON.
#![forbid(unsafe_code)]

mod args;
mod builds;
mod cargo_link;
mod code_filter;
mod code_lists;
mod commands;
mod comparing;
mod compilers;
mod counting;
mod ending;
mod engine;
mod failure;
mod gate;
mod generating;
mod headings;
mod illegal;
mod interpreted;
mod languages;
mod lwp_args;
mod output;
mod own_limits;
mod perf;
mod profiles;
mod program;
mod progress;
mod provenance;
mod recorded;
mod recorder;
mod requests;
mod sampling;
mod signals;
mod sources;
mod stat;
mod threads;
mod top;
#[cfg(feature = "tui")]
mod tui;
mod valgrind;

use std::process::ExitCode;

fn main() -> ExitCode {
    lwp_vcpu::pass_on_streams_and_signals();
    let result = match own_limits::check_stack() {
        Ok(()) => execute(),
        Err(failure) => Err(failure),
    };
    match result {
        Ok(ending) => ending.conclude(),
        Err(failure) => failure.report(),
    }
}

/// Does what the command line says, in a frame of its own: that is where the stack goes.
#[inline(never)]
fn execute() -> Result<ending::Ending, failure::Failure> {
    signals::outlive_large_files();
    let line = args::parse()?;
    args::say_wrong_limits();
    own_limits::check_memory(&line.command)?;
    commands::dispatch(line)
}
