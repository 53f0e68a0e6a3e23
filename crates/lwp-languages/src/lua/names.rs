//! Names that functions are called by.
//!
//! The instruction that calls a function says which register has it, and an instruction before that
//! one how it came there: from a global variable, a field, a method, a local variable or one of an
//! outer function.

use crate::Memory;
use crate::lua::{COLLECTABLE, LONG_STRING, SHORT_STRING, at, string};

/// Offsets in `Proto` that only names need: how many upvalues, constants and local variables, and
/// those.
const UPVALUES: u64 = 16;
const CONSTANTS: u64 = 20;
const LOCALS: u64 = 36;
const CONSTANT_LIST: u64 = 56;
const UPVALUE_LIST: u64 = 80;
const LOCAL_LIST: u64 = 104;
/// Bytes of a constant, of an upvalue's description and of a local variable's.
const SIZE: u64 = 16;

/// Operations of Lua 5.4.
const MOVE: u32 = 0;
const GET_UPVALUE: u32 = 9;
const GET_GLOBAL: u32 = 11;
const GET_FIELD: u32 = 14;
const SELF: u32 = 20;
const CALL: u32 = 68;
const TAIL_CALL: u32 = 69;

/// Instructions before a call that are looked at, and local variables.
const BEFORE: u64 = 64;
const VARIABLES: u64 = 256;

/// The name that the instruction with index `pc` of `prototype` calls a function by.
pub fn called(prototype: u64, pc: u64, memory: &mut dyn Memory) -> Option<String> {
    let code = memory.pointer(prototype.checked_add(at::CODE)?)?;
    let call = instruction(code, pc, memory)?;
    if !matches!(call & 0x7f, CALL | TAIL_CALL) {
        return None;
    }
    let register = a(call);
    for index in (pc.saturating_sub(BEFORE)..pc).rev() {
        let it = instruction(code, index, memory)?;
        if a(it) != register {
            continue;
        }
        let (b, c) = (u64::from(it >> 16 & 0xff), u64::from(it >> 24));
        return match it & 0x7f {
            MOVE => local(prototype, b, index, memory),
            GET_UPVALUE => {
                let list = listed(prototype, UPVALUES, UPVALUE_LIST, b, memory)?;
                string(memory.pointer(list)?, memory)
            }
            GET_GLOBAL | GET_FIELD | SELF => {
                let value = listed(prototype, CONSTANTS, CONSTANT_LIST, c, memory)?;
                let kind = memory.byte(value.checked_add(at::KIND)?)? & !COLLECTABLE;
                let pointer = memory.pointer(value)?;
                matches!(kind, SHORT_STRING | LONG_STRING).then(|| string(pointer, memory))?
            }
            // Tests and stores name the register without changing it.
            _ => continue,
        };
    }
    None
}

fn a(instruction: u32) -> u32 {
    instruction >> 7 & 0xff
}

fn instruction(code: u64, index: u64, memory: &mut dyn Memory) -> Option<u32> {
    memory.half(code.checked_add(4 * index)?)
}

/// The address of an element of a list, which must have it.
fn listed(
    prototype: u64,
    count: u64,
    list: u64,
    index: u64,
    memory: &mut dyn Memory,
) -> Option<u64> {
    let count = memory.half(prototype.checked_add(count)?)?;
    let list = memory.pointer(prototype.checked_add(list)?)?;
    (index < u64::from(count)).then(|| list.checked_add(SIZE * index))?
}

/// The name of the local variable in a register: variables come in the order in which they begin to
/// live, and those that live at `pc` have the first registers.
fn local(prototype: u64, register: u64, pc: u64, memory: &mut dyn Memory) -> Option<String> {
    let mut left = register;
    for index in 0..VARIABLES {
        let variable = listed(prototype, LOCALS, LOCAL_LIST, index, memory)?;
        let start = memory.half(variable.checked_add(8)?)?;
        let end = memory.half(variable.checked_add(12)?)?;
        if u64::from(start) > pc {
            return None;
        }
        if pc < u64::from(end) {
            if left == 0 {
                return string(memory.pointer(variable)?, memory);
            }
            left -= 1;
        }
    }
    None
}
