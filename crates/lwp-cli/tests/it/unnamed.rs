//! Functions that no symbol names, and names whose file has gone.

use crate::shared::tools;

use std::path::Path;
use std::process::Output;

use serde_json::Value;

use tools::{fresh, has, limited, text};

const LWP: &str = env!("CARGO_BIN_EXE_lwp");

fn run(dir: &Path, command: &[&str]) -> Output {
    let output = limited(dir, command).output().expect("timeout starts");
    assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
    output
}

fn compile(dir: &Path, source: &str, flags: &[&str], program: &str) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/profiled").join(source);
    let source = source.to_str().expect("text");
    run(dir, &[&["gcc", "-O1", "-Wl,--build-id"], flags, &["-o", program, source]].concat());
}

/// Name, own instructions and calls of the functions of `program`.
fn functions(dir: &Path, recording: &str, program: &str) -> Vec<(String, u64, u64)> {
    let command = [LWP, "report", "-i", recording, "--json", "-s", "dso,sym"];
    let output = run(dir, &command);
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let rows = document["rows"].as_array().expect("rows");
    let own = rows.iter().filter(|row| row["dso"] == program);
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    own.map(|row| {
        let name = row["sym"].as_str().expect("text").to_owned();
        (name, number(&row["self"]), number(&row["calls"]))
    })
    .collect()
}

/// The offset that a program gives a function, by `nm`.
fn symbol(dir: &Path, program: &str, name: &str) -> u64 {
    let output = text(&run(dir, &["nm", program]).stdout);
    let line = output.lines().find(|line| line.split(' ').nth(2) == Some(name)).expect(name);
    u64::from_str_radix(line.split(' ').next().expect("a word"), 16).expect("a number")
}

/// Promise: R117
#[test]
fn functions_without_symbols_have_their_bounds_and_calls() {
    if !has("gcc") || !has("nm") || !has("strip") {
        return;
    }
    let dir = fresh("unnamed", "bounds");
    compile(&dir, "stripped.c", &[], "named");
    run(&dir, &["strip", "-o", "bare", "named"]);
    for program in ["named", "bare"] {
        let recording = format!("{program}.data");
        run(&dir, &[LWP, "record", "-q", "-o", &recording, "--", &format!("./{program}")]);
    }
    let named = functions(&dir, "named.data", "named");
    let bare = functions(&dir, "bare.data", "bare");
    for (name, times) in [("first", 3), ("second", 3), ("third", 1), ("around", 1), ("main", 1)] {
        let (_, own, calls) = named.iter().find(|row| row.0 == name).expect(name);
        let unnamed = format!("bare+{:#x}", symbol(&dir, "named", name));
        let there = bare.iter().find(|row| row.0 == unnamed);
        assert_eq!(there, Some(&(unnamed.clone(), *own, *calls)), "{name}: {bare:?}");
        assert_eq!(*calls, times, "{name}");
    }
    let whole = |rows: &[(String, u64, u64)]| rows.iter().map(|row| row.1).sum::<u64>();
    assert_eq!(whole(&bare), whole(&named));
    // The names in the recording are enough.
    std::fs::remove_file(dir.join("bare")).expect("it goes");
    assert_eq!(functions(&dir, "bare.data", "bare"), bare);
    // And so they are for annotate.
    let hottest = bare[0].0.clone();
    let listing = text(&run(&dir, &[LWP, "annotate", "-i", "bare.data", &hottest]).stdout);
    assert!(listing.contains(&hottest), "{listing}");
}

/// Promise: R117
#[test]
fn sampled_functions_without_symbols_are_those_that_were_counted() {
    if !has("gcc") || !has("strip") {
        return;
    }
    let dir = fresh("unnamed", "sampled");
    compile(&dir, "stripped.c", &["-s"], "bare");
    run(&dir, &[LWP, "record", "-q", "-o", "exact.data", "--", "./bare"]);
    run(&dir, &[LWP, "record", "-q", "-c", "50", "-o", "sampled.data", "--", "./bare"]);
    let exact = functions(&dir, "exact.data", "bare");
    let sampled = functions(&dir, "sampled.data", "bare");
    let names = |rows: &[(String, u64, u64)]| {
        let mut names: Vec<String> = rows.iter().take(3).map(|row| row.0.clone()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&exact), names(&sampled));
}

/// Promise: R117
#[test]
fn builds_without_symbols_are_compared_by_their_code() {
    if !has("gcc") || !has("nm") || !has("strip") {
        return;
    }
    let dir = fresh("unnamed", "builds");
    let (old, new) = (dir.join("old"), dir.join("new"));
    for (at, flags) in [(&old, &[][..]), (&new, &["-DOTHER"])] {
        std::fs::create_dir(at).expect("directory");
        compile(at, "stripped.c", flags, "named");
        run(at, &["strip", "-o", "bare", "named"]);
        run(at, &[LWP, "record", "-q", "-o", "bare.data", "--", "./bare"]);
    }
    let output = run(&dir, &[LWP, "diff", "--json", "old/bare.data", "new/bare.data"]);
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let rows = document["rows"].as_array().expect("rows");
    let own: Vec<&Value> =
        rows.iter().filter(|row| row["what"].as_str().unwrap_or("").contains("[bare]")).collect();
    let row = |name: &str| {
        let wanted = format!("bare+{:#x} [bare]", symbol(&new, "named", name));
        own.iter().find(|row| row["what"] == wanted.as_str()).copied()
    };
    let second = row("second").unwrap_or_else(|| panic!("{own:?}"));
    let counts = [&second["before"], &second["after"]].map(|it| it.as_u64().expect("a count"));
    assert!(counts[1] > counts[0] * 3 / 2 && counts[1] < counts[0] * 3, "{second}");
    let front = row("front").unwrap_or_else(|| panic!("{own:?}"));
    assert!(front["before"].is_null(), "{front}");
    for same in ["first", "third"] {
        assert!(row(same).is_none(), "{same} has not changed: {own:?}");
    }
}

/// Promise: R118
#[test]
fn names_and_build_ids_outlive_the_file() {
    if !has("gcc") {
        return;
    }
    for (mode, sampled) in [("unlink", false), ("replace", false), ("unlink", true)] {
        let dir = fresh("unnamed", &format!("{mode}-{sampled}"));
        compile(&dir, "goes.c", &[], "goes");
        std::fs::copy("/bin/true", dir.join("other")).expect("a program");
        let build = lwp_symbols::build_id_of(&dir.join("goes"));
        let mut command = vec![LWP, "record", "-q"];
        if sampled {
            command.extend(["-c", "1000"]);
        }
        command.extend(["--", "./goes", mode, "other"]);
        run(&dir, &command);
        let found = functions(&dir, "lwp.data", "goes");
        assert_eq!(found[0].0, "busy_afterwards", "{mode}, sampled {sampled}: {found:?}");
        let file = std::fs::File::open(dir.join("lwp.data")).expect("a recording");
        let recording = lwp_profile::Recording::read(file).expect("a recording");
        let mut modules = recording.modules.values();
        let module = modules.find(|it| it.path.ends_with("/goes")).expect("the program");
        assert!(!build.is_empty() && module.build_id == build, "{mode}, sampled {sampled}");
    }
}

/// Go's linker leaves the symbol table out for `go run` and for `-s`; the runtime's table stays.
///
/// Promise: R118
#[test]
fn programs_of_go_without_symbols_have_their_names() {
    if !has("go") {
        return;
    }
    let dir = fresh("unnamed", "go");
    let source = "package main\n\ntype part struct{ n int }\n\n//go:noinline\n\
                  func (p part) Sum() int {\n\ts := 0\n\tfor i := 0; i < p.n; i++ {\n\t\ts += i ^ p.n\n\
                  \t}\n\treturn s\n}\n\nfunc main() {\n\tprintln(part{40000}.Sum())\n}\n";
    std::fs::write(dir.join("sums.go"), source).expect("source");
    let cache = format!("GOCACHE={}", dir.join("cache").display());
    let go = |words: &[&str]| run(&dir, &[&["env", &cache, "go"], words].concat());
    let sums = |recording: &str, program: &str| {
        let found = functions(&dir, recording, program);
        let sum = found.iter().find(|it| it.0 == "main.part.Sum");
        sum.unwrap_or_else(|| panic!("{recording}: {found:?}")).1
    };
    for (name, options) in [
        ("whole", &[][..]),
        ("stripped", &["-ldflags=-s -w"]),
        ("moved", &["-ldflags=-s -w", "-buildmode=pie"]),
    ] {
        go(&[&["build", "-o", name], options, &["sums.go"]].concat());
        run(
            &dir,
            &[LWP, "record", "-q", "-o", &format!("{name}.data"), "--", &format!("./{name}")],
        );
    }
    let whole = sums("whole.data", "whole");
    assert!(whole > 40_000 * 4, "{whole}");
    assert_eq!([sums("stripped.data", "stripped"), sums("moved.data", "moved")], [whole, whole]);
    let words =
        ["env", &cache, LWP, "record", "-q", "-o", "run.data", "--", "go", "run", "sums.go"];
    run(&dir, &words);
    assert_eq!(sums("run.data", "sums"), whole);
}
