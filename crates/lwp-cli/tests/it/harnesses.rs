//! Harnesses that call perf, with lwp in perf's place: what they measure and draw. A test whose
//! harness is missing is skipped and says so; `tests/viewers.sh` installs them.
//!
//! Promise: R19: under the same condition
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use crate::shared::tools;

use std::path::{Path, PathBuf};
use std::process::Output;

use tools::{has, limited, text};

const LWP: &str = env!("CARGO_BIN_EXE_lwp");

/// A harness that `tests/viewers.sh` installs, or one of the system's.
fn harness(name: &str) -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/viewers");
    let viewers = std::env::var_os("LWP_VIEWERS").map_or(beside, PathBuf::from);
    let installed = viewers.join("cargo/bin").join(name);
    if installed.exists() {
        return Some(installed);
    }
    has(name).then(|| PathBuf::from(name))
}

/// A package that counts to `n`, lwp under perf's name beside it.
fn package(name: &str, manifest: &str) -> PathBuf {
    let dir = tools::fresh("harnesses", name);
    let manifest = format!(
        "[package]\nname = \"counted\"\nversion = \"0.1.0\"\nedition = \"2024\"\n{manifest}\n[workspace]\n"
    );
    std::fs::write(dir.join("Cargo.toml"), manifest).unwrap();
    std::fs::create_dir(dir.join("src")).unwrap();
    let library = "#[inline(never)]\npub fn work(n: u64) -> u64 {\n\
        \x20   (0..n).fold(1, |a, b| std::hint::black_box(a ^ b.wrapping_mul(3)))\n}\n";
    std::fs::write(dir.join("src/lib.rs"), library).unwrap();
    let program = "fn main() { println!(\"{}\", counted::work(3_000_000)); }\n";
    std::fs::write(dir.join("src/main.rs"), program).unwrap();
    std::os::unix::fs::symlink(LWP, dir.join("perf")).unwrap();
    dir
}

fn cargo(dir: &Path, words: &[&str], variables: &[(&str, &Path)]) -> Output {
    limited(dir, &[&["cargo"], words].concat())
        .envs(variables.iter().copied())
        .env("CARGO_TARGET_DIR", dir.join("target"))
        .env_remove("CARGO_BUILD_TARGET")
        .output()
        .expect("timeout starts")
}

/// The instructions of each benchmark in gungraun's report.
fn instructions(report: &str) -> Vec<u64> {
    rows_of(report, "instructions")
}

/// What a metric of this name was for each benchmark.
fn rows_of(report: &str, name: &str) -> Vec<u64> {
    let rows = report.lines().filter_map(|line| line.trim().strip_prefix(name));
    let first = |row: &str| {
        let numbers = row.split_once(':')?.1.trim();
        numbers.split('|').next()?.parse().ok()
    };
    rows.filter_map(first).collect()
}

/// Runs of one benchmark that must all count the same.
const RUNS: usize = 20;

/// Promise: E9
#[test]
fn gungraun_counts_and_compares_on_it() {
    let (Some(runner), true) = (harness("gungraun-runner"), has("cargo")) else { return };
    let dir = package(
        "gungraun",
        "[dev-dependencies]\ngungraun = \"=0.20.0\"\n\
         [[bench]]\nname = \"work\"\nharness = false\n",
    );
    std::fs::create_dir(dir.join("benches")).unwrap();
    let bench = "use gungraun::{library_benchmark, library_benchmark_group, main};\n\
        use std::hint::black_box;\n\
        #[library_benchmark]\n#[bench::small(1000)]\n#[bench::large(100000)]\n\
        fn bench_work(n: u64) -> u64 { black_box(counted::work(black_box(n))) }\n\
        library_benchmark_group!(name = group; benchmarks = bench_work);\n\
        main!(library_benchmark_groups = group);\n";
    std::fs::write(dir.join("benches/work.rs"), bench).unwrap();
    if !cargo(&dir, &["fetch"], &[]).status.success() {
        eprintln!("skipped: gungraun's library cannot be fetched");
        return;
    }
    let perf = dir.join("perf");
    let variables = [("GUNGRAUN_RUNNER", runner.as_path()), ("GUNGRAUN_PERF_BIN", &perf)];
    let words = ["bench", "--bench", "work", "--", "--default-tool=perf"];
    let first = cargo(&dir, &words, &variables);
    assert!(first.status.success(), "{}{}", text(&first.stdout), text(&first.stderr));
    let report = text(&first.stdout);
    let &[small, large] = &instructions(&report)[..] else { panic!("{report}") };
    // A benchmark that does more waits for the harness as the other one does.
    let turn = (large - small + 49_500) / 99_000;
    assert!(turn >= 3 && (large - small).abs_diff(turn * 99_000) < 100, "{report}");
    for run in 1..RUNS {
        let output = cargo(&dir, &words, &variables);
        let report = text(&output.stdout);
        assert_eq!(instructions(&report), [small, large], "run {run}: {report}");
        // It compares with the run before.
        assert!(report.contains(&format!("{small}|{small}")), "{report}");
    }
}

/// Promise: R71
#[test]
fn gungraun_counts_the_same_every_time_with_lwp_in_callgrind_s_place() {
    let (Some(runner), true) = (harness("gungraun-runner"), has("cargo")) else { return };
    let dir = package(
        "gungraun_callgrind",
        "[dev-dependencies]\ngungraun = \"=0.20.0\"\n\
         [[bench]]\nname = \"work\"\nharness = false\n",
    );
    std::fs::create_dir(dir.join("benches")).unwrap();
    let bench = "use gungraun::{library_benchmark, library_benchmark_group, main};\n\
        use std::hint::black_box;\n\
        fn reversed(n: u64) -> Vec<u64> { (0..n).rev().collect() }\n\
        #[library_benchmark]\n#[bench::small(1000)]\n#[bench::large(100000)]\n\
        fn bench_work(n: u64) -> u64 { black_box(counted::work(black_box(n))) }\n\
        #[library_benchmark]\n#[bench::sorted(setup = reversed, args = (1000))]\n\
        fn bench_sort(mut v: Vec<u64>) -> Vec<u64> { v.sort(); black_box(v) }\n\
        library_benchmark_group!(name = group; benchmarks = bench_work, bench_sort);\n\
        main!(library_benchmark_groups = group);\n";
    std::fs::write(dir.join("benches/work.rs"), bench).unwrap();
    if !cargo(&dir, &["fetch"], &[]).status.success() {
        eprintln!("skipped: gungraun's library cannot be fetched");
        return;
    }
    let ours = dir.join("valgrind");
    std::os::unix::fs::symlink(LWP, &ours).unwrap();
    let counts = |valgrind: &Path| {
        let variables =
            [("GUNGRAUN_RUNNER", runner.as_path()), ("GUNGRAUN_VALGRIND_BIN", valgrind)];
        let output = cargo(&dir, &["bench", "--bench", "work"], &variables);
        let report = text(&output.stdout);
        assert!(output.status.success(), "{report}{}", text(&output.stderr));
        let counts = rows_of(&report, "Instructions");
        assert_eq!(counts.len(), 3, "{report}");
        counts
    };
    let first = counts(&ours);
    for run in 1..RUNS {
        assert_eq!(counts(&ours), first, "run {run}");
    }
    if has("valgrind") {
        assert_eq!(counts(Path::new("valgrind")), first, "callgrind itself");
    }
}

#[test]
fn cargo_valgrind_is_told_which_tool_lwp_stands_in_for() {
    let (Some(tool), true) = (harness("cargo-valgrind"), has("cargo")) else { return };
    let dir = package("cargo_valgrind", "");
    std::os::unix::fs::symlink(LWP, dir.join("valgrind")).unwrap();
    let path = std::env::var("PATH").expect("a path");
    let output = limited(&dir, &[tool.to_str().expect("path is text"), "valgrind", "run"])
        .env("PATH", format!("{}:{path}", dir.display()))
        .env("CARGO_TARGET_DIR", dir.join("target"))
        .env_remove("CARGO_BUILD_TARGET")
        .output()
        .expect("timeout starts");
    let says = text(&output.stderr);
    assert!(!output.status.success(), "{says}");
    assert!(says.contains("lwp stands in for callgrind, not for memcheck"), "{says}");
    assert!(says.contains("help: give --tool=callgrind, or call valgrind itself"), "{says}");
}

/// The parts that a run of `tool` with the options of CodSpeed's runner leaves: what each is
/// called, and instructions.
fn codspeed_parts(dir: &Path, tool: &[&str], program: &str) -> Vec<(String, u64)> {
    let options = "--tool=callgrind -q --trace-children=yes --cache-sim=yes --I1=32768,8,64 --D1=32768,8,64 \
        --LL=8388608,16,64 --instr-atstart=no --collect-systime=nsec --compress-strings=no --combine-dumps=yes \
        --dump-line=no --read-inline-info=yes --callgrind-out-file=parts.out";
    let options: Vec<&str> = options.split_whitespace().collect();
    let output = limited(dir, &[tool, &options, &[program]].concat())
        .envs([("CODSPEED_ENV", "runner"), ("CODSPEED_CARGO_WORKSPACE_ROOT", ".")])
        .output()
        .expect("timeout starts");
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let parts = std::fs::read_to_string(dir.join("parts.out")).expect("a file");
    let found = |head: &str| -> Vec<String> {
        parts.lines().filter_map(|line| Some(line.strip_prefix(head)?.trim().to_owned())).collect()
    };
    let count = |sums: &String| sums.split(' ').next()?.parse().ok();
    let counts = found("totals:").iter().filter_map(count).collect::<Vec<u64>>();
    found("desc: Trigger:").into_iter().zip(counts).collect()
}

#[test]
fn benchmarks_for_codspeed_s_runner_have_their_parts() {
    if !has("cargo") {
        return;
    }
    let dir = package(
        "codspeed",
        "[dev-dependencies]\ndivan = { package = \"codspeed-divan-compat\", version = \"4\" }\n\
         [[bench]]\nname = \"work\"\nharness = false\n",
    );
    std::fs::create_dir(dir.join("benches")).unwrap();
    let bench = "fn main() { divan::main(); }\n\
        #[divan::bench(args = [1000, 100000])]\n\
        fn turns(n: u64) -> u64 { counted::work(divan::black_box(n)) }\n";
    std::fs::write(dir.join("benches/work.rs"), bench).unwrap();
    if !cargo(&dir, &["fetch"], &[]).status.success() {
        eprintln!("skipped: CodSpeed's library cannot be fetched");
        return;
    }
    let flags = [("RUSTFLAGS", Path::new("--cfg codspeed"))];
    let built = cargo(&dir, &["bench", "--no-run"], &flags);
    let says = text(&built.stderr);
    assert!(built.status.success(), "{says}");
    let program = says.lines().find_map(|line| line.split_once("benches/work.rs (")).expect(&says);
    let program = program.1.trim_end_matches(')');
    let ours = codspeed_parts(&dir, &[LWP, "valgrind"], program);
    assert_eq!(codspeed_parts(&dir, &[LWP, "valgrind"], program), ours);
    let of = |name: &str| ours.iter().find(|(trigger, _)| trigger.ends_with(name)).expect(name).1;
    let (small, large) = (of("turns[1000]"), of("turns[100000]"));
    assert!(small > 3000 && (large - small) % 99_000 == 0, "{ours:?}");
    if has("valgrind") {
        let theirs = codspeed_parts(&dir, &["valgrind"], program);
        assert_eq!(theirs.len(), ours.len(), "{theirs:?}");
        for ((name, count), (their_name, their_count)) in ours.iter().zip(&theirs) {
            assert_eq!(name, their_name);
            // The requests at the ends of a part are counted in other ways.
            assert!(count.abs_diff(*their_count) < 20, "{name}: {count}, callgrind {their_count}");
        }
    }
}

#[test]
fn cargo_flamegraph_draws_on_it() {
    let (Some(tool), true) = (harness("cargo-flamegraph"), has("cargo")) else { return };
    let dir = package("flamegraph", "[profile.release]\ndebug = true\n");
    let words =
        ["-k", "1", "300", tool.to_str().expect("path is text"), "flamegraph", "-o", "f.svg"];
    let output = std::process::Command::new("timeout")
        .args(words)
        .current_dir(&dir)
        .env("PERF", dir.join("perf"))
        .env("CARGO_TARGET_DIR", dir.join("target"))
        .env_remove("CARGO_BUILD_TARGET")
        .output()
        .expect("timeout starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let picture = std::fs::read_to_string(dir.join("f.svg")).expect("a picture");
    assert!(picture.contains("<svg") && picture.contains("counted::work ("), "{picture}");
}
