//! Addresses and offsets, one type per kind, so that they cannot be exchanged by accident.

use core::fmt;

/// Declares a newtype over an unsigned integer that prints in hexadecimal.
///
/// `address! { /// Doc. pub struct A(u64); }` gives the struct, `Display`, `LowerHex` and
/// `From<u64>`.
macro_rules! address {
    ($(#[$meta:meta])* pub struct $Name:ident($ty:ty);) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $Name(pub $ty);

        impl From<$ty> for $Name {
            fn from(value: $ty) -> Self {
                Self(value)
            }
        }

        impl fmt::LowerHex for $Name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::LowerHex::fmt(&self.0, f)
            }
        }

        impl fmt::Display for $Name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }
    };
}

address! {
    /// A linear address: an effective address after the segment base was added.
    ///
    /// The unit stores all its own pointers (LWPCB, ring) in this form, so a later change of DS
    /// doesn't move them.
    ///
    /// Spec: LWP §5.3.
    pub struct LinearAddr(u64);
}

address! {
    /// The address of an application instruction, as a record reports it: linear, CS base included.
    ///
    /// Spec: P07 §4; LWP §4.1.
    pub struct AppPc(u64);
}

address! {
    /// A byte offset from the start of the ring buffer.
    ///
    /// Spec: P07 §5.4; LWP §3.1.
    pub struct RingOffset(u32);
}

impl LinearAddr {
    /// Returns the address plus `bytes`. Wraps at the end of the address space, as the processor's
    /// address arithmetic does.
    #[must_use]
    pub const fn plus(self, bytes: u64) -> Self {
        Self(self.0.wrapping_add(bytes))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::format;

    /// Spec: LWP §5.3
    #[test]
    fn lwp_spec_5_3_addresses_wrap_and_print_in_hex() {
        assert_eq!(LinearAddr(u64::MAX).plus(2), LinearAddr(1));
        assert_eq!(format!("{} {:x}", AppPc(0x40_1000), RingOffset(0x20)), "0x401000 20");
    }
}
