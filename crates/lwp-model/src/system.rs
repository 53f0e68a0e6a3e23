//! The unit as the system sees it: CPUID, MSRs, XCR0, XSAVE, and what a switch of context, guest or
//! to SMM saves.

use alloc::vec::Vec;

use lwp_arch::cpuid::Leaf;
use lwp_arch::lwpcb::{buffer_size, pack_buffer_size_random, random};
use lwp_arch::msr::{LwpCbaddr, LwpCfg, LwpMsr0};
use lwp_arch::ring::Ring;
use lwp_arch::xsave::{LwpXsave, XCR0_LWP};
use lwp_arch::{EventFlags, EventId, EventKind, Fault, LinearAddr, Record, Revision, RingOffset};

use crate::count::{Slot, load_counter};
use crate::cpu::Mode;
use crate::processor::Processor;
use crate::state::{Progress2007, Volatile2007};
use crate::unit::{LwpUnit, Profile, State};
use crate::{Cpu, LinearMemory, Signals};

impl LwpUnit {
    /// Switches everything on that the processor has, as a system without reservations would:
    /// `XCR0[62]` set; all features allowed; core 0; interrupt vector FFh.
    ///
    /// Spec: P07 §5.2.1; LWP §1.4, §2.1.
    pub fn enable_everything(&mut self) {
        match self.processor {
            Processor::Shipped(shipped) => {
                self.xcr0_lwp = true;
                let all = EventFlags::from_bits_retain(shipped.capabilities.features.bits() & !1);
                self.cfg = LwpCfg::new(all, 0, 0xFF);
            }
            Processor::Proposal(proposal) => self.msr0 = proposal.capabilities.settable(),
        }
    }

    /// Switches on what [`Self::enable_everything`] does, but of the events that are counted only
    /// `granted`: a system that keeps some to itself. Bits of events that the processor lacks, and
    /// of modes, change nothing. Programmed events need no grant.
    ///
    /// Spec: P07 §5.2.1; LWP §2.1.
    pub fn enable_events(&mut self, granted: EventFlags) {
        self.enable_everything();
        match self.processor {
            Processor::Shipped(_) => {
                let events = EventFlags::VAL
                    | EventFlags::IRE
                    | EventFlags::BRE
                    | EventFlags::DME
                    | EventFlags::CNH
                    | EventFlags::RNH;
                let flags = self.cfg.flags().difference(events.difference(granted));
                self.cfg = LwpCfg::new(flags, self.cfg.core_id(), self.cfg.vector());
            }
            Processor::Proposal(_) => {
                let pairs = [
                    (LwpMsr0::IRE, EventFlags::IRE),
                    (LwpMsr0::BRE, EventFlags::BRE),
                    (LwpMsr0::DME, EventFlags::DME),
                ];
                let kept = pairs.into_iter().filter(|(_, flag)| !granted.contains(*flag));
                kept.for_each(|(bit, _)| self.msr0.remove(bit));
            }
        }
    }

    /// CPUID leaf `8000_001C`.
    ///
    /// Spec: P07 §5.1; LWP §1.2.
    pub fn cpuid(&self) -> Leaf {
        match &self.processor {
            Processor::Shipped(shipped) => {
                let xcr0 = if self.xcr0_lwp { XCR0_LWP } else { 0 };
                shipped.capabilities.leaf(xcr0, self.cfg)
            }
            Processor::Proposal(proposal) => proposal.capabilities.leaf(self.msr0),
        }
    }

    /// XSETBV changed `XCR0[62]`. Clearing it ends the running profile and drops its state: DEV-27.
    ///
    /// Spec: LWP §1.4.
    pub fn set_xcr0(&mut self, enabled: bool) {
        self.xcr0_lwp = enabled;
        if !enabled {
            self.state = State::Off;
        }
    }

    /// `LWP_CFG`.
    pub const fn lwp_cfg(&self) -> LwpCfg {
        self.cfg
    }

    /// RDMSR of `LWP_CFG` or `LWP_CBADDR`. Reading `LWP_CBADDR` flushes nothing.
    ///
    /// # Errors
    ///
    /// `#GP(0)` at CPL above 0, for another register, and in the proposal, whose MSRs have no
    /// numbers.
    ///
    /// Spec: LWP §2.1, §2.2.
    pub fn rdmsr(&self, cpu: &Cpu, msr: u32) -> Result<u64, Fault> {
        match (self.processor, msr) {
            _ if cpu.cpl != 0 => Err(Fault::Gp0),
            (Processor::Shipped(_), LwpCfg::MSR) => Ok(self.cfg.bits()),
            (Processor::Shipped(_), LwpCbaddr::MSR) => Ok(self.lwpcb().0),
            _ => Err(Fault::Gp0),
        }
    }

    /// WRMSR of `LWP_CFG` or `LWP_CBADDR`.
    ///
    /// A new `LWP_CFG` shows in CPUID at once and in records (COREID) with the next one. Events and
    /// modes of a running profile stay as they were granted until the next LLWPCB or XRSTOR, except
    /// that clearing INT silences it: DEV-28. Writing 0 to `LWP_CBADDR` stops LWP at once; what the
    /// unit held is lost.
    ///
    /// # Errors
    ///
    /// `#GP(0)` at CPL above 0, for a feature the processor lacks, for an address other than 0, for
    /// another register, and in the proposal, whose MSRs have no numbers.
    ///
    /// Spec: LWP §2.1, §2.2.
    pub fn wrmsr(&mut self, cpu: &Cpu, msr: u32, value: u64) -> Result<(), Fault> {
        let Processor::Shipped(shipped) = self.processor else { return Err(Fault::Gp0) };
        match msr {
            _ if cpu.cpl != 0 => Err(Fault::Gp0),
            LwpCfg::MSR => {
                let features = shipped.capabilities.features;
                self.cfg = LwpCfg::write(value, features).ok_or(Fault::Gp0)?;
                Ok(())
            }
            LwpCbaddr::MSR if value == 0 => {
                self.state = State::Off;
                Ok(())
            }
            _ => Err(Fault::Gp0),
        }
    }

    /// `LWPMSR0` of the proposal.
    pub const fn lwpmsr0(&self) -> LwpMsr0 {
        self.msr0
    }

    /// Writes `LWPMSR0` of the proposal. Clearing its enable bit ends the running profile: DEV-27.
    ///
    /// # Errors
    ///
    /// `#GP(0)` at CPL above 0, for a feature the processor lacks, and in the shipped form, which
    /// has no such register.
    ///
    /// Spec: P07 §5.2.1.
    pub fn write_lwpmsr0(&mut self, cpu: &Cpu, value: LwpMsr0) -> Result<(), Fault> {
        let Processor::Proposal(proposal) = self.processor else { return Err(Fault::Gp0) };
        if cpu.cpl != 0 || !proposal.capabilities.settable().contains(value) {
            return Err(Fault::Gp0);
        }
        self.msr0 = value;
        if !value.contains(LwpMsr0::ENABLED) {
            self.state = State::Off;
        }
        Ok(())
    }

    /// RDMSR of `LWPMSR1` in the proposal, which does what SLWPCB does.
    ///
    /// # Errors
    ///
    /// `#GP(0)` at CPL above 0 and in the shipped form; otherwise as [`Self::slwpcb`].
    ///
    /// Spec: P07 §5.2.2.
    pub fn read_lwpmsr1<M: LinearMemory, S: Signals>(
        &mut self,
        cpu: &Cpu,
        memory: &mut M,
        signals: &mut S,
    ) -> Result<u64, Fault> {
        self.check_lwpmsr1(cpu)?;
        self.slwpcb(cpu, lwp_arch::insn::Width::W64, memory, signals)
    }

    /// WRMSR of `LWPMSR1` in the proposal, which does what LLWPCB does.
    ///
    /// # Errors
    ///
    /// `#GP(0)` at CPL above 0 and in the shipped form; otherwise as [`Self::llwpcb`].
    ///
    /// Spec: P07 §5.2.2.
    pub fn write_lwpmsr1<M: LinearMemory, S: Signals>(
        &mut self,
        cpu: &Cpu,
        value: u64,
        memory: &mut M,
        signals: &mut S,
    ) -> Result<(), Fault> {
        self.check_lwpmsr1(cpu)?;
        self.llwpcb(cpu, value, memory, signals).map(|_| ())
    }

    fn check_lwpmsr1(&self, cpu: &Cpu) -> Result<(), Fault> {
        let proposal = self.processor.revision() == Revision::Proposal2007;
        if cpu.cpl == 0 && proposal { Ok(()) } else { Err(Fault::Gp0) }
    }

    /// Linear address of the active block, 0 if LWP is off.
    pub(crate) fn lwpcb(&self) -> LinearAddr {
        match &self.state {
            State::Off => LinearAddr(0),
            State::Deferred(volatile) => volatile.lwpcb,
            State::On(profile) => profile.lwpcb,
        }
    }

    /// The LWP component that XSAVE writes, or `None` if LWP is off and its XSTATE_BV bit is clear.
    ///
    /// Neither control block nor ring is touched; head and counters in memory stay behind until the
    /// next flush. BufferSize is saved as rounded, with Random in its high bits: DEV-12. Legal at
    /// any privilege level. The proposal has [`Self::save_volatile`] instead.
    ///
    /// Spec: LWP §6.1.
    pub fn xsave(&self) -> Option<LwpXsave> {
        let State::On(profile) = &self.state else { return None };
        if self.processor.revision() == Revision::Proposal2007 {
            return None;
        }
        let mut image = LwpXsave {
            lwpcb_address: profile.lwpcb.0.into(),
            flags: profile.flags.bits().into(),
            buffer_head_offset: profile.head.0.into(),
            buffer_base: profile.buffer_base.0.into(),
            buffer_size_random: pack_buffer_size_random(profile.ring.size(), profile.random).into(),
            filters: profile.filters.into(),
            saved_event_record: profile.pending.unwrap_or_default(),
            ..LwpXsave::default()
        };
        for (counter, slot) in image.event_counters.iter_mut().zip(&profile.slots) {
            *counter = slot.packed().into();
        }
        Some(image)
    }

    /// Loads the LWP component as XRSTOR does. `None` stands for a clear bit in XSTATE_BV: LWP goes
    /// off.
    ///
    /// Threshold, intervals and the IP range are read from the block when the unit next works, see
    /// [`Self::settle`]. Flags are cut to what `LWP_CFG` allows now: DEV-28. An image that names no
    /// block, or no ring, turns LWP off: DEV-29.
    ///
    /// # Errors
    ///
    /// `#GP(0)` if LWP is not enabled in XCR0 and an image is given, or, at CPL above 0, if block
    /// or ring lie outside DS: DEV-29. LWP is then unchanged.
    ///
    /// Spec: LWP §6.1, §6.2.
    pub fn xrstor(&mut self, cpu: &Cpu, image: Option<&LwpXsave>) -> Result<(), Fault> {
        let (Some(image), Processor::Shipped(_)) = (image, self.processor) else {
            self.state = State::Off;
            return Ok(());
        };
        if !self.is_available() {
            return Err(Fault::Gp0);
        }
        let dword = image.buffer_size_random.get();
        let ring = Ring::new(buffer_size(dword), self.processor.record_bytes());
        let lwpcb = LinearAddr(image.lwpcb_address.get());
        let (Some(ring), false) = (ring, lwpcb.0 == 0) else {
            self.state = State::Off;
            return Ok(());
        };
        let buffer_base = LinearAddr(image.buffer_base.get());
        if cpu.cpl != 0 && cpu.mode != Mode::Long {
            cpu.linear(cpu.effective(lwpcb), self.processor.block_bytes())?;
            cpu.linear(cpu.effective(buffer_base), u64::from(ring.size()))?;
        }
        let enabled = EventFlags::from_bits_truncate(self.enabled_features().bits());
        let flags = EventFlags::from_bits_truncate(image.flags.get()) & enabled;
        let pending = image.saved_event_record;
        self.state = State::On(Profile {
            lwpcb,
            flags,
            buffer_base,
            ring,
            random: random(dword),
            head: ring.reduce(image.buffer_head_offset.get()),
            filters: image.filters.get(),
            slots: self.restored_slots(flags, image),
            pending: (pending.event_id != EventId::INVALID.0).then_some(pending),
            awaited: None,
            constants: None,
        });
        Ok(())
    }

    fn restored_slots(&self, flags: EventFlags, image: &LwpXsave) -> Vec<Slot> {
        (0..self.processor.slots())
            .map(|index| {
                let id = EventId(index.saturating_add(1));
                let counter = image.event_counters.get(usize::from(index));
                let counter = counter.map_or(0, |c| load_counter(Revision::Shipped, c.get()));
                match EventKind::from_event_id(Revision::Shipped, id) {
                    Some(kind) if flags.selects(id) => {
                        Slot { kind: Some(kind), counter, passed_over: 0 }
                    }
                    _ => Slot::idle(counter),
                }
            })
            .collect()
    }

    /// Returns the state that the proposal saves at a switch of thread or guest (VMSAVE) and on
    /// entry to SMM; `None` if LWP is off.
    ///
    /// A record that waits for its page has no place there. It is lost, and counted as missed.
    ///
    /// Spec: P07 §5.5.2.
    pub fn save_volatile(&self) -> Option<Volatile2007> {
        match &self.state {
            State::Off => None,
            State::Deferred(volatile) => Some(volatile.clone()),
            State::On(profile) => Some(Volatile2007 {
                lwpcb: profile.lwpcb,
                progress: Some(Progress2007 {
                    head: RingOffset(profile.head.0),
                    counters: profile.slots.iter().map(Slot::packed).collect(),
                    missed: profile.pending.is_some(),
                }),
            }),
        }
    }

    /// Brings back what [`Self::save_volatile`] saved. Memory is read on entry to CPL 3, because
    /// the block may be paged out while a kernel, a hypervisor or SMM code runs: see
    /// [`Self::settle`].
    ///
    /// Spec: P07 §5.5.2.
    pub fn restore_volatile(&mut self, volatile: Option<Volatile2007>) {
        self.state = volatile.map_or(State::Off, State::Deferred);
    }

    /// The record that waits for its page, if one does.
    ///
    /// Spec: LWP §6.1, §6.4.
    pub fn pending(&self) -> Option<Record> {
        match &self.state {
            State::On(profile) => profile.pending,
            State::Off | State::Deferred(_) => None,
        }
    }
}
