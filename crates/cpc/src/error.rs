//! Errors: an `errno` and, for those that reach an error handler, a subcode.

use std::borrow::Cow;

/// The code that libcpc passes to an error handler, in addition to `errno`.
///
/// The numbers are the interface's own (`CPC_INVALID_EVENT` is 1 and so on).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum Subcode {
    /// No counter can count the event, or the name is unknown.
    InvalidEvent = 1,
    /// The attribute `picnum` names a counter that does not exist.
    InvalidPicnum = 2,
    /// An attribute is unknown, or has no meaning for this event.
    InvalidAttribute = 3,
    /// The value of an attribute is out of range.
    AttributeOutOfRange = 4,
    /// The machine lacks counters that the requests need, or doesn't have them all at the same
    /// time.
    ResourceUnavailable = 5,
    /// The counter of `picnum` cannot count the event.
    PicNotCapable = 6,
    /// Request flags are unknown, or this event doesn't support them.
    InvalidFlags = 7,
    /// Two requests contradict each other.
    ConflictingRequests = 8,
    /// The caller may not use the attribute.
    AttributeRequiresPrivilege = 9,
    /// The thread could not be bound to the processor.
    PbindFailed = 10,
    /// The hypervisor's events can't be counted.
    HypervisorNoAccess = 11,
}

/// The function that failed, whose name is passed to an error handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Function {
    /// `cpc_set_add_request`
    SetAddRequest,
    /// `cpc_bind_curlwp`
    BindCurlwp,
    /// `cpc_bind_pctx`
    BindPctx,
    /// `cpc_bind_cpu`
    BindCpu,
}

impl Function {
    /// The name in the C interface.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SetAddRequest => "cpc_set_add_request",
            Self::BindCurlwp => "cpc_bind_curlwp",
            Self::BindPctx => "cpc_bind_pctx",
            Self::BindCpu => "cpc_bind_cpu",
        }
    }
}

/// The kind of failure that an [`Error`] reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No counter can count the event, or its name is unknown.
    UnknownEvent,
    /// The attribute is unknown, or has no meaning for this event.
    UnknownAttribute,
    /// The value of an attribute is out of range.
    AttributeOutOfRange,
    /// The attribute `picnum` names a counter that does not exist.
    NoSuchCounter,
    /// The counter that `picnum` names cannot count the event.
    CounterNotCapable,
    /// The machine lacks counters that the requests need, or doesn't have them all at the same
    /// time.
    CountersUnavailable,
    /// Two requests contradict each other.
    ConflictingRequests,
    /// The flags are unknown, or this event doesn't support them.
    InvalidFlags,
    /// The thread could not be bound to the processor, or the processor is offline.
    ProcessorUnavailable,
    /// The caller lacks a right.
    PermissionDenied,
    /// The call is invalid in this state: the set is not bound, an index is out of range, or the
    /// shapes of buffers differ.
    InvalidInput,
    /// There is no such thread.
    NoSuchThread,
    /// The counters are taken, counts were lost, the thread is not on the processor that it was
    /// bound to, or the call comes from a handler that interrupted another call of this crate.
    TryAgain,
    /// The machine cannot do this.
    Unsupported,
    /// There is no memory.
    OutOfMemory,
    /// The system refused for another reason; see [`Error::errno`].
    Other,
}

/// The reason why a call failed.
///
/// [`Self::kind`] is for programs. The text is for people: one sentence without a line end that
/// explains what is wrong and, if possible, what to do.
///
/// Creating an error without a subcode allocates nothing, so functions that signal handlers may
/// call can return one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Error {
    errno: i32,
    subcode: Option<Subcode>,
    reason: Cow<'static, str>,
}

/// Result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A failure without a subcode.
    pub(crate) const fn new(errno: i32, reason: &'static str) -> Self {
        Self { errno, subcode: None, reason: Cow::Borrowed(reason) }
    }

    /// A failure without a subcode whose reason was put together.
    pub(crate) fn described(errno: i32, reason: String) -> Self {
        Self { errno, subcode: None, reason: Cow::Owned(reason) }
    }

    /// An error with a subcode, which determines `errno`: EACCES if a right is missing, otherwise
    /// EINVAL.
    pub(crate) fn coded(subcode: Subcode, reason: impl Into<Cow<'static, str>>) -> Self {
        let errno = match subcode {
            Subcode::AttributeRequiresPrivilege | Subcode::HypervisorNoAccess => libc::EACCES,
            _ => libc::EINVAL,
        };
        Self { errno, subcode: Some(subcode), reason: reason.into() }
    }

    /// Returns this error with a different `errno`.
    #[must_use]
    pub(crate) fn with_errno(self, errno: i32) -> Self {
        Self { errno, ..self }
    }

    /// EINVAL without a subcode.
    pub(crate) const fn invalid(reason: &'static str) -> Self {
        Self::new(libc::EINVAL, reason)
    }

    /// What kind of failure this is.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self.subcode {
            Some(Subcode::InvalidEvent) => ErrorKind::UnknownEvent,
            Some(Subcode::InvalidPicnum) => ErrorKind::NoSuchCounter,
            Some(Subcode::InvalidAttribute) => ErrorKind::UnknownAttribute,
            Some(Subcode::AttributeOutOfRange) => ErrorKind::AttributeOutOfRange,
            // The kernel refuses counters to those who may not count, too.
            Some(Subcode::ResourceUnavailable) if self.errno == libc::EACCES => {
                ErrorKind::PermissionDenied
            }
            Some(Subcode::ResourceUnavailable) => ErrorKind::CountersUnavailable,
            Some(Subcode::PicNotCapable) => ErrorKind::CounterNotCapable,
            Some(Subcode::InvalidFlags) => ErrorKind::InvalidFlags,
            Some(Subcode::ConflictingRequests) => ErrorKind::ConflictingRequests,
            Some(Subcode::AttributeRequiresPrivilege | Subcode::HypervisorNoAccess) => {
                ErrorKind::PermissionDenied
            }
            Some(Subcode::PbindFailed) => ErrorKind::ProcessorUnavailable,
            None => match self.errno {
                libc::EINVAL => ErrorKind::InvalidInput,
                libc::ESRCH => ErrorKind::NoSuchThread,
                libc::EAGAIN => ErrorKind::TryAgain,
                libc::EACCES | libc::EPERM => ErrorKind::PermissionDenied,
                libc::ENOTSUP => ErrorKind::Unsupported,
                libc::ENOSYS => ErrorKind::ProcessorUnavailable,
                libc::ENOMEM => ErrorKind::OutOfMemory,
                _ => ErrorKind::Other,
            },
        }
    }

    /// The `errno` value that the C library `libcpc` reports for this error.
    #[must_use]
    pub const fn errno(&self) -> i32 {
        self.errno
    }

    /// The code for an error handler, if this failure is reported to one.
    pub(crate) const fn subcode(&self) -> Option<Subcode> {
        self.subcode
    }

    /// One sentence without a line end that explains what is wrong and, if possible, what to do.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errno_follows_from_the_subcode() {
        assert_eq!(Error::coded(Subcode::InvalidEvent, "x").errno(), libc::EINVAL);
        assert_eq!(Error::coded(Subcode::HypervisorNoAccess, "x").errno(), libc::EACCES);
        let denied = Error::coded(Subcode::AttributeRequiresPrivilege, "x");
        assert_eq!(denied.errno(), libc::EACCES);
        assert_eq!(Error::coded(Subcode::PbindFailed, "x").with_errno(1).errno(), 1);
    }

    #[test]
    fn kinds_tell_failures_with_the_same_number_apart() {
        let coded = |subcode| Error::coded(subcode, "x").kind();
        assert_eq!(coded(Subcode::InvalidEvent), ErrorKind::UnknownEvent);
        assert_eq!(coded(Subcode::PicNotCapable), ErrorKind::CounterNotCapable);
        assert_eq!(coded(Subcode::HypervisorNoAccess), ErrorKind::PermissionDenied);
        let unavailable = Error::coded(Subcode::ResourceUnavailable, "x");
        assert_eq!(unavailable.kind(), ErrorKind::CountersUnavailable);
        assert_eq!(unavailable.with_errno(libc::EACCES).kind(), ErrorKind::PermissionDenied);
        assert_eq!(Error::invalid("x").kind(), ErrorKind::InvalidInput);
        assert_eq!(Error::new(libc::EAGAIN, "x").kind(), ErrorKind::TryAgain);
        assert_eq!(Error::new(libc::EIO, "x").kind(), ErrorKind::Other);
    }

    #[test]
    fn subcodes_have_the_numbers_of_the_interface() {
        assert_eq!(Subcode::InvalidEvent as i32, 1);
        assert_eq!(Subcode::HypervisorNoAccess as i32, 11);
    }
}
