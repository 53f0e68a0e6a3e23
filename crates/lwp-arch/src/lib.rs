//! Facts about AMD's Lightweight Profiling (LWP): memory images, registers, instructions, events.
//!
//! This crate only has facts that documents or processors define, and nothing that executes: no
//! allocation, no I/O, no unsafe code, no operating system. Everything that builds on it (the
//! reference model, the virtual CPU, readers of rings) takes its offsets, bit positions and
//! encodings from here.
//!
//! # Two revisions
//!
//! AMD published LWP twice. [`Revision::Proposal2007`] is the public proposal of July 2007, which
//! no processor implemented as written. [`Revision::Shipped`] is the feature of Family 15h
//! processors, for which compilers emit code. Types of the proposal have `2007` in their names.
//!
//! # How sources are cited
//!
//! * `P07 §n` is a section of *Lightweight Profiling Proposal*, AMD, 2007-07-20.
//! * `LWP §n` is a section of `docs/lwp.md` in this repository. It describes the shipped revision
//!   (AMD publication 43724, revisions 3.04 to 3.08, later chapter 13.4 of publication 24593 and
//!   the instruction pages of 24594) in our own words, names the source of each fact, and marks
//!   those that nobody could confirm. For these, the project made its own choices, numbered `DEV-n`
//!   in `docs/deviations.md`.
//!
//! # Reading order
//!
//! [`event`] has the events, [`lwpcb`] and [`filters`] show how a program requests them, and
//! [`record`] and [`ring`] how it gets the results. [`insn`] has the four instructions, [`cpuid`],
//! [`msr`] and [`xsave`] the operating system's side, and [`retired`] the interface between a
//! processor and its LWP unit.

#![no_std]
#![forbid(unsafe_code)]

#[macro_use]
mod layout;

pub mod addr;
pub mod cpuid;
pub mod event;
pub mod fault;
pub mod filters;
pub mod insn;
pub mod lwpcb;
pub mod msr;
pub mod record;
pub mod retired;
pub mod ring;
pub mod xsave;

pub use addr::{AppPc, LinearAddr, RingOffset};
pub use event::{EventFlags, EventId, EventKind};
pub use fault::{Fault, PageFault};
pub use record::Record;
pub use retired::Retired;

/// One of the two published forms of LWP.
///
/// Spec: LWP §8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Revision {
    /// The public proposal of July 2007.
    Proposal2007,
    /// The feature of AMD's Family 15h, as in compilers and later manuals.
    #[default]
    Shipped,
}
