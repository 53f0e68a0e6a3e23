//! Memory that is shared with the processor, and perhaps with other processes.
//!
//! ```text
//!   +0                 +4096
//!   | control block ...| ring ................................... |
//!     head, missed: the processor's    records: the processor's
//!     tail: the reader's
//! ```
//!
//! # Safety
//!
//! JUSTIFICATION: the processor writes block and ring at any time, so the memory must not be
//! reachable by plain references. A [`Region`] hands out 32-bit atomics only, whatever writes the
//! memory: a racing write gives an old or a new value and never undefined behaviour. It is mapped
//! once, at its final length, and unmapped when its last owner is dropped. If it maps a file, the
//! file is sealed against shrinking.
#![allow(unsafe_code, reason = "memory mapping; see the module's safety section")]

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use lwp_arch::lwpcb::{EventSlot, Lwpcb};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// The ring's offset: one page after the block.
pub const RING_AT: usize = 4096;

/// The words of a control block and its ring, as whoever reads records uses them.
///
/// Implemented by mapped memory and, in tests, by a model of it.
pub trait Words {
    /// Loads word number `index` (the byte offset divided by four).
    fn load(&self, index: usize, order: Ordering) -> u32;

    /// Stores word number `index`.
    fn store(&self, index: usize, value: u32, order: Ordering);
}

/// A control block with its ring.
#[derive(Debug)]
pub struct Region {
    words: NonNull<AtomicU32>,
    bytes: usize,
    /// Whether a thread of this process runs the block.
    running: AtomicBool,
}

// SAFETY: the region is only ever accessed through shared references to atomics.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Memory for a ring of `ring_bytes`, all zero, of this process alone.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn private(ring_bytes: usize) -> Result<Self, Errno> {
        let bytes = RING_AT + ring_bytes;
        // SAFETY: a new mapping at an address of the kernel's choice overlays nothing.
        let start = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )?
        };
        Self::at(start, bytes)
    }

    /// As [`Self::private`], in a file without a name that other processes can map too.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn shared(ring_bytes: usize) -> Result<(Self, OwnedFd), Errno> {
        let bytes = RING_AT + ring_bytes;
        let file = rustix::fs::memfd_create(
            "lwp-profile",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )?;
        rustix::fs::ftruncate(&file, bytes as u64)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
        Ok((Self::of_file(&file)?, file))
    }

    /// Maps a file that [`Self::shared`] made, in this process or another.
    ///
    /// # Errors
    ///
    /// The system's; `EINVAL` for a file that could shrink under the mapping, or is too short.
    pub fn of_file(file: impl AsFd) -> Result<Self, Errno> {
        let bytes = rustix::fs::fstat(&file)?.st_size as usize;
        let sealed = rustix::fs::fcntl_get_seals(&file)?.contains(SealFlags::SHRINK);
        if !sealed || bytes <= RING_AT {
            return Err(Errno::INVAL);
        }
        let (rights, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice overlays nothing; the file
        // cannot become shorter.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, rights, flags, file, 0)? };
        Self::at(start, bytes)
    }

    fn at(start: *mut std::ffi::c_void, bytes: usize) -> Result<Self, Errno> {
        let words = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self { words, bytes, running: AtomicBool::new(false) })
    }

    /// Address of the control block.
    pub fn address(&self) -> u64 {
        self.words.as_ptr().addr() as u64
    }

    /// Length of the ring in bytes.
    pub const fn ring_bytes(&self) -> usize {
        self.bytes - RING_AT
    }

    /// Writes the control block, with its event slots at `event_offset`. Base and size of the ring
    /// are set here, so that no block leads the processor out of the region.
    pub fn write_block(&self, block: &Lwpcb, event_offset: usize, slots: &[EventSlot]) {
        let mut block = *block;
        block.buffer_base = (self.address() + RING_AT as u64).into();
        block.set_buffer_size_random(self.ring_bytes() as u32, block.random());
        let slots: Vec<u8> = slots.iter().flat_map(EventSlot::to_bytes).collect();
        for (at, bytes) in [(0, &block.to_bytes()[..]), (event_offset, &slots)] {
            let end = (at + bytes.len()).min(RING_AT);
            for (index, word) in (at / 4..end / 4).zip(bytes.chunks_exact(4)) {
                let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
                self.store(index, word, Ordering::Relaxed);
            }
        }
    }

    /// Reserves the block for a thread. Returns whether it was free.
    pub fn claim(&self) -> bool {
        !self.running.swap(true, Ordering::Acquire)
    }

    /// Frees the block for the next thread.
    pub fn unclaim(&self) {
        self.running.store(false, Ordering::Release);
    }

    fn words(&self) -> &[AtomicU32] {
        // SAFETY: the mapping is that long, page-aligned, readable and writable, and lives as long
        // as `self`; every bit pattern is a number, and nobody has a plain reference to it.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.bytes / 4) }
    }
}

impl Words for Region {
    fn load(&self, index: usize, order: Ordering) -> u32 {
        self.words()[index].load(order)
    }

    fn store(&self, index: usize, value: u32, order: Ordering) {
        self.words()[index].store(value, order);
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is this region's own, and the processor no longer writes to it:
        // whoever activated it held the region until it was deactivated. A failure leaves it
        // mapped.
        let _ = unsafe { munmap(self.words.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: LWP §3.1
    #[test]
    fn lwp_spec_3_1_the_block_points_into_its_region() {
        let region = Region::private(4096).unwrap();
        let mut block = Lwpcb::default();
        block.set_buffer_size_random(0xFFF_FFFF, 3);
        block.buffer_base = 0x1234.into();
        region.write_block(&block, 128, &[EventSlot::new(9, 9)]);
        let base = region.address() + 4096;
        assert_eq!(region.load(2, Ordering::Relaxed), base as u32);
        assert_eq!(region.load(3, Ordering::Relaxed), (base >> 32) as u32);
        assert_eq!(region.load(1, Ordering::Relaxed), 3 << 28 | 4096);
        assert_eq!(region.load(32, Ordering::Relaxed), 9, "the first interval");
    }

    #[test]
    fn files_show_the_same_memory_and_cannot_shrink() {
        let (region, file) = Region::shared(1024).unwrap();
        let other = Region::of_file(&file).unwrap();
        region.store(1030, 77, Ordering::Relaxed);
        assert_eq!(other.load(1030, Ordering::Relaxed), 77);
        assert!(rustix::fs::ftruncate(&file, 0).is_err());
        let open = rustix::fs::memfd_create("x", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&open, 1 << 16).unwrap();
        assert_eq!(Region::of_file(&open).unwrap_err(), Errno::INVAL);
    }
}
