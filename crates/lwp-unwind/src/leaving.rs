//! The way out of a function that no table describes: its own instructions, up to its return.
//!
//! Trampolines and stubs that are made at run time keep no frame pointer, and soon return. From
//! where such a frame stands, its instructions are followed without branches to `ret`, and what
//! they do to the stack pointer is what a table's row would say. Calls on the way are taken to
//! leave the stack as they found it.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic,
    OpAccess, OpKind, Register,
};

use crate::row::{RIP, RSP};
use crate::walk::{Memory, Registers};

/// Most instructions that are followed: stubs have fewer, and in longer code a frame pointer is
/// likelier.
const MOST: usize = 12;
/// Bytes of code that are looked at: at most as many as so many instructions have.
const WINDOW: usize = MOST * 8;

/// DWARF's numbers of the general registers, by the processor's.
const DWARF: [u16; 16] = [0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];

/// The caller's registers, where the function returns within a few instructions of `registers`'
/// own.
pub fn by_instructions(registers: &Registers, memory: &mut dyn Memory) -> Option<Registers> {
    let pc = registers.get(RIP)?;
    let code = window(pc, memory);
    let mut decoder = Decoder::with_ip(64, &code, pc, DecoderOptions::NONE);
    let mut state = State { registers: *registers, pushed: Vec::new() };
    let mut factory = InstructionInfoFactory::new();
    for _ in 0..MOST {
        if !decoder.can_decode() {
            return None;
        }
        let instruction = decoder.decode();
        match instruction.flow_control() {
            FlowControl::Return => return state.returned(&instruction, memory),
            FlowControl::Call | FlowControl::IndirectCall => state.called(),
            FlowControl::Next => state.step(&instruction, &mut factory, memory)?,
            _ => return None,
        }
    }
    None
}

/// The code at `pc`, as much as can be read.
fn window(pc: u64, memory: &mut dyn Memory) -> Vec<u8> {
    let words = (0..WINDOW as u64).step_by(8).map_while(|at| memory.word(pc.checked_add(at)?));
    words.flat_map(u64::to_le_bytes).collect()
}

/// The effect of the instructions so far.
struct State {
    registers: Registers,
    /// Words that they have pushed: where, and what, if that is known.
    pushed: Vec<(u64, Option<u64>)>,
}

impl State {
    fn step(
        &mut self,
        instruction: &Instruction,
        factory: &mut InstructionInfoFactory,
        memory: &mut dyn Memory,
    ) -> Option<()> {
        let sp = self.registers.get(RSP)?;
        match (instruction.mnemonic(), instruction.op0_register()) {
            (Mnemonic::Push, _) if instruction.op_count() == 1 => {
                let value = dwarf(instruction.op0_register()).and_then(|it| self.registers.get(it));
                let to = sp.wrapping_sub(8);
                self.pushed.push((to, value));
                self.registers.set(RSP, to);
            }
            (Mnemonic::Pop, register) => {
                let value = self.load(sp, memory);
                self.assign(dwarf(register).filter(|it| *it != RSP)?, value);
                self.registers.set(RSP, sp.wrapping_add(8));
            }
            (Mnemonic::Leave, _) => {
                let base = self.registers.get(crate::row::RBP)?;
                let value = self.load(base, memory);
                self.assign(crate::row::RBP, value);
                self.registers.set(RSP, base.wrapping_add(8));
            }
            (Mnemonic::Add | Mnemonic::Sub, Register::RSP) => {
                let by = immediate(instruction)?;
                let by =
                    if instruction.mnemonic() == Mnemonic::Sub { by.wrapping_neg() } else { by };
                self.registers.set(RSP, sp.wrapping_add(by));
            }
            (Mnemonic::Lea, Register::RSP) => {
                let base = self.registers.get(dwarf(instruction.memory_base())?)?;
                let plain = instruction.memory_index() == Register::None;
                let to = base.wrapping_add(instruction.memory_displacement64());
                self.registers.set(RSP, plain.then_some(to)?);
            }
            (Mnemonic::Mov, to) if instruction.op1_kind() == OpKind::Register => {
                let from = dwarf(instruction.op1_register()).and_then(|it| self.registers.get(it));
                if let Some(to) = dwarf(to) {
                    self.assign(to, from);
                    self.registers.get(RSP)?;
                }
            }
            _ => self.others(instruction, factory)?,
        }
        Some(())
    }

    /// Forgets what an instruction writes; `None` where that is the stack pointer.
    fn others(
        &mut self,
        instruction: &Instruction,
        factory: &mut InstructionInfoFactory,
    ) -> Option<()> {
        if instruction.code() == Code::INVALID {
            return None;
        }
        for used in factory.info(instruction).used_registers() {
            let read = matches!(used.access(), OpAccess::Read | OpAccess::CondRead);
            let Some(written) = dwarf(used.register().full_register()).filter(|_| !read) else {
                continue;
            };
            if written == RSP {
                return None;
            }
            self.registers.forget(written);
        }
        Some(())
    }

    /// A function was called, and has returned.
    fn called(&mut self) {
        self.registers.keep_preserved();
    }

    fn returned(mut self, instruction: &Instruction, memory: &mut dyn Memory) -> Option<Registers> {
        let sp = self.registers.get(RSP)?;
        let extra = match instruction.op_count() {
            0 => 0,
            _ => u64::from(instruction.immediate16()),
        };
        let to = self.load(sp, memory)?;
        self.registers.keep_preserved();
        self.registers.set(RIP, to);
        self.registers.set(RSP, sp.wrapping_add(8).wrapping_add(extra));
        Some(self.registers)
    }

    fn load(&self, address: u64, memory: &mut dyn Memory) -> Option<u64> {
        let pushed = self.pushed.iter().rev().find(|(at, _)| *at == address);
        pushed.map_or_else(|| memory.word(address), |(_, value)| *value)
    }

    fn assign(&mut self, register: u16, value: Option<u64>) {
        match value {
            Some(value) => self.registers.set(register, value),
            None => self.registers.forget(register),
        }
    }
}

/// DWARF's number of a register of 64 bits.
fn dwarf(register: Register) -> Option<u16> {
    register.is_gpr64().then(|| DWARF[register.number() & 15])
}

/// The number that an instruction adds or takes away.
fn immediate(instruction: &Instruction) -> Option<u64> {
    match instruction.op1_kind() {
        OpKind::Immediate8to64 | OpKind::Immediate32to64 => Some(instruction.immediate(1)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Code at 0x1000, and a stack at 0x8000.
    struct Process(Vec<u8>, Vec<u64>);

    impl Memory for Process {
        fn word(&mut self, address: u64) -> Option<u64> {
            if let Some(at) = address.checked_sub(0x8000) {
                return self.1.get((at / 8) as usize).copied();
            }
            let at = usize::try_from(address.checked_sub(0x1000)?).ok()?;
            let mut word = [0xcc; 8];
            let rest = self.0.get(at..).filter(|rest| !rest.is_empty())?;
            let len = rest.len().min(8);
            word[..len].copy_from_slice(&rest[..len]);
            Some(u64::from_le_bytes(word))
        }
    }

    /// The caller's rip, rsp and rbp of a function that stands `at` bytes behind its start.
    fn left(code: &[u8], at: u64, sp: u64, stack: &[u64]) -> Option<[Option<u64>; 3]> {
        let mut registers = Registers::default();
        for (register, value) in [(RIP, 0x1000 + at), (RSP, sp), (crate::row::RBP, 0x77)] {
            registers.set(register, value);
        }
        let mut process = Process(code.to_vec(), stack.to_vec());
        let caller = by_instructions(&registers, &mut process)?;
        Some([RIP, RSP, crate::row::RBP].map(|register| caller.get(register)))
    }

    /// sub rsp, 8; call rcx; add rsp, 8; ret: what CPython 3.12 calls its functions through.
    const WITHOUT_FRAME: [u8; 11] = [0x48, 0x83, 0xec, 8, 0xff, 0xd1, 0x48, 0x83, 0xc4, 8, 0xc3];
    /// push rbp; mov rbp, rsp; call rcx; pop rbp; ret: the same of 3.13.
    const WITH_FRAME: [u8; 8] = [0x55, 0x48, 0x89, 0xe5, 0xff, 0xd1, 0x5d, 0xc3];

    #[test]
    fn a_stub_is_left_from_wherever_it_stands() {
        let caller = Some([Some(0x4321), Some(0x8010), Some(0x77)]);
        assert_eq!(left(&WITHOUT_FRAME, 0, 0x8008, &[9, 0x4321]), caller);
        assert_eq!(left(&WITHOUT_FRAME, 4, 0x8000, &[9, 0x4321]), caller);
        assert_eq!(left(&WITHOUT_FRAME, 6, 0x8000, &[9, 0x4321]), caller);
        assert_eq!(left(&WITHOUT_FRAME, 10, 0x8008, &[9, 0x4321]), caller);
        assert_eq!(left(&WITH_FRAME, 0, 0x8008, &[9, 0x4321]), caller);
        let popped = Some([Some(0x4321), Some(0x8010), Some(0x99)]);
        assert_eq!(left(&WITH_FRAME, 6, 0x8000, &[0x99, 0x4321]), popped);
    }

    #[test]
    fn what_does_not_return_soon_is_left_to_others() {
        // jne, an endless row of nops, and two bytes that are no instruction.
        assert_eq!(left(&[0x75, 0, 0xc3], 0, 0x8000, &[1]), None);
        assert_eq!(left(&[0x90; 200], 0, 0x8000, &[1]), None);
        assert_eq!(left(&[0x06, 0xc3], 0, 0x8000, &[1]), None);
        // and rsp, -16 loses the stack pointer; so does a stack that cannot be read.
        assert_eq!(left(&[0x48, 0x83, 0xe4, 0xf0, 0xc3], 0, 0x8000, &[1]), None);
        assert_eq!(left(&WITHOUT_FRAME, 6, 0x9000, &[1]), None);
    }

    #[test]
    fn no_code_makes_it_panic() {
        let mut seed = 1u64;
        for _ in 0..20_000 {
            let mut byte = || {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (seed >> 56) as u8
            };
            let code: Vec<u8> = (0..40).map(|_| byte()).collect();
            left(&code, 0, 0x8000, &[u64::MAX, 1]);
        }
    }
}
