//! A process, seen and controlled from outside: its stops, registers and memory, its mappings and
//! the files behind them, and system calls made in it. The only crate that calls ptrace.
//!
//! All unsafe code is in four files: [`sys`] (one function per system call), [`shm`] (memory shared
//! with the tracees), [`child`] (a process that becomes a program) and [`userfault`] (notice of
//! writes). Everything else is built on them.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests open what they have made"))]

pub mod auxiliary;
pub mod child;
pub mod descriptors;
pub mod elf;
pub mod fd_passing;
pub mod first_stack;
pub mod inject;
pub mod kernel_files;
pub mod limits;
pub mod mapped;
pub mod mapped_file;
pub mod maps;
pub mod memory;
pub mod missing_pages;
pub mod nested_ptrace;
pub mod owner;
pub mod pagemap;
pub mod program_files;
pub mod regs;
pub mod shm;
pub mod spawn;
pub mod stop;
pub mod sys;
pub mod tracee;
pub mod tracee_files;
pub mod tracees;
pub mod userfault;
pub mod vectors;
pub mod view;

pub use regs::Regs;
pub use shm::{SharedFile, SharedMemory};
pub use stop::Stop;
pub use sys::Errno;
pub use tracee::{Tid, Tracee};
pub use tracees::{Ptrace, Tracees};
pub use vectors::Vectors;
