//! LLWPCB, SLWPCB, LWPINS and LWPVAL, carried out by the unit.

use lwp_arch::insn::{Gpr, Instruction, Mnemonic, Segment};
use lwp_arch::{AppPc, Fault, LinearAddr};
use lwp_model::{LinearMemory, Registers};
use lwp_process::Regs;
use lwp_process::regs::{Raw, general};

use crate::decode::{Decoded, gpr_value};
use crate::memory::TraceeMemory;
use crate::thread::{Thread, operand_load};

const CARRY: u64 = 1;

/// Registers of a stopped thread.
struct ThreadRegisters<'a>(&'a mut Raw);

impl Registers for ThreadRegisters<'_> {
    fn gpr(&self, register: Gpr) -> u64 {
        gpr_value(register, self.0)
    }

    fn set_gpr(&mut self, register: Gpr, value: u64) {
        *general(self.0, register.number()) = value;
    }

    fn segment_base(&self, segment: Segment) -> u64 {
        match segment {
            Segment::Fs => self.0.fs_base,
            Segment::Gs => self.0.gs_base,
            _ => 0,
        }
    }

    fn set_carry(&mut self, carry: bool) {
        self.0.eflags = self.0.eflags & !CARRY | u64::from(carry);
    }
}

/// Carries out `instruction` and lets it retire; returns the registers afterwards.
///
/// # Errors
///
/// The instruction's own fault, or that of a record made when it retired. Nothing has changed then:
/// the profile is as before, except that LLWPCB may have left it off (DEV-24).
///
/// Spec: LWP §5.
pub fn execute(
    thread: &mut Thread,
    instruction: &Instruction,
    decoded: &Decoded,
    regs: &Regs,
    memory: &mut TraceeMemory,
) -> Result<Regs, Fault> {
    let mut after = *regs;
    let (unit, surroundings) = (thread.unit.clone(), thread.surroundings.clone());
    let mut written = Undo::new(memory);
    thread.unit.execute(
        &decoded.cpu,
        instruction,
        AppPc(decoded.ip),
        &mut ThreadRegisters(&mut after.0),
        &mut written,
        &mut thread.surroundings,
    )?;
    let undo = written.bytes;
    after.0.rip = decoded.fall_through;
    if instruction.mnemonic == Mnemonic::Llwpcb && thread.unit.is_on() {
        thread.reset_models();
    }
    let mut decoded = decoded.clone();
    operand_load(&mut decoded, memory);
    match thread.retired(&decoded, decoded.fall_through, memory) {
        Ok(()) => Ok(after),
        Err(fault) => {
            for (address, bytes) in undo.iter().rev() {
                memory.write(*address, bytes)?;
            }
            (thread.unit, thread.surroundings) = (unit, surroundings);
            Err(fault)
        }
    }
}

/// Memory that remembers what it held before each write.
struct Undo<'a> {
    memory: &'a mut TraceeMemory,
    bytes: Vec<(LinearAddr, Vec<u8>)>,
}

impl<'a> Undo<'a> {
    fn new(memory: &'a mut TraceeMemory) -> Self {
        Self { memory, bytes: Vec::new() }
    }
}

impl LinearMemory for Undo<'_> {
    fn read(&mut self, address: LinearAddr, bytes: &mut [u8]) -> Result<(), lwp_arch::PageFault> {
        self.memory.read(address, bytes)
    }

    fn check_write(
        &mut self,
        address: LinearAddr,
        length: usize,
    ) -> Result<(), lwp_arch::PageFault> {
        self.memory.check_write(address, length)
    }

    fn write(&mut self, address: LinearAddr, bytes: &[u8]) -> Result<(), lwp_arch::PageFault> {
        let mut before = vec![0; bytes.len()];
        self.memory.read(address, &mut before)?;
        self.memory.write(address, bytes)?;
        self.bytes.push((address, before));
        Ok(())
    }
}
