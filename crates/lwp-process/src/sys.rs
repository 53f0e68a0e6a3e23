//! One function per system call that std has no safe form of.
//!
//! # Safety
//!
//! JUSTIFICATION: ptrace, wait, process_vm and futex have no safe interface in std, and the crates
//! that offer one do not cover seizing, listening and the general registers' gs base. Every
//! function here passes pointers only to buffers that it owns or borrows for the duration of the
//! call, with their true lengths; numbers are passed by value. A tracee is another process:
//! whatever is done to it cannot break this process's memory safety.
#![allow(unsafe_code, reason = "the system call boundary; see the module's safety section")]

mod credentials;
mod files;
mod host;
mod inherited;
mod memory;
mod processes;
mod requests;
mod sleeping;
mod waiting;

pub use credentials::*;
pub use files::*;
pub use host::*;
pub use inherited::*;
pub use memory::*;
pub use processes::*;
pub use requests::*;
pub use sleeping::*;
pub use waiting::*;

/// A system call's error number.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

impl std::fmt::Debug for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

impl std::fmt::Display for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = std::io::Error::from_raw_os_error(self.0).to_string();
        // Without Rust's "(os error 1)".
        f.write_str(text.split(" (os error").next().unwrap_or(&text))
    }
}

impl std::error::Error for Errno {}

impl Errno {
    /// No such process.
    pub const ESRCH: Self = Self(libc::ESRCH);
    /// Out of memory.
    pub const ENOMEM: Self = Self(libc::ENOMEM);

    /// The calling thread's last error.
    pub fn last() -> Self {
        Self(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }
}

/// Result of a system call.
pub type Result<T> = std::result::Result<T, Errno>;

fn check(value: libc::c_long) -> Result<libc::c_long> {
    if value == -1 { Err(Errno::last()) } else { Ok(value) }
}
