//! `lwp record --time` of interpreters: the functions that they execute, at the moments of samples.
//!
//! Promise: R147
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use crate::languages::pythons;
use crate::shared::recorded;
use crate::shared::stacks;
use crate::shared::tools;
use crate::timed::{assert_shares, said_times};

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use recorded::{LWP, compile, lwp, run};
use stacks::{Stack, share, stacks};
use tools::{has, text};

/// A program of `tests/profiled`.
fn program(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/profiled").join(name);
    path.to_str().expect("path is text").to_owned()
}

/// A directory of its own for a test; `None`, with a reason, where events may not stop threads.
fn prepared(name: &str) -> Option<PathBuf> {
    let dir = tools::fresh("timed_languages", name);
    let probe = [LWP, "record", "--time", "--lang", "python", "--", "/bin/true"];
    let said = text(&run(&dir, &probe).stderr);
    let refused = ["time cannot be sampled here", "are not read"];
    let why = said.lines().find(|line| refused.iter().any(|it| line.contains(it)));
    if let Some(why) = why {
        eprintln!("skipped: {why}");
    }
    why.is_none().then_some(dir)
}

/// Records a command; what it printed, and what lwp said.
fn record(dir: &Path, options: &[&str], command: &[&str]) -> (String, String) {
    let output = run(dir, &[&[LWP, "record", "--time"], options, &["--"], command].concat());
    let said = text(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    (text(&output.stdout), said)
}

/// Nanoseconds of each of these functions with what they called.
fn inclusive(dir: &Path, names: &[&str]) -> BTreeMap<String, f64> {
    let (folded, _) = lwp(dir, &["export", "-f", "folded"]);
    let mut sums = BTreeMap::new();
    for line in folded.lines() {
        let Some((stack, ns)) = line.rsplit_once(' ') else { continue };
        for name in names.iter().filter(|name| stack.split(';').any(|frame| frame == **name)) {
            *sums.entry((*name).to_owned()).or_default() += ns.parse::<f64>().expect("ns");
        }
    }
    sums
}

fn samples(dir: &Path) -> f64 {
    let (header, _) = lwp(dir, &["script", "--header"]);
    let samples = header.lines().find_map(|line| line.strip_prefix("# samples: "));
    samples.unwrap_or_else(|| panic!("{header}")).parse().expect("a number")
}

/// Stacks that took CPU time: how long threads waited for a processor is up to the machine.
const CPU: [&str; 2] = ["-e", "cpu-time"];

const FUNCTIONS: [&str; 4] = ["heavy", "light", "beside", "in_child"];

#[test]
fn shares_of_python_s_functions_are_those_that_the_program_measures() {
    let Some(dir) = prepared("shares") else { return };
    for (minor, python) in pythons().into_iter().filter(|(minor, _)| *minor <= 13) {
        let command = [&python, &program("timed.py"), "2", "c"];
        let (printed, said) = record(&dir, &["-F", "997"], &command);
        let (truth, found) = (said_times(&printed), inclusive(&dir, &FUNCTIONS));
        assert!(samples(&dir) > 1500.0, "3.{minor}: {said}");
        assert_shares(&truth, &found, samples(&dir));
        assert!(!said.contains("time is that of the interpreter"), "3.{minor}: {said}");
        let all = stacks(&dir, "lwp.data", &CPU);
        let complete = share(&all, Stack::is_complete);
        assert!(complete > 0.99, "3.{minor}: {complete}");
        // The evaluator stands for what it executes: it shows only where it has just been called.
        let in_heavy = |stack: &&Stack| stack.chain("python").ends_with(&["heavy", "spin"]);
        let heavy: Vec<Stack> = all.iter().filter(in_heavy).cloned().collect();
        assert!(heavy.len() > 1, "3.{minor}: {said}");
        let evaluator = |stack: &Stack| {
            stack.frames.first().is_some_and(|it| it.function.starts_with("_PyEval_EvalFrame"))
        };
        let bare = share(&heavy, evaluator);
        assert!(bare < 0.03, "3.{minor}: {bare}");
    }
}

#[test]
fn sums_are_those_of_the_kernel_and_lines_are_python_s() {
    let Some(dir) = prepared("sums") else { return };
    let Some(python) = pythons().into_values().next_back() else { return };
    record(&dir, &["-F", "997"], &[&python, &program("timed.py"), "1", "c"]);
    let (header, _) = lwp(&dir, &["script", "--header"]);
    assert!(header.contains("# mechanism: sigtrap"), "{header}");
    let clock = header.lines().find_map(|line| line.strip_prefix("# cpu-time: "));
    let clock: f64 = clock.unwrap_or_else(|| panic!("{header}")).parse().expect("ns");
    let report = crate::timed::report(&dir, "sym");
    let sum = report["total"].as_f64().expect("ns");
    assert!((sum / clock - 1.0).abs() < 0.01, "{sum} of {clock}");
    let (annotated, _) = lwp(&dir, &["annotate", "spin"]);
    let line = annotated.lines().find(|line| line.contains("total += i & 7"));
    assert!(line.is_some_and(|line| line.contains('%')), "{annotated}");
}

#[test]
fn threads_and_children_have_stacks_of_their_own() {
    let Some(dir) = prepared("threads") else { return };
    for (minor, python) in pythons().into_iter().filter(|(minor, _)| *minor <= 13) {
        for mode in ["t", "f"] {
            let command = [&python, &program("timed.py"), "1", mode];
            let (printed, said) = record(&dir, &["-F", "997"], &command);
            let (truth, found) = (said_times(&printed), inclusive(&dir, &FUNCTIONS));
            // Threads wait for the interpreter's lock with their clocks at rest, and CPU time of
            // two functions that share a thread is compared.
            let all: f64 = truth.values().sum();
            for (name, ns) in &truth {
                let sampled = found.get(name).copied().unwrap_or_default();
                let error = (sampled - ns).abs() / all;
                assert!(error < 0.06, "3.{minor} {mode}: {name} {sampled} of {ns}: {said}");
            }
        }
    }
}

#[test]
fn recursion_is_as_deep_as_without_lwp() {
    let Some(dir) = prepared("deep") else { return };
    for (minor, python) in pythons().into_iter().filter(|(minor, _)| *minor <= 13) {
        let command = [&python, &program("timed.py"), "1", "d"];
        let alone = text(&run(&dir, &command).stdout);
        let (printed, said) = record(&dir, &["-F", "997"], &command);
        assert_eq!(printed, alone, "3.{minor}");
        let all = stacks(&dir, "lwp.data", &CPU);
        let deepest = all.iter().map(|stack| stack.chain("python").len()).max();
        assert!(deepest.is_some_and(|frames| frames > 500), "3.{minor}: {deepest:?} {said}");
    }
}

#[test]
fn a_program_does_not_notice_that_events_stop_it() {
    let Some(dir) = prepared("unnoticed") else { return };
    if !compile(&dir, "uninterrupted.c", &["-O2", "-pthread"]) {
        return;
    }
    let options = ["--lang", "python", "-F", "1999"];
    let (printed, said) = record(&dir, &options, &["./program", "400"]);
    assert!(said.contains("# stops"), "{said}");
    assert_eq!(printed.lines().count(), 6, "{printed}");
    assert!(printed.lines().all(|line| line.ends_with(" 0")), "{printed}{said}");
    let Some(python) = pythons().into_values().next_back() else { return };
    let (_, said) = record(&dir, &["-q", "-F", "997"], &[&python, &program("timed.py"), "1", "s"]);
    assert_eq!(said, "alarms True\n");
}

#[test]
fn other_interpreters_are_read_too() {
    let Some(dir) = prepared("others") else { return };
    let all = [
        ("ruby", "ruby", "weights.rb"),
        ("php", "php", "weights.php"),
        ("perl", "perl", "weights.pl"),
        ("lua", "lua", "weights.lua"),
    ];
    for (language, interpreter, script) in all.into_iter().filter(|(_, name, _)| has(name)) {
        let (_, said) = record(&dir, &["-F", "4999"], &[interpreter, &program(script)]);
        // How long an interpreter takes to begin is its own affair.
        let executes = |stack: &Stack| stack.frames.iter().any(|it| it.is_of(language));
        let all: Vec<Stack> = stacks(&dir, "lwp.data", &CPU).into_iter().filter(executes).collect();
        let heavy = share(&all, |stack| {
            stack.frames.iter().any(|it| it.is_of(language) && it.function.ends_with("heavy"))
        });
        assert!(heavy > 0.2, "{language}: {heavy} {said}");
    }
}

#[test]
fn sleepers_show_python_s_functions() {
    let Some(dir) = prepared("sleepers") else { return };
    const ATTEMPTS: usize = 4;
    for (minor, python) in pythons().into_iter().filter(|(minor, _)| *minor <= 13) {
        // On a busy machine lwp may look too late.
        let found = (0..ATTEMPTS).any(|_| {
            let command = [&python, &program("timed.py"), "1", "z"];
            let (printed, said) = record(&dir, &[], &command);
            if !said.contains("# off-cpu") {
                eprintln!("skipped: the kernel records no switches");
                return true;
            }
            let (json, _) = lwp(&dir, &["report", "--json", "-e", "off-cpu"]);
            let report: serde_json::Value = serde_json::from_str(&json).expect("JSON");
            let mut rows = report["rows"].as_array().expect("rows").iter();
            let row = rows.find(|row| row["sym"] == "rest");
            let slept = row.and_then(|row| row["total"].as_f64()).unwrap_or(0.0);
            slept > 0.9 * said_times(&printed)["rest"]
        });
        assert!(found, "3.{minor}");
    }
}

/// The stack has 300 KiB, of which the kernel copies 63 at most.
///
/// Promise: R131
#[test]
fn stacks_are_read_as_a_whole_if_that_is_wanted() {
    let Some(dir) = prepared("whole") else { return };
    if !compile(&dir, "deep.c", &["-O1"]) {
        return;
    }
    let depth = |stack: &Stack| stack.frames.iter().filter(|it| it.function == "descends").count();
    record(&dir, &["-F", "997", "--call-graph", "dwarf,64512"], &["./program", "0.5"]);
    let cut = stacks(&dir, "lwp.data", &CPU);
    assert!(share(&cut, |stack| depth(stack) == 76) < 0.1);
    let whole = ["-F", "997", "--call-graph", "dwarf,65536"];
    let (_, said) = record(&dir, &whole, &["./program", "0.5"]);
    let all = stacks(&dir, "lwp.data", &CPU);
    let works = |stack: &Stack| stack.frames.iter().any(|it| it.function == "works");
    let working: Vec<Stack> = all.iter().filter(|stack| works(stack)).cloned().collect();
    let complete = share(&working, |stack| depth(stack) == 76 && stack.is_complete());
    assert!(complete > 0.99 && share(&all, works) > 0.8, "{complete}: {said}");
    // Of a process that runs already, too.
    let program = Command::new("./program").arg("60").current_dir(&dir).spawn();
    let program = Running(program.expect("the program"));
    let options = ["-F", "499", "--call-graph", "dwarf,65536", "--duration", "1"];
    let said = attach(&dir, &options, program.0.id());
    let all = stacks(&dir, "lwp.data", &CPU);
    let working: Vec<Stack> = all.iter().filter(|stack| works(stack)).cloned().collect();
    let complete = share(&working, |stack| depth(stack) == 76 && stack.is_complete());
    assert!(complete > 0.99, "{complete}: {said}");
}

/// A program that spends some time in heavy, and goes on for so many rounds.
const GENERATED: [(&str, &str); 2] = [
    (
        "endless.js",
        "function heavy(n) { let t = 0; for (let i = 0; i < n; i++) t += i % 7; return t }
         let s = 0; const rounds = Number(process.argv[2]);
         for (let i = 0; i < rounds; i++) s += heavy(60000);
         console.log(s)",
    ),
    (
        "Rounds.java",
        "public class Rounds {
           static int heavy(int n) { int t = 0; for (int i = 0; i < n; i++) t += i % 7; return t; }
           public static void main(String[] a) {
             long s = 0; int rounds = Integer.parseInt(a[0]);
             for (int i = 0; i < rounds; i++) s += heavy(60000);
             System.out.println(s);
           }
         }",
    ),
];

/// lwp changes nothing of a program that it times: whoever wants names passes the options.
///
/// Promise: R150
#[test]
fn generated_code_has_names_if_its_runtime_is_asked() {
    let dir = tools::fresh("timed_languages", "generated");
    for (name, text) in GENERATED {
        std::fs::write(dir.join(name), text).expect("written");
    }
    let node = ["node", "--perf-basic-prof", "--interpreted-frames-native-stack", "endless.js"];
    let java = ["java", "-XX:+UnlockDiagnosticVMOptions", "-XX:+DumpPerfMapAtExit"];
    let java = [&java[..], &["-XX:+PreserveFramePointer", "Rounds.java"]].concat();
    let heavy = |stack: &Stack| stack.frames.iter().any(|it| it.function.contains("heavy"));
    for command in [&node[..], &java].into_iter().filter(|command| has(command[0])) {
        let probe = run(&dir, &[LWP, "record", "--time", "--", "/bin/true"]);
        if text(&probe.stderr).contains("time cannot be sampled here") {
            eprintln!("skipped: {}", text(&probe.stderr));
            return;
        }
        record(&dir, &["-F", "499"], &[command, &["20000"]].concat());
        let named = share(&stacks(&dir, "lwp.data", &CPU), heavy);
        assert!(named > 0.2, "{command:?}: {named}");
        let bare = [command[0], command[command.len() - 1], "20000"];
        let (_, said) = record(&dir, &["-F", "499"], &bare);
        assert!(said.contains(" generated without names: run `"), "{bare:?}: {said}");
        assert!(share(&stacks(&dir, "lwp.data", &CPU), heavy) < 0.05, "{bare:?}");
    }
    if has("node") {
        // It writes its list while it runs.
        let program = Command::new(node[0]).args(&node[1..]).arg("1e9").current_dir(&dir).spawn();
        let program = Running(program.expect("node"));
        let list = PathBuf::from(format!("/tmp/perf-{}.map", program.0.id()));
        let is_there = || std::fs::read_to_string(&list).is_ok_and(|list| list.contains("heavy"));
        wait_until("node writes no list", is_there);
        let said = attach(&dir, &["-F", "499", "--duration", "1"], program.0.id());
        let named = share(&stacks(&dir, "lwp.data", &CPU), heavy);
        assert!(named > 0.5 && is_there(), "{named}: {said}");
        drop(program);
        std::fs::remove_file(list).expect("removed");
    }
}

#[test]
fn it_is_said_why_functions_are_missing_and_how_they_are_had() {
    let Some(dir) = prepared("missing") else { return };
    let Some(python) = pythons().into_values().next_back() else { return };
    let script = format!("{python} {} 0.3 c; true", program("timed.py"));
    let (_, said) = record(&dir, &[], &["sh", "-c", &script]);
    assert!(said.contains("lwp record --time --lang python -- PROGRAM"), "{said}");
    let (_, said) = record(&dir, &["--lang", "python"], &["sh", "-c", &script]);
    assert!(!said.contains("time is that of the interpreter"), "{said}");
    assert!(inclusive(&dir, &FUNCTIONS).contains_key("heavy"));
    let (_, said) = record(&dir, &["--lang", "none"], &[&python, &program("timed.py"), "0.3", "c"]);
    assert!(!said.contains("# stops") && !said.contains("time is that of"), "{said}");
}

#[test]
fn the_program_survives_lwp() {
    let Some(dir) = prepared("survives") else { return };
    let Some(python) = pythons().into_values().next_back() else { return };
    let script = program("timed.py");
    let command = [LWP, "record", "--time", "-q", "-F", "4999", "--", &python, &script, "0.4", "t"];
    for delay in 0..8 {
        let begun = dir.join("begun");
        let _ = std::fs::remove_file(&begun);
        let said = std::fs::File::create(dir.join("said")).expect("a file");
        let mut lwp = Command::new(command[0]);
        lwp.args(&command[1..]).arg(&begun).current_dir(&dir).stdout(Stdio::from(said));
        let mut lwp = lwp.spawn().expect("lwp");
        let pid = || std::fs::read_to_string(&begun).unwrap_or_default();
        wait_until("the program does not begin", || pid().ends_with('\n'));
        let process = Path::new("/proc").join(pid().trim());
        std::thread::sleep(Duration::from_millis(7 * delay));
        lwp.kill().expect("killed");
        let _ = lwp.wait();
        let said = || std::fs::read_to_string(dir.join("said")).unwrap_or_default();
        wait_until("the program does not end", || !process.exists());
        assert!(said().contains("light "), "after {delay}: {}", said());
    }
}

/// A process that runs already; it is ended with the test.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a command whose last argument is a file that it writes once it has begun.
fn begun(dir: &Path, command: &[&str]) -> Running {
    let file = dir.join("begun");
    let _ = std::fs::remove_file(&file);
    let said = std::fs::File::create(dir.join("said")).expect("a file");
    let mut program = Command::new(command[0]);
    program.args(&command[1..]).arg(&file).current_dir(dir).stdout(Stdio::from(said));
    let running = Running(program.spawn().expect("the program"));
    wait_until("the program does not begin", || {
        std::fs::read_to_string(&file).unwrap_or_default().ends_with('\n')
    });
    running
}

/// Records a process that runs; what lwp said.
fn attach(dir: &Path, options: &[&str], pid: u32) -> String {
    let pid = pid.to_string();
    let output = run(dir, &[&[LWP, "record", "--time", "-p", &pid], options].concat());
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    said
}

fn tracer_of(pid: u32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
    line.expect("a tracer's number").trim().to_owned()
}

/// Promise: R149
#[test]
fn functions_of_a_python_that_runs_already_are_shown() {
    let Some(dir) = prepared("attached") else { return };
    for (minor, python) in pythons().into_iter().filter(|(minor, _)| *minor <= 13) {
        let mut running = begun(&dir, &[&python, &program("timed.py"), "60", "t"]);
        let pid = running.0.id();
        let said = attach(&dir, &["-F", "499", "--duration", "3"], pid);
        assert_eq!(tracer_of(pid), "0");
        assert!(running.0.try_wait().expect("a child").is_none(), "3.{minor}: it goes on");
        drop(running);
        if said.contains("the machine is too busy") {
            eprintln!("skipped: the machine is too busy");
            continue;
        }
        let found = inclusive(&dir, &FUNCTIONS);
        let part = found["heavy"] / (found["heavy"] + found["light"]);
        let margin = 4.0 * (0.21 / samples(&dir)).sqrt() + 0.03;
        assert!((part - 0.7).abs() < margin, "3.{minor}: {part} ± {margin}: {said}");
        assert!(found["beside"] > 0.0, "3.{minor}: {found:?}");
        let all = stacks(&dir, "lwp.data", &CPU);
        let sampled = |stack: &Stack| stack.chain("python").ends_with(&["heavy", "spin"]);
        let heavy: Vec<Stack> = all.iter().filter(|stack| sampled(stack)).cloned().collect();
        let complete = share(&heavy, Stack::is_complete);
        assert!(complete > 0.99, "3.{minor}: {complete}");
        // Native frames lie below the language's.
        let native =
            |stack: &Stack| stack.frames.iter().any(|it| it.function.contains("Py_RunMain"));
        assert!(share(&heavy, native) > 0.99, "3.{minor}");
    }
}

/// Endless programs, three quarters of whose time `heavy` takes; they write a line to the file that
/// is their argument when they begin.
const ENDLESS: [(&str, &str); 4] = [
    (
        "perl",
        "sub heavy { my $t = 0; for my $i (1 .. 6000) { $t += $i & 7 } $t }
         sub light { my $t = 0; for my $i (1 .. 2000) { $t += $i & 7 } $t }
         open my $f, '>', $ARGV[0]; print $f \"on\\n\"; close $f;
         while (1) { heavy(); light() }",
    ),
    (
        "ruby",
        "def heavy; t = 0; i = 0; while i < 6000; t += i & 7; i += 1; end; t; end
         def light; t = 0; i = 0; while i < 2000; t += i & 7; i += 1; end; t; end
         File.write(ARGV[0], \"on\\n\")
         while true; heavy; light; end",
    ),
    (
        "php",
        "<?php function heavy() { $t = 0; for ($i = 0; $i < 6000; $i++) $t += $i & 7; return $t; }
         function light() { $t = 0; for ($i = 0; $i < 2000; $i++) $t += $i & 7; return $t; }
         file_put_contents($argv[1], \"on\\n\");
         while (true) { heavy(); light(); }",
    ),
    (
        "lua",
        "function heavy() local t = 0 for i = 1, 6000 do t = t + i % 7 end return t end
         function light() local t = 0 for i = 1, 2000 do t = t + i % 7 end return t end
         local f = io.open(arg[1], 'w') f:write('on\\n') f:close()
         while true do local t = heavy() t = light() end",
    ),
];

/// Promise: R149
#[test]
fn functions_of_other_interpreters_that_run_already_are_shown() {
    let Some(dir) = prepared("attached_others") else { return };
    for (language, source) in ENDLESS.into_iter().filter(|(name, _)| has(name)) {
        let script = dir.join("endless");
        std::fs::write(&script, source).expect("written");
        let running = begun(&dir, &[language, script.to_str().expect("text")]);
        let said = attach(&dir, &["-F", "499", "--duration", "3"], running.0.id());
        let all = stacks(&dir, "lwp.data", &CPU);
        let of = |name: &str| {
            share(&all, |stack| {
                stack.frames.iter().any(|it| it.is_of(language) && it.function.ends_with(name))
            })
        };
        let (heavy, light) = (of("heavy"), of("light"));
        assert!(heavy > light && light > 0.05 * heavy, "{language}: {heavy} {light} {said}");
        if said.contains("the machine is too busy") {
            eprintln!("skipped: the machine is too busy for shares");
            continue;
        }
        let margin = 4.0 * (0.19 / samples(&dir)).sqrt() + 0.03;
        let part = heavy / (heavy + light);
        assert!((part - 0.75).abs() < margin, "{language}: {part} ± {margin}: {said}");
    }
}

/// Promise: R149
#[test]
fn sleepers_of_a_process_that_runs_already_show_python_s_functions() {
    let Some(dir) = prepared("attached_sleepers") else { return };
    let Some(python) = pythons().into_values().next_back() else { return };
    let running = begun(&dir, &[&python, &program("timed.py"), "60", "z"]);
    let said = attach(&dir, &["--duration", "1"], running.0.id());
    if !said.contains("# off-cpu") {
        eprintln!("skipped: the kernel records no switches");
        return;
    }
    let (json, _) = lwp(&dir, &["report", "--json", "-e", "off-cpu"]);
    let report: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let mut rows = report["rows"].as_array().expect("rows").iter();
    let row = rows.find(|row| row["sym"] == "rest").expect("a row");
    assert!(row["total"].as_f64().expect("ns") > 0.5e9, "{row} {said}");
}

/// The functions and lines of the first thread that py-spy reads from the interpreter, outermost
/// first.
fn said_by_py_spy(dir: &Path, pid: u32) -> Vec<(String, u64)> {
    let output = run(dir, &["py-spy", "dump", "--json", "--pid", &pid.to_string()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let threads: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let frames = threads[0]["frames"].as_array().expect("frames").iter().rev();
    let one = |frame: &serde_json::Value| {
        let name = frame["name"].as_str().expect("a name").to_owned();
        (name, frame["line"].as_u64().expect("a line"))
    };
    frames.map(one).collect()
}

/// Both read the interpreter's memory: py-spy of a process that it has stopped, lwp of a thread
/// that sleeps.
///
/// Promise: R149
#[test]
fn sleepers_have_the_functions_and_lines_that_py_spy_reads() {
    let Some(dir) = prepared("beside_py_spy") else { return };
    if !has("py-spy") {
        return;
    }
    for (minor, python) in pythons().into_iter().filter(|(minor, _)| *minor <= 13) {
        let running = begun(&dir, &[&python, &program("timed.py"), "60", "z"]);
        let pid = running.0.id();
        // It mostly looks while the thread sleeps.
        let mut looks = std::iter::repeat_with(|| said_by_py_spy(&dir, pid)).take(50);
        let sleeps = |found: &Vec<(String, u64)>| found.last().is_some_and(|it| it.0 == "rest");
        let theirs = looks.find(sleeps).expect("py-spy sees a sleep");
        attach(&dir, &["--duration", "1"], pid);
        let all = stacks(&dir, "lwp.data", &["-e", "off-cpu"]);
        let one = |stack: &Stack| -> Vec<(String, u64)> {
            let frames = stack.frames.iter().rev().filter(|frame| frame.is_of("python"));
            frames.map(|frame| (frame.function.clone(), frame.line.into())).collect()
        };
        let ours: Vec<_> = all.iter().map(one).filter(sleeps).collect();
        assert!(!ours.is_empty(), "3.{minor}: {all:?}");
        assert!(ours.iter().all(|it| *it == theirs), "3.{minor}: {ours:?} {theirs:?}");
    }
}

/// Promise: R149
#[test]
fn a_process_that_runs_already_survives_lwp() {
    let Some(dir) = prepared("attached_survives") else { return };
    let Some(python) = pythons().into_values().next_back() else { return };
    for delay in 0..8 {
        let mut running = begun(&dir, &[&python, &program("timed.py"), "1", "t"]);
        let pid = running.0.id();
        let lwp = ["record", "--time", "-q", "-F", "4999", "-p", &pid.to_string()];
        let mut lwp = Command::new(LWP).args(lwp).current_dir(&dir).spawn().expect("lwp");
        wait_until("lwp does not attach", || tracer_of(pid) != "0");
        std::thread::sleep(Duration::from_millis(7 * delay));
        lwp.kill().expect("killed");
        let _ = lwp.wait();
        wait_until("lwp does not let go", || tracer_of(pid) == "0");
        let ended = running.0.wait().expect("an end");
        let said = std::fs::read_to_string(dir.join("said")).expect("what it said");
        assert!(ended.success() && said.contains("light "), "after {delay}: {ended} {said}");
    }
}

/// Promise: R149
#[test]
fn no_call_of_a_process_that_runs_already_is_interrupted() {
    let Some(dir) = prepared("attached_unnoticed") else { return };
    if !compile(&dir, "uninterrupted.c", &["-O2", "-pthread"]) {
        return;
    }
    let said = std::fs::File::create(dir.join("said")).expect("a file");
    let program = Command::new("./program").arg("600").current_dir(&dir).stdout(said).spawn();
    let mut program = Running(program.expect("the program"));
    let said = attach(&dir, &["--lang", "python", "-F", "1999"], program.0.id());
    assert!(said.contains("# stops"), "{said}");
    assert!(program.0.wait().expect("an end").success());
    let printed = std::fs::read_to_string(dir.join("said")).expect("what it said");
    assert_eq!(printed.lines().count(), 6, "{printed}");
    assert!(printed.lines().all(|line| line.ends_with(" 0")), "{printed}{said}");
}

/// Promise: R149
#[test]
fn a_process_that_is_traced_already_is_sampled_without_its_functions() {
    let Some(dir) = prepared("attached_traced") else { return };
    let Some(python) = pythons().into_values().next_back().filter(|_| has("gdb")) else { return };
    let running = begun(&dir, &[&python, &program("timed.py"), "60", "c"]);
    let pid = running.0.id();
    let mut gdb = Command::new("gdb");
    gdb.args(["-q", "-nx", "-batch", "-p", &pid.to_string(), "-ex", "continue"]);
    let gdb = gdb.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let _gdb = Running(gdb.expect("gdb"));
    wait_until("gdb does not attach", || tracer_of(pid) != "0");
    let said = attach(&dir, &["--duration", "0.2"], pid);
    assert!(said.contains("traces process") && said.contains("are not read"), "{said}");
}

fn wait_until(otherwise: &str, is: impl Fn() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < Duration::from_secs(60), "{otherwise}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
