//! The calls of a state that have not returned.

use crate::Memory;
use crate::interpreter::DEEPEST;
use crate::lua::at;
use crate::lua::layout::{Calls, Layout};
use crate::lua::names;

/// The type of a state.
const THREAD: u8 = 8;

/// A call that has not returned.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The evaluator was called for it.
    pub fresh: bool,
    /// The prototype of a function in Lua, and the index of the instruction that it executes.
    pub lua: Option<(u64, u64)>,
}

/// Returns whether a state is at `address` that executes something.
pub fn is_state(layout: &Layout, address: u64, memory: &mut dyn Memory) -> bool {
    memory.byte(address.wrapping_add(at::TYPE)) == Some(THREAD)
        && memory.byte(address.wrapping_add(layout.status)) == Some(0)
        && memory.pointer(address.wrapping_add(layout.shared)).is_some()
        && of(layout, address, memory)
            .is_some_and(|calls| calls.iter().any(|call| call.lua.is_some()))
}

/// The calls of a state, innermost first; `None` unless they lead back to the state.
pub fn of(layout: &Layout, state: u64, memory: &mut dyn Memory) -> Option<Vec<Call>> {
    match layout.calls {
        Calls::Chain { .. } => chain(layout, state, memory),
        Calls::List { .. } => list(layout, state, memory),
    }
}

/// The index of the instruction that the evaluator executes, if it has the address of the next one
/// in one of these registers.
pub fn executed(
    layout: &Layout,
    prototype: u64,
    registers: [Option<u64>; 6],
    memory: &mut dyn Memory,
) -> Option<u64> {
    let mut index = |next| index(layout, prototype, next, memory);
    registers.into_iter().flatten().filter(|next| next & 3 == 0).find_map(&mut index)
}

fn chain(layout: &Layout, state: u64, memory: &mut dyn Memory) -> Option<Vec<Call>> {
    let Calls::Chain { flags: flags_at, kind, kind_of_lua, fresh } = layout.calls else {
        return None;
    };
    let first = state.checked_add(at::FIRST_CALL)?;
    let mut at = memory.pointer(state.checked_add(at::CALL)?)?;
    let mut calls: Vec<Call> = Vec::new();
    while at != first {
        if calls.len() == 2 * DEEPEST {
            return Some(calls);
        }
        if at & 7 != 0 {
            return None;
        }
        let flags = memory.short(at.checked_add(flags_at)?)?;
        let in_lua = flags & kind == kind_of_lua;
        let mut lua = || {
            let next = memory.word(at.checked_add(layout.instruction)?)?;
            lua_call(layout, at, next, memory)
        };
        calls.push(Call { fresh: flags & fresh != 0, lua: if in_lua { lua() } else { None } });
        let caller = memory.pointer(at.checked_add(at::CALLER)?)?;
        // A chain that meets itself is none.
        if caller == at {
            return None;
        }
        at = caller;
    }
    (memory.word(first.checked_add(at::CALLER)?)? == 0).then_some(calls)
}

/// The calls that lie one behind another. The outermost is no function's, and has the beginning of
/// the state's stack.
fn list(layout: &Layout, state: u64, memory: &mut dyn Memory) -> Option<Vec<Call>> {
    let Calls::List { innermost, instruction, stack, outermost, size } = layout.calls else {
        return None;
    };
    let mut field = |offset: u64| memory.pointer(state.checked_add(offset)?);
    let (mut at, first, stack) = (field(innermost)?, field(outermost)?, field(stack)?);
    let mut next = field(instruction).unwrap_or(0);
    let distance = at.checked_sub(first)?;
    if !distance.is_multiple_of(size) || first & 7 != 0 {
        return None;
    }
    if memory.word(first.checked_add(layout.function)?)? != stack {
        return None;
    }
    let mut calls: Vec<Call> = Vec::new();
    while at != first && calls.len() < 2 * DEEPEST {
        calls.push(Call { fresh: true, lua: lua_call(layout, at, next, memory) });
        at -= size;
        // The innermost call's is the state's own.
        next = memory.word(at.checked_add(layout.instruction)?)?;
    }
    // The evaluator executes calls itself, and has others made by C.
    for index in 1..calls.len() {
        let Some((prototype, pc)) = calls[index].lua else { continue };
        let code = memory.pointer(prototype.checked_add(layout.code)?)?;
        let instruction = names::instruction(code, pc, memory)?;
        calls[index - 1].fresh = !layout.is_call(instruction);
    }
    Some(calls)
}

/// The prototype of the function in Lua that is called, and the index of the instruction before the
/// one at `next`.
fn lua_call(layout: &Layout, call: u64, next: u64, memory: &mut dyn Memory) -> Option<(u64, u64)> {
    let value = memory.pointer(call.checked_add(layout.function)?)?;
    if memory.byte(value.checked_add(at::KIND)?)? != layout.lua_function {
        return None;
    }
    let closure = memory.pointer(value)?;
    if let Some(in_c) = layout.in_c
        && memory.byte(closure.checked_add(in_c)?)? != 0
    {
        return None;
    }
    let prototype = memory.pointer(closure.checked_add(layout.closure)?)?;
    index(layout, prototype, next, memory).map(|index| (prototype, index))
}

/// The index of the instruction before the one at `next`.
fn index(layout: &Layout, prototype: u64, next: u64, memory: &mut dyn Memory) -> Option<u64> {
    let code = memory.pointer(prototype.checked_add(layout.code)?)?;
    let index = (next.checked_sub(code)? / 4).saturating_sub(1);
    let count = memory.half(prototype.checked_add(layout.code_count)?)?;
    (index < u64::from(count)).then_some(index)
}
