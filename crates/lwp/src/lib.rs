//! Lets a program profile itself with AMD's Lightweight Profiling (LWP), and count its own
//! instructions exactly under `lwp`.
//!
//! # Profiling
//!
//! At intervals that you choose, the processor writes records of instructions, branches or other
//! events into a ring in the program's own memory, without system calls, signals or copies.
//! Processors with LWP are rare; under `lwp run`, every x86-64 Linux machine has one.
//!
//! ```no_run
//! use lwp::{Event, EventKind, Lwp};
//!
//! fn main() -> Result<(), lwp::Error> {
//!     let lwp = Lwp::detect()?;
//!     let sampled = lwp.profile().event(EventKind::BranchesRetired, 1000).random_bits(4);
//!     let (mut profile, mut reader) = sampled.ring_records(4096).build()?;
//!     let running = profile.start()?;
//!     let sum: u64 = (0..1_000_000u64).filter(|n| n % 3 == 0).sum();
//!     running.stop();
//!     for record in reader.drain() {
//!         if let Some(Event::BranchesRetired { target, .. }) = record.event() {
//!             println!("{} -> {target}", record.ip());
//!         }
//!     }
//!     println!("sum {sum}, {} records lost", reader.missed());
//!     Ok(())
//! }
//! ```
//!
//! [`Lwp::detect`] checks whether the processor has LWP; everything else starts from its result. A
//! [`Profile`] owns a control block and its ring, and [`Profile::start`] runs it on the calling
//! thread. A [`Reader`] takes records out of the ring, on any thread, while the profile runs or
//! afterwards. A thread runs one profile at a time, and a profile runs on one thread at a time.
//!
//! # Sampling in step
//!
//! In a loop with two branches, every 1000th branch is the same one: the interval is a multiple of
//! the loop's length, so samples never show the other branch. [`ProfileBuilder::random_bits`]
//! varies each interval a little, so that samples are distributed over branches as executions are.
//! Leave it out only if the program's work has no such rhythm, or if samples have to repeat
//! exactly.
//!
//! # Counting
//!
//! Under `lwp stat` and `lwp record`, [`count_instructions`] returns an exact count:
//!
//! ```
//! let (sum, instructions) = lwp::count_instructions(|| (0..1000u64).sum::<u64>());
//! println!("{sum}, {instructions:?}"); // `None` outside `lwp stat` and `lwp record`
//! ```
//!
//! [`count_start`] and [`count_stop`] mark the part that `lwp stat --marked` counts.
//!
//! # Names for generated code
//!
//! [`register_code`] tells profilers the name of code that the program generates.
//!
//! # Platforms
//!
//! Linux on x86-64. On other targets, compiling this crate fails with a message.

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!(
    "crate lwp is for x86-64 Linux only; depend on it below \
     [target.'cfg(all(target_arch = \"x86_64\", target_os = \"linux\"))'.dependencies]"
);

mod block;
mod count;
mod detect;
mod drain;
mod error;
mod insn;
mod perf_map;
mod profile;
mod ring;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;

pub use lwp_arch::cpuid::{Capabilities, LayoutError};
pub use lwp_arch::filters::Filters;
pub use lwp_arch::record::{BranchFlags, DataSource, Event, Record};
pub use lwp_arch::{AppPc, EventFlags, EventId, EventKind, LinearAddr, Revision};
pub use rustix::io::Errno;

pub use block::ProfileBuilder;
pub use count::{Counter, count_events, count_instructions, count_start, count_stop, read_count};
pub use detect::Lwp;
pub use drain::{Drain, Reader};
pub use error::Error;
pub use perf_map::register_code;
pub use profile::{Active, Profile, Running};

/// Control blocks that you build yourself, and the registers of CPUID that describe them.
pub mod raw {
    pub use crate::insn::{ControlBlock, Loaded};
    pub use lwp_arch::cpuid::fn8000_001c::{Ebx, Ecx, Features};
}
