//! Where instructions were executed, for a profile's sink: each alone, without blocks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lwp_arch::retired::BranchKind;
use lwp_reference::Decoded;
use lwp_vcpu::profile::{BlockEnd, Jump, Module, ModuleMapping, Place, Sink, ThreadExecutions};
use lwp_vcpu::{ProcessReport, ThreadReport};
use rustc_hash::FxHashMap;

use crate::maps::{self, Mapping};

/// What a thread has executed.
#[derive(Debug, Default)]
pub struct Trace {
    serial: u32,
    steps: FxHashMap<At, i64>,
    jumps: FxHashMap<Branch, u64>,
}

/// A branch: its place, where it led, its kind, and whether it was taken.
type Branch = (At, At, BlockEnd, bool);

/// Module and address.
type At = (Option<u32>, u64);

/// The code of a process.
#[derive(Debug)]
struct Space {
    /// Executable mappings and the modules that they belong to, as far as code of them was
    /// executed.
    mappings: Vec<(Mapping, Option<u32>)>,
    /// The process may have changed its mappings since.
    stale: bool,
}

/// A module that was reported: it is the same in all processes that have the file mapped there.
#[derive(Debug, PartialEq, Eq)]
struct Known {
    /// The process, where the code is of no file.
    pid: Option<i32>,
    inode: u64,
    path: std::path::PathBuf,
    /// The address of the file's first byte.
    base: u64,
}

/// A recording that goes on.
#[derive(Debug)]
pub struct Recording {
    sink: Box<dyn Sink>,
    spaces: FxHashMap<i32, Space>,
    modules: Vec<(Known, Vec<ModuleMapping>)>,
    threads: u32,
    checkpoint: Duration,
    last: Instant,
    /// Instructions until the clock is looked at.
    until_look: u32,
}

/// Instructions between two looks at the clock.
const LOOK: u32 = 1 << 12;

impl Recording {
    /// Reports to `sink`, at the end of each thread and at these intervals.
    pub fn new(sink: Box<dyn Sink>, checkpoint: Duration) -> Self {
        Self {
            sink,
            spaces: FxHashMap::default(),
            modules: Vec::new(),
            threads: 0,
            checkpoint,
            last: Instant::now(),
            until_look: LOOK,
        }
    }

    /// The trace of a new thread.
    pub fn new_trace(&mut self) -> Trace {
        self.threads += 1;
        Trace { serial: self.threads - 1, ..Trace::default() }
    }

    /// The process has executed another program.
    pub fn forget(&mut self, pid: i32) {
        self.spaces.remove(&pid);
    }

    /// The process may have changed its mappings.
    pub fn may_change(&mut self, pid: i32) {
        if let Some(space) = self.spaces.get_mut(&pid) {
            space.stale = true;
        }
    }

    /// Returns whether what threads have executed shall be reported meanwhile.
    pub fn is_due(&mut self) -> bool {
        self.until_look -= 1;
        if self.until_look > 0 {
            return false;
        }
        self.until_look = LOOK;
        let due = self.last.elapsed() >= self.checkpoint;
        if due {
            self.last = Instant::now();
        }
        due
    }

    /// Takes in an instruction that has retired.
    pub fn retired(&mut self, trace: &mut Trace, pid: i32, instruction: &Decoded, next: u64) {
        let from = self.place(pid, instruction.ip);
        *trace.steps.entry(from).or_default() += 1;
        if let Some((kind, taken)) = instruction.branch {
            let branch = (from, self.place(pid, next), end_of(kind), taken);
            *trace.jumps.entry(branch).or_default() += 1;
        }
    }

    /// Reports all that a thread of `process` has executed so far.
    pub fn report(
        &mut self,
        trace: &Trace,
        image: usize,
        process: &ProcessReport,
        thread: &ThreadReport,
    ) {
        let steps = trace.steps.iter().map(|((module, at), times)| (*module, *at, *times));
        let jump = |(&(from, to, end, taken), &times): (&Branch, &u64)| Jump {
            from: Place { module: from.0, address: from.1 },
            to: Place { module: to.0, address: to.1 },
            end,
            alone: true,
            taken,
            times,
        };
        let mut executions = ThreadExecutions {
            serial: trace.serial,
            image: u32::try_from(image).unwrap_or(u32::MAX),
            pid: process.pid,
            tid: thread.tid,
            comm: thread.comm.clone(),
            steps: steps.collect(),
            jumps: trace.jumps.iter().map(jump).collect(),
            ..ThreadExecutions::default()
        };
        executions.steps.sort_unstable();
        executions.jumps.sort_unstable();
        self.sink.thread(&executions);
    }

    /// The place of an address in a process that stands still.
    fn place(&mut self, pid: i32, address: u64) -> At {
        let space = self.spaces.entry(pid).or_insert(Space { mappings: Vec::new(), stale: true });
        let find = |space: &Space| space.mappings.iter().position(|(it, _)| it.has(address));
        if space.stale {
            space.refresh(pid);
        }
        let Some(found) = find(space) else { return (None, address) };
        let module = match space.mappings[found].1 {
            Some(module) => module,
            None => {
                let mapping = space.mappings[found].0.clone();
                let module = self.module(pid, &mapping);
                if let Some(space) = self.spaces.get_mut(&pid) {
                    space.mappings[found].1 = Some(module);
                }
                module
            }
        };
        (Some(module), address)
    }

    /// The number of a mapping's module, reported if it is new or has grown.
    fn module(&mut self, pid: i32, mapping: &Mapping) -> u32 {
        let known = Known {
            pid: (mapping.inode == 0).then_some(pid),
            inode: mapping.inode,
            path: mapping.path.clone(),
            base: match mapping.inode {
                0 => mapping.start,
                _ => mapping.start.wrapping_sub(mapping.offset),
            },
        };
        let Mapping { start, end, offset, .. } = *mapping;
        let piece = ModuleMapping { start, end, offset };
        let found = self.modules.iter().position(|(it, _)| *it == known);
        let found = found.unwrap_or_else(|| {
            self.modules.push((known, Vec::new()));
            self.modules.len() - 1
        });
        let id = u32::try_from(found).unwrap_or(u32::MAX);
        let (known, pieces) = &mut self.modules[found];
        if !pieces.contains(&piece) {
            pieces.push(piece);
            self.sink.module(&Module {
                id,
                pid,
                path: known.path.clone(),
                changing: mapping.inode == 0 && known.path.as_os_str().is_empty(),
                mappings: pieces.clone(),
                file: mapping.open(pid).map(Arc::new),
            });
        }
        id
    }
}

impl Space {
    /// Reads the mappings again; those that have stayed keep their modules.
    fn refresh(&mut self, pid: i32) {
        let before = std::mem::take(&mut self.mappings);
        let module = |mapping: &Mapping| {
            before.iter().find(|(it, _)| it == mapping).and_then(|(_, module)| *module)
        };
        self.mappings =
            maps::executable(pid).into_iter().map(|it| (it.clone(), module(&it))).collect();
        self.stale = false;
    }
}

fn end_of(kind: BranchKind) -> BlockEnd {
    match kind {
        BranchKind::Conditional => BlockEnd::Conditional,
        BranchKind::DirectJump | BranchKind::FarTransfer => BlockEnd::Jump,
        BranchKind::DirectCall => BlockEnd::Call,
        BranchKind::IndirectJump => BlockEnd::IndirectJump,
        BranchKind::IndirectCall => BlockEnd::IndirectCall,
        BranchKind::Return => BlockEnd::Return,
    }
}
