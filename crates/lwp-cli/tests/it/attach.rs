//! Recording a process that is already running: it is recorded, and lives on unharmed.
//!
//! Promise: R15: python, java
#![allow(clippy::disallowed_methods, reason = "a test may panic")]

use crate::shared::running;
use crate::shared::tools;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use running::start;
use tools::{has, limited, text};

const LWP: &str = env!("CARGO_BIN_EXE_lwp");

fn fresh(name: &str) -> PathBuf {
    tools::fresh("attach", name)
}

fn lwp(dir: &Path, arguments: &[&str]) -> Output {
    let output = limited(dir, &[&[LWP], arguments].concat()).output().expect("timeout starts");
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    output
}

/// Computes until its standard input ends, and says whether it always computed the same.
const BUSY: &str = "
import sys, threading, hashlib
def leaf(n):
    s = 0
    for i in range(n): s = (s * 31 + i) % 1000003
    return s
over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
print('ready', flush=True)
first = leaf(5000)
digest = hashlib.sha256(b'x' * 100000).hexdigest()
rounds = 0
while not over.is_set():
    assert leaf(5000) == first and hashlib.sha256(b'x' * 100000).hexdigest() == digest
    rounds += 1
print('same', rounds, flush=True)
";

#[test]
fn a_busy_python_is_recorded_and_goes_on() {
    let dir = fresh("python");
    if !has("python3") {
        return;
    }
    for (mode, more) in [("exact", &[][..]), ("sampled", &["-c", "50000"])] {
        let (mut python, mut output, line) = start(&dir, &["python3", "-c", BUSY]);
        assert_eq!(line.trim(), "ready");
        let pid = python.0.id().to_string();
        let args = [&["record", "-q", "--timeout", "4000", "-p", &pid], more].concat();
        lwp(&dir, &args);
        assert!(python.0.try_wait().expect("status").is_none(), "{mode}: it has ended");
        let traced = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
        assert!(traced.contains("TracerPid:\t0"), "{mode}: {traced}");
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("maps");
        assert!(!maps.contains("memfd:lwp"), "{mode}: {maps}");
        assert!(!maps.contains("\n70000000-"), "{mode}: an indirect table is left: {maps}");
        drop(python.0.stdin.take());
        let mut rest = String::new();
        output.read_to_string(&mut rest).expect("output");
        assert!(rest.starts_with("same "), "{mode}: {rest}");
        assert!(python.0.wait().expect("an end").success(), "{mode}");
        let report = text(&lwp(&dir, &["report", "--stdio", "--no-demangle"]).stdout);
        assert!(report.contains("PyEval") || report.contains("python"), "{mode}: {report}");
    }
}

/// Two threads that compute; the second says its number, and ends with a line of standard input.
const THREADS: &str = r#"
#include <pthread.h>
#include <poll.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile unsigned sum;

__attribute__((noinline)) void first_work(void) { for (int i = 0; i < 1000; i++) sum += i; }
__attribute__((noinline)) void second_work(void) { for (int i = 0; i < 1000; i++) sum ^= i; }

static void *second(void *unused)
{
    struct pollfd input = {0, POLLIN, 0};
    printf("%ld\n", syscall(SYS_gettid));
    fflush(stdout);
    while (poll(&input, 1, 0) == 0)
        second_work();
    return unused;
}

int main(void)
{
    pthread_t thread;
    pthread_create(&thread, 0, second, 0);
    for (;;)
        first_work();
}
"#;

/// Processor time that a thread has used in user mode, in hundredths of a second.
fn user_time(stat: &str) -> u64 {
    let text = std::fs::read_to_string(stat).expect("a thread that lives");
    let (_, rest) = text.rsplit_once(") ").expect("its name");
    rest.split(' ').nth(11).and_then(|field| field.parse().ok()).expect("a number")
}

fn until(what: &str, happened: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !happened() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Promise: R35
#[test]
fn one_thread_is_recorded_until_it_ends() {
    let dir = fresh("thread");
    if !has("gcc") {
        return;
    }
    std::fs::write(dir.join("threads.c"), THREADS).expect("source");
    let build = ["gcc", "-g", "-O1", "-o", "threads", "threads.c", "-pthread"];
    assert!(limited(&dir, &build).status().expect("it starts").success());
    for more in [&[][..], &["-c", "10007"], &["-c", "1009", "--filter", "second_work"]] {
        let (mut program, _output, line) = start(&dir, &["./threads"]);
        let recorder = std::thread::spawn({
            let (dir, tid) = (dir.clone(), line.trim().to_owned());
            move || {
                lwp(&dir, &[&["record", "-q", "--timeout", "200000", "-t", &tid], more].concat())
            }
        });
        // Once it is traced, and some time has passed, the thread is told to end; the other one
        // goes on.
        let status = format!("/proc/{}/status", program.0.id());
        let traced = || {
            let text = std::fs::read_to_string(&status).expect("status");
            !text.contains("TracerPid:\t0")
        };
        until("lwp has come", traced);
        let stat = format!("/proc/{}/task/{}/stat", program.0.id(), line.trim());
        let begin = user_time(&stat);
        until("the thread has run", || user_time(&stat) >= begin + 30);
        program.0.stdin.take().expect("piped").write_all(b"\n").expect("it reads");
        recorder.join().expect("lwp ends");
        assert!(!traced() && program.0.try_wait().expect("status").is_none(), "{more:?}");
        let report = text(&lwp(&dir, &["report", "--csv", "-s", "tid"]).stdout);
        let tids: Vec<&str> = report.lines().skip(1).collect();
        assert!(tids.len() == 1 && tids[0].contains(line.trim()), "{more:?}: {report}");
        let report = text(&lwp(&dir, &["report", "--csv", "-s", "sym"]).stdout);
        assert!(report.contains("second_work") && !report.contains("first_work"), "{report}");
    }
    // Counts are the thread's too.
    let (program, _output, line) = start(&dir, &["./threads"]);
    let tid = line.trim();
    let args = ["stat", "-j", "--per-thread", "--timeout", "1000", "-e", "instructions", "-t", tid];
    let counts = text(&lwp(&dir, &args).stderr);
    assert!(counts.contains(tid) && counts.lines().count() == 1, "{counts}");
    drop(program);
    let absent = ["record", "-t", "1000000000", "-o", "absent"];
    let output = limited(&dir, &[&[LWP], &absent[..]].concat()).output().expect("timeout starts");
    assert_eq!(output.status.code(), Some(127), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("thread 1000000000: not found"));
}

/// A server that answers every connection with a number it has computed.
const SERVER: &str = r#"
import java.io.*;
import java.net.*;

public class Server {
    static long work(int n) {
        long sum = 0;
        for (int i = 1; i < n; i++) sum = sum * 31 + i % 7;
        return sum;
    }

    public static void main(String[] args) throws Exception {
        ServerSocket server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        System.out.println(server.getLocalPort());
        Thread busy = new Thread(() -> { while (true) work(100000); });
        busy.setDaemon(true);
        busy.start();
        while (true) {
            try (Socket client = server.accept()) {
                client.getOutputStream().write((work(1000) + "\n").getBytes());
            }
        }
    }
}
"#;

/// What the server answers, asked until it does.
fn ask(port: u16) -> Option<String> {
    let deadline = Instant::now() + Duration::from_secs(30);
    while Instant::now() < deadline {
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
            let _ = stream.set_read_timeout(Some(Duration::from_secs(30)));
            let _ = stream.flush();
            let mut answer = String::new();
            if stream.read_to_string(&mut answer).is_ok() && !answer.is_empty() {
                return Some(answer);
            }
        }
    }
    None
}

#[test]
fn a_java_server_is_recorded_and_goes_on_serving() {
    let dir = fresh("java");
    if !has("java") || !has("javac") {
        return;
    }
    std::fs::write(dir.join("Server.java"), SERVER).expect("source");
    let compiled = Command::new("javac").arg("Server.java").current_dir(&dir).status();
    assert!(compiled.is_ok_and(|status| status.success()));
    let (mut java, _output, line) = start(&dir, &["java", "-cp", ".", "Server"]);
    let port: u16 = line.trim().parse().expect("a port");
    let before = ask(port).expect("an answer before");
    let pid = java.0.id().to_string();
    let recorder = std::thread::spawn({
        let (dir, pid) = (dir.clone(), pid.clone());
        move || lwp(&dir, &["record", "-q", "-c", "1M", "--timeout", "3000", "-p", &pid])
    });
    assert_eq!(ask(port).as_ref(), Some(&before), "while it is recorded");
    recorder.join().expect("lwp ends");
    assert!(java.0.try_wait().expect("status").is_none(), "it has ended");
    assert_eq!(ask(port).as_ref(), Some(&before), "after it was recorded");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
    assert!(status.contains("TracerPid:\t0"), "{status}");
    let report = text(&lwp(&dir, &["report", "--stdio"]).stdout);
    assert!(report.contains("sampled, one in 1,000,000"), "{report}");
}
