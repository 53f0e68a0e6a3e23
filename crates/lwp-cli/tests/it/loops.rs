//! `lwp report --loops`: entries and iterations are those that the source says, and those that
//! callgrind's jumps say.
//!
//! Promise: R144

use crate::shared::recorded;
use crate::shared::tools;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use recorded::{LWP, compile, lwp, run};
use serde_json::Value;
use tools::{has, text};

/// A directory with the program; `None` where there is no compiler.
fn prepared(name: &str) -> Option<PathBuf> {
    let dir = tools::fresh("loops", name);
    compile(&dir, "loops.c", &["-O1"]).then_some(dir)
}

/// Numbers of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Loop {
    depth: u64,
    entries: u64,
    iterations: u64,
}

fn json(dir: &Path) -> Value {
    let (json, _) = lwp(dir, &["report", "--loops", "--json"]);
    serde_json::from_str(&json).expect("JSON")
}

/// The loops of a function, the outermost first.
fn of(report: &Value, function: &str) -> Vec<Loop> {
    let rows = report["loops"].as_array().expect("loops").iter();
    let number = |row: &Value, key: &str| row[key].as_u64().expect("a number");
    let one = |row: &Value| Loop {
        depth: number(row, "depth"),
        entries: number(row, "entries"),
        iterations: number(row, "iterations"),
    };
    let mut found: Vec<Loop> = rows.filter(|row| row["sym"] == function).map(one).collect();
    found.sort_by_key(|it| it.depth);
    found
}

/// Asserts that the loops of a function were entered and went round so often. A loop whose header
/// asks whether it is over executes it once more for each entry.
fn assert_loops(report: &Value, function: &str, expected: &[[u64; 2]]) {
    let found = of(report, function);
    assert_eq!(found.len(), expected.len(), "{function}: {found:?}");
    for ((depth, it), [entries, iterations]) in (1..).zip(found).zip(expected) {
        assert_eq!((it.depth, it.entries), (depth, *entries), "{function}: {it:?}");
        let asks = iterations + entries;
        assert!([*iterations, asks].contains(&it.iterations), "{function}: {it:?}, {iterations}");
    }
}

#[test]
fn loops_go_round_as_often_as_their_source_says() {
    let Some(dir) = prepared("counted") else { return };
    lwp(&dir, &["record", "-q", "--", "./program"]);
    let report = json(&dir);
    assert_loops(&report, "nested", &[[2, 14], [14, 154], [154, 2002]]);
    assert_loops(&report, "collatz", &[[1, 111]]);
    // Left once from the middle and once at the end.
    assert_loops(&report, "search", &[[2, 142]]);
    // 1 + 3 + 9 + 27 + 81 calls of itself.
    assert_loops(&report, "recursive", &[[121, 363]]);
    assert_loops(&report, "interprets", &[[1, 1000]]);
    let rows = report["loops"].as_array().expect("loops");
    let sum = |key: &str| -> u64 {
        let nested = rows.iter().filter(|row| row["sym"] == "nested");
        nested.map(|row| row[key].as_u64().expect("a number")).sum()
    };
    let outer = rows.iter().find(|row| row["sym"] == "nested" && row["depth"] == 1);
    let outer = outer.expect("the outer loop");
    assert_eq!(outer["instructions_with_inner_loops"], sum("instructions"));
    assert_eq!(outer["file"].as_str().and_then(|file| file.rsplit('/').next()), Some("loops.c"));
}

#[test]
fn loops_are_shown_as_text_csv_and_above_code() {
    let Some(dir) = prepared("shown") else { return };
    lwp(&dir, &["record", "-q", "--", "./program"]);
    let (table, _) = lwp(&dir, &["report", "--loops", "--stdio", "-n", "3"]);
    assert!(table.contains("nested loops.c:") && table.contains("loops not shown"), "{table}");
    let (csv, _) = lwp(&dir, &["report", "--loops", "--csv"]);
    assert!(csv.starts_with("depth,entries,iterations,instructions,"), "{csv}");
    let (code, _) = lwp(&dir, &["annotate", "--loops", "search"]);
    assert!(
        code.starts_with("# loop at ") && code.contains(": 2 entries, 142 iterations"),
        "{code}"
    );
    lwp(&dir, &["record", "-q", "-c", "1000", "--", "./program"]);
    let output = run(&dir, &[LWP, "report", "--loops"]);
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains("loops need exact counts"), "{said}");
}

/// An iteration of the innermost loop is the whole of the time by the number of iterations.
#[test]
fn iterations_have_a_time_beside_a_native_run() {
    let Some(dir) = prepared("timed") else { return };
    let output = run(&dir, &[LWP, "record", "--both", "-F", "1999", "--", "./program", "40000"]);
    let said = text(&output.stderr);
    if let Some(refused) = said.lines().find(|line| line.contains("cannot be sampled here")) {
        println!("skipped: {refused}");
        return;
    }
    assert!(output.status.success(), "{said}");
    let report = json(&dir);
    let rows = report["loops"].as_array().expect("loops");
    let inner = rows.iter().find(|row| row["sym"] == "nested" && row["depth"] == 3);
    let inner = inner.expect("the innermost loop");
    let ns = inner["ns_per_iteration_estimated"].as_f64().expect("an estimate");
    let margin = inner["ns_per_iteration_margin_percent"].as_f64().expect("a margin");
    let time = inner["cpu_time"].as_f64().expect("ns");
    let iterations = inner["iterations"].as_f64().expect("a number");
    assert!((ns * iterations / time - 1.0).abs() < 1e-9 && margin < 50.0, "{inner}");
    let (all, _) = lwp(&dir, &["report", "--json"]);
    let all: Value = serde_json::from_str(&all).expect("JSON");
    let clock = all["total"].as_f64().expect("ns");
    assert!(time > 0.0 && time < 1.01 * clock, "{inner}, {clock}");
    let (table, _) = lwp(&dir, &["report", "--loops", "--stdio"]);
    assert!(table.contains("~ns/iteration"), "{table}");
}

/// Instructions of a function by address, and how often control went from one to another.
#[derive(Debug, Default)]
struct Flow {
    executed: BTreeMap<u64, u64>,
    jumps: BTreeMap<(u64, u64), u64>,
}

impl Flow {
    /// Adds the ways from each instruction to the next one, unless it returns.
    fn fall_through(&mut self, returns: &BTreeSet<u64>) {
        let next = self.executed.keys().skip(1);
        let pairs: Vec<(u64, u64)> = self.executed.keys().copied().zip(next.copied()).collect();
        for (at, next) in pairs.into_iter().filter(|(at, _)| !returns.contains(at)) {
            let left = self.jumps.iter().filter(|((from, _), _)| *from == at);
            let rest = self.executed[&at] - left.map(|(_, count)| count).sum::<u64>();
            if rest > 0 {
                *self.jumps.entry((at, next)).or_default() += rest;
            }
        }
    }

    /// The instructions that are reached from the first one without `header`.
    fn reached_without(&self, header: u64) -> BTreeSet<u64> {
        let mut reached = BTreeSet::new();
        let mut work: Vec<u64> = self.executed.keys().take(1).copied().collect();
        while let Some(at) = work.pop() {
            if at != header && reached.insert(at) {
                work.extend(self.jumps.keys().filter(|(from, _)| *from == at).map(|(_, to)| to));
            }
        }
        reached
    }

    /// Entries and iterations of each natural loop by its header: an instruction that a way leads
    /// back to which is reached through it alone.
    fn loops(&self) -> BTreeMap<u64, [u64; 2]> {
        let mut found = BTreeMap::new();
        for (header, executed) in &self.executed {
            let before = self.reached_without(*header);
            let back =
                self.jumps.iter().filter(|((from, to), _)| to == header && !before.contains(from));
            let back: u64 = back.map(|(_, count)| count).sum();
            if back > 0 {
                found.insert(*header, [executed - back, *executed]);
            }
        }
        found
    }
}

/// The functions of `program` in a file that callgrind wrote without short forms.
fn flows(file: &str) -> BTreeMap<String, Flow> {
    let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).expect("hex");
    let mut flows: BTreeMap<String, Flow> = BTreeMap::new();
    let (mut object, mut function) = (String::new(), String::new());
    // What the next line of costs is about.
    let (mut jump, mut call) = (None, false);
    for line in file.lines() {
        if let Some(path) = line.strip_prefix("ob=") {
            path.clone_into(&mut object);
        } else if let Some(name) = line.strip_prefix("fn=") {
            // Recursive calls have a number behind the name.
            name.split('\'').next().unwrap_or(name).clone_into(&mut function);
        } else if let Some(rest) = line.strip_prefix("jump=").or(line.strip_prefix("jcnd=")) {
            let (counts, to) = rest.split_once(' ').expect("a target");
            let followed = counts.split('/').next().expect("a count");
            let to = hex(to.split(' ').next().expect("a target"));
            jump = Some((followed.parse::<u64>().expect("a count"), to));
        } else if line.starts_with("calls=") {
            call = true;
        } else if line.starts_with("0x") && object.ends_with("/program") {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (at, flow) = (hex(words[0]), flows.entry(function.clone()).or_default());
            match (jump.take(), std::mem::take(&mut call)) {
                (Some((count, to)), _) => *flow.jumps.entry((at, to)).or_default() += count,
                (None, true) => {}
                (None, false) => {
                    let cost: u64 = words[2].parse().expect("a cost");
                    *flow.executed.entry(at).or_default() += cost;
                }
            }
        } else if line.starts_with("0x") {
            (jump, call) = (None, false);
        }
    }
    flows
}

/// The addresses of instructions behind which the program does not go on.
fn returns(dir: &Path) -> BTreeSet<u64> {
    let output = run(dir, &["objdump", "-d", "--no-show-raw-insn", "program"]);
    let listing = text(&output.stdout);
    let instructions = listing.lines().filter_map(|line| line.trim().split_once(":\t"));
    let ends = ["ret", "jmp", "notrack jmp", "repz ret", "hlt"];
    let of_them = instructions.filter(|(_, it)| ends.iter().any(|end| it.starts_with(end)));
    of_them.map(|(at, _)| u64::from_str_radix(at, 16).expect("an address")).collect()
}

#[test]
fn loops_are_those_that_callgrind_s_jumps_make() {
    if !has("valgrind") || !has("objdump") {
        return;
    }
    for level in ["-O0", "-O1", "-O2"] {
        let dir = tools::fresh("loops", &format!("callgrind{level}"));
        if !compile(&dir, "loops.c", &[level]) {
            return;
        }
        let valgrind = ["valgrind", "--tool=callgrind", "-q", "--dump-instr=yes"];
        let more = ["--collect-jumps=yes", "--compress-pos=no", "--compress-strings=no"];
        let output = ["--callgrind-out-file=theirs", "./program", "3"];
        let ran = run(&dir, &[&valgrind[..], &more, &output].concat());
        assert!(ran.status.success(), "{}", text(&ran.stderr));
        let mut theirs = flows(&std::fs::read_to_string(dir.join("theirs")).expect("a file"));
        lwp(&dir, &["record", "-q", "--", "./program", "3"]);
        let report = json(&dir);
        let rows = report["loops"].as_array().expect("loops");
        let returns = returns(&dir);
        let names = ["nested", "collatz", "search", "recursive", "interprets", "main"];
        for function in names {
            let Some(flow) = theirs.get_mut(function) else { continue };
            flow.fall_through(&returns);
            let ours: BTreeMap<u64, [u64; 2]> = rows
                .iter()
                .filter(|row| row["sym"] == function && row["dso"] == "program")
                .map(|row| {
                    let number = |key: &str| row[key].as_u64().expect("a number");
                    (number("address"), [number("entries"), number("iterations")])
                })
                .collect();
            assert_eq!(ours, flow.loops(), "{function} at {level}");
        }
        let loops: usize =
            names.iter().filter_map(|it| theirs.get(*it)).map(|it| it.loops().len()).sum();
        assert!(loops >= 8, "{level}: {loops}");
    }
}
