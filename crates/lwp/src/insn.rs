//! The four instructions, for which a caller needs proof that they exist.
//!
//! # Safety
//!
//! JUSTIFICATION: the instructions can only be written in assembly. All four raise an invalid
//! opcode exception if LWP is missing or not enabled, so the functions here take a [`Lwp`], which
//! only detection makes. After LLWPCB, the processor writes to memory by itself; [`Loaded`] keeps
//! that memory alive for as long.
#![allow(unsafe_code, reason = "inline assembly; see the module's safety section")]

use std::arch::asm;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::detect::Lwp;
use crate::ring::Region;

/// LLWPCB with a 64-bit operand.
///
/// # Safety
///
/// LWP is available. `address` is 0, or that of a control block that, with the ring it names, stays
/// mapped and is accessed as shared memory only, until LLWPCB is executed again on this thread.
unsafe fn llwpcb(address: u64) {
    // SAFETY: by the contract of this function. Without `nomem`: the processor writes memory.
    unsafe { asm!("llwpcb {}", in(reg) address, options(nostack, preserves_flags)) };
}

/// Memory that holds a control block and its ring.
///
/// # Safety
///
/// At [`Self::address`] is a control block with its ring in the same memory. As long as the value
/// lives, the memory stays mapped at that address, and is only accessed with atomics.
pub unsafe trait ControlBlock {
    /// Address of the control block.
    fn address(&self) -> u64;
}

// SAFETY: a region begins with a block whose ring lies in the region (`Region::write_block` sees to
// that), gives out atomics only, and is mapped as long as it lives.
unsafe impl ControlBlock for Region {
    fn address(&self) -> u64 {
        self.address()
    }
}

/// A control block that this thread has loaded. Dropping it ends profiling.
///
/// If you leak it (with [`std::mem::forget`], for example), the processor continues to write to the
/// memory, which is then never freed.
#[derive(Debug)]
#[must_use = "profiling ends when this is dropped"]
pub struct Loaded<M: ControlBlock> {
    lwp: Lwp,
    memory: Arc<M>,
    /// LLWPCB works on the thread that executes it.
    _bound_to_thread: PhantomData<*mut ()>,
}

impl<M: ControlBlock> Loaded<M> {
    /// Executes LLWPCB with the block in `memory`, which replaces this thread's earlier block if it
    /// had one.
    ///
    /// Load a block on one thread at a time. If two threads load the same block, they overwrite
    /// each other's records, which loses records but is otherwise harmless.
    ///
    /// Spec: LWP §5.3.
    pub fn new(lwp: Lwp, memory: Arc<M>) -> Self {
        // SAFETY: `lwp` is proof of LWP. The memory keeps the promises of `ControlBlock`, and lives
        // as long as `self` does.
        unsafe { llwpcb(memory.address()) };
        Self { lwp, memory, _bound_to_thread: PhantomData }
    }

    /// The memory that the processor writes to.
    #[must_use]
    pub fn memory(&self) -> &Arc<M> {
        &self.memory
    }
}

impl<M: ControlBlock> Drop for Loaded<M> {
    /// Executes LLWPCB with 0, unless somebody else's block has taken the place of this one.
    fn drop(&mut self) {
        if slwpcb(self.lwp) == self.memory.address() {
            // SAFETY: `self.lwp` is proof of LWP, and 0 names no memory.
            unsafe { llwpcb(0) };
        }
    }
}

/// SLWPCB; see [`Lwp::slwpcb`].
#[inline]
pub(crate) fn slwpcb(_: Lwp) -> u64 {
    let address;
    // SAFETY: a `Lwp` is proof of LWP. The processor writes to the active block and its ring,
    // which a `Loaded` keeps alive.
    unsafe { asm!("slwpcb {}", out(reg) address, options(nostack, preserves_flags)) };
    address
}

/// LWPINS; see [`Lwp::lwpins`].
#[inline]
pub(crate) fn lwpins<const FLAGS: u16>(_: Lwp, data2: u64, data1: u32) -> bool {
    let full: u8;
    // SAFETY: a `Lwp` is proof of LWP; the operands are registers. Of the flags only carry
    // changes.
    unsafe {
        asm!(
            "lwpins {data2}, {data1:e}, {flags}",
            "setc {full}",
            data2 = in(reg) data2,
            data1 = in(reg) data1,
            flags = const FLAGS,
            full = lateout(reg_byte) full,
            options(nostack),
        );
    }
    full != 0
}

/// LWPVAL; see [`Lwp::lwpval`].
#[inline]
pub(crate) fn lwpval<const FLAGS: u16>(_: Lwp, data2: u64, data1: u32) {
    // SAFETY: a `Lwp` is proof of LWP; the operands are registers, and no flag changes.
    unsafe {
        asm!(
            "lwpval {data2}, {data1:e}, {flags}",
            data2 = in(reg) data2,
            data1 = in(reg) data1,
            flags = const FLAGS,
            options(nostack, preserves_flags),
        );
    }
}
