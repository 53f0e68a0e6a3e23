//! A damaged log: every command says which file it is, and earlier versions are read all the same.
//!
//! Promise: FL25

use crate::shared::facts;
use crate::shared::store;

use facts::facts;
use store::Store;

const COUNT: &str = "select count(*) from recordings";

/// A store with a commit for each of three recordings.
fn filled() -> Store {
    let store = Store::new();
    for n in 1..4 {
        store.add(&facts(n, 1));
    }
    store
}

/// Asserts that a command fails with words, and returns what it printed.
#[track_caller]
fn refused(store: &Store, words: &[&str], wanted: &str) -> String {
    let output = store.run(words);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{words:?}: {error}");
    assert_eq!(error.matches(wanted).count(), 1, "{words:?}: {error}");
    assert!(error.contains("help: ") && !error.contains("ParsedLogPath"), "{words:?}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_damaged_commit_is_named_and_versions_before_it_are_read() {
    let store = filled();
    let commit = store.path.join("_delta_log/00000000000000000002.json");
    let good = std::fs::read(&commit).unwrap();
    let mut bad = good.clone();
    *bad.last_mut().unwrap() ^= 1;
    for (bytes, why) in [(Some(bad), "its checksum is another"), (None, "it is missing")] {
        match bytes {
            Some(bytes) => std::fs::write(&commit, bytes).unwrap(),
            None => std::fs::remove_file(&commit).unwrap(),
        }
        let fault = format!("the log is damaged: _delta_log/00000000000000000002.json: {why}");
        let file = store.file("4.facts", &facts(4, 1));
        for words in [&["list"][..], &["sql", COUNT], &["repair"], &["compact"], &["add", &file]] {
            refused(&store, words, &fault);
        }
        let said = refused(&store, &["check", "--deep"], "--version 1 ");
        assert!(said.contains(&fault) && said.contains("version 1 is the last that can"), "{said}");
        let counted = store.fleet(&["sql", "--version", "1", "--format", "csv", COUNT]);
        assert_eq!(counted.lines().nth(1), Some("1"));
        assert_eq!(store.fleet(&["list", "--version", "1", "--format", "csv"]).lines().count(), 2);
        refused(&store, &["list", "--version", "2"], &fault);
    }
    std::fs::write(&commit, good).unwrap();
    assert_eq!(store.number(COUNT), 3);
    assert_eq!(store.fleet(&["list", "--version", "2", "--format", "csv"]).lines().count(), 3);
    let other = store.run(&["list", "--version", "9"]);
    let error = String::from_utf8_lossy(&other.stderr);
    assert!(error.contains("no version 9: the store has those from 0 to 3"), "{error}");
}

#[test]
fn a_store_goes_back_to_the_version_before_the_damage() {
    let store = filled();
    let log = store.path.join("_delta_log");
    let commit = log.join("00000000000000000002.json");
    std::fs::write(&commit, "{}").unwrap();
    refused(&store, &["list"], "the log is damaged");
    // As docs/fleet.md has it.
    for entry in std::fs::read_dir(&log).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name >= "00000000000000000002" {
            std::fs::remove_file(path).unwrap();
        }
    }
    assert_eq!(store.number(COUNT), 1);
    for n in 1..4 {
        store.add(&facts(n, 1));
    }
    assert_eq!(store.number(COUNT), 3);
    store.fleet(&["check", "--deep"]);
    store.fleet(&["vacuum", "--hours", "0", "--force"]);
    store.fleet(&["check", "--deep"]);
}
