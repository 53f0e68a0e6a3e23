//! LLWPCB: stop the running profile, validate a control block, start the one it describes.

use alloc::vec;
use alloc::vec::Vec;

use lwp_arch::event::EventFlags2007;
use lwp_arch::lwpcb::{EventSlot, EventSlot2007, Lwpcb, Lwpcb2007};
use lwp_arch::msr::LwpMsr0;
use lwp_arch::ring::Ring;
use lwp_arch::{EventFlags, EventId, EventKind, Fault, LinearAddr, Revision};

use crate::count::{Slot, load_counter, load_interval};
use crate::deliver::add_missed;
use crate::processor::{Processor, Proposal, Shipped};
use crate::staged::Staged;
use crate::state::Volatile2007;
use crate::unit::{Constants, LwpUnit, Profile, State};
use crate::{Cpu, LinearMemory, Signals};

impl LwpUnit {
    /// Executes LLWPCB with the effective address `operand`, already cut to the operand size.
    ///
    /// In order:
    ///
    /// 1. A running profile is flushed as by [`Self::slwpcb`].
    /// 2. Address 0 stops, and that is all.
    /// 3. LWP is off from here on, until the last step.
    /// 4. The block must lie inside DS, then it is read.
    /// 5. BufferSize is rounded down to whole records and must reach the minimum of the processor;
    ///    the ring must lie inside DS.
    /// 6. What was granted is written to Flags.
    /// 7. Head, threshold, intervals and counters are normalised and loaded; LWP is on, even if no
    ///    event was granted, so that LWPINS works.
    ///
    /// Returns the old effective address, which the proposal puts into rAX; `None` in the shipped
    /// form.
    ///
    /// The proposal differs: at a privilege level other than 3 only the address is taken, and the
    /// rest happens on entry to CPL 3; with no event granted LWP goes off and Flags becomes 0.
    ///
    /// # Errors
    ///
    /// - `#UD` if LWP is not available, or in real or virtual-8086 mode.
    /// - `#PF` in step 1. The old profile is then still on: DEV-24.
    /// - `#GP(0)` if block or ring leave the segment, or the ring is too small: DEV-15, DEV-24. In
    ///   the proposal, if the address is not a multiple of 16: DEV-25. LWP is then off.
    /// - `#PF` from block. LWP is then off; the instruction is restarted.
    ///
    /// Spec: P07 §5.3; LWP §3.2, §5.3.
    pub fn llwpcb<M: LinearMemory, S: Signals>(
        &mut self,
        cpu: &Cpu,
        operand: u64,
        memory: &mut M,
        signals: &mut S,
    ) -> Result<Option<u64>, Fault> {
        self.check_instruction(cpu)?;
        let old = self.flush(cpu, memory, signals)?.map_or(0, |linear| cpu.effective(linear));
        self.state = State::Off;
        match self.processor {
            _ if operand == 0 => {}
            Processor::Shipped(shipped) => {
                let profile = self.load_shipped(&shipped, cpu, operand, memory)?;
                self.state = State::On(profile);
            }
            Processor::Proposal(proposal) => {
                if !operand.is_multiple_of(Lwpcb2007::ALIGNMENT) {
                    return Err(Fault::Gp0);
                }
                let lwpcb = cpu.linear(operand, self.processor.block_bytes())?;
                self.state = if cpu.cpl == 3 {
                    self.load_proposal(&proposal, lwpcb, memory)?
                } else {
                    State::Deferred(Volatile2007 { lwpcb, progress: None })
                };
            }
        }
        let returns_old = self.processor.revision() == Revision::Proposal2007;
        Ok(returns_old.then_some(old))
    }

    /// Does what was put off until the unit is at CPL 3 and may fault: the load of a block named
    /// outside CPL 3 (proposal), and the reading of what a restore left in memory.
    ///
    /// [`Self::retire`] and the four instructions call this themselves. Calling it when the
    /// processor returns to user code makes faults appear where the processor has them: before the
    /// next instruction.
    ///
    /// # Errors
    ///
    /// `#PF` from the block; the unit stays as it was and the work is still to be done.
    ///
    /// Spec: P07 §5.3, §5.5.2.4; LWP §6.1.
    pub fn settle<M: LinearMemory>(&mut self, memory: &mut M) -> Result<(), Fault> {
        match (&self.state, self.processor) {
            (State::Deferred(volatile), Processor::Proposal(proposal)) => {
                self.state = self.resume_proposal(&proposal, volatile, memory)?;
            }
            (State::On(profile), Processor::Shipped(shipped)) if profile.constants.is_none() => {
                let bytes = read_block(&self.processor, profile.lwpcb, memory)?;
                let constants = shipped_constants(&self.processor, &shipped, profile.ring, &bytes);
                if let State::On(profile) = &mut self.state {
                    profile.constants = Some(constants);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Steps 4 to 7 of [`Self::llwpcb`] for the shipped form.
    ///
    /// Spec: LWP §3.2, §5.3.
    fn load_shipped<M: LinearMemory>(
        &self,
        shipped: &Shipped,
        cpu: &Cpu,
        effective: u64,
        memory: &mut M,
    ) -> Result<Profile, Fault> {
        let processor = &self.processor;
        let lwpcb = cpu.linear(effective, processor.block_bytes())?;
        let bytes = read_block(processor, lwpcb, memory)?;
        let block = Lwpcb::from_prefix(&bytes).unwrap_or_default();

        let ring = Ring::new(block.buffer_size(), processor.record_bytes()).ok_or(Fault::Gp0)?;
        if ring.size() < shipped.capabilities.min_ring_bytes() {
            return Err(Fault::Gp0);
        }
        let buffer_base = cpu.linear(block.buffer_base.get(), u64::from(ring.size()))?;
        // Undocumented events that a part may list are never granted: DEV-26.
        let enabled = EventFlags::from_bits_truncate(self.enabled_features().bits());
        let flags = EventFlags::from_bits_truncate(block.flags.get()) & enabled;
        let mut staged = Staged::new(memory);
        staged.write_u32(processor.fields(lwpcb).flags, flags.bits())?;
        staged.commit()?;

        let slots = (0..processor.slots())
            .map(|index| {
                let id = EventId(index.saturating_add(1));
                let slot = shipped_slot(processor, &bytes, index);
                Slot {
                    kind: EventKind::from_event_id(Revision::Shipped, id)
                        .filter(|_| flags.selects(id)),
                    counter: load_counter(Revision::Shipped, slot.counter.get()),
                    passed_over: 0,
                }
            })
            .collect();
        Ok(Profile {
            lwpcb,
            flags,
            buffer_base,
            ring,
            random: block.random(),
            head: ring.reduce(block.buffer_head_offset.get()),
            filters: block.filters.get(),
            slots,
            pending: None,
            awaited: None,
            constants: Some(shipped_constants(processor, shipped, ring, &bytes)),
        })
    }

    /// Loads a block of the proposal. The result is [`State::Off`] if nothing is to be counted, or
    /// the ring holds not one record: DEV-25.
    ///
    /// Spec: P07 §5.3, §5.4.
    fn load_proposal<M: LinearMemory>(
        &self,
        proposal: &Proposal,
        lwpcb: LinearAddr,
        memory: &mut M,
    ) -> Result<State, Fault> {
        let bytes = read_block(&self.processor, lwpcb, memory)?;
        let profile = self.profile_2007(proposal, lwpcb, &bytes);
        let flags = profile.as_ref().map_or(EventFlags2007::empty(), |p| self.flags_2007(p));
        let mut staged = Staged::new(memory);
        staged.write_u32(self.processor.fields(lwpcb).flags, flags.bits())?;
        staged.commit()?;
        Ok(profile.map_or(State::Off, State::On))
    }

    /// Starts or continues a profile of the proposal from what is known of it and the block in
    /// memory.
    ///
    /// Spec: P07 §5.3, §5.5.2.
    fn resume_proposal<M: LinearMemory>(
        &self,
        proposal: &Proposal,
        volatile: &Volatile2007,
        memory: &mut M,
    ) -> Result<State, Fault> {
        let Some(progress) = &volatile.progress else {
            return self.load_proposal(proposal, volatile.lwpcb, memory);
        };
        let bytes = read_block(&self.processor, volatile.lwpcb, memory)?;
        let Some(mut profile) = self.profile_2007(proposal, volatile.lwpcb, &bytes) else {
            return Ok(State::Off);
        };
        profile.head = profile.ring.reduce(progress.head.0);
        for (slot, counter) in profile.slots.iter_mut().zip(&progress.counters) {
            slot.counter = load_counter(Revision::Proposal2007, *counter);
        }
        if progress.missed {
            let mut staged = Staged::new(memory);
            add_missed(self.processor.fields(volatile.lwpcb).missed, &mut staged)?;
            staged.commit()?;
        }
        Ok(State::On(profile))
    }

    /// The profile a block of the proposal describes, if it counts anything.
    ///
    /// Spec: P07 §5.3, §5.4.
    fn profile_2007(
        &self,
        proposal: &Proposal,
        lwpcb: LinearAddr,
        bytes: &[u8],
    ) -> Option<Profile> {
        let block = Lwpcb2007::from_prefix(bytes)?;
        let ring = Ring::new(block.buffer_size(), self.processor.record_bytes())?;
        let mut slots: Vec<Slot> = Vec::new();
        let mut intervals = Vec::new();
        for index in 0..proposal.capabilities.max_events {
            let slot = EventSlot2007::from_prefix(at(bytes, Lwpcb2007::slot_offset(index)))?;
            let id = slot.event_id();
            let kind = EventKind::from_event_id(Revision::Proposal2007, id)
                .filter(|_| EventFlags2007::from_bits_retain(self.msr0.bits()).selects(id))
                // Of two slots with the same event only the first counts.
                .filter(|kind| slots.iter().all(|earlier| earlier.kind != Some(*kind)));
            let counter = load_counter(Revision::Proposal2007, slot.counter.get());
            slots.push(Slot { kind, ..Slot::idle(counter) });
            let interval = slot.interval_event_id.get();
            intervals.push(load_interval(Revision::Proposal2007, interval, 0));
        }
        if slots.iter().all(|slot| slot.kind.is_none()) {
            return None;
        }
        let interrupts = self.msr0.contains(LwpMsr0::INTERRUPT);
        Some(Profile {
            lwpcb,
            flags: if interrupts { EventFlags::INT } else { EventFlags::empty() },
            buffer_base: LinearAddr(block.buffer_base.get() & !Lwpcb2007::BUFFER_BASE_IGNORED),
            ring,
            random: block.random(),
            head: ring.reduce(block.buffer_head_offset.get()),
            filters: block.filters.get(),
            slots,
            pending: None,
            awaited: None,
            constants: Some(Constants {
                intervals,
                threshold: block.threshold.get(),
                base_ip: 0,
                limit_ip: u64::MAX,
            }),
        })
    }

    /// Returns the proposal's Flags of a running profile.
    ///
    /// Spec: P07 §5.4 figure 6.
    fn flags_2007(&self, profile: &Profile) -> EventFlags2007 {
        let mut flags = EventFlags2007::EN;
        flags.set(EventFlags2007::INT, profile.flags.contains(EventFlags::INT));
        for kind in profile.slots.iter().filter_map(|slot| slot.kind) {
            if let Some(id) = kind.event_id(Revision::Proposal2007) {
                flags |= EventFlags2007::of(id);
            }
        }
        flags
    }
}

/// All bytes of a control block.
fn read_block<M: LinearMemory>(
    processor: &Processor,
    lwpcb: LinearAddr,
    memory: &mut M,
) -> Result<Vec<u8>, Fault> {
    let mut bytes = vec![0; processor.block_bytes() as usize];
    memory.read(lwpcb, &mut bytes)?;
    Ok(bytes)
}

/// The bytes from `offset` on.
fn at(bytes: &[u8], offset: u64) -> &[u8] {
    bytes.get(offset as usize..).unwrap_or_default()
}

/// Slot `index` of a shipped block. The block covers all its slots if the capabilities validate; a
/// slot beyond it reads as zero.
fn shipped_slot(processor: &Processor, bytes: &[u8], index: u8) -> EventSlot {
    EventSlot::from_prefix(at(bytes, processor.slot_offset(index.into()))).unwrap_or_default()
}

/// The constants that a running profile keeps looking up in its block.
///
/// Spec: LWP §3.2.
fn shipped_constants(
    processor: &Processor,
    shipped: &Shipped,
    ring: Ring,
    bytes: &[u8],
) -> Constants {
    let block = Lwpcb::from_prefix(bytes).unwrap_or_default();
    let interval = |index: u8| {
        let slot = shipped_slot(processor, bytes, index);
        let minimum = shipped.minimum_intervals.get(usize::from(index)).copied().unwrap_or(0);
        load_interval(Revision::Shipped, slot.interval.get(), minimum)
    };
    Constants {
        intervals: (0..processor.slots()).map(interval).collect(),
        threshold: ring.round_threshold(block.threshold.get()),
        base_ip: block.base_ip.get(),
        limit_ip: block.limit_ip.get(),
    }
}
