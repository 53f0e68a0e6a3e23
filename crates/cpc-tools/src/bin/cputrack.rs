//! Counts the events of a program's threads.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    cpc_tools::track::main(std::env::args_os())
}
