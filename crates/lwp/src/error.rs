//! Why LWP cannot be used as asked.

use lwp_arch::EventKind;

/// Why LWP cannot be used as asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// CPUID does not list LWP.
    #[error("this processor has no Lightweight Profiling (under `lwp run` it would)")]
    NoLwp,
    /// CPUID lists LWP, but the system has not switched it on.
    #[error("the system has not enabled Lightweight Profiling")]
    NotEnabled,
    /// CPUID contradicts itself.
    #[error("CPUID describes Lightweight Profiling inconsistently: {0}")]
    Inconsistent(lwp_arch::cpuid::LayoutError),
    /// This processor or system does not count the event.
    #[error("event {0:?} is not available here")]
    EventUnavailable(EventKind),
    /// This processor or system lacks a mode: threshold interrupts or time stamps.
    #[error("{0} are not available here")]
    ModeUnavailable(&'static str),
    /// This processor lacks a filter that was asked for.
    #[error("the filter by {0} is not available here")]
    FilterUnavailable(&'static str),
    /// A record every so many occurrences: the number is out of range.
    #[error("a record every {0} occurrences: the range is 1 to 33554432")]
    Interval(u32),
    /// More random bits than the control block can name.
    #[error("{0} random bits: at most 15")]
    RandomBits(u32),
    /// The ring is smaller than the processor accepts or larger than the control block can say.
    #[error("a ring of {records} records: the range is {min} to {max}")]
    RingSize {
        /// The number asked for.
        records: u32,
        /// The least the processor accepts.
        min: u32,
        /// The most the control block can describe.
        max: u32,
    },
    /// Another profile runs on this thread.
    #[error("another profile runs on this thread")]
    Busy,
    /// The processor granted less than CPUID offered.
    #[error("the processor did not grant everything the profile needs")]
    NotGranted,
    /// A file that was to be attached to does not hold a profile.
    #[error("the file does not hold a profile")]
    NotAProfile,
    /// Memory could not be had.
    #[error("memory for the profile: {0}")]
    Memory(rustix::io::Errno),
}

impl From<rustix::io::Errno> for Error {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Memory(error)
    }
}
