//! Memory for generated code: written first, executed afterwards, and never both at once.
//!
//! # Safety
//!
//! JUSTIFICATION: no compiler can check a call of bytes that were just made. [`Compiled`] says what
//! they are, and only the compiler of this program can make one.
#![allow(unsafe_code, reason = "generated code; see the module's safety section")]

use std::ffi::c_void;
use std::ops::Range;
use std::ptr;

use lwp::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

use crate::compile::Compiled;

/// First item, end of the items, sum so far. Returns the new sum.
type Function = unsafe extern "sysv64" fn(*const u64, *const u64, u64) -> u64;

/// A generated function, in a mapping of its own.
pub struct Code {
    start: *mut c_void,
    length: usize,
}

impl Code {
    /// Makes a function of compiled code.
    pub fn of(compiled: &Compiled) -> Result<Self, Errno> {
        let bytes = compiled.bytes();
        let (length, writable) = (bytes.len(), ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: a new mapping, at a place where nothing was.
        let start =
            unsafe { mmap_anonymous(ptr::null_mut(), length, writable, MapFlags::PRIVATE) }?;
        // From here on it is unmapped if anything fails.
        let code = Self { start, length };
        // SAFETY: the mapping is writable, has this length, and nobody else knows of it.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), start.cast::<u8>(), length) };
        // SAFETY: the mapping is ours, and no reference into it exists.
        unsafe { mprotect(start, length, MprotectFlags::READ | MprotectFlags::EXEC) }?;
        Ok(code)
    }

    /// Adds `items` to `sum` as the program says.
    pub fn run(&self, items: &[u64], sum: u64) -> u64 {
        if items.is_empty() {
            return sum; // The function takes the first item before it looks for the end.
        }
        let Range { start, end } = items.as_ptr_range();
        // SAFETY: the mapping holds a function of this type: see `Compiled::bytes`.
        let function = unsafe { std::mem::transmute::<*mut c_void, Function>(self.start) };
        // SAFETY: the function reads from `start` to `end`, the bounds of a slice with an item.
        unsafe { function(start, end, sum) }
    }

    /// The addresses of the code.
    pub fn addresses(&self) -> Range<u64> {
        let start = self.start.addr() as u64;
        start..start + self.length as u64
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and a function that runs borrows `self`.
        let _ = unsafe { munmap(self.start, self.length) };
    }
}
