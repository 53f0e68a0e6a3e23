//! A processor with nothing but a unit and memory, and the block and ring the tests use.

use std::collections::BTreeSet;

use lwp_arch::cpuid::{Capabilities, fn8000_001c::Ecx, presets};
use lwp_arch::event::EventId;
use lwp_arch::insn::Width;
use lwp_arch::lwpcb::{EventSlot, Lwpcb};
use lwp_arch::record::DataSource;
use lwp_arch::retired::{Access, AccessKind, BranchKind, CacheMiss};
use lwp_arch::{
    AppPc, EventFlags, Fault, LinearAddr, PageFault, Record, Retired, Revision, RingOffset, ring,
};
use lwp_model::{
    Cpu, Data1, Insert, LinearMemory, LwpUnit, PagedMemory, Policy, Processor, Retirement, Seeded,
    Shipped,
};

/// Where the control block lies.
pub const BLOCK: LinearAddr = LinearAddr(0x1000);
/// Where the ring lies.
pub const RING: LinearAddr = LinearAddr(0x1_0000);
/// Where the slots begin in the block.
const SLOTS: u64 = 128;

/// The shipped processor with everything and rings as small as a record.
pub fn small_rings() -> Processor {
    let ecx = Ecx::from_bits_retain(presets::FULL.ecx.bits() & !0x00FF_0000);
    Processor::shipped(Capabilities { ecx, ..presets::FULL })
}

/// The shipped processor with small rings and a minimum interval.
pub fn with_minimum(id: EventId, minimum: i32) -> Processor {
    let Processor::Shipped(Shipped { capabilities, mut minimum_intervals }) = small_rings() else {
        unreachable!("small_rings is shipped")
    };
    minimum_intervals[usize::from(id.0) - 1] = minimum;
    Processor::Shipped(Shipped { capabilities, minimum_intervals })
}

/// A unit with the memory and the surroundings it works on.
#[derive(Clone, Debug)]
pub struct Machine {
    pub unit: LwpUnit,
    pub cpu: Cpu,
    pub memory: PagedMemory,
    pub signals: Seeded,
}

impl Machine {
    /// A shipped machine, everything enabled, block and ring mapped.
    pub fn new() -> Self {
        Self::with(small_rings(), Policy::default())
    }

    pub fn with(processor: Processor, policy: Policy) -> Self {
        let mut unit = LwpUnit::with_policy(processor, policy);
        unit.enable_everything();
        let mut memory = PagedMemory::new();
        memory.map(BLOCK, 4096);
        memory.map(RING, 4096);
        Self { unit, cpu: Cpu::user_64(), memory, signals: Seeded::new(1) }
    }

    /// Writes a shipped control block with a ring of `slots` records that wants `flags`.
    pub fn block(&mut self, flags: EventFlags, slots: u32) -> &mut Self {
        let mut block = Lwpcb::default();
        block.flags = flags.bits().into();
        block.set_buffer_size_random(slots * 32, 0);
        block.buffer_base = RING.0.into();
        // Out of reach: no interrupt.
        block.threshold = 0x1000_0000.into();
        self.memory.poke(BLOCK, &block.to_bytes());
        self.memory.map(RING, u64::from(slots) * 32);
        self
    }

    /// Changes the control block in memory.
    pub fn edit(&mut self, edit: impl FnOnce(&mut Lwpcb)) -> &mut Self {
        let mut block = self.read_block();
        edit(&mut block);
        self.memory.poke(BLOCK, &block.to_bytes());
        self
    }

    pub fn read_block(&self) -> Lwpcb {
        Lwpcb::from_prefix(&self.memory.peek(BLOCK, Lwpcb::SIZE)).expect("long enough")
    }

    /// Writes interval and counter of an event.
    pub fn slot(&mut self, id: EventId, interval: i32, counter: i32) -> &mut Self {
        let at = BLOCK.plus(SLOTS + 8 * (u64::from(id.0) - 1));
        self.memory.poke(at, &EventSlot::new(interval, counter).to_bytes());
        self
    }

    /// EventCounter of an event, as it lies in memory.
    pub fn counter(&self, id: EventId) -> u32 {
        self.memory.peek_u32(BLOCK.plus(SLOTS + 8 * (u64::from(id.0) - 1) + 4))
    }

    pub fn llwpcb(&mut self, address: u64) -> Result<Option<u64>, Fault> {
        self.unit.llwpcb(&self.cpu, address, &mut self.memory, &mut self.signals)
    }

    /// LLWPCB of the usual block.
    pub fn start(&mut self) -> &mut Self {
        self.llwpcb(BLOCK.0).expect("the block is good");
        self
    }

    pub fn slwpcb(&mut self) -> Result<u64, Fault> {
        self.unit.slwpcb(&self.cpu, Width::W64, &mut self.memory, &mut self.signals)
    }

    pub fn try_retire(&mut self, retired: &Retired<'_>) -> Result<Retirement, Fault> {
        self.unit.retire(&self.cpu, retired, &mut self.memory, &mut self.signals)
    }

    pub fn retire(&mut self, retired: &Retired<'_>) -> Retirement {
        self.try_retire(retired).expect("nothing faults here")
    }

    /// Retires `count` plain instructions at consecutive addresses from `ip` on.
    pub fn run(&mut self, ip: u64, count: u64) -> &mut Self {
        for at in ip..ip + count {
            self.retire(&plain(at));
        }
        self
    }

    /// LWPINS with recognisable operands; returns the carry flag.
    pub fn lwpins(&mut self, data1: u32) -> Result<bool, Fault> {
        let insert = insert(Data1::Register(data1));
        self.unit.lwpins(&self.cpu, &insert, &mut self.memory, &mut self.signals)
    }

    /// LWPVAL with recognisable operands.
    pub fn lwpval(&mut self, data1: u32) -> Result<(), Fault> {
        let insert = insert(Data1::Register(data1));
        self.unit.lwpval(&self.cpu, &insert, &mut self.memory, &mut self.signals)
    }

    pub fn head(&self) -> u32 {
        self.read_block().buffer_head_offset.get()
    }

    pub fn set_tail(&mut self, tail: u32) -> &mut Self {
        self.edit(|block| block.buffer_tail_offset = tail.into())
    }

    /// Consumes everything: tail becomes head.
    pub fn drain(&mut self) -> Vec<Record> {
        let records = self.records();
        let head = self.head();
        self.set_tail(head);
        records
    }

    pub fn missed(&self) -> u64 {
        self.read_block().missed_events.get()
    }

    /// The records between tail and head in memory.
    pub fn records(&self) -> Vec<Record> {
        let block = self.read_block();
        let ring = self.memory.peek(RING, block.buffer_size() as usize);
        let (tail, head) = (block.buffer_tail_offset.get(), block.buffer_head_offset.get());
        ring::records(&ring, RingOffset(tail), RingOffset(head)).map(|(_, record)| record).collect()
    }

    /// `(EventId, instruction address)` of the records in memory.
    pub fn seen(&self) -> Vec<(u8, u64)> {
        self.records().iter().map(|record| (record.event_id, record.ip().0)).collect()
    }

    pub fn revision(&self) -> Revision {
        self.unit.processor().revision()
    }
}

pub fn insert(data1: Data1) -> Insert {
    Insert { ip: AppPc(0x40_0100), flags: 0x4567, data1, data2: 0xDEAD_BEEF_0BAD_F00D }
}

pub fn plain(ip: u64) -> Retired<'static> {
    Retired::plain(AppPc(ip), AppPc(ip + 1))
}

pub fn branch(ip: u64, target: u64, kind: BranchKind) -> Retired<'static> {
    Retired::branch(AppPc(ip), AppPc(target), kind, true)
}

/// A load of `address` that misses.
pub fn miss(address: u64, source: DataSource, latency_cycles: u32) -> Access {
    let address = LinearAddr(address);
    let miss = Some(CacheMiss { address, source, latency_cycles });
    Access { kind: AccessKind::Load, address, miss }
}

/// An instruction with these memory accesses.
pub fn loads(ip: u64, accesses: &[Access]) -> Retired<'_> {
    Retired { accesses, ..plain(ip) }
}

/// Memory that refuses the access with number `fail_at` (from 0), and notes the order of writes.
pub struct Flaky<'m> {
    pub memory: &'m mut PagedMemory,
    pub fail_at: Option<usize>,
    pub accesses: usize,
    pub writes: Vec<(u64, usize)>,
}

impl<'m> Flaky<'m> {
    pub fn new(memory: &'m mut PagedMemory, fail_at: Option<usize>) -> Self {
        Self { memory, fail_at, accesses: 0, writes: Vec::new() }
    }

    fn access(&mut self, address: LinearAddr, write: bool) -> Result<(), PageFault> {
        let this = self.accesses;
        self.accesses += 1;
        if Some(this) == self.fail_at {
            return Err(PageFault { address, write, present: false });
        }
        Ok(())
    }
}

impl LinearMemory for Flaky<'_> {
    fn read(&mut self, address: LinearAddr, bytes: &mut [u8]) -> Result<(), PageFault> {
        self.access(address, false)?;
        self.memory.read(address, bytes)
    }

    fn check_write(&mut self, address: LinearAddr, length: usize) -> Result<(), PageFault> {
        self.access(address, true)?;
        self.memory.check_write(address, length)
    }

    fn write(&mut self, address: LinearAddr, bytes: &[u8]) -> Result<(), PageFault> {
        self.writes.push((address.0, bytes.len()));
        self.memory.write(address, bytes)
    }
}

/// Memory that notes every address it was asked to read.
pub struct Watched<'m> {
    pub memory: &'m mut PagedMemory,
    pub read: BTreeSet<u64>,
}

impl LinearMemory for Watched<'_> {
    fn read(&mut self, address: LinearAddr, bytes: &mut [u8]) -> Result<(), PageFault> {
        self.read.insert(address.0);
        self.memory.read(address, bytes)
    }

    fn check_write(&mut self, address: LinearAddr, length: usize) -> Result<(), PageFault> {
        self.memory.check_write(address, length)
    }

    fn write(&mut self, address: LinearAddr, bytes: &[u8]) -> Result<(), PageFault> {
        self.memory.write(address, bytes)
    }
}
