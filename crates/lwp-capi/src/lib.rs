//! `liblwp.so.1`: Lightweight Profiling for C programs.
//!
//! The library is the crate `lwp` behind C functions; what profiles is there. This crate checks
//! pointers and structures, keeps a session for a C handle, sets `errno`, and says in words why
//! something failed. `include/lwp.h` of the workspace declares and documents the interface, beside
//! the instructions and layouts that need no library; the manual pages are in `man/`, and `abi/`
//! says which symbol has which version.
//!
//! # Safety
//!
//! JUSTIFICATION: a C interface takes pointers. What each function asks of its caller is what the
//! header says: a session comes from this library and has not been closed, other pointers are NULL
//! or point to what their type says. What else C programs do to each other's threads is not
//! trusted: a session that runs elsewhere is neither stopped nor freed, one that is being used is
//! not used a second time, and the child of a fork finds no session.
//!
//! # What is not done on a profiled thread
//!
//! Between `lwp_start` and `lwp_stop` the functions for sessions neither allocate nor wait:
//! `lwp_open` has allocated everything, and threads exclude each other by refusing, never by
//! waiting.

mod code;
mod control;
mod failure;
mod functions;
mod options;
mod session;

use std::arch::global_asm;

global_asm!(
    ".symver lwp_available, lwp_available@@LWP_1.0",
    ".symver lwp_last_error, lwp_last_error@@LWP_1.0",
    ".symver lwp_open, lwp_open@@LWP_1.0",
    ".symver lwp_start, lwp_start@@LWP_1.0",
    ".symver lwp_stop, lwp_stop@@LWP_1.0",
    ".symver lwp_flush, lwp_flush@@LWP_1.0",
    ".symver lwp_read, lwp_read@@LWP_1.0",
    ".symver lwp_missed, lwp_missed@@LWP_1.0",
    ".symver lwp_capacity, lwp_capacity@@LWP_1.0",
    ".symver lwp_fd, lwp_fd@@LWP_1.0",
    ".symver lwp_attach, lwp_attach@@LWP_1.0",
    ".symver lwp_close, lwp_close@@LWP_1.0",
    ".symver lwp_register_code, lwp_register_code@@LWP_1.0",
);
