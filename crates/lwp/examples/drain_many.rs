//! One thread drains the rings of many others while they run, without losing or tearing a record.
//!
//!     lwp run -- target/debug/examples/drain_many [THREADS [RECORDS]]
//!
//! Every worker inserts numbered records into a small ring of its own, as fast as it can. A record
//! says its number three times over, so a torn one shows. Where the ring is full the worker waits
//! for the monitor and inserts again: LWPINS says so in the carry flag.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example is short")]
#![allow(clippy::disallowed_methods, reason = "an example is short")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use lwp::{Error, EventKind, Lwp, Reader, Record, Revision};

/// Marks the records of this program.
const MARK: u16 = 0x4C57;

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse().expect("a number"));
    let threads: u32 = arguments.next().unwrap_or(4);
    let records: u32 = arguments.next().unwrap_or(1000);
    let lwp = Lwp::detect()?;
    let running = AtomicU32::new(threads);
    let mut readers = Vec::new();
    let full: u64 = thread::scope(|scope| {
        let mut workers = Vec::new();
        for _ in 0..threads {
            let (mut profile, reader) = lwp.profile().ring_records(31).build()?;
            readers.push(Monitored { reader, next: 0 });
            let running = &running;
            workers.push(scope.spawn(move || {
                let active = profile.start()?;
                let full = insert(lwp, records);
                active.stop();
                running.fetch_sub(1, Ordering::Release);
                Ok::<u64, Error>(full)
            }));
        }
        while running.load(Ordering::Acquire) > 0 {
            readers.iter_mut().for_each(Monitored::drain);
            thread::yield_now();
        }
        let counts = workers.into_iter().map(|worker| worker.join().expect("a worker ends"));
        counts.sum::<Result<u64, Error>>()
    })?;
    let mut missed = 0;
    for monitored in &mut readers {
        monitored.drain();
        assert_eq!(monitored.next, records, "every record arrived");
        missed += monitored.reader.missed();
    }
    assert_eq!(missed, full, "the rings were full as often as the workers were told");
    println!("{threads} threads, {records} records each: none lost, none torn");
    Ok(())
}

/// Inserts the records numbered from 0 on. Returns how often the ring was full.
fn insert(lwp: Lwp, records: u32) -> u64 {
    let mut full = 0;
    for number in 0..records {
        while lwp.lwpins::<MARK>(u64::from(number) << 32 | u64::from(!number), number) {
            full += 1;
            thread::yield_now();
        }
    }
    full
}

/// A ring and how far it has been read.
struct Monitored {
    reader: Reader,
    next: u32,
}

impl Monitored {
    fn drain(&mut self) {
        for record in self.reader.drain() {
            check(&record, self.next);
            self.next += 1;
        }
    }
}

fn check(record: &Record, number: u32) {
    assert_eq!(record.kind(Revision::Shipped), Some(EventKind::Programmed));
    assert_eq!(record.flags.get(), MARK);
    assert_eq!(record.data1.get(), number, "in order, none lost");
    let data2 = u64::from(number) << 32 | u64::from(!number);
    assert_eq!(record.data2.get(), data2, "not torn");
}
