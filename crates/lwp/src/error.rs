//! The error of this crate.

use lwp_arch::EventKind;
use rustix::io::Errno;

/// The reason why a profile can't be built or run, or why generated code didn't get its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// CPUID does not list LWP.
    #[error("this processor has no Lightweight Profiling (under `lwp run` it would)")]
    NoLwp,
    /// CPUID lists LWP, but the system has not enabled it.
    #[error("the system has not enabled Lightweight Profiling")]
    NotEnabled,
    /// CPUID describes LWP in the form proposed in 2007, which this crate doesn't support.
    #[error(
        "this processor has Lightweight Profiling in the form proposed in 2007, not in the one of \
         later processors"
    )]
    FormOf2007,
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
    /// The number of occurrences between two records is out of range.
    #[error("a record every {0} occurrences: the range is 1 to 33554432")]
    Interval(u32),
    /// More random bits than a control block can have.
    #[error("{0} random bits: at most 15")]
    RandomBits(u32),
    /// The ring has no records, or more than a control block can describe.
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
    /// This profile is already running, on this thread or another.
    #[error("the profile runs already")]
    Running,
    /// The processor granted less than CPUID offered.
    #[error("the processor did not grant everything the profile needs")]
    NotGranted,
    /// The file given to [`Reader::attach`](crate::Reader::attach) doesn't hold a profile.
    #[error("the file does not hold a profile")]
    NotAProfile,
    /// The system refused memory.
    #[error("memory for the profile: {0}")]
    Memory(Errno),
    /// The name of generated code is empty or has a control character, such as a line feed, which
    /// would end its line in the perf map.
    #[error("a name of code must have characters, and none that control")]
    CodeName,
    /// The range of generated code has no bytes.
    #[error("the code has no bytes")]
    CodeEmpty,
    /// The perf map belongs to another user, has a second name, or isn't a regular file: somebody
    /// else created it.
    #[error("the list of generated code in /tmp is not this user's own file")]
    PerfMapNotOwned,
    /// The system refused to open or write the perf map.
    #[error("the list of generated code: {0}")]
    PerfMap(Errno),
}

impl Error {
    /// The `errno` value that the C library `liblwp` reports for this error.
    ///
    /// `ENODEV` without LWP, `ENOSYS` if the system has not enabled it, `ENOTSUP` for the form of
    /// 2007 and for events, modes and filters that this LWP lacks, `ERANGE` for numbers out of
    /// range, `EBUSY` if the thread or the profile is in use, `EIO` if the processor contradicts
    /// itself, `EINVAL` for a file without a profile and for unusable names and ranges of code,
    /// `EPERM` for somebody else's perf map, and the system's own number if the system refused
    /// something.
    #[must_use]
    pub fn errno(&self) -> i32 {
        let errno = match self {
            Self::NoLwp => Errno::NODEV,
            Self::NotEnabled => Errno::NOSYS,
            Self::FormOf2007
            | Self::EventUnavailable(_)
            | Self::ModeUnavailable(_)
            | Self::FilterUnavailable(_) => Errno::NOTSUP,
            Self::Interval(_) | Self::RandomBits(_) | Self::RingSize { .. } => Errno::RANGE,
            Self::Busy | Self::Running => Errno::BUSY,
            Self::Inconsistent(_) | Self::NotGranted => Errno::IO,
            Self::NotAProfile | Self::CodeName | Self::CodeEmpty => Errno::INVAL,
            Self::PerfMapNotOwned => Errno::PERM,
            Self::Memory(errno) | Self::PerfMap(errno) => *errno,
        };
        errno.raw_os_error()
    }
}

impl From<Error> for std::io::Error {
    /// An error with this one inside, and the [`ErrorKind`](std::io::ErrorKind) of its
    /// [`errno`](Error::errno).
    fn from(error: Error) -> Self {
        Self::new(Self::from_raw_os_error(error.errno()).kind(), error)
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
            (Error::FormOf2007, 95),
            (Error::EventUnavailable(EventKind::DcacheMisses), 95),
            (Error::ModeUnavailable("time stamps"), 95),
            (Error::FilterUnavailable("address"), 95),
            (Error::Interval(0), 34),
            (Error::RandomBits(16), 34),
            (size, 34),
            (Error::Busy, 16),
            (Error::Running, 16),
            (Error::NotGranted, 5),
            (Error::NotAProfile, 22),
            (Error::Memory(Errno::NOMEM), 12),
            (Error::CodeName, 22),
            (Error::CodeEmpty, 22),
            (Error::PerfMapNotOwned, 1),
            (Error::PerfMap(Errno::NOSPC), 28),
        ] {
            assert_eq!(error.errno(), number, "{error}");
        }
    }

    #[test]
    fn errors_of_input_and_output_keep_kind_and_text() {
        let error = std::io::Error::from(Error::PerfMapNotOwned);
        assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
        assert_eq!(error.to_string(), Error::PerfMapNotOwned.to_string());
    }
}
