//! The canned questions: what is compared, what a limit refuses, which ancestor is the base, what is drawn.

use crate::shared::facts;
use crate::shared::store;

use std::path::Path;
use std::process::Command;

use facts::{commit, of};
use store::Store;

#[track_caller]
fn git(tree: &Path, words: &[&str]) -> String {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=a", "-c", "user.email=a@b"]).args(words).current_dir(tree);
    let output = command.output().expect("git starts");
    assert!(output.status.success(), "{words:?}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Promise: FL11
#[test]
fn comparisons_name_functions_and_limits_end_with_3() {
    let store = Store::new();
    store.add(&of(1, 1000, "b", "main"));
    store.add(&of(1, 1000, "same", "main"));
    store.add(&of(2, 1010, "b", "topic"));
    store.add(&of(2, 1000, "same", "topic"));
    let (a, b) = (commit(1), commit(2));
    let text = store.fleet(&["compare", &a, &b]);
    assert!(text.contains("p b: 210,000,000 to 212,100,000, +2,100,000 (+1.00%)"), "{text}");
    assert!(text.contains("+200,000  function_19 [m]"), "{text}");
    assert!(text.contains("1 of 2 benchmarks are identical"), "{text}");
    assert_eq!(
        store.fleet(&["compare", "branch:main", "branch:topic"]).lines().count(),
        text.lines().count()
    );
    let code = |limit: &str| store.run(&["compare", &a, &b, "--limit", limit]).status.code();
    let codes = ["+0.5%", "+1.5%", "+2000000", "+2100000"].map(code);
    assert_eq!(codes, [Some(3), Some(0), Some(3), Some(0)]);
    assert_eq!(code("much"), Some(125));
    // A note says that it was meant.
    store.fleet(&["note", &b, "the new parser", "--benchmark", "b"]);
    assert_eq!(code("+0.5%"), Some(0));
    let comment = store.fleet(&["compare", &a, &b, "--limit", "+0.5%", "--format", "markdown"]);
    assert!(comment.contains("the new parser") && comment.contains("+1.00%"), "{comment}");
    let none = store.run(&["compare", "ffffffff", &b]);
    assert!(String::from_utf8_lossy(&none.stderr).contains("no recording of 'ffffffff'"));
}

/// Promise: FL11
#[test]
fn the_base_is_the_nearest_ancestor_that_was_recorded() {
    let store = Store::new();
    let tree = store.dir.path().join("tree");
    let git = |words: &[&str]| git(&tree, words);
    std::fs::create_dir(&tree).unwrap();
    git(&["init", "-q", "-b", "main"]);
    let made = |message: &str| {
        git(&["commit", "-q", "--allow-empty", "-m", message]);
        git(&["rev-parse", "HEAD"])
    };
    let (first, second, third) = (made("1"), made("2"), made("3"));
    git(&["checkout", "-q", "-b", "topic"]);
    let topic = made("4");
    let at = |n: u64, scale: u64, hash: &str| {
        store.add(&of(n, scale, "b", "main").replace(&commit(n), hash))
    };
    // The nearest one, the third, has no recording; the first and second have.
    at(1, 1, &first);
    at(2, 2, &second);
    at(4, 3, &topic);
    let output = store.run_in(&tree, &["compare", "base", "--onto", "main"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains(&format!("{topic} compared with {second}")), "{text}{said}");
    assert!(said.contains(&second) && said.contains("1 commits before"), "{said}");
    at(3, 3, &third);
    let output = store.run_in(&tree, &["compare", "base", "--onto", "main"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains(&format!("compared with {third}")));
}

#[test]
fn notes_are_about_the_commit_that_git_means() {
    let store = Store::new();
    let tree = store.dir.path();
    git(tree, &["init", "-q", "-b", "main"]);
    git(tree, &["commit", "-q", "--allow-empty", "-m", "1"]);
    let head = git(tree, &["rev-parse", "HEAD"]);
    store.add(&of(1, 1, "b", "main").replace(&commit(1), &head));
    assert_eq!(store.fleet(&["note", "HEAD", "as git says"]), format!("noted {head}\n"));
    store.fleet(&["note", &head[..8].to_uppercase(), "by letters"]);
    let history = store.fleet(&["history"]);
    assert!(history.contains("as git says; by letters"), "{history}");
    for (name, why) in [("HEAD^", "neither hexadecimal nor"), ("expected", "git"), ("abc", "short")]
    {
        let refused = store.run(&["note", name, "x"]);
        let error = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(125), "{error}");
        assert!(error.contains(why) && error.contains(name), "{error}");
    }
    assert_eq!(store.number("select count(*) from notes"), 2);
}

#[test]
fn a_question_that_needs_more_memory_than_it_may_take_says_so() {
    let store = Store::new();
    let sql = "select count(*) from generate_series(1, 1000000) a \
               join generate_series(1, 1000000) b on a.value = b.value";
    let output = store.run(&["sql", "--memory", "1", sql]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{error}");
    let (cause, help) = error.split_once('\n').unwrap();
    assert_eq!(cause, "lwp-fleet: more memory is needed than may be taken");
    assert!(help.starts_with("help: ") && help.contains("--memory"), "{help}");
    assert_eq!(store.number(sql), 1_000_000);
}

#[test]
fn flame_graphs_show_a_filter_and_colour_what_changed() {
    let store = Store::new();
    store.add(&of(1, 1000, "b", "main"));
    store.add(&of(2, 1500, "b", "main"));
    let (a, b) = (commit(1), commit(2));
    let draw = |words: &[&str]| store.fleet(&[&["flamegraph", "-o", "-"], words].concat());
    let one = draw(&[&format!("commit={a}")]);
    assert!(one.contains("<svg") && one.contains("function_19"), "{one}");
    // All of a function's calls come from function_0, whose box is around the others.
    assert!(one.contains("210,000,000"), "the whole is the sum of all functions");
    assert!(draw(&[]).contains("525,000,000"), "two recordings are added up");
    let changed = draw(&[&format!("commit={b}"), "--baseline", &format!("commit={a}")]);
    assert!(changed.contains("compared with") && changed != draw(&[&format!("commit={b}")]));
    let page = store.dir.path().join("x.html");
    store.fleet(&["flamegraph", "-o", page.to_str().unwrap()]);
    assert!(std::fs::read_to_string(page).unwrap().starts_with("<!"));
    let nothing = store.run(&["flamegraph", "-o", "-", "benchmark=none"]);
    assert!(String::from_utf8_lossy(&nothing.stderr).contains("no recording is chosen"));
}

#[test]
fn words_of_sql_and_columns_are_explained() {
    let store = Store::new();
    store.add(&of(1, 1, "b", "main"));
    for sql in [
        "select interval, event from totals limit 1",
        "select event, interval from recording_values",
    ] {
        let refused = store.run(&["sql", sql]);
        let error = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(125), "{error}");
        assert!(error.contains("needs quotes: \"interval\""), "{error}");
    }
    store.fleet(&["sql", "select \"interval\", event from recording_values limit 1"]);
    let help = store.fleet(&["sql", "--help"]);
    for word in ["entered", "rollups: ", "callee_function", "series", "\"interval\""] {
        assert!(help.contains(word), "{word}: {help}");
    }
    assert!(store.fleet(&["check"]).contains("sizes only: --deep reads every byte"));
    assert!(!store.fleet(&["check", "--deep"]).contains("--deep"));
}

#[test]
fn stores_are_found_by_any_path() {
    let store = Store::new();
    let inside = store.dir.path().join("a");
    std::fs::create_dir(&inside).unwrap();
    let one = store.file("one.facts", &of(1, 1, "b", "main"));
    for place in ["../other", "../with%20signs", "../a b/c"] {
        let run = |words: &[&str]| {
            let output = store.run_in(&inside, words);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{place}: {said}");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        run(&["init", "--store", place]);
        run(&["add", "--store", place, &one]);
        assert!(run(&["report", "--store", place]).contains("function_19"));
        assert!(inside.join(place).join("_delta_log").is_dir(), "{place}");
    }
}
