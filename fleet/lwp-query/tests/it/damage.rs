//! Damage anywhere in a store: a question has the true answer or an error, never another answer and never a panic. `LWP_FLEET_FLIPS` is the
//! number of damages that are tried.
//!
//! Promise: FL6: bits, cuts and swaps anywhere in a store
#![allow(clippy::print_stdout, reason = "a test says how often it met an error")]

use crate::shared::facts;

use std::path::{Path, PathBuf};

use facts::Recording;
use lwp_facts::{Facts, Limits};
use lwp_query::compact::compact;
use lwp_query::{Budget, Format, Session, render};
use lwp_store::{Location, Note, Store};

/// Everything that counts, of every table.
const QUESTIONS: [&str; 6] = [
    "select count(*), sum(instructions), min(id), max(content), sum(rows_line) from recordings",
    "select count(*), sum(instructions), sum(calls), sum(entered), max(func), count(distinct function) from functions",
    "select count(*), sum(instructions), max(file), sum(\"line\") from lines",
    "select count(*), sum(entered), max(callee), count(distinct callee_function) from calls",
    "select count(*), min(module), max(path) from modules",
    "select count(*), min(\"text\") from notes",
];

async fn answers(place: &Path) -> Result<Vec<String>, String> {
    let place = Location::parse(place.to_str().expect("text")).expect("a place");
    let store = Store::open(place).await.map_err(|error| error.to_string())?;
    let session = Session::new(&store, Budget::default()).await.map_err(|e| e.to_string())?;
    let mut all = Vec::new();
    for question in QUESTIONS {
        let rows = session.ask(question).await.map_err(|error| error.to_string())?;
        all.push(render(&rows, Format::Csv).map_err(|error| error.to_string())?);
    }
    Ok(all)
}

/// Files of a directory and those in it.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(directory).expect("a directory").flatten() {
        match entry.path() {
            path if path.is_dir() => all.extend(files(&path)),
            path => all.push(path),
        }
    }
    all.sort();
    all
}

/// A file with a fault: a bit, a cut, or two places in each other's stead.
fn damaged(good: &[u8], n: u64, random: u64) -> Vec<u8> {
    let mut bad = good.to_vec();
    let at = (random >> 8) as usize % good.len();
    match n % 10 {
        0 => bad.truncate(at),
        1 => {
            let other = (random >> 32) as usize % good.len();
            let length = 64.min(good.len() - at.max(other));
            for index in 0..length {
                bad.swap(at + index, other + index);
            }
        }
        _ => bad[at] ^= 1 << (random % 8),
    }
    bad
}

/// A store of twelve recordings, nine of them compacted, and a note.
async fn filled(path: &Path) {
    let store = Store::init(Location::parse(path.to_str().unwrap()).unwrap()).await.unwrap();
    for n in 0..4 {
        let one = |n| Recording { functions: 60, ..Recording::new(n) }.text();
        let texts = [one(3 * n), one(3 * n + 1), one(3 * n + 2)];
        let read = |text: &String| Facts::read(text.as_bytes(), &Limits::default()).unwrap();
        store.add(&texts.iter().map(read).collect::<Vec<_>>()).await.unwrap();
        if n == 2 {
            compact(&store, Budget::default()).await.unwrap();
        }
    }
    let note = Note { commit: "abcd".into(), text: "expected".into(), ..Note::default() };
    store.note(&note).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_is_an_error_or_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    filled(&path).await;
    let truth = answers(&path).await.unwrap();
    let damages = std::env::var("LWP_FLEET_FLIPS").ok().and_then(|n| n.parse().ok()).unwrap_or(60);
    let files = files(&path);
    let (mut refused, mut random) = (0, 0x2545_f491_4f6c_dd1d_u64);
    for n in 0..damages {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let file = &files[(random >> 40) as usize % files.len()];
        let good = std::fs::read(file).unwrap();
        let bad = damaged(&good, n, random >> 3);
        std::fs::write(file, &bad).unwrap();
        match answers(&path).await {
            Ok(answers) => assert_eq!(answers, truth, "{n}: {}", file.display()),
            Err(error) => {
                assert!(!error.contains("panic"), "{n}: {}: {error}", file.display());
                refused += 1;
            }
        }
        std::fs::write(file, &good).unwrap();
    }
    // Old versions' files, and changes that change nothing, do no harm.
    assert!(refused * 4 > damages, "{refused} of {damages}");
    assert_eq!(answers(&path).await.unwrap(), truth);
    println!("{refused} of {damages} were errors");
}
