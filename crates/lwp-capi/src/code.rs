//! Names for generated code.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::failure::{Failure, reported};

/// Makes generated code known to profilers by a name.
///
/// # Safety
///
/// `name` is NULL or a string that ends with NUL. `address` is not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lwp_register_code(
    address: *const c_void,
    length: usize,
    name: *const c_char,
) -> c_int {
    reported(|| {
        let start = address.addr();
        if start == 0 || name.is_null() {
            return Err(Failure::Call(libc::EINVAL, "no code, or no name"));
        }
        let end = start.checked_add(length);
        let end = end.ok_or(Failure::Call(libc::EINVAL, "code beyond the address space"))?;
        // SAFETY: the caller's promise.
        let name = unsafe { CStr::from_ptr(name) };
        lwp::register_code(start..end, name.to_bytes())?;
        Ok(0)
    })
}
