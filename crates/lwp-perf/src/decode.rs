//! From samples of the PMU to event records of LWP.
//!
//! LWP's records say which instruction retired, where a branch went and what a cache miss cost. IBS
//! and PEBS say the same in their own words; samples of other events give the instruction alone.

use lwp_arch::record::{BranchFlags, DataSource, Event as LwpEvent, Record as LwpRecord};
use lwp_arch::{AppPc, EventKind, LinearAddr, Revision};

use crate::sample::Sample;

pub mod ibs;

/// The source of a load's data, by `union perf_mem_data_src`.
///
/// Spec: perf_event.h, `union perf_mem_data_src`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryAccess(pub u64);

/// `mem_lvl`, bits 18:5.
mod level {
    pub const HIT: u64 = 0x02;
    pub const L3: u64 = 0x40;
    pub const LOCAL_RAM: u64 = 0x80;
    pub const REMOTE_RAM: u64 = 0x100 | 0x200;
    pub const REMOTE_CACHE: u64 = 0x400 | 0x800;
    pub const IO_OR_UNCACHED: u64 = 0x1000 | 0x2000;
}

/// `mem_lvl_num`, bits 36:33.
mod number {
    pub const L1: u64 = 0x1;
    pub const L3: u64 = 0x3;
    pub const L4: u64 = 0x4;
    pub const UNCACHED: u64 = 0x8;
    pub const CXL: u64 = 0x9;
    pub const IO: u64 = 0xa;
    pub const ANY_CACHE: u64 = 0xb;
    pub const LFB: u64 = 0xc;
    pub const RAM: u64 = 0xd;
    pub const PMEM: u64 = 0xe;
}

impl MemoryAccess {
    fn bits(self, low: u32, count: u32) -> u64 {
        self.0 >> low & ((1 << count) - 1)
    }

    /// Returns whether it was a load.
    pub fn is_load(self) -> bool {
        self.bits(0, 5) & 2 != 0
    }

    fn level(self) -> u64 {
        self.bits(5, 14)
    }

    fn level_number(self) -> u64 {
        self.bits(33, 4)
    }

    fn is_remote(self) -> bool {
        self.bits(37, 1) == 1
    }

    /// Returns whether the L1 data cache had it.
    pub fn is_l1_hit(self) -> bool {
        const L1: u64 = 0x08;
        match self.level_number() {
            0 => self.level() & level::HIT != 0 && self.level() & L1 != 0,
            number => number == number::L1,
        }
    }

    /// The source in LWP's terms. A hit in the L2 or a fill buffer has none.
    pub fn source(self) -> DataSource {
        match self.level_number() {
            0 => self.source_by_level(),
            number::RAM | number::PMEM => DataSource::Dram,
            number::UNCACHED | number::CXL | number::IO => DataSource::Other,
            number::L3 | number::L4 | number::ANY_CACHE if self.is_remote() => DataSource::Remote,
            number::L3 | number::L4 => DataSource::LocalL3,
            number::LFB => DataSource::NoStatus,
            _ if self.is_remote() => DataSource::Remote,
            _ => DataSource::NoStatus,
        }
    }

    /// The source in LWP's terms, from the older field.
    fn source_by_level(self) -> DataSource {
        let level = self.level();
        if level & level::REMOTE_CACHE != 0 {
            DataSource::Remote
        } else if level & (level::LOCAL_RAM | level::REMOTE_RAM) != 0 {
            DataSource::Dram
        } else if level & level::IO_OR_UNCACHED != 0 {
            DataSource::Other
        } else if level & level::L3 != 0 {
            DataSource::LocalL3
        } else {
            DataSource::NoStatus
        }
    }
}

/// The LWP record of `sample`, an event of kind `kind`. `None` where the sample does not have what
/// the record needs: an instruction address always; for a cache miss a data source that is not the
/// L1.
///
/// The time stamp is the sample's, in ns: perf has no other clock that is the same everywhere.
pub fn lwp_record(sample: &Sample, kind: EventKind) -> Option<LwpRecord> {
    let event = match kind {
        EventKind::InstructionsRetired => LwpEvent::InstructionsRetired,
        EventKind::CoreClocks => LwpEvent::CoreClocks,
        EventKind::ReferenceClocks => LwpEvent::ReferenceClocks,
        EventKind::DcacheMisses => cache_miss(sample)?,
        EventKind::BranchesRetired => branch(sample)?,
        EventKind::ValueSample | EventKind::Programmed => return None,
    };
    build(sample, event, sample.ip?)
}

fn build(sample: &Sample, event: LwpEvent, ip: u64) -> Option<LwpRecord> {
    // CoreId has eight bits; LWP's own numbering wraps too.
    let core = sample.cpu.unwrap_or(0).to_le_bytes()[0];
    LwpRecord::new(Revision::Shipped, event, AppPc(ip), core, sample.time_ns.unwrap_or(0))
}

/// PEBS load latency: address, weight and data source.
fn cache_miss(sample: &Sample) -> Option<LwpEvent> {
    let access = MemoryAccess(sample.data_source?);
    if access.is_l1_hit() || !access.is_load() {
        return None;
    }
    Some(LwpEvent::DcacheMisses {
        source: access.source(),
        latency_cycles: u32::try_from(sample.weight.unwrap_or(0)).unwrap_or(u32::MAX),
        data_address: sample.address.filter(|address| *address != 0).map(LinearAddr),
    })
}

/// A sampled branch: perf puts its target into `addr` where the PMU knows it. Without one there is
/// no record, because a record that names no target would name the wrong one.
fn branch(sample: &Sample) -> Option<LwpEvent> {
    let target = AppPc(sample.address.filter(|address| *address != 0)?);
    Some(LwpEvent::BranchesRetired { flags: BranchFlags::new(true, None), target })
}
