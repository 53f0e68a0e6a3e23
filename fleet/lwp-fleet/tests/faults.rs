//! A bucket that fails: each request in turn is refused, lost, answered wrongly though it was done, cut off or late. Nothing is half visible, and
//! nothing is there twice. Skipped with a message where there is no server of S3's protocol (PyPI: `moto[server]`).
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]
#![allow(clippy::disallowed_methods, reason = "a test without threads has failed")]

#[path = "shared/bucket.rs"]
mod bucket;
#[path = "shared/facts.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod facts;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bucket::Buckets;
use facts::{FUNCTIONS, facts};

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
    fn to(port: u16) -> Self {
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
                    let _ = pass(client, port, Some(fault).filter(|_| number == at));
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

/// Does something to a store of two recordings, with one fault; `is_more`: whether it adds one. Returns whether the fault came.
fn tried(
    buckets: &Buckets,
    (proxy, store): (&Proxy, &str),
    (at, fault): (usize, Fault),
    (words, is_more): (&[&str], bool),
) -> bool {
    proxy.fail(at, fault);
    let output = ended(buckets.through(proxy.port, store, words));
    let came = proxy.seen.load(Ordering::SeqCst) > at;
    proxy.fail(usize::MAX, fault);
    let error = String::from_utf8_lossy(&output.stderr);
    let what = format!("{} with request {at} {fault:?}: {error}", words[0]);
    let [recordings, functions, calls] = buckets.numbers(store, COUNTS)[..] else {
        panic!("three")
    };
    assert_eq!([functions, calls], [recordings * FUNCTIONS; 2], "{what}");
    let allowed = match (is_more, output.status.success()) {
        (false, _) => 2..=2,
        (true, true) => 3..=3,
        // A failure says what it is, and may have done it or not.
        (true, false) => 2..=3,
    };
    assert!(allowed.contains(&recordings), "{recordings} recordings: {what}");
    assert!(!error.contains("panicked") && !error.contains("secret-of-a-test"), "{what}");
    if !output.status.success() {
        assert!(error.starts_with("lwp-fleet: "), "{what}");
    }
    // Done once more, it is done; done twice, it is there once.
    buckets.fleet(store, words);
    let checked = buckets.fleet(store, &["check", "--deep"]);
    let wanted = if is_more { ", 3 recordings" } else { ", 2 recordings" };
    assert!(checked.contains(wanted), "{checked}{what}");
    came
}

#[test]
fn requests_that_fail_leave_nothing_in_part_and_nothing_twice() {
    let Some(buckets) = Buckets::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = |n: u64| {
        let path = dir.path().join(format!("{n}.facts"));
        std::fs::write(&path, facts(n, 1)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (a, b, c) = (file(1), file(2), file(3));
    let proxy = Proxy::to(buckets.port);
    // Each request of what adds, and some of what rewrites, in one way each; all of them in every way when asked.
    let every = std::env::var_os("LWP_FLEET_FAULTS").is_some();
    let (mut tries, mut stores) = (0, 0);
    let adding = (vec!["add", c.as_str()], true, 1);
    let rewriting = (vec!["compact"], false, if every { 1 } else { 5 });
    for (words, is_more, step) in [adding, rewriting] {
        for at in (0..).step_by(step) {
            let mut came = false;
            let faults = FAULTS.iter().cycle().skip(at / step % FAULTS.len());
            for fault in faults.take(if every { FAULTS.len() } else { 1 }) {
                stores += 1;
                let store = format!("store-{stores}");
                buckets.fleet(&store, &["init"]);
                if is_more {
                    buckets.fleet(&store, &["add", &a, &b]);
                } else {
                    // Files that are worth rewriting.
                    buckets.fleet(&store, &["add", &a]);
                    buckets.fleet(&store, &["add", &b]);
                }
                came |= tried(&buckets, (&proxy, &store), (at, *fault), (&words, is_more));
                tries += 1;
                eprintln!("{} with request {at} {fault:?}: whole", words[0]);
            }
            if !came {
                break;
            }
        }
    }
    eprintln!("{tries} faults");
    assert!(tries > 12, "{tries}");
}
