//! The places at which the calls of Python's functions can be counted.
//!
//! To 3.10, a call enters the evaluator, whose frame has the code object. 3.11 does so where an
//! evaluator is set (PEP 523), which may be its own. From 3.12 on, Python counts by itself: it
//! makes a stub for each function.

use object::read::ReadRef;

use crate::Memory;
use crate::file::File;
use crate::functions::{Function, Language};
use crate::python::layout::{Layout, Version};
use crate::python::{EVALUATOR, Interpreter, code};

/// An evaluator that is entered once a call. Code is named by its offset in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The interpreter.
    pub interpreter: Interpreter,
    /// The evaluator's first instruction.
    pub entry: u64,
    /// The address of `entry` in the file.
    pub entry_address: u64,
    /// The frame is the first argument; else the second.
    pub first_argument: bool,
    /// The place of the code object in the frame.
    pub code: i32,
    /// The first instruction of what ends a code object, which is its first argument.
    pub end: u64,
    /// The word that must have the evaluator's address: it is this far from what the word at the
    /// first distance from the first argument points to.
    pub evaluator_at: Option<[i32; 2]>,
    /// The method that may be executed without a call.
    pub inlines: Option<&'static str>,
}

/// The places of `tp_dealloc` in `PyTypeObject`, and of the interpreter in `PyThreadState`.
const DEALLOC: u64 = 48;

/// Names that are looked for beside those of samples.
pub const SLOT_GETTER: &str = "_PyInterpreterState_GetEvalFrameFunc";

impl Counted {
    /// The evaluator in `file`; `None` where it is not entered once a call.
    pub fn of<'d, R: ReadRef<'d>>(file: &File<'d, R>) -> Option<Self> {
        let interpreter = Interpreter::of(file)?;
        let layout = Layout::of(interpreter.version)?;
        let evaluator_at = match interpreter.version {
            Version { major: 3, minor: 8..=10 } => None,
            Version { major: 3, minor: 11 } => {
                let through = i32::try_from(layout.thread.interpreter).ok()?;
                Some([through, slot(file.bytes(file.at(SLOT_GETTER)?, 16)?)?])
            }
            _ => return None,
        };
        let entry_address = file.at(EVALUATOR)?;
        let end = file.word_when_loaded(interpreter.code_type.checked_add(DEALLOC)?)?;
        Some(Self {
            entry: file.offset(entry_address)?,
            entry_address,
            first_argument: interpreter.version.minor == 8,
            code: i32::try_from(layout.frame.code).ok()?,
            end: file.offset(end)?,
            evaluator_at,
            inlines: inlined(file),
            interpreter,
        })
    }

    /// The function that the code object at `at` is of, in a process where addresses are `bias`
    /// higher; `None` where there is no code object, or one whose calls cannot be counted.
    pub fn function(&self, bias: u64, at: u64, memory: &mut dyn Memory) -> Option<Function> {
        let layout = Layout::of(self.interpreter.version)?;
        let code_type = self.interpreter.code_type.wrapping_add(bias);
        let (fields, name, file) = code::read(&layout, code_type, at, memory)?;
        if name.rsplit('.').next() == self.inlines {
            return None;
        }
        let (name, file) = (name.into(), file.into());
        Some(Function { language: Language::Python, name, file, line: fields.first })
    }
}

/// The method that the evaluator executes itself, once its call is a specialised instruction:
/// 3.11.0 to 3.11.3 do so with one, whichever evaluator is set.
fn inlined<'d, R: ReadRef<'d>>(file: &File<'d, R>) -> Option<&'static str> {
    const FROM: u32 = 0x030b_0000;
    const MENDED: u32 = 0x030b_0400;
    let version = file.bytes(file.at("Py_Version")?, 4)?;
    let version = u32::from_le_bytes(version.try_into().ok()?);
    (FROM..MENDED).contains(&version).then_some("__getitem__")
}

/// The place of the word that a function returns which begins with `code`: of
/// `mov rax, [rdi + place]`.
fn slot(code: &[u8]) -> Option<i32> {
    const MARK: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
    const LOAD: [u8; 3] = [0x48, 0x8b, 0x87];
    let code = code.strip_prefix(&MARK).unwrap_or(code);
    let place = code.strip_prefix(&LOAD)?.first_chunk::<4>()?;
    Some(i32::from_le_bytes(*place)).filter(|place| (8..1 << 20).contains(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_is_the_one_that_is_returned() {
        let load = [0x48, 0x8b, 0x87, 0x90, 0x05, 0, 0, 0x48, 0x85, 0xc0];
        assert_eq!(slot(&load), Some(0x590));
        let marked = [&[0xf3, 0x0f, 0x1e, 0xfa][..], &load].concat();
        assert_eq!(slot(&marked), Some(0x590));
        // Another register, a negative place, an end.
        assert_eq!(slot(&[0x48, 0x8b, 0x86, 0x90, 0x05, 0, 0]), None);
        assert_eq!(slot(&[0x48, 0x8b, 0x87, 0xff, 0xff, 0xff, 0xff]), None);
        assert_eq!(slot(&load[..5]), None);
    }
}
