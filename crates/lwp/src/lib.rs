//! A program that profiles itself, with AMD's Lightweight Profiling (LWP).
//!
//! The processor writes a record for every so many instructions, branches or other events into a
//! ring in the program's own memory. No system call, no signal and no copy is involved. Processors
//! that have LWP are rare; `lwp run` gives every x86-64 Linux machine one.
//!
//! ```no_run
//! use lwp::arch::{Error, EventKind, Lwp, Revision};
//!
//! fn main() -> Result<(), Error> {
//!     let lwp = Lwp::detect()?;
//!     let sampled = lwp.profile().event(EventKind::BranchesRetired, 1000).random_bits(4);
//!     let (mut profile, mut reader) = sampled.ring_records(4096).build()?;
//!     let running = profile.start()?;
//!     let sum: u64 = (0..1_000_000u64).filter(|n| n % 3 == 0).sum();
//!     running.stop();
//!     for record in reader.drain() {
//!         println!("{} {:?}", record.ip(), record.kind(Revision::Shipped));
//!     }
//!     println!("sum {sum}, {} records lost", reader.missed());
//!     Ok(())
//! }
//! ```
//!
//! # Sampling in step
//!
//! Every 1000th branch of a loop with two branches is always the same one: the interval is a
//! multiple of the loop's length, and the samples never show the other branch.
//! [`random_bits`](arch::ProfileBuilder::random_bits) varies each interval a little, so that
//! samples hit every branch as often as it deserves. Leave it out only where the program's own
//! work has no such rhythm, or where samples have to repeat exactly.
//!
//! # Layers
//!
//! [`arch`] is the raw layer: the four instructions, the control block and the ring, made safe and
//! nothing else. It never executes an LWP instruction before CPUID has said that there is one.
//!
//! [`code`] stands beside it: names for generated code, which needs no LWP; and so does [`count`]:
//! markers that say from where to where `lwp stat --marked` counts, and the counts themselves.

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!(
    "crate lwp is for x86-64 Linux only; depend on it below \
     [target.'cfg(all(target_arch = \"x86_64\", target_os = \"linux\"))'.dependencies]"
);

pub mod arch;
mod block;
pub mod code;
pub mod count;
mod detect;
mod drain;
mod error;
mod insn;
mod profile;
mod ring;

pub use count::{start as count_start, stop as count_stop};
