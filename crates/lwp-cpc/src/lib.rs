//! `libcpc.so.1`: the C interface of Solaris' libcpc, on Linux.
//!
//! The library is the crate `cpc` behind C functions; everything that counts is there. This crate
//! checks pointers, sets `errno`, and tells error handlers. `include/libcpc.h` declares the
//! interface, the manual pages in `man/` describe it, and `abi/` says which symbol has which
//! version.
//!
//! # Pointers
//!
//! An object keeps its memory when it is destroyed and gives it to a later object of its kind, so a
//! destroyed object can be told from a live one: calls with one fail with EINVAL, as do calls with
//! NULL and with an object of another kind. Destroying does not even look: it searches the handle's
//! own list, as the original does, so that any pointer may be given.
//!
//! An object must not be destroyed while a call in another thread uses it. Nothing here finds that
//! out: a lock or a count of users at every sample would cost all programs what correct ones do not
//! need, and would make a handler of a signal wait for the code that it has interrupted.
//!
//! # With libpctx
//!
//! `cpc_bind_pctx` asks libpctx, if the program has it, for three functions by name:
//!
//! * `pid_t __pctx_cpc_tid(pctx_t *, id_t)`: the kernel's number of an LWP; -1 and `errno` (ESRCH)
//!   if there is no such LWP.
//! * `void __pctx_cpc_watch(pctx_t *, int, void (*)(void))`: has `pctx_run` wait for a descriptor
//!   too and call a function when it may be readable. It is that by which a controlled program asks
//!   for `cpc_enable` and `cpc_disable`.
//! * `void pctx_terminate(pctx_t *)`: ends `pctx_run`; `cpc_terminate` calls it for every process a
//!   set of the handle has been bound to.

mod bind;
mod buf;
mod errno;
mod handler;
mod hrtime;
mod object;
mod open;
mod pctx;
mod set;
mod smpl;
mod symbols;
mod threads;
mod walk;
