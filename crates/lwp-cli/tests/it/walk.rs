//! Record, edit, rebuild, record, compare: the binary of the first recording is gone by then, and
//! every function has its name all the same. A test whose tool is missing is skipped and says so.

use crate::shared::tools;

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use tools::{has, limited, text};

const LWP: &str = env!("CARGO_BIN_EXE_lwp");

/// The keys that reports of everything are sorted by.
const ALL: [&str; 5] = ["--csv", "--inline", "-s", "comm,dso,sym,srcline,addr", "--no-demangle"];

fn fresh(name: &str) -> PathBuf {
    tools::fresh("walk", name)
}

fn run(dir: &Path, command: &[&str]) -> Output {
    limited(dir, command).env_remove("RUSTFLAGS").output().expect("timeout starts")
}

/// Runs a command that must succeed; what it printed on standard output and error.
fn done(dir: &Path, command: &[&str]) -> (String, String) {
    let output = run(dir, command);
    assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
    (text(&output.stdout), text(&output.stderr))
}

fn lwp(dir: &Path, arguments: &[&str]) -> String {
    done(dir, &[&[LWP], arguments].concat()).0
}

/// The source: `rounds` of work in a function called `work`, with another function before it that
/// moves everything.
fn source(work: &str, rounds: u32, before: &str) -> String {
    format!(
        "#include <stdio.h>\n#include <string.h>\nstatic int table[64];\n{before}\n\
         static inline unsigned mix(unsigned a) {{\n  a ^= a << 13;\n  return a ^ a >> 17;\n}}\n\
         __attribute__((noinline)) static unsigned shown(unsigned n) {{\n  \
         return printf(\"%u\\n\", n) + strlen(\"abc\") + table[n & 63];\n}}\n\
         __attribute__((noinline)) static unsigned {work}(unsigned n) {{\n  unsigned s = n;\n  \
         for (unsigned i = 0; i < n; i++)\n    s = mix(s + i) + table[s & 63];\n  \
         return s + shown(n);\n}}\n\
         int main(void) {{\n  return {work}({rounds}) == 7;\n}}\n"
    )
}

fn build(dir: &Path, text: &str, flags: &[&str]) -> bool {
    if !has("gcc") {
        return false;
    }
    std::fs::write(dir.join("program.c"), text).expect("source");
    done(dir, &[&["gcc", "-O1", "-o", "program", "program.c"], flags].concat());
    true
}

fn rows(dir: &Path, arguments: &[&str]) -> Vec<Value> {
    let json = lwp(dir, &[&["diff", "--json"], arguments].concat());
    let document: Value = serde_json::from_str(&json).expect("JSON");
    document["rows"].as_array().expect("rows").clone()
}

fn row<'a>(rows: &'a [Value], what: &str) -> &'a Value {
    let found = rows.iter().find(|row| row["what"] == what);
    found.unwrap_or_else(|| panic!("no {what} in {rows:#?}"))
}

fn numbers(row: &Value) -> (u64, u64) {
    (row["before"].as_u64().expect("before"), row["after"].as_u64().expect("after"))
}

/// Nothing in the rows is an address or is missing on a side.
fn all_named(rows: &[Value]) {
    for row in rows {
        let what = row["what"].as_str().expect("name");
        assert!(!what.starts_with('['), "{rows:#?}");
    }
}

/// Promise: R41
#[test]
fn a_rebuilt_program_is_compared_by_name() {
    let dir = fresh("gcc");
    if !build(&dir, &source("work", 20_000, ""), &["-g"]) {
        return;
    }
    lwp(&dir, &["record", "-q", "./program"]);
    let before = lwp(&dir, &[&["report"], &ALL[..]].concat());
    assert!(before.contains(",mix,") && before.contains("program.c:"), "{before}");
    let extra = "int extra(int a) { return a * 3; }";
    build(&dir, &source("work", 30_000, extra), &["-g"]);
    let old = lwp(&dir, &[&["report"], &ALL[..]].concat());
    assert_eq!(old, before, "the old recording has its names");
    lwp(&dir, &["record", "-q", "./program"]);
    let rows = rows(&dir, &[]);
    all_named(&rows);
    let (old, new) = numbers(row(&rows, "work [program]"));
    assert_eq!((new - old) % 10_000, 0, "whole rounds were added");
    assert!(
        rows.iter().all(|row| !row["before"].is_null() && !row["after"].is_null()),
        "{rows:#?}"
    );
    // The verdict names it too, of a baseline whose binary is gone.
    let gate = ["gate", "--baseline", "lwp.data.old", "-l", "instructions=+1%"];
    let output = run(&dir, &[&[LWP], &gate[..]].concat());
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("work [program]"), "{}", text(&output.stdout));
    // Without the binary every report is what it was.
    let reports: [&[&str]; 6] = [
        &["report", "-s", "srcline"],
        &["annotate", "work"],
        &["flamegraph", "-o", "-"],
        &["flamegraph", "-o", "-", "--baseline", "lwp.data.old"],
        &["export", "-f", "callgrind", "-o", "-"],
        &["diff"],
    ];
    let all = || reports.map(|report| lwp(&dir, report));
    let there = all();
    std::fs::remove_file(dir.join("program")).expect("program");
    assert_eq!(all(), there);
}

/// Promise: R41
#[test]
fn sampled_recordings_need_no_binary_either() {
    let dir = fresh("sampled");
    if !build(&dir, &source("work", 40_000, ""), &["-g"]) {
        return;
    }
    lwp(&dir, &["record", "-q", "-c", "997", "./program"]);
    let reports: [&[&str]; 5] = [
        &["report", "-s", "srcline"],
        &["report", "--tree"],
        &["annotate", "work"],
        &["flamegraph", "-o", "-"],
        &["export", "-f", "folded", "-o", "-"],
    ];
    let all = || reports.map(|report| lwp(&dir, report));
    let there = all();
    assert!(there[2].contains("mix") && there[4].contains("main;work"), "{}", there[4]);
    std::fs::write(dir.join("program"), "something else").expect("program");
    assert_eq!(all(), there);
}

/// Promise: R41
#[test]
fn names_kept_are_those_of_the_files() {
    let dir = fresh("same");
    if !build(&dir, &source("work", 1000, ""), &["-g"]) {
        return;
    }
    let deterministic = ["record", "-q", "--deterministic"];
    for options in [&[][..], &["-c", "101"]] {
        lwp(&dir, &[&deterministic[..], options, &["-o", "kept", "./program"]].concat());
        lwp(
            &dir,
            &[&deterministic[..], options, &["--no-names", "-o", "bare", "./program"]].concat(),
        );
        for report in [&ALL[..], &["--tree"]] {
            let of = |file| lwp(&dir, &[&["report", "-i", file], report].concat());
            assert_eq!(of("kept"), of("bare"), "{options:?} {report:?}");
        }
        // Where a recording without names is concerned, the binary must be there, or in the store
        // of builds.
        let gone = dir.join("gone");
        std::fs::rename(dir.join("program"), &gone).expect("program");
        assert!(lwp(&dir, &["report", "-i", "bare"]).contains(" work"));
        let elsewhere = format!("XDG_CACHE_HOME={}", dir.join("elsewhere").display());
        let elsewhere = ["env", &elsewhere, LWP, "report", "-i", "bare"];
        let (bare, complaints) = done(&dir, &elsewhere);
        assert!(!bare.contains(" work"), "{bare}");
        assert!(complaints.contains("cannot be read"), "{complaints}");
        std::fs::rename(&gone, dir.join("program")).expect("program");
    }
}

/// Promise: R42
#[test]
fn a_renamed_function_is_known_by_its_code() {
    for (name, flags) in [("pie", &["-g", "-pie"][..]), ("fixed", &["-no-pie"])] {
        for options in [&[][..], &["-c", "97"]] {
            let dir = fresh(&format!("renamed-{name}-{}", options.len()));
            if !build(&dir, &source("work", 5000, ""), flags) {
                return;
            }
            lwp(&dir, &[&["record", "-q"], options, &["./program"]].concat());
            let extra = "int extra[4000] = {1}; int more(int a) { return a * extra[a]; }";
            build(&dir, &source("labour", 6000, extra), flags);
            lwp(&dir, &[&["record", "-q"], options, &["./program"]].concat());
            let rows = rows(&dir, &[]);
            let renamed = row(&rows, "labour [program]");
            assert_eq!(renamed["renamed_from"], "work", "{rows:#?}");
            let (old, new) = numbers(renamed);
            assert!(new > old && new < old * 2, "{old} {new}");
            assert!(lwp(&dir, &["diff"]).contains("labour [program] (renamed from work)"));
            assert!(!rows.iter().any(|row| row["what"] == "work [program]"), "{rows:#?}");
        }
    }
}

/// A package whose generic function is compiled into the program, and whose `work` does `rounds`.
fn package(dir: &Path, rounds: u32, version: &str) {
    let files = [
        (
            "Cargo.toml",
            format!(
                "[package]\nname = \"walked\"\nversion = \"{version}\"\nedition = \"2021\"\n\
                 [profile.release]\ndebug = 1\n[workspace]\n"
            ),
        ),
        (
            "src/lib.rs",
            "#[inline(never)]\npub fn folded<T: Iterator<Item = u64>>(all: T) -> u64 {\n    \
             all.fold(1, |a, b| std::hint::black_box(a ^ b.wrapping_mul(3)))\n}\n"
                .to_owned(),
        ),
        (
            "src/main.rs",
            format!(
                "#[inline(never)]\nfn work(n: u64) -> u64 {{\n    \
                 walked::folded((0..n).map(|a| a + 1))\n}}\n\
                 fn main() {{\n    println!(\"{{}}\", work({rounds}));\n}}\n"
            ),
        ),
    ];
    for (file, content) in files {
        let path = dir.join(file);
        std::fs::create_dir_all(path.parent().expect("directory")).expect("directory");
        std::fs::write(path, content).expect("file");
    }
}

/// Promise: R42
#[test]
fn programs_of_cargo_are_compared_in_both_manglings() {
    if !has("cargo") {
        return;
    }
    for mangling in ["v0", "legacy"] {
        let dir = fresh(mangling);
        let build = |directory: &str| {
            let mut cargo = limited(&dir, &["cargo", "build", "-q", "--release", "--offline"]);
            cargo.env("CARGO_TARGET_DIR", dir.join(directory));
            let unstable = if mangling == "legacy" { " -Zunstable-options" } else { "" };
            cargo.env("RUSTFLAGS", format!("-Csymbol-mangling-version={mangling}{unstable}"));
            cargo.env("RUSTC_BOOTSTRAP", "1");
            let output = cargo.output().expect("timeout starts");
            assert!(output.status.success(), "{}", text(&output.stderr));
        };
        package(&dir, 3000, "0.1.0");
        build("target");
        lwp(&dir, &["record", "-q", "target/release/walked"]);
        std::fs::remove_dir_all(dir.join("target")).expect("target");
        // Another version: every hash of the package's symbols is another.
        package(&dir, 4000, "0.2.0");
        build("target");
        lwp(&dir, &["record", "-q", "target/release/walked"]);
        let rows = rows(&dir, &[]);
        all_named(&rows);
        let folded =
            rows.iter().find(|row| row["what"].as_str().unwrap().contains("walked::folded"));
        let folded = folded.unwrap_or_else(|| panic!("{mangling}: {rows:#?}"));
        let (old, new) = numbers(folded);
        assert_eq!((new - old) % 1000, 0, "{mangling}: {folded}");
        let sides = |row: &&Value| row["before"].is_null() || row["after"].is_null();
        let own: Vec<&Value> = rows
            .iter()
            .filter(sides)
            .filter(|row| row["what"].to_string().contains("walked::"))
            .collect();
        assert!(own.is_empty(), "{mangling}: {own:#?}");
    }
}

/// Promise: R42
#[test]
fn files_with_other_names_are_compared_by_their_role() {
    let dir = fresh("roles");
    if !build(&dir, &source("work", 2000, ""), &["-g"]) {
        return;
    }
    std::fs::rename(dir.join("program"), dir.join("one")).expect("program");
    build(&dir, &source("work", 3000, ""), &["-g"]);
    std::fs::rename(dir.join("program"), dir.join("two")).expect("program");
    lwp(&dir, &["record", "-q", "-o", "a", "./one"]);
    lwp(&dir, &["record", "-q", "-o", "b", "./two"]);
    let compared = rows(&dir, &["a", "b"]);
    let (old, new) = numbers(row(&compared, "work [two]"));
    assert!(new > old, "{old} {new}");
    assert_eq!(rows(&dir, &["--map", "one=two", "a", "b"]), compared);
    let wrong = run(&dir, &[LWP, "diff", "--map", "three=two", "a", "b"]);
    assert_eq!(wrong.status.code(), Some(125));
    assert!(text(&wrong.stderr).contains("one"), "{}", text(&wrong.stderr));
}

/// Promise: R43
#[test]
fn different_runs_are_not_compared_silently() {
    let dir = fresh("different");
    for (file, options, arguments) in [
        ("one", &[][..], "1"),
        ("two", &[], "2"),
        ("fixed", &["--deterministic"], "1"),
        ("sampled", &["-c", "100"], "1"),
        ("rarely", &["-c", "200"], "1"),
    ] {
        let record = ["record", "-q", "-o", file];
        lwp(&dir, &[&record[..], options, &["--", "/bin/echo", arguments]].concat());
    }
    for (before, after, kinds, words) in [
        ("one", "two", "arguments", "other arguments: 1, now 2"),
        ("fixed", "one", "determinism", "only the recording from before is deterministic"),
        ("one", "sampled", "mode", "one recording counts every execution"),
        ("rarely", "sampled", "events", "other events: instructions:c=200"),
        ("fixed", "two", "arguments,determinism", "other arguments"),
    ] {
        let (_, says) = done(&dir, &[LWP, "diff", before, after]);
        assert!(says.contains(words), "{says}");
        let drawn =
            done(&dir, &[LWP, "flamegraph", "-o", "-", "-i", after, "--baseline", before]).1;
        assert!(drawn.contains(words), "{drawn}");
        let gate = ["gate", "-i", after, "--baseline", before, "-l", "instructions=+9999999%"];
        let refused = run(&dir, &[&[LWP], &gate[..]].concat());
        let says = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(125), "{says}");
        assert!(says.contains(words) && says.contains("--allow-different"), "{says}");
        done(&dir, &[&[LWP], &gate[..], &["--allow-different", kinds]].concat());
    }
    let (_, says) = done(&dir, &[LWP, "diff", "one", "one"]);
    assert_eq!(says, "");
    // Arguments of the same length, the same program: whatever differs may be chance.
    lwp(&dir, &["record", "-q", "-o", "more", "--", "/bin/sh", "-c", "for i in 1 2 3; do :; done"]);
    lwp(&dir, &["record", "-q", "-o", "less", "--", "/bin/sh", "-c", "for i in 1 2; do :; done"]);
    let (_, says) = done(&dir, &[LWP, "diff", "less", "more"]);
    assert!(says.contains("neither recording is deterministic"), "{says}");
    let fixed = ["record", "-q", "--deterministic", "-o"];
    lwp(&dir, &[&fixed[..], &["fixed2", "--", "/bin/echo", "2"]].concat());
    let (_, says) = done(&dir, &[LWP, "diff", "fixed", "fixed2"]);
    assert!(!says.contains("neither"), "{says}");
    let gate = ["gate", "-i", "one", "--baseline", "two", "-l", "instructions=+1%"];
    let wrong = run(&dir, &[&[LWP], &gate[..], &["--allow-different", "weather"]].concat());
    assert!(text(&wrong.stderr).contains("'weather'"), "{}", text(&wrong.stderr));
}

/// Promise: R44
#[test]
fn recordings_say_where_they_come_from() {
    let dir = fresh("tags");
    let mut record = limited(
        &dir,
        &[LWP, "record", "-q", "--tag", "machine=a b", "--tag", "size=7", "/bin/true"],
    );
    record.env("GITHUB_RUN_ID", "4711").env("GITHUB_REF", "refs/pull/12/merge");
    assert!(record.status().expect("timeout starts").success());
    let header = lwp(&dir, &["script", "--header"]);
    for line in
        ["# tag.machine: a b\n", "# tag.size: 7\n", "# ci.run: 4711\n", "# ci.pull-request: 12\n"]
    {
        assert!(header.contains(line), "{header}");
    }
    let facts = lwp(&dir, &["script", "--header-only"]);
    assert!(header.starts_with(&facts) && facts.lines().all(|line| line.starts_with("# ")));
    let wrong = run(&dir, &[LWP, "record", "--tag", "nothing", "/bin/true"]);
    assert_eq!(wrong.status.code(), Some(125));
}

#[test]
fn a_recording_in_a_pipe_has_names_too() {
    let dir = fresh("pipe");
    if !build(&dir, &source("work", 2000, ""), &["-g"]) {
        return;
    }
    let script = format!("{LWP} record -q -o /dev/fd/3 ./program 3>&1 >/dev/null | cat >piped");
    done(&dir, &["sh", "-c", &script]);
    std::fs::remove_file(dir.join("program")).expect("program");
    let report = lwp(&dir, &["report", "-i", "piped"]);
    assert!(report.contains(" work"), "{report}");
}

/// Promise: R41
#[test]
fn a_recording_whose_lwp_was_killed_falls_back_to_the_binary() {
    let dir = fresh("killed");
    if !build(&dir, &source("work", 20_000, ""), &["-g"]) {
        return;
    }
    lwp(&dir, &["record", "-q", "./program"]);
    let whole = lwp(&dir, &["report"]);
    let bytes = std::fs::read(dir.join("lwp.data")).expect("recording");
    let end = bytes.windows(4).rposition(|kind| kind == b"DONE").expect("an end") + 12;
    // Behind the counts, and within the names: what is left is complete.
    for cut in [end, (end + bytes.len()) / 2] {
        std::fs::write(dir.join("cut"), &bytes[..cut]).expect("recording");
        assert_eq!(lwp(&dir, &["report", "-i", "cut"]), whole);
    }
}

/// Promise: R153
#[test]
fn lines_are_compared_by_what_they_are() {
    let dir = fresh("lines");
    let source = |inserted: &str, rounds: u32| {
        format!(
            "#include <stdio.h>\nstatic volatile long s;\n{inserted}\
             __attribute__((noinline)) void f(long n) {{\n  for (long i = 0; i < n; i++)\n    \
             s += i;\n}}\nint main(void) {{ f({rounds});\n  f(20);\n  return 0; }}\n"
        )
    };
    for (name, source) in [("old", source("", 1000)), ("new", source("/* one */\n\n", 1200))] {
        std::fs::write(dir.join("program.c"), source).expect("a file");
        let compile = ["gcc", "-O1", "-g", "-o", "program", "program.c"];
        if !has("gcc") {
            eprintln!("skipped: no gcc");
            return;
        }
        assert!(run(&dir, &compile).status.success());
        lwp(&dir, &["record", "-q", "-o", name, "--", "./program"]);
    }
    let json = lwp(&dir, &["diff", "--json", "-s", "srcline", "old", "new"]);
    let document: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let rows = document["rows"].as_array().expect("rows");
    let ours: Vec<_> =
        rows.iter().filter(|row| row["what"].as_str().unwrap().contains("program.c")).collect();
    assert_eq!(ours.len(), 2, "{ours:#?}");
    for row in ours {
        let what = row["what"].as_str().expect("a line");
        let (_, line) = what.rsplit_once(':').expect("a number");
        let line: u32 = line.parse().expect("a number");
        let before = row["renamed_from"].as_str().and_then(|it| it.rsplit_once(':'));
        assert_eq!(before.expect("a line").1.parse(), Ok(line - 2), "{row}");
        let [before, after] = ["before", "after"].map(|side| row[side].as_u64().expect("counts"));
        assert!((400..700).contains(&(after - before)), "{row}");
    }
    let text = lwp(&dir, &["diff", "-s", "srcline", "old", "new"]);
    assert!(text.contains("program.c:6 (line 4 before)"), "{text}");
}

/// Promise: R154
#[test]
fn processes_of_one_name_are_told_apart_by_their_arguments() {
    let dir = fresh("processes");
    if !build(&dir, &source("work", 1000, ""), &[]) {
        return;
    }
    let script = "./program -q a.c; ./program -q b.c";
    lwp(&dir, &["record", "-q", "--", "sh", "-c", script]);
    let json = lwp(&dir, &["report", "--json", "-s", "process"]);
    let document: Value = serde_json::from_str(&json).expect("JSON");
    let rows = document["rows"].as_array().expect("rows");
    let mut names: Vec<&str> = rows
        .iter()
        .map(|row| row["process"].as_str().expect("a name").trim_start_matches(char::is_numeric))
        .collect();
    // The shell's children are shells before they execute the program.
    names.sort_unstable();
    names.dedup();
    assert_eq!(names, ["  program a.c", "  program b.c", "  sh"]);
}

/// Promise: R155
#[test]
fn a_program_that_profiles_itself_where_it_cannot_is_explained() {
    let dir = fresh("illegal");
    let source = "#include <x86gprintrin.h>\nint main(void) { __llwpcb(0); return 0; }\n";
    if !build(&dir, source, &["-mlwp"]) {
        return;
    }
    let said = |options: &[&str]| {
        let output = run(&dir, &[&[LWP], options, &["--", "./program"]].concat());
        (output.status.code(), text(&output.stderr))
    };
    for options in [&["run", "--no-lwp"][..], &["stat", "--no-lwp"], &["record", "-c", "1000"]] {
        let (code, said) = said(options);
        assert_eq!(code, None, "{options:?}: {said}");
        assert!(said.contains("has instructions of AMD's Lightweight Profiling"), "{said}");
    }
    assert_eq!(said(&["run"]), (Some(0), String::new()));
    // Other illegal instructions have other reasons.
    if build(&dir, "int main(void) { __builtin_trap(); }\n", &[]) {
        let (code, said) = said(&["run", "--no-lwp"]);
        assert_eq!((code, said.contains("Lightweight")), (None, false), "{said}");
    }
}

#[test]
fn other_compilers_are_named() {
    let dir = fresh("compilers");
    let text_of = |before: &str| source("work", 1000, before);
    if !build(&dir, &text_of(""), &[]) {
        return;
    }
    lwp(&dir, &["record", "-q", "--deterministic", "-o", "old", "--", "./program"]);
    build(&dir, &text_of("__asm__(\".ident \\\"other compiler 2\\\"\");"), &[]);
    lwp(&dir, &["record", "-q", "--deterministic", "-o", "new", "--", "./program"]);
    let (_, said) = done(&dir, &[LWP, "diff", "old", "new"]);
    let line = said.lines().find(|line| line.contains("built by different compilers: "));
    let (old, new) = line.and_then(|line| line.split_once(" -> ")).expect(&said);
    assert!(old.contains("GCC") && !old.contains("other compiler 2"), "{line:?}");
    assert!(new.contains("GCC") && new.contains("other compiler 2"), "{line:?}");
    let gate = ["gate", "-b", "old", "-i", "new", "-l", "instructions=+1%"];
    let verdict = lwp(&dir, &gate);
    assert!(verdict.contains("note: the programs were built by different compilers"), "{verdict}");
    let (_, said) = done(&dir, &[LWP, "diff", "old", "old"]);
    assert!(!said.contains("compilers"), "{said}");
}
