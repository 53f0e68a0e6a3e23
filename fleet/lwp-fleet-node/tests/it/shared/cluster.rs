//! Clusters of this machine, and a store for them.
#![allow(dead_code, reason = "each test uses some of it")]
#![allow(clippy::print_stdout, reason = "shown with a test that fails")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clap::Parser;
use lwp_facts::{CallFact, Facts, FunctionFact, LineFact, ModuleFact, Run};
use lwp_fleet::{CommandLine, commands};
use lwp_profile::{CallKind, Event, Mode};
use lwp_serve::{Scope, Token, Tokens, secret};
use lwp_store::{Location, Store};
use tempfile::TempDir;

/// Functions of a recording.
const FUNCTIONS: u64 = 60;

/// Exact facts; `seed` makes another recording of them, every tenth of which is a step.
fn exact(seed: u64) -> Facts {
    let function = |n: u64| FunctionFact {
        name: format!("function_{n}"),
        own: (0..8).map(|event| 100_000 * n + 5_000 * (seed / 10) * (n % 3) + event).collect(),
        entered: n,
        ..FunctionFact::default()
    };
    let functions: Vec<FunctionFact> = (0..FUNCTIONS).map(function).collect();
    let total = (0..8).map(|event| functions.iter().map(|row| row.own[event]).sum()).collect();
    let line =
        |n: u64| LineFact { function: n as u32, file: "a.c".into(), line: 7, own: vec![n; 8] };
    let call =
        |n: u64| CallFact { caller: Some(0), callee: n as u32, how: CallKind::Direct, count: n };
    Facts {
        run: run(seed, "exact"),
        mode: Mode::Exact,
        events: Event::exact(),
        total,
        modules: vec![ModuleFact { name: "m".into(), ..ModuleFact::default() }],
        functions,
        lines: (0..FUNCTIONS).map(line).collect(),
        calls: (1..FUNCTIONS).map(call).collect(),
        stacks: Vec::new(),
    }
}

fn run(seed: u64, benchmark: &str) -> Run {
    Run {
        project: "p".into(),
        benchmark: benchmark.into(),
        branch: "main".into(),
        commit: commit(seed),
        host: format!("h{}", seed % 3),
        started: 1_700_000_000 + 3600 * seed as i64,
        deterministic: true,
        complete: true,
        ..Run::default()
    }
}

/// The commit of a recording.
fn commit(seed: u64) -> String {
    format!("abc{seed:05x}{seed:032x}")
}

/// The rule that leaves a roll-up of recordings that are called `old`.
const RULES: &str = "[[retention]]
kinds = ['recording']
days = 365
filter = ['benchmark=old']
roll_up = true
";

/// Executes a command on a store.
fn dispatch(words: &[&str]) {
    let line = CommandLine::try_parse_from([&["lwp-fleet"], words].concat()).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(commands::dispatch(line)).unwrap();
}

/// A store with tokens for machines and for those who ask.
pub struct Stored {
    pub dir: TempDir,
    /// Variables of every machine, for a store that is not in the directory.
    pub variables: Vec<(&'static str, String)>,
    /// The words of all machines.
    pub said: Arc<Mutex<String>>,
    pub node: String,
    pub reader: String,
    pub writer: String,
}

impl Stored {
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    /// A store with so many recordings, each in files of its own.
    pub fn new(recordings: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let store = path.to_str().unwrap().to_owned();
        dispatch(&["init", "--store", &store]);
        for seed in 0..recordings {
            let file = dir.path().join("one.facts");
            std::fs::write(&file, exact(seed).write()).unwrap();
            dispatch(&["add", "--store", &store, file.to_str().unwrap()]);
        }
        let folded = dir.path().join("x.folded");
        std::fs::write(&folded, "main;parse;next 300\nmain;parse 40\nmain 3\n").unwrap();
        let folded = folded.to_str().unwrap();
        dispatch(&["add", "--store", &store, "--from", "folded", "--project", "p", folded]);
        let commit = commit(10);
        dispatch(&["note", "--store", &store, &commit, "expected"]);
        let [node, reader, writer] = [(); 3].map(|()| secret().unwrap());
        let token = vec![
            Token::new("node", &node, vec![Scope::Node]),
            Token::new("reader", &reader, vec![Scope::Read]),
            Token::new("writer", &writer, vec![Scope::Write]),
        ];
        tokio::runtime::Runtime::new().unwrap().block_on(async {
            let store = Store::open(Location::parse(&store).unwrap()).await.unwrap();
            Tokens { token }.set(&store).await.unwrap();
        });
        let (variables, said) = (Vec::new(), Arc::default());
        Self { dir, variables, said, node, reader, writer }
    }

    /// Adds a recording that expires at once and leaves its totals.
    pub fn roll_up(&self) {
        let (path, file) = (self.path(), self.dir.path().join("old"));
        let (store, file) = (path.to_str().unwrap(), file.to_str().unwrap());
        let mut facts = exact(1);
        facts.run = Run { started: 1_600_000_000, ..run(1, "old") };
        std::fs::write(file, facts.write()).unwrap();
        dispatch(&["add", "--store", store, file]);
        std::fs::write(file, RULES).unwrap();
        dispatch(&["retention", "--store", store, file]);
        dispatch(&["expire", "--store", store]);
    }

    pub fn command(&self, words: &[&str], token: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lwp-fleet-node"));
        command.args(words).env("LWP_FLEET_STORE", self.path()).env("LWP_FLEET_TOKEN", token);
        command.env("TMPDIR", self.dir.path()).stdin(Stdio::null());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// The answer of this machine alone.
    pub fn embedded(&self, words: &[&str]) -> String {
        text(self.command(words, "").output().unwrap(), words)
    }

    /// Starts a machine and waits until it says where it is.
    pub fn start(&self, words: &[&str]) -> Node {
        let mut command = self.command(words, &self.node);
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        let address = line.trim().rsplit(' ').next().unwrap_or_default();
        let address = address.trim_start_matches("df://").to_owned();
        assert!(address.contains(':'), "{words:?}: {line}");
        // What it says later is shown with the test, if that fails.
        let all = Arc::clone(&self.said);
        let listen = move || {
            for line in said.lines().map_while(Result::ok) {
                println!("{line}");
                *all.lock().unwrap() += &line;
            }
        };
        std::thread::Builder::new().spawn(listen).unwrap();
        Node { child, address }
    }

    /// A cluster with a scheduler and so many executors.
    pub fn cluster(&self, executors: usize) -> Cluster<'_> {
        let scheduler = self.start(&["scheduler", "--listen", "127.0.0.1:0", "--parts", "4"]);
        let mut cluster = Cluster { stored: self, scheduler, executors: Vec::new() };
        (0..executors).for_each(|_| cluster.add_executor());
        cluster
    }
}

/// A machine of a cluster; it ends with the test.
pub struct Node {
    pub child: Child,
    pub address: String,
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub struct Cluster<'a> {
    pub stored: &'a Stored,
    pub scheduler: Node,
    pub executors: Vec<Node>,
}

impl Cluster<'_> {
    pub fn add_executor(&mut self) {
        let scheduler = self.scheduler.address.clone();
        let words =
            ["executor", "--scheduler", &scheduler, "--listen", "127.0.0.1:0", "--threads", "2"];
        self.executors.push(self.stored.start(&words));
    }

    pub fn asking(&self, words: &[&str], token: &str) -> Command {
        let address = format!("df://{}", self.scheduler.address);
        let mut command = self.stored.command(words, token);
        // Stores of tests are smaller than those that a cluster pays for.
        command.args(["--cluster", &address, "--cluster-from", "0"]);
        command
    }

    /// The answer of the cluster.
    pub fn ask(&self, words: &[&str]) -> String {
        text(self.asking(words, &self.stored.reader).output().unwrap(), words)
    }

    /// The end of a question that `disturb` disturbs, and the time until then.
    pub fn disturbed(&self, words: &[&str], disturb: impl FnOnce()) -> (Output, Duration) {
        let begun = Instant::now();
        let mut asking = self.asking(words, &self.stored.reader);
        let child = asking.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        disturb();
        (child.wait_with_output().unwrap(), begun.elapsed())
    }
}

#[track_caller]
pub fn text(output: Output, words: &[&str]) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The program that `lwp fleet` runs, where it was built as well.
pub fn lwp_fleet() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_BIN_EXE_lwp-fleet-node")).with_file_name("lwp-fleet");
    path.is_file().then_some(path)
}
