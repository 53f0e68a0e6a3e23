//! Compaction: files that are full stay, and whoever compacts often rewrites little each time.
//!
//! Promise: FL27

use crate::shared::facts;

use std::collections::BTreeSet;
use std::path::Path;

use facts::Recording;
use lwp_facts::{Facts, Limits};
use lwp_query::check::check;
use lwp_query::compact::{compact, compact_to};
use lwp_query::{Budget, Session};
use lwp_store::{Kind, Location, Store};

/// Functions of a recording, and its lines, and its calls.
const FUNCTIONS: u64 = 60;

async fn fresh(path: &Path) -> Store {
    let place = Location::parse(path.to_str().expect("text")).expect("a place");
    Store::init(place).await.expect("a store")
}

fn recording(n: u64) -> Facts {
    let text = Recording { functions: FUNCTIONS, ..Recording::new(n) }.text();
    Facts::read(text.as_bytes(), &Limits::default()).expect("facts")
}

/// Paths of a kind's files.
async fn paths(store: &Store, kind: Kind) -> BTreeSet<String> {
    let snapshot = store.snapshot().await.expect("a version");
    snapshot.files_of(kind).map(|file| file.path.to_string()).collect()
}

async fn functions(store: &Store) -> Option<i64> {
    let session = Session::new(store, Budget::default()).await.expect("a session");
    let rows = session.ask("select count(*) as n from functions").await.expect("an answer");
    rows.longs("n")[0]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_are_full_keep_their_paths() {
    let dir = tempfile::tempdir().unwrap();
    let store = fresh(dir.path()).await;
    // More rows than the engine hands over at once: several files.
    let all: Vec<Facts> = (0..400).map(recording).collect();
    for some in all.chunks(20) {
        store.add(some).await.unwrap();
    }
    let largest = store.snapshot().await.unwrap().files().iter().map(|file| file.size).max();
    let full = 2 * largest.unwrap() as usize + 2;
    let done = compact_to(&store, Budget::default(), full).await.unwrap();
    assert!(done.old_files > 0 && done.skipped == 0, "{done:?}");
    let before = paths(&store, Kind::Function).await;
    assert!(before.len() > 1, "{before:?}");
    for n in 400..404 {
        store.add(&[recording(n)]).await.unwrap();
    }
    let done = compact_to(&store, Budget::default(), full).await.unwrap();
    assert!(done.old_files > 0, "{done:?}");
    let after = paths(&store, Kind::Function).await;
    // All but the last one, which may have been cut short.
    assert!(before.intersection(&after).count() + 1 >= before.len(), "{before:?} {after:?}");
    assert!(after.len() <= before.len() + 1, "{before:?} {after:?}");
    assert_eq!(functions(&store).await, Some(404 * FUNCTIONS as i64));
    let found = check(&store, true, Budget::default()).await.unwrap();
    assert_eq!((found.faults.len(), found.recordings), (0, 404));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_file_more_does_not_rewrite_a_day() {
    let dir = tempfile::tempdir().unwrap();
    let store = fresh(dir.path()).await;
    for n in 0..7 {
        store.add(&[recording(n)]).await.unwrap();
    }
    assert!(compact(&store, Budget::default()).await.unwrap().old_files >= 7);
    let before = paths(&store, Kind::Function).await;
    assert_eq!(before.len(), 1);
    store.add(&[recording(7)]).await.unwrap();
    assert_eq!(compact(&store, Budget::default()).await.unwrap().old_files, 0);
    assert!(paths(&store, Kind::Function).await.is_superset(&before));
    for n in 8..10 {
        store.add(&[recording(n)]).await.unwrap();
    }
    compact(&store, Budget::default()).await.unwrap();
    assert_eq!(paths(&store, Kind::Function).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_compacts_all_the_time_rewrites_a_row_a_few_times() {
    let dir = tempfile::tempdir().unwrap();
    let store = fresh(dir.path()).await;
    let (mut rewritten, mut most) = (0, 0);
    for n in 0..24 {
        store.add(&[recording(n)]).await.unwrap();
        rewritten += compact(&store, Budget::default()).await.unwrap().rows;
        most = most.max(paths(&store, Kind::Function).await.len());
    }
    let rows: u64 = store.snapshot().await.unwrap().files().iter().map(|file| file.rows).sum();
    assert!(rewritten <= 5 * rows, "{rewritten} of {rows}");
    assert!(most <= 20, "{most} files");
    assert_eq!(functions(&store).await, Some(24 * FUNCTIONS as i64));
}
