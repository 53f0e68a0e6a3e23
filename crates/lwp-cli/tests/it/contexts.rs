//! Measured calling contexts: what each function executed for each of its callers, in every output.

use crate::shared::recorded;
use crate::shared::tools;

use std::path::{Path, PathBuf};

use lwp_profile::{
    Block, BlockCount, BlockEnd, ContextEdge, ContextKind, Mapping, NamedCode, RecordedContexts,
    RecordedModule, RecordedNames, Recording, ThreadExecutions,
};
use serde_json::Value;

use recorded::{LWP, lwp, run};

fn fresh(name: &str) -> PathBuf {
    tools::fresh("contexts", name)
}

/// A context: caller, function, number of calls, instructions.
type Made = (Option<u32>, &'static str, u64, u64);

/// Two functions call a third equally often; for the one it works 500 times as long.
const GPROF: [Made; 5] = [
    (None, "main", 1, 100),
    (Some(0), "cheap", 1, 6_000),
    (Some(1), "work", 1_000, 12_000),
    (Some(0), "dear", 1, 6_000),
    (Some(3), "work", 1_000, 6_006_000),
];

/// A recording of these contexts, whose functions lie behind each other in the order in which they
/// are first called. Each calls all others from one place. Without contexts, it has the same counts
/// by function and the same numbers of calls.
fn recording(made: &[Made], measured: bool) -> Recording {
    let mut functions: Vec<&str> = Vec::new();
    for (_, name, ..) in made {
        if !functions.contains(name) {
            functions.push(name);
        }
    }
    let number = |name: &str| functions.iter().position(|other| *other == name).unwrap_or(0);
    let address = |name: &str| 0x1000 + 0x1000 * number(name) as u64;
    // The call of each function by each, five bytes long.
    let site = |from: &str, to: &str| address(from) + 0x10 + 0x10 * number(to) as u64;
    let mut recording = Recording { complete: true, ..Recording::default() };
    recording.info.insert("command".into(), "./program".into());
    let mapping = Mapping { start: 0x1000, end: 0x100_0000, offset: 0x1000 };
    let module =
        RecordedModule { path: "/program".into(), mappings: vec![mapping], ..Default::default() };
    recording.modules.insert(0, module);
    let mut thread = ThreadExecutions { comm: "program".into(), ..ThreadExecutions::default() };
    let mut execute = |address: u64, end: BlockEnd, target: Option<u64>, runs: u64| {
        let id = recording.blocks.len() as u32;
        let lengths = if end == BlockEnd::Call { vec![5] } else { vec![1] };
        let block = Block { id, address, lengths, counted: 1, end, target, ..Block::default() };
        recording.blocks.insert(id, block);
        thread.blocks.push(BlockCount { block: id, runs, not_taken: 0 });
    };
    for name in &functions {
        let own: u64 = made.iter().filter(|one| one.1 == *name).map(|one| one.3).sum();
        let called: u64 = made.iter().filter(|one| one.1 == *name).map(|one| one.2).sum();
        let callees =
            made.iter().filter(|one| one.0.is_some_and(|at| made[at as usize].1 == *name));
        let mut calls = 0;
        for (_, callee, times, _) in callees {
            execute(site(name, callee), BlockEnd::Call, Some(address(callee)), *times);
            calls += times;
        }
        execute(address(name), BlockEnd::Other, None, called);
        execute(address(name) + 8, BlockEnd::Return, None, own - called - calls);
    }
    let edge = |&(caller, name, calls, instructions): &Made| {
        let from = caller.map(|caller| site(made[caller as usize].1, name) + 4);
        let kind = if from.is_some() { ContextKind::Call } else { ContextKind::Root };
        let site = from.map(|last| (Some(0), last));
        (caller, ContextEdge { kind, site, entry: (Some(0), address(name)) }, calls, instructions)
    };
    if measured {
        thread.contexts = RecordedContexts::gather(made.iter().map(edge));
    }
    recording.threads.insert(0, thread);
    let code = |name: &&str| NamedCode {
        address: address(name),
        size: 0x1000,
        name: (*name).into(),
        ..NamedCode::default()
    };
    let functions = functions.iter().map(code).collect();
    recording.names.push(RecordedNames { functions, program: true, ..RecordedNames::default() });
    recording
}

fn write(dir: &Path, file: &str, made: &[Made], measured: bool) {
    let out = std::fs::File::create(dir.join(file)).expect("a file");
    recording(made, measured).write(out).expect("a recording");
}

/// The rows of a report, by function.
fn rows(dir: &Path, options: &[&str]) -> Value {
    let (json, _) = lwp(dir, &[&["report", "--json"], options].concat());
    let document: Value = serde_json::from_str(&json).expect("JSON");
    let rows = document["rows"].as_array().expect("rows").iter();
    rows.map(|row| (row["sym"].as_str().expect("a name").to_owned(), row.clone())).collect()
}

/// Promise: R127
#[test]
fn every_output_has_what_was_measured_and_calls_nothing_an_estimate() {
    let dir = fresh("outputs");
    write(&dir, "lwp.data", &GPROF, true);
    let of = rows(&dir, &[]);
    let totals = ["main", "cheap", "dear", "work"].map(|name| of[name]["total"].as_u64());
    assert_eq!(totals, [6_030_100, 18_000, 6_012_000, 6_018_000].map(Some));
    assert_eq!(of["work"]["calls"], 2_000);
    let (text, _) = lwp(&dir, &["report", "--stdio"]);
    let (tree, _) = lwp(&dir, &["report", "-g", "--percent-limit", "0"]);
    let (callgrind, _) = lwp(&dir, &["export", "-f", "callgrind", "-o", "-"]);
    for text in [&text, &tree] {
        assert!(!text.contains('~') && !text.contains("estimat"), "{text}");
        assert!(!text.contains("inferred"), "{text}");
    }
    let (folded, _) = lwp(&dir, &["export", "-f", "folded", "-o", "-"]);
    assert_eq!(
        folded,
        "main 100\nmain;cheap 6000\nmain;cheap;work 12000\nmain;dear 6000\nmain;dear;work 6006000\n"
    );
    // Callgrind's lines of a call: how often, then the place and what it cost.
    assert!(callgrind.contains("Inclusive costs: measured"), "{callgrind}");
    let cost = |calls: &str, cost: &str| {
        let mut lines = callgrind.lines().skip_while(|line| !line.starts_with(calls));
        lines.nth(1).is_some_and(|line| line.split(' ').nth(2) == Some(cost))
    };
    assert!(cost("calls=1000 0x3000", "12000"), "{callgrind}");
    assert!(callgrind.contains(" 6006000 "), "{callgrind}");
    lwp(&dir, &["flamegraph", "-o", "flame.svg"]);
    let svg = std::fs::read_to_string(dir.join("flame.svg")).expect("a picture");
    assert!(svg.contains("6,006,000") && !svg.contains("3,009,000"), "{svg}");
    assert!(!svg.contains("inferred"), "{svg}");
    let (listing, _) = lwp(&dir, &["annotate", "--stdio", "main"]);
    assert!(listing.contains("# dear x1: 6,012,000 (99.70%)"), "{listing}");
}

/// Inlined twice, in a function and in one that is inlined there itself; each calls another one.
const INLINED: &str = "
volatile long sink;
__attribute__((noinline)) void called(void) { sink = 1; }
static inline __attribute__((always_inline)) void innie(long n) {
    for (long i = 0; i < n; i++) sink = i;
    called();
}
static inline __attribute__((always_inline)) void middle(long n) { sink = n; innie(n); called(); }
__attribute__((noinline)) void outie(long n) { middle(n); innie(3); called(); }
int main(void) { outie(10000); return 0; }
";

/// Promise: R127
#[test]
fn recordings_measure_contexts_and_inlined_functions_are_frames() {
    let dir = fresh("inlined");
    std::fs::write(dir.join("in.c"), INLINED).expect("a file");
    let compiled = run(&dir, &["cc", "-O2", "-g", "-o", "in", "in.c"]);
    assert!(compiled.status.success(), "{}", tools::text(&compiled.stderr));
    lwp(&dir, &["record", "-q", "./in"]);
    for format in ["folded", "speedscope", "chrome"] {
        let (file, _) = lwp(&dir, &["export", "-f", format, "-o", "-"]);
        assert!(file.contains("innie") && file.contains("middle"), "{format}: {file}");
    }
    let (folded, _) = lwp(&dir, &["export", "-f", "folded", "-o", "-"]);
    let count = |stack: &str| -> u64 {
        let line = folded.lines().find(|line| line.contains(stack)).unwrap_or_default();
        line.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0)
    };
    let loops = count(";main;outie;middle;innie ");
    assert!(loops > 30_000 && count(";main;outie;innie ") < 30, "{folded}");
    let each = count(";main;outie;called ");
    for caller in ["middle", "middle;innie", "innie"] {
        assert_eq!(count(&format!(";main;outie;{caller};called ")), each, "{folded}");
    }
    lwp(&dir, &["flamegraph", "-o", "flame.svg"]);
    let svg = std::fs::read_to_string(dir.join("flame.svg")).expect("a picture");
    assert!(svg.contains("innie") && !svg.contains("inferred"), "{svg}");
}

/// Promise: R127
#[test]
fn other_events_are_estimated_by_instructions_and_say_so() {
    let dir = fresh("events");
    write(&dir, "lwp.data", &GPROF, true);
    let of = rows(&dir, &["-e", "returns"]);
    let estimated = |name: &str| of[name]["total_estimated"].as_u64().expect("an estimate");
    let whole = estimated("main");
    assert!(estimated("cheap") * 100 < whole && estimated("dear") * 100 > 99 * whole, "{of}");
    let (text, _) = lwp(&dir, &["report", "--stdio", "-e", "returns"]);
    assert!(text.contains("Total~ is an estimate: shared out as the instructions"), "{text}");
    let (tree, _) = lwp(&dir, &["report", "-g", "-e", "returns"]);
    assert!(tree.contains("measured in instructions: other events are shared out"), "{tree}");
}

#[test]
fn recordings_without_contexts_are_read_as_before() {
    let dir = fresh("without");
    write(&dir, "lwp.data", &GPROF, false);
    let of = rows(&dir, &[]);
    // Each call of work costs the same: all that is known.
    assert_eq!(of["cheap"]["total_estimated"], 6_000 + 3_009_000);
    let (text, _) = lwp(&dir, &["report", "--stdio"]);
    assert!(text.contains("Total~ is an estimate: shared out by numbers of calls"), "{text}");
}

#[test]
fn sums_have_contexts_if_all_recordings_have() {
    let dir = fresh("sums");
    write(&dir, "with", &GPROF, true);
    write(&dir, "without", &GPROF, false);
    lwp(&dir, &["merge", "-o", "both", "with", "with"]);
    assert_eq!(rows(&dir, &["-i", "both"])["cheap"]["total"], 2 * 18_000);
    lwp(&dir, &["merge", "-o", "mixed", "with", "without"]);
    let report = run(&dir, &[LWP, "report", "--json", "-i", "mixed"]);
    assert!(tools::text(&report.stdout).contains("total_estimated"));
    assert!(tools::text(&report.stderr).contains("contexts of 1 threads were not measured"));
}

#[test]
fn recursion_counts_once_and_samples_have_no_contexts_to_measure() {
    let dir = fresh("recursion");
    let mut made = vec![(None, "main", 1, 100)];
    for depth in 0..300 {
        made.push((Some(depth), if depth % 2 == 0 { "even" } else { "odd" }, 1, 10));
    }
    write(&dir, "lwp.data", &made, true);
    let of = rows(&dir, &[]);
    let totals = ["main", "even", "odd"].map(|name| of[name]["total"].as_u64());
    assert_eq!(totals, [3_100, 3_000, 2_990].map(Some));
    for mode in ["exact", "inferred"] {
        let sampled = run(&dir, &[LWP, "record", "-c", "1000", "--call-graph", mode, "true"]);
        assert_eq!(sampled.status.code(), Some(125), "{mode}");
        let says = tools::text(&sampled.stderr);
        assert!(says.contains("are for recordings that count everything"), "{says}");
    }
}

/// Promise: R128
#[test]
fn gates_limit_what_a_function_and_its_callees_do() {
    let dir = fresh("gate");
    write(&dir, "base", &GPROF, true);
    let mut more = GPROF;
    // The same function does more, for one of its callers only.
    more[2].3 = 24_000;
    write(&dir, "lwp.data", &more, true);
    let rules = "[gate]\nbaseline = \"base\"\n[gate.inclusive.\"cheap\"]\ninstructions = \"+10%\"\n\
                 [gate.inclusive.\"de*\"]\ninstructions = \"+0%\"\n";
    std::fs::write(dir.join("lwp.toml"), rules).expect("a file");
    let gate = || run(&dir, &[LWP, "gate", "--allow-different", "determinism"]);
    let verdict = gate();
    let text = tools::text(&verdict.stdout);
    assert_eq!(verdict.status.code(), Some(3), "{text}");
    assert!(text.contains("instructions in cheap and its callees"), "{text}");
    assert!(!text.contains("in dear"), "{text}");
    write(&dir, "lwp.data", &GPROF, true);
    assert_eq!(gate().status.code(), Some(0));
    // Estimates are not held to limits.
    write(&dir, "lwp.data", &GPROF, false);
    let refused = gate();
    let says = tools::text(&refused.stderr);
    assert!(says.contains("need measured contexts, and the recording has none"), "{says}");
    assert!(says.contains("record with --call-graph exact"), "{says}");
    write(&dir, "lwp.data", &GPROF, true);
    std::fs::write(dir.join("lwp.toml"), rules.replace("instructions", "branches"))
        .expect("a file");
    let says = tools::text(&gate().stderr);
    assert!(says.contains("inclusive counts of branches are estimates"), "{says}");
}

/// Promise: R128
#[test]
fn inclusive_counts_are_compared_where_they_were_measured() {
    let dir = fresh("diff");
    write(&dir, "before", &GPROF, true);
    let mut more = GPROF;
    more[2].3 += 1_000;
    write(&dir, "after", &more, true);
    let (csv, _) = lwp(&dir, &["diff", "--children", "--csv", "before", "after"]);
    for (function, counts) in [("cheap", "18000,19000"), ("main", "6030100,6031100")] {
        let row = csv.lines().find(|line| line.contains(function));
        assert!(row.is_some_and(|row| row.contains(counts)), "{csv}");
    }
    let row = csv.lines().find(|line| line.contains("dear"));
    assert!(row.is_none_or(|row| row.contains("6012000,6012000")), "{csv}");
    write(&dir, "after", &more, false);
    let refused = run(&dir, &[LWP, "diff", "--children", "before", "after"]);
    let says = tools::text(&refused.stderr);
    assert!(says.contains("after: inclusive counts were not measured"), "{says}");
}

#[test]
fn contexts_are_checked_against_what_was_counted() {
    let dir = fresh("check");
    let check = |file: &str| run(&dir, &[LWP, "report", "--check", "-i", file]);
    write(&dir, "right", &GPROF, true);
    let right = check("right");
    let text = tools::text(&right.stdout);
    assert!(right.status.success() && text.contains("5 contexts add up"), "{text}");
    let mut wrong = recording(&GPROF, true);
    let other = recording(&[GPROF[0], GPROF[1], (Some(1), "work", 1_000, 12_001)], true);
    let contexts = other.threads[&0].contexts.clone();
    wrong.threads.get_mut(&0).expect("a thread").contexts = contexts;
    wrong.write(std::fs::File::create(dir.join("wrong")).expect("a file")).expect("a recording");
    let output = check("wrong");
    let text = tools::text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let counts = "6,018,000 counted               12,001 in contexts  work";
    assert!(text.contains(counts) && text.contains("dear"), "{text}");
    write(&dir, "without", &GPROF, false);
    let says = tools::text(&check("without").stderr);
    assert!(says.contains("no calling contexts were measured"), "{says}");
}
