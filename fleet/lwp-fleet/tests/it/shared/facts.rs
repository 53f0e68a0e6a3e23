//! Facts that tests are made of.

use lwp_facts::{CallFact, Facts, FunctionFact, LineFact, ModuleFact, Run};
use lwp_profile::{CallKind, Event, Mode};

/// Functions of a recording, unless it says otherwise; it has as many lines and calls.
pub const FUNCTIONS: u64 = 20;

/// A recording to be made.
#[derive(Clone, Debug)]
pub struct Recording<'a> {
    /// The number of its commit.
    pub n: u64,
    /// Its functions execute so many times what they do by themselves.
    pub scale: u64,
    pub functions: u64,
    /// The number of its commit's parent; 0 if it is not known.
    pub parent: u64,
    pub deterministic: bool,
    pub project: &'a str,
    pub benchmark: &'a str,
    pub branch: &'a str,
    pub host: &'a str,
    /// The label `machine`, unless it is empty.
    pub machine: &'a str,
    /// Seconds since 1970.
    pub started: i64,
}

impl Recording<'_> {
    /// A recording of commit `n`.
    pub fn new(n: u64) -> Self {
        Self {
            n,
            scale: 1,
            functions: FUNCTIONS,
            parent: 0,
            deterministic: true,
            project: "p",
            benchmark: "b",
            branch: "main",
            host: "",
            machine: "",
            started: 1_700_000_000 + n as i64,
        }
    }

    /// Its text.
    pub fn text(&self) -> String {
        let function = |index: u64| FunctionFact {
            name: format!("function_{index}"),
            own: (0..8).map(|event| 1000 * (index + 1) * self.scale + event).collect(),
            entered: index,
            ..FunctionFact::default()
        };
        let functions: Vec<FunctionFact> = (0..self.functions).map(function).collect();
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
        let machine = Some(("machine".to_owned(), self.machine.to_owned()));
        let facts = Facts {
            run: Run {
                project: self.project.into(),
                benchmark: self.benchmark.into(),
                branch: self.branch.into(),
                host: self.host.into(),
                commit: commit(self.n),
                started: self.started,
                parent: if self.parent == 0 { String::new() } else { commit(self.parent) },
                deterministic: self.deterministic,
                complete: true,
                labels: machine.filter(|(_, value)| !value.is_empty()).into_iter().collect(),
                ..Run::default()
            },
            mode: Mode::Exact,
            events: Event::exact(),
            total,
            modules: vec![ModuleFact { name: "m".into(), ..ModuleFact::default() }],
            functions,
            lines: (0..self.functions).map(line).collect(),
            calls: (0..self.functions).map(call).collect(),
            stacks: Vec::new(),
        };
        facts.write()
    }
}

/// The text of a recording of commit `n`, whose functions execute `scale` times what they do by themselves.
pub fn facts(n: u64, scale: u64) -> String {
    Recording { scale, ..Recording::new(n) }.text()
}

/// The text of such a recording, for a benchmark on a branch.
pub fn of(n: u64, scale: u64, benchmark: &str, branch: &str) -> String {
    Recording { scale, benchmark, branch, ..Recording::new(n) }.text()
}

/// The commit of `n`.
pub fn commit(n: u64) -> String {
    format!("{n:08x}{n:032x}")
}

/// Seconds since 1970, so many days ago.
pub fn days_ago(days: i64) -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.expect("a clock").as_secs() as i64 - days * 86_400
}
