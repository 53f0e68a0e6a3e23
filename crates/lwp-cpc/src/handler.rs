//! Telling the program's error handler.

use std::ffi::{CString, c_char, c_int, c_void};
use std::io::Write;
use std::ptr;

use cpc::Error;
use cpc::c::{self, Function};

use crate::errno::{self, reported};
use crate::object::get;
use crate::open::{CpcHandle, CpcT, text};

/// The element of a `va_list`.
///
/// Spec: System V ABI, AMD64 supplement, §3.5.7.
#[repr(C)]
pub struct VaList {
    gp_offset: u32,
    fp_offset: u32,
    overflow_arg_area: *mut c_void,
    reg_save_area: *mut c_void,
}

/// A `cpc_errhndlr_t *`. An array as parameter, which a `va_list` is, is a pointer to its element.
pub type Handler = extern "C" fn(*const c_char, c_int, *const c_char, *mut VaList);

/// `cpc_seterrhndlr(3CPC)`: NULL brings back the default. Returns 0.
///
/// # Safety
///
/// `cpc` is a handle this library has returned, and `handler` a function of the documented type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_seterrhndlr(cpc: *mut CpcT, handler: Option<Handler>) -> c_int {
    reported(|| {
        // SAFETY: the caller's promise.
        unsafe { get(cpc)? }.set_handler(handler);
        Ok(0)
    })
}

/// Tells the handler of `handle` about `error` of `function`, if it has a subcode. `errno` stays.
pub(crate) fn tell(handle: &CpcHandle, function: Function, error: &Error) {
    let Some(subcode) = c::subcode(error) else {
        return;
    };
    let errno = errno::get();
    match handle.handler() {
        None => {
            let line = format!("libcpc: {}: {}\n", function.name(), error.reason());
            // There is nowhere to report that standard error cannot be written to.
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
        Some(handler) => call(handler, &text(function.name()), subcode as c_int, error.reason()),
    }
    errno::set(errno);
}

/// Calls `handler` with a message that is a format without conversions, and no arguments.
fn call(handler: Handler, function: &CString, subcode: c_int, message: &str) {
    let format = text(&format!("{}\n", message.replace('%', "%%")));
    // Every register is used up and the stack holds nothing: an empty list.
    let mut none = VaList {
        gp_offset: 48,
        fp_offset: 176,
        overflow_arg_area: ptr::null_mut(),
        reg_save_area: ptr::null_mut(),
    };
    handler(function.as_ptr(), subcode, format.as_ptr(), &raw mut none);
}
