//! Any of the four instructions, from its decoded form.

use lwp_arch::insn::{Gpr, Instruction, Memory, Mnemonic, Operands, Rm, Segment};
use lwp_arch::{AppPc, Fault, LinearAddr};

use crate::cpu::Mode;
use crate::insert::{Data1, Insert};
use crate::unit::LwpUnit;
use crate::{Cpu, LinearMemory, Signals};

/// The registers of the processor that LWP instructions read and write.
pub trait Registers {
    /// Content of a general register, all 64 bits.
    fn gpr(&self, register: Gpr) -> u64;

    /// Replaces a general register, all 64 bits.
    fn set_gpr(&mut self, register: Gpr, value: u64);

    /// Base of a segment.
    fn segment_base(&self, segment: Segment) -> u64;

    /// Replaces the carry flag.
    fn set_carry(&mut self, carry: bool);
}

impl LwpUnit {
    /// Executes `instruction`, which lies at `ip`. Retiring it is still to be reported with
    /// [`Self::retire`].
    ///
    /// LLWPCB of the proposal also writes the old address to rAX. Its encodings were never fixed,
    /// so those of the shipped instructions stand for them: DEV-25.
    ///
    /// # Errors
    ///
    /// As for the instruction: [`Self::llwpcb`], [`Self::slwpcb`], [`Self::lwpins`],
    /// [`Self::lwpval`]. No register has changed then. Segment limits of the memory operand are not
    /// checked.
    ///
    /// Spec: LWP §5.
    pub fn execute<R: Registers, M: LinearMemory, S: Signals>(
        &mut self,
        cpu: &Cpu,
        instruction: &Instruction,
        ip: AppPc,
        registers: &mut R,
        memory: &mut M,
        signals: &mut S,
    ) -> Result<(), Fault> {
        match (instruction.mnemonic, instruction.operands) {
            (Mnemonic::Llwpcb, Operands::Block(register)) => {
                let address = instruction.width.truncate(registers.gpr(register));
                if let Some(old) = self.llwpcb(cpu, address, memory, signals)? {
                    registers.set_gpr(Gpr::RAX, old);
                }
                Ok(())
            }
            (Mnemonic::Slwpcb, Operands::Block(register)) => {
                let address = self.slwpcb(cpu, instruction.width, memory, signals)?;
                registers.set_gpr(register, address);
                Ok(())
            }
            (mnemonic, Operands::Insert { data2, data1, flags }) => {
                let next_ip = ip.0.wrapping_add(u64::from(instruction.length));
                let insert = Insert {
                    ip,
                    flags: flags as u16,
                    data1: operand(cpu, &data1, next_ip, registers),
                    data2: instruction.width.truncate(registers.gpr(data2)),
                };
                if mnemonic == Mnemonic::Lwpval {
                    return self.lwpval(cpu, &insert, memory, signals);
                }
                let carry = self.lwpins(cpu, &insert, memory, signals)?;
                registers.set_carry(carry);
                Ok(())
            }
            // Only hand-made instructions combine so; no bytes decode to them.
            (Mnemonic::Lwpins | Mnemonic::Lwpval, Operands::Block(_)) => Err(Fault::Ud),
        }
    }
}

fn operand<R: Registers>(cpu: &Cpu, data1: &Rm, next_ip: u64, registers: &R) -> Data1 {
    match data1 {
        Rm::Register(register) => Data1::Register(registers.gpr(*register) as u32),
        Rm::Memory(memory) => Data1::Memory(linear(cpu, memory, next_ip, registers)),
    }
}

/// Linear address of a memory operand. 64-bit mode knows no segment bases but those of FS and GS.
fn linear<R: Registers>(cpu: &Cpu, memory: &Memory, next_ip: u64, registers: &R) -> LinearAddr {
    let effective = memory.effective_address(|register| registers.gpr(register), next_ip);
    let segment = memory.effective_segment();
    let long = cpu.mode == Mode::Long;
    let base = match segment {
        Segment::Fs | Segment::Gs => registers.segment_base(segment),
        _ if long => 0,
        _ => registers.segment_base(segment),
    };
    let sum = effective.wrapping_add(base);
    LinearAddr(if long { sum } else { sum & 0xFFFF_FFFF })
}
