//! Facts that tests are made of.

use lwp_facts::{CallFact, Facts, FunctionFact, LineFact, ModuleFact, Run};
use lwp_profile::{CallKind, Event, Mode};

/// Functions of a recording.
pub const FUNCTIONS: u64 = 20;

/// The text of a recording of commit `n`, whose functions execute `scale` times what they do by themselves.
pub fn facts(n: u64, scale: u64) -> String {
    of(n, scale, "b", "main")
}

/// The same for a benchmark on a branch.
pub fn of(n: u64, scale: u64, benchmark: &str, branch: &str) -> String {
    let function = |index: u64| FunctionFact {
        name: format!("function_{index}"),
        own: (0..8).map(|event| 1000 * (index + 1) * scale + event).collect(),
        entered: index,
        ..FunctionFact::default()
    };
    let functions: Vec<FunctionFact> = (0..FUNCTIONS).map(function).collect();
    let total = (0..8).map(|event| functions.iter().map(|row| row.own[event]).sum()).collect();
    let line = |index: u64| LineFact {
        function: index as u32,
        file: "a.c".into(),
        line: 7,
        own: vec![index; 8],
    };
    let call = |index: u64| CallFact {
        caller: Some(0),
        callee: index as u32,
        how: CallKind::Direct,
        count: index,
    };
    let facts = Facts {
        run: Run {
            project: "p".into(),
            benchmark: benchmark.into(),
            branch: branch.into(),
            commit: format!("{n:08x}{n:032x}"),
            started: 1_700_000_000 + n as i64,
            deterministic: true,
            complete: true,
            ..Run::default()
        },
        mode: Mode::Exact,
        events: Event::exact(),
        total,
        modules: vec![ModuleFact { name: "m".into(), ..ModuleFact::default() }],
        functions,
        lines: (0..FUNCTIONS).map(line).collect(),
        calls: (1..FUNCTIONS).map(call).collect(),
        stacks: Vec::new(),
    };
    facts.write()
}

/// The commit of `n`.
pub fn commit(n: u64) -> String {
    format!("{n:08x}{n:032x}")
}
