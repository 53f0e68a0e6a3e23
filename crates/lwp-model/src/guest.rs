//! The LWP of a guest as a hypervisor keeps it, and its work when the guest comes and goes.
//!
//! A guest executes the four instructions by itself; they leave no trace that would have to be
//! emulated. CPUID, the two MSRs, and XSETBV as far as bit 62 is concerned are intercepted.
//! `LWP_CFG` is switched, and so is the XSAVE component, with the rest of the guest's state.
//!
//! Spec: P07 §5.5.2.2; LWP §6.3.

use lwp_arch::cpuid::fn8000_001c::{Ebx, Ecx, Features};
use lwp_arch::cpuid::{Capabilities, Leaf};
use lwp_arch::msr::{LwpCbaddr, LwpCfg};
use lwp_arch::xsave::XCR0_LWP;
use lwp_arch::{EventFlags, Fault};

use crate::Cpu;
use crate::switch::ThreadState;
use crate::unit::LwpUnit;

/// The LWP of one virtual processor of a guest. Plain data: to migrate the guest is to move it.
#[derive(Clone, Debug, PartialEq)]
pub struct Guest {
    shown: Capabilities,
    /// As the guest has written it.
    cfg: LwpCfg,
    xcr0_lwp: bool,
    /// While the guest does not run.
    thread: ThreadState,
}

impl Guest {
    /// A guest whose processor has `shown`: at most what every machine has on which it is to run;
    /// see [`common`]. LWP is not enabled, as after reset.
    pub fn new(shown: Capabilities) -> Self {
        Self { shown, cfg: LwpCfg::default(), xcr0_lwp: false, thread: ThreadState::Off }
    }

    /// Answers CPUID of leaf `8000_001C`.
    ///
    /// Spec: LWP §1.2.
    pub fn cpuid(&self) -> Leaf {
        self.shown.leaf(if self.xcr0_lwp { XCR0_LWP } else { 0 }, self.cfg)
    }

    /// Answers the intercepted RDMSR of the guest that runs on `unit`.
    ///
    /// # Errors
    ///
    /// `#GP(0)`, for the guest, if it has no such register or is not at CPL 0.
    ///
    /// Spec: LWP §2.
    pub fn rdmsr(&self, unit: &LwpUnit, cpu: &Cpu, msr: u32) -> Result<u64, Fault> {
        match msr {
            _ if cpu.cpl != 0 => Err(Fault::Gp0),
            LwpCfg::MSR => Ok(self.cfg.bits()),
            LwpCbaddr::MSR => unit.rdmsr(&Cpu::kernel_64(), msr),
            _ => Err(Fault::Gp0),
        }
    }

    /// Does the intercepted WRMSR of the guest that runs on `unit`. `vector` is the interrupt by
    /// which the hypervisor hears of thresholds; the guest's own VECTOR is injected then, see
    /// [`Self::interrupt`].
    ///
    /// # Errors
    ///
    /// `#GP(0)`, for the guest: a feature that it is not shown, an address, another register, or
    /// not CPL 0.
    ///
    /// Spec: LWP §2.
    pub fn wrmsr(
        &mut self,
        unit: &mut LwpUnit,
        cpu: &Cpu,
        msr: u32,
        value: u64,
        vector: u8,
    ) -> Result<(), Fault> {
        match msr {
            _ if cpu.cpl != 0 => Err(Fault::Gp0),
            LwpCfg::MSR => {
                self.cfg = LwpCfg::write(value, self.shown.features).ok_or(Fault::Gp0)?;
                self.load_cfg(unit, vector)
            }
            LwpCbaddr::MSR => unit.wrmsr(&Cpu::kernel_64(), msr, value),
            _ => Err(Fault::Gp0),
        }
    }

    /// Does the intercepted XSETBV, as far as it is about bit 62.
    ///
    /// Spec: LWP §1.4.
    pub fn set_xcr0(&mut self, unit: &mut LwpUnit, enabled: bool) {
        self.xcr0_lwp = enabled && self.shown.features.contains(Features::LWP_AVAIL);
        unit.set_xcr0(self.xcr0_lwp);
    }

    /// The guest goes on, on `unit`.
    ///
    /// # Errors
    ///
    /// `#GP(0)` where the machine has less than the guest is shown: it must not run there.
    ///
    /// Spec: P07 §5.5.2.2; LWP §6.3.
    pub fn enter(&mut self, unit: &mut LwpUnit, vector: u8) -> Result<(), Fault> {
        unit.set_xcr0(self.xcr0_lwp);
        self.load_cfg(unit, vector)?;
        let thread = core::mem::replace(&mut self.thread, ThreadState::Off);
        unit.give_thread(&Cpu::kernel_64(), &thread)
    }

    /// The guest is interrupted for another: what it has is taken along, and the unit is off.
    ///
    /// Spec: P07 §5.5.2.2; LWP §6.3.
    pub fn leave(&mut self, unit: &mut LwpUnit) {
        self.thread = unit.take_thread();
        // Off for whoever is next, and for the hypervisor itself.
        unit.set_xcr0(false);
    }

    /// The interrupt to inject when the unit has raised the hypervisor's; `None` if the guest wants
    /// none.
    ///
    /// Spec: LWP §2.1, §5.7.
    pub fn interrupt(&self) -> Option<u8> {
        let wanted = self.cfg.flags().contains(EventFlags::INT) && self.cfg.vector() != 0;
        wanted.then_some(self.cfg.vector())
    }

    /// The register as the machine is to have it: the guest's features and core, the hypervisor's
    /// vector.
    fn load_cfg(&self, unit: &mut LwpUnit, vector: u8) -> Result<(), Fault> {
        let vector = self.interrupt().map_or(0, |_| vector);
        let cfg = LwpCfg::new(self.cfg.flags(), self.cfg.core_id(), vector);
        unit.wrmsr(&Cpu::kernel_64(), LwpCfg::MSR, cfg.bits())
    }
}

/// Returns the capabilities of a guest that is to run on either of two machines: the features that
/// both have, the larger block and ring, the coarser latencies. `None` where their control blocks
/// or images cannot be the same.
///
/// Spec: P07 §5.5.2.2; LWP §1.2, §6.3.
pub fn common(a: &Capabilities, b: &Capabilities) -> Option<Capabilities> {
    let same_layout = a.ebx.event_offset() == b.ebx.event_offset()
        && a.ebx.event_size() == b.ebx.event_size()
        && a.xsave_offset == b.xsave_offset;
    if !same_layout {
        return None;
    }
    let quadwords = a.ebx.lwpcb_bytes().max(b.ebx.lwpcb_bytes()) / 8;
    let events = u32::from(a.ebx.max_events().min(b.ebx.max_events()));
    let ebx = a.ebx.0 & 0xff00_ff00 | events << 16 | quadwords;
    let limits = a.ecx.latency_max().min(b.ecx.latency_max())
        | a.ecx.latency_rounding().max(b.ecx.latency_rounding()) << 6
        | a.ecx.version().min(b.ecx.version()) << 9
        | a.ecx.min_buffer_size().max(b.ecx.min_buffer_size()) << 16;
    const FLAGS: u32 = 1 << 5 | 0xf << 28;
    let flags = a.ecx.bits() & b.ecx.bits() & FLAGS;
    // Events beyond the last that both have.
    let counted = (0x7f & ((2 << events) - 1)) | !0x7f;
    let features = a.features.bits() & b.features.bits() & counted;
    let common = Capabilities {
        features: Features::from_bits_retain(features),
        ebx: Ebx(ebx),
        ecx: Ecx::from_bits_retain(limits | flags),
        xsave_offset: a.xsave_offset,
    };
    common.validate().ok().map(|()| common)
}
