//! Restores flags that a guard has overwritten.
//!
//! A guard compares the target of a return or an indirect branch with the expected one, and `cmp`
//! writes the flags. If the instruction that wrote the program's flags last still has its operands,
//! there are three ways to restore the flags: execute that instruction again, test its result, or
//! undo an addition or subtraction and repeat it. Translated code does this if the guard fails, and
//! the host does it if a thread is stopped in between.

use iced_x86::{
    Code, Decoder, DecoderOptions, Encoder, IcedError, Instruction, InstructionInfoFactory,
    MemoryOperand, Mnemonic, OpAccess, OpKind, Register,
};

use crate::addr::AppPc;
use crate::block::Block;
use crate::code_cache::CodeCache;
use crate::flags::ARITHMETIC;
use crate::fragment::FragmentId;
use crate::state_map::FlagWriter;

/// A way to have the flags of an instruction once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Again {
    /// The instruction itself: a comparison or test of registers and immediates.
    Same,
    /// A test of its result, in this register.
    Result(Register),
    /// This register before the addition or subtraction of this operand, and that again.
    Undone {
        /// The destination.
        register: Register,
        /// True for a subtraction.
        subtracts: bool,
        /// The operand that is added or subtracted.
        operand: Operand,
    },
}

/// The second operand of an addition or subtraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operand {
    /// A register.
    Register(Register),
    /// An immediate, its sign extended.
    Immediate(i32),
}

/// An instruction whose flags can be had once more.
#[derive(Clone, Debug)]
pub(crate) struct Recovery {
    /// It and its place.
    pub writer: FlagWriter,
    /// Code that has them once more, and changes r11 at most.
    pub code: Vec<u8>,
}

impl Recovery {
    /// Returns the way to the flags as they are before the last terminator of `blocks`, which are
    /// executed one after the other; `None` where they are lost. `kept` says of a register whether
    /// it will be at hand.
    pub fn of(blocks: &[&Block], kept: impl Fn(Register) -> bool) -> Option<Self> {
        let mut factory = InstructionInfoFactory::new();
        let mut since = Since::default();
        for (number, block) in blocks.iter().enumerate().rev() {
            let body = match number + 1 == blocks.len() {
                true => &block.bytes[..usize::from(block.terminator_offset)],
                false => &block.bytes[..],
            };
            let all: Vec<Instruction> =
                Decoder::with_ip(64, body, block.pc.0, DecoderOptions::NONE).iter().collect();
            for instruction in all.iter().rev() {
                if instruction.rflags_modified() as u8 & ARITHMETIC != 0 {
                    let again = again(instruction)?;
                    if !since.keeps(instruction, again, kept) {
                        return None;
                    }
                    let writer = FlagWriter { pc: AppPc(instruction.ip()), stack: since.stack };
                    let code = code(instruction, again, since.stack)?;
                    return Some(Self { writer, code });
                }
                since.note(&mut factory, instruction);
            }
        }
        None
    }
}

impl FlagWriter {
    /// Returns the code of the instruction, and what follows it, where fragment `id` overwrites its
    /// flags and it may have changed in the program's memory.
    pub fn kept_code(self, cache: &CodeCache, id: FragmentId) -> Option<&[u8]> {
        cache.flag_writers.get(&id).map(|code| &**code)
    }
}

/// The registers that a way needs.
fn needs(instruction: &Instruction, again: Again) -> impl Iterator<Item = Register> {
    let both = match again {
        Again::Same => [0, 1].map(|operand| match instruction.op_kind(operand) {
            OpKind::Register => instruction.op_register(operand),
            _ => Register::None,
        }),
        Again::Result(register)
        | Again::Undone { register, operand: Operand::Immediate(_), .. } => {
            [register, Register::None]
        }
        Again::Undone { register, operand: Operand::Register(other), .. } => [register, other],
    };
    both.into_iter().filter(|it| *it != Register::None).map(Register::full_register)
}

/// The registers written since the flags were.
#[derive(Default)]
struct Since {
    written: Vec<Register>,
    stack: i32,
}

impl Since {
    /// Takes in an instruction that leaves the flags alone.
    fn note(&mut self, factory: &mut InstructionInfoFactory, instruction: &Instruction) {
        let moved = instruction.stack_pointer_increment();
        let simple = matches!(
            instruction.mnemonic(),
            Mnemonic::Push | Mnemonic::Pop | Mnemonic::Call | Mnemonic::Ret
        );
        if simple && instruction.op0_register().full_register() != Register::RSP {
            self.stack = self.stack.saturating_add(moved);
        }
        for used in factory.info(instruction).used_registers() {
            let writes = !matches!(used.access(), OpAccess::Read | OpAccess::CondRead);
            let register = used.register().full_register();
            if writes && !(simple && register == Register::RSP) {
                self.written.push(register);
            }
        }
        if simple && instruction.op0_register().full_register() == Register::RSP {
            self.written.push(Register::RSP);
        }
    }

    /// Returns whether everything that a way needs is as it was.
    fn keeps(
        &self,
        instruction: &Instruction,
        again: Again,
        kept: impl Fn(Register) -> bool,
    ) -> bool {
        let moves = self.stack != 0;
        let undone = matches!(again, Again::Undone { operand: Operand::Immediate(_), .. });
        needs(instruction, again).all(|register| {
            let there = !self.written.contains(&register) && kept(register);
            there && (register != Register::RSP || !moves || undone)
        })
    }
}

/// The way to the flags of an instruction, if there is one and all of them are its own.
fn again(instruction: &Instruction) -> Option<Again> {
    use Mnemonic::{Add, And, Cmp, Or, Sub, Test, Xor};
    let register = instruction.op0_register();
    let two = instruction.op_count() == 2;
    if !two || instruction.op0_kind() != OpKind::Register || !register.is_gpr() {
        return None;
    }
    let second = match instruction.op1_kind() {
        OpKind::Register => Some(Operand::Register(instruction.op1_register())),
        OpKind::Memory => None,
        _ => i32::try_from(signed(instruction)?).ok().map(Operand::Immediate),
    };
    let high =
        |it: Register| matches!(it, Register::AH | Register::BH | Register::CH | Register::DH);
    Some(match instruction.mnemonic() {
        Cmp | Test => match second? {
            Operand::Register(other) if high(register) || high(other) => return None,
            Operand::Immediate(_) if high(register) => return None,
            _ => Again::Same,
        },
        And | Or | Xor if !high(register) => Again::Result(register),
        Add | Sub if register.is_gpr32() || register.is_gpr64() => {
            let operand = second?;
            if operand == Operand::Register(register) {
                return None;
            }
            Again::Undone { register, subtracts: instruction.mnemonic() == Sub, operand }
        }
        _ => return None,
    })
}

/// The immediate of an instruction with two operands, its sign extended to 64 bits.
fn signed(instruction: &Instruction) -> Option<i64> {
    Some(match instruction.op1_kind() {
        OpKind::Immediate8 => i64::from(instruction.immediate8() as i8),
        OpKind::Immediate16 => i64::from(instruction.immediate16() as i16),
        OpKind::Immediate32 => i64::from(instruction.immediate32() as i32),
        OpKind::Immediate8to16 => i64::from(instruction.immediate8to16()),
        OpKind::Immediate8to32 => i64::from(instruction.immediate8to32()),
        OpKind::Immediate8to64 => instruction.immediate8to64(),
        OpKind::Immediate32to64 => instruction.immediate32to64(),
        _ => return None,
    })
}

/// The arithmetic flags that the instruction in `code`, at `writer`, has left, given a register's
/// value now; `None` where `code` is not such an instruction.
pub fn flags_again(
    writer: FlagWriter,
    code: &[u8],
    value: impl Fn(Register) -> u64,
) -> Option<u64> {
    let instruction = Decoder::with_ip(64, code, writer.pc.0, DecoderOptions::NONE).decode();
    let then = |register: Register| match register.full_register() {
        Register::RSP => value(Register::RSP).wrapping_sub(i64::from(writer.stack) as u64),
        full => value(full),
    };
    let operand = |number: u32| match instruction.op_kind(number) {
        OpKind::Register => Some(then(instruction.op_register(number))),
        _ => Some(signed(&instruction)? as u64),
    };
    let bits = instruction.op0_register().size() as u32 * 8;
    Some(match again(&instruction)? {
        Again::Same => {
            let (a, b) = (operand(0)?, operand(1)?);
            match instruction.mnemonic() {
                Mnemonic::Test => of_result(a & b, bits),
                _ => of_subtraction(a, b, bits),
            }
        }
        Again::Result(register) => of_result(then(register), bits),
        Again::Undone { register, subtracts, operand } => {
            let by = match operand {
                Operand::Register(other) => then(other),
                Operand::Immediate(value) => i64::from(value) as u64,
            };
            match subtracts {
                true => of_subtraction(then(register).wrapping_add(by), by, bits),
                false => of_addition(then(register).wrapping_sub(by), by, bits),
            }
        }
    })
}

const CARRY: u64 = 1;
const PARITY: u64 = 1 << 2;
const ADJUST: u64 = 1 << 4;
const ZERO: u64 = 1 << 6;
const SIGN: u64 = 1 << 7;
const OVERFLOW: u64 = 1 << 11;

/// The bits of all of them in the flags register.
pub const FLAGS: u64 = CARRY | PARITY | ADJUST | ZERO | SIGN | OVERFLOW;

/// A value's lowest `bits`.
fn low(value: u64, bits: u32) -> u64 {
    value & (u64::MAX >> (64 - bits))
}

fn bit(set: bool, bit: u64) -> u64 {
    if set { bit } else { 0 }
}

/// The flags that depend on the result alone; the others are zero.
fn of_result(result: u64, bits: u32) -> u64 {
    let result = low(result, bits);
    bit((result as u8).count_ones().is_multiple_of(2), PARITY)
        | bit(result == 0, ZERO)
        | bit(result >> (bits - 1) & 1 != 0, SIGN)
}

fn of_addition(a: u64, b: u64, bits: u32) -> u64 {
    let (a, b) = (low(a, bits), low(b, bits));
    let sum = low(a.wrapping_add(b), bits);
    let overflows = (a ^ sum) & (b ^ sum);
    of_result(sum, bits)
        | bit(sum < a, CARRY)
        | bit((a ^ b ^ sum) & 0x10 != 0, ADJUST)
        | bit(overflows >> (bits - 1) & 1 != 0, OVERFLOW)
}

fn of_subtraction(a: u64, b: u64, bits: u32) -> u64 {
    let (a, b) = (low(a, bits), low(b, bits));
    let difference = low(a.wrapping_sub(b), bits);
    let overflows = (a ^ b) & (a ^ difference);
    of_result(difference, bits)
        | bit(a < b, CARRY)
        | bit((a ^ b ^ difference) & 0x10 != 0, ADJUST)
        | bit(overflows >> (bits - 1) & 1 != 0, OVERFLOW)
}

/// Code for a way, where the stack pointer is higher by `stack` than it was.
fn code(instruction: &Instruction, again: Again, stack: i32) -> Option<Vec<u8>> {
    let made = match again {
        Again::Same => vec![*instruction],
        Again::Result(register) => vec![test(register)?],
        Again::Undone { register, subtracts, operand } => {
            undo(register, subtracts, operand, stack).ok()?
        }
    };
    let mut encoder = Encoder::new(64);
    for instruction in &made {
        encoder.encode(instruction, 0).ok()?;
    }
    Some(encoder.take_buffer())
}

/// `lea r11, …; op r11, immediate`, or `mov r11, register; op back; op again`.
fn undo(
    register: Register,
    subtracts: bool,
    operand: Operand,
    stack: i32,
) -> Result<Vec<Instruction>, IcedError> {
    let wide = register.is_gpr64();
    let temp = if wide { Register::R11 } else { Register::R11D };
    let (add, subtract) = (forms(wide, false), forms(wide, true));
    let (again, back) = if subtracts { (subtract, add) } else { (add, subtract) };
    let full = register.full_register();
    match operand {
        Operand::Immediate(by) => {
            let moved = if full == Register::RSP { stack } else { 0 };
            let before = if subtracts { i64::from(by) } else { -i64::from(by) };
            let before = MemoryOperand::with_base_displ(full, before - i64::from(moved));
            let load = Instruction::with2(Code::Lea_r64_m, Register::R11, before)?;
            Ok(vec![load, Instruction::with2(again.1, temp, by)?])
        }
        Operand::Register(other) => Ok(vec![
            Instruction::with2(Code::Mov_r64_rm64, Register::R11, full)?,
            Instruction::with2(back.0, temp, other)?,
            Instruction::with2(again.0, temp, other)?,
        ]),
    }
}

/// `test register, register`
fn test(register: Register) -> Option<Instruction> {
    let code = match register.size() {
        1 => Code::Test_rm8_r8,
        2 => Code::Test_rm16_r16,
        4 => Code::Test_rm32_r32,
        _ => Code::Test_rm64_r64,
    };
    Instruction::with2(code, register, register).ok()
}

/// The forms with a register and with an immediate.
fn forms(wide: bool, subtracts: bool) -> (Code, Code) {
    match (wide, subtracts) {
        (true, false) => (Code::Add_r64_rm64, Code::Add_rm64_imm32),
        (true, true) => (Code::Sub_r64_rm64, Code::Sub_rm64_imm32),
        (false, false) => (Code::Add_r32_rm32, Code::Add_rm32_imm32),
        (false, true) => (Code::Sub_r32_rm32, Code::Sub_rm32_imm32),
    }
}
