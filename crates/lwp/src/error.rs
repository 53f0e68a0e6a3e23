//! The reason why LWP cannot be used as asked.

use lwp_arch::EventKind;
use rustix::io::Errno;

/// The reason why LWP cannot be used as asked.
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
    Memory(Errno),
}

impl Error {
    /// The number that C calls this by, one of `errno`: ENODEV without LWP, ENOSYS where the system
    /// has not enabled it, ENOTSUP for what this LWP lacks, ERANGE for numbers out of range, EBUSY
    /// for a thread that runs another profile, EIO for a processor that contradicts itself, EINVAL
    /// for a file without a profile, and the system's own for memory.
    pub fn errno(&self) -> i32 {
        let errno = match self {
            Self::NoLwp => Errno::NODEV,
            Self::NotEnabled => Errno::NOSYS,
            Self::EventUnavailable(_) | Self::ModeUnavailable(_) | Self::FilterUnavailable(_) => {
                Errno::NOTSUP
            }
            Self::Interval(_) | Self::RandomBits(_) | Self::RingSize { .. } => Errno::RANGE,
            Self::Busy => Errno::BUSY,
            Self::Inconsistent(_) | Self::NotGranted => Errno::IO,
            Self::NotAProfile => Errno::INVAL,
            Self::Memory(errno) => *errno,
        };
        errno.raw_os_error()
    }
}

impl From<Errno> for Error {
    fn from(error: Errno) -> Self {
        Self::Memory(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of Linux, which programs compare with.
    #[test]
    fn errors_have_the_numbers_of_c() {
        let size = Error::RingSize { records: 0, min: 1, max: 2 };
        for (error, number) in [
            (Error::NoLwp, 19),
            (Error::NotEnabled, 38),
            (Error::EventUnavailable(EventKind::DcacheMisses), 95),
            (Error::ModeUnavailable("time stamps"), 95),
            (Error::FilterUnavailable("address"), 95),
            (Error::Interval(0), 34),
            (Error::RandomBits(16), 34),
            (size, 34),
            (Error::Busy, 16),
            (Error::NotGranted, 5),
            (Error::NotAProfile, 22),
            (Error::Memory(Errno::NOMEM), 12),
        ] {
            assert_eq!(error.errno(), number, "{error}");
        }
    }
}
