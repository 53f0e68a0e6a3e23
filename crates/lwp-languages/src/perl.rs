//! Perl 5.36 with interpreter threads, as distributions build it.
//!
//! `PL_curinterp` is the interpreter of the first thread. It has the statement that is executed and
//! a chain of stacks of contexts: each call of a subroutine is one, and keeps the statement that it
//! was called from. A call without an operation to return to was made by C code, through an
//! evaluator of its own.

mod steps;

use std::ops::Range;
use std::sync::Arc;

use object::read::ReadRef;
use rustc_hash::FxHashMap;

use crate::Memory;
use crate::file::File;
use crate::functions::{Frame, Function, Functions, Language, text, text_to_zero};
use crate::gather::{Fact, Steps};
use crate::interpreter::{Frames, Reader, Thread, Who, keep};
use crate::merge::Activation;

/// Symbols that are looked for.
pub const NAMES: [&str; 5] =
    ["PL_curinterp", "PL_thr_key", "PL_version", "Perl_runops_standard", "Perl_runops_debug"];

/// A file that has the interpreter in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interpreter {
    current: u64,
    /// `Perl_runops_standard` and `Perl_runops_debug`.
    pub evaluator: Vec<Range<u64>>,
}

impl Interpreter {
    /// The interpreter in `file`.
    pub fn of<'d, R: ReadRef<'d>>(file: &File<'d, R>) -> Option<Self> {
        let current = file.at("PL_curinterp")?;
        let threads = file.at("PL_thr_key").is_some();
        let evaluators = ["Perl_runops_standard", "Perl_runops_debug"].map(|name| file.range(name));
        let evaluator = evaluators.into_iter().flatten().collect();
        // Offsets are those of one series.
        (threads && file.byte("PL_version")? == 36).then_some(Self { current, evaluator })
    }
}

/// Offsets in bytes, from the headers of Perl 5.36 for x86-64, with threads.
mod at {
    /// `PerlInterpreter`: the statement that is executed, the stack of contexts.
    pub const STATEMENT: u64 = 208;
    pub const STACK: u64 = 224;
    /// `PERL_SI`: contexts, the stack before, the index of the innermost context.
    pub const CONTEXTS: u64 = 8;
    pub const BEFORE: u64 = 16;
    pub const INDEX: u64 = 32;
    /// `PERL_CONTEXT`: in its upper half, the operation it was entered by, shifted; the statement
    /// it was entered from, the operation to return to, the subroutine, the whole.
    pub const OLD_OPERATION: u64 = 0;
    pub const FROM: u64 = 16;
    pub const RETURN: u64 = 48;
    pub const CODE: u64 = 72;
    pub const CONTEXT_SIZE: u64 = 104;
    /// `OP.op_type`; `COP`: line and file.
    pub const OPERATION: u64 = 32;
    pub const LINE: u64 = 36;
    pub const FILE: u64 = 48;
    /// `SV`: the body, flags; `HV`: what stands behind its array.
    pub const BODY: u64 = 0;
    pub const FLAGS: u64 = 12;
    /// `XPVCV`: package, first operation, name or glob, file, flags.
    pub const PACKAGE: u64 = 32;
    pub const START: u64 = 40;
    pub const GLOB: u64 = 56;
    pub const CODE_FLAGS: u64 = 92;
    /// `XPVGV`: name, package.
    pub const GLOB_NAME: u64 = 32;
    pub const GLOB_PACKAGE: u64 = 40;
    /// `xpvhv_with_aux`: the name, and how many names.
    pub const PACKAGE_NAME: u64 = 32;
    pub const PACKAGE_NAMES: u64 = 60;
    /// `HEK`: bytes, and where they begin.
    pub const LENGTH: u64 = 4;
    pub const TEXT: u64 = 8;
}

/// Kinds of contexts.
const SUB: u8 = 9;
const FORMAT: u8 = 10;
const EVAL: u8 = 11;
/// Of an `EVAL`: a block, not a text or a file.
const BLOCK: u8 = 0x40 | 0x80;
/// `OP_NEXTSTATE` and `OP_DBSTATE`: statements.
const STATEMENTS: [u16; 2] = [195, 196];
/// `OP_ENTEREVAL`: a text is evaluated, and no file.
const ENTER_EVAL: u32 = 345;
/// `SVt_PVCV`, `SVt_PVGV` and `SVt_PVHV`, in the lowest bits of flags.
const TYPE: u32 = 0xff;
const TYPE_GLOB: u32 = 9;
const TYPE_HASH: u32 = 12;
const TYPE_CODE: u32 = 13;
/// `SVf_OOK`: a hash has a name.
const NAMED_HASH: u32 = 0x200_0000;
/// `CVf_NAMED`: a subroutine has its name itself.
const NAMED: u32 = 0x8000;
/// Most stacks of contexts, and contexts of each.
const STACKS: usize = 256;
const CONTEXTS: u64 = 1 << 16;
/// Functions that are remembered.
const MOST: usize = 1 << 16;

/// The interpreter of a process.
#[derive(Debug)]
pub struct Process {
    current: u64,
    known: FxHashMap<(u64, u64, u64), u32>,
    files: FxHashMap<u64, Arc<str>>,
    facts: Vec<Fact>,
}

/// A statement's place.
#[derive(Clone, Debug)]
struct Place {
    file: Arc<str>,
    line: u32,
}

impl Process {
    /// The interpreter of a file whose addresses are `bias` less than those of the process.
    pub fn new(interpreter: &Interpreter, bias: u64) -> Self {
        let current = interpreter.current.wrapping_add(bias);
        let (known, files) = Default::default();
        Self { current, known, files, facts: Vec::new() }
    }

    fn read(
        &mut self,
        functions: &mut Functions,
        memory: &mut dyn Memory,
        frames: &mut Frames,
    ) -> Option<()> {
        let interpreter = memory.pointer(self.current)?;
        let mut statement = memory.pointer(interpreter.checked_add(at::STATEMENT)?)?;
        let mut stack = memory.pointer(interpreter.checked_add(at::STACK)?)?;
        for _ in 0..STACKS {
            let contexts = memory.pointer(stack.checked_add(at::CONTEXTS)?)?;
            let index = memory.half(stack.checked_add(at::INDEX)?)?.cast_signed();
            let count = u64::try_from(i64::from(index) + 1).ok().filter(|it| *it < CONTEXTS)?;
            for index in (0..count).rev() {
                let context = contexts.checked_add(index * at::CONTEXT_SIZE)?;
                let kind = memory.byte(context)?;
                let place = match kind & 0xf {
                    SUB | FORMAT => self.place(statement, memory)?,
                    EVAL if kind & BLOCK == 0 => self.place(statement, memory)?,
                    _ => continue,
                };
                let number = match kind & 0xf {
                    EVAL => {
                        let by = memory.half(context.checked_add(at::OLD_OPERATION)?)? >> 23;
                        functions.number(text_of(by, &place))
                    }
                    _ => {
                        let code = memory.pointer(context.checked_add(at::CODE)?)?;
                        self.function(code, &place, functions, memory)?
                    }
                };
                // A function that has only just been called has not begun its first statement.
                let from = memory.pointer(context.checked_add(at::FROM)?)?;
                let begun = from != statement;
                let line = if begun { place.line } else { functions.get(number)?.line };
                let room = frames.push(Frame { function: number, line });
                if memory.word(context.checked_add(at::RETURN)?)? == 0 {
                    frames.end();
                }
                statement = Some(from).filter(|_| room)?;
            }
            match memory.pointer(stack.checked_add(at::BEFORE)?) {
                Some(before) => stack = before,
                None => break,
            }
            frames.end();
        }
        let place = self.place(statement, memory)?;
        let function = functions.number(text_function("(main)", &place));
        frames.push(Frame { function, line: place.line });
        Some(())
    }

    /// The place of a statement.
    fn place(&mut self, statement: u64, memory: &mut dyn Memory) -> Option<Place> {
        let line = memory.half(statement.checked_add(at::LINE)?)?;
        let file = memory.pointer(statement.checked_add(at::FILE)?)?;
        let file = match self.files.get(&file) {
            Some(known) => Arc::clone(known),
            None => {
                let name: Arc<str> = text_to_zero(file, memory).filter(|it| !it.is_empty())?.into();
                self.files.insert(file, Arc::clone(&name));
                name
            }
        };
        Some(Place { file, line })
    }

    /// The function of a subroutine, which executes `place`.
    fn function(
        &mut self,
        code: u64,
        place: &Place,
        functions: &mut Functions,
        memory: &mut dyn Memory,
    ) -> Option<u32> {
        let (name, start) = described(code, memory)?;
        // A subroutine's name and first statement tell that it is still the same.
        let identity = (code, name, start);
        self.facts.push([code, name, start, 0, 0, 0]);
        if let Some(&number) = self.known.get(&identity) {
            return Some(number);
        }
        let file = Arc::clone(&place.file);
        let line = first_line(start, memory).unwrap_or(place.line);
        let name = name_of(code, memory).unwrap_or_else(|| "__ANON__".to_owned()).into();
        let number = functions.number(Function { language: Language::Perl, name, file, line });
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
        let who = &thread.who;
        let mut frames = Frames::default();
        // Names of files are freed when a text has been evaluated.
        self.files.clear();
        self.facts.clear();
        if who.first {
            // `None` is the chain's end, or something that cannot be read.
            let _ = self.read(functions, memory, &mut frames);
        }
        frames.finish()
    }

    fn steps(&self, who: &Who) -> Option<Steps> {
        who.first.then(|| steps::steps(self.current))
    }

    fn facts(&self) -> &[Fact] {
        &self.facts
    }
}

/// The function that stands for the statements of a text or file, entered by this operation.
fn text_of(operation: u32, place: &Place) -> Function {
    text_function(if operation == ENTER_EVAL { "(eval)" } else { "(require)" }, place)
}

fn text_function(name: &str, place: &Place) -> Function {
    let file = Arc::clone(&place.file);
    Function { language: Language::Perl, name: name.into(), file, line: 1 }
}

/// The line of the first statement from an operation on.
fn first_line(start: u64, memory: &mut dyn Memory) -> Option<u32> {
    let mut at = start;
    for _ in 0..8 {
        let kind = memory.half(at.checked_add(at::OPERATION)?)? as u16 & 0x1ff;
        if STATEMENTS.contains(&kind) {
            return memory.half(at.checked_add(at::LINE)?);
        }
        at = memory.pointer(at)?;
    }
    None
}

/// The body of what is at `address`, which must be of this type.
fn body(address: u64, kind: u32, memory: &mut dyn Memory) -> Option<u64> {
    let flags = memory.half(address.checked_add(at::FLAGS)?)?;
    let body = memory.pointer(address.checked_add(at::BODY)?)?;
    (flags & TYPE == kind).then_some(body)
}

/// A subroutine's name or glob, and its first operation.
fn described(code: u64, memory: &mut dyn Memory) -> Option<(u64, u64)> {
    let body = body(code, TYPE_CODE, memory)?;
    let name = memory.word(body.checked_add(at::GLOB)?)?;
    Some((name, memory.word(body.checked_add(at::START)?)?))
}

/// The name of a subroutine, behind its package.
fn name_of(code: u64, memory: &mut dyn Memory) -> Option<String> {
    let of_code = body(code, TYPE_CODE, memory)?;
    let flags = memory.half(of_code.checked_add(at::CODE_FLAGS)?)?;
    let named = memory.pointer(of_code.checked_add(at::GLOB)?)?;
    let (name, package) = if flags & NAMED != 0 {
        (named, memory.word(of_code.checked_add(at::PACKAGE)?)?)
    } else {
        let glob = body(named, TYPE_GLOB, memory)?;
        let name = memory.pointer(glob.checked_add(at::GLOB_NAME)?)?;
        (name, memory.word(glob.checked_add(at::GLOB_PACKAGE)?)?)
    };
    let name = key(name, memory)?;
    match package_name(package, memory) {
        Some(package) => Some(format!("{package}::{name}")),
        None => Some(name),
    }
}

fn package_name(package: u64, memory: &mut dyn Memory) -> Option<String> {
    let hash = body(package, TYPE_HASH, memory)?;
    let flags = memory.half(package.checked_add(at::FLAGS)?)?;
    if flags & NAMED_HASH == 0 {
        return None;
    }
    let mut name = memory.pointer(hash.checked_add(at::PACKAGE_NAME)?)?;
    if memory.half(hash.checked_add(at::PACKAGE_NAMES)?)? != 0 {
        // Several names: a list of them.
        name = memory.pointer(name)?;
    }
    key(name, memory)
}

/// The text of a `HEK`.
fn key(address: u64, memory: &mut dyn Memory) -> Option<String> {
    let length = memory.half(address.checked_add(at::LENGTH)?)?;
    text(address.checked_add(at::TEXT)?, u64::from(length), memory)
}

#[cfg(test)]
impl Interpreter {
    /// One that is in no file.
    pub fn nowhere() -> Self {
        Self { current: 0x100, evaluator: Vec::new() }
    }
}
