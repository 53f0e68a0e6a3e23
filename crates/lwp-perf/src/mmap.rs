//! An event's memory, shared with the kernel: the metadata page and the ring behind it.
//!
//! # Safety
//!
//! JUSTIFICATION: the kernel writes into this memory while we read it, so it is never borrowed as
//! Rust data: metadata is read through atomics at checked offsets, ring bytes are copied out
//! through raw pointers inside the mapping, which lives as long as the value. RDPMC is executed
//! only with an index that the kernel published in the same seqlock section; where the thread has
//! moved on meanwhile, the value read is discarded by the caller.
#![allow(unsafe_code, reason = "memory shared with the kernel; see the module's safety section")]

use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::io::Errno;

use crate::page::{Pages, UserCount, field, read_user};

/// One event's pages, mapped until dropped.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    page: usize,
}

// SAFETY: the memory belongs to the mapping, not to a thread; all access is atomic or by copying.
unsafe impl Send for Mapping {}
// SAFETY: as above; two readers of the ring cannot exist, because reading needs `&mut Ring`.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the metadata page of the event `fd` and `data_bytes` of ring.
    pub fn new(fd: &OwnedFd, data_bytes: usize) -> Result<Self, Errno> {
        let page = rustix::param::page_size();
        let bytes = page.checked_add(data_bytes).ok_or(Errno::INVAL)?;
        // The tail is ours to move: the ring must be writable or the kernel overwrites it.
        let mut protection = libc::PROT_READ;
        if data_bytes != 0 {
            protection |= libc::PROT_WRITE;
        }
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, fd.as_raw_fd(), 0)
        };
        if base == libc::MAP_FAILED {
            let error = std::io::Error::last_os_error();
            return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
        }
        let base = NonNull::new(base.cast()).ok_or(Errno::FAULT)?;
        Ok(Self { base, bytes, page })
    }

    /// The word at `offset` of the metadata page.
    fn word64(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.page, "inside the metadata page");
        // SAFETY: inside the mapped page, aligned, and only ever accessed atomically by us.
        unsafe { AtomicU64::from_ptr(self.base.add(offset).cast().as_ptr()) }
    }
}

impl Pages for Mapping {
    #[inline]
    fn load32(&self, offset: usize) -> u32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.page, "inside the metadata page");
        // SAFETY: inside the mapped page, aligned, and only ever accessed atomically by us.
        let word = unsafe { AtomicU32::from_ptr(self.base.add(offset).cast().as_ptr()) };
        word.load(Ordering::Acquire)
    }

    #[inline]
    fn load64(&self, offset: usize) -> u64 {
        self.word64(offset).load(Ordering::Acquire)
    }

    fn set_tail(&self, tail: u64) {
        if self.bytes > self.page {
            self.word64(field::DATA_TAIL).store(tail, Ordering::Release);
        }
    }

    fn data_bytes(&self) -> usize {
        self.bytes - self.page
    }

    fn copy(&self, offset: usize, bytes: &mut [u8]) {
        let end = offset.checked_add(bytes.len());
        assert!(end.is_some_and(|end| end <= self.data_bytes()), "inside the ring");
        // SAFETY: checked to lie inside the mapping; the kernel does not write between tail and
        // head, which is where the ring reader copies from.
        unsafe {
            let from = self.base.add(self.page + offset).as_ptr();
            std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len());
        }
    }

    #[inline]
    fn rdpmc(&self, counter: u32) -> u64 {
        let (low, high): (u32, u32);
        // SAFETY: `counter` comes from the metadata page together with the kernel's permission
        // (cap_user_rdpmc). It changes only its outputs.
        unsafe {
            std::arch::asm!("rdpmc", in("ecx") counter, out("eax") low, out("edx") high,
                options(nomem, nostack, preserves_flags));
        }
        u64::from(high) << 32 | u64::from(low)
    }

    #[inline]
    fn tsc(&self) -> u64 {
        // SAFETY: RDTSC exists on every x86-64 processor, and the page says that it is the clock.
        unsafe { std::arch::x86_64::_rdtsc() }
    }

    fn user_count(&self) -> Option<UserCount> {
        read_user(self)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` and unmapped only here.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
