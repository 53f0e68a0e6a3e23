//! Raw recordings: kept beside their rows, returned byte for byte, checked, and removed by rules of
//! their own.
//!
//! Promise: FL24
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use crate::shared::facts;
use crate::shared::recorder;
use crate::shared::store;

use std::path::{Path, PathBuf};
use std::process::Output;

use facts::Recording;
use recorder::Recorder;
use store::Store;

/// A store, and recordings of a loop.
struct Kept {
    store: Store,
    recorder: Recorder,
    path: String,
}

impl Kept {
    fn new() -> Option<Self> {
        let recorder = Recorder::find()?;
        let store = Store::new();
        let path = recorder.path_in(store.dir.path());
        Some(Self { store, recorder, path })
    }

    /// The file of a recording of a program that counts to `n`.
    fn recorded(&self, n: u64) -> PathBuf {
        let file = self.store.dir.path().join(format!("{n}.data"));
        if !file.exists() {
            let program = format!("i=0; while [ $i -lt {n} ]; do i=$((i+1)); done");
            self.recorder.record(&file, &["sh", "-c", &program]);
        }
        file
    }

    fn run(&self, words: &[&str]) -> Output {
        self.store.command(words).env("PATH", &self.path).output().expect("lwp-fleet starts")
    }

    #[track_caller]
    fn fleet(&self, words: &[&str]) -> String {
        let output = self.run(words);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {error}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Adds a file, and returns the recording's id.
    #[track_caller]
    fn add(&self, file: &Path, more: &[&str]) -> String {
        let words = [&["add", "--raw", file.to_str().unwrap()], more].concat();
        let said = self.fleet(&words);
        said.split(' ').next().unwrap().to_owned()
    }

    /// The files that are kept.
    fn files(&self) -> Vec<PathBuf> {
        let folders = std::fs::read_dir(self.store.path.join("raw")).into_iter().flatten();
        let files = folders.flat_map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap());
        files.map(|file| file.unwrap().path()).collect()
    }

    fn has(&self, id: &str) -> bool {
        self.files().iter().any(|file| file.to_str().unwrap().contains(id))
    }
}

#[test]
fn a_raw_recording_comes_back_byte_for_byte() {
    let Some(kept) = Kept::new() else { return };
    let file = kept.recorded(10);
    let id = kept.add(&file, &[]);
    assert_eq!(id.len(), 32, "{id}");
    let out = kept.store.dir.path().join("out.data");
    kept.fleet(&["get", &id[..8], "-o", out.to_str().unwrap()]);
    let bytes = std::fs::read(&file).unwrap();
    assert!(std::fs::read(&out).unwrap() == bytes);
    assert!(kept.run(&["get", &id, "-o", "-"]).stdout == bytes);
    assert!(kept.files()[0].metadata().unwrap().len() < bytes.len() as u64);
    // Once more is once; and facts have no file.
    assert_eq!(kept.add(&file, &[]), id);
    assert_eq!(kept.files().len(), 1);
    let facts = kept.store.file("one.facts", &Recording::new(1).text());
    let refused = |words: &[&str], why: &str| {
        let output = kept.run(words);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(125) && error.contains(why), "{words:?}: {error}");
    };
    refused(&["add", "--raw", &facts], "--raw keeps recordings of lwp record");
    let other = kept.fleet(&["add", &facts]);
    refused(&["get", &other[..32], "-o", "-"], "is not kept");
    refused(&["get", "0123456789", "-o", "-"], "no recording has an id");
    refused(&["get", "x*", "-o", "-"], "is no id");
}

#[test]
fn a_damaged_raw_recording_is_found_and_can_be_kept_again() {
    let Some(kept) = Kept::new() else { return };
    let file = kept.recorded(10);
    let id = kept.add(&file, &[]);
    assert!(kept.fleet(&["check", "--deep"]).contains("1 raw recordings"));
    let mut bytes = std::fs::read(&kept.files()[0]).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&kept.files()[0], &bytes).unwrap();
    for words in [&["get", &id, "-o", "-"][..], &["check", "--deep"]] {
        let output = kept.run(words);
        let all = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&all);
        assert!(output.status.code() == Some(125) && text.contains("damaged: raw/"), "{text}");
    }
    assert!(kept.fleet(&["repair"]).contains("removed 1 raw recordings"));
    assert_eq!(kept.store.number("select count(*) from recordings"), 1);
    kept.fleet(&["check", "--deep"]);
    assert_eq!(kept.add(&file, &[]), id);
    assert_eq!(kept.run(&["get", &id, "-o", "-"]).stdout, std::fs::read(&file).unwrap());
}

#[test]
fn raw_recordings_go_by_rules_of_their_own() {
    let Some(kept) = Kept::new() else { return };
    // Four commits 40 days ago, of which the third does more; and one of today.
    let date = |days: i64| {
        let sql = format!("select cast(now() - interval '{days} days' as date) as d");
        let text = kept.fleet(&["sql", "--format", "csv", &sql]);
        text.lines().nth(1).unwrap().to_owned()
    };
    let added: Vec<String> = [(44, 10), (43, 10), (42, 900), (41, 900), (0, 900)]
        .iter()
        .map(|(days, n)| {
            let commit = format!("c0ffee{days:02}");
            kept.add(&kept.recorded(*n), &["--date", &date(*days), "--commit", &commit])
        })
        .collect();
    let days = kept.store.number("select count(distinct \"date\") from recordings");
    assert_eq!((days, kept.files().len()), (5, 5));
    let rule = |text: &str| kept.store.file("rules.toml", text);
    let file = rule("[[retention]]\nkinds = ['raw']\ndays = 14\nkeep_steps = true\n");
    kept.fleet(&["retention", &file]);
    let said = kept.fleet(&["expire"]);
    assert!(said.contains("removed 2 raw recordings"), "{said}");
    let left: Vec<bool> = added.iter().map(|id| kept.has(id)).collect();
    assert_eq!(left, [false, true, true, false, true]);
    kept.fleet(&["retention", &rule("[[retention]]\nkinds = ['raw']\ndays = 14\n")]);
    kept.fleet(&["expire"]);
    assert_eq!(kept.files().len(), 1);
    assert_eq!(kept.store.number("select count(*) from recordings"), 5);
    // The file of a recording that is no more goes with the next vacuum, and no other.
    kept.add(&kept.recorded(10), &["--date", &date(43), "--commit", "c0ffee43"]);
    let file = rule("[[retention]]\nkinds = ['recording']\ndays = 14\n");
    kept.fleet(&["retention", &file]);
    kept.fleet(&["expire"]);
    assert_eq!(kept.files().len(), 2);
    kept.fleet(&["vacuum"]);
    assert_eq!(kept.files().len(), 2, "it is younger than a week");
    kept.fleet(&["vacuum", "--hours", "0", "--force"]);
    assert!(kept.has(&added[4]) && kept.files().len() == 1);
    kept.fleet(&["check", "--deep"]);
}

#[test]
fn a_time_that_is_given_stands_for_the_recording_s() {
    let store = Store::new();
    let text = |started: i64| {
        store.file(&format!("{started}.facts"), &Recording { started, ..Recording::new(1) }.text())
    };
    // A clock that was never set, and one that is a year ahead.
    for started in [12, 4_000_000_000] {
        let file = text(started);
        let refused = store.run(&["add", &file]);
        assert!(String::from_utf8_lossy(&refused.stderr).contains("\"started\""), "{refused:?}");
        let at = format!("2026-03-0{}T12:00:00Z", started % 7 + 1);
        store.fleet(&["add", "--date", &at, &file]);
    }
    assert_eq!(
        store.number(
            "select count(*) from recordings where started < timestamp '2026-03-08T00:00:00'"
        ),
        2
    );
    for wrong in ["1999-12-31", "2099-01-01", "tomorrow", "2026-13-01"] {
        let refused = store.run(&["add", "--date", wrong, &text(1_700_000_000)]);
        assert_eq!(refused.status.code(), Some(125), "{wrong}");
    }
}
