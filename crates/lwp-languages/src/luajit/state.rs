//! LuaJIT's state: its native frame, and Lua's innermost frame.

use crate::Memory;

/// Offsets in bytes, from the sources.
pub mod at {
    /// The header of every object: its type.
    pub const TYPE: u64 = 9;
    /// `lua_State`: what all states share, Lua's innermost frame, the bounds of Lua's stack, the
    /// innermost native frame.
    pub const SHARED: u64 = 16;
    pub const BASE: u64 = 32;
    pub const STACK_END: u64 = 48;
    pub const STACK: u64 = 56;
    pub const CFRAME: u64 = 80;
    /// The evaluator's native frame: its state, the instruction that was last saved, the native
    /// frame further out, saved registers, the return address, its end.
    pub const STATE: u64 = 16;
    pub const INSTRUCTION: u64 = 24;
    pub const CALLER: u64 = 32;
    pub const R14: u64 = 40;
    pub const R15: u64 = 48;
    pub const RBX: u64 = 56;
    pub const RBP: u64 = 64;
    pub const RETURN: u64 = 72;
    pub const END: u64 = 80;
    /// `GCfunc`: what kind, and its bytecode.
    pub const KIND: u64 = 10;
    pub const CODE: u64 = 32;
    /// `GCproto`: how many instructions, the middle of its constants, names of upvalues, how many
    /// constants and upvalues, source, first line, how many, the lines, upvalues' and variables'
    /// names, and the instructions behind it.
    pub const COUNT: u64 = 12;
    pub const CONSTANTS: u64 = 32;
    pub const CONSTANT_COUNT: u64 = 48;
    pub const SIZE: u64 = 56;
    pub const SOURCE: u64 = 64;
    pub const LINE: u64 = 72;
    pub const LINE_COUNT: u64 = 76;
    pub const LINES: u64 = 80;
    pub const UPVALUE_NAMES: u64 = 88;
    pub const VARIABLES: u64 = 96;
    pub const INSTRUCTIONS: u64 = 104;
    /// `GCstr`: how many bytes, and those.
    pub const LENGTH: u64 = 20;
    pub const TEXT: u64 = 24;
}

/// Types of objects.
const THREAD: u8 = 6;
pub const PROTOTYPE: u8 = 7;
pub const FUNCTION: u8 = 8;
/// The kind of a function in Lua.
const IN_LUA: u8 = 0;

/// Bytes of a native stack that are searched: a trace may have 256 words of its own.
const SEARCHED: u64 = 0xa00;
/// Bytes of what states share that are searched for what a trace began with.
const SHARED: u64 = 0x400;

/// A state that a native frame executes.
#[derive(Clone, Copy, Debug)]
pub struct Native {
    pub state: u64,
    /// The evaluator's native frame.
    pub cframe: u64,
    pub base: Base,
}

/// The way to tell Lua's innermost frame.
#[derive(Clone, Copy, Debug)]
pub enum Base {
    /// The state has it.
    Saved,
    /// The evaluator has the next instruction in a register, and may have the frame in one of
    /// these.
    Registers { instruction: Option<u64>, bases: [Option<u64>; 2] },
    /// A trace has begun in it.
    Trace,
}

/// The word between two of Lua's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// The address of the instruction behind a call.
    Lua,
    /// The function was called from C.
    Native,
    /// Something else was done by calling it, as an addition.
    Continued,
    /// The function's arguments, any number of them, lie further out.
    Vararg,
    /// Others, as that of a function that is called by `pcall`.
    Other,
}

impl Link {
    pub fn of(word: u64) -> Self {
        match word & 7 {
            0 | 4 => Self::Lua,
            1 | 5 => Self::Native,
            2 => Self::Continued,
            3 => Self::Vararg,
            _ => Self::Other,
        }
    }

    /// Returns whether an instruction for calls stands behind it.
    pub fn is_call(self) -> bool {
        matches!(self, Self::Lua | Self::Vararg)
    }
}

/// The state and the evaluator's native frame that lie on a native stack between `sp` and `end`.
pub fn native_frame(sp: u64, end: u64, memory: &mut dyn Memory) -> Option<(u64, u64)> {
    let sp = sp & !7;
    let end = end.min(sp.checked_add(SEARCHED)?);
    (sp..end).step_by(8).find_map(|cframe| {
        let state = memory.pointer(cframe.checked_add(at::STATE)?)?;
        (is_state(state, memory)? && is_frame_of(state, cframe, memory)?).then_some((state, cframe))
    })
}

/// Returns whether one of a state's native frames is at `cframe`: each says where the next one
/// outwards is.
fn is_frame_of(state: u64, cframe: u64, memory: &mut dyn Memory) -> Option<bool> {
    let mut its = memory.word(state.checked_add(at::CFRAME)?)? & !3;
    while its < cframe {
        let next = memory.word(its.checked_add(at::CALLER)?)? & !3;
        if next <= its {
            return Some(false);
        }
        its = next;
    }
    Some(its == cframe)
}

/// Registers of the function in C that has called the evaluator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The return address.
    pub rip: u64,
    /// Its stack pointer.
    pub rsp: u64,
    /// Its rbx.
    pub rbx: u64,
    /// Its rbp.
    pub rbp: u64,
    /// Its r14.
    pub r14: u64,
    /// Its r15.
    pub r15: u64,
    /// Of a trace, which has them saved.
    pub r12_and_r13: Option<[u64; 2]>,
}

/// The caller of the evaluator, which executes with the stack pointer `sp` itself, or a trace.
pub fn caller(sp: u64, memory: &mut dyn Memory) -> Option<Caller> {
    let (_, cframe) = native_frame(sp, u64::MAX, memory)?;
    let mut word = |offset: u64| memory.word(cframe.checked_add(offset)?);
    let (rbx, rbp, rip) = (word(at::RBX)?, word(at::RBP)?, word(at::RETURN)?);
    let (r14, r15, r12) = (word(at::R14)?, word(at::R15)?, word(0)?);
    let rsp = cframe.checked_add(at::END)?;
    let r13 = memory.word(cframe.checked_sub(8)?)?;
    let r12_and_r13 = (cframe > sp).then_some([r12, r13]);
    Some(Caller { rip, rsp, rbx, rbp, r14, r15, r12_and_r13 })
}

/// Returns whether a state is at `address`; `None` where nothing is.
fn is_state(address: u64, memory: &mut dyn Memory) -> Option<bool> {
    if address & 7 != 0 || address < 0x1_0000 || address >> 47 != 0 {
        return Some(false);
    }
    let is = memory.byte(address.checked_add(at::TYPE)?)? == THREAD;
    Some(is && memory.pointer(address.checked_add(at::SHARED)?).is_some())
}

/// Lua's innermost frame, and the instruction behind the one that it executes, where that is known.
pub fn innermost(it: &Native, memory: &mut dyn Memory) -> Option<(u64, Option<u64>)> {
    let stack = memory.pointer(it.state.checked_add(at::STACK)?)?;
    let end = memory.pointer(it.state.checked_add(at::STACK_END)?)?;
    let within = |base: &u64| base & 7 == 0 && *base >= stack.saturating_add(16) && *base <= end;
    let saved = memory.word(it.state.checked_add(at::BASE)?).filter(within);
    match it.base {
        Base::Saved => saved.map(|base| (base, None)),
        Base::Trace => began(it.state, &within, memory).map(|base| (base, None)),
        Base::Registers { instruction, bases: [rdx, rbp] } => {
            let pc = instruction?;
            let candidates = [rdx, rbp].map(|it| it.filter(within));
            let all = candidates.into_iter().chain([saved]).flatten();
            let mut found = all.filter_map(|base| accepted(base, pc, memory));
            if let Some(base) = found.next() {
                return Some((base, Some(pc)));
            }
            began(it.state, &within, memory).map(|base| (base, None))
        }
    }
}

/// The frame that `base` is, if it goes with the instruction at `pc`; or the one further out, while
/// a call or a return is under way.
fn accepted(base: u64, pc: u64, memory: &mut dyn Memory) -> Option<u64> {
    if fits(base, pc, memory) == Some(true) {
        return Some(base);
    }
    let register = u64::from(memory.byte(pc.checked_sub(3)?)?);
    let outer = base.checked_sub(8 * (2 + register))?;
    let function = object(memory.word(outer.checked_sub(16)?)?);
    let prototype = prototype(function, memory)?;
    index(prototype, pc, memory).map(|_| outer)
}

/// Returns whether the function of the frame at `base` executes what is before `pc`.
fn fits(base: u64, pc: u64, memory: &mut dyn Memory) -> Option<bool> {
    let function = object(memory.word(base.checked_sub(16)?)?);
    if memory.byte(function.checked_add(at::TYPE)?)? != FUNCTION {
        return Some(false);
    }
    if let Some(prototype) = prototype(function, memory) {
        return Some(index(prototype, pc, memory).is_some());
    }
    // Of a function in C or assembler: its head's, or the caller's.
    let head = memory.word(function.checked_add(at::CODE)?)?.wrapping_add(4);
    Some(pc == head || pc == memory.word(base.checked_sub(8)?)?)
}

/// The frame in which the trace began that a state executes: what all states share has it behind
/// the state that is executed.
fn began(state: u64, within: &dyn Fn(&u64) -> bool, memory: &mut dyn Memory) -> Option<u64> {
    let shared = memory.pointer(state.checked_add(at::SHARED)?)?;
    (0..SHARED).step_by(8).find_map(|offset| {
        let its = memory.word(shared.checked_add(offset)?)? == state;
        let next = shared.checked_add(offset + 8)?;
        its.then(|| memory.word(next).filter(within))?
    })
}

/// The address of the object that a value is.
pub fn object(value: u64) -> u64 {
    value & ((1 << 47) - 1)
}

/// The prototype of a function in Lua.
pub fn prototype(function: u64, memory: &mut dyn Memory) -> Option<u64> {
    let in_lua = memory.byte(function.checked_add(at::TYPE)?)? == FUNCTION
        && memory.byte(function.checked_add(at::KIND)?)? == IN_LUA;
    let code = memory.pointer(function.checked_add(at::CODE)?).filter(|_| in_lua)?;
    let prototype = code.checked_sub(at::INSTRUCTIONS)?;
    (memory.byte(prototype.checked_add(at::TYPE)?)? == PROTOTYPE).then_some(prototype)
}

/// The index of the instruction before the one at `pc`, if it is one of the prototype's.
pub fn index(prototype: u64, pc: u64, memory: &mut dyn Memory) -> Option<u64> {
    let behind = pc.checked_sub(prototype.checked_add(at::INSTRUCTIONS)?)?;
    let count = u64::from(memory.half(prototype.checked_add(at::COUNT)?)?);
    let index = (behind / 4).checked_sub(1)?;
    (pc & 3 == 0 && index < count).then_some(index)
}
