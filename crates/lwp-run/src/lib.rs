//! What a run of the virtual CPU takes and what it tells: its configuration, the requests to it
//! while it goes on, its outcome, and the receiver of what was executed.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests open what they have made"))]

pub mod addition;
mod caches;
pub mod config;
pub mod outcome;
pub mod sampled_code;
pub mod sink;

pub use addition::Addition;
pub use config::{
    Cache, Config, Control, CountedConfig, CpuModel, Interrupt, KeptConfig, LwpConfig, Markers,
    Plan, ProgramConfig, ReportConfig, Request, Sampled, Sampling, SamplingConfig, Target, Warm,
    can_watch_caches,
};
pub use outcome::{Alone, Counts, Error, ExitStatus, Outcome, ProcessReport, ThreadReport};
pub use sampled_code::{CodePlace, SampledCode};
