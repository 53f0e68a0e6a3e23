//! A model of a project's history: benchmarks whose counts repeat from commit to commit, but for
//! the functions that a commit changes.

use lwp_facts::{CallFact, Facts, FunctionFact, LineFact, ModuleFact, Run};
use lwp_profile::{CallKind, Event, Mode};

/// Benchmarks.
pub const BENCHMARKS: u64 = 26;
/// Functions of a benchmark, on average.
const FUNCTIONS: u64 = 1409;
/// Lines of a function.
const LINES: u64 = 4;
/// Of a thousand functions, those that a commit changes for good.
const CHANGED: u64 = 2;
/// Of a thousand functions, those whose counts differ from run to run.
const JITTER: u64 = 100;
/// The first commit's time.
const BEGIN: i64 = 1_750_000_000;

/// A number that looks like any other, and is always the same for the same words.
fn hash(words: [u64; 4]) -> u64 {
    let mut value = 0x9e37_79b9_7f4a_7c15_u64;
    for word in words {
        value = (value ^ word).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value ^= value >> 29;
    }
    value.wrapping_mul(0x94d0_49bb_1331_11eb) ^ (value >> 32)
}

/// The size of a benchmark: few are large.
fn functions(benchmark: u64) -> u64 {
    FUNCTIONS / 4 + hash([benchmark, 1, 0, 0]) % (FUNCTIONS * 3 / 2)
}

/// The count of a function at a commit.
fn count(benchmark: u64, function: u64, commit: u64) -> u64 {
    let base = 10_u64.pow(1 + (hash([benchmark, function, 2, 0]) % 6) as u32);
    let changes = (1..=commit).filter(|c| hash([benchmark, function, *c, 3]) % 1000 < CHANGED);
    let grown = changes.fold(base * 7, |count, change| count + count * (1 + change % 9) / 100);
    let jitters = hash([benchmark, function, 4, 0]) % 1000 < JITTER;
    grown + if jitters { hash([benchmark, function, commit, 5]) % 97 } else { 0 }
}

/// The facts of a benchmark at a commit.
pub fn facts(benchmark: u64, commit: u64) -> Facts {
    let number = functions(benchmark);
    let own = |function: u64| -> Vec<u64> {
        let count = count(benchmark, function, commit);
        [1, 5, 9, 6, 11, 40, 40, 120].map(|part| count / part).to_vec()
    };
    let function = |index: u64| FunctionFact {
        module: u32::try_from(index % 3).unwrap_or(0),
        name: format!("project::module_{}::part_{}::function_{index}", index % 40, index % 7),
        file: format!("src/module_{}.rs", index % 40),
        line: 10 + (index % 900) as u32,
        entered: count(benchmark, index, 0) / 50,
        own: own(index),
        inclusive: Some(own(index)[0]),
    };
    let functions: Vec<FunctionFact> = (0..number).map(function).collect();
    let total = (0..8).map(|event| functions.iter().map(|row| row.own[event]).sum()).collect();
    let line = |index: u64| LineFact {
        function: (index / LINES) as u32,
        file: format!("src/module_{}.rs", index / LINES % 40),
        line: 10 + (index / LINES % 900) as u32 + (index % LINES) as u32,
        own: own(index / LINES).iter().map(|count| count / LINES).collect(),
    };
    let call = |index: u64| CallFact {
        caller: Some((hash([benchmark, index, 6, 0]) % number) as u32),
        callee: (index * 2 / 5) as u32,
        how: CallKind::Direct,
        count: count(benchmark, index * 2 / 5, commit) / 50 + 1,
    };
    let module = |name: &str| ModuleFact {
        name: name.into(),
        path: format!("/usr/lib/{name}"),
        build_id: format!("{:016x}", hash([benchmark, commit, 7, 0])),
    };
    Facts {
        run: run(benchmark, commit),
        mode: Mode::Exact,
        events: Event::exact(),
        total,
        modules: ["program", "libproject.so.1", "libc.so.6"].map(module).into(),
        functions,
        lines: (0..number * LINES).map(line).collect(),
        calls: (0..number * 5 / 2).map(call).collect(),
        stacks: Vec::new(),
    }
}

fn run(benchmark: u64, commit: u64) -> Run {
    Run {
        project: "model".into(),
        benchmark: format!("benchmark-{benchmark:02}"),
        branch: "main".into(),
        commit: self::commit(commit),
        host: format!("ci-{}", hash([benchmark, commit, 8, 0]) % 8),
        command: format!("./benchmark-{benchmark:02}"),
        // Four commits a day.
        started: BEGIN + 21_600 * commit as i64 + 60 * benchmark as i64,
        deterministic: true,
        complete: true,
        ..Run::default()
    }
}

/// The name of a commit.
pub fn commit(n: u64) -> String {
    format!("{:016x}{:016x}{n:08x}", hash([n, 9, 0, 0]), hash([n, 10, 0, 0]))
}
