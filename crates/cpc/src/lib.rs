//! CPU performance counters for Linux, modelled on Solaris' libcpc.
//!
//! A program opens a handle ([`Cpc`]), puts [`Request`]s into a [`Set`], binds the set to a thread
//! or a processor, and samples its 64-bit counters into a [`Buf`]:
//!
//! ```no_run
//! use cpc::{BindFlags, Cpc, Request};
//!
//! let cpc = Cpc::open()?;
//! let set = cpc.create_set();
//! let instructions = set.add(Request::new("PAPI_tot_ins"))?;
//! let (before, after) = (set.create_buf(), set.create_buf());
//! set.bind_thread(BindFlags::empty())?;
//! set.sample(&before)?;
//! // the work
//! set.sample(&after)?;
//! println!("{} instructions", after.get_since(&before, instructions)?);
//! # Ok::<(), cpc::Error>(())
//! ```
//!
//! # What counts
//!
//! All of a machine's counters, side by side: those of a processor with Lightweight Profiling,
//! which also collect records; those of the performance monitoring unit, which the kernel manages;
//! and the kernel's own. If no counter can count an event, you get an error that
//! names what is missing. No count is an estimate: either a set counts all the time, or sampling it
//! fails with [`ErrorKind::TryAgain`].
//!
//! # Threads, signals, processes
//!
//! A thread has at most one set bound to itself, and many threads may bind the same set. Sampling,
//! restarting, changing presets, pausing, resuming and all arithmetic on buffers neither allocate
//! nor wait, so signal handlers may call them. If a handler interrupts a call of this crate and
//! calls the crate itself, it gets [`ErrorKind::TryAgain`]. The thread learns of overflows by the
//! signal [`OVERFLOW_SIGNAL`]. After `fork`, the child has nothing bound.
//!
//! # Errors
//!
//! Match on [`Error::kind`]; the documentation of each function names the kinds. [`Error::errno`]
//! is the value that the C library reports.
//!
//! # For C, and for libraries that control processes
//!
//! The module [`c`] has the functions that only the C library needs. No method takes `&mut self`,
//! because the C library keeps the objects behind shared pointers. [`Set::bind_tid`] takes the
//! kernel's thread number, so a library that controls processes (libpctx) translates its own
//! numbers first.

#![deny(unsafe_code)]
#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

pub mod c;

mod backend;
mod binding;
mod buf;
mod clock;
mod control;
mod cpu;
mod detect;
mod error;
mod handle;
mod items;
mod lwp;
mod perf;
mod records;
mod request;
mod set;
mod sys;
mod thread;

pub use buf::Buf;
pub use clock::tsc_cycles;
pub use control::SwitchRequests;
pub use error::{Error, ErrorKind, Result};
pub use handle::{Cpc, EventNames, EventUses};
pub use records::{Record, Records, SpecialItem};
pub use request::{Attribute, BindFlags, Capabilities, Request, RequestFlags, parse_number};
pub use set::{DEFAULT_RECORDS, MAX_RECORDS, Set};
pub use sys::OVERFLOW_SIGNAL;
pub use thread::{Inheritance, inherit, pause, resume};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;

#[cfg(test)]
mod tests {
    use super::*;

    /// Handles and sets are shared between threads; a buffer moves from one to the next.
    #[test]
    fn types_cross_threads_as_documented() {
        fn shared<T: Send + Sync>() {}
        fn sent<T: Send>() {}
        shared::<Cpc>();
        shared::<Set>();
        shared::<Request>();
        shared::<Error>();
        shared::<SwitchRequests>();
        sent::<Buf>();
        sent::<Inheritance>();
    }
}
