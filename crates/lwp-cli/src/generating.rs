//! Processes that execute code that no file holds: their lists of generated code are to be read.
//!
//! Forked processes share modules and blocks, and each of these is reported once, with the process
//! that executes it first. So the code that a thread has executed tells whether its process is one
//! of them.
//!
//! Promise: R31

use std::collections::{BTreeMap, BTreeSet};

use lwp_vcpu::profile as vcpu;
use rustc_hash::FxHashSet;

/// Processes that execute generated code.
#[derive(Debug, Default)]
pub struct Generating {
    /// Modules without a file, or with bytes that may change.
    modules: BTreeSet<u32>,
    /// Their blocks.
    blocks: FxHashSet<u32>,
    /// The process of each thread.
    threads: BTreeMap<u32, i32>,
    processes: BTreeSet<i32>,
}

impl Generating {
    /// Takes in a module. Returns the process that it was met in, if that is news.
    pub fn module(&mut self, module: &vcpu::Module, anonymous: bool) -> Option<i32> {
        if !module.changing && !anonymous {
            return None;
        }
        self.modules.insert(module.id);
        self.add(module.pid)
    }

    /// Takes in blocks.
    pub fn blocks(&mut self, blocks: &[vcpu::Block]) {
        let of_them = blocks.iter().filter(|block| self.modules.contains(&block.module));
        self.blocks.extend(of_them.map(|block| block.id));
    }

    /// Takes in what a thread has executed. Returns its process, if it is news that it generates
    /// code.
    pub fn thread(&mut self, thread: &vcpu::ThreadExecutions) -> Option<i32> {
        self.threads.insert(thread.serial, thread.pid);
        if self.modules.is_empty() || self.processes.contains(&thread.pid) {
            return None;
        }
        let of_block = |block: &u32| self.blocks.contains(block);
        let of_module = |module: &Option<u32>| module.is_some_and(|id| self.modules.contains(&id));
        let has = thread.blocks.iter().any(|count| of_block(&count.block))
            || thread.partial.iter().any(|(block, ..)| of_block(block))
            || thread.steps.iter().any(|(module, ..)| of_module(module))
            || thread.jumps.iter().any(|jump| of_module(&jump.from.module));
        if has { self.add(thread.pid) } else { None }
    }

    /// Takes in a sample. Returns its process, likewise.
    pub fn sample(&mut self, sample: &vcpu::Sample<'_>) -> Option<i32> {
        if self.modules.is_empty() {
            return None;
        }
        let &process = self.threads.get(&sample.serial)?;
        let of_them =
            |place: &vcpu::Place| place.module.is_some_and(|id| self.modules.contains(&id));
        if !self.processes.contains(&process) && sample.stack.iter().any(of_them) {
            return self.add(process);
        }
        None
    }

    /// The processes, in order; there are none afterwards.
    pub fn take(&mut self) -> BTreeSet<i32> {
        std::mem::take(&mut self.processes)
    }

    fn add(&mut self, process: i32) -> Option<i32> {
        self.processes.insert(process).then_some(process)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(id: u32, pid: i32, changing: bool) -> vcpu::Module {
        vcpu::Module { id, pid, path: "/x".into(), changing, mappings: Vec::new(), file: None }
    }

    fn block(id: u32, module: u32) -> vcpu::Block {
        let end = vcpu::BlockEnd::Other;
        let (pc, bytes, lengths) = (0, Vec::new(), Vec::new());
        vcpu::Block { id, module, pc, bytes, lengths, counted: 0, end, target: None }
    }

    fn thread(serial: u32, pid: i32) -> vcpu::ThreadExecutions {
        vcpu::ThreadExecutions { serial, pid, ..vcpu::ThreadExecutions::default() }
    }

    /// A module of 7's is met in 7; 8 executes a block of it, 9 an instruction, 10 and 11 nothing
    /// of it.
    #[test]
    fn every_process_that_executes_generated_code_is_known() {
        let mut generating = Generating::default();
        assert_eq!(generating.module(&module(0, 6, false), false), None);
        assert_eq!(generating.module(&module(1, 7, false), true), Some(7));
        assert_eq!(generating.module(&module(1, 7, false), true), None);
        generating.blocks(&[block(0, 0), block(1, 1)]);
        let count = |block| vcpu::BlockCount { block, runs: 1, not_taken: 0 };
        let blocks = vec![count(0), count(1)];
        let eight = vcpu::ThreadExecutions { blocks, ..thread(0, 8) };
        assert_eq!(generating.thread(&eight), Some(8));
        assert_eq!(generating.thread(&eight), None);
        let steps = vec![(None, 5, 1), (Some(1), 6, 1)];
        assert_eq!(generating.thread(&vcpu::ThreadExecutions { steps, ..thread(1, 9) }), Some(9));
        let others = vcpu::ThreadExecutions { blocks: vec![count(0)], ..thread(2, 10) };
        assert_eq!(generating.thread(&others), None);
        assert_eq!(generating.take(), BTreeSet::from([7, 8, 9]));
        assert_eq!(generating.take(), BTreeSet::new());
    }

    #[test]
    fn a_sample_of_generated_code_tells_too() {
        let mut generating = Generating::default();
        generating.module(&module(1, 7, true), false);
        assert_eq!(generating.thread(&thread(4, 8)), None);
        let place = |module| vcpu::Place { module, address: 1 };
        let elsewhere = [place(Some(0)), place(None)];
        generating.sample(&vcpu::Sample { serial: 4, event: 0, stack: &elsewhere });
        generating.sample(&vcpu::Sample { serial: 5, event: 0, stack: &[place(Some(1))] });
        let stack = [place(Some(0)), place(Some(1))];
        assert_eq!(generating.take(), BTreeSet::from([7]));
        generating.sample(&vcpu::Sample { serial: 4, event: 0, stack: &stack });
        assert_eq!(generating.take(), BTreeSet::from([8]));
    }
}
