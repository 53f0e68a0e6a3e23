//! Every hundredth branch of a loop, with where it went.
//!
//!     lwp run -- target/debug/examples/branches
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example is short")]

use lwp::{Error, Event, EventKind, Lwp};

fn main() -> Result<(), Error> {
    let lwp = Lwp::detect()?;
    let (mut profile, mut reader) =
        lwp.profile().event(EventKind::BranchesRetired, 100).ring_records(4096).build()?;

    let running = profile.start()?;
    let longest = (1..100u64).max_by_key(|&n| collatz(n));
    running.stop();

    for record in reader.drain() {
        if let Some(Event::BranchesRetired { target, .. }) = record.event() {
            println!("{} -> {target}", record.ip());
        }
    }
    println!("longest {longest:?}, records lost: {}", reader.missed());
    Ok(())
}

/// Steps of the Collatz sequence from `n` to 1.
fn collatz(mut n: u64) -> u32 {
    let mut steps = 0;
    while n != 1 {
        n = if n.is_multiple_of(2) { n / 2 } else { 3 * n + 1 };
        steps += 1;
    }
    steps
}
