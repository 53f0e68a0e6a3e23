//! `lwp serve` on a recording of a real program.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

const LWP: &str = env!("CARGO_BIN_EXE_lwp");

/// A directory that is removed at the end, with a recording of `true` in it.
struct Recorded(PathBuf);

impl Recorded {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("lwp-serve-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let mut record = Command::new(LWP);
        record.current_dir(&dir).args(["record", "-q", "--", "/bin/true"]);
        assert!(record.status().expect("lwp starts").success());
        Self(dir)
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server that ends with the test.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn get(host: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(host).expect("the server listens");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
        .expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn a_recording_is_served_at_the_address_that_is_printed() {
    let dir = Recorded::new("printed");
    let mut serve = Command::new(LWP);
    serve.current_dir(&dir.0).arg("serve").stdout(Stdio::piped()).stderr(Stdio::null());
    let mut serving = Serving(serve.spawn().expect("lwp starts"));
    let mut lines = BufReader::new(serving.0.stdout.take().expect("a pipe")).lines();
    let url = lines.next().expect("a line").expect("text");
    let (host, path) =
        url.strip_prefix("http://").and_then(|rest| rest.split_once('/')).expect(&url);
    let path = format!("/{path}");
    assert!(host.starts_with("127.0.0.1:") && path.len() == 34, "{url}");
    let page = get(host, &path);
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("/bin/true"), "{page}");
    // The dynamic linker's work is in every program.
    let functions = get(host, &format!("{path}functions"));
    assert!(functions.contains("_dl_relocate_object"), "{functions}");
    let export = get(host, &format!("{path}export?format=callgrind"));
    assert!(export.contains("# callgrind format"), "{export}");
    assert!(get(host, "/functions").starts_with("HTTP/1.1 403"));
}

#[test]
fn what_cannot_be_served_is_said() {
    let dir = Recorded::new("said");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let cases = [
        (vec!["serve", "missing.data"], "make a recording first"),
        (vec!["serve", "--port", &port], "without --port any free one is taken"),
        (vec!["serve", "--source", "nothing"], "PREFIX=PATH"),
    ];
    for (words, help) in cases {
        let output =
            Command::new(LWP).current_dir(&dir.0).args(&words).output().expect("lwp starts");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.code() == Some(125) || output.status.code() == Some(2),
            "{words:?}: {error}"
        );
        assert!(error.contains(help), "{words:?}: {error}");
    }
}
