//! The options of a session: the structure of C, and the profile that it describes.

use std::mem::{self, offset_of};
use std::ptr;

use lwp::{EventKind, Filters, Lwp, ProfileBuilder, Revision};

use crate::failure::Failure;

/// `struct lwp_options` of the header, which documents the members. Zero means what was not asked
/// for.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Options {
    size: u32,
    flags: u32,
    every: [u32; 32],
    ring_records: u32,
    random_bits: u32,
    filters: u32,
    threshold_records: u32,
    base_ip: u64,
    limit_ip: u64,
}

/// Bytes of the structure in the first version of the interface: no program has a smaller one.
const FIRST_SIZE: usize = 168;
const _: () = assert!(mem::size_of::<Options>() >= FIRST_SIZE);
const _: () =
    assert!(offset_of!(Options, ring_records) == 136 && offset_of!(Options, limit_ip) == 160);

const SHARED: u32 = 1 << 0;
const TIME_STAMPS: u32 = 1 << 1;

/// The filters that have a name.
const FILTERS: u32 = 0xFF
    | Filters::CLF.bits()
    | Filters::NBC.bits()
    | Filters::RDC.bits()
    | Filters::RAM.bits()
    | Filters::OTH.bits()
    | Filters::NMB.bits()
    | Filters::NPB.bits()
    | Filters::NAB.bits()
    | Filters::NCB.bits()
    | Filters::NRB.bits()
    | Filters::IPI.bits()
    | Filters::IPF.bits();

impl Options {
    /// Copies the structure at `place`, however long its program knows it to be.
    ///
    /// # Safety
    ///
    /// `place` is NULL, or its first four bytes say how many bytes of it can be read.
    pub(crate) unsafe fn read(place: *const Self) -> Result<Self, Failure> {
        if place.is_null() {
            return Err(Failure::Call(libc::EINVAL, "no options"));
        }
        // SAFETY: the caller's promise; the size is the first member.
        let size = unsafe { place.cast::<u32>().read_unaligned() } as usize;
        if size < FIRST_SIZE {
            return Err(Failure::Call(
                libc::EINVAL,
                "options of a size that no version had: lwp_options_init() sets it",
            ));
        }
        let known = size.min(mem::size_of::<Self>());
        // SAFETY: all members are numbers, for which zero is valid.
        let mut options: Self = unsafe { mem::zeroed() };
        // SAFETY: the caller's promise; no more is written than there is room for.
        unsafe {
            ptr::copy_nonoverlapping(place.cast::<u8>(), (&raw mut options).cast(), known);
            let unknown = place.cast::<u8>();
            if (known..size).any(|at| *unknown.add(at) != 0) {
                return Err(Failure::Call(libc::E2BIG, "options that this library does not know"));
            }
        }
        Ok(options)
    }

    /// Returns whether other processes are to read the ring.
    pub(crate) const fn is_shared(&self) -> bool {
        self.flags & SHARED != 0
    }

    /// Describes the profile. What this LWP lacks is refused when it is built.
    pub(crate) fn profile(&self, lwp: Lwp) -> Result<ProfileBuilder, Failure> {
        self.check()?;
        let mut profile = self.events(lwp)?.random_bits(self.random_bits);
        if self.ring_records != 0 {
            profile = profile.ring_records(self.ring_records);
        }
        if self.threshold_records != 0 {
            profile = profile.interrupt_at(self.threshold_records);
        }
        if self.flags & TIME_STAMPS != 0 {
            profile = profile.time_stamps();
        }
        let filters = Filters::from_bits_retain(self.filters);
        profile = profile.filters(filters);
        let range = self.base_ip..=self.limit_ip;
        Ok(match (filters.contains(Filters::IPF), filters.contains(Filters::IPI)) {
            (false, _) => profile,
            (true, false) => profile.ip_range(range),
            (true, true) => profile.outside_ip_range(range),
        })
    }

    /// Refuses what has no meaning.
    fn check(&self) -> Result<(), Failure> {
        let (ipf, ipi) = (Filters::IPF.bits(), Filters::IPI.bits());
        let wrong = match self {
            _ if self.flags & !(SHARED | TIME_STAMPS) != 0 => "a flag that is not known",
            _ if self.filters & !FILTERS != 0 => "a filter that is not known",
            _ if self.filters & (ipf | ipi) == ipi => "a filter inverted that is not there",
            _ => return Ok(()),
        };
        Err(Failure::Call(libc::EINVAL, wrong))
    }

    fn events(&self, lwp: Lwp) -> Result<ProfileBuilder, Failure> {
        let mut profile = lwp.profile();
        for (id, every) in (0..).zip(self.every).filter(|(_, every)| *every != 0) {
            let kind = EventKind::from_event_id(Revision::Shipped, lwp::EventId(id));
            let kind = kind.ok_or(Failure::Call(libc::ENOTSUP, "an event that nobody knows"))?;
            profile = profile.event(kind, every);
        }
        Ok(profile)
    }
}
