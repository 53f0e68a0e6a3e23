//! Lua 5.1, 5.3 and 5.4, as PUC-Rio's implementation executes it.
//!
//! No symbol leads to a state: programs hold theirs where they like. But whoever executes Lua has
//! its address in a register or on the native stack, and a state can be told from everything else:
//! the chain of its calls leads back to a place in the state itself. Lua's functions have no names
//! of their own either. As in Lua's own tracebacks, they have those that they are called by
//! (`names`).

mod calls;
mod layout;
mod names;

use std::ops::Range;
use std::sync::Arc;

use object::read::ReadRef;
use rustc_hash::FxHashMap;

use self::layout::Layout;
use crate::Memory;
use crate::file::File;
use crate::functions::{Frame, Function, Functions, Language, text};
use crate::interpreter::{Frames, Reader, Thread, keep};
use crate::merge::Activation;

/// Symbols that are looked for.
pub const NAMES: [&str; 5] = ["lua_ident", "lua_call", "lua_callk", "lua_pcallk", "lua_resume"];

/// A file that has the interpreter in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interpreter {
    /// `luaV_execute`.
    pub evaluator: Vec<Range<u64>>,
    layout: &'static Layout,
}

impl Interpreter {
    /// The interpreter in `file`.
    pub fn of<'d, R: ReadRef<'d>>(file: &File<'d, R>) -> Option<Self> {
        let identity = file.bytes(file.at("lua_ident")?, 22)?;
        let release = [&b"$LuaVersion: Lua 5."[..], b"$Lua: Lua 5."];
        let mut release = release.iter().filter_map(|it| identity.strip_prefix(*it)?.get(..3));
        let layout = match release.next()? {
            b"4.0" | b"4.1" | b"4.2" | b"4.3" | b"4.4" | b"4.5" | b"4.6" | b"4.7" | b"4.8" => {
                &layout::LUA_5_4
            }
            b"3.3" | b"3.4" | b"3.5" | b"3.6" => &layout::LUA_5_3,
            b"1.4" | b"1.5" => &layout::LUA_5_1,
            _ => return None,
        };
        let its = |name: &str| name == "luaV_execute" || name == "luaV_execute.cold";
        let mut evaluator = file.functions(its);
        if evaluator.is_empty() {
            // Without symbols: by far the largest of the functions that lead to it.
            let from = file.at("lua_callk").or_else(|| file.at("lua_call"));
            evaluator.extend(from.and_then(|at| file.largest_called(&[at], 2)));
        }
        Some(Self { evaluator, layout })
    }
}

/// Offsets in bytes that all releases have that have such a thing.
mod at {
    /// The header of every object: its type.
    pub const TYPE: u64 = 8;
    /// `lua_State`: the innermost call of a chain, and the outermost, which is a part of it.
    pub const CALL: u64 = 32;
    pub const FIRST_CALL: u64 = 96;
    /// `CallInfo`: the caller.
    pub const CALLER: u64 = 16;
    /// `TValue`: what kind of value.
    pub const KIND: u64 = 8;
    /// `TString`: bytes of a short one, of a long one, and where they begin.
    pub const SHORT_LENGTH: u64 = 11;
    pub const LONG_LENGTH: u64 = 16;
    pub const TEXT: u64 = 24;
}

/// Types of objects; of 5.1, all strings have the first one.
const SHORT_STRING: u8 = 4;
const LONG_STRING: u8 = 20;
/// A part of a value's kind: it is collectable.
const COLLECTABLE: u8 = 0x40;
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
    layout: &'static Layout,
    known: FxHashMap<u64, Code>,
}

/// A function.
#[derive(Debug)]
struct Code {
    fields: [u64; 3],
    function: u32,
    lines: Vec<u32>,
}

impl Process {
    /// The interpreter of a process.
    pub fn new(interpreter: &Interpreter) -> Self {
        Self { layout: interpreter.layout, known: FxHashMap::default() }
    }

    /// The states that a thread executes, the innermost first.
    fn states_of(&self, thread: &Thread<'_>, memory: &mut dyn Memory) -> Vec<u64> {
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
            if calls::is_state(self.layout, address, memory) {
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

    /// Reads the frames of a state that is executed with these registers.
    fn read(
        &mut self,
        (state, registers): (u64, [Option<u64>; 6]),
        functions: &mut Functions,
        memory: &mut dyn Memory,
        frames: &mut Frames,
    ) -> Option<()> {
        let mut calls = calls::of(self.layout, state, memory)?;
        if let Some((prototype, instruction)) = calls.first_mut().and_then(|it| it.lua.as_mut()) {
            // The state is told of an instruction only when that may need to know it.
            let executed = calls::executed(self.layout, *prototype, registers, memory);
            *instruction = executed.unwrap_or(*instruction);
        }
        for (index, call) in calls.iter().enumerate() {
            let Some((prototype, instruction)) = call.lua else { continue };
            let caller = calls.get(index + 1).and_then(|caller| caller.lua);
            let frame = self.frame(prototype, instruction, caller, functions, memory)?;
            let room = frames.push(frame);
            if call.fresh {
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
        let layout = self.layout;
        if memory.byte(prototype.checked_add(at::TYPE)?)? != layout.prototype {
            return None;
        }
        let mut word = |offset: u64| memory.word(prototype.checked_add(offset)?);
        let fields = [word(layout.source)?, word(layout.code)?, word(layout.line)?];
        if self.known.get(&prototype).is_none_or(|known| known.fields != fields) {
            let line = fields[2] as u32;
            let source = string(layout, fields[0], memory)?;
            // A name of a file has a mark, a text that was given stands for itself.
            let file = match source.strip_prefix(['@', '=']) {
                Some(name) => name.to_owned(),
                None => format!("[string \"{}\"]", source.lines().next().unwrap_or_default()),
            };
            let mut called = || caller.and_then(|(at, pc)| names::called(layout, at, pc, memory));
            let name = match line {
                0 => "main chunk".to_owned(),
                _ => called().unwrap_or_else(|| format!("function <{file}:{line}>")),
            };
            let (name, file) = (Arc::from(name), Arc::from(file));
            let function = functions.number(Function { language: Language::Lua, name, file, line });
            let lines = lines(layout, prototype, line, memory).unwrap_or_default();
            keep(&mut self.known, MOST, prototype, Code { fields, function, lines });
        }
        let code = self.known.get(&prototype)?;
        let line = usize::try_from(instruction).ok().and_then(|at| code.lines.get(at)).copied();
        let first = functions.get(code.function)?.line;
        Some(Frame { function: code.function, line: line.unwrap_or(first) })
    }
}

impl Reader for Process {
    fn stack(
        &mut self,
        thread: &Thread<'_>,
        functions: &mut Functions,
        memory: &mut dyn Memory,
    ) -> (Vec<Frame>, Vec<Activation>) {
        let mut frames = Frames::default();
        // A coroutine's state lies further in than the one that has resumed it.
        let mut last = None;
        let evaluator = thread.native.iter().find(|frame| frame.evaluator);
        let mut registers = evaluator.map(|frame| frame.preserved);
        for state in self.states_of(thread, memory) {
            let shared = memory.word(state.wrapping_add(self.layout.shared));
            if last.is_none() || shared == last {
                last = shared;
                let executed = (state, registers.take().unwrap_or_default());
                let _ = self.read(executed, functions, memory, &mut frames);
                frames.end();
            }
        }
        frames.finish()
    }
}

/// The line of each instruction.
fn lines(layout: &Layout, prototype: u64, first: u32, memory: &mut dyn Memory) -> Option<Vec<u32>> {
    let count = u64::from(memory.half(prototype.checked_add(layout.line_count)?)?);
    let list = memory.word(prototype.checked_add(layout.lines)?)?;
    if count > TABLE {
        return None;
    }
    let Some(absolutes) = &layout.absolutes else {
        return halves(list, count, memory);
    };
    let mut differences = vec![0; count as usize];
    if !memory.read(list, &mut differences) {
        return None;
    }
    let count = u64::from(memory.half(prototype.checked_add(absolutes.count)?)?);
    let list = memory.word(prototype.checked_add(absolutes.list)?)?;
    let pairs = match count {
        0 => Vec::new(),
        _ => halves(list, count.checked_mul(2)?, memory)?,
    };
    Some(by_differences(first, &differences, &pairs))
}

/// The numbers of four bytes each at an address.
fn halves(address: u64, count: u64, memory: &mut dyn Memory) -> Option<Vec<u32>> {
    if count > TABLE / 4 {
        return None;
    }
    let mut bytes = vec![0; 4 * count as usize];
    let read = memory.read(address, &mut bytes);
    let number = |it: &[u8]| u32::from_le_bytes([it[0], it[1], it[2], it[3]]);
    read.then(|| bytes.chunks_exact(4).map(number).collect())
}

/// Lines as differences to the one before, or, where that is -128, in pairs of index and line.
fn by_differences(first: u32, differences: &[u8], pairs: &[u32]) -> Vec<u32> {
    const ABSOLUTE: i8 = -128;
    let mut absolutes = pairs.chunks_exact(2).map(|pair| pair[1]);
    let mut line = first;
    let lines = differences.iter().map(|difference| {
        let difference = difference.cast_signed();
        line = match difference {
            ABSOLUTE => absolutes.next().unwrap_or(line),
            _ => line.wrapping_add_signed(i32::from(difference)),
        };
        line
    });
    lines.collect()
}

/// The text of a string.
fn string(layout: &Layout, address: u64, memory: &mut dyn Memory) -> Option<String> {
    let length = match memory.byte(address.checked_add(at::TYPE)?)? {
        SHORT_STRING if layout.short_strings => {
            u64::from(memory.byte(address.checked_add(at::SHORT_LENGTH)?)?)
        }
        // The text of a program may be its own source: its beginning says enough.
        SHORT_STRING | LONG_STRING => memory.word(address.checked_add(at::LONG_LENGTH)?)?.min(256),
        _ => return None,
    };
    text(address.checked_add(at::TEXT)?, length, memory)
}

#[cfg(test)]
impl Interpreter {
    /// One of each layout that is in no file.
    pub fn nowhere() -> [Self; 3] {
        let layouts = [&layout::LUA_5_4, &layout::LUA_5_3, &layout::LUA_5_1];
        layouts.map(|layout| Self { evaluator: Vec::new(), layout })
    }
}
