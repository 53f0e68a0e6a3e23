//! Reports to a profile's receiver.

use std::fmt::Debug;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lwp_process::maps::{self, Mapping};
use lwp_process::missing_pages;

use crate::addition::Addition;

/// Receives what was executed. Modules and blocks come before the first thread that executed them.
///
/// Calls are made under the machine's lock: a sink must not block for long. A sink that fails keeps
/// the error to itself; the program goes on.
pub trait Sink: Debug + Send {
    /// Code of a file, or anonymous code, that has been executed.
    fn module(&mut self, module: &Module);
    /// Blocks that have been executed, each reported once.
    fn blocks(&mut self, blocks: &[Block]);
    /// Receives a report of all that a thread has executed since it started. A later report of the
    /// same serial replaces it.
    fn thread(&mut self, thread: &ThreadExecutions);
    /// A part of what a process has executed is complete, and was reported under these serials;
    /// what the process calls it may be empty.
    fn part(&mut self, pid: i32, serials: &[u32], label: &str) {
        let _ = (pid, serials, label);
    }
    /// Returns whether indirect calls shall be counted by where they lead: see
    /// [`ThreadExecutions::jumps`].
    fn wants_calls(&self) -> bool {
        false
    }
    /// Returns whether calling contexts shall be measured: see [`ThreadExecutions::contexts`].
    fn wants_contexts(&self) -> bool {
        false
    }
    /// A process has begun a program with an addition to its arguments and variables.
    fn added(&mut self, _pid: i32, _addition: &Addition) {}
    /// A function of an interpreted language that samples have met. Comes before the first of them.
    fn function(&mut self, _function: &LanguageFunction) {}
    /// A sample. Its thread and the modules of its stack have been reported before.
    fn sample(&mut self, sample: &Sample<'_>);
}

/// An instruction of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The module; `None` where nothing executable is mapped.
    pub module: Option<u32>,
    /// The address.
    pub address: u64,
}

/// A sample.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// Number of the thread.
    pub serial: u32,
    /// Index of the event in [`crate::SamplingConfig::events`].
    pub event: u32,
    /// Innermost first: the instruction that is about to be executed, then the last bytes of calls
    /// that have not returned.
    pub stack: &'a [Place],
}

/// A function of an interpreted language: its source file is its module, whose path begins with the
/// language in brackets, as in `[python]/usr/lib/python3/app.py`.
///
/// It has no code. Addresses stand for its lines: the first one for the line of its declaration,
/// and so on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LanguageFunction {
    /// Number of its module.
    pub module: u32,
    /// The address that stands for its first line.
    pub address: u64,
    /// The number of lines that have an address.
    pub size: u64,
    /// Its name.
    pub name: String,
    /// Its source file, as the interpreter names it.
    pub file: String,
    /// Line of its declaration.
    pub line: u32,
}

/// A piece of a module in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleMapping {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// Offset of `start` in the file.
    pub offset: u64,
}

/// Executable mappings that belong together.
#[derive(Clone, Debug)]
pub struct Module {
    /// Its number in this run.
    pub id: u32,
    /// A process that has it mapped, at this moment.
    pub pid: i32,
    /// The file's path as the process sees it, a bracketed name as `[vdso]`, or empty for anonymous
    /// code.
    pub path: PathBuf,
    /// True if its bytes may change while it is executed.
    pub changing: bool,
    /// Its executable mappings.
    pub mappings: Vec<ModuleMapping>,
    /// Its file, open since it was mapped; the path may lead to another one by now.
    pub file: Option<Arc<File>>,
}

impl Module {
    /// Returns whether a program serves the file system of its file. Nobody opens the file while
    /// the run goes on: that program may be one of the run, and wait.
    pub fn is_served(&self) -> bool {
        let is = |it: &Mapping| Path::new(&it.name) == self.path && it.is_served(self.pid);
        missing_pages::is_expected() && maps::read(self.pid).iter().any(is)
    }
}

/// The kind of a block's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlockEnd {
    /// Not in a branch.
    Other,
    /// Direct jump.
    Jump,
    /// Conditional branch.
    Conditional,
    /// Direct call.
    Call,
    /// Indirect jump.
    IndirectJump,
    /// Indirect call.
    IndirectCall,
    /// Return.
    Return,
}

/// A basic block of the program. Blocks may overlap: each starts where control once arrived.
#[derive(Clone, Debug)]
pub struct Block {
    /// Its number in this run.
    pub id: u32,
    /// Its module.
    pub module: u32,
    /// Address of its first instruction.
    pub pc: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Lengths of its instructions.
    pub lengths: Vec<u8>,
    /// The number of its instructions that one run executes; the others are reported as steps.
    pub counted: u16,
    /// The kind of its end.
    pub end: BlockEnd,
    /// The target of its direct branch.
    pub target: Option<u64>,
}

/// The number of times that a branch led to a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Jump {
    /// The branch.
    pub from: Place,
    /// The place that it led to. Of a conditional branch, that may be the instruction behind it.
    pub to: Place,
    /// The kind of the branch.
    pub end: BlockEnd,
    /// Executed alone: these executions are no block's.
    pub alone: bool,
    /// Taken; only a conditional branch may not be.
    pub taken: bool,
    /// The number of times.
    pub times: u64,
}

/// The number of times that a thread has executed a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockCount {
    /// The block.
    pub block: u32,
    /// Complete executions.
    pub runs: u64,
    /// Of these, how often the conditional branch at its end was not taken.
    pub not_taken: u64,
}

/// The number of times that an instruction has missed the modelled data caches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Misses {
    /// Loads of what the first level did not have.
    pub loads: u64,
    /// Stores to it.
    pub stores: u64,
    /// Loads of what no level had.
    pub memory_loads: u64,
    /// Stores to it.
    pub memory_stores: u64,
}

/// How control came into a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContextKind {
    /// The thread began there, or the program did.
    Root,
    /// By a call.
    Call,
    /// By a jump from another function: a tail call. It returns to where its caller would.
    Jump,
    /// A signal interrupted the caller there, which went on afterwards or not.
    Signal,
    /// Stands for contexts that there was no room for.
    Merged,
}

/// A function as it was called along one path of callers: a node of the thread's calling-context
/// tree. All of its counts are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// Index of the caller's context in the thread's list, where it comes before.
    pub caller: Option<u32>,
    /// How control came here.
    pub kind: ContextKind,
    /// The last byte of the call or jump, or the instruction that a signal interrupted.
    pub site: Option<Place>,
    /// The first instruction of what was called.
    pub entry: Place,
    /// How often it was entered.
    pub calls: u64,
    /// The instructions that were executed in this very context, without what it called. Those of
    /// all contexts of a thread add up to all instructions that it executed.
    pub instructions: u64,
}

/// The executions of a thread.
#[derive(Clone, Debug, Default)]
pub struct ThreadExecutions {
    /// Number of the thread in this run.
    pub serial: u32,
    /// Index of its process image among the outcome's processes.
    pub image: u32,
    /// Process id.
    pub pid: i32,
    /// Thread id.
    pub tid: i32,
    /// Its name.
    pub comm: String,
    /// Complete executions of blocks.
    pub blocks: Vec<BlockCount>,
    /// Executions of a block that a signal or the thread's end cut short: block, how many
    /// instructions were executed, how often.
    pub partial: Vec<(u32, u16, u64)>,
    /// Instructions executed one at a time: module, address, how often. Negative where a block's
    /// execution counts an instruction that was started again.
    pub steps: Vec<(Option<u32>, u64, i64)>,
    /// The targets of indirect calls, if that is wanted, and all branches that were executed alone;
    /// also, as indirect jumps that were not, the targets of the words that stubs of linkage tables
    /// jump through.
    pub jumps: Vec<Jump>,
    /// Instructions that have missed the modelled caches, if there are any: module, address, how
    /// often.
    pub misses: Vec<(Option<u32>, u64, Misses)>,
    /// The number of each event, where events are sampled.
    pub sampled: Vec<u64>,
    /// The calling-context tree, if it is measured: callers come before what they call.
    pub contexts: Vec<Context>,
}
