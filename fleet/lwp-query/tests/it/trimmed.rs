//! A log that was trimmed: what it says is the same, and no file stays that no version needs.
//!
//! Promise: FL26

use crate::shared::facts;

use std::path::Path;

use facts::Recording;
use lwp_facts::{Facts, Limits};
use lwp_query::Budget;
use lwp_query::check::check;
use lwp_store::{Error, Kind, Location, Note, Store};

fn place(path: &Path) -> Location {
    Location::parse(path.to_str().expect("text")).expect("a place")
}

async fn note(store: &Store, commits: std::ops::Range<u64>) {
    for n in commits {
        let note = Note { commit: format!("{n:08x}"), text: "x".into(), ..Note::default() };
        store.note(&note).await.expect("a note");
    }
}

/// The names of the files of a folder that have a number, with these numbers.
fn numbers(folder: &Path) -> Vec<u64> {
    let names = std::fs::read_dir(folder).expect("a folder").flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut all: Vec<u64> = names.filter_map(|name| name.get(..20)?.parse().ok()).collect();
    all.sort_unstable();
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trimmed_log_says_what_it_said() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = Store::init(place(&path)).await.unwrap();
    let text = Recording::new(1).text();
    store.add(&[Facts::read(text.as_bytes(), &Limits::default()).unwrap()]).await.unwrap();
    note(&store, 0..108).await;
    let (log, sums) = (path.join("_delta_log"), path.join("_lwp/checkpoints"));
    // Whoever read an hour ago may need the first version; now nobody needs what is before the last
    // checkpoint.
    assert_eq!(store.vacuum(1, false).await.unwrap().files, 0);
    let planned = store.vacuum(0, true).await.unwrap();
    assert_eq!((numbers(&log)[0], numbers(&sums).len()), (0, 2));
    assert_eq!(store.vacuum(0, false).await.unwrap(), planned);
    assert_eq!(numbers(&log).iter().min(), Some(&100));
    assert_eq!(numbers(&sums), [100]);
    let store = Store::open(place(&path)).await.unwrap();
    let found = check(&store, true, Budget::default()).await.unwrap();
    assert_eq!((found.version, found.recordings, found.faults.len()), (109, 1, 0));
    let older = store.snapshot_at(105).await.unwrap();
    assert_eq!(older.files_of(Kind::Note).count(), 104);
    let gone = store.snapshot_at(99).await.unwrap_err();
    assert!(matches!(gone, Error::NoVersion { first: 100, last: 109, .. }), "{gone}");
    // It goes on from there.
    note(&store, 108..160).await;
    store.vacuum(0, false).await.unwrap();
    assert_eq!(numbers(&log).iter().min(), Some(&150));
    let store = Store::open(place(&path)).await.unwrap();
    assert_eq!(store.snapshot().await.unwrap().files_of(Kind::Note).count(), 160);
    assert!(check(&store, true, Budget::default()).await.unwrap().faults.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_checkpoint_keeps_what_is_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = Store::init(place(&path)).await.unwrap();
    note(&store, 0..101).await;
    let log = path.join("_delta_log");
    let checkpoint = log.join("00000000000000000050.checkpoint.parquet");
    let good = std::fs::read(&checkpoint).unwrap();
    // Versions that were replaced less than two hours ago begin with the first of two checkpoints.
    let now = std::time::SystemTime::now();
    let hours = |n: u64| now - std::time::Duration::from_secs(3600 * n);
    for entry in std::fs::read_dir(&log).unwrap().flatten() {
        let is_old = entry
            .file_name()
            .to_string_lossy()
            .get(..20)
            .is_some_and(|name| name.parse::<u64>().is_ok_and(|version| version < 80));
        let file = std::fs::File::options().write(true).open(entry.path()).unwrap();
        file.set_modified(hours(if is_old { 3 } else { 0 })).unwrap();
    }
    let mut bad = good.clone();
    bad[good.len() / 2] ^= 1;
    let damage = |bytes: &[u8]| {
        std::fs::write(&checkpoint, bytes).unwrap();
        let file = std::fs::File::options().write(true).open(&checkpoint).unwrap();
        file.set_modified(hours(3)).unwrap();
    };
    damage(&bad);
    let store = Store::open(place(&path)).await.unwrap();
    store.vacuum(2, false).await.unwrap();
    assert_eq!(numbers(&log)[0], 0);
    damage(&good);
    let store = Store::open(place(&path)).await.unwrap();
    store.vacuum(2, false).await.unwrap();
    assert_eq!(numbers(&log)[0], 50);
    assert_eq!(store.snapshot_at(60).await.unwrap().files_of(Kind::Note).count(), 60);
    assert_eq!(store.snapshot().await.unwrap().files_of(Kind::Note).count(), 101);
}
