//! Registers and memory operands.

/// A general register by hardware number: 0 rAX, 1 rCX, 2 rDX, 3 rBX, 4 rSP, 5 rBP, 6 rSI, 7 rDI; 8
/// to 15 are r8 to r15.
///
/// Spec: LWP §5.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gpr(u8);

impl Gpr {
    /// rAX.
    pub const RAX: Self = Self(0);
    /// rCX.
    pub const RCX: Self = Self(1);
    /// rDX.
    pub const RDX: Self = Self(2);
    /// rBX.
    pub const RBX: Self = Self(3);
    /// rSP.
    pub const RSP: Self = Self(4);
    /// rBP.
    pub const RBP: Self = Self(5);
    /// rSI.
    pub const RSI: Self = Self(6);
    /// rDI.
    pub const RDI: Self = Self(7);

    /// The register with this number, below 16.
    pub const fn new(number: u8) -> Option<Self> {
        if number < 16 { Some(Self(number)) } else { None }
    }

    /// A register from a field of four bits; higher bits are dropped.
    pub(super) const fn from_field(bits: u8) -> Self {
        Self(bits & 0xF)
    }

    /// Hardware number, 0 to 15.
    pub const fn number(self) -> u8 {
        self.0
    }
}

/// A segment override prefix.
///
/// Spec: LWP §5.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Segment {
    /// ES.
    Es = 0x26,
    /// CS.
    Cs = 0x2E,
    /// SS.
    Ss = 0x36,
    /// DS.
    Ds = 0x3E,
    /// FS.
    Fs = 0x64,
    /// GS.
    Gs = 0x65,
}

impl Segment {
    /// Returns the segment with this prefix byte.
    pub const fn from_prefix(byte: u8) -> Option<Self> {
        Some(match byte {
            0x26 => Self::Es,
            0x2E => Self::Cs,
            0x36 => Self::Ss,
            0x3E => Self::Ds,
            0x64 => Self::Fs,
            0x65 => Self::Gs,
            _ => return None,
        })
    }

    /// The prefix byte.
    pub const fn prefix(self) -> u8 {
        self as u8
    }
}

/// Width of address arithmetic.
///
/// Spec: LWP §5.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddressSize {
    /// 16 bits.
    Bits16,
    /// 32 bits.
    Bits32,
    /// 64 bits.
    Bits64,
}

impl AddressSize {
    /// `address` cut to this width.
    pub const fn truncate(self, address: u64) -> u64 {
        match self {
            Self::Bits16 => address & 0xFFFF,
            Self::Bits32 => address & 0xFFFF_FFFF,
            Self::Bits64 => address,
        }
    }
}

/// Base of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Base {
    /// A register.
    Register(Gpr),
    /// The address of the next instruction; 64-bit mode only.
    NextIp,
}

/// Index of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Index {
    /// The register; never rSP.
    pub register: Gpr,
    /// Base-2 logarithm of the scale, 0 to 3.
    pub scale_log2: u8,
}

/// A memory operand.
///
/// Spec: LWP §5.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Memory {
    /// Override prefix, if the instruction carries one.
    pub segment: Option<Segment>,
    /// Base, if any.
    pub base: Option<Base>,
    /// Index, if any.
    pub index: Option<Index>,
    /// Displacement, sign-extended.
    pub displacement: i32,
    /// Width of the arithmetic.
    pub address_size: AddressSize,
}

impl Memory {
    /// The effective address, before the segment base is added.
    ///
    /// `register` returns the 64-bit content of a register, `next_ip` is the effective address of
    /// the instruction that follows.
    ///
    /// Spec: LWP §5.1.
    pub fn effective_address(&self, register: impl Fn(Gpr) -> u64, next_ip: u64) -> u64 {
        let base = match self.base {
            Some(Base::Register(base)) => register(base),
            Some(Base::NextIp) => next_ip,
            None => 0,
        };
        let index = self.index.map_or(0, |i| register(i.register) << i.scale_log2);
        let sum = base.wrapping_add(index).wrapping_add_signed(i64::from(self.displacement));
        self.address_size.truncate(sum)
    }

    /// The segment to which the address is relative: the override, if any; otherwise SS if the base
    /// is rSP or rBP, and DS if not.
    pub const fn effective_segment(&self) -> Segment {
        match (self.segment, self.base) {
            (Some(segment), _) => segment,
            (None, Some(Base::Register(Gpr(4 | 5)))) => Segment::Ss,
            _ => Segment::Ds,
        }
    }
}

/// The r/m32 operand of LWPINS and LWPVAL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rm {
    /// The low 32 bits of a register.
    Register(Gpr),
    /// A dword in memory.
    Memory(Memory),
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: Memory = Memory {
        segment: None,
        base: Some(Base::Register(Gpr::RBP)),
        index: Some(Index { register: Gpr::RSI, scale_log2: 3 }),
        displacement: -1,
        address_size: AddressSize::Bits64,
    };

    /// Spec: LWP §5.1
    #[test]
    fn lwp_spec_5_1_effective_address_adds_scales_and_truncates() {
        let register = |r: Gpr| if r == Gpr::RBP { 0xFFFF_FFFF_0000_0000 } else { 0x10 };
        assert_eq!(MEMORY.effective_address(register, 0), 0xFFFF_FFFF_0000_007F);
        let narrow = Memory { address_size: AddressSize::Bits32, ..MEMORY };
        assert_eq!(narrow.effective_address(register, 0), 0x7F);
        let narrower = Memory { address_size: AddressSize::Bits16, displacement: -0x81, ..MEMORY };
        assert_eq!(narrower.effective_address(register, 0), 0xFFFF);
        let relative = Memory { base: Some(Base::NextIp), index: None, displacement: 16, ..MEMORY };
        assert_eq!(relative.effective_address(register, 0x1000), 0x1010);
    }

    /// Spec: LWP §5.1
    #[test]
    fn lwp_spec_5_1_stack_registers_imply_the_stack_segment() {
        assert_eq!(MEMORY.effective_segment(), Segment::Ss);
        let overridden = Memory { segment: Some(Segment::Gs), ..MEMORY };
        assert_eq!(overridden.effective_segment(), Segment::Gs);
        let data = Memory { base: Some(Base::Register(Gpr::RBX)), ..MEMORY };
        assert_eq!(data.effective_segment(), Segment::Ds);
    }

    /// Spec: LWP §5.1
    #[test]
    fn lwp_spec_5_1_registers_are_sixteen() {
        assert_eq!(Gpr::new(15).map(Gpr::number), Some(15));
        assert_eq!(Gpr::new(16), None);
    }

    /// Spec: LWP §5.1
    #[test]
    fn lwp_spec_5_1_segment_prefixes_map_back() {
        let known = (0..=255u8).filter_map(|byte| Some((byte, Segment::from_prefix(byte)?)));
        let mut count = 0;
        for (byte, segment) in known {
            assert_eq!(segment.prefix(), byte);
            count += 1;
        }
        assert_eq!(count, 6);
    }
}
