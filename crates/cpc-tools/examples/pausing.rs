//! A program that decides itself when `cputrack` counts it: the idiom of `cpc_disable` and
//! `cpc_enable`.
//!
//! It computes for 60 ms while its counters stand still, then for 20 ms while they run, in each of
//! two threads after one another. Natively it says that there are no counters.
//!
//! ```sh
//! cputrack -T 0 -c task-clock target/debug/examples/pausing
//! ```
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example is short")]
#![allow(clippy::disallowed_methods, reason = "an example is short")]

use std::process::ExitCode;

use rustix::time::{ClockId, clock_gettime};

/// Uses the processor for so many milliseconds.
fn spin(ms: i64) {
    let used_ns = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        now.tv_sec * 1_000_000_000 + now.tv_nsec
    };
    let end = used_ns() + ms * 1_000_000;
    while used_ns() < end {}
}

fn pause() -> Result<(), cpc::Error> {
    cpc::pause()?;
    // A second time there is nothing to be switched.
    assert_eq!(cpc::pause().unwrap_err().errno(), EINVAL);
    spin(60);
    cpc::resume()?;
    assert_eq!(cpc::resume().unwrap_err().errno(), EINVAL);
    spin(20);
    Ok(())
}

/// The error number of a call that is not possible now.
const EINVAL: i32 = 22;

fn main() -> ExitCode {
    for _ in 0..2 {
        match std::thread::spawn(pause).join() {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                eprintln!("pausing: {error}");
                return ExitCode::from(2);
            }
            Err(_) => return ExitCode::FAILURE,
        }
    }
    ExitCode::SUCCESS
}
