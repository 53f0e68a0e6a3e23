//! The memory that the virtual CPU shares with the threads it runs: where everything lies, each
//! thread's context with its counters, the requests that translated code writes there, and the
//! doors at which threads ring.
//!
//! The program can write to all of it. What is read here is believed only as far as it can do no
//! harm.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests open what they have made"))]

pub mod contexts;
pub mod exit;
pub mod huge_table;
pub mod memory_map;
mod spin_policy;

pub use spin_policy::SpinPolicy;
