//! Limits of lwp's caller that leave lwp itself too little: to name one is better than to end in
//! the middle of something.

use rustix::process::{Resource, getrlimit};

use crate::args::Command;
use crate::failure::{Failure, OWN_FAILURE};

/// The least stack that the command line is read with. Without optimisation that takes more.
const LEAST_STACK: u64 = if cfg!(debug_assertions) { 1 << 20 } else { 256 << 10 };

/// The least memory in which a small recording is made and read.
const LEAST_MEMORY: u64 = 64 << 20;

/// Fails if the stack is too small for lwp. Comes first, and needs hardly any itself.
pub fn check_stack() -> Result<(), Failure> {
    check(Resource::Stack, LEAST_STACK, "the stack", 's')
}

/// Fails if there is too little memory for a command that reads recordings or makes them. Limits on
/// lwp's own memory are taken away first, as far as that is allowed.
pub fn check_memory(command: &Command) -> Result<(), Failure> {
    let is_small = matches!(
        command,
        Command::Stat(_)
            | Command::Run(_)
            | Command::List
            | Command::Doctor
            | Command::Cache(_)
            | Command::Fleet { .. }
            | Command::Completions { .. }
            | Command::Man { .. }
    );
    if is_small {
        return Ok(());
    }
    lwp_vcpu::lift_limits();
    check(Resource::Data, LEAST_MEMORY, "data", 'd')?;
    check(Resource::As, LEAST_MEMORY, "address space", 'v')
}

/// The limits that may refuse a thread, as `ulimit` calls them.
pub fn of_threads() -> &'static str {
    match getrlimit(Resource::As).current {
        Some(_) => {
            "raise the limits on address space (`ulimit -v`), processes (`ulimit -u`) and data \
             (`ulimit -d`), or end some processes"
        }
        None => "raise the limits on processes (`ulimit -u`) and data (`ulimit -d`), or end some",
    }
}

fn check(resource: Resource, least: u64, name: &str, option: char) -> Result<(), Failure> {
    let limit = getrlimit(resource).current.unwrap_or(u64::MAX);
    if limit >= least {
        return Ok(());
    }
    let cause = format!("the limit on {name}, {} KiB, is too low for lwp", limit >> 10);
    let help = format!("raise it to {} KiB or more: ulimit -{option} {}", least >> 10, least >> 10);
    Err(Failure::new(OWN_FAILURE, cause).with_help(help))
}
