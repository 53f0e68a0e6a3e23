//! The metadata page of an event, and reading a counter through it without a system call.

use std::fmt::Debug;
use std::sync::atomic::{Ordering, fence};

/// Offsets in `struct perf_event_mmap_page`, in bytes.
///
/// Spec: perf_event_open(2), "MMAP layout".
pub mod field {
    /// Seqlock: odd while the kernel writes.
    pub const LOCK: usize = 8;
    /// Hardware counter number plus one; 0 while the event is on none.
    pub const INDEX: usize = 12;
    /// The number to add to the hardware counter.
    pub const OFFSET: usize = 16;
    /// Time enabled, ns, when the page was written.
    pub const TIME_ENABLED: usize = 24;
    /// Time counting, ns, when the page was written.
    pub const TIME_RUNNING: usize = 32;
    /// Capabilities.
    pub const CAPABILITIES: usize = 40;
    /// u16 pmc_width, u16 time_shift.
    pub const WIDTH_SHIFT: usize = 48;
    /// u32 time_mult.
    pub const TIME_MULT: usize = 52;
    /// u64 time_offset.
    pub const TIME_OFFSET: usize = 56;
    /// u64 time_cycles.
    pub const TIME_CYCLES: usize = 80;
    /// u64 time_mask.
    pub const TIME_MASK: usize = 88;
    /// Bytes ever written to the ring.
    pub const DATA_HEAD: usize = 1024;
    /// Bytes ever read from it.
    pub const DATA_TAIL: usize = 1032;
}

/// `cap_bit0_is_deprecated`: the other capability bits mean what they say (Linux 3.12).
const CAP_VALID: u64 = 1 << 1;
const CAP_USER_RDPMC: u64 = 1 << 2;
const CAP_USER_TIME: u64 = 1 << 3;
const CAP_USER_TIME_SHORT: u64 = 1 << 5;

/// The number of times that a reader tries again while the kernel writes, before it gives up.
const TRIES: u32 = 64;

/// An event's shared memory.
pub trait Pages: Debug + Send + Sync {
    /// A u32 of the metadata page, with acquire ordering.
    fn load32(&self, offset: usize) -> u32;
    /// A u64 of the metadata page, with acquire ordering.
    fn load64(&self, offset: usize) -> u64;
    /// Tells the kernel that the ring was read up to `tail`, with release ordering.
    fn set_tail(&self, tail: u64);
    /// Size of the ring, 0 without one.
    fn data_bytes(&self) -> usize;
    /// Copies out of the ring. The range must lie inside it.
    fn copy(&self, offset: usize, bytes: &mut [u8]);
    /// The RDPMC instruction.
    fn rdpmc(&self, counter: u32) -> u64;
    /// The RDTSC instruction.
    fn tsc(&self) -> u64;
    /// The event's count, without a system call; see [`read_user`].
    fn user_count(&self) -> Option<UserCount>;
}

/// A count read in user space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserCount {
    /// Events counted.
    pub value: u64,
    /// Time enabled, ns; `None` where the time stamp counter is no clock on this machine.
    pub enabled_ns: Option<u64>,
    /// Time counting, ns.
    pub running_ns: Option<u64>,
}

/// Reads the count of an event of the calling thread through its metadata page.
///
/// `None` where read(2) must be asked: the kernel forbids RDPMC, the event is on no hardware
/// counter right now (software events never are), or the kernel kept writing. The thread may be
/// moved to another processor at any point; the kernel then bumps the lock, and the attempt is
/// repeated.
///
/// Only right for events of the calling thread: for another thread's or a processor's event the
/// instruction would read whatever this processor counts.
///
/// Spec: perf_event_open(2), "rdpmc instruction"; perf_event.h, comment on `lock`.
#[inline]
pub fn read_user<P: Pages + ?Sized>(page: &P) -> Option<UserCount> {
    for _ in 0..TRIES {
        let lock = page.load32(field::LOCK);
        if lock & 1 != 0 {
            std::hint::spin_loop();
            continue;
        }
        fence(Ordering::Acquire);
        let count = attempt(page);
        // The loads above must not sink below the second look at the lock.
        fence(Ordering::Acquire);
        if page.load32(field::LOCK) == lock {
            return count;
        }
    }
    None
}

#[inline]
fn attempt<P: Pages + ?Sized>(page: &P) -> Option<UserCount> {
    let capabilities = page.load64(field::CAPABILITIES);
    let index = page.load32(field::INDEX);
    if capabilities & CAP_VALID == 0 || capabilities & CAP_USER_RDPMC == 0 || index == 0 {
        return None;
    }
    let width_shift = page.load32(field::WIDTH_SHIFT);
    let width = width_shift & 0xffff;
    let counter = page.rdpmc(index - 1);
    let value = page.load64(field::OFFSET).wrapping_add(sign_extended(counter, width));
    let passed = (capabilities & CAP_USER_TIME != 0).then(|| {
        let short = capabilities & CAP_USER_TIME_SHORT != 0;
        passed_ns(page, width_shift >> 16, short)
    });
    let time = |field| passed.map(|passed| page.load64(field).wrapping_add(passed));
    Some(UserCount {
        value,
        enabled_ns: time(field::TIME_ENABLED),
        running_ns: time(field::TIME_RUNNING),
    })
}

/// Extends the sign of a `width`-bit counter: the kernel programs counters to negative values.
fn sign_extended(counter: u64, width: u32) -> u64 {
    if width == 0 || width >= 64 {
        return counter;
    }
    let unused = 64 - width;
    ((counter << unused).cast_signed() >> unused).cast_unsigned()
}

/// Nanoseconds from when the page was written until now.
fn passed_ns<P: Pages + ?Sized>(page: &P, shift: u32, short: bool) -> u64 {
    let shift = shift & 63;
    let mut cycles = page.tsc();
    if short {
        let base = page.load64(field::TIME_CYCLES);
        let mask = page.load64(field::TIME_MASK);
        cycles = base.wrapping_add(cycles.wrapping_sub(base) & mask);
    }
    let mult = u64::from(page.load32(field::TIME_MULT));
    let quotient = (cycles >> shift).wrapping_mul(mult);
    let rest = (cycles & ((1 << shift) - 1)).wrapping_mul(mult) >> shift;
    page.load64(field::TIME_OFFSET).wrapping_add(quotient).wrapping_add(rest)
}
