//! Names that functions are called by.
//!
//! The instruction that calls a function says which register has it, and an instruction before that
//! one how it came there: from a global variable, a field, a method, a local variable or one of an
//! outer function.

use crate::Memory;
use crate::lua::layout::Layout;
use crate::lua::{COLLECTABLE, LONG_STRING, SHORT_STRING, at, string};

/// Bytes of a constant, and of a local variable's description.
const SIZE: u64 = 16;

/// Instructions before a call that are looked at, and local variables.
const BEFORE: u64 = 64;
const VARIABLES: u64 = 256;

/// The name that the instruction with index `pc` of `prototype` calls a function by.
pub fn called(layout: &Layout, prototype: u64, pc: u64, memory: &mut dyn Memory) -> Option<String> {
    let code = memory.pointer(prototype.checked_add(layout.code)?)?;
    let call = instruction(code, pc, memory)?;
    let operations = &layout.operations;
    if !layout.is_call(call) {
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
            let list = (layout.upvalue_count, layout.upvalues, layout.upvalue_size);
            let upvalue = listed(prototype, list, layout.b(it), memory)?;
            return string(layout, memory.pointer(upvalue)?, memory);
        }
        let gets = [operations.get_global, operations.get_field, operations.get_method];
        if gets.contains(&operation) {
            let list = (layout.constant_count, layout.constants, SIZE);
            let index = match layout.long_global && operation == operations.get_global {
                true => u64::from(it >> layout.c),
                false => layout.c(it)?,
            };
            let value = listed(prototype, list, index, memory)?;
            let kind = memory.byte(value.checked_add(at::KIND)?)? & !COLLECTABLE;
            let is = matches!(kind, SHORT_STRING | LONG_STRING);
            return string(layout, memory.pointer(value).filter(|_| is)?, memory);
        }
        // Tests and stores name the register without changing it.
    }
    None
}

impl Layout {
    /// Returns whether an instruction calls a function.
    pub fn is_call(&self, instruction: u32) -> bool {
        let operations = [self.operations.call, self.operations.tail_call];
        operations.contains(&self.operation(instruction))
    }

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

/// The instruction with an index.
pub fn instruction(code: u64, index: u64, memory: &mut dyn Memory) -> Option<u32> {
    memory.half(code.checked_add(4 * index)?)
}

/// The address of an element of a list, which must have it: where the prototype has how many there
/// are and the list, and the bytes of each.
fn listed(
    prototype: u64,
    (count, list, size): (u64, u64, u64),
    index: u64,
    memory: &mut dyn Memory,
) -> Option<u64> {
    let count = memory.half(prototype.checked_add(count)?)?;
    let list = memory.pointer(prototype.checked_add(list)?)?;
    (index < u64::from(count)).then(|| list.checked_add(size * index))?
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
        let list = (layout.local_count, layout.locals, SIZE);
        let variable = listed(prototype, list, index, memory)?;
        let start = memory.half(variable.checked_add(8)?)?;
        let end = memory.half(variable.checked_add(12)?)?;
        if u64::from(start) > pc {
            return None;
        }
        if pc < u64::from(end) {
            if left == 0 {
                return string(layout, memory.pointer(variable)?, memory);
            }
            left -= 1;
        }
    }
    None
}
