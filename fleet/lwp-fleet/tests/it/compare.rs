//! `lwp fleet compare`: benchmarks that vanished, renamed functions, counts that do not repeat.

use crate::shared::facts;
use crate::shared::store;

use facts::{Recording, commit, of};
use lwp_facts::{Facts, Limits};
use store::Store;

/// A comparison of the first two commits: its text, what it says beside, and its exit status.
fn compare(store: &Store, more: &[&str]) -> (String, String, Option<i32>) {
    let (a, b) = (commit(1), commit(2));
    let output = store.run(&[&["compare", &a, &b], more].concat());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

/// Promise: FL29
#[test]
fn benchmarks_that_vanished_are_findings() {
    let store = Store::new();
    for benchmark in ["x", "y", "z"] {
        store.add(&of(1, 1000, benchmark, "main"));
    }
    store.add(&of(2, 1000, "x", "main"));
    store.add(&of(2, 1000, "fresh", "main"));
    let (comment, ..) = compare(&store, &["--format", "markdown"]);
    assert!(comment.starts_with("### lwp: 2 benchmarks vanished, 1 is new\n"), "{comment}");
    assert!(comment.contains("\n* y\n* z\n") && comment.contains("\n* fresh\n"), "{comment}");
    assert!(!comment.contains("No count changed"), "{comment}");
    let (text, ..) = compare(&store, &[]);
    assert!(text.contains(": p y, p z\n") && text.contains(": p fresh\n"), "{text}");
    // A finding under a limit, and only there.
    assert_eq!(compare(&store, &[]).2, Some(0));
    let (_, said, code) = compare(&store, &["--limit", "+1%"]);
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("y vanished") && said.contains("z vanished"), "{said}");
    assert!(said.contains("--allow-vanished"), "{said}");
    assert_eq!(compare(&store, &["--limit", "+1%", "--allow-vanished", "y"]).2, Some(4));
    assert_eq!(compare(&store, &["--limit", "+1%", "--allow-vanished", "*"]).2, Some(0));
    // A note allows it if it names the benchmark.
    store.fleet(&["note", &commit(2), "a release"]);
    assert_eq!(compare(&store, &["--limit", "+1%"]).2, Some(4));
    for benchmark in ["y", "z"] {
        store.fleet(&["note", &commit(2), "removed", "--benchmark", benchmark]);
    }
    assert_eq!(compare(&store, &["--limit", "+1%"]).2, Some(0));
    assert!(compare(&store, &["--format", "markdown"]).0.contains("* y: removed\n"));
}

#[test]
fn what_grew_comes_before_what_vanished() {
    let store = Store::new();
    for benchmark in ["x", "y"] {
        store.add(&of(1, 1000, benchmark, "main"));
    }
    store.add(&of(2, 2000, "x", "main"));
    let (comment, said, code) = compare(&store, &["--limit", "+1%", "--format", "markdown"]);
    assert_eq!(code, Some(3), "{said}");
    let verdict = "### lwp: 1 of 1 benchmarks grew by more than they may, 1 benchmark vanished\n";
    assert!(comment.starts_with(verdict), "{comment}");
    assert!(said.contains("x grew by +100.00%") && said.contains("y vanished"), "{said}");
}

/// Promise: FL29
#[test]
fn benchmarks_of_two_projects_have_their_projects_names() {
    let store = Store::new();
    for project in ["one", "two"] {
        for (n, scale) in [(1, 1000), (2, 1010)] {
            store.add(&Recording { project, scale, ..Recording::new(n) }.text());
        }
    }
    let (comment, ..) = compare(&store, &["--format", "markdown"]);
    assert!(comment.contains("\n| one b |") && comment.contains("\n| two b |"), "{comment}");
    assert!(comment.contains("<summary>one b</summary>"), "{comment}");
    let (_, said, code) = compare(&store, &["--limit", "+0.1%"]);
    assert_eq!(code, Some(3));
    assert!(said.contains("one b grew") && said.contains("two b grew"), "{said}");
    // One project needs no name.
    let (comment, ..) = compare(&store, &["--format", "markdown", "project=one"]);
    assert!(comment.contains("\n| b |"), "{comment}");
}

/// Commit 2: all functions have other names, and one executes more.
fn renamed(functions: u64) -> String {
    let text = Recording { functions, ..Recording::new(2) }.text();
    let text = text.replace("\"function_", "\"core::function_");
    // The function and the total that it is part of.
    let grown = |count: u64| (format!("[{count},"), format!("[{},", count + 20_000_000));
    let (own, more) = grown(8000);
    let total = 1000 * functions * (functions + 1) / 2;
    let (whole, whole_more) = grown(total);
    assert!(text.contains(&own) && text.contains(&whole), "{text}");
    text.replacen(&own, &more, 1).replacen(&whole, &whole_more, 1)
}

/// Promise: FL30
#[test]
fn renames_do_not_hide_the_function_that_grew() {
    let store = Store::new();
    store.add(&Recording { functions: 300, ..Recording::new(1) }.text());
    store.add(&renamed(300));
    let cause = "+20,000,000  core::function_7 [m], renamed from function_7\n";
    let (text, ..) = compare(&store, &[]);
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    assert_eq!(lines[2], cause.trim(), "{text}");
    assert!(lines[3].starts_with("299 functions renamed: "), "{text}");
    assert_eq!(text.matches("_7 ").count() + text.matches("_7\n").count(), 2, "{text}");
    let steps = store.fleet(&["steps"]);
    assert!(steps.contains(cause) && steps.contains("299 functions renamed"), "{steps}");
    let (comment, ..) = compare(&store, &["--format", "markdown"]);
    assert!(
        comment.contains("| core::function\\_7, renamed from function\\_7 (m) | 8,000 |"),
        "{comment}"
    );
}

/// Promise: FL32
#[test]
fn counts_that_do_not_repeat_have_their_own_spread_as_limit() {
    let store = Store::new();
    let run = |n: u64, scale: u64, at: i64| {
        let started = 1_700_000_000 + at;
        store.add(&Recording { scale, started, deterministic: false, ..Recording::new(n) }.text());
    };
    run(1, 1000, 1);
    run(2, 1010, 2);
    let (comment, ..) = compare(&store, &["--format", "markdown"]);
    assert!(comment.contains("neither recording is deterministic"), "{comment}");
    assert!(comment.contains("spread is unknown"), "{comment}");
    assert_eq!(compare(&store, &["--limit", "+0.5%"]).2, Some(3));
    // Runs of the first commit differ by more than the two commits do.
    run(1, 1020, 0);
    let (comment, ..) = compare(&store, &["--format", "markdown"]);
    assert!(comment.contains("runs of one commit differ by up to 4,200,000"), "{comment}");
    assert_eq!(compare(&store, &["--limit", "+0.5%"]).2, Some(0));
    run(2, 1100, 3);
    assert_eq!(compare(&store, &["--limit", "+0.5%"]).2, Some(3));
}

/// Promise: FL32
#[test]
fn recordings_without_instructions_are_compared_in_the_event_that_they_have() {
    let store = Store::new();
    let folded = |count: u32| format!("main;work {count}\nmain;rest 50\n");
    for (n, count) in [(1, 100), (2, 150)] {
        let file = store.file(&format!("{n}.folded"), &folded(count));
        let (hash, day) = (commit(n), format!("2023-11-0{n}"));
        store.fleet(&["add", "--commit", &hash, "--benchmark", "b", "--date", &day, &file]);
    }
    let (text, said, code) = compare(&store, &[]);
    assert_eq!(code, Some(0), "{said}");
    assert!(text.starts_with("# samples: ") && text.contains("+50  work"), "{text}");
    for words in [&["history"][..], &["report"], &["steps"], &["flamegraph", "-o", "-"]] {
        store.fleet(words);
    }
    let (_, said, code) = compare(&store, &["-e", "branches"]);
    assert_eq!(code, Some(125));
    assert!(said.contains("has the event 'branches'; they have samples"), "{said}");
    // Exact counts are asked before samples where there are both.
    store.add(&of(3, 1, "b", "main"));
    assert!(store.fleet(&["report", "-s", "benchmark"]).contains("instructions"));
    // Of several events, somebody has to choose.
    let metrics = r#"{"default/x": {"latency": {"value": 12.5}, "size": {"value": 7}}}"#;
    let other = Store::new();
    other.fleet(&["add", "--commit", &commit(1), &other.file("b.json", metrics)]);
    let refused = other.run(&["history"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(125), "{said}");
    assert!(said.contains("choose one of size, wall-time-ps"), "{said}");
}

/// A recording of time with a sample each millisecond: `main` calls `work` and `rest`.
fn timed(n: u64, work: u64, rest: u64) -> String {
    let (commit, started, total) = (commit(n), 1_700_000_000 + n, work + rest);
    let own = [0, work, rest].map(|value| value * 1_000_000);
    let function = |(name, own): (&str, u64)| {
        format!(r#"{{"kind":"function","module":0,"name":"{name}","own":[{own}]}}"#)
    };
    let stack =
        |index: usize| format!(r#"{{"kind":"stack","frames":[0,{index}],"own":[{}]}}"#, own[index]);
    let head = format!(
        r#"{{"facts":1,"project":"p","benchmark":"b","commit":"{commit}","started":{started},"source":"lwp","mode":"sampled","deterministic":false,"complete":true,"labels":{{}},"events":[{{"name":"cpu-time","interval":1000000}}],"total":[{}]}}"#,
        total * 1_000_000
    );
    let mut lines = vec![head, r#"{"kind":"module","name":"m"}"#.to_owned()];
    lines.extend(["main", "work", "rest"].into_iter().zip(own).map(function));
    lines.extend([stack(1), stack(2)]);
    lines.push(format!(r#"{{"end":{}}}"#, lines.len()));
    lines.join("\n") + "\n"
}

/// Promise: FL37
#[test]
fn what_chance_explains_is_no_change_of_a_function() {
    let store = Store::new();
    store.add(&timed(1, 100, 900));
    store.add(&timed(2, 120, 900));
    // 100 and 120 of about 1000 samples: 1.96 standard errors of the difference are 27.
    let (text, said, _) = compare(&store, &[]);
    assert!(text.contains("    not distinguishable: +20,000,000 ±27,"), "{text}{said}");
    assert!(!text.contains("work [m]"), "{text}");
    let (comment, ..) = compare(&store, &["--format", "markdown"]);
    assert!(comment.contains("not distinguishable: +20,000,000 ±27,"), "{comment}");
    let (json, ..) = compare(&store, &["--format", "json"]);
    assert!(json.contains(r#""functions":[]"#) && json.contains(r#""margin":27"#), "{json}");
    // Twice as much is no chance.
    store.add(&timed(3, 200, 900));
    let text = store.fleet(&["compare", &commit(1), &commit(3)]);
    assert!(text.contains(" +100,000,000 ±31,") && text.contains("  work [m]"), "{text}");
}

/// Promise: FL37
#[test]
fn what_chance_explains_is_no_step_of_a_function() {
    let steps = |before: u64, after: u64| {
        let store = Store::new();
        for n in 1..=12 {
            store.add(&timed(n, if n <= 6 { before } else { after }, 900));
        }
        let json = store.fleet(&["history", "-f", "work", "--format", "json"]);
        json.matches(r#""step":true"#).count()
    };
    assert_eq!([steps(4, 8), steps(40, 80)], [0, 1]);
}

/// Promise: FL38
#[test]
fn functions_are_compared_with_what_they_called() {
    // Sampled recordings have stacks.
    let store = Store::new();
    store.add(&timed(1, 100, 900));
    store.add(&timed(2, 200, 900));
    let (text, ..) = compare(&store, &[]);
    assert!(!text.contains("main [m]"), "{text}");
    let (text, said, _) = compare(&store, &["--children"]);
    assert!(text.starts_with("# cpu-time, functions with what they called: "), "{text}{said}");
    assert!(text.contains(" +100,000,000 ±") && text.contains("  main [m]"), "{text}");
    assert!(text.contains("  work [m]") && !text.contains("rest [m]"), "{text}");
    // Exact ones have measured contexts, of instructions.
    let store = Store::new();
    let exact = |n: u64, scale: u64, root: bool| {
        let text = Recording { scale, ..Recording::new(n) }.text();
        let mut facts = Facts::read(text.as_bytes(), &Limits::default()).unwrap();
        let total = facts.total[0];
        for (index, row) in facts.functions.iter_mut().enumerate() {
            row.inclusive = root.then_some(if index == 0 { total } else { row.own[0] });
        }
        store.add(&facts.write());
    };
    exact(1, 1, true);
    exact(2, 2, true);
    exact(3, 3, false);
    let (text, said, _) = compare(&store, &["--children", "-n", "1"]);
    assert!(text.contains("            +210,000  function_0 [m]\n"), "{text}{said}");
    assert!(store.fleet(&["sql", "select max(inclusive) from functions"]).contains("420000"));
    let (_, said, code) = compare(&store, &["--children", "-e", "branches"]);
    assert_eq!(code, Some(125));
    assert!(said.contains("measured in instructions, not in branches"), "{said}");
    // An earlier lwp did not measure them.
    let text = store.fleet(&["compare", &commit(1), &commit(3), "--children"]);
    assert!(text.contains("note: one of the two has no inclusive counts"), "{text}");
}
