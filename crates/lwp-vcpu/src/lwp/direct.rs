//! The data that the routines need to execute LWPINS, LWPVAL and SLWPCB without the host, and what
//! they have done with it.

use std::sync::OnceLock;

use lwp_arch::{EventKind, Revision, RingOffset};
use lwp_dbt::Slot;
use lwp_dbt::context::{CORE_BY_RDPID, OFF_FOR_NOW, PROCESSOR_SEGMENT, TOGGLES};
use lwp_mailbox::contexts::Context;
use lwp_model::{Direct, LwpUnit, Xorshift32};
use lwp_process::sys;

use super::countdown::Countdown;
use super::unit::ThreadUnit;
use crate::machine::StampClock;

/// A threshold that no ring reaches.
const NEVER: u64 = u64::MAX;

impl ThreadUnit {
    /// Publishes where records go and what SLWPCB writes.
    pub(super) fn write_direct(&self, context: Context<'_>, countdown: &Countdown) {
        let direct = self.model.direct();
        context.set(Slot::LwpRing, direct.filter(|_| self.stores()).map_or(0, |d| d.ring.0));
        // The form of 2007 has neither LWPINS nor LWPVAL, and a counter of 0 there is one that
        // waits: the countdown does not tell it from 1.
        let shipped = direct.filter(|direct| direct.revision() == Revision::Shipped);
        context.set(Slot::LwpInserts, u64::from(shipped.is_some()));
        let flushed = shipped.and(self.model.block());
        let flushed = flushed.filter(|_| self.write_clocks(context, countdown));
        context.set(Slot::LwpBlock, flushed.map_or(0, |block| block.0));
        context.set(Slot::LwpEvents, 0);
        context.set(Slot::LwpToggle, 0);
        let Some(direct) = direct else { return };
        let core = if self.surroundings.moves { core_source() } else { 0 };
        write_ring(context, &direct, core);
        context.set(Slot::LwpCounterExcess, excess(&direct) as u64);
        let clock = self.surroundings.stamp.clock().filter(|_| direct.stamped);
        let (base, rate) = clock.map_or((0, 0), StampClock::base_and_rate);
        context.set(Slot::LwpStampRate, rate);
        context.set(Slot::LwpStampBase, base);
        countdown.write_counters(context, &self.model);
        let interval = self.model.interval(EventKind::ValueSample).unwrap_or(0);
        let mask = (1u64 << direct.random_bits) - 1;
        context.set(Slot::LwpValueBase, countdown.published[2] as u64);
        context.set(Slot::LwpValueInterval, interval as u64 & !mask);
        self.write_events(context, countdown, mask);
        context.set(Slot::LwpRandomMask, mask);
        context.set(Slot::LwpRandom, u64::from(self.surroundings.random.state()));
        if flushed.is_some() {
            self.write_loaded(context, countdown, &direct);
        }
    }

    /// Publishes what the thread needs to switch its profile off and on by itself, if it can: if
    /// all that a control block tells when it is loaded is counters that count down to events, and
    /// no interrupt is wanted.
    fn write_loaded(&self, context: Context<'_>, countdown: &Countdown, direct: &Direct) {
        let plain = self.counts_what_is_published() && direct.threshold.is_none();
        let loaded = self.model.loaded().filter(|_| plain && self.stores());
        let (Some(loaded), Some(block)) = (loaded, self.model.block()) else { return };
        let interval = |kind| self.model.interval(kind).map_or(0, |it| u64::from(it as u32));
        let [high, low] = countdown.kinds().map(interval);
        context.set(Slot::LwpLoadedBlock, block.0);
        context.set(Slot::LwpLoadedEvents, context.get(Slot::LwpEvents));
        context.set(Slot::LwpLoadedFlags, loaded.flags_and_size());
        context.set(Slot::LwpLoadedFilters, loaded.filters().into());
        let [base, limit] = loaded.ip_range();
        context.set(Slot::LwpLoadedBaseIp, base);
        context.set(Slot::LwpLoadedLimitIp, limit);
        context.set(Slot::LwpLoadedIntervals, high | low << 32);
        context.set(Slot::LwpLoadedValueInterval, interval(EventKind::ValueSample));
        context.set(Slot::LwpToggle, TOGGLES);
    }

    /// Learns that the thread has switched its profile off, if it has.
    pub(super) fn take_off(&mut self, context: Context<'_>) -> bool {
        let off = context.get(Slot::LwpToggle) == OFF_FOR_NOW;
        if off {
            self.surroundings.random = Xorshift32::new(context.get(Slot::LwpRandom) as u32);
            self.model.set_off();
        }
        off
    }

    /// Returns whether the thread may store records by itself: with time stamps, if it can read
    /// their clock.
    pub(super) fn stores(&self) -> bool {
        let can_stamp = self.surroundings.stamp.clock().is_some();
        self.model.direct().is_some_and(|direct| !direct.stamped || can_stamp)
    }

    /// Publishes what the counters of clocks follow from, if any are watched. Whether SLWPCB can
    /// write every counter of the unit from what is published.
    fn write_clocks(&self, context: Context<'_>, countdown: &Countdown) -> bool {
        context.set(Slot::LwpCoreDivisor, 0);
        if self.counts_what_is_published() {
            return true;
        }
        let plain = self.model.watched().is_some_and(|watched| !watched.dcache);
        if !plain || self.judge.is_some() {
            return false;
        }
        let room = self.model.headroom();
        let more = room.instructions.wrapping_sub(countdown.published[0].cast_unsigned());
        if !self.clocks.write(context, &room, more) {
            return false;
        }
        let at = |kind| self.model.counter_address(kind).map_or(0, |address| address.0);
        context.set(Slot::LwpCoreClocksAt, at(EventKind::CoreClocks));
        context.set(Slot::LwpReferenceClocksAt, at(EventKind::ReferenceClocks));
        true
    }

    /// Returns whether every counter of the unit is a part of the countdown. Those of clocks are
    /// not, and none are where a predictor has every branch reported.
    pub(super) fn counts_what_is_published(&self) -> bool {
        self.model.watched().is_some_and(|watched| {
            !watched.core_clocks && !watched.reference_clocks && !watched.dcache
        }) && self.judge.is_none()
    }

    /// Takes in what the routines have stored since `countdown` was published.
    pub(super) fn take_direct(&mut self, context: Context<'_>, countdown: &mut Countdown) {
        let Some(direct) = self.model.direct() else { return };
        self.model.set_head(RingOffset(context.get(Slot::LwpRingHead) as u32));
        countdown.take_values(context, &mut self.model);
        self.surroundings.random = Xorshift32::new(context.get(Slot::LwpRandom) as u32);
        if self.records_events() {
            countdown.take_events(context, &mut self.model, excess(&direct));
        }
    }
}

impl Countdown {
    /// Publishes where the event counters stand that are parts of the countdown.
    fn write_counters(&self, context: Context<'_>, unit: &LwpUnit) {
        let at = |kind| unit.counter_address(kind).map_or(0, |address| address.0);
        let [high, low] = self.kinds().map(at);
        // A clock's counter follows from what the high part has counted.
        context.set(Slot::LwpHighAt, if self.clock().is_some() { 0 } else { high });
        context.set(Slot::LwpLowAt, if self.selection.instructions { low } else { 0 });
        context.set(Slot::LwpValueAt, at(EventKind::ValueSample));
    }

    /// Takes in the value samples that have passed since the countdown was published.
    fn take_values(&mut self, context: Context<'_>, unit: &mut LwpUnit) {
        let values = context.get(Slot::LwpValueBase) as i64;
        if unit.counter_address(EventKind::ValueSample).is_some() {
            self.published[2] = values;
            unit.set_counter(EventKind::ValueSample, values as i32);
        }
    }

    /// Takes in what the counters of the unit, of which translated code records the events, have
    /// been reloaded with since the countdown was published. That of a clock is the value with
    /// which it would have led here from then on. Counters have `excess` more than the countdown.
    fn take_events(&mut self, context: Context<'_>, unit: &mut LwpUnit, excess: i32) {
        let bases = [Slot::LwpHighBase, Slot::LwpLowBase].map(|slot| context.get(slot) as i64);
        for (part, (kind, base)) in self.kinds().into_iter().zip(bases).enumerate() {
            if self.published[part] == base {
                continue;
            }
            self.published[part] = base;
            let clocks = context.get(Slot::LwpClockBase);
            let counter = match kind {
                EventKind::CoreClocks => clocks as i32,
                EventKind::ReferenceClocks => (clocks >> 32) as i32,
                _ => base as i32 + excess,
            };
            unit.set_counter(kind, counter);
        }
    }
}

/// What counters have more than the number of events that may pass.
fn excess(direct: &Direct) -> i32 {
    i32::from(direct.revision() == Revision::Proposal2007)
}

/// Publishes the ring as it stands. `core`: the means by which translated code reads its core.
fn write_ring(context: Context<'_>, direct: &Direct, core: u32) {
    context.set(Slot::LwpRingSize, u64::from(direct.size));
    context.set(Slot::LwpContinuous, u64::from(direct.continuous));
    context.set(Slot::LwpRingHead, u64::from(direct.head.0));
    context.set(Slot::LwpHeadAt, direct.head_at.0);
    context.set(Slot::LwpTailAt, direct.tail_at.0);
    context.set(Slot::LwpThreshold, direct.threshold.map_or(NEVER, u64::from));
    context.set(Slot::LwpCore, u64::from(core));
}

/// The means by which translated code reads its core: RDPID where the processor has it.
fn core_source() -> u32 {
    static RDPID: OnceLock<bool> = OnceLock::new();
    const IN_ECX: u32 = 1 << 22;
    match RDPID.get_or_init(|| sys::cpuid(7, 0)[2] & IN_ECX != 0) {
        true => CORE_BY_RDPID,
        false => PROCESSOR_SEGMENT,
    }
}
