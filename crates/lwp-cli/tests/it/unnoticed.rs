//! Processes that lwp attaches to, and lets go: they go on as if nothing had happened.
//!
//! Promise: F11: it loses no signal, none of its calls is interrupted, it can create threads, it
//!   may be stopped
#![allow(clippy::disallowed_methods, reason = "a test may panic")]

use crate::shared::running;
use crate::shared::tools;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use running::{Running, start};
use tools::{has, limited, text};

const LWP: &str = env!("CARGO_BIN_EXE_lwp");

fn fresh(name: &str) -> PathBuf {
    tools::fresh("unnoticed", name)
}

fn lwp(dir: &Path, arguments: &[&str]) -> Output {
    let output = limited(dir, &[&[LWP], arguments].concat()).output().expect("timeout starts");
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    output
}

/// Compiles a program in C with threads. `None` where there is no compiler.
fn built(dir: &Path, name: &str, source: &str) -> Option<String> {
    if !has("gcc") {
        return None;
    }
    std::fs::write(dir.join(format!("{name}.c")), source).expect("a file");
    let file = format!("{name}.c");
    let args = ["-O1", "-pthread", "-o", name, &file];
    let gcc = Command::new("gcc").args(args).current_dir(dir).status();
    assert!(gcc.expect("gcc starts").success(), "{name}");
    Some(format!("./{name}"))
}

/// The rest of what a program says once its input has ended.
fn last_words(mut program: Running, mut output: impl Read) -> String {
    drop(program.0.stdin.take());
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("output");
    let status = program.0.wait().expect("an end");
    assert!(status.success(), "{status}: {rest}");
    rest
}

#[test]
fn a_program_with_restartable_sequences_is_left_alone() {
    let own = "GLIBC_TUNABLES=glibc.pthread.rseq=0";
    // They are known by the file that describes them, or else by a thread that uses them.
    for (name, section, reason) in [
        ("described", "__rseq_cs, \\\"aw\\\"", "restartable has restartable sequences"),
        ("used", ".data", "uses restartable sequences"),
    ] {
        let dir = fresh(name);
        let source = include_str!("../unnoticed/restartable.c").replace("SECTION", section);
        let Some(program) = built(&dir, "restartable", &source) else { return };
        let (program, output, line) = start(&dir, &["env", own, &program]);
        if line != "areas\n" {
            eprintln!("skipped: this kernel registers no area of restartable sequences");
            return;
        }
        let pid = program.0.id().to_string();
        let refused = limited(&dir, &[LWP, "stat", "--timeout", "500", "-p", &pid]).output();
        let refused = refused.expect("timeout starts");
        let said = text(&refused.stderr);
        assert!(!refused.status.success() && said.contains(reason), "{name}: {said}");
        assert_eq!(last_words(program, output), "areas, all counted\n", "{name}");
    }
}

/// Attaches to a program a few times, for longer and longer; returns what the program says at its
/// end. `None` where there is no compiler.
fn attached_again_and_again(name: &str, source: &str) -> Option<String> {
    let dir = fresh(name);
    let program = built(&dir, name, source)?;
    let (program, output, _) = start(&dir, &[&program]);
    let pid = program.0.id().to_string();
    for milliseconds in (1..=20).map(|time| (time * 6).to_string()) {
        lwp(&dir, &["stat", "--timeout", &milliseconds, "-p", &pid]);
    }
    Some(last_words(program, output))
}

/// Tests that attach to a program which says this at its end.
macro_rules! unnoticed {
    ($($test:ident: $name:literal, $said:literal;)*) => {$(
        #[test]
        fn $test() {
            let source = include_str!(concat!("../unnoticed/", $name, ".c"));
            let said = attached_again_and_again($name, source);
            assert!(said.as_deref().is_none_or(|said| said == $said), "{said:?}");
        }
    )*};
}

unnoticed! {
    a_process_makes_threads_at_any_time: "makes_threads", "all ran\n";
    no_call_is_interrupted: "waits", "none was interrupted\n";
    no_signal_is_lost: "signals", "all came\n";
    each_signal_ends_its_call: "wakes", "all woke\n";
    a_process_whose_first_thread_has_ended_goes_on: "leaderless", "it went on\n";
    a_process_whose_children_share_its_memory_goes_on: "vforks", "all ended\n";
    a_process_that_executes_programs_goes_on: "execs", "it went on\n";
}

/// The states of a process's threads, sorted.
fn states(pid: &str) -> String {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it lives");
    let state = |task: std::io::Result<std::fs::DirEntry>| {
        let stat = std::fs::read_to_string(task.ok()?.path().join("stat")).ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    };
    let mut states: Vec<char> = tasks.filter_map(state).collect();
    states.sort_unstable();
    states.into_iter().collect()
}

/// Sends a signal to a process, and waits until all its threads are as they should be.
fn signal(pid: &str, signal: &str, done: impl Fn(&str) -> bool) {
    assert!(Command::new("kill").args([signal, pid]).status().expect("kill starts").success());
    settles(pid, done);
}

/// Waits until all threads are as they should be.
fn settles(pid: &str, done: impl Fn(&str) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !done(&states(pid)) {
        assert!(Instant::now() < deadline, "{}", states(pid));
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_second_signal_does_not_end_the_process() {
    let dir = fresh("signalled");
    let Some(program) = built(&dir, "waits", include_str!("../unnoticed/waits.c")) else { return };
    let (program, output, _) = start(&dir, &[&program]);
    let pid = program.0.id().to_string();
    for _ in 0..10 {
        let mut stat = limited(&dir, &[LWP, "stat", "-p", &pid]);
        let mut stat = stat.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        settles(&pid, |_| is_traced(&pid));
        let lwp = stat.id().to_string();
        for _ in 0..2 {
            // timeout(1) passes it on.
            let _ = Command::new("kill").args(["-INT", &lwp]).status();
        }
        stat.wait().expect("an end");
        settles(&pid, |_| !is_traced(&pid));
    }
    last_words(program, output);
}

#[test]
fn a_shell_may_start_any_number_of_programs() {
    let dir = fresh("shell");
    let script = "echo ready; read line; i=0; while [ $i -lt 300 ]; do /bin/true; i=$((i+1)); done";
    let (mut shell, _output, _) = start(&dir, &["sh", "-c", script]);
    let pid = shell.0.id().to_string();
    let mut stat =
        limited(&dir, &[LWP, "stat", "-x,", "-e", "instructions", "--per-process", "-p", &pid]);
    let stat = stat.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    settles(&pid, |_| is_traced(&pid));
    drop(shell.0.stdin.take());
    let told = stat.wait_with_output().expect("an end");
    let told = text(&told.stderr);
    assert!(!told.contains("not counted") && told.matches("true").count() >= 300, "{told:.2000}");
}

/// Returns whether somebody controls a process.
fn is_traced(pid: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.contains("TracerPid:") && !status.contains("TracerPid:\t0\n")
}

#[test]
fn a_stopped_process_stays_stopped() {
    let dir = fresh("stopped");
    let Some(program) = built(&dir, "waits", include_str!("../unnoticed/waits.c")) else { return };
    let (program, output, _) = start(&dir, &[&program]);
    let pid = program.0.id().to_string();
    let (stopped, goes_on) =
        (|states: &str| states == "TTTTTTT", |states: &str| !states.contains(['T', 't']));
    signal(&pid, "-STOP", stopped);
    lwp(&dir, &["stat", "--timeout", "200", "-p", &pid]);
    settles(&pid, stopped);
    signal(&pid, "-CONT", goes_on);
    // Stopped while it is attached to, it is let go stopped.
    let mut stat = limited(&dir, &[LWP, "stat", "--timeout", "1000", "-p", &pid]);
    let mut stat = stat.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    while !is_traced(&pid) {
        assert!(stat.try_wait().expect("a status").is_none(), "it ends after a second");
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(200));
    let kill = Command::new("kill").args(["-STOP", &pid]).status();
    assert!(kill.expect("kill starts").success());
    assert!(stat.wait().expect("an end").success());
    settles(&pid, stopped);
    signal(&pid, "-CONT", goes_on);
    last_words(program, output);
}
