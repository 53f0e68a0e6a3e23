//! A store in a bucket: on a server of S3's protocol on this machine. Skipped with a message where there is none (PyPI: `moto[server]`).
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]
#![allow(clippy::disallowed_methods, reason = "a test without threads has failed")]

use crate::shared::bucket;
use crate::shared::facts;

use std::process::Stdio;
use std::time::Instant;

use bucket::Buckets;
use facts::{FUNCTIONS, facts};

const STORE: &str = "some/store";

#[test]
fn a_bucket_holds_what_a_directory_does_whoever_writes_and_whoever_is_killed() {
    let Some(buckets) = Buckets::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = |n: u64| {
        let path = dir.path().join(format!("{n}.facts"));
        std::fs::write(&path, facts(n, 1)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let missing = buckets.run(STORE, &["list"]);
    assert!(String::from_utf8_lossy(&missing.stderr).contains("there is no store"));
    buckets.fleet(STORE, &["init"]);
    assert_eq!(buckets.run(STORE, &["init"]).status.code(), Some(125));
    // Four writers of five each, of which two have the same ones.
    std::thread::scope(|scope| {
        for worker in 0..4_u64 {
            let (buckets, file) = (&buckets, &file);
            let from = 5 * worker.min(2);
            scope.spawn(move || {
                for n in from..from + 5 {
                    buckets.fleet(STORE, &["add", &file(n)]);
                }
            });
        }
    });
    let count = |table: &str| {
        let sql = format!("select count(*) from {table}");
        let text = buckets.fleet(STORE, &["sql", "--format", "csv", &sql]);
        text.lines().nth(1).and_then(|line| line.parse::<u64>().ok()).expect("a number")
    };
    assert_eq!([count("recordings"), count("functions")], [15, 15 * FUNCTIONS]);
    // Writers that are killed leave nothing in part.
    let begun = Instant::now();
    buckets.fleet(STORE, &["add", &file(20)]);
    let whole = begun.elapsed();
    for n in 21..31_u64 {
        let mut command = buckets.command(STORE, &["add", &file(n)]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(whole * (n as u32 - 20) / 10);
        let _ = child.kill();
        child.wait().unwrap();
    }
    let recordings = count("recordings");
    assert_eq!(count("functions"), recordings * FUNCTIONS);
    let all: Vec<String> = (0..31).filter(|n| !(15..20).contains(n)).map(file).collect();
    let words: Vec<&str> = ["add"].into_iter().chain(all.iter().map(String::as_str)).collect();
    assert_eq!(buckets.fleet(STORE, &words).matches(" already there").count() as u64, recordings);
    buckets.fleet(STORE, &["compact"]);
    assert_eq!([count("recordings"), count("functions")], [26, 26 * FUNCTIONS]);
    buckets.fleet(STORE, &["check", "--deep"]);
    buckets.fleet(STORE, &["vacuum", "--hours", "0", "--force"]);
    buckets.fleet(STORE, &["check", "--deep"]);
    assert!(buckets.fleet(STORE, &["report", "-n", "1"]).contains("function_19"));
}
