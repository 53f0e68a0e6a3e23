//! Facts about AMD's Lightweight Profiling (LWP): memory images, registers, instructions, events.
//!
//! This crate holds what a document or a processor fixes and nothing that runs: no allocation, no
//! I/O, no unsafe code, no operating system. Everything above it (the reference model, the virtual
//! CPU, the readers of rings) takes its offsets, bit positions and encodings from here.
//!
//! # Two revisions
//!
//! LWP was published twice. [`Revision::Proposal2007`] is AMD's public proposal of July 2007, which
//! no processor implemented as written. [`Revision::Shipped`] is the feature of Family 15h
//! processors, the one compilers emit. Types of the proposal carry `2007` in their name.
//!
//! # How sources are cited
//!
//! * `P07 §n` is a section of *Lightweight Profiling Proposal*, AMD, 2007-07-20.
//! * `LWP §n` is a section of `docs/lwp.md` in this repository. It describes the shipped revision
//!   (AMD publication 43724, revisions 3.04 to 3.08, later chapter 13.4 of publication 24593 and
//!   the instruction pages of 24594) in our own words, says for each fact what supports it, and
//!   marks the ones nobody could confirm. Those are choices of this project, numbered `DEV-n` in
//!   `docs/deviations.md`.
//!
//! # Reading order
//!
//! [`event`] names what is counted, [`lwpcb`] and [`filters`] say how software asks for it,
//! [`record`] and [`ring`] how the answer arrives; [`insn`] has the four instructions, [`cpuid`],
//! [`msr`] and [`xsave`] the system side, and [`retired`] the interface between a processor and its
//! LWP unit.

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
    /// The feature of AMD Family 15h, as compilers and the later manuals know it.
    #[default]
    Shipped,
}
