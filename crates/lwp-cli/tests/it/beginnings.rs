//! Programs that end while lwp starts them, and runs of very many of them.
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::shared::tools::fresh;

const LWP: &str = env!("CARGO_BIN_EXE_lwp");

/// Children of a process, whichever of its threads has made them.
fn children(pid: u32) -> Vec<i32> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("children")).ok());
    let text: String = lists.collect();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// The program that lwp has just begun to make.
fn program_of(lwp: &mut Child) -> Option<i32> {
    let end = Instant::now() + Duration::from_secs(30);
    while Instant::now() < end && lwp.try_wait().expect("it can be waited for").is_none() {
        if let Some(child) = children(lwp.id()).first() {
            return Some(*child);
        }
    }
    None
}

/// Wherever in its beginning SIGKILL meets the program, lwp ends as it did.
///
/// Promise: F19
#[test]
fn a_program_killed_while_it_starts_is_a_killed_program() {
    let mut met = 0;
    for round in 0..120u64 {
        let mut command = Command::new(LWP);
        command.args([
            if round % 2 == 0 { "run" } else { "stat" },
            "--no-cache",
            "--",
            "/bin/sleep",
            "60",
        ]);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut lwp = command.spawn().expect("lwp starts");
        let Some(program) = program_of(&mut lwp) else {
            let output = lwp.wait_with_output().expect("lwp ends");
            panic!("no program: {output:?}");
        };
        // The first ones at once, then later and later.
        let wait = Instant::now() + Duration::from_micros(round.saturating_sub(20) * 150);
        while Instant::now() < wait {
            std::hint::spin_loop();
        }
        let pid = rustix::process::Pid::from_raw(program).expect("a process id");
        met +=
            usize::from(rustix::process::kill_process(pid, rustix::process::Signal::KILL).is_ok());
        let output = lwp.wait_with_output().expect("lwp ends");
        let errors = String::from_utf8_lossy(&output.stderr);
        let killed = output.status.signal() == Some(9);
        assert!(killed, "round {round}: {}: {errors}", output.status);
    }
    assert_eq!(met, 120, "every program was there to be killed");
}

/// A program that makes many children, and looks at its maker's memory, in kB, before and after
/// most of them.
const FORKS: &str = r#"
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static long memory(void) {
    char line[256];
    long kb = -1;
    sprintf(line, "/proc/%d/status", getppid());
    FILE *file = fopen(line, "r");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, "VmRSS:", 6)) kb = atol(line + 6);
    if (file) fclose(file);
    return kb;
}
static void forks(int times) {
    while (times-- > 0) {
        pid_t child = fork();
        if (!child) _exit(0);
        if (child < 0 || waitpid(child, 0, 0) != child) exit(1);
    }
}
int main(int count, char **words) {
    forks(500);
    long before = memory();
    forks(atoi(words[1]));
    printf("%ld\n", memory() - before);
    return 0;
}
"#;

/// The program in a folder of the test's own: tests run beside one another.
fn compiled(test: &str) -> Option<PathBuf> {
    let dir = fresh("beginnings", test);
    let (source, program) = (dir.join("forks.c"), dir.join("forks"));
    std::fs::write(&source, FORKS).expect("a source");
    let compiled =
        Command::new("cc").args(["-O1", "-static", "-o"]).arg(&program).arg(&source).status();
    compiled.is_ok_and(|status| status.success()).then_some(program)
}

/// Kilobytes by which lwp grows while the program makes so many processes.
fn growth(program: &Path, options: &[&str], processes: u32) -> i64 {
    let mut command = Command::new(LWP);
    command.args(options).args(["-o", "/dev/null", "--"]).arg(program).arg(processes.to_string());
    let output = command.output().expect("lwp starts");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number")
}

/// Promise: O7
#[test]
fn processes_that_have_ended_take_no_memory() {
    let Some(program) = compiled("memory") else {
        eprintln!("skipped: no compiler that links statically");
        return;
    };
    const PROCESSES: u32 = 6000;
    let folded = growth(&program, &["stat"], PROCESSES);
    assert!(folded < 1500, "{folded} kB for {PROCESSES} processes");
    // Asked for one by one they are all there; so the measure sees them.
    let whole = growth(&program, &["stat", "--per-process"], PROCESSES);
    assert!(whole > folded + 1500, "{whole} kB, {folded} kB folded");
}

#[test]
fn the_sum_is_that_of_the_processes() {
    let Some(program) = compiled("sum") else {
        eprintln!("skipped: no compiler that links statically");
        return;
    };
    let counts = |options: &[&str]| -> Vec<u64> {
        let mut command = Command::new(LWP);
        command.args(["stat", "-x,", "-e", "instructions", "-o", "-"]).args(options).arg("--");
        let output = command.arg(&program).arg("100").output().expect("lwp starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let column = usize::from(!options.is_empty());
        let rows = text.lines().filter(|line| line.contains(",instructions,"));
        rows.filter_map(|line| line.split(',').nth(column)?.parse().ok()).collect()
    };
    let (sum, each) = (counts(&[]), counts(&["--per-process"]));
    assert_eq!((sum.len(), each.len()), (1, 601));
    // What the program reads of its maker differs by some digits.
    let (sum, each) = (sum[0], each.iter().sum::<u64>());
    assert!(sum.abs_diff(each) < 5_000 && sum > 100_000, "{sum} and {each}");
}
