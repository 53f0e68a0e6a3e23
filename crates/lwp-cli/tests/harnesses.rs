//! Harnesses that call perf, with lwp in perf's place: what they measure and draw. A test whose harness is
//! missing is skipped and says so; `tests/viewers.sh` installs them.
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

#[path = "shared/tools.rs"]
mod tools;

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
    // Counting is switched on and off while the program goes on to wait for the answer: some of what it
    // does there is counted in one run and not in another.
    let close = |a: u64, b: u64| a.abs_diff(b) < 5_000;
    let turn = (large - small + 49_500) / 99_000;
    assert!(turn >= 3 && close(large - small, turn * 99_000), "{report}");
    let second = cargo(&dir, &words, &variables);
    let report = text(&second.stdout);
    let &[small_again, large_again] = &instructions(&report)[..] else { panic!("{report}") };
    assert!(close(small, small_again) && close(large, large_again), "{report}");
    // It compares with the run before.
    assert!(report.contains(&format!("{small_again}|{small}")), "{report}");
}

/// Runs of one benchmark that must all count the same.
const RUNS: usize = 20;

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
fn cargo_flamegraph_draws_on_it() {
    let (Some(tool), true) = (harness("cargo-flamegraph"), has("cargo")) else { return };
    let dir = package("flamegraph", "[profile.release]\ndebug = true\n");
    let words =
        ["-k", "1", "120", tool.to_str().expect("path is text"), "flamegraph", "-o", "f.svg"];
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
