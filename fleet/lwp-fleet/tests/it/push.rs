//! Recordings that are pushed to a server: each once, whatever happens on the way.
//!
//! Promise: FL13
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use crate::shared::facts;
use crate::shared::http;

use std::path::Path;
use std::process::{Command, Output, Stdio};

use facts::facts;
use http::Served;

fn run(words: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lwp-fleet"));
    command.args(words).envs(variables.iter().copied()).stdin(Stdio::null());
    command.output().expect("lwp-fleet starts")
}

fn init(store: &Path) {
    assert!(run(&["init", "--store", store.to_str().unwrap()], &[]).status.success());
}

#[test]
fn what_is_pushed_is_there_once_and_only_with_a_token() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    init(&store);
    let server = Served::start(&store, &[]);
    let url = format!("http://{}", server.address);
    let file = dir.path().join("a.facts");
    std::fs::write(&file, facts(1, 1)).unwrap();
    let folded = dir.path().join("stacks");
    std::fs::write(&folded, "main;f 10\nmain 3\n").unwrap();
    let words = ["push", "--to", &url, file.to_str().unwrap(), folded.to_str().unwrap()];
    let refused = run(&words, &[("LWP_FLEET_TOKEN", "lwpf_wrong")]);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(125), "{error}");
    assert!(
        error.contains("401") && error.contains("help: ") && !error.contains("lwpf_wrong"),
        "{error}"
    );
    let with = [("LWP_FLEET_TOKEN", server.secret.as_str())];
    let pushed = run(&words, &with);
    let said = String::from_utf8_lossy(&pushed.stdout).into_owned();
    assert!(pushed.status.success(), "{}", String::from_utf8_lossy(&pushed.stderr));
    assert_eq!(said.matches(" added: ").count(), 2, "{said}");
    let again = run(&words, &with);
    assert_eq!(String::from_utf8_lossy(&again.stdout).matches(" already there: ").count(), 2);
    let (_, _, body) = server.ask(
        "POST",
        "/v1/sql",
        b"select source, count(*) as n from recordings group by 1 order by 1",
    );
    assert_eq!(body.trim(), r#"[{"source":"folded","n":1},{"source":"lwp","n":1}]"#);
}

#[test]
fn a_server_that_does_not_answer_is_asked_again_and_then_it_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.facts");
    std::fs::write(&file, facts(1, 1)).unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("http://127.0.0.1:{port}");
    let words = ["push", "--to", &url, "--patience", "2", file.to_str().unwrap()];
    let output = run(&words, &[]);
    assert_eq!(output.status.code(), Some(75), "{}", String::from_utf8_lossy(&output.stderr));
    let wrong = run(&["push", "--to", "s3://bucket", file.to_str().unwrap()], &[]);
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("lwp fleet add --store"));
}

#[test]
fn profiles_of_opentelemetry_are_taken_from_whoever_has_a_token_and_damaged_ones_are_not() {
    let Some(lwp) = lwp() else {
        eprintln!("skipped: no lwp in ../target, and LWP names none");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    init(&store);
    let server = Served::start(&store, &[]);
    let data = dir.path().join("own.data");
    let recorded = Command::new(&lwp)
        .args(["record", "-q", "-o", data.to_str().unwrap(), "--", "true"])
        .stdin(Stdio::null())
        .status();
    assert!(recorded.is_ok_and(|status| status.success()));
    let message = dir.path().join("own.otlp");
    let words = ["export", "-f", "otlp", "-i", data.to_str().unwrap(), "-o"];
    let exported = Command::new(&lwp).args(words).arg(&message).status();
    assert!(exported.is_ok_and(|status| status.success()));
    let message = std::fs::read(&message).unwrap();
    let post = |secret: &str, kind: &str, bytes: &[u8]| {
        let kind = format!("Content-Type: {kind}");
        server.with(secret, "POST", "/v1development/profiles", &[&kind], bytes)
    };
    const KIND: &str = "application/x-protobuf";
    assert_eq!(post("", KIND, &message).0, 401);
    assert_eq!(post(&server.secret, "application/json", b"{}").0, 415);
    let (status, _, body) = post(&server.secret, KIND, &message[..message.len() / 2]);
    assert_eq!(status, 400, "{body}");
    let (status, head, body) = post(&server.secret, KIND, &message);
    assert_eq!((status, body.as_str()), (200, ""), "{head}{body}");
    assert!(head.contains(KIND), "{head}");
    // The command sends the same message; it is there once.
    let folder = lwp.parent().unwrap().display();
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap_or_default());
    let url = format!("http://{}", server.address);
    let with = [("LWP_FLEET_TOKEN", server.secret.as_str()), ("PATH", path.as_str())];
    let sent = run(&["push", "--as", "otlp", "--to", &url, data.to_str().unwrap()], &with);
    assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
    let question = b"select source, mode, count(*) as n, sum(value) > 10000 as many from recordings r \
                     join totals t on r.recording = t.recording where event = 'instructions' group by 1, 2";
    let (_, _, body) = server.ask("POST", "/v1/sql", question);
    assert_eq!(body.trim(), r#"[{"source":"otlp","mode":"sampled","n":1,"many":true}]"#);
}

/// The lwp to take: the one that `LWP` names, or that of the other workspace.
fn lwp() -> Option<std::path::PathBuf> {
    if let Some(named) = std::env::var_os("LWP") {
        return Some(std::path::PathBuf::from(named));
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let built = ["debug", "release"].map(|profile| root.join(profile).join("lwp"));
    built.into_iter().find(|path| path.is_file())
}
