//! Which instructions become samples: of which code, at which intervals, with which stacks. The
//! reference is the exact recording, which counts every one of them.
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use crate::shared::recorded;
use crate::shared::tools;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use recorded::{LWP, compile, lwp, run};
use tools::{has, text};

fn fresh(name: &str) -> PathBuf {
    tools::fresh("chosen", name)
}

/// Rows of a report: the values of `keys` and the count, those without a count left out.
fn rows(dir: &Path, file: &str, keys: &[&str]) -> Vec<(Vec<String>, u64)> {
    let (json, _) = lwp(dir, &["report", "--json", "-i", file, "-s", &keys.join(",")]);
    let document: Value = serde_json::from_str(&json).expect("JSON");
    let word = |value: &Value| value.as_str().map_or(value.to_string(), str::to_owned);
    let rows = document["rows"].as_array().expect("rows").iter().map(|row| {
        let words = keys.iter().map(|key| word(&row[*key])).collect();
        (words, row["self"].as_u64().expect("a count"))
    });
    rows.filter(|(_, count)| *count > 0).collect()
}

/// How many instructions each process executed in `function`, in ascending order.
fn by_process(dir: &Path, file: &str, function: &str) -> Vec<u64> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for (keys, count) in rows(dir, file, &["pid", "sym"]) {
        if keys[1] == function {
            *counts.entry(keys[0].clone()).or_default() += count;
        }
    }
    let mut counts: Vec<u64> = counts.into_values().collect();
    counts.sort_unstable();
    counts
}

/// What `lwp record` says: how many samples, and how many events they were taken of.
fn said(stderr: &str) -> (u64, u64) {
    let line = stderr.lines().find(|line| line.contains(" samples of ")).expect("a line");
    let line = line.replace(',', "");
    let first = line.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("samples");
    (first, line.rsplit(' ').next().and_then(|word| word.parse().ok()).expect("events"))
}

/// The samples of a recording, process ids left out.
fn samples(dir: &Path, file: &str) -> String {
    let (script, _) = lwp(dir, &["script", "-i", file]);
    let rest = |line: &str| line.split_once(": ").map_or(line, |(_, rest)| rest).to_owned();
    script.lines().map(rest).collect::<Vec<_>>().join("\n")
}

const LIBRARY: &str = "
__attribute__((noinline)) unsigned shared_work(unsigned n)
{
    unsigned sum = n;
    for (unsigned i = 0; i < n; i++) sum = sum * 33 ^ i;
    return sum;
}
";

const USER: &str = "
#include <sys/wait.h>
#include <unistd.h>
unsigned shared_work(unsigned n);
__attribute__((noinline)) unsigned own_work(unsigned n)
{
    unsigned sum = 0;
    while (n--) sum = sum << 1 ^ n;
    return sum;
}
int main(int count, char **words)
{
    unsigned sum = shared_work(3000) + own_work(2000);
    if (count == 1 && fork() == 0)
        _exit(shared_work(700) == 7);
    if (count == 1 && fork() == 0)
        execl(words[0], words[0], \"again\", (char *)0);
    wait(0);
    wait(0);
    return sum == 7;
}
";

/// A program with a library, which it uses before and after fork and exec.
fn library(dir: &Path) -> bool {
    if !has("gcc") {
        return false;
    }
    std::fs::write(dir.join("work.c"), LIBRARY).expect("file");
    std::fs::write(dir.join("user.c"), USER).expect("file");
    let library = ["gcc", "-O1", "-g", "-shared", "-fPIC", "-o", "libwork.so", "work.c"];
    assert!(run(dir, &library).status.success());
    let user = ["gcc", "-O1", "-g", "-o", "program", "user.c", "-L.", "-lwork", "-Wl,-rpath,."];
    assert!(run(dir, &user).status.success());
    true
}

/// Promise: R33
#[test]
fn a_function_has_as_many_samples_as_it_executes_intervals() {
    let dir = fresh("functions");
    if !library(&dir) {
        return;
    }
    lwp(&dir, &["record", "-q", "-o", "exact", "--", "./program"]);
    for (filter, function) in [
        ("own_work", "own_work"),
        ("shared_work", "shared_work"),
        ("shared_work@libwork.so", "shared_work"),
        ("own_work@./program", "own_work"),
    ] {
        let exact = by_process(&dir, "exact", function);
        assert!(!exact.is_empty(), "{function} was not executed");
        for interval in [1, 7, 100] {
            let count = interval.to_string();
            let args = ["record", "-c", &count, "--filter", filter, "--", "./program"];
            let (_, stderr) = lwp(&dir, &args);
            // Every process has counted for itself.
            let expected: Vec<u64> =
                exact.iter().map(|all| all / interval * interval).filter(|it| *it > 0).collect();
            assert_eq!(by_process(&dir, "lwp.data", function), expected, "{filter} -c {interval}");
            let events: u64 = exact.iter().sum();
            assert_eq!(said(&stderr), (expected.iter().sum::<u64>() / interval, events));
            let others = rows(&dir, "lwp.data", &["sym"]);
            assert!(others.iter().all(|(keys, _)| keys[0] == function), "{others:?}");
        }
    }
}

/// Promise: R33
#[test]
fn branches_are_filtered_like_instructions() {
    let dir = fresh("branches");
    if !compile(&dir, "sorting.c", &["-O1"]) {
        return;
    }
    lwp(&dir, &["record", "-q", "-o", "exact", "--", "./program"]);
    for function in ["compare", "hash", "main"] {
        let (json, _) = lwp(&dir, &["report", "--json", "-i", "exact", "-e", "branches"]);
        let document: Value = serde_json::from_str(&json).expect("JSON");
        let row = document["rows"].as_array().expect("rows").iter();
        let row = row.clone().find(|row| row["sym"] == function).expect("a row");
        let exact = row["self"].as_u64().expect("a count");
        let events = "branches:c=13,instructions:c=1000";
        let args = ["record", "-e", events, "--filter", function, "--", "./program"];
        let (_, stderr) = lwp(&dir, &args);
        assert_eq!(said(&stderr), (exact / 13, exact), "{function}");
    }
}

/// Promise: R33
#[test]
fn misses_are_filtered_like_instructions() {
    let dir = fresh("misses");
    if !compile(&dir, "misses.c", &["-O1"]) {
        return;
    }
    let args = ["record", "-e", "dcache-misses:c=97", "--filter", "walk", "--", "./program"];
    let output = run(&dir, &[&[LWP], &args[..]].concat());
    let stderr = text(&output.stderr);
    if stderr.contains("cannot watch a modelled data cache") {
        eprintln!("skipped: this processor cannot watch a modelled data cache");
        return;
    }
    // Every load of `walk` misses, and each round begins with some that do not.
    let (taken, misses) = said(&stderr);
    assert!(misses.abs_diff(80_000) < 100 && taken == misses / 97, "{stderr}");
    assert!(rows(&dir, "lwp.data", &["sym"]).iter().all(|(keys, _)| keys[0] == "walk"));
    let args = ["record", "-e", "dcache-misses:c=97", "--filter", "!walk", "--", "./program"];
    assert!(lwp(&dir, &args).1.contains("samples of dcache-misses in !walk"));
    assert!(rows(&dir, "lwp.data", &["sym"]).iter().all(|(keys, _)| keys[0] != "walk"));
    // The next miss that counts is a sample, all the while that others do not count.
    let args = ["record", "-e", "dcache-misses:c=1", "--filter", "!walk", "--", "./program"];
    let (taken, misses) = said(&lwp(&dir, &args).1);
    assert_eq!(taken, misses);
    assert!(rows(&dir, "lwp.data", &["sym"]).iter().all(|(keys, _)| keys[0] != "walk"));
}

/// Promise: R33
#[test]
fn addresses_are_a_function_by_another_name() {
    let dir = fresh("addresses");
    if !compile(&dir, "recursion.c", &["-O1", "-no-pie"]) {
        return;
    }
    lwp(&dir, &["record", "-q", "-o", "exact", "--", "./program"]);
    let mut addresses: Vec<u64> = rows(&dir, "exact", &["dso", "sym", "addr"])
        .into_iter()
        .filter(|(keys, _)| keys[1] == "fib")
        .map(|(keys, _)| u64::from_str_radix(keys[2].trim_start_matches("0x"), 16).expect("hex"))
        .collect();
    addresses.sort_unstable();
    let (first, last) = (addresses[0], addresses[addresses.len() - 1]);
    let record = |name: &str, options: &[&str]| {
        let args = [&["record", "-c", "50", "-o", name], options, &["--", "./program"]].concat();
        (said(&lwp(&dir, &args).1), samples(&dir, name))
    };
    let by_name = record("name", &["--filter", "fib"]);
    assert!(by_name.0.0 > 100);
    assert!(by_name == record("range", &["--filter", &format!("{first:#x}..{last:#x}")]));
    assert!(by_name == record("interval", &["--interval-ip", &format!("{first:#x},{last}")]));
    // The last address belongs to the range.
    let shorter = record("shorter", &["--filter", &format!("{first:#x}..{:#x}", last - 1)]);
    assert!(shorter.0.1 < by_name.0.1);
    // What is inside and what is outside is everything, and nothing twice.
    let whole = record("whole", &[]).0.1;
    for outside in ["!fib".to_owned(), format!("!{first:#x}..{last:#x}")] {
        assert_eq!(record("outside", &["--filter", &outside]).0.1 + by_name.0.1, whole);
    }
}

#[test]
fn filters_that_mean_nothing_are_refused() {
    let dir = fresh("refused");
    if !library(&dir) {
        return;
    }
    for (options, cause) in [
        (&["-c", "9", "--filter", "no_such_function"][..], "no function is named"),
        (&["-c", "9", "--filter", "own_work@libwork.so"], "no function is named"),
        (&["-c", "9", "--filter", "own_work@libabsent.so"], "it loads: libwork.so, libc"),
        (&["-c", "9", "--filter", "9..1"], "lies behind"),
        (&["-c", "9", "--filter", ""], "names no code"),
        (&["-c", "9", "--filter", "own_work", "--interval-ip", "1,2"], "cannot be used with"),
        (&["--filter", "own_work"], "counts everything"),
        (&["--random", "3"], "counts everything"),
        (&["-c", "9", "--random", "16"], "16"),
        (&["--call-graph", "orc"], "shadow and none"),
        (&["-c", "9", "--buffer-size", "0"], "a number of bytes"),
    ] {
        let output = run(&dir, &[&[LWP, "record"], options, &["--", "./program"]].concat());
        let complaint = text(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{options:?}: {complaint}");
        assert!(complaint.contains(cause), "{options:?}: {complaint}");
        assert!(!dir.join("lwp.data").exists(), "{options:?} left a recording");
    }
}

/// Promise: R34
#[test]
fn random_intervals_repeat_and_lie_where_they_are_said_to() {
    let dir = fresh("random");
    if !compile(&dir, "recursion.c", &["-O1"]) {
        return;
    }
    let record = |name: &str, options: &[&str]| {
        let base = ["record", "-c", "100", "-o", name];
        let (_, stderr) = lwp(&dir, &[&base[..], options, &["--", "./program"]].concat());
        (said(&stderr), samples(&dir, name), stderr)
    };
    let filtered = ["--filter", "fib", "--random", "5"];
    let first = record("first", &filtered);
    let second = record("second", &filtered);
    assert!(first.0 == second.0 && first.1 == second.1, "two runs differ");
    // 99 with its last five bits replaced: an interval is one of 97 to 128, 112 on average.
    let (taken, events) = first.0;
    assert!(events / 128 <= taken && taken <= events / 97, "{taken} of {events}");
    assert!(taken.abs_diff(events / 112) <= 12, "{taken} of {events}");
    assert!(first.2.contains("one in about 112 of"), "{}", first.2);
    // Without random bits the interval is the one that was asked for.
    let even = record("even", &["--filter", "fib", "--random", "0"]);
    assert_eq!(even.0.0, events / 100);
    let seeded =
        |seed: &str| record("seeded", &["--random", "5", "--deterministic", "--seed", seed]).1;
    assert!(seeded("1") == seeded("1") && seeded("1") != seeded("2"));
}

/// Promise: R36
#[test]
fn stacks_are_recorded_unless_they_are_refused() {
    let dir = fresh("stacks");
    if !compile(&dir, "recursion.c", &["-O1"]) {
        return;
    }
    let record = |options: &[&str]| {
        let base = ["record", "--no-progress", "-c", "100"];
        let (_, stderr) = lwp(&dir, &[&base[..], options, &["--", "./program"]].concat());
        let (folded, _) = lwp(&dir, &["export", "-f", "folded"]);
        (folded, rows(&dir, "lwp.data", &["dso", "sym", "addr"]), stderr)
    };
    let usual = record(&[]);
    assert!(
        usual.0.lines().any(|line| line.starts_with("_start;"))
            && !usual.2.contains("--call-graph")
    );
    for mode in ["fp", "lbr", "dwarf,64000"] {
        let same = record(&["--call-graph", mode]);
        assert!(same.0 == usual.0 && same.1 == usual.1);
        assert!(same.2.contains("stacks are unwound from outside"), "{}", same.2);
    }
    assert!(record(&["-g", "--call-graph", "shadow"]) == usual);
    for options in [&["--call-graph", "none"][..], &["--no-call-graph"]] {
        let (folded, leaves, _) = record(options);
        assert!(!folded.lines().any(|line| line.starts_with("_start;")));
        // The samples themselves are the same.
        assert!(leaves == usual.1);
    }
    let both = run(&dir, &[LWP, "record", "-g", "--no-call-graph", "true"]);
    assert_eq!(both.status.code(), Some(125));
}

#[test]
fn exact_recordings_leave_out_where_calls_led_if_they_are_asked_to() {
    let dir = fresh("calls");
    if !compile(&dir, "dispatch.c", &["-O1"]) {
        return;
    }
    // The blocks of translations that are kept are in recordings too, executed or not.
    let length = |options: &[&str]| {
        lwp(&dir, &[&["record", "-q", "--no-cache"], options, &["--", "./program"]].concat());
        (rows(&dir, "lwp.data", &["dso", "sym"]), std::fs::read(dir.join("lwp.data")))
    };
    let (with, without) = (length(&[]), length(&["--no-call-graph"]));
    assert_eq!(with.0, without.0);
    assert!(without.1.expect("recording").len() < with.1.expect("recording").len());
}

/// Promise: R36
#[test]
fn buffers_of_every_size_lose_nothing() {
    let dir = fresh("buffers");
    if !compile(&dir, "recursion.c", &["-O1"]) {
        return;
    }
    let record = |size: &str| {
        lwp(&dir, &["record", "-q", "-c", "10", "--buffer-size", size, "--", "./program"]);
        let bytes = std::fs::metadata(dir.join("lwp.data")).expect("recording").len();
        (samples(&dir, "lwp.data"), bytes)
    };
    let (small, large) = (record("100"), record("16M"));
    assert!(small.0 == large.0);
    // Every write is a piece with a head of its own.
    assert!(small.1 > large.1, "{} and {}", small.1, large.1);
}

/// Promise: R37
#[test]
fn the_program_s_end_can_be_ignored() {
    let dir = fresh("ignored");
    for command in
        [&["record", "-q"][..], &["record", "-q", "-c", "100"], &["stat", "-o", "counts"]]
    {
        let ended = |script: &str| {
            let program = ["--ignore-status", "--", "/bin/sh", "-c", script];
            run(&dir, &[&[LWP], command, &program].concat()).status.code()
        };
        assert_eq!(ended("exit 3"), Some(0), "{command:?}");
        assert_eq!(ended("kill -9 $$"), Some(0), "{command:?}");
        // lwp's own failures are not the program's.
        let absent = ["--ignore-status", "--", "/nonexistent/program"];
        let status = run(&dir, &[&[LWP], command, &absent].concat()).status;
        assert_eq!(status.code(), Some(127), "{command:?}");
    }
    assert!(dir.join("lwp.data").exists());
}
