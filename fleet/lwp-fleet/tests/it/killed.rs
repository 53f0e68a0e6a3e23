//! Writers that are killed, and writers, compactions and readers at once: nothing is lost, nothing is there twice.
#![allow(clippy::disallowed_methods, reason = "a test without threads has failed")]

use crate::shared::facts;
use crate::shared::store;

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use facts::Recording;
use store::Store;

/// Functions of a recording.
const FUNCTIONS: i64 = 200;

/// The text of a recording of commit `n`.
fn facts(n: u64) -> String {
    Recording { functions: FUNCTIONS as u64, ..Recording::new(n) }.text()
}

/// The number that a variable of the environment has: the full size of a test.
fn size(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|n| n.parse().ok()).unwrap_or(otherwise)
}

const COUNTS: &str = "select (select count(*) from recordings) as r, (select count(*) from functions) as f, \
                      (select count(*) from lines) as l, (select count(*) from calls) as c";

/// Kills of commands at moments that differ.
struct Killer {
    /// Microseconds that a whole one takes.
    whole: u64,
    random: u64,
    /// Commands that had not ended by themselves.
    landed: u64,
}

impl Killer {
    /// Kills so that some come before the end of a command that takes as long.
    fn for_some_of(whole: Duration) -> Self {
        Self { whole: whole.as_micros() as u64, random: 0x9e37_79b9_7f4a_7c15, landed: 0 }
    }

    /// Starts a command, and kills it.
    fn kill(&mut self, store: &Store, words: &[&str]) {
        let mut child = store.start(words);
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let most = self.whole + self.whole / 4;
        std::thread::sleep(Duration::from_micros((self.random >> 33) % most));
        let _ = child.kill();
        let status = child.wait().unwrap();
        self.landed += u64::from(status.signal() == Some(9));
    }
}

/// Promise: FL4
#[test]
fn kills_at_any_moment_lose_nothing_and_double_nothing() {
    let store = Store::new();
    let file = |n: u64| store.file(&format!("{n}.facts"), &facts(n));
    // How long one takes, so that kills come while it works.
    let begun = Instant::now();
    store.fleet(&["add", &file(0)]);
    let mut killer = Killer::for_some_of(begun.elapsed());
    let kills = size("LWP_FLEET_KILLS", 20);
    for n in 1..=kills {
        killer.kill(&store, &["add", &file(n)]);
        if n % 10 == 0 {
            store.fleet(&["check", "--deep"]);
        }
    }
    let [recordings, functions, lines, calls] = store.numbers(COUNTS)[..] else { panic!("four") };
    assert!(recordings >= 1);
    // Some came too early, and so did some kills.
    assert!(killer.landed > 0 && recordings <= kills as i64, "{} kills", killer.landed);
    assert_eq!([functions, lines, calls], [recordings * FUNCTIONS; 3]);
    // What was not added is added now; what was stays.
    let all: Vec<String> = (0..=kills).map(file).collect();
    let words: Vec<&str> = ["add"].into_iter().chain(all.iter().map(String::as_str)).collect();
    let said = store.fleet(&words);
    assert_eq!(said.matches(" already there").count() as i64, recordings);
    let kills = kills as i64;
    store.fleet(&["check", "--deep"]);
    assert_eq!(
        store.numbers(COUNTS),
        [kills + 1, FUNCTIONS * (kills + 1), FUNCTIONS * (kills + 1), FUNCTIONS * (kills + 1)]
    );
    // Files that killed writers left are no part of the store.
    store.fleet(&["vacuum", "--hours", "0", "--force"]);
    store.fleet(&["check", "--deep"]);
}

/// Copies a directory.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let to = to.join(entry.file_name());
        match entry.path() {
            path if path.is_dir() => copy(&path, &to),
            path => drop(std::fs::copy(path, to).unwrap()),
        }
    }
}

/// What is in a store before and after recordings were rolled up: rows of every recording that is
/// left, and runs.
const OF_RUNS: &str = "select (select count(*) from recordings) as r, \
                       (select count(*) from functions) as f, \
                       (select count(*) from lines) as l, (select count(*) from calls) as c, \
                       (select coalesce(sum(runs), 0) from rollups where event = 'calls') as u";

/// Kills a command again and again, each time in a copy of a store of eight recordings, half of
/// which expire.
fn killed_in_copies(words: &[&str]) {
    let store = Store::new();
    for n in 0..8 {
        let branch = if n % 2 == 0 { "main" } else { "topic" };
        store.add(&Recording { functions: FUNCTIONS as u64, branch, ..Recording::new(n) }.text());
    }
    let rules = "[[retention]]\nkinds = ['recording']\ndays = 1\nfilter = ['branch=topic']\n\
                 roll_up = true\n";
    store.fleet(&["retention", &store.file("rules.toml", rules)]);
    let full = store.dir.path().join("full");
    std::fs::rename(&store.path, &full).unwrap();
    let again = || {
        let _ = std::fs::remove_dir_all(&store.path);
        copy(&full, &store.path);
    };
    again();
    let begun = Instant::now();
    store.fleet(words);
    let mut killer = Killer::for_some_of(begun.elapsed());
    let (whole, files) = (store.numbers(OF_RUNS), paths(&store.path));
    let commits = |paths: &[PathBuf]| paths.iter().filter(|path| is_commit(path)).count();
    let kills = size("LWP_FLEET_KILLS", 20) / 2;
    let (mut tried, mut halved) = (0, 0);
    // Some come between the first file and the last commit.
    while tried < kills || (halved == 0 && tried < 20 * kills) {
        again();
        let before = paths(&store.path);
        killer.kill(&store, words);
        tried += 1;
        let after = paths(&store.path);
        let is_half = after.len() > before.len() && commits(&after) < commits(&files);
        halved += u64::from(is_half);
        let [recordings, functions, lines, calls, runs] = store.numbers(OF_RUNS)[..] else {
            panic!("five")
        };
        assert_eq!([functions, lines, calls], [recordings * FUNCTIONS; 3], "torn");
        assert_eq!(recordings + runs, 8, "torn");
        // What is left to do is done, and nothing stays of what was half done.
        store.fleet(words);
        assert_eq!(store.numbers(OF_RUNS), whole);
        if is_half || tried % 10 == 0 {
            store.fleet(&["vacuum", "--hours", "0", "--force"]);
            let checked = store.fleet(&["check", "--deep"]);
            let data = paths(&store.path).iter().filter(|path| is_data(path)).count();
            assert!(checked.contains(&format!(": {data} files of ")), "{data}: {checked}");
        }
    }
    assert!(killer.landed > 0, "no kill came before the end");
    assert!(halved > 0, "none of {} kills came between a file and the last commit", killer.landed);
}

fn is_commit(path: &Path) -> bool {
    path.to_str().is_some_and(|path| path.contains("_delta_log") && path.ends_with(".json"))
}

fn is_data(path: &Path) -> bool {
    path.to_str().is_some_and(|path| path.contains("/kind="))
}

/// The files of a directory and of those in it.
fn paths(directory: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap().flatten() {
        match entry.path() {
            path if path.is_dir() => all.extend(paths(&path)),
            path => all.push(path),
        }
    }
    all
}

/// Promise: FL4
#[test]
fn kills_of_a_compaction_leave_what_was_there() {
    killed_in_copies(&["compact"]);
}

/// Promise: FL4
#[test]
fn kills_of_an_expiry_leave_all_of_a_recording_or_its_totals() {
    killed_in_copies(&["expire"]);
}

/// What is in a store at any time: recordings, their functions and lines, and calls of the branch whose calls expire and of the other.
const AT_ONCE: &str = "select (select count(*) from recordings) as r, (select count(*) from functions) as f, \
                       (select count(*) from lines) as l, (select sum(instructions) from functions) as i, \
                       (select sum(instructions) from recordings) as t, \
                       (select count(*) from recordings where branch = 'main') as m, \
                       (select count(*) from calls where branch = 'main') as c, \
                       (select count(*) from calls where branch = 'topic') as g";

/// Asserts that a version has whole recordings only; returns their number.
#[track_caller]
fn is_whole(store: &Store) -> i64 {
    let [recordings, functions, lines, of_functions, of_recordings, main, calls, going] =
        store.numbers(AT_ONCE)[..]
    else {
        panic!("eight")
    };
    assert_eq!([functions, lines], [recordings * FUNCTIONS; 2], "torn");
    assert_eq!(of_functions, of_recordings, "torn");
    assert_eq!(calls, main * FUNCTIONS, "torn");
    let topic = recordings - main;
    assert!(going % FUNCTIONS == 0 && going <= topic * FUNCTIONS, "torn: {going}");
    recordings
}

/// Counts down when it goes.
struct Ending<'a>(&'a AtomicU64);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Promise: FL5
#[test]
fn writers_a_compaction_an_expiry_and_readers_do_not_disturb_each_other() {
    let store = Store::new();
    let (writers, each) = (size("LWP_FLEET_WRITERS", 4), size("LWP_FLEET_EACH", 8));
    // Everything is added by two writers.
    let all = writers * each / 2;
    let path = |n: u64| {
        let branch = if n.is_multiple_of(2) { "main" } else { "topic" };
        let functions = FUNCTIONS as u64;
        store.file(
            &format!("{n}.facts"),
            &Recording { functions, branch, ..Recording::new(n) }.text(),
        )
    };
    let files: Vec<String> = (0..all).map(path).collect();
    let rules = "[[retention]]\nkinds = ['call']\ndays = 1\nfilter = ['branch=topic']\n";
    store.fleet(&["retention", &store.file("rules.toml", rules)]);
    let writing = AtomicU64::new(writers);
    std::thread::scope(|scope| {
        let (store, files, writing) = (&store, &files, &writing);
        for w in 0..writers {
            scope.spawn(move || {
                // A writer that fails ends, too.
                let _end = Ending(writing);
                for n in w * each / 2..w * each / 2 + each {
                    store.fleet(&["add", &files[(n % all) as usize]]);
                }
            });
        }
        let is_over = move || writing.load(Ordering::SeqCst) == 0;
        scope.spawn(move || {
            while !is_over() {
                store.fleet(&["compact"]);
                store.fleet(&["expire"]);
            }
        });
        for _ in 0..writers / 2 {
            scope.spawn(move || {
                let mut before = 0;
                while !is_over() {
                    let recordings = is_whole(store);
                    assert!(recordings >= before, "lost");
                    before = recordings;
                }
            });
        }
    });
    store.fleet(&["compact"]);
    store.fleet(&["expire"]);
    assert_eq!(is_whole(&store), all as i64);
    assert_eq!(store.number("select count(*) from calls where branch = 'topic'"), 0);
    store.fleet(&["check", "--deep"]);
}

/// Promise: FL6
#[test]
fn flipped_bits_are_errors_and_never_another_answer() {
    let store = Store::new();
    let file = store.file("0.facts", &facts(0));
    store.fleet(&["add", &file]);
    let sql = "select sum(instructions), sum(entered), max(func), count(distinct function) from functions";
    let truth = store.fleet(&["sql", "--format", "csv", sql]);
    let folder = store.path.join("kind=function/date=2023-11-14");
    let data = std::fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
    let good = std::fs::read(&data).unwrap();
    let mut refused = 0;
    for n in 0..24 {
        let mut bad = good.clone();
        bad[n * good.len() / 24] ^= 1 << (n % 8);
        std::fs::write(&data, bad).unwrap();
        let output = store.run(&["sql", "--format", "csv", sql]);
        match output.status.success() {
            true => assert_eq!(String::from_utf8_lossy(&output.stdout), truth),
            false => {
                let error = String::from_utf8_lossy(&output.stderr);
                assert!(error.contains("damaged: kind=function/date=2023-11-14/r-"), "{error}");
                assert!(error.contains("help: "), "{error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 0);
    let output = store.run(&["check", "--deep"]);
    assert_eq!(output.status.code(), Some(125));
    // What is damaged goes, whole; then it can be added again.
    store.fleet(&["repair"]);
    assert_eq!(store.numbers(COUNTS), [0; 4]);
    store.fleet(&["check", "--deep"]);
    assert!(store.fleet(&["add", &file]).contains(" added: "));
    assert_eq!(store.fleet(&["sql", "--format", "csv", sql]), truth);
}

/// Promise: FL2
#[test]
fn hostile_facts_are_refused_by_line_and_nothing_is_stored() {
    let store = Store::new();
    let good = facts(1);
    let cases = [
        ("cut off", good[..good.len() / 2].to_owned(), "line "),
        ("another total", good.replacen("\"total\":[", "\"total\":[1", 1), "functions add up to"),
        (
            "no such function",
            good.replacen("\"callee\":0", "\"callee\":4000000000", 1),
            "line 403: key \"callee\"",
        ),
        (
            "deep",
            format!("{}{}\n", &good[..good.find('\n').unwrap() + 1], "[".repeat(1 << 20)),
            "line 2: no JSON object",
        ),
        ("no facts", "hello\n".to_owned(), "no format that is known"),
        ("empty", String::new(), "no format that is known"),
    ];
    let whole = store.file("good.facts", &good);
    for (name, text, wanted) in cases {
        let output = store.run(&["add", &whole, &store.file("bad.facts", &text)]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{name}: {error}");
        assert!(error.contains(wanted), "{name}: {error}");
        assert_eq!(store.numbers(COUNTS), [0; 4], "{name}");
    }
}

/// Promise: FL7
#[test]
fn questions_can_change_nothing_and_end_in_time() {
    let store = Store::new();
    store.add(&facts(0));
    for sql in [
        "create table x as select 1",
        "drop view function_values",
        "insert into recordings select * from recordings",
        "delete from recordings",
        "set datafusion.execution.batch_size = 1",
        "copy (select 1) to '/tmp/lwp-fleet-must-not-exist.csv'",
        "create external table x stored as csv location '/etc/passwd'",
        "select * from '/etc/passwd'",
        "select",
        "select 1; drop table recordings",
    ] {
        let output = store.run(&["sql", sql]);
        assert_eq!(output.status.code(), Some(125), "{sql}");
        assert!(String::from_utf8_lossy(&output.stderr).starts_with("lwp-fleet: "), "{sql}");
    }
    assert!(!Path::new("/tmp/lwp-fleet-must-not-exist.csv").exists());
    let endless = "select count(*) from functions a, functions b, functions c, functions d";
    let output = store.run(&["sql", "--timeout", "1", endless]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("no answer within 1 s"));
    assert_eq!(store.numbers(COUNTS), [1, FUNCTIONS, FUNCTIONS, FUNCTIONS]);
}
