//! The server, as others see it: a process of its own that takes recordings and shows pages.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::children;
use crate::measure::{Clock, Taken, processor};
use crate::model;
use crate::table::Table;

/// A flame graph of a benchmark, compared with the benchmark beside it.
const DIFFERENTIAL: &str = "/of/benchmark%3Dbenchmark-07/benchmark%3Dbenchmark-08/flame?base=0";

/// The command on the store at `path`.
pub fn command(path: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lwp-fleet"));
    command.env("LWP_FLEET_STORE", path).stdin(Stdio::null());
    command
}

/// A server on a free port.
pub struct Served {
    child: Child,
    address: String,
    /// The secret of a store without tokens.
    secret: String,
}

impl Served {
    /// Starts a server of the store at `path`.
    pub fn start(path: &Path) -> Self {
        let mut child = command(path)
            .args(["serve", "--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("lwp-fleet starts");
        let mut line = String::new();
        let output = child.stdout.as_mut().expect("a pipe");
        BufReader::new(output).read_line(&mut line).expect("an address");
        let (address, path) = line.trim()["http://".len()..].split_once('/').expect("a path");
        let (address, secret) =
            (address.to_owned(), path.strip_prefix("enter/").unwrap_or("").to_owned());
        Self { child, address, secret }
    }

    fn ask(&self, method: &str, path: &str, body: &[u8]) {
        let status = self.request(&self.secret, (method, path), body);
        assert!(matches!(status, 200..=202), "{path}: {status}");
    }

    /// Sends a request with a token, and returns the answer's status once all of it has come.
    pub fn request(&self, token: &str, (method, path): (&str, &str), body: &[u8]) -> u16 {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n\
             Authorization: Bearer {token}\r\n\r\n",
            self.address,
            body.len(),
        );
        // A server may refuse before it has read everything.
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
    }

    /// The time that the server takes for something, and the memory that it has had at most.
    fn taken(&self, work: impl FnOnce()) -> Taken {
        let pid = self.child.id().to_string();
        let clock = Clock::new(processor(&pid).own);
        work();
        clock.taken(processor(&pid).own, self.peak())
    }

    /// MiB that are resident at most.
    pub fn peak(&self) -> f64 {
        children::peak(self.child.id())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Measures taking in, on a store of its own, and pages of a full store.
pub fn serve(full: &Path, empty: &Path, table: &mut Table) {
    let init = command(empty).arg("init").stdout(Stdio::null()).status();
    assert!(init.is_ok_and(|status| status.success()));
    let server = Served::start(empty);
    let texts: Vec<String> = (0..5)
        .flat_map(|commit| (0..model::BENCHMARKS).map(move |b| model::facts(b, commit).write()))
        .collect();
    let (single, many) = texts.split_at(model::BENCHMARKS as usize);
    let send = |text: &String| server.ask("POST", "/v1/recordings", text.as_bytes());
    let taken = server.taken(|| single.iter().for_each(send));
    table.row("server: a recording, one after the other", taken.each(single.len() as f64));
    let taken = server.taken(|| {
        std::thread::scope(|scope| {
            for part in many.chunks(many.len().div_ceil(16)) {
                scope.spawn(move || part.iter().for_each(send));
            }
        });
    });
    table.row("server: a recording of sixteen that come at once", taken.each(many.len() as f64));
    let server = Served::start(full);
    // The server keeps what flame graphs show: only the first one is made.
    for (name, path, times) in [
        ("recordings", "/", 5),
        ("benchmarks", "/benchmarks", 5),
        ("history of a benchmark", "/history?filter=benchmark%3Dbenchmark-07", 5),
        ("steps", "/steps", 5),
        ("top functions", "/top", 5),
        ("a flame graph of everything", "/of/none/all/flame", 1),
        ("a differential flame graph", DIFFERENTIAL, 1),
    ] {
        let taken = server.taken(|| (0..times).for_each(|_| server.ask("GET", path, b"")));
        table.row(format!("server: page of {name}"), taken.each(f64::from(times)));
    }
}
