//! The state of the processor around the unit, as far as the unit depends on it.

use lwp_arch::{Fault, LinearAddr};

/// Operating mode.
///
/// Spec: LWP §5.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Real mode: no LWP instructions.
    Real,
    /// Virtual-8086 mode: no LWP instructions.
    Virtual8086,
    /// Protected mode with 16- or 32-bit code, outside long mode.
    Protected,
    /// Compatibility mode.
    Compatibility,
    /// 64-bit mode.
    Long,
}

/// The data segment.
///
/// Spec: LWP §5.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DataSegment {
    /// Base; taken as 0 in 64-bit mode.
    pub base: u64,
    /// Highest valid offset; not looked at in 64-bit mode.
    pub limit: u32,
}

/// The processor as the unit needs to know it at the moment of an operation.
///
/// Spec: LWP §5.2, §6.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cpu {
    /// Operating mode.
    pub mode: Mode,
    /// Current privilege level.
    pub cpl: u8,
    /// In System Management Mode.
    pub smm: bool,
    /// DS.
    pub ds: DataSegment,
}

impl Cpu {
    /// A user program in 64-bit mode.
    pub const fn user_64() -> Self {
        Self { mode: Mode::Long, cpl: 3, smm: false, ds: DataSegment { base: 0, limit: u32::MAX } }
    }

    /// A user program in 32-bit code with a flat data segment.
    pub const fn user_32() -> Self {
        Self { mode: Mode::Compatibility, ..Self::user_64() }
    }

    /// A kernel in 64-bit mode.
    pub const fn kernel_64() -> Self {
        Self { cpl: 0, ..Self::user_64() }
    }

    /// Returns whether LWP instructions exist in this mode.
    ///
    /// Spec: LWP §5.2.
    pub(crate) const fn has_lwp_instructions(&self) -> bool {
        !matches!(self.mode, Mode::Real | Mode::Virtual8086)
    }

    /// Returns whether the unit works: only at CPL 3, never in SMM.
    ///
    /// Spec: P07 §3; LWP §6.2, §6.3.
    pub(crate) const fn profiles(&self) -> bool {
        self.cpl == 3 && !self.smm
    }

    /// Base of DS, which 64-bit mode takes as 0.
    pub(crate) const fn ds_base(&self) -> u64 {
        if matches!(self.mode, Mode::Long) { 0 } else { self.ds.base }
    }

    /// Checks that `length` bytes at DS:`effective` can be addressed and returns their linear
    /// address.
    ///
    /// # Faults
    ///
    /// `#GP(0)` beyond the limit of DS; in 64-bit mode, which has no limit, for an address that is
    /// not canonical: DEV-15.
    ///
    /// Spec: LWP §5.3.
    pub(crate) fn linear(&self, effective: u64, length: u64) -> Result<LinearAddr, Fault> {
        let last = effective.checked_add(length.saturating_sub(1)).ok_or(Fault::Gp0)?;
        if self.mode == Mode::Long {
            let same_half = effective >> 63 == last >> 63;
            return if canonical(effective) && canonical(last) && same_half {
                Ok(LinearAddr(effective))
            } else {
                Err(Fault::Gp0)
            };
        }
        if last > u64::from(self.ds.limit) {
            return Err(Fault::Gp0);
        }
        Ok(LinearAddr(effective.wrapping_add(self.ds.base) & 0xFFFF_FFFF))
    }

    /// The effective address DS:… of a linear one.
    ///
    /// Spec: LWP §5.4.
    pub(crate) const fn effective(&self, linear: LinearAddr) -> u64 {
        let effective = linear.0.wrapping_sub(self.ds_base());
        if matches!(self.mode, Mode::Long) { effective } else { effective & 0xFFFF_FFFF }
    }
}

/// Bits 63:47 are equal.
const fn canonical(address: u64) -> bool {
    let high = address.cast_signed() >> 47;
    high == 0 || high == -1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: LWP §5.3. DEV-15
    #[test]
    fn lwp_spec_5_3_dev_15_ranges_beyond_the_segment_fault() {
        let small = Cpu { ds: DataSegment { base: 0x1_0000, limit: 0xFFF }, ..Cpu::user_32() };
        assert_eq!(small.linear(0xF00, 0x100), Ok(LinearAddr(0x1_0F00)));
        assert_eq!(small.linear(0xF01, 0x100), Err(Fault::Gp0));
        assert_eq!(small.effective(LinearAddr(0x1_0F00)), 0xF00);
    }

    /// Spec: LWP §5.3. DEV-15
    #[test]
    fn lwp_spec_5_3_dev_15_long_mode_ignores_the_segment_but_wants_canonical_addresses() {
        let long = Cpu { ds: DataSegment { base: 0x1_0000, limit: 0xFFF }, ..Cpu::user_64() };
        assert_eq!(long.linear(0x7FFF_FFFF_FF00, 0x100), Ok(LinearAddr(0x7FFF_FFFF_FF00)));
        assert_eq!(long.linear(0x7FFF_FFFF_FF01, 0x100), Err(Fault::Gp0));
        assert_eq!(long.linear(u64::MAX, 2), Err(Fault::Gp0));
        assert_eq!(long.linear(0xFFFF_8000_0000_0000, 8), Ok(LinearAddr(0xFFFF_8000_0000_0000)));
        assert_eq!(long.effective(LinearAddr(5)), 5);
    }
}
