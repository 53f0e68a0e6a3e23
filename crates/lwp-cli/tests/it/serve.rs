//! `lwp serve` on a recording of a real program.

use std::collections::BTreeMap;
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

/// A server of the directory's recording, and the host and path of its address.
fn serving(dir: &Recorded) -> (Serving, String, String) {
    let mut serve = Command::new(LWP);
    serve.arg("serve");
    started(dir, serve)
}

/// Starts a server by a command of the caller's, in a directory with a recording.
fn started(dir: &Recorded, mut serve: Command) -> (Serving, String, String) {
    serve.current_dir(&dir.0).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut serving = Serving(serve.spawn().expect("lwp starts"));
    let mut lines = BufReader::new(serving.0.stdout.take().expect("a pipe")).lines();
    let url = lines.next().expect("a line").expect("text");
    let (host, path) =
        url.strip_prefix("http://").and_then(|rest| rest.split_once('/')).expect(&url);
    (serving, host.to_owned(), format!("/{path}"))
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
    let (_serving, host, path) = serving(&dir);
    assert!(host.starts_with("127.0.0.1:") && path.len() == 34, "{host}{path}");
    let host = host.as_str();
    let page = get(host, &path);
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("/bin/true"), "{page}");
    // The dynamic linker's work is in every program.
    let functions = get(host, &format!("{path}functions"));
    assert!(functions.contains("_dl_relocate_object"), "{functions}");
    let export = get(host, &format!("{path}export?format=callgrind"));
    assert!(export.contains("# callgrind format"), "{export}");
    assert!(get(host, "/functions").starts_with("HTTP/1.1 403"));
}

/// Promise: R121
#[test]
fn connections_that_say_nothing_keep_nobody_out() {
    let dir = Recorded::new("silent");
    let mut serve = Command::new("sh");
    serve.args(["-c", "ulimit -n 64 && exec \"$0\" serve", LWP]);
    let (mut serving, host, path) = started(&dir, serve);
    let silent: Vec<TcpStream> = (0..200)
        .map(|_| {
            let mut stream = TcpStream::connect(&host).expect("the server listens");
            write!(stream, "GET / HTTP/1.1\r\nHost: {host}\r\nX: ").expect("it is sent");
            stream
        })
        .collect();
    for file in ["", "functions", "summary"] {
        let page = get(&host, &format!("{path}{file}"));
        assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    }
    drop(silent);
    assert!(get(&host, &path).starts_with("HTTP/1.1 200"));
    assert!(serving.0.try_wait().expect("a status").is_none(), "the server has ended");
}

/// The text between two others, and what follows.
fn between<'a>(text: &'a str, from: &str, to: &str) -> Option<(&'a str, &'a str)> {
    let rest = &text[text.find(from)? + from.len()..];
    let end = rest.find(to)?;
    Some((&rest[..end], &rest[end..]))
}

/// A number as pages write it.
fn number(text: &str) -> u64 {
    text.replace(',', "").parse().unwrap_or_else(|_| panic!("no number: {text}"))
}

/// Pages add samples up by contexts, reports by stacks: both come to the same counts.
///
/// Promise: R115
#[test]
fn pages_count_what_reports_count() {
    let dir = Recorded::new("counts");
    let script = "i=0; while [ $i -lt 300 ]; do i=$((i+1)); x=$(echo $i); done";
    let mut record = Command::new(LWP);
    record.current_dir(&dir.0).args(["record", "-q", "-c", "1000", "--", "/bin/sh", "-c", script]);
    assert!(record.status().expect("lwp starts").success());
    let mut report = Command::new(LWP);
    report.current_dir(&dir.0).args(["report", "--csv", "-s", "dso,sym"]);
    let csv = report.output().expect("lwp starts").stdout;
    let csv = String::from_utf8(csv).expect("text");
    // Own and inclusive counts by name and module, and the number of functions that have both.
    let mut expected: BTreeMap<(String, String), ([u64; 2], usize)> = BTreeMap::new();
    for line in csv.lines().skip(1) {
        let cells: Vec<&str> = line.splitn(4, ',').collect();
        let [own, total, module, name] = cells[..] else { panic!("{line}") };
        let name = name.trim_matches('"').to_owned();
        // Functions of one name in two builds of a module are two rows, and so are two of one file.
        let (sums, rows) = expected.entry((name, module.to_owned())).or_default();
        *sums = [sums[0] + number(own), sums[1] + number(total)];
        *rows += 1;
    }
    let (_serving, host, path) = serving(&dir);
    let page = get(&host, &format!("{path}functions?n=100000"));
    let mut rest = page.as_str();
    let (mut sum, mut seen) = (0, 0);
    while let Some((row, after)) = between(rest, "<tr data-row>", "</tr>") {
        rest = after;
        let (own, _) = between(row, "<td class=\"num\">", "</td>").expect("a count");
        let own = if own.is_empty() { 0 } else { number(own) };
        sum += own;
        let (link, _) = between(row, "href=\"", "\"").expect("a link");
        let (name, _) = between(row, "title=\"", "\"").expect("a name");
        let (module, _) = between(row, "<td class=\"module\">", "</td>").expect("a module");
        let known = expected.get(&(name.to_owned(), module.to_owned()));
        let Some(([wanted, total], 1)) = known else { continue };
        // Others have their names in a module of several builds, or in markup.
        if own == *wanted && seen < 40 {
            seen += 1;
            let calls = get(&host, &format!("{path}{}", link.replace("&amp;", "&")));
            let (_, after) = between(&calls, "<dt>Total", "</dt>").expect("a total");
            let (inclusive, _) = between(after, "<small>", "</small>").expect("a count");
            assert_eq!(number(inclusive), *total, "{name} in {module}");
        }
    }
    assert!(seen >= 10, "{seen} functions were the same");
    assert_eq!(sum, expected.values().map(|(counts, _)| counts[0]).sum::<u64>());
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
