//! Counts the instructions of a calculation, and shows where it branches if a counter collects
//! records.
//!
//!     cargo run -p lwp-cpc-core --example count
//!
//! If the kernel refuses counters, run it on the virtual CPU, which has some:
//!
//!     lwp run target/debug/examples/count
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "an example is short")]

use cpc::{BindFlags, Cpc, ErrorKind, EventNames, EventUses, Request};

/// A record of every so many branches.
const INTERVAL: u64 = 10_000;

fn main() -> Result<(), cpc::Error> {
    let cpc = match Cpc::open() {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            println!("{error}");
            return Ok(());
        }
        opened => opened?,
    };
    let generic = cpc.events(EventNames::Generic, EventUses::COUNTING);
    println!("{}: {} generic events", cpc.name(), generic.len());
    let set = cpc.create_set();
    let instructions = match set.add(Request::new("PAPI_tot_ins")) {
        Err(error) if error.kind() == ErrorKind::UnknownEvent => {
            println!("{error}");
            return Ok(());
        }
        added => added?,
    };
    let records = set.add(Request::records("PAPI_br_ins", INTERVAL)).ok();
    let (before, after) = (set.create_buf(), set.create_buf());
    set.bind_thread(BindFlags::empty())?;
    set.sample(&before)?;
    let longest = (1..1_000_000u64).max_by_key(|n| n.count_ones());
    set.sample(&after)?;
    println!("{longest:?} takes {} instructions", after.get_since(&before, instructions)?);
    let (Some(records), Some(address)) = (records, cpc.record_item("pc")) else {
        println!("no counter here collects records");
        return Ok(());
    };
    let collected = after.records(records)?;
    let addresses = collected.iter().filter_map(|record| record.item(address));
    println!("{} records, the lowest at {:#x}", collected.len(), addresses.min().unwrap_or(0));
    Ok(())
}
