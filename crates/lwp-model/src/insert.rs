//! LWPINS and LWPVAL: records that the program makes itself.

use lwp_arch::record::Event;
use lwp_arch::{AppPc, EventKind, Fault, LinearAddr, PageFault, Revision};

use crate::staged::Staged;
use crate::unit::{LwpUnit, State};
use crate::{Cpu, LinearMemory, Signals};

/// The r/m32 operand: a value, or where to read one if it is needed.
///
/// Spec: LWP §5.5, §5.6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data1 {
    /// Content of a register.
    Register(u32),
    /// Linear address of a dword.
    Memory(LinearAddr),
}

impl Data1 {
    fn read<M: LinearMemory>(self, memory: &mut Staged<'_, M>) -> Result<u32, PageFault> {
        match self {
            Self::Register(value) => Ok(value),
            Self::Memory(address) => memory.read_u32(address),
        }
    }
}

/// An LWPINS or LWPVAL about to execute.
///
/// Spec: LWP §5.5, §5.6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Insert {
    /// Linear address of the instruction.
    pub ip: AppPc,
    /// Low 16 bits of the immediate.
    pub flags: u16,
    /// The r/m32 operand.
    pub data1: Data1,
    /// The register operand, zero-extended if it has 32 bits.
    pub data2: u64,
}

impl LwpUnit {
    /// Executes LWPINS: stores a programmed event record. Returns the carry flag: whether the ring
    /// was full, so that the record will be overwritten. The other flags of the processor stay.
    ///
    /// With LWP off the carry flag is cleared and memory is not touched: DEV-21. The same goes for
    /// privilege levels other than 3 and for SMM, where the unit is not at work: DEV-22. No filter
    /// applies; there is neither counter nor interval.
    ///
    /// The instruction itself retires afterwards; feed it to [`Self::retire`] like any other.
    ///
    /// # Errors
    ///
    /// - `#UD` as for LLWPCB, and always in the proposal, which lacks the instruction.
    /// - `#PF` at operand, block or ring. Nothing has changed then; the instruction is restarted.
    ///
    /// Spec: LWP §5.5, §5.7.
    pub fn lwpins<M: LinearMemory, S: Signals>(
        &mut self,
        cpu: &Cpu,
        insert: &Insert,
        memory: &mut M,
        signals: &mut S,
    ) -> Result<bool, Fault> {
        self.check_insert(cpu)?;
        if !cpu.profiles() {
            return Ok(false);
        }
        self.settle(memory)?;
        self.land(memory, signals)?;
        let State::On(profile) = &self.state else { return Ok(false) };
        let mut profile = profile.clone();
        let mut staged = Staged::new(memory);
        let data1 = insert.data1.read(&mut staged)?;
        let event = Event::Programmed { flags: insert.flags, data1, data2: insert.data2 };
        let record = self.gather(&profile, event, insert.ip, signals);
        let delivery = self.deliver(&profile, &record, &mut staged)?;
        staged.commit()?;
        profile.head = delivery.head;
        delivery.announce(self.interrupt_vector(&profile), signals);
        self.state = State::On(profile);
        Ok(delivery.missed)
    }

    /// Executes LWPVAL: counts a value sample, and stores a record if its counter expires.
    ///
    /// Without EventId 1 granted, with LWP off, outside CPL 3 (DEV-22) and in SMM nothing happens.
    /// The memory operand is read only if a record is made. The IP filter does not apply: DEV-23.
    /// After the store, into a full ring or not, the counter is reloaded. No flag of the processor
    /// changes.
    ///
    /// The instruction itself retires afterwards; feed it to [`Self::retire`] like any other.
    ///
    /// # Errors
    ///
    /// - `#UD` as for LLWPCB, and always in the proposal, which lacks the instruction.
    /// - `#PF` at operand, block or ring. Nothing has changed then, the counter included; the
    ///   instruction is restarted and counts once.
    ///
    /// Spec: LWP §5.6, §6.4.
    pub fn lwpval<M: LinearMemory, S: Signals>(
        &mut self,
        cpu: &Cpu,
        insert: &Insert,
        memory: &mut M,
        signals: &mut S,
    ) -> Result<(), Fault> {
        self.check_insert(cpu)?;
        if !cpu.profiles() {
            return Ok(());
        }
        self.settle(memory)?;
        self.land(memory, signals)?;
        let State::On(profile) = &self.state else { return Ok(()) };
        let Some(slot) = profile.slot_of(Some(EventKind::ValueSample)) else { return Ok(()) };
        let mut profile = profile.clone();
        if profile.slots[slot].count(self.processor.revision(), 1).is_some() {
            let mut staged = Staged::new(memory);
            let data1 = insert.data1.read(&mut staged)?;
            let event = Event::ValueSample { flags: insert.flags, data1, data2: insert.data2 };
            let record = self.gather(&profile, event, insert.ip, signals);
            let delivery = self.deliver(&profile, &record, &mut staged)?;
            staged.commit()?;
            profile.head = delivery.head;
            profile.reset(slot, signals);
            delivery.announce(self.interrupt_vector(&profile), signals);
        }
        self.state = State::On(profile);
        Ok(())
    }

    /// `#UD` unless the instruction exists and can be executed.
    fn check_insert(&self, cpu: &Cpu) -> Result<(), Fault> {
        if self.processor.revision() == Revision::Proposal2007 {
            return Err(Fault::Ud);
        }
        self.check_instruction(cpu)
    }
}
