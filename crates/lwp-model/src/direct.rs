//! Storing records without the unit, as long as nothing special happens.
//!
//! A processor that runs faster than one instruction at a time asks where records go
//! ([`LwpUnit::direct`]), stores those of LWPINS and LWPVAL itself, and tells the unit afterwards
//! how far it came ([`LwpUnit::set_head`], [`LwpUnit::set_counter`]). What it cannot store like
//! this it gives to the unit: a record that fills the ring or reaches the threshold, and any page
//! fault.

use lwp_arch::{EventFlags, EventKind, LinearAddr, Record, Revision, RingOffset};

use crate::policy::HeadPublication;
use crate::unit::{LwpUnit, Profile, State};

/// The places of that which a running profile stores directly.
///
/// Spec: LWP §3.1, §5.7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Direct {
    revision: Revision,
    /// Records have time stamps.
    pub stamped: bool,
    /// A full ring loses its oldest record instead of the newest.
    pub continuous: bool,
    /// BufferBase.
    pub ring: LinearAddr,
    /// BufferSize in bytes, whole records.
    pub size: u32,
    /// The place of the next record.
    pub head: RingOffset,
    /// Address of BufferHeadOffset.
    pub head_at: LinearAddr,
    /// Address of BufferTailOffset.
    pub tail_at: LinearAddr,
    /// A record that makes this many unread bytes is the unit's, for the interrupt; `None` without.
    pub threshold: Option<u32>,
    /// Byte 1 of records.
    pub core_id: u8,
    /// The number of low bits of a reloaded counter that are random.
    pub random_bits: u32,
}

/// What a control block said when it was loaded, but for its ring's address, its threshold, and
/// the slots of its events.
///
/// Spec: LWP §3.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loaded {
    flags_and_size: u64,
    filters: u32,
    base_ip: u64,
    limit_ip: u64,
}

impl Loaded {
    /// Flags as they were granted; in the upper half BufferSize, in whole records, and Random.
    pub const fn flags_and_size(&self) -> u64 {
        self.flags_and_size
    }

    /// Filters.
    pub const fn filters(&self) -> u32 {
        self.filters
    }

    /// BaseIP and LimitIP.
    pub const fn ip_range(&self) -> [u64; 2] {
        [self.base_ip, self.limit_ip]
    }
}

impl Direct {
    /// The form of the records. In that of 2007, the event with which a counter reaches 0 is
    /// recorded; in the shipped one, the event after it.
    pub const fn revision(&self) -> Revision {
        self.revision
    }
}

impl LwpUnit {
    /// Returns the work that can be done directly, to be asked anew after everything that the unit
    /// does; `None` with LWP off, in the form of 2007 where an interval may be less than 2, and
    /// while a record waits for its page or its instruction to be restarted.
    pub fn direct(&self) -> Option<Direct> {
        let profile = self.profile()?;
        let revision = self.processor.revision();
        let plain = self.processor.record_bytes() as usize == Record::SIZE
            && self.policy.head == HeadPublication::EachRecord
            && profile.pending.is_none()
            && profile.awaited.is_none();
        let constants = profile.constants.as_ref().filter(|_| plain)?;
        if revision == Revision::Proposal2007 && !has_plain_intervals(profile) {
            return None;
        }
        let fields = self.processor.fields(profile.lwpcb);
        // In the form of 2007, 0 is never reached.
        let reached = |threshold: &u32| revision == Revision::Shipped || *threshold != 0;
        Some(Direct {
            revision,
            stamped: profile.flags.contains(EventFlags::PTSC),
            continuous: profile.flags.contains(EventFlags::CONT),
            ring: profile.buffer_base,
            size: profile.ring.size(),
            head: profile.head,
            head_at: fields.head,
            tail_at: fields.tail,
            threshold: self.interrupt_vector(profile).map(|_| constants.threshold).filter(reached),
            core_id: self.core_id(),
            random_bits: profile.random,
        })
    }

    /// Linear address of the active block.
    pub fn block(&self) -> Option<LinearAddr> {
        self.profile().map(|profile| profile.lwpcb)
    }

    /// Linear address of the EventCounter of `kind`, where that is active.
    pub fn counter_address(&self, kind: EventKind) -> Option<LinearAddr> {
        let profile = self.profile()?;
        let slot = profile.slot_of(Some(kind))?;
        Some(self.processor.counter_address(profile.lwpcb, slot))
    }

    /// EventInterval of `kind`, where that is active.
    pub fn interval(&self, kind: EventKind) -> Option<i32> {
        let profile = self.profile()?;
        let slot = profile.slot_of(Some(kind))?;
        profile.constants.as_ref()?.intervals.get(slot).copied()
    }

    /// Records have been stored directly, up to `head`.
    pub fn set_head(&mut self, head: RingOffset) {
        if let State::On(profile) = &mut self.state {
            profile.head = profile.ring.reduce(head.0);
        }
    }

    /// The counter of `kind` has been reloaded with `value` after its record was stored directly.
    pub fn set_counter(&mut self, kind: EventKind, value: i32) {
        if let State::On(profile) = &mut self.state
            && let Some(slot) = profile.slot_of(Some(kind))
        {
            profile.slots[slot].counter = value;
            profile.slots[slot].passed_over = 0;
        }
    }

    /// LLWPCB with 0 has been executed directly: what has been counted stands in the control block.
    pub fn set_off(&mut self) {
        self.state = State::Off;
    }

    /// The facts by which a control block that is loaded again is known to say the same: `None`
    /// with LWP off.
    pub fn loaded(&self) -> Option<Loaded> {
        let profile = self.profile()?;
        let constants = profile.constants.as_ref()?;
        let size = u64::from(profile.ring.size()) | u64::from(profile.random) << 28;
        Some(Loaded {
            flags_and_size: u64::from(profile.flags.bits()) | size << 32,
            filters: profile.filters,
            base_ip: constants.base_ip,
            limit_ip: constants.limit_ip,
        })
    }

    fn profile(&self) -> Option<&Profile> {
        match &self.state {
            State::On(profile) => Some(profile),
            _ => None,
        }
    }
}

/// Returns whether each counter of a profile is reloaded with at least 2: then one that is 0 has
/// expired and waits for its turn.
///
/// Spec: P07 §5.4, §5.5.1.
fn has_plain_intervals(profile: &Profile) -> bool {
    let intervals = profile.constants.as_ref().map_or(&[][..], |constants| &constants.intervals);
    let random = (1i32 << profile.random) - 1;
    let mut counted = profile.slots.iter().zip(intervals).filter(|(slot, _)| slot.kind.is_some());
    counted.all(|(_, interval)| interval & !random >= 2)
}
