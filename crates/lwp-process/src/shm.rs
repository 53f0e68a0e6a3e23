//! Memory shared with the tracees: a memfd, mapped here and there.
//!
//! # Safety
//!
//! JUSTIFICATION: the translated code, the contexts and the counters must be in both address
//! spaces, and both sides write them while the other reads.
//!
//! The mapping lives as long as the value. Other processes write to it at any time, so it is never
//! borrowed as a slice or structure: every access goes through the functions here, each one atomic
//! or volatile load or store of plain numbers, within bounds that are checked first.
#![allow(unsafe_code, reason = "shared mappings; see the module's safety section")]

use std::collections::BTreeSet;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::sys::{self, Errno, Result};

/// A sparse, zero-filled file in memory, which cannot be made smaller or larger by anybody.
#[derive(Debug)]
pub struct SharedFile {
    fd: OwnedFd,
    len: u64,
    inode: Inode,
}

/// A file: its device and inode, as `/proc/PID/maps` shows them.
pub type Inode = ((u32, u32), u64);

/// The files in memory that this process has made and not dropped.
static OWN: Mutex<BTreeSet<Inode>> = Mutex::new(BTreeSet::new());

fn own_inodes() -> MutexGuard<'static, BTreeSet<Inode>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn inode_of(fd: &OwnedFd) -> Result<Inode> {
    let stat = rustix::fs::fstat(fd).map_err(|error| Errno(error.raw_os_error()))?;
    Ok(((rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev)), stat.st_ino))
}

/// Returns whether the file with this device and inode, as `/proc/PID/maps` shows them, is a
/// [`SharedFile`] of this process. No other file can be made to look like one as long as it lives.
pub fn is_own(device: (u32, u32), inode: u64) -> bool {
    own_inodes().contains(&(device, inode))
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        own_inodes().remove(&self.inode);
    }
}

impl SharedFile {
    /// Makes one of `len` bytes.
    ///
    /// # Errors
    ///
    /// Those of memfd_create(2) and fcntl(2), and EFBIG where files may not be so long.
    pub fn new(name: &std::ffi::CStr, len: u64) -> Result<Self> {
        if !crate::limits::allow_file(len) {
            return Err(Errno(libc::EFBIG));
        }
        let fd = memfd(name);
        if fd < 0 {
            return Err(Errno::last());
        }
        // SAFETY: the descriptor is new and owned by nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: numbers only.
        if unsafe { libc::ftruncate(fd.as_raw_fd(), len as i64) } != 0 {
            return Err(Errno::last());
        }
        let file = Self { inode: inode_of(&fd)?, fd, len };
        own_inodes().insert(file.inode);
        file.seal(libc::F_SEAL_SHRINK | libc::F_SEAL_GROW)?;
        Ok(file)
    }

    /// Makes one whose seals nobody can add to. Whoever gets hold of it could otherwise seal it
    /// against being written to.
    ///
    /// # Errors
    ///
    /// Those of [`SharedFile::new`].
    pub fn sealed(name: &std::ffi::CStr, len: u64) -> Result<Self> {
        let file = Self::new(name, len)?;
        file.seal(libc::F_SEAL_SEAL)?;
        Ok(file)
    }

    /// Leaves the mappings that there are as the only way to write to the file, for ever: it can
    /// neither be mapped to be written nor written to, whoever opens it. Returns whether the kernel
    /// has done so (from version 5.1 on).
    pub fn seal_writes(&self) -> bool {
        self.seal(libc::F_SEAL_FUTURE_WRITE | libc::F_SEAL_SEAL).is_ok()
    }

    fn seal(&self, seals: i32) -> Result<()> {
        // SAFETY: numbers only.
        match unsafe { libc::fcntl(self.fd(), libc::F_ADD_SEALS, seals) } {
            0 => Ok(()),
            _ => Err(Errno::last()),
        }
    }

    /// The descriptor.
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Its device and inode, by which mappings of it are known.
    pub fn inode(&self) -> Inode {
        self.inode
    }

    /// Maps `len` bytes from `start`, a multiple of the page size, to be read and written.
    ///
    /// # Errors
    ///
    /// Those of mmap(2), and EINVAL where the file has no such bytes.
    pub fn map(self: &Arc<Self>, start: u64, len: u64) -> Result<SharedMemory> {
        if start.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(Errno(libc::EINVAL));
        }
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                self.fd(),
                start as i64,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        let base = NonNull::new(base.cast()).ok_or(Errno(libc::EFAULT))?;
        Ok(SharedMemory { file: self.clone(), start, base, len })
    }
}

/// A mapped part of a [`SharedFile`]. Offsets are those from the start of the part.
#[derive(Debug)]
pub struct SharedMemory {
    file: Arc<SharedFile>,
    start: u64,
    base: NonNull<u8>,
    len: u64,
}

// SAFETY: the pointer is to a mapping that any thread may access through the atomic and volatile
// operations below; the file cannot be made shorter, so that every page of it stays there.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Makes a file of `len` bytes and maps all of it.
    ///
    /// # Errors
    ///
    /// Those of [`SharedFile::new`] and [`SharedFile::map`].
    pub fn new(name: &std::ffi::CStr, len: u64) -> Result<Self> {
        Arc::new(SharedFile::new(name, len)?).map(0, len)
    }

    /// The file.
    pub fn file(&self) -> &SharedFile {
        &self.file
    }

    /// The file's descriptor.
    pub fn fd(&self) -> RawFd {
        self.file.fd()
    }

    /// The parts from `from` to `to` that have been written to. Pages of zeros may be among them.
    pub fn data(&self, from: u64, to: u64) -> impl Iterator<Item = Range<u64>> {
        let end = self.start + to.min(self.len);
        let mut from = self.start + from;
        std::iter::from_fn(move || {
            let data = sys::next_data(self.fd(), from).filter(|data| *data < end)?.max(from);
            from = sys::next_hole(self.fd(), data).map_or(end, |hole| hole.min(end));
            (data < from).then_some(data - self.start..from - self.start)
        })
    }

    /// Gives `len` bytes back to the system; they read as zeros.
    pub fn punch_hole(&self, from: u64, len: u64) {
        sys::punch_hole(self.fd(), self.start + from, len);
    }

    /// Its size in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    fn at(&self, offset: u64, len: u64) -> *mut u8 {
        assert!(
            offset.checked_add(len).is_some_and(|end| end <= self.len),
            "shared memory: {len} bytes at {offset:#x} of {:#x}",
            self.len
        );
        // SAFETY: inside the mapping, as just checked.
        unsafe { self.base.as_ptr().add(offset as usize) }
    }

    /// The 64-bit word at an aligned offset.
    #[inline]
    pub fn u64(&self, offset: u64) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8), "shared memory: unaligned word at {offset:#x}");
        // SAFETY: in bounds, aligned, and only ever accessed atomically; lives as long as `self`.
        unsafe { AtomicU64::from_ptr(self.at(offset, 8).cast()) }
    }

    /// `count` 64-bit words from an aligned offset on.
    pub fn words(&self, offset: u64, count: u64) -> &[AtomicU64] {
        assert!(offset.is_multiple_of(8), "shared memory: unaligned words at {offset:#x}");
        let first = self.at(offset, count.saturating_mul(8));
        // SAFETY: in bounds, aligned, and only ever accessed atomically, in other processes by
        // instructions that each touch one word; lives as long as `self`.
        unsafe { std::slice::from_raw_parts(first.cast::<AtomicU64>(), count as usize) }
    }

    /// Sets `len` bytes to zero. Meant for memory that nobody uses at the moment.
    pub fn clear(&self, offset: u64, len: u64) {
        let to = self.at(offset, len);
        // SAFETY: the target is in bounds and is no Rust object.
        unsafe { std::ptr::write_bytes(to, 0, len as usize) };
    }

    /// The 32-bit word at an aligned offset.
    pub fn u32(&self, offset: u64) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4), "shared memory: unaligned word at {offset:#x}");
        // SAFETY: as for `u64`.
        unsafe { AtomicU32::from_ptr(self.at(offset, 4).cast()) }
    }

    /// The byte at an offset.
    pub fn u8(&self, offset: u64) -> &AtomicU8 {
        // SAFETY: as for `u64`; a byte is always aligned.
        unsafe { AtomicU8::from_ptr(self.at(offset, 1)) }
    }

    /// Loads a word.
    #[inline]
    pub fn load(&self, offset: u64) -> u64 {
        self.u64(offset).load(Ordering::Acquire)
    }

    /// Stores a word.
    #[inline]
    pub fn store(&self, offset: u64, value: u64) {
        self.u64(offset).store(value, Ordering::Release);
    }

    /// Copies bytes in. Meant for memory that nobody executes or reads yet.
    pub fn write(&self, offset: u64, bytes: &[u8]) {
        let to = self.at(offset, bytes.len() as u64);
        // SAFETY: the target is in bounds and is no Rust object; the source is a live slice.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    /// Copies bytes out; concurrent writers may leave a mixture.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) {
        let from = self.at(offset, bytes.len() as u64);
        for (index, byte) in bytes.iter_mut().enumerate() {
            // SAFETY: the source is in bounds; volatile byte loads tolerate concurrent writers.
            *byte = unsafe { from.add(index).read_volatile() };
        }
    }

    /// Copies bytes out of the file without touching the mapping, so that holes stay holes.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn read_file(&self, offset: u64, bytes: &mut [u8]) -> Result<usize> {
        // SAFETY: the buffer is live and its length true.
        let n = unsafe {
            let at = (self.start + offset) as i64;
            libc::pread(self.fd(), bytes.as_mut_ptr().cast(), bytes.len(), at)
        };
        if n < 0 { Err(Errno::last()) } else { Ok(n as usize) }
    }

    /// Copies bytes in where nobody has touched the pages yet: has them made all at once.
    pub fn write_new(&self, offset: u64, bytes: &[u8]) {
        self.make_several_pages(offset, bytes.len() as u64);
        self.write(offset, bytes);
    }

    /// Has the kernel make and map the pages of a range that are not there, all at once; or, before
    /// version 5.14, one by one when they are touched.
    pub fn make_pages(&self, offset: u64, len: u64) {
        const PAGE: u64 = 4096;
        let first = offset & !(PAGE - 1);
        let end = (offset + len).next_multiple_of(PAGE).min(self.len);
        if end <= first {
            return;
        }
        let at = self.at(first, end - first);
        // SAFETY: the range lies within the mapping; no byte of it changes.
        unsafe { libc::madvise(at.cast(), (end - first) as usize, libc::MADV_POPULATE_WRITE) };
    }

    /// Makes the pages of a range if there are several; a single page is made as quickly by
    /// touching it.
    fn make_several_pages(&self, offset: u64, len: u64) {
        const PAGE: u64 = 4096;
        if offset / PAGE != (offset + len).saturating_sub(1) / PAGE {
            self.make_pages(offset, len);
        }
    }

    /// Fills `len` bytes, a multiple of eight, with `word`, likewise.
    pub fn fill_new(&self, offset: u64, len: u64, word: u64) {
        const PIECE: u64 = 16 << 10;
        let piece = word.to_le_bytes().repeat(len.min(PIECE) as usize / 8);
        self.make_several_pages(offset, len);
        for at in (0..len).step_by(PIECE as usize) {
            let bytes = &piece[..(len - at).min(PIECE) as usize];
            self.write(offset + at, bytes);
        }
    }

    /// Stores four bytes at any offset within a cache line, in one instruction, so that a processor
    /// which executes them sees the old or the new ones.
    pub fn store_code_u32(&self, offset: u64, value: u32) {
        assert!(offset % 64 <= 60, "code patch across cache lines at {offset:#x}");
        let to = self.at(offset, 4);
        // SAFETY: in bounds; a single mov of four bytes within a cache line is atomic on x86-64.
        unsafe {
            std::arch::asm!("mov dword ptr [{to}], {value:e}", to = in(reg) to, value = in(reg) value,
                options(nostack, preserves_flags));
        }
    }
}

/// A memfd that may be mapped executable, also where the machine's default is that it may not.
fn memfd(name: &std::ffi::CStr) -> RawFd {
    const MFD_EXEC: libc::c_uint = 0x10;
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a C string; flags are numbers.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), flags | MFD_EXEC) };
    if fd >= 0 {
        return fd;
    }
    // Kernels before 6.3 do not know the flag.
    // SAFETY: as above.
    unsafe { libc::memfd_create(name.as_ptr(), flags) }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` and nothing borrowed from `self` outlives it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len as usize) };
    }
}
