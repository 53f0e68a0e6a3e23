//! The oracle: an unmodified program on the real processor, stepped one instruction at a time, with
//! the reference LWP unit of `lwp-model` beside it.
//!
//! ```text
//!   program ──PTRACE_SINGLESTEP──▶ runner ──Retired──▶ LwpUnit ──records──▶ the program's own ring
//!      ▲                              │
//!      └── registers, faults, signals ┘    LLWPCB, SLWPCB, LWPINS, LWPVAL, CPUID: carried out here
//! ```
//!
//! It shares no code with the translator, and is slow and plain where that is fast and clever. The
//! two must leave the same bytes in the program's memory.
//!
//! # What it does
//!
//! Every thread has a unit of its own, off when it starts: threads, fork and exec inherit nothing
//! (DEV-39). Before each step the instruction is decoded; afterwards it is reported to the unit. A
//! record that meets a page fault undoes the instruction and raises SIGSEGV at it (DEV-37). The
//! threshold interrupt arrives as a signal, before the next instruction, if the program has a
//! handler for it. A handler sees LWP as it is. The models of caches and clocks run while LWP is on
//! and start cold whenever a block is loaded.
//!
//! # What it does not
//!
//! Code in segments of modify_ldt, which it takes for 32-bit code; the page-fault error code in a signal frame; a record's fault while SIGSEGV is
//! blocked, which ends the program.

#![forbid(unsafe_code)]

mod cpuid;
mod decode;
mod fault;
mod hardware;
mod lwp_insn;
mod memory;
mod observer;
mod options;
mod runner;
mod snapshot;
mod state;
mod thread;

pub use decode::Decoded;
pub use hardware::{Hardware, Interrupt};
pub use observer::{Observer, Task};
pub use options::Options;
pub use runner::{End, Failure, Launch, run, run_observed};
