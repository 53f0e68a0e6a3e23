//! AMD's instruction-based sampling: one op, watched from fetch to retirement.
//!
//! perf hands the registers out as raw data of samples of the PMU `ibs_op`: a word of capabilities,
//! then the registers in the order of their numbers.
//!
//! Spec: PPR, "Instruction Based Sampling", MSRC001_1033 to MSRC001_103B; perf-amd-ibs(1).

use lwp_arch::record::{BranchFlags, DataSource, Event as LwpEvent, Record as LwpRecord};
use lwp_arch::{AppPc, LinearAddr};

use super::build;
use crate::sample::Sample;

/// One sampled op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// IBS_OP_CTL.
    pub control: u64,
    /// IBS_OP_RIP: linear address of the instruction.
    pub rip: u64,
    /// IBS_OP_DATA.
    pub data: u64,
    /// IBS_OP_DATA2.
    pub data2: u64,
    /// IBS_OP_DATA3.
    pub data3: u64,
    /// IBS_DC_LINADDR.
    pub data_address: u64,
    /// IBS_DC_PHYSADDR.
    pub physical_address: u64,
    /// IBS_BR_TARGET, where the processor has it.
    pub branch_target: Option<u64>,
}

/// CPUID Fn8000_001B EAX, as perf passes it: BrnTrgt.
const CAP_BRANCH_TARGET: u32 = 1 << 5;

impl Op {
    /// Reads the raw data of a sample of `ibs_op`. `None` if it is too short to be one.
    pub fn parse(raw: &[u8]) -> Option<Self> {
        let (capabilities, rest) = raw.split_first_chunk()?;
        let capabilities = u32::from_le_bytes(*capabilities);
        let word = |word: &[u8]| u64::from_le_bytes(word.try_into().expect("eight bytes"));
        let mut registers = rest.chunks_exact(8).map(word);
        let mut op = Self {
            control: registers.next()?,
            rip: registers.next()?,
            data: registers.next()?,
            data2: registers.next()?,
            data3: registers.next()?,
            data_address: registers.next()?,
            physical_address: registers.next()?,
            branch_target: None,
        };
        if capabilities & CAP_BRANCH_TARGET != 0 {
            op.branch_target = Some(registers.next()?);
        }
        Some(op)
    }

    /// IbsRipInvalid is clear: `rip` is the op's instruction.
    pub fn rip_is_valid(&self) -> bool {
        self.data >> 38 & 1 == 0
    }

    /// A branch op retired.
    pub fn is_branch(&self) -> bool {
        self.data >> 37 & 1 == 1
    }

    /// The branch was taken.
    pub fn is_taken(&self) -> bool {
        self.data >> 35 & 1 == 1
    }

    /// The branch was predicted wrongly.
    pub fn is_mispredicted(&self) -> bool {
        self.data >> 36 & 1 == 1
    }

    /// The op loaded.
    pub fn is_load(&self) -> bool {
        self.data3 & 1 == 1
    }

    /// The load or store missed the data cache.
    pub fn missed_dcache(&self) -> bool {
        self.data3 >> 7 & 1 == 1
    }

    /// IBS_DC_LINADDR is valid.
    pub fn data_address_is_valid(&self) -> bool {
        self.data3 >> 17 & 1 == 1
    }

    /// The load missed the L2 as well.
    pub fn missed_l2(&self) -> bool {
        self.data3 >> 20 & 1 == 1
    }

    /// Cycles from the miss to the delivery, for loads that missed.
    pub fn miss_latency_cycles(&self) -> u32 {
        (self.data3 >> 32 & 0xffff) as u32
    }

    /// Returns the source of the data of a load that missed the L2.
    ///
    /// DataSrc is IBS_OP_DATA2 bits 7:6 and 2:0; RmtNode is bit 4. Codes of Family 19h: 1 local L3
    /// or another L1/L2 of the complex, 2 another complex nearby, 3 DRAM, 5 another complex far
    /// away, 6 memory of long latency, 7 MMIO, configuration, PCI, APIC, 8 extension memory.
    pub fn data_source(&self) -> DataSource {
        if !self.missed_l2() {
            return DataSource::NoStatus;
        }
        let code = (self.data2 & 7) | (self.data2 >> 6 & 3) << 3;
        let remote = self.data2 >> 4 & 1 == 1;
        match code {
            1 if remote => DataSource::Remote,
            1 => DataSource::LocalL3,
            2 | 5 => DataSource::Remote,
            3 | 6 | 8 => DataSource::Dram,
            7 => DataSource::Other,
            _ => DataSource::NoStatus,
        }
    }

    /// The op counts ops (`cnt_ctl`), not cycles.
    pub fn counts_ops(&self) -> bool {
        self.control >> 19 & 1 == 1
    }
}

/// The LWP record of `sample`, of the PMU `ibs_op`: a branch, a load that missed, or the retired
/// instruction (the clock, where the period was in cycles). `None` where the address is not valid,
/// or a taken branch's target is not known.
pub fn lwp_record(sample: &Sample) -> Option<LwpRecord> {
    let op = Op::parse(&sample.raw)?;
    if !op.rip_is_valid() {
        return None;
    }
    let event = if op.is_branch()
        && let Some(target) = op.branch_target
    {
        let flags = BranchFlags::new(op.is_taken(), Some(!op.is_mispredicted()));
        LwpEvent::BranchesRetired { flags, target: AppPc(target) }
    } else if op.is_load() && op.missed_dcache() {
        let address = op.data_address_is_valid().then_some(LinearAddr(op.data_address));
        LwpEvent::DcacheMisses {
            source: op.data_source(),
            latency_cycles: op.miss_latency_cycles(),
            data_address: address,
        }
    } else if op.counts_ops() {
        LwpEvent::InstructionsRetired
    } else {
        LwpEvent::CoreClocks
    };
    build(sample, event, op.rip)
}
