//! lwp in place of perf: what harnesses and viewers call is answered as perf would.

use crate::shared::tools;

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use tools::{has, limited, text};

/// A directory of its own for a test, with a link to lwp by perf's name.
fn fresh(name: &str) -> PathBuf {
    let dir = tools::fresh("perf", name);
    symlink(env!("CARGO_BIN_EXE_lwp"), dir.join("perf")).expect("link");
    dir
}

fn run(dir: &Path, command: &[&str]) -> Output {
    let mut command = limited(dir, command);
    command.env("PERF", dir.join("perf")).output().expect("timeout starts")
}

fn succeeds(dir: &Path, command: &[&str]) -> String {
    let output = run(dir, command);
    assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

fn compile(dir: &Path, name: &str) -> bool {
    if !has("gcc") {
        return false;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/profiled").join(name);
    succeeds(dir, &["gcc", "-O1", "-g", "-o", "program", source.to_str().expect("text")]);
    true
}

#[test]
fn it_is_called_perf_or_perf_is_its_command() {
    let dir = fresh("name");
    let linked = succeeds(&dir, &["./perf", "--version"]);
    assert!(linked.starts_with("perf version "), "{linked}");
    assert_eq!(succeeds(&dir, &[env!("CARGO_BIN_EXE_lwp"), "perf", "--version"]), linked);
    let output = run(&dir, &["./perf", "mem", "record"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("perf record"), "{}", text(&output.stderr));
}

#[test]
fn counts_arrive_in_the_harness_s_file() {
    let dir = fresh("stat");
    let words = [
        "./perf",
        "stat",
        "--event=instructions:u,cycles:u,faults",
        "--no-big-num",
        "-j",
        "--output=counts.json",
        "true",
    ];
    succeeds(&dir, &words);
    let file = std::fs::read_to_string(dir.join("counts.json")).expect("counts");
    let rows: Vec<Value> = file
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let value = |name: &str| {
        let row = rows.iter().find(|row| row["event"] == name);
        row.and_then(|row| row["counter-value"].as_str()).unwrap_or_else(|| panic!("{file}"))
    };
    assert!(value("instructions:u").parse::<f64>().is_ok_and(|n| n > 10_000.0), "{file}");
    assert_eq!(value("cycles:u"), "<not supported>");
}

#[test]
fn a_recording_is_there_for_both() {
    let dir = fresh("record");
    if !compile(&dir, "recursion.c") {
        return;
    }
    let words =
        ["./perf", "record", "-F", "999999", "--call-graph", "dwarf,64000", "-g", "./program"];
    succeeds(&dir, &words);
    let script = succeeds(&dir, &["./perf", "script", "--force", "-i", "perf.data"]);
    let blocks = script.split("\n\n").filter(|block| block.contains("instructions:u:"));
    let deep = blocks.clone().filter(|block| block.contains(" main+")).count();
    assert!(deep > 10 && blocks.count() >= deep, "{script}");
    let report = succeeds(&dir, &["./perf", "report", "--stdio", "-g", "--no-children"]);
    assert!(report.contains(" main"), "{report}");
    if has("/usr/bin/perf") {
        let theirs = succeeds(&dir, &["/usr/bin/perf", "script", "-f", "-i", "perf.data"]);
        assert_eq!(
            theirs.matches("instructions: ").count(),
            script.matches("instructions:u: ").count()
        );
    }
}

#[test]
fn a_program_s_end_is_perf_s() {
    let dir = fresh("end");
    let output = run(&dir, &["./perf", "record", "-o", "x.data", "--", "sh", "-c", "exit 3"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(dir.join("x.data").exists());
}

#[test]
fn flamegraph_draws_what_was_sampled() {
    let dir = fresh("flamegraph");
    if !has("flamegraph") || !compile(&dir, "recursion.c") {
        return;
    }
    succeeds(&dir, &["flamegraph", "-F", "999999", "-o", "flame.svg", "--", "./program"]);
    let picture = std::fs::read_to_string(dir.join("flame.svg")).expect("picture");
    assert!(picture.contains("<svg") && picture.contains("main ("), "{picture}");
}
