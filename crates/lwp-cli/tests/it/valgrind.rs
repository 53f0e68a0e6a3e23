//! `lwp valgrind --tool=callgrind` beside callgrind itself. A test whose tool is missing is skipped
//! and says so.
//!
//! Promise: R71
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use crate::shared::{callgrind, tools};

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use callgrind::Names;
use tools::{fresh, has, limited, text};

const LWP: &str = env!("CARGO_BIN_EXE_lwp");

/// What both programs do.
const WORK: &str = r#"
#include <stdint.h>
#include <valgrind/callgrind.h>
static volatile uint64_t sink;
__attribute__((noinline)) uint64_t mix(uint64_t n) {
    uint64_t a = 1;
    for (uint64_t i = 0; i < n; i++) a = (a ^ i) * 0x9e3779b97f4a7c15u >> (i & 7);
    return a;
}
__attribute__((noinline)) void counted(uint64_t n) { sink += mix(n); sink += mix(n / 2); }
"#;

/// A program with functions to be counted.
const PLAIN: &str = r#"
int main(void) {
    sink += mix(77);
    for (int i = 1; i < 4; i++) counted(1000 * i);
    return 7;
}
"#;

/// A program that asks callgrind for what it can be asked.
const ASKING: &str = r#"
int main(void) {
    counted(1000);
    CALLGRIND_ZERO_STATS;
    CALLGRIND_START_INSTRUMENTATION;
    sink += mix(500);
    CALLGRIND_TOGGLE_COLLECT;
    sink += mix(600);
    CALLGRIND_TOGGLE_COLLECT;
    CALLGRIND_STOP_INSTRUMENTATION;
    CALLGRIND_DUMP_STATS_AT("first");
    sink += mix(700);
    return RUNNING_ON_VALGRIND ? 7 : 8;
}
"#;

/// Compiles the program, where everything is there that this takes.
fn compiled(name: &str, program: &str) -> Option<PathBuf> {
    if !has("gcc") || !has("valgrind") {
        return None;
    }
    let dir = fresh("valgrind", name);
    std::fs::write(dir.join("program.c"), format!("{WORK}{program}")).expect("written");
    let words = ["gcc", "-O2", "-g", "-o", "program", "program.c"];
    let output = limited(&dir, &words).output().expect("gcc starts");
    if !output.status.success() {
        eprintln!("skipped: no valgrind/callgrind.h: {}", text(&output.stderr));
        return None;
    }
    Some(dir)
}

/// The sums of each part that a run of `tool` leaves, by file.
fn totals(dir: &Path, tool: &[&str], options: &[&str]) -> Vec<(String, Vec<u64>)> {
    let place = if tool.len() == 1 { "theirs" } else { "ours" };
    let _ = std::fs::remove_dir_all(dir.join(place));
    std::fs::create_dir(dir.join(place)).expect("directory");
    let output = format!("--callgrind-out-file={place}/out");
    let words = [tool, &["--tool=callgrind", "-q", &output], options, &["./program"]].concat();
    let output = limited(dir, &words).output().expect("it starts");
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    let files = std::fs::read_dir(dir.join(place)).expect("directory");
    let mut found: Vec<(String, Vec<u64>)> = files
        .map(|file| {
            let file = file.expect("file");
            let dump = std::fs::read_to_string(file.path()).expect("text");
            let rows = dump.lines().filter_map(|line| line.strip_prefix("totals: "));
            let sums = rows.map(|sum| sum.parse().expect("one event")).collect();
            (file.file_name().to_string_lossy().into_owned(), sums)
        })
        .collect();
    found.sort();
    found
}

#[test]
fn it_counts_what_callgrind_counts() {
    let Some(dir) = compiled("counts", PLAIN) else { return };
    for options in [
        &["--toggle-collect=counted"][..],
        &["--toggle-collect=count*", "--dump-instr=yes"],
        &["--toggle-collect=mix", "--compress-strings=no", "--dump-line=no"],
        &["--toggle-collect=mix", "--separate-threads=yes"],
        &["--toggle-collect=counted", "--combine-dumps=yes"],
    ] {
        let theirs = totals(&dir, &["valgrind"], options);
        for _ in 0..2 {
            assert_eq!(totals(&dir, &[LWP, "valgrind"], options), theirs, "{options:?}");
        }
        assert!(theirs.iter().any(|(_, sums)| sums.iter().any(|sum| *sum > 1000)), "{theirs:?}");
    }
}

/// One function, cheap for one caller and dear for the other.
const EDGE: &str = r#"
__attribute__((noinline)) void work(long n) { for (long i = 0; i < n; i++) sink += i; }
__attribute__((noinline)) void cheap(void) { work(10); sink++; }
__attribute__((noinline)) void dear(void) { work(100000); sink++; }
int main(void) { cheap(); dear(); return 7; }
"#;

/// Costs of calls in the program's own functions, by caller and callee.
fn costs_of_calls(dump: &str) -> BTreeMap<(String, String), u64> {
    let (mut names, mut out) = (Names::default(), BTreeMap::new());
    let (mut caller, mut callee, mut below) = (String::new(), String::new(), false);
    for line in dump.lines() {
        if let Some(name) = line.strip_prefix("cfn=") {
            callee = names.of('n', name);
        } else if let Some(name) = line.strip_prefix("fn=") {
            caller = names.of('n', name);
        } else if std::mem::replace(&mut below, line.starts_with("calls=")) {
            let cost = line.rsplit(' ').next().and_then(|cost| cost.parse::<u64>().ok());
            *out.entry((caller.clone(), callee.clone())).or_default() += cost.expect("a cost");
        }
    }
    out.retain(|(caller, _), _| ["main", "cheap", "dear"].contains(&caller.as_str()));
    out
}

/// Promise: R156
#[test]
fn a_call_costs_what_it_executed() {
    let Some(dir) = compiled("edge", EDGE) else { return };
    let costs = |tool: &[&str], options: &[&str]| {
        totals(&dir, tool, options);
        let place = if tool.len() == 1 { "theirs/out" } else { "ours/out" };
        costs_of_calls(&std::fs::read_to_string(dir.join(place)).expect("text"))
    };
    for options in [&[][..], &["--compress-strings=no", "--dump-instr=yes"]] {
        let theirs = costs(&["valgrind"], options);
        assert!(theirs.values().any(|cost| *cost > 100_000), "{theirs:?}");
        assert!(theirs.values().any(|cost| *cost < 100), "{theirs:?}");
        assert_eq!(costs(&[LWP, "valgrind"], options), theirs);
    }
    let dump = std::fs::read_to_string(dir.join("ours/out")).expect("text");
    assert!(dump.contains("inclusive costs are measured for each call"), "{dump}");
    // Counted only here and there, a call's cost is an estimate, and the file names it that.
    costs(&[LWP, "valgrind"], &["--toggle-collect=dear"]);
    let dump = std::fs::read_to_string(dir.join("ours/out")).expect("text");
    assert!(dump.contains("inclusive costs are shared out by numbers of calls"), "{dump}");
}

/// A program that starts over after its first function, and stops before its last.
const SWITCHING: &str = r#"
int main(void) {
    sink += mix(70000);
    CALLGRIND_ZERO_STATS;
    counted(1000);
    CALLGRIND_STOP_INSTRUMENTATION;
    sink += mix(90000);
    return 7;
}
"#;

/// Promise: R156
#[test]
fn calls_before_counting_started_over_cost_nothing() {
    let Some(dir) = compiled("switching", SWITCHING) else { return };
    let ours = totals(&dir, &[LWP, "valgrind"], &[]);
    let total = ours[0].1[0];
    let dump = std::fs::read_to_string(dir.join("ours/out")).expect("text");
    let calls = costs_of_calls(&dump);
    assert!(total < 100_000 && calls.values().all(|cost| *cost <= total), "{total} {calls:?}");
    assert!(dump.contains("inclusive costs are shared out by numbers of calls"), "{dump}");
}

/// Callgrind counts in whole blocks, which a request may lie in the middle of: a few instructions.
#[test]
fn client_requests_bound_what_is_counted() {
    let Some(dir) = compiled("requests", ASKING) else { return };
    let options = ["--instr-atstart=no"];
    let theirs = totals(&dir, &["valgrind"], &options);
    let ours = totals(&dir, &[LWP, "valgrind"], &options);
    let names = |parts: &[(String, Vec<u64>)]| -> Vec<String> {
        parts.iter().map(|(name, _)| name.clone()).collect()
    };
    assert_eq!(names(&ours), names(&theirs));
    for ((name, ours), (_, theirs)) in ours.iter().zip(&theirs) {
        let close = ours.len() == 1 && ours[0].abs_diff(theirs[0]) < 40;
        assert!(close, "{name}: {ours:?} {theirs:?}");
    }
    assert!(ours[1].1[0] > 2500, "{ours:?}");
    assert_eq!(totals(&dir, &[LWP, "valgrind"], &options), ours);
}

#[test]
fn its_files_are_read_by_callgrind_annotate() {
    let Some(dir) = compiled("annotated", PLAIN) else { return };
    if !has("callgrind_annotate") {
        return;
    }
    for options in [&["--dump-instr=yes"][..], &["--compress-strings=no"], &[]] {
        let expected =
            totals(&dir, &[LWP, "valgrind"], &[options, &["--toggle-collect=mix"]].concat());
        let words = ["callgrind_annotate", "--auto=yes", "ours/out"];
        let output = limited(&dir, &words).output().expect("callgrind_annotate starts");
        let (table, says) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success() && says.is_empty(), "{says}");
        let digits: String = table.chars().filter(|letter| *letter != ',').collect();
        let total = expected[0].1[0];
        assert!(digits.contains(&format!("{total} (100.0%)  PROGRAM TOTALS")), "{table}");
        assert!(table.contains("program.c:mix"), "{table}");
    }
}

#[test]
fn children_have_files_and_messages_of_their_own() {
    let dir = fresh("valgrind", "children");
    let words = [
        LWP,
        "valgrind",
        "--tool=callgrind",
        "--trace-children=yes",
        "--cache-sim=yes",
        "--callgrind-out-file=out.%p",
        "--log-file=log.%p",
        "sh",
        "-c",
        "/bin/true; exit 3",
    ];
    let output = limited(&dir, &words).output().expect("lwp starts");
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
    let mut files: Vec<_> = std::fs::read_dir(&dir)
        .expect("directory")
        .map(|file| file.expect("file").path())
        .collect();
    files.sort();
    assert_eq!(files.len(), 4, "{files:?}");
    let log = std::fs::read_to_string(&files[1]).expect("text");
    assert!(log.contains("== Command: ") && log.contains("== Collected : "), "{log}");
    assert!(log.contains("Not counted: instruction cache"), "{log}");
}

/// As CodSpeed's runner has it: programs that are skipped leave no file, nor does what they start.
#[test]
fn children_of_skipped_programs_leave_no_files() {
    let dir = fresh("valgrind", "skipped");
    std::fs::write(dir.join("skipped.sh"), "#!/bin/sh\n/bin/true below\nexit 0\n").expect("script");
    let script = "sh skipped.sh; /bin/true kept; exit 7";
    let words = [LWP, "valgrind", "-q", "--tool=callgrind", "--trace-children=yes", "--vgdb=no"];
    let options = ["--trace-children-skip-by-arg=skipped*", "--callgrind-out-file=out.%p"];
    let words = [&words[..], &options, &["sh", "-c", script]].concat();
    let output = limited(&dir, &words).output().expect("it starts");
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("Without effect here: --vgdb=no"));
    let files = std::fs::read_dir(&dir).expect("directory").flatten();
    let files = files.filter(|file| file.file_name().to_string_lossy().starts_with("out."));
    let mut commands: Vec<String> = files
        .map(|file| {
            let text = std::fs::read_to_string(file.path()).expect("text");
            let line = text.lines().find_map(|line| line.strip_prefix("cmd:")).expect("a command");
            line.trim().to_owned()
        })
        .collect();
    commands.sort();
    assert_eq!(commands, ["/bin/true kept", &format!("sh -c {script}")]);
}

#[test]
fn a_program_that_is_not_counted_is_named() {
    let dir = fresh("valgrind", "uncounted");
    // There is no room for translated code: the program runs natively.
    let script =
        format!("ulimit -v 4000000; exec {LWP} valgrind --tool=callgrind -- /bin/true 2>&1");
    let output = limited(&dir, &["sh", "-c", &script]).output().expect("timeout starts");
    let says = text(&output.stdout);
    assert!(says.contains("not counted: no memory for translated code"), "{says}");
}

#[test]
fn what_it_does_not_do_is_refused_by_name() {
    let dir = fresh("valgrind", "refused");
    for (option, tool) in [("--dump-before=main", "callgrind"), ("-q", "memcheck")] {
        let tool = format!("--tool={tool}");
        let output = limited(&dir, &[LWP, "valgrind", &tool, option, "/bin/true"]).output();
        let output = output.expect("lwp starts");
        let says = text(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{says}");
        assert!(says.contains(option) || says.contains("memcheck"), "{says}");
    }
    let output = limited(&dir, &[LWP, "valgrind", "--version"]).output().expect("lwp starts");
    assert!(text(&output.stdout).starts_with("valgrind-3.19.0"));
}
