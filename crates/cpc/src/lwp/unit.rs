//! The counting unit: LWP, real or modelled.

use std::fmt::Debug;
use std::sync::Arc;

use lwp_arch::cpuid::Capabilities;
use lwp_arch::cpuid::fn8000_001c::Features;

use super::memory::Memory;

/// The LWP unit of the processor a thread runs on. Each thread has state of its own in it.
pub(crate) trait Unit: Debug + Send + Sync {
    /// The static half of its CPUID leaf.
    fn capabilities(&self) -> Capabilities;

    /// Returns the features that a program may use.
    fn enabled(&self) -> Features;

    /// Returns whether the unit has a threshold interrupt that the program may hear of.
    fn interrupts(&self) -> bool;

    /// Has the calling thread hear of threshold interrupts. Returns whether it can.
    fn hear(&self) -> bool;

    /// LLWPCB: the calling thread's events go to `memory`, which lives at least until they no
    /// longer do.
    fn load(&self, memory: &Arc<Memory>);

    /// LLWPCB of 0, if `memory` is the active block of the calling thread: counters and head are
    /// flushed, and nothing is counted any more.
    fn unload(&self, memory: &Arc<Memory>);

    /// SLWPCB: flushes, and returns the address of the active block, 0 without one.
    fn flush(&self) -> u64;

    /// LWPINS of nothing but zeros: a record of EventId 255.
    fn insert(&self);
}
