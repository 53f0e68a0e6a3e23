//! `lwp record --time`: shares are those that a program measures itself, and sums the kernel's.
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use crate::shared::recorded;
use crate::shared::running;
use crate::shared::tools;

use std::collections::BTreeMap;
use std::io::{BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command};
use std::time::{Duration, Instant};

use recorded::{LWP, compile, lwp, run};
use running::{Running, start};
use serde_json::Value;
use tools::{has, text};

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
    said_times(&said)
}

/// What the program says that it has used, by function, in ns.
pub(crate) fn said_times(said: &str) -> BTreeMap<String, f64> {
    let line = |line: &str| {
        let (name, ns) = line.split_once(' ').expect("name and time");
        (name.to_owned(), ns.parse().expect("ns"))
    };
    said.lines().map(line).collect()
}

/// A report by these keys.
pub(crate) fn report(dir: &Path, keys: &str) -> Value {
    let (json, _) = lwp(dir, &["report", "--json", "-s", keys]);
    serde_json::from_str(&json).expect("JSON")
}

/// Nanoseconds by the value of the key.
pub(crate) fn rows(report: &Value, key: &str) -> BTreeMap<String, f64> {
    let mut rows = BTreeMap::new();
    for row in report["rows"].as_array().expect("rows") {
        let name = row[key].as_str().expect("a name").to_owned();
        *rows.entry(name).or_default() += row["self"].as_f64().expect("ns");
    }
    rows
}

/// Asserts that the functions' shares of what both know are equal: within half a point, or three
/// standard errors of so many samples.
pub(crate) fn assert_shares(
    truth: &BTreeMap<String, f64>,
    found: &BTreeMap<String, f64>,
    samples: f64,
) {
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

/// Promise: R129
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

/// Promise: R130
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
        for sum in [clock, rows] {
            assert!((sum / all - 1.0).abs() < 0.01, "{mode}: {sum} of {all}");
        }
    }
}

/// Processes that nobody waits for are in no account of their makers'.
///
/// Promise: R130
#[test]
fn processes_that_nobody_waits_for_count_too() {
    let dir = fresh("orphans");
    if !prepared(&dir) {
        return;
    }
    // The inner shell ends before its child, which is known to have ended by its end of the pipe.
    let script = "trap '' CHLD; sh -c './program 1 c & ' | cat >said; ./program 0.1 c >/dev/null";
    lwp(&dir, &["record", "--time", "-q", "--", "sh", "-c", script]);
    let said = std::fs::read_to_string(dir.join("said")).expect("what the program said");
    let all = said.lines().find_map(|line| line.strip_prefix("all ")).expect("a sum");
    let all: f64 = all.parse().expect("ns");
    let sum = report(&dir, "sym")["total"].as_f64().expect("ns");
    assert!(sum > 0.8 * all, "{sum} of {all}");
}

/// Promise: R131
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

/// Promise: R131
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
///
/// Promise: R130
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

/// Promise: R132
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

/// Promise: R132
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
    assert!(flame.contains(" s of CPU time") && !flame.contains(" cpu-time"), "{flame}");
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

/// Begins to sample a process; returns once lwp does.
fn attach(dir: &Path, pid: u32, options: &[&str]) -> Running {
    attaching(dir, &[&["-p", &pid.to_string()], options].concat())
}

/// Starts lwp on what runs already, and returns once it samples.
fn attaching(dir: &Path, options: &[&str]) -> Running {
    let _ = std::fs::remove_file(dir.join("lwp.data"));
    let command = [&[LWP, "record", "--time", "-q"], options].concat();
    let lwp = Running(
        Command::new(command[0]).args(&command[1..]).current_dir(dir).spawn().expect("lwp"),
    );
    let start = Instant::now();
    while !dir.join("lwp.data").exists() {
        assert!(start.elapsed() < Duration::from_secs(60), "lwp does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
    lwp
}

/// A shell that executes this once it gets a line.
fn shell(dir: &Path, script: &str) -> (Running, BufReader<ChildStdout>) {
    let script = format!("echo ready; read line; {script}");
    let (shell, output, line) = start(dir, &["sh", "-c", &script]);
    assert_eq!(line, "ready\n");
    (shell, output)
}

/// Gives a shell its line, and waits until it has ended; what it printed.
fn go_on(shell: &mut Running, mut output: BufReader<ChildStdout>) -> String {
    drop(shell.0.stdin.take().expect("a pipe").write_all(b"go\n"));
    let mut said = String::new();
    output.read_to_string(&mut said).expect("output");
    assert!(shell.0.wait().expect("an end").success(), "{said}");
    said
}

/// Promise: R134
#[test]
fn a_process_that_runs_is_sampled_with_all_that_it_makes() {
    let dir = fresh("attached");
    if !prepared(&dir) {
        return;
    }
    let (mut shell, output) = shell(&dir, "./program 1 t; ./program 1 p");
    let mut lwp = attach(&dir, shell.0.id(), &["-F", "1999"]);
    let said = go_on(&mut shell, output);
    assert!(lwp.0.wait().expect("an end").success());
    let of = |name: &str| -> f64 {
        let lines = said.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        lines.map(|ns| ns.parse::<f64>().expect("ns")).sum()
    };
    let found = report(&dir, "sym");
    let truth = ["heavy", "light", "beside", "in_child"].map(|name| (name.to_owned(), of(name)));
    assert_shares(&BTreeMap::from(truth), &rows(&found, "sym"), 8000.0);
    let sum = found["total"].as_f64().expect("ns");
    assert!((sum / of("all") - 1.0).abs() < 0.03, "{sum} of {}", of("all"));
    let threads = rows(&report(&dir, "comm"), "comm");
    assert!(threads.contains_key("other") && threads.contains_key("program"), "{threads:?}");
    let (folded, _) = self::lwp(&dir, &["export", "-f", "folded"]);
    assert!(folded.contains("main;") && folded.contains("other_thread;"), "{folded}");
}

/// The program has two threads already, and its files are mapped.
///
/// Promise: R134
#[test]
fn threads_that_run_already_are_sampled_with_their_names_and_stacks() {
    let dir = fresh("threads");
    if !prepared(&dir) {
        return;
    }
    let program = Command::new("./program").args(["2", "t"]).current_dir(&dir).spawn();
    let mut program = Running(program.expect("a program"));
    let tasks = format!("/proc/{}/task", program.0.id());
    while std::fs::read_dir(&tasks).expect("tasks").count() < 2 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut lwp = attach(&dir, program.0.id(), &["-F", "1999"]);
    assert!(program.0.wait().expect("an end").success());
    assert!(lwp.0.wait().expect("an end").success());
    let threads = rows(&report(&dir, "comm"), "comm");
    assert!(threads["other"] > 0.0 && threads["program"] > 0.0, "{threads:?}");
    let (folded, _) = self::lwp(&dir, &["export", "-f", "folded"]);
    assert!(folded.contains("main;") && folded.contains("other_thread;"), "{folded}");
    assert!(!folded.contains("[callers not found]"), "{folded}");
}

/// Promise: R134
#[test]
fn an_attached_process_does_not_notice_whatever_becomes_of_lwp() {
    let dir = fresh("unnoticed");
    if !prepared(&dir) {
        return;
    }
    // SIGCONT would interrupt the pause, and a stop would show as such.
    let (mut shell, output) = shell(&dir, "./program 0.5 c; read line || echo end");
    let pid = shell.0.id();
    for signal in ["-KILL", "-INT", "-TERM"] {
        let mut lwp = attach(&dir, pid, &[]);
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
        assert!(status.contains("TracerPid:\t0") && status.contains("State:\tS"), "{status}");
        run(&dir, &["kill", signal, &lwp.0.id().to_string()]);
        let ended = lwp.0.wait().expect("an end");
        assert_eq!(ended.success(), signal != "-KILL", "{signal}: {ended}");
    }
    let mut lwp = attach(&dir, pid, &["--duration", "0.1"]);
    assert!(lwp.0.wait().expect("an end").success());
    let said = go_on(&mut shell, output);
    assert!(said.contains("heavy ") && said.ends_with("end\n"), "{said}");
}

/// Promise: R134
#[test]
fn the_machine_is_sampled_as_long_as_a_program_runs() {
    let dir = fresh("machine");
    if !prepared(&dir) {
        return;
    }
    let command = ["record", "--time", "-q", "-F", "499", "-a", "--", "./program", "1", "p"];
    let output = run(&dir, &[&[LWP], &command[..]].concat());
    let said = text(&output.stderr);
    if said.contains("kernel.perf_event_paranoid is") {
        assert_eq!(output.status.code(), Some(125), "{said}");
        assert!(said.contains("help: ") && !dir.join("lwp.data").exists(), "{said}");
        return;
    }
    assert!(output.status.success(), "{said}");
    let found = rows(&report(&dir, "sym"), "sym");
    // Both processes take a second. lwp may lose samples while it reads what runs already.
    let missing = ["[lost samples]", "[between samples]"].map(|name| found.get(name).copied());
    let missing: f64 = missing.into_iter().flatten().sum();
    assert!(found["heavy"] > 0.0 && found["heavy"] + missing > 0.6e9, "{found:?}");
    assert!(found["in_child"] > 0.0 && found["in_child"] + missing > 0.9e9, "{found:?}");
    let processes = rows(&report(&dir, "comm"), "comm");
    assert!(processes["program"] > 0.0 && processes["exe"] > 0.0, "{processes:?}");
    let (header, _) = lwp(&dir, &["script", "--header"]);
    assert!(header.contains("command: all processors"), "{header}");
}

/// Promise: R134
#[test]
fn the_machine_is_sampled_until_somebody_ends_it() {
    let dir = fresh("until");
    if !prepared(&dir) {
        return;
    }
    let program = Command::new("./program").args(["60", "c"]).current_dir(&dir).spawn();
    let _program = Running(program.expect("a program"));
    let output = run(&dir, &[LWP, "record", "--time", "-a", "-q", "--duration", "1"]);
    let said = text(&output.stderr);
    if said.contains("kernel.perf_event_paranoid is") {
        eprintln!("skipped: {said}");
        return;
    }
    assert!(output.status.success(), "{said}");
    let all = |dir: &Path| report(dir, "sym")["total"].as_f64().expect("ns");
    assert!(all(&dir) > 0.5e9, "{}", all(&dir));
    let mut lwp = attaching(&dir, &["-a"]);
    run(&dir, &["kill", "-INT", &lwp.0.id().to_string()]);
    assert!(lwp.0.wait().expect("an end").success());
    assert!(all(&dir) > 0.0);
}

/// The main thread's time is in no recording of the other one.
///
/// Promise: R134
#[test]
fn one_thread_is_sampled_alone() {
    let dir = fresh("thread");
    if !prepared(&dir) {
        return;
    }
    let program = Command::new("./program").args(["4", "t"]).current_dir(&dir).spawn();
    let mut program = Running(program.expect("a program"));
    let pid = program.0.id();
    let tasks = format!("/proc/{pid}/task");
    let other = loop {
        let entries = std::fs::read_dir(&tasks).expect("tasks");
        let names = entries.filter_map(|it| it.ok()?.file_name().into_string().ok());
        let found = names.into_iter().find(|tid| *tid != pid.to_string());
        match found {
            Some(tid) => break tid,
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    let mut lwp = attaching(&dir, &["-F", "1999", "-t", &other]);
    assert!(program.0.wait().expect("an end").success());
    // It ends with the thread, and not with lwp's user.
    assert!(lwp.0.wait().expect("an end").success());
    let threads = rows(&report(&dir, "tid"), "tid");
    let known = threads.get(&other).copied().unwrap_or(0.0);
    assert!(known > 0.0, "{threads:?}");
    assert!(!threads.contains_key(&pid.to_string()), "{threads:?}");
    let found = rows(&report(&dir, "sym"), "sym");
    assert!(found.contains_key("beside") && !found.contains_key("heavy"), "{found:?}");
    let none = run(&dir, &[LWP, "record", "--time", "-t", "999999999"]);
    let said = text(&none.stderr);
    assert_eq!(none.status.code(), Some(127), "{said}");
}

/// Promise: R134
#[test]
fn a_process_that_cannot_be_attached_to_is_refused_with_a_reason() {
    let dir = fresh("unattached");
    if !allowed(&dir) {
        return;
    }
    std::fs::write(dir.join("lwp.data"), "kept").expect("written");
    let none = run(&dir, &[LWP, "record", "--time", "-p", "999999999"]);
    let said = text(&none.stderr);
    assert_eq!(none.status.code(), Some(127), "{said}");
    assert!(said.contains("there is no process 999999999"), "{said}");
    let other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"];
    let reaches =
        has("setpriv") && run(&dir, &[&other[..], &[LWP, "--version"]].concat()).status.success();
    if reaches {
        let own = std::process::id().to_string();
        let command = [LWP, "record", "--time", "-p", &own, "-o", "/dev/null"];
        let refused = run(&dir, &[&other[..], &command].concat());
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(125), "{said}");
        assert!(said.contains("time cannot be sampled here: no permission"), "{said}");
    }
    assert_eq!(std::fs::read(dir.join("lwp.data")).expect("kept"), b"kept");
}

/// Records a run with this mode into a file.
fn keep(dir: &Path, file: &str, mode: &str) {
    times(dir, "1999", &["1", mode]);
    std::fs::rename(dir.join("lwp.data"), dir.join(file)).expect("renamed");
}

/// In mode k, `reading` takes part of the second that `heavy` and `light` have alone in mode c.
///
/// Promise: R135
#[test]
fn changes_of_time_have_intervals() {
    let dir = fresh("changes");
    if !prepared(&dir) {
        return;
    }
    keep(&dir, "one.data", "c");
    keep(&dir, "two.data", "c");
    keep(&dir, "other.data", "k");
    let diff = |after: &str| -> Value {
        let (json, _) = lwp(&dir, &["diff", "one.data", after, "--json"]);
        serde_json::from_str(&json).expect("JSON")
    };
    let row = |diff: &Value, function: &str| -> Option<Value> {
        let rows = diff["rows"].as_array().expect("rows");
        let of = |row: &&Value| row["what"].as_str().is_some_and(|it| it.starts_with(function));
        rows.iter().find(of).cloned()
    };
    let other = diff("other.data");
    let reading = row(&other, "reading").or_else(|| row(&other, "read")).expect("a change");
    assert!(reading["before"].is_null(), "{reading}");
    let heavy = row(&other, "heavy ").expect("a change");
    assert_eq!(heavy["distinguishable"], true, "{heavy}");
    // The shares are equal, but a run may take more time than another one as a whole.
    let same = diff("two.data");
    let [before, after] = ["before", "after"].map(|side| same[side].as_f64().expect("ns"));
    if let Some(heavy) = row(&same, "heavy ") {
        let delta = heavy["after"].as_f64().expect("ns") - heavy["before"].as_f64().expect("ns");
        let margin = heavy["margin"].as_f64().expect("a margin");
        assert!(delta.abs() <= 2.0 * margin + (after - before).abs(), "{heavy}");
        assert_eq!(heavy["distinguishable"], delta.abs() > margin, "{heavy}");
    }
    let (text, _) = lwp(&dir, &["diff", "one.data", "other.data"]);
    assert!(text.contains(" s -> ") && text.contains("# ± holds the change"), "{text}");
    let (csv, _) = lwp(&dir, &["diff", "one.data", "other.data", "--csv"]);
    assert!(csv.starts_with("before,after,change,margin,what\n"), "{csv}");
}

/// Promise: R135
#[test]
fn a_gate_on_time_fails_only_beyond_the_interval() {
    let dir = fresh("gate");
    if !prepared(&dir) {
        return;
    }
    keep(&dir, "base.data", "c");
    let gate = |words: &[&str]| {
        let options = ["--allow-different", "arguments", "-b", "base.data"];
        let output = run(&dir, &[&[LWP, "gate"], &options[..], words].concat());
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    // The program works for as long as it is told, give or take a turn.
    let program = ["--", "./program", "1", "c"];
    let (status, said) = gate(&[&["-l", "cpu-time=+30%"], &program[..]].concat());
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("cpu-time: 1.") && said.contains("from run to run"), "{said}");
    let program = ["--", "./program", "2", "c"];
    let (status, said) = gate(&[&["-l", "cpu-time=+30%"], &program[..]].concat());
    assert_eq!(status, Some(3), "{said}");
    assert!(said.contains("EXCEEDED cpu-time: 2."), "{said}");
    // Of a function: twice as much is beyond every interval.
    let limit = |limit: &str| {
        let text = format!("[gate.functions.heavy]\ncpu-time = \"{limit}\"\n");
        std::fs::write(dir.join("lwp.toml"), text).expect("written");
        gate(&[])
    };
    assert_eq!(limit("+300%").0, Some(0));
    let (status, said) = limit("+30%");
    assert_eq!(status, Some(3), "{said}");
    assert!(said.contains("EXCEEDED cpu-time in heavy: 1.") && said.contains(" ± 0."), "{said}");
    let (status, said) = gate(&["-l", "instructions=+1%", "-l", "cpu-time=+1%", "--", "true"]);
    assert_eq!(status, Some(125), "{said}");
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
