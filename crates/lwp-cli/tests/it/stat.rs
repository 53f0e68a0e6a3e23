//! `lwp stat` and `lwp run` on real programs.
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use lwp_testkit::files::write_program;
use serde_json::Value;

const LWP: &str = env!("CARGO_BIN_EXE_lwp");
/// The time that an event is waited for: longer than it takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

fn lwp(arguments: &[&str]) -> Output {
    Command::new(LWP).args(arguments).stdin(Stdio::null()).output().expect("lwp starts")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A name in the build's own temporary directory that nothing has yet.
fn fresh(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_file(&path);
    path
}

/// An empty directory in the build's own temporary directory.
fn fresh_directory(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("directory");
    path
}

/// Runs `lwp stat -j` with `arguments` and returns the objects of its report.
fn rows(name: &str, arguments: &[&str]) -> Vec<Value> {
    let file = fresh(name);
    let path = file.to_str().expect("name is text");
    let mut all = vec!["stat", "-j", "-o", path];
    all.extend(arguments);
    let output = lwp(&all);
    assert!(output.status.success(), "{arguments:?}: {} {}", output.status, stderr(&output));
    let text = std::fs::read_to_string(&file).expect("report");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn what_follows_from_counts_can_be_left_out() {
    let derived = |option: &str| {
        let rows =
            rows(&format!("{option}.json"), &[option, "-e", "instructions,branches", "--", "true"]);
        rows.iter().filter(|row| row.get("metric-value").is_some()).count()
    };
    assert_eq!((derived("--metric"), derived("--no-metric")), (1, 0));
}

/// The value of `event` in the first row that has it.
fn value(rows: &[Value], event: &str) -> f64 {
    let row = rows.iter().find(|row| row["event"] == event).expect(event);
    let text = row["counter-value"].as_str().expect("value is a string");
    text.parse().unwrap_or_else(|_| panic!("{event}: {text}"))
}

/// Waits until `child` ends, at most `limit`.
fn ends_within(child: &mut Child, limit: Duration) -> bool {
    let start = Instant::now();
    while start.elapsed() < limit {
        if child.try_wait().expect("wait").is_some() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = child.kill();
    false
}

#[test]
fn text_report_has_counts_shares_and_times() {
    let output = lwp(&["stat", "--", "/bin/true"]);
    let text = stderr(&output);
    assert!(output.status.success(), "{text}");
    assert!(output.stdout.is_empty());
    for part in [
        "Exact counts of '/bin/true'",
        " instructions",
        "% of instructions",
        "conditional-taken",
        "CPUs utilized",
        "seconds time elapsed",
        "seconds user",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
}

/// Promise: F3
#[test]
fn the_program_s_streams_are_untouched() {
    let file = fresh("streams");
    let path = file.to_str().expect("name is text");
    let script = "cat; echo out; echo err >&2";
    let mut child = Command::new(LWP)
        .args(["stat", "-o", path, "--", "/bin/sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("lwp starts");
    child.stdin.take().expect("piped").write_all(b"in\n").expect("write");
    let output = child.wait_with_output().expect("wait");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "in\nout\n");
    assert_eq!(stderr(&output), "err\n");
    assert!(std::fs::read_to_string(file).expect("report").contains("instructions"));
}

/// Promise: F1
#[test]
fn exit_codes_are_the_program_s() {
    for verb in ["stat", "run"] {
        let output = lwp(&[verb, "--", "/bin/sh", "-c", "exit 42"]);
        assert_eq!(output.status.code(), Some(42), "{verb}: {}", stderr(&output));
    }
}

/// Promise: F2
#[test]
fn deadly_signals_are_passed_on() {
    for signal in [15, 9, 11, 6] {
        let output = lwp(&["stat", "--", "/bin/sh", "-c", &format!("kill -{signal} $$")]);
        assert_eq!(output.status.signal(), Some(signal), "{}", stderr(&output));
        assert!(stderr(&output).contains("instructions"), "{}", stderr(&output));
    }
}

#[test]
fn run_counts_nothing_and_prints_nothing() {
    let output = lwp(&["run", "--", "/bin/echo", "hello"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "hello\n");
    assert_eq!(stderr(&output), "");
}

/// Promise: E2
#[test]
fn counts_add_up() {
    let events = "instructions,branches,branches-taken,conditional-branches,conditional-taken,\
                  calls,returns,indirect-branches";
    let rows = rows("add-up.json", &["-e", events, "--", "/bin/true"]);
    let of = |event| value(&rows, event);
    assert!(of("instructions") > 1_000.0);
    assert!(of("branches") < of("instructions"));
    let not_taken = of("conditional-branches") - of("conditional-taken");
    assert_eq!(of("branches-taken"), of("branches") - not_taken);
    assert!(of("calls") > 0.0 && of("returns") > 0.0 && of("indirect-branches") > 0.0);
}

/// Promise: E3
#[test]
fn equal_runs_have_equal_counts() {
    let arguments = ["-e", "instructions,branches", "--deterministic", "--", "/bin/true"];
    let (first, second) = (rows("first.json", &arguments), rows("second.json", &arguments));
    for event in ["instructions", "branches"] {
        assert_eq!(value(&first, event), value(&second, event), "{event}");
    }
}

/// Twenty runs that differ in what is no business of the program: the directory that it lies in,
/// variables, what it is started by. Its own arguments are of the same length; its process number
/// and its parent's, which the shell formats, may not be.
///
/// Promise: E4: twenty runs in different environments, started by different callers
#[test]
fn deterministic_counts_depend_on_the_program_alone() {
    let count = |nth: usize, rounds: &str| {
        let file = format!("fixed{nth}.json");
        let script = "p=$$; q=$PPID; echo ${#p} and ${#q} digits; i=0; while [ $i -lt $0 ]; do i=$((i+1)); v=$v$i; done; echo ${#v}; \
                      exec od -A n -N 40 /dev/urandom";
        let path = fresh(&file);
        let mut command = Command::new(LWP);
        command.args(["stat", "--deterministic", "-j", "-e", "instructions,branches,calls", "-o"]);
        command.arg(&path).args(["--", "/bin/sh", "-c", script, rounds]);
        let names = (0..nth).map(|n| (format!("VARIABLE{n}"), "x".repeat(37 * n + nth)));
        let output = command.envs(names).env("LC_ALL", "de_DE.UTF-8").output().expect("lwp starts");
        assert!(output.status.success(), "{}", stderr(&output));
        let counts: Vec<Value> = std::fs::read_to_string(path)
            .expect("counts")
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["counter-value"].clone())
            .collect();
        (counts, stdout(&output))
    };
    // By the line about digits: process numbers get longer, or begin anew.
    let mut firsts = HashMap::new();
    for nth in 0..20 {
        let run = count(nth, "300");
        let digits = run.1.lines().next().map(str::to_owned);
        let first = firsts.entry(digits).or_insert_with(|| run.clone());
        assert_eq!(&run, first, "run {nth}");
    }
    assert!(firsts.len() <= 4, "{firsts:?}");
    let longer = count(0, "301").0;
    assert!(firsts.values().all(|first| first.0 != longer));
}

/// Prints where the dynamic linker has found the argument count, and the names of all variables.
const STACK_END: &str = "import ctypes, os; \
    print(hex(ctypes.c_void_p.in_dll(ctypes.CDLL(None), '__libc_stack_end').value)); \
    print(','.join(sorted(os.environ)))";

/// The stack begins where it always does, whatever is on it.
///
/// Promise: E4: twenty runs in different environments, started by different callers
#[test]
fn deterministic_stacks_begin_at_one_place() {
    let place = |words: &[&str]| {
        let program = ["--", "/usr/bin/python3", "-c", STACK_END];
        let output = lwp(&[&["run", "--deterministic"], words, &program[..]].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    };
    if !std::path::Path::new("/usr/bin/python3").exists() {
        eprintln!("skipped: no python3");
        return;
    }
    let plain = place(&[]);
    let more = place(&[
        "--env",
        "A=1",
        "--env",
        "LONGER=and_longer_than_anything_that_is_there_by_itself",
    ]);
    let (plain, more): (Vec<&str>, Vec<&str>) = (plain.lines().collect(), more.lines().collect());
    assert_eq!(plain[0], more[0], "the address of argc");
    assert_eq!(plain[1], "HOME,LC_ALL,PATH,TZ");
    assert_eq!(more[1], "A,HOME,LC_ALL,LONGER,PATH,TZ");
}

/// Promise: E5
#[test]
fn what_cannot_be_counted_is_never_a_zero() {
    let rows = rows("unsupported.json", &["-e", "cycles,instructions:k,calls", "--", "/bin/true"]);
    assert_eq!(rows[0]["counter-value"], "<not supported>");
    assert_eq!(rows[1]["counter-value"], "<not supported>");
    assert!(rows[1]["reason"].as_str().expect("reason").contains("kernel mode"));
    assert!(value(&rows, "calls") > 0.0);
}

/// Promise: I2
#[test]
fn csv_has_perf_s_columns() {
    let output = lwp(&["stat", "-x,", "-e", "instructions,cycles", "--", "/bin/true"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stderr(&output);
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[0][0].parse::<u64>().is_ok_and(|count| count > 0), "{text}");
    assert_eq!(lines[0][1..3], ["", "instructions"]);
    assert_eq!(lines[1][0], "<not supported>");
    assert!(lines.iter().all(|columns| columns.len() == 7), "{text}");
}

/// Promise: I6
#[test]
fn repeated_runs_have_a_spread() {
    let output = lwp(&["stat", "-r", "3", "-e", "instructions", "--", "/bin/true"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("(3 runs)"), "{}", stderr(&output));
    assert!(stderr(&output).contains("( +-"), "{}", stderr(&output));
}

/// Promise: where random numbers make runs count differently, the remedy is named.
#[test]
fn runs_that_differ_name_the_remedy() {
    let dir = fresh_directory("hash-map");
    let source = dir.join("random.c");
    let program = "#include <sys/random.h>\n\
        int main(void) { unsigned short n; volatile long sum = 0; getrandom(&n, sizeof n, 0);\n\
        for (unsigned i = 0; i < n; i++) sum += i; return 0; }\n";
    std::fs::write(&source, program).expect("source");
    let binary = dir.join("random");
    let built = Command::new("gcc").arg("-o").args([&binary, &source]).status();
    if !built.is_ok_and(|status| status.success()) {
        return;
    }
    let says = |options: &[&str]| {
        let words = [&["stat", "-r", "6", "-e", "instructions"], options, &["--"]].concat();
        let mut command = Command::new(LWP);
        stderr(&command.args(words).arg(&binary).output().expect("lwp starts"))
    };
    let free = says(&[]);
    assert!(
        free.contains("the runs differ by up to") && free.contains("--deterministic"),
        "{free}"
    );
    let fixed = says(&["--deterministic"]);
    assert!(!fixed.contains("differ") && fixed.contains("+-  0.00%"), "{fixed}");
}

/// Runs `script` with `-r 5` in its own process group, which gets an interrupt once the script says
/// that it is ready. The script counts its runs in the file `runs`.
fn interrupted_series(name: &str, script: &str) -> Output {
    let dir = fresh_directory(name);
    let script = format!("echo x >> runs; [ $(wc -l < runs) -lt 3 ] && exit 0; {script}");
    let mut command = Command::new(LWP);
    command.args(["stat", "-r", "5", "-e", "instructions", "--", "/bin/sh", "-c", &script]);
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    command.current_dir(&dir).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("lwp starts");
    let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    stdout.read_line(&mut line).expect("read");
    assert_eq!(line, "ready\n");
    let group = format!("-{}", child.id());
    let sent = Command::new("kill").args(["-INT", "--", &group]).status().expect("kill");
    assert!(sent.success());
    std::fs::write(dir.join("go"), "").expect("file");
    assert!(ends_within(&mut child, PATIENCE));
    child.wait_with_output().expect("wait")
}

/// Promise: a run that was cut off is no part of the mean of the others.
///
/// Promise: I6
#[test]
fn a_run_that_is_cut_off_is_left_out_of_the_mean() {
    let output = interrupted_series("cut-off", "echo ready; while :; do sleep 0.05; done");
    let says = stderr(&output);
    assert_eq!(output.status.signal(), Some(2), "{says}");
    assert!(
        says.contains("(2 runs)") && says.contains("run 3 was cut off (signal SIGINT)"),
        "{says}"
    );
    // The other runs have a spread of nearly nothing; with a third of other length it was 20 %.
    let row = says.lines().find(|line| line.contains("instructions ")).expect("a row");
    let spread = row.split("+-").nth(1).and_then(|it| it.split('%').next()).expect("a spread");
    assert!(spread.trim().parse::<f64>().is_ok_and(|spread| spread < 5.0), "{says}");
}

/// An interrupted series has not done what it was asked for, whatever its last run says.
///
/// Promise: I6
#[test]
fn an_interrupted_series_is_no_success() {
    let script = "trap '' INT; echo ready; until [ -e go ]; do sleep 0.05; done; exit 0";
    let output = interrupted_series("interrupted-series", script);
    let says = stderr(&output);
    assert_eq!(output.status.signal(), Some(2), "{says}");
    assert!(says.contains("(2 runs)"), "{says}");
}

/// Promise: I6
#[test]
fn a_failed_run_is_a_failure_of_the_series() {
    let dir = fresh_directory("failed-run");
    let script = "echo x >> runs; [ $(wc -l < runs) -eq 2 ] && exit 7; exit 0";
    let mut command = Command::new(LWP);
    command.args(["stat", "-r", "3", "-e", "instructions", "--", "/bin/sh", "-c", script]);
    let output = command.current_dir(&dir).output().expect("lwp starts");
    let says = stderr(&output);
    assert_eq!(output.status.code(), Some(7), "{says}");
    assert!(says.contains("run 2 ended with exit code 7"), "{says}");
    assert!(says.contains("(3 runs)"), "{says}");
}

#[test]
fn reports_can_be_appended() {
    let file = fresh("appended");
    let path = file.to_str().expect("name is text");
    for _ in 0..2 {
        let arguments = ["stat", "-e", "calls", "-x;", "-o", path, "--append", "--", "/bin/true"];
        assert!(lwp(&arguments).status.success());
    }
    assert_eq!(std::fs::read_to_string(file).expect("report").lines().count(), 2);
}

/// Promise: F9
#[test]
fn child_processes_are_followed_unless_refused() {
    let script = "/bin/true; /bin/true; exit 0";
    let arguments = ["--per-process", "-e", "instructions", "--", "/bin/sh", "-c", script];
    let processes = rows("followed.json", &arguments);
    let of_true = processes
        .iter()
        .filter(|row| row["process"].as_str().is_some_and(|name| name.starts_with("true-")));
    assert_eq!(of_true.count(), 2, "{processes:?}");

    let mut arguments = arguments.to_vec();
    arguments.insert(0, "--no-inherit");
    let alone = rows("alone.json", &arguments);
    let named = |row: &&Value| row["process"].as_str().is_some_and(|name| name.starts_with("true"));
    assert_eq!(alone.iter().filter(named).count(), 0, "{alone:?}");
}

/// A child goes on natively with what the C library has made of another processor: lazy binding
/// saves all the state that the real one has.
#[test]
fn children_that_are_not_followed_run_beside_a_fixed_processor() {
    let script = "exit(system('true') >> 8 | system('true') & 127)";
    let run = lwp(&["stat", "--no-inherit", "--deterministic", "--", "perl", "-e", script]);
    assert_eq!(run.status.code(), Some(0), "{}", stderr(&run));
}

/// Each takes over the counters of the one before.
///
/// Promise: F9
#[test]
fn copies_that_fork_makes_count_from_zero() {
    let script = "for i in 1 2 3 4 5 6 7 8 9; do ( : $i ); done; for i in 1 2 3 4 5 6; do ( exit 0 ); done; exit 0";
    let arguments = ["--per-process", "-e", "instructions", "--", "/bin/sh", "-c", script];
    let processes = rows("copies.json", &arguments);
    let count = |row: &Value| row["counter-value"].as_str().unwrap_or_default().to_owned();
    let counts: Vec<String> = processes.iter().map(count).collect();
    assert_eq!(counts.len(), 16, "{processes:?}");
    let [calm, exiting] = [1..10, 10..16].map(|range| &counts[range]);
    assert!(calm.windows(2).all(|pair| pair[0] == pair[1]), "{counts:?}");
    assert!(exiting.windows(2).all(|pair| pair[0] == pair[1]), "{counts:?}");
    assert_ne!(counts[0], counts[1]);
}

/// From the third on, they begin with a table that the ones before have left.
///
/// Promise: F9
#[test]
fn programs_started_over_and_over_count_the_same() {
    let script = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14; do /bin/echo $i; done; for i in 1 2 3 4 5; do \
                  env -i /bin/echo $i; done; exit 0";
    for cache in [&["--no-cache"][..], &[]] {
        let mut arguments = vec!["--per-process", "-e", "instructions", "--"];
        arguments.splice(0..0, cache.iter().copied());
        let processes =
            rows("repeated.json", &[&arguments[..], &["/bin/sh", "-c", script]].concat());
        let named =
            |row: &&Value| row["process"].as_str().is_some_and(|name| name.starts_with("echo-"));
        let counts: Vec<String> = processes
            .iter()
            .filter(named)
            .map(|row| row["counter-value"].as_str().unwrap_or_default().to_owned())
            .collect();
        assert_eq!(counts.len(), 19, "{processes:?}");
        // A second digit takes a few instructions more.
        let [short, long, rest] = [0..9, 9..14, 14..19].map(|range| &counts[range]);
        assert!(short.windows(2).all(|pair| pair[0] == pair[1]), "{counts:?}");
        assert!(long.windows(2).all(|pair| pair[0] == pair[1]), "{counts:?}");
        assert!(rest.windows(2).all(|pair| pair[0] == pair[1]), "{counts:?}");
    }
}

/// The intervals of a run, while it runs and at its end, have all that it executed and nothing
/// twice.
///
/// Promise: I8
#[test]
fn intervals_add_up_to_the_whole() {
    // Not a shell, which formats its parent's process number: that may have a digit more. Nor
    // find, which asks for the time: the vDSO takes five instructions more shortly before a second
    // is full.
    let times = fresh("times.txt");
    std::fs::write(&times, "0.1\n".repeat(6)).expect("the list of times");
    let list = times.to_str().expect("a path in UTF-8");
    let program = ["--", "xargs", "--arg-file", list, "--max-args", "1", "sleep"];
    let instructions = ["-e", "instructions"];
    let whole = rows("whole.json", &[&instructions[..], &program].concat());
    let parts = rows("parts.json", &[&["-I", "100"], &instructions[..], &program].concat());
    let times: Vec<f64> =
        parts.iter().map(|row| row["interval"].as_f64().expect("a time")).collect();
    assert!(times.len() >= 4 && times.is_sorted(), "{times:?}");
    assert!(times[0] >= 0.1 && times[0] < times[times.len() - 1], "{times:?}");
    let counted = |rows: &[Value]| -> f64 {
        let value =
            |row: &Value| row["counter-value"].as_str().and_then(|text| text.parse::<f64>().ok());
        rows.iter().map(|row| value(row).expect("a count")).sum()
    };
    assert_eq!(counted(&parts), counted(&whole), "{parts:?}");

    let text = stderr(&lwp(&[&["stat", "-I", "100"], &program[..]].concat()));
    let lines = text.strip_prefix("#           time             counts unit events\n");
    let first = lines.and_then(|lines| lines.get(..13)?.trim().parse::<f64>().ok());
    assert!(first.is_some_and(|seconds| seconds >= 0.1), "{text}");
    assert!(!text.contains("elapsed"), "{text}");
}

#[test]
fn threads_are_reported_on_their_own() {
    let rows = rows("threads.json", &["--per-thread", "-e", "calls", "--", "/bin/true"]);
    assert_eq!(rows.len(), 1);
    assert!(rows[0]["thread"].as_str().expect("label").starts_with("true-"), "{rows:?}");
}

/// Promise: F6
#[test]
fn scripts_are_the_kernel_s_to_start() {
    let file = fresh("script");
    write_program(&file, b"#!/bin/sh\nexit 5\n");
    let output = lwp(&["stat", "--", file.to_str().expect("name is text")]);
    assert_eq!(output.status.code(), Some(5), "{}", stderr(&output));
}

/// The run ends with the program as natively, and what it leaves in a session of its own lives on.
///
/// Promise: F24
#[test]
fn daemons_are_left_behind_unharmed() {
    let told = fresh("daemon-told");
    let pid_file = fresh("daemon-pid");
    let (told_at, pid_at) = (told.to_str().expect("text"), pid_file.to_str().expect("text"));
    let daemon = format!(
        "trap 'i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; (echo told $i) > {told_at}.new; mv {told_at}.new \
         {told_at}; exit' USR1; echo $$ > {pid_at}.new; mv {pid_at}.new {pid_at}; while :; do sleep 0.05; done"
    );
    let script = "setsid sh -c \"$0\" </dev/null >/dev/null 2>&1 & while ! [ -e \"$1\" ]; do sleep 0.02; done; exit 3";
    let program = ["--", "/bin/sh", "-c", script, &daemon, pid_at];
    for options in [&["stat", "--no-cache"][..], &["run", "--no-lwp"]] {
        let _ = (std::fs::remove_file(&told), std::fs::remove_file(&pid_file));
        let output = lwp(&[options, &program].concat());
        assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
        assert!(stderr(&output).contains("leaves behind"), "{}", stderr(&output));
        let pid = std::fs::read_to_string(&pid_file).expect("the daemon's number");
        let status = std::fs::read_to_string(format!("/proc/{}/status", pid.trim()));
        assert!(status.expect("a live daemon").contains("TracerPid:\t0\n"));
        let sent = Command::new("kill").args(["-USR1", pid.trim()]).status().expect("kill");
        assert!(sent.success());
        let start = Instant::now();
        while !told.exists() && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(std::fs::read_to_string(&told).expect("a word from the daemon"), "told 2000\n");
    }
}

/// Nothing tells those apart that a program has forgotten to wait for.
///
/// Promise: F24
#[test]
fn processes_of_the_program_s_session_are_waited_for() {
    let file = fresh("waited-for");
    let path = file.to_str().expect("text");
    let script = format!("(sleep 0.3; echo done > {path}) >/dev/null 2>&1 & exit 4");
    let output = lwp(&["stat", "--", "/bin/sh", "-c", &script]);
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    assert_eq!(std::fs::read_to_string(&file).expect("it is over"), "done\n");
}

#[test]
fn a_run_can_be_limited_in_time() {
    let start = Instant::now();
    let output = lwp(&["stat", "--timeout", "200", "--", "/bin/sleep", "600"]);
    assert!(start.elapsed() < PATIENCE);
    assert_eq!(output.status.signal(), Some(15), "{}", stderr(&output));
    assert!(stderr(&output).contains("instructions"), "{}", stderr(&output));
}

/// Promise: F4
#[test]
fn interrupts_are_left_to_the_program() {
    // The shell survives the interrupt, as lwp must, and both get it as from a terminal.
    let script = "trap 'echo caught; exit 3' INT; echo ready; while :; do sleep 0.05; done";
    // In a shell's background these tests would inherit an ignored SIGINT.
    let mut command = Command::new("env");
    command.args(["--default-signal=INT", LWP, "stat", "--", "/bin/sh", "-c", script]);
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("lwp starts");
    let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    stdout.read_line(&mut line).expect("read");
    if line == "ready\n" {
        let group = format!("-{}", child.id());
        let sent = Command::new("kill").args(["-INT", "--", &group]).status().expect("kill");
        assert!(sent.success());
    }
    assert!(ends_within(&mut child, PATIENCE));
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).expect("read");
    let output = child.wait_with_output().expect("wait");
    assert_eq!(line + &rest, "ready\ncaught\n", "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("instructions"), "{}", stderr(&output));
}

/// Promise: F5
#[test]
fn a_terminated_lwp_terminates_the_program_and_still_reports() {
    let mut command = Command::new(LWP);
    command.args(["stat", "--", "/bin/sh", "-c", "echo ready; exec sleep 600"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("lwp starts");
    let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    stdout.read_line(&mut line).expect("read");
    if line == "ready\n" {
        let pid = child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill").success());
    }
    assert!(ends_within(&mut child, PATIENCE));
    let output = child.wait_with_output().expect("wait");
    assert_eq!(output.status.signal(), Some(15), "{}", stderr(&output));
    assert!(stderr(&output).contains("instructions"), "{}", stderr(&output));
}

/// Promise: E8
#[test]
fn nothing_is_counted_before_counting_is_enabled() {
    let rows = rows("disabled.json", &["-D", "-1", "-e", "instructions", "--", "/bin/true"]);
    assert_eq!(value(&rows, "instructions"), 0.0);
}

/// Promise: E8
#[test]
fn control_line_switches_counting() {
    let (control, ack) = (fresh("control.fifo"), fresh("ack.fifo"));
    for fifo in [&control, &ack] {
        assert!(Command::new("mkfifo").arg(fifo).status().expect("mkfifo").success());
    }
    // The program itself holds the other ends: enable, work, disable.
    let script = format!(
        "exec 7>{} 8<{}; echo enable >&7; read a <&8; i=0; \
         while [ $i -lt 1000 ]; do i=$((i+1)); done; echo disable >&7; read b <&8; echo $a $b",
        control.display(),
        ack.display()
    );
    let place = format!("fifo:{},{}", control.display(), ack.display());
    let report = fresh("control.json");
    let output = lwp(&[
        "stat",
        "-j",
        "-o",
        report.to_str().expect("name is text"),
        "-D",
        "-1",
        "--timeout",
        "120000",
        "-e",
        "instructions",
        "--control",
        &place,
        "--",
        "/bin/bash",
        "-c",
        &script,
    ]);
    assert!(output.status.success(), "{} {}", output.status, stderr(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ack ack\n");
    let text = std::fs::read_to_string(report).expect("report");
    let row: Value = serde_json::from_str(text.trim()).expect("JSON");
    assert!(value(&[row], "instructions") > 100_000.0);
}

/// Promise: F11
#[test]
fn a_running_process_can_be_counted_for_a_while() {
    let mut program = Command::new("/bin/sh");
    let mut program =
        program.args(["-c", "while :; do :; done"]).spawn().expect("program to attach to");
    let pid = program.id().to_string();
    let output = lwp(&["stat", "-e", "instructions", "-x,", "-p", &pid, "--", "sleep", "1"]);
    let alive = program.try_wait().expect("wait").is_none();
    let _ = program.kill();
    let _ = program.wait();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(alive, "the program must live on");
    let count = stderr(&output).split(',').next().and_then(|value| value.parse::<u64>().ok());
    assert!(count.is_some_and(|count| count > 1_000), "{}", stderr(&output));
}

#[test]
fn the_processor_shown_can_be_chosen() {
    for cpu in ["host", "x86-64-v2", "x86-64-v3"] {
        let output = lwp(&["run", "--cpu", cpu, "--", "/bin/true"]);
        assert!(output.status.success(), "{cpu}: {}", stderr(&output));
    }
}
