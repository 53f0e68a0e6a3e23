//! Questions of many recordings, where an answer may have few rows.
#![allow(missing_docs, reason = "a test")]

use crate::shared::facts;

use std::collections::BTreeSet;

use facts::Recording;
use lwp_facts::{Facts, Limits};
use lwp_query::compare::{Counted, Selector, compare};
use lwp_query::expire::expire;
use lwp_query::flame::sums;
use lwp_query::steps::steps;
use lwp_query::{Budget, Error, Filter, Session};
use lwp_store::{Location, Store};

const BENCHMARKS: [&str; 5] = ["a", "b", "c", "d", "e"];
const FUNCTIONS: u64 = 60;

/// Four commits of each benchmark; all count more from the third on.
async fn filled(path: &std::path::Path) -> Store {
    let store = Store::init(Location::parse(path.to_str().unwrap()).unwrap()).await.unwrap();
    let of = |n: u64, benchmark| {
        let scale = if n < 2 { 1 } else { 3 };
        let text = Recording { functions: FUNCTIONS, scale, benchmark, ..Recording::new(n) }.text();
        Facts::read(text.as_bytes(), &Limits::default()).unwrap()
    };
    let all: Vec<Facts> = (0..4).flat_map(|n| BENCHMARKS.map(|name| of(n, name))).collect();
    store.add(&all).await.unwrap();
    store
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_of_few_rows_is_asked_for_in_parts() {
    let dir = tempfile::tempdir().unwrap();
    let store = filled(&dir.path().join("store")).await;
    let all = Filter::default();
    let session = async |rows| Session::new(&store, Budget { rows, ..Budget::default() }).await;
    let [before, after] = [1, 2].map(|n| Selector::parse(&facts::commit(n)).unwrap());
    let pair = 2 * FUNCTIONS as usize;
    let mut answers = Vec::new();
    for rows in [Budget::default().rows, 5 * pair, 2 * pair, pair] {
        let session = session(rows).await.unwrap();
        let found = steps(&session, &all, "instructions", &[], 3).await.unwrap();
        let compared =
            compare(&session, (&before, &after), &all, Counted::default()).await.unwrap();
        assert_eq!((found.len(), compared.pairs.len()), (BENCHMARKS.len(), BENCHMARKS.len()));
        assert!(found.iter().all(|step| step.changes.changed.len() == 3));
        assert!(compared.pairs.iter().all(|pair| pair.changes.changed.len() == FUNCTIONS as usize));
        answers.push((found, compared));
    }
    assert!(answers.windows(2).all(|pair| pair[0] == pair[1]));
    let session = session(pair - 1).await.unwrap();
    let none = steps(&session, &all, "instructions", &[], 3).await;
    assert!(matches!(none, Err(Error::Rows(_))), "a pair is not divided");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_keep_the_names_of_functions_that_have_expired() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = Store::init(Location::parse(path.to_str().unwrap()).unwrap()).await.unwrap();
    let today = facts::days_ago(0);
    for (functions, branch, started) in [(30, "topic", today - 9 * 86_400), (20, "main", today)] {
        let text = Recording { functions, branch, started, ..Recording::new(1) }.text();
        let facts = Facts::read(text.as_bytes(), &Limits::default()).unwrap();
        store.add(&[facts]).await.unwrap();
    }
    let named = async || {
        let session = Session::new(&store, Budget::default()).await.unwrap();
        let profile = sums(&session, &Filter::default()).await.unwrap();
        let names: BTreeSet<String> = profile.functions.into_iter().map(|it| it.name).collect();
        let calls: u64 = profile.calls.iter().map(|call| call.count).sum();
        (names, calls)
    };
    let all = (0..30).map(|n| format!("function_{n}")).collect();
    let calls = (0..30).chain(0..20).sum();
    assert_eq!(named().await, (all, calls));
    let rules = "[[retention]]\nkinds = ['function']\ndays = 5\nfilter = ['branch=topic']\n";
    store.set_retention(rules).await.unwrap();
    expire(&store, Budget::default()).await.unwrap();
    let session = Session::new(&store, Budget::default()).await.unwrap();
    let left = session.ask("select count(*) as n from functions").await.unwrap();
    assert_eq!(left.longs("n"), [Some(20)]);
    let (names, counted) = named().await;
    assert!(names.contains("function_29") && names.iter().all(|name| !name.starts_with('[')));
    assert_eq!((names.len(), counted), (30, calls));
}

/// What is sorted fits into temporary files where they may be large, and into memory nowhere.
///
/// Promise: FL36
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_that_need_more_room_than_there_may_be_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let place = Location::parse(dir.path().to_str().unwrap()).unwrap();
    let store = Store::init(place).await.unwrap();
    let sql = "select sum(n * (row % 7)) from (select a.value + b.value as n, row_number() over \
               (order by a.value % 97, b.value) as row from generate_series(1, 1000) a, \
               generate_series(1, 1500) b)";
    for (disk_mib, expected) in [(1, Some(Error::Disk.to_string())), (1 << 10, None)] {
        let budget = Budget { memory_mib: 24, disk_mib, threads: 1, ..Budget::default() };
        let session = Session::new(&store, budget).await.unwrap();
        let failure = session.ask(sql).await.err().map(|error| error.to_string());
        assert_eq!(failure, expected, "{disk_mib} MiB");
    }
}
