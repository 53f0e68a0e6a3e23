//! Linux perf events, from the name of an event to its count or its samples.
//!
//! * [`Catalog`] turns names into [`Event`]s: generic names, PAPI presets, the events and formats
//!   that the kernel lists in sysfs, software events, raw codes.
//! * [`Group`] counts several events together, read by one system call or, in the counting thread,
//!   without any ([`Group::read_user`]).
//! * [`Rings`] samples a program, its threads and its children, with their stacks.
//! * [`Sampler`] fills a ring with samples and reads it; [`decode`] turns samples, IBS and PEBS
//!   among them, into the event records of AMD's LWP.
//! * What cannot be had is an [`Unavailable`]: a cause that names the knob or the missing machine,
//!   and what to do about it. No failure turns into a zero.
//!
//! Everything goes through the trait [`Kernel`], which is the running kernel ([`Linux`]) or a
//! script ([`kernel::script`]): a machine without a PMU can test what a machine with one does.
//!
//! Sources cited: `perf_event_open(2)` is the manual page, `perf_event.h` the kernel's user
//! interface header, `sysfs` the kernel's
//! `Documentation/ABI/testing/sysfs-bus-event_source-devices-*`, `PPR` AMD's Processor Programming
//! Reference for Family 19h, section IBS.

pub mod attr;
pub mod catalog;
pub mod decode;
pub mod diagnosis;
pub mod event;
pub mod group;
pub mod kernel;
mod mmap;
mod names;
pub mod page;
pub mod pmu;
pub mod ring;
pub mod rings;
pub mod sample;
pub mod sampler;
mod sys;
pub mod trap;

pub use attr::{Attr, Modes};
pub use catalog::{Catalog, EventError};
pub use diagnosis::{Cause, Unavailable};
pub use event::Event;
pub use group::{Group, Inherit, Options, ReadError, Reading, Request, Target};
pub use kernel::{Kernel, Linux};
pub use ring::{Ring, RingError};
pub use rings::Rings;
pub use sample::{Record, Sample, SampleFormat};
pub use sampler::{Sampler, SamplerOptions};
pub use trap::Trap;

/// A system call's error number.
pub use rustix::io::Errno;
