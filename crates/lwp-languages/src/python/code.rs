//! Code objects and the functions that they are of.

use rustc_hash::FxHashMap;

use crate::Memory;
use crate::functions::{Frame, Function, Functions, Language};
use crate::gather::Fact;
use crate::interpreter::keep;
use crate::python::frames::Raw;
use crate::python::layout::{Chain, Layout};
use crate::python::lines::line_at;
use crate::python::steps;
use crate::python::text::{bytes, text};

/// Most characters of a name and of a path, and most bytes of a line table.
const NAME: u64 = 1 << 12;
const PATH: u64 = 1 << 12;
const TABLE: u64 = 1 << 20;
/// Code objects that are remembered: a few hundred bytes each.
const MOST: usize = 1 << 16;

/// Code objects of a process.
#[derive(Debug, Default)]
pub struct Known {
    /// By address and fields: samples that are read later may be of an object that was there
    /// before.
    objects: FxHashMap<(u64, Fields), Code>,
    /// The facts of those that the stack read last has.
    pub facts: Vec<Fact>,
}

/// A code object.
#[derive(Debug)]
struct Code {
    function: u32,
    lines: Vec<u8>,
}

/// Fields that tell whether an address still has the same code object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fields {
    /// The file's name.
    pub file: u64,
    /// Its own name.
    pub name: u64,
    /// The line table.
    pub lines: u64,
    /// The line of the declaration.
    pub first: u32,
}

impl Fields {
    /// Those of the object at `at`; `None` where it is no code object.
    fn read(layout: &Layout, code_type: u64, at: u64, memory: &mut dyn Memory) -> Option<Self> {
        if memory.word(at.checked_add(layout.head - 8)?) != Some(code_type) {
            return None;
        }
        let mut pointer = |offset: u64| memory.pointer(at.checked_add(offset)?);
        let (file, name) = (pointer(layout.code.file)?, pointer(layout.code.name)?);
        let lines = pointer(layout.code.lines)?;
        let first = memory.half(at.checked_add(layout.code.first)?)?;
        Some(Self { file, name, lines, first })
    }
}

/// Fields, name and file of the code object at `at`.
pub fn read(
    layout: &Layout,
    code_type: u64,
    at: u64,
    memory: &mut dyn Memory,
) -> Option<(Fields, String, String)> {
    let fields = Fields::read(layout, code_type, at, memory)?;
    let name = text(layout, fields.name, NAME, memory)?;
    let file = text(layout, fields.file, PATH, memory)?;
    Some((fields, name, file))
}

impl Known {
    /// The function and line of a frame; `None` where it has no code object.
    pub fn frame(
        &mut self,
        layout: &Layout,
        code_type: u64,
        frame: &Raw,
        functions: &mut Functions,
        memory: &mut dyn Memory,
    ) -> Option<Frame> {
        let at = frame.code;
        let fields = Fields::read(layout, code_type, at, memory)?;
        let Fields { file, name, lines, first } = fields;
        if !self.objects.contains_key(&(at, fields)) {
            let name = text(layout, name, NAME, memory)?.into();
            let file = text(layout, file, PATH, memory)?.into();
            let function =
                functions.number(Function { language: Language::Python, name, file, line: first });
            let lines = bytes(layout, lines, TABLE, memory).unwrap_or_default();
            keep(&mut self.objects, MOST, (at, fields), Code { function, lines });
        }
        self.facts.push(steps::fact(at, fields));
        let code = self.objects.get(&(at, fields))?;
        let line = offset(layout, frame)
            .and_then(|offset| line_at(layout.lines, &code.lines, first, offset));
        Some(Frame { function: code.function, line: line.unwrap_or(first) })
    }
}

/// Bytes before the instruction that a frame executes.
fn offset(layout: &Layout, frame: &Raw) -> Option<u64> {
    match layout.chain {
        // -1 stands before the first instruction.
        Chain::Objects => Some(frame.instruction.try_into().map_or(0, |index: i32| index as u64)),
        Chain::ObjectsOnStack => {
            Some(frame.instruction.try_into().map_or(0, |index: i32| 2 * index as u64))
        }
        _ => {
            let start = frame.code.checked_add(layout.code.instructions)?;
            frame.instruction.checked_sub(start)
        }
    }
}
