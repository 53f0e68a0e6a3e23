//! Names that LuaJIT's functions are called by, as in its own tracebacks.
//!
//! The instruction that calls a function says which slot has it: a local variable's, or one that an
//! instruction before has filled from a global variable, a field, or a variable of an outer
//! function.

use crate::Memory;
use crate::luajit::state::at;
use crate::luajit::string;

/// Numbers of instructions.
mod operation {
    pub const MOVE: u8 = 18;
    pub const GET_UPVALUE: u8 = 45;
    pub const GET_GLOBAL: u8 = 54;
    pub const GET_FIELD: u8 = 57;
    /// Calls, those in place of a return, and those of a loop's function.
    pub const CALLS: std::ops::RangeInclusive<u8> = 65..=68;
    pub const LOOP_CALLS: std::ops::RangeInclusive<u8> = 69..=70;
}

/// Instructions before a call that are looked at, and variables.
const BEFORE: u64 = 64;
const VARIABLES: usize = 256;
/// Names of variables that the compiler has made, as `(for index)`, are numbers below this one.
const MADE: u8 = 7;

/// The name that the instruction with this index of `prototype` calls a function by.
pub fn called(prototype: u64, instruction: u64, memory: &mut dyn Memory) -> Option<String> {
    let call = word(prototype, instruction, memory)?;
    let mut slot = match call as u8 {
        it if operation::CALLS.contains(&it) => a(call),
        it if operation::LOOP_CALLS.contains(&it) => a(call).checked_sub(3)?,
        _ => return None,
    };
    if let Some(name) = variable(prototype, (slot, instruction), memory) {
        return Some(name);
    }
    for index in (instruction.saturating_sub(BEFORE).max(1)..instruction).rev() {
        let it = word(prototype, index, memory)?;
        if a(it) != slot {
            continue;
        }
        let (b, c) = (it >> 16, u64::from(it >> 16 & 0xff));
        match it as u8 {
            operation::MOVE => {
                slot = b as u8;
                if let Some(name) = variable(prototype, (slot, index), memory) {
                    return Some(name);
                }
            }
            operation::GET_UPVALUE => return upvalue(prototype, b, memory),
            operation::GET_GLOBAL => return constant(prototype, u64::from(b), memory),
            operation::GET_FIELD => return constant(prototype, c, memory),
            // Tests and stores name the slot without changing it.
            _ => {}
        }
    }
    None
}

/// An instruction: operation, A, then D, or C and B.
fn word(prototype: u64, index: u64, memory: &mut dyn Memory) -> Option<u32> {
    memory.half(prototype.checked_add(at::INSTRUCTIONS)?.checked_add(4 * index)?)
}

fn a(instruction: u32) -> u8 {
    (instruction >> 8) as u8
}

/// A constant that is a string: they lie before the middle, the first one last.
fn constant(prototype: u64, index: u64, memory: &mut dyn Memory) -> Option<String> {
    let count = u64::from(memory.half(prototype.checked_add(at::CONSTANT_COUNT)?)?);
    let middle = memory.pointer(prototype.checked_add(at::CONSTANTS)?)?;
    let place = middle.checked_sub(8 * (index + 1)).filter(|_| index < count)?;
    string(memory.pointer(place)?, memory)
}

/// The name of a variable of an outer function: their names lie one behind another.
fn upvalue(prototype: u64, index: u32, memory: &mut dyn Memory) -> Option<String> {
    let mut at = memory.pointer(prototype.checked_add(at::UPVALUE_NAMES)?)?;
    for _ in 0..(index as usize).min(VARIABLES) {
        name(&mut at, memory)?;
    }
    name(&mut at, memory)
}

/// The name of the local variable in a slot: variables come in the order in which they begin to
/// live, each with its name, the distance of its beginning from that of the one before, and of its
/// end from there.
fn variable(prototype: u64, (slot, pc): (u8, u64), memory: &mut dyn Memory) -> Option<String> {
    let mut at = memory.pointer(prototype.checked_add(at::VARIABLES)?)?;
    // The table lies within what belongs to the prototype.
    let size = u64::from(memory.half(prototype.checked_add(at::SIZE)?)?);
    let end = prototype.checked_add(size)?;
    let (mut left, mut start) = (slot, 0u64);
    for _ in 0..VARIABLES {
        let kind = memory.byte(at).filter(|kind| *kind != 0 && at < end)?;
        let name = match kind {
            ..MADE => {
                at = at.checked_add(1)?;
                String::new()
            }
            _ => name(&mut at, memory)?,
        };
        start = start.checked_add(number(&mut at, memory)?)?;
        let stop = start.checked_add(number(&mut at, memory)?)?;
        if start > pc {
            return None;
        }
        if pc < stop {
            if left == 0 {
                return (!name.is_empty()).then_some(name);
            }
            left -= 1;
        }
    }
    None
}

/// A name, which ends with a zero.
fn name(at: &mut u64, memory: &mut dyn Memory) -> Option<String> {
    const LONGEST: usize = 256;
    let mut bytes = Vec::new();
    while bytes.len() < LONGEST {
        let byte = memory.byte(*at)?;
        *at = at.checked_add(1)?;
        if byte == 0 {
            return Some(String::from_utf8_lossy(&bytes).into_owned());
        }
        bytes.push(byte);
    }
    None
}

/// A number in pieces of seven bits, the lowest first.
fn number(at: &mut u64, memory: &mut dyn Memory) -> Option<u64> {
    let mut value = 0;
    for shift in (0..32).step_by(7) {
        let byte = memory.byte(*at)?;
        *at = at.checked_add(1)?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}
