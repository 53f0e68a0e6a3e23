//! CPU performance counters with the interface of Solaris' libcpc, on Linux.
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
//! All counters a machine has, side by side: those of a processor with Lightweight Profiling, whose
//! event records are the SMPL records; those of its performance monitoring unit, by way of the
//! kernel; and the kernel's own. An event nobody can count is an error that says what is missing.
//! No count is an estimate: a set is counted all the time or reported as lost (EAGAIN).
//!
//! # Threads, signals, processes
//!
//! A thread has at most one set bound to itself, and a set may be bound by many threads. Sampling,
//! restarting, changing presets, enabling, disabling and all arithmetic on buffers neither allocate
//! nor wait, and may be called by handlers of signals. Overflows are signalled to the thread by
//! [`SIGEMT`]. Children of `fork` have nothing bound.
//!
//! # Errors
//!
//! [`Error::kind`] says what kind of failure it is; the documentation of each function names the
//! `errno` value that the C library reports, [`Error::errno`].
//!
//! # For C, and for libraries that control processes
//!
//! [`c`] has what only the C library needs. Everything is shared by reference and nothing needs
//! `&mut`: a C library keeps the objects behind pointers. [`Set::bind_lwp`] takes the kernel's
//! thread number, so a library that controls processes (libpctx) translates its own numbers first.

#![deny(unsafe_code)]

pub mod c;
pub mod items;

mod backend;
mod binding;
mod buf;
mod clock;
mod control;
mod cpu;
mod detect;
mod error;
mod handle;
mod lwp;
mod perf;
mod records;
mod request;
mod set;
mod sys;
mod thread;

pub use buf::Buf;
pub use clock::cycles;
pub use control::Requests;
pub use error::{Error, ErrorKind, Result};
pub use handle::{Cpc, Names, Walk};
pub use records::{Records, SpecialItem};
pub use request::{Attribute, BindFlags, Caps, Request, RequestFlags, number as parse_number};
pub use set::{DEFAULT_RECORDS, MAX_RECORDS, Set};
pub use sys::SIGEMT;
pub use thread::{Inheritance, inherit, pause, resume};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
