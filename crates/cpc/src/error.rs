//! Failures: an `errno`, and for the ones an error handler hears of, a subcode.

use std::borrow::Cow;

/// The code that libcpc tells an error handler beside `errno`.
///
/// The numbers are the interface's own (`CPC_INVALID_EVENT` is 1 and so on).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum Subcode {
    /// No counter can count the event, or the name is unknown.
    InvalidEvent = 1,
    /// The attribute `picnum` names a counter that does not exist.
    InvalidPicnum = 2,
    /// An attribute is unknown, or means nothing for this event.
    InvalidAttribute = 3,
    /// The value of an attribute does not fit.
    AttributeOutOfRange = 4,
    /// The counters the requests need are not there, together or at all.
    ResourceUnavailable = 5,
    /// The counter of `picnum` cannot count the event.
    PicNotCapable = 6,
    /// Request flags are unknown, or cannot be honoured for this event.
    InvalidFlags = 7,
    /// Two requests contradict each other.
    ConflictingRequests = 8,
    /// The caller may not use the attribute.
    AttributeRequiresPrivilege = 9,
    /// The thread could not be bound to the processor.
    PbindFailed = 10,
    /// The hypervisor cannot be counted.
    HypervisorNoAccess = 11,
}

/// The function of the interface that failed, as it is named to an error handler.
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
    pub const fn name(self) -> &'static str {
        match self {
            Self::SetAddRequest => "cpc_set_add_request",
            Self::BindCurlwp => "cpc_bind_curlwp",
            Self::BindPctx => "cpc_bind_pctx",
            Self::BindCpu => "cpc_bind_cpu",
        }
    }
}

/// The reason why a call failed.
///
/// Making one without a subcode allocates nothing, so calls that handlers of signals may make
/// report their failures safely.
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
    pub const fn new(errno: i32, reason: &'static str) -> Self {
        Self { errno, subcode: None, reason: Cow::Borrowed(reason) }
    }

    /// A failure without a subcode whose reason was put together.
    pub fn described(errno: i32, reason: String) -> Self {
        Self { errno, subcode: None, reason: Cow::Owned(reason) }
    }

    /// A failure with a subcode. `errno` follows from it: EACCES where a right is missing, else
    /// EINVAL.
    pub fn coded(subcode: Subcode, reason: impl Into<Cow<'static, str>>) -> Self {
        let errno = match subcode {
            Subcode::AttributeRequiresPrivilege | Subcode::HypervisorNoAccess => libc::EACCES,
            _ => libc::EINVAL,
        };
        Self { errno, subcode: Some(subcode), reason: reason.into() }
    }

    /// The same failure with another `errno`.
    pub fn with_errno(self, errno: i32) -> Self {
        Self { errno, ..self }
    }

    /// EINVAL without a subcode.
    pub(crate) const fn invalid(reason: &'static str) -> Self {
        Self::new(libc::EINVAL, reason)
    }

    /// The number for `errno`.
    pub const fn errno(&self) -> i32 {
        self.errno
    }

    /// The subcode, if an error handler is to hear of it.
    pub const fn subcode(&self) -> Option<Subcode> {
        self.subcode
    }

    /// One sentence without a line end: what is wrong and, where it helps, what to do.
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
    fn subcodes_have_the_numbers_of_the_interface() {
        assert_eq!(Subcode::InvalidEvent as i32, 1);
        assert_eq!(Subcode::HypervisorNoAccess as i32, 11);
    }
}
