//! SLWPCB: flush the unit to memory and say which block is active.

use lwp_arch::insn::Width;
use lwp_arch::{Fault, LinearAddr};

use crate::staged::Staged;
use crate::state::Volatile2007;
use crate::unit::{LwpUnit, Profile, State};
use crate::{Cpu, LinearMemory, Signals};

impl LwpUnit {
    /// Executes SLWPCB: flushes and returns the effective address of the active block, 0 if LWP is
    /// off. The value is what the destination register holds afterwards, its upper half included.
    ///
    /// The flush stores a waiting record, then writes the counters of active events to
    /// EventCounter*n* and the head to BufferHeadOffset. LWP stays on, no flag of the processor
    /// changes.
    ///
    /// # Errors
    ///
    /// - `#UD` if LWP is not available, or in real or virtual-8086 mode.
    /// - `#PF` at block or ring. The instruction is restarted; a waiting record that was already
    ///   stored is not stored again.
    ///
    /// Spec: P07 §5.3; LWP §5.4.
    pub fn slwpcb<M: LinearMemory, S: Signals>(
        &mut self,
        cpu: &Cpu,
        width: Width,
        memory: &mut M,
        signals: &mut S,
    ) -> Result<u64, Fault> {
        self.check_instruction(cpu)?;
        let lwpcb = self.flush(cpu, memory, signals)?;
        Ok(lwpcb.map_or(0, |linear| width.truncate(cpu.effective(linear))))
    }

    /// Flushes and returns the linear address of the active block.
    ///
    /// Spec: P07 §5.3; LWP §5.4.
    pub(crate) fn flush<M: LinearMemory, S: Signals>(
        &mut self,
        cpu: &Cpu,
        memory: &mut M,
        signals: &mut S,
    ) -> Result<Option<LinearAddr>, Fault> {
        // The proposal keeps away from the block until CPL 3; the shipped form wants it resident.
        if cpu.cpl == 3 || matches!(self.state, State::On(_)) {
            self.settle(memory)?;
        }
        match &self.state {
            State::Off => Ok(None),
            State::Deferred(volatile) => {
                self.flush_volatile(volatile, memory)?;
                Ok(Some(volatile.lwpcb))
            }
            State::On(profile) => {
                let lwpcb = profile.lwpcb;
                let mut staged = Staged::new(memory);
                match self.land_in(profile, &mut staged)? {
                    Some((after, delivery)) => {
                        // The landed event is reset from its interval before the counters are
                        // written.
                        staged.commit()?;
                        self.landed(after, delivery, signals);
                        return self.flush(cpu, memory, signals);
                    }
                    None => self.write_back(profile, &mut staged)?,
                }
                staged.commit()?;
                Ok(Some(lwpcb))
            }
        }
    }

    /// Writes counters of active events and the head to the block.
    fn write_back<M: LinearMemory>(
        &self,
        profile: &Profile,
        memory: &mut Staged<'_, M>,
    ) -> Result<(), Fault> {
        for (index, slot) in profile.slots.iter().enumerate() {
            if slot.kind.is_some() {
                let address = self.processor.counter_address(profile.lwpcb, index);
                memory.write_u32(address, slot.packed())?;
            }
        }
        memory.write_u32(self.processor.fields(profile.lwpcb).head, profile.head.0)?;
        Ok(())
    }

    /// Writes restored counters and head of a block whose constants were not read again.
    ///
    /// Spec: P07 §5.5.2.
    fn flush_volatile<M: LinearMemory>(
        &self,
        volatile: &Volatile2007,
        memory: &mut M,
    ) -> Result<(), Fault> {
        let Some(progress) = &volatile.progress else { return Ok(()) };
        let mut staged = Staged::new(memory);
        let slots = usize::from(self.processor.slots());
        for (index, counter) in progress.counters.iter().enumerate().take(slots) {
            let address = self.processor.counter_address(volatile.lwpcb, index);
            staged.write_u32(address, *counter)?;
        }
        staged.write_u32(self.processor.fields(volatile.lwpcb).head, progress.head.0)?;
        Ok(staged.commit()?)
    }
}
