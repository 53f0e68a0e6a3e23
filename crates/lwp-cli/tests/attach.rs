//! Recording a process that is already running: it is recorded, and lives on unharmed.

#[path = "shared/tools.rs"]
mod tools;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

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

/// A process that is ended with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a program, and waits for its first line of output.
fn start(dir: &Path, command: &[&str]) -> (Running, BufReader<std::process::ChildStdout>, String) {
    let mut child = Command::new(command[0])
        .args(&command[1..])
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("program starts");
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    output.read_line(&mut line).expect("a line");
    (Running(child), output, line)
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
        let args = [&["record", "-q", "--timeout", "1500", "-p", &pid], more].concat();
        lwp(&dir, &args);
        assert!(python.0.try_wait().expect("status").is_none(), "{mode}: it has ended");
        let traced = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
        assert!(traced.contains("TracerPid:\t0"), "{mode}: {traced}");
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("maps");
        assert!(!maps.contains("memfd:lwp"), "{mode}: {maps}");
        drop(python.0.stdin.take());
        let mut rest = String::new();
        output.read_to_string(&mut rest).expect("output");
        assert!(rest.starts_with("same "), "{mode}: {rest}");
        assert!(python.0.wait().expect("an end").success(), "{mode}");
        let report = text(&lwp(&dir, &["report", "--stdio", "--no-demangle"]).stdout);
        assert!(report.contains("PyEval") || report.contains("python"), "{mode}: {report}");
    }
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
