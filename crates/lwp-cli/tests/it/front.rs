//! lwp in front of a program: streams, ignored signals, and signals that a supervisor sends to it.
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]
#![allow(clippy::disallowed_methods, reason = "a test without a thread fails")]

use crate::shared::tools;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use tools::{fresh, has, text};

const LWP: &str = env!("CARGO_BIN_EXE_lwp");
/// The time that an event is waited for: longer than it takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// The ways to run a program with lwp in front of it, and without.
const WAYS: [&[&str]; 4] = [
    &[],
    &[LWP, "run", "--"],
    &[LWP, "stat", "-o", "/dev/null", "--"],
    &[LWP, "record", "-q", "-o", "/dev/null", "--"],
];

/// The output of a line of sh, in which `$@` is the program, and `lwp` in front of it or not.
fn line(line: &str, way: &[&str], program: &[&str]) -> String {
    let mut command = Command::new("timeout");
    command.args(["-k", "1", "600", "sh", "-c", line, "sh"]).args(way).args(program);
    let output = command.stdin(Stdio::null()).output().expect("sh starts");
    text(&output.stdout) + &text(&output.stderr)
}

#[test]
fn closed_streams_stay_closed() {
    for fd in 0..3 {
        let seen = |way: &[&str]| {
            let look = format!("test -e /proc/self/fd/{fd} || exit 3");
            let script = format!("exec 9>&1 {fd}>&-; \"$@\"; echo $? >&9");
            line(&script, way, &["sh", "-c", &look])
        };
        for way in &WAYS[..2] {
            assert_eq!(seen(way), "3\n", "stream {fd} under {way:?}");
        }
    }
    // What cannot be written is an error, as it is natively.
    for way in &WAYS[..2] {
        let script = "\"$@\" >&- 2>/dev/null; echo $? >&2";
        assert_eq!(line(script, way, &["/bin/echo", "hi"]), "1\n", "{way:?}");
    }
}

#[test]
fn ignored_signals_stay_ignored() {
    for trap in ["trap '' PIPE", "trap '' HUP USR1 PIPE ALRM CHLD", "true"] {
        let seen = |way: &[&str]| {
            line(&format!("{trap}; \"$@\""), way, &["grep", "SigIgn", "/proc/self/status"])
        };
        let native = seen(WAYS[0]);
        assert!(native.starts_with("SigIgn:"), "{native}");
        for way in &WAYS[1..] {
            assert_eq!(seen(way), native, "{trap} under {way:?}");
        }
    }
}

#[test]
fn a_program_that_writes_to_nobody_dies_of_it() {
    for way in &WAYS[..2] {
        let script = "\"$@\"; echo $? >&2";
        let script = format!("({script}) | head -n 1 >/dev/null");
        assert_eq!(line(&script, way, &["yes"]), "141\n", "{way:?}");
    }
}

/// A program that is ended with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn start(way: &[&str], program: &[&str]) -> Self {
        let words = [way, program].concat();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(Stdio::null()).process_group(0);
        Self(command.spawn().expect("it starts"))
    }

    fn ends(&mut self) -> std::process::ExitStatus {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if let Some(status) = self.0.try_wait().expect("a child") {
                return status;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("it does not end");
    }
}

/// The result of `work`, if that comes in time.
fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (done, result) = channel();
    std::thread::spawn(move || {
        let _ = done.send(work());
    });
    result.recv_timeout(PATIENCE).ok()
}

#[test]
fn readers_learn_when_the_program_closes_its_output() {
    for way in &WAYS[..3] {
        let mut running = Running::start(way, &["sh", "-c", "echo x; exec >&-; read line; exit 5"]);
        let mut output = running.0.stdout.take().expect("piped");
        let read = in_time(move || {
            let mut all = String::new();
            output.read_to_string(&mut all).map(|_| all)
        });
        let all = read.expect("the end is seen while the program runs").expect("text");
        assert_eq!(all, "x\n", "{way:?}");
        let mut input = running.0.stdin.take().expect("piped");
        input.write_all(b"go on\n").expect("the program reads");
        assert_eq!(running.ends().code(), Some(5), "{way:?}");
    }
}

#[test]
fn writers_learn_when_the_program_closes_its_input() {
    for way in &WAYS[..3] {
        let mut running =
            Running::start(way, &["sh", "-c", "exec <&-; echo closed; exec sleep 600"]);
        let mut output = BufReader::new(running.0.stdout.take().expect("piped"));
        let mut closed = String::new();
        output.read_line(&mut closed).expect("text");
        let mut input = running.0.stdin.take().expect("piped");
        // More than a pipe holds.
        let written = in_time(move || input.write_all(&vec![0; 1 << 20]).map_err(|it| it.kind()));
        assert_eq!(written.expect("it does not wait"), Err(ErrorKind::BrokenPipe), "{way:?}");
    }
}

/// A server that tells of its signals, one a line, with their senders, until it is terminated.
const SERVER: &str = r#"
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
static volatile int over;
static void handler(int number, siginfo_t *info, void *context) {
    char line[100];
    int length = snprintf(line, sizeof line, "%d %d %d\n", number, info->si_code, info->si_pid);
    if (write(1, line, length) < 0 || number == SIGTERM) over = 1;
    (void)context;
}
int main(void) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    sigset_t all, none;
    sigfillset(&all);
    sigemptyset(&none);
    sigprocmask(SIG_BLOCK, &all, NULL);
    sigfillset(&action.sa_mask);
    for (int i = 1; i <= 64; i++)
        if (i != SIGKILL && i != SIGSTOP && i != SIGCHLD) sigaction(i, &action, NULL);
    if (write(1, "ready\n", 6) != 6) return 1;
    while (!over) sigsuspend(&none);
    return 7;
}
"#;

fn server(name: &str) -> Option<PathBuf> {
    if !has("gcc") {
        return None;
    }
    let dir = fresh("front", name);
    let (source, binary) = (dir.join("server.c"), dir.join("server"));
    std::fs::write(&source, SERVER).expect("written");
    let mut gcc = Command::new("gcc");
    let output = gcc.arg("-o").arg(&binary).arg(&source).output().expect("gcc starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    Some(binary)
}

fn next_line(output: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    output.read_line(&mut line).expect("text");
    line
}

/// Sends a signal, and returns its sender.
fn send(signal: &str, to: &str) -> u32 {
    let mut kill =
        Command::new("kill").args(["-s", signal, "--", to]).spawn().expect("kill starts");
    assert!(kill.wait().expect("a child").success(), "{signal} to {to}");
    kill.id()
}

/// Signals by name and number.
const SIGNALS: [(&str, i32); 9] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("USR1", 10),
    ("USR2", 12),
    ("ALRM", 14),
    ("WINCH", 28),
    ("HUP", 1),
    ("TERM", 15),
];

#[test]
fn signals_to_lwp_are_the_program_s() {
    let Some(server) = server("signals") else { return };
    for way in WAYS {
        let mut running = Running::start(way, &[server.to_str().expect("text")]);
        let mut output = BufReader::new(running.0.stdout.take().expect("piped"));
        assert_eq!(next_line(&mut output), "ready\n", "{way:?}");
        let pid = running.0.id().to_string();
        for (name, number) in SIGNALS {
            let sender = send(name, &pid);
            assert_eq!(next_line(&mut output), format!("{number} 0 {sender}\n"), "{way:?}");
        }
        assert_eq!(running.ends().code(), Some(7), "{way:?}");
    }
}

#[test]
fn real_time_signals_to_lwp_are_the_program_s() {
    let Some(server) = server("real_time") else { return };
    for way in &WAYS[..2] {
        let mut running = Running::start(way, &[server.to_str().expect("text")]);
        let mut output = BufReader::new(running.0.stdout.take().expect("piped"));
        assert_eq!(next_line(&mut output), "ready\n", "{way:?}");
        let pid = running.0.id().to_string();
        for number in ["36", "40", "64"] {
            let sender = send(number, &pid);
            assert_eq!(next_line(&mut output), format!("{number} 0 {sender}\n"), "{way:?}");
        }
    }
}

#[test]
fn a_signal_to_the_whole_job_comes_once() {
    let Some(server) = server("job") else { return };
    for way in &WAYS[..3] {
        let mut running = Running::start(way, &[server.to_str().expect("text")]);
        let mut output = BufReader::new(running.0.stdout.take().expect("piped"));
        assert_eq!(next_line(&mut output), "ready\n", "{way:?}");
        let group = format!("-{}", running.0.id());
        for (name, number) in SIGNALS {
            let sender = send(name, &group);
            assert_eq!(next_line(&mut output), format!("{number} 0 {sender}\n"), "{way:?}");
        }
        assert_eq!(running.ends().code(), Some(7), "{way:?}");
        assert_eq!(next_line(&mut output), "", "{way:?}");
    }
}

#[test]
fn a_program_that_a_signal_to_lwp_kills_has_died_of_that_signal() {
    for way in &WAYS[..3] {
        for (name, number) in [("HUP", 1), ("ALRM", 14), ("USR1", 10), ("40", 40), ("TERM", 15)] {
            let mut running = Running::start(way, &["sh", "-c", "echo ready; exec sleep 600"]);
            let mut output = BufReader::new(running.0.stdout.take().expect("piped"));
            assert_eq!(next_line(&mut output), "ready\n");
            send(name, &running.0.id().to_string());
            assert_eq!(running.ends().signal(), Some(number), "{way:?}");
        }
    }
}

#[test]
fn signals_that_lwp_was_started_with_blocked_or_ignored_reach_a_program_that_wants_them() {
    let Some(server) = server("blocked") else { return };
    let program = server.to_str().expect("text");
    for way in &WAYS[..2] {
        let words = [way, &[program][..]].concat();
        let script = format!("trap '' USR1 HUP; exec {}", words.join(" "));
        let mut running = Running::start(&[], &["sh", "-c", &script]);
        let mut output = BufReader::new(running.0.stdout.take().expect("piped"));
        assert_eq!(next_line(&mut output), "ready\n", "{way:?}");
        let pid = running.0.id().to_string();
        for (name, number) in [("USR1", 10), ("HUP", 1), ("TERM", 15)] {
            let sender = send(name, &pid);
            assert_eq!(next_line(&mut output), format!("{number} 0 {sender}\n"), "{way:?}");
        }
        assert_eq!(running.ends().code(), Some(7), "{way:?}");
    }
}
