//! A server that nobody can stall: hostile questions, and a store that does not answer.
#![allow(clippy::disallowed_methods, reason = "a test without threads has failed")]

use crate::shared::facts;
use crate::shared::hostile;
use crate::shared::http;
use crate::shared::store;

use std::fs::OpenOptions;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use facts::{Recording, facts};
use hostile::{HOSTILE, query};
use http::Served;
use store::Store;

/// The time after which something hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// Promise: FL33
#[test]
fn questions_end_at_their_time_whatever_they_join() {
    let store = Store::new();
    for (name, hostile) in HOSTILE {
        let sql = query(hostile);
        let mut command = store.command(&["sql", "--timeout", "1", "--memory", "200", &sql]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("lwp-fleet starts");
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().expect("a child") {
                break status;
            }
            if begun.elapsed() > PATIENCE {
                let _ = child.kill();
                panic!("{name} does not end");
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        assert!(!status.success(), "{name} has an answer");
    }
}

/// Promise: FL33
#[test]
fn a_server_answers_while_questions_take_for_ever() {
    let store = Store::new();
    store.add(&facts(1, 1));
    let served = Served::start(&store.path, &["--timeout", "2", "--memory", "400"]);
    std::thread::scope(|scope| {
        let questions: Vec<_> = HOSTILE
            .iter()
            .map(|(name, hostile)| {
                let (served, sql) = (&served, query(hostile));
                (name, scope.spawn(move || served.ask("POST", "/v1/sql", sql.as_bytes())))
            })
            .collect();
        let mut n = 1;
        while questions.iter().any(|(_, question)| !question.is_finished()) {
            n += 1;
            assert_eq!(served.ask("GET", "/healthz", b"").0, 200);
            let posted = served.ask("POST", "/v1/recordings", facts(n, 1).as_bytes());
            assert_eq!(posted.0, 201, "{}", posted.2);
            assert_eq!(served.ask("GET", "/steps", b"").0, 200);
        }
        for (name, question) in questions {
            let (status, head, said) = question.join().expect("an answer");
            // Out of time, out of memory, too large a text, or too many at once.
            assert!([400, 422, 429].contains(&status), "{name}: {status} {said}");
            assert_eq!(status == 429, head.to_lowercase().contains("retry-after: 5"), "{head}");
        }
    });
    // Then there is room for others, and nothing is left.
    let (status, _, said) = served.ask("POST", "/v1/sql", b"select count(*) as n from functions");
    assert!(status == 200 && said.contains("\"n\":"), "{status} {said}");
}

/// Queries that can be planned and fail on what they compute; with a word of the reason.
const FAILING: [(&str, &str); 6] = [
    ("select cast(function as bigint) from functions", "function_"),
    ("select cast(instructions as decimal(3, 2)) from functions", "too large"),
    ("select 1 / (entered - entered) from functions", "zero"),
    ("select length(repeat(repeat(function, 100000), 100000000)) from functions", "size"),
    ("select array_resize([entered], 1000000000000) from functions", "maximum array size"),
    ("select to_timestamp(function) from functions", "function_"),
];

/// Promise: FL36
#[test]
fn a_query_that_fails_is_not_the_server_s_failure() {
    let store = Store::new();
    store.add(&facts(1, 1));
    let served = Served::start(&store.path, &[]);
    for (sql, word) in FAILING {
        let (status, _, said) = served.ask("POST", "/v1/sql", sql.as_bytes());
        assert!(status == 422 && said.contains(word), "{sql}: {status} {said}");
    }
    // A value that only the answer's format can't show.
    let sql = b"select arrow_cast(entered + 9000000000000000, 'Timestamp(s)') from functions";
    let csv = ["Accept: text/csv"];
    let (status, _, said) = served.with(&served.secret, "POST", "/v1/sql", &csv, sql);
    assert!(status == 422 && said.contains("to datetime"), "{status} {said}");
    // One that can't be planned.
    let (status, _, said) = served.ask("POST", "/v1/sql", b"select missing from functions");
    assert!(status == 400 && said.contains("missing"), "{status} {said}");
}

/// Promise: FL33
#[test]
fn a_question_whose_client_has_gone_ends() {
    let store = Store::new();
    store.add(&facts(1, 1));
    let served = Served::start(&store.path, &["--timeout", "600"]);
    let sql = query(HOSTILE[6].1);
    let head = format!(
        "POST /v1/sql HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Length: {}\r\n\r\n{sql}",
        served.secret,
        sql.len()
    );
    let mut gone = std::net::TcpStream::connect(&served.address).expect("it listens");
    std::io::Write::write_all(&mut gone, head.as_bytes()).expect("sent");
    std::thread::sleep(Duration::from_millis(300));
    drop(gone);
    // The token has one place for questions in SQL, and it is free again.
    let begun = Instant::now();
    while served.ask("POST", "/v1/sql", b"select 1 as one").0 != 200 {
        assert!(begun.elapsed() < PATIENCE, "the question goes on");
    }
}

/// A file of a store whose reading takes for ever.
struct Stalled(std::path::PathBuf);

impl Stalled {
    fn make(store: &Store) -> Self {
        let path = store.path.join("_delta_log/_last_checkpoint");
        let made = Command::new("mkfifo").arg(&path).status().expect("mkfifo starts");
        assert!(made.success());
        Self(path)
    }

    /// Lets everybody who reads go on.
    fn end(&self) {
        let aside = self.0.with_extension("gone");
        std::fs::rename(&self.0, &aside).expect("a pipe");
        // Not blocked: there is a reader, or nobody waits.
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let _pipe = options.open(&aside).expect("a pipe");
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// Promise: FL34
#[test]
fn posts_go_to_the_spool_while_the_store_hangs() {
    let store = Store::new();
    store.add(&facts(1, 1));
    let spool = store.dir.path().join("spool");
    let served = Served::start(&store.path, &["--spool", spool.to_str().unwrap()]);
    let stalled = Stalled::make(&store);
    for n in 2..12 {
        let (status, _, said) = served.ask("POST", "/v1/recordings", facts(n, 1).as_bytes());
        assert_eq!(status, 202, "{said}");
        assert_eq!(served.ask("GET", "/healthz", b"").0, 200);
    }
    let waiting = || {
        let files = std::fs::read_dir(&spool).unwrap().flatten();
        files.filter(|file| file.path().extension().is_some_and(|end| end == "facts")).count()
    };
    assert_eq!(waiting(), 10);
    stalled.end();
    let begun = Instant::now();
    while waiting() > 0 {
        assert!(begun.elapsed() < PATIENCE, "{} wait for ever", waiting());
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(store.number("select count(*) from recordings"), 11);
}

/// Promise: FL35
#[test]
fn a_new_token_opens_at_once_and_leads_back_to_its_page() {
    let store = Store::new();
    store.add(&Recording::new(1).text());
    let first = store.fleet(&["token", "add", "first", "--scope", "read"]);
    let served = Served::start(&store.path, &[]);
    let ask = |secret: &str| served.with(secret.trim(), "GET", "/v1/recordings", &[], b"").0;
    assert_eq!([ask(&first), ask("lwpf_wrong")], [200, 401]);
    let second = store.fleet(&["token", "add", "second", "--scope", "read"]);
    assert_eq!(ask(&second), 200);
    // A browser without a token comes back to the page that it asked for.
    let page = "/history?filter=benchmark%3Db&f=x";
    let (status, head, _) = served.with("", "GET", page, &["Accept: text/html"], b"");
    assert_eq!(status, 303, "{head}");
    let to = head.lines().find_map(|line| line.strip_prefix("location: ")).expect("a place");
    assert!(to.starts_with("/enter?to=%2Fhistory"), "{to}");
    let (_, _, form) = served.with("", "GET", to, &["Accept: text/html"], b"");
    assert!(form.contains("value=\"/history?filter=benchmark%3Db&amp;f=x\""), "{form}");
    let body = format!("token={}&to=%2Fhistory%3Ff%3Dx", second.trim());
    let kind = "Content-Type: application/x-www-form-urlencoded";
    let (status, head, page) = served.with("", "POST", "/enter", &[kind], body.as_bytes());
    assert!(status == 200 && head.contains("lwp_fleet="), "{head}");
    assert!(page.contains("href=\"/history?f=x\""), "{page}");
}
