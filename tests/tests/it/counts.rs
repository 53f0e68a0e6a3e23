//! Counts of `lwp stat` against single-stepping the native process.
//!
//! Promise: E2, K1

use lwp_tests::{
    End, Executable, Job, Outcome, TempDir, compile, compile_tool, lwp_binary, translations,
};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

/// What is compared, under the names that `lwp stat` and `stepcount` share.
const EVENTS: [&str; 8] = [
    "instructions",
    "branches",
    "branches-taken",
    "conditional-branches",
    "conditional-taken",
    "calls",
    "returns",
    "indirect-branches",
];

/// Event name to count.
type Counts = BTreeMap<String, u64>;

const LIMIT: Duration = Duration::from_secs(120);

/// Reads one JSON object a line with perf's keys.
fn parse(text: &str) -> Counts {
    let row = |line: &str| {
        let object: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|e| panic!("{line:?}: {e}"));
        let event = object["event"].as_str().unwrap_or_else(|| panic!("no event in {line}"));
        let value = object["counter-value"].as_str().unwrap_or_else(|| panic!("{line}"));
        let whole = value.split('.').next().expect("split yields a first part");
        let value = whole.parse().unwrap_or_else(|_| panic!("{event} is {value:?}"));
        (event.to_owned(), value)
    };
    text.lines().filter(|line| line.starts_with('{')).map(row).collect()
}

/// Runs a command with an environment that is the same on both sides: its size moves the stack, and
/// with it counts. Restartable sequences are refused on the virtual CPU, so they are off natively.
fn run(argv: Vec<OsString>, exit: i32, dir: &Path, env: &[(&str, &str)]) -> Outcome {
    let mut job = Job::new(argv, LIMIT);
    job.bare_env = true;
    let env = [("GLIBC_TUNABLES", "glibc.pthread.rseq=0")].iter().chain(env);
    job.env = env.map(|(name, value)| ((*name).to_owned(), value.into())).collect();
    let outcome = job.run(dir, dir);
    let stderr = String::from_utf8_lossy(&outcome.stderr);
    assert_eq!(outcome.end, End::Code(exit), "{:?}: {stderr}", job.argv);
    outcome
}

fn counts_in(file: &Path) -> Counts {
    let text = std::fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    parse(&text)
}

/// A command and the exit code it must have.
type Command = (Vec<OsString>, i32);

fn stepped((program, exit): &Command) -> (Counts, Outcome) {
    static TOOL: OnceLock<OsString> = OnceLock::new();
    let tool = TOOL.get_or_init(|| compile_tool("stepcount").into_os_string());
    let dir = TempDir::new();
    let file = dir.path().join("counts");
    let mut argv = vec![tool.clone(), file.clone().into_os_string()];
    argv.extend(program.iter().cloned());
    let outcome = run(argv, *exit, dir.path(), &[]);
    (counts_in(&file), outcome)
}

/// Counts on the virtual CPU, with translations of earlier runs or without.
fn counted(command: &Command, kept: bool) -> (Counts, Outcome) {
    counted_in(command, kept.then(translations).as_deref().map(Path::new), &[])
}

/// Counts on the virtual CPU, with the translations in a directory or without any, and these
/// variables in the environment.
fn counted_in(
    (program, exit): &Command,
    kept: Option<&Path>,
    env: &[(&str, &str)],
) -> (Counts, Outcome) {
    let dir = TempDir::new();
    let file = dir.path().join("counts");
    let mut argv: Vec<OsString> = vec![lwp_binary().into(), "stat".into(), "-j".into()];
    argv.extend(["-o".into(), file.clone().into_os_string()]);
    argv.extend(["-e".into(), EVENTS.join(",").into()]);
    match kept {
        Some(dir) => argv.extend(["--cache-dir".into(), dir.into()]),
        None => argv.push("--no-cache".into()),
    }
    argv.push("--".into());
    argv.extend(program.iter().cloned());
    let outcome = run(argv, *exit, dir.path(), env);
    (counts_in(&file), outcome)
}

fn command(executable: &Executable) -> Command {
    let mut argv = vec![executable.path.clone().into_os_string()];
    argv.extend(executable.directives.args.iter().map(OsString::from));
    (argv, executable.directives.exit)
}

/// Every variant of a program has the same counts stepped and on the virtual CPU: translated in
/// the run, kept for the next one, and found there.
fn check(name: &str) {
    let mut report = String::new();
    for executable in compile(name) {
        let command = command(&executable);
        let (want, native) = stepped(&command);
        for event in EVENTS {
            assert!(want.contains_key(event), "stepcount has no {event}");
        }
        for round in 0..4 {
            let (got, here) = counted(&command, round > 0);
            assert_eq!(native.stdout, here.stdout, "output of {command:?}");
            for event in EVENTS {
                if got.get(event) != Some(&want[event]) {
                    let variant = executable.variant.name();
                    let difference =
                        got.get(event).map(|&g| g.cast_signed() - want[event].cast_signed());
                    report += &format!(
                        "{name} ({variant}), run {round}: {event} is {:?}, stepped {}, difference {difference:?}\n",
                        got.get(event),
                        want[event],
                    );
                }
            }
        }
    }
    assert!(report.is_empty(), "\n{report}");
}

/// One test per program of the list.
macro_rules! exact {
    ($($test:ident: $name:literal,)*) => {
        $(#[test]
        fn $test() {
            check($name);
        })*
    };
}

exact! {
    bare_exit: "start/bare_exit",
    bare_hello: "start/bare_hello",
    bare_branches: "counts/branch_kinds",
    bare_strings: "counts/string_iterations",
    hello: "start/hello",
    constructors: "start/constructors",
    sorting: "counts/sorting",
    faults: "counts/faults",
    raised_signals: "counts/raised",
    patched: "counts/patched",
    rewriting: "counts/rewriting",
    neighbours: "counts/neighbours",
}

/// The ground truth's own truth: a program whose counts are known by reading it.
#[test]
fn stepcount_is_right_about_known_programs() {
    let known = |name: &str| stepped(&command(&compile(name)[0])).0;
    let hello = known("start/bare_hello");
    assert_eq!(hello["instructions"], 10);
    assert_eq!(hello["branches"], 0);
    let strings = known("counts/string_iterations");
    // 20 before the loop, 5 a round for 50 rounds, 8 after it.
    assert_eq!(strings["instructions"], 20 + 50 * 5 + 8);
    assert_eq!(strings["branches"], 50);
    assert_eq!(strings["conditional-taken"], 49);
}

/// Returns the number of signals that a program under a timer says it has received.
fn signals_of(outcome: &Outcome) -> u64 {
    let text = std::str::from_utf8(&outcome.stdout).expect("the program prints text");
    let digits = text.lines().find_map(|line| line.strip_prefix("# signals ")).expect("a note");
    u64::from_str_radix(digits, 16).expect("a hexadecimal number")
}

/// Checks that the counts of a program under a timer are those without it, and those of its handler
/// for each signal. Returns the number of signals, which the program prints.
fn handlers_alone_are_added(base: &Counts, got: &Counts, outcome: &Outcome, round: u32) -> u64 {
    let signals = signals_of(outcome);
    for (event, each) in [("instructions", 4), ("branches", 1), ("returns", 1), ("calls", 0)] {
        let want = base[event] + each * signals;
        assert_eq!(got[event], want, "{event} in round {round} with {signals} signals");
    }
    signals
}

/// Counts are corrected for the rest of a block that a signal cuts off: however many signals come,
/// each adds its handler and nothing else.
#[test]
fn asynchronous_signals_add_only_their_handlers() {
    let executable = &compile("counts/interrupted")[0];
    let quiet = (vec![executable.path.clone().into_os_string()], 0);
    let (base, _) = counted(&quiet, false);
    let mut most = 0;
    for round in 0..8 {
        let (got, outcome) = counted(&command(executable), round >= 3);
        most = most.max(handlers_alone_are_added(&base, &got, &outcome, round));
        let lines = outcome.stdout.trim_ascii().split(|byte| *byte == b'\n').count();
        assert_eq!(lines, 1, "the program prints the signals alone");
    }
    assert!(most >= 10, "only {most} signals came");
}

/// Asynchronous signals add only their handlers in superblocks too, which hold what an earlier run
/// has executed often: the flags that a guard overwrites are had again wherever they are read, also
/// by a handler's return.
///
/// Promise: O10
#[test]
fn superblocks_are_left_exactly() {
    let executable = &compile("counts/superblocks")[0];
    let quiet = (vec![executable.path.clone().into_os_string()], 0);
    // Single-stepping takes minutes for this one.
    let (base, native) = counted(&quiet, false);
    let sum = |text: &[u8]| {
        let text = String::from_utf8_lossy(text);
        text.lines().find_map(|line| line.strip_prefix("flags ").map(str::to_owned))
    };
    let cache = TempDir::new();
    let mut most = 0;
    for round in 0..8 {
        let (got, outcome) = counted_in(&command(executable), Some(cache.path()), &[]);
        most = most.max(handlers_alone_are_added(&base, &got, &outcome, round));
        assert_eq!(sum(&outcome.stdout), sum(&native.stdout), "round {round}");
    }
    assert!(most >= 100, "only {most} signals came");
}

/// The command that records `program` into `file`, with the cache in `kept` or without one.
fn recording(
    options: &[&str],
    file: &OsStr,
    kept: Option<&Path>,
    program: &[OsString],
) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec![lwp_binary().into(), "record".into()];
    words.extend(options.iter().map(OsString::from));
    words.extend(["-o".into(), file.into()]);
    match kept {
        Some(dir) => words.extend(["--cache-dir".into(), dir.into()]),
        None => words.push("--no-cache".into()),
    }
    words.push("--".into());
    words.extend(program.iter().cloned());
    words
}

/// Counts of an exact recording: of each instruction, under its event and address, and calls, under
/// the names of both functions.
fn recorded((program, exit): &Command, kept: Option<&Path>) -> (Counts, Outcome) {
    let dir = TempDir::new();
    let file: OsString = dir.path().join("data").into();
    let lwp = |words: &[&str]| -> Vec<OsString> {
        std::iter::once(lwp_binary().into()).chain(words.iter().map(OsString::from)).collect()
    };
    let outcome = run(recording(&["-q"], &file, kept, program), *exit, dir.path(), &[]);
    let said = |words: &[&str]| {
        let command = [lwp(words), vec!["-i".into(), file.clone()]].concat();
        String::from_utf8(run(command, 0, dir.path(), &[]).stdout).expect("text")
    };
    let mut counts = Counts::new();
    for event in ["instructions", "conditional-taken"] {
        let report = said(&["report", "--json", "-s", "addr", "-e", event]);
        let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
        for row in report["rows"].as_array().expect("rows") {
            let address = row["addr"].as_str().expect("an address");
            counts.insert(format!("{event} {address}"), row["self"].as_u64().expect("a count"));
        }
    }
    for line in said(&["export", "-f", "jsonl"]).lines() {
        let row: serde_json::Value = serde_json::from_str(line).expect("JSON");
        if row["kind"] == "call" {
            let name = |key: &str| row[key].as_str().unwrap_or("?").to_owned();
            let call = format!("call {} {}", name("caller"), name("callee"));
            *counts.entry(call).or_default() += row["count"].as_u64().expect("a count");
        }
    }
    (counts, outcome)
}

/// Each instruction of a recorded program is counted as often as it was executed, and each call,
/// whatever superblocks they are in and wherever these are left.
///
/// Promise: O10
#[test]
fn recordings_of_superblocks_are_exact() {
    let executable = &compile("counts/superblocks")[0];
    let quiet = (vec![executable.path.clone().into_os_string()], 0);
    let (base, _) = recorded(&quiet, None);
    let calls = base.keys().filter(|key| key.starts_with("call ")).count();
    assert!(base.len() > 100 && calls > 5, "{base:?}");
    let cache = TempDir::new();
    let mut most = 0;
    for round in 0..8 {
        let (mut got, outcome) = recorded(&command(executable), Some(cache.path()));
        // The handler, and the code that it returns to, two instructions each.
        let own = |key: &String| !base.contains_key(key);
        let handlers: Vec<(String, u64)> = got.extract_if(.., |key, _| own(key)).collect();
        for (key, want) in &base {
            assert_eq!(got.get(key), Some(want), "{key} in round {round}");
        }
        let signals = signals_of(&outcome);
        let executed: Vec<u64> = handlers.iter().map(|(_, count)| *count).collect();
        assert_eq!(executed, [signals; 6], "{handlers:?} in round {round}");
        most = most.max(signals);
    }
    assert!(most >= 100, "only {most} signals came");
}

/// The total of instructions that a sampled recording counts down.
fn counted_down((program, exit): &Command, kept: Option<&Path>) -> (u64, Outcome) {
    let dir = TempDir::new();
    let file: OsString = dir.path().join("data").into();
    let options = ["-e", "instructions:c=10007,branches:c=5003"];
    let outcome = run(recording(&options, &file, kept, program), *exit, dir.path(), &[]);
    let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
    let line = said.lines().find(|line| line.contains(" samples of instructions, ")).expect(&said);
    let total = line.rsplit(' ').next().expect("a number").replace(',', "");
    (total.parse().expect("a number"), outcome)
}

/// The countdown of a sampled recording takes each instruction once, whatever superblocks it is in
/// and wherever these are left: a run under a timer has those of its handler more, as many for each
/// signal.
///
/// Promise: O10
#[test]
fn superblocks_are_counted_down_exactly() {
    let executable = &compile("counts/superblocks")[0];
    let quiet = (vec![executable.path.clone().into_os_string()], 0);
    let (base, _) = counted_down(&quiet, None);
    let cache = TempDir::new();
    // Samples learn nothing: their superblocks are made by what other runs have learned.
    for _ in 0..2 {
        counted_in(&quiet, Some(cache.path()), &[]);
    }
    let (mut most, mut each) = (0, None);
    for round in 0..8 {
        let (total, _) = counted_down(&quiet, Some(cache.path()));
        assert_eq!(total, base, "round {round}, without signals");
        let (total, outcome) = counted_down(&command(executable), Some(cache.path()));
        let signals = signals_of(&outcome);
        let own = total - base;
        let handler = *each.get_or_insert(own / signals.max(1));
        assert_eq!(own, handler * signals, "{signals} signals in round {round}");
        assert!((2..20).contains(&handler), "{handler} instructions of a handler");
        most = most.max(signals);
    }
    assert!(most >= 100, "only {most} signals came");
}

/// Counts are exact in code that the program has made itself, while superblocks are laid over it:
/// counts of all events, and of each instruction and call in recordings.
///
/// Promise: O11
#[test]
fn superblocks_over_generated_code_are_exact() {
    let executable = &compile("counts/generated")[0];
    let env = [("LWP_IMPROVE", "20")];
    // It runs ten times as long with two arguments more.
    let program = executable.path.as_os_str();
    let quiet = (vec![program.into(), "1".into(), "2".into()], 0);
    let loud = (vec![program.into(), "1".into(), "2".into(), "3".into()], 0);
    let (base, native) = counted_in(&quiet, None, &env);
    let flags = |outcome: &Outcome| outcome.stdout[outcome.stdout.len() - 23..].to_vec();
    let mut most = 0;
    for round in 0..4 {
        let cache = TempDir::new();
        let (got, outcome) = counted_in(&loud, Some(cache.path()), &env);
        most = most.max(handlers_alone_are_added(&base, &got, &outcome, round));
        assert_eq!(flags(&outcome), flags(&native), "round {round}");
    }
    assert!(most >= 100, "only {most} signals came");
}

/// Counts are exact where superblocks replace translations while the program runs: nothing is
/// counted twice, and nothing is lost.
///
/// Promise: O10
#[test]
fn translations_of_running_programs_are_replaced() {
    let executable = &compile("counts/superblocks")[0];
    let env = [("LWP_IMPROVE", "20"), ("LWP_TRACE", "1")];
    // It runs ten times as long with two arguments more.
    let program = executable.path.as_os_str();
    let quiet = (vec![program.into(), "1".into(), "2".into()], 0);
    let loud = (vec![program.into(), "1".into(), "2".into(), "3".into()], 0);
    let (base, _) = counted_in(&quiet, None, &env);
    let mut replaced = 0;
    for round in 0..60 {
        let cache = TempDir::new();
        let (got, outcome) = counted_in(&loud, Some(cache.path()), &env);
        handlers_alone_are_added(&base, &got, &outcome, round);
        let trace = String::from_utf8_lossy(&outcome.stderr);
        replaced += usize::from(trace.contains("translations flushed"));
        if replaced == 3 {
            return;
        }
    }
    panic!("translations were replaced in {replaced} of 60 runs");
}

/// Twenty runs of twenty, in the run's own translation and from the cache: small programs, threads
/// that run at the same time, and an interpreter.
///
/// Promise: E3
#[test]
fn twenty_runs_of_twenty_agree() {
    let mut commands: Vec<Command> = Vec::new();
    for name in ["start/hello", "counts/branch_kinds", "counts/sorting", "counts/threads"] {
        commands.extend(compile(name).iter().map(command));
    }
    let words = |words: &[&str]| -> Command { (words.iter().map(OsString::from).collect(), 0) };
    for interpreter in [
        words(&["/bin/sh", "-c", "i=0; while [ $i -lt 300 ]; do i=$((i + 1)); done; echo $i"]),
        words(&["/usr/bin/awk", "BEGIN { for (i = 0; i < 5000; i++) n[i % 97] += i; print n[5] }"]),
    ] {
        if Path::new(&interpreter.0[0]).exists() {
            commands.push(interpreter);
        }
    }
    for command in commands {
        let (first, output) = counted(&command, false);
        for round in 1..20 {
            let (again, same) = counted(&command, round >= 10);
            assert_eq!(again, first, "{command:?}, run {round}");
            assert_eq!(same.stdout, output.stdout, "{command:?}, run {round}");
        }
    }
}

/// Two runs of the same program give the same counts.
#[test]
fn counts_repeat() {
    for executable in compile("counts/sorting") {
        let command = command(&executable);
        let first = counted(&command, false).0;
        for round in 0..6 {
            assert_eq!(counted(&command, round >= 2).0, first);
        }
    }
}
