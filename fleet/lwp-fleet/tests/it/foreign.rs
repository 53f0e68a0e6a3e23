//! Profiles of other tools, made by those tools where they are here and by `lwp export` otherwise: what is in the store adds up to what the
//! other tool says. Each is skipped with a message where its tool is missing; `LWP` names the lwp to take.
//!
//! Promise: FL12
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The lwp to take: the one that `LWP` names, or that of the other workspace.
fn lwp() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("LWP") {
        return Some(PathBuf::from(named));
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let built = ["debug", "release"].map(|profile| root.join(profile).join("lwp"));
    let found = built.into_iter().find(|path| path.is_file());
    if found.is_none() {
        eprintln!("skipped: no lwp in ../target, and LWP names none");
    }
    found
}

const PROGRAM: &str = "
#include <stdio.h>
static int table[512];
__attribute__((noinline)) int find(int w) { for (int i = 0; i < 512; i++) if (table[i] == w) return i; return 0; }
__attribute__((noinline)) int fill(void) { for (int i = 0; i < 512; i++) table[i] = i; return 1; }
int main(void) { int n = fill(); for (int w = 0; w < 20000; w++) n += find(w & 511); printf(\"%d\\n\", n); return 0; }
";

/// A directory with a program, a store, and what runs there.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Option<Self> {
        let place = Self(tempfile::tempdir().unwrap());
        std::fs::write(place.file("words.c"), PROGRAM).unwrap();
        let words = ["-O1", "-g", "-o", "words", "words.c"];
        let Ok(compiled) = Command::new("cc").args(words).current_dir(place.0.path()).status()
        else {
            eprintln!("skipped: no cc");
            return None;
        };
        assert!(compiled.success());
        place.fleet(&["init"]);
        Some(place)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn tool(&self, program: impl AsRef<std::ffi::OsStr>, words: &[&str]) -> Option<Output> {
        let mut command = Command::new(program);
        command.args(words).current_dir(self.0.path()).stdin(Stdio::null()).output().ok()
    }

    #[track_caller]
    fn fleet(&self, words: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lwp-fleet"));
        command.args(words).env("LWP_FLEET_STORE", self.file("store")).current_dir(self.0.path());
        if let Some(folder) = lwp().as_ref().and_then(|lwp| lwp.parent()) {
            let path = std::env::var("PATH").unwrap_or_default();
            command.env("PATH", format!("{}:{path}", folder.display()));
        }
        let output = command.stdin(Stdio::null()).output().expect("lwp-fleet starts");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {error}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn ask(&self, sql: &str) -> String {
        self.fleet(&["sql", "--format", "csv", sql]).lines().skip(1).collect::<Vec<_>>().join("\n")
    }

    fn number(&self, sql: &str) -> u64 {
        self.ask(sql).parse().unwrap_or_else(|_| panic!("{sql}: {}", self.ask(sql)))
    }
}

#[test]
fn what_lwp_exports_comes_back_with_the_same_sums() {
    let (Some(lwp), Some(place)) = (lwp(), Place::new()) else { return };
    let recorded = place.tool(&lwp, &["record", "-q", "-o", "own.data", "--", "./words"]);
    assert!(recorded.is_some_and(|output| output.status.success()));
    place.fleet(&["add", "own.data", "--benchmark", "own"]);
    let own = place.number("select instructions from recordings where benchmark = 'own'");
    let find = place
        .number("select instructions from functions where benchmark = 'own' and function = 'find'");
    assert!(find > 10_000_000 && find < own);
    let formats = [
        ("pprof", "instructions"),
        ("otlp", "instructions"),
        ("folded", "samples"),
        ("callgrind", "Ir"),
    ];
    for (format, event) in formats {
        let name = format!("of-{format}");
        let words = ["export", "-f", format, "-i", "own.data", "-o", &name];
        assert!(place.tool(&lwp, &words).is_some_and(|output| output.status.success()), "{format}");
        place.fleet(&["add", &name, "--benchmark", format]);
        let of = |what: &str| format!("{what} benchmark = '{format}' and event = '{event}'");
        assert_eq!(place.number(&of("select \"value\" from totals where")), own, "{format}");
        let of_find = of("select sum(\"value\") from functions where function = 'find' and");
        assert_eq!(place.number(&of_find), find, "{format}");
        assert_eq!(place.number(&of("select sum(\"value\") from stacks where")), own, "{format}");
        let picture = place.fleet(&[
            "flamegraph",
            "-o",
            "-",
            "-e",
            event,
            "mode=sampled",
            &format!("benchmark={format}"),
        ]);
        assert!(picture.contains("find"), "{format}");
        // Read twice, it is there once.
        assert!(place.fleet(&["add", &name, "--benchmark", format]).contains("already there"));
    }
    place.fleet(&["check", "--deep"]);
}

#[test]
fn what_callgrind_counted_is_what_its_own_tool_says() {
    let Some(place) = Place::new() else { return };
    let words = ["--tool=callgrind", "--callgrind-out-file=out", "./words"];
    let Some(output) = place.tool("valgrind", &words) else {
        eprintln!("skipped: no valgrind");
        return;
    };
    assert!(output.status.success());
    let said = std::fs::read_to_string(place.file("out")).unwrap();
    let totals = said
        .lines()
        .find_map(|line| line.strip_prefix("totals: ").or(line.strip_prefix("summary: ")));
    let total: u64 = totals.and_then(|text| text.trim().parse().ok()).expect("totals");
    place.fleet(&["add", "out", "--commit", "abcd"]);
    assert_eq!(
        place.number("select \"value\" from totals where event = 'Ir' and benchmark = 'words'"),
        total
    );
    assert_eq!(
        place.number("select cast(sum(\"value\") as bigint) from functions where event = 'Ir'"),
        total
    );
    // Twenty thousand calls of find, which were made in main.
    assert_eq!(
        place.ask(
            "select function, callee_function, entered from calls where callee_function = 'find'"
        ),
        "main,find,20000"
    );
    assert_eq!(
        place.number(
            "select \"line\" from lines where function = 'find' order by \"value\" desc limit 1"
        ),
        4
    );
}

#[test]
fn what_perf_sampled_is_what_perf_says() {
    let Some(place) = Place::new() else { return };
    let words =
        ["record", "-q", "-g", "-e", "cpu-clock:u", "-F", "2000", "-o", "perf.data", "./words"];
    let recorded = place.tool("perf", &words);
    if !recorded.is_some_and(|output| output.status.success()) {
        eprintln!("skipped: perf is missing, or may not record here");
        return;
    }
    let script = place.tool("perf", &["script", "-i", "perf.data"]).expect("perf").stdout;
    std::fs::write(place.file("script"), &script).unwrap();
    place.fleet(&["add", "script", "perf.data", "--project", "x"]);
    let text = String::from_utf8_lossy(&script);
    let samples = text.lines().filter(|line| line.contains("cpu-clock:u:")).count() as u64;
    let period = place.number("select \"value\" from totals where benchmark = 'script'");
    assert_eq!(period, samples * 500_000, "{samples} samples of 500 us");
    assert_eq!(place.number("select \"value\" from totals where benchmark = 'perf'"), period);
    let most = "select function from functions where benchmark = 'script' and event is not null order by \"value\" desc limit 1";
    assert_eq!(place.ask(most), "find");
}

#[test]
fn damaged_profiles_are_refused_by_what_is_wrong() {
    let Some(place) = Place::new() else { return };
    let cases: [(&str, &[u8], &str); 6] = [
        ("pprof", &[0x0a, 0xff, 0xff], "error: "),
        ("otlp", &[0x12, 0x02, 0x2a, 0x00], "count"),
        ("folded", b"a;b 1\nmain;find\n", "line 2: a stack and a count are wanted"),
        ("callgrind", b"# callgrind format\nevents: Ir\n12 5\n", "line 3: costs before a function"),
        ("perf-script", b"a 1 2.5: cycles: \n\t12 main (a)\n\nno head\n", "no head of a sample"),
        ("bencher", b"{\"a\":{\"latency\":{}}}", "latency of 'a' has no value"),
    ];
    for (format, bytes, wanted) in cases {
        std::fs::write(place.file("bad"), bytes).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_lwp-fleet"));
        command.args(["add", "bad", "--from", format]).env("LWP_FLEET_STORE", place.file("store"));
        let output = command.current_dir(place.0.path()).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{format}: {error}");
        assert!(error.contains(wanted.trim_start_matches("error: ")), "{format}: {error}");
        assert_eq!(place.number("select count(*) from recordings"), 0);
    }
}
