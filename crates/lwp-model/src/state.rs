//! The state of a unit as plain data, to be kept, compared and put back.

use alloc::vec::Vec;

use lwp_arch::msr::{LwpCfg, LwpMsr0};
use lwp_arch::ring::Ring;
use lwp_arch::{AppPc, EventFlags, EventId, EventKind, LinearAddr, Record, Revision, RingOffset};

use crate::count::Slot;
use crate::policy::Policy;
use crate::processor::Processor;
use crate::unit::{Awaited, Constants, LwpUnit, Profile, State};

/// Head and counters of a profile of the proposal.
///
/// Spec: P07 §5.5.2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress2007 {
    /// BufferHeadOffset.
    pub head: RingOffset,
    /// Counter of each slot, 26 bits.
    pub counters: Vec<u32>,
    /// MissedEvents must be incremented.
    pub missed: bool,
}

/// The state the proposal saves at a switch of thread or guest and on entry to SMM. All else is
/// rebuilt from the control block.
///
/// Spec: P07 §5.5.2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volatile2007 {
    /// Linear address of the control block.
    pub lwpcb: LinearAddr,
    /// `None` if the block was named but not loaded yet.
    pub progress: Option<Progress2007>,
}

/// One event slot of [`ProfileStateV1`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotStateV1 {
    /// EventId counted here, 0 for none.
    pub event_id: u8,
    /// Counter; negative when the event expired and has not recorded.
    pub counter: i32,
    /// Interval, once read from the control block.
    pub interval: Option<i32>,
    /// How often another event has been recorded in its place since it was recorded itself.
    pub passed_over: u8,
}

/// A running profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileStateV1 {
    /// Linear address of the control block.
    pub lwpcb: u64,
    /// Granted flags.
    pub flags: u32,
    /// Linear address of the ring.
    pub buffer_base: u64,
    /// Size of the ring in bytes.
    pub buffer_size: u32,
    /// Number of random bits in a reloaded counter.
    pub random: u32,
    /// Offset of the next record.
    pub head: u32,
    /// Filters dword.
    pub filters: u32,
    /// The event slots, in order.
    pub slots: Vec<SlotStateV1>,
    /// A record that waits for its page.
    pub pending: Option<[u8; Record::SIZE]>,
    /// The instruction whose record has met a page fault, and how many more events may pass before
    /// the unit gives up waiting for it.
    pub awaited: Option<(u64, u32)>,
    /// Threshold in bytes, BaseIP and LimitIP, once read from the control block.
    pub constants: Option<(u32, u64, u64)>,
}

/// Everything a unit remembers.
///
/// Two units with equal state do the same from here on, given the same processor, policy, memory,
/// random bits and time. That makes this the thing to compare in lock-step runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitStateV1 {
    /// `XCR0[62]`.
    pub xcr0_lwp: bool,
    /// `LWP_CFG`.
    pub lwp_cfg: u64,
    /// `LWPMSR0` of the proposal.
    pub lwpmsr0: u32,
    /// The running profile.
    pub profile: Option<ProfileStateV1>,
    /// In the proposal, what is to be loaded on entry to CPL 3. Never set together with `profile`.
    pub deferred: Option<Volatile2007>,
}

/// The reason why a state does not fit a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StateError {
    /// The ring holds no record, or its size or head is no multiple of one.
    Ring,
    /// The number of slots differs from the processor's.
    Slots,
    /// A slot counts an event the revision does not have.
    Event(u8),
    /// Both a running and a deferred profile.
    Both,
}

impl core::fmt::Display for StateError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Ring => f.write_str("ring size or head is no multiple of a record"),
            Self::Slots => f.write_str("number of event slots differs from the processor's"),
            Self::Event(id) => write!(f, "EventId {id} cannot be counted in a slot"),
            Self::Both => f.write_str("profile both running and deferred"),
        }
    }
}

impl core::error::Error for StateError {}

impl LwpUnit {
    /// Returns the state that the unit remembers.
    pub fn state(&self) -> UnitStateV1 {
        let revision = self.processor.revision();
        let (profile, deferred) = match &self.state {
            State::Off => (None, None),
            State::On(profile) => (Some(profile.state(revision)), None),
            State::Deferred(volatile) => (None, Some(volatile.clone())),
        };
        UnitStateV1 {
            xcr0_lwp: self.xcr0_lwp,
            lwp_cfg: self.cfg.bits(),
            lwpmsr0: self.msr0.bits(),
            profile,
            deferred,
        }
    }

    /// A unit that remembers `state`.
    ///
    /// # Errors
    ///
    /// If the state cannot be one of this processor.
    pub fn from_state(
        processor: Processor,
        policy: Policy,
        state: &UnitStateV1,
    ) -> Result<Self, StateError> {
        let mut unit = Self::with_policy(processor, policy);
        unit.xcr0_lwp = state.xcr0_lwp;
        // The low half holds enables, of which bit 0 does not exist; the high half holds bytes.
        let flags = EventFlags::from_bits_retain(state.lwp_cfg as u32 & !1);
        unit.cfg = LwpCfg::new(flags, (state.lwp_cfg >> 32) as u8, (state.lwp_cfg >> 40) as u8);
        unit.msr0 = LwpMsr0::from_bits_truncate(state.lwpmsr0);
        match (&state.profile, &state.deferred) {
            (None, None) => {}
            (Some(profile), None) => {
                unit.state = State::On(Profile::from_state(&unit.processor, profile)?);
            }
            (None, Some(deferred)) => unit.restore_volatile(Some(deferred.clone())),
            (Some(_), Some(_)) => return Err(StateError::Both),
        }
        Ok(unit)
    }
}

impl Profile {
    fn state(&self, revision: Revision) -> ProfileStateV1 {
        let intervals = self.constants.as_ref().map(|constants| &constants.intervals);
        let slots = self.slots.iter().enumerate().map(|(index, slot)| SlotStateV1 {
            event_id: slot.kind.and_then(|kind| kind.event_id(revision)).map_or(0, |id| id.0),
            counter: slot.counter,
            interval: intervals.and_then(|all| all.get(index)).copied(),
            passed_over: slot.passed_over,
        });
        ProfileStateV1 {
            lwpcb: self.lwpcb.0,
            flags: self.flags.bits(),
            buffer_base: self.buffer_base.0,
            buffer_size: self.ring.size(),
            random: self.random,
            head: self.head.0,
            filters: self.filters,
            slots: slots.collect(),
            pending: self.pending.map(|record| record.to_bytes()),
            awaited: self.awaited.map(|awaited| (awaited.ip.0, awaited.patience)),
            constants: self.constants.as_ref().map(|c| (c.threshold, c.base_ip, c.limit_ip)),
        }
    }

    fn from_state(processor: &Processor, state: &ProfileStateV1) -> Result<Self, StateError> {
        let ring = Ring::new(state.buffer_size, processor.record_bytes())
            .filter(|ring| ring.size() == state.buffer_size)
            .filter(|ring| ring.reduce(state.head).0 == state.head)
            .ok_or(StateError::Ring)?;
        if state.slots.len() != usize::from(processor.slots()) {
            return Err(StateError::Slots);
        }
        let mut slots = Vec::new();
        for slot in &state.slots {
            let kind = EventKind::from_event_id(processor.revision(), EventId(slot.event_id));
            let has_counter = kind != Some(EventKind::Programmed);
            if slot.event_id != 0 && !(kind.is_some() && has_counter) {
                return Err(StateError::Event(slot.event_id));
            }
            slots.push(Slot { kind, counter: slot.counter, passed_over: slot.passed_over });
        }
        let constants = state.constants.map(|(threshold, base_ip, limit_ip)| Constants {
            intervals: state.slots.iter().map(|slot| slot.interval.unwrap_or(0)).collect(),
            threshold,
            base_ip,
            limit_ip,
        });
        Ok(Self {
            lwpcb: LinearAddr(state.lwpcb),
            flags: EventFlags::from_bits_truncate(state.flags),
            buffer_base: LinearAddr(state.buffer_base),
            ring,
            random: state.random & 0xF,
            head: RingOffset(state.head),
            filters: state.filters,
            slots,
            pending: state.pending.map(|bytes| Record::from_bytes(&bytes)),
            awaited: state.awaited.map(|(ip, patience)| Awaited { ip: AppPc(ip), patience }),
            constants,
        })
    }
}
