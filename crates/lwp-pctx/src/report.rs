//! Telling the client's error function.

use std::ffi::{CStr, CString, c_char, c_void};
use std::io::Write;
use std::ptr;

/// The element of a `va_list`.
///
/// Spec: System V ABI, AMD64 supplement, §3.5.7.
#[repr(C)]
#[derive(Debug)]
pub struct VaList {
    gp_offset: u32,
    fp_offset: u32,
    overflow_arg_area: *mut c_void,
    reg_save_area: *mut c_void,
}

/// A `pctx_errfn_t *`. An array as parameter, which a `va_list` is, is a pointer to its element.
pub type ErrorFunction = extern "C" fn(*const c_char, *const c_char, *mut VaList);

/// The receiver of failures.
#[derive(Clone, Copy)]
pub(crate) struct Reporter {
    function: Option<ErrorFunction>,
    verbose: bool,
}

impl Reporter {
    pub(crate) fn new(function: Option<ErrorFunction>, verbose: bool) -> Self {
        Self { function, verbose }
    }

    /// Reports what went wrong in `pctx_` + `caller`.
    pub(crate) fn tell(self, caller: &'static CStr, message: &str) {
        let Some(function) = self.function else {
            let line = format!("libpctx: pctx_{}: {message}\n", caller.to_string_lossy());
            // There is nowhere to report that standard error cannot be written to.
            let _ = std::io::stderr().write_all(line.as_bytes());
            return;
        };
        let format = message.replace('%', "%%").replace('\0', " ");
        let format = CString::new(format + "\n").unwrap_or_default();
        // Every register is used up and the stack holds nothing: an empty list.
        let mut none = VaList {
            gp_offset: 48,
            fp_offset: 176,
            overflow_arg_area: ptr::null_mut(),
            reg_save_area: ptr::null_mut(),
        };
        function(caller.as_ptr(), format.as_ptr(), &raw mut none);
    }

    /// Tells the client `message` if it asked for more than failures.
    pub(crate) fn remark(self, caller: &'static CStr, message: &str) {
        if self.verbose {
            self.tell(caller, message);
        }
    }
}
