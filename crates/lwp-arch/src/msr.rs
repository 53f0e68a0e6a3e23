//! The model-specific registers of LWP.

use crate::LinearAddr;
use crate::cpuid::fn8000_001c::Features;
use crate::event::EventFlags;

/// `LWP_CFG`, MSR C000_0105h: what the system allows user programs to do.
///
/// ```text
///   63      48 47    40 39    32  31  30   29  28     7   6   5   4   3   2   1  0
///  +----------+--------+--------+---+----+----+--------+---+---+---+---+---+---+-+
///  | reserved | VECTOR | COREID |INT|PTSC|CONT|reserved|RNH|CNH|DME|BRE|IRE|VAL|-|
///  +----------+--------+--------+---+----+----+--------+---+---+---+---+---+---+-+
/// ```
///
/// Reset value 0.
///
/// Spec: LWP §2.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct LwpCfg(u64);

impl LwpCfg {
    /// Register number.
    pub const MSR: u32 = 0xC000_0105;

    /// A register that allows `flags`, stamps records with `core_id` and interrupts with `vector`.
    pub const fn new(flags: EventFlags, core_id: u8, vector: u8) -> Self {
        Self(flags.bits() as u64 | (core_id as u64) << 32 | (vector as u64) << 40)
    }

    /// Returns the register after WRMSR of `value`, or `None` if WRMSR raises `#GP(0)` because
    /// `value` has an enable bit in 31:1 that the processor lacks.
    ///
    /// Bit 0 and bits 63:48 are ignored.
    ///
    /// Spec: LWP §2.1.
    pub const fn write(value: u64, hardware: Features) -> Option<Self> {
        let enables = value as u32 & !1;
        if enables & !hardware.bits() != 0 {
            return None;
        }
        Some(Self(value & 0x0000_FFFF_0000_0000 | enables as u64))
    }

    /// The value RDMSR returns.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Events and modes allowed, bits 31:1.
    pub const fn flags(self) -> EventFlags {
        EventFlags::from_bits_retain(self.0 as u32)
    }

    /// COREID, bits 39:32: byte 1 of every record.
    pub const fn core_id(self) -> u8 {
        (self.0 >> 32) as u8
    }

    /// VECTOR, bits 47:40: the interrupt that is raised at the threshold; 0 means none: DEV-11.
    pub const fn vector(self) -> u8 {
        (self.0 >> 40) as u8
    }
}

/// `LWP_CBADDR`, MSR C000_0106h: linear address of the active LWPCB, 0 when LWP is off.
///
/// Spec: LWP §2.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct LwpCbaddr(pub LinearAddr);

impl LwpCbaddr {
    /// Register number.
    pub const MSR: u32 = 0xC000_0106;
}

/// The performance time-stamp counter, whose value is in records if time stamps are requested.
///
/// Spec: LWP §4.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Ptsc(pub u64);

impl Ptsc {
    /// Register number.
    pub const MSR: u32 = 0xC001_0280;
    /// Counts per second.
    pub const FREQUENCY_HZ: u64 = 100_000_000;
}

bitflags::bitflags! {
    /// `LWPMSR0` of the proposal, which never got a number.
    ///
    /// Setting a bit the processor lacks raises `#GP(0)`. Leaf `8000_001C` EAX mirrors the
    /// register.
    ///
    /// Spec: P07 §5.2.1 table 3.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct LwpMsr0: u32 {
        /// LWP may be used.
        const ENABLED = 1 << 0;
        /// Instructions retired may be counted.
        const IRE = 1 << 1;
        /// Branches retired may be counted.
        const BRE = 1 << 2;
        /// DCache misses may be counted.
        const DME = 1 << 3;
        /// The threshold may interrupt.
        const INTERRUPT = 1 << 31;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpuid::presets;

    /// The masks a probe of an FX-8150 found: bits 30:4 fault, 0 and 63:48 are ignored.
    ///
    /// Spec: LWP §2.1
    #[test]
    fn lwp_spec_2_1_write_masks_of_a_real_part() {
        let hardware = presets::BULLDOZER.features;
        for bit in 0..64 {
            let written = LwpCfg::write(1 << bit, hardware);
            match bit {
                4..=30 => assert_eq!(written, None, "bit {bit}"),
                0 | 48..=63 => assert_eq!(written, Some(LwpCfg::default()), "bit {bit}"),
                _ => assert_eq!(written.map(LwpCfg::bits), Some(1 << bit), "bit {bit}"),
            }
        }
    }

    /// Spec: LWP §2.1
    #[test]
    fn lwp_spec_2_1_fields() {
        let cfg = LwpCfg::new(EventFlags::BRE | EventFlags::INT, 7, 0xFF);
        assert_eq!(cfg.bits(), 0x0000_FF07_8000_0008);
        assert_eq!((cfg.core_id(), cfg.vector()), (7, 0xFF));
        assert_eq!(cfg.flags(), EventFlags::BRE | EventFlags::INT);
        assert_eq!(LwpCfg::default().bits(), 0, "reset value");
    }

    /// Spec: LWP §2.1, §2.2
    #[test]
    fn lwp_spec_2_numbers() {
        assert_eq!((LwpCfg::MSR, LwpCbaddr::MSR), (0xC000_0105, 0xC000_0106));
    }

    /// Spec: P07 §5.2.1
    #[test]
    fn p07_5_2_1_bits() {
        let all = LwpMsr0::all();
        assert_eq!(all.bits(), 0x8000_000F);
    }
}
