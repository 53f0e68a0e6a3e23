//! Calling contexts are measured: programs whose counts by caller are known.
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use lwp_symbols::Elf;
use lwp_vcpu::profile::{Block, Context, ContextKind, Module, Sample, Sink, ThreadExecutions};
use lwp_vcpu::{Config, ExitStatus, Plan, run_profiled};

/// Everything that a run tells.
#[derive(Debug, Default)]
struct Told {
    modules: Vec<Module>,
    threads: BTreeMap<u32, ThreadExecutions>,
    blocks: BTreeMap<u32, Block>,
}

#[derive(Clone, Debug, Default)]
struct Recorder(Arc<Mutex<Told>>);

impl Recorder {
    fn with<T>(&self, read: impl FnOnce(&mut Told) -> T) -> T {
        read(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Sink for Recorder {
    fn module(&mut self, module: &Module) {
        self.with(|told| {
            told.modules.retain(|it| it.id != module.id);
            told.modules.push(module.clone());
        });
    }

    fn blocks(&mut self, blocks: &[Block]) {
        self.with(|told| told.blocks.extend(blocks.iter().map(|it| (it.id, it.clone()))));
    }

    fn thread(&mut self, thread: &ThreadExecutions) {
        self.with(|told| drop(told.threads.insert(thread.serial, thread.clone())));
    }

    fn wants_calls(&self) -> bool {
        true
    }

    fn wants_contexts(&self) -> bool {
        true
    }

    fn sample(&mut self, _: &Sample<'_>) {}
}

/// A program, and what a run of it has told.
struct Run {
    told: Told,
    elf: Elf,
    path: PathBuf,
}

impl Run {
    /// Compiles `source` and runs it; `None` without a compiler.
    fn of(name: &str, source: &str, options: &[&str]) -> Option<Self> {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("contexts").join(name);
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).expect("a directory");
        let (file, path) = (dir.join("program.c"), dir.join("program"));
        std::fs::write(&file, source).expect("a source");
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-g", "-fno-plt", "-o"]).arg(&path).arg(&file).args(options);
        if !compiler.status().is_ok_and(|status| status.success()) {
            eprintln!("skipped: no C compiler");
            return None;
        }
        let path = path.canonicalize().expect("a path");
        let recorder = Recorder::default();
        let config = Config::launch(path.clone(), vec![path.clone().into()], Plan::Exact);
        let sink: Box<dyn Sink> = Box::new(recorder.clone());
        let outcome = run_profiled(&config, None, Some(sink)).expect("it runs");
        assert_eq!(outcome.status, ExitStatus::Code(0));
        let told = recorder.with(std::mem::take);
        let elf = Elf::parse(&std::fs::read(&path).expect("a program")).expect("an ELF file");
        Some(Self { told, elf, path })
    }

    /// The name of the program's own function at an address, or that of the file there.
    fn name(&self, module: Option<u32>, address: u64) -> String {
        let module = self.told.modules.iter().find(|it| Some(it.id) == module);
        let Some(module) = module else { return "?".to_owned() };
        let mapping = module.mappings.iter().find(|it| (it.start..it.end).contains(&address));
        let Some(mapping) = mapping.filter(|_| module.path == self.path) else {
            return module.path.display().to_string();
        };
        let there = self.elf.address_of(address - mapping.start + mapping.offset);
        let function = there.and_then(|there| self.elf.function_at(there));
        function.map_or_else(|| "?".to_owned(), |function| function.name.to_owned())
    }

    /// The names along the path to a context, the outermost first, the program's own alone.
    fn path_of(&self, contexts: &[Context], index: usize) -> String {
        let mut names = Vec::new();
        let mut at = Some(index);
        while let Some(index) = at {
            let context = contexts[index];
            let name = self.name(context.entry.module, context.entry.address);
            let mark = match context.kind {
                ContextKind::Jump => "~",
                ContextKind::Signal => "!",
                _ => "",
            };
            if !name.starts_with('/') && name != "_start" {
                names.push(format!("{mark}{name}"));
            }
            at = context.caller.map(|caller| caller as usize);
        }
        names.reverse();
        names.join(" ")
    }

    /// Calls and own instructions of the program's own contexts, by path.
    fn contexts(&self) -> BTreeMap<String, (u64, u64)> {
        let mut out: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for thread in self.told.threads.values() {
            for (index, context) in thread.contexts.iter().enumerate() {
                if self.name(context.entry.module, context.entry.address).starts_with('/') {
                    continue;
                }
                let sum = out.entry(self.path_of(&thread.contexts, index)).or_default();
                sum.0 += context.calls;
                sum.1 += context.instructions;
            }
        }
        out
    }

    /// Checks that the contexts of each thread add up to what its blocks say.
    fn check_sums(&self) {
        for thread in self.told.threads.values() {
            let of_blocks: i64 = thread
                .blocks
                .iter()
                .map(|it| (it.runs * u64::from(self.told.blocks[&it.block].counted)) as i64)
                .chain(thread.partial.iter().map(|it| (u64::from(it.1) * it.2) as i64))
                .chain(thread.steps.iter().map(|it| it.2))
                .sum();
            let of_contexts = thread
                .contexts
                .iter()
                .fold(0u64, |sum, it| sum.wrapping_add(it.instructions));
            assert_eq!(of_contexts as i64, of_blocks, "{}", thread.comm);
        }
    }
}

const UNEQUAL: &str = r#"
#include <stdio.h>
__attribute__((noipa)) long work(long n) {
    long s = 0;
    for (long i = 0; i < n; i++) s += i ^ (s << 1);
    return s;
}
__attribute__((noipa)) long cheap(void) {
    long s = 0;
    for (int i = 0; i < 1000; i++) s += work(1);
    return s;
}
__attribute__((noipa)) long dear(void) {
    long s = 0;
    for (int i = 0; i < 1000; i++) s += work(1000);
    return s;
}
int main(void) {
    long s = cheap() + dear();
    return printf("%ld\n", s) < 0;
}
"#;

#[test]
fn two_callers_of_unequal_cost_are_told_apart() {
    let Some(run) = Run::of("unequal", UNEQUAL, &[]) else { return };
    run.check_sums();
    let contexts = run.contexts();
    let (cheap, dear) = (contexts["main cheap work"], contexts["main dear work"]);
    assert_eq!((cheap.0, dear.0), (1000, 1000), "{contexts:#?}");
    // The loop's body is executed once by the one and a thousand times by the other.
    let body = (dear.1 - cheap.1) / (999 * 1000);
    assert!((4..=6).contains(&body), "{contexts:#?}");
    assert_eq!(dear.1 - cheap.1, body * 999 * 1000, "{contexts:#?}");
}
