//! `cargo lwp`, and lwp as the runner that cargo starts programs with, on a package of their own.
//!
//! Promise: R28, R54

use crate::shared::tools;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tools::{has, limited, text};

const LWP: &str = env!("CARGO_BIN_EXE_lwp");
const CARGO_LWP: &str = env!("CARGO_BIN_EXE_cargo-lwp");
const RUNNER: &str = "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER";

/// A package with a program, a test and a benchmark; `None` where there is no cargo.
fn package(name: &str) -> Option<PathBuf> {
    if !has("cargo") {
        return None;
    }
    let dir = tools::fresh("cargo", name);
    let files = [
        (
            "Cargo.toml",
            "[package]\nname = \"counted\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\
             [[bench]]\nname = \"sums\"\nharness = false\n[workspace]\n",
        ),
        (
            "src/lib.rs",
            "#[inline(never)]\npub fn work(n: u64) -> u64 {\n    \
             (0..n).fold(0, |a, b| std::hint::black_box(a ^ b * 3))\n}\n",
        ),
        ("src/main.rs", "fn main() {\n    println!(\"{}\", counted::work(1000));\n}\n"),
        (
            "tests/end.rs",
            "#[test]\nfn works() {\n    assert_eq!(counted::work(0), 0);\n}\n\
             #[test]\n#[ignore = \"fails\"]\nfn fails() {\n    panic!();\n}\n",
        ),
        ("benches/sums.rs", "fn main() {\n    assert_ne!(counted::work(2000), 1);\n}\n"),
    ];
    for (file, content) in files {
        let path = dir.join(file);
        std::fs::create_dir_all(path.parent().expect("directory")).expect("directory");
        std::fs::write(path, content).expect("file");
    }
    Some(dir)
}

/// A command that builds in `dir` and takes nothing from the cargo that runs this test.
fn building(dir: &Path, words: &[&str]) -> Command {
    let mut command = limited(dir, words);
    command.env("CARGO_TARGET_DIR", dir.join("target"));
    for name in ["CARGO_BUILD_TARGET", "CARGO_PROFILE_RELEASE_DEBUG", "CARGO_PROFILE_BENCH_DEBUG"] {
        command.env_remove(name);
    }
    command
}

fn run(command: &mut Command) -> Output {
    command.output().expect("timeout starts")
}

/// The functions in the recording.
fn functions(dir: &Path) -> String {
    let output = run(&mut limited(dir, &[LWP, "report", "--csv", "-s", "sym"]));
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn every_verb_builds_and_runs() {
    let Some(dir) = package("verbs") else { return };
    let lwp = |words: &[&str]| run(&mut building(&dir, &[&[CARGO_LWP, "lwp"], words].concat()));
    let counted = |output: &Output| {
        let says = text(&output.stderr);
        assert!(output.status.success(), "{says}");
        assert!(says.contains("instructions"), "{says}");
    };
    counted(&lwp(&["stat"]));
    counted(&lwp(&["bench"]));
    counted(&lwp(&["stat", "--bench", "sums"]));
    benchmarks_count_the_same(&dir);
    let tested = lwp(&["test", "--test", "end", "--", "works"]);
    counted(&tested);
    assert!(text(&tested.stdout).contains("1 passed"), "{}", text(&tested.stdout));
    // A test that fails has failed.
    let failed = lwp(&["test", "--test", "end", "--", "--ignored"]);
    assert_eq!(failed.status.code(), Some(101), "{}", text(&failed.stderr));

    let recorded = lwp(&["record"]);
    assert!(recorded.status.success(), "{}", text(&recorded.stderr));
    assert!(functions(&dir).contains("counted::work"), "{}", functions(&dir));
    // Lines are known: what is built has line tables.
    let lines = run(&mut limited(&dir, &[LWP, "report", "--csv", "-s", "srcline"]));
    assert!(text(&lines.stdout).contains("lib.rs:3"), "{}", text(&lines.stdout));
    // Inlined functions have their paths.
    let inlined = run(&mut limited(&dir, &[LWP, "report", "--csv", "--inline", "-s", "sym"]));
    let inlined = text(&inlined.stdout);
    assert!(inlined.contains("counted::work::{{closure}}"), "{inlined}");
    let drawn = lwp(&["flamegraph", "--bench", "sums"]);
    assert!(drawn.status.success(), "{}", text(&drawn.stderr));
    let picture = std::fs::read_to_string(dir.join("flamegraph.html")).expect("picture");
    assert!(picture.contains("counted::work"));
}

/// However the environment is, a benchmark counts the same.
fn benchmarks_count_the_same(dir: &Path) {
    let counts = |variables: u32, words: &[&str]| {
        let words = [&[CARGO_LWP, "lwp", "bench", "--bench", "sums"], words].concat();
        let more = (0..variables).map(|number| (format!("ANOTHER_{number}"), "x".repeat(99)));
        let output = run(building(dir, &words).envs(more));
        let says = text(&output.stderr);
        assert!(output.status.success(), "{says}");
        let line = says.lines().find(|line| line.ends_with("      instructions"));
        line.unwrap_or_else(|| panic!("{says}")).to_owned()
    };
    assert_eq!(counts(0, &[]), counts(50, &[]));
    let free = ["--no-deterministic"];
    assert_ne!(counts(0, &free), counts(50, &free));
}

/// Promise: counts of `cargo lwp bench` do not depend on how often a harness repeats a benchmark.
///
/// Promise: R126
#[test]
fn benchmarks_of_rust_s_own_harness_run_once() {
    let Some(dir) = package("libtest") else { return };
    let bench = "#![feature(test)]\nextern crate test;\n\
        #[bench]\nfn sums(b: &mut test::Bencher) { b.iter(|| counted::work(100_000)) }\n\
        #[bench]\nfn others(b: &mut test::Bencher) { b.iter(|| counted::work(9)) }\n\
        #[test]\nfn no_benchmark() { panic!() }\n";
    std::fs::write(dir.join("benches/own.rs"), bench).expect("file");
    let counted = |filter: &[&str]| -> u64 {
        let words = [&[CARGO_LWP, "lwp", "bench", "--bench", "own", "--"], filter].concat();
        let output = run(building(&dir, &words).env("RUSTC_BOOTSTRAP", "1"));
        let says = text(&output.stderr);
        assert!(output.status.success(), "{says}{}", text(&output.stdout));
        let names = if filter.is_empty() { 2 } else { 1 };
        assert!(says.contains(&format!("{names} benchmarks of Rust's own harness")), "{says}");
        let line = says.lines().find(|line| line.ends_with("      instructions"));
        let count = line.unwrap_or_else(|| panic!("{says}")).split_whitespace().next();
        count.expect("a count").replace(',', "").parse().expect("a number")
    };
    let [one, again] = [(); 2].map(|()| counted(&["sums"]));
    // The harness prints how long it took.
    assert!(one.abs_diff(again) < 5000, "{one} and {again}");
    assert!(one < 5_000_000 && counted(&[]) > one, "{one}");
}

/// The installed BOLT, which has its version in its name.
fn bolt() -> Option<&'static str> {
    ["llvm-bolt", "llvm-bolt-19", "llvm-bolt-16"].into_iter().find(|bolt| has(bolt))
}

/// Promise: R143
#[test]
fn programs_are_optimised_with_their_relocations_and_own_flags() {
    let (Some(dir), Some(bolt)) = (package("optimize"), bolt()) else { return };
    // Flags of the package stay, and so does what it wants to call the compiler through.
    std::fs::create_dir(dir.join(".cargo")).unwrap();
    let config = "[build]\nrustflags = [\"--cfg\", \"odd\"]\n";
    std::fs::write(dir.join(".cargo/config.toml"), config).unwrap();
    let manifest = std::fs::read_to_string(dir.join("Cargo.toml")).unwrap();
    let manifest = manifest
        + "[profile.release]\nstrip = true\n[lints.rust]\n\
                               unexpected_cfgs = \"allow\"\n";
    std::fs::write(dir.join("Cargo.toml"), manifest).unwrap();
    let program = "fn main() {\n    let n = if cfg!(odd) { 3001 } else { 2 };\n    \
                   let mut sum = 0;\n    for i in 0..n {\n        \
                   if i % 8 != 3 { sum ^= counted::work(i); } else { sum += 1; }\n    }\n    \
                   println!(\"{sum}\");\n}\n";
    std::fs::write(dir.join("src/main.rs"), program).unwrap();
    let words = [CARGO_LWP, "lwp", "optimize", "--runs", "1", "--bolt", bolt];
    let mut command = building(&dir, &words);
    let output = run(command.env_remove("RUSTFLAGS").env_remove("RUSTC_WORKSPACE_WRAPPER"));
    let (table, says) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{table}{says}");
    assert!(!says.contains("has no relocations"), "{says}");
    let row = |name: &str| table.lines().find(|line| line.starts_with(name)).expect(name);
    assert!(row("output").ends_with("same") && row("end").ends_with("same"), "{table}");
    assert!(row("instructions").contains(','), "{table}");
    let optimised = dir.join("target/release/counted.bolt");
    let [ours, theirs] = [optimised, dir.join("target/release/counted")].map(|program| {
        let program = program.to_str().expect("text").to_owned();
        text(&run(&mut limited(&dir, &[&program])).stdout)
    });
    assert_eq!(ours, theirs);
    // What is built already is not built for another wrapper.
    std::fs::write(dir.join("src/main.rs"), format!("{program}\n")).unwrap();
    let wrapped = run(building(&dir, &words).env("RUSTC_WORKSPACE_WRAPPER", "/no/such/wrapper"));
    assert!(text(&wrapped.stderr).contains("/no/such/wrapper"), "{}", text(&wrapped.stderr));
}

#[test]
fn mistakes_are_named() {
    let dir = tools::fresh("cargo", "mistakes");
    for (words, says) in [
        (&["gate", "-l", "instructions=+1%"][..], "then call `lwp gate`"),
        (&["optimize", "--test", "end"], "the program that `cargo run` starts"),
        (&["frobnicate"], "no command is called 'frobnicate'"),
    ] {
        let output = run(&mut limited(&dir, &[&[CARGO_LWP, "lwp"], words].concat()));
        assert_eq!(output.status.code(), Some(125));
        assert!(text(&output.stderr).contains(says), "{}", text(&output.stderr));
    }
    // Where cargo-lwp is a link, lwp is beside the file that it leads to.
    std::os::unix::fs::symlink(CARGO_LWP, dir.join("cargo-lwp")).expect("link");
    let linked = run(limited(&dir, &["./cargo-lwp", "lwp", "stat"]).env("PATH", "/usr/bin:/bin"));
    assert!(!text(&linked.stderr).contains("lwp is neither"), "{}", text(&linked.stderr));
}

/// Calls of lwp by a link named cargo-lwp, as cargo makes them.
#[test]
fn a_link_to_lwp_is_a_subcommand_of_cargo_too() {
    let dir = tools::fresh("cargo", "link");
    std::os::unix::fs::symlink(LWP, dir.join("cargo-lwp")).expect("link");
    // The program beside lwp builds.
    let building = run(&mut limited(&dir, &["./cargo-lwp", "lwp", "frobnicate"]));
    assert!(text(&building.stderr).contains("cargo-lwp: no command"), "{}", text(&building.stderr));
    // Where there is none, lwp does what it can.
    std::fs::create_dir(dir.join("alone")).expect("directory");
    let alone = dir.join("alone");
    std::fs::copy(LWP, alone.join("cargo-lwp")).expect("copied");
    for words in [&["./cargo-lwp", "lwp"][..], &["./cargo-lwp"]] {
        let counted = [words, &["stat", "-e", "instructions", "--", "/bin/true"]].concat();
        let output = run(&mut limited(&alone, &counted));
        assert!(output.status.success(), "{}", text(&output.stderr));
        let listed = run(&mut limited(&alone, &[words, &["list"]].concat()));
        assert!(listed.status.success(), "{}", text(&listed.stderr));
        let wrong = run(&mut limited(&alone, &[words, &["frobnicate"]].concat()));
        assert_eq!(wrong.status.code(), Some(125));
    }
}

#[test]
fn cargo_starts_what_it_has_built_through_lwp() {
    let Some(dir) = package("runner") else { return };
    let cargo = |words: &[&str], runner: &str| {
        run(building(&dir, &[&["cargo"], words].concat()).env(RUNNER, format!("{LWP} {runner}")))
    };
    let output = cargo(&["run", "-q", "--release"], "record -q -o lwp.data --");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(functions(&dir).contains("counted::work"));
    // Counts of everything that is run go into one file.
    let runner = "stat -j -e instructions -o counts.json --append --";
    let output = cargo(&["test", "-q", "--release"], runner);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let counts = std::fs::read_to_string(dir.join("counts.json")).expect("counts");
    let rows = counts.lines().filter(|line| line.contains("\"event\" : \"instructions\""));
    // The tests of the library, of the program, and those in tests/.
    assert_eq!(rows.count(), 3, "{counts}");
}
