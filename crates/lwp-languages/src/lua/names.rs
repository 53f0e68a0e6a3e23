//! Names that functions are called by.
//!
//! The instruction that calls a function says which register has it, and an instruction before that
//! one how it came there: from a global variable, a field, a method, a local variable or one of an
//! outer function.

use crate::Memory;
use crate::lua::layout::Layout;
use crate::lua::{COLLECTABLE, LONG_STRING, SHORT_STRING, at, string};

/// Offsets in `Proto` of how many upvalues, constants and local variables it has.
const UPVALUES: u64 = 16;
const CONSTANTS: u64 = 20;
const LOCALS: u64 = 36;
/// Bytes of a constant, of an upvalue's description and of a local variable's.
const SIZE: u64 = 16;

/// Instructions before a call that are looked at, and local variables.
const BEFORE: u64 = 64;
const VARIABLES: u64 = 256;

/// The name that the instruction with index `pc` of `prototype` calls a function by.
pub fn called(layout: &Layout, prototype: u64, pc: u64, memory: &mut dyn Memory) -> Option<String> {
    let code = memory.pointer(prototype.checked_add(layout.code)?)?;
    let call = instruction(code, pc, memory)?;
    let operations = &layout.operations;
    if ![operations.call, operations.tail_call].contains(&layout.operation(call)) {
        return None;
    }
    let register = layout.a(call);
    for index in (pc.saturating_sub(BEFORE)..pc).rev() {
        let it = instruction(code, index, memory)?;
        if layout.a(it) != register {
            continue;
        }
        let operation = layout.operation(it);
        if operation == operations.copy {
            return local(layout, prototype, (layout.b(it), index), memory);
        }
        if operation == operations.get_upvalue {
            let (list, index) = (layout.upvalues, layout.b(it));
            let upvalue = listed(prototype, (UPVALUES, list), index, memory)?;
            return string(memory.pointer(upvalue)?, memory);
        }
        let gets = [operations.get_global, operations.get_field, operations.get_method];
        if gets.contains(&operation) {
            let value = listed(prototype, (CONSTANTS, layout.constants), layout.c(it)?, memory)?;
            let kind = memory.byte(value.checked_add(at::KIND)?)? & !COLLECTABLE;
            let pointer = memory.pointer(value)?;
            return matches!(kind, SHORT_STRING | LONG_STRING).then(|| string(pointer, memory))?;
        }
        // Tests and stores name the register without changing it.
    }
    None
}

impl Layout {
    fn operation(&self, instruction: u32) -> u32 {
        instruction & ((1 << self.operation_bits) - 1)
    }

    fn a(&self, instruction: u32) -> u32 {
        instruction >> self.a & 0xff
    }

    fn b(&self, instruction: u32) -> u64 {
        u64::from(instruction >> self.b & ((1 << self.operand_bits) - 1))
    }

    /// The index of a constant.
    fn c(&self, instruction: u32) -> Option<u64> {
        let c = instruction >> self.c & ((1 << self.operand_bits) - 1);
        (c & self.constant == self.constant).then_some(u64::from(c & !self.constant))
    }
}

fn instruction(code: u64, index: u64, memory: &mut dyn Memory) -> Option<u32> {
    memory.half(code.checked_add(4 * index)?)
}

/// The address of an element of a list, which must have it.
fn listed(
    prototype: u64,
    (count, list): (u64, u64),
    index: u64,
    memory: &mut dyn Memory,
) -> Option<u64> {
    let count = memory.half(prototype.checked_add(count)?)?;
    let list = memory.pointer(prototype.checked_add(list)?)?;
    (index < u64::from(count)).then(|| list.checked_add(SIZE * index))?
}

/// The name of the local variable in a register: variables come in the order in which they begin to
/// live, and those that live at `pc` have the first registers.
fn local(
    layout: &Layout,
    prototype: u64,
    (register, pc): (u64, u64),
    memory: &mut dyn Memory,
) -> Option<String> {
    let mut left = register;
    for index in 0..VARIABLES {
        let variable = listed(prototype, (LOCALS, layout.locals), index, memory)?;
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
