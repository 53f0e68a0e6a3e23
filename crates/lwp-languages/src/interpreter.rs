//! The interpreters that are known, behind one face.
//!
//! Promise: R85

use std::fmt::Debug;
use std::fs::File as SystemFile;
use std::hash::Hash;
use std::ops::Range;
use std::path::Path;

use object::read::{ReadCache, ReadRef};
use rustc_hash::FxHashMap;

use crate::file::File;
use crate::functions::{Frame, Functions, Language};
use crate::gather::{Fact, Steps};
use crate::merge::{Activation, Native};
use crate::{Memory, java, lua, luajit, perl, php, python, ruby};

/// A file that has an interpreter in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interpreter {
    /// CPython.
    Python(python::Interpreter),
    /// Ruby's virtual machine.
    Ruby(ruby::Interpreter),
    /// PHP's engine.
    Php(php::Interpreter),
    /// Perl.
    Perl(perl::Interpreter),
    /// Lua.
    Lua(lua::Interpreter),
    /// LuaJIT.
    LuaJit(luajit::Interpreter),
    /// HotSpot.
    Java(java::Interpreter),
}

impl Interpreter {
    /// The interpreter in the file at `path`, of one of these `languages`.
    pub fn open(path: &Path, languages: &[Language]) -> Option<Self> {
        let file = SystemFile::open(path).ok()?;
        Self::of(&ReadCache::new(file), languages)
    }

    /// The interpreter in an ELF file; `None` where there is none, or one that is not known.
    pub fn of<'a>(data: impl ReadRef<'a>, languages: &[Language]) -> Option<Self> {
        let names = [
            &python::NAMES[..],
            &ruby::NAMES,
            &php::NAMES,
            &perl::NAMES,
            &lua::NAMES,
            &luajit::NAMES,
            &java::NAMES,
        ];
        let file = File::parse(data, &names)?;
        languages.iter().find_map(|language| match language {
            Language::Python => python::Interpreter::of(&file).map(Self::Python),
            Language::Ruby => ruby::Interpreter::of(&file).map(Self::Ruby),
            Language::Php => php::Interpreter::of(&file).map(Self::Php),
            Language::Perl => perl::Interpreter::of(&file).map(Self::Perl),
            Language::Lua => lua::Interpreter::of(&file)
                .map(Self::Lua)
                .or_else(|| luajit::Interpreter::of(&file).map(Self::LuaJit)),
            Language::Java => java::Interpreter::of(&file).map(Self::Java),
        })
    }

    /// Returns whether the evaluator is at a file's `address`.
    pub fn evaluates(&self, address: u64) -> bool {
        self.evaluator().iter().any(|part| part.contains(&address))
    }

    /// The evaluator's parts, as far as they are known.
    pub fn evaluator(&self) -> &[Range<u64>] {
        match self {
            Self::Python(it) => &it.evaluator,
            Self::Ruby(it) => &it.evaluator,
            Self::Php(it) => &it.evaluator,
            Self::Perl(it) => &it.evaluator,
            Self::Lua(it) => &it.evaluator,
            Self::LuaJit(it) => &it.evaluator,
            // It is generated when the program begins.
            Self::Java(_) => &[],
        }
    }
}

/// A thread, as the interpreter may know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Who {
    /// The kernel's number, as the process itself sees it.
    pub number: i32,
    /// It is the one that the process began with.
    pub first: bool,
}

/// A thread that stands still.
#[derive(Clone, Copy, Debug)]
pub struct Thread<'a> {
    /// The thread.
    pub who: Who,
    /// Its native frames, innermost first.
    pub native: &'a [Native],
    /// They lead to where the thread began.
    pub complete: bool,
}

/// The interpreter of a process.
#[derive(Debug)]
pub struct Process {
    interpreter: Interpreter,
    bias: u64,
    reader: Box<dyn Reader>,
}

/// The knowledge of one process that reading its threads' frames takes.
pub trait Reader: Debug + Send {
    /// Reads the frames of a thread, as [`Process::stack`] does.
    fn stack(
        &mut self,
        thread: &Thread<'_>,
        functions: &mut Functions,
        memory: &mut dyn Memory,
    ) -> (Vec<Frame>, Vec<Activation>);

    /// Steps that copy what [`stack`](Self::stack) reads of `who`; `None` where there are none, or
    /// the thread has not been read yet.
    fn steps(&self, who: &Who) -> Option<Steps> {
        let _ = who;
        None
    }

    /// The facts of the functions that were read last; the steps ask for them.
    fn facts(&self) -> &[Fact] {
        &[]
    }
}

impl Process {
    /// The interpreter of a file whose addresses are `bias` less than those of the process.
    pub fn new(interpreter: Interpreter, bias: u64) -> Self {
        let reader: Box<dyn Reader> = match &interpreter {
            Interpreter::Python(it) => Box::new(python::Process::new(it, bias)),
            Interpreter::Ruby(it) => Box::new(ruby::Process::new(it, bias)),
            Interpreter::Php(it) => Box::new(php::Process::new(it, bias)),
            Interpreter::Perl(it) => Box::new(perl::Process::new(it, bias)),
            Interpreter::Lua(it) => Box::new(lua::Process::new(it)),
            Interpreter::LuaJit(_) => Box::new(luajit::Process::default()),
            Interpreter::Java(it) => Box::new(java::Process::new(it, bias)),
        };
        Self { interpreter, bias, reader }
    }

    /// Returns whether this is the interpreter of a file that is mapped so.
    pub fn is(&self, interpreter: &Interpreter, bias: u64) -> bool {
        self.bias == bias && self.interpreter == *interpreter
    }

    /// Reads the frames of a thread, innermost first, and which of them each activation of the
    /// evaluator executes. There are none where the thread executes nothing, or the interpreter is
    /// not understood.
    pub fn stack(
        &mut self,
        thread: &Thread<'_>,
        functions: &mut Functions,
        memory: &mut dyn Memory,
    ) -> (Vec<Frame>, Vec<Activation>) {
        // Without an evaluator on the stack nothing is executed, whatever is prepared for it.
        let idle = thread.complete && !thread.native.iter().any(|frame| frame.evaluator);
        if idle && !self.interpreter.evaluator().is_empty() {
            return Default::default();
        }
        self.reader.stack(thread, functions, memory)
    }

    /// Steps that copy what is read of a thread, and the facts of the frames that were read last;
    /// see [`Reader::steps`].
    pub fn gather(&self, who: &Who) -> Option<(Steps, &[Fact])> {
        Some((self.reader.steps(who)?, self.reader.facts()))
    }
}

/// Most frames of a thread; those further out are left out.
pub const DEEPEST: usize = 1024;

/// The frames of a thread while they are read.
#[derive(Debug, Default)]
pub struct Frames {
    frames: Vec<Frame>,
    activations: Vec<Activation>,
    first: usize,
}

impl Frames {
    /// Takes the next frame outwards in. Returns whether there is room for more.
    pub fn push(&mut self, frame: Frame) -> bool {
        self.frames.push(frame);
        self.frames.len() < DEEPEST
    }

    /// Ends what an activation of the evaluator executes.
    pub fn end(&mut self) {
        let frames = self.first..self.frames.len();
        self.first = frames.end;
        if !frames.is_empty() {
            self.activations.push(Activation { anchor: None, frames });
        }
    }

    /// Frames, innermost first, and activations.
    pub fn finish(mut self) -> (Vec<Frame>, Vec<Activation>) {
        self.end();
        (self.frames, self.activations)
    }
}

/// Keeps what has been found out about `key`. Of more than `most` everything is forgotten, to be
/// found out again.
pub(crate) fn keep<K: Eq + Hash, V>(known: &mut FxHashMap<K, V>, most: usize, key: K, value: V) {
    if known.len() >= most {
        known.clear();
    }
    known.insert(key, value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gather::tests::{Copied, follow};

    /// Memory in which every word leads somewhere else, and nothing ends.
    struct Maze(u64);

    impl Memory for Maze {
        fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
            for (at, byte) in (address..).zip(bytes.iter_mut()) {
                let mixed = (at >> 3 ^ self.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                // Small addresses, so that chains meet again; of Lua's, none is so small.
                let low = (mixed >> (8 * (at & 1) + 24)) as u8;
                *byte = match at & 7 {
                    0 => low & !7,
                    1 => low,
                    2 if self.0.is_multiple_of(3) => 1,
                    _ => 0,
                };
            }
            address % 7 != self.0 % 7
        }
    }

    /// Every byte is the same.
    struct Loop(u8);

    impl Memory for Loop {
        fn read(&mut self, _: u64, bytes: &mut [u8]) -> bool {
            bytes.fill(self.0);
            true
        }
    }

    fn all() -> Vec<Interpreter> {
        let mut all = vec![
            Interpreter::Php(php::Interpreter::nowhere()),
            Interpreter::Perl(perl::Interpreter::nowhere()),
            Interpreter::Java(java::Interpreter::nowhere()),
            Interpreter::LuaJit(luajit::Interpreter { evaluator: Vec::new() }),
        ];
        all.extend(lua::Interpreter::nowhere().map(Interpreter::Lua));
        let versions = [b"3.0.", b"3.1.", b"3.2.", b"3.4.", b"4.0."];
        all.extend(versions.map(|it| Interpreter::Ruby(ruby::Interpreter::nowhere(it))));
        all
    }

    fn read(interpreter: Interpreter, seed: u64, memory: &mut dyn Memory) {
        let mut process = Process::new(interpreter, 0);
        let mut functions = Functions::default();
        let frame = |at: u64| Native {
            place: seed * at,
            generated: true,
            sp: 0x1_0000 + 0x800 * at,
            evaluator: at.is_multiple_of(2),
            preserved: [Some(0x1_0000 + 8 * seed), None, Some(seed), None, Some(8 * at), Some(16)],
            rdx: Some(8 * seed),
        };
        let native: Vec<Native> = (0..40).map(frame).collect();
        let who = Who { number: (seed % 5) as i32, first: true };
        let thread = Thread { who, native: &native, complete: seed.is_multiple_of(2) };
        let (frames, activations) = process.stack(&thread, &mut functions, memory);
        // Lua's states have their own frames each.
        assert!(frames.len() <= 16 * DEEPEST);
        assert!(frames.iter().all(|frame| functions.get(frame.function).is_some()));
        assert!(activations.iter().all(|it| it.frames.end <= frames.len()));
    }

    /// Words at random, many of which lead to others.
    struct World(Vec<u64>);

    impl World {
        const START: u64 = 0x1000;
        const WORDS: u64 = 0x400;
        /// The word that a code object begins with, and a thread's number.
        const CODE: u64 = 0x1008;
        const NUMBER: i32 = 0x1010;
        /// Places of code objects of Python, which have the string at the next place as their names.
        const CODES: [u64; 3] = [0x2000, 0x2100, 0x2200];
        const STRING: u64 = 0x2300;

        fn new(seed: u64) -> Self {
            let word = |at: u64| {
                let mixed = (at ^ seed << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let one_of = |words: [u64; 4]| words[(mixed >> 50) as usize & 3];
                match mixed >> 60 {
                    0..=2 => 0,
                    3..=7 => one_of([Self::CODES[0], Self::CODES[1], Self::CODES[2], 0x2004]),
                    // Kinds of contexts, owners of frames, types, and an index.
                    8..=10 => one_of([9, 11, 0x100_0000_000d, 0xffff_ffff]),
                    _ => Self::START + (mixed >> 40) % Self::WORDS * 8,
                }
            };
            Self((0..Self::WORDS).map(word).collect())
        }

        fn set(&mut self, address: u64, word: u64) {
            self.0[((address - Self::START) / 8) as usize] = word;
        }

        /// Lets CPython with its state at the world's start know one thread, and some functions.
        fn add_python(&mut self, layout: &python::layout::Layout) {
            let [interpreter, thread, descriptor] =
                [0x600, 0x800, 0xc00].map(|at| Self::START + at);
            self.set(Self::START + layout.interpreters, interpreter);
            self.set(interpreter + layout.interpreter.threads, thread);
            self.set(interpreter + layout.interpreter.next, 0);
            self.set(thread + layout.thread.interpreter, interpreter);
            self.set(thread + layout.thread.pthread, descriptor);
            self.set(descriptor + 720, Self::NUMBER as u64);
            layout.thread.native.into_iter().for_each(|at| {
                self.set(thread + at, Self::NUMBER as u64);
            });
            for code in Self::CODES {
                self.set(code + layout.head - 8, Self::CODE);
                self.set(code + layout.code.file, Self::STRING);
                self.set(code + layout.code.name, Self::STRING);
            }
            // Four characters of ASCII.
            self.set(Self::STRING + layout.head, 4);
            self.set(Self::STRING + layout.head + 16, 0x64);
        }
    }

    impl Memory for World {
        fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
            bytes.iter_mut().zip(address..).all(|(byte, at)| {
                let offset = at.wrapping_sub(Self::START);
                let word = self.0.get((offset / 8) as usize);
                word.map(|word| *byte = (word >> (offset % 8 * 8)) as u8).is_some()
            })
        }
    }

    /// Promise: R116
    #[test]
    fn steps_copy_all_that_is_read() {
        let mut interpreters = vec![Interpreter::Perl(perl::Interpreter::nowhere())];
        let pythons =
            (8..=12).map(|it| python::Interpreter::nowhere(it, World::CODE - World::START));
        interpreters.extend(pythons.map(Interpreter::Python));
        for interpreter in interpreters {
            let (mut whole, mut functions) = (0, Functions::default());
            for seed in 0..60_000 {
                let mut world = World::new(seed);
                if let Interpreter::Python(it) = &interpreter
                    && let Some(layout) = python::layout::Layout::of(it.version)
                {
                    world.add_python(&layout);
                }
                let mut process = Process::new(interpreter.clone(), World::START);
                let who = Who { number: World::NUMBER, first: true };
                let thread = Thread { who, native: &[], complete: false };
                process.stack(&thread, &mut functions, &mut world);
                let direct = process.stack(&thread, &mut functions, &mut world);
                let Some((steps, facts)) = process.gather(&who) else { continue };
                let Some(pieces) = follow(&steps, facts, &mut world) else { continue };
                let copied = process.stack(&thread, &mut functions, &mut Copied(pieces));
                assert_eq!(copied, direct, "{interpreter:?} {seed}");
                whole += usize::from(!direct.0.is_empty());
            }
            assert!(whole >= 10, "{interpreter:?}: {whole}");
        }
    }

    #[test]
    fn no_memory_makes_it_hang_or_panic() {
        for interpreter in all() {
            for seed in 0..200 {
                read(interpreter.clone(), seed, &mut Maze(seed));
            }
            for byte in [0, 1, 2, 4, 8, 9, 10, 0x46, 0xff] {
                read(interpreter.clone(), u64::from(byte), &mut Loop(byte));
            }
        }
    }
}
