//! PHP's engine, Zend, of PHP 8.2 without threads.
//!
//! `executor_globals` has the innermost frame; each has its function, the instruction that it
//! executes and the frame that called it. The evaluator's address of the instruction is in a
//! register, and in the frame only when something is called that may want to know it.

pub mod counting;

use std::ops::Range;
use std::sync::Arc;

use object::read::ReadRef;
use rustc_hash::FxHashMap;

use crate::Memory;
use crate::file::File;
use crate::functions::{Frame, Function, Functions, Language, text};
use crate::interpreter::{Frames, Reader, Thread, keep};
use crate::merge::{Activation, R15};

/// Symbols that are looked for.
pub const NAMES: [&str; 2] = ["executor_globals", "execute_ex"];

/// A file that has the engine in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interpreter {
    globals: u64,
    /// `execute_ex`.
    pub evaluator: Vec<Range<u64>>,
}

impl Interpreter {
    /// The engine in `file`.
    pub fn of<'d, R: ReadRef<'d>>(file: &File<'d, R>) -> Option<Self> {
        let globals = file.at("executor_globals")?;
        let evaluator = file.functions(|name| name == "execute_ex" || name == "execute_ex.cold");
        file.at("execute_ex")?;
        // Offsets are those of one series.
        (file.behind(b"X-Powered-By: PHP/", 4)? == b"8.2.").then_some(Self { globals, evaluator })
    }
}

/// Offsets in bytes, from the headers of PHP 8.2 for x86-64.
mod at {
    /// `zend_executor_globals.current_execute_data`.
    pub const CURRENT: u64 = 488;
    /// `zend_execute_data`: the instruction, the call that is prepared, the function, the kind of
    /// call, the caller.
    pub const INSTRUCTION: u64 = 0;
    pub const PREPARED: u64 = 8;
    pub const FUNCTION: u64 = 24;
    pub const CALL: u64 = 40;
    pub const CALLER: u64 = 48;
    /// `zend_function`: its kind, flags, name and class.
    pub const KIND: u64 = 0;
    pub const FLAGS: u64 = 4;
    pub const NAME: u64 = 8;
    pub const CLASS: u64 = 16;
    /// `zend_op_array`: how many instructions, those, the file, the first line.
    pub const COUNT: u64 = 80;
    pub const INSTRUCTIONS: u64 = 88;
    pub const FILE: u64 = 152;
    pub const LINE: u64 = 160;
    /// `zend_op`: the line, and the whole.
    pub const LINE_OF_INSTRUCTION: u64 = 24;
    pub const INSTRUCTION_SIZE: u64 = 32;
    /// `zend_class_entry.name`.
    pub const CLASS_NAME: u64 = 8;
    /// `zend_string`: bytes, and where they begin.
    pub const LENGTH: u64 = 16;
    pub const TEXT: u64 = 24;
}

/// The place in a frame of the call that is prepared.
pub const PREPARED_AT: i32 = at::PREPARED as i32;
/// The place in a frame of its function.
pub const FUNCTION_AT: i32 = at::FUNCTION as i32;

/// `ZEND_CALL_TOP`: the evaluator was called for this frame.
const TOP: u32 = 1 << 17;
/// Kinds of functions.
const INTERNAL: u8 = 1;
const USER: u8 = 2;
const EVAL: u8 = 4;
/// Functions that are remembered.
const MOST: usize = 1 << 16;

/// The engine of a process.
#[derive(Debug)]
pub struct Process {
    globals: u64,
    known: FxHashMap<Identity, u32>,
}

/// Fields that tell whether an address still has the same function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Identity {
    address: u64,
    name: u64,
    class: u64,
    file: u64,
    line: u32,
}

impl Process {
    /// The engine of a file whose addresses are `bias` less than those of the process.
    pub fn new(interpreter: &Interpreter, bias: u64) -> Self {
        let globals = interpreter.globals.wrapping_add(bias);
        Self { globals, known: FxHashMap::default() }
    }

    fn read(
        &mut self,
        thread: &Thread<'_>,
        functions: &mut Functions,
        memory: &mut dyn Memory,
        frames: &mut Frames,
    ) -> Option<()> {
        // The innermost activation has the instruction in r15.
        let evaluator = thread.native.iter().find(|frame| frame.evaluator);
        let mut register = evaluator.and_then(|frame| frame.preserved[R15]);
        let mut at = memory.pointer(self.globals.checked_add(at::CURRENT)?)?;
        let mut room = true;
        // Between functions there are frames of calls that are none.
        for _ in 0..2 * crate::interpreter::DEEPEST {
            if let Some(function) = memory.pointer(at.checked_add(at::FUNCTION)?) {
                let kind = memory.byte(function.checked_add(at::KIND)?)?;
                let number = self.function(function, kind, functions, memory)?;
                let mut line = 0;
                if matches!(kind, USER | EVAL) {
                    line = line_of(at, function, register.take(), memory).unwrap_or(0);
                }
                let line = if line == 0 { functions.get(number)?.line } else { line };
                room = frames.push(Frame { function: number, line });
                let call = memory.half(at.checked_add(at::CALL)?)?;
                if kind != INTERNAL && call & TOP != 0 {
                    frames.end();
                }
            }
            at = memory.pointer(at.checked_add(at::CALLER)?).filter(|_| room)?;
        }
        Some(())
    }

    fn function(
        &mut self,
        address: u64,
        kind: u8,
        functions: &mut Functions,
        memory: &mut dyn Memory,
    ) -> Option<u32> {
        let identity = Identity::of(address, kind, memory)?;
        if let Some(&number) = self.known.get(&identity) {
            return Some(number);
        }
        let number = functions.number(described(&identity, memory)?);
        keep(&mut self.known, MOST, identity, number);
        Some(number)
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
        if thread.who.first {
            // `None` is the chain's end, or something that cannot be read.
            let _ = self.read(thread, functions, memory, &mut frames);
        }
        frames.finish()
    }
}

impl Identity {
    /// The fields of the function of this kind at an address.
    fn of(address: u64, kind: u8, memory: &mut dyn Memory) -> Option<Self> {
        let mut word = |offset: u64| memory.word(address.checked_add(offset)?);
        let (name, class) = (word(at::NAME)?, word(at::CLASS)?);
        let (file, line) = match kind {
            INTERNAL => (0, 0),
            USER | EVAL => (word(at::FILE)?, word(at::LINE)? as u32),
            _ => return None,
        };
        Some(Self { address, name, class, file, line })
    }

    /// Returns whether the function has a name: those of whole files have none.
    fn is_named(&self) -> bool {
        self.name != 0
    }
}

/// The function that has these fields.
fn described(it: &Identity, memory: &mut dyn Memory) -> Option<Function> {
    let file = match it.file {
        0 => "<internal>".to_owned(),
        file => string(file, memory)?,
    };
    let name = match it.name {
        0 => "{main}".to_owned(),
        name => string(name, memory)?,
    };
    let class = match it.class {
        0 => None,
        class => string(memory.pointer(class.checked_add(at::CLASS_NAME)?)?, memory),
    };
    let name = class.map_or_else(|| name.clone(), |class| format!("{class}::{name}"));
    let (name, file) = (Arc::from(name), Arc::from(file));
    Some(Function { language: Language::Php, name, file, line: it.line })
}

/// The name of a function without that of its class.
fn named(name: &str) -> &str {
    name.rsplit("::").next().unwrap_or_default()
}

/// The line of the instruction that a frame executes: the one in the register, if it is one of its
/// function's.
fn line_of(
    frame: u64,
    function: u64,
    register: Option<u64>,
    memory: &mut dyn Memory,
) -> Option<u32> {
    let first = memory.word(function.checked_add(at::INSTRUCTIONS)?)?;
    let count = memory.half(function.checked_add(at::COUNT)?)?;
    let end = first.checked_add(at::INSTRUCTION_SIZE * u64::from(count))?;
    let its = |at: &u64| (first..end).contains(at);
    let saved = memory.word(frame.checked_add(at::INSTRUCTION)?)?;
    let instruction = register.filter(its).or(Some(saved).filter(its))?;
    memory.half(instruction.checked_add(at::LINE_OF_INSTRUCTION)?)
}

fn string(address: u64, memory: &mut dyn Memory) -> Option<String> {
    let length = memory.word(address.checked_add(at::LENGTH)?)?;
    text(address.checked_add(at::TEXT)?, length, memory)
}

#[cfg(test)]
impl Interpreter {
    /// One that is in no file.
    pub fn nowhere() -> Self {
        Self { globals: 0x100, evaluator: Vec::new() }
    }
}
