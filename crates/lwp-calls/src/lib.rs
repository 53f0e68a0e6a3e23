//! What the virtual CPU knows of Linux's system calls: which of them matter to it, what they read
//! and write and how long they wait; the limits on address space and data; and files of `/proc`
//! with the text that they would have natively.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests open what they have made"))]

pub mod limits;
pub mod proc_files;
pub mod syscalls;
pub mod user_dispatch;
