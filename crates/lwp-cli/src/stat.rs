//! The parts of `lwp stat`: what is asked for, what was measured, and how it is written down.

pub mod control;
pub mod csv;
pub mod events;
pub mod intervals;
pub mod json;
pub mod modelled;
pub mod number;
pub mod perf_names;
pub mod report;
pub mod spread;
pub mod text;
