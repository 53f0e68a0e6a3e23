//! What a server does with more than it takes: it says when to come again, it waits for nobody for ever, and it loses nothing.
//!
//! Promise: FL15
#![allow(clippy::disallowed_methods, reason = "a test without threads has failed")]

#[path = "../../lwp-fleet/tests/it/shared/facts.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod facts;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use facts::Recording;
use lwp_serve::{Limits, Scope, Server, Settings, Token, Tokens, secret};
use lwp_store::{Kind, Location, Store};
use tokio::runtime::Runtime;

/// A server in this process.
struct Served {
    runtime: Runtime,
    dir: tempfile::TempDir,
    address: SocketAddr,
    secret: String,
}

impl Served {
    fn start(limits: Limits) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let runtime = Runtime::new().expect("a runtime");
        let place = Location::parse(dir.path().join("store").to_str().expect("text"));
        let store = runtime.block_on(Store::init(place.expect("a place"))).expect("a store");
        Self::of(store, (runtime, dir), Settings { limits, ..Settings::default() })
    }

    fn of(store: Store, (runtime, dir): (Runtime, tempfile::TempDir), settings: Settings) -> Self {
        let listen = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
        let settings = Settings { listen, ..settings };
        let server = runtime.block_on(Server::bind(store, &settings)).expect("a server");
        let address = server.address();
        let secret = server.secret().unwrap_or_default().to_owned();
        runtime.spawn(server.run(std::future::pending()));
        Self { runtime, dir, address, secret }
    }

    fn store(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(100))).expect("a timeout");
        stream
    }

    fn head(&self, method: &str, path: &str, length: usize) -> String {
        format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\
             Authorization: Bearer {}\r\n\r\n",
            self.secret
        )
    }

    fn post(&self, path: &str, body: &[u8]) -> (u16, String) {
        let mut stream = self.connect();
        stream.write_all(self.head("POST", path, body.len()).as_bytes()).expect("sent");
        let _ = stream.write_all(body);
        answer(&mut stream)
    }

    fn recordings(&self) -> u64 {
        count(&self.runtime, &self.store())
    }
}

/// Status and the whole answer.
fn answer(stream: &mut TcpStream) -> (u16, String) {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, text.to_ascii_lowercase())
}

fn count(runtime: &Runtime, store: &Path) -> u64 {
    let place = Location::parse(store.to_str().expect("text")).expect("a place");
    runtime.block_on(async {
        let snapshot = Store::open(place).await.expect("a store").snapshot().await;
        snapshot.expect("a version").files_of(Kind::Recording).map(|file| file.rows).sum()
    })
}

#[test]
fn when_too_many_wait_the_next_ones_are_told_to_come_again_and_none_is_lost() {
    let served = Served::start(Limits { waiting: 2, ..Limits::default() });
    let (taken, sent_away) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for n in 0..24 {
            let (served, taken, sent_away) = (&served, &taken, &sent_away);
            scope.spawn(move || {
                let text = Recording::new(n).text();
                loop {
                    match served.post("/v1/recordings", text.as_bytes()) {
                        (201, _) => break taken.fetch_add(1, Ordering::SeqCst),
                        (429, said) => {
                            assert!(said.contains("retry-after: 5\r\n"), "{said}");
                            sent_away.fetch_add(1, Ordering::SeqCst);
                            std::thread::sleep(Duration::from_millis(100));
                        }
                        (status, said) => panic!("{status}: {said}"),
                    }
                }
            });
        }
    });
    assert!(sent_away.into_inner() > 0);
    assert_eq!((taken.into_inner(), served.recordings()), (24, 24));
}

#[test]
fn who_sends_a_byte_now_and_then_is_given_up_and_keeps_nobody_from_anything() {
    let limits = Limits { body_seconds: 3, questions: 1, connections: 64, ..Limits::default() };
    let served = Served::start(limits);
    let slow = |path: &'static str, with_secret: bool| {
        let served = &served;
        move || {
            let mut stream = served.connect();
            let mut head = served.head("POST", path, 4000);
            if !with_secret {
                head = head.replace("Authorization", "X-Nothing");
            }
            stream.write_all(head.as_bytes()).expect("sent");
            let begun = Instant::now();
            // A byte now and then, until the other side does not want any more.
            stream.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
            let mut first = [0];
            while begun.elapsed() < Duration::from_secs(60) {
                let _ = stream.write_all(b" ");
                match stream.read(&mut first) {
                    Ok(0) => return (0, String::new(), begun.elapsed()),
                    Ok(_) => {
                        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
                        let (_, rest) = answer(&mut stream);
                        let all = format!("h{rest}");
                        let status = all.split(' ').nth(1).and_then(|word| word.parse().ok());
                        return (status.unwrap_or(0), all, begun.elapsed());
                    }
                    Err(_) => {}
                }
            }
            panic!("it waits for ever: {path}")
        }
    };
    std::thread::scope(|scope| {
        let mut all = Vec::new();
        for path in ["/v1/recordings", "/v1/sql", "/v1/notes", "/notes", "/enter"] {
            for with_secret in [true, true, false] {
                all.push((path, with_secret, scope.spawn(slow(path, with_secret))));
            }
        }
        // Meanwhile others are served.
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(served.post("/v1/recordings", Recording::new(1).text().as_bytes()).0, 201);
        assert_eq!(served.post("/v1/sql", b"select 1 as one").0, 200);
        for (path, with_secret, one) in all {
            let (status, said, took) = one.join().expect("an end");
            // Who has no token need not be waited for.
            let wanted: &[u16] = if with_secret { &[408, 0] } else { &[401, 408, 0] };
            assert!(wanted.contains(&status), "{path} {status}: {said}");
            assert!(took < Duration::from_secs(40), "{path}: {took:?}");
        }
    });
    assert_eq!(served.recordings(), 1);
}

#[test]
fn recordings_that_are_still_coming_have_their_room() {
    let served = Served::start(Limits { bodies_mib: 1, body_seconds: 300, ..Limits::default() });
    let text = Recording::new(1).text();
    // One that has said its length; the server waits for the rest.
    let mut first = served.connect();
    let head = served.head("POST", "/v1/recordings", text.len());
    let head = head.replace("\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n");
    first.write_all(head.as_bytes()).unwrap();
    let mut waits = [0; 25];
    first.read_exact(&mut waits).unwrap();
    assert_eq!(&waits, b"HTTP/1.1 100 Continue\r\n\r\n");
    let second = Recording::new(2).text();
    let (status, said) = served.post("/v1/recordings", second.as_bytes());
    assert!(status == 429 && said.contains("retry-after: 5\r\n"), "{said}");
    assert!(said.contains("too many recordings come at once"), "{said}");
    first.write_all(text.as_bytes()).unwrap();
    assert_eq!(answer(&mut first).0, 201);
    // Then there is room again.
    assert_eq!(served.post("/v1/recordings", second.as_bytes()).0, 201);
    assert_eq!(served.recordings(), 2);
}

#[test]
fn heads_that_never_end_are_given_up() {
    let served = Served::start(Limits::default());
    let mut stream = served.connect();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nX-").unwrap();
    let begun = Instant::now();
    let (status, _) = answer(&mut stream);
    assert!([0, 408].contains(&status) && begun.elapsed() < Duration::from_secs(60), "{status}");
}

#[test]
fn a_full_spool_is_emptied_by_the_next_server_each_recording_once() {
    let dir = tempfile::tempdir().unwrap();
    let spool = dir.path().join("spool");
    std::fs::create_dir(&spool).unwrap();
    for n in 0..300 {
        let one = Recording { functions: 3, ..Recording::new(n) };
        std::fs::write(spool.join(format!("{n:04}.facts")), one.text()).unwrap();
    }
    // One was sent a second time while the server was down; one was cut off by a full disk.
    std::fs::copy(spool.join("0007.facts"), spool.join("again.facts")).unwrap();
    let whole = Recording::new(999).text();
    std::fs::write(spool.join("cut.facts"), &whole[..whole.len() / 2]).unwrap();
    let runtime = Runtime::new().unwrap();
    let place = Location::parse(dir.path().join("store").to_str().unwrap()).unwrap();
    let store = runtime.block_on(Store::init(place)).unwrap();
    let settings = Settings { spool: Some(spool.clone()), ..Settings::default() };
    let served = Served::of(store, (runtime, dir), settings);
    let names = || {
        let files = std::fs::read_dir(&spool).unwrap().flatten();
        files.map(|file| file.file_name().to_string_lossy().into_owned()).collect::<Vec<_>>()
    };
    let begun = Instant::now();
    while names().iter().any(|name| name.ends_with(".facts")) {
        assert!(begun.elapsed() < Duration::from_secs(240), "{} are left", names().len());
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(served.recordings(), 300);
    // What nobody can read is kept aside.
    assert_eq!(names(), ["cut.refused"]);
    let log = served.store().join("_delta_log");
    let commits = std::fs::read_dir(log).unwrap().count();
    assert!(commits < 150, "{commits} commits");
}

#[test]
fn tokens_open_until_their_day_and_refusals_name_line_and_key() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = Runtime::new().unwrap();
    let place = Location::parse(dir.path().join("store").to_str().unwrap()).unwrap();
    let store = runtime.block_on(Store::init(place)).unwrap();
    let token = |name: &str, expires: Option<&str>| {
        let secret = secret().unwrap();
        let mut token = Token::new(name, &secret, vec![Scope::Write]);
        token.expires = expires.map(str::to_owned);
        (secret, token)
    };
    let (old, new) = (token("old", Some("2024-02-29")), token("new", Some("2999-12-31")));
    let tokens = Tokens { token: vec![old.1, new.1] };
    runtime.block_on(tokens.set(&store)).unwrap();
    let mut served = Served::of(store, (runtime, dir), Settings::default());
    let text = Recording::new(1).text();
    for (secret, wanted) in [(old.0, 401), (String::new(), 401), (new.0, 201)] {
        served.secret = secret;
        let (status, said) = served.post("/v1/recordings", text.as_bytes());
        assert_eq!(status, wanted, "{said}");
    }
    // The third of a recording's lines has a count that cannot be.
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines[2] = lines[2].replace("\"entered\":0", "\"entered\":-1");
    assert_ne!(lines[2], text.lines().nth(2).unwrap());
    let (status, said) = served.post("/v1/recordings", lines.join("\n").as_bytes());
    assert!(status == 400 && said.contains("line 3: ") && said.contains("entered"), "{said}");
    let (status, said) = served.post("/v1/recordings?format=word", text.as_bytes());
    assert!(status == 400 && said.contains("'word' is no format"), "{said}");
    assert_eq!(served.recordings(), 1);
}
