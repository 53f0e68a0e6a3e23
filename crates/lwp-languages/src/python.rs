//! CPython 3.8 to 3.14.
//!
//! An interpreter is known by the symbols that its file exports, whichever program or library that
//! is. Where the fields of its structures lie is in tables by release up to 3.12 ([`layout`]);
//! later ones tell it themselves. Both are checked: a thread must belong to the interpreter that it
//! is listed under, and a code object must be of the type of code objects. Where that fails, there
//! are no frames.
//!
//! Promise: R85

mod code;
pub mod counting;
mod frames;
pub mod layout;
pub mod lines;
mod steps;
mod text;
mod threads;

use std::ops::Range;

use object::read::ReadRef;

use crate::Memory;
use crate::file::File;
use crate::functions::{Frame, Functions};
use crate::gather::{Fact, Steps};
use crate::interpreter::{Reader, Thread, Who};
use crate::merge::Activation;
use layout::{Layout, Version};
use threads::Places;

/// A file that has the interpreter in it. Addresses are the file's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interpreter {
    /// The release series.
    pub version: Version,
    /// `_PyRuntime`.
    runtime: u64,
    /// `PyCode_Type`.
    code_type: u64,
    /// `_PyEval_EvalFrameDefault`, and what the compiler has moved out of it.
    pub evaluator: Vec<Range<u64>>,
}

/// The evaluator's name.
const EVALUATOR: &str = "_PyEval_EvalFrameDefault";

impl Interpreter {
    /// The interpreter in `file`; `None` where there is none, or one that is not known.
    pub fn of<'d, R: ReadRef<'d>>(file: &File<'d, R>) -> Option<Self> {
        let (runtime, code_type) = (file.at("_PyRuntime")?, file.at("PyCode_Type")?);
        let told = |address: u64| {
            let number = u32::from_le_bytes(file.bytes(address, 4)?.try_into().ok()?);
            Some(Version { major: (number >> 24) as u8, minor: (number >> 16) as u8 })
        };
        // Before 3.11 the interpreter does not export its version, but every release new functions.
        let version = match file.at("Py_Version") {
            Some(address) => told(address)?,
            None if file.at("Py_NewRef").is_some() => Version::three(10),
            None if file.at("PyFrame_GetCode").is_some() => Version::three(9),
            None => file.at("PyCode_NewWithPosOnlyArgs").map(|_| Version::three(8))?,
        };
        let known = version.major == 3 && version.minor >= 8;
        let evaluator = file.functions(is_evaluator);
        known.then_some(Self { version, runtime, code_type, evaluator })
    }
}

/// Symbols that are looked for.
pub const NAMES: [&str; 8] = [
    EVALUATOR,
    counting::SLOT_GETTER,
    "_PyRuntime",
    "PyCode_Type",
    "Py_Version",
    "Py_NewRef",
    "PyFrame_GetCode",
    "PyCode_NewWithPosOnlyArgs",
];

/// The evaluator's own name, or that of a part of it, as `.cold` is.
fn is_evaluator(name: &str) -> bool {
    name.strip_prefix(EVALUATOR).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The interpreter of a process.
#[derive(Debug)]
pub struct Process {
    version: Version,
    runtime: u64,
    code_type: u64,
    layout: Option<Layout>,
    threads: threads::Known,
    code: code::Known,
}

impl Process {
    /// The interpreter of a file whose addresses are `bias` less than those of the process.
    pub fn new(interpreter: &Interpreter, bias: u64) -> Self {
        let (threads, code) = (threads::Known::default(), code::Known::default());
        let version = interpreter.version;
        let [runtime, code_type] =
            [interpreter.runtime, interpreter.code_type].map(|at| at.wrapping_add(bias));
        Self { version, runtime, code_type, layout: Layout::of(version), threads, code }
    }
}

impl Reader for Process {
    fn stack(
        &mut self,
        thread: &Thread<'_>,
        functions: &mut Functions,
        memory: &mut dyn Memory,
    ) -> (Vec<Frame>, Vec<Activation>) {
        let (runtime, code_type) = (self.runtime, self.code_type);
        self.code.facts.clear();
        if self.layout.is_none() {
            self.layout = Layout::told(runtime, self.version, memory);
        }
        let Some(layout) = self.layout else { return Default::default() };
        let states = self.threads.find(&Places { runtime, layout: &layout }, thread, memory);
        let (raw, mut activations) = frames::read(&layout, &states, memory);
        let mut out = Vec::with_capacity(raw.len());
        for frame in &raw {
            let known = self.code.frame(&layout, code_type, frame, functions, memory);
            let Some(frame) = known else { break };
            out.push(frame);
        }
        // What lies behind a frame that is none is not believed either.
        for activation in &mut activations {
            let ends = [activation.frames.start, activation.frames.end];
            let [start, end] = ends.map(|end| end.min(out.len()));
            activation.frames = start..end;
        }
        activations.retain(|activation| !activation.frames.is_empty());
        (out, activations)
    }

    fn steps(&self, who: &Who) -> Option<Steps> {
        let places = Places { runtime: self.runtime, layout: self.layout.as_ref()? };
        Some(steps::steps(&places, self.threads.last(who)?, who))
    }

    fn facts(&self) -> &[Fact] {
        &self.code.facts
    }
}

#[cfg(test)]
impl Interpreter {
    /// One of the release 3.`minor` that is in no file.
    pub fn nowhere(minor: u8, code_type: u64) -> Self {
        let version = Version::three(minor);
        Self { version, runtime: 0, code_type, evaluator: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    /// Memory in which every word leads somewhere else, and nothing ends.
    struct Maze(u64);

    impl Memory for Maze {
        fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
            for (at, byte) in (address..).zip(bytes.iter_mut()) {
                let mixed = (at >> 3 ^ self.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                // Small addresses, so that chains meet again.
                *byte = if at & 7 < 2 { (mixed >> (8 * (at & 7) + 24)) as u8 } else { 0 };
            }
            address % 7 != self.0 % 7
        }
    }

    fn interpreter(minor: u8) -> Interpreter {
        let version = Version::three(minor);
        Interpreter { version, runtime: 0x100, code_type: 0, evaluator: vec![16..32, 64..65] }
    }

    #[test]
    fn no_memory_makes_it_hang_or_panic() {
        for minor in 8..=14 {
            let mut process = Process::new(&interpreter(minor), 0);
            let mut functions = Functions::default();
            for seed in 0..300 {
                let who = Who { number: (seed % 5) as i32, first: seed % 2 == 0 };
                let thread = Thread { who, native: &[], complete: false };
                let (frames, activations) = process.stack(&thread, &mut functions, &mut Maze(seed));
                assert!(frames.len() <= 1024);
                assert!(activations.iter().all(|it| it.frames.end <= frames.len()));
            }
        }
    }

    #[test]
    fn chains_that_never_end_are_cut() {
        /// Every word is the same address.
        struct Loop;
        impl Memory for Loop {
            fn read(&mut self, _: u64, bytes: &mut [u8]) -> bool {
                bytes.fill(1);
                true
            }
        }
        for minor in 8..=12 {
            let layout = Layout::of(Version::three(minor)).expect("a layout");
            let (frames, activations) = frames::read(&layout, &[0x100, 0x200], &mut Loop);
            assert!((1..=1024).contains(&frames.len()), "3.{minor}: {}", frames.len());
            assert!(activations.len() <= 1024);
        }
    }

    #[test]
    fn the_evaluator_is_known_by_its_parts() {
        let interpreter = crate::interpreter::Interpreter::Python(interpreter(11));
        let known = [15, 16, 31, 32, 64].map(|address| interpreter.evaluates(address));
        assert_eq!(known, [false, true, true, false, true]);
        assert!(is_evaluator("_PyEval_EvalFrameDefault.cold"));
        assert!(!is_evaluator("_PyEval_EvalFrameDefaultX"));
    }

    #[test]
    fn other_programs_have_none() {
        use crate::functions::Language;
        use crate::interpreter::Interpreter;
        let own = std::env::current_exe().expect("a path");
        assert_eq!(Interpreter::open(&own, &Language::ALL), None);
        assert_eq!(Interpreter::open(std::path::Path::new("/etc/passwd"), &Language::ALL), None);
        assert_eq!(Interpreter::of(&b"\x7fELF"[..], &Language::ALL), None);
    }
}
