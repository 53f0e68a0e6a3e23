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

/// Among a compiler's options: the program is stripped before it runs.
const STRIPPED: &str = "-DSTRIPPED";

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
        let elf = Elf::parse(&std::fs::read(&path).expect("a program")).expect("an ELF file");
        let is_stripped = options.contains(&STRIPPED);
        if is_stripped && !Command::new("strip").arg(&path).status().is_ok_and(|it| it.success()) {
            eprintln!("skipped: no strip");
            return None;
        }
        let path = path.canonicalize().expect("a path");
        let recorder = Recorder::default();
        let config = Config::launch(path.clone(), vec![path.clone().into()], Plan::Exact);
        let sink: Box<dyn Sink> = Box::new(recorder.clone());
        let outcome = run_profiled(&config, None, Some(sink)).expect("it runs");
        assert_eq!(outcome.status, ExitStatus::Code(0));
        let told = recorder.with(std::mem::take);
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
            let of_contexts =
                thread.contexts.iter().fold(0u64, |sum, it| sum.wrapping_add(it.instructions));
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

const WORK: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#define N __attribute__((noipa))
N long work(long n) {
    long s = 0;
    for (long i = 0; i < n; i++) s += i ^ (s << 1);
    return s;
}
"#;

/// The instructions that `work(n)` executes: as many for the call, and for each turn of its loop.
struct Work {
    call: u64,
    turn: u64,
}

impl Work {
    /// From contexts in which it was called with 1 and with 2.
    fn of(contexts: &BTreeMap<String, (u64, u64)>) -> Self {
        let one = contexts["main one work"];
        let two = contexts["main two work"];
        assert_eq!((one.0, two.0), (1, 1), "{contexts:#?}");
        let turn = two.1 - one.1;
        Self { call: one.1 - turn, turn }
    }

    fn costs(&self, turns: u64) -> u64 {
        self.call + turns * self.turn
    }
}

/// Runs a program that calls `work`, and checks how often and for how many turns it was called along
/// each path.
fn check_work(name: &str, rest: &str, options: &[&str], wanted: &[(&str, u64, u64)]) {
    let measures = "N void one(void) { work(1); __asm__(\"\"); }\n\
                    N void two(void) { work(2); __asm__(\"\"); }\n";
    let source = format!("{WORK}{measures}{rest}");
    let Some(run) = Run::of(name, &source, options) else { return };
    run.check_sums();
    let contexts = run.contexts();
    let work = Work::of(&contexts);
    for &(path, calls, turns) in wanted {
        let found = contexts.get(path).copied();
        let costs = calls * work.call + turns * work.turn;
        assert_eq!(found, Some((calls, costs)), "{path}: {contexts:#?}");
    }
    assert!(work.costs(1) > 3, "{contexts:#?}");
}

#[test]
fn recursion_and_tail_calls_are_told_apart() {
    let rest = r#"
N long odd(long n);
N long even(long n) { work(3); return n ? odd(n - 1) + 1 : 0; }
N long odd(long n) { work(5); return n ? even(n - 1) + 1 : 0; }
N long last(long n) { return work(n); }
int main(void) {
    one(); two();
    long s = even(3) + last(7);
    return s == 12345678;
}
"#;
    let wanted = [
        ("main even work", 1, 3),
        ("main even odd work", 1, 5),
        ("main even odd even work", 1, 3),
        ("main even odd even odd work", 1, 5),
        ("main last ~work", 1, 7),
    ];
    check_work("recursion", rest, &["-O2"], &wanted);
}

#[test]
fn stripped_programs_have_functions_too() {
    let rest = r#"
N long last(long n) { return work(n); }
N long next(long n) { return last(n + 1); }
int main(void) {
    one(); two();
    return last(7) + next(8) == 12345678;
}
"#;
    let wanted = [("main last ~work", 1, 7), ("main next ~last ~work", 1, 9)];
    check_work("named", rest, &["-O2"], &wanted);
    check_work("stripped", rest, &["-O2", STRIPPED], &wanted);
}

#[test]
fn frames_that_longjmp_leaves_are_left() {
    let rest = r#"
#include <setjmp.h>
static jmp_buf buffer;
N void deep(long n) { work(1); if (n) deep(n - 1); else longjmp(buffer, 1); work(1000000); }
N void after(void) { work(9); }
int main(void) {
    one(); two();
    for (int i = 0; i < 3; i++)
        if (!setjmp(buffer)) deep(2); else after();
    return 0;
}
"#;
    let wanted = [
        ("main deep work", 3, 3),
        ("main deep deep work", 3, 3),
        ("main deep deep deep work", 3, 3),
        ("main after work", 3, 27),
    ];
    check_work("longjmp", rest, &[], &wanted);
}

#[test]
fn a_handler_is_called_by_what_it_interrupts() {
    let rest = r#"
#include <signal.h>
static volatile int taken;
N void handler(int signal) { work(11); taken++; }
N void raises(void) { raise(SIGUSR1); work(4); }
int main(void) {
    one(); two();
    signal(SIGUSR1, handler);
    for (int i = 0; i < 5; i++) raises();
    work(6);
    return taken != 5;
}
"#;
    let wanted =
        [("main raises !handler work", 5, 55), ("main raises work", 5, 20), ("main work", 1, 6)];
    check_work("handler", rest, &[], &wanted);
}

/// Handlers take no longer than without contexts: the program goes on between signals that come
/// fast, and what they leave unfinished is neither counted twice nor lost.
#[test]
fn signals_that_come_fast_cost_no_call() {
    let rest = r#"
#include <signal.h>
#include <setjmp.h>
#include <sys/time.h>
static volatile int taken;
static sigjmp_buf before;
N void nothing(void) { taken++; }
N void handler(int signal) { nothing(); }
N void leaves(int signal) { siglongjmp(before, 1); }
N void leaf(void) { taken += 0; }
N void tail(void) { leaf(); }
N void descends(int depth) { if (depth) descends(depth - 1); else tail(); taken += 0; }
int main(void) {
    signal(SIGALRM, handler);
    signal(SIGUSR1, leaves);
    struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &often, 0);
    for (int i = 0; i < 200000; i++) descends(3);
    setitimer(ITIMER_REAL, &never, 0);
    for (volatile int i = 0; i < 3; i++) if (!sigsetjmp(before, 1)) raise(SIGUSR1);
    return taken == 0;
}
"#;
    let Some(run) = Run::of("fast", &format!("{WORK}{rest}"), &[]) else { return };
    run.check_sums();
    let contexts = run.contexts();
    let calls = |path: &str| contexts.get(path).map_or(0, |it| it.0);
    let inner = "main descends descends descends descends";
    assert_eq!(calls(inner), 200_000);
    let tails = calls(&format!("{inner} tail")) + calls(&format!("{inner} ~tail"));
    assert_eq!(tails, 200_000, "{contexts:?}");
    let of = |name: &str| -> u64 {
        let ends = |path: &&String| path.ends_with(name);
        contexts.iter().filter(|(path, _)| ends(path)).map(|it| it.1.0).sum()
    };
    assert_eq!(of("!handler nothing") + of("!handler ~nothing"), of("!handler"));
    assert_eq!(of("!leaves"), 3);
}

#[test]
fn coroutines_have_frames_of_their_own() {
    let rest = r#"
#include <ucontext.h>
static ucontext_t outside, inside;
static char stack[65536];
N void yield(void) { work(2); swapcontext(&inside, &outside); work(3); }
N void routine(void) { for (int i = 0; i < 4; i++) yield(); }
N void resume(void) { work(5); swapcontext(&outside, &inside); work(7); }
int main(void) {
    one(); two();
    getcontext(&inside);
    inside.uc_stack.ss_sp = stack;
    inside.uc_stack.ss_size = sizeof stack;
    inside.uc_link = &outside;
    makecontext(&inside, routine, 0);
    for (int i = 0; i < 5; i++) resume();
    return 0;
}
"#;
    // What the routine calls is called from where it was begun.
    let wanted = [("main resume work", 10, 60), ("main resume ~routine yield work", 8, 20)];
    check_work("coroutines", rest, &[], &wanted);
}

#[test]
fn threads_and_children_have_contexts_of_their_own() {
    let rest = r#"
#include <pthread.h>
#include <unistd.h>
#include <sys/wait.h>
N void *thread(void *n) { work((long)n); return 0; }
N void child(void) { work(17); _exit(0); }
N void forks(void) { pid_t pid = fork(); if (!pid) child(); waitpid(pid, 0, 0); }
int main(void) {
    one(); two();
    pthread_t threads[3];
    for (long i = 0; i < 3; i++) pthread_create(&threads[i], 0, thread, (void *)(i + 10));
    for (long i = 0; i < 3; i++) pthread_join(threads[i], 0);
    forks();
    return 0;
}
"#;
    let wanted = [("thread work", 3, 33), ("main forks child work", 1, 17)];
    check_work("threads", rest, &["-pthread"], &wanted);
}

#[test]
fn the_resolver_is_not_the_caller_of_what_it_binds() {
    let rest = r#"
N int compare(const void *a, const void *b) { work(1); return *(int *)a - *(int *)b; }
N void sorts(void) { int all[] = { 1, 2 }; qsort(all, 2, sizeof *all, compare); }
int main(void) {
    one(); two();
    sorts(); sorts();
    return 0;
}
"#;
    let wanted = [("main sorts compare work", 2, 2)];
    check_work("lazy", rest, &["-fplt", "-Wl,-z,lazy"], &wanted);
    check_work("eager", rest, &["-Wl,-z,now"], &wanted);
}

#[test]
fn jumps_through_tables_stay_in_their_function() {
    let rest = r#"
N long choose(long n) {
    switch (n) {
    case 0: return work(1);
    case 1: return work(2) + 1;
    case 2: return work(3) * 5;
    case 3: return work(4) - 9;
    case 4: return work(5) ^ 3;
    case 5: return work(6) + n;
    default: return n;
    }
}
int main(void) {
    one(); two();
    long s = 0;
    for (int i = 0; i < 60; i++) s += choose(i % 6);
    return s == 12345678;
}
"#;
    check_work("tables", rest, &["-fno-optimize-sibling-calls"], &[("main choose work", 60, 210)]);
}
