//! Facts of recordings: the counts are those of the report, and two deterministic runs have the
//! same. A test whose tool is missing is skipped and says so.

use crate::shared::recorded;
use crate::shared::tools;

use std::path::Path;

use lwp_facts::{Facts, Limits};
use lwp_profile::Mode;
use serde_json::Value;

use recorded::{compile, lwp};
use tools::fresh;

fn facts(dir: &Path, recording: &str) -> Facts {
    let (text, _) = lwp(dir, &["export", "-f", "facts", "-i", recording]);
    Facts::read(text.as_bytes(), &Limits::default()).expect("facts")
}

/// Own instructions by function, as the report has them.
fn reported(dir: &Path, recording: &str) -> u64 {
    let (text, _) = lwp(dir, &["report", "--json", "-i", recording]);
    let document: Value = serde_json::from_str(&text).expect("JSON");
    let rows = document["rows"].as_array().expect("rows");
    rows.iter().map(|row| row["self"].as_u64().expect("count")).sum()
}

/// Promise: FL1, FL38
#[test]
fn two_deterministic_runs_have_the_same_content() {
    let dir = fresh("facts", "same");
    if !compile(&dir, "calls.c", &["-O1"]) {
        return;
    }
    let record = |name: &str, tag: &str| {
        lwp(&dir, &["record", "--deterministic", "--tag", tag, "-q", "-o", name, "./program"]);
    };
    record("1.data", "benchmark=calls");
    record("2.data", "benchmark=again");
    let (one, other) = (facts(&dir, "1.data"), facts(&dir, "2.data"));
    assert_eq!(one.content(), other.content());
    assert_ne!(one.id(), other.id());
    assert_eq!([one.run.benchmark.as_str(), &other.run.benchmark], ["calls", "again"]);
    assert_eq!([one.mode, other.mode], [Mode::Exact; 2]);
    assert!(one.run.deterministic && one.run.complete);
    // The numbers are those of the report, function by function.
    let own: u64 = one.functions.iter().map(|row| row.own[0]).sum();
    assert_eq!([own, one.total[0]], [reported(&dir, "1.data"); 2]);
    let main = one.functions.iter().position(|row| row.name == "main").expect("main");
    assert_eq!(one.functions[main].entered, 1);
    // main did what its own code did and what it called, and less than the whole program.
    let inclusive = one.functions[main].inclusive.expect("contexts are measured");
    assert!((one.functions[main].own[0] + 1..one.total[0]).contains(&inclusive), "{inclusive}");
    let least = |row: &lwp_facts::FunctionFact| row.inclusive >= Some(row.own[0]);
    assert!(one.functions.iter().all(least));
    assert_eq!(one.module_name(main as u32), "program");
    assert!(
        one.lines.iter().any(|row| row.function == main as u32 && row.file.ends_with("calls.c"))
    );
    assert!(one.calls.iter().any(|row| row.caller == Some(main as u32)));
    assert!(
        one.modules.iter().any(|row| row.name.starts_with("libc.so") && !row.build_id.is_empty())
    );
}

#[test]
fn samples_have_their_stacks() {
    let dir = fresh("facts", "sampled");
    if !compile(&dir, "calls.c", &["-O1"]) {
        return;
    }
    lwp(&dir, &["record", "-c", "1000", "-q", "./program"]);
    let facts = facts(&dir, "lwp.data");
    assert_eq!(facts.mode, Mode::Sampled);
    assert_eq!(facts.events[0].interval, Some(1000));
    let of_stacks: u64 = facts.stacks.iter().map(|row| row.own[0]).sum();
    assert_eq!(of_stacks, facts.total[0]);
    assert!(facts.stacks.iter().any(|row| row.frames.len() > 1));
}
