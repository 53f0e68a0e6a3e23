//! Profiles for compilers, with the compilers: recorded, exported, compiled again, and compared. A
//! test whose compiler is missing is skipped and says so; `tests/viewers.sh` installs them.
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use std::path::{Path, PathBuf};

use crate::optimize::{branches_taken, output, record, refusal, succeeds};
use crate::shared::tools::{self, has, text};

const LWP: &str = env!("CARGO_BIN_EXE_lwp");

/// Wrong expectations, a function to be inlined, an indirect call, and a part that is never
/// executed.
const PROGRAM: &str = r#"#include <stdio.h>
#include <stdlib.h>
#define NOINLINE __attribute__((noinline))
static volatile long sink;
NOINLINE void rare(long n) { sink += n * 3; }
NOINLINE void usual(long n) { sink ^= n; }
static inline long mix(long n, long way) {
    if (way == 0) { rare(n); return n + 1; }
    return n ^ (n >> 3);
}
NOINLINE long step(long n, long i) {
    if (__builtin_expect(i % 16 != 5, 0)) { n += i; } else { rare(i); n ^= 5; }
    if (__builtin_expect(i % 8 != 6, 0)) n -= sink; else { rare(n & 7); n -= 9; }
    return n;
}
NOINLINE long walk(long n) {
    void (*const ways[])(long) = { usual, rare };
    long s = 0;
    for (long i = 0; i < n; i++) {
        s = step(s, i) & 0xfffff;
        s += mix(s, i & 31);
        if (i % 64 == 63) ways[i % 1024 == 1023](i);
    }
    return s;
}
int main(int argc, char **argv) {
    printf("%ld %ld\n", walk(argc > 1 ? atol(argv[1]) : 20000), sink);
    return 3;
}
"#;

/// How the program is compiled for a profile.
const LINES: [&str; 2] = ["-g", "-fdebug-info-for-profiling"];

const EXPORT: [&str; 5] = [LWP, "export", "-f", "llvm", "-o"];

/// The installed versions of clang, with `llvm-profdata` of the same version.
fn clangs() -> Vec<(&'static str, &'static str)> {
    let versions = [
        ("clang-14", "llvm-profdata-14"),
        ("clang-16", "llvm-profdata-16"),
        ("clang-19", "llvm-profdata-19"),
    ];
    versions.into_iter().filter(|(clang, profdata)| has(clang) && has(profdata)).collect()
}

/// A directory with the program, compiled with these options.
fn built(name: &str, compiler: &str, options: &[&str]) -> PathBuf {
    let dir = tools::fresh("compiler_profiles", name);
    std::fs::write(dir.join("program.c"), PROGRAM).unwrap();
    compile(&dir, compiler, options);
    dir
}

fn compile(dir: &Path, compiler: &str, options: &[&str]) {
    let compile = [compiler, "-O2", "-Wl,--build-id", "-o", "program", "program.c"];
    succeeds(dir, &[&compile, options].concat());
}

/// The lines of a function's profile, with the indentation of what was inlined.
fn of_function<'a>(profile: &'a str, name: &str) -> Vec<&'a str> {
    let start = format!("{name}:");
    let behind = profile.lines().skip_while(|line| !line.starts_with(&start));
    let (first, rest) = (1, behind.clone().skip(1).take_while(|line| line.starts_with(' ')));
    behind.take(first).chain(rest).collect()
}

/// Promise: R141
#[test]
fn clang_takes_the_profile_and_the_program_takes_fewer_branches() {
    for (clang, profdata) in clangs() {
        let dir = built(clang, clang, &LINES);
        record(&dir);
        let exported = succeeds(&dir, &[&EXPORT[..], &["it.prof"]].concat());
        assert_eq!(text(&exported.stderr), "", "{clang}");

        let merged = succeeds(&dir, &[profdata, "merge", "-sample", "it.prof", "-o", "merged"]);
        assert_eq!(text(&merged.stderr), "", "{clang}");
        let shown = text(&succeeds(&dir, &[profdata, "show", "-sample", "merged"]).stdout);
        assert!(shown.contains("Function: step: 120000, 20000, 8 sampled lines"), "{shown}");

        let expected = output(&dir, &["./program"]);
        let before = branches_taken(&dir, "./program");
        let using = ["-fprofile-sample-use=it.prof", "-Wall", "-Wextra", "-Werror"];
        let using = [clang, "-O2", "-o", "faster", "program.c", using[0], using[1], using[2]];
        let compiled = succeeds(&dir, &[&using[..], &LINES, &["-Wno-unused-parameter"]].concat());
        assert_eq!(text(&compiled.stderr), "", "{clang}");
        let faster = output(&dir, &["./faster"]);
        assert_eq!((&faster.stdout, faster.status), (&expected.stdout, expected.status));
        let after = branches_taken(&dir, "./faster");
        assert!(after < before / 100 * 95, "{clang}: {before} before, {after} after");
    }
}

/// Promise: R141
#[test]
fn lines_are_counted_from_their_function_blocks_and_inlined_calls_apart() {
    let Some((clang, _)) = clangs().pop() else { return };
    let dir = built("lines", clang, &LINES);
    record(&dir);
    succeeds(&dir, &[&EXPORT[..], &["it.prof"]].concat());
    let profile = std::fs::read_to_string(dir.join("it.prof")).unwrap();
    let step = [
        "step:120000:20000",
        " 0: 20000",
        " 1: 20000",
        " 1.1: 18750",
        " 1.2: 1250 rare:1250",
        " 2: 20000",
        " 2.1: 17500",
        " 2.2: 2500 rare:2500",
        " 3: 20000",
    ];
    assert_eq!(of_function(&profile, "step"), step);
    let walk = of_function(&profile, "walk");
    assert!(walk.contains(&" 6.1: 312 rare:19 usual:293"), "{profile}");
    // 625 of 20,000 calls of `mix` find the way to be 0.
    let inlined = [" 5: mix:40000", "  1: 20000", "  1.1: 625 rare:625", "  2: 19375"];
    assert!(walk.windows(4).any(|lines| lines == inlined), "{profile}");
}

/// Promise: R142
#[test]
fn profile_tools_read_ranges_and_branches() {
    for (clang, _) in clangs() {
        let profgen = clang.replace("clang", "llvm-profgen");
        if !has(&profgen) {
            continue;
        }
        for linked in ["-no-pie", "-pie"] {
            let options = [&LINES[..], &[linked]].concat();
            let dir = built(&format!("{profgen}{linked}"), clang, &options);
            record(&dir);
            succeeds(&dir, &[LWP, "export", "-f", "profgen", "-o", "it.txt"]);
            succeeds(&dir, &[&EXPORT[..], &["ours.prof"]].concat());
            let made = [&profgen, "--binary=program", "--unsymbolized-profile=it.txt"];
            let written = ["--use-offset=0", "--format=text", "-o", "it.prof"];
            succeeds(&dir, &[&made[..], &written].concat());
            let read = |file: &str| std::fs::read_to_string(dir.join(file)).unwrap();
            let (theirs, ours) = (read("it.prof"), read("ours.prof"));
            for function in ["step", "walk"] {
                let theirs = of_function(&theirs, function);
                // Sums differ: theirs count each instruction, and those of no line.
                let ours = of_function(&ours, function).into_iter().skip(1);
                let lines = ours.filter(|line| !line.contains(": mix:"));
                for line in lines.map(sorted) {
                    assert!(theirs.iter().any(|it| sorted(it) == line), "{profgen}: {line}");
                }
            }
        }
    }
}

/// A line with its calls in alphabetical order.
fn sorted(line: &str) -> String {
    let (count, calls) = line.split_once(": ").unwrap_or((line, ""));
    let mut calls: Vec<&str> = calls.split(' ').collect();
    calls[1..].sort_unstable();
    format!("{count}: {}", calls.join(" "))
}

/// Promise: R142
#[test]
fn autofdo_reads_ranges_and_branches() {
    if !has("create_llvm_prof") || !has("gcc") {
        return;
    }
    for linked in ["-no-pie", "-pie"] {
        // It reads no DWARF 5.
        let dir = built(&format!("autofdo{linked}"), "gcc", &["-g", "-gdwarf-4", linked]);
        record(&dir);
        succeeds(&dir, &[LWP, "export", "-f", "autofdo", "-o", "it.txt"]);
        let made = ["create_llvm_prof", "--binary=program", "--profiler=text", "--profile=it.txt"];
        succeeds(&dir, &[&made[..], &["--format=text", "--out=it.prof"]].concat());
        let profile = text(&std::fs::read(dir.join("it.prof")).unwrap());
        let step = of_function(&profile, "step");
        assert!(step[0].ends_with(":20000"), "{linked}: {profile}");
        // It takes gcc's discriminators for those of LLVM, and halves them.
        for line in [" 1: 20000", " 1.1: 1250 rare:1250", " 2.1: 2500 rare:2500"] {
            assert!(step.contains(&line), "{linked}: {line} of {profile}");
        }
    }
}

/// The count of a function's line.
fn count_of(function: &[&str], line: &str) -> f64 {
    let found = function.iter().find_map(|it| it.strip_prefix(line));
    let found = found.unwrap_or_else(|| panic!("no {line}: {function:?}"));
    found.split(' ').next().and_then(|it| it.parse().ok()).expect("a count")
}

/// Branch stacks drawn from counts give the tools lines in the proportions of the counts.
///
/// Promise: R146
#[test]
fn profile_tools_read_branch_stacks() {
    if !has("perf") || !has("gcc") {
        return;
    }
    let dir = built("stacks", "gcc", &["-g", "-gdwarf-4", "-pie"]);
    record(&dir);
    succeeds(&dir, &[LWP, "export", "-f", "brstack", "-o", "it.data"]);
    let mut profiles = Vec::new();
    for profgen in ["llvm-profgen-16", "llvm-profgen-19"].into_iter().filter(|it| has(it)) {
        let made = [profgen, "--binary=program", "--perfdata=it.data", "--format=text"];
        succeeds(&dir, &[&made[..], &["--use-offset=0", "-o", profgen]].concat());
        profiles.push(profgen);
    }
    if has("create_llvm_prof") {
        let made = ["create_llvm_prof", "--binary=program", "--profile=it.data", "--format=text"];
        succeeds(&dir, &[&made[..], &["--out=create_llvm_prof"]].concat());
        profiles.push("create_llvm_prof");
    }
    for name in profiles {
        let profile = text(&std::fs::read(dir.join(name)).unwrap());
        let step = of_function(&profile, "step");
        // One in eight, of the function that is called each time.
        let [all, twice] = [" 1: ", " 2.1: "].map(|line| count_of(&step, line));
        assert!((all / twice / 8.0 - 1.0).abs() < 0.1, "{name}: {all} and {twice}: {profile}");
    }
}

/// A method that Go's compiler finds too large to be inlined, unless it is hot.
const GO: &str = r#"package main

import (
	"fmt"
	"os"
)

type table struct{ a [64]int }

func (t *table) mix(n int) int {
	x := n
	for i := 0; i < 3; i++ {
		x = x*31 + t.a[(x+i)&63]
		if x&1 == 0 {
			x ^= x >> 3
		} else {
			x += n * 7
		}
		if x%5 == 2 {
			t.a[x&63] += x & 15
		} else if x%7 == 3 {
			t.a[(x>>2)&63] -= x & 7
		}
		x &= 0xffffff
	}
	return x
}

func walk(n int) int {
	var t table
	s := 0
	for i := 0; i < n; i++ {
		s += t.mix(s ^ i)
		s &= 0xfffffff
	}
	return s
}

func main() {
	fmt.Println(walk(20000))
	os.Exit(3)
}
"#;

/// Go's compiler takes the profile as one of its own, and inlines what is hot.
///
/// Promise: R148: if there is such a Go
#[test]
fn go_takes_the_profile_and_inlines_what_is_hot() {
    let dir = tools::fresh("compiler-profiles", "go");
    let version = || text(&output(&dir, &["go", "env", "GOVERSION"]).stdout);
    let version = if has("go") { version() } else { String::new() };
    let minor = version.trim().strip_prefix("go1.").and_then(|it| it.split('.').next());
    if minor.and_then(|it| it.parse().ok()).is_none_or(|minor: u32| minor < 21) {
        eprintln!("skipped: no Go 1.21, the first one with -pgo: {version:?}");
        return;
    }
    std::fs::write(dir.join("go.mod"), "module example.com/program\ngo 1.21\n").unwrap();
    std::fs::write(dir.join("main.go"), GO).unwrap();
    let cache = format!("GOCACHE={}", dir.join("cache").display());
    let build = ["env", &cache, "GOTOOLCHAIN=local", "go", "build", "-gcflags=-m", "-o", "program"];
    let hot = "inlining call to (*table).mix";
    let made = text(&succeeds(&dir, &[&build[..], &["-pgo=off", "."]].concat()).stderr);
    assert!(!made.contains(hot), "{made}");
    let expected = output(&dir, &["./program"]).stdout;
    record(&dir);
    // The name of the file tells the format.
    succeeds(&dir, &[LWP, "export", "-o", "it.pgo"]);
    let made = text(&succeeds(&dir, &[&build[..], &["-pgo=it.pgo", "."]].concat()).stderr);
    assert!(made.contains(hot), "{made}");
    assert!(!made.to_lowercase().contains("warning"), "{made}");
    assert_eq!(output(&dir, &["./program"]).stdout, expected);
}

/// Promise: R141
#[test]
fn what_a_compiler_cannot_use_is_refused_with_a_remedy() {
    if !has("gcc") {
        return;
    }
    let dir = built("refused", "gcc", &["-g"]);
    let export = [&EXPORT[..], &["it.prof"]].concat();
    record(&dir);
    // The discriminators of gcc count without any option.
    let exported = succeeds(&dir, &export);
    assert_eq!(text(&exported.stderr), "");
    std::fs::remove_file(dir.join("it.prof")).unwrap();

    for (options, why, remedy) in [
        (&[][..], "it has no debug information", "compile it with -g"),
        (&["-g", "-gsplit-dwarf"], "split into .dwo files", "without -gsplit-dwarf"),
        (&["-g", "-s"], "has no symbol table", "strip"),
    ] {
        compile(&dir, "gcc", options);
        record(&dir);
        let said = refusal(&dir, &export);
        assert!(said.contains(why) && said.contains(remedy), "{options:?}: {said}");
        assert!(!dir.join("it.prof").exists(), "{options:?}");
    }

    let Some((clang, _)) = clangs().pop() else { return };
    compile(&dir, clang, &["-gline-tables-only"]);
    record(&dir);
    let said = refusal(&dir, &export);
    assert!(said.contains("no source lines of the functions that were executed"), "{said}");
    assert!(said.contains("compile it with -g") && !dir.join("it.prof").exists(), "{said}");

    compile(&dir, clang, &["-g"]);
    record(&dir);
    let said = text(&succeeds(&dir, &export).stderr);
    assert!(said.contains("no discriminators") && said.contains("-fdebug-info-for-profiling"));
}
