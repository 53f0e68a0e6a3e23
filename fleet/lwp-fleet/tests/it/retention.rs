//! Retention: rules remove what they name, roll-ups keep totals, and questions about totals have the same answers before and after.
//!
//! Promise: FL10

use crate::shared::facts;
use crate::shared::store;

use facts::{FUNCTIONS, Recording, commit, days_ago};
use store::Store;

const ROWS: &str = "select (select count(*) from recordings) as r, (select count(*) from functions) as f, \
                    (select count(*) from lines) as l, (select count(*) from calls) as c, \
                    (select count(*) from modules) as m";

fn set(store: &Store, rules: &str) {
    store.fleet(&["retention", &store.file("rules.toml", rules)]);
}

#[test]
fn what_the_rules_name_expires_and_totals_stay() {
    let store = Store::new();
    let recording = |n: u64, branch, days| {
        Recording { branch, started: days_ago(days), ..Recording::new(n) }.text()
    };
    store.add(&recording(1, "main", 100));
    store.add(&recording(2, "main", 5));
    store.add(&recording(3, "topic/x", 40));
    set(
        &store,
        "[[retention]]\nkinds = ['line', 'call']\ndays = 90\n\n\
         [[retention]]\nkinds = ['recording']\ndays = 30\nfilter = ['branch=topic/*']\n",
    );
    let functions = FUNCTIONS as i64;
    assert_eq!(store.numbers(ROWS), [3, 3 * functions, 3 * functions, 3 * functions, 3]);
    let before = store.number("select sum(instructions) from recordings where branch = 'main'");
    store.fleet(&["expire"]);
    let after = [2, 2 * functions, functions, functions, 2];
    assert_eq!(store.numbers(ROWS), after);
    assert_eq!(store.number("select sum(instructions) from recordings"), before);
    // It is done once, and the store is whole; files go when nobody can be reading them.
    assert!(store.fleet(&["expire"]).starts_with("removed 0 rows"));
    store.fleet(&["check", "--deep"]);
    store.fleet(&["vacuum", "--hours", "0", "--force"]);
    store.fleet(&["check", "--deep"]);
    assert_eq!(store.numbers(ROWS), after);
    // A wrong rule is refused before it is kept.
    for (rules, why) in [
        ("[[retention]]\nkinds = ['everything']\ndays = 1\n", "no rows of kind 'everything'"),
        ("[[retention]]\nkinds = ['line']\ndays = 1\nroll_up = true\n", "roll_up is about"),
    ] {
        let refused = store.run(&["retention", &store.file("rules.toml", rules)]);
        assert!(String::from_utf8_lossy(&refused.stderr).contains(why), "{why}");
    }
}

/// The answers to every question about totals.
fn totals(store: &Store) -> Vec<String> {
    let ask = |words: &[&str]| store.fleet(words);
    let sql = |of: &str| {
        let sql = format!(
            "select {of}, event, sum(runs) as n, min(least) as least, max(greatest) as most, \
                           sum(\"value\") as v from series group by {of}, event order by {of}, event"
        );
        store.fleet(&["sql", "--format", "csv", &sql])
    };
    let mut all = vec![
        ask(&["history", "--format", "json"]),
        ask(&["history", "--format", "json", "-e", "calls"]),
        ask(&["history", "--format", "json", "branch=topic/*"]),
        ask(&["history", "--format", "json", "host=b", "label.machine=ci-3"]),
        ask(&["history", "--format", "json", "deterministic=true", "complete=true", "since=90d"]),
        ask(&["history", "--format", "json", "-e", "samples", "mode=sampled"]),
        sql("project, benchmark, branch"),
        sql("\"commit\", host"),
        sql("\"date\""),
    ];
    for by in ["benchmark", "host", "commit"] {
        all.push(ask(&["report", "-s", by, "--format", "csv"]));
    }
    all
}

/// Recordings of two benchmarks on two machines at twelve commits, the oldest of them 72 days old; each was recorded three times.
fn filled() -> Store {
    let store = Store::new();
    let mut files = Vec::new();
    for n in 0..12_u64 {
        let began = days_ago(72 - 6 * n as i64) / 86_400 * 86_400;
        for run in 0..3_u64 {
            for (benchmark, host, machine) in
                [("parse", "a", ""), ("parse", "b", "ci-3"), ("sum", "a", "ci-3")]
            {
                let branch = if n % 3 == 2 { "topic/x" } else { "main" };
                let scale = if n >= 5 { 1100 } else { 1000 } + run;
                let started = began + 3600 * run as i64;
                let one = Recording {
                    scale,
                    benchmark,
                    branch,
                    host,
                    machine,
                    started,
                    functions: 5,
                    ..Recording::new(n)
                };
                let name = format!("{n}-{run}-{benchmark}-{host}");
                files.push(store.file(&name, &one.text()));
            }
        }
        // A sampled one beside them, without a commit.
        let name = format!("{n}.folded");
        let folded = store.file(&name, &format!("main;find {}\nmain {n}\n", 100 + n));
        // Its time is that of its file.
        let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(began as u64);
        std::fs::File::options().write(true).open(&folded).unwrap().set_modified(at).unwrap();
        files.push(folded);
    }
    let words: Vec<&str> = ["add"].into_iter().chain(files.iter().map(String::as_str)).collect();
    store.fleet(&words);
    store
}

#[test]
fn totals_are_the_same_before_and_after_a_roll_up() {
    let store = filled();
    let before = totals(&store);
    let steps = store.fleet(&["steps", "--json"]);
    assert!(steps.contains(&commit(5)), "{steps}");
    let rows = store.numbers(ROWS);
    set(&store, "[[retention]]\nkinds = ['recording']\ndays = 30\nroll_up = true\n");
    store.fleet(&["expire"]);
    let fewer = store.numbers(ROWS);
    assert!(fewer.iter().zip(&rows).all(|(now, then)| now < then && *now > 0), "{fewer:?}");
    let keys =
        "select count(distinct recording), sum(runs) filter (where event = 'calls') from rollups";
    let [rollups, runs] = store.numbers(keys)[..] else { panic!("two") };
    assert!(rollups * 2 < rows[0] - fewer[0] && runs > rollups, "{rollups} of {runs}");
    for (now, then) in totals(&store).iter().zip(&before) {
        assert_eq!(now, then);
    }
    // The step stays where it was; nobody knows its functions any more, and none is made up.
    let after = store.fleet(&["steps", "--json"]);
    assert_eq!(after.matches("\"step\"").count(), steps.matches("\"step\"").count());
    assert!(after.contains(&commit(5)) && !after.contains("function_4"), "{after}");
    store.fleet(&["check", "--deep"]);
    assert!(store.fleet(&["expire"]).starts_with("removed 0 rows"));
    // Whoever sends an expired recording once more does not count it twice.
    let again = store.dir.path().join("0-0-parse-a");
    assert!(store.fleet(&["add", again.to_str().unwrap()]).contains(" already there"));
    store.fleet(&["compact"]);
    store.fleet(&["vacuum", "--hours", "0", "--force"]);
    for (now, then) in totals(&store).iter().zip(&before) {
        assert_eq!(now, then);
    }
    store.fleet(&["check", "--deep"]);
    // Roll-ups expire by rules of their own.
    set(&store, "[[retention]]\nkinds = ['rollup']\ndays = 50\nfilter = ['label.machine=ci-3']\n");
    store.fleet(&["expire"]);
    let left = "select count(distinct recording), count(*) filter (where host = 'a') from rollups";
    let [left, of_a] = store.numbers(left)[..] else { panic!("two") };
    assert!(left < rollups && of_a > 0, "{left}");
}

#[test]
fn functions_that_expired_on_one_side_are_no_change() {
    let store = Store::new();
    for (n, days) in [(1, 40), (2, 5)] {
        store.add(&Recording { scale: n, started: days_ago(days), ..Recording::new(n) }.text());
    }
    let (a, b) = (commit(1), commit(2));
    assert!(store.fleet(&["compare", &a, &b]).contains("function_19"));
    set(&store, "[[retention]]\nkinds = ['function', 'line', 'call']\ndays = 30\n");
    store.fleet(&["expire"]);
    let text = store.fleet(&["compare", &a, &b]);
    assert!(!text.contains("function_19") && text.contains("have expired"), "{text}");
    assert!(text.contains("p b: 210,"), "{text}");
    store.fleet(&["check", "--deep"]);
}
