//! Parts of `lwp gate`: rules, recordings with their baselines, and judgement.

mod given;
pub mod judge;
pub mod recordings;
pub mod rules;
