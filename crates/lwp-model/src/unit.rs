//! The unit: its state, and what it does when an instruction retires.

use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use lwp_arch::cpuid::fn8000_001c::Features;
use lwp_arch::msr::{LwpCfg, LwpMsr0};
use lwp_arch::record::Event;
use lwp_arch::ring::Ring;
use lwp_arch::{
    AppPc, EventFlags, EventKind, Fault, LinearAddr, PageFault, Record, Retired, RingOffset, xsave,
};

use crate::count::Slot;
use crate::deliver::Delivery;
use crate::eligible::Eligibility;
use crate::policy::{OnFault, Policy, Simultaneous};
use crate::processor::Processor;
use crate::random::randomised;
use crate::staged::Staged;
use crate::state::Volatile2007;
use crate::{Cpu, LinearMemory, Signals};

/// The values that software does not change while a profile runs, and the XSAVE image does not
/// hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Constants {
    /// EventInterval of each slot.
    pub(crate) intervals: Vec<i32>,
    pub(crate) threshold: u32,
    pub(crate) base_ip: u64,
    pub(crate) limit_ip: u64,
}

/// The state of a running profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Profile {
    pub(crate) lwpcb: LinearAddr,
    /// Granted events and modes. Of the proposal's flags only INT is kept here.
    pub(crate) flags: EventFlags,
    pub(crate) buffer_base: LinearAddr,
    pub(crate) ring: Ring,
    /// Number of random bits in a reloaded counter.
    pub(crate) random: u32,
    pub(crate) head: RingOffset,
    /// The Filters dword as software wrote it.
    pub(crate) filters: u32,
    pub(crate) slots: Vec<Slot>,
    /// A record that waits for its page.
    pub(crate) pending: Option<Record>,
    /// The instruction that is restarted because its record has met a page fault.
    pub(crate) awaited: Option<Awaited>,
    /// `None` after a restore, until they are read again.
    pub(crate) constants: Option<Constants>,
}

/// An instruction whose record has met a page fault, under [`OnFault::Restart`]. Until it is
/// executed again, expired events are not recorded, so the handler of the fault meets no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Awaited {
    pub(crate) ip: AppPc,
    /// Instructions with an expired event that may pass before the unit gives up: the handler may
    /// never come back.
    pub(crate) patience: u32,
}

impl Awaited {
    const PATIENCE: u32 = 1 << 16;
}

/// The state of the unit: a profile runs, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Off,
    /// Proposal only: the block is known, the rest is read when CPL 3 is entered. Without progress
    /// the block is loaded as by LLWPCB.
    Deferred(Volatile2007),
    On(Profile),
}

/// The outcome of one retired instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retirement {
    /// Records stored, missed ones included.
    pub records: u32,
    /// A page fault to be raised as a trap, after the instruction. Only under [`OnFault::Drop`] and
    /// [`OnFault::Save`].
    pub trap: Option<PageFault>,
}

/// The Lightweight Profiling unit of one logical processor.
///
/// Spec: P07 §3; LWP §4 to §6.
#[derive(Clone, Debug)]
pub struct LwpUnit {
    pub(crate) processor: Processor,
    pub(crate) policy: Policy,
    /// `XCR0[62]`.
    pub(crate) xcr0_lwp: bool,
    pub(crate) cfg: LwpCfg,
    pub(crate) msr0: LwpMsr0,
    pub(crate) state: State,
}

impl LwpUnit {
    /// A unit after reset: everything off, MSRs zero, the default [`Policy`].
    ///
    /// Spec: P07 §5.2.1; LWP §2.1.
    pub fn new(processor: Processor) -> Self {
        Self::with_policy(processor, Policy::of(processor.revision()))
    }

    /// As [`Self::new`], with chosen freedoms.
    pub fn with_policy(processor: Processor, policy: Policy) -> Self {
        Self {
            processor,
            policy,
            xcr0_lwp: false,
            cfg: LwpCfg::default(),
            msr0: LwpMsr0::empty(),
            state: State::Off,
        }
    }

    /// The kind of processor.
    pub const fn processor(&self) -> &Processor {
        &self.processor
    }

    /// The freedoms the unit uses.
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns whether a profile runs (or, in the proposal, will run on return to CPL 3).
    pub const fn is_on(&self) -> bool {
        !matches!(self.state, State::Off)
    }

    /// Returns whether the system lets programs use the unit at all.
    ///
    /// Spec: P07 §5.2.1; LWP §1.2.
    pub(crate) fn is_available(&self) -> bool {
        match &self.processor {
            Processor::Shipped(_) => self.enabled_features().contains(Features::LWP_AVAIL),
            Processor::Proposal(_) => self.msr0.contains(LwpMsr0::ENABLED),
        }
    }

    /// EAX of the CPUID leaf; empty for the proposal, whose counterpart is `LWPMSR0`.
    pub(crate) fn enabled_features(&self) -> Features {
        match &self.processor {
            Processor::Shipped(shipped) => {
                let xcr0 = if self.xcr0_lwp { xsave::XCR0_LWP } else { 0 };
                shipped.capabilities.enabled(xcr0, self.cfg)
            }
            Processor::Proposal(_) => Features::empty(),
        }
    }

    /// `#UD` unless LWP instructions can be executed.
    ///
    /// Spec: P07 §5.3; LWP §5.2.
    pub(crate) fn check_instruction(&self, cpu: &Cpu) -> Result<(), Fault> {
        if self.is_available() && cpu.has_lwp_instructions() { Ok(()) } else { Err(Fault::Ud) }
    }

    /// Byte 1 of records.
    pub(crate) const fn core_id(&self) -> u8 {
        match &self.processor {
            Processor::Shipped(_) => self.cfg.core_id(),
            Processor::Proposal(proposal) => proposal.core_id,
        }
    }

    /// The interrupt to raise when `profile` reaches its threshold, if any.
    ///
    /// Clearing INT in the MSR silences a running profile at once; vector 0 means no interrupt:
    /// DEV-11.
    ///
    /// Spec: P07 §5.2.1; LWP §2.1, §5.7.
    pub(crate) fn interrupt_vector(&self, profile: &Profile) -> Option<u8> {
        if !profile.flags.contains(EventFlags::INT) {
            return None;
        }
        match &self.processor {
            Processor::Shipped(_) => {
                let vector = self.cfg.vector();
                (self.cfg.flags().contains(EventFlags::INT) && vector != 0).then_some(vector)
            }
            Processor::Proposal(proposal) => {
                self.msr0.contains(LwpMsr0::INTERRUPT).then_some(proposal.vector)
            }
        }
    }

    /// Builds the record of an event.
    pub(crate) fn gather<S: Signals>(
        &self,
        profile: &Profile,
        event: Event,
        ip: AppPc,
        signals: &mut S,
    ) -> Record {
        let stamped = profile.flags.contains(EventFlags::PTSC);
        let timestamp = if stamped { signals.timestamp() } else { 0 };
        let core = signals.core().unwrap_or(self.core_id());
        // Slots hold only events of the revision, so the record exists.
        Record::new(self.processor.revision(), event, ip, core, timestamp).unwrap_or_default()
    }

    /// Tells the unit that an instruction retired.
    ///
    /// In order:
    ///
    /// 1. *Count.* Every active event counter goes down by the occurrences that pass the filters.
    /// 2. *Gather.* For each counter that expired a record is made of the occurrence that did it.
    /// 3. *Store.* The records go to the ring in the order of the slots, that is of the EventIds.
    /// 4. *Reset.* The counter of each stored event is reloaded from its interval. Occurrences
    ///    after the expiring one of the same instruction do not count towards the next record:
    ///    DEV-17.
    ///
    /// Nothing is counted outside CPL 3, in SMM, or for an instruction that changes privilege.
    ///
    /// # Errors
    ///
    /// `#PF` if control block or ring cannot be reached. Under [`OnFault::Restart`] nothing has
    /// changed then: let the instruction retire again after the fault is repaired. Under the other
    /// policies only the reading of the block after a restore faults so; the rest is
    /// [`Retirement::trap`].
    ///
    /// Spec: P07 §3, §5.5.1, §5.5.6; LWP §4.2, §4.3, §5.7, §6.4.
    pub fn retire<M: LinearMemory, S: Signals>(
        &mut self,
        cpu: &Cpu,
        retired: &Retired<'_>,
        memory: &mut M,
        signals: &mut S,
    ) -> Result<Retirement, Fault> {
        if !cpu.profiles() || !self.is_available() {
            return Ok(Retirement::default());
        }
        self.settle(memory)?;
        let landing = self.land(memory, signals);
        let State::On(before) = &self.state else { return Ok(Retirement::default()) };

        let mut profile = before.clone();
        let mut expired = profile.count(&self.processor, retired);
        if !expired.is_empty() && profile.awaits_another(retired.ip) {
            expired.clear();
        }
        if self.policy.simultaneous == Simultaneous::StoreOne {
            expired = profile.choose(expired);
        }
        let mut staged = Staged::new(memory);
        let mut stored = Vec::new();
        let mut trap = landing.err();
        for (slot, event) in expired {
            // There is room for one waiting record; other expired events wait for an occurrence.
            if profile.pending.is_some() {
                break;
            }
            let record = self.gather(&profile, event, retired.ip, signals);
            let mark = staged.mark();
            match self.deliver(&profile, &record, &mut staged) {
                Ok(delivery) => {
                    profile.head = delivery.head;
                    stored.push((slot, delivery));
                }
                Err(fault) => match self.policy.on_fault {
                    OnFault::Restart => {
                        self.await_restart(retired.ip);
                        return Err(fault.into());
                    }
                    OnFault::Drop => return Ok(Retirement { records: 0, trap: Some(fault) }),
                    OnFault::Save => {
                        staged.forget_since(mark);
                        profile.pending = Some(record);
                        trap = Some(fault);
                    }
                },
            }
        }
        staged.commit()?;
        let vector = self.interrupt_vector(&profile);
        for (slot, delivery) in &stored {
            profile.reset(*slot, signals);
            delivery.announce(vector, signals);
        }
        self.state = State::On(profile);
        Ok(Retirement { records: stored.len() as u32, trap })
    }

    /// The instruction at `ip` is restarted, because a record of it cannot be stored: until then
    /// no other event is recorded.
    ///
    /// Spec: LWP §6.4.
    pub fn await_restart(&mut self, ip: AppPc) {
        if let State::On(profile) = &mut self.state {
            profile.awaited = Some(Awaited { ip, patience: Awaited::PATIENCE });
        }
    }

    /// No instruction is restarted: what [`Self::await_restart`] says is over.
    pub fn await_nothing(&mut self) {
        if let State::On(profile) = &mut self.state {
            profile.awaited = None;
        }
    }

    /// Returns whether an instruction is to be restarted because of a page fault.
    pub fn awaits_restart(&self) -> bool {
        matches!(&self.state, State::On(profile) if profile.awaited.is_some())
    }

    /// Stores a record as [`Profile::deliver`] does, with the choices of this unit.
    pub(crate) fn deliver<M: LinearMemory>(
        &self,
        profile: &Profile,
        record: &Record,
        memory: &mut Staged<'_, M>,
    ) -> Result<Delivery, PageFault> {
        // `settle` has run, so the constants are there.
        let threshold = profile.constants.as_ref().map_or(0, |constants| constants.threshold);
        profile.deliver(&self.processor, threshold, self.policy.head, record, memory)
    }

    /// Stores the record that waits, if one does, and resets its event.
    ///
    /// Spec: P07 §5.5.6; LWP §6.1, §6.4.
    pub(crate) fn land<M: LinearMemory, S: Signals>(
        &mut self,
        memory: &mut M,
        signals: &mut S,
    ) -> Result<(), PageFault> {
        let State::On(before) = &self.state else { return Ok(()) };
        let mut staged = Staged::new(memory);
        if let Some((profile, delivery)) = self.land_in(before, &mut staged)? {
            staged.commit()?;
            self.landed(profile, delivery, signals);
        }
        Ok(())
    }

    /// As [`Self::land`], but only plans: the profile afterwards, and what was stored.
    pub(crate) fn land_in<M: LinearMemory>(
        &self,
        profile: &Profile,
        memory: &mut Staged<'_, M>,
    ) -> Result<Option<(Profile, Delivery)>, PageFault> {
        let Some(record) = profile.pending else { return Ok(None) };
        let delivery = self.deliver(profile, &record, memory)?;
        let after = Profile { pending: None, head: delivery.head, ..profile.clone() };
        Ok(Some((after, delivery)))
    }

    /// Makes a planned landing real.
    pub(crate) fn landed<S: Signals>(
        &mut self,
        mut profile: Profile,
        delivery: Delivery,
        signals: &mut S,
    ) {
        let kind = delivery.kind(self.processor.revision());
        if let Some(slot) = profile.slot_of(kind) {
            profile.reset(slot, signals);
        }
        delivery.announce(self.interrupt_vector(&profile), signals);
        self.state = State::On(profile);
    }
}

impl Profile {
    /// The slot that counts `kind`.
    pub(crate) fn slot_of(&self, kind: Option<EventKind>) -> Option<usize> {
        let kind = kind?;
        self.slots.iter().position(|slot| slot.kind == Some(kind))
    }

    /// Counts what `retired` did. Returns the slots that expired, in order, with the event to
    /// report.
    ///
    /// Spec: P07 §3, §5.5.1; LWP §4.2.
    fn count(&mut self, processor: &Processor, retired: &Retired<'_>) -> Vec<(usize, Event)> {
        let Some(constants) = &self.constants else { return Vec::new() };
        let filters = processor.effective_filters(self.filters);
        let eligibility = Eligibility { processor, filters, constants };
        let mut expired = Vec::new();
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let Some(kind) = slot.kind else { continue };
            let occurrences = eligibility.occurrences(kind, retired);
            let due = slot.count(processor.revision(), occurrences.count);
            if let Some(event) = due.and_then(|due| occurrences.event(due)) {
                expired.push((index, event));
            }
        }
        expired
    }

    /// An event has expired on the instruction at `ip`. Returns whether it is not to be recorded,
    /// because another instruction is to be restarted first.
    fn awaits_another(&mut self, ip: AppPc) -> bool {
        let awaited = self.awaited.take().filter(|awaited| awaited.ip != ip);
        let patience = awaited.and_then(|awaited| awaited.patience.checked_sub(1));
        self.awaited = awaited.zip(patience).map(|(it, patience)| Awaited { patience, ..it });
        self.awaited.is_some()
    }

    /// The one of the expired slots that is recorded: the one that has been passed over most often
    /// since it was recorded; of several, the first.
    ///
    /// Spec: P07 §5.5.1.
    fn choose(&mut self, expired: Vec<(usize, Event)>) -> Vec<(usize, Event)> {
        let waits = |(slot, _): &(usize, Event)| (self.slots[*slot].passed_over, Reverse(*slot));
        let Some(chosen) = expired.iter().copied().max_by_key(waits) else { return expired };
        for (slot, _) in expired.iter().filter(|(slot, _)| *slot != chosen.0) {
            let passed_over = &mut self.slots[*slot].passed_over;
            *passed_over = passed_over.saturating_add(1);
        }
        vec![chosen]
    }

    /// Reloads a counter from its interval, with random low bits if the block wants them.
    ///
    /// Spec: P07 §3, §5.4; LWP §3.1.
    pub(crate) fn reset<S: Signals>(&mut self, slot: usize, signals: &mut S) {
        let intervals = self.constants.as_ref().map(|constants| &constants.intervals);
        let interval = intervals.and_then(|all| all.get(slot)).copied().unwrap_or(0);
        let random = if self.random == 0 { 0 } else { signals.random() };
        if let Some(slot) = self.slots.get_mut(slot) {
            slot.counter = randomised(interval, self.random, random);
            slot.passed_over = 0;
        }
    }
}
