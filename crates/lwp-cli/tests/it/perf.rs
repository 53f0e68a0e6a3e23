//! lwp in place of perf: what harnesses and viewers call is answered as perf would.
//!
//! Promise: I7

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

/// The line of a sample as readers see it: name, thread, time and period.
fn heading(line: &str) -> (String, u32, f64, u64) {
    assert!(!line.starts_with([' ', '\t']), "a frame begins so: {line:?}");
    let (before, after) = line.split_once(" [000] ").expect(line);
    let (name, tid) = before.rsplit_once(' ').expect(line);
    let (time, rest) = after.trim_start().split_once(": ").expect(line);
    let (period, event) = rest.trim_start().split_once(' ').expect(line);
    assert_eq!(event, "instructions:u: ");
    let number = "a number";
    let (tid, time) = (tid.parse().expect(number), time.parse().expect(number));
    (name.trim().to_owned(), tid, time, period.parse().expect(number))
}

/// Promise: FlameGraph's stackcollapse-perf.pl, speedscope and the Firefox Profiler read
/// `perf script`.
///
/// Promise: I7, R125
#[test]
fn samples_are_read_by_flame_graph_scripts() {
    let dir = fresh("script");
    if !compile(&dir, "recursion.c") {
        return;
    }
    std::fs::rename(dir.join("program"), dir.join("my prog")).expect("renamed");
    succeeds(&dir, &["./perf", "record", "-c", "10007", "./my prog"]);
    let script = succeeds(&dir, &["./perf", "script"]);
    let (mut samples, mut last) = (0, 0.0);
    for block in script.split("\n\n").filter(|block| !block.is_empty()) {
        let (first, frames) = block.split_once('\n').expect("a stack");
        let (name, tid, time, period) = heading(first);
        assert_eq!((name.as_str(), period), ("my prog", 10007));
        assert!(tid > 0 && time > last, "time goes on: {first}");
        // As its reader's pattern has it: address, name, file without blanks in parentheses.
        for frame in frames.lines() {
            let words: Vec<&str> = frame.trim_start().splitn(2, ' ').collect();
            assert!(u64::from_str_radix(words[0], 16).is_ok(), "{frame}");
            let (_, file) = words[1].rsplit_once(" (").expect(frame);
            assert!(file.ends_with(')') && !file.contains(' '), "{frame}");
        }
        (samples, last) = (samples + 1, time);
    }
    // An instruction takes a nanosecond.
    assert!(samples > 10 && (last * 1e9 / 10007.0).round() as u64 == samples, "{samples}, {last}");
    let fields = ["./perf", "script", "-F", "comm,pid,tid,event,ip,sym", "--max-stack", "1"];
    let chosen = succeeds(&dir, &fields);
    let first = chosen.lines().next().expect("a sample");
    assert!(first.contains('/') && !first.contains("[000]") && !first.contains("10007"), "{first}");
    for block in chosen.split("\n\n").filter(|block| !block.is_empty()) {
        assert_eq!(block.lines().count(), 2, "{block}");
        assert!(!block.contains("+0x") && !block.contains('('), "{block}");
    }
    let refused = run(&dir, &["./perf", "script", "-F", "brstack"]);
    assert_eq!(refused.status.code(), Some(125));
    assert!(text(&refused.stderr).contains("no field 'brstack'"), "{}", text(&refused.stderr));
}

/// Promise: perf itself names Python's functions.
///
/// Promise: R125
#[test]
fn perf_names_interpreted_functions() {
    let dir = fresh("python");
    if !has("python3") || !has("/usr/bin/perf") {
        return;
    }
    let script = "def leaf(n):\n    return sum(i * i for i in range(n))\n\
        def middle():\n    return [leaf(2000) for _ in range(200)]\nmiddle()\n";
    std::fs::write(dir.join("work.py"), script).expect("script");
    succeeds(&dir, &["./perf", "record", "-c", "100003", "python3", "work.py"]);
    let own = succeeds(&dir, &["./perf", "script"]);
    for (tool, said) in [
        ("/usr/bin/perf", succeeds(&dir, &["/usr/bin/perf", "script", "-f", "-i", "perf.data"])),
        ("lwp", own),
    ] {
        let with = |name: &str| said.lines().filter(|line| line.contains(name)).count();
        assert!(with(" middle") > 100 && with("<genexpr>") > 100, "{tool}: {said}");
    }
}

#[test]
fn functions_are_annotated_and_intervals_counted() {
    let dir = fresh("annotate");
    if !compile(&dir, "recursion.c") {
        return;
    }
    succeeds(&dir, &["./perf", "record", "-c", "1009", "./program"]);
    let listing = succeeds(&dir, &["./perf", "annotate", "--stdio", "-l", "main"]);
    assert!(listing.contains("recursion.c"), "{listing}");
    let named = succeeds(&dir, &["./perf", "annotate", "-i", "perf.data", "-s", "main"]);
    assert_eq!(named, listing);
    let said = run(&dir, &["./perf", "report", "--stdio", "--max-stack", "5"]);
    let says = text(&said.stderr);
    assert!(said.status.success() && says.contains("--max-stack has no effect here"), "{says}");
    let words = ["./perf", "stat", "-I", "50", "-x,", "-e", "instructions", "-o", "counts"];
    succeeds(&dir, &[&words[..], &["sleep", "0.2"]].concat());
    let counts = std::fs::read_to_string(dir.join("counts")).expect("counts");
    assert!(counts.lines().count() >= 2, "{counts}");
}

/// Promise: I7: options without an effect are named.
#[test]
fn options_that_would_change_the_output_are_named() {
    let dir = fresh("named");
    for words in [
        &["stat", "-d", "--", "true"][..],
        &["record", "-j", "any", "-c", "1000", "--", "true"],
        &["record", "-b", "-c", "1000", "--", "true"],
        &["record", "-n", "-c", "1000", "--", "true"],
        &["report", "-g", "graph,0.5,caller", "--stdio"],
        &["report", "-n"],
        &["report", "-G"],
        &["script", "--header"],
        &["script", "--show-mmap-events"],
    ] {
        let output = run(&dir, &[&["./perf"], words].concat());
        let says = text(&output.stderr);
        assert!(output.status.success(), "{words:?}: {says}");
        assert!(says.contains(&format!("{} has no effect here: ", words[1])), "{words:?}: {says}");
    }
}

#[test]
fn a_program_s_end_is_perf_s() {
    let dir = fresh("end");
    let output = run(&dir, &["./perf", "record", "-o", "x.data", "--", "sh", "-c", "exit 3"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(dir.join("x.data").exists());
}

/// Promise: I7: with the real
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
