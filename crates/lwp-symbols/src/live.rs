//! Functions of a program that is still running: what each has executed so far.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use lwp_profile::{Block, BlockEnd, RecordedModule, RecordedSymbol, ThreadExecutions};
use rustc_hash::FxHashMap;

use crate::bounds::{mapped, part_of_gap};
use crate::demangle::demangle;
use crate::files::Files;
use crate::generated::Generated;
use crate::module::ModuleNames;
use crate::naming::unnamed;

/// The executions of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveFunction {
    /// The name of its file, without directories; `[generated]` where there is none.
    pub module: String,
    /// Its name.
    pub name: String,
    /// Instructions executed in it, by all threads.
    pub instructions: u64,
}

/// Adds up executions by function while they arrive. Each name is looked up once.
#[derive(Debug, Default)]
pub struct Live {
    debug_roots: Vec<PathBuf>,
    modules: FxHashMap<u32, Code>,
    generated: Generated,
    functions: Vec<LiveFunction>,
    /// By module, start, and whether a symbol starts there.
    numbers: FxHashMap<(u32, u64, bool), u32>,
    /// Addresses that direct calls led to, by module and in order.
    starts: FxHashMap<u32, Vec<u64>>,
    /// Functions of each block, and how many of its instructions lie in each.
    blocks: FxHashMap<u32, Box<[Share]>>,
    /// Instructions by function, of each thread as it last reported.
    threads: BTreeMap<u32, Vec<i64>>,
}

#[derive(Debug)]
struct Code {
    module: RecordedModule,
    names: ModuleNames,
}

#[derive(Clone, Copy, Debug)]
struct Share {
    function: u32,
    instructions: u16,
}

impl Live {
    /// Nothing has been executed; debug files are looked for in `debug_roots` too.
    pub fn new(debug_roots: Vec<PathBuf>) -> Self {
        Self { debug_roots, ..Self::default() }
    }

    /// A module, or more of one that is known, and its file, if it is open.
    pub fn module(&mut self, module: RecordedModule, file: Option<Arc<File>>) {
        match self.modules.get_mut(&module.id) {
            Some(known) => known.module = module,
            None => {
                let held: Vec<_> = file.into_iter().map(|it| (module.path.clone(), it)).collect();
                let mut files = Files::new(&[], &self.debug_roots);
                files.held = &held;
                let names = ModuleNames::find(&module, &files, false);
                self.modules.insert(module.id, Code { module, names });
            }
        }
    }

    /// Names generated code from here on. Blocks keep the names that they have.
    pub fn generated(&mut self, symbols: &[RecordedSymbol]) {
        self.generated = Generated::new(symbols);
    }

    /// Blocks of modules that are known.
    pub fn blocks(&mut self, blocks: &[Block]) {
        self.note_calls(blocks);
        for block in blocks {
            let shares = self.shares(block);
            self.blocks.insert(block.id, shares);
        }
    }

    fn shares(&mut self, block: &Block) -> Box<[Share]> {
        let mut shares: Vec<Share> = Vec::new();
        let mut address = block.address;
        for &len in block.lengths.iter().take(usize::from(block.counted)) {
            let function = self.function_at(Some(block.module), address);
            match shares.last_mut() {
                Some(share) if share.function == function => share.instructions += 1,
                _ => shares.push(Share { function, instructions: 1 }),
            }
            address = address.wrapping_add(len.into());
        }
        shares.into()
    }

    /// Takes the executions of a thread since it started; they replace its former report.
    pub fn thread(&mut self, thread: &ThreadExecutions) {
        let mut sums = self.threads.remove(&thread.serial).unwrap_or_default();
        sums.clear();
        let mut add = |function: u32, count: i64| {
            let index = function as usize;
            if sums.len() <= index {
                sums.resize(index + 1, 0);
            }
            sums[index] = sums[index].wrapping_add(count);
        };
        for count in &thread.blocks {
            for share in self.blocks.get(&count.block).into_iter().flatten() {
                let runs = i64::try_from(count.runs).unwrap_or(i64::MAX);
                add(share.function, runs.wrapping_mul(share.instructions.into()));
            }
        }
        for &(block, instructions, times) in &thread.partial {
            let mut left = instructions;
            for share in self.blocks.get(&block).into_iter().flatten() {
                let executed = share.instructions.min(left);
                left -= executed;
                add(share.function, i64::from(executed).wrapping_mul(times as i64));
            }
        }
        for &(module, address, times) in &thread.steps {
            add(self.function_at(module, address), times);
        }
        self.threads.insert(thread.serial, sums);
    }

    /// Every function that has executed something.
    pub fn functions(&mut self) -> &[LiveFunction] {
        let mut sums = vec![0i64; self.functions.len()];
        for thread in self.threads.values() {
            for (sum, count) in sums.iter_mut().zip(thread) {
                *sum = sum.wrapping_add(*count);
            }
        }
        for (function, sum) in self.functions.iter_mut().zip(sums) {
            // Corrections may come before what they correct.
            function.instructions = u64::try_from(sum).unwrap_or(0);
        }
        &self.functions
    }

    /// The number of the function at `address` of the process.
    fn function_at(&mut self, module: Option<u32>, address: u64) -> u32 {
        let code = module.and_then(|module| self.modules.get(&module));
        let file = match code {
            Some(code) => code.names.address_of(code.module.offset_of(address)),
            None => address,
        };
        let (start, name) = match code.and_then(|code| code.names.function_at(file)) {
            Some(symbol) => (symbol.address, Some(symbol.name)),
            None => self.nameless(code, file),
        };
        let key = (module.unwrap_or(u32::MAX), start, name.is_some());
        if let Some(&number) = self.numbers.get(&key) {
            return number;
        }
        let of_module = code.map_or_else(|| "[unknown]".into(), |code| file_name(&code.module));
        let function = LiveFunction {
            name: name.map_or_else(|| unnamed(&of_module, &format!("{start:#x}")), demangle),
            module: of_module,
            instructions: 0,
        };
        let number = self.functions.len() as u32;
        self.functions.push(function);
        self.numbers.insert(key, number);
        number
    }

    /// Returns the start of the function about code without a symbol, and the name that its
    /// generator gave it.
    fn nameless<'a>(&'a self, code: Option<&Code>, address: u64) -> (u64, Option<&'a str>) {
        let generated = code.is_none_or(|code| code.module.is_anonymous());
        if let Some(symbol) = self.generated.at(address).filter(|_| generated) {
            return (symbol.address, Some(symbol.name));
        }
        let starts = code.and_then(|code| self.starts.get(&code.module.id));
        let starts = || starts.map_or(&[][..], Vec::as_slice);
        let unnamed = match code.and_then(|code| code.names.elf()) {
            Some(elf) => elf.unnamed_at(address, starts),
            None => {
                let (before, next) = self.generated.around(address);
                let (start, end) = code.map_or((0, u64::MAX), |it| mapped(&it.module, address));
                part_of_gap(&(start.max(before)..end.min(next)), address, starts(), None)
            }
        };
        (unnamed.range.start, None)
    }

    /// Notes where direct calls lead: functions without a symbol start there.
    fn note_calls(&mut self, blocks: &[Block]) {
        let calls = blocks.iter().filter(|block| block.end == BlockEnd::Call);
        for (module, target) in calls.filter_map(|block| Some((block.module, block.target?))) {
            let Some(code) = self.modules.get(&module) else { continue };
            let target = code.names.address_of(code.module.offset_of(target));
            let starts = self.starts.entry(module).or_default();
            if let Err(at) = starts.binary_search(&target) {
                starts.insert(at, target);
            }
        }
    }
}

/// Returns a module's name in a table.
fn file_name(module: &RecordedModule) -> String {
    if module.is_anonymous() && module.path != "[vdso]" {
        return "[generated]".into();
    }
    module.path.rsplit('/').next().unwrap_or(&module.path).to_owned()
}

#[cfg(test)]
mod tests {
    use lwp_profile::BlockCount;

    use super::*;

    #[test]
    fn the_last_report_of_each_thread_counts() {
        let mut live = Live::new(Vec::new());
        live.module(RecordedModule { id: 3, ..RecordedModule::default() }, None);
        let symbol = |address, name: &str| RecordedSymbol {
            pid: 1,
            address,
            size: 2,
            name: name.to_owned(),
        };
        live.generated(&[symbol(0x1000, "f"), symbol(0x1002, "g")]);
        let lengths = vec![1; 5];
        let block =
            Block { id: 7, module: 3, address: 0x1000, lengths, counted: 5, ..Block::default() };
        live.blocks(&[block]);
        let thread = |serial, runs, partial: u64| ThreadExecutions {
            serial,
            blocks: vec![BlockCount { block: 7, runs, not_taken: 0 }],
            partial: vec![(7, 3, partial)],
            steps: vec![(Some(3), 0x1003, -1)],
            ..ThreadExecutions::default()
        };
        live.thread(&thread(0, 10, 0));
        live.thread(&thread(0, 100, 2));
        live.thread(&thread(1, 1000, 0));
        let counts: Vec<(&str, u64)> =
            live.functions().iter().map(|f| (f.name.as_str(), f.instructions)).collect();
        assert_eq!(counts, [("f", 2204), ("g", 2200), ("[0x1004]", 1100)]);
    }
}
