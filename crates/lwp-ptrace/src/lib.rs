//! Control of tracees: the only crate that calls ptrace.
//!
//! All unsafe code is in four files: [`sys`] (one function per system call), [`shm`] (memory shared
//! with the tracees), [`child`] (a process that becomes a program) and [`userfault`] (notice of
//! writes). Everything else is built on them.

pub mod absent;
pub mod child;
pub mod handover;
pub mod limits;
pub mod mapped;
pub mod memory;
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
pub mod wards;

pub use regs::Regs;
pub use shm::{SharedFile, SharedMemory};
pub use stop::Stop;
pub use sys::Errno;
pub use tracee::{Tid, Tracee};
pub use tracees::{Ptrace, Tracees};
pub use vectors::Vectors;
