//! Another engine over the same files: DuckDB. Skipped with a message where python has none (PyPI: `duckdb`).
//!
//! Promise: FL17
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use crate::shared::facts;

use std::path::Path;
use std::process::{Command, Stdio};

use facts::{Recording, of};

/// The python that knows duckdb; `LWP_PYTHON` names one.
fn python() -> Option<String> {
    let python = std::env::var("LWP_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let mut command = Command::new(&python);
    command.args(["-c", "import duckdb"]).stdout(Stdio::null()).stderr(Stdio::null());
    match command.status().is_ok_and(|status| status.success()) {
        true => Some(python),
        false => {
            eprintln!(
                "skipped: {python} has no duckdb (PyPI: duckdb); LWP_PYTHON names another one"
            );
            None
        }
    }
}

fn fleet(store: &Path, words: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lwp-fleet"));
    let command = command.args(words).env("LWP_FLEET_STORE", store).stdin(Stdio::null());
    let output = command.output().expect("lwp-fleet starts");
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

const SCRIPT: &str = "
import csv, sys, duckdb
connection = duckdb.connect()
connection.execute(open(sys.argv[1]).read())
for question in open(sys.argv[2]).read().splitlines():
    answer = connection.execute(question)
    writer = csv.writer(sys.stdout, lineterminator='\\n')
    writer.writerow([column[0] for column in answer.description])
    writer.writerows(answer.fetchall())
";

const RULES: &str = "[[retention]]
kinds = ['recording']
days = 365
filter = ['benchmark=old']
roll_up = true
";

#[test]
fn duckdb_reads_the_same_files_and_answers_the_same() {
    let Some(python) = python() else { return };
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    fleet(&store, &["init"]);
    for n in 1..=12 {
        let file = dir.path().join("one.facts");
        let benchmark = if n % 2 == 0 { "even" } else { "odd" };
        std::fs::write(&file, of(n, n, benchmark, "main")).unwrap();
        fleet(&store, &["add", file.to_str().unwrap()]);
    }
    // One that expires, of which a roll-up stays.
    let old = Recording { benchmark: "old", started: 1_600_000_000, ..Recording::new(99) };
    let file = dir.path().join("old.facts");
    std::fs::write(&file, old.text()).unwrap();
    fleet(&store, &["add", file.to_str().unwrap()]);
    let rules = dir.path().join("rules.toml");
    std::fs::write(&rules, RULES).unwrap();
    fleet(&store, &["retention", rules.to_str().unwrap()]);
    fleet(&store, &["expire"]);
    fleet(&store, &["compact"]);
    fleet(&store, &["add", dir.path().join("one.facts").to_str().unwrap()]);
    let views = dir.path().join("views.sql");
    std::fs::write(&views, fleet(&store, &["views", "--engine", "duckdb"])).unwrap();
    let questions = [
        "select function, cast(sum(instructions) as bigint) as n from functions group by function order by n desc, function limit 20",
        "select benchmark, count(*) as n, cast(min(instructions) as bigint) as least from recordings group by benchmark order by benchmark",
        "select event, cast(sum(\"value\") as bigint) as v from function_values group by event order by event",
        "select \"commit\", cast(sum(\"value\") as bigint) as v from recording_values where event = 'calls' group by \"commit\" order by 1",
        "select f.function, cast(sum(c.entered) as bigint) as n from calls c join functions f on f.func = c.callee and f.recording = c.recording group by 1 order by 2 desc, 1 limit 10",
        "select file, line, cast(sum(branches) as bigint) as n from lines group by 1, 2 order by 3 desc",
        "select benchmark, \"commit\", event, runs, least, greatest, \"value\" from rollups order by event",
        "select benchmark, event, cast(sum(runs) as bigint) as n, min(least) as least, max(greatest) as greatest, cast(sum(\"value\") as bigint) as v from series group by 1, 2 order by 1, 2",
    ];
    let file = dir.path().join("questions");
    std::fs::write(&file, questions.join("\n")).unwrap();
    let script = dir.path().join("ask.py");
    std::fs::write(&script, SCRIPT).unwrap();
    let output = Command::new(python).arg(script).arg(views).arg(file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answers: String = questions
        .iter()
        .map(|question| fleet(&store, &["sql", "--format", "csv", question]))
        .collect();
    assert_eq!(String::from_utf8_lossy(&output.stdout), answers);
    assert!(answers.contains("\nold,calls,1,"), "{answers}");
}
