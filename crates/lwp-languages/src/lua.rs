//! Lua 5.4, as PUC-Rio's implementation executes it.
//!
//! No symbol leads to a state: programs hold theirs where they like. But whoever executes Lua has
//! its address in a register or on the native stack, and a state can be told from everything else:
//! the chain of its calls leads back to a place in the state itself. Lua's functions have no names
//! of their own either. As in Lua's own tracebacks, they have those that they are called by
//! (`names`).

mod names;

use std::ops::Range;
use std::sync::Arc;

use object::read::ReadRef;
use rustc_hash::FxHashMap;

use crate::Memory;
use crate::file::File;
use crate::functions::{Frame, Function, Functions, Language, text};
use crate::interpreter::{DEEPEST, Frames, Thread};
use crate::merge::Activation;

/// Symbols that are looked for.
pub const NAMES: [&str; 4] = ["lua_ident", "lua_callk", "lua_pcallk", "lua_resume"];

/// A file that has the interpreter in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interpreter {
    /// `luaV_execute`.
    pub evaluator: Vec<Range<u64>>,
}

impl Interpreter {
    /// The interpreter in `file`.
    pub fn of<'d, R: ReadRef<'d>>(file: &File<'d, R>) -> Option<Self> {
        const IDENTITY: &[u8] = b"$LuaVersion: Lua 5.4.";
        if file.bytes(file.at("lua_ident")?, IDENTITY.len() as u64)? != IDENTITY {
            return None;
        }
        let its = |name: &str| name == "luaV_execute" || name == "luaV_execute.cold";
        let mut evaluator = file.functions(its);
        if evaluator.is_empty() {
            // Without symbols: by far the largest of the functions that lead to it.
            let from = file.at("lua_callk");
            evaluator.extend(from.and_then(|at| file.largest_called(&[at], 2)));
        }
        Some(Self { evaluator })
    }
}

/// Offsets in bytes, from the sources of Lua 5.4.
mod at {
    /// The header of every object: its type.
    pub const TYPE: u64 = 8;
    /// `lua_State`: whether it has been left, what all states share, the innermost call, and the
    /// outermost, which is a part of it.
    pub const STATUS: u64 = 10;
    pub const SHARED: u64 = 24;
    pub const CALL: u64 = 32;
    pub const FIRST_CALL: u64 = 96;
    /// `CallInfo`: the function's place, the caller, the next instruction, flags.
    pub const FUNCTION: u64 = 0;
    pub const CALLER: u64 = 16;
    pub const INSTRUCTION: u64 = 32;
    pub const FLAGS: u64 = 62;
    /// `TValue`: what kind of value.
    pub const KIND: u64 = 8;
    /// `LClosure.p`.
    pub const PROTOTYPE: u64 = 24;
    /// `Proto`: sizes, the line, instructions, lines, source.
    pub const INSTRUCTIONS: u64 = 24;
    pub const LINES: u64 = 28;
    pub const ABSOLUTES: u64 = 40;
    pub const LINE: u64 = 44;
    pub const CODE: u64 = 64;
    pub const LINE_LIST: u64 = 88;
    pub const ABSOLUTE_LIST: u64 = 96;
    pub const SOURCE: u64 = 112;
    /// `TString`: bytes of a short one, of a long one, and where they begin.
    pub const SHORT_LENGTH: u64 = 11;
    pub const LONG_LENGTH: u64 = 16;
    pub const TEXT: u64 = 24;
}

/// Types of objects.
const THREAD: u8 = 8;
const PROTOTYPE: u8 = 10;
const SHORT_STRING: u8 = 4;
const LONG_STRING: u8 = 20;
/// Of a value: a function in Lua; it is collectable.
const LUA_FUNCTION: u8 = 6 | COLLECTABLE;
const COLLECTABLE: u8 = 0x40;
/// Flags of calls: a function in C; the evaluator was called for it.
const C: u16 = 1 << 1;
const FRESH: u16 = 1 << 2;
/// Bytes of an evaluator's native stack that are searched for its state, and most states of a
/// thread.
const SEARCHED: u64 = 1 << 10;
const STATES: usize = 16;
/// Most addresses of a stack that are taken for a state's.
const TRIED: usize = 1 << 12;
/// Most bytes of instructions and of a table that are read.
const TABLE: u64 = 1 << 20;
/// Functions that are remembered.
const MOST: usize = 1 << 14;

/// The interpreter of a process.
#[derive(Debug)]
pub struct Process {
    known: FxHashMap<u64, Code>,
}

/// A function.
#[derive(Debug)]
struct Code {
    fields: [u64; 3],
    function: u32,
    lines: Vec<u32>,
}

/// A call that has not returned.
#[derive(Clone, Copy, Debug)]
struct Call {
    at: u64,
    flags: u16,
    /// The prototype of a function in Lua, and the index of the instruction that it executes.
    lua: Option<(u64, u64)>,
}

impl Process {
    /// The interpreter of a process.
    pub fn new(_: &Interpreter) -> Self {
        Self { known: FxHashMap::default() }
    }

    /// Reads the frames of a thread, as [`crate::interpreter::Process::stack`] does.
    pub fn stack(
        &mut self,
        thread: &Thread<'_>,
        functions: &mut Functions,
        memory: &mut dyn Memory,
    ) -> (Vec<Frame>, Vec<Activation>) {
        let mut frames = Frames::default();
        // A coroutine's state lies further in than the one that has resumed it.
        let mut last = None;
        for state in Self::states_of(thread, memory) {
            let shared = memory.word(state.wrapping_add(at::SHARED));
            if last.is_none() || shared == last {
                last = shared;
                let _ = self.read(state, functions, memory, &mut frames);
                frames.end();
            }
        }
        frames.finish()
    }

    /// The states that a thread executes, the innermost first.
    fn states_of(thread: &Thread<'_>, memory: &mut dyn Memory) -> Vec<u64> {
        let mut found = Vec::new();
        let mut tried: Vec<u64> = Vec::new();
        let mut look = |address: u64, found: &mut Vec<u64>, memory: &mut dyn Memory| {
            // Objects are aligned, and nothing useful is at the bottom.
            if found.len() == STATES
                || tried.len() == TRIED
                || address & 7 != 0
                || address < 0x1_0000
                || address >> 47 != 0
                || tried.contains(&address)
            {
                return;
            }
            tried.push(address);
            if is_state(address, memory) {
                found.push(address);
            }
        };
        for (at, frame) in thread.native.iter().enumerate() {
            if !frame.evaluator {
                continue;
            }
            // The evaluator keeps its state in a register, or on its own stack.
            for value in frame.preserved.into_iter().flatten() {
                look(value, &mut found, memory);
            }
            let end = thread.native.get(at + 1).map_or(frame.sp, |next| next.sp);
            let end = end.min(frame.sp.saturating_add(SEARCHED));
            for address in (frame.sp..end).step_by(8) {
                if let Some(word) = memory.word(address) {
                    look(word, &mut found, memory);
                }
            }
        }
        found
    }

    fn read(
        &mut self,
        state: u64,
        functions: &mut Functions,
        memory: &mut dyn Memory,
        frames: &mut Frames,
    ) -> Option<()> {
        let calls = calls(state, memory)?;
        for (index, call) in calls.iter().enumerate() {
            let Some((prototype, instruction)) = call.lua else { continue };
            let caller = calls.get(index + 1).and_then(|caller| caller.lua);
            let caller = caller.filter(|_| call.flags & FRESH == 0 || index + 1 < calls.len());
            let frame = self.frame(prototype, instruction, caller, functions, memory)?;
            let room = frames.push(frame);
            if call.flags & FRESH != 0 {
                frames.end();
            }
            if !room {
                break;
            }
        }
        Some(())
    }

    /// The function and line of a call.
    fn frame(
        &mut self,
        prototype: u64,
        instruction: u64,
        caller: Option<(u64, u64)>,
        functions: &mut Functions,
        memory: &mut dyn Memory,
    ) -> Option<Frame> {
        if memory.byte(prototype.checked_add(at::TYPE)?)? != PROTOTYPE {
            return None;
        }
        let mut word = |offset: u64| memory.word(prototype.checked_add(offset)?);
        let fields = [word(at::SOURCE)?, word(at::CODE)?, word(at::LINE)?];
        if self.known.get(&prototype).is_none_or(|known| known.fields != fields) {
            let line = fields[2] as u32;
            let source = string(fields[0], memory)?;
            // A name of a file has a mark, a text that was given stands for itself.
            let file = match source.strip_prefix(['@', '=']) {
                Some(name) => name.to_owned(),
                None => format!("[string \"{}\"]", source.lines().next().unwrap_or_default()),
            };
            let mut called = || caller.and_then(|(at, pc)| names::called(at, pc, memory));
            let name = match line {
                0 => "main chunk".to_owned(),
                _ => called().unwrap_or_else(|| format!("function <{file}:{line}>")),
            };
            let (name, file) = (Arc::from(name), Arc::from(file));
            let function = functions.number(Function { language: Language::Lua, name, file, line });
            let lines = lines(prototype, line, memory).unwrap_or_default();
            if self.known.len() >= MOST {
                self.known.clear();
            }
            self.known.insert(prototype, Code { fields, function, lines });
        }
        let code = self.known.get(&prototype)?;
        let line = usize::try_from(instruction).ok().and_then(|at| code.lines.get(at)).copied();
        let first = functions.get(code.function)?.line;
        Some(Frame { function: code.function, line: line.unwrap_or(first) })
    }
}

/// Returns whether a state is at `address` that executes something.
fn is_state(address: u64, memory: &mut dyn Memory) -> bool {
    memory.byte(address.wrapping_add(at::TYPE)) == Some(THREAD)
        && memory.byte(address.wrapping_add(at::STATUS)) == Some(0)
        && memory.pointer(address.wrapping_add(at::SHARED)).is_some()
        && calls(address, memory).is_some_and(|calls| calls.iter().any(|call| call.lua.is_some()))
}

/// The calls of a state, innermost first; `None` unless they lead back to the state.
fn calls(state: u64, memory: &mut dyn Memory) -> Option<Vec<Call>> {
    let first = state.checked_add(at::FIRST_CALL)?;
    let mut at = memory.pointer(state.checked_add(at::CALL)?)?;
    let mut calls: Vec<Call> = Vec::new();
    while at != first {
        if calls.len() == 2 * DEEPEST {
            return Some(calls);
        }
        let mut flags = [0; 2];
        if at & 7 != 0 || !memory.read(at.checked_add(at::FLAGS)?, &mut flags) {
            return None;
        }
        let flags = u16::from_le_bytes(flags);
        let lua = if flags & C == 0 { lua_call(at, memory) } else { None };
        calls.push(Call { at, flags, lua });
        at = memory.pointer(at.checked_add(at::CALLER)?)?;
        // A chain that meets itself is none.
        if calls.last().is_some_and(|last| last.at == at) {
            return None;
        }
    }
    (memory.word(first.checked_add(at::CALLER)?)? == 0).then_some(calls)
}

/// The prototype of the function in Lua that is called, and the index of the instruction that it
/// executes.
fn lua_call(call: u64, memory: &mut dyn Memory) -> Option<(u64, u64)> {
    let value = memory.pointer(call.checked_add(at::FUNCTION)?)?;
    if memory.byte(value.checked_add(at::KIND)?)? != LUA_FUNCTION {
        return None;
    }
    let closure = memory.pointer(value)?;
    let prototype = memory.pointer(closure.checked_add(at::PROTOTYPE)?)?;
    let code = memory.pointer(prototype.checked_add(at::CODE)?)?;
    let next = memory.word(call.checked_add(at::INSTRUCTION)?)?;
    let index = (next.checked_sub(code)? / 4).saturating_sub(1);
    let count = memory.half(prototype.checked_add(at::INSTRUCTIONS)?)?;
    (index < u64::from(count)).then_some((prototype, index))
}

/// The line of each instruction: a difference to the one before, or, where that is -128, in a list
/// of its own.
fn lines(prototype: u64, first: u32, memory: &mut dyn Memory) -> Option<Vec<u32>> {
    const ABSOLUTE: i8 = -128;
    let count = u64::from(memory.half(prototype.checked_add(at::LINES)?)?);
    let absolutes = u64::from(memory.half(prototype.checked_add(at::ABSOLUTES)?)?);
    if count > TABLE || absolutes > TABLE / 8 {
        return None;
    }
    let mut differences = vec![0; count as usize];
    let list = memory.word(prototype.checked_add(at::LINE_LIST)?)?;
    if !memory.read(list, &mut differences) {
        return None;
    }
    let mut pairs = vec![0; 8 * absolutes as usize];
    let list = memory.word(prototype.checked_add(at::ABSOLUTE_LIST)?)?;
    if absolutes > 0 && !memory.read(list, &mut pairs) {
        return None;
    }
    let mut pairs = pairs.chunks_exact(8).map(|pair| [pair[4], pair[5], pair[6], pair[7]]);
    let mut line = first;
    let lines = differences.iter().map(|difference| {
        let difference = difference.cast_signed();
        line = match difference {
            ABSOLUTE => pairs.next().map_or(line, u32::from_le_bytes),
            _ => line.wrapping_add_signed(i32::from(difference)),
        };
        line
    });
    Some(lines.collect())
}

/// The text of a string.
fn string(address: u64, memory: &mut dyn Memory) -> Option<String> {
    let length = match memory.byte(address.checked_add(at::TYPE)?)? {
        SHORT_STRING => u64::from(memory.byte(address.checked_add(at::SHORT_LENGTH)?)?),
        // The text of a program may be its own source: its beginning says enough.
        LONG_STRING => memory.word(address.checked_add(at::LONG_LENGTH)?)?.min(256),
        _ => return None,
    };
    text(address.checked_add(at::TEXT)?, length, memory)
}

#[cfg(test)]
impl Interpreter {
    /// One that is in no file.
    pub fn nowhere() -> Self {
        Self { evaluator: Vec::new() }
    }
}
