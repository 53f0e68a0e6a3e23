//! What `lwp gate` is made of: rules, recordings with their baselines, and judgement.

pub mod judge;
pub mod recordings;
pub mod rules;
