//! `errno` at the border.

use std::ffi::c_int;

use cpc::Error;

fn number() -> *mut c_int {
    // SAFETY: always valid in the calling thread.
    unsafe { libc::__errno_location() }
}

/// `errno` now.
pub(crate) fn get() -> c_int {
    // SAFETY: see `number`.
    unsafe { *number() }
}

/// Sets `errno`.
pub(crate) fn set(value: c_int) {
    // SAFETY: see `number`.
    unsafe { *number() = value }
}

/// The value that a call of the interface returns when it fails.
pub(crate) trait Failure {
    /// -1, or NULL.
    const FAILURE: Self;
}

impl Failure for c_int {
    const FAILURE: Self = -1;
}

impl<T> Failure for *mut T {
    const FAILURE: Self = std::ptr::null_mut();
}

impl Failure for () {
    const FAILURE: Self = ();
}

/// Does `call`. If it fails `errno` says why; if not it is what it was.
pub(crate) fn reported<T: Failure>(call: impl FnOnce() -> Result<T, Error>) -> T {
    let before = get();
    let (result, errno) = match call() {
        Ok(result) => (result, before),
        Err(error) => (T::FAILURE, error.errno()),
    };
    set(errno);
    result
}

/// EINVAL.
pub(crate) const fn invalid(reason: &'static str) -> Error {
    cpc::c::error(libc::EINVAL, reason)
}
