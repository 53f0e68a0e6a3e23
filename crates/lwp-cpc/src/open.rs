//! The handle: `cpc_open` to `cpc_close`, and what it says about the counters.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::{CString, c_char, c_int, c_uint};
use std::ptr;
use std::sync::{Mutex, MutexGuard};

use cpc::Cpc;
use cpc::c::{self, Version};

use crate::buf::CpcBuf;
use crate::errno::{invalid, reported};
use crate::handler::Handler;
use crate::object::{Kind, Object, Spare, get, lock};
use crate::pctx::Controlled;
use crate::set::CpcSet;

/// The target of a `cpc_t *`.
pub struct CpcHandle {
    cpc: Cpc,
    handler: Cell<Option<Handler>>,
    sets: Mutex<Vec<usize>>,
    bufs: Mutex<Vec<usize>>,
    controlled: Controlled,
    cciname: CString,
    cpuref: CString,
    iname: Option<CString>,
}

impl CpcHandle {
    pub(crate) fn cpc(&self) -> &Cpc {
        &self.cpc
    }

    /// The program's error handler; `None` for the default.
    pub(crate) fn handler(&self) -> Option<Handler> {
        self.handler.get()
    }

    pub(crate) fn set_handler(&self, handler: Option<Handler>) {
        self.handler.set(handler);
    }

    /// Addresses of the live sets.
    pub(crate) fn sets(&self) -> MutexGuard<'_, Vec<usize>> {
        lock(&self.sets)
    }

    /// Addresses of the live buffers.
    pub(crate) fn bufs(&self) -> MutexGuard<'_, Vec<usize>> {
        lock(&self.bufs)
    }

    /// The processes to which sets have been bound.
    pub(crate) fn controlled(&self) -> &Controlled {
        &self.controlled
    }
}

/// A `cpc_t`.
pub type CpcT = Object<CpcHandle>;

impl Kind for CpcHandle {
    const TAG: u64 = 0x6370_635f_6f70_656e;
    fn spares() -> &'static Mutex<VecDeque<Spare<Self>>> {
        static SPARES: Mutex<VecDeque<Spare<CpcHandle>>> = Mutex::new(VecDeque::new());
        &SPARES
    }
}

/// Text for C. Names never contain a NUL; one that did would be cut off there.
pub(crate) fn text(text: &str) -> CString {
    let end = text.find('\0').unwrap_or(text.len());
    CString::new(&text[..end]).unwrap_or_default()
}

/// `cpc_open(3CPC)`.
#[unsafe(no_mangle)]
pub extern "C" fn cpc_open(ver: c_int) -> *mut CpcT {
    reported(|| {
        let version = Version::from_number(ver).ok_or(invalid("unknown interface version"))?;
        let cpc = c::open(version)?;
        let (cciname, cpuref) = (text(cpc.name()), text(cpc.reference()));
        let iname = cpc.recorder_name().map(text);
        Ok(Object::create(CpcHandle {
            cpc,
            handler: Cell::new(None),
            sets: Mutex::default(),
            bufs: Mutex::default(),
            controlled: Controlled::default(),
            cciname,
            cpuref,
            iname,
        }))
    })
}

/// `cpc_close(3CPC)`: unbinds and destroys what the handle has.
///
/// # Safety
///
/// As for every function here: `cpc` is a handle this library has returned. No other call uses it,
/// or a set or a buffer of it, meanwhile, in whichever thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_close(cpc: *mut CpcT) -> c_int {
    reported(|| {
        // SAFETY: the caller's promise.
        let handle = unsafe { get(cpc)? };
        for set in handle.sets().drain(..) {
            // SAFETY: the list holds live objects only, and nobody may use them during this call.
            drop(unsafe { Object::<CpcSet>::destroy(set as *mut _) });
        }
        for buf in handle.bufs().drain(..) {
            // SAFETY: as above.
            drop(unsafe { Object::<CpcBuf>::destroy(buf as *mut _) });
        }
        // SAFETY: found live above.
        drop(unsafe { Object::destroy(cpc) });
        Ok(0)
    })
}

/// Returns the value that `read` finds in the handle; `otherwise` and EINVAL without one.
///
/// # Safety
///
/// As for [`get`].
unsafe fn inquire<T>(cpc: *mut CpcT, otherwise: T, read: impl FnOnce(&CpcHandle) -> T) -> T {
    // SAFETY: the caller's promise.
    match unsafe { get(cpc) } {
        Ok(handle) => read(handle),
        Err(error) => {
            crate::errno::set(error.errno());
            otherwise
        }
    }
}

/// `cpc_npic(3CPC)`.
///
/// # Safety
///
/// As for [`cpc_close`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_npic(cpc: *mut CpcT) -> c_uint {
    // SAFETY: the caller's promise.
    unsafe { inquire(cpc, 0, |handle| handle.cpc.counter_count()) }
}

/// `cpc_caps(3CPC)`.
///
/// # Safety
///
/// As for [`cpc_close`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_caps(cpc: *mut CpcT) -> c_uint {
    // SAFETY: the caller's promise.
    unsafe { inquire(cpc, 0, |handle| handle.cpc.capabilities().bits()) }
}

/// `cpc_cciname(3CPC)`.
///
/// # Safety
///
/// As for [`cpc_close`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_cciname(cpc: *mut CpcT) -> *const c_char {
    // SAFETY: the caller's promise. The text lives as long as the handle.
    unsafe { inquire(cpc, ptr::null(), |handle| handle.cciname.as_ptr()) }
}

/// `cpc_cpuref(3CPC)`.
///
/// # Safety
///
/// As for [`cpc_close`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_cpuref(cpc: *mut CpcT) -> *const c_char {
    // SAFETY: the caller's promise. The text lives as long as the handle.
    unsafe { inquire(cpc, ptr::null(), |handle| handle.cpuref.as_ptr()) }
}

/// `cpc_smpl_npic(3CPC)`.
///
/// # Safety
///
/// As for [`cpc_close`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_smpl_npic(cpc: *mut CpcT) -> c_uint {
    // SAFETY: the caller's promise.
    unsafe { inquire(cpc, 0, |handle| handle.cpc.recording_counter_count()) }
}

/// `cpc_smpl_iname(3CPC)`: NULL if the handle cannot collect records.
///
/// # Safety
///
/// As for [`cpc_close`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_smpl_iname(cpc: *mut CpcT) -> *const c_char {
    let name = |handle: &CpcHandle| handle.iname.as_ref().map_or(ptr::null(), |name| name.as_ptr());
    // SAFETY: the caller's promise. The text lives as long as the handle.
    unsafe { inquire(cpc, ptr::null(), name) }
}
