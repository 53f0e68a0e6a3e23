//! Every parser of bytes that somebody else can have written, each as a function that takes any
//! bytes.
//!
//! A target must return, soon, without a panic and without much memory; beyond that it checks what
//! it can about the result. cargo-fuzz runs them from `fuzz/`; [`drive()`] runs them with any
//! toolchain, on a stored corpus and on mutations of it that a seed decides.
#![forbid(unsafe_code)]

mod cache;
mod drive;
mod mailbox;
mod mutate;
mod names;
mod recording;
mod settings;

// What the translator's own tests translate with.
#[path = "../../lwp-dbt/tests/it/common.rs"]
mod bench;

// Parts of the command, which is no library.
#[path = "../../lwp-cli/src/gate/config.rs"]
mod config;
#[path = "../../lwp-cli/src/stat/control/line.rs"]
mod control_line;
#[path = "../../lwp-cli/src/gate/rules.rs"]
#[allow(dead_code, reason = "the gate asks more of its limits than whether they can be read")]
mod rules;

pub use cache::good_image;
pub use drive::{Target, drive};
pub use mutate::Mutations;

/// Every target.
#[rustfmt::skip] // A table: one target a line. Name, what it parses, its function.
pub const TARGETS: &[Target] = &[
    Target { name: "image",     body: cache::image },          // a kept translation, behind its hashes
    Target { name: "store",     body: cache::store },          // a file of the store as it lies there
    Target { name: "archive",   body: cache::archive },        // kept translations from another machine
    Target { name: "recording", body: recording::recording },  // lwp.data, behind its checksums
    Target { name: "chunks",    body: recording::chunks },     // the same as it lies there
    Target { name: "elf",       body: names::elf },            // a program, its symbols and DWARF
    Target { name: "unwind",    body: names::unwind },         // a program's unwind tables
    Target { name: "perf_map",  body: names::perf_map },       // /tmp/perf-PID.map
    Target { name: "jitdump",   body: names::jitdump },        // jit-PID.dump
    Target { name: "control",   body: settings::control },     // lines of --control
    Target { name: "gate",      body: settings::gate },        // lwp.toml
    Target { name: "mailbox",   body: mailbox::mailbox },      // requests of a hostile thread, its context
];

/// The target called `name`.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
