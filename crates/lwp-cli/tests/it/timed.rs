//! `lwp record --time`: shares are those that a program measures itself, and sums the kernel's.
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use crate::shared::recorded;
use crate::shared::tools;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use recorded::{LWP, compile, lwp, run};
use serde_json::Value;
use tools::text;

/// A directory of its own for a test.
fn fresh(name: &str) -> PathBuf {
    tools::fresh("timed", name)
}

/// Returns whether the kernel lets this process sample; says why not.
fn allowed(dir: &Path) -> bool {
    let output = run(dir, &[LWP, "record", "--time", "-o", "probe.data", "--", "/bin/true"]);
    let refused = text(&output.stderr);
    let refused = refused.lines().find(|line| line.contains("time cannot be sampled here"));
    if let Some(refused) = refused {
        eprintln!("skipped: {refused}");
    }
    refused.is_none()
}

/// Compiles `timed.c`; false, with a reason, where it can be neither compiled nor sampled.
fn prepared(dir: &Path) -> bool {
    compile(dir, "timed.c", &["-O2", "-pthread"]) && allowed(dir)
}

/// Records the program, sampled so often; what it says it has used, by function, in ns.
fn times(dir: &Path, rate: &str, arguments: &[&str]) -> BTreeMap<String, f64> {
    let command = ["record", "--time", "-q", "-F", rate, "--", "./program"];
    let (said, _) = lwp(dir, &[&command, arguments].concat());
    let line = |line: &str| {
        let (name, ns) = line.split_once(' ').expect("name and time");
        (name.to_owned(), ns.parse().expect("ns"))
    };
    said.lines().map(line).collect()
}

/// A report by these keys.
fn report(dir: &Path, keys: &str) -> Value {
    let (json, _) = lwp(dir, &["report", "--json", "-s", keys]);
    serde_json::from_str(&json).expect("JSON")
}

/// Nanoseconds by the value of the key.
fn rows(report: &Value, key: &str) -> BTreeMap<String, f64> {
    let mut rows = BTreeMap::new();
    for row in report["rows"].as_array().expect("rows") {
        let name = row[key].as_str().expect("a name").to_owned();
        *rows.entry(name).or_default() += row["self"].as_f64().expect("ns");
    }
    rows
}

/// Asserts that the functions' shares of what both know are equal: within half a point, or three
/// standard errors of so many samples.
fn assert_shares(truth: &BTreeMap<String, f64>, found: &BTreeMap<String, f64>, samples: f64) {
    let known = |all: &BTreeMap<String, f64>| -> f64 {
        truth.keys().filter(|name| *name != "all").filter_map(|name| all.get(name)).sum()
    };
    let (all, found_all) = (known(truth), known(found));
    for (name, ns) in truth.iter().filter(|(name, _)| *name != "all") {
        let part = ns / all;
        let sampled = found.get(name).copied().unwrap_or(0.0) / found_all;
        let error = (part * (1.0 - part) / samples).sqrt();
        let most = (3.0 * error).max(0.005);
        assert!((part - sampled).abs() <= most, "{name}: {part} and {sampled}, ± {most}");
    }
}

#[test]
fn shares_are_those_that_the_program_measures() {
    let dir = fresh("shares");
    if !prepared(&dir) {
        return;
    }
    let truth = times(&dir, "2999", &["3", "c"]);
    let report = report(&dir, "sym");
    let samples = report["total"].as_f64().expect("ns") / report["interval"].as_f64().expect("ns");
    assert!(samples > 5000.0, "{samples}");
    assert_shares(&truth, &rows(&report, "sym"), samples);
    let margin = report["rows"][0]["margin_percent"].as_f64().expect("a margin");
    assert!(margin > 0.1 && margin < 2.0, "{margin}");
}

#[test]
fn sums_are_those_of_the_kernel() {
    let dir = fresh("sums");
    if !prepared(&dir) {
        return;
    }
    for mode in ["c", "t", "p", "k"] {
        let truth = times(&dir, "997", &["1", mode]);
        let all = truth["all"];
        let (header, _) = lwp(&dir, &["script", "--header"]);
        let clock = header.lines().find_map(|line| line.strip_prefix("# cpu-time: "));
        let clock: f64 = clock.unwrap_or_else(|| panic!("{header}")).parse().expect("ns");
        let rows = report(&dir, "sym")["total"].as_f64().expect("ns");
        // On an idle machine they differ by less than 1 %; where processors are shared, by up to 2.
        for sum in [clock, rows] {
            assert!((sum / all - 1.0).abs() < 0.05, "{mode}: {sum} of {all}");
        }
    }
}

#[test]
fn threads_children_and_programs_that_they_execute_are_followed() {
    let dir = fresh("followed");
    if !prepared(&dir) {
        return;
    }
    let truth = times(&dir, "1999", &["1", "t"]);
    let found = report(&dir, "sym");
    assert_shares(&truth, &rows(&found, "sym"), 4000.0);
    let threads = rows(&report(&dir, "comm"), "comm");
    let part = threads["other"] / threads["program"];
    assert!(part > 0.9 && part < 1.1, "{threads:?}");
    let truth = times(&dir, "1999", &["1", "p"]);
    let found = rows(&report(&dir, "sym"), "sym");
    assert_shares(&truth, &found, 4000.0);
    assert!(found["in_child"] > 0.8e9, "{found:?}");
    let processes = rows(&report(&dir, "pid"), "pid");
    assert_eq!(processes.values().filter(|ns| **ns > 0.8e9).count(), 2, "{processes:?}");
    // Threads only.
    let command = ["record", "--time", "-q", "-i", "--", "./program", "1", "p"];
    lwp(&dir, &command);
    let found = rows(&report(&dir, "sym"), "sym");
    assert!(!found.contains_key("in_child"), "{found:?}");
}

#[test]
fn stacks_reach_down_to_the_beginning() {
    let dir = fresh("stacks");
    if !prepared(&dir) {
        return;
    }
    times(&dir, "1999", &["1", "t"]);
    let (folded, _) = lwp(&dir, &["export", "-f", "folded"]);
    let ns = |of: &str| -> f64 {
        let lines = folded.lines().filter(|line| line.contains(of));
        lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
    };
    let all = ns("");
    assert!(ns("main;") > 0.48 * all && ns("other_thread;") > 0.45 * all, "{folded}");
    assert!(ns("[callers not found]") < 0.01 * all, "{folded}");
    lwp(&dir, &["record", "--time", "-q", "--no-call-graph", "--", "./program", "0.5", "c"]);
    let (folded, _) = lwp(&dir, &["export", "-f", "folded"]);
    assert!(folded.contains("heavy ") && !folded.contains("main;"), "{folded}");
}

/// What the program's clock says of `reading` is nearly all the kernel's. The kernel's samples
/// elsewhere don't count: on a busy machine its interrupts fall into any function.
#[test]
fn time_in_the_kernel_is_shown() {
    let dir = fresh("kernel");
    if !prepared(&dir) {
        return;
    }
    let truth = times(&dir, "1999", &["2", "k"]);
    let found = rows(&report(&dir, "dso"), "dso");
    assert!(found.contains_key("[kernel]"), "{found:?}");
    let (folded, _) = lwp(&dir, &["export", "-f", "folded"]);
    let mut in_reading = 0.0;
    let mut in_kernel = 0.0;
    for line in folded.lines() {
        let Some((stack, ns)) = line.rsplit_once(' ') else { continue };
        let Some((_, below)) = stack.split_once("reading") else { continue };
        let ns = ns.parse::<f64>().expect("a weight");
        in_reading += ns;
        in_kernel += if below.is_empty() { 0.0 } else { ns };
    }
    assert!((in_reading - truth["reading"]).abs() < 0.03 * truth["all"], "{folded} {truth:?}");
    assert!(in_kernel > 0.8 * in_reading, "{folded}");
}

#[test]
fn the_end_is_the_program_s() {
    let dir = fresh("ends");
    if !allowed(&dir) {
        return;
    }
    let code = |command: &[&str]| {
        let output = run(&dir, &[&[LWP, "record", "--time", "-q", "--"], command].concat());
        (output.status.code(), text(&output.stderr))
    };
    assert_eq!(code(&["sh", "-c", "exit 7"]), (Some(7), String::new()));
    assert_eq!(code(&["true"]), (Some(0), String::new()));
    let (status, said) = code(&["/no/such/program"]);
    assert_eq!(status, Some(127), "{said}");
    std::fs::write(dir.join("plain"), "x").expect("written");
    let (status, said) = code(&["./plain"]);
    assert_eq!(status, Some(126), "{said}");
    let killed = code(&["sh", "-c", "kill -TERM $$"]);
    assert_ne!(killed.0, Some(0), "{}", killed.1);
    let command = [LWP, "record", "--time", "-q", "--timeout", "200", "--", "sleep", "60"];
    assert!(!run(&dir, &command).status.success());
}

#[test]
fn a_refusal_says_why_and_leaves_the_recording_alone() {
    let dir = fresh("refused");
    if !compile(&dir, "no_perf_events.c", &[]) {
        return;
    }
    std::fs::write(dir.join("lwp.data"), "kept").expect("written");
    let output = run(&dir, &["./program", LWP, "record", "--time", "--", "/bin/echo", "ran"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains("a seccomp filter refuses perf_event_open"), "{said}");
    assert!(said.contains("help: ") && said.contains("leave --time out"), "{said}");
    assert_eq!(text(&output.stdout), "");
    assert_eq!(std::fs::read(dir.join("lwp.data")).expect("kept"), b"kept");
}

#[test]
fn every_command_shows_time() {
    let dir = fresh("commands");
    if !prepared(&dir) {
        return;
    }
    times(&dir, "997", &["1", "k"]);
    let (table, _) = lwp(&dir, &["report", "--stdio"]);
    assert!(table.contains("by the kernel's clocks") && table.contains('±'), "{table}");
    let (csv, _) = lwp(&dir, &["report", "--csv"]);
    assert!(csv.starts_with("self,margin_percent,total,"), "{csv}");
    let (tree, _) = lwp(&dir, &["report", "-g"]);
    assert!(tree.contains("heavy"), "{tree}");
    let (code, _) = lwp(&dir, &["annotate", "heavy"]);
    assert!(code.contains("WORK(heavy"), "{code}");
    lwp(&dir, &["flamegraph", "-o", "flame.svg"]);
    let flame = std::fs::read_to_string(dir.join("flame.svg")).expect("a picture");
    assert!(flame.contains("heavy") && flame.contains("reading"));
    let (script, _) = lwp(&dir, &["script"]);
    assert!(script.contains("cpu-time"), "{script}");
    for format in ["pprof", "speedscope", "perf", "callgrind", "otlp", "folded", "firefox", "facts"]
    {
        lwp(&dir, &["export", "-f", format, "-o", "exported"]);
        let bytes = std::fs::metadata(dir.join("exported")).expect("a file").len();
        assert!(bytes > 100, "{format}: {bytes} bytes");
    }
    times(&dir, "997", &["1", "k"]);
    let (diff, _) = lwp(&dir, &["diff", "lwp.data.old", "lwp.data"]);
    // A function may have as many samples in both, and is no change then.
    assert!(diff.starts_with("# lwp.data.old -> lwp.data\n# cpu-time: "), "{diff}");
    lwp(&dir, &["merge", "-o", "both.data", "lwp.data.old", "lwp.data"]);
}

#[test]
fn time_is_not_mixed_with_counts() {
    let dir = fresh("mixed");
    for option in [&["-c", "100"][..], &["--model"], &["-e", "calls:c=9"], &["--deterministic"]] {
        let command = [&[LWP, "record", "--time"], option, &["--", "/bin/true"]].concat();
        let output = run(&dir, &command);
        assert_eq!(output.status.code(), Some(125), "{option:?}");
        assert!(text(&output.stderr).contains("--time"), "{option:?}");
    }
}
