//! The C interface's numbers, bit masks and functions, for `libcpc.so.1` (the crate `lwp-cpc`).
//! Rust programs have better forms of them.

use crate::error::Result;
use crate::handle::Cpc;
use crate::request::BindFlags;
use crate::set::Set;

pub use crate::error::{Function, Subcode};
pub use crate::handle::Version;
pub use crate::sys::EMT_CPCOVF;
pub use crate::thread::{enable, request_preset};

/// Opens a handle for a client of this interface version (`cpc_open`).
///
/// # Errors
///
/// As [`Cpc::open`].
pub fn open(version: Version) -> Result<Cpc> {
    Cpc::open_version(version)
}

/// Binds `set` to the calling thread (`cpc_bind_curlwp`). Rejects unknown flags.
///
/// # Errors
///
/// EINVAL for unknown flags; else as [`Set::bind_thread`].
pub fn bind_curlwp(set: &Set, flags: u32) -> Result<()> {
    set.bind_thread(BindFlags::from_bits_retain(flags))
}

/// Binds `set` to the thread with this kernel number (`cpc_bind_pctx`). There are no flags yet.
///
/// # Errors
///
/// EINVAL for any flag; else as [`Set::bind_lwp`].
pub fn bind_lwp(set: &Set, tid: i32, flags: u32) -> Result<()> {
    set.bind_lwp_with(tid, BindFlags::from_bits_retain(flags))
}

/// Binds `set` to a processor (`cpc_bind_cpu`). There are no flags yet.
///
/// # Errors
///
/// EINVAL for any flag; else as [`Set::bind_cpu`].
pub fn bind_cpu(set: &Set, id: i32, flags: u32) -> Result<()> {
    set.bind_cpu_with(id, BindFlags::from_bits_retain(flags))
}
