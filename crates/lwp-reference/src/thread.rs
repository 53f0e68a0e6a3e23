//! A thread: its unit, its models, and the instruction it is at.

use std::rc::Rc;

use lwp_arch::retired::{Access, Branch};
use lwp_arch::{AppPc, Fault, LinearAddr, Retired};
use lwp_model::{LwpUnit, Signals, Xorshift32};
use lwp_process::sys::SigInfo;
use lwp_process::{Regs, Stop};
use lwp_uarch::{Model, Operand};

use crate::decode::Decoded;
use crate::hardware::Hardware;
use crate::memory::TraceeMemory;
use crate::snapshot::Snapshot;

/// The unit's surroundings.
#[derive(Clone, Debug)]
pub struct Surroundings {
    random: Xorshift32,
    /// The performance time-stamp counter: one tick for each instruction that retired with LWP on.
    ticks: u64,
    /// The threshold was reached.
    pub interrupted: bool,
}

impl Signals for Surroundings {
    fn threshold_interrupt(&mut self, _vector: u8) {
        self.interrupted = true;
    }

    fn random(&mut self) -> u32 {
        self.random.next_u32()
    }

    fn timestamp(&mut self) -> u64 {
        self.ticks
    }
}

/// A retired instruction as the models saw it, kept until the unit has taken it.
#[derive(Clone, Debug)]
struct Seen {
    ip: u64,
    branch: Option<Branch>,
    accesses: Vec<Access>,
    core_cycles: u32,
    reference_cycles: u32,
}

/// An instruction that the processor is executing.
#[derive(Clone, Debug)]
pub struct InFlight {
    /// The decoded instruction.
    pub decoded: Decoded,
    /// The registers before it.
    pub before: Regs,
    /// For taking it back; only while LWP is on.
    pub snapshot: Option<Snapshot>,
}

/// A thread of the program.
#[derive(Debug)]
pub struct Thread {
    /// Its LWP unit.
    pub unit: LwpUnit,
    /// The rest of the processor as the unit sees it.
    pub surroundings: Surroundings,
    /// The instruction being executed.
    pub in_flight: Option<InFlight>,
    /// A fault on its way to the thread as SIGSEGV.
    pub fault: Option<SigInfo>,
    /// The signal of the threshold interrupt is on its way.
    pub interrupted: bool,
    /// Signals that arrived while the fault was on its way.
    pub held: Vec<Stop>,
    model: Model,
    hardware: Rc<Hardware>,
    /// Operands of the iterations of a REP string instruction so far, and its address.
    iterations: Option<(u64, Vec<Operand>)>,
    /// An instruction the models have seen and the unit has not: its record met a page fault.
    seen: Option<Seen>,
}

impl Thread {
    /// A thread with LWP off.
    pub fn new(hardware: &Rc<Hardware>) -> Self {
        let random = hardware.random();
        Self {
            unit: hardware.unit(),
            surroundings: Surroundings { random, ticks: 0, interrupted: false },
            in_flight: None,
            fault: None,
            interrupted: false,
            held: Vec::new(),
            model: hardware.cold(),
            hardware: Rc::clone(hardware),
            iterations: None,
            seen: None,
        }
    }

    /// Cold caches and clocks at zero: what the models are when a block is loaded.
    pub fn reset_models(&mut self) {
        self.model = self.hardware.cold();
        self.iterations = None;
        self.seen = None;
    }

    /// A step of a REP string instruction that leaves it where it is.
    pub fn iterated(&mut self, decoded: &Decoded) {
        let so_far = self.iterations.take().filter(|(ip, _)| *ip == decoded.ip);
        let mut operands = so_far.map_or_else(Vec::new, |(_, operands)| operands);
        operands.extend(&decoded.operands);
        self.iterations = Some((decoded.ip, operands));
    }

    /// Reports an instruction that retired to models and unit.
    ///
    /// # Errors
    ///
    /// A record met a page fault: the instruction is to be taken back. Reported again, it is the
    /// same to the models.
    pub fn retired(
        &mut self,
        decoded: &Decoded,
        next_ip: u64,
        memory: &mut TraceeMemory,
    ) -> Result<(), Fault> {
        if !self.unit.is_on() || decoded.crosses_privilege {
            return Ok(());
        }
        let seen = match self.seen.take().filter(|seen| seen.ip == decoded.ip) {
            Some(seen) => seen,
            None => self.see(decoded, next_ip),
        };
        let retired = Retired {
            ip: AppPc(decoded.ip),
            next_ip: AppPc(next_ip),
            branch: seen.branch,
            accesses: &seen.accesses,
            core_cycles: seen.core_cycles,
            reference_cycles: seen.reference_cycles,
            crosses_privilege: false,
        };
        let surroundings = &mut self.surroundings;
        match self.unit.retire(&decoded.cpu, &retired, memory, surroundings) {
            Ok(_) => {
                surroundings.ticks += 1;
                Ok(())
            }
            Err(fault) => {
                self.seen = Some(seen);
                Err(fault)
            }
        }
    }

    /// Returns whether an instruction at `ip` passes the filter of the profile.
    fn admits(&self, ip: u64) -> bool {
        let range = self.unit.watched().and_then(|watched| watched.ip);
        range.is_none_or(|range| (range.base <= ip && ip <= range.limit) != range.inverted)
    }

    fn see(&mut self, decoded: &Decoded, next_ip: u64) -> Seen {
        let so_far = self.iterations.take().filter(|(ip, _)| *ip == decoded.ip);
        let mut operands = so_far.map_or_else(Vec::new, |(_, operands)| operands);
        operands.extend(&decoded.operands);
        // Memory takes time where its misses are counted, and time passes with the instructions
        // that the profile looks at: DEV-36.
        if !self.unit.watched().is_some_and(|watched| watched.dcache) {
            operands.clear();
        }
        let step = decoded.step(&operands, next_ip);
        let retired = match self.admits(decoded.ip) {
            true => self.model.retire(&step),
            false => self.model.retire_in_no_time(&step),
        };
        Seen {
            ip: decoded.ip,
            branch: retired.branch,
            accesses: retired.accesses.to_vec(),
            core_cycles: retired.core_cycles,
            reference_cycles: retired.reference_cycles,
        }
    }
}

/// The part of an LWP instruction's memory operand that was read: it counts as a load.
pub fn operand_load(decoded: &mut Decoded, memory: &TraceeMemory) {
    decoded.operands.retain(|operand| memory.has_read(LinearAddr(operand.address.0), 4));
}
