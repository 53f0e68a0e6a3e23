//! The places of what is read in CPython's structures.

use crate::Memory;
use crate::python::lines::Form;

/// A release series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The first number.
    pub major: u8,
    /// The second one.
    pub minor: u8,
}

impl Version {
    /// 3 and this number.
    pub const fn three(minor: u8) -> Self {
        Self { major: 3, minor }
    }
}

/// Links between the frames of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chain {
    /// To 3.9: objects, each executed by an activation of the evaluator of its own.
    Objects,
    /// 3.10: the same; activations have a `CFrame` on the native stack.
    ObjectsOnStack,
    /// 3.11: frames marked as entries end what the activation executes whose `_PyCFrame` is on the
    /// native stack.
    Marked,
    /// 3.12: from the thread's `_PyCFrame` on; a shim on the native stack ends what an activation
    /// executes.
    ShimsByStack,
    /// From 3.13 on: the same from the thread's state on.
    Shims,
}

/// Offsets in bytes, by structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The links between frames.
    pub chain: Chain,
    /// The form of line tables.
    pub lines: Form,
    /// `_PyRuntimeState`: the first interpreter.
    pub interpreters: u64,
    /// `PyInterpreterState`.
    pub interpreter: InterpreterAt,
    /// `PyThreadState`.
    pub thread: ThreadAt,
    /// `PyFrameObject`, or `_PyInterpreterFrame` from 3.11 on.
    pub frame: FrameAt,
    /// `PyCodeObject`.
    pub code: CodeAt,
    /// Bytes of an object's head: 16, or 32 where there is no global lock.
    pub head: u64,
    /// Bytes of a string's head, where a string of ASCII begins, and behind those where another one
    /// does.
    pub text: [u64; 2],
}

/// Places in `PyInterpreterState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterpreterAt {
    /// The next one.
    pub next: u64,
    /// Its first thread.
    pub threads: u64,
}

/// Places in `PyThreadState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadAt {
    /// The next one.
    pub next: u64,
    /// The interpreter that it belongs to.
    pub interpreter: u64,
    /// The thread's `pthread_self`.
    pub pthread: u64,
    /// The kernel's number, from 3.11 on.
    pub native: Option<u64>,
    /// The innermost frame, or the innermost `CFrame`.
    pub frame: u64,
    /// 3.10: the innermost `CFrame`, beside the frame.
    pub stack: Option<u64>,
}

/// Places in frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameAt {
    /// The frame that has called, or waits for this one.
    pub previous: u64,
    /// The code object.
    pub code: u64,
    /// The instruction: an index to 3.10, an address from 3.11 on.
    pub instruction: u64,
    /// To whom the frame belongs, from 3.12 on; in 3.11 whether it is an entry.
    pub owner: u64,
}

/// Places in `PyCodeObject`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeAt {
    /// The source file.
    pub file: u64,
    /// The name, qualified from 3.11 on.
    pub name: u64,
    /// The line of the declaration.
    pub first: u64,
    /// The line table.
    pub lines: u64,
    /// The instructions, from 3.11 on a part of the object itself.
    pub instructions: u64,
}

/// Frames with this owner or a larger one are shims.
pub const SHIM: u8 = 3;

impl Layout {
    /// The layout of a release before 3.13; from then on the interpreter tells itself.
    ///
    /// From the debug information of 3.8.18, 3.9.18, 3.10.13, 3.11.7 and 3.12.1 for x86-64.
    #[rustfmt::skip] // A table: structures in columns, as their fields are declared above.
    pub fn of(version: Version) -> Option<Self> {
        let object = |interpreters, instruction, lines, chain, stack| Self {
            chain, lines, interpreters,
            interpreter: InterpreterAt { next: 0, threads: 8 },
            thread: ThreadAt { next: 8, interpreter: 16, pthread: 176, native: None, frame: 24, stack },
            frame: FrameAt { previous: 24, code: 32, instruction, owner: 0 },
            code: CodeAt { file: 104, name: 112, first: 40, lines: 120, instructions: 48 },
            head: 16, text: [48, 24],
        };
        Some(match version {
            Version { major: 3, minor: 8 | 9 } => object(32, 104, Form::Lnotab, Chain::Objects, None),
            Version { major: 3, minor: 10 } => object(32, 96, Form::Ranges, Chain::ObjectsOnStack, Some(48)),
            Version { major: 3, minor: 11 } => Self {
                chain: Chain::Marked, lines: Form::Locations, interpreters: 40,
                interpreter: InterpreterAt { next: 0, threads: 16 },
                thread: ThreadAt { next: 8, interpreter: 16, pthread: 152, native: Some(160), frame: 56, stack: None },
                frame: FrameAt { previous: 48, code: 32, instruction: 56, owner: 68 },
                code: CodeAt { file: 112, name: 128, first: 72, lines: 136, instructions: 184 },
                head: 16, text: [48, 24],
            },
            Version { major: 3, minor: 12 } => Self {
                chain: Chain::ShimsByStack, lines: Form::Locations, interpreters: 40,
                interpreter: InterpreterAt { next: 0, threads: 72 },
                thread: ThreadAt { next: 8, interpreter: 16, pthread: 136, native: Some(144), frame: 56, stack: None },
                frame: FrameAt { previous: 8, code: 0, instruction: 56, owner: 70 },
                code: CodeAt { file: 112, name: 128, first: 68, lines: 136, instructions: 192 },
                head: 16, text: [40, 16],
            },
            _ => return None,
        })
    }

    /// The layout that the interpreter with its state at `runtime` tells of itself:
    /// `_Py_DebugOffsets`, which 3.13 and later releases begin that state with.
    pub fn told(runtime: u64, version: Version, memory: &mut dyn Memory) -> Option<Self> {
        let mut bytes = [0; 8 * WORDS];
        if !memory.read(runtime, &mut bytes) || bytes[..8] != *b"xdebugpy" {
            return None;
        }
        // 3.14 has added to the descriptions of interpreters, frames and code: three words, two,
        // and one.
        let [interpreter, frame, code] = if version.minor == 13 { [0; 3] } else { [3, 2, 1] };
        let word = |at: usize| {
            let bytes = bytes.get(8 * at..8 * at + 8)?;
            let offset = u64::from_le_bytes(bytes.try_into().ok()?);
            (offset < LARGEST).then_some(offset)
        };
        let hexversion = u64::from_le_bytes(bytes[8..16].try_into().ok()?);
        if hexversion >> 16 != u64::from(version.major) << 8 | u64::from(version.minor) {
            return None;
        }
        // The first word of each description is the structure's size.
        let [threads, frames] = [19 + interpreter, 28 + interpreter];
        let codes = 34 + interpreter + frame;
        let head = word(codes + 10 + code)?;
        let (text, bytes_of_code) = (head + 24, word(codes)?);
        let layout = Self {
            chain: Chain::Shims,
            lines: Form::Locations,
            interpreters: word(5)?,
            interpreter: InterpreterAt { next: word(8)?, threads: word(9)? },
            thread: ThreadAt {
                next: word(threads + 2)?,
                interpreter: word(threads + 3)?,
                frame: word(threads + 4)?,
                pthread: word(threads + 5)?,
                native: Some(word(threads + 6)?),
                stack: None,
            },
            frame: FrameAt {
                previous: word(frames + 1)?,
                code: word(frames + 2)?,
                instruction: word(frames + 3)?,
                owner: word(frames + 5)?,
            },
            code: CodeAt {
                file: word(codes + 1)?,
                name: word(codes + 3)?,
                lines: word(codes + 4)?,
                first: word(codes + 5)?,
                instructions: word(codes + 9)?,
            },
            head,
            text: [text, 16],
        };
        let small = |at: usize| word(at).is_some_and(|bytes| (48..512).contains(&bytes));
        (matches!(head, 16 | 32) && small(frames) && bytes_of_code < 1024).then_some(layout)
    }
}

/// Words of `_Py_DebugOffsets` that are read.
const WORDS: usize = 64;
/// No structure is larger; an interpreter's state has some hundred kilobytes.
const LARGEST: u64 = 1 << 24;

#[cfg(test)]
mod tests {
    use super::*;

    struct Bytes(Vec<u8>);

    impl Memory for Bytes {
        fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
            let from = self.0.get(address as usize..).and_then(|rest| rest.get(..bytes.len()));
            from.map(|from| bytes.copy_from_slice(from)).is_some()
        }
    }

    /// `_Py_DebugOffsets` of 3.13.0 for x86-64, from its debug information.
    #[rustfmt::skip]
    const OF_3_13: [u64; 46] = [
        u64::from_le_bytes(*b"xdebugpy"), 0x030d_00f0, 0,
        // The state of the runtime, of an interpreter, of a thread, a frame, a code object, an
        // object.
        342_840, 616, 632,
        212_120, 7272, 7264, 7344, 7408, 7592, 7800, 7808, 6504, 0, 0, 0, 0,
        392, 0, 8, 16, 72, 152, 160, 288, 32,
        88, 8, 0, 56, 72, 70,
        208, 112, 120, 128, 136, 68, 52, 96, 104, 200,
        16, 8,
    ];

    #[test]
    fn an_interpreter_tells_its_layout() {
        let mut bytes: Vec<u8> = OF_3_13.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.resize(8 * WORDS, 0);
        let layout = Layout::told(0, Version::three(13), &mut Bytes(bytes.clone()));
        let layout = layout.expect("a layout");
        assert_eq!((layout.interpreters, layout.interpreter.threads), (632, 7344));
        assert_eq!((layout.thread.frame, layout.thread.native), (72, Some(160)));
        let frame = FrameAt { previous: 8, code: 0, instruction: 56, owner: 70 };
        assert_eq!(layout.frame, frame);
        let code = CodeAt { file: 112, name: 128, first: 68, lines: 136, instructions: 200 };
        assert_eq!((layout.code, layout.head, layout.text), (code, 16, [40, 16]));
        // Another release, another cookie, a place far outside, and a state that cannot be read.
        assert_eq!(Layout::told(0, Version::three(14), &mut Bytes(bytes.clone())), None);
        assert_eq!(Layout::told(8, Version::three(13), &mut Bytes(bytes.clone())), None);
        bytes[8 * 9 + 6] = 1;
        assert_eq!(Layout::told(0, Version::three(13), &mut Bytes(bytes)), None);
        assert_eq!(Layout::told(0, Version::three(13), &mut Bytes(Vec::new())), None);
    }
}
