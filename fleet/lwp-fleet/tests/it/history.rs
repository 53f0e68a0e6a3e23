//! The order of commits in histories and steps.
//!
//! Promise: FL31

use crate::shared::facts;
use crate::shared::http;
use crate::shared::store;

use facts::{Recording, commit};
use http::Served;
use store::Store;

/// Five commits, each the parent of the next one; the third is slower, and the fourth was recorded
/// before it.
fn out_of_order(store: &Store) {
    for (n, at, scale) in [(1, 0, 1000), (2, 1, 1000), (3, 4, 1100), (4, 3, 1100), (5, 5, 1100)] {
        let started = 1_700_000_000 + at;
        store.add(&Recording { scale, started, parent: n - 1, ..Recording::new(n) }.text());
    }
}

#[test]
fn commits_stand_in_the_order_of_their_parents_without_git() {
    let store = Store::new();
    out_of_order(&store);
    let history = store.fleet(&["history", "--format", "csv"]);
    let commits: Vec<&str> =
        history.lines().skip(1).filter_map(|line| line.split(',').nth(2)).collect();
    assert_eq!(commits, [1, 2, 3, 4, 5].map(commit));
    let steps = store.fleet(&["steps"]);
    assert!(steps.starts_with(&commit(3)[..12]), "{steps}");
    assert!(steps.contains(&format!("after {}", &commit(2)[..12])), "{steps}");
    let served = Served::start(&store.path, &[]);
    let (status, _, text) = served.ask("GET", "/v1/steps", b"");
    assert_eq!(status, 200, "{text}");
    assert!(text.contains(&format!("\"commit\":\"{}\"", commit(3))), "{text}");
}

#[test]
fn parents_are_known_when_recordings_were_rolled_up() {
    let store = Store::new();
    out_of_order(&store);
    let rules = "[[retention]]\nkinds = [\"recording\"]\ndays = 30\nroll_up = true\n";
    store.fleet(&["retention", &store.file("rules.toml", rules)]);
    let before = store.fleet(&["history"]);
    store.fleet(&["expire"]);
    assert_eq!(store.number("select count(*) from recordings"), 0);
    assert_eq!(store.fleet(&["history"]), before);
}
