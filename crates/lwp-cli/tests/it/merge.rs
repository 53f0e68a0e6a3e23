//! `lwp merge`: the sum depends on neither order nor grouping, and every command reads it.
//!
//! Promise: R29

use crate::shared::recorded;
use crate::shared::tools;

use std::path::{Path, PathBuf};

use serde_json::Value;

use recorded::{LWP, compile, lwp, run};
use tools::text;

fn fresh(name: &str) -> PathBuf {
    tools::fresh("merge", name)
}

/// Recordings `a`, `b` and `c` of different programs and of one program with different work, made
/// with `options`.
fn three(dir: &Path, options: &[&str]) -> bool {
    if !compile(dir, "recursion.c", &["-O1"]) {
        return false;
    }
    let shell =
        ["/bin/sh", "-c", "i=0; while [ $i -lt 200 ]; do i=$((i+1)); done; ls / | cat >/dev/null"];
    for (file, program) in [("a", &["./program"][..]), ("b", &shell), ("c", &["./program"])] {
        lwp(dir, &[&["record", "-q", "-o", file], options, &["--"], program].concat());
    }
    true
}

fn merged(dir: &Path, output: &str, inputs: &[&str]) {
    lwp(dir, &[&["merge", "-o", output], inputs].concat());
}

/// What a recording holds, by thread, line and caller, in every event.
fn contents(dir: &Path, file: &str) -> Vec<Value> {
    let keys = ["comm,tid,dso,sym,srcline", "dso,sym"];
    let mut all = Vec::new();
    for keys in keys {
        let (json, _) = lwp(dir, &["report", "--json", "-i", file, "-s", keys]);
        let document: Value = serde_json::from_str(&json).expect("JSON");
        let mut rows = document["rows"].as_array().expect("rows").clone();
        rows.sort_by_key(Value::to_string);
        all.push(document["total"].clone());
        all.extend(rows);
    }
    all
}

fn total(dir: &Path, file: &str) -> u64 {
    contents(dir, file)[0].as_u64().expect("total")
}

#[test]
fn order_and_grouping_do_not_matter() {
    for (name, options) in [("exact", &[][..]), ("sampled", &["-c", "1009"])] {
        let dir = fresh(name);
        if !three(&dir, options) {
            return;
        }
        merged(&dir, "abc", &["a", "b", "c"]);
        merged(&dir, "cba", &["c", "b", "a"]);
        merged(&dir, "ab", &["a", "b"]);
        merged(&dir, "ab-c", &["ab", "c"]);
        merged(&dir, "bc", &["b", "c"]);
        merged(&dir, "a-bc", &["a", "bc"]);
        let sum = contents(&dir, "abc");
        assert!(sum.len() > 100, "{name}: {} rows", sum.len());
        for other in ["cba", "ab-c", "a-bc"] {
            assert_eq!(contents(&dir, other), sum, "{name}, {other}");
        }
        let parts: u64 = ["a", "b", "c"].iter().map(|file| total(&dir, file)).sum();
        assert_eq!(total(&dir, "abc"), parts, "{name}");
        assert!(lwp(&dir, &["diff", "abc", "cba"]).0.contains("nothing differs"));
        // Of one recording it is the recording.
        merged(&dir, "just-a", &["a"]);
        assert_eq!(contents(&dir, "just-a"), contents(&dir, "a"));
        // Stacks and exports too.
        let folded = |file: &str| {
            lwp(&dir, &["export", "-f", "folded", "-o", "-", "-i", file])
                .0
                .lines()
                .map(str::to_owned)
                .collect::<std::collections::BTreeSet<_>>()
        };
        assert_eq!(folded("abc"), folded("cba"), "{name}");
    }
}

#[test]
fn what_cannot_be_added_up_is_refused() {
    let dir = fresh("refused");
    for (file, options) in
        [("exact", &[][..]), ("thousand", &["-c", "1000"]), ("prime", &["-c", "997"])]
    {
        lwp(&dir, &[&["record", "-q", "-o", file], options, &["--", "/bin/true"]].concat());
    }
    for (inputs, words) in [
        (["exact", "prime"], "one counts every execution"),
        (["thousand", "prime"], "instructions:c=1000 and instructions:c=997"),
        (["exact", "nowhere"], "nowhere: No such file"),
    ] {
        let output = run(&dir, &[&[LWP, "merge", "-o", "sum"], &inputs[..]].concat());
        assert_eq!(output.status.code(), Some(125));
        assert!(text(&output.stderr).contains(words), "{}", text(&output.stderr));
        assert!(!dir.join("sum").exists());
    }
}

/// The sum would be too low, and a reader of it would not know.
#[test]
fn damaged_recordings_are_not_added_up() {
    let dir = fresh("damaged");
    lwp(&dir, &["record", "-q", "-o", "exact", "--", "/bin/true"]);
    let bytes = std::fs::read(dir.join("exact")).expect("recording");
    std::fs::write(dir.join("cut"), &bytes[..bytes.len() / 3]).expect("recording");
    std::fs::write(dir.join("sum"), "older").expect("file");
    for inputs in [["exact", "cut"], ["cut", "exact"]] {
        let output = run(&dir, &[&[LWP, "merge", "-o", "sum"], &inputs[..]].concat());
        let says = text(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{says}");
        assert!(says.contains("cut: the recording is damaged or unfinished: "), "{says}");
        assert!(says.contains("\nhelp: "), "{says}");
        assert_eq!(std::fs::read(dir.join("sum")).expect("file"), b"older");
    }
}

#[test]
fn a_sum_that_cannot_be_written_leaves_nothing_behind() {
    let dir = fresh("full");
    lwp(&dir, &["record", "-q", "-o", "exact", "--", "/bin/true"]);
    std::fs::create_dir(dir.join("out")).expect("directory");
    let left = || {
        let files = std::fs::read_dir(dir.join("out")).expect("directory");
        let names = files.map(|file| file.expect("a file").file_name());
        names.collect::<Vec<_>>()
    };
    // No file may grow past a block; the signal for that is left out.
    let script = "trap '' XFSZ; ulimit -f 1; exec \"$0\" merge -o out/sum exact exact";
    let small = || run(&dir, &["sh", "-c", script, LWP]);
    for older in [false, true] {
        let output = small();
        let says = text(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{says}");
        assert!(says.contains("out/sum: ") && says.contains("\nhelp: "), "{says}");
        match older {
            false => assert!(left().is_empty(), "{:?}", left()),
            true => {
                assert_eq!(left(), ["sum"]);
                assert_eq!(std::fs::read(dir.join("out/sum")).expect("file"), b"older");
            }
        }
        std::fs::write(dir.join("out/sum"), "older").expect("file");
    }
    let output = run(&dir, &[LWP, "merge", "-o", "/dev/full", "exact", "exact"]);
    assert_eq!(output.status.code(), Some(125), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("No space left"), "{}", text(&output.stderr));
    merged(&dir, "out/sum", &["exact", "exact"]);
    assert_eq!((left().len(), total(&dir, "out/sum")), (1, 2 * total(&dir, "exact")));
}
