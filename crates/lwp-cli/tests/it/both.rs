//! `lwp record --both`: times of a native run beside the counts of another.
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use crate::languages::pythons;
use crate::shared::recorded;
use crate::shared::tools;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use recorded::{LWP, compile, lwp, run};
use serde_json::Value;
use tools::{limited, text};

/// A directory with the program; `None`, with a reason, where it can be neither compiled nor
/// sampled.
fn prepared(name: &str) -> Option<PathBuf> {
    let dir = tools::fresh("both", name);
    if !compile(&dir, "both.c", &["-O2"]) {
        eprintln!("skipped: there is no compiler");
        return None;
    }
    let probe = run(&dir, &[LWP, "record", "--time", "-o", "probe.data", "--", "/bin/true"]);
    let refused = text(&probe.stderr);
    let refused = refused.lines().find(|line| line.contains("time cannot be sampled here"));
    if let Some(refused) = refused {
        eprintln!("skipped: {refused}");
    }
    refused.is_none().then_some(dir)
}

fn json(dir: &Path, arguments: &[&str]) -> Value {
    let (json, _) = lwp(dir, &[&["report", "--json"], arguments].concat());
    serde_json::from_str(&json).expect("JSON")
}

/// Rows by the name of their function.
fn rows(report: &Value) -> BTreeMap<&str, &Value> {
    let rows = report["rows"].as_array().expect("rows").iter();
    rows.map(|row| (row["sym"].as_str().expect("a name"), row)).collect()
}

fn number(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or_else(|| panic!("no {key} in {row}"))
}

/// The program's own clock knows what a call takes, and its source how many instructions one has.
///
/// Promise: R139
#[test]
fn a_call_takes_what_the_program_s_own_clock_says() {
    let Some(dir) = prepared("calibrated") else { return };
    let command = ["record", "--both", "-q", "-F", "1999", "--", "./program", "400"];
    let (said, _) = lwp(&dir, &command);
    // The native run comes first.
    let truth: BTreeMap<String, f64> = said
        .lines()
        .take(2)
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let [name, calls, ns] = words[..] else { panic!("{line}") };
            let [calls, ns] = [calls, ns].map(|it| it.parse::<f64>().expect("a number"));
            (name.to_owned(), ns / calls)
        })
        .collect();
    let report = json(&dir, &[]);
    assert_eq!(
        (&report["event"], &report["beside"]["event"]),
        (&"cpu-time".into(), &"instructions".into())
    );
    assert_eq!(report["differences"], "");
    let found = rows(&report);
    // On a busy machine interrupts fall into any function, and the program's clock has them: what
    // both know is the proportion of the two.
    let time = |name: &str| number(found[name], "cpu_time");
    let both = truth["computes"] + truth["chases"];
    let samples = (time("computes") + time("chases")) / number(&report, "interval");
    for (name, ns) in &truth {
        let row = found[name.as_str()];
        assert_eq!(row["calls"], 400, "{row}");
        let (call, margin) =
            (number(row, "ns_per_call_estimated"), number(row, "ns_per_call_margin_percent"));
        assert!((call * 400.0 / time(name) - 1.0).abs() < 1e-6 && margin < 50.0, "{row}");
        let (part, sampled) = (ns / both, time(name) / (time("computes") + time("chases")));
        let most = (3.0 * (part * (1.0 - part) / samples).sqrt()).max(0.02);
        assert!((part - sampled).abs() <= most, "{name}: {part} and {sampled}, ± {most}");
        assert!(call > 0.4 * ns && call < 1.2 * ns, "{name}: {call} ± {margin} %, and {ns}");
    }
    // Four instructions a step; two if it only follows a pointer, counts and jumps.
    let instructions = |name: &str| number(found[name], "instructions") / 400.0;
    let steps = instructions("computes") / 1e6;
    assert!((3.0..=6.0).contains(&steps), "{steps}");
    let steps = instructions("chases") / 20e3;
    assert!((3.0..=5.0).contains(&steps), "{steps}");
    let per = |name: &str| number(found[name], "ns_per_instruction_estimated");
    assert!(per("chases") > 4.0 * per("computes"), "{} {}", per("chases"), per("computes"));
    // Counts are those of a recording without times.
    lwp(&dir, &["record", "-q", "-o", "alone.data", "--", "./program", "400"]);
    let alone = json(&dir, &["-i", "alone.data"]);
    for name in ["computes", "chases", "make_ring"] {
        let counted = number(found[name], "instructions");
        let alone = number(rows(&alone)[name], "self");
        assert!((counted - alone).abs() <= 400.0, "{name}: {counted} and {alone}");
    }
    every_command_shows_both(&dir);
}

fn every_command_shows_both(dir: &Path) {
    let (table, _) = lwp(dir, &["report", "--stdio"]);
    for heading in ["~ns/call", "~ns/instruction", "instructions", "cpu-time", "±", "Total"] {
        assert!(table.contains(heading), "{heading}: {table}");
    }
    let (csv, _) = lwp(dir, &["report", "--csv"]);
    assert!(csv.lines().next().is_some_and(|head| head.contains("ns_per_call_estimated")), "{csv}");
    let counted = json(dir, &["-e", "instructions"]);
    assert!(number(rows(&counted)["computes"], "cpu_time") > 0.0, "{counted}");
    let (code, _) = lwp(dir, &["annotate", "chases"]);
    let heading = code.lines().nth(1).unwrap_or_default();
    assert!(heading.contains("instructions") && heading.contains("cpu-time"), "{code}");
    let (lines, _) = lwp(dir, &["annotate", "--line", "-e", "cpu-time", "chases"]);
    assert!(lines.contains("next[at]"), "{lines}");
    // Stacks of the one and of the other.
    let (time, _) = lwp(dir, &["export", "-f", "folded", "-e", "cpu-time"]);
    assert!(time.contains("main;") && time.contains(";chases "), "{time}");
    let (counts, _) = lwp(dir, &["export", "-f", "folded"]);
    assert!(counts.contains(";computes "), "{counts}");
    lwp(dir, &["flamegraph", "-e", "cpu-time", "-o", "time.svg"]);
    let picture = std::fs::read_to_string(dir.join("time.svg")).expect("a picture");
    assert!(picture.contains("chases") && picture.contains("s of CPU time"), "{picture}");
    let (differences, _) = lwp(dir, &["diff", "lwp.data", "alone.data"]);
    assert!(differences.contains("instructions"), "{differences}");
    lwp(dir, &["merge", "-o", "sum.data", "lwp.data", "lwp.data"]);
    let sum = json(dir, &["-i", "sum.data"]);
    assert_eq!(rows(&sum)["chases"]["calls"], 800);
}

/// Promise: R139
#[test]
fn runs_that_differ_are_told_apart() {
    let Some(dir) = prepared("differ") else { return };
    let output = run(&dir, &[LWP, "record", "--both", "--", "./program", "10", "there"]);
    let said = text(&output.stderr);
    // lwp ends as the counted run does.
    assert_eq!(output.status.code(), Some(3), "{said}");
    let said = said.lines().find(|line| line.contains("the two runs differ")).expect("a remark");
    assert!(said.contains("exit code 0, then exit code 3"), "{said}");
    assert!(said.contains("the second has not executed: first_only"), "{said}");
    let report = json(&dir, &[]);
    let differences = report["differences"].as_str().expect("text");
    assert!(differences.contains("first_only"), "{differences}");
    let found = rows(&report);
    assert_eq!(found["first_only"]["instructions"], 0);
    assert!(number(found["second_only"], "instructions") > 1e8);
    assert!(found["second_only"].get("ns_per_call_estimated").is_none());
    let (table, _) = lwp(&dir, &["report", "--stdio"]);
    assert!(table.contains("# The two runs differ: exit code 0"), "{table}");
}

/// Promise: R139
#[test]
fn both_runs_read_a_file_from_where_it_stands() {
    let Some(dir) = prepared("input") else { return };
    std::fs::write(dir.join("input"), "one\ntwo\n").expect("written");
    let script = format!("read line; {LWP} record --both -q -- ./program 1 -");
    let mut command = limited(&dir, &["sh", "-c", &script]);
    let input = std::fs::File::open(dir.join("input")).expect("input");
    let output = command.stdin(Stdio::from(input)).output().expect("sh");
    // A shell reads a file it is given line by line.
    assert_eq!(text(&output.stdout), "two\ntwo\n", "{}", text(&output.stderr));
    let output = limited(&dir, &["sh", "-c", &format!("printf 'x\\ny' | {{ {script}; }}")]);
    let output = { output }.output().expect("sh");
    let said = text(&output.stderr);
    assert!(said.contains("standard input is a pipe"), "{said}");
}

/// Promise: R139
#[test]
fn what_cannot_be_started_leaves_the_recording_alone() {
    let Some(dir) = prepared("missing") else { return };
    std::fs::write(dir.join("lwp.data"), "kept").expect("written");
    let output = run(&dir, &[LWP, "record", "--both", "--", "/no/such/program"]);
    assert_eq!(output.status.code(), Some(127), "{}", text(&output.stderr));
    assert_eq!(std::fs::read(dir.join("lwp.data")).expect("kept"), b"kept");
    assert!(!dir.join("lwp.data.time").exists());
}

/// CPython 3.11 tells of each call of a function; the time is that of the native run.
///
/// Promise: R139
#[test]
fn python_s_functions_have_times_beside_their_calls() {
    let Some(dir) = prepared("python") else { return };
    let Some(python) = pythons().remove(&11) else {
        eprintln!("skipped: no CPython 3.11");
        return;
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/profiled/both.py");
    let script = script.to_str().expect("path is text");
    let options = ["record", "--both", "-q", "-F", "1999", "--lang", "python", "--"];
    let (_, said) = lwp(&dir, &[&options[..], &[&python, script, "300"]].concat());
    if said.contains("are not read") {
        eprintln!("skipped: {said}");
        return;
    }
    // The native run comes first.
    let truth: BTreeMap<&str, f64> = said
        .lines()
        .take(2)
        .map(|line| {
            let (name, ns) = line.split_once(' ').expect("a name");
            (name, ns.parse().expect("ns"))
        })
        .collect();
    let report = json(&dir, &[]);
    let found = rows(&report);
    let [computes, less] = ["computes", "computes_less"].map(|name| found[name]);
    assert_eq!((&computes["calls"], &less["calls"]), (&300.into(), &300.into()));
    assert_eq!(computes["dso"], "both.py");
    let [time, other] = [computes, less].map(|row| number(row, "total"));
    let samples = (time + other) / number(&report, "interval");
    let part = truth["computes"] / (truth["computes"] + truth["computes_less"]);
    let most = (3.0 * (part * (1.0 - part) / samples).sqrt()).max(0.02);
    let sampled = time / (time + other);
    assert!((part - sampled).abs() <= most, "{part} and {sampled}, ± {most}");
    // Own time by calls.
    let (own, call) = (number(computes, "cpu_time"), number(computes, "ns_per_call_estimated"));
    assert!(own > 0.0 && (call * 300.0 / own - 1.0).abs() < 1e-6, "{computes}");
    // Unless they are asked for, calls are not counted, and the time is the interpreter's.
    lwp(&dir, &["record", "--both", "-q", "--", &python, script, "30"]);
    assert!(!rows(&json(&dir, &[])).contains_key("computes"));
}
