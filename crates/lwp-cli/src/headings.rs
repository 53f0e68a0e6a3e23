//! Headings of options in help texts. Options without a heading are those of every day.

/// The part of a program's execution that is counted.
pub const SCOPE: &str = "Scope";
/// Samples and their stacks.
pub const SAMPLES: &str = "Samples";
/// Sources of names.
pub const NAMES: &str = "Names";
/// Surroundings of the program, and the cache.
pub const RUN: &str = "Run";
/// The processor that the program sees, with caches and predictors that are models.
pub const HARDWARE: &str = "Emulated hardware";
