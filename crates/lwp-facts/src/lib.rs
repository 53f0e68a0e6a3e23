//! Facts: a recording as rows, for stores that keep many of them.
//!
//! A row has names and counts, no addresses and no numbers that only one recording understands. Two
//! runs that did the same have the same rows, whatever their addresses, process ids and files were;
//! [`Facts::content`] is a hash that tells. Facts travel as text, one JSON object a line, which
//! `docs/facts-format.md` describes.
#![forbid(unsafe_code)]

mod hash;
mod limits;
mod of_profile;
mod reader;
mod run;
mod writer;

pub use hash::{Id, func_key, stack_key};
pub use limits::Limits;
pub use of_profile::{clean_name, without_cargo_hash};
pub use reader::{ReadError, Reason};
pub use run::{Run, Source};

use lwp_profile::{CallKind, Event, Mode};

/// The version of the text that [`Facts::write`] writes.
pub const VERSION: u64 = 1;

/// A program or library.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleFact {
    /// The name that it keeps from build to build: a library's SONAME, a program's file without
    /// cargo's hash.
    pub name: String,
    /// Its path on the machine that ran it.
    pub path: String,
    /// The build id in hexadecimal, empty where there is none.
    pub build_id: String,
}

/// A function, with what was counted in its own code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionFact {
    /// The index of its module.
    pub module: u32,
    /// The name that it keeps from build to build.
    pub name: String,
    /// The source file of its declaration, empty where it is not known.
    pub file: String,
    /// The line of its declaration, 0 where it is not known.
    pub line: u32,
    /// Number of calls to it; 0 in sampled recordings.
    pub entered: u64,
    /// Own counts, in the order of [`Facts::events`].
    pub own: Vec<u64>,
    /// Instructions of the function and of everything that it called, where calling contexts were
    /// measured.
    pub inclusive: Option<u64>,
}

/// A source line in a function, with what was counted there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineFact {
    /// The index of the function that has the code; inlined code is in the function around it.
    pub function: u32,
    /// The source file.
    pub file: String,
    /// The line, from 1 on.
    pub line: u32,
    /// Counts, in the order of [`Facts::events`].
    pub own: Vec<u64>,
}

/// Calls from one function to another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallFact {
    /// The index of the caller, `None` where it is not known.
    pub caller: Option<u32>,
    /// The index of the function called.
    pub callee: u32,
    /// The kind of the call.
    pub how: CallKind,
    /// Number of calls.
    pub count: u64,
}

/// A call stack of a sampled recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StackFact {
    /// Indexes of functions, outermost first; never empty.
    pub frames: Vec<u32>,
    /// Values, in the order of [`Facts::events`].
    pub own: Vec<u64>,
}

/// The rows of one recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The run: everything that is not a count.
    pub run: Run,
    /// The nature of the values: counts or estimates.
    pub mode: Mode,
    /// Events, in the order of all values.
    pub events: Vec<Event>,
    /// The sums of everything.
    pub total: Vec<u64>,
    /// Programs and libraries.
    pub modules: Vec<ModuleFact>,
    /// Functions; no two have the same module name and function name.
    pub functions: Vec<FunctionFact>,
    /// Values of source lines, each of one function.
    pub lines: Vec<LineFact>,
    /// Numbers of calls between pairs of functions.
    pub calls: Vec<CallFact>,
    /// Values of call stacks, in sampled runs.
    pub stacks: Vec<StackFact>,
}

impl Facts {
    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.modules.len()
            + self.functions.len()
            + self.lines.len()
            + self.calls.len()
            + self.stacks.len()
    }

    /// The index of the event that inclusive counts are of; `None` if instructions were not
    /// counted.
    pub(crate) fn counted_instructions(&self) -> Option<usize> {
        let is_counted = |event: &Event| {
            event.name == Event::EXACT[0] && event.interval.is_none() && !event.modelled
        };
        self.events.iter().position(is_counted).filter(|_| self.mode == Mode::Exact)
    }

    /// The name of a function's module.
    ///
    /// # Panics
    ///
    /// If there is no such function.
    pub fn module_name(&self, function: u32) -> &str {
        let module = self.functions[function as usize].module;
        &self.modules[module as usize].name
    }

    /// The key of a function, the same in every recording.
    ///
    /// # Panics
    ///
    /// If there is no such function.
    pub fn func(&self, function: u32) -> i64 {
        func_key(self.module_name(function), &self.functions[function as usize].name)
    }
}

/// The word for a kind of call in text and tables.
pub fn call_word(kind: CallKind) -> &'static str {
    match kind {
        CallKind::Direct => "direct",
        CallKind::Tail => "tail",
        CallKind::Import => "import",
        CallKind::Indirect => "indirect",
    }
}

/// The kind of call that a word stands for.
pub fn call_kind(word: &str) -> Option<CallKind> {
    let all = [CallKind::Direct, CallKind::Tail, CallKind::Import, CallKind::Indirect];
    all.into_iter().find(|kind| call_word(*kind) == word)
}
