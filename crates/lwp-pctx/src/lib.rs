//! `libpctx.so.1`: the C interface of Solaris' libpctx, on Linux.
//!
//! The library is the crate `pctx` behind C functions. This crate checks pointers, sets `errno`,
//! calls C handlers and tells error functions. `include/libpctx.h` declares the interface, the
//! manual pages in `man/` describe it, and `abi/` says which symbol has which version.
//!
//! # Safety
//!
//! JUSTIFICATION: a C interface takes pointers. What each function asks of its caller is what the
//! manual page says: pointers come from this library, strings end with NUL, handlers have the
//! declared type. The memory of a `pctx_t` is never given back, so that `pctx_terminate`, which a
//! signal handler may call late, can tell a released one.
//!
//! # With libcpc
//!
//! libcpc looks two functions up by name. `pid_t __pctx_cpc_tid(pctx_t *, id_t)` gives the kernel's
//! number of an LWP, -1 and ESRCH if there is none.
//! `void __pctx_cpc_watch(pctx_t *, int, void (*)(void))` has `pctx_run` wait for a descriptor too,
//! and call the function when it may be readable.

mod events;
mod object;
mod report;
mod run;

use std::arch::global_asm;
use std::ffi::{CStr, OsStr, OsString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::ptr;

use pctx::{LwpId, Pctx};

use object::{Context, PctxT, Watch, get};
use report::{ErrorFunction, Reporter};

global_asm!(
    ".symver pctx_create, pctx_create@@SUNW_1.1",
    ".symver pctx_capture, pctx_capture@@SUNW_1.1",
    ".symver pctx_set_events, pctx_set_events@@SUNW_1.1",
    ".symver pctx_run, pctx_run@@SUNW_1.1",
    ".symver pctx_release, pctx_release@@SUNW_1.1",
    ".symver pctx_terminate, pctx_terminate@@SUNWprivate_1.1",
    ".symver __pctx_cpc_tid, __pctx_cpc_tid@@SUNWprivate_1.1",
    ".symver __pctx_cpc_watch, __pctx_cpc_watch@@SUNWprivate_1.1",
);

/// Sets `errno`.
fn set_errno(errno: c_int) {
    // SAFETY: the C library's own variable of this thread.
    unsafe { *libc::__errno_location() = errno };
}

/// Makes an object of `made`, or reports why there is none.
fn handed_out(
    made: Result<Pctx, pctx::Error>,
    function: &'static CStr,
    arg: *mut c_void,
    reporter: Reporter,
) -> *mut PctxT {
    match made {
        Ok(pctx) => PctxT::create(Context::new(pctx, arg, reporter)),
        Err(error) => {
            reporter.tell(function, &error.to_string());
            set_errno(error.errno());
            ptr::null_mut()
        }
    }
}

/// `pctx_create(3CPC)`.
///
/// # Safety
///
/// `filename` is a string, `argv` a list of strings that ends with NULL, `errfn` NULL or a function
/// of the documented type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pctx_create(
    filename: *const c_char,
    argv: *const *const c_char,
    arg: *mut c_void,
    verbose: c_int,
    errfn: Option<ErrorFunction>,
) -> *mut PctxT {
    let reporter = Reporter::new(errfn, verbose != 0);
    if filename.is_null() || argv.is_null() {
        reporter.tell(c"create", "no program");
        set_errno(libc::EINVAL);
        return ptr::null_mut();
    }
    // SAFETY: the caller's promise.
    let (program, argv) = unsafe { (text(filename), words(argv)) };
    handed_out(Pctx::create(program, &argv), c"create", arg, reporter)
}

/// # Safety
///
/// `string` is a string that lives for `'a`.
unsafe fn text<'a>(string: *const c_char) -> &'a OsStr {
    // SAFETY: the caller's promise.
    OsStr::from_bytes(unsafe { CStr::from_ptr(string) }.to_bytes())
}

/// # Safety
///
/// `list` is a list of strings that ends with NULL.
unsafe fn words(mut list: *const *const c_char) -> Vec<OsString> {
    let mut words = Vec::new();
    // SAFETY: the caller's promise; the list is not read past its NULL.
    unsafe {
        while !(*list).is_null() {
            words.push(text(*list).to_owned());
            list = list.add(1);
        }
    }
    words
}

/// `pctx_capture(3CPC)`.
///
/// # Safety
///
/// `errfn` is NULL or a function of the documented type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pctx_capture(
    pid: libc::pid_t,
    arg: *mut c_void,
    verbose: c_int,
    errfn: Option<ErrorFunction>,
) -> *mut PctxT {
    let reporter = Reporter::new(errfn, verbose != 0);
    handed_out(Pctx::capture(pid), c"capture", arg, reporter)
}

/// `pctx_release(3CPC)`. NULL and a released object are ignored, and what another thread has made
/// is left to it: the process goes free when that thread ends.
///
/// # Safety
///
/// `pctx` is NULL or an object of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pctx_release(pctx: *mut PctxT) {
    // SAFETY: the caller's promise.
    let Some(context) = (unsafe { get(pctx) }) else { return };
    if !context.pctx().is_ours() {
        let error = pctx::Error::OtherThread(context.pctx().pid());
        context.reporter().tell(c"release", &error.to_string());
        return;
    }
    if context.is_running() {
        // By a handler. The run ends, and releases it then.
        context.release_after_run();
        return;
    }
    // SAFETY: the caller's promise.
    drop(unsafe { PctxT::destroy(pctx) });
}

/// Makes `pctx_run` return. Async-signal-safe.
///
/// # Safety
///
/// `pctx` is NULL or an object of this library, released or not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pctx_terminate(pctx: *mut PctxT) {
    // SAFETY: the caller's promise.
    if let Some(context) = unsafe { get(pctx) } {
        context.terminate();
    }
}

/// The kernel's number of LWP `lwp`.
///
/// # Safety
///
/// `pctx` is NULL or an object of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __pctx_cpc_tid(pctx: *mut PctxT, lwp: c_int) -> libc::pid_t {
    // SAFETY: the caller's promise.
    let tid = unsafe { get(pctx) }.and_then(|context| context.pctx().tid(LwpId::new(lwp)));
    tid.unwrap_or_else(|| {
        set_errno(libc::ESRCH);
        -1
    })
}

/// Has `pctx_run` wait for `descriptor` too, and call `attend` whenever it may be readable; with
/// NULL, not any more.
///
/// # Safety
///
/// `pctx` is NULL or an object of this library; the descriptor stays open as long as the object
/// lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __pctx_cpc_watch(
    pctx: *mut PctxT,
    descriptor: c_int,
    attend: Option<unsafe extern "C" fn()>,
) {
    // SAFETY: the caller's promise.
    if let Some(context) = unsafe { get(pctx) } {
        context.set_watch(attend.map(|attend| Watch { descriptor, attend }));
    }
}
