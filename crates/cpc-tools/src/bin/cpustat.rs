//! Counts the events of whole processors.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    cpc_tools::stat::main(std::env::args_os())
}
