//! Benchmarks measured in instructions.
//!
//! A benchmark runs under `lwp`, which counts what it executes exactly: the same program, reading
//! the same, counts the same in every run. A count needs no warm-up, no quiet machine and no
//! statistics; one run tells a change of one instruction.
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
//! It is a benchmark of cargo's, with `harness = false`, and is run by `cargo lwp bench`:
//!
//! ```toml
//! [[bench]]
//! name = "sorting"
//! harness = false
//! ```
//!
//! Run natively, as by `cargo bench`, it executes every benchmark once and says that nothing is
//! counted.
//!
//! The feature `criterion` adds `criterion()`, which measures criterion's benchmarks in
//! instructions.
#![forbid(unsafe_code)]

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

/// Runs benchmark functions, `fn(&mut Bench)` each, as the program's main function.
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
