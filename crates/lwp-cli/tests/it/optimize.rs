//! Profiles for optimisers, with the optimisers: recorded, exported, optimised, and compared. A
//! test whose optimiser is missing is skipped and says so; `tests/viewers.sh` installs them.
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use crate::shared::tools::{self, has, limited, text};

const LWP: &str = env!("CARGO_BIN_EXE_lwp");

/// A program with a hot loop whose likely ways are laid out as the unlikely ones, a switch with a
/// jump table, local functions of one name, an indirect call and a part that is never executed.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#define NOINLINE __attribute__((noinline))
static volatile long sink;
NOINLINE __attribute__((cold)) static void rare(long n) { sink += n * 3; if (n < 0) abort(); }
NOINLINE static long pick(long op, long n) {
    switch (op) {
    case 0: return n + 7; case 1: return n * 5; case 2: return n ^ 0x55; case 3: return n - 9;
    case 4: sink++; return n << 1; case 5: return n >> 1; case 6: return ~n; case 7: return n | 64;
    case 8: return n & 0xfffff; default: return n;
    }
}
NOINLINE static long half(long n) { return n / 2; }
NOINLINE static long twice(long n) { return n * 2; }
long other(long n);
NOINLINE long walk(long n) {
    long (*const ways[])(long) = { half, twice, other };
    long s = 0;
    for (long i = 0; i < n; i++) {
        if (__builtin_expect(i % 8 != 3, 0)) { s += i ^ (s >> 3); } else { s -= i; rare(i); }
        if (__builtin_expect((i & 15) < 14, 0)) s = pick((i * 7) % 11, s); else s ^= 1;
        s += ways[i % 3](s) & 0xffff;
    }
    return s;
}
int main(int argc, char **argv) {
    printf("%ld %ld\n", walk(argc > 1 ? atol(argv[1]) : 20000), sink);
    return 3;
}
"#;

/// Another file with local functions of the same names.
const OTHER: &str = "__attribute__((noinline)) static long half(long n) { return n / 4; }\n\
                     long other(long n) { return n > 9 ? half(n) : n; }\n";

/// The ways in which programs are linked.
const LINKED: [(&str, &[&str]); 2] = [("fixed", &["-no-pie"]), ("pie", &["-pie", "-fPIE"])];

/// A directory with the program, built with these options of gcc.
fn built(name: &str, options: &[&str]) -> Option<PathBuf> {
    let dir = tools::fresh("optimize", name);
    if !has("gcc") {
        return None;
    }
    std::fs::write(dir.join("program.c"), PROGRAM).unwrap();
    std::fs::write(dir.join("other.c"), OTHER).unwrap();
    let gcc = ["gcc", "-O2", "-Wl,--build-id", "-o", "program", "program.c", "other.c"];
    succeeds(&dir, &[&gcc, options].concat());
    Some(dir)
}

/// Runs a command to its end.
pub fn output(dir: &Path, words: &[&str]) -> Output {
    limited(dir, words).output().expect("timeout starts")
}

/// Runs a command that succeeds.
pub fn succeeds(dir: &Path, words: &[&str]) -> Output {
    let output = output(dir, words);
    assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
    output
}

/// What a command says when it fails as lwp does.
pub fn refusal(dir: &Path, words: &[&str]) -> String {
    let output = output(dir, words);
    assert_eq!(output.status.code(), Some(125), "{words:?}: {}", text(&output.stderr));
    text(&output.stderr)
}

/// Records the program, which ends with 3.
pub fn record(dir: &Path) {
    let recorded = output(dir, &[LWP, "record", "-q", "--", "./program"]);
    assert_eq!(recorded.status.code(), Some(3), "{}", text(&recorded.stderr));
}

/// Counts taken branches of a program that ends with 3.
pub fn branches_taken(dir: &Path, program: &str) -> u64 {
    let words = [LWP, "stat", "-j", "-o", "counts.json", "-e", "branches-taken", "--", program];
    assert_eq!(output(dir, &words).status.code(), Some(3));
    let text = std::fs::read_to_string(dir.join("counts.json")).expect("counts");
    let row: Value = serde_json::from_str(text.lines().next().expect("a line")).expect("JSON");
    row["counter-value"].as_str().and_then(|it| it.parse::<f64>().ok()).expect("a count") as u64
}

/// The installed versions of BOLT.
fn bolts() -> Vec<&'static str> {
    let versions = ["llvm-bolt-16", "llvm-bolt-19", "llvm-bolt"];
    versions.into_iter().filter(|bolt| has(bolt)).collect()
}

/// Promise: R136
#[test]
fn bolt_finds_the_whole_profile_valid_and_the_program_takes_fewer_branches() {
    for (name, options) in LINKED {
        let Some(dir) = built(name, &[options, &["-Wl,--emit-relocs"]].concat()) else { return };
        record(&dir);
        let exported = succeeds(&dir, &[LWP, "export", "-f", "bolt", "-o", "it.fdata"]);
        assert_eq!(text(&exported.stderr), "");
        let expected = output(&dir, &["./program"]);
        let before = branches_taken(&dir, "./program");
        for bolt in bolts() {
            let made = succeeds(
                &dir,
                &[bolt, "program", "-o", bolt, "-data=it.fdata", "-reorder-blocks=ext-tsp", "-v=2"],
            );
            let said = text(&made.stdout) + &text(&made.stderr);
            assert!(!said.contains("invalid (possibly stale)"), "{bolt}, {name}: {said}");
            assert!(!said.contains("branches match only"), "{bolt}, {name}: {said}");
            assert!(said.contains("have non-empty execution profile"), "{bolt}: {said}");
            let program = format!("./{bolt}");
            let optimised = output(&dir, &[&program]);
            assert_eq!(optimised.stdout, expected.stdout);
            assert_eq!(optimised.status, expected.status);
            let after = branches_taken(&dir, &program);
            assert!(after < before / 10 * 9, "{bolt}, {name}: {before} before, {after} after");
        }
    }
}

/// The installed versions of BOLT that read perf's recordings, and their tools for that.
fn readers_of_stacks() -> Vec<(&'static str, &'static str)> {
    let versions = [
        ("/usr/lib/llvm-16/bin/perf2bolt", "llvm-bolt-16"),
        ("/usr/lib/llvm-19/bin/perf2bolt", "llvm-bolt-19"),
    ];
    if !has("perf") {
        eprintln!("skipped: no perf, which perf2bolt reads files with");
        return Vec::new();
    }
    versions.into_iter().filter(|(reader, bolt)| Path::new(reader).exists() && has(bolt)).collect()
}

/// Counts of BOLT's profile by both ends, without the files of local functions, which perf2bolt
/// leaves out.
fn edges(file: &str) -> BTreeMap<String, u64> {
    let plain = |word: &str| word.split('/').next().unwrap_or_default().to_owned();
    let mut edges = BTreeMap::new();
    for line in file.lines() {
        let words: Vec<String> = line.split(' ').map(plain).collect();
        if let [ends @ .., _, times] = &words[..] {
            *edges.entry(ends.join(" ")).or_default() += times.parse().unwrap_or(0);
        }
    }
    edges
}

/// Each edge with a hundredth of all executions has its share, within one part in ten.
fn edges_have_their_shares(exact: &str, drawn: &str) {
    let (exact, drawn) = (edges(exact), edges(drawn));
    let sum = |of: &BTreeMap<String, u64>| of.values().sum::<u64>() as f64;
    // Of both, the edges that the other one has too: returns are in one alone.
    let common = |one: &BTreeMap<String, u64>, other: &BTreeMap<String, u64>| {
        let both = one.iter().filter(|(ends, _)| other.contains_key(*ends));
        both.map(|(ends, times)| (ends.clone(), *times)).collect::<BTreeMap<String, u64>>()
    };
    let (all, exact) = (sum(&exact), common(&exact, &drawn));
    assert!(sum(&exact) > all * 0.99, "{} of {all} are there", sum(&exact));
    let drawn = common(&drawn, &exact);
    for (ends, times) in exact.iter().filter(|(_, times)| **times as f64 > all / 100.0) {
        let (share, is) = (*times as f64 / sum(&exact), drawn[ends] as f64 / sum(&drawn));
        assert!((is / share - 1.0).abs() < 0.1, "{ends}: {is}, and exactly {share}");
    }
}

/// Stacks that are drawn from counts give perf2bolt the edges as often as they were counted, no
/// trace that the code does not have, and BOLT as good a profile.
///
/// Promise: R146
#[test]
fn perf2bolt_finds_every_trace_of_branch_stacks_in_the_code() {
    let readers = readers_of_stacks();
    for (name, options) in LINKED {
        let options = [options, &["-Wl,--emit-relocs"]].concat();
        let Some(dir) = built(&format!("stacks-{name}"), &options) else { return };
        record(&dir);
        succeeds(&dir, &[LWP, "export", "-f", "bolt", "-o", "exact.fdata"]);
        // The name of the file tells the format.
        succeeds(&dir, &[LWP, "export", "-o", "it.brstack.data"]);
        let expected = output(&dir, &["./program"]);
        let read = |file: &str| std::fs::read_to_string(dir.join(file)).expect(file);
        for (reader, bolt) in &readers {
            let made = [*reader, "-p", "it.brstack.data", "-o", "drawn.fdata", "program"];
            let made = succeeds(&dir, &made);
            let said = text(&made.stdout) + &text(&made.stderr);
            // Stubs of the linkage table are no functions to BOLT: a few traces are in them.
            for (line, ends) in [
                ("traces mismatching disassembled function contents", ": 0 (0.0%)"),
                ("out of range traces", " (0.0%)"),
            ] {
                let found = said.lines().find(|it| it.contains(line));
                let found = found.unwrap_or_else(|| panic!("{reader}: no {line}: {said}"));
                assert!(found.ends_with(ends), "{reader}, {name}: {found}");
            }
            edges_have_their_shares(&read("exact.fdata"), &read("drawn.fdata"));
            let taken = ["exact.fdata", "drawn.fdata"].map(|profile| {
                let data = format!("-data={profile}");
                let order = "-reorder-blocks=ext-tsp";
                let made = succeeds(&dir, &[bolt, "program", "-o", "bolted", &data, order, "-v=2"]);
                let said = text(&made.stdout) + &text(&made.stderr);
                assert!(!said.contains("invalid (possibly stale)"), "{bolt}, {name}: {said}");
                let optimised = output(&dir, &["./bolted"]);
                assert_eq!(optimised.stdout, expected.stdout);
                assert_eq!(optimised.status, expected.status);
                branches_taken(&dir, "./bolted")
            });
            assert!(taken[1] < taken[0] / 100 * 101, "{bolt}, {name}: {taken:?}");
        }
    }
}

/// How often each jump of callgrind's file was taken, by its address and its target.
fn jumps_of_callgrind(file: &str) -> BTreeMap<(u64, u64), u64> {
    let hexadecimal = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok();
    let mut jumps = BTreeMap::new();
    let mut lines = file.lines();
    while let Some(line) = lines.next() {
        let counted = line.strip_prefix("jcnd=").or_else(|| line.strip_prefix("jump="));
        let Some((times, target)) = counted.and_then(|it| it.split_once(' ')) else { continue };
        let times: u64 = times.split('/').next().and_then(|it| it.parse().ok()).expect("times");
        let target = target.split(' ').next().and_then(hexadecimal).expect("a target");
        let from = lines.next().and_then(|it| it.split(' ').next()).and_then(hexadecimal);
        *jumps.entry((from.expect("a source"), target)).or_default() += times;
    }
    jumps.retain(|_, times| *times > 0);
    jumps
}

/// Promise: R136
#[test]
fn jumps_are_taken_as_often_as_callgrind_says_those_of_a_switch_too() {
    if !has("valgrind") {
        return;
    }
    let Some(dir) = built("callgrind", &["-no-pie"]) else { return };
    record(&dir);
    succeeds(&dir, &[LWP, "export", "-f", "bolt", "-o", "it.fdata"]);
    let words = [
        "valgrind",
        "--tool=callgrind",
        "--collect-jumps=yes",
        "--dump-instr=yes",
        "--compress-pos=no",
        "--compress-strings=no",
        "--callgrind-out-file=callgrind.out",
        "./program",
    ];
    assert_eq!(output(&dir, &words).status.code(), Some(3));
    let file = std::fs::read_to_string(dir.join("callgrind.out")).expect("callgrind's file");
    let symbols = text(&succeeds(&dir, &["nm", "program"]).stdout);
    let start = |name: &str| {
        let line = symbols.lines().find(|line| line.ends_with(&format!(" {name}"))).expect(name);
        u64::from_str_radix(&line[..16], 16).expect("an address")
    };
    let theirs = jumps_of_callgrind(&file);
    for (name, bolt_name) in [("walk", "walk"), ("pick", "pick/program.c/1")] {
        let start = start(name);
        let profile = std::fs::read_to_string(dir.join("it.fdata")).expect("the export");
        let mut ours = BTreeMap::new();
        for line in profile.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [_, from, at, _, to, target, _, times] = words[..] else { panic!("{line}") };
            if from == bolt_name && to == bolt_name {
                let [at, target] = [at, target].map(|it| u64::from_str_radix(it, 16).unwrap());
                ours.insert((start + at, start + target), times.parse::<u64>().unwrap());
            }
        }
        let end = start + ours.keys().map(|(from, _)| from - start).max().expect("edges") + 1;
        let theirs: Vec<_> =
            theirs.iter().filter(|((from, _), _)| (start..end).contains(from)).collect();
        assert!(theirs.len() > 2, "{name}: {theirs:?}");
        for (jump, times) in theirs {
            assert_eq!(ours.get(jump), Some(times), "{name}: {jump:x?} of {ours:x?}");
        }
    }
}

/// Promise: R137, R138
#[test]
fn one_command_records_optimises_and_compares() {
    let Some(dir) = built("command", &["-Wl,--emit-relocs"]) else { return };
    if bolts().is_empty() {
        return;
    }
    let original = std::fs::read(dir.join("program")).unwrap();
    let made = succeeds(&dir, &[LWP, "optimize", "-r", "2", "--", "./program"]);
    let table = text(&made.stdout);
    let row = |name: &str| table.lines().find(|line| line.starts_with(name)).expect(name);
    assert!(row("end").ends_with("same") && row("end").contains("exit code 3"), "{table}");
    assert!(row("output").ends_with("same"), "{table}");
    assert!(row("branches taken").contains("  -"), "{table}");
    assert!(row("  least–greatest").ends_with("of 2 runs in turns"), "{table}");
    assert!(std::fs::read(dir.join("program")).unwrap() == original, "the original was changed");
    let left = std::fs::read_dir(&dir).unwrap().map(|it| it.unwrap().file_name());
    let mut left: Vec<String> = left.map(|it| it.into_string().unwrap()).collect();
    left.sort();
    assert_eq!(left, ["other.c", "program", "program.bolt", "program.c"]);
    assert!(branches_taken(&dir, "./program.bolt") < branches_taken(&dir, "./program"));

    succeeds(&dir, &[LWP, "optimize", "--in-place", "-r", "0", "--", "./program"]);
    assert!(std::fs::read(dir.join("program.orig")).unwrap() == original, "the original is gone");
    assert!(std::fs::read(dir.join("program")).unwrap() != original, "nothing was replaced");
    let said = refusal(&dir, &[LWP, "optimize", "--", "./program"]);
    assert!(said.contains("was written by BOLT"), "{said}");
}

/// Promise: R138
#[test]
fn what_an_optimiser_cannot_use_is_refused_with_a_remedy() {
    let Some(dir) = built("refused", &[]) else { return };
    let export = [LWP, "export", "-f", "bolt", "-o", "it.fdata"];
    record(&dir);
    let exported = succeeds(&dir, &export);
    let said = text(&exported.stderr);
    assert!(said.contains("has no relocations") && said.contains("-Wl,--emit-relocs"), "{said}");
    std::fs::remove_file(dir.join("it.fdata")).unwrap();

    let library = [&export[..], &["--binary", "/bin/sh"]].concat();
    let said = refusal(&dir, &library);
    assert!(said.contains("no executed code of") && said.contains("/program"), "{said}");

    succeeds(&dir, &["gcc", "-O1", "-Wl,--build-id", "-o", "program", "program.c", "other.c"]);
    let said = refusal(&dir, &export);
    assert!(said.contains("is not the file that was recorded"), "{said}");

    succeeds(&dir, &["strip", "program"]);
    record(&dir);
    let said = refusal(&dir, &export);
    assert!(said.contains("has no symbol table") && said.contains("strip"), "{said}");

    assert_eq!(
        output(&dir, &[LWP, "record", "-q", "-c", "1000", "--", "./program"]).status.code(),
        Some(3)
    );
    let said = refusal(&dir, &export);
    assert!(said.contains("needs every branch") && said.contains("without -c"), "{said}");

    let said = refusal(&dir, &[LWP, "export", "--binary", "program", "-o", "callgrind.out.1"]);
    assert!(said.contains("--binary is for"), "{said}");

    let missing = [LWP, "optimize", "--bolt", "./no-bolt", "--", "./program"];
    let said = refusal(&dir, &missing);
    assert!(said.contains("no-bolt"), "{said}");
    let nowhere = ["env", "PATH=/nowhere", LWP, "optimize", "--", "./program"];
    let said = refusal(&dir, &nowhere);
    assert!(said.contains("llvm-bolt is not installed") && said.contains("apt install"), "{said}");
    assert!(!dir.join("it.fdata").exists() && !dir.join("program.bolt").exists());
}

/// The names of the files in a directory.
fn files(dir: &Path) -> Vec<String> {
    let files = std::fs::read_dir(dir).unwrap().map(|it| it.unwrap().file_name());
    let mut files: Vec<String> = files.map(|it| it.into_string().unwrap()).collect();
    files.sort();
    files
}

/// Promise: R138
#[test]
fn bad_recordings_are_refused_and_files_stay_as_they_were() {
    let Some(dir) = built("bad", &["-g", "-Wl,--emit-relocs"]) else { return };
    record(&dir);
    let whole = std::fs::read(dir.join("lwp.data")).unwrap();
    let mut flipped = whole.clone();
    flipped[2000..2004].copy_from_slice(b"XXXX");
    std::fs::write(dir.join("flipped.data"), flipped).unwrap();
    std::fs::write(dir.join("cut.data"), &whole[..whole.len() / 2]).unwrap();
    std::fs::write(dir.join("empty.data"), b"").unwrap();
    std::fs::write(dir.join("text.data"), "no recording\n".repeat(99)).unwrap();
    succeeds(&dir, &[LWP, "record", "-q", "-o", "other.data", "--", "true"]);
    let sampled = [LWP, "record", "-q", "-o", "sampled.data", "-c", "1000", "--", "./program"];
    assert_eq!(output(&dir, &sampled).status.code(), Some(3));
    // What is there stays there.
    std::fs::write(dir.join("out"), "old").unwrap();
    std::fs::write(dir.join("program.bolt"), "old").unwrap();
    let before = files(&dir);
    for (recording, why, remedy) in [
        ("flipped.data", "a checksum is wrong at byte", "record again"),
        ("cut.data", "damaged or unfinished", "record again"),
        ("empty.data", "the file is empty", "lwp record"),
        ("text.data", "text.data", "help: "),
        ("missing.data", "No such file", "lwp record"),
        ("other.data", "no executed code of", "--binary takes one of"),
        ("sampled.data", "the recording has samples", "record without -c"),
    ] {
        for format in ["bolt", "llvm"] {
            let export = [LWP, "export", "-f", format, "--binary", "program", "-o", "out"];
            let said = refusal(&dir, &[&export[..], &["-i", recording]].concat());
            assert!(said.contains(why) && said.contains(remedy), "{recording}, {format}: {said}");
        }
        if !bolts().is_empty() {
            let said = refusal(&dir, &[LWP, "optimize", "-i", recording, "--", "./program"]);
            assert!(said.contains(why) && said.contains(remedy), "{recording}: {said}");
        }
        assert_eq!(files(&dir), before, "{recording}");
        for file in ["out", "program.bolt"] {
            assert_eq!(std::fs::read(dir.join(file)).unwrap(), b"old", "{recording}");
        }
    }
}

/// Promise: R138
#[test]
fn an_optimiser_that_fails_or_changes_the_program_is_told() {
    use std::os::unix::fs::PermissionsExt;
    let Some(dir) = built("wrong", &["-Wl,--emit-relocs"]) else { return };
    let bolt = |text: &str| {
        std::fs::write(dir.join("bolt"), format!("#!/bin/sh\n{text}\n")).unwrap();
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(dir.join("bolt"), executable).unwrap();
        refusal(&dir, &[LWP, "optimize", "-r", "0", "--bolt", "./bolt", "--", "./program"])
    };
    // It is called with: program -o made -data=profile …
    let said = bolt("echo half > $3; echo out of luck >&2; exit 7");
    assert!(said.contains("out of luck") && said.contains("exit status: 7"), "{said}");
    let at = said.find("its profile is ").expect("the profile's place") + "its profile is ".len();
    let profile = said[at..].trim();
    assert!(std::fs::metadata(profile).is_ok_and(|it| it.len() > 100), "{said}");
    assert!(!dir.join("program.bolt").exists(), "a half program was left");
    let said = bolt("exit 0");
    assert!(said.contains("failed"), "{said}");
    let said = bolt("cp /bin/echo $3");
    assert!(said.contains("does not do what the original does"), "{said}");
    assert_eq!(output(&dir, &["./program"]).status.code(), Some(3));
}
