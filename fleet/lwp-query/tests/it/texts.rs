//! Patterns and counts of texts, which are looked at once where they repeat.
#![allow(missing_docs, reason = "a test")]

use crate::shared::facts;

use std::collections::BTreeSet;

use facts::Recording;
use lwp_facts::{Facts, Limits};
use lwp_query::{Budget, Session};
use lwp_store::{Location, Store};

/// Commits, with as many functions each.
const COMMITS: u64 = 5;
const FUNCTIONS: u64 = 3000;

async fn session(path: &std::path::Path) -> Session {
    let store = Store::init(Location::parse(path.to_str().unwrap()).unwrap()).await.unwrap();
    let of = |n: u64| {
        let recording = Recording { functions: FUNCTIONS, ..Recording::new(n) };
        let mut facts = Facts::read(recording.text().as_bytes(), &Limits::default()).unwrap();
        // Some fit into a view, some don't; some have no file.
        for (n, function) in facts.functions.iter_mut().enumerate() {
            if n % 3 > 0 {
                function.file = format!("a/directory/that/is/long/{}.c", n % 7);
            }
        }
        facts
    };
    store.add(&(0..COMMITS).map(of).collect::<Vec<_>>()).await.unwrap();
    Session::new(&store, Budget::default()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn patterns_fit_the_same_texts_as_ever() {
    let dir = tempfile::tempdir().unwrap();
    let session = session(&dir.path().join("store")).await;
    let number = async |sql: &str| session.ask(sql).await.unwrap().longs("n")[0].unwrap();
    let like = async |condition: &str| {
        number(&format!("select count(*) as n from functions where {condition}")).await
    };
    let own = |fits: &dyn Fn(&str) -> bool| {
        let names = (0..FUNCTIONS).map(|n| format!("function_{n}"));
        (COMMITS * names.filter(|name| fits(name)).count() as u64) as i64
    };
    let [ends, has] = [own(&|name| name.ends_with('9')), own(&|name| name.contains("_17"))];
    let both = own(&|name| name.contains("_17") && name.len() > 12 && name.ends_with('9'));
    assert!(ends > 0 && has > 0 && both > 0);
    assert_eq!(like("function like '%9'").await, ends);
    assert_eq!(like("function like '%\\_17%'").await, has);
    assert_eq!(like("function like '_unction\\_17%_9' and function like '%9'").await, both);
    assert_eq!(like("function not like '%9'").await, own(&|_| true) - ends);
    // Neither fits without a file.
    let files = (0..FUNCTIONS).filter(|n| n % 3 > 0).count() as i64 * COMMITS as i64;
    assert_eq!(like("file like '%long%.c'").await, files);
    assert_eq!(like("file not like '%x'").await, files);
    assert_eq!(like("file is null").await, own(&|_| true) - files);
    // The same in all files.
    assert_eq!(like("benchmark like '%b'").await, own(&|_| true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn different_texts_are_counted_once() {
    let dir = tempfile::tempdir().unwrap();
    let session = session(&dir.path().join("store")).await;
    let sql = "select count(distinct function), count(distinct file) as f, \
               count(distinct \"commit\") filter (where line is not null or func > 0) as c, \
               count(distinct branch) as b, count(file) as n from functions";
    let rows = session.ask(sql).await.unwrap();
    let one = |name: &str| rows.longs(name)[0].unwrap();
    let names: BTreeSet<u64> = (0..FUNCTIONS).collect();
    assert_eq!(one("count(DISTINCT functions.function)"), names.len() as i64);
    assert_eq!(one("f"), 7);
    assert!((1..=COMMITS as i64).contains(&one("c")));
    assert_eq!(one("b"), 1);
    assert_eq!(one("n"), (0..FUNCTIONS).filter(|n| n % 3 > 0).count() as i64 * COMMITS as i64);
    let sql = "select count(distinct function) as n, count(distinct file) as f from functions \
               where benchmark = 'none'";
    let none = session.ask(sql).await.unwrap();
    assert_eq!((none.longs("n")[0], none.longs("f")[0]), (Some(0), Some(0)));
}
