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

impl LwpUnit {
    /// Returns the work that can be done directly, to be asked anew after everything that the unit
    /// does; `None` with LWP off, in the proposal, and while a record waits for its page or its
    /// instruction to be restarted.
    pub fn direct(&self) -> Option<Direct> {
        let profile = self.profile()?;
        let plain = self.processor.revision() == Revision::Shipped
            && self.processor.record_bytes() as usize == Record::SIZE
            && self.policy.head == HeadPublication::EachRecord
            && profile.pending.is_none()
            && profile.awaited.is_none();
        let constants = profile.constants.as_ref().filter(|_| plain)?;
        let fields = self.processor.fields(profile.lwpcb);
        Some(Direct {
            stamped: profile.flags.contains(EventFlags::PTSC),
            continuous: profile.flags.contains(EventFlags::CONT),
            ring: profile.buffer_base,
            size: profile.ring.size(),
            head: profile.head,
            head_at: fields.head,
            tail_at: fields.tail,
            threshold: self.interrupt_vector(profile).map(|_| constants.threshold),
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
        }
    }

    fn profile(&self) -> Option<&Profile> {
        match &self.state {
            State::On(profile) => Some(profile),
            _ => None,
        }
    }
}
