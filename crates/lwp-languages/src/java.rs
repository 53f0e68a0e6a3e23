//! HotSpot's interpreted methods, of OpenJDK 17 and later.
//!
//! HotSpot describes its own layout for debuggers: tables of classes, fields and constants, which
//! `libjvm.so` exports (`layout`). An interpreted method's code is the interpreter's, which HotSpot
//! generates when it begins; its native frame has a frame pointer, and keeps the method and the
//! bytecode that it executes in fixed places below that. So each native frame of the interpreter
//! stands for one method.
//!
//! Promise: R111

mod layout;
mod lines;

use std::ops::Range;
use std::sync::Arc;

use object::read::ReadRef;
use rustc_hash::FxHashMap;

use self::layout::{Exports, Layout};
use crate::Memory;
use crate::file::File;
use crate::functions::{Frame, Function, Functions, Language, text};
use crate::interpreter::{DEEPEST, Reader, Thread, keep};
use crate::merge::{Activation, Native, R13, RBP};

pub use self::layout::NAMES;

/// A file that has the virtual machine in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interpreter {
    exports: Exports,
}

impl Interpreter {
    /// The virtual machine in `file`.
    pub fn of<'d, R: ReadRef<'d>>(file: &File<'d, R>) -> Option<Self> {
        Exports::of(file).map(|exports| Self { exports })
    }
}

/// Distances from the frame pointer down, in bytes, in the interpreter's frames on x86-64: the
/// method, and the bytecode where the interpreter has put it away.
const METHOD: u64 = 3 * 8;
const BYTECODE: u64 = 8 * 8;
/// Most bytes of the interpreter's code.
const LARGEST: u64 = 1 << 24;
/// Methods that are remembered.
const MOST: usize = 1 << 16;
/// Most samples between two attempts to read the description, as a power of two.
const PATIENCE: u32 = 12;

/// The virtual machine of a process.
#[derive(Debug)]
pub struct Process {
    exports: Exports,
    bias: u64,
    layout: Option<Layout>,
    /// Attempts at the layout that have failed, and samples until the next one.
    failed: u32,
    wait: u32,
    known: FxHashMap<u64, Code>,
}

/// Fields that tell whether an address still has the same method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    constant: u64,
    pool: u64,
    holder: u64,
    name: u64,
}

/// A method.
#[derive(Debug)]
struct Code {
    identity: Identity,
    function: u32,
    /// Addresses of its bytecodes.
    bytecodes: Range<u64>,
    /// Indexes of bytecodes and the lines that begin there, in order.
    lines: Vec<(u32, u32)>,
}

impl Process {
    /// The virtual machine of a file whose addresses are `bias` less than those of the process.
    pub fn new(interpreter: &Interpreter, bias: u64) -> Self {
        Self {
            exports: interpreter.exports.clone(),
            bias,
            layout: None,
            failed: 0,
            wait: 0,
            known: FxHashMap::default(),
        }
    }

    /// The layout, and the addresses of the interpreter's code, once they can be read.
    fn interpreter(&mut self, memory: &mut dyn Memory) -> Option<(Layout, Range<u64>)> {
        if self.layout.is_none() {
            if self.wait > 0 {
                self.wait -= 1;
                return None;
            }
            self.layout = Layout::read(&self.exports, self.bias, memory);
            if self.layout.is_none() {
                self.wait = 1 << self.failed;
                self.failed = (self.failed + 1).min(PATIENCE);
            }
        }
        let layout = self.layout.clone()?;
        let queue = memory.pointer(layout.code)?;
        let start = memory.pointer(queue.checked_add(layout.buffer)?)?;
        let size = u64::from(memory.half(queue.checked_add(layout.buffer_size)?)?);
        let end = start.checked_add(size).filter(|_| size <= LARGEST)?;
        Some((layout, start..end))
    }

    /// The method that a frame of the interpreter executes, and its line.
    fn frame(
        &mut self,
        layout: &Layout,
        native: &Native,
        functions: &mut Functions,
        memory: &mut dyn Memory,
    ) -> Option<Frame> {
        let base = native.preserved[RBP]?;
        // What lies below the stack pointer has not been put there yet.
        let place = |distance: u64| base.checked_sub(distance).filter(|at| *at >= native.sp);
        let method = memory.pointer(place(METHOD)?)?;
        let code = self.code(layout, method, functions, memory)?;
        let saved = place(BYTECODE).and_then(|at| memory.word(at));
        // While it interprets, the bytecode is in r13.
        let its = |at: &u64| code.bytecodes.contains(at);
        let bytecode = native.preserved[R13].filter(its).or(saved.filter(its));
        let index = bytecode.map_or(0, |at| at - code.bytecodes.start);
        let after = code.lines.partition_point(|(from, _)| u64::from(*from) <= index);
        let line = after.checked_sub(1).and_then(|at| code.lines.get(at)).map(|(_, line)| *line);
        let first = functions.get(code.function)?.line;
        Some(Frame { function: code.function, line: line.unwrap_or(first) })
    }

    /// The method at an address.
    fn code(
        &mut self,
        layout: &Layout,
        method: u64,
        functions: &mut Functions,
        memory: &mut dyn Memory,
    ) -> Option<&Code> {
        let identity = identity(layout, method, memory)?;
        if self.known.get(&method).is_none_or(|known| known.identity != identity) {
            let code = read(layout, identity, functions, memory)?;
            keep(&mut self.known, MOST, method, code);
        }
        self.known.get(&method)
    }
}

impl Reader for Process {
    fn stack(
        &mut self,
        thread: &Thread<'_>,
        functions: &mut Functions,
        memory: &mut dyn Memory,
    ) -> (Vec<Frame>, Vec<Activation>) {
        let mut frames = Vec::new();
        let mut activations = Vec::new();
        // Before code has been generated there is no interpreter, and perhaps no description yet.
        if !thread.native.iter().any(|frame| frame.generated) {
            return (frames, activations);
        }
        let Some((layout, code)) = self.interpreter(memory) else { return (frames, activations) };
        let its = |frame: &&Native| frame.generated && code.contains(&frame.place);
        for native in thread.native.iter().filter(its).take(DEEPEST) {
            let Some(frame) = self.frame(&layout, native, functions, memory) else { continue };
            let at = frames.len();
            frames.push(frame);
            activations.push(Activation { anchor: Some(native.sp), frames: at..at + 1 });
        }
        (frames, activations)
    }
}

/// Reads whether a method is at an address, and which; its class leads back to its constants.
fn identity(layout: &Layout, method: u64, memory: &mut dyn Memory) -> Option<Identity> {
    let constant = memory.pointer(method.checked_add(layout.constant)?)?;
    let pool = memory.pointer(constant.checked_add(layout.pool)?)?;
    let holder = memory.pointer(pool.checked_add(layout.holder)?)?;
    if memory.word(holder.checked_add(layout.holder_pool)?)? != pool {
        return None;
    }
    let name = constant_name(layout, pool, constant.checked_add(layout.name)?, memory)?;
    Some(Identity { constant, pool, holder, name })
}

/// The name in the constants whose index is the two bytes at `at`.
fn constant_name(layout: &Layout, pool: u64, at: u64, memory: &mut dyn Memory) -> Option<u64> {
    let index = u64::from(memory.short(at)?);
    let count = memory.half(pool.checked_add(layout.pool_length)?)?;
    if index == 0 || index >= u64::from(count) {
        return None;
    }
    memory.pointer(pool.checked_add(layout.pool_size)?.checked_add(8 * index)?)
}

/// The text of a name.
fn symbol(layout: &Layout, at: u64, memory: &mut dyn Memory) -> Option<String> {
    let length = memory.short(at.checked_add(layout.symbol_length)?)?;
    text(at.checked_add(layout.symbol_text)?, u64::from(length), memory)
}

/// Reads a method that has not been met yet.
fn read(
    layout: &Layout,
    identity: Identity,
    functions: &mut Functions,
    memory: &mut dyn Memory,
) -> Option<Code> {
    let Identity { constant, pool, holder, name } = identity;
    let class = memory.pointer(holder.checked_add(layout.class_name)?)?;
    let class = symbol(layout, class, memory)?;
    // A hidden class has its address behind its name, which no other run has.
    let class = class.split("+0x").next().unwrap_or_default();
    let name = format!("{}.{}", class.replace('/', "."), symbol(layout, name, memory)?);
    let source = constant_name(layout, pool, pool.checked_add(layout.source)?, memory);
    let source = source.and_then(|at| symbol(layout, at, memory));
    // A source file has the place in its tree that its package says; without one, the class
    // stands for it.
    let file = match (source, class.rsplit_once('/')) {
        (Some(source), Some((package, _))) => format!("{package}/{source}"),
        (Some(source), None) => source,
        (None, _) => class.to_owned(),
    };
    let size = u64::from(memory.short(constant.checked_add(layout.code_size)?)?);
    let start = constant.checked_add(layout.constant_size)?;
    let bytecodes = start..start.checked_add(size)?;
    let lines = lines::read(layout, constant, bytecodes.end, memory);
    let line = lines.iter().map(|(_, line)| *line).min().unwrap_or(0);
    let (name, file) = (Arc::from(name), Arc::from(file));
    let function = functions.number(Function { language: Language::Java, name, file, line });
    Some(Code { identity, function, bytecodes, lines })
}

#[cfg(test)]
impl Interpreter {
    /// One that is in no file.
    pub fn nowhere() -> Self {
        Self { exports: Exports::nowhere() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory in which small addresses lead to small addresses, differently for each seed; a few
    /// cannot be read.
    struct Maze(u64);

    impl Memory for Maze {
        fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
            for (at, byte) in (address..).zip(bytes.iter_mut()) {
                let mixed = (at >> 3 ^ self.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                *byte = if at & 7 == 0 { (mixed >> 24) as u8 & 0x18 } else { 0 };
            }
            address % 97 != self.0 % 97
        }
    }

    #[test]
    fn no_memory_makes_a_described_machine_hang_or_panic() {
        let mut met = 0;
        for seed in 0..5000u64 {
            let mut process = Process::new(&Interpreter::nowhere(), 0);
            let any = |number: u64| 8 * (seed.wrapping_mul(number) % 5);
            let layout = Layout {
                constant: any(11),
                pool: any(13),
                code_size: any(17),
                name: any(19),
                holder: any(23),
                pool_length: any(29),
                source: any(31),
                holder_pool: any(37),
                class_name: any(41),
                symbol_length: any(43),
                has_lines: 0x18,
                release: if seed % 2 == 0 { 17 } else { 25 },
                ..Layout::default()
            };
            let mut functions = Functions::default();
            for at in 0..8 {
                let preserved = [None, Some(0x40 + 8 * at), None, Some(at), None, None];
                let native = Native {
                    place: at,
                    generated: true,
                    sp: 0,
                    evaluator: false,
                    preserved,
                    rdx: None,
                };
                let memory = &mut Maze(seed);
                let Some(frame) = process.frame(&layout, &native, &mut functions, memory) else {
                    continue;
                };
                assert!(functions.get(frame.function).is_some());
                met += 1;
            }
        }
        assert!(met > 10, "{met}");
    }
}
