//! Joins of a recording's rows: a condition on what they share is one on both tables.
#![allow(missing_docs, reason = "a test")]

use crate::shared::facts;

use facts::Recording;
use lwp_facts::{Facts, Limits};
use lwp_query::{Budget, Session};
use lwp_store::{Location, Store};

const BENCHMARKS: [&str; 3] = ["a", "b", "c"];
const COMMITS: u64 = 4;
/// Functions of a recording, each of which is called once.
const FUNCTIONS: u64 = 30;
/// Rows of a kind of a benchmark.
const ROWS: i64 = (COMMITS * FUNCTIONS) as i64;

async fn session(path: &std::path::Path) -> Session {
    let store = Store::init(Location::parse(path.to_str().unwrap()).unwrap()).await.unwrap();
    let of = |n: u64, benchmark| {
        let text = Recording { functions: FUNCTIONS, benchmark, ..Recording::new(n) }.text();
        Facts::read(text.as_bytes(), &Limits::default()).unwrap()
    };
    let all: Vec<Facts> = (0..COMMITS).flat_map(|n| BENCHMARKS.map(|name| of(n, name))).collect();
    store.add(&all).await.unwrap();
    Session::new(&store, Budget::default()).await.unwrap()
}

/// The number that a query answers, and how often its plan asks for the benchmark `a`.
async fn asked(session: &Session, sql: &str) -> (i64, usize) {
    let rows = session.ask(sql).await.unwrap();
    let plan = session.frame(sql).await.unwrap().into_optimized_plan().unwrap();
    let plan = plan.display_indent().to_string();
    let conditions = plan.matches("benchmark = Utf8View(\"a\")").count();
    (rows.longs("n")[0].unwrap(), conditions)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conditions_on_one_table_of_a_recording_leave_out_rows_of_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let session = session(&dir.path().join("store")).await;
    let called = "select count(*) as n from calls c join functions f \
                  on f.func = c.callee and f.recording = c.recording";
    let asked = async |sql: &str| asked(&session, sql).await;
    assert_eq!(asked(&format!("{called} where f.benchmark = 'a'")).await, (ROWS, 2));
    assert_eq!(asked(&format!("{called} and c.benchmark = 'a'")).await, (ROWS, 2));
    // Three tables, of which two are joined through the third.
    let three = format!("{called} join lines l on l.recording = c.recording and l.func = f.func");
    assert_eq!(asked(&format!("{three} where l.benchmark = 'a'")).await, (ROWS, 3));
    // Tables without other names, joined by conditions.
    let listed = "select count(*) as n from calls, functions \
                  where functions.func = calls.callee \
                  and functions.recording = calls.recording and calls.benchmark = 'a'";
    assert_eq!(asked(listed).await, (ROWS, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_joins_keep_their_conditions() {
    let dir = tempfile::tempdir().unwrap();
    let session = session(&dir.path().join("store")).await;
    let asked = async |sql: &str| asked(&session, sql).await;
    let all = BENCHMARKS.len() as i64 * ROWS;
    // Rows of a benchmark and those of all: nothing says that they are of one recording.
    let names = "select count(*) as n from calls c join functions f \
                 on f.func = c.callee and f.started = c.started where f.benchmark = 'a'";
    assert_eq!(asked(names).await, (all, 1));
    // Rows without a partner stay.
    let left = "select count(*) as n from functions f left join calls c \
                on f.func = c.callee and f.recording = c.recording and c.benchmark = 'a'";
    assert_eq!(asked(left).await, (all, 1));
    // A condition on something else.
    let called = "select count(*) as n from calls c join functions f \
                  on f.func = c.callee and f.recording = c.recording \
                  where f.function = 'function_1'";
    assert_eq!(asked(called).await, (BENCHMARKS.len() as i64 * COMMITS as i64, 0));
}
