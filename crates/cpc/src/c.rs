//! The C interface's numbers, bit masks and functions, for `libcpc.so.1` (the crate `lwp-cpc`).
//! Rust programs have better forms of them.

use std::cell::Cell;

use crate::error::{Error, Result};
use crate::handle::Cpc;
use crate::records::{Records, SpecialItem};
use crate::request::BindFlags;
use crate::set::Set;

pub use crate::error::{Function, Subcode};
pub use crate::handle::Version;
pub use crate::sys::EMT_CPCOVF;
pub use crate::thread::{enable, request_preset};

/// Makes an error without a subcode.
#[must_use]
pub const fn error(errno: i32, reason: &'static str) -> Error {
    Error::new(errno, reason)
}

/// Makes an error with a subcode, from which its `errno` follows.
#[must_use]
pub fn coded_error(subcode: Subcode, reason: &'static str) -> Error {
    Error::coded(subcode, reason)
}

/// The code that `libcpc` passes to an error handler, if `error` is reported to one.
#[must_use]
pub const fn subcode(error: &Error) -> Option<Subcode> {
    error.subcode()
}

/// The special item with this number in the C interface (`SMPL_REC_ITEM_PC` and so on).
#[must_use]
pub const fn special_item(number: i32) -> Option<SpecialItem> {
    SpecialItem::from_number(number)
}

/// The items of record `index` where the buffer stores them, for a pointer to them
/// (`cpc_buf_smpl_get_record`).
///
/// # Errors
///
/// EINVAL if there is no such record.
pub fn record_words(records: &Records, index: usize) -> Result<&[Cell<u64>]> {
    records.words(index).ok_or(Error::invalid("the buffer has no such record"))
}

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
/// EINVAL for any flag; else as [`Set::bind_tid`].
pub fn bind_lwp(set: &Set, tid: i32, flags: u32) -> Result<()> {
    set.bind_tid_with(tid, BindFlags::from_bits_retain(flags))
}

/// Binds `set` to a processor (`cpc_bind_cpu`). There are no flags yet.
///
/// # Errors
///
/// EINVAL for any flag; else as [`Set::bind_cpu`].
pub fn bind_cpu(set: &Set, id: i32, flags: u32) -> Result<()> {
    set.bind_cpu_with(id, BindFlags::from_bits_retain(flags))
}
