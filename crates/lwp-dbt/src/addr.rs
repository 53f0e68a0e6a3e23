//! Addresses of the two kinds of code. They are different types because mixing them up is the
//! classic mistake of a translator.

use std::fmt;

/// An address in the application's own code.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AppPc(pub u64);

/// An address in translated code, as the tracee sees it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CachePc(pub u64);

impl AppPc {
    /// The address `bytes` further on.
    pub fn offset(self, bytes: u64) -> Self {
        Self(self.0.wrapping_add(bytes))
    }
}

impl CachePc {
    /// The address `bytes` further on.
    pub fn offset(self, bytes: u64) -> Self {
        Self(self.0.wrapping_add(bytes))
    }
}

impl fmt::Debug for AppPc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "app:{:#x}", self.0)
    }
}

impl fmt::Debug for CachePc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cache:{:#x}", self.0)
    }
}
