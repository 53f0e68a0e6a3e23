//! Profiles of real programs: recorded, and held against what `lwp stat` and other tools say. A
//! test whose foreign tool is missing is skipped and says so.
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use crate::shared::callgrind;
use crate::shared::tools;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use lwp_testkit::files::copy_program;
use serde_json::Value;

use callgrind::Names;
use tools::{has, limited, text};

const LWP: &str = env!("CARGO_BIN_EXE_lwp");

/// A directory of its own for a test.
fn fresh(name: &str) -> PathBuf {
    tools::fresh("profile", name)
}

/// Runs a command in `dir`, ended if it takes too long.
fn run(dir: &Path, command: &[&str]) -> Output {
    limited(dir, command).output().expect("timeout starts")
}

/// Runs lwp, which must succeed, and returns what it printed.
fn lwp(dir: &Path, arguments: &[&str]) -> String {
    let output = run(dir, &[&[LWP], arguments].concat());
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Runs lwp, which must fail with `code`, and returns what it complained of.
fn lwp_fails(dir: &Path, arguments: &[&str], code: i32) -> String {
    let output = run(dir, &[&[LWP], arguments].concat());
    let complaint = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {complaint}");
    complaint
}

/// Compiles one of the programs into `dir`; false where there is no compiler.
fn compile(dir: &Path, name: &str, flags: &[&str]) -> bool {
    let compiler = if name.ends_with(".cpp") { "g++" } else { "gcc" };
    if !has(compiler) {
        return false;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/profiled").join(name);
    let source = source.to_str().expect("path is text");
    let all = [&[compiler, "-g", "-o", "program", source], flags].concat();
    let output = run(dir, &all);
    assert!(output.status.success(), "{}", text(&output.stderr));
    true
}

/// Rows of `lwp report` as JSON.
fn rows(dir: &Path, arguments: &[&str]) -> Vec<Value> {
    let json = lwp(dir, &[&["report", "--json"], arguments].concat());
    let document: Value = serde_json::from_str(&json).expect("JSON");
    document["rows"].as_array().expect("rows").clone()
}

fn number(row: &Value, key: &str) -> u64 {
    row[key].as_u64().unwrap_or_else(|| panic!("{key}: {row}"))
}

fn word<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().unwrap_or_else(|| panic!("{key}: {row}"))
}

/// What callgrind says of one object.
#[derive(Default)]
struct Callgrind {
    /// Executions of each instruction.
    instructions: BTreeMap<u64, u64>,
    /// Executions of each line, `file:line`.
    lines: BTreeMap<String, u64>,
    /// Calls of each function.
    calls: BTreeMap<String, u64>,
    /// Instructions of each function and of what it called.
    inclusive: BTreeMap<String, u64>,
}

/// Reads callgrind's output on `object`, which is linked at a fixed address. Callgrind files code
/// outside all functions it knows (stubs, `_init`) under the object `???`.
fn callgrind(file: &Path, object: &str) -> Callgrind {
    let mut out = Callgrind::default();
    let mut names = Names::default();
    let mut name = |kind: char, text: &str| names.of(kind, text);
    let (mut own, mut callee_own, mut source, mut callee) =
        (false, None, String::new(), String::new());
    let mut function = String::new();
    let (mut address, mut line, mut inclusive) = (0u64, 0u64, false);
    let is_own = |path: &str| path.ends_with(object) || path == "???";
    for text in std::fs::read_to_string(file).expect("callgrind's output").lines() {
        match text.split_once('=') {
            Some(("ob", value)) => own = is_own(&name('o', value)),
            Some(("cob", value)) => callee_own = Some(is_own(&name('o', value))),
            Some(("fl" | "fi" | "fe", value)) => source = name('f', value),
            Some(("cfi" | "cfl", value)) => drop(name('f', value)),
            Some(("fn", value)) => function = name('n', value),
            Some(("cfn", value)) => callee = name('n', value),
            Some(("calls", value)) => {
                let count: u64 =
                    value.split(' ').next().and_then(|n| n.parse().ok()).expect("calls");
                if callee_own.take().unwrap_or(own) {
                    *out.calls.entry(callee.clone()).or_default() += count;
                }
                inclusive = true;
            }
            _ if text.starts_with(|c: char| c.is_ascii_digit() || "+-*".contains(c)) => {
                let mut words = text.split(' ');
                address = position(words.next().expect("address"), address);
                line = position(words.next().expect("line"), line);
                let cost: u64 = words.next().map_or(0, |cost| cost.parse().expect("cost"));
                if own {
                    *out.inclusive.entry(function.clone()).or_default() += cost;
                }
                if own && !inclusive && address < 0x80_0000 {
                    *out.instructions.entry(address).or_default() += cost;
                    let base = source.rsplit('/').next().unwrap_or(&source);
                    *out.lines.entry(format!("{base}:{line}")).or_default() += cost;
                }
                inclusive = false;
            }
            _ => {}
        }
    }
    out
}

/// A position: absolute, or relative to the one before.
fn position(text: &str, last: u64) -> u64 {
    let number = |digits: &str| match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).expect("number"),
        None => digits.parse().expect("number"),
    };
    match text.split_at(1) {
        ("*", _) => last,
        ("+", more) => last + number(more),
        ("-", less) => last - number(less),
        _ => number(text),
    }
}

/// Compares everything of a program's own code with callgrind. The program must have no REP string
/// instruction of its own: callgrind counts every iteration.
fn agrees_with_callgrind(name: &str, flags: &[&str]) {
    let dir = fresh(&format!("callgrind-{name}"));
    if !has("valgrind") || !compile(&dir, name, &[&["-no-pie"], flags].concat()) {
        return;
    }
    let output = run(
        &dir,
        &[
            "valgrind",
            "--tool=callgrind",
            "--dump-instr=yes",
            "--skip-plt=no",
            "--callgrind-out-file=out",
            "./program",
        ],
    );
    assert!(output.status.success(), "{}", text(&output.stderr));
    let theirs = callgrind(&dir.join("out"), "/program");
    lwp(&dir, &["record", "-q", "./program"]);

    let mut ours = BTreeMap::new();
    for row in rows(&dir, &["-s", "dso,addr"]) {
        if word(&row, "dso") == "program" {
            let address = word(&row, "addr").trim_start_matches("0x");
            ours.insert(u64::from_str_radix(address, 16).unwrap(), number(&row, "self"));
        }
    }
    assert!(ours.len() > 50, "{} instructions", ours.len());
    let differ: Vec<_> = ours
        .keys()
        .chain(theirs.instructions.keys())
        .filter(|address| ours.get(address) != theirs.instructions.get(address))
        .map(|at| format!("{at:#x}: {:?} {:?}", ours.get(at), theirs.instructions.get(at)))
        .collect();
    assert!(differ.is_empty(), "{name}: ours, callgrind's: {differ:#?}");

    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for row in rows(&dir, &["-s", "dso,srcline"]) {
        if word(&row, "dso") == "program" {
            *lines.entry(word(&row, "srcline").to_owned()).or_default() += number(&row, "self");
        }
    }
    let mut compared = 0;
    for (line, count) in lines.iter().filter(|(line, _)| line.starts_with(name)) {
        assert_eq!(theirs.lines.get(line), Some(count), "{line}");
        compared += 1;
    }
    assert!(compared >= 5, "{name}: {compared} lines");
}

/// How often each function of the program was called, against callgrind.
fn calls_agree_with_callgrind(name: &str, functions: &[&str]) {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join("profile")
        .join(format!("callgrind-{name}"));
    if !dir.join("out").exists() {
        return;
    }
    let theirs = callgrind(&dir.join("out"), "/program");
    let ours = rows(&dir, &["-s", "dso,sym"]);
    for function in functions {
        let row = ours.iter().find(|row| row["sym"] == *function && row["dso"] == "program");
        let row = row.unwrap_or_else(|| panic!("{function} is missing"));
        let stem = |name: &str| name.split('\'').next().unwrap_or(name).to_owned();
        let calls: u64 = theirs
            .calls
            .iter()
            .filter(|(name, _)| stem(name) == *function)
            .map(|(_, count)| count)
            .sum();
        assert_eq!(number(row, "calls"), calls, "calls of {function}");
    }
}

/// What each of these functions and what they called executed, against callgrind. They do not call
/// themselves, or functions that the C library has for several processors.
fn inclusive_counts_agree_with_callgrind(name: &str, functions: &[&str]) {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join("profile")
        .join(format!("callgrind-{name}"));
    if !dir.join("out").exists() {
        return;
    }
    let theirs = callgrind(&dir.join("out"), "/program");
    lwp(&dir, &["record", "-q", "--call-graph", "exact", "./program"]);
    let ours = rows(&dir, &["-s", "dso,sym"]);
    for function in functions {
        let row = ours.iter().find(|row| row["sym"] == *function && row["dso"] == "program");
        let row = row.unwrap_or_else(|| panic!("{function} is missing"));
        let inclusive = theirs.inclusive.get(*function).copied();
        assert_eq!(row["total"].as_u64(), inclusive, "{function}: {row}");
    }
}

#[test]
fn callers_agree_with_callgrind() {
    agrees_with_callgrind("callers.c", &["-O1"]);
    let functions = ["work", "cheap", "dear", "last", "through", "twice"];
    inclusive_counts_agree_with_callgrind("callers.c", &functions);
}

/// Promise: R2
#[test]
fn sorting_agrees_with_callgrind() {
    agrees_with_callgrind("sorting.c", &["-O2"]);
    inclusive_counts_agree_with_callgrind("sorting.c", &["compare", "hash"]);
    calls_agree_with_callgrind("sorting.c", &["compare", "hash", "main"]);
}

/// Promise: R2
#[test]
fn recursion_agrees_with_callgrind() {
    agrees_with_callgrind("recursion.c", &["-O1"]);
    calls_agree_with_callgrind("recursion.c", &["fib", "ackermann", "even", "odd"]);
}

/// Promise: R2
#[test]
fn dispatch_agrees_with_callgrind() {
    agrees_with_callgrind("dispatch.c", &["-O2"]);
    let functions = ["add", "sub", "mul", "mix", "select_by_switch"];
    calls_agree_with_callgrind("dispatch.c", &functions);
    inclusive_counts_agree_with_callgrind("dispatch.c", &functions);
}

/// Promise: R2
#[test]
fn matrix_agrees_with_callgrind() {
    agrees_with_callgrind("matrix.c", &["-O2", "-fno-tree-vectorize"]);
    calls_agree_with_callgrind("matrix.c", &["multiply"]);
    inclusive_counts_agree_with_callgrind("matrix.c", &["multiply"]);
}

/// Promise: R2
#[test]
fn words_agree_with_callgrind() {
    agrees_with_callgrind("words.cpp", &["-O1"]);
}

/// Every event's sum in the recording is what `lwp stat` counts.
fn agrees_with_stat(dir: &Path, program: &[&str]) {
    const EVENTS: &str = "instructions,branches,branches-taken,conditional-branches,\
                          conditional-taken,calls,returns,indirect-branches";
    let fixed = ["--deterministic", "--seed", "1"];
    lwp(dir, &[&["stat", "-j", "-o", "stat.json", "-e", EVENTS], &fixed[..], program].concat());
    lwp(dir, &[&["record", "-q"], &fixed[..], program].concat());
    let counted = std::fs::read_to_string(dir.join("stat.json")).expect("counts");
    for line in counted.lines() {
        let row: Value = serde_json::from_str(line).expect("JSON");
        let event = word(&row, "event");
        // perf writes counts with a decimal point.
        let count = word(&row, "counter-value").split('.').next().expect("whole part");
        let count: u64 = count.parse().expect("count");
        let json = lwp(dir, &["report", "--json", "-s", "dso", "-e", event]);
        let recorded: Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(number(&recorded, "total"), count, "{program:?}: {event}");
    }
}

/// Promise: R1
#[test]
fn totals_are_those_of_stat() {
    let dir = fresh("stat");
    agrees_with_stat(&dir, &["/bin/ls", "/"]);
    // Not a shell: it formats its parent's process number, which may have a digit more.
    let echo = ["-exec", "echo", "{}", ";"].repeat(3);
    agrees_with_stat(&dir, &[&["find", "/", "-maxdepth", "0"], &echo[..]].concat());
    for (source, flags) in
        [("dispatch.c", &["-O2", "-static"][..]), ("words.cpp", &["-O2"]), ("matrix.c", &["-O3"])]
    {
        if compile(&dir, source, flags) {
            agrees_with_stat(&dir, &["./program"]);
        }
    }
}

/// Promise: R3
#[test]
fn threads_processes_and_signals_are_told_apart() {
    let dir = fresh("threads");
    if !compile(&dir, "threads.c", &["-O1", "-pthread"]) {
        return;
    }
    lwp(&dir, &["record", "-q", "./program"]);
    // Six instructions a round, whatever else the compiler does around the loop.
    let spun: Vec<u64> = rows(&dir, &["-s", "tid,sym"])
        .iter()
        .filter(|row| row["sym"] == "spin")
        .map(|row| number(row, "self"))
        .collect();
    assert_eq!(spun.len(), 4, "{spun:?}");
    let per_round = (spun[0] - spun[1]) / 10_000;
    let overhead = spun[0] - 30_000 * per_round;
    let expected = [30_000, 20_000, 10_000, 5_000].map(|n| n * per_round + overhead);
    assert_eq!(spun, expected);
    let handler = rows(&dir, &[]).into_iter().find(|row| row["sym"] == "handler").expect("handler");
    assert_eq!(number(&handler, "calls"), 20);
    let pids: Vec<_> = rows(&dir, &["-s", "pid"]);
    assert_eq!(pids.len(), 2);
}

/// Promise: R4
#[test]
fn callgrind_s_own_reader_reads_the_export() {
    let dir = fresh("export-callgrind");
    if !has("callgrind_annotate") || !compile(&dir, "sorting.c", &["-O2"]) {
        return;
    }
    lwp(&dir, &["record", "-q", "./program"]);
    lwp(&dir, &["export", "-o", "callgrind.out.1"]);
    let output = run(&dir, &["callgrind_annotate", "--threshold=100", "callgrind.out.1"]);
    let listing = text(&output.stdout);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    let total: u64 = rows(&dir, &[]).iter().map(|row| number(row, "self")).sum();
    let line = listing.lines().find(|line| line.contains("PROGRAM TOTALS")).expect("totals");
    assert_eq!(line.split(' ').next().unwrap().replace(',', ""), total.to_string());
    let hash = rows(&dir, &[]).into_iter().find(|row| row["sym"] == "hash").expect("hash");
    let line = listing.lines().find(|line| line.contains(":hash [")).expect("hash");
    let count = line.split_whitespace().next().unwrap().replace(',', "");
    assert_eq!(count, number(&hash, "self").to_string());
}

/// Promise: R4
#[test]
fn perf_reads_the_export() {
    let dir = fresh("export-perf");
    if !has("perf") || !compile(&dir, "sorting.c", &["-O2"]) {
        return;
    }
    lwp(&dir, &["record", "-q", "./program"]);
    lwp(&dir, &["export", "-f", "perf", "-o", "perf.data"]);
    let command = ["perf", "script", "-i", "perf.data", "-F", "event,period,ip,sym,dso"];
    let output = run(&dir, &command);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let mut sums: BTreeMap<(String, String), u64> = BTreeMap::new();
    for line in text(&output.stdout).lines() {
        // period, event, address, symbol, (object)
        let words: Vec<&str> = line.split_whitespace().collect();
        let [period, event, _, symbol @ .., object] = words.as_slice() else {
            panic!("{line}");
        };
        let object = object.trim_matches(['(', ')']).rsplit('/').next().unwrap_or("");
        let name = if object == "program" { symbol.join(" ") } else { String::new() };
        let event = event.trim_end_matches(':').to_owned();
        *sums.entry((event, name)).or_default() += period.parse::<u64>().expect("period");
    }
    for event in ["instructions", "branches", "branches-taken", "calls"] {
        let table = rows(&dir, &["-e", event]);
        for function in ["hash", "compare"] {
            let row = table.iter().find(|row| row["sym"] == function);
            let key = (event.to_owned(), function.to_owned());
            // A function that makes no calls has no samples of them.
            let ours = row.map_or(0, |row| number(row, "self"));
            assert_eq!(ours, sums.get(&key).copied().unwrap_or(0), "{key:?}");
        }
        let total: u64 = table.iter().map(|row| number(row, "self")).sum();
        let theirs: u64 = sums.iter().filter(|((e, _), _)| e == event).map(|(_, n)| n).sum();
        assert_eq!(theirs, total, "{event}");
    }
}

/// Promise: R4
#[test]
fn every_format_holds_the_same_total() {
    let dir = fresh("formats");
    lwp(&dir, &["record", "-q", "/bin/ls", "/"]);
    let total: u64 = rows(&dir, &[]).iter().map(|row| number(row, "self")).sum();
    let folded = lwp(&dir, &["export", "-f", "folded"]);
    let count = |line: &str| line.rsplit(' ').next().and_then(|n| n.parse::<u64>().ok()).unwrap();
    assert_eq!(folded.lines().map(count).sum::<u64>(), total);
    let json = |format: &str| -> Value {
        serde_json::from_str(&lwp(&dir, &["export", "-f", format])).expect("JSON")
    };
    let sum = |values: &Value| -> u64 {
        values.as_array().expect("array").iter().filter_map(Value::as_u64).sum()
    };
    let speedscope = json("speedscope");
    assert_eq!(sum(&speedscope["profiles"][0]["weights"]), total);
    let firefox = json("firefox");
    assert_eq!(sum(&firefox["threads"][0]["samples"]["weight"]), total);
    let chrome = json("chrome");
    let own = chrome["traceEvents"].as_array().expect("events").iter();
    assert_eq!(own.filter_map(|event| event["args"]["own"].as_u64()).sum::<u64>(), total);
    let lines = lwp(&dir, &["export", "-f", "jsonl"]);
    let objects = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let functions = objects.filter(|object| object["kind"] == "function");
    assert_eq!(functions.map(|f| number(&f["own"], "instructions")).sum::<u64>(), total);
    lwp(&dir, &["export", "-o", "x.pb.gz"]);
    assert!(std::fs::read(dir.join("x.pb.gz")).unwrap().starts_with(&[0x1f, 0x8b]));
}

/// Promise: R5
#[test]
fn what_is_inferred_is_marked() {
    let dir = fresh("marked");
    lwp(&dir, &["record", "-q", "--call-graph", "inferred", "/bin/true"]);
    let table = lwp(&dir, &["report"]);
    assert!(table.contains("Total~ is an estimate"), "{table}");
    assert!(lwp(&dir, &["report", "--csv"]).starts_with("self,total_estimated,calls,"));
    let row = &rows(&dir, &["-n", "1"])[0];
    assert!(row.get("total_estimated").is_some() && row.get("total").is_none(), "{row}");
    lwp(&dir, &["flamegraph", "-o", "flame.svg"]);
    let picture = std::fs::read_to_string(dir.join("flame.svg")).unwrap();
    assert!(picture.contains("stacks are inferred from numbers of calls"));
    for format in ["speedscope", "firefox", "chrome"] {
        let text = lwp(&dir, &["export", "-f", format]);
        assert!(text.contains("stacks are inferred"), "{format}");
    }
    let callgrind = lwp(&dir, &["export", "-f", "callgrind"]);
    assert!(callgrind.contains("desc: Inclusive costs: estimated"));
}

#[test]
fn a_function_s_code_is_annotated() {
    let dir = fresh("annotate");
    if !compile(&dir, "sorting.c", &["-O2"]) {
        return;
    }
    lwp(&dir, &["record", "-q", "./program"]);
    let listing = lwp(&dir, &["annotate", "hash"]);
    assert!(listing.contains("for (int i = 0; i < length; i++)"), "{listing}");
    assert!(listing.contains("ret"), "{listing}");
    // The loop's branch: how often it was taken, and an arrow back to its start.
    let back = listing.lines().find(|line| line.contains("╰─")).expect("an arrow");
    assert!(back.contains('%') && back.contains(" j"), "{back}");
    let main = lwp(&dir, &["annotate", "main", "-M", "intel"]);
    assert!(main.contains("# hash x1,500"), "{main}");
    lwp_fails(&dir, &["annotate", "nonsense"], 125);
}

/// The remarks of `lwp annotate main` on source files.
fn doubts(dir: &Path) -> Vec<String> {
    let output = run(dir, &[LWP, "annotate", "main"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines = text(&output.stderr).lines().map(str::to_owned).collect::<Vec<_>>();
    lines.into_iter().filter(|line| line.contains("source file")).collect()
}

/// Gives a file a time of modification, in seconds since 1970.
fn set_time(file: &Path, seconds: u64) {
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
    let file = std::fs::OpenOptions::new().append(true).open(file).unwrap();
    file.set_modified(time).unwrap();
}

/// Promise: R73
#[test]
fn source_files_that_are_more_recent_than_the_program_are_doubted() {
    let dir = fresh("edited");
    std::fs::write(dir.join("own.c"), "#include \"own.h\"\nint main(void) {\n return own();\n}\n")
        .unwrap();
    std::fs::write(
        dir.join("own.h"),
        "static int own(void) {\n static volatile int kept;\n return kept;\n}\n",
    )
    .unwrap();
    let made = run(&dir, &["gcc", "-g", "-O1", "-o", "program", "own.c"]);
    if !made.status.success() {
        return;
    }
    for (file, time) in [("own.c", 1_000_000), ("own.h", 1_000_000), ("program", 1_000_001)] {
        set_time(&dir.join(file), time);
    }
    lwp(&dir, &["record", "-q", "./program"]);
    assert_eq!(doubts(&dir), [""; 0]);
    set_time(&dir.join("own.c"), 1_000_002);
    let said = doubts(&dir);
    assert!(said.len() == 1 && said[0].contains("own.c is more recent than"), "{said:?}");
    lwp(&dir, &["archive"]);
    set_time(&dir.join("own.h"), 1_000_002);
    assert_eq!(doubts(&dir).len(), 2);
}

/// Promise: R73
#[test]
fn checksums_of_source_files_tell_more_than_their_times() {
    let dir = fresh("checksums");
    let source = "int main(void) {\n return 0;\n}\n";
    std::fs::write(dir.join("own.c"), source).unwrap();
    let compiled = run(&dir, &["gcc", "-g", "-gdwarf-5", "-O1", "-S", "own.c"]);
    if !compiled.status.success() {
        return;
    }
    let sum = text(&run(&dir, &["md5sum", "own.c"]).stdout).split(' ').next().unwrap().to_owned();
    let assembly = std::fs::read_to_string(dir.join("own.s")).unwrap();
    let with_sum = |line: &str| match line.starts_with("\t.file ") {
        true => format!("{line} md5 0x{sum}\n"),
        false => format!("{line}\n"),
    };
    let assembly: String = assembly.lines().map(with_sum).collect();
    std::fs::write(dir.join("own.s"), assembly).unwrap();
    if !run(&dir, &["gcc", "-g", "-o", "program", "own.s"]).status.success() {
        return;
    }
    lwp(&dir, &["record", "-q", "./program"]);
    let later = 1 << 33;
    set_time(&dir.join("own.c"), later);
    assert_eq!(doubts(&dir), [""; 0]);
    std::fs::write(dir.join("own.c"), format!("// Another.\n{source}")).unwrap();
    set_time(&dir.join("own.c"), 1_000_000);
    let said = doubts(&dir);
    assert!(said.len() == 1 && said[0].contains("own.c has changed since"), "{said:?}");
}

/// Promise: R11
#[test]
fn a_regression_fails_the_gate_and_names_the_cause() {
    let dir = fresh("gate");
    // Runs with other arguments are not compared: the work is in a file.
    let program = ["/bin/sh", "-c", "read n <work; i=0; while [ $i -lt $n ]; do i=$((i+1)); done"];
    let work = |n: &str| std::fs::write(dir.join("work"), n).expect("work");
    work("050\n");
    lwp(&dir, &[&["record", "-q", "-o", "before.data"], &program[..]].concat());
    lwp(&dir, &[&["record", "-q"], &program[..]].concat());
    let gate = ["gate", "--baseline", "before.data", "-l", "instructions=+0.5%"];
    lwp(&dir, &gate);
    work("500\n");
    lwp(&dir, &[&["record", "-q"], &program[..]].concat());
    lwp_fails(&dir, &gate, 3);
    let output = run(&dir, &[&[LWP], &gate[..], &["-f", "json"]].concat());
    let verdict: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(verdict["passes"], false);
    assert!(!verdict["benchmarks"][0]["changed_most"].as_array().expect("suspects").is_empty());
    std::fs::write(
        dir.join("lwp.toml"),
        "[gate]\nbaseline = \"before.data\"\n[gate.limits]\nbranches = \"+1%\"\n",
    )
    .unwrap();
    lwp_fails(&dir, &["gate"], 3);
    lwp_fails(&dir, &["gate", "--limit", "instructions=much"], 125);
    let same = lwp(&dir, &["diff", "lwp.data", "lwp.data"]);
    assert!(same.contains("nothing differs"), "{same}");
}

/// Promise: R6
#[test]
fn the_program_s_end_does_not_lose_the_profile() {
    let dir = fresh("endings");
    let script = "exit 7";
    lwp_fails(&dir, &["record", "-q", "/bin/sh", "-c", script], 7);
    assert!(!rows(&dir, &[]).is_empty());
    let output = run(&dir, &[LWP, "record", "-q", "/bin/sh", "-c", "kill -9 $$"]);
    assert!(!output.status.success());
    assert!(!rows(&dir, &[]).is_empty());
}

/// Promise: R7
#[test]
fn bad_input_is_named_and_never_a_crash() {
    let dir = fresh("bad");
    let complaint = lwp_fails(&dir, &["report"], 125);
    assert!(complaint.contains("lwp record -- PROGRAM"), "{complaint}");
    for (content, words) in [
        (&b""[..], "empty"),
        (b"PERFILE2xxxxxxxxxxxx", "perf report -i"),
        (b"hello, world, this is text", "not a recording"),
        (b"\x89LWP\r\n\x1a\n\x09\0\0\0\0\0\0\0", "newer"),
    ] {
        std::fs::write(dir.join("lwp.data"), content).unwrap();
        let complaint = lwp_fails(&dir, &["report"], 125);
        assert!(complaint.contains(words), "{complaint}");
    }
    lwp(&dir, &["record", "-q", "/bin/true"]);
    let whole = std::fs::read(dir.join("lwp.data")).unwrap();
    // Within the names, which are behind the counts.
    let counted = whole.windows(4).rposition(|kind| kind == b"DONE").expect("an end") + 12;
    std::fs::write(dir.join("cut.data"), &whole[..(counted + whole.len()) / 2]).unwrap();
    let output = run(&dir, &[LWP, "report", "-i", "cut.data"]);
    assert!(output.status.success());
    assert!(text(&output.stderr).contains("left out"), "{}", text(&output.stderr));
    lwp_fails(&dir, &["report", "-e", "cycles"], 125);
    lwp_fails(&dir, &["report", "-s", "colour"], 125);
    lwp_fails(&dir, &["record", "-o", "/nonexistent/x", "/bin/true"], 125);
    lwp_fails(&dir, &["record", "/nonexistent/program"], 127);
}

/// Promise: R9
#[test]
fn a_changed_program_s_names_are_not_used() {
    let dir = fresh("changed");
    if !compile(&dir, "recursion.c", &["-O1"]) {
        return;
    }
    lwp(&dir, &["record", "-q", "--no-names", "./program"]);
    assert!(rows(&dir, &[]).iter().any(|row| row["sym"] == "fib"));
    compile(&dir, "sorting.c", &["-O1"]);
    // The program as it was recorded is in the store of builds, unless that is another one.
    let now = rows(&dir, &[]);
    assert!(now.iter().any(|row| row["sym"] == "fib"), "{now:?}");
    assert!(!now.iter().any(|row| row["sym"] == "hash"), "{now:?}");
    let elsewhere = format!("XDG_CACHE_HOME={}", dir.join("elsewhere").display());
    let elsewhere = ["env", &elsewhere, LWP, "report"];
    let output = run(&dir, &elsewhere);
    assert!(text(&output.stderr).contains("has changed since the recording"));
    assert!(!text(&output.stdout).lines().any(|line| line.ends_with(" hash")), "{output:?}");
    std::fs::remove_file(dir.join("program")).unwrap();
    let output = run(&dir, &elsewhere);
    assert!(output.status.success());
    assert!(text(&output.stderr).contains("cannot be read"), "{}", text(&output.stderr));
}

#[test]
fn an_archive_needs_nothing_else() {
    let dir = fresh("archive");
    if !compile(&dir, "sorting.c", &["-O2"]) {
        return;
    }
    lwp(&dir, &["record", "-q", "--no-names", "./program"]);
    let before = (rows(&dir, &[]), lwp(&dir, &["annotate", "hash"]));
    lwp(&dir, &["archive"]);
    std::fs::remove_file(dir.join("program")).unwrap();
    let after =
        (rows(&dir, &["-i", "lwp.archive"]), lwp(&dir, &["annotate", "-i", "lwp.archive", "hash"]));
    assert_eq!(before, after);
}

#[test]
fn a_full_disk_is_reported_before_the_program_runs() {
    let dir = fresh("full");
    let touch = ["/usr/bin/touch", "ran"];
    let complaint =
        lwp_fails(&dir, &[&["record", "-q", "-o", "/dev/full"], &touch[..]].concat(), 125);
    assert!(complaint.contains("No space left on device"), "{complaint}");
    assert!(!dir.join("ran").exists());
}

/// Promise: R20
#[test]
fn a_limit_on_the_size_of_files_leaves_the_recording_before() {
    let dir = fresh("small-files");
    lwp(&dir, &["record", "-q", "/bin/true"]);
    let before = std::fs::read(dir.join("lwp.data")).unwrap();
    let record = "ulimit -f 0; exec \"$1\" record -q -- /usr/bin/touch ran";
    let output = run(&dir, &["sh", "-c", record, "sh", LWP]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains("lwp.data: File too large") && said.contains("ulimit -f"), "{said}");
    assert!(!dir.join("ran").exists());
    assert_eq!(std::fs::read(dir.join("lwp.data")).unwrap(), before);
    assert!(!dir.join("lwp.data.old").exists());
}

/// Promise: a failed recording does not cost the last good one.
///
/// Promise: R123
#[test]
fn a_failed_recording_does_not_push_out_the_last_good_one() {
    let dir = fresh("failed-recording");
    let read = |file: &str| std::fs::read(dir.join(file)).ok();
    lwp(&dir, &["record", "-q", "/bin/true"]);
    let good = read("lwp.data").unwrap();
    // One that ends before it has counts, and one that ends before its end.
    for (part, kept) in [(good[..300].to_vec(), false), (cut_behind_counts(&good), true)] {
        std::fs::write(dir.join("lwp.data.old"), &good).unwrap();
        std::fs::write(dir.join("lwp.data"), &part).unwrap();
        let output = run(&dir, &[LWP, "record", "-q", "/bin/true"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(read("lwp.data.old").unwrap(), good, "the good one stays");
        assert_eq!(read("lwp.data.part"), kept.then(|| part.clone()));
        assert_eq!(text(&output.stderr).contains("is kept as lwp.data.part"), kept);
        assert_ne!(read("lwp.data"), Some(part));
    }
}

/// A recording up to the chunk that says that it is whole.
fn cut_behind_counts(whole: &[u8]) -> Vec<u8> {
    let end = whole.windows(4).rposition(|kind| kind == b"DONE").expect("it is whole");
    whole[..end].to_vec()
}

#[test]
fn programs_have_the_action_for_files_that_are_too_large() {
    let dir = fresh("own-large-files");
    let script = "ulimit -S -f 0; exec \"$@\" sh -c 'echo written > file'";
    let natively = run(&dir, &["sh", "-c", script, "sh", "env"]);
    let virtually = run(&dir, &["sh", "-c", script, "sh", LWP, "run", "--"]);
    assert_eq!(virtually.status, natively.status, "{}", text(&virtually.stderr));
    let ignoring = format!("trap '' XFSZ; {script}");
    let natively = run(&dir, &["sh", "-c", &ignoring, "sh", "env"]);
    let virtually = run(&dir, &["sh", "-c", &ignoring, "sh", LWP, "run", "--"]);
    assert_eq!(virtually.status, natively.status, "{}", text(&virtually.stderr));
}

/// Promise: R10
#[test]
fn names_of_programs_cannot_reach_the_terminal_or_the_page() {
    let dir = fresh("names");
    let name = "<b onclick=x>\u{1b}[31m&.sh";
    let script = dir.join(name);
    copy_program(Path::new("/bin/true"), &script);
    lwp(&dir, &["record", "-q", &format!("./{name}")]);
    let table = lwp(&dir, &["report", "-s", "comm,dso"]);
    assert!(!table.contains('\u{1b}'), "{table:?}");
    lwp(&dir, &["flamegraph", "-o", "flame.html"]);
    let page = std::fs::read_to_string(dir.join("flame.html")).unwrap();
    assert!(!page.contains("<b onclick") && !page.contains('\u{1b}'));
    assert!(page.contains("&lt;b onclick=x&gt;"));
}

#[test]
fn cargo_builds_what_lwp_records() {
    let dir = fresh("cargo");
    if !has("cargo") {
        return;
    }
    std::fs::create_dir(dir.join("src")).unwrap();
    let manifest = "[package]\nname = \"counted\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\
                    [workspace]\n";
    std::fs::write(dir.join("Cargo.toml"), manifest).unwrap();
    let program = "#[inline(never)]\nfn work(n: u64) -> u64 { (0..n).fold(0, |a, b| a ^ b * 3) }\n\
                   fn main() { println!(\"{}\", work(std::env::args().count() as u64 * 1000)); }\n";
    std::fs::write(dir.join("src/main.rs"), program).unwrap();
    let target = dir.join("target");
    let words = [env!("CARGO_BIN_EXE_cargo-lwp"), "lwp", "record", "--", "x"];
    let output = limited(&dir, &words)
        .env("CARGO_TARGET_DIR", &target)
        .env_remove("CARGO_BUILD_TARGET")
        .output()
        .expect("cargo-lwp starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(!output.stdout.is_empty());
    let work = rows(&dir, &[]).into_iter().find(|row| word(row, "sym").ends_with("::work"));
    assert_eq!(number(&work.expect("work is recorded"), "calls"), 1);
}

#[test]
fn a_terminal_shows_how_far_a_recording_is() {
    let dir = fresh("progress");
    if !has("script") {
        return;
    }
    // `script` gives it a terminal; what would be the program's own output is led elsewhere.
    let command = format!("{LWP} record -c 1000000 sh -c 'exec sleep 2.5' > out");
    let words = ["script", "-q", "-e", "-c", &command, "terminal"];
    let output = limited(&dir, &words).env("TERM", "xterm").env_remove("CI").output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let terminal = text(&std::fs::read(dir.join("terminal")).unwrap());
    assert!(terminal.contains("\r\u{1b}[Klwp: recording, "), "{terminal:?}");
    assert!(std::fs::read(dir.join("out")).unwrap().is_empty());
    // Nobody looks: nothing is shown.
    let quiet = run(&dir, &[LWP, "record", "-c", "1000000", "sleep", "2.5"]);
    assert!(!text(&quiet.stderr).contains("recording,"), "{}", text(&quiet.stderr));
}

/// Runs a shell script in a mount namespace of its own; nothing where there can be none.
fn with_mounts(dir: &Path, script: &str) -> Option<Output> {
    if !has("unshare") {
        return None;
    }
    let alone = run(dir, &["unshare", "-m", "mount", "-t", "tmpfs", "none", "."]);
    if !alone.status.success() {
        eprintln!("skipped: nothing may be mounted here: {}", text(&alone.stderr));
        return None;
    }
    Some(run(dir, &["unshare", "-m", "sh", "-c", script, "sh", LWP]))
}

/// Promise: R20
#[test]
fn a_disk_that_fills_keeps_what_was_recorded() {
    let dir = fresh("filling");
    if !compile(&dir, "recursion.c", &["-O1"]) {
        return;
    }
    std::fs::create_dir(dir.join("small")).unwrap();
    let script = "mount -t tmpfs -o size=32k none small || exit 99
        $1 record -c 10 -o small/lwp.data ./program > printed; echo status $? >&2
        $1 report --stdio -i small/lwp.data";
    let Some(output) = with_mounts(&dir, script) else { return };
    let (report, said) = (text(&output.stdout), text(&output.stderr));
    assert!(said.contains("No space left on device") && said.contains("status 125"), "{said}");
    assert!(said.contains("what was written before can be read"), "{said}");
    assert_eq!(said.matches("recording stops here").count(), 1, "{said}");
    // The program itself has noticed nothing, and its profile is there up to then.
    let natively = run(&dir, &["./program"]).stdout;
    assert_eq!(std::fs::read(dir.join("printed")).unwrap(), natively);
    assert!(report.contains("ld-linux") && said.contains("bytes are left out"), "{report}{said}");
}

/// Promise: R7
#[test]
fn a_killed_recorder_leaves_what_it_had_written() {
    let dir = fresh("killed");
    if !compile(&dir, "recursion.c", &["-O1"]) {
        return;
    }
    let mut incomplete = 0;
    // Killed as soon as the recording has so many bytes, wherever lwp is then.
    for bytes in [1, 100, 5_000, 20_000, 60_000] {
        let file = dir.join("lwp.data");
        let _ = std::fs::remove_file(&file);
        let mut recorder = Command::new(LWP)
            .args(["record", "-q", "-c", "101", "./program"])
            .current_dir(&dir)
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("lwp starts");
        let written = || std::fs::metadata(&file).map_or(0, |file| file.len());
        let started = std::time::Instant::now();
        while recorder.try_wait().expect("a child").is_none() && written() < bytes {
            assert!(started.elapsed().as_secs() < 60, "{} bytes", written());
        }
        recorder.kill().expect("a child");
        recorder.wait().expect("a child");
        let report = run(&dir, &[LWP, "report", "--json"]);
        let warning = text(&report.stderr);
        if bytes < 20_000 && warning.contains("nothing is left of it") {
            incomplete += 1;
            continue;
        }
        assert!(report.status.success(), "{bytes}: {warning}");
        incomplete += usize::from(warning.contains("did not come to its end"));
        let rows: Value = serde_json::from_str(&text(&report.stdout)).expect("JSON");
        if bytes >= 20_000 {
            let samples = rows["rows"].as_array().expect("rows").len();
            assert!(samples > 0, "{bytes}: nothing of {} bytes", written());
        }
    }
    assert!(incomplete > 0, "lwp was always faster");
}

/// Promise: R20
#[test]
fn a_directory_that_cannot_be_written_is_said_before_the_program_runs() {
    let dir = fresh("read-only");
    std::fs::create_dir(dir.join("ro")).unwrap();
    lwp(&dir, &["record", "-q", "-o", "ro/lwp.data", "/bin/true"]);
    let script = "mount --bind ro ro && mount -o remount,ro,bind ro && cd ro || exit 99
        $1 record /usr/bin/touch ../ran; echo record $? >&2
        $1 flamegraph; echo flamegraph $? >&2
        $1 flamegraph -o - > ../flame.svg; $1 report --stdio";
    let Some(output) = with_mounts(&dir, script) else { return };
    let said = text(&output.stderr);
    assert!(said.contains("Read-only file system") && said.contains("with -o FILE"), "{said}");
    assert!(said.contains("record 125") && said.contains("flamegraph 125"), "{said}");
    assert!(!dir.join("ran").exists());
    // What only reads, works.
    assert!(std::fs::read_to_string(dir.join("flame.svg")).unwrap().contains("<svg"));
    assert!(text(&output.stdout).contains("# instructions"), "{}", text(&output.stdout));
}

/// Promise: R20
#[test]
fn a_terminal_that_can_do_nothing_gets_text() {
    let dir = fresh("dumb");
    if !has("script") {
        return;
    }
    lwp(&dir, &["record", "-q", "/bin/true"]);
    for (arguments, wanted) in [("report", "# instructions"), ("top true", "# lwp top: true")] {
        let words = ["script", "-q", "-e", "-c", &format!("{LWP} {arguments}"), "terminal"];
        let output = limited(&dir, &words).env("TERM", "dumb").output().unwrap();
        let terminal = text(&std::fs::read(dir.join("terminal")).unwrap());
        assert!(output.status.success() && terminal.contains(wanted), "{terminal:?}");
        let plain = terminal.lines().filter(|line| !line.starts_with("Script"));
        assert!(!plain.collect::<String>().contains('\u{1b}'), "{terminal:?}");
    }
}
