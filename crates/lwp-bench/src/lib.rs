//! Benchmarks measured in instructions.
//!
//! A benchmark runs under `lwp`, which counts exactly: the same program with the same input gets
//! the same count in every run. You need no warm-up, no quiet machine and no statistics; a single
//! run shows a change of one instruction.
//!
//! ```no_run
//! fn sorting(bench: &mut lwp_bench::Bench) {
//!     bench.run("sum", || (0..1000u64).sum::<u64>());
//!     let reversed = |n| (0..n).rev().collect::<Vec<u64>>();
//!     bench.run_for_inputs("sort", [10, 1000], reversed, |mut numbers| {
//!         numbers.sort();
//!         numbers
//!     });
//! }
//!
//! lwp_bench::main!(sorting);
//! ```
//!
//! Declare it to cargo as a benchmark with `harness = false`, and run it with `cargo lwp bench`:
//!
//! ```toml
//! [[bench]]
//! name = "sorting"
//! harness = false
//! ```
//!
//! If you run it natively, for example with `cargo bench`, it executes every benchmark and prints
//! that nothing is counted.
//!
//! The feature `criterion` adds `criterion()`, which measures criterion's benchmarks in
//! instructions.
#![forbid(unsafe_code)]
#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod bench;
mod counter;
#[cfg(feature = "criterion")]
mod measurement;
mod options;
mod results;

pub use bench::Bench;
#[cfg(feature = "criterion")]
pub use measurement::{Instructions, criterion};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;

/// Defines the program's main function, which runs benchmark functions of type `fn(&mut Bench)`.
#[macro_export]
macro_rules! main {
    ($($function:path),+ $(,)?) => {
        fn main() -> ::std::process::ExitCode {
            let mut bench = $crate::Bench::from_args();
            $( $function(&mut bench); )+
            bench.finish()
        }
    };
}
