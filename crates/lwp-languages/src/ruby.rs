//! Ruby's virtual machine, of 3.0 to 4.0.
//!
//! `ruby_current_vm_ptr` leads to the main ractor and its threads. Each has an execution context
//! with control frames, which lie one behind the other, the innermost first. A frame that is marked
//! so ends what an activation of the evaluator executes. Methods that are written in C have frames
//! without code: those of the native stack stand for them.

mod lines;

use std::ops::Range;

use object::read::ReadRef;
use rustc_hash::FxHashMap;

use crate::Memory;
use crate::file::File;
use crate::functions::{Frame, Function, Functions, Language, text};
use crate::interpreter::{Frames, Reader, Thread, Who, keep};
use crate::merge::Activation;
use lines::Lines;

/// Symbols that are looked for.
pub const NAMES: [&str; 3] = ["ruby_current_vm_ptr", "ruby_version", "rb_vm_exec"];

/// A file that has the virtual machine in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interpreter {
    machine: u64,
    layout: Layout,
    /// `vm_exec_core`, and what the compiler has moved out of it.
    pub evaluator: Vec<Range<u64>>,
}

impl Interpreter {
    /// The virtual machine in `file`.
    pub fn of<'d, R: ReadRef<'d>>(file: &File<'d, R>) -> Option<Self> {
        let machine = file.at("ruby_current_vm_ptr")?;
        let version = file.bytes(file.at("ruby_version")?, 4)?;
        let layout = Layout::of(version)?;
        let name = |name: &str| name == "vm_exec_core" || name.starts_with("vm_exec_core.");
        let mut evaluator = file.functions(name);
        if evaluator.is_empty() {
            // Without symbols: the largest of the functions that the exported one calls.
            evaluator.extend(file.at("rb_vm_exec").and_then(|at| file.largest_called(&[at], 0)));
        }
        Some(Self { machine, layout, evaluator })
    }
}

/// Offsets in bytes that differ between releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    /// `rb_ractor_t`: the list of its threads, and the execution context that runs.
    threads: u64,
    running: u64,
    /// `rb_thread_t`: its execution context, the native thread where that is apart, and the
    /// kernel's number there.
    context: u64,
    native: Option<u64>,
    number: Option<u64>,
    /// `rb_execution_context_t.thread_ptr`.
    thread: u64,
    /// Bytes of a control frame.
    frame: u64,
    /// `rb_iseq_constant_body.insns_info`, and bytes of an entry of its table.
    lines: u64,
    line: u64,
    /// Strings: a word of the length, and where those begin whose characters the object has itself;
    /// before 3.2 their length is in the flags.
    embedded: u64,
}

impl Layout {
    /// From `rbspy-ruby-structs`, which has the structures of each release.
    #[rustfmt::skip] // A table.
    fn of(version: &[u8]) -> Option<Self> {
        //          threads running context native    number    thread frame lines line embedded
        Some(match version {
            b"3.0." => Self::row([304, 520, 40, 56, 56, 120,  8, 16], None,     None),
            b"3.1." => Self::row([304, 520, 40, 48, 64, 120, 12, 16], None,     Some(88)),
            b"3.2." => Self::row([304, 520, 48, 48, 64, 112, 12, 24], Some(40), Some(16)),
            b"3.3." | b"3.4." =>
                       Self::row([256, 384, 48, 48, 56, 112, 12, 24], Some(40), Some(24)),
            b"4.0." => Self::row([184, 320, 48, 48, 56, 112, 12, 24], Some(40), Some(24)),
            _ => return None,
        })
    }

    fn row(numbers: [u64; 8], native: Option<u64>, number: Option<u64>) -> Self {
        let [threads, running, context, thread, frame, lines, line, embedded] = numbers;
        Self { threads, running, context, native, number, thread, frame, lines, line, embedded }
    }
}

/// Offsets in bytes that all of these releases have.
mod at {
    /// `rb_vm_t`: the main ractor.
    pub const RACTOR: u64 = 32;
    /// `rb_execution_context_t`: the stack, its words, the innermost frame.
    pub const STACK: u64 = 0;
    pub const STACK_WORDS: u64 = 8;
    pub const FRAME: u64 = 16;
    /// `rb_control_frame_t`: the instruction, the code, the environment.
    pub const INSTRUCTION: u64 = 0;
    pub const CODE: u64 = 16;
    pub const ENVIRONMENT: u64 = 32;
    /// `rb_iseq_t.body`.
    pub const BODY: u64 = 16;
    /// `rb_iseq_constant_body`: words of instructions, those, the file, the name, the first line.
    pub const WORDS: u64 = 4;
    pub const INSTRUCTIONS: u64 = 8;
    pub const FILE: u64 = 64;
    pub const NAME: u64 = 80;
    pub const LINE: u64 = 88;
}

/// Marks a frame that the evaluator was called for, `VM_FRAME_FLAG_FINISH`.
const FINISH: u64 = 0x20;
/// The kind of a frame, and that of the one which a thread begins with: it executes nothing.
const KIND: u64 = 0x7fff_0001;
const DUMMY: u64 = 0x7999_0001;
/// Types of objects, in the lowest bits of their flags.
const TYPE: u64 = 0x1f;
const STRING: u64 = 0x05;
const ARRAY: u64 = 0x07;
/// Flags: a string whose characters are elsewhere; an array whose elements are its own.
const ELSEWHERE: u64 = 1 << 13;
const OWN: u64 = 1 << 13;
/// Most threads that are looked at.
const THREADS: usize = 1 << 12;
/// Functions that are remembered.
const MOST: usize = 1 << 16;

/// The virtual machine of a process.
#[derive(Debug)]
pub struct Process {
    machine: u64,
    layout: Layout,
    known: FxHashMap<u64, Code>,
}

/// A compiled method, block or file.
#[derive(Debug)]
struct Code {
    fields: [u64; 4],
    function: u32,
    lines: Lines,
}

impl Process {
    /// The virtual machine of a file whose addresses are `bias` less than those of the process.
    pub fn new(interpreter: &Interpreter, bias: u64) -> Self {
        let machine = interpreter.machine.wrapping_add(bias);
        Self { machine, layout: interpreter.layout, known: FxHashMap::default() }
    }

    /// The execution context of a thread.
    fn context(&self, who: &Who, memory: &mut dyn Memory) -> Option<u64> {
        let layout = &self.layout;
        let machine = memory.pointer(self.machine)?;
        let ractor = memory.pointer(machine.checked_add(at::RACTOR)?)?;
        let running = memory.word(ractor.checked_add(layout.running)?)?;
        if running != 0 {
            let thread = memory.pointer(running.checked_add(layout.thread)?)?;
            if self.is(thread, who, memory) {
                return Some(running);
            }
        }
        let list = ractor.checked_add(layout.threads)?;
        let mut thread = memory.pointer(list)?;
        for _ in 0..THREADS {
            // The list's links are what a thread begins with.
            if thread == list {
                break;
            }
            if self.is(thread, who, memory) {
                return memory.pointer(thread.checked_add(layout.context)?);
            }
            thread = memory.pointer(thread)?;
        }
        None
    }

    fn is(&self, thread: u64, who: &Who, memory: &mut dyn Memory) -> bool {
        let Some(number) = self.layout.number else { return who.first };
        let native = match self.layout.native {
            Some(native) => thread.checked_add(native).and_then(|at| memory.pointer(at)),
            None => Some(thread),
        };
        let its = native.and_then(|it| memory.half(it.checked_add(number)?));
        its == u32::try_from(who.number).ok() && its.is_some()
    }

    fn read(
        &mut self,
        context: u64,
        functions: &mut Functions,
        memory: &mut dyn Memory,
        frames: &mut Frames,
    ) -> Option<()> {
        let stack = memory.pointer(context.checked_add(at::STACK)?)?;
        let words = memory.word(context.checked_add(at::STACK_WORDS)?)?;
        let end = stack.checked_add(words.checked_mul(8)?)?;
        let mut frame = memory.pointer(context.checked_add(at::FRAME)?)?;
        // Methods in C have frames too.
        for _ in 0..2 * crate::interpreter::DEEPEST {
            if !(stack..end).contains(&frame) {
                break;
            }
            let code = memory.word(frame.checked_add(at::CODE)?)?;
            let environment = memory.pointer(frame.checked_add(at::ENVIRONMENT)?)?;
            let flags = memory.word(environment)?;
            let mut room = true;
            if code != 0 && flags & KIND != DUMMY {
                let instruction = memory.word(frame.checked_add(at::INSTRUCTION)?)?;
                if let Some(frame) = self.frame(code, instruction, functions, memory) {
                    room = frames.push(frame);
                }
            }
            if flags & FINISH != 0 {
                frames.end();
            }
            frame = frame.checked_add(self.layout.frame).filter(|_| room)?;
        }
        Some(())
    }

    /// The function and line of a frame; `None` where it has no code.
    fn frame(
        &mut self,
        code: u64,
        instruction: u64,
        functions: &mut Functions,
        memory: &mut dyn Memory,
    ) -> Option<Frame> {
        let body = memory.pointer(code.checked_add(at::BODY)?)?;
        let mut word = |offset: u64| memory.word(body.checked_add(offset)?);
        let fields = [word(at::INSTRUCTIONS)?, word(at::FILE)?, word(at::NAME)?, word(at::LINE)?];
        if self.known.get(&body).is_none_or(|known| known.fields != fields) {
            let [_, file, name, line] = fields;
            let name = self.string(name, memory)?.into();
            let file = self.path(file, memory)?.into();
            // Before 3.2 it is a number of Ruby's, whose lowest bit is set.
            let line = if self.layout.embedded == 16 { line as u32 >> 1 } else { line as u32 };
            let function =
                functions.number(Function { language: Language::Ruby, name, file, line });
            let table = body.checked_add(self.layout.lines)?;
            let words = memory.half(body.checked_add(at::WORDS)?)?;
            let lines = Lines::read(table, self.layout.line, words, memory).unwrap_or_default();
            keep(&mut self.known, MOST, body, Code { fields, function, lines });
        }
        let code = self.known.get(&body)?;
        // It points behind what is executed.
        let word = instruction.checked_sub(fields[0]).map(|bytes| (bytes / 8).saturating_sub(1));
        let line = word.and_then(|word| code.lines.at(word)).filter(|line| *line != 0);
        let first = functions.get(code.function)?.line;
        Some(Frame { function: code.function, line: line.unwrap_or(first) })
    }

    /// The text of a string.
    fn string(&self, address: u64, memory: &mut dyn Memory) -> Option<String> {
        let flags = memory.word(address)?;
        if flags & TYPE != STRING {
            return None;
        }
        let in_flags = self.layout.embedded == 16 && flags & ELSEWHERE == 0;
        let length = match in_flags {
            true => flags >> 14 & 0x1f,
            false => memory.word(address.checked_add(16)?)?,
        };
        let start = match flags & ELSEWHERE {
            0 => address.checked_add(self.layout.embedded)?,
            _ => memory.pointer(address.checked_add(24)?)?,
        };
        text(start, length, memory)
    }

    /// The path of a file: a string, or a pair of the path as it was given and the real one.
    fn path(&self, address: u64, memory: &mut dyn Memory) -> Option<String> {
        let flags = memory.word(address)?;
        if flags & TYPE != ARRAY {
            return self.string(address, memory);
        }
        let elements = match flags & OWN {
            0 => memory.pointer(address.checked_add(32)?)?,
            _ => address.checked_add(16)?,
        };
        let mut element = |index: u64| {
            let at = memory.pointer(elements.checked_add(8 * index)?)?;
            self.string(at, memory)
        };
        element(1).or_else(|| element(0))
    }
}

impl Reader for Process {
    fn stack(
        &mut self,
        thread: &Thread<'_>,
        functions: &mut Functions,
        memory: &mut dyn Memory,
    ) -> (Vec<Frame>, Vec<Activation>) {
        let who = &thread.who;
        let mut frames = Frames::default();
        // `None` is the chain's end, or something that cannot be read.
        if let Some(context) = self.context(who, memory) {
            let _ = self.read(context, functions, memory, &mut frames);
        }
        frames.finish()
    }
}

#[cfg(test)]
impl Interpreter {
    /// One of this release that is in no file.
    pub fn nowhere(version: &[u8]) -> Self {
        let layout = Layout::of(version).expect("a known release");
        Self { machine: 0x100, layout, evaluator: Vec::new() }
    }
}
