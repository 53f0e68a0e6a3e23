//! A bucket that fails: each request in turn is refused, lost, answered wrongly though it was done, cut off or late. Nothing is half visible, and
//! nothing is there twice. Skipped with a message where there is no server of S3's protocol (PyPI: `moto[server]`).
//!
//! Promise: FL23: with a server of S3's protocol
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]
#![allow(clippy::disallowed_methods, reason = "a test without threads has failed")]

use crate::shared::bucket;
use crate::shared::facts;
use crate::shared::store;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bucket::Buckets;
use facts::{FUNCTIONS, facts, of};
use store::Store;

/// A way to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The request is not done, and the connection is closed.
    Lost,
    /// It is done, and the connection is closed.
    Unanswered,
    /// It is done, and the answer says that it was not.
    Denied,
    /// It is not done, and the answer says so.
    Refused,
    /// It is done, and half of the answer comes.
    Cut,
    /// It is done, later than others.
    Late,
}

const FAULTS: [Fault; 6] =
    [Fault::Unanswered, Fault::Denied, Fault::Lost, Fault::Refused, Fault::Cut, Fault::Late];

const ERROR: &[u8] =
    b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// A way to the bucket on which one request fails.
struct Proxy {
    port: u16,
    /// Requests until now.
    seen: Arc<AtomicUsize>,
    /// The request that fails, and how.
    plan: Arc<Mutex<(usize, Fault)>>,
}

impl Proxy {
    /// A way to a port, on which all requests fail in one way, or none before one is told to.
    fn to(port: u16, all: Option<Fault>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let proxy = Self {
            port: listener.local_addr().expect("a port").port(),
            seen: Arc::default(),
            plan: Arc::new(Mutex::new((usize::MAX, Fault::Late))),
        };
        let (seen, plan) = (Arc::clone(&proxy.seen), Arc::clone(&proxy.plan));
        // Ends with the test's process.
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (seen, plan) = (Arc::clone(&seen), Arc::clone(&plan));
                std::thread::spawn(move || {
                    let number = seen.fetch_add(1, Ordering::SeqCst);
                    let (at, fault) = *plan.lock().expect("a plan");
                    let fault = all.or(Some(fault).filter(|_| number == at));
                    let _ = pass(client, port, fault);
                });
            }
        });
        proxy
    }

    /// From now on, request `at` fails, counted from 0.
    fn fail(&self, at: usize, fault: Fault) {
        *self.plan.lock().expect("a plan") = (at, fault);
        self.seen.store(0, Ordering::SeqCst);
    }
}

/// One request and its answer; the connection is closed behind it.
fn pass(client: TcpStream, port: u16, fault: Option<Fault>) -> std::io::Result<()> {
    let request = request(&client)?;
    let mut client = client;
    match fault {
        Some(Fault::Lost) => return client.shutdown(Shutdown::Both),
        Some(Fault::Refused) => return client.write_all(ERROR),
        Some(Fault::Late) => std::thread::sleep(Duration::from_millis(1500)),
        _ => {}
    }
    let mut server = TcpStream::connect(("127.0.0.1", port))?;
    server.write_all(&request)?;
    let mut answer = Vec::new();
    server.read_to_end(&mut answer)?;
    match fault {
        Some(Fault::Unanswered) => client.shutdown(Shutdown::Both),
        Some(Fault::Denied) => client.write_all(ERROR),
        Some(Fault::Cut) => client.write_all(&answer[..answer.len() / 2]),
        _ => client.write_all(&answer),
    }
}

/// The bytes of a request, which asks for no other one behind it.
fn request(client: &TcpStream) -> std::io::Result<Vec<u8>> {
    let mut reader = BufReader::new(client);
    let (mut head, mut length) = (Vec::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if line.trim().is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        match name.to_ascii_lowercase().as_str() {
            "connection" => continue,
            "content-length" => length = value.trim().parse().unwrap_or(0),
            _ => {}
        }
        head.extend(line.bytes());
    }
    head.extend(b"Connection: close\r\n\r\n");
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    head.extend(body);
    Ok(head)
}

/// Runs a command that must end.
fn ended(mut command: std::process::Command) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    let begun = Instant::now();
    while child.try_wait().expect("a child").is_none() {
        if begun.elapsed() > Duration::from_secs(240) {
            let _ = child.kill();
            panic!("it hangs");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.wait_with_output().expect("output")
}

const COUNTS: &str = "select (select count(*) from recordings) as r, (select count(*) from functions) as f, \
                      (select count(*) from calls) as c";

/// A command that is disturbed.
struct Work<'a> {
    words: &'a [&'a str],
    /// Recordings before and after it.
    recordings: [u64; 2],
    /// A store in which it has something to do.
    store: &'a Store,
    /// True if the store cannot be read before it.
    is_damaged: bool,
    /// Every so-manieth of its requests is disturbed,
    step: usize,
    /// in so many ways.
    ways: usize,
}

impl Work<'_> {
    /// Does it in a copy of the store, with one fault. Returns whether the fault came.
    fn tried(&self, buckets: &Buckets, proxy: &Proxy, (at, fault): (usize, Fault)) -> bool {
        let (words, [before, after]) = (self.words, self.recordings);
        let store = format!("{}-{at}-{fault:?}", words[0]);
        buckets.copy(&self.store.path, &store);
        proxy.fail(at, fault);
        let output = ended(bucket::through(proxy.port, &store, words));
        let came = proxy.seen.load(Ordering::SeqCst) > at;
        let (done, error) = (output.status.success(), String::from_utf8_lossy(&output.stderr));
        let what = format!("{} with request {at} {fault:?}: {error}", words[0]);
        assert!(!error.contains("panicked") && !error.contains("secret-of-a-test"), "{what}");
        if !done {
            assert!(error.starts_with("lwp-fleet: "), "{what}");
            // Nobody has to do anything before it is tried again.
            assert_eq!(output.status.code(), Some(75), "{what}");
        }
        if done || !self.is_damaged {
            let [recordings, functions, calls] = buckets.numbers(&store, COUNTS)[..] else {
                panic!("three")
            };
            assert_eq!([functions, calls], [recordings * FUNCTIONS; 2], "{what}");
            // A failure says what it is, and may have done it or not.
            let is_allowed = recordings == after || (recordings == before && !done);
            assert!(is_allowed, "{recordings} recordings: {what}");
        }
        // Done once more, it is done; done twice, it is there once.
        buckets.fleet(&store, words);
        let checked = buckets.fleet(&store, &["check", "--deep"]);
        assert!(checked.contains(&format!(", {after} recordings")), "{checked}{what}");
        came
    }

    /// Disturbs one request after the other until there are no more; returns the faults that came.
    fn disturbed(&self, buckets: &Buckets) -> Vec<Fault> {
        let (next, over) = (AtomicUsize::new(0), AtomicBool::new(false));
        let came = Mutex::new(Vec::new());
        let worker = || {
            let proxy = Proxy::to(buckets.port, None);
            while !over.load(Ordering::SeqCst) {
                let turn = next.fetch_add(1, Ordering::SeqCst);
                let at = turn * self.step;
                for fault in FAULTS.iter().cycle().skip(turn % FAULTS.len()).take(self.ways) {
                    match self.tried(buckets, &proxy, (at, *fault)) {
                        true => came.lock().expect("a list").push(*fault),
                        false => over.store(true, Ordering::SeqCst),
                    }
                }
            }
        };
        std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(worker))));
        came.into_inner().expect("a list")
    }
}

/// Runs a command on a bucket behind a port of this machine, whether or not there is one.
fn behind(port: u16, words: &[&str]) -> Output {
    ended(bucket::through(port, "store", words))
}

#[test]
fn storage_that_does_not_answer_may_answer_later() {
    let other = Store::new();
    let facts = other.file("1.facts", &facts(1, 1));
    // Nobody listens there any more, or somebody does that can do nothing.
    let gone = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("a port");
    let refusing = Proxy::to(gone.port(), Some(Fault::Refused));
    let words: [&[&str]; 4] = [&["list"], &["add", &facts], &["check", "--deep"], &["init"]];
    std::thread::scope(|scope| {
        for port in [gone.port(), refusing.port] {
            for words in words {
                scope.spawn(move || {
                    let output = behind(port, words);
                    let error = String::from_utf8_lossy(&output.stderr);
                    assert_eq!(output.status.code(), Some(75), "{words:?}: {error}");
                    assert!(error.contains("help: see that the storage"), "{words:?}: {error}");
                });
            }
        }
    });
}

/// A store of two recordings, each in files of its own; the second one is of a branch.
fn apart(branch: &str) -> Store {
    let store = Store::new();
    store.add(&facts(1, 1));
    store.add(&of(2, 1, "b", branch));
    store
}

/// Changes a bit of a file of a folder.
fn flip(folder: &Path) {
    let file = std::fs::read_dir(folder).expect("a folder").flatten().next().expect("a file");
    let mut bytes = std::fs::read(file.path()).expect("a file");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    std::fs::write(file.path(), bytes).expect("a file");
}

#[test]
fn requests_that_fail_leave_nothing_in_part_and_nothing_twice() {
    let Some(buckets) = Buckets::start() else { return };
    let begun = Instant::now();
    let together = Store::new();
    let [a, b, c] = [1, 2, 3].map(|n| together.file(&format!("{n}.facts"), &facts(n, 1)));
    together.fleet(&["add", &a, &b]);
    // Files that are worth rewriting.
    let apart = apart("main");
    let expiring = self::apart("topic");
    let rules = "[[retention]]\nkinds = ['recording']\ndays = 1\nfilter = ['branch=topic']\n";
    expiring.fleet(&["retention", &expiring.file("rules.toml", rules)]);
    let damaged = self::apart("main");
    flip(&damaged.path.join("kind=function/date=2023-11-14"));
    // One way for each request of what adds and for some of what rewrites; all of them in every way when asked.
    let every = std::env::var_os("LWP_FLEET_FAULTS").is_some();
    let (step, ways) = if every { (1, FAULTS.len()) } else { (11, 1) };
    let wide = if every { 1 } else { 31 };
    let adding = ["add", c.as_str()];
    let work = |words, recordings, store, is_damaged, step| Work {
        words,
        recordings,
        store,
        is_damaged,
        step,
        ways,
    };
    for work in [
        work(&adding, [2, 3], &together, false, 1),
        work(&["compact"], [2, 2], &apart, false, step),
        work(&["expire"], [2, 1], &expiring, false, step),
        work(&["repair"], [2, 1], &damaged, true, wide),
    ] {
        let came = work.disturbed(&buckets);
        let kinds: BTreeSet<String> = came.iter().map(|fault| format!("{fault:?}")).collect();
        eprintln!("{}: {} faults, {:?} s", work.words[0], came.len(), begun.elapsed().as_secs());
        assert!(kinds.len() == FAULTS.len(), "{}: only {came:?}", work.words[0]);
    }
}
