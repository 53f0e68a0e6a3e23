//! Answers about recordings together, held against `lwp report` of each. Skipped with a message
//! where there is no lwp; `LWP` names one.
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use crate::shared::recorder;
use crate::shared::store;

use std::collections::BTreeMap;

use recorder::Recorder;
use serde_json::Value;
use store::Store;

/// Counts by module and function.
type Counts = BTreeMap<(String, String), u64>;

/// A name without the parts that differ: a store leaves out versions of libraries and numbers of
/// clones, so that names of two builds meet, and adds stubs and the builds of code without a name.
fn lasting(module: &str, function: &str) -> (String, String) {
    let module = module.split(".so").next().unwrap_or_default();
    let function = function.trim_end_matches(" [stub]");
    let is_digit = |c: char| c.is_ascii_digit();
    let function = match function.rsplit_once("+0x") {
        Some((_, offset)) => format!("+0x{}", offset.trim_end_matches(']')),
        None => function.split('.').map(|part| part.trim_start_matches(is_digit)).collect(),
    };
    (module.to_owned(), function)
}

fn counts(rows: &Value, [module, function, count]: [&str; 3], into: &mut Counts) {
    for row in rows.as_array().expect("rows") {
        let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
        let key = lasting(&text(module), &text(function));
        *into.entry(key).or_default() += row[count].as_u64().unwrap();
    }
}

#[test]
fn a_report_of_two_recordings_is_the_sum_of_their_reports() {
    let Some(recorder) = Recorder::find() else { return };
    let store = Store::new();
    let path = recorder.path_in(store.dir.path());
    let mut wanted = Counts::new();
    for (name, program) in [("one.data", &["true"][..]), ("two.data", &["ls", "/"])] {
        let data = store.dir.path().join(name);
        recorder.record(&data, program);
        let output = recorder.report(&data);
        let report: Value = serde_json::from_slice(&output).expect("JSON");
        counts(&report["rows"], ["dso", "sym", "self"], &mut wanted);
        let added = store.command(&["add", name]).env("PATH", &path).output().unwrap();
        assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
    }
    // A function that is only passed through has no count of its own, and no row here.
    wanted.retain(|_, count| *count > 0);
    let words = ["report", "-s", "function", "--format", "json", "-n", "1000000"];
    let rows: Value = serde_json::from_str(&store.fleet(&words)).expect("JSON");
    let mut is = Counts::new();
    counts(&rows, ["module", "function", "instructions"], &mut is);
    assert!(is.len() > 100, "{}", is.len());
    for (key, count) in &wanted {
        assert_eq!(is.get(key), Some(count), "{key:?}");
    }
    assert_eq!(is, wanted);
    let sum = store.number("select sum(instructions) from recordings");
    assert_eq!(is.values().sum::<u64>() as i64, sum);
}
