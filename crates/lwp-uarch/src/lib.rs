//! Models of the microarchitecture: data cache, branch predictor, clocks.
//!
//! Instructions and branches are facts of a run; cache misses, mispredictions and cycles are not,
//! unless a processor counts them. Where none does, this crate says what a stated, simple machine
//! would have done. The same program with the same input gives the same numbers everywhere. They
//! are **modelled**: whoever shows them must say so.
//!
//! [`Model`] takes what an instruction did ([`Step`]) and returns what a Lightweight Profiling unit
//! wants to hear ([`lwp_arch::Retired`]). Its parts can be used alone: [`Hierarchy`] answers loads
//! and stores, [`Predictor`] judges branches, [`CoreClock`] adds up time. [`presets`] has the
//! numbers, one row per machine, each with its source.
//!
//! ```
//! use lwp_arch::retired::AccessKind;
//! use lwp_arch::{AppPc, LinearAddr};
//! use lwp_uarch::{Model, Operand, Step, presets};
//!
//! let mut model = Model::new(&presets::ZEN4);
//! let load = Operand { kind: AccessKind::Load, address: LinearAddr(0x7000), bytes: 8 };
//! let step = Step { operands: &[load], ..Step::plain(AppPc(0x1000), AppPc(0x1004)) };
//! assert_eq!(model.retire(&step).accesses[0].miss.map(|miss| miss.latency_cycles), Some(320));
//! assert_eq!(model.retire(&step).accesses[0].miss, None, "the line is there now");
//! ```
//!
//! # What is not modelled
//!
//! Hardware prefetching, TLBs, store buffers, other cores, memory-mapped devices, instruction
//! fetch, dependencies between instructions. See DEV-34 to DEV-36 in `docs/deviations.md`.

#![forbid(unsafe_code)]

mod branch;
mod cache;
mod caches;
mod clock;
mod latency;
mod model;
pub mod presets;

pub use branch::{Predictor, PredictorShape};
pub use cache::{Cache, CacheShape};
pub use caches::{Caches, CachesError};
pub use clock::{ClockRates, CoreClock, ReferenceClock};
pub use latency::{Hierarchy, Level, Memory};
pub use model::{Model, Operand, Step};
pub use presets::Preset;
