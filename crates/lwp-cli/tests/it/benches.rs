//! Benchmarks that read their own counts: crate lwp-bench, criterion, Google Benchmark and pytest.
//! A test whose tool is missing is skipped and says so.
//!
//! Promise: R72
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use crate::shared::tools;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tools::{fresh, has, limited, text};

const LWP: &str = env!("CARGO_BIN_EXE_lwp");
const CARGO_LWP: &str = env!("CARGO_BIN_EXE_cargo-lwp");
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// A package with benchmarks on `lwp-bench`; `None` where crates cannot be fetched.
fn package(name: &str, features: &str, dependencies: &str, bench: &str) -> Option<PathBuf> {
    if !has("cargo") {
        return None;
    }
    let dir = fresh("benches", name);
    let manifest = format!(
        "[package]\nname = \"measured\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\
         [dev-dependencies]\nlwp-bench = {{ path = \"{ROOT}/crates/lwp-bench\", features = [{features}] }}\n\
         {dependencies}\n[[bench]]\nname = \"work\"\nharness = false\n[lib]\nbench = false\n[workspace]\n"
    );
    std::fs::create_dir(dir.join("src")).expect("directory");
    std::fs::create_dir(dir.join("benches")).expect("directory");
    std::fs::write(dir.join("Cargo.toml"), manifest).expect("written");
    std::fs::write(dir.join("src/lib.rs"), "").expect("written");
    std::fs::write(dir.join("benches/work.rs"), bench).expect("written");
    if !cargo(&dir, "cargo", &["fetch"]).status.success() {
        eprintln!("skipped: crates cannot be fetched");
        return None;
    }
    Some(dir)
}

fn cargo(dir: &Path, command: &str, words: &[&str]) -> Output {
    limited(dir, &[&[command], words].concat())
        // Packages share their dependencies, which need not be fast.
        .env("CARGO_TARGET_DIR", dir.with_file_name("target"))
        .env("CARGO_PROFILE_BENCH_OPT_LEVEL", "1")
        // As cargo lwp sets it where nothing else is said: both commands run the same program.
        .env("CARGO_PROFILE_BENCH_DEBUG", "limited")
        .env_remove("CARGO_BUILD_TARGET")
        .output()
        .expect("timeout starts")
}

/// What a run prints, where it succeeds.
fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

const OWN: &str = r#"
fn numbers(n: u64) -> Vec<u64> { (0..n).rev().collect() }
fn sums(bench: &mut lwp_bench::Bench) {
    bench.run("nothing", || ());
    let big = || numbers(100_000);
    bench.run_with_setup("big set-up", big, |numbers| {
        std::hint::black_box(numbers[7]);
        numbers
    });
}
fn sorts(bench: &mut lwp_bench::Bench) {
    bench.run_for_inputs("sort", [10, 1000], numbers, |mut numbers| { numbers.sort(); numbers });
}
lwp_bench::main!(sums, sorts);
"#;

/// The counts that lwp-bench prints, by name.
fn counts(report: &str) -> Vec<(String, u64)> {
    let row = |line: &str| {
        let (name, count) = line.split_once("  ")?;
        let count = count.trim().strip_suffix(" instructions")?;
        Some((name.trim().to_owned(), count.replace(',', "").parse().ok()?))
    };
    report.lines().filter_map(row).collect()
}

#[test]
fn benchmarks_of_lwp_bench_count_their_work_and_nothing_else() {
    let Some(dir) = package("own", "", "", OWN) else { return };
    let run = |words: &[&str]| {
        cargo(&dir, CARGO_LWP, &[&["bench", "--bench", "work", "--"], words].concat())
    };
    let first = counts(&printed(&run(&["--save", "before.json"])));
    let names: Vec<&str> = first.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["nothing", "big set-up", "sort/10", "sort/1000"]);
    let [nothing, set_up, small, large] = [0, 1, 2, 3].map(|index: usize| first[index].1);
    assert!(nothing < 5 && set_up < 30 && small < large && large > 1000, "{first:?}");
    for _ in 0..3 {
        assert_eq!(counts(&printed(&run(&[]))), first);
    }
    let same = printed(&run(&["--compare", "before.json", "--limit", "0", "sort"]));
    assert_eq!(same.matches("  unchanged").count(), 2, "{same}");
    let kept = std::fs::read_to_string(dir.join("before.json")).expect("text");
    let less = kept.replace(&format!("\"sort/1000\": {large}"), "\"sort/1000\": 1000");
    std::fs::write(dir.join("less.json"), less).expect("written");
    let grown = run(&["--compare", "less.json", "--limit", "1"]);
    assert!(text(&grown.stderr).contains("sort/1000: 1000 to "), "{}", text(&grown.stderr));
    assert!(!grown.status.success());
    // Natively it runs, and says that it counts nothing.
    let native = cargo(&dir, "cargo", &["bench", "--bench", "work"]);
    assert_eq!(printed(&native).matches("not counted").count(), 4);
    assert!(text(&native.stderr).contains("nothing is counted here"), "{}", text(&native.stderr));
}

const CRITERION: &str = r#"
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use std::hint::black_box;
fn all(criterion: &mut Criterion<lwp_bench::Instructions>) {
    criterion.bench_function("sum", |b| b.iter(|| (0..1000u64).map(black_box).sum::<u64>()));
    let reversed = || (0..1000u64).rev().collect::<Vec<u64>>();
    criterion.bench_function("sort", |b| {
        b.iter_batched(reversed, |mut numbers| { numbers.sort(); numbers }, BatchSize::PerIteration)
    });
}
criterion_group!(name = benches; config = lwp_bench::criterion(); targets = all);
criterion_main!(benches);
"#;

#[test]
fn criterion_measures_instructions() {
    let dependency = "criterion = { version = \"0.8\", default-features = false }";
    let Some(dir) = package("criterion", "\"criterion\"", dependency, CRITERION) else { return };
    // What a run before this one has left to compare with.
    for kept in ["criterion-instructions", "criterion-uncounted"] {
        let _ = std::fs::remove_dir_all(dir.with_file_name("target").join(kept));
    }
    // What is not counted is nothing to compare with.
    let native = printed(&cargo(&dir, "cargo", &["bench", "--bench", "work"]));
    assert!(native.contains("[not counted not counted not counted]"), "{native}");
    let run = || printed(&cargo(&dir, CARGO_LWP, &["bench", "--bench", "work"]));
    let times = |report: &str| -> Vec<String> {
        let rows = report.lines().filter_map(|line| line.split_once("time:"));
        rows.map(|(_, time)| time.trim().to_owned()).collect()
    };
    assert!(!run().contains("change:"));
    // From here on criterion reads what it has written before, and has used the heap for that.
    let report = run();
    let first = times(&report);
    assert!(
        first.len() == 2 && first.iter().all(|time| time.contains(" instructions")),
        "{report}"
    );
    for _ in 0..3 {
        let report = run();
        assert_eq!(times(&report), first);
        assert!(report.contains("change: [+0.0000% +0.0000% +0.0000%]"), "{report}");
    }
}

const GOOGLE: &str = r#"
#include <lwp_benchmark.h>
#include <algorithm>
#include <vector>
static void sorting(benchmark::State &state) {
    std::vector<int> numbers(state.range(0));
    lwp::CountInstructions counted(state);
    for (auto _ : state) {
        for (size_t i = 0; i < numbers.size(); i++) numbers[i] = (int)(i * 7919 % 1000);
        std::sort(numbers.begin(), numbers.end());
        benchmark::DoNotOptimize(numbers.data());
    }
}
BENCHMARK(sorting)->Arg(10)->Arg(1000)->Iterations(50);
BENCHMARK_MAIN();
"#;

#[test]
fn google_benchmarks_have_a_counter_of_instructions() {
    if !has("g++") {
        return;
    }
    let dir = fresh("benches", "google");
    std::fs::write(dir.join("work.cc"), GOOGLE).expect("written");
    let include = format!("{ROOT}/include");
    let words = [
        "g++",
        "-std=c++11",
        "-O2",
        "-I",
        &include,
        "-o",
        "work",
        "work.cc",
        "-lbenchmark",
        "-pthread",
    ];
    let output = limited(&dir, &words).output().expect("g++ starts");
    if !output.status.success() {
        return eprintln!(
            "skipped: no Google Benchmark (libbenchmark-dev): {}",
            text(&output.stderr)
        );
    }
    let csv = "--benchmark_format=csv";
    let native = printed(&limited(&dir, &["./work", csv]).output().expect("it starts"));
    assert!(!native.contains("instructions"), "{native}");
    let counted = || -> Vec<String> {
        let words = [LWP, "stat", "-o", "/dev/null", "--", "./work", csv];
        let table = printed(&limited(&dir, &words).output().expect("lwp starts"));
        let lines: Vec<&str> = table.lines().collect();
        let header = lines.iter().position(|line| line.starts_with("name,")).expect(&table);
        assert!(lines[header].ends_with("\"instructions\""), "{table}");
        let last = |line: &&str| line.rsplit(',').next().unwrap_or_default().to_owned();
        lines[header + 1..].iter().map(last).collect()
    };
    let first = counted();
    let value = |index: usize| first[index].parse::<f64>().expect("a number");
    assert!(first.len() == 2 && value(0) > 50.0 && value(1) > 50.0 * value(0) / 2.0, "{first:?}");
    assert_eq!(counted(), first);
}

const PYTHON: &str = r#"
def reversed_numbers():
    return list(range(1000, 0, -1))

def test_sum(count_instructions):
    assert count_instructions(sum, range(1000)) == 499500

def test_sort(count_instructions):
    count_instructions(sorted, setup=reversed_numbers)
"#;

#[test]
fn pytest_counts_instructions() {
    if !has("python3") {
        return;
    }
    let dir = fresh("benches", "python");
    let run = |words: &[&str]| {
        let path =
            format!("{}:{}", Path::new(LWP).parent().expect("a directory").display(), env!("PATH"));
        limited(&dir, words).env("PATH", path).output().expect("timeout starts")
    };
    // The build leaves files beside what it builds.
    let source = format!("{ROOT}/packaging/pytest-lwp");
    let copied = Command::new("cp").args(["-r", &source, "plugin"]).current_dir(&dir).status();
    assert!(copied.is_ok_and(|status| status.success()));
    let made = run(&["python3", "-m", "venv", "venv"]).status.success()
        && run(&["venv/bin/pip", "install", "-q", "pytest", "./plugin"]).status.success();
    if !made {
        return eprintln!("skipped: no environment with pytest can be made");
    }
    std::fs::write(dir.join("test_work.py"), PYTHON).expect("written");
    let pytest =
        |words: &[&str]| run(&[&["venv/bin/pytest", "-q", "test_work.py"], words].concat());
    assert!(!printed(&pytest(&[])).contains("= instructions ="));
    let kept = |name: &str| {
        let report = printed(&pytest(&["--lwp", "--lwp-save", name]));
        assert!(report.contains("= instructions ="), "{report}");
        std::fs::read_to_string(dir.join(name)).expect("text")
    };
    // The first run leaves compiled modules, and a file that pytest finds when it looks for tests.
    kept("first.json");
    let first = kept("first.json");
    assert!(
        first.contains("test_work.py::test_sum") && first.contains("test_work.py::test_sort"),
        "{first}"
    );
    // Other options of pytest's leave another heap, which costs a call that allocates a few
    // instructions more or less, and so does a name of another length.
    assert_eq!(kept("first.json"), first);
    let near = printed(&pytest(&["--lwp", "--lwp-compare", "first.json", "--lwp-limit", "1"]));
    for test in ["test_sum", "test_sort"] {
        let line = near.lines().find(|line| line.contains(test)).expect(&near);
        let change = line.split_whitespace().nth(2).expect("a change");
        let percent = if change == "unchanged" { 0.0 } else { change.parse().expect("a number") };
        assert!(f64::abs(percent) < 0.5, "{near}");
    }
    std::fs::write(dir.join("less.json"), "{\"test_work.py::test_sum\": 100}").expect("written");
    let grown = pytest(&["--lwp", "--lwp-compare", "less.json", "--lwp-limit", "5"]);
    assert!(
        !grown.status.success() && text(&grown.stdout).contains("100 to "),
        "{}",
        text(&grown.stdout)
    );
}
