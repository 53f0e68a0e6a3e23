//! A second process reads the records of the first while it runs, through memory that both have
//! mapped.
//!
//!     lwp run -- target/debug/examples/second_process [RECORDS]
//!
//! The first process passes the descriptor of its profile to the second as standard input.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example is short")]

use std::process::{Command, Stdio};

use lwp::{Error, EventKind, Lwp, Reader, Revision};

/// Argument that makes this program the second process.
const MONITOR: &str = "--monitor";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    match arguments.next() {
        Some(first) if first == MONITOR => {
            let records = arguments.next().expect("a number of records").parse()?;
            Ok(monitor(records)?)
        }
        first => worker(first.map_or(Ok(500), |text| text.parse())?),
    }
}

/// The first process: makes the profile, starts the monitor, inserts records.
fn worker(records: u32) -> Result<(), Box<dyn std::error::Error>> {
    let lwp = Lwp::detect()?;
    let (mut profile, reader, file) = lwp.profile().ring_records(31).build_shared()?;
    drop(reader);
    let mut monitor = Command::new(std::env::current_exe()?)
        .args([MONITOR, &records.to_string()])
        .stdin(Stdio::from(file))
        .spawn()?;
    let running = profile.start()?;
    for number in 0..records {
        while lwp.lwpins::<0>(u64::from(number) * u64::from(number), number) {
            std::thread::yield_now();
        }
    }
    running.stop();
    let status = monitor.wait()?;
    assert!(status.success(), "the monitor: {status}");
    Ok(())
}

/// The second process: reads until it has seen all records, each in its place and whole.
fn monitor(records: u32) -> Result<(), Error> {
    let mut reader = Reader::attach(std::io::stdin())?;
    let mut next = 0;
    while next < records {
        for record in reader.drain() {
            assert_eq!(record.kind(Revision::Shipped), Some(EventKind::Programmed));
            assert_eq!(record.data1.get(), next, "in order, none lost");
            assert_eq!(record.data2.get(), u64::from(next) * u64::from(next), "not torn");
            next += 1;
        }
        std::thread::yield_now();
    }
    println!("{next} records of another process: none lost, none torn");
    Ok(())
}
