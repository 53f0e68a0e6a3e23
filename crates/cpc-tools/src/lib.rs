//! The commands `cputrack` and `cpustat`, after those of Solaris.
//!
//! `cputrack` counts the events of one program's threads, `cpustat` those of whole processors. Both
//! are clients of the library `cpc`; `cputrack --lwp` counts on the virtual CPU instead, which
//! needs no hardware.
#![forbid(unsafe_code)]

pub mod failure;
pub mod listing;
pub mod output;
pub mod rows;
pub mod sets;
pub mod signals;
pub mod spec;
pub mod stat;
pub mod track;
