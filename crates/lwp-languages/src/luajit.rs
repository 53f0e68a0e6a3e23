//! LuaJIT 2.1 with 64-bit addresses (`LJ_GC64`), as it is on x86-64 since 2020.
//!
//! Its evaluator is written in assembler and keeps a frame of one form on the native stack, in
//! which its state is; the state says where that frame is, so that a stack that has both is
//! LuaJIT's and nothing else. Between native frames of the evaluator lie those of C; each of Lua's
//! own frames has a word that says what lies further out.
//!
//! Compiled code, a *trace*, runs in the evaluator's native frame, with a few words more. It keeps
//! neither a frame pointer nor Lua's frames as they are: Lua's frames are those that it began in.

mod names;
mod state;

use std::ops::Range;
use std::sync::Arc;

use object::read::ReadRef;
use rustc_hash::FxHashMap;

use self::state::{Base, Native as At, at, native_frame};
use crate::Memory;
use crate::file::File;
use crate::functions::{Frame, Function, Functions, Language, text};
use crate::interpreter::{DEEPEST, Reader, Thread, keep};
use crate::merge::Activation;

pub use state::{Caller, caller};

/// Symbols that are looked for.
pub const NAMES: [&str; 5] =
    ["luaJIT_profile_start", "lua_call", "lua_pcall", "lua_cpcall", "lua_status"];

/// A file that has the interpreter in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interpreter {
    /// The code that was written in assembler.
    pub evaluator: Vec<Range<u64>>,
}

impl Interpreter {
    /// The interpreter in `file`.
    pub fn of<'d, R: ReadRef<'d>>(file: &File<'d, R>) -> Option<Self> {
        file.at("luaJIT_profile_start")?;
        // The state has this field elsewhere where addresses have 32 bits: movzx eax, [rdi + 11]
        let status = file.bytes(file.at("lua_status")?, 16)?;
        status.windows(4).find(|code| *code == [0x0f, 0xb6, 0x47, 0x0b])?;
        let from = ["lua_call", "lua_pcall", "lua_cpcall"].map(|name| file.at(name));
        let from: Vec<u64> = from.into_iter().flatten().collect();
        // All of it is one function to the table of unwind information.
        Some(Self { evaluator: vec![file.largest_entered(&from)?] })
    }
}

/// Most states of a thread.
const STATES: usize = 16;
/// Functions that are remembered.
const MOST: usize = 1 << 14;

/// The interpreter of a process.
#[derive(Debug, Default)]
pub struct Process {
    known: FxHashMap<u64, Code>,
}

/// A function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Code {
    source: u64,
    lines: u64,
    first: u32,
    function: u32,
}

/// A call of a function in Lua that has not returned: its prototype, the instruction that it
/// executes, if that is known, and whether the next one outwards has called it by an instruction
/// for that.
#[derive(Clone, Copy, Debug)]
struct Call {
    prototype: u64,
    instruction: Option<u64>,
    called: bool,
}

impl Process {
    /// The function and line of a call.
    fn frame(
        &mut self,
        call: &Call,
        caller: Option<&Call>,
        functions: &mut Functions,
        memory: &mut dyn Memory,
    ) -> Option<Frame> {
        let prototype = call.prototype;
        let mut word = |offset: u64| memory.word(prototype.checked_add(offset)?);
        let (source, lines) = (word(at::SOURCE)?, word(at::LINES)?);
        let first = memory.half(prototype.checked_add(at::LINE)?)?;
        let same = |it: &&Code| (it.source, it.lines, it.first) == (source, lines, first);
        let code = match self.known.get(&prototype).filter(same) {
            Some(known) => *known,
            None => {
                let name = string(source, memory)?;
                let file = match name.strip_prefix(['@', '=']) {
                    Some(name) => name.to_owned(),
                    None => format!("[string \"{}\"]", name.lines().next().unwrap_or_default()),
                };
                let mut called = || names::called(caller?.prototype, caller?.instruction?, memory);
                let name = match first {
                    0 => "main chunk".to_owned(),
                    _ => called().unwrap_or_else(|| format!("function <{file}:{first}>")),
                };
                let (name, file) = (Arc::from(name), Arc::from(file));
                let function =
                    functions.number(Function { language: Language::Lua, name, file, line: first });
                let code = Code { source, lines, first, function };
                keep(&mut self.known, MOST, prototype, code);
                code
            }
        };
        let line = call.instruction.and_then(|it| line_of(prototype, (first, lines), it, memory));
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
        let (mut frames, mut activations) = (Vec::new(), Vec::new());
        let mut shared = None;
        // A coroutine's state lies further in than the one that has resumed it.
        for it in states_of(thread, memory) {
            let its = memory.word(it.state.wrapping_add(at::SHARED));
            if shared.is_some() && shared != its {
                continue;
            }
            shared = its;
            for (anchor, calls) in segments(&it, memory) {
                let first = frames.len();
                for (index, call) in calls.iter().enumerate() {
                    let caller = calls.get(index + 1).filter(|_| call.called);
                    frames.extend(self.frame(call, caller, functions, memory));
                }
                if frames.len() > first {
                    let frames = first..frames.len();
                    activations.push(Activation { anchor: Some(anchor), frames });
                }
            }
        }
        (frames, activations)
    }
}

/// The states that a thread executes, the innermost first.
fn states_of(thread: &Thread<'_>, memory: &mut dyn Memory) -> Vec<At> {
    let mut found: Vec<At> = Vec::new();
    for (index, frame) in thread.native.iter().enumerate() {
        if found.len() == STATES || !(frame.evaluator || frame.generated) {
            continue;
        }
        let end = thread.native.get(index + 1).map_or(u64::MAX, |next| next.sp);
        let Some((state, cframe)) = native_frame(frame.sp, end, memory) else { continue };
        if found.iter().any(|it| it.state == state) {
            continue;
        }
        let [rbx, rbp, ..] = frame.preserved;
        // Subroutines of the evaluator leave its registers alone.
        let within = thread.native[..=index].iter().all(|it| it.evaluator);
        let rdx = thread.native[0].rdx.filter(|_| within);
        let base = match (frame.generated && !frame.evaluator, found.is_empty()) {
            (true, _) => Base::Trace,
            (false, true) => Base::Registers { instruction: rbx, bases: [rdx, rbp] },
            (false, false) => Base::Saved,
        };
        found.push(At { state, cframe, base });
    }
    found
}

/// The calls of a state, innermost first, by the native frame that executes them.
fn segments(it: &At, memory: &mut dyn Memory) -> Vec<(u64, Vec<Call>)> {
    let mut all = Vec::new();
    let mut calls = Vec::new();
    // `None` is the chain's end, or something that is none.
    let _ = walk(it, memory, &mut all, &mut calls);
    all
}

/// Follows the chain of a state's frames.
fn walk(
    it: &At,
    memory: &mut dyn Memory,
    all: &mut Vec<(u64, Vec<Call>)>,
    calls: &mut Vec<Call>,
) -> Option<()> {
    let (base, mut next) = state::innermost(it, memory)?;
    let stack = memory.pointer(it.state.checked_add(at::STACK)?)?;
    let (mut link, bottom) = (base.checked_sub(8)?, stack.checked_add(8)?);
    let mut cframe = it.cframe;
    let (mut vararg, mut room) = (false, DEEPEST);
    for _ in 0..4 * DEEPEST {
        if link <= bottom || room == 0 {
            break;
        }
        let function = state::object(memory.word(link.checked_sub(8)?)?);
        let word = memory.word(link)?;
        let kind = state::Link::of(word);
        if let Some(prototype) = state::prototype(function, memory).filter(|_| !vararg) {
            let instruction = next.and_then(|pc| state::index(prototype, pc, memory));
            calls.push(Call { prototype, instruction, called: kind.is_call() });
            room -= 1;
        }
        // A function with any number of arguments has two frames.
        vararg = kind == state::Link::Vararg;
        next = match kind {
            state::Link::Lua => Some(word),
            state::Link::Continued => memory.word(link.checked_sub(16)?),
            // The pseudo-frame's own link says where the call was.
            _ => None,
        };
        let distance = match kind {
            state::Link::Lua => 8 * (2 + u64::from(memory.byte(word.checked_sub(3)?)?)),
            _ => word & !7,
        };
        if kind == state::Link::Native {
            all.push((cframe, std::mem::take(calls)));
            cframe = memory.pointer(cframe.checked_add(at::CALLER)?)? & !3;
            next = memory.word(cframe.checked_add(at::INSTRUCTION)?);
        }
        // Frames lie further down, the further out.
        link = link.checked_sub(distance).filter(|_| distance >= 16)?;
    }
    all.push((cframe, std::mem::take(calls)));
    Some(())
}

/// The line of an instruction.
fn line_of(
    prototype: u64,
    (first, lines): (u32, u64),
    instruction: u64,
    memory: &mut dyn Memory,
) -> Option<u32> {
    // The first instruction is the function's head, and has no entry.
    let Some(entry) = instruction.checked_sub(1).filter(|_| lines != 0) else { return Some(first) };
    let count = memory.half(prototype.checked_add(at::LINE_COUNT)?)?;
    let distance = match count {
        ..256 => u32::from(memory.byte(lines.checked_add(entry)?)?),
        256..65536 => u32::from(memory.short(lines.checked_add(2 * entry)?)?),
        _ => memory.half(lines.checked_add(4 * entry)?)?,
    };
    first.checked_add(distance)
}

/// The text of a string.
fn string(address: u64, memory: &mut dyn Memory) -> Option<String> {
    const STRING: u8 = 4;
    if memory.byte(address.checked_add(at::TYPE)?)? != STRING {
        return None;
    }
    let begin = address.checked_add(at::TEXT)?;
    let length = u64::from(memory.half(address.checked_add(at::LENGTH)?)?);
    // The text of a program may be its own source: its beginning says enough.
    let text = text(begin, length.min(256), memory)?;
    let ends = length > 256 || memory.byte(begin.checked_add(length)?)? == 0;
    ends.then_some(text)
}
