//! Bytes in and out of a tracee.

use crate::sys::{self, Errno, Result};

/// Reads exactly `N` bytes.
///
/// # Errors
///
/// The kernel's; `EFAULT` if part of it is not mapped.
pub fn read_array<const N: usize>(tid: i32, address: u64) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    read_exact(tid, address, &mut bytes)?;
    Ok(bytes)
}

/// Fills `buffer`.
///
/// # Errors
///
/// The kernel's; `EFAULT` if part of it is not mapped.
pub fn read_exact(tid: i32, address: u64, buffer: &mut [u8]) -> Result<()> {
    if sys::read_memory(tid, address, buffer)? == buffer.len() {
        Ok(())
    } else {
        Err(Errno(libc::EFAULT))
    }
}

/// Reads until `buffer` is full or a page is missing. Returns the number of bytes read.
///
/// # Errors
///
/// The kernel's; `EFAULT` if nothing is mapped there.
pub fn read_some(tid: i32, address: u64, buffer: &mut [u8]) -> Result<usize> {
    sys::read_memory(tid, address, buffer)
}

/// Reads a 64-bit number.
///
/// # Errors
///
/// As for [`read_exact`].
pub fn read_u64(tid: i32, address: u64) -> Result<u64> {
    read_array(tid, address).map(u64::from_le_bytes)
}

/// Writes a 64-bit number.
///
/// # Errors
///
/// As for [`write_exact`].
pub fn write_u64(tid: i32, address: u64, value: u64) -> Result<()> {
    write_exact(tid, address, &value.to_le_bytes())
}

/// Writes all of `bytes`.
///
/// # Errors
///
/// The kernel's; `EFAULT` if part of it cannot be written.
pub fn write_exact(tid: i32, address: u64, bytes: &[u8]) -> Result<()> {
    if sys::write_memory(tid, address, bytes)? == bytes.len() {
        Ok(())
    } else {
        Err(Errno(libc::EFAULT))
    }
}

/// Writes over memory that the tracee may not write, a word at a time.
///
/// # Errors
///
/// The kernel's; `EIO` if nothing is mapped there.
pub fn force_write(tid: i32, address: u64, bytes: &[u8]) -> Result<()> {
    for (index, chunk) in bytes.chunks(8).enumerate() {
        let at = address + index as u64 * 8;
        let mut word = [0; 8];
        if chunk.len() < 8 {
            read_exact(tid, at, &mut word)?;
        }
        word[..chunk.len()].copy_from_slice(chunk);
        sys::poke_data(tid, at, u64::from_le_bytes(word))?;
    }
    Ok(())
}
