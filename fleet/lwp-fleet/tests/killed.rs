//! Writers that are killed, and writers, compactions and readers at once: nothing is lost, nothing is there twice.
#![allow(clippy::disallowed_methods, reason = "a test without threads has failed")]

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use lwp_facts::{CallFact, Facts, FunctionFact, LineFact, ModuleFact, Run};
use lwp_profile::{CallKind, Event, Mode};

/// Functions of a recording.
const FUNCTIONS: u64 = 200;

/// The text of facts; `seed` makes another recording of it.
fn facts(seed: u64) -> String {
    let function = |n: u64| FunctionFact {
        name: format!("function_{n}"),
        own: (0..8).map(|event| 1000 * n + seed % 7 + event).collect(),
        entered: n,
        ..FunctionFact::default()
    };
    let functions: Vec<FunctionFact> = (0..FUNCTIONS).map(function).collect();
    let total = (0..8).map(|event| functions.iter().map(|row| row.own[event]).sum()).collect();
    let line =
        |n: u64| LineFact { function: n as u32, file: "a.c".into(), line: 7, own: vec![n; 8] };
    let call =
        |n: u64| CallFact { caller: Some(0), callee: n as u32, how: CallKind::Direct, count: n };
    let facts = Facts {
        run: Run {
            project: "p".into(),
            benchmark: "b".into(),
            commit: format!("{seed:040x}"),
            started: 1_700_000_000 + seed as i64,
            complete: true,
            ..Run::default()
        },
        mode: Mode::Exact,
        events: Event::exact(),
        total,
        modules: vec![ModuleFact { name: "m".into(), ..ModuleFact::default() }],
        functions,
        lines: (0..FUNCTIONS).map(line).collect(),
        calls: (0..FUNCTIONS).map(call).collect(),
        stacks: Vec::new(),
    };
    facts.write()
}

fn command(store: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lwp-fleet"));
    command.args(words).env("LWP_FLEET_STORE", store).stdin(Stdio::null());
    command
}

fn run(store: &Path, words: &[&str]) -> Output {
    command(store, words).output().expect("lwp-fleet starts")
}

#[track_caller]
fn fleet(store: &Path, words: &[&str]) -> String {
    let output = run(store, words);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{words:?}: {error}{}",
        String::from_utf8_lossy(&output.stdout)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn start(store: &Path, words: &[&str]) -> Child {
    let mut command = command(store, words);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("lwp-fleet starts")
}

fn numbers(store: &Path, sql: &str) -> Vec<u64> {
    let text = fleet(store, &["sql", "--format", "csv", sql]);
    let line = text.lines().nth(1).expect("a row");
    line.split(',').map(|cell| cell.parse().unwrap_or(0)).collect()
}

const COUNTS: &str = "select (select count(*) from recordings) as r, (select count(*) from functions) as f, \
                      (select count(*) from lines) as l, (select count(*) from calls) as c";

#[test]
fn kills_at_any_moment_lose_nothing_and_double_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    fleet(&store, &["init"]);
    let file = |n: u64| {
        let path = dir.path().join(format!("{n}.facts"));
        std::fs::write(&path, facts(n)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    // How long one takes, so that kills come while it works.
    let begun = Instant::now();
    fleet(&store, &["add", &file(0)]);
    let whole = begun.elapsed().as_micros() as u64;
    let kills = std::env::var("LWP_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(40);
    let mut moment = 0x9e37_79b9_7f4a_7c15_u64;
    for n in 1..=kills {
        let mut child = start(&store, &["add", &file(n)]);
        moment =
            moment.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        std::thread::sleep(Duration::from_micros((moment >> 33) % (whole + whole / 4)));
        let _ = child.kill();
        child.wait().unwrap();
        if n % 10 == 0 {
            fleet(&store, &["check", "--deep"]);
        }
    }
    let [recordings, functions, lines, calls] = numbers(&store, COUNTS)[..] else { panic!("four") };
    assert!(recordings >= 1);
    assert_eq!([functions, lines, calls], [recordings * FUNCTIONS; 3]);
    // What was not added is added now; what was stays.
    let all: Vec<String> = (0..=kills).map(file).collect();
    let words: Vec<&str> = ["add"].into_iter().chain(all.iter().map(String::as_str)).collect();
    let said = fleet(&store, &words);
    assert_eq!(said.matches(" already there").count() as u64, recordings);
    fleet(&store, &["check", "--deep"]);
    assert_eq!(
        numbers(&store, COUNTS),
        [kills + 1, FUNCTIONS * (kills + 1), FUNCTIONS * (kills + 1), FUNCTIONS * (kills + 1)]
    );
    // Files that killed writers left are no part of the store.
    fleet(&store, &["vacuum", "--hours", "0", "--force"]);
    fleet(&store, &["check", "--deep"]);
}

#[test]
fn writers_a_compaction_and_a_reader_do_not_disturb_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    fleet(&store, &["init"]);
    for n in 0..24 {
        std::fs::write(dir.path().join(format!("{n}.facts")), facts(n)).unwrap();
    }
    let path = |n: u64| dir.path().join(format!("{n}.facts")).to_str().unwrap().to_owned();
    std::thread::scope(|scope| {
        let writer = |from: u64, to: u64| {
            let (store, path) = (&store, &path);
            scope.spawn(move || (from..to).for_each(|n| drop(fleet(store, &["add", &path(n)]))))
        };
        // Eight of them are added by both.
        let writers = [writer(0, 16), writer(8, 24)];
        let compactor = scope.spawn(|| (0..5).for_each(|_| drop(fleet(&store, &["compact"]))));
        let mut before = 0;
        while !writers.iter().all(|writer| writer.is_finished()) {
            let [recordings, functions, lines, calls] = numbers(&store, COUNTS)[..] else {
                panic!("four")
            };
            assert_eq!([functions, lines, calls], [recordings * FUNCTIONS; 3], "torn");
            assert!(recordings >= before, "lost");
            before = recordings;
        }
        compactor.join().unwrap();
    });
    fleet(&store, &["compact"]);
    assert_eq!(numbers(&store, COUNTS), [24, 24 * FUNCTIONS, 24 * FUNCTIONS, 24 * FUNCTIONS]);
    fleet(&store, &["check", "--deep"]);
}

#[test]
fn flipped_bits_are_errors_and_never_another_answer() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    fleet(&store, &["init"]);
    let file = dir.path().join("0.facts");
    std::fs::write(&file, facts(0)).unwrap();
    fleet(&store, &["add", file.to_str().unwrap()]);
    let sql = "select sum(instructions), sum(entered), max(func), count(distinct function) from functions";
    let truth = fleet(&store, &["sql", "--format", "csv", sql]);
    let folder = store.join("kind=function/date=2023-11-14");
    let data = std::fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
    let good = std::fs::read(&data).unwrap();
    let mut refused = 0;
    for n in 0..24 {
        let mut bad = good.clone();
        bad[n * good.len() / 24] ^= 1 << (n % 8);
        std::fs::write(&data, bad).unwrap();
        let output = run(&store, &["sql", "--format", "csv", sql]);
        match output.status.success() {
            true => assert_eq!(String::from_utf8_lossy(&output.stdout), truth),
            false => {
                let error = String::from_utf8_lossy(&output.stderr);
                assert!(error.contains("damaged: kind=function/date=2023-11-14/r-"), "{error}");
                assert!(error.contains("help: "), "{error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 0);
    let output = run(&store, &["check", "--deep"]);
    assert_eq!(output.status.code(), Some(125));
    // What is damaged goes, whole; then it can be added again.
    fleet(&store, &["repair"]);
    assert_eq!(numbers(&store, COUNTS), [0; 4]);
    fleet(&store, &["check", "--deep"]);
    assert!(fleet(&store, &["add", file.to_str().unwrap()]).contains(" added: "));
    assert_eq!(fleet(&store, &["sql", "--format", "csv", sql]), truth);
}

#[test]
fn hostile_facts_are_refused_by_line_and_nothing_is_stored() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    fleet(&store, &["init"]);
    let good = facts(1);
    let cases = [
        ("cut off", good[..good.len() / 2].to_owned(), "line "),
        ("another total", good.replacen("\"total\":[", "\"total\":[1", 1), "functions add up to"),
        (
            "no such function",
            good.replacen("\"callee\":0", "\"callee\":4000000000", 1),
            "line 403: key \"callee\"",
        ),
        (
            "deep",
            format!("{}{}\n", &good[..good.find('\n').unwrap() + 1], "[".repeat(1 << 20)),
            "line 2: no JSON object",
        ),
        ("no facts", "hello\n".to_owned(), "no format that is known"),
        ("empty", String::new(), "no format that is known"),
    ];
    std::fs::write(dir.path().join("good.facts"), &good).unwrap();
    for (name, text, wanted) in cases {
        let file = dir.path().join("bad.facts");
        std::fs::write(&file, text).unwrap();
        let whole = dir.path().join("good.facts");
        let output = run(&store, &["add", whole.to_str().unwrap(), file.to_str().unwrap()]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{name}: {error}");
        assert!(error.contains(wanted), "{name}: {error}");
        assert_eq!(numbers(&store, COUNTS), [0; 4], "{name}");
    }
}

#[test]
fn questions_can_change_nothing_and_end_in_time() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    fleet(&store, &["init"]);
    std::fs::write(dir.path().join("0.facts"), facts(0)).unwrap();
    fleet(&store, &["add", dir.path().join("0.facts").to_str().unwrap()]);
    for sql in [
        "create table x as select 1",
        "drop view function_values",
        "insert into recordings select * from recordings",
        "delete from recordings",
        "set datafusion.execution.batch_size = 1",
        "copy (select 1) to '/tmp/lwp-fleet-must-not-exist.csv'",
        "create external table x stored as csv location '/etc/passwd'",
        "select * from '/etc/passwd'",
        "select",
        "select 1; drop table recordings",
    ] {
        let output = run(&store, &["sql", sql]);
        assert_eq!(output.status.code(), Some(125), "{sql}");
        assert!(String::from_utf8_lossy(&output.stderr).starts_with("lwp-fleet: "), "{sql}");
    }
    assert!(!Path::new("/tmp/lwp-fleet-must-not-exist.csv").exists());
    let endless = "select count(*) from functions a, functions b, functions c, functions d";
    let output = run(&store, &["sql", "--timeout", "1", endless]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("no answer within 1 s"));
    assert_eq!(numbers(&store, COUNTS), [1, FUNCTIONS, FUNCTIONS, FUNCTIONS]);
}
