//! Exceptions as values. The unit only reports them; whoever runs the unit raises them.

use crate::LinearAddr;

/// A page fault of one access.
///
/// Spec: LWP §6.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageFault {
    /// The value of CR2: the lowest byte that the access could not reach.
    pub address: LinearAddr,
    /// The access was a write.
    pub write: bool,
    /// The page is present, so this is a protection fault.
    pub present: bool,
}

impl PageFault {
    /// The error code the processor would push: bit 0 present, bit 1 write, bit 2 user.
    ///
    /// The user bit is always set, because the unit accesses memory with user privilege.
    ///
    /// Spec: LWP §6.4.
    pub const fn error_code(self) -> u32 {
        self.present as u32 | (self.write as u32) << 1 | 1 << 2
    }
}

/// An exception that an LWP instruction, an MSR access or one of the unit's own memory accesses can
/// cause.
///
/// Spec: P07 §5.3; LWP §5.2 to §5.6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// Invalid opcode: the processor has no LWP, the system hasn't enabled it, or the mode doesn't
    /// have it.
    #[error("#UD")]
    Ud,
    /// General protection with error code 0.
    #[error("#GP(0)")]
    Gp0,
    /// Page fault.
    #[error("#PF at {:#x}", .0.address)]
    Pf(PageFault),
}

impl Fault {
    /// Exception vector number.
    pub const fn vector(self) -> u8 {
        match self {
            Self::Ud => 6,
            Self::Gp0 => 13,
            Self::Pf(_) => 14,
        }
    }
}

impl From<PageFault> for Fault {
    fn from(fault: PageFault) -> Self {
        Self::Pf(fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: LWP §6.4
    #[test]
    fn lwp_spec_6_4_error_code_has_present_write_user() {
        let fault = |write, present| PageFault { address: LinearAddr(0x1000), write, present };
        assert_eq!(fault(false, false).error_code(), 0b100);
        assert_eq!(fault(true, false).error_code(), 0b110);
        assert_eq!(fault(true, true).error_code(), 0b111);
        assert_eq!(Fault::from(fault(true, true)).vector(), 14);
        assert_eq!((Fault::Ud.vector(), Fault::Gp0.vector()), (6, 13));
    }
}
