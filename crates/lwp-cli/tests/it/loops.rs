//! `lwp report --loops`: entries and iterations are those that the source says.
//!
//! Promise: R144

use crate::shared::recorded;
use crate::shared::tools;

use std::path::{Path, PathBuf};

use recorded::{LWP, compile, lwp, run};
use serde_json::Value;
use tools::text;

/// A directory with the program; `None` where there is no compiler.
fn prepared(name: &str) -> Option<PathBuf> {
    let dir = tools::fresh("loops", name);
    compile(&dir, "loops.c", &["-O1"]).then_some(dir)
}

/// Numbers of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Loop {
    depth: u64,
    entries: u64,
    iterations: u64,
}

fn json(dir: &Path) -> Value {
    let (json, _) = lwp(dir, &["report", "--loops", "--json"]);
    serde_json::from_str(&json).expect("JSON")
}

/// The loops of a function, the outermost first.
fn of(report: &Value, function: &str) -> Vec<Loop> {
    let rows = report["loops"].as_array().expect("loops").iter();
    let number = |row: &Value, key: &str| row[key].as_u64().expect("a number");
    let one = |row: &Value| Loop {
        depth: number(row, "depth"),
        entries: number(row, "entries"),
        iterations: number(row, "iterations"),
    };
    let mut found: Vec<Loop> = rows.filter(|row| row["sym"] == function).map(one).collect();
    found.sort_by_key(|it| it.depth);
    found
}

/// Asserts that the loops of a function were entered and went round so often. A loop whose header
/// asks whether it is over executes it once more for each entry.
fn assert_loops(report: &Value, function: &str, expected: &[[u64; 2]]) {
    let found = of(report, function);
    assert_eq!(found.len(), expected.len(), "{function}: {found:?}");
    for ((depth, it), [entries, iterations]) in (1..).zip(found).zip(expected) {
        assert_eq!((it.depth, it.entries), (depth, *entries), "{function}: {it:?}");
        let asks = iterations + entries;
        assert!([*iterations, asks].contains(&it.iterations), "{function}: {it:?}, {iterations}");
    }
}

#[test]
fn loops_go_round_as_often_as_their_source_says() {
    let Some(dir) = prepared("counted") else { return };
    lwp(&dir, &["record", "-q", "--", "./program"]);
    let report = json(&dir);
    assert_loops(&report, "nested", &[[2, 14], [14, 154], [154, 2002]]);
    assert_loops(&report, "collatz", &[[1, 111]]);
    // Left once from the middle and once at the end.
    assert_loops(&report, "search", &[[2, 142]]);
    // 1 + 3 + 9 + 27 + 81 calls of itself.
    assert_loops(&report, "recursive", &[[121, 363]]);
    assert_loops(&report, "interprets", &[[1, 1000]]);
    let rows = report["loops"].as_array().expect("loops");
    let sum = |key: &str| -> u64 {
        let nested = rows.iter().filter(|row| row["sym"] == "nested");
        nested.map(|row| row[key].as_u64().expect("a number")).sum()
    };
    let outer = rows.iter().find(|row| row["sym"] == "nested" && row["depth"] == 1);
    let outer = outer.expect("the outer loop");
    assert_eq!(outer["instructions_with_inner_loops"], sum("instructions"));
    assert_eq!(outer["file"].as_str().and_then(|file| file.rsplit('/').next()), Some("loops.c"));
}

#[test]
fn loops_are_shown_as_text_csv_and_above_code() {
    let Some(dir) = prepared("shown") else { return };
    lwp(&dir, &["record", "-q", "--", "./program"]);
    let (table, _) = lwp(&dir, &["report", "--loops", "--stdio", "-n", "3"]);
    assert!(table.contains("nested loops.c:") && table.contains("loops not shown"), "{table}");
    let (csv, _) = lwp(&dir, &["report", "--loops", "--csv"]);
    assert!(csv.starts_with("depth,entries,iterations,instructions,"), "{csv}");
    let (code, _) = lwp(&dir, &["annotate", "--loops", "search"]);
    assert!(
        code.starts_with("# loop at ") && code.contains(": 2 entries, 142 iterations"),
        "{code}"
    );
    lwp(&dir, &["record", "-q", "-c", "1000", "--", "./program"]);
    let output = run(&dir, &[LWP, "report", "--loops"]);
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains("loops need exact counts"), "{said}");
}

/// An iteration of the innermost loop is the whole of the time by the number of iterations.
#[test]
fn iterations_have_a_time_beside_a_native_run() {
    let Some(dir) = prepared("timed") else { return };
    let output = run(&dir, &[LWP, "record", "--both", "-F", "1999", "--", "./program", "40000"]);
    let said = text(&output.stderr);
    if let Some(refused) = said.lines().find(|line| line.contains("cannot be sampled here")) {
        println!("skipped: {refused}");
        return;
    }
    assert!(output.status.success(), "{said}");
    let report = json(&dir);
    let rows = report["loops"].as_array().expect("loops");
    let inner = rows.iter().find(|row| row["sym"] == "nested" && row["depth"] == 3);
    let inner = inner.expect("the innermost loop");
    let ns = inner["ns_per_iteration_estimated"].as_f64().expect("an estimate");
    let margin = inner["ns_per_iteration_margin_percent"].as_f64().expect("a margin");
    let time = inner["cpu_time"].as_f64().expect("ns");
    let iterations = inner["iterations"].as_f64().expect("a number");
    assert!((ns * iterations / time - 1.0).abs() < 1e-9 && margin < 50.0, "{inner}");
    let (all, _) = lwp(&dir, &["report", "--json"]);
    let all: Value = serde_json::from_str(&all).expect("JSON");
    let clock = all["total"].as_f64().expect("ns");
    assert!(time > 0.0 && time < 1.01 * clock, "{inner}, {clock}");
    let (table, _) = lwp(&dir, &["report", "--loops", "--stdio"]);
    assert!(table.contains("~ns/iteration"), "{table}");
}
