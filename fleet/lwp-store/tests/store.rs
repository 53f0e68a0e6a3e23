//! Stores in directories: once is once, whoever adds; what is damaged is an error.

use std::path::Path;

use lwp_facts::{CallFact, Facts, FunctionFact, LineFact, ModuleFact, Run, StackFact};
use lwp_profile::{CallKind, Event, Mode};
use lwp_store::object_store::ObjectStoreExt;
use lwp_store::{Error, Kind, Location, Note, Store};

/// The facts of a small recording; `seed` makes it another one.
fn facts(seed: u64) -> Facts {
    let function = |name: &str, own: u64| FunctionFact {
        name: name.into(),
        own: [own, own / 2, own / 4, own / 8, own / 9, 3, 3, 1].to_vec(),
        entered: 3,
        ..FunctionFact::default()
    };
    let functions = vec![function("main", 1000 + seed), function("parse", 2000)];
    let total = (0..8).map(|event| functions.iter().map(|row| row.own[event]).sum()).collect();
    Facts {
        run: Run {
            project: "p".into(),
            benchmark: "b".into(),
            commit: format!("{seed:040x}"),
            started: 1_700_000_000 + seed as i64,
            complete: true,
            labels: [("machine".to_owned(), "ci-3".to_owned())].into(),
            ..Run::default()
        },
        mode: Mode::Exact,
        events: Event::exact(),
        total,
        modules: vec![ModuleFact { name: "m".into(), build_id: "ff".into(), path: "/m".into() }],
        functions,
        lines: vec![LineFact { function: 1, file: "a.c".into(), line: 7, own: vec![9; 8] }],
        calls: vec![CallFact { caller: Some(0), callee: 1, how: CallKind::Direct, count: 3 }],
        stacks: Vec::new(),
    }
}

async fn fresh(dir: &Path) -> Store {
    Store::init(Location::parse(dir.to_str().expect("text")).expect("place")).await.expect("store")
}

async fn rows(store: &Store, kind: Kind) -> u64 {
    store.snapshot().await.expect("snapshot").files_of(kind).map(|file| file.rows).sum()
}

/// Promise: FL3
#[tokio::test]
async fn the_same_recording_added_twice_is_there_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = fresh(dir.path()).await;
    let first = store.add(&[facts(1), facts(2), facts(1)]).await.unwrap();
    assert_eq!(first.iter().map(|added| added.new).collect::<Vec<_>>(), [true, true, false]);
    let second = store.add(&[facts(2), facts(3)]).await.unwrap();
    assert_eq!(second.iter().map(|added| added.new).collect::<Vec<_>>(), [false, true]);
    assert_eq!(second[0].id, first[1].id);
    let version = store.snapshot().await.unwrap().version();
    assert!(!store.add(&[facts(3)]).await.unwrap()[0].new);
    // Nothing to do is no commit.
    assert_eq!(store.snapshot().await.unwrap().version(), version);
    assert_eq!(rows(&store, Kind::Recording).await, 3);
    assert_eq!(rows(&store, Kind::Function).await, 6);
    assert_eq!(rows(&store, Kind::Module).await, 3);
}

#[tokio::test]
async fn a_directory_may_have_any_name() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["with space", "x%20y", "100%", "é#?&"] {
        let path = dir.path().join(name).join("store");
        fresh(&path).await.add(&[facts(1)]).await.unwrap();
        let place = Location::parse(path.to_str().unwrap()).unwrap();
        let store = Store::open(place).await.unwrap();
        let snapshot = store.snapshot().await.unwrap();
        for file in snapshot.files() {
            store.checked(&snapshot).get(&file.path).await.unwrap();
        }
        assert!(path.join("_delta_log").is_dir());
    }
    // Nothing is beside them, under a name that was decoded once too often.
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 4);
}

#[tokio::test]
async fn a_store_is_made_once_and_opened_where_there_is_one() {
    let dir = tempfile::tempdir().unwrap();
    let place = || Location::parse(dir.path().to_str().unwrap()).unwrap();
    assert!(matches!(Store::open(place()).await, Err(Error::Missing(_))));
    fresh(dir.path()).await;
    assert!(matches!(Store::init(place()).await, Err(Error::Exists(_))));
    Store::open(place()).await.unwrap();
}

/// Promise: FL3
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn writers_at_once_add_everything_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = fresh(dir.path()).await;
    let writers = (0..6_u64).map(|writer| {
        let store = store.clone();
        tokio::spawn(async move {
            for turn in 0..6 {
                // Half of them are everybody's.
                let seed = if turn % 2 == 0 { turn } else { 100 + 10 * writer + turn };
                store.add(&[facts(seed)]).await.expect("added");
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    assert_eq!(rows(&store, Kind::Recording).await, 3 + 6 * 3);
    assert_eq!(rows(&store, Kind::Function).await, 2 * (3 + 6 * 3));
}

/// Promise: FL6
#[tokio::test]
async fn checkpoints_change_nothing_and_are_checked_too() {
    let dir = tempfile::tempdir().unwrap();
    let store = fresh(dir.path()).await;
    for n in 0..55 {
        store
            .note(&Note { commit: format!("{n:08x}"), text: "x".into(), ..Note::default() })
            .await
            .unwrap();
    }
    let log = dir.path().join("_delta_log");
    let checkpoint = std::fs::read_dir(&log).unwrap().flatten().map(|entry| entry.path());
    let mut found = checkpoint.filter(|path| path.to_string_lossy().contains(".checkpoint."));
    let checkpoint = found.next().expect("a checkpoint");
    assert_eq!(rows(&store, Kind::Note).await, 55);
    let place = || Location::parse(dir.path().to_str().unwrap()).unwrap();
    Store::open(place()).await.unwrap();
    let good = std::fs::read(&checkpoint).unwrap();
    let mut bad = good.clone();
    bad[good.len() / 2] ^= 1;
    std::fs::write(&checkpoint, bad).unwrap();
    let error = Store::open(place()).await.unwrap_err();
    assert!(matches!(error, Error::Log { version: 50, .. }), "{error}");
    // Commits before it are whole.
    assert_eq!(Store::last_good(place()).await.unwrap(), Some(49));
    let (store, snapshot) = Store::open_at(place(), Some(49)).await.unwrap();
    assert_eq!(snapshot.files_of(Kind::Note).count(), 49);
    assert!(matches!(store.snapshot().await, Err(Error::Log { version: 50, .. })));
}

/// Promise: FL6
#[tokio::test]
async fn commits_with_a_flipped_bit_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let store = fresh(dir.path()).await;
    store.add(&[facts(1)]).await.unwrap();
    let commit = dir.path().join("_delta_log/00000000000000000001.json");
    let good = std::fs::read(&commit).unwrap();
    let head = good.iter().position(|byte| *byte == b'\n').unwrap();
    let place = || Location::parse(dir.path().to_str().unwrap()).unwrap();
    for at in (head..good.len()).step_by(101) {
        for bit in [0, 3, 6] {
            let mut bad = good.clone();
            bad[at] ^= 1 << bit;
            std::fs::write(&commit, bad).unwrap();
            let error = Store::open(place()).await.unwrap_err();
            assert!(matches!(error, Error::Log { version: 1, .. }), "byte {at} bit {bit}: {error}");
        }
    }
    std::fs::write(&commit, good).unwrap();
    Store::open(place()).await.unwrap();
}

/// Promise: FL6
#[tokio::test]
async fn data_files_with_a_flipped_bit_are_errors_wherever_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let store = fresh(dir.path()).await;
    store.add(&[facts(1)]).await.unwrap();
    let snapshot = store.snapshot().await.unwrap();
    let file = snapshot.files_of(Kind::Function).next().unwrap();
    let path = dir.path().join(file.path.as_ref());
    let good = std::fs::read(&path).unwrap();
    let checked = store.checked(&snapshot);
    assert_eq!(checked.get(&file.path).await.unwrap().bytes().await.unwrap(), good);
    for at in (0..good.len()).step_by(37) {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        std::fs::write(&path, bad).unwrap();
        // Any part of the file: its block is wrong.
        let error = checked.get_range(&file.path, 4..8).await.unwrap_err().to_string();
        assert!(error.contains("damaged"), "{error}");
    }
    for cut in [0, 10, good.len() - 1] {
        std::fs::write(&path, &good[..cut]).unwrap();
        assert!(checked.get(&file.path).await.is_err());
    }
    std::fs::remove_file(&path).unwrap();
    assert!(checked.get(&file.path).await.is_err());
}

#[tokio::test]
async fn files_that_nobody_needs_are_deleted_and_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let store = fresh(dir.path()).await;
    store.add(&[facts(1)]).await.unwrap();
    // What a killed writer leaves.
    let orphan = dir.path().join("kind=function/date=2023-11-14/r-x-0.parquet");
    std::fs::write(&orphan, b"x").unwrap();
    // And one that is killed in the middle of a file.
    let half = dir.path().join("kind=function/date=2023-11-14/r-y-0.parquet#1");
    std::fs::write(&half, b"x").unwrap();
    assert_eq!(store.vacuum(1, false).await.unwrap().files, 0);
    assert_eq!(store.vacuum(0, true).await.unwrap().files, 2);
    assert!(orphan.exists() && half.exists());
    assert_eq!(store.vacuum(0, false).await.unwrap().files, 2);
    assert!(!orphan.exists() && !half.exists());
    assert_eq!(rows(&store, Kind::Recording).await, 1);
    let snapshot = store.snapshot().await.unwrap();
    for file in snapshot.files() {
        assert!(dir.path().join(file.path.as_ref()).exists());
    }
}

#[tokio::test]
async fn sampled_recordings_have_rows_by_event() {
    let dir = tempfile::tempdir().unwrap();
    let store = fresh(dir.path()).await;
    let event = |name: &str| Event { name: name.into(), interval: Some(1000), modelled: false };
    let mut sampled = facts(1);
    sampled.mode = Mode::Sampled;
    sampled.events = vec![event("instructions"), event("cache-misses")];
    sampled.total = vec![3000, 1000];
    sampled.calls.clear();
    sampled.lines.clear();
    sampled.functions[0].own = vec![1000, 0];
    sampled.functions[1].own = vec![2000, 1000];
    sampled.stacks = vec![
        StackFact { frames: vec![0], own: vec![1000, 0] },
        StackFact { frames: vec![0, 1], own: vec![2000, 1000] },
    ];
    store.add(&[sampled]).await.unwrap();
    assert_eq!(rows(&store, Kind::Total).await, 2);
    assert_eq!(rows(&store, Kind::Function).await, 3);
    assert_eq!(rows(&store, Kind::Stack).await, 3);
}
