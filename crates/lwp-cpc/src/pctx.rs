//! Processes under the control of libpctx.

use std::ffi::{CStr, c_int, c_void};
use std::mem;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::SeqCst};

use cpc::{Error, SwitchRequests, c};

use crate::object::get;
use crate::open::CpcT;

/// A `pctx_t`, which only libpctx looks into.
pub type PctxT = c_void;

/// Processes a handle remembers for `cpc_terminate`.
const REMEMBERED: usize = 64;

/// The processes to which sets of a handle have been bound.
#[derive(Debug)]
pub(crate) struct Controlled {
    processes: [AtomicPtr<PctxT>; REMEMBERED],
    /// `pctx_terminate`, looked up where that may be done: not in a handler of signals.
    terminate: AtomicUsize,
}

impl Default for Controlled {
    fn default() -> Self {
        let processes = [const { AtomicPtr::new(ptr::null_mut()) }; REMEMBERED];
        Self { processes, terminate: AtomicUsize::new(0) }
    }
}

impl Controlled {
    /// Remembers a process. The oldest is forgotten if there are too many.
    pub(crate) fn add(&self, pctx: *mut PctxT) {
        self.terminate.store(symbol(c"pctx_terminate").addr(), SeqCst);
        if self.processes.iter().any(|process| process.load(SeqCst) == pctx) {
            return;
        }
        let mut moving = pctx;
        for process in &self.processes {
            moving = process.swap(moving, SeqCst);
            if moving.is_null() {
                break;
            }
        }
    }
}

/// The function of this name in the program's libraries; null without it.
fn symbol(name: &CStr) -> *mut c_void {
    // SAFETY: the name is a string.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// The kernel's number of LWP `id` of `pctx`.
///
/// # Errors
///
/// ESRCH if there is no such LWP, ENOTSUP without libpctx.
///
/// # Safety
///
/// `pctx` is an object of libpctx.
pub(crate) unsafe fn tid(pctx: *mut PctxT, id: c_int) -> Result<c_int, Error> {
    if pctx.is_null() {
        return Err(crate::errno::invalid("NULL in place of a process"));
    }
    let function = symbol(c"__pctx_cpc_tid");
    if function.is_null() {
        return Err(c::error(libc::ENOTSUP, "the program is not linked with libpctx"));
    }
    // SAFETY: libpctx documents the function with this type.
    let function: unsafe extern "C" fn(*mut PctxT, c_int) -> c_int =
        unsafe { mem::transmute(function) };
    // SAFETY: the caller's promise.
    match unsafe { function(pctx, id) } {
        tid if tid > 0 => Ok(tid),
        _ => Err(c::error(libc::ESRCH, "there is no such LWP")),
    }
}

/// Has the run of `pctx` listen to programs that switch the counters bound to their threads.
///
/// # Safety
///
/// `pctx` is an object of libpctx.
pub(crate) unsafe fn listen(pctx: *mut PctxT) {
    let function = symbol(c"__pctx_cpc_watch");
    // Where nothing can be listened to the programs are told that they have no counters.
    let Some(requests) = SwitchRequests::of_this_process().ok().filter(|_| !function.is_null())
    else {
        return;
    };
    // SAFETY: libpctx documents the function with this type.
    let function: unsafe extern "C" fn(*mut PctxT, c_int, Option<unsafe extern "C" fn()>) =
        unsafe { mem::transmute(function) };
    // SAFETY: the caller's promise; the process keeps the descriptor open, and a child of it that
    // runs an object of its own binds and comes here first.
    unsafe { function(pctx, requests.as_fd().as_raw_fd(), Some(attend)) };
}

/// The function that `pctx_run` calls when a program may have asked.
extern "C" fn attend() {
    let errno = crate::errno::get();
    if let Ok(requests) = SwitchRequests::of_this_process() {
        requests.answer();
    }
    crate::errno::set(errno);
}

/// `cpc_terminate`: ends the `pctx_run` of every process that a set of the handle has been bound
/// to. Handlers of signals may call it.
///
/// # Safety
///
/// `cpc` is a handle this library has returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_terminate(cpc: *mut CpcT) {
    // SAFETY: the caller's promise.
    let Ok(handle) = (unsafe { get(cpc) }) else {
        return;
    };
    let terminate = handle.controlled().terminate.load(SeqCst);
    if terminate == 0 {
        return;
    }
    // SAFETY: `add` stored the address of libpctx' function, which has this type.
    let terminate: unsafe extern "C" fn(*mut PctxT) = unsafe { mem::transmute(terminate) };
    for process in &handle.controlled().processes {
        let process = process.load(SeqCst);
        if !process.is_null() {
            // SAFETY: a process that sets were bound to; one that was released is libpctx' to know.
            unsafe { terminate(process) };
        }
    }
}
