//! A cluster answers as one machine does, and answers nobody else.
#![allow(clippy::disallowed_methods, reason = "a test without threads has failed")]

use crate::shared::cluster;

use std::process::Command;

use cluster::{Stored, lwp_fleet, text};

/// Tables and views, and the columns that order them.
const TABLES: [&str; 12] = [
    "recordings",
    "totals",
    "functions",
    "lines",
    "calls",
    "stacks",
    "modules",
    "notes",
    "rollups",
    "recording_values",
    "function_values",
    "series",
];

/// Questions whose answers have an order.
const QUESTIONS: &[&str] = &[
    "select function, sum(instructions) as n from functions group by function order by n desc, function limit 20",
    "select benchmark, count(*) as n, min(instructions) from recordings group by benchmark order by 1",
    "select event, sum(value) from function_values group by event order by event",
    "select f.function, sum(c.entered) as n from calls c join functions f on f.func = c.callee and f.recording = c.recording group by 1 order by 2 desc, 1 limit 10",
    "select count(*) from functions where recording not in (select recording from recordings where host = 'h1')",
    "select (select count(*) from recordings) as r, (select max(started) from lines) as l",
    "select host, function, rank() over (partition by host order by sum(instructions) desc, function) as place from functions group by host, function order by host, place limit 30",
    "select \"commit\" from recordings where started > '2023-11-15' and labels['x'] is null order by started, id",
    "select count(distinct function), approx_distinct(func) from functions where date = '2023-11-15'",
    "select r.benchmark, s.frames from stacks s join recordings r on r.recording = s.recording order by s.stack",
    "select 1 where false",
    "select count(*) from totals where event = 'none'",
    "select benchmark, event, sum(runs), min(least), max(greatest), sum(\"value\") from series group by 1, 2 order by 1, 2",
    "select table_name from information_schema.tables where table_schema = 'public' order by 1",
];

/// The rows of an answer in JSON, in an order.
fn sorted(text: &str) -> Vec<&str> {
    let mut rows: Vec<&str> = text.trim_matches(['[', ']', '{', '}', '\n']).split("},{").collect();
    rows.sort_unstable();
    rows
}

/// Promise: FL19
#[test]
fn a_cluster_answers_as_one_machine_does() {
    let stored = Stored::new(14);
    stored.roll_up();
    let cluster = stored.cluster(2);
    for table in TABLES {
        let sql = format!("select * from {table}");
        let words = ["sql", "--format", "json", &sql];
        let (alone, together) = (stored.embedded(&words), cluster.ask(&words));
        assert!(alone.len() > 10, "{table} is empty");
        assert_eq!(sorted(&alone), sorted(&together), "{table}");
    }
    let sql = QUESTIONS.iter().map(|sql| vec!["sql", "--format", "csv", sql]);
    let canned = [
        "list -n 7 project=p",
        "report -s function",
        "report -s module host=h1",
        "report -s line",
        "report -s benchmark --format json",
        "report -s host --format csv",
        "report -s commit -e branches since=9000d",
        "report -e samples mode=sampled",
        "history",
        "history -f function_1* --format csv",
        "compare abc00005 abc0000c",
        "compare --format json abc00001 branch:main",
        "compare abc00009 abc0000a",
        "steps --json",
        "flamegraph -o -",
        "flamegraph -o - mode=sampled -e samples",
        "flamegraph -o - commit=abc00009 --baseline commit=abc0000a",
    ];
    let canned = canned.iter().map(|words| words.split(' ').collect::<Vec<_>>());
    for words in sql.chain(canned) {
        let alone = stored.command(&words, "").output().unwrap();
        let together = cluster.asking(&words, &stored.reader).output().unwrap();
        let shown = |output: &std::process::Output| {
            let [out, error] = [&output.stdout, &output.stderr]
                .map(|bytes| String::from_utf8_lossy(bytes).into_owned());
            format!("{:?}\n{out}{error}", output.status.code())
        };
        assert_eq!(shown(&alone), shown(&together), "{words:?}");
    }
    let recordings = cluster.ask(&["sql", "--format", "csv", "select count(*) from recordings"]);
    assert_eq!(recordings, "count(*)\n15\n");
}

/// Promise: FL19
#[test]
fn a_question_with_a_fault_has_the_same_reason_and_nothing_is_changed() {
    let stored = Stored::new(2);
    let cluster = stored.cluster(1);
    for sql in [
        "select nothing from functions",
        "select * from nowhere",
        "select * from '/etc/passwd'",
        "create external table x stored as csv location '/etc/passwd'",
        "copy (select function from functions) to '/tmp/lwp-fleet-node-must-not-exist.csv'",
        "set datafusion.execution.batch_size = 1",
    ] {
        let words = ["sql", sql];
        let alone = stored.command(&words, "").output().unwrap();
        let together = cluster.asking(&words, &stored.reader).output().unwrap();
        assert_eq!(together.status.code(), Some(125), "{sql}");
        assert_eq!(
            String::from_utf8_lossy(&alone.stderr),
            String::from_utf8_lossy(&together.stderr),
            "{sql}"
        );
    }
    // A file that is damaged is named, whoever reads it.
    let folder = stored.path().join("kind=function/date=2023-11-14");
    for data in std::fs::read_dir(folder).unwrap() {
        let data = data.unwrap().path();
        let mut bytes = std::fs::read(&data).unwrap();
        let half = bytes.len() / 2;
        bytes[half] ^= 4;
        std::fs::write(&data, bytes).unwrap();
    }
    let words = ["sql", "select sum(instructions), max(function), sum(func) from functions"];
    let output = cluster.asking(&words, &stored.reader).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{error}");
    assert!(error.contains("damaged: kind=function/date=2023-11-14/r-"), "{error}");
    assert!(error.contains("help: lwp fleet check --deep"), "{error}");
}

/// Promise: FL21
#[test]
fn nobody_is_answered_without_a_token_that_is_good_for_it() {
    let stored = Stored::new(1);
    let cluster = stored.cluster(1);
    let words = ["sql", "select count(*) from recordings"];
    assert!(cluster.ask(&words).contains('2'));
    let (node, writer) = (stored.node.as_str(), stored.writer.as_str());
    for (token, wanted) in [
        ("", "LWP_FLEET_TOKEN has no token"),
        ("lwpf_guessed", "the cluster refuses: a token is wanted"),
        (writer, "the cluster refuses: the token is not good for that"),
        (node, "the cluster refuses: the token is not good for that"),
    ] {
        let output = cluster.asking(&words, token).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{error}");
        assert!(error.contains(wanted) && error.contains("help: "), "{error}");
        assert!(token.is_empty() || !error.contains(token), "the secret is said: {error}");
    }
    // An executor with another token does not start.
    let words = ["executor", "--scheduler", &cluster.scheduler.address, "--listen", "127.0.0.1:0"];
    let stranger = stored.command(&words, &stored.reader).output().unwrap();
    let said = String::from_utf8_lossy(&stranger.stderr);
    assert_eq!(stranger.status.code(), Some(125), "{said}");
    assert!(said.contains("the token 'reader' has no scope node"), "{said}");
    assert!(!said.contains(&stored.reader), "the secret is said: {said}");
}

/// Promise: FL21
#[test]
fn a_machine_of_a_store_without_tokens_does_not_listen() {
    let stored = Stored::new(0);
    let tokens = stored.path().join("_lwp/tokens.toml");
    std::fs::write(&tokens, "").unwrap();
    for words in [vec!["scheduler", "--listen", "0.0.0.0:0"], vec!["executor"]] {
        let output = stored.command(&words, &stored.node).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{error}");
        assert!(error.contains("the store has no tokens"), "{error}");
        assert!(error.contains("help: make one: lwp fleet token add"), "{error}");
    }
}

#[test]
fn ports_and_names_are_checked_before_anything_starts() {
    let stored = Stored::new(0);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (words, wanted) in [
        (vec!["scheduler", "--listen", &taken], "in use"),
        (vec!["executor", "--listen", &taken], "in use"),
        (vec!["executor", "--listen", "0.0.0.0:0"], "--external-host"),
        (vec!["sql", "--cluster", "10.0.0.1:1", "select 1"], "df://HOST:PORT is wanted"),
    ] {
        let output = stored.command(&words, &stored.node).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{error}");
        assert!(error.contains(wanted), "{error}");
    }
}

#[test]
fn a_question_that_reads_few_rows_is_answered_without_the_cluster() {
    let stored = Stored::new(2);
    let words = ["sql", "--format", "csv", "select count(*), count(func) from functions"];
    let alone = stored.embedded(&words);
    // Whoever asks the cluster with this token is refused.
    let cluster = stored.cluster(0);
    let ask = |least: &str| {
        let address = format!("df://{}", cluster.scheduler.address);
        let mut asking = stored.command(&words, "lwpf_guessed");
        asking.args(["--cluster", &address, "--cluster-from", least]).output().unwrap()
    };
    // Two recordings of 60 functions, and a sampled one with three.
    assert_eq!(text(ask("124"), &words), alone);
    assert_eq!(ask("123").status.code(), Some(125));
}

/// Promise: FL21
#[test]
fn a_cluster_serves_one_store() {
    let (stored, other) = (Stored::new(1), Stored::new(1));
    let cluster = stored.cluster(1);
    let mut asking = cluster.asking(&["sql", "select count(*) from recordings"], &stored.reader);
    let output = asking.env("LWP_FLEET_STORE", other.path()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{error}");
    assert!(error.contains("this cluster serves the store"), "{error}");
}

#[test]
fn lwp_fleet_hands_questions_on() {
    let Some(program) = lwp_fleet() else {
        return eprintln!("skipped: lwp-fleet was not built beside lwp-fleet-node");
    };
    let stored = Stored::new(1);
    let cluster = stored.cluster(1);
    let mut command = Command::new(program);
    let words = ["sql", "--format", "csv", "select count(*) from recordings"];
    command.args(words).env("LWP_FLEET_STORE", stored.path());
    command.env("LWP_FLEET_TOKEN", &stored.reader);
    command.args(["--cluster", &format!("df://{}", cluster.scheduler.address)]);
    command.args(["--cluster-from", "0"]);
    assert_eq!(text(command.output().unwrap(), &words), "count(*)\n2\n");
}
