//! Detects LWP in the processor.

use std::arch::x86_64::__cpuid_count;

use lwp_arch::EventFlags;
use lwp_arch::cpuid::fn8000_001c::{Ebx, Ecx, Features};
use lwp_arch::cpuid::{Capabilities, fn8000_0001, fn8000_001c};
use lwp_arch::xsave::COMPONENT;

use crate::block::ProfileBuilder;
use crate::error::Error;
use crate::insn;

/// The least offset of an event slot. In the form of 2007, the version is in its place, which is 1.
///
/// Spec: P07 §5.1; LWP §1.2.
const LEAST_OFFSET: u32 = 88;

/// This processor's Lightweight Profiling. A value proves that the system has enabled it, so that
/// LWP's instructions can be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lwp {
    capabilities: Capabilities,
    enabled: Features,
}

impl Lwp {
    /// Asks CPUID whether there is Lightweight Profiling. Executes no LWP instruction.
    ///
    /// # Errors
    ///
    /// [`Error::NoLwp`] if the processor has none, [`Error::FormOf2007`] if it has the form
    /// proposed in 2007, [`Error::NotEnabled`] if the system has not enabled it, and
    /// [`Error::Inconsistent`] if CPUID describes an impossible control block.
    ///
    /// Spec: LWP §1.1, §1.2.
    pub fn detect() -> Result<Self, Error> {
        Self::from_cpuid(|leaf, subleaf| {
            let result = __cpuid_count(leaf, subleaf);
            [result.eax, result.ebx, result.ecx, result.edx]
        })
    }

    /// Asks `cpuid` in place of the processor.
    fn from_cpuid(cpuid: impl Fn(u32, u32) -> [u32; 4]) -> Result<Self, Error> {
        if cpuid(0x8000_0000, 0)[0] < fn8000_001c::LEAF
            || cpuid(fn8000_0001::LEAF, 0)[2] & fn8000_0001::ECX_LWP == 0
        {
            return Err(Error::NoLwp);
        }
        let [eax, ebx, ecx, edx] = cpuid(fn8000_001c::LEAF, 0);
        if Ebx(ebx).event_offset() < LEAST_OFFSET {
            return Err(Error::FormOf2007);
        }
        let enabled = Features::from_bits_retain(eax);
        if !enabled.contains(Features::LWP_AVAIL) {
            return Err(Error::NotEnabled);
        }
        let capabilities = Capabilities {
            features: Features::from_bits_retain(edx),
            ebx: Ebx(ebx),
            ecx: Ecx::from_bits_retain(ecx),
            xsave_offset: cpuid(0xD, COMPONENT)[1],
        };
        capabilities.validate().map_err(Error::Inconsistent)?;
        Ok(Self { capabilities, enabled })
    }

    /// The processor's capabilities.
    #[must_use]
    pub const fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// The events and modes that the system has enabled, and so grants to a control block.
    ///
    /// Spec: LWP §1.2.
    #[must_use]
    pub const fn enabled(&self) -> EventFlags {
        EventFlags::from_bits_retain(self.enabled.bits() & !Features::LWP_AVAIL.bits())
    }

    /// The features that the system has enabled, as EAX of the CPUID leaf shows them.
    #[must_use]
    pub const fn features(&self) -> Features {
        self.enabled
    }

    /// Returns a builder for a profile.
    pub fn profile(self) -> ProfileBuilder {
        ProfileBuilder::new(self)
    }

    /// Flushes this thread's profile, if there is one. Returns whether there is.
    #[must_use]
    pub fn is_active(self) -> bool {
        self.slwpcb() != 0
    }

    /// Flushes this thread's profile to memory. Returns the address of its control block; 0 if no
    /// profile runs on this thread.
    ///
    /// Spec: LWP §5.4.
    #[inline]
    pub fn slwpcb(self) -> u64 {
        insn::slwpcb(self)
    }

    /// Inserts a record of [`EventKind::Programmed`](crate::EventKind::Programmed): `FLAGS` in
    /// Flags, `data1` in Data1, `data2` in Data2. Does nothing if no profile runs on this thread.
    ///
    /// Returns whether the ring was full, in which case the record is lost.
    ///
    /// Spec: LWP §5.5.
    #[inline]
    pub fn lwpins<const FLAGS: u16>(self, data2: u64, data1: u32) -> bool {
        insn::lwpins::<FLAGS>(self, data2, data1)
    }

    /// Counts a value sample. If the counter of
    /// [`EventKind::ValueSample`](crate::EventKind::ValueSample) expires, the processor makes a
    /// record: `FLAGS` in Flags, `data1` in Data1, `data2` in Data2. Does nothing unless this
    /// thread's profile asked for the event.
    ///
    /// Spec: LWP §5.6.
    #[inline]
    pub fn lwpval<const FLAGS: u16>(self, data2: u64, data1: u32) {
        insn::lwpval::<FLAGS>(self, data2, data1);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use lwp_arch::cpuid::{Capabilities2007, presets};
    use lwp_arch::msr::{LwpCfg, LwpMsr0};
    use lwp_arch::xsave::XCR0_LWP;

    fn machine(part: Capabilities, max_leaf: u32, present: bool, xcr0: u64) -> Result<Lwp, Error> {
        let all = EventFlags::from_bits_retain(part.features.bits() & !1);
        let leaf = part.leaf(xcr0, LwpCfg::new(all, 0, 0));
        Lwp::from_cpuid(|number, subleaf| match (number, subleaf) {
            (0x8000_0000, _) => [max_leaf, 0, 0, 0],
            (0x8000_0001, _) => [0, 0, u32::from(present) << 15, 0],
            (0x8000_001C, _) => [leaf.eax, leaf.ebx, leaf.ecx, leaf.edx],
            (0xD, 62) => [128, part.xsave_offset, 0, 0],
            _ => [0; 4],
        })
    }

    /// A processor of this kind, everything switched on. Only for what executes nothing.
    pub(crate) fn part(capabilities: Capabilities) -> Lwp {
        machine(capabilities, 0x8000_001C, true, XCR0_LWP).unwrap()
    }

    /// Spec: LWP §1.1
    #[test]
    fn lwp_spec_1_1_absence_is_an_error() {
        let part = presets::FULL;
        assert_eq!(machine(part, 0x8000_0008, true, XCR0_LWP), Err(Error::NoLwp));
        assert_eq!(machine(part, 0x8000_001C, false, XCR0_LWP), Err(Error::NoLwp));
        assert_eq!(machine(part, 0x8000_001C, true, 0), Err(Error::NotEnabled));
    }

    /// Spec: P07 §5.1; LWP §8
    /// Promise: W28
    #[test]
    fn p07_5_1_the_form_of_2007_is_refused_by_its_name() {
        let leaf = Capabilities2007::FULL.leaf(LwpMsr0::all());
        let detected = Lwp::from_cpuid(|number, _| match number {
            0x8000_0000 => [0x8000_001C, 0, 0, 0],
            0x8000_0001 => [0, 0, 1 << 15, 0],
            0x8000_001C => [leaf.eax, leaf.ebx, leaf.ecx, leaf.edx],
            _ => [0; 4],
        });
        assert_eq!(detected, Err(Error::FormOf2007));
        assert!(Error::FormOf2007.to_string().contains("2007"));
    }

    /// Spec: LWP §1.3
    #[test]
    fn lwp_spec_1_3_real_processors_are_understood() {
        for (name, capabilities) in presets::ALL {
            let lwp = part(capabilities);
            assert_eq!(lwp.capabilities(), &capabilities, "{name}");
            assert_eq!(lwp.enabled().bits(), capabilities.features.bits() & !1, "{name}");
        }
    }

    /// Spec: LWP §1.2
    #[test]
    fn lwp_spec_1_2_contradictions_are_an_error() {
        let broken = Capabilities { ebx: Ebx(0x8006_2001), ..presets::FULL };
        assert!(matches!(
            machine(broken, 0x8000_001C, true, XCR0_LWP),
            Err(Error::Inconsistent(_))
        ));
    }
}
