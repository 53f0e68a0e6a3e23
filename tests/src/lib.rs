//! Runs the same program natively and on the virtual CPU and compares what can be seen from
//! outside.
//!
//! ```text
//! programs/GROUP/NAME.c --compile--> executable --run--> Outcome (native)
//!                                        |                  | compare
//!                                        +-----lwp run----> Outcome
//!                                        +-----lwp stat---> Outcome
//! ```
//!
//! A program states its own build flags and expectations in `//@` lines at its head (see
//! [`Directives`]), checks itself, and prints which check failed. The native run is judged first: a
//! program that fails natively proves nothing about the virtual CPU.
//!
//! | variable | meaning |
//! | --- | --- |
//! | `LWP_BIN` | the `lwp` to test; else the newest one in this target directory; else it is built |
//! | `LWP_TEST_MODES` | `all`, or a comma-separated list of [`Mode`] names; by default each program takes a third of its modes |
//! | `LWP_TEST_TURN` | a number: which third; default 0 |
//! | `LWP_TEST_REPEAT` | how often each mode runs; default 1 |
//! | `LWP_TEST_SHOW` | if set, the native output of real programs is shown (with `--nocapture`) |
//! | `LWP_TEST_TIMEOUT` | factor on every time limit; default 1 |
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "tests say what they skip, and why")]

pub mod asm;
pub mod asm_random;
mod compare;
mod compile;
mod directives;
mod lwp;
mod run;

pub use compare::{Comparison, Normalize, check_program, differences, without_notes};
pub use compile::{Executable, compile, compile_tool, find_tool, programs_dir, source_files};
pub use directives::{Compare, Directives, Variant};
pub use lwp::{Mode, lwp_binary, modes, repeat, translations};
pub use run::{End, Job, Outcome, TempDir, kernel_executes};
