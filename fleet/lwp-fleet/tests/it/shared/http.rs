//! A server that runs as long as a test, and requests to it, byte by byte.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

/// `lwp fleet serve`.
pub struct Served {
    pub child: Child,
    _output: BufReader<ChildStdout>,
    /// The address at which it listens.
    pub address: String,
    /// The secret that it printed, if its store has no tokens.
    pub secret: String,
}

impl Served {
    /// Starts it on a free port.
    pub fn start(store: &Path, more: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_lwp-fleet"))
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(more)
            .env("LWP_FLEET_STORE", store)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("lwp-fleet starts");
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        output.read_line(&mut line).expect("an address");
        let rest = line.trim().strip_prefix("http://").expect("an address");
        let (address, secret) = rest.split_once('/').expect("a path");
        let secret = secret.strip_prefix("enter/").unwrap_or("").to_owned();
        Self { child, _output: output, address: address.to_owned(), secret }
    }

    /// Ends it as an operator would, and waits.
    pub fn end(&mut self) {
        let pid = self.child.id().to_string();
        let killed = Command::new("kill").args(["-TERM", &pid]).status();
        assert!(killed.is_ok_and(|status| status.success()));
        assert!(self.child.wait().expect("it ends").success());
    }

    /// Sends a request with the printed secret; returns status, head and body.
    pub fn ask(&self, method: &str, path: &str, body: &[u8]) -> (u16, String, String) {
        self.with(&self.secret, method, path, &[], body)
    }

    /// Sends a request with another secret, and with more lines in its head.
    pub fn with(
        &self,
        secret: &str,
        method: &str,
        path: &str,
        lines: &[&str],
        body: &[u8],
    ) -> (u16, String, String) {
        let mut head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n",
            self.address,
            body.len()
        );
        if !secret.is_empty() {
            head += &format!("Authorization: Bearer {secret}\r\n");
        }
        for line in lines {
            head += &format!("{line}\r\n");
        }
        let mut bytes = (head + "\r\n").into_bytes();
        bytes.extend_from_slice(body);
        self.send(&bytes)
    }

    /// Sends bytes, and returns what comes back.
    pub fn send(&self, bytes: &[u8]) -> (u16, String, String) {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(120))).expect("a timeout");
        // A server may refuse before it has read everything.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.unwrap_or(0), head.to_owned(), body.to_owned())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
