//! From where to where indirect calls went, in exact recordings: against callgrind, and where it is
//! known beforehand. A test whose foreign tool is missing is skipped and says so.
//!
//! Promise: R22

use crate::shared::callgrind;
use crate::shared::tools;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use callgrind::Names;
use tools::{has, limited, text};

const LWP: &str = env!("CARGO_BIN_EXE_lwp");

/// Calls by caller and callee.
type Edges = BTreeMap<(String, String), u64>;

/// An empty directory with the compiled program in it; `None` where there is no compiler.
fn compiled(test: &str, source: &str, flags: &[&str]) -> Option<PathBuf> {
    let compiler = if source.ends_with(".cpp") { "g++" } else { "gcc" };
    if !has(compiler) {
        return None;
    }
    let dir = tools::fresh("calls", test);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/profiled").join(source);
    let source = source.to_str().expect("path is text");
    // A jump in place of a call would be none.
    let usual = [compiler, "-g", "-O1", "-fno-optimize-sibling-calls", "-pthread"];
    run(&dir, &[&usual[..], &["-o", "program", source], flags].concat());
    Some(dir)
}

/// Runs a command, which must succeed, and returns what it printed.
fn run(dir: &Path, command: &[&str]) -> String {
    let output = limited(dir, command).output().expect("timeout starts");
    assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Records the program and exports the recording as `format`; returns what the program printed.
fn recorded(dir: &Path, arguments: &[&str], format: &str) -> String {
    let printed = run(dir, &[&[LWP, "record", "-q", "./program"], arguments].concat());
    run(dir, &[LWP, "export", "-f", format, "-o", "export"]);
    printed
}

/// Calls of the program's own functions in a file of callgrind's format: from others of them, and
/// from `elsewhere`.
fn edges_of(file: &Path) -> Edges {
    let mut names = Names::default();
    let mut name = |kind: char, text: &str| names.of(kind, text);
    let mut edges = Edges::new();
    let [mut caller, mut callee] = [String::new(), String::new()];
    let (mut own, mut callee_own) = (false, None);
    for line in std::fs::read_to_string(file).expect("callgrind's format").lines() {
        match line.split_once('=') {
            Some(("ob", value)) => own = name('o', value).ends_with("/program"),
            Some(("cob", value)) => callee_own = Some(name('o', value).ends_with("/program")),
            Some(("fn", value)) => caller = name('n', value),
            Some(("cfn", value)) => callee = name('n', value),
            Some(("calls", value)) => {
                let count: u64 = value.split(' ').next().unwrap().parse().expect("calls");
                if callee_own.take().unwrap_or(own) {
                    let from = if own { stem(&caller) } else { "elsewhere".to_owned() };
                    *edges.entry((from, stem(&callee))).or_default() += count;
                }
            }
            _ => {}
        }
    }
    edges
}

/// A function's name without callgrind's number of the recursion.
fn stem(name: &str) -> String {
    name.split('\'').next().unwrap_or(name).to_owned()
}

#[test]
fn calls_by_caller_and_callee_are_callgrind_s() {
    let flags = ["-no-pie", "-rdynamic"];
    let Some(dir) = compiled("callgrind", "pointers.cpp", &flags) else { return };
    if !has("valgrind") {
        return;
    }
    run(&dir, &["valgrind", "--tool=callgrind", "--callgrind-out-file=theirs", "./program"]);
    recorded(&dir, &[], "callgrind");
    let only = |edges: Edges| -> Edges {
        // What the compiler and the linker add is called in ways of its own.
        let callees = [
            "increment",
            "twice",
            "square",
            "Box::area() const",
            "Disc::area() const",
            "compare",
            "work",
            "by_turns",
            "main",
        ];
        edges.into_iter().filter(|((_, callee), _)| callees.contains(&callee.as_str())).collect()
    };
    let (ours, theirs) = (only(edges_of(&dir.join("export"))), only(edges_of(&dir.join("theirs"))));
    assert_eq!(ours, theirs);
    let count = |from: &str, to: &str| ours.get(&(from.to_owned(), to.to_owned())).copied();
    assert_eq!(count("by_turns", "increment"), Some(334 + 34 + 67 + 100));
    assert_eq!(count("always_the_same", "twice"), Some(77));
    assert_eq!(count("from_two_places", "square"), Some(60));
    assert_eq!(count("areas", "Disc::area() const"), Some(60));
    assert_eq!(count("by_name", "square"), Some(40));
    assert_eq!(count("handler", "square"), Some(25));
    assert_eq!(count("elsewhere", "work"), Some(3));
    assert!(count("elsewhere", "compare").is_some_and(|calls| calls > 2000));
}

/// Calls of the export in JSON lines, by caller and callee; `?` where the caller is not known.
fn calls(dir: &Path) -> Edges {
    let mut edges = Edges::new();
    for line in std::fs::read_to_string(dir.join("export")).expect("JSON lines").lines() {
        let row: Value = serde_json::from_str(line).expect("JSON");
        if row["kind"] == "call" {
            let name = |key: &str| row[key].as_str().unwrap_or("?").to_owned();
            let count = row["count"].as_u64().expect("count");
            *edges.entry((name("caller"), name("callee"))).or_default() += count;
        }
    }
    edges
}

/// What `drive` calls in so many rounds.
fn driven(rounds: u64) -> Vec<(String, u64)> {
    [("f0", 6), ("f1", 3), ("f2", 2), ("f3", 1)]
        .map(|(name, times)| (name.to_owned(), times * rounds))
        .to_vec()
}

/// The callees of `caller`, with how often.
fn from(edges: &Edges, caller: &str) -> Vec<(String, u64)> {
    let own = edges.iter().filter(|((from, _), _)| from == caller);
    own.map(|((_, to), count)| (to.clone(), *count)).collect()
}

/// An event's own count of a function, summed over all rows of it.
fn own(dir: &Path, function: &str, event: &str) -> u64 {
    let json = run(dir, &[LWP, "report", "--json", "-s", "sym", "-e", event]);
    let document: Value = serde_json::from_str(&json).expect("JSON");
    let rows = document["rows"].as_array().expect("rows");
    rows.iter().filter(|row| row["sym"] == function).filter_map(|row| row["self"].as_u64()).sum()
}

/// The callers of functions with `part` in their names, with how often, where that is at least so
/// many times: the linker and the start of the program call some too.
fn callers(edges: &Edges, part: &str, least: u64) -> Vec<(String, u64)> {
    let to = edges.iter().filter(|((_, to), count)| to.contains(part) && **count >= least);
    to.map(|((from, _), count)| (from.clone(), *count)).collect()
}

#[test]
fn stubs_lead_where_the_linker_has_led_them() {
    // At the program's start, at the first call, and by the program itself.
    for (flag, more) in [("-Wl,-z,now", 0), ("-Wl,-z,lazy", 0), ("-static", 200)] {
        let flags = [flag, "-fno-builtin", "-O2", "-foptimize-sibling-calls"];
        let Some(dir) = compiled("imports", "imports.c", &flags) else { return };
        recorded(&dir, &[], "jsonl");
        let edges = calls(&dir);
        for (name, times) in [("strlen", 1000), ("strcmp", 500)] {
            // A program without a linker prints by way of the same stub, and reads the variables of
            // its environment that a linker would.
            let callers = callers(&edges, &format!("__{name}_"), times);
            let [(caller, count)] = &callers[..] else { panic!("{flag}: {callers:?}") };
            assert_eq!(*caller, format!("{name}@plt"), "{flag}");
            assert!((times..=times + more).contains(count), "{flag}: {callers:?}");
        }
    }
}

#[test]
fn tail_calls_are_counted_and_those_by_pointer_have_no_caller() {
    let flags = ["-O2", "-foptimize-sibling-calls"];
    let Some(dir) = compiled("tails", "imports.c", &flags) else { return };
    recorded(&dir, &[], "jsonl");
    let edges = calls(&dir);
    assert_eq!(from(&edges, "straight"), [("square".to_owned(), 300)]);
    // Neither the first nor the last word that the hook held is taken for all.
    let unknown: [(String, u64); 2] = [("?".into(), 100), ("straight".into(), 300)];
    assert_eq!(callers(&edges, "square", 1), unknown);
    assert_eq!(callers(&edges, "twice", 1), [("?".to_owned(), 10)]);
    assert!(from(&edges, "by_word").is_empty() && from(&edges, "by_register").is_empty());
}

#[test]
fn threads_and_processes_are_added_up() {
    let Some(dir) = compiled("forks", "calls.c", &[]) else { return };
    recorded(&dir, &["forks"], "jsonl");
    let edges = calls(&dir);
    assert_eq!(from(&edges, "drive"), driven(10_000));
    assert!(!edges.contains_key(&("?".into(), "f0".into())), "{edges:?}");
}

#[test]
fn signals_at_any_instruction_lose_no_call() {
    let Some(dir) = compiled("signals", "calls.c", &[]) else { return };
    let handled: u64 = recorded(&dir, &["signals"], "jsonl").trim().parse().expect("number");
    assert!(handled >= 2000);
    let edges = calls(&dir);
    assert_eq!(from(&edges, "handler"), [("f3".to_owned(), handled)]);
    let calls = edges.iter().filter(|((_, callee), _)| callee == "drive").map(|(_, count)| count);
    let rounds = calls.sum::<u64>() * 50;
    assert_eq!(from(&edges, "drive"), driven(rounds));
}

#[test]
fn calls_that_fault_are_not_counted() {
    let Some(dir) = compiled("faults", "calls.c", &[]) else { return };
    recorded(&dir, &["faults"], "jsonl");
    let edges = calls(&dir);
    assert_eq!(from(&edges, "call_at"), [("f1".to_owned(), 100)]);
    assert_eq!(from(&edges, "call_through"), [("f1".to_owned(), 100)]);
    assert!(!edges.contains_key(&("?".into(), "f1".into())), "{edges:?}");
}

#[test]
fn more_targets_than_there_is_room_for_are_counted() {
    let Some(dir) = compiled("many", "calls.c", &[]) else { return };
    recorded(&dir, &["many"], "jsonl");
    let sum: u64 = from(&calls(&dir), "call_all").iter().map(|(_, count)| count).sum();
    assert_eq!(sum, 90_000);
}

#[test]
fn a_killed_process_has_as_many_calls_as_callees() {
    let Some(dir) = compiled("killed", "calls.c", &[]) else { return };
    recorded(&dir, &["killed"], "jsonl");
    let driven: u64 = from(&calls(&dir), "drive").iter().map(|(_, count)| count).sum();
    assert!(driven > 120, "{driven}");
    assert_eq!(driven, own(&dir, "drive", "calls"));
}

/// A program that profiles itself: where an event is due, an instruction is executed alone.
#[test]
fn branches_that_are_executed_alone_are_counted() {
    const EVENTS: &str = "instructions,branches,branches-taken,conditional-branches,\
                          conditional-taken,calls,returns,indirect-branches";
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include");
    let include = format!("-I{}", include.to_str().expect("path is text"));
    let source = "../../../../tests/lwp/retired.c";
    let Some(dir) = compiled("alone", source, &[&include]) else { return };
    let fixed = ["--deterministic", "--seed", "1", "--cpu", "bulldozer", "./program"];
    let stat = [LWP, "stat", "-j", "-o", "stat.json", "-e", EVENTS];
    let said = run(&dir, &[&stat[..], &fixed].concat());
    assert!(said.contains("records"), "{said}");
    run(&dir, &[&[LWP, "record", "-q"], &fixed[..]].concat());
    let mut compared = 0;
    for line in std::fs::read_to_string(dir.join("stat.json")).expect("counts").lines() {
        let row: Value = serde_json::from_str(line).expect("JSON");
        let event = row["event"].as_str().expect("name");
        let count = row["counter-value"].as_str().and_then(|count| count.split('.').next());
        let json = run(&dir, &[LWP, "report", "--json", "-s", "dso", "-e", event]);
        let recorded: Value = serde_json::from_str(&json).expect("JSON");
        let total = recorded["total"].as_u64().expect("total");
        assert_eq!(Some(total.to_string().as_str()), count, "{event}");
        compared += 1;
    }
    assert_eq!(compared, 8);
}
