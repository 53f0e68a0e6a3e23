//! The integration tests of this package, in one program: they are linked once.

mod asm;
mod asm_random;
mod cachegrind;
mod core_dumps;
mod counts;
mod hostile;
mod limits;
mod narrow;
mod programs;
mod real;
mod self_profiling;
mod unprivileged;
mod wine;
