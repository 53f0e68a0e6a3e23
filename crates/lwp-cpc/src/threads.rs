//! `pthread_create` that hands a bound set on (`CPC_BIND_LWP_INHERIT`).

use std::ffi::{c_int, c_void};
use std::mem;
use std::sync::OnceLock;

use cpc::Inheritance;

/// The function that a new thread runs.
type Start = extern "C" fn(*mut c_void) -> *mut c_void;
/// `pthread_create`.
type Create = unsafe extern "C" fn(
    *mut libc::pthread_t,
    *const libc::pthread_attr_t,
    Start,
    *mut c_void,
) -> c_int;

/// The work of a new thread.
struct Package {
    inheritance: Inheritance,
    start: Start,
    argument: *mut c_void,
}

/// The next library's `pthread_create`.
fn next() -> Option<Create> {
    static NEXT: OnceLock<Option<Create>> = OnceLock::new();
    *NEXT.get_or_init(|| {
        // SAFETY: the name is a string, and what it finds is the C library's function of this type.
        unsafe {
            let function = libc::dlsym(libc::RTLD_NEXT, c"pthread_create".as_ptr());
            (!function.is_null()).then(|| mem::transmute::<*mut c_void, Create>(function))
        }
    })
}

extern "C" fn begin(package: *mut c_void) -> *mut c_void {
    // SAFETY: `pthread_create` below made it for this thread.
    let package = *unsafe { Box::from_raw(package.cast::<Package>()) };
    // A thread whose copy cannot be bound runs all the same: its samples say EINVAL, as in a thread
    // that has inherited nothing.
    let _ = package.inheritance.bind();
    (package.start)(package.argument)
}

/// `pthread_create(3)`, in whose place programs linked with this library call it. A thread that has
/// bound a set with `CPC_BIND_LWP_INHERIT` hands a copy on; nothing else changes.
///
/// # Safety
///
/// That of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attr: *const libc::pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    let Some(create) = next() else {
        return libc::EAGAIN;
    };
    let Some(inheritance) = cpc::inherit() else {
        // SAFETY: the caller's promise.
        return unsafe { create(thread, attr, start, argument) };
    };
    let package = Box::into_raw(Box::new(Package { inheritance, start, argument }));
    // SAFETY: the caller's promise; the package is the new thread's.
    let result = unsafe { create(thread, attr, begin, package.cast()) };
    if result != 0 {
        // SAFETY: there is no thread that would take it.
        drop(unsafe { Box::from_raw(package) });
    }
    result
}
