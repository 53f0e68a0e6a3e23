//! Modelled misses and estimated cycles: against patterns whose misses are known, and against
//! callgrind. A test whose tool is missing is skipped and says so.
//!
//! Promise: R63
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use crate::shared::tools;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tools::{fresh, has, limited, text};

const LWP: &str = env!("CARGO_BIN_EXE_lwp");
const INCLUDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../include");

/// Passes over memory, of which the marked one is counted.
const PASSES: &str = r#"
#include <lwp_count.h>
#include <string.h>
#include <stdint.h>
enum { BYTES = 1 << 20, LINE = 64, FEW = 16 << 10 };
static volatile char memory[BYTES] __attribute__((aligned(4096)));
static void load(long bytes) { for (long i = 0; i < bytes; i += LINE) (void)memory[i]; }
static void store(long bytes) { for (long i = 0; i < bytes; i += LINE) memory[i] = 1; }
int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    load(strstr(what, "warm") ? BYTES : FEW);
    lwp_count_start();
    if (strstr(what, "load")) load(BYTES);
    if (strstr(what, "store")) store(BYTES);
    if (strstr(what, "few")) load(FEW);
    lwp_count_stop();
    load(BYTES);
    store(BYTES);
    return 0;
}
"#;

/// Loads in random order from more than the caches hold, and branches on random bits.
const RANDOM: &str = r#"
#include <stdint.h>
#include <stdlib.h>
enum { N = 1 << 18 };
static volatile uint64_t sink;
static uint64_t next(uint64_t s) { s ^= s << 13; s ^= s >> 7; return s ^ s << 17; }
__attribute__((noinline)) static uint64_t walk(const uint64_t *a) {
    uint64_t s = 88172645463325252ull, sum = 0;
    for (int i = 0; i < 100000; i++) {
        s = next(s);
        uint64_t v = a[s & (N - 1)];
        if (s >> 40 & 1) __asm__ volatile("nop"); else sum += v;
    }
    return sum;
}
int main(void) {
    uint64_t *a = malloc(N * sizeof *a);
    for (int i = 0; i < N; i++) a[i] = i;
    sink = walk(a);
    return 0;
}
"#;

/// What has loops of all kinds, calls through pointers, and fits the caches.
const SORTING: &str = r#"
#include <stdlib.h>
enum { N = 3000 };
static int a[N];
static int order(const void *x, const void *y) { return (*(const int *)x > *(const int *)y) - (*(const int *)x < *(const int *)y); }
int main(void) {
    unsigned s = 1;
    for (int i = 0; i < N; i++) { s = s * 1103515245 + 12345; a[i] = (int)(s >> 16); }
    qsort(a, N, sizeof a[0], order);
    int sum = 0;
    for (int round = 0; round < 20; round++)
        for (int i = 1; i < N; i++) sum += a[i] != a[i - 1];
    return sum == 0;
}
"#;

fn compiled(name: &str, source: &str) -> Option<PathBuf> {
    if !has("gcc") {
        return None;
    }
    let dir = fresh("model", name);
    std::fs::write(dir.join("program.c"), source).expect("written");
    let words = ["gcc", "-O1", "-g", "-I", INCLUDE, "-o", "program", "program.c"];
    let output = limited(&dir, &words).output().expect("gcc starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    Some(dir)
}

/// Returns whether this machine can watch caches; says so where it cannot.
fn watches() -> bool {
    if !lwp_vcpu::can_watch_caches() {
        eprintln!("skipped: the processor lacks BMI2 or FSGSBASE");
    }
    lwp_vcpu::can_watch_caches()
}

fn lwp(dir: &Path, words: &[&str]) -> std::process::Output {
    limited(dir, &[&[LWP], words].concat()).output().expect("lwp starts")
}

/// What `lwp stat --model` counts, by event.
fn counted(dir: &Path, options: &[&str], program: &[&str]) -> BTreeMap<String, u64> {
    let words =
        [&["stat", "--model", "--deterministic", "-x,", "-o", "-"], options, &["--"], program];
    let output = lwp(dir, &words.concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        Some((cells.get(2)?.to_string(), cells[0].parse().ok()?))
    };
    text(&output.stdout).lines().filter_map(row).collect()
}

#[test]
fn misses_between_markers_are_those_of_the_pattern() {
    let (Some(dir), true) = (compiled("passes", PASSES), watches()) else { return };
    const LINES: u64 = (1 << 20) / 64;
    const FEW: u64 = (16 << 10) / 64;
    // 32 KiB in the first level, 512 KiB in the second, 16 MiB in the third; lines of the stack, of
    // the arguments and of imports may have gone.
    let near = |count: u64, expected: u64| (expected..=expected + 12).contains(&count);
    for (what, loads, stores, memory) in [
        ("load", LINES - FEW, 0, LINES - FEW),
        ("warm load", LINES, 0, 0),
        ("warm store", 0, LINES, 0),
        ("few", 0, 0, 0),
        ("load store", LINES - FEW, LINES, LINES - FEW),
    ] {
        let counts = counted(&dir, &["--marked"], &["./program", what]);
        let says = |name: &str| counts[name];
        assert!(near(says("modelled-load-misses"), loads), "{what}: {counts:?}");
        assert!(near(says("modelled-store-misses"), stores), "{what}: {counts:?}");
        assert!(near(says("modelled-llc-load-misses"), memory), "{what}: {counts:?}");
        let missed = says("modelled-load-misses") + says("modelled-store-misses");
        let all = says("modelled-llc-load-misses") + says("modelled-llc-store-misses");
        let cycles =
            says("instructions") + 10 * missed + 100 * all + 10 * says("modelled-mispredictions");
        assert_eq!(says("modelled-cycles"), cycles, "{what}");
    }
}

/// The sums of callgrind's events in a file of its format.
fn totals(file: &Path) -> BTreeMap<String, u64> {
    let dump = std::fs::read_to_string(file).expect("text");
    let line = |name: &str| {
        let line = dump.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name} in {dump}")).to_owned()
    };
    let values = line("totals: ");
    let values = values.split(' ').map(|value| value.parse().expect("a number"));
    line("events: ").split_whitespace().map(str::to_owned).zip(values).collect()
}

const CACHES: [&str; 5] = [
    "--cache-sim=yes",
    "--branch-sim=yes",
    "--I1=32768,8,64",
    "--D1=32768,8,64",
    "--LL=1048576,16,64",
];

/// callgrind and lwp in its place get nearly equal numbers. Theirs has the dynamic linker's own
/// work in another order, an instruction cache in the last level, and a predictor with a history.
#[test]
fn estimates_are_close_to_callgrind_s() {
    for (name, source, option) in [
        ("random", RANDOM, "-q"),
        ("walk", RANDOM, "--toggle-collect=walk"),
        ("sorting", SORTING, "-q"),
    ] {
        let (Some(dir), true, true) = (compiled(name, source), has("valgrind"), watches()) else {
            return;
        };
        let run = |tool: &[&str], file: &str| {
            let output = format!("--callgrind-out-file={file}");
            let words =
                [tool, &["--tool=callgrind", "-q", option, &output], &CACHES, &["./program"]]
                    .concat();
            let output = limited(&dir, &words).output().expect("it starts");
            assert!(output.status.success(), "{}", text(&output.stderr));
            totals(&dir.join(file))
        };
        let theirs = run(&["valgrind"], "theirs");
        let ours = run(&[LWP, "valgrind"], "ours");
        let close = |event: &str, part: f64, few: u64| {
            let (ours, theirs) = (ours[event], theirs[event]);
            let apart = ours.abs_diff(theirs) as f64;
            let most = theirs as f64 * part + few as f64;
            assert!(apart <= most, "{name}: {event} is {ours}, callgrind says {theirs}");
        };
        close("Ir", 0.1, 20_000);
        close("D1mr", 0.05, 400);
        close("D1mw", 0.05, 400);
        close("DLmr", 0.05, 400);
        close("DLmw", 0.05, 400);
        close("Bcm", 0.5, 3_000);
        // The sum, by callgrind's formula: an order of magnitude is what an estimate is good for.
        let cycles = |of: &BTreeMap<String, u64>| {
            let sum =
                |names: &[&str]| -> u64 { names.iter().filter_map(|name| of.get(*name)).sum() };
            sum(&["Ir"])
                + 10 * sum(&["Bcm", "Bim", "I1mr", "D1mr", "D1mw"])
                + 100 * sum(&["ILmr", "DLmr", "DLmw"])
        };
        let (ours, theirs) = (cycles(&ours) as f64, cycles(&theirs) as f64);
        assert!((0.6..1.4).contains(&(ours / theirs)), "{name}: {ours}, callgrind says {theirs}");
    }
}

#[test]
fn recordings_have_the_estimates_of_stat_and_gates_hold_them() {
    let (Some(dir), true) = (compiled("sums", SORTING), watches()) else { return };
    let counts = counted(&dir, &[], &["./program"]);
    assert_eq!(counts, counted(&dir, &[], &["./program"]), "the same in every run");
    let recorded = lwp(&dir, &["record", "-q", "--model", "--deterministic", "--", "./program"]);
    assert!(recorded.status.success(), "{}", text(&recorded.stderr));
    for (event, count) in counts.iter().filter(|(name, _)| !name.contains("clock")) {
        for sort in ["dso,sym", "srcline"] {
            let json = lwp(&dir, &["report", "--json", "-e", event, "-s", sort]);
            let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
            assert_eq!(json["total"], *count, "{event} by {sort}");
            let modelled = event.starts_with("modelled-");
            assert_eq!(json["modelled"], modelled, "{event}");
        }
    }
    let table = text(&lwp(&dir, &["report", "--stdio"]).stdout);
    assert!(table.contains("Cycles (modelled)"), "{table}");
    let cycles = text(&lwp(&dir, &["report", "--stdio", "-e", "modelled-cycles"]).stdout);
    assert!(cycles.contains("from a model") && cycles.contains("order"), "{cycles}");
    let annotated = text(&lwp(&dir, &["annotate", "-e", "modelled-load-misses", "main"]).stdout);
    assert!(annotated.contains("modelled-load-misses"), "{annotated}");

    let gate = |limit: &str| {
        let words = ["gate", "--model", "-b", "base.data", "-l", limit, "--", "./program"];
        lwp(&dir, &words).status.code()
    };
    assert_eq!(gate("modelled-cycles=+0%"), Some(0), "a first baseline");
    assert_eq!(gate("estimated-cycles=+0%"), Some(0), "the same, by its other name");
    assert_eq!(gate(&format!("modelled-cycles={}", counts["modelled-cycles"] - 1)), Some(3));
    // Other caches are another model.
    let smaller =
        ["record", "-q", "--model", "--deterministic", "--cache", "4K/2/64", "-o", "small.data"];
    lwp(&dir, &[&smaller[..], &["--", "./program"]].concat());
    let refused = lwp(&dir, &["gate", "-i", "small.data", "-b", "base.data", "-l", "calls=+0"]);
    assert!(text(&refused.stderr).contains("by the model"), "{}", text(&refused.stderr));
    let merged = lwp(&dir, &["merge", "-o", "both.data", "lwp.data", "small.data"]);
    assert!(text(&merged.stderr).contains("of the model"), "{}", text(&merged.stderr));
}

#[test]
fn without_a_model_there_are_no_estimates() {
    let Some(dir) = compiled("plain", SORTING) else { return };
    assert!(lwp(&dir, &["record", "-q", "--", "./program"]).status.success());
    let report = lwp(&dir, &["report", "-e", "modelled-cycles"]);
    assert!(text(&report.stderr).contains("no event called 'modelled-cycles'"), "{report:?}");
    let sampled = lwp(&dir, &["record", "-q", "--model", "-c", "1000", "--", "./program"]);
    assert!(text(&sampled.stderr).contains("--model"), "{}", text(&sampled.stderr));
}
