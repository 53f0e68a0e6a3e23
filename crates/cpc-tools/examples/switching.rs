//! A program whose counted work is the same in every run: each of two threads goes around a loop a
//! million times while its counters run, and as often as it is told while they stand still.
//!
//! ```sh
//! cputrack --lwp -T 0 -c instructions target/debug/examples/switching 5000000
//! ```
#![allow(clippy::print_stderr, reason = "an example is short")]
#![allow(clippy::disallowed_methods, reason = "an example is short")]

use std::process::ExitCode;

/// Goes around a loop; the compiler cannot know what comes of it.
#[inline(never)]
fn turn(times: u64) -> u64 {
    (0..times).fold(1, |hash, turn| std::hint::black_box(hash ^ turn))
}

fn work(uncounted: u64) -> Result<(), cpc::Error> {
    turn(500_000);
    cpc::pause()?;
    turn(uncounted);
    cpc::resume()?;
    turn(500_000);
    Ok(())
}

fn main() -> ExitCode {
    let uncounted = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    for _ in 0..2 {
        let worker = std::thread::spawn(move || work(uncounted));
        if let Ok(Err(error)) = worker.join() {
            eprintln!("switching: {error}");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
