//! A server of S3's protocol on this machine, that lives as long as a test. `LWP_MOTO_SERVER` names the program (PyPI: `moto[server]`).
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The program, in tests of the package that has it.
const PROGRAM: Option<&str> = option_env!("CARGO_BIN_EXE_lwp-fleet");

/// A server of buckets, with one that is called `bucket`.
pub struct Buckets {
    child: Child,
    pub port: u16,
}

impl Buckets {
    /// Starts one; `None`, with a message, where there is none.
    pub fn start() -> Option<Self> {
        let named = std::env::var_os("LWP_MOTO_SERVER");
        let program = named.unwrap_or_else(|| "moto_server".into());
        let port = TcpListener::bind("127.0.0.1:0").ok()?.local_addr().ok()?.port();
        let mut command = Command::new(program);
        command.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let Ok(child) = child else {
            eprintln!(
                "skipped: there is no moto_server (PyPI: moto[server]); LWP_MOTO_SERVER names one"
            );
            return None;
        };
        let mut buckets = Self { child, port };
        let begun = Instant::now();
        while buckets.put("/bucket", &[]).is_none_or(|status| status != 200) {
            if let Ok(Some(status)) = buckets.child.try_wait() {
                eprintln!("skipped: moto_server does not run: {status}");
                return None;
            }
            assert!(begun.elapsed() < Duration::from_secs(120), "moto_server never answers");
            std::thread::sleep(Duration::from_millis(100));
        }
        Some(buckets)
    }

    /// Puts bytes there; returns the answer's status.
    fn put(&self, path: &str, bytes: &[u8]) -> Option<u16> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        let head = format!("Host: 127.0.0.1\r\nContent-Length: {}\r\n", bytes.len());
        write!(stream, "PUT {path} HTTP/1.1\r\n{head}Connection: close\r\n\r\n").ok()?;
        stream.write_all(bytes).ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok()?;
        String::from_utf8_lossy(&answer).split(' ').nth(1)?.parse().ok()
    }

    /// Copies a directory into the bucket.
    pub fn copy(&self, directory: &Path, to: &str) {
        for entry in std::fs::read_dir(directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_str().expect("text");
            let to = format!("{to}/{name}");
            if path.is_dir() {
                self.copy(&path, &to);
            } else {
                let bytes = std::fs::read(&path).expect("a file");
                assert_eq!(self.put(&format!("/bucket/{to}"), &bytes), Some(200), "{to}");
            }
        }
    }

    pub fn command(&self, store: &str, words: &[&str]) -> Command {
        through(self.port, store, words)
    }

    pub fn run(&self, store: &str, words: &[&str]) -> Output {
        self.command(store, words).output().expect("lwp-fleet starts")
    }

    #[track_caller]
    pub fn fleet(&self, store: &str, words: &[&str]) -> String {
        let output = self.run(store, words);
        let error = String::from_utf8_lossy(&output.stderr);
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{words:?}: {error}{out}");
        assert!(!error.contains("secret-of-a-test"), "{error}");
        out
    }

    /// The first row of an answer, whose columns are numbers.
    #[track_caller]
    pub fn numbers(&self, store: &str, sql: &str) -> Vec<u64> {
        let text = self.fleet(store, &["sql", "--format", "csv", sql]);
        let line = text.lines().nth(1).expect("a row");
        line.split(',').map(|cell| cell.parse().unwrap_or(0)).collect()
    }
}

/// A command on a store in the bucket, which a port of this machine leads to.
pub fn through(port: u16, store: &str, words: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM.expect("lwp-fleet is built"));
    command
        .args(words)
        .env("LWP_FLEET_STORE", format!("s3://bucket/{store}"))
        .env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}"))
        .env("AWS_ACCESS_KEY_ID", "key-of-a-test")
        .env("AWS_SECRET_ACCESS_KEY", "secret-of-a-test")
        .env("AWS_REGION", "us-east-1")
        .stdin(Stdio::null());
    command
}

impl Drop for Buckets {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
