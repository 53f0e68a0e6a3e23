//! Recordings that are pushed to a server: each once, whatever happens on the way.

#[path = "shared/facts.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod facts;
#[path = "shared/http.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod http;

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
