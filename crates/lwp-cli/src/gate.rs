//! Parts of `lwp gate`: rules, recordings with their baselines, and judgement.

mod config;
pub mod counted;
mod given;
pub mod judge;
pub mod recordings;
pub mod rules;
