//! Buffers.

use std::collections::VecDeque;
use std::ffi::{c_int, c_longlong};
use std::sync::Mutex;

use cpc::{Buf, Error};

use crate::errno::{invalid, reported};
use crate::object::{Kind, Object, Spare, get};
use crate::open::CpcT;
use crate::set::{CpcSetT, set_of};

/// The target of a `cpc_buf_t *`.
pub struct CpcBuf {
    buf: Buf,
    /// Address of the handle.
    owner: usize,
}

impl CpcBuf {
    pub(crate) fn buf(&self) -> &Buf {
        &self.buf
    }

    /// Returns whether the buffer was created with the handle `cpc`.
    pub(crate) fn is_of(&self, cpc: *mut CpcT) -> bool {
        self.owner == cpc.addr()
    }
}

/// A `cpc_buf_t`.
pub type CpcBufT = Object<CpcBuf>;

impl Kind for CpcBuf {
    const TAG: u64 = 0x6370_635f_6275_665f;
    fn spares() -> &'static Mutex<VecDeque<Spare<Self>>> {
        static SPARES: Mutex<VecDeque<Spare<CpcBuf>>> = Mutex::new(VecDeque::new());
        &SPARES
    }
}

/// `cpc_buf_create(3CPC)`.
///
/// # Safety
///
/// `cpc` and `set` are objects of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_buf_create(cpc: *mut CpcT, set: *mut CpcSetT) -> *mut CpcBufT {
    reported(|| {
        // SAFETY: the caller's promise.
        let (handle, set) = unsafe { (get(cpc)?, set_of(cpc, set)?) };
        let buf = Object::create(CpcBuf { buf: set.set().try_create_buf()?, owner: cpc.addr() });
        handle.bufs().push(buf.expose_provenance());
        Ok(buf)
    })
}

/// `cpc_buf_destroy(3CPC)`: EINVAL for what is not a buffer of the handle, or is one no more.
///
/// # Safety
///
/// `cpc` is a handle this library has returned; `buf` may be anything. If it is a buffer of the
/// handle, no other call uses it meanwhile, in whichever thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_buf_destroy(cpc: *mut CpcT, buf: *mut CpcBufT) -> c_int {
    reported(|| {
        // SAFETY: the caller's promise.
        let handle = unsafe { get(cpc)? };
        let mut bufs = handle.bufs();
        let known = bufs.iter().position(|known| *known == buf.addr());
        bufs.swap_remove(known.ok_or(invalid("the handle has no such buffer"))?);
        drop(bufs);
        // SAFETY: it was in the list, so it is live.
        drop(unsafe { Object::destroy(buf) });
        Ok(0)
    })
}

/// The buffer that `buf` points to.
///
/// # Safety
///
/// As for [`get`].
pub(crate) unsafe fn buf_of<'a>(buf: *const CpcBufT) -> Result<&'a Buf, Error> {
    // SAFETY: the caller's promise.
    Ok(unsafe { get(buf)? }.buf())
}

/// A C index.
pub(crate) fn index(index: c_int) -> Result<usize, Error> {
    usize::try_from(index).map_err(|_| invalid("a negative index"))
}

/// `cpc_buf_sub(3CPC)`.
///
/// # Safety
///
/// The buffers are objects of this library; they may be the same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_buf_sub(
    _cpc: *mut CpcT,
    ds: *mut CpcBufT,
    a: *mut CpcBufT,
    b: *mut CpcBufT,
) {
    // SAFETY: the caller's promise. Nothing happens without three buffers, as there is no way to
    // tell.
    if let (Ok(ds), Ok(a), Ok(b)) = unsafe { (buf_of(ds), buf_of(a), buf_of(b)) } {
        // The original does nothing either where the shapes differ.
        let _ = ds.set_difference(a, b);
    }
}

/// `cpc_buf_add(3CPC)`.
///
/// # Safety
///
/// The buffers are objects of this library; they may be the same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_buf_add(
    _cpc: *mut CpcT,
    ds: *mut CpcBufT,
    a: *mut CpcBufT,
    b: *mut CpcBufT,
) {
    // SAFETY: as for cpc_buf_sub.
    if let (Ok(ds), Ok(a), Ok(b)) = unsafe { (buf_of(ds), buf_of(a), buf_of(b)) } {
        let _ = ds.set_sum(a, b);
    }
}

/// `cpc_buf_copy(3CPC)`.
///
/// # Safety
///
/// The buffers are objects of this library; they may be the same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_buf_copy(_cpc: *mut CpcT, ds: *mut CpcBufT, src: *mut CpcBufT) {
    // SAFETY: as for cpc_buf_sub.
    if let (Ok(ds), Ok(src)) = unsafe { (buf_of(ds), buf_of(src)) } {
        let _ = ds.copy_from(src);
    }
}

/// `cpc_buf_zero(3CPC)`.
///
/// # Safety
///
/// `buf` is an object of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_buf_zero(_cpc: *mut CpcT, buf: *mut CpcBufT) {
    // SAFETY: the caller's promise.
    if let Ok(buf) = unsafe { buf_of(buf) } {
        buf.zero();
    }
}

/// `cpc_buf_get(3CPC)`.
///
/// # Safety
///
/// `buf` is an object of this library, and `val` points to a number to be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_buf_get(
    _cpc: *mut CpcT,
    buf: *mut CpcBufT,
    index_: c_int,
    val: *mut u64,
) -> c_int {
    reported(|| {
        // SAFETY: the caller's promise.
        let value = unsafe { buf_of(buf)? }.get(index(index_)?)?;
        if val.is_null() {
            return Err(invalid("NULL in place of a value"));
        }
        // SAFETY: the caller's promise.
        unsafe { val.write(value) };
        Ok(0)
    })
}

/// `cpc_buf_set(3CPC)`.
///
/// # Safety
///
/// `buf` is an object of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_buf_set(
    _cpc: *mut CpcT,
    buf: *mut CpcBufT,
    index_: c_int,
    val: u64,
) -> c_int {
    reported(|| {
        // SAFETY: the caller's promise.
        unsafe { buf_of(buf)? }.set(index(index_)?, val)?;
        Ok(0)
    })
}

/// `cpc_buf_hrtime(3CPC)`: 0 and EINVAL without a buffer.
///
/// # Safety
///
/// `buf` is an object of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_buf_hrtime(_cpc: *mut CpcT, buf: *mut CpcBufT) -> c_longlong {
    // SAFETY: the caller's promise.
    match unsafe { buf_of(buf) } {
        Ok(buf) => buf.time_ns(),
        Err(error) => {
            crate::errno::set(error.errno());
            0
        }
    }
}

/// `cpc_buf_tick(3CPC)`: 0 and EINVAL without a buffer.
///
/// # Safety
///
/// `buf` is an object of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_buf_tick(_cpc: *mut CpcT, buf: *mut CpcBufT) -> u64 {
    // SAFETY: the caller's promise.
    match unsafe { buf_of(buf) } {
        Ok(buf) => buf.cycles(),
        Err(error) => {
            crate::errno::set(error.errno());
            0
        }
    }
}
