//! The integration tests of this package, in one program: they are linked once.

mod attach;
mod beginnings;
mod benches;
mod both;
mod boundaries;
mod builds;
mod c_library;
mod cache;
mod calls;
mod cargo;
mod chosen;
mod command_line;
mod compiler_profiles;
mod containers;
mod contexts;
mod escapes;
mod facts;
mod first_steps;
mod front;
mod gate;
mod generated;
mod harnesses;
mod interpreters;
mod kept_samples;
mod languages;
mod loops;
mod marked;
mod merge;
mod model;
mod names;
mod off_cpu;
mod optimize;
mod options;
mod outputs;
mod packaging;
mod perf;
mod profile;
mod sampled;
mod self_profiling;
mod serve;
mod stat;
mod timed;
mod timed_by_stops;
mod timed_languages;
mod top;
mod unnamed;
mod unnoticed;
mod valgrind;
mod viewers;
mod walk;

/// What several of them use.
mod shared {
    pub mod callgrind;
    pub mod recorded;
    pub mod running;
    pub mod stacks;
    pub mod tools;
}
