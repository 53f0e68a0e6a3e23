//! Binding, sampling, restarting, and switching counters on and off.

use std::ffi::{c_int, c_uint};

use cpc::Error;
use cpc::c::{self, Function};

use crate::buf::{CpcBufT, buf_of, index};
use crate::errno::{invalid, reported};
use crate::handler::tell;
use crate::object::get;
use crate::open::CpcT;
use crate::pctx::{self, PctxT};
use crate::set::{CpcSet, CpcSetT, set_of};

/// Binds by `bind`, and tells the handler why not.
///
/// # Safety
///
/// `cpc` and `set` are objects of this library.
unsafe fn bound(
    cpc: *mut CpcT,
    set: *mut CpcSetT,
    function: Function,
    bind: impl FnOnce(&CpcSet) -> Result<(), Error>,
) -> c_int {
    reported(|| {
        // SAFETY: the caller's promise.
        let (handle, set) = unsafe { (get(cpc)?, set_of(cpc, set)?) };
        bind(set).inspect_err(|error| tell(handle, function, error))?;
        Ok(0)
    })
}

/// `cpc_bind_curlwp(3CPC)`.
///
/// # Safety
///
/// `cpc` and `set` are objects of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_bind_curlwp(
    cpc: *mut CpcT,
    set: *mut CpcSetT,
    flags: c_uint,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { bound(cpc, set, Function::BindCurlwp, |set| c::bind_curlwp(set.set(), flags)) }
}

/// `cpc_bind_pctx(3CPC)`.
///
/// # Safety
///
/// `cpc` and `set` are objects of this library, `pctx` is one of libpctx.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_bind_pctx(
    cpc: *mut CpcT,
    pctx: *mut PctxT,
    id: c_int,
    set: *mut CpcSetT,
    flags: c_uint,
) -> c_int {
    let bind = |set: &CpcSet| {
        // SAFETY: the caller's promise.
        let (handle, tid) = unsafe { (get(cpc)?, pctx::tid(pctx, id)?) };
        c::bind_lwp(set.set(), tid, flags)?;
        handle.controlled().add(pctx);
        // SAFETY: the caller's promise.
        unsafe { pctx::listen(pctx) };
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { bound(cpc, set, Function::BindPctx, bind) }
}

/// `cpc_bind_cpu(3CPC)`.
///
/// # Safety
///
/// `cpc` and `set` are objects of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_bind_cpu(
    cpc: *mut CpcT,
    id: c_int,
    set: *mut CpcSetT,
    flags: c_uint,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { bound(cpc, set, Function::BindCpu, |set| c::bind_cpu(set.set(), id, flags)) }
}

/// `cpc_unbind(3CPC)`.
///
/// # Safety
///
/// `cpc` and `set` are objects of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_unbind(cpc: *mut CpcT, set: *mut CpcSetT) -> c_int {
    reported(|| {
        // SAFETY: the caller's promise.
        unsafe { set_of(cpc, set)? }.set().unbind()?;
        Ok(0)
    })
}

/// `cpc_set_sample(3CPC)`.
///
/// # Safety
///
/// `cpc`, `set` and `buf` are objects of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_set_sample(
    cpc: *mut CpcT,
    set: *mut CpcSetT,
    buf: *mut CpcBufT,
) -> c_int {
    reported(|| {
        // SAFETY: the caller's promise.
        let (set, buf) = unsafe { (set_of(cpc, set)?, get(buf)?) };
        if !buf.is_of(cpc) {
            return Err(invalid("the buffer was not created with the handle"));
        }
        set.set().sample(buf.buf())?;
        Ok(0)
    })
}

/// `cpc_buf_sample`: the name a programming guide gives [`cpc_set_sample`].
///
/// # Safety
///
/// `cpc`, `set` and `buf` are objects of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_buf_sample(
    cpc: *mut CpcT,
    set: *mut CpcSetT,
    buf: *mut CpcBufT,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { cpc_set_sample(cpc, set, buf) }
}

/// `cpc_set_restart(3CPC)`.
///
/// # Safety
///
/// `cpc` and `set` are objects of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_set_restart(cpc: *mut CpcT, set: *mut CpcSetT) -> c_int {
    reported(|| {
        // SAFETY: the caller's promise.
        unsafe { set_of(cpc, set)? }.set().restart()?;
        Ok(0)
    })
}

/// `cpc_request_preset(3CPC)`: about the set the calling thread has bound.
///
/// # Safety
///
/// `cpc` is a handle this library has returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_request_preset(cpc: *mut CpcT, index_: c_int, preset: u64) -> c_int {
    reported(|| {
        // SAFETY: the caller's promise.
        unsafe { get(cpc)? };
        c::request_preset(index(index_)?, preset)?;
        Ok(0)
    })
}

/// `cpc_set_request_preset`: what a programming guide calls [`cpc_request_preset`], with the set.
///
/// # Safety
///
/// `cpc` and `set` are objects of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_set_request_preset(
    cpc: *mut CpcT,
    set: *mut CpcSetT,
    index_: c_int,
    preset: u64,
) -> c_int {
    reported(|| {
        // SAFETY: the caller's promise.
        unsafe { set_of(cpc, set)? }.set().set_preset(index(index_)?, preset)?;
        Ok(0)
    })
}

/// `cpc_enable(3CPC)`.
///
/// # Safety
///
/// `cpc` is a handle this library has returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_enable(cpc: *mut CpcT) -> c_int {
    reported(|| {
        // SAFETY: the caller's promise.
        unsafe { get(cpc)? };
        c::enable(true)?;
        Ok(0)
    })
}

/// `cpc_disable(3CPC)`.
///
/// # Safety
///
/// `cpc` is a handle this library has returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_disable(cpc: *mut CpcT) -> c_int {
    reported(|| {
        // SAFETY: the caller's promise.
        unsafe { get(cpc)? };
        c::enable(false)?;
        Ok(0)
    })
}

/// The buffer, if it is one of the handle: for the readers of records.
///
/// # Safety
///
/// As for [`get`].
pub(crate) unsafe fn buf_with<'a>(
    cpc: *mut CpcT,
    buf: *mut CpcBufT,
) -> Result<(&'a cpc::Cpc, &'a cpc::Buf), Error> {
    // SAFETY: the caller's promise.
    let (handle, buf) = unsafe { (get(cpc)?, buf_of(buf)?) };
    if !handle.cpc().can_record() {
        return Err(invalid("the handle was not opened for SMPL"));
    }
    Ok((handle.cpc(), buf))
}
