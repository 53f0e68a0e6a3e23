//! Functions as compilers' profiles describe them: which source line, counted from the function's
//! own, each instruction is of, and through which calls it was inlined.
//!
//! [`crate::dwarf`] answers where an address is, for people. A compiler also wants the line of a
//! function's declaration and the discriminators that tell the basic blocks of a line apart.
//!
//! Spec: DWARF 5, 3.3 (subroutines, inlined ones) and 6.2 (lines, discriminators);
//! `DW_AT_GNU_discriminator` is the discriminator of an inlined call.

mod entries;
mod lines;

use std::ops::Range;
use std::sync::Arc;

use crate::dwarf::{NEEDLESS, Reader, Sections};
use crate::files::Bytes;
use entries::Entries;
use lines::Lines;

/// Inlined calls nest less deeply than this. Deeper ones count for the call around them.
pub const DEEPEST: u16 = 200;

/// The reason why a file tells nothing about lines.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompiledError {
    /// There is no debug information.
    #[error("it has no debug information")]
    Missing,
    /// The debug information lies in other files.
    #[error("its debug information is split into .dwo files")]
    Split,
    /// The debug information cannot be read.
    #[error("its debug information is damaged: {0}")]
    Damaged(String),
}

/// The line and discriminator of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallPlace {
    line: u64,
    discriminator: u64,
}

/// A function, or a copy of one that was inlined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeScope {
    name: Arc<str>,
    declared: u64,
    depth: u16,
    call: Option<(u32, CallPlace)>,
}

/// Where an instruction comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodePlace {
    scope: u32,
    line: u64,
    discriminator: u64,
}

/// A function that has code, with everything that was inlined into it.
#[derive(Clone, Debug)]
pub struct CompiledFunction {
    ranges: Vec<Range<u64>>,
    /// The function, then what was inlined into it: callers before callees.
    scopes: Vec<CodeScope>,
    /// The code of each inlined copy.
    inlined: Vec<(Range<u64>, u32)>,
    lines: Arc<Lines>,
    by_llvm: bool,
}

impl CallPlace {
    /// Line, 0 if it is not known.
    pub fn line(self) -> u64 {
        self.line
    }

    /// Discriminator, as the file has it.
    pub fn discriminator(self) -> u64 {
        self.discriminator
    }
}

impl CodeScope {
    /// The linker's name of the function, or its plain one.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The line of its declaration, 0 if it is not known.
    pub fn declared(&self) -> u64 {
        self.declared
    }

    /// The scope that it was inlined into, and where.
    pub fn call(&self) -> Option<(usize, CallPlace)> {
        self.call.map(|(scope, place)| (scope as usize, place))
    }
}

impl CodePlace {
    /// The number of the scope.
    pub fn scope(self) -> usize {
        self.scope as usize
    }

    /// Line, 0 if the compiler made the instruction for no line.
    pub fn line(self) -> u64 {
        self.line
    }

    /// Discriminator, as the file has it.
    pub fn discriminator(self) -> u64 {
        self.discriminator
    }
}

impl CompiledFunction {
    /// The functions of a file with code in a range that is wanted.
    ///
    /// # Errors
    ///
    /// The file has no debug information, or a damaged one.
    pub fn all_of(
        bytes: &Bytes,
        is_wanted: &dyn Fn(&Range<u64>) -> bool,
    ) -> Result<Vec<Self>, CompiledError> {
        let sections = Sections::of(bytes).ok_or(CompiledError::Missing)?;
        let load = |id: gimli::SectionId| -> Result<Reader, gimli::Error> {
            sections.section(Some(id).filter(|id| !NEEDLESS.contains(id)).map(|id| id.name()))
        };
        let dwarf = gimli::Dwarf::load(load)?;
        let entries = Entries::of(&dwarf, bytes.len())?;
        let functions = entries.functions(is_wanted)?;
        match functions.is_empty() && entries.are_split() {
            true => Err(CompiledError::Split),
            false => Ok(functions),
        }
    }

    /// Ends a function that all entries of its unit were read for.
    fn finish(&mut self, lines: &Arc<Lines>, by_llvm: bool) {
        // Callees have greater numbers than their callers.
        self.inlined.sort_by_key(|(range, scope)| (range.start, *scope));
        self.ranges.sort_by_key(|range| (range.start, range.end));
        self.lines = Arc::clone(lines);
        self.by_llvm = by_llvm;
    }

    /// Its code.
    pub fn ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }

    /// The function, and copies of others that were inlined into it, callers before callees.
    pub fn scopes(&self) -> &[CodeScope] {
        &self.scopes
    }

    /// Returns whether a compiler on LLVM has made it. Its discriminators hold several numbers.
    pub fn is_by_llvm(&self) -> bool {
        self.by_llvm
    }

    /// Where instructions come from. Their addresses are in ascending order.
    pub fn places<'a>(
        &'a self,
        addresses: impl Iterator<Item = u64> + 'a,
    ) -> impl Iterator<Item = CodePlace> + 'a {
        let mut waiting = self.inlined.iter().peekable();
        // Ranges that have begun, the innermost last.
        let mut open: Vec<&(Range<u64>, u32)> = Vec::new();
        addresses.map(move |address| {
            while let Some(next) = waiting.next_if(|(range, _)| range.start <= address) {
                open.push(next);
            }
            while open.last().is_some_and(|(range, _)| range.end <= address) {
                open.pop();
            }
            let scope = open.last().map_or(0, |(_, scope)| *scope);
            let (line, discriminator) = self.lines.at(address);
            CodePlace { scope, line, discriminator }
        })
    }
}

impl From<gimli::Error> for CompiledError {
    fn from(error: gimli::Error) -> Self {
        Self::Damaged(error.to_string())
    }
}
