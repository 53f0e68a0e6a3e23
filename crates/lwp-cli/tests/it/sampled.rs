//! Sampled recordings: every stack is right, every count is exact, and equal runs are equal.
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use crate::shared::recorded;
use crate::shared::tools;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use recorded::{LWP, compile, lwp, run};
use tools::{has, text};

/// A directory of its own for a test.
fn fresh(name: &str) -> PathBuf {
    tools::fresh("sampled", name)
}

/// Folded stacks: functions from the outermost to the innermost, and the count.
fn stacks(dir: &Path, file: &str) -> Vec<(Vec<String>, u64)> {
    let (folded, _) = lwp(dir, &["export", "-i", file, "-f", "folded"]);
    let line = |line: &str| {
        let (stack, count) = line.rsplit_once(' ').expect("stack and count");
        let functions = stack.split(';').map(str::to_owned).collect();
        (functions, count.parse().expect("a count"))
    };
    folded.lines().map(line).collect()
}

/// What `lwp record` says about an event: samples, and how many there were in all.
fn said(stderr: &str, event: &str) -> (u64, u64) {
    let line = stderr.lines().find(|line| line.contains(&format!("samples of {event},")));
    let line = line.unwrap_or_else(|| panic!("nothing about {event}: {stderr}"));
    let numbers: Vec<u64> = line
        .split(|c: char| !c.is_ascii_digit() && c != ',')
        .filter(|word| word.contains(|c: char| c.is_ascii_digit()))
        .map(|word| word.replace(',', "").parse().expect("a number"))
        .collect();
    (numbers[0], *numbers.last().expect("numbers"))
}

/// Every sample with its stack, without the process's name and id, which differs.
fn script(dir: &Path) -> String {
    let (script, _) = lwp(dir, &["script"]);
    let rest = |line: &str| line.split_once(": ").map_or(line, |(_, rest)| rest).to_owned();
    script.lines().map(rest).collect::<Vec<_>>().join("\n")
}

/// Functions of `stacks.cpp` that may stand on each other, outermost first.
const CHAINS: [&[&str]; 10] = [
    &["main", "tails", "tail_from"],
    &["main", "tails", "tail_to"],
    &["main", "exceptions", "catcher", "middle", "thrower"],
    &["main", "pump"],
    &["co_body", "co_leaf"],
    &["main", "signals", "on_signal", "handler_work"],
    &["main", "alignments", "aligned", "aligned_leaf"],
    &["main", "threads"],
    &["worker", "thread_leaf"],
    &["main", "forks", "child_leaf"],
];

/// Returns whether the program's own functions stand on each other as its source says.
fn is_possible(own: &[&str]) -> bool {
    if let ["main", "recursion", rest @ ..] = own {
        let turn = |(depth, name): (usize, &&str)| *name == ["even", "odd"][depth % 2];
        return rest.len() <= 40 && rest.iter().enumerate().all(turn);
    }
    CHAINS.iter().any(|chain| chain.starts_with(own))
}

/// Promise: R13
#[test]
fn every_stack_is_right() {
    let dir = fresh("stacks");
    if !compile(&dir, "stacks.cpp", &["-O2"]) {
        return;
    }
    lwp(&dir, &["record", "-q", "-c", "13", "--", "./program"]);
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    let program: Vec<&str> = CHAINS.iter().flat_map(|chain| chain.iter().copied()).collect();
    let is_own =
        |name: &&str| program.contains(name) || ["recursion", "even", "odd"].contains(name);
    for (stack, count) in stacks(&dir, "lwp.data") {
        let own: Vec<&str> = stack.iter().map(String::as_str).filter(is_own).collect();
        let leaf = stack.last().map_or("", String::as_str);
        if own.is_empty() {
            continue;
        }
        // Between two stacks the C library's tables say nothing of where it is.
        let between = stack
            .iter()
            .any(|name| name.starts_with("_Unwind_") || name.starts_with("swapcontext"));
        assert!(is_possible(&own) || between, "{stack:?}");
        if is_own(&leaf) {
            let outermost = match own[0] {
                "main" => "_start",
                "worker" => "clone",
                _ => "",
            };
            assert!(stack[0].starts_with(outermost), "not to the bottom: {stack:?}");
            *seen.entry(leaf.to_owned()).or_default() += count;
        }
        if own.contains(&"handler_work") || own.contains(&"on_signal") {
            assert!(stack.iter().any(|name| name == "raise"), "not through the signal: {stack:?}");
        }
    }
    for leaf in ["even", "odd", "tail_to", "thrower", "co_leaf", "handler_work", "aligned_leaf"] {
        assert!(seen.contains_key(leaf), "never in {leaf}: {seen:?}");
    }
    assert!(seen.contains_key("thread_leaf") && seen.contains_key("child_leaf"), "{seen:?}");
}

/// Promise: R12
#[test]
fn equal_runs_have_equal_samples() {
    let dir = fresh("equal");
    if !compile(&dir, "recursion.c", &["-O1"]) {
        return;
    }
    let runs: Vec<String> = (0..2)
        .map(|_| {
            let args = ["record", "-e", "instructions:c=997,branches:c=499", "--", "./program"];
            let (_, stderr) = lwp(&dir, &args);
            assert!(stderr.contains("samples of branches"), "{stderr}");
            script(&dir)
        })
        .collect();
    assert!(runs[0].lines().count() > 100, "{}", runs[0]);
    assert!(runs[0] == runs[1], "two runs differ");
}

/// Threads take samples by themselves, and keep them with a copy of their stacks; where misses are
/// sampled too, lwp leads them to each sample and reads the stack there.
///
/// Promise: R12
#[test]
fn samples_are_the_same_whoever_takes_them() {
    let dir = fresh("taken");
    if !compile(&dir, "recursion.c", &["-O1"]) {
        return;
    }
    let text: String =
        (0..2000_u32).map(|n| format!("{}\n", n.wrapping_mul(40503) % 9973)).collect();
    std::fs::write(dir.join("numbers"), text).expect("a file");
    let programs: [&[&str]; 2] = [&["./program"], &["sort", "--parallel=1", "numbers"]];
    for (program, interval) in programs.into_iter().zip([997, 211]) {
        let taken = |others: &str| {
            let events = format!("instructions:c={interval}{others}");
            let record = ["record", "-q", "--deterministic", "-e", &events, "--"];
            lwp(&dir, &[&record, program].concat());
            script(&dir)
        };
        let (by_threads, by_lwp) = (taken(""), taken(",dcache-misses:c=100000000"));
        assert!(by_threads.lines().count() > 1000, "{by_threads}");
        let difference = by_threads.lines().zip(by_lwp.lines()).find(|(a, b)| a != b);
        assert!(by_threads == by_lwp, "{program:?}: first {difference:?}");
    }
}

/// Loads that miss, in places where their number is known; what the start-up of a program adds is
/// small.
///
/// Promise: R21
#[test]
fn cache_misses_are_sampled_where_they_happen() {
    let dir = fresh("misses");
    if !compile(&dir, "misses.c", &["-O1"]) {
        return;
    }
    let runs: Vec<_> = (0..2)
        .map(|_| {
            let events = "dcache-misses:c=97,instructions:c=10007";
            let (_, stderr) = lwp(&dir, &["record", "-e", events, "--", "./program"]);
            if stderr.contains("cannot watch a modelled data cache") {
                return (0, 0, Vec::new());
            }
            let (samples, misses) = said(&stderr, "dcache-misses");
            (samples, misses, stacks(&dir, "lwp.data"))
        })
        .collect();
    assert!(runs[0] == runs[1], "two runs differ");
    let (samples, misses, stacks) = &runs[0];
    if *misses == 0 {
        eprintln!("skipped: this processor cannot watch a modelled data cache");
        return;
    }
    assert_eq!(*samples, misses / 97);
    let of = |function: &str| -> u64 {
        let inside = stacks.iter().filter(|(stack, _)| {
            stack.last().is_some_and(|leaf| leaf == function) && stack.iter().any(|f| f == "main")
        });
        inside.map(|(_, count)| count).sum()
    };
    // Each of the four rounds begins and ends somewhere between two samples.
    const MOST: u64 = 4 * 97;
    let near = |count: u64, expected: u64| count.abs_diff(expected) <= MOST;
    assert!(near(of("walk"), 80_000), "walk: {}", of("walk"));
    assert!(near(of("copy"), 65_536), "copy: {}", of("copy"));
    assert!(of("stay") <= MOST, "stay: {}", of("stay"));
}

/// What a program of tests/profiled prints whose every 10,007th miss is sampled, and what is said
/// of it; `None` where it cannot be tried out.
fn sampled_misses(name: &str) -> Option<(String, String)> {
    let dir = fresh(name);
    if !compile(&dir, &format!("{name}.c"), &["-O2"]) {
        return None;
    }
    let said = lwp(&dir, &["record", "-e", "dcache-misses:c=10007", "--", "./program"]);
    if said.1.contains("cannot watch a modelled data cache") {
        eprintln!("skipped: this processor cannot watch a modelled data cache");
        return None;
    }
    Some(said)
}

/// Promise: W9
#[test]
fn signals_find_every_register_where_misses_are_watched() {
    let Some((stdout, _)) = sampled_misses("interrupted") else { return };
    assert!(stdout.starts_with("0 results differ, 500 faults\n"), "{stdout}");
}

/// Signals arrive within repeated string instructions and while it is worked out what these have
/// accessed.
///
/// Promise: W9
#[test]
fn interrupted_copies_lose_no_access() {
    let Some((stdout, stderr)) = sampled_misses("copies") else { return };
    let words: Vec<&str> = stdout.split([' ', ',', '\n']).filter(|word| !word.is_empty()).collect();
    let &[lines, "lines", signals, "signals", "0", "wrong"] = &words[..] else {
        panic!("{stdout}")
    };
    let number = |word: &str| word.parse::<u64>().expect("a number");
    let (lines, signals) = (number(lines), number(signals));
    assert!(signals > 10, "{signals} signals are no test");
    let (samples, misses) = said(&stderr, "dcache-misses");
    assert_eq!(samples, misses / 10_007);
    // A round reads 16 lines beside, starting takes some thousand, and a handler a few.
    let most = lines + 400 * 16 + 10_000 + signals * 20;
    assert!((lines..most).contains(&misses), "{misses} misses of {lines} lines, {signals} signals");
}

/// Promise: R12
#[test]
fn samples_are_the_counts_divided() {
    let dir = fresh("counts");
    if !compile(&dir, "recursion.c", &["-O1"]) {
        return;
    }
    let exact = |event: &str| -> u64 {
        let (_, stderr) = lwp(&dir, &["stat", "-x,", "-e", event, "--", "./program"]);
        let line = stderr.lines().find(|line| line.contains(event)).expect("a row");
        line.split(',').next().and_then(|count| count.parse().ok()).expect("a count")
    };
    for interval in [1_009u64, 20_011] {
        let count = interval.to_string();
        let args = ["record", "-c", &count, "-e", "branches,instructions", "--", "./program"];
        let (_, stderr) = lwp(&dir, &args);
        let (samples, branches) = said(&stderr, "branches");
        assert_eq!(branches, exact("branches"));
        assert_eq!(samples, branches / interval);
        let (samples, instructions) = said(&stderr, "instructions");
        let all = exact("instructions");
        // System calls do not count: this program makes a few dozen, and its dynamic linker as many
        // as there are folders in which it looks for libraries.
        assert!(instructions < all && all - instructions < 2000, "{instructions} of {all}");
        assert_eq!(samples, instructions / interval);
        let total: u64 = stacks(&dir, "lwp.data").iter().map(|(_, count)| count).sum();
        assert_eq!(total, branches / interval * interval);
    }
}

/// Promise: R14
#[test]
fn every_command_shows_samples() {
    let dir = fresh("commands");
    if !compile(&dir, "stacks.cpp", &["-O2"]) {
        return;
    }
    lwp(&dir, &["record", "-q", "-c", "17", "--", "./program"]);
    let (report, _) = lwp(&dir, &["report", "--stdio"]);
    assert!(report.contains("sampled, one in 17"), "{report}");
    // main does nothing itself; what it called is true, not estimated.
    let main = report.lines().find(|line| line.ends_with(" main")).expect("a row of main");
    assert!(!report.contains("Total~") && main.contains('%'), "{report}");
    let (annotated, _) = lwp(&dir, &["annotate", "tail_to"]);
    assert!(annotated.contains("ret") && annotated.contains("for (long i = 0"), "{annotated}");
    lwp(&dir, &["flamegraph", "--min-width", "0", "-o", "flame.html"]);
    let page = std::fs::read_to_string(dir.join("flame.html")).expect("page");
    assert!(page.contains("handler_work") && !page.contains("inferred"));
    for format in ["callgrind", "pprof", "perf", "firefox", "speedscope", "chrome", "jsonl"] {
        let file = format!("out.{format}");
        lwp(&dir, &["export", "-f", format, "-o", &file]);
        assert!(std::fs::metadata(dir.join(&file)).is_ok_and(|file| file.len() > 500), "{format}");
    }
    lwp(&dir, &["archive", "-o", "kept.lwp"]);
    let (kept, _) = lwp(&dir, &["report", "--stdio", "-i", "kept.lwp"]);
    assert_eq!(kept, report);
}

#[test]
fn callgrind_s_own_reader_knows_true_inclusive_costs() {
    let dir = fresh("callgrind");
    if !has("callgrind_annotate") || !compile(&dir, "stacks.cpp", &["-O2"]) {
        return;
    }
    lwp(&dir, &["record", "-q", "-c", "17", "--", "./program"]);
    lwp(&dir, &["export", "-f", "callgrind", "-o", "callgrind.out"]);
    let output =
        run(&dir, &["callgrind_annotate", "--inclusive=yes", "--threshold=100", "callgrind.out"]);
    let listing = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown = |name: &str| -> u64 {
        let line = listing.lines().find(|line| line.contains(&format!(":{name} ")));
        let line = line.unwrap_or_else(|| panic!("no {name}: {listing}"));
        let number = line.split_whitespace().next().map(|word| word.replace(',', ""));
        number.and_then(|number| number.parse().ok()).expect("a cost")
    };
    let below = |name: &str| -> u64 {
        let all = stacks(&dir, "lwp.data").into_iter();
        all.filter(|(stack, _)| stack.iter().any(|f| f == name)).map(|(_, count)| count).sum()
    };
    for name in ["main", "exceptions", "aligned"] {
        assert_eq!(shown(name), below(name), "{name}");
    }
}

/// Promise: R14
#[test]
fn perf_reads_the_stacks() {
    let dir = fresh("perf");
    if !has("perf") || !compile(&dir, "stacks.cpp", &["-O2"]) {
        return;
    }
    lwp(&dir, &["record", "-q", "-c", "17", "--", "./program"]);
    lwp(&dir, &["export", "-f", "perf", "-o", "perf.data"]);
    let output = run(&dir, &["perf", "script", "-i", "perf.data", "-F", "comm,ip,sym"]);
    let script = text(&output.stdout);
    assert!(output.status.success() && !script.is_empty(), "{}", text(&output.stderr));
    let sample = script.split("\n\n").find(|sample| sample.contains("handler_work"));
    let sample = sample.unwrap_or_else(|| panic!("no handler_work: {script}"));
    let order = ["handler_work", "on_signal", "raise", "signals", "main"];
    let at: Vec<Option<usize>> = order.iter().map(|name| sample.find(name)).collect();
    assert!(at.iter().all(Option::is_some) && at.is_sorted(), "{sample}");
}

#[test]
fn what_happens_while_recording_is_off_is_not_sampled() {
    let dir = fresh("off");
    if !compile(&dir, "recursion.c", &["-O1"]) {
        return;
    }
    let (_, stderr) = lwp(&dir, &["record", "-c", "1000", "-D", "-1", "--", "./program"]);
    assert_eq!(said(&stderr, "instructions"), (0, 0));
}

/// Promise: R114
#[test]
fn threads_go_by_their_own_names() {
    let dir = fresh("named");
    if !compile(&dir, "named.c", &["-O1", "-pthread"]) {
        return;
    }
    for mode in [&["record", "-q"][..], &["record", "-q", "-c", "1009"]] {
        lwp(&dir, &[mode, &["--", "./program"]].concat());
        let (report, _) = lwp(&dir, &["report", "-s", "comm"]);
        for name in ["program", "itself 1", "by-another", "child"] {
            assert!(report.lines().any(|line| line.ends_with(name)), "{mode:?}, {name}: {report}");
        }
    }
}

#[test]
fn intervals_that_make_no_sense_are_refused() {
    let dir = fresh("refused");
    for arguments in [
        &["-c", "0"][..],
        &["-c", "x"],
        &["-e", "instructions"],
        &["-e", "cycles", "-c", "10"],
        &["-e", "calls,returns", "-c", "10"],
    ] {
        let output = run(&dir, &[&[LWP, "record"], arguments, &["--", "true"]].concat());
        let complaint = text(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{arguments:?}: {complaint}");
        assert!(!dir.join("lwp.data").exists(), "{arguments:?} left a recording");
    }
}
