//! Reading the records of SMPL requests.

use std::ffi::{c_int, c_uint};

use cpc::c;

use crate::bind::buf_with;
use crate::buf::{CpcBufT, index};
use crate::errno::{invalid, reported};
use crate::open::CpcT;

/// `cpc_buf_smpl_rec_count(3CPC)`.
///
/// # Safety
///
/// `cpc` and `buf` are objects of this library, and `rec_count` points to a number to be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_buf_smpl_rec_count(
    cpc: *mut CpcT,
    buf: *mut CpcBufT,
    request_index: c_int,
    rec_count: *mut c_uint,
) -> c_int {
    reported(|| {
        // SAFETY: the caller's promise.
        let (_, buf) = unsafe { buf_with(cpc, buf)? };
        let count = buf.records(index(request_index)?)?.len();
        if rec_count.is_null() {
            return Err(invalid("NULL in place of a count"));
        }
        // SAFETY: the caller's promise. A request holds at most 2^22 records.
        unsafe { rec_count.write(count as c_uint) };
        Ok(0)
    })
}

/// `cpc_buf_smpl_lost_count(3CPC)`: how many records were lost before the sample for want of room.
///
/// # Safety
///
/// `cpc` and `buf` are objects of this library, and `lost` points to a number to be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_buf_smpl_lost_count(
    cpc: *mut CpcT,
    buf: *mut CpcBufT,
    request_index: c_int,
    lost: *mut u64,
) -> c_int {
    reported(|| {
        // SAFETY: the caller's promise.
        let (_, buf) = unsafe { buf_with(cpc, buf)? };
        let count = buf.records(index(request_index)?)?.lost();
        if lost.is_null() {
            return Err(invalid("NULL in place of a count"));
        }
        // SAFETY: the caller's promise.
        unsafe { lost.write(count) };
        Ok(0)
    })
}

/// `cpc_buf_smpl_get_item(3CPC)`.
///
/// # Safety
///
/// `cpc` and `buf` are objects of this library, and `val` points to a number to be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_buf_smpl_get_item(
    cpc: *mut CpcT,
    buf: *mut CpcBufT,
    request_index: c_int,
    record_index: c_int,
    record_item_index: c_int,
    val: *mut u64,
) -> c_int {
    reported(|| {
        // SAFETY: the caller's promise.
        let (handle, buf) = unsafe { buf_with(cpc, buf)? };
        let records = buf.records(index(request_index)?)?;
        let item = match c::special_item(record_item_index) {
            Some(special) => handle.special_item(special)?,
            None => index(record_item_index)?,
        };
        let value = records.item(index(record_index)?, item)?;
        if val.is_null() {
            return Err(invalid("NULL in place of a value"));
        }
        // SAFETY: the caller's promise.
        unsafe { val.write(value) };
        Ok(0)
    })
}

/// `cpc_buf_smpl_get_record(3CPC)`: valid until the buffer is sampled into, copied to, zeroed or
/// destroyed.
///
/// # Safety
///
/// `cpc` and `buf` are objects of this library. The record must not be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_buf_smpl_get_record(
    cpc: *mut CpcT,
    buf: *mut CpcBufT,
    request_index: c_int,
    record_index: c_int,
) -> *mut u64 {
    reported(|| {
        // SAFETY: the caller's promise.
        let (_, buf) = unsafe { buf_with(cpc, buf)? };
        let records = buf.records(index(request_index)?)?;
        Ok(c::record_words(records, index(record_index)?)?.as_ptr().cast::<u64>().cast_mut())
    })
}
