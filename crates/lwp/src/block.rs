//! Describes a profile: the control block before it is loaded.

use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use lwp_arch::cpuid::fn8000_001c::Ecx;
use lwp_arch::filters::Filters;
use lwp_arch::lwpcb::{COUNTER_MAX, EventSlot, Lwpcb};
use lwp_arch::{EventFlags, EventKind, Revision};

use crate::detect::Lwp;
use crate::drain::{Geometry, Reader};
use crate::error::Error;
use crate::profile::Profile;
use crate::ring::Region;

/// Largest BufferSize that the control block can say, in bytes.
const MAX_RING_BYTES: u32 = 0x0FFF_FFFF;
/// Readable records of a ring unless its size is given.
const DEFAULT_RECORDS: u32 = 4096;

/// The events that a profile records, and the ring that it puts them in.
///
/// A request that can't be met is reported by [`Self::build`], not where it is made.
///
/// Spec: LWP §3.1.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct ProfileBuilder {
    lwp: Lwp,
    flags: EventFlags,
    slots: Vec<EventSlot>,
    ring_records: u32,
    random_bits: u32,
    threshold_records: Option<u32>,
    filters: Filters,
    ip_range: Option<RangeInclusive<u64>>,
    /// IPF and IPI, as the range asks for them.
    ip_filter: Filters,
    faults: Vec<Error>,
}

impl ProfileBuilder {
    /// A profile that records only what LWPINS inserts.
    pub(crate) fn new(lwp: Lwp) -> Self {
        let slots = usize::from(lwp.capabilities().ebx.max_events());
        Self {
            lwp,
            flags: EventFlags::empty(),
            slots: vec![EventSlot::new(0, 0); slots],
            ring_records: DEFAULT_RECORDS,
            random_bits: 0,
            threshold_records: None,
            filters: Filters::empty(),
            ip_range: None,
            ip_filter: Filters::empty(),
            faults: Vec::new(),
        }
    }

    /// Records every `every`-th occurrence of `kind`, where `every` is 1 to 2^25. The first record
    /// is for occurrence number `every`. A second request for a kind replaces the first. Records
    /// that [`Lwp::lwpins`] inserts ([`EventKind::Programmed`]) need no request.
    ///
    /// Spec: LWP §3.1.
    pub fn event(mut self, kind: EventKind, every: u32) -> Self {
        if kind == EventKind::Programmed {
            return self;
        }
        let interval = every.checked_sub(1).and_then(|interval| i32::try_from(interval).ok());
        let interval = interval.filter(|interval| *interval <= COUNTER_MAX);
        let id = kind.event_id(Revision::Shipped);
        let slot = id.and_then(|id| self.slots.get_mut(usize::from(id.0).wrapping_sub(1)));
        let flag = id.map(|id| EventFlags::from_bits_retain(1 << id.0));
        match (interval, slot, flag) {
            (None, ..) => self.faults.push(Error::Interval(every)),
            (Some(interval), Some(slot), Some(flag)) if self.lwp.enabled().contains(flag) => {
                *slot = EventSlot::new(interval, interval);
                self.flags |= flag;
            }
            _ => self.faults.push(Error::EventUnavailable(kind)),
        }
        self
    }

    /// Sets how many unread records the ring has room for; the default is 4096. The ring is larger
    /// if the processor's smallest ring is.
    pub const fn ring_records(mut self, records: u32) -> Self {
        self.ring_records = records;
        self
    }

    /// Makes the low `bits` bits (at most 15) of every reloaded counter random, so that samples
    /// don't fall into step with a loop.
    ///
    /// Spec: LWP §3.1.
    pub fn random_bits(mut self, bits: u32) -> Self {
        if bits > 15 {
            self.faults.push(Error::RandomBits(bits));
        }
        self.random_bits = bits;
        self
    }

    /// Counts only events that pass these filters. IPF and IPI are ignored here: [`Self::ip_range`]
    /// and [`Self::outside_ip_range`] set them.
    ///
    /// Spec: LWP §3.3.
    pub fn filters(mut self, filters: Filters) -> Self {
        let ecx = self.lwp.capabilities().ecx;
        let levels = Filters::CLF | Filters::NBC | Filters::RDC | Filters::RAM | Filters::OTH;
        let predictions = Filters::NMB | Filters::NPB;
        let needs = [
            (filters.min_latency() != 0, Ecx::LWP_CACHE_LATENCY, "latency"),
            (filters.intersects(levels), Ecx::LWP_CACHE_LEVELS, "cache level"),
            (filters.intersects(predictions), Ecx::LWP_BRANCH_PREDICTION, "branch prediction"),
        ];
        for (wanted, capability, name) in needs {
            if wanted && !ecx.contains(capability) {
                self.faults.push(Error::FilterUnavailable(name));
            }
        }
        self.filters = filters - (Filters::IPF | Filters::IPI);
        self
    }

    /// Counts only events of instructions at these addresses, except that value samples and LWPINS
    /// are never filtered.
    ///
    /// Spec: LWP §3.3.
    pub fn ip_range(self, range: RangeInclusive<u64>) -> Self {
        self.filter_addresses(range, Filters::IPF)
    }

    /// Counts only events of instructions outside of these addresses, except that value samples and
    /// LWPINS are never filtered. Of this method and [`Self::ip_range`], the last call wins.
    ///
    /// Spec: LWP §3.3.
    pub fn outside_ip_range(self, range: RangeInclusive<u64>) -> Self {
        self.filter_addresses(range, Filters::IPF | Filters::IPI)
    }

    fn filter_addresses(mut self, range: RangeInclusive<u64>, filter: Filters) -> Self {
        if !self.lwp.capabilities().ecx.contains(Ecx::LWP_IP_FILTERING) {
            self.faults.push(Error::FilterUnavailable("address"));
        }
        self.ip_range = Some(range);
        self.ip_filter = filter;
        self
    }

    /// Interrupts the thread when this many records are unread. The system turns the interrupt into
    /// a signal; see `lwp run --interrupt`.
    ///
    /// Spec: LWP §5.7.
    pub fn interrupt_at(mut self, records: u32) -> Self {
        if !self.lwp.enabled().contains(EventFlags::INT) {
            self.faults.push(Error::ModeUnavailable("threshold interrupts"));
        }
        self.flags |= EventFlags::INT;
        self.threshold_records = Some(records);
        self
    }

    /// Puts a time stamp into every record, in units of the performance time-stamp counter.
    ///
    /// Spec: LWP §4.1.
    pub fn time_stamps(mut self) -> Self {
        if !self.lwp.enabled().contains(EventFlags::PTSC) {
            self.faults.push(Error::ModeUnavailable("time stamps"));
        }
        self.flags |= EventFlags::PTSC;
        self
    }

    /// Makes the profile, and the reader of its records.
    ///
    /// # Errors
    ///
    /// The first request that can't be met ([`Error::EventUnavailable`],
    /// [`Error::ModeUnavailable`], [`Error::FilterUnavailable`], [`Error::Interval`],
    /// [`Error::RandomBits`], [`Error::RingSize`]), or [`Error::Memory`] if the system refuses
    /// memory.
    pub fn build(self) -> Result<(Profile, Reader), Error> {
        let region = Region::private(self.ring_bytes()?).map_err(Error::Memory)?;
        Ok(self.finish(region))
    }

    /// Makes the profile in memory that another process can read records from: give it the
    /// descriptor, and it calls [`Reader::attach`].
    ///
    /// A ring has one reader at a time; drop the one returned here if another process reads.
    /// Whoever has the descriptor can change the control block, so share it only with processes
    /// that you trust.
    ///
    /// # Errors
    ///
    /// As [`Self::build`].
    pub fn build_shared(self) -> Result<(Profile, Reader, OwnedFd), Error> {
        let (region, file) = Region::shared(self.ring_bytes()?).map_err(Error::Memory)?;
        let (profile, reader) = self.finish(region);
        Ok((profile, reader, file))
    }

    fn ring_bytes(&self) -> Result<usize, Error> {
        if let Some(fault) = self.faults.first() {
            return Err(*fault);
        }
        let capabilities = self.lwp.capabilities();
        let record = capabilities.ebx.event_size();
        let max = MAX_RING_BYTES / record - 1;
        let min = (capabilities.min_ring_bytes() / record).saturating_sub(1).max(1);
        let records = self.ring_records;
        if records == 0 || records > max {
            return Err(Error::RingSize { records, min: 1, max });
        }
        // One slot is never readable.
        Ok((records.max(min) as usize + 1) * record as usize)
    }

    fn finish(self, region: Region) -> (Profile, Reader) {
        let capabilities = self.lwp.capabilities();
        let record_bytes = capabilities.ebx.event_size();
        let mut block = Lwpcb::default();
        block.flags = self.flags.bits().into();
        block.set_buffer_size_random(0, self.random_bits);
        let threshold = self.threshold_records.unwrap_or(u32::MAX / record_bytes);
        block.threshold = threshold.saturating_mul(record_bytes).into();
        if let Some(range) = &self.ip_range {
            block.base_ip = (*range.start()).into();
            block.limit_ip = (*range.end()).into();
        }
        block.filters = (self.filters | self.ip_filter).bits().into();
        Geometry::sign(&mut block, record_bytes);
        region.write_block(&block, capabilities.ebx.event_offset() as usize, &self.slots);
        let region = Arc::new(region);
        let geometry = Geometry::new(record_bytes, region.ring_bytes());
        let reader = Reader::new(Arc::clone(&region), geometry);
        (Profile::new(self.lwp, region, self.flags), reader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::tests::part;
    use lwp_arch::cpuid::presets;

    /// Spec: LWP §1.2, §3.1
    #[test]
    fn lwp_spec_1_2_what_the_processor_lacks_is_refused() {
        let bulldozer = || part(presets::BULLDOZER).profile();
        let refused = |builder: ProfileBuilder| builder.build().map(drop).unwrap_err();
        assert_eq!(
            refused(bulldozer().event(EventKind::DcacheMisses, 10)),
            Error::EventUnavailable(EventKind::DcacheMisses)
        );
        assert_eq!(refused(bulldozer().time_stamps()), Error::ModeUnavailable("time stamps"));
        assert_eq!(refused(bulldozer().ip_range(0..=1)), Error::FilterUnavailable("address"));
        let filter = Filters::empty().with_min_latency(1);
        assert_eq!(refused(bulldozer().filters(filter)), Error::FilterUnavailable("latency"));
        assert_eq!(
            refused(bulldozer().filters(Filters::NMB)),
            Error::FilterUnavailable("branch prediction")
        );
        assert!(bulldozer().filters(Filters::NCB).interrupt_at(5).build().is_ok());
    }

    /// Spec: LWP §3.1, §3.2
    #[test]
    fn lwp_spec_3_1_numbers_out_of_range_are_refused() {
        let full = || part(presets::FULL).profile();
        let refused = |builder: ProfileBuilder| builder.build().map(drop).unwrap_err();
        for every in [0, (1 << 25) + 1, u32::MAX] {
            assert_eq!(
                refused(full().event(EventKind::ValueSample, every)),
                Error::Interval(every)
            );
        }
        assert!(full().event(EventKind::ValueSample, 1 << 25).build().is_ok());
        assert_eq!(refused(full().random_bits(16)), Error::RandomBits(16));
        assert!(matches!(refused(full().ring_records(0)), Error::RingSize { .. }));
        assert!(matches!(refused(full().ring_records(1 << 23)), Error::RingSize { .. }));
    }

    /// Spec: LWP §3.3
    #[test]
    fn lwp_spec_3_3_a_range_of_addresses_is_meant_or_left_out() {
        use crate::ring::Words;
        use std::sync::atomic::Ordering;

        let full = || part(presets::FULL).profile().filters(Filters::NCB | Filters::IPI);
        let words = |builder: ProfileBuilder| {
            let (profile, _) = builder.build().unwrap();
            [9, 10, 12].map(|index| profile.region().load(index, Ordering::Relaxed))
        };
        let ncb = Filters::NCB.bits();
        let ipf = Filters::IPF.bits();
        assert_eq!(words(full()), [ncb, 0, 0]);
        assert_eq!(words(full().outside_ip_range(1..=2).ip_range(3..=4)), [ncb | ipf, 3, 4]);
        let inverted = ncb | ipf | Filters::IPI.bits();
        assert_eq!(words(full().ip_range(3..=4).outside_ip_range(1..=2)), [inverted, 1, 2]);
        let refused = part(presets::BULLDOZER).profile().outside_ip_range(0..=1).build();
        assert_eq!(refused.map(drop).unwrap_err(), Error::FilterUnavailable("address"));
    }

    /// The model accepts every block that is built, and grants what was asked for.
    ///
    /// Spec: LWP §3.1, §3.2, §5.3
    #[test]
    fn lwp_spec_3_2_built_blocks_are_accepted_as_they_are() {
        use crate::ring::Words;
        use lwp_arch::LinearAddr;
        use lwp_model::{Cpu, LwpUnit, PagedMemory, Processor, Quiet};
        use std::sync::atomic::Ordering;

        for (name, capabilities) in presets::ALL {
            let builder = part(capabilities).profile().event(EventKind::BranchesRetired, 1000);
            let (profile, _) = builder.ring_records(1).random_bits(4).build().unwrap();
            let region = profile.region();
            let mut memory = PagedMemory::new();
            memory.map(LinearAddr(region.address()), (region.ring_bytes() + 4096) as u64);
            for index in 0..1024 {
                let word = region.load(index, Ordering::Relaxed).to_le_bytes();
                memory.poke(LinearAddr(region.address() + index as u64 * 4), &word);
            }
            let mut unit = LwpUnit::new(Processor::shipped(capabilities));
            unit.enable_everything();
            let cpu = Cpu::user_64();
            unit.llwpcb(&cpu, region.address(), &mut memory, &mut Quiet).expect(name);
            let flags = memory.peek_u32(LinearAddr(region.address()));
            assert_eq!(flags, EventFlags::BRE.bits(), "{name}");
            let interval = memory.peek_u32(LinearAddr(region.address() + 128 + 16));
            assert_eq!(interval, 999, "{name}");
        }
    }
}
