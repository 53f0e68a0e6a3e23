//! A store in a bucket: on a server of S3's protocol on this machine. Skipped with a message where there is none (PyPI: `moto[server]`).
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]
#![allow(clippy::disallowed_methods, reason = "a test without threads has failed")]

#[path = "shared/facts.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod facts;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use facts::{FUNCTIONS, facts};

/// A server of buckets that lives as long as a test.
struct Buckets {
    child: Child,
    port: u16,
}

impl Buckets {
    /// Starts one; `None`, with a message, where there is none. `LWP_MOTO_SERVER` names the program.
    fn start() -> Option<Self> {
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
        let buckets = Self { child, port };
        let begun = Instant::now();
        while buckets.ask("PUT", "/bucket").is_none_or(|status| status != 200) {
            assert!(begun.elapsed() < Duration::from_secs(120), "moto_server never answers");
            std::thread::sleep(Duration::from_millis(100));
        }
        Some(buckets)
    }

    fn ask(&self, method: &str, path: &str) -> Option<u16> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        let head = "Host: 127.0.0.1\r\nContent-Length: 0\r\nConnection: close";
        write!(stream, "{method} {path} HTTP/1.1\r\n{head}\r\n\r\n").ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok()?;
        String::from_utf8_lossy(&answer).split(' ').nth(1)?.parse().ok()
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lwp-fleet"));
        command
            .args(words)
            .env("LWP_FLEET_STORE", "s3://bucket/some/store")
            .env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", self.port))
            .env("AWS_ACCESS_KEY_ID", "key-of-a-test")
            .env("AWS_SECRET_ACCESS_KEY", "secret-of-a-test")
            .env("AWS_REGION", "us-east-1")
            .stdin(Stdio::null());
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("lwp-fleet starts")
    }

    #[track_caller]
    fn fleet(&self, words: &[&str]) -> String {
        let output = self.run(words);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {error}");
        assert!(!error.contains("secret-of-a-test"), "{error}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Buckets {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_bucket_holds_what_a_directory_does_whoever_writes_and_whoever_is_killed() {
    let Some(buckets) = Buckets::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = |n: u64| {
        let path = dir.path().join(format!("{n}.facts"));
        std::fs::write(&path, facts(n, 1)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let missing = buckets.run(&["list"]);
    assert!(String::from_utf8_lossy(&missing.stderr).contains("there is no store"));
    buckets.fleet(&["init"]);
    assert_eq!(buckets.run(&["init"]).status.code(), Some(125));
    // Four writers of five each, of which two have the same ones.
    std::thread::scope(|scope| {
        for worker in 0..4_u64 {
            let (buckets, file) = (&buckets, &file);
            let from = 5 * worker.min(2);
            scope.spawn(move || {
                for n in from..from + 5 {
                    buckets.fleet(&["add", &file(n)]);
                }
            });
        }
    });
    let count = |table: &str| {
        let sql = format!("select count(*) from {table}");
        let text = buckets.fleet(&["sql", "--format", "csv", &sql]);
        text.lines().nth(1).and_then(|line| line.parse::<u64>().ok()).expect("a number")
    };
    assert_eq!([count("recordings"), count("functions")], [15, 15 * FUNCTIONS]);
    // Writers that are killed leave nothing in part.
    let begun = Instant::now();
    buckets.fleet(&["add", &file(20)]);
    let whole = begun.elapsed();
    for n in 21..31_u64 {
        let mut command = buckets.command(&["add", &file(n)]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(whole * (n as u32 - 20) / 10);
        let _ = child.kill();
        child.wait().unwrap();
    }
    let recordings = count("recordings");
    assert_eq!(count("functions"), recordings * FUNCTIONS);
    let all: Vec<String> = (0..31).filter(|n| !(15..20).contains(n)).map(file).collect();
    let words: Vec<&str> = ["add"].into_iter().chain(all.iter().map(String::as_str)).collect();
    assert_eq!(buckets.fleet(&words).matches(" already there").count() as u64, recordings);
    buckets.fleet(&["compact"]);
    assert_eq!([count("recordings"), count("functions")], [26, 26 * FUNCTIONS]);
    buckets.fleet(&["check", "--deep"]);
    buckets.fleet(&["vacuum", "--hours", "0", "--force"]);
    buckets.fleet(&["check", "--deep"]);
    assert!(buckets.fleet(&["report", "-n", "1"]).contains("function_19"));
}
