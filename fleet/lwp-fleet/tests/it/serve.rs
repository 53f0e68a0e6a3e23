//! The server over HTTP: what it takes in is there, who may ask what, what is too much, what is kept when the store does not answer.
#![allow(clippy::disallowed_methods, reason = "a test without threads has failed")]

use crate::shared::facts;
use crate::shared::http;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use facts::facts;
use http::Served;
use serde_json::Value;

fn run(store: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lwp-fleet"));
    command.args(words).env("LWP_FLEET_STORE", store).stdin(Stdio::null());
    command.output().expect("lwp-fleet starts")
}

#[track_caller]
fn fleet(store: &Path, words: &[&str]) -> String {
    let output = run(store, words);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A store and a server of it.
fn served(more: &[&str]) -> (tempfile::TempDir, std::path::PathBuf, Served) {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    fleet(&store, &["init"]);
    let server = Served::start(&store, more);
    (dir, store, server)
}

fn sql(server: &Served, question: &str) -> Value {
    let (status, _, body) = server.ask("POST", "/v1/sql", question.as_bytes());
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).expect("JSON")
}

/// Promise: FL13
#[test]
fn what_is_answered_with_201_is_in_the_store_though_the_server_is_killed() {
    let (_dir, store, mut server) = served(&[]);
    let (status, _, body) = server.ask("POST", "/v1/recordings", facts(1, 1).as_bytes());
    assert_eq!(status, 201, "{body}");
    let answer: Value = serde_json::from_str(&body).unwrap();
    let id = answer["recordings"][0]["id"].as_str().unwrap().to_owned();
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    assert!(fleet(&store, &["list"]).contains(&id[..12]));
    fleet(&store, &["check", "--deep"]);
    // The same again is there already.
    let server = Served::start(&store, &[]);
    let (status, _, body) = server.ask("POST", "/v1/recordings", facts(1, 1).as_bytes());
    assert_eq!((status, body.contains("\"new\":false")), (200, true), "{body}");
    assert_eq!(sql(&server, "select count(*) as n from recordings")[0]["n"], 1);
}

#[test]
fn recordings_that_come_at_once_are_all_there_in_few_commits() {
    let (_dir, store, mut server) = served(&[]);
    std::thread::scope(|scope| {
        for worker in 0..8 {
            let server = &server;
            scope.spawn(move || {
                for n in 0..10 {
                    let text = facts(1 + worker * 10 + n, 1);
                    let (status, _, body) = server.ask("POST", "/v1/recordings", text.as_bytes());
                    assert_eq!(status, 201, "{body}");
                }
            });
        }
    });
    let (_, _, metrics) = server.ask("GET", "/metrics", b"");
    let of = |name: &str| {
        let line =
            metrics.lines().find_map(|line| line.strip_prefix(&format!("lwp_fleet_{name} ")));
        line.and_then(|value| value.parse::<u64>().ok()).expect("a number")
    };
    assert_eq!((of("recordings_added_total"), of("recordings_waiting")), (80, 0));
    assert!(of("commits_total") < 80, "{metrics}");
    server.end();
    assert_eq!(fleet(&store, &["list", "-n", "100", "--format", "csv"]).lines().count(), 81);
    fleet(&store, &["check", "--deep"]);
}

/// Promise: FL14
#[test]
fn tokens_open_what_they_are_for_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    fleet(&store, &["init"]);
    let token =
        |words: &[&str]| fleet(&store, &[&["token", "add"], words].concat()).trim().to_owned();
    let write = token(&["ci", "--scope", "write", "--project", "p*"]);
    let other = token(&["other", "--scope", "write", "--project", "q"]);
    let read = token(&["all", "--scope", "read"]);
    let kept = std::fs::read_to_string(store.join("_lwp/tokens.toml")).unwrap();
    assert!(![&write, &other, &read].iter().any(|secret| kept.contains(&secret[5..])), "{kept}");
    let server = Served::start(&store, &[]);
    assert_eq!(server.secret, "");
    let text = facts(1, 1);
    let of = |secret: &str, method: &str, path: &str, body: &str| {
        server.with(secret, method, path, &[], body.as_bytes()).0
    };
    for (secret, wanted) in [("", 401), ("lwpf_0", 401), (&read, 403), (&other, 403), (&write, 201)]
    {
        assert_eq!(of(secret, "POST", "/v1/recordings", &text), wanted);
    }
    let note = r#"{"project":"p","commit":"00000001","text":"expected"}"#;
    let json = ["Content-Type: application/json"];
    let noted = |secret: &str| server.with(secret, "POST", "/v1/notes", &json, note.as_bytes()).0;
    assert_eq!([noted(&read), noted(&other), noted(&write)], [403, 403, 201]);
    for path in ["/", "/benchmarks", "/top", "/v1/recordings", "/metrics", "/of/none/all/functions"]
    {
        let asked =
            [of("", "GET", path, ""), of(&write, "GET", path, ""), of(&read, "GET", path, "")];
        assert_eq!(asked, [401, 403, 200], "{path}");
    }
    assert_eq!(of("", "GET", "/healthz", ""), 200);
    // A browser's cookie does the same, but not from another site's page.
    let cookie = format!("Cookie: lwp_fleet={read}");
    let with = |lines: &[&str]| server.with("", "GET", "/", lines, b"").0;
    assert_eq!(with(&[&cookie]), 200);
    assert_eq!(with(&[&cookie, "Origin: http://elsewhere.example"]), 403);
    // What was taken away opens nothing a few seconds later.
    fleet(&store, &["token", "remove", "all"]);
    let begun = Instant::now();
    while of(&read, "GET", "/v1/recordings", "") == 200 {
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(fleet(&store, &["token", "list"]).starts_with("ci  write  project p*\n"));
}

/// Promise: FL14
#[test]
fn other_machines_are_not_served_without_tokens() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    fleet(&store, &["init"]);
    let output = run(&store, &["serve", "--listen", "0.0.0.0:0"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("no tokens") && error.contains("help: "), "{error}");
}

/// Promise: FL15
#[test]
fn hostile_recordings_are_refused_and_nothing_of_them_is_stored() {
    let (_dir, store, server) = served(&["--largest", "8"]);
    let post = |path: &str, body: &[u8]| server.ask("POST", path, body);
    let whole = facts(1, 1);
    let cut = &whole.as_bytes()[..whole.len() / 2];
    let (status, _, body) = post("/v1/recordings", cut);
    assert_eq!((status, body.contains("line ")), (400, true), "{body}");
    assert_eq!(post("/v1/recordings", b"\x00\x01\x02").0, 415);
    assert_eq!(post("/v1/recordings?projct=x", whole.as_bytes()).0, 400);
    assert_eq!(post("/v1/recordings", &vec![b' '; (8 << 20) + 1]).0, 413);
    // Three hundred megabytes in a few.
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let zeros = vec![0_u8; 1 << 20];
    (0..300).for_each(|_| packed.write_all(&zeros).unwrap());
    let (status, _, body) = post("/v1/recordings", &packed.finish().unwrap());
    assert_eq!(status, 413, "{body}");
    // More than may be sent is refused by what it says, and whatever it says.
    let chunked = b"POST /v1/recordings HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n";
    let mut chunked = chunked.to_vec();
    chunked.extend(format!("Authorization: Bearer {}\r\n\r\n", server.secret).bytes());
    for _ in 0..160 {
        chunked.extend(format!("{:x}\r\n", 1 << 16).bytes());
        chunked.extend(vec![b'x'; 1 << 16]);
        chunked.extend(b"\r\n");
    }
    chunked.extend(b"0\r\n\r\n");
    assert_eq!(server.send(&chunked).0, 413);
    // SQL asks, and does nothing.
    for question in [
        "create table x as select 1",
        "drop view function_values",
        "set a = 1",
        "copy recordings to '/tmp/x'",
        "select * from read_parquet('/etc/passwd')",
        "select * from '/etc/passwd'",
    ] {
        assert_eq!(post("/v1/sql", question.as_bytes()).0, 400, "{question}");
    }
    drop(server);
    assert_eq!(fleet(&store, &["list", "--format", "csv"]).lines().count(), 1);
}

/// Promise: FL15
#[test]
fn a_question_that_takes_too_long_ends() {
    let (_dir, _store, server) = served(&["--timeout", "1"]);
    let endless = "select count(*) from generate_series(1, 100000000) a, generate_series(1, 1000000) b where a.value * b.value = 7";
    let begun = Instant::now();
    let (status, _, body) = server.ask("POST", "/v1/sql", endless.as_bytes());
    assert_eq!(status, 422, "{body}");
    assert!(begun.elapsed() < Duration::from_secs(60));
    assert_eq!(sql(&server, "select 1 as one")[0]["one"], 1);
}

/// Promise: FL15
#[test]
fn what_the_store_does_not_take_waits_in_the_spool() {
    let dir = tempfile::tempdir().unwrap();
    let (store, spool) = (dir.path().join("store"), dir.path().join("spool"));
    fleet(&store, &["init"]);
    let spool_words = ["--spool", spool.to_str().unwrap()];
    let server = Served::start(&store, &spool_words);
    // A store that is gone answers nothing.
    let gone = dir.path().join("gone");
    std::fs::rename(&store, &gone).unwrap();
    std::fs::write(&store, "no directory").unwrap();
    let (status, _, body) = server.ask("POST", "/v1/recordings", facts(1, 1).as_bytes());
    assert_eq!(status, 202, "{body}");
    let files = || std::fs::read_dir(&spool).unwrap().count();
    assert_eq!(files(), 1);
    drop(server);
    std::fs::remove_file(&store).unwrap();
    std::fs::rename(&gone, &store).unwrap();
    // Another server finds it there.
    let server = Served::start(&store, &spool_words);
    let begun = Instant::now();
    while files() > 0 {
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(sql(&server, "select count(*) as n from recordings")[0]["n"], 1);
    // Who does not want to wait is answered when it is on the disk.
    let lines = ["Prefer: respond-async"];
    let text = facts(2, 1);
    let (status, _, _) =
        server.with(&server.secret, "POST", "/v1/recordings", &lines, text.as_bytes());
    assert_eq!(status, 202);
}

#[test]
fn answers_are_what_the_command_says() {
    let (_dir, store, server) = served(&[]);
    for (n, scale) in [(1, 10), (2, 10), (3, 20)] {
        assert_eq!(server.ask("POST", "/v1/recordings", facts(n, scale).as_bytes()).0, 201);
    }
    let get = |path: &str| {
        let (status, _, body) = server.ask("GET", path, b"");
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str::<Value>(&body).expect("JSON")
    };
    let command = |words: &[&str]| serde_json::from_str::<Value>(&fleet(&store, words)).unwrap();
    assert_eq!(get("/v1/history"), command(&["history", "--format", "json"]));
    let steps = get("/v1/steps");
    assert_eq!(steps, command(&["steps", "--json"]));
    assert_eq!(steps[0]["commit"], facts::commit(3));
    let (a, b) = (facts::commit(2), facts::commit(3));
    let compared = get(&format!("/v1/compare?a={a}&b={b}"));
    assert_eq!(compared, command(&["compare", &a, &b, "--format", "json"]));
    assert_eq!(compared["pairs"][0]["functions"][0]["function"], "function_19");
    let markdown = ["Accept: text/markdown"];
    let path = format!("/v1/compare?a={a}&b={b}");
    let (_, head, body) = server.with(&server.secret, "GET", &path, &markdown, b"");
    assert!(head.contains("text/markdown"), "{head}");
    assert_eq!(body, fleet(&store, &["compare", &a, &b, "--format", "markdown"]));
    let lines = ["Accept: text/csv"];
    let question = "select benchmark, count(*) as n from recordings group by 1";
    let (_, head, body) =
        server.with(&server.secret, "POST", "/v1/sql", &lines, question.as_bytes());
    assert_eq!(body, "benchmark,n\nb,3\n");
    assert!(head.contains("text/csv") && head.contains("content-security-policy"), "{head}");
}

#[test]
fn pages_say_everything_where_no_script_runs() {
    let (_dir, _store, server) = served(&[]);
    for (n, scale) in [(1, 10), (2, 10), (3, 20)] {
        assert_eq!(server.ask("POST", "/v1/recordings", facts(n, scale).as_bytes()).0, 201);
    }
    let (a, b) = (facts::commit(2), facts::commit(3));
    for (path, wanted) in [
        ("/", &["000000030000", "4,200,000"][..]),
        ("/benchmarks", &["4,200,000"]),
        ("/history", &["<svg", "<circle", "000000030000", "4,200,000", "+100.00%"]),
        ("/history?f=function_19", &["<circle", "400,000"]),
        ("/steps", &["000000030000", "function_19", "+200,000"]),
        (&format!("/compare?a={a}&b={b}"), &["function_19", "400,000", "+100.00%"]),
        ("/top", &["function_19", "800,000"]),
        ("/top?by=line", &["a.c"]),
        ("/sql?q=select+function,+instructions+from+functions", &["function_19", "400000"]),
        ("/of/none/all/functions", &["function_19", "800,000"]),
        ("/of/none/all/flame", &["<svg", "function_19"]),
    ] {
        let (status, _, body) = server.ask("GET", path, b"");
        assert_eq!(status, 200, "{path}: {body}");
        // Scripts come from files, which are not asked for here.
        for script in body.split("<script").skip(1) {
            assert!(script.trim_start().starts_with("src="), "{path}: {script}");
        }
        for text in wanted {
            assert!(body.contains(text), "{path} without {text}: {body}");
        }
    }
}

/// Promise: FL16
#[test]
fn pages_hold_hostile_names_in_their_places() {
    let (_dir, _store, server) = served(&[]);
    let hostile = "</td><script>alert(1)</script>'\"";
    let text = facts(1, 1).replace("function_3", &hostile.replace('"', "\\\"")).replace(
        "\"benchmark\":\"b\"",
        &format!("\"benchmark\":\"{}\"", hostile.replace('"', "\\\"")),
    );
    assert_eq!(server.ask("POST", "/v1/recordings", text.as_bytes()).0, 201);
    assert_eq!(
        server.ask("POST", "/v1/recordings", text.replace("00000001", "00000002").as_bytes()).0,
        201
    );
    let (a, b) = (facts::commit(1), "00000002");
    for path in [
        "/",
        "/benchmarks",
        "/history",
        "/steps",
        "/top",
        "/top?by=benchmark",
        "/sql?q=select+*+from+functions",
        &format!("/compare?a={a}&b={b}"),
        "/of/none/all/functions",
        "/of/none/all/flame",
    ] {
        let (status, _, body) = server.ask("GET", path, b"");
        assert_eq!(status, 200, "{path}: {body}");
        assert!(!body.contains("<script>alert"), "{path}");
    }
}
