//! `lwp record --time`: the time in which threads have no processor.
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use crate::shared::recorded;
use crate::shared::tools;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use recorded::{LWP, compile, lwp, run};
use serde_json::Value;
use tools::text;

/// A directory with the program; `None`, with a reason, where it can be neither compiled nor
/// sampled, or where the kernel records no switches.
fn prepared(name: &str) -> Option<PathBuf> {
    let dir = tools::fresh("off_cpu", name);
    if !compile(&dir, "sleeps.c", &["-O2", "-pthread"]) {
        eprintln!("skipped: there is no compiler");
        return None;
    }
    let probe = run(&dir, &[LWP, "record", "--time", "-o", "probe.data", "--", "/bin/true"]);
    let said = text(&probe.stderr);
    if let Some(refused) = said.lines().find(|line| line.contains("time cannot be sampled here")) {
        eprintln!("skipped: {refused}");
        return None;
    }
    if !said.contains("# off-cpu") {
        eprintln!("skipped: the kernel records no switches");
        return None;
    }
    Some(dir)
}

/// Nanoseconds of each function, as the program has printed them.
fn truth(said: &str) -> BTreeMap<String, f64> {
    let line = |line: &str| {
        let (name, ns) = line.split_once(' ').expect("name and time");
        (name.to_owned(), ns.parse().expect("ns"))
    };
    said.lines().map(line).collect()
}

/// Inclusive nanoseconds off the processor by function.
fn found(dir: &Path) -> BTreeMap<String, f64> {
    let (json, _) = lwp(dir, &["report", "--json", "-e", "off-cpu"]);
    let report: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((&report["unit"], &report["exact"]), (&"nanoseconds".into(), &true.into()));
    let rows = report["rows"].as_array().expect("rows").iter();
    let row = |row: &Value| {
        assert!(row.get("margin_percent").is_none(), "{row}");
        let name = row["sym"].as_str().expect("a name").to_owned();
        (name, row["total"].as_f64().expect("ns"))
    };
    rows.map(row).collect()
}

/// Attempts to record while the machine lets lwp look at sleepers in time.
const ATTEMPTS: usize = 4;

/// Records with this command until at least nine tenths of each sleep have the function that slept.
/// Only a machine on which lwp itself waits for a processor as long as the program sleeps takes
/// more than one attempt.
fn assert_found(dir: &Path, command: &[&str]) {
    for attempt in 1..=ATTEMPTS {
        let output = run(dir, command);
        let said = text(&output.stderr);
        assert!(output.status.success(), "{said}");
        let (truth, found) = (truth(&text(&output.stdout)), found(dir));
        let seen = |name: &str| found.get(name).copied().unwrap_or(0.0);
        let few: Vec<_> = truth.iter().filter(|(name, ns)| seen(name) < 0.9 * *ns).collect();
        assert!(few.is_empty() || attempt < ATTEMPTS, "{few:?}: {found:?}");
        if !few.is_empty() {
            eprintln!("attempt {attempt}: lwp came too late for {few:?}: {found:?}");
            continue;
        }
        return assert_no_more(&truth, &found);
    }
}

/// Nothing has more than it slept, by the program's own clock.
fn assert_no_more(truth: &BTreeMap<String, f64>, found: &BTreeMap<String, f64>) {
    for (name, ns) in truth {
        assert!(found[name] <= 1.01 * ns, "{name}: {} of {ns}: {found:?}", found[name]);
    }
    for reason in ["[in clock_nanosleep]", "[in futex]", "[in read]", "[in poll]"] {
        assert!(found.contains_key(reason), "{reason}: {found:?}");
    }
}

/// Promise: R140
#[test]
fn sleeps_are_those_that_the_program_measures() {
    let Some(dir) = prepared("sleeps") else { return };
    assert_found(&dir, &[LWP, "record", "--time", "-q", "--", "./program", "20"]);
    // The whole is that of all threads: the helper sleeps too while the main one works or sleeps.
    let (header, _) = lwp(&dir, &["script", "--header-only"]);
    let fact = |key: &str| -> f64 {
        let line = header.lines().find_map(|line| line.strip_prefix(&format!("# {key}: ")));
        line.unwrap_or_else(|| panic!("{header}")).parse().expect("ns")
    };
    let (asleep, stacks, waiting) =
        (fact("asleep"), fact("asleep-with-stack"), fact("waiting-for-processor"));
    assert!(stacks >= 0.9 * asleep, "{stacks} of {asleep}");
    let (json, _) = lwp(&dir, &["report", "--json", "-e", "off-cpu", "-s", "comm"]);
    let report: Value = serde_json::from_str(&json).expect("JSON");
    let all = report["total"].as_f64().expect("ns");
    assert!((all - asleep - waiting).abs() <= 0.001 * all, "{all}: {asleep}, {waiting}");
    let rows = report["rows"].as_array().expect("rows");
    assert!(rows.iter().any(|row| row["comm"] == "helper"), "{rows:?}");
    // Other commands and formats take it.
    let (folded, _) = lwp(&dir, &["export", "-f", "folded", "-e", "off-cpu"]);
    assert!(folded.contains("main;by_clock;"), "{folded}");
    lwp(&dir, &["flamegraph", "-e", "off-cpu", "-o", "waiting.svg"]);
    let picture = std::fs::read_to_string(dir.join("waiting.svg")).expect("a picture");
    assert!(picture.contains("for_input") && picture.contains("[in read]"), "{picture}");
    lwp(&dir, &["export", "-o", "sleeps.pb.gz"]);
    lwp(&dir, &["export", "-o", "perf.data"]);
    lwp(&dir, &["merge", "-o", "sum.data", "lwp.data", "lwp.data"]);
    let (json, _) = lwp(&dir, &["report", "-i", "sum.data", "--json", "-e", "off-cpu"]);
    let sum: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(sum["total"].as_f64(), Some(2.0 * all));
}

/// Without privileges, where the kernel lets users sample their own processes.
///
/// Promise: R140
#[test]
fn nobody_sees_its_own_sleeps_too() {
    let Some(dir) = prepared("nobody") else { return };
    let root = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").expect("proc"));
    if root != 0 || !tools::has("setpriv") {
        eprintln!("skipped: only root can become nobody, by setpriv");
        return;
    }
    let place = std::env::temp_dir().join(format!("lwp-off-cpu-{}", std::process::id()));
    std::fs::create_dir_all(&place).expect("a place");
    std::os::unix::fs::chown(&place, Some(65534), Some(65534)).expect("nobody's");
    std::fs::copy(dir.join("program"), place.join("program")).expect("copied");
    std::fs::copy(LWP, place.join("lwp")).expect("copied");
    let drop = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let record = [&drop[..], &["./lwp", "record", "--time", "-q", "--"]].concat();
    let said = text(&run(&place, &[&record[..], &["/bin/true"]].concat()).stderr);
    match said.contains("time cannot be sampled here") {
        true => eprintln!("skipped: {said}"),
        false => assert_found(&place, &[&record[..], &["./program", "20"]].concat()),
    }
    std::fs::remove_dir_all(&place).expect("removed");
}
