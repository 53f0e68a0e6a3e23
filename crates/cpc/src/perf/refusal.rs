//! Failures of perf events as this interface reports them.

use lwp_perf::catalog::EventError;
use lwp_perf::pmu::TermError;
use lwp_perf::{Cause, Errno, Unavailable};

use crate::error::{Error, Subcode};

/// The reason why a context could not be made.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The kernel does not count the event.
    Event(Unavailable),
    /// Something else.
    Other(Error),
}

impl From<Unavailable> for Refusal {
    fn from(unavailable: Unavailable) -> Self {
        Self::Event(unavailable)
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

/// The failure that a refusal is, with what the kernel's number stood for and what to do.
pub(super) fn refused(refusal: Refusal) -> Error {
    let unavailable = match refusal {
        Refusal::Other(error) => return error,
        Refusal::Event(unavailable) => unavailable,
    };
    let reason = format!("{unavailable}: {}", unavailable.help());
    let plain = |errno: i32, reason: String| Error::described(errno, reason);
    match unavailable.cause {
        Cause::NoPmu | Cause::NoPmuInVm | Cause::NoSuchPmu { .. } | Cause::NotOnThisProcessor => {
            Error::coded(Subcode::InvalidEvent, reason)
        }
        Cause::TooMany { .. } => Error::coded(Subcode::ResourceUnavailable, reason),
        Cause::NoModes => Error::coded(Subcode::InvalidFlags, reason),
        // The handler is to hear which knob it is.
        Cause::Paranoid { .. } | Cause::NotOurs | Cause::Seccomp => {
            Error::coded(Subcode::ResourceUnavailable, reason).with_errno(libc::EACCES)
        }
        Cause::NoSampling => plain(libc::ENOTSUP, reason),
        Cause::Busy => plain(libc::EAGAIN, reason),
        Cause::NoThread(_) => plain(libc::ESRCH, reason),
        Cause::NoCpu(_) => plain(libc::ENOSYS, reason),
        Cause::Memory | Cause::Locked => plain(libc::ENOMEM, reason),
        _ => plain(unavailable.errno.map_or(libc::EINVAL, Errno::raw_os_error), reason),
    }
}

/// The failure that a name or an attribute is.
pub(super) fn of_event(error: EventError) -> Error {
    let subcode = match &error {
        EventError::Terms(TermError::Unknown { .. }) => Subcode::InvalidAttribute,
        EventError::Terms(_) => Subcode::AttributeOutOfRange,
        _ => Subcode::InvalidEvent,
    };
    Error::coded(subcode, error.to_string())
}
